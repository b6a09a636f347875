/* The serving side: one listener, one worker per connection (rule R2), one request on each (rule R3). */
#include <arpa/inet.h>
#include <libgen.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "peer.h"

/* A body goes out in up to this many parts. */
#define PARTS 3

struct connection {
  struct worker worker;
  ucp_ep_h endpoint;
  int asked; /* a second request is never answered (rule R3) */
  int gone;  /* the client closed its end, or died */
  /* What sends read from, freed with the connection. */
  void **owned;
  size_t owned_count, owned_capacity;
  /* The request under way, which UCX writes to. */
  char *ticket;
  size_t ticket_bytes;
  int metadata;
};

struct file {
  char *name;
  struct ipc_stream stream;
};

struct server {
  const struct options *options;
  ucp_context_h context;
  struct worker worker; /* the listener's */
  struct file *files;
  size_t file_count;
  struct connection **connections;
  size_t connection_count, connection_capacity;
  /* Connections that wait to be accepted: not in the listener's callback. */
  ucp_conn_request_h *waiting;
  size_t waiting_count, waiting_capacity;
};

static void on_connection(ucp_conn_request_h request, void *argument) {
  struct server *server = argument;
  server->waiting =
      grow(server->waiting, &server->waiting_capacity, server->waiting_count + 1, sizeof request);
  server->waiting[server->waiting_count++] = request;
}

static void on_endpoint_error(void *argument, ucp_ep_h endpoint, ucs_status_t status) {
  (void)endpoint;
  (void)status;
  ((struct connection *)argument)->gone = 1;
}

static void accept_connection(struct server *server, ucp_conn_request_h request) {
  struct connection *connection = allocate(sizeof *connection);
  worker_new(server->context, &connection->worker);
  ucp_ep_params_t params = {
      .field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST | UCP_EP_PARAM_FIELD_ERR_HANDLER,
      .conn_request = request,
      .err_handler = {.cb = on_endpoint_error, .arg = connection}};
  if (server->options->error_mode_peer) {
    params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  }
  if (ucp_ep_create(connection->worker.handle, &params, &connection->endpoint) != UCS_OK) {
    /* The client has gone already. */
    ucp_worker_destroy(connection->worker.handle);
    free(connection);
    return;
  }
  server->connections = grow(server->connections, &server->connection_capacity,
                             server->connection_count + 1, sizeof connection);
  server->connections[server->connection_count++] = connection;
}

static void *own(struct connection *connection, size_t bytes) {
  connection->owned = grow(connection->owned, &connection->owned_capacity,
                           connection->owned_count + 1, sizeof(void *));
  return connection->owned[connection->owned_count++] = allocate(bytes);
}

static void connection_free(struct connection *connection) {
  endpoint_close(&connection->worker, connection->endpoint);
  ucp_worker_destroy(connection->worker.handle);
  for (size_t i = 0; i < connection->owned_count; i++) free(connection->owned[i]);
  free(connection->owned);
  free(connection->ticket);
  free(connection);
}

/* A failed send shows in the endpoint's error handler as well, so the status is not looked at. */
static void on_sent(void *request, ucs_status_t status, void *argument) {
  (void)status;
  (void)argument;
  ucp_request_free(request);
}

static void posted(struct connection *connection, ucs_status_ptr_t result) {
  if (UCS_PTR_IS_ERR(result)) connection->gone = 1;
}

/* Rules M2 to M5, R1: an active message with id 0 and the reply flag. */
static void send_metadata(struct connection *connection, enum prefix_kind kind, uint32_t sequence,
                          const uint8_t *header, size_t bytes) {
  uint8_t *message = own(connection, PREFIX_BYTES + bytes);
  message[0] = (uint8_t)kind;
  put_u32(message + 1, sequence);
  if (bytes > 0) memcpy(message + PREFIX_BYTES, header, bytes);
  ucp_request_param_t params = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_FLAGS,
                                .flags = UCP_AM_SEND_FLAG_REPLY,
                                .cb.send = on_sent};
  posted(connection,
         ucp_am_send_nbx(connection->endpoint, 0, NULL, 0, message, PREFIX_BYTES + bytes, &params));
}

/* Rules D1 to D3, R1: a tag message of parts, or an empty one. The tag is the number: kind 0. */
static void send_body(struct connection *connection, uint32_t sequence, const uint8_t *body,
                      size_t bytes) {
  ucp_request_param_t params = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK, .cb.send = on_sent};
  if (bytes == 0) {
    posted(connection, ucp_tag_send_nbx(connection->endpoint, body, 0, sequence, &params));
    return;
  }
  /* Cut at multiples of 8, as buffers are; a short body has fewer parts. */
  ucp_dt_iov_t *parts = own(connection, PARTS * sizeof *parts);
  size_t step = (bytes / PARTS + 7) & ~(size_t)7, count = 0;
  for (size_t at = 0; at < bytes; count++) {
    size_t length = count == PARTS - 1 || bytes - at < step ? bytes - at : step;
    parts[count] = (ucp_dt_iov_t){.buffer = (void *)(body + at), .length = length};
    at += length;
  }
  params.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
  params.datatype = UCP_DATATYPE_IOV;
  posted(connection, ucp_tag_send_nbx(connection->endpoint, parts, count, sequence, &params));
}

static void answer(struct server *server, struct connection *connection) {
  const struct ipc_stream *stream = NULL;
  for (size_t i = 0; i < server->file_count; i++) {
    const struct file *file = &server->files[i];
    if (strlen(file->name) == connection->ticket_bytes &&
        memcmp(file->name, connection->ticket, connection->ticket_bytes) == 0) {
      stream = &file->stream;
    }
  }
  /* Rule R5: an unknown ticket is silence. */
  if (stream == NULL) return;
  for (size_t i = 0; i < stream->count; i++) {
    const struct ipc_message *message = &stream->messages[i];
    if (connection->metadata) {
      send_metadata(connection, PREFIX_METADATA, (uint32_t)i, message->header, message->header_bytes);
    } else if (message->has_body) {
      send_body(connection, (uint32_t)i, message->body, message->body_bytes);
    }
  }
  if (connection->metadata) send_metadata(connection, PREFIX_END, (uint32_t)stream->count, NULL, 0);
}

/* Looks for the request of a connection; returns whether it came. */
static int take_request(struct server *server, struct connection *connection) {
  ucp_tag_recv_info_t info;
  if (connection->asked) return 0;
  ucp_tag_message_h message =
      ucp_tag_probe_nb(connection->worker.handle, WANT_DATA, WANT_MASK, 1, &info);
  if (message == NULL) return 0;
  connection->asked = 1;
  connection->metadata = (info.sender_tag & ~WANT_MASK) != 0;
  connection->ticket_bytes = info.length;
  connection->ticket = allocate(info.length);
  ucp_request_param_t params = {0};
  void *request = ucp_tag_msg_recv_nbx(connection->worker.handle, connection->ticket, info.length,
                                       message, &params);
  if (UCS_PTR_IS_ERR(request)) {
    connection->gone = 1;
    return 1;
  }
  if (request != NULL) {
    const struct worker *worker = &connection->worker;
    while (ucp_request_check_status(request) == UCS_INPROGRESS && !connection->gone) {
      if (!worker_progress(worker)) wait_for_events(&worker, 1, -1);
    }
    int received = ucp_request_check_status(request) == UCS_OK;
    ucp_request_free(request);
    if (!received) {
      connection->gone = 1;
      return 1;
    }
  }
  answer(server, connection);
  return 1;
}

static void print_uris(ucp_listener_h listener, const char *host) {
  ucp_listener_attr_t attributes = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};
  check(ucp_listener_query(listener, &attributes), "cannot ask for the port");
  /* Both families have the port in the same place. */
  unsigned port = ntohs(((struct sockaddr_in *)&attributes.sockaddr)->sin_port);
  const uint64_t wants[] = {WANT_METADATA, WANT_DATA};
  for (int i = 0; i < 2; i++) {
    printf("ucx://%s:%u?want_data=%llu&free_data=%llu\n", host, port, (unsigned long long)wants[i],
           (unsigned long long)FREE_DATA);
  }
  fflush(stdout);
}

/* Whether standard input has ended; what comes from it before is left alone. */
static int input_ended(void) {
  struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
  char ignored[256];
  return poll(&input, 1, 0) > 0 && read(STDIN_FILENO, ignored, sizeof ignored) <= 0;
}

/* Everything that can be done without waiting; returns whether there was anything. */
static int run_once(struct server *server) {
  int any = worker_progress(&server->worker);
  for (; server->waiting_count > 0; any = 1) {
    accept_connection(server, server->waiting[--server->waiting_count]);
  }
  for (size_t i = 0; i < server->connection_count;) {
    struct connection *connection = server->connections[i];
    any |= worker_progress(&connection->worker);
    any |= take_request(server, connection);
    if (connection->gone) {
      /* Rule R6: only the client closes. */
      server->connections[i] = server->connections[--server->connection_count];
      connection_free(connection);
    } else {
      i++;
    }
  }
  return any;
}

void serve(const struct options *options, const char *host, const char *port, char **files, int count) {
  struct server server = {.options = options, .file_count = (size_t)count};
  server.files = allocate((size_t)count * sizeof *server.files);
  for (int i = 0; i < count; i++) {
    ipc_read(files[i], &server.files[i].stream);
    server.files[i].name = basename(files[i]);
  }
  server.context = context_new(options);
  worker_new(server.context, &server.worker);

  char text[300];
  struct sockaddr_storage address;
  snprintf(text, sizeof text, "%s:%s", host, port);
  socklen_t bytes = parse_address(text, &address);
  ucp_listener_params_t params = {
      .field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
      .sockaddr = {.addr = (struct sockaddr *)&address, .addrlen = bytes},
      .conn_handler = {.cb = on_connection, .arg = &server}};
  ucp_listener_h listener;
  check(ucp_listener_create(server.worker.handle, &params, &listener), "cannot listen");
  print_uris(listener, host);

  while (!input_ended()) {
    if (run_once(&server)) continue;
    const struct worker **workers = allocate((server.connection_count + 1) * sizeof *workers);
    workers[0] = &server.worker;
    for (size_t i = 0; i < server.connection_count; i++) workers[i + 1] = &server.connections[i]->worker;
    wait_for_events(workers, server.connection_count + 1, STDIN_FILENO);
    free(workers);
  }
  /* What is still open goes with the process: closing would wait for clients. */
}
