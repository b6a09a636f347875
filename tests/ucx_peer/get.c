/* The getting side: two connections, one for each stream (rule R3), joined by number. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "peer.h"

/* Rule D2: in the tag of an address list. */
#define LIST_TAG (UINT64_C(1) << 56)

/* More messages than any test has; a number beyond is a mistake. */
#define MAX_MESSAGES (UINT32_C(1) << 20)

/* One message, as its two halves come. */
struct slot {
  uint8_t *header, *body;
  size_t header_bytes, body_bytes;
  int has_body;
  int is_list; /* the body is an address list, still to be read */
};

struct client {
  struct slot *slots;
  size_t capacity;
  size_t headers, bodies;  /* that have come */
  size_t expected_bodies;  /* that the headers announce */
  size_t rendezvous;       /* metadata messages that had to be fetched */
  int ended;
  uint32_t end; /* the number of the end of stream */
  struct worker metadata, data;
  struct lent lent;
};

/* Something that is still being received. */
struct receipt {
  struct client *client;
  uint32_t sequence;
  int is_list;
  uint8_t *bytes;
  size_t length;
};

static struct slot *slot(struct client *client, uint32_t sequence) {
  if (sequence >= MAX_MESSAGES) die("message number %u", sequence);
  client->slots = grow(client->slots, &client->capacity, (size_t)sequence + 1, sizeof(struct slot));
  return &client->slots[sequence];
}

/* Rules M2 to M6; takes `message`. */
static void metadata_came(struct client *client, uint8_t *message, size_t bytes) {
  if (bytes < PREFIX_BYTES) die("a metadata message of %zu bytes", bytes);
  uint32_t sequence = get_u32(message + 1);
  if (message[0] == PREFIX_END) {
    if (bytes != PREFIX_BYTES || client->ended) die("a wrong end of stream");
    client->ended = 1;
    client->end = sequence;
    free(message);
    return;
  }
  if (message[0] != PREFIX_METADATA) die("a metadata message of kind %d", message[0]);
  struct slot *place = slot(client, sequence);
  if (place->header != NULL) die("message number %u twice", sequence);
  place->header_bytes = bytes - PREFIX_BYTES;
  place->header = allocate(place->header_bytes);
  memcpy(place->header, message + PREFIX_BYTES, place->header_bytes);
  free(message);
  size_t body_bytes;
  if (!ipc_parse(place->header, place->header_bytes, &place->has_body, &body_bytes)) {
    die("message number %u is malformed", sequence);
  }
  if (place->has_body == (sequence == 0)) die("message number %u is of the wrong kind", sequence);
  client->headers++;
  client->expected_bodies += (size_t)place->has_body;
}

static void on_metadata_received(void *request, ucs_status_t status, size_t length, void *argument) {
  struct receipt *receipt = argument;
  check(status, "cannot receive metadata");
  if (length != receipt->length) die("metadata of %zu bytes instead of %zu", length, receipt->length);
  metadata_came(receipt->client, receipt->bytes, receipt->length);
  free(receipt);
  ucp_request_free(request);
}

/* Rule R1: small messages are here as a whole, large ones must be fetched. */
static ucs_status_t on_metadata(void *argument, const void *header, size_t header_bytes, void *data,
                                size_t length, const ucp_am_recv_param_t *param) {
  struct client *client = argument;
  (void)header;
  if (header_bytes != 0) die("an active message with a header of %zu bytes", header_bytes);
  uint8_t *bytes = allocate(length);
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) {
    memcpy(bytes, data, length);
    metadata_came(client, bytes, length);
    return UCS_OK;
  }
  client->rendezvous++;
  struct receipt *receipt = allocate(sizeof *receipt);
  *receipt = (struct receipt){.client = client, .bytes = bytes, .length = length};
  ucp_request_param_t params = {
      .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                      UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
      .cb.recv_am = on_metadata_received,
      .user_data = receipt};
  void *request = ucp_am_recv_data_nbx(client->metadata.handle, data, bytes, length, &params);
  if (UCS_PTR_IS_ERR(request)) check(UCS_PTR_STATUS(request), "cannot receive metadata");
  return UCS_INPROGRESS;
}

static void on_body_received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
                             void *argument) {
  struct receipt *receipt = argument;
  check(status, "cannot receive a body");
  struct slot *place = slot(receipt->client, receipt->sequence);
  if (place->body != NULL) die("body number %u twice", receipt->sequence);
  place->body = receipt->bytes;
  place->body_bytes = info->length;
  place->is_list = receipt->is_list;
  receipt->client->bodies++;
  free(receipt);
  ucp_request_free(request);
}

/* Takes a body that has come, whatever its number; returns whether one had. */
static int take_body(struct client *client) {
  ucp_tag_recv_info_t info;
  ucp_tag_message_h message = ucp_tag_probe_nb(client->data.handle, 0, 0, 1, &info);
  if (message == NULL) return 0;
  /* Rules D2, D6: kind 0 or 1, and nothing between. */
  if (info.sender_tag & ~(LIST_TAG | UINT32_MAX)) {
    die("a body with tag %llx", (unsigned long long)info.sender_tag);
  }
  struct receipt *receipt = allocate(sizeof *receipt);
  *receipt = (struct receipt){.client = client,
                              .sequence = (uint32_t)info.sender_tag,
                              .is_list = (info.sender_tag & LIST_TAG) != 0,
                              .bytes = allocate(info.length),
                              .length = info.length};
  ucp_request_param_t params = {
      .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                      UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
      .cb.recv = on_body_received,
      .user_data = receipt};
  void *request =
      ucp_tag_msg_recv_nbx(client->data.handle, receipt->bytes, info.length, message, &params);
  if (UCS_PTR_IS_ERR(request)) check(UCS_PTR_STATUS(request), "cannot receive a body");
  return 1;
}

/* Reads what has come as a list; returns whether anything had. */
static int read_lists(struct client *client, ucp_ep_h endpoint) {
  int any = 0;
  for (size_t i = 0; i < client->capacity; i++) {
    struct slot list = client->slots[i];
    if (!list.is_list) continue;
    size_t bytes;
    uint8_t *body =
        lent_read(&client->lent, &client->data, endpoint, list.body, list.body_bytes, &bytes);
    /* Other bodies may have come meanwhile, and the slots have moved. */
    client->slots[i].body = body;
    client->slots[i].body_bytes = bytes;
    client->slots[i].is_list = 0;
    free(list.body);
    any = 1;
  }
  return any;
}

/* Rule M6. */
static int complete(const struct client *client) {
  return client->ended && client->headers == client->end && client->bodies == client->expected_bodies;
}

static void on_endpoint_error(void *argument, ucp_ep_h endpoint, ucs_status_t status) {
  (void)argument;
  (void)endpoint;
  die("the connection is lost: %s", ucs_status_string(status));
}

/* Connects and asks: one synchronous tag message (rule R3). `request` gets what is under way. */
static ucp_ep_h ask(const struct options *options, const struct worker *worker, char *uri,
                    const char *ticket, void **request) {
  struct sockaddr_storage address;
  socklen_t bytes;
  uint64_t want_data;
  parse_uri(uri, &address, &bytes, &want_data);
  ucp_ep_params_t params = {
      .field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_NAME,
      .flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER | UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID,
      .name = "peer",
      .sockaddr = {.addr = (struct sockaddr *)&address, .addrlen = bytes}};
  if (options->error_mode_peer) {
    params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler.cb = on_endpoint_error;
  }
  ucp_ep_h endpoint;
  check(ucp_ep_create(worker->handle, &params, &endpoint), "cannot connect");
  ucp_request_param_t send = {0};
  *request = ucp_tag_send_sync_nbx(endpoint, ticket, strlen(ticket), want_data, &send);
  if (UCS_PTR_IS_ERR(*request)) check(UCS_PTR_STATUS(*request), "cannot ask");
  return endpoint;
}

/* Frees a request of ask(); it must have been received, since its answer is complete. */
static void asked(const struct worker *worker, void *request) {
  if (request == NULL) return;
  while (ucp_request_check_status(request) == UCS_INPROGRESS) {
    if (!worker_progress(worker)) wait_for_events(&worker, 1, -1);
  }
  check(ucp_request_check_status(request), "cannot ask");
  ucp_request_free(request);
}

static void write_table(const struct client *client, const char *output) {
  struct ipc_message *messages = allocate(client->end * sizeof *messages);
  for (uint32_t i = 0; i < client->end; i++) {
    const struct slot *place = &client->slots[i];
    size_t announced;
    int has_body;
    ipc_parse(place->header, place->header_bytes, &has_body, &announced);
    if (place->body_bytes != announced) {
      die("body number %u has %zu bytes instead of %zu", i, place->body_bytes, announced);
    }
    messages[i] = (struct ipc_message){.header = place->header,
                                       .header_bytes = place->header_bytes,
                                       .body = place->body,
                                       .body_bytes = place->body_bytes};
  }
  ipc_write(output, messages, client->end);
  free(messages);
}

void get(const struct options *options, char *metadata_uri, char *data_uri, const char *ticket,
         const char *output) {
  struct client client = {0};
  ucp_context_h context = context_new(options);
  worker_new(context, &client.metadata);
  worker_new(context, &client.data);
  ucp_am_handler_param_t handler = {
      .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                    UCP_AM_HANDLER_PARAM_FIELD_ARG,
      .id = 0,
      .cb = on_metadata,
      .arg = &client};
  check(ucp_worker_set_am_recv_handler(client.metadata.handle, &handler), "cannot receive");

  void *metadata_request, *data_request;
  lent_open(&client.lent, data_uri);
  ucp_ep_h metadata = ask(options, &client.metadata, metadata_uri, ticket, &metadata_request);
  ucp_ep_h data = ask(options, &client.data, data_uri, ticket, &data_request);
  const struct worker *workers[] = {&client.metadata, &client.data};
  while (!complete(&client)) {
    int any = worker_progress(&client.metadata);
    any |= worker_progress(&client.data);
    while (take_body(&client)) any = 1;
    while (read_lists(&client, data)) any = 1;
    if (!any) wait_for_events(workers, 2, -1);
  }
  asked(&client.metadata, metadata_request);
  asked(&client.data, data_request);
  write_table(&client, output);
  printf("%zu messages, %zu bodies, %zu by rendezvous, %zu lists\n", client.headers, client.bodies,
         client.rendezvous, client.lent.lists);

  lent_close(&client.lent);
  /* Rule R6: by flush, and only now. */
  endpoint_close(&client.metadata, metadata);
  endpoint_close(&client.data, data);
  ucp_worker_destroy(client.metadata.handle);
  ucp_worker_destroy(client.data.handle);
  ucp_cleanup(context);
  for (size_t i = 0; i < client.capacity; i++) {
    free(client.slots[i].header);
    free(client.slots[i].body);
  }
  free(client.slots);
}
