/* Tables that a client sends: a server in a process of its own, over shared memory, tcp and ucx. */
#include <poll.h>
#include <pthread.h>
#include <signal.h>

#include "forked.h"

#define BATCHES 40
#define ROWS 2000

/* The ticket of a request as a string. */
static void ticket_of(const dipc_request *request, char *ticket, size_t size) {
  size_t len = 0;
  memset(ticket, 0, size);
  OK(dipc_request_ticket(request, (uint8_t *)ticket, size - 1, &len, &error_));
}

/* Reads `most` batches of a client's table and checks them. Returns their number. */
static uint64_t read_some(struct ArrowDeviceArrayStream *source, uint64_t most, int *code) {
  uint64_t batches = 0;
  struct ArrowDeviceArray batch;
  while (batches < most && (*code = source->get_next(source, &batch)) == 0 &&
         batch.array.release) {
    table_check(&batch.array, (int64_t)batches * ROWS, ROWS);
    batch.array.release(&batch.array);
    batches++;
  }
  return batches;
}

/* Takes tables as their names say. */
static int32_t take(void *userdata, dipc_request *request, struct ArrowDeviceArrayStream *out) {
  (void)userdata;
  char ticket[64];
  int code = 0;
  struct ArrowSchema schema;
  struct ArrowDeviceArrayStream source;
  ticket_of(request, ticket, sizeof ticket);
  CHECK_EQ(dipc_request_verb(request), DIPC_VERB_PUT);
  OK(dipc_request_source_schema(request, &schema, &error_));
  table_check_schema(&schema);
  schema.release(&schema);
  if (strcmp(ticket, "refuse") == 0) {
    OK(dipc_request_fail(request, DIPC_ERR_PERMISSION, "not this one", &error_));
    return 1;
  }
  if (strcmp(ticket, "nothing") == 0) return 0;
  if (strcmp(ticket, "stream") == 0) {
    table_stream(out, 1, 1, -1, NULL);
    return 0;
  }
  OK(dipc_request_source(request, &source, &error_));
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "taken before",
        dipc_request_source_schema(request, &schema, &error_));
  uint64_t most = strcmp(ticket, "half") == 0 ? 3 : UINT64_MAX;
  uint64_t batches = read_some(&source, most, &code);
  if (strcmp(ticket, "crash") == 0) raise(SIGKILL);
  if (code == 0) {
    OK(dipc_request_result(request, batches, (const uint8_t *)ticket, strlen(ticket), &error_));
  }
  source.release(&source);
  return code;
}

static void offer(dipc_server *server) {
  OK(dipc_server_set_handler(server, take, NULL, NULL, 0, &error_));
}

static uint64_t figure(const dipc_put *put, int32_t stat) {
  uint64_t value = 0;
  OK(dipc_put_stat(put, stat, &value, &error_));
  return value;
}

static dipc_put *open_put(const dipc_client *client, const char *uri, const char *name) {
  dipc_put *put = NULL;
  struct ArrowSchema schema;
  table_schema(&schema);
  OK(dipc_client_put_open(client, &uri, 1, (const uint8_t *)name, strlen(name), NULL, NULL,
                          &schema, ARROW_DEVICE_CPU, &put, &error_));
  schema.release(&schema);
  return put;
}

/* Pushes batch after batch; returns the first status that is not DIPC_OK. */
static int32_t push_all(dipc_put *put, int64_t batches, const table_memory *memory,
                        dipc_error **error) {
  int32_t status = DIPC_OK;
  for (int64_t i = 0; i < batches && status == DIPC_OK; i++) {
    struct ArrowDeviceArray batch;
    table_batch(&batch, i * ROWS, ROWS, memory);
    status = dipc_put_push(put, &batch, NULL, 0, DIPC_FOREVER, error);
    /* Moved on success alone. */
    CHECK_EQ(batch.array.release == NULL, status == DIPC_OK);
    if (batch.array.release) batch.array.release(&batch.array);
  }
  return status;
}

/* A table crosses in both forms, and the host's word comes back. Every batch is released. */
static void tables_cross(const char *uri, bool is_shm) {
  dipc_client *client = new_client();
  dipc_put *put = NULL;
  uint64_t batches = 0;
  char text[64] = "";
  size_t len = 0;
  struct ArrowDeviceArrayStream source;
  table_stream(&source, BATCHES, ROWS, -1, NULL);
  OK(dipc_client_put(client, &uri, 1, TICKET("by a stream"), NULL, NULL, &source, &put, &error_));
  CHECK(source.release == NULL);
  OK(dipc_put_next_result(put, DIPC_FOREVER, &batches, &error_));
  CHECK_EQ(batches, BATCHES);
  FAILS(DIPC_ERR_BUFFER_TOO_SMALL, "11",
        dipc_put_result(put, (uint8_t *)text, 10, &len, &error_));
  OK(dipc_put_result(put, (uint8_t *)text, sizeof text, &len, &error_));
  CHECK(len == 11 && memcmp(text, "by a stream", len) == 0);
  CHECK_EQ(dipc_put_next_result(put, DIPC_FOREVER, &batches, NULL), DIPC_NOTHING);
  OK(dipc_put_finish(put, DIPC_FOREVER, &batches, &error_));
  CHECK_EQ(batches, BATCHES);
  dipc_put_free(put);
  table_wait_live(0);

  /* From an arena, whose blocks are lent over shared memory. */
  table_memory arena = arena_memory();
  for (int round = 0; round < 3; round++) {
    put = open_put(client, uri, "by batches");
    OK(push_all(put, BATCHES, &arena, &error_));
    OK(dipc_put_finish(put, DIPC_FOREVER, NULL, &error_));
    /* The host's word behind the last batch is there after the end. */
    OK(dipc_put_next_result(put, 0, &batches, &error_));
    CHECK_EQ(batches, BATCHES);
    CHECK_EQ(dipc_put_next_result(put, 0, &batches, NULL), DIPC_NOTHING);
    CHECK_EQ(figure(put, DIPC_PUT_STAT_BATCHES), BATCHES);
    CHECK_EQ(figure(put, DIPC_PUT_STAT_BYTES_SENT) == 0, is_shm);
    CHECK_EQ(figure(put, DIPC_PUT_STAT_BYTES_LENT) > 0, is_shm);
    CHECK_EQ(figure(put, DIPC_PUT_STAT_BYTES_COPIED), 0);
    FAILS(DIPC_ERR_INVALID_ARGUMENT, "DIPC_PUT_STAT", dipc_put_stat(put, 9, &batches, &error_));
    FAILS(DIPC_ERR_INVALID_ARGUMENT, "finished already", push_all(put, 1, NULL, &error_));
    dipc_put_free(put);
  }
  table_wait_live(0);
  dipc_arena_free(arena.context);
  uint64_t made = 0;
  OK(dipc_client_stat(client, DIPC_CLIENT_STAT_CONNECTIONS_MADE, &made, &error_));
  CHECK_EQ(made, 1);
  dipc_client_free(client);
}

/* A host that does not take a table: the client has the reason, and the source back if nothing of it
 * was sent. */
static void tables_fail(const char *uri) {
  dipc_client *client = new_client();
  dipc_put *put = NULL;
  struct ArrowDeviceArrayStream source;
  table_stream(&source, BATCHES, ROWS, -1, NULL);
  FAILS(DIPC_ERR_PERMISSION, "not this one",
        dipc_client_put(client, &uri, 1, TICKET("refuse"), NULL, NULL, &source, &put, &error_));
  CHECK(source.release != NULL && put == NULL);
  source.release(&source);

  static const char *const names[] = {"half", "nothing", "stream"};
  static const char *const texts[] = {"before its end", "did not take", "gave a stream"};
  for (size_t i = 0; i < 3; i++) {
    struct ArrowSchema schema;
    table_schema(&schema);
    dipc_error *error = NULL;
    int32_t status =
        dipc_client_put_open(client, &uri, 1, (const uint8_t *)names[i], strlen(names[i]), NULL,
                             NULL, &schema, ARROW_DEVICE_CPU, &put, &error);
    schema.release(&schema);
    if (status == DIPC_OK) {
      status = push_all(put, 100, NULL, &error);
      if (status == DIPC_OK) status = dipc_put_finish(put, DIPC_FOREVER, NULL, &error);
      dipc_put_free(put);
    }
    CHECK_EQ(status, DIPC_ERR_PROVIDER);
    CHECK(strstr(dipc_error_text(error), texts[i]) != NULL);
    dipc_error_free(error);
  }

  /* A source that breaks, and a client that leaves: the server's host sees no end. */
  table_stream(&source, BATCHES, ROWS, 5, NULL);
  OK(dipc_client_put(client, &uri, 1, TICKET("broken"), NULL, NULL, &source, &put, &error_));
  FAILS(DIPC_ERR_PROVIDER, "broken pipe dream", dipc_put_finish(put, DIPC_FOREVER, NULL, &error_));
  dipc_put_free(put);
  put = open_put(client, uri, "left");
  OK(push_all(put, 5, NULL, &error_));
  dipc_put_free(put);
  put = open_put(client, uri, "failed");
  OK(push_all(put, 5, NULL, &error_));
  OK(dipc_put_fail(put, DIPC_ERR_INVALID_DATA, "a bad row", &error_));
  FAILS(DIPC_ERR_INVALID_DATA, "a bad row", dipc_put_finish(put, DIPC_FOREVER, NULL, &error_));
  dipc_put_free(put);
  dipc_client_free(client);
  table_wait_live(0);
}

/* A table crosses with a checksum in each message. */
static void tables_have_checksums(const char *uri) {
  dipc_client *client = new_client();
  dipc_put_options *options = NULL;
  dipc_put *put = NULL;
  struct ArrowDeviceArrayStream source;
  uint64_t batches = 0;
  OK(dipc_put_options_new(&options, &error_));
  OK(dipc_put_options_set_checksums(options, true, &error_));
  table_stream(&source, BATCHES, ROWS, -1, NULL);
  OK(dipc_client_put(client, &uri, 1, TICKET("checked"), options, NULL, &source, &put, &error_));
  OK(dipc_put_finish(put, DIPC_FOREVER, &batches, &error_));
  CHECK_EQ(batches, BATCHES);
  dipc_put_free(put);
  dipc_put_options_free(options);
  dipc_client_free(client);
  table_wait_live(0);
}

static dipc_pending *start_put(const dipc_client *client, const char *uri, const char *name) {
  dipc_pending *pending = NULL;
  struct ArrowSchema schema;
  table_schema(&schema);
  OK(dipc_client_start_put(client, &uri, 1, (const uint8_t *)name, strlen(name), NULL, NULL,
                           &schema, ARROW_DEVICE_CPU, &pending, &error_));
  schema.release(&schema);
  return pending;
}

/* One thread sends a table and waits for the answer and for the end by descriptors. */
static void a_put_is_polled(const char *uri) {
  dipc_client *client = new_client();
  struct ArrowDeviceArrayStream stream;
  dipc_put *put = NULL;
  dipc_pending *refused = start_put(client, uri, "refuse");
  dipc_pending *pending = start_put(client, uri, "polled");
  wait_until_readable(refused);
  FAILS(DIPC_ERR_PERMISSION, "not this one", dipc_pending_try_put(refused, &put, &error_));
  dipc_pending_free(refused);
  wait_until_readable(pending);
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "another verb",
        dipc_pending_try_exchange(pending, &put, &stream, &error_));
  OK(dipc_pending_try_put(pending, &put, &error_));
  dipc_pending_free(pending);
  int fd = -1, waits = 0;
  OK(dipc_put_fd(put, &fd, &error_));
  struct pollfd polled = {.fd = fd, .events = POLLIN};
  for (int64_t i = 0; i < 200;) {
    struct ArrowDeviceArray batch;
    table_batch(&batch, i * ROWS, ROWS, NULL);
    int32_t status = dipc_put_push(put, &batch, NULL, 0, 0, NULL);
    if (status == DIPC_OK) {
      i++;
      continue;
    }
    CHECK_EQ(status, DIPC_ERR_TIMEOUT);
    CHECK(!dipc_put_is_over(put));
    batch.array.release(&batch.array);
    CHECK(poll(&polled, 1, 10000) > 0);
    waits++;
  }
  int32_t status;
  while ((status = dipc_put_finish(put, 0, NULL, NULL)) == DIPC_ERR_TIMEOUT) {
    CHECK(poll(&polled, 1, 10000) > 0);
    CHECK(waits++ < 1000);
  }
  CHECK_EQ(status, DIPC_OK);
  CHECK(dipc_put_is_over(put));
  CHECK(poll(&polled, 1, 0) > 0);
  dipc_put_free(put);
  dipc_client_free(client);
  table_wait_live(0);
}

/* Takes one table in the pull form: by the stream's descriptor, as in an event loop. */
static void *take_by_descriptor(void *server) {
  dipc_request *request = NULL;
  struct ArrowDeviceArrayStream source;
  struct ArrowDeviceArray batch;
  int64_t batches = 0;
  int fd = -1;
  OK(dipc_server_next_request(server, DIPC_FOREVER, NULL, &request, &error_));
  CHECK_EQ(dipc_request_verb(request), DIPC_VERB_PUT);
  OK(dipc_request_source(request, &source, &error_));
  OK(dipc_stream_fd(&source, &fd, &error_));
  struct pollfd polled = {.fd = fd, .events = POLLIN};
  for (;;) {
    int32_t status = dipc_stream_try_next(&source, &batch, NULL);
    if (status == DIPC_NOTHING) {
      CHECK(poll(&polled, 1, 10000) > 0);
      continue;
    }
    CHECK_EQ(status, DIPC_OK);
    if (!batch.array.release) break;
    table_check(&batch.array, batches++ * ROWS, ROWS);
    batch.array.release(&batch.array);
  }
  CHECK_EQ(stream_stat(&source, DIPC_STREAM_STAT_BATCHES), batches);
  OK(dipc_request_finish(request, DIPC_FOREVER, &error_));
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "answered before",
        dipc_request_finish(request, DIPC_FOREVER, &error_));
  source.release(&source);
  dipc_request_free(request);
  return NULL;
}

static void tables_are_taken_in_the_pull_form(void) {
  char uri[DIPC_URI_BYTES];
  const char *uris[] = {uri};
  dipc_server *server = new_server(NULL, uri);
  dipc_client *client = new_client();
  dipc_request *request = NULL;
  dipc_put *put = NULL;
  dipc_put_options *options = NULL;
  struct ArrowDeviceArrayStream source;
  pthread_t host;
  uint64_t batches = 0;
  OK(dipc_server_set_handler_pull(server, &error_));
  CHECK_EQ(pthread_create(&host, NULL, take_by_descriptor, server), 0);
  table_stream(&source, BATCHES, ROWS, -1, NULL);
  OK(dipc_client_put(client, uris, 1, TICKET("pull"), NULL, NULL, &source, &put, &error_));
  OK(dipc_put_finish(put, DIPC_FOREVER, &batches, &error_));
  CHECK_EQ(batches, BATCHES);
  dipc_put_free(put);
  CHECK_EQ(pthread_join(host, NULL), 0);

  /* Nobody answers in time, and the request is dropped. */
  OK(dipc_put_options_new(&options, &error_));
  OK(dipc_put_options_set_connect_timeout_ns(options, SECOND, &error_));
  OK(dipc_put_options_set_deadline_ns(options, SECOND / 5, &error_));
  OK(dipc_put_options_set_stall_timeout_ns(options, DIPC_FOREVER, &error_));
  OK(dipc_put_options_set_body(options, DIPC_BODY_PACKED, &error_));
  OK(dipc_put_options_set_compression(options, DIPC_COMPRESSION_LZ4, &error_));
  OK(dipc_put_options_set_connections(options, 1, &error_));
  OK(dipc_put_options_set_send_secrets(options, true, &error_));
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "1 to 16",
        dipc_put_options_set_connections(options, 17, &error_));
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "no DIPC_BODY", dipc_put_options_set_body(options, 9, &error_));
  table_stream(&source, 3, ROWS, -1, NULL);
  FAILS(DIPC_ERR_TIMEOUT, "within its deadline",
        dipc_client_put(client, uris, 1, TICKET("late"), options, NULL, &source, &put, &error_));
  source.release(&source);
  dipc_put_options_free(options);
  OK(dipc_server_next_request(server, DIPC_FOREVER, NULL, &request, &error_));
  CHECK(dipc_request_time_left_ns(request) <= SECOND / 5);
  dipc_request_free(request);
  dipc_client_free(client);
  dipc_server_free(server);
  table_wait_live(0);
}

/* Starts a server in a process of its own, which serves until control[1] is closed. */
/* A host bounds what clients may send before it takes them, how long they may be silent, and how
 * their arrays are checked. */
static void a_host_bounds_its_clients(void) {
  char uri[DIPC_URI_BYTES];
  dipc_server_options *limits = NULL;
  dipc_request *request = NULL;
  dipc_put *put = NULL;
  struct ArrowDeviceArrayStream source;
  struct ArrowDeviceArray batch;
  OK(dipc_server_options_new(&limits, &error_));
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "a window of 0",
        dipc_server_options_set_put_window(limits, 0, 1, &error_));
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "no DIPC_VALIDATION",
        dipc_server_options_set_put_validation(limits, 9, &error_));
  OK(dipc_server_options_set_put_window(limits, 3, UINT64_C(1) << 30, &error_));
  OK(dipc_server_options_set_put_validation(limits, DIPC_VALIDATION_FULL, &error_));
  OK(dipc_server_options_set_put_stall_timeout_ns(limits, SECOND / 10, &error_));
  dipc_server *server = new_server(limits, uri);
  OK(dipc_server_set_handler_pull(server, &error_));
  dipc_client *client = new_client();
  dipc_pending *pending = start_put(client, uri, "bounded");
  OK(dipc_server_next_request(server, DIPC_FOREVER, NULL, &request, &error_));
  OK(dipc_request_source(request, &source, &error_));
  wait_until_readable(pending);
  OK(dipc_pending_try_put(pending, &put, &error_));
  dipc_pending_free(pending);
  /* The window, and not one batch more. */
  int sent = 0;
  for (int32_t status = DIPC_OK; status == DIPC_OK && sent < 10;) {
    table_batch(&batch, sent * ROWS, ROWS, NULL);
    status = dipc_put_push(put, &batch, NULL, 0, SECOND / 20, NULL);
    if (status == DIPC_OK) sent++;
    else batch.array.release(&batch.array);
  }
  CHECK_EQ(sent, 3);
  for (int i = 0; i < 3; i++) {
    CHECK_EQ(source.get_next(&source, &batch), 0);
    table_check(&batch.array, i * ROWS, ROWS);
    batch.array.release(&batch.array);
  }
  CHECK_EQ(source.get_next(&source, &batch), ETIMEDOUT);
  source.release(&source);
  dipc_request_free(request);
  CHECK(dipc_put_finish(put, DIPC_FOREVER, NULL, NULL) != DIPC_OK);
  dipc_put_free(put);

  OK(dipc_server_options_set_put_message_limit_bytes(limits, 1, &error_));
  dipc_server *narrow = new_server(limits, uri);
  OK(dipc_server_set_handler_pull(narrow, &error_));
  pending = start_put(client, uri, "narrow");
  OK(dipc_server_next_request(narrow, DIPC_FOREVER, NULL, &request, &error_));
  FAILS(DIPC_ERR_OUT_OF_MEMORY, "past its limit", dipc_request_source(request, &source, &error_));
  dipc_request_free(request);
  dipc_pending_free(pending);
  dipc_server_options_free(limits);
  dipc_client_free(client);
  dipc_server_free(server);
  dipc_server_free(narrow);
  table_wait_live(0);
}

/* A server that is killed in mid-table: the client has an error, and its batches back. */
static void a_server_dies(void) {
  int status = 0;
  forked_server server = fork_server(offer);
  table_memory arena = arena_memory();
  dipc_client *client = new_client();
  dipc_put *put = open_put(client, server.uris[0], "crash");
  OK(push_all(put, 10, &arena, &error_));
  FAILS(DIPC_ERR_DISCONNECTED, "is unknown", dipc_put_finish(put, DIPC_FOREVER, NULL, &error_));
  dipc_put_free(put);
  dipc_client_free(client);
  CHECK_EQ(waitpid(server.pid, &status, 0), server.pid);
  CHECK(WIFSIGNALED(status));
  table_wait_live(0);
  dipc_arena_free(arena.context);
  close(server.control);
}

int main(void) {
  int status = 0;
  /* Forked before this process uses the library. */
  pid_t dies = fork();
  CHECK(dies >= 0);
  if (dies == 0) {
    a_server_dies();
    _exit(0);
  }
  CHECK_EQ(waitpid(dies, &status, 0), dies);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  forked_server server = fork_server(offer);
  for (int i = 0; i < 3; i++) {
    const char *uri = uri_of(&server, i);
    if (uri == NULL) continue;
    tables_cross(uri, i == 0);
    tables_fail(uri);
    tables_have_checksums(uri);
    a_put_is_polled(uri);
  }
  end_server(&server);
  tables_are_taken_in_the_pull_form();
  a_host_bounds_its_clients();
  return 0;
}
