/* The pull form: the host takes requests, pushes batches, and releases on its own thread. */
#include <stdatomic.h>

#include "util.h"

/* A client on its own thread. */
typedef struct {
  const char *uri, *ticket;
  const dipc_get_options *options;
  atomic_bool hold; /* read nothing until this is false */
  int64_t rows;
  dipc_status status;
  char text[256];
  pthread_t thread;
} fetcher;

static void *fetch(void *argument) {
  fetcher *self = argument;
  dipc_client *client = new_client();
  struct ArrowDeviceArrayStream stream;
  dipc_error *error = NULL;
  self->status = dipc_client_get(client, &self->uri, 1, (const uint8_t *)self->ticket,
                                 strlen(self->ticket), self->options, NULL, &stream, &error);
  if (self->status == DIPC_OK) {
    while (atomic_load(&self->hold)) sleep_ms(1);
    struct ArrowDeviceArray batch;
    while (stream.get_next(&stream, &batch) == 0 && batch.array.release) {
      table_check(&batch.array, self->rows, batch.array.length);
      self->rows += batch.array.length;
      batch.array.release(&batch.array);
    }
    self->status = dipc_stream_status(&stream, &error);
    stream.release(&stream);
  }
  snprintf(self->text, sizeof self->text, "%s", dipc_error_text(error));
  dipc_error_free(error);
  dipc_client_free(client);
  return NULL;
}

static void start(fetcher *self, const char *uri, const char *ticket) {
  self->uri = uri;
  self->ticket = ticket;
  CHECK_EQ(pthread_create(&self->thread, NULL, fetch, self), 0);
}

static dipc_request *next(const dipc_server *server) {
  dipc_request *request = NULL;
  OK(dipc_server_next_request(server, 10 * SECOND, NULL, &request, &error_));
  return request;
}

static void begin(const dipc_request *request) {
  struct ArrowSchema schema;
  table_schema(&schema);
  OK(dipc_request_start(request, &schema, ARROW_DEVICE_CPU, &error_));
  table_check_schema(&schema); /* read, not moved */
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "", dipc_request_start(request, &schema, 1, &error_));
  schema.release(&schema);
}

/* The host decides about each request before it answers it. */
static void requests_are_decided_here(void) {
  char uri[DIPC_URI_BYTES], principal[16] = "";
  size_t len = 0;
  dipc_server_options *options = NULL;
  OK(dipc_server_options_new(&options, &error_));
  OK(dipc_server_options_set_authorizer_pull(options, true, &error_));
  dipc_server *server = new_server(options, uri);
  dipc_server_options_free(options);
  OK(dipc_server_serve_pull(server, TICKET("pulled"), &error_));
  fetcher client = {0};
  start(&client, uri, "pulled");
  dipc_request *request = next(server);
  CHECK(dipc_request_is_undecided(request));
  OK(dipc_request_set_principal(request, "alice", &error_));
  OK(dipc_request_allow(request, &error_));
  CHECK(!dipc_request_is_undecided(request));
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "nothing to decide", dipc_request_allow(request, &error_));
  dipc_request_free(request);
  request = next(server);
  CHECK(!dipc_request_is_undecided(request));
  OK(dipc_request_principal(request, principal, sizeof principal, &len, &error_));
  CHECK(strcmp(principal, "alice") == 0);
  begin(request);
  OK(dipc_request_finish(request, DIPC_FOREVER, &error_));
  dipc_request_free(request);
  CHECK_EQ(pthread_join(client.thread, NULL), 0);
  CHECK_EQ(client.status, DIPC_OK);

  start(&client, uri, "pulled");
  request = next(server);
  OK(dipc_request_fail(request, DIPC_ERR_NOT_FOUND, "not for you", &error_));
  dipc_request_free(request);
  CHECK_EQ(pthread_join(client.thread, NULL), 0);
  CHECK_EQ(client.status, DIPC_ERR_NOT_FOUND);
  CHECK(strstr(client.text, "not for you") != NULL);

  /* Freeing refuses. */
  start(&client, uri, "pulled");
  dipc_request_free(next(server));
  CHECK_EQ(pthread_join(client.thread, NULL), 0);
  CHECK_EQ(client.status, DIPC_ERR_PERMISSION);
  dipc_server_free(server);
}

static void batches_are_pushed_and_released_here(void) {
  char uri[DIPC_URI_BYTES], peer[64];
  dipc_server *server = new_server(NULL, uri);
  OK(dipc_server_serve_pull(server, TICKET("pulled"), &error_));
  table_memory lendable = arena_memory();
  fetcher client = {0};
  start(&client, uri, "pulled");
  dipc_request *request = next(server);
  uint8_t ticket[16];
  size_t len = 0;
  OK(dipc_request_ticket(request, ticket, sizeof ticket, &len, &error_));
  CHECK(len == 6 && memcmp(ticket, "pulled", 6) == 0);
  OK(dipc_request_peer(request, peer, sizeof peer, &len, &error_));
  struct ArrowDeviceArray batch;
  table_batch(&batch, 0, 1000, NULL);
  STATUS(DIPC_ERR_INVALID_ARGUMENT, dipc_request_push(request, &batch, NULL, 0, 0, &error_));
  table_check(&batch.array, 0, 1000); /* before start: still the caller's */
  batch.array.release(&batch.array);
  begin(request);
  for (int64_t i = 0; i < 50; i++) {
    table_batch(&batch, i * 1000, 1000, &lendable);
    OK(dipc_request_push(request, &batch, NULL, 0, DIPC_FOREVER, &error_));
    CHECK(batch.array.release == NULL);
  }
  OK(dipc_request_finish(request, 10 * SECOND, &error_));
  dipc_request_free(request);
  pthread_join(client.thread, NULL);
  CHECK_EQ(client.status, DIPC_OK);
  CHECK_EQ(client.rows, 50000);

  /* The library itself releases nothing; draining does. */
  size_t count = 0, drained = 0;
  for (int i = 0; table_live() > 0 && i < 10000; i++) {
    OK(dipc_server_drain_releases(server, &count, &error_));
    drained += count;
    sleep_ms(1);
  }
  CHECK_EQ(table_live(), 0);
  CHECK_EQ(drained, 50); /* lent without a copy, so push released none */
  dipc_server_free(server);
  dipc_arena_free(lendable.context);
}

static void a_slow_client_makes_push_wait(void) {
  char uri[DIPC_URI_BYTES];
  dipc_server *server = new_server(NULL, uri);
  OK(dipc_server_serve_pull(server, TICKET("slow"), &error_));
  dipc_get_options *options = NULL;
  OK(dipc_get_options_new(&options, &error_));
  OK(dipc_get_options_set_window(options, 2, 1 << 20, &error_));
  fetcher client = {.options = options};
  atomic_store(&client.hold, true);
  start(&client, uri, "slow");
  dipc_request *request = next(server);
  begin(request);
  struct ArrowDeviceArray batch;
  int64_t pushed = 0;
  dipc_status status;
  do {
    table_batch(&batch, pushed * 10, 10, NULL);
    status = dipc_request_push(request, &batch, NULL, 0, SECOND / 20, NULL);
    CHECK((batch.array.release == NULL) == (status == DIPC_OK));
    pushed += status == DIPC_OK;
  } while (status == DIPC_OK && pushed < 100);
  CHECK_EQ(status, DIPC_ERR_TIMEOUT);
  CHECK(pushed >= 2 && pushed <= 3); /* rule E5: the window, and at most one more */
  table_check(&batch.array, pushed * 10, 10);
  atomic_store(&client.hold, false);
  OK(dipc_request_push(request, &batch, NULL, 0, 10 * SECOND, &error_));
  OK(dipc_request_finish(request, 10 * SECOND, &error_));
  dipc_request_free(request);
  pthread_join(client.thread, NULL);
  CHECK_EQ(client.status, DIPC_OK);
  CHECK_EQ(client.rows, (pushed + 1) * 10);
  dipc_get_options_free(options);
  dipc_server_free(server);
  table_wait_live(0);
}

static void a_request_fails_with_the_hosts_words(void) {
  char uri[DIPC_URI_BYTES];
  dipc_server *server = new_server(NULL, uri);
  OK(dipc_server_serve_pull(server, TICKET("fails"), &error_));
  fetcher client = {0};
  start(&client, uri, "fails");
  dipc_request *request = next(server);
  begin(request);
  OK(dipc_request_fail(request, 7000, "out of paper", &error_));
  struct ArrowDeviceArray batch;
  table_batch(&batch, 0, 10, NULL);
  CHECK(dipc_request_push(request, &batch, NULL, 0, SECOND, NULL) < 0); /* the stream has ended */
  batch.array.release(&batch.array);
  dipc_request_free(request);
  pthread_join(client.thread, NULL);
  CHECK_EQ(client.status, DIPC_ERR_PROVIDER);
  CHECK(strstr(client.text, "out of paper") != NULL);
  dipc_server_free(server);
  table_wait_live(0);
}

static void an_unfinished_request_fails_its_stream(void) {
  char uri[DIPC_URI_BYTES];
  dipc_server *server = new_server(NULL, uri);
  OK(dipc_server_serve_pull(server, TICKET("left"), &error_));
  fetcher client = {0};
  start(&client, uri, "left");
  dipc_request *request = next(server);
  begin(request);
  struct ArrowDeviceArray batch;
  table_batch(&batch, 0, 10, NULL);
  OK(dipc_request_push(request, &batch, NULL, 0, SECOND, &error_));
  dipc_request_free(request);
  pthread_join(client.thread, NULL);
  CHECK(client.status < 0);
  dipc_server_free(server); /* runs the releases that were not drained */
  CHECK_EQ(table_live(), 0);
}

static void broken_batches_fail_the_stream(void) {
  char uri[DIPC_URI_BYTES];
  dipc_server *server = new_server(NULL, uri);
  OK(dipc_server_serve_pull(server, TICKET("broken"), &error_));
  for (int kind = 0; kind < 3; kind++) {
    fetcher client = {0};
    start(&client, uri, "broken");
    dipc_request *request = next(server);
    begin(request);
    struct ArrowDeviceArray batch;
    table_batch(&batch, 0, 10, NULL);
    const void *buffer = batch.array.children[0]->buffers[1];
    switch (kind) {
      case 0: batch.array.children[0]->length = -1; break;
      case 1: batch.array.children[0]->buffers[1] = NULL; break;
      case 2: batch.array.n_children = 1; break;
    }
    STATUS(DIPC_ERR_INVALID_DATA, dipc_request_push(request, &batch, NULL, 0, SECOND, &error_));
    CHECK(batch.array.release != NULL); /* the caller still owns it */
    batch.array.n_children = 2;
    batch.array.children[0]->buffers[1] = buffer;
    batch.array.release(&batch.array);
    dipc_request_free(request);
    pthread_join(client.thread, NULL);
    CHECK(client.status < 0);
  }
  dipc_server_free(server);
  table_wait_live(0);
}

/* Custom metadata as ArrowSchema encodes it: one pair, key "k" and value "some value". */
static size_t encode(uint8_t out[64]) {
  const int32_t one = 1, key = 1, value = 10;
  size_t at = 0;
  memcpy(out + at, &one, 4), at += 4;
  memcpy(out + at, &key, 4), at += 4;
  memcpy(out + at, "k", 1), at += 1;
  memcpy(out + at, &value, 4), at += 4;
  memcpy(out + at, "some value", 10), at += 10;
  return at;
}

static void *push_with_metadata(void *argument) {
  const dipc_server *server = argument;
  dipc_request *request = next(server);
  begin(request);
  uint8_t metadata[64];
  const size_t len = encode(metadata);
  struct ArrowDeviceArray batch;
  table_batch(&batch, 0, 10, NULL);
  STATUS(DIPC_ERR_INVALID_DATA, dipc_request_push(request, &batch, metadata, 3, SECOND, &error_));
  table_check(&batch.array, 0, 10);
  batch.array.release(&batch.array);
  dipc_request_free(request);

  request = next(server);
  begin(request);
  table_batch(&batch, 0, 10, NULL);
  OK(dipc_request_push(request, &batch, metadata, len, SECOND, &error_));
  table_batch(&batch, 10, 10, NULL);
  OK(dipc_request_push(request, &batch, NULL, 0, SECOND, &error_));
  OK(dipc_request_finish(request, 10 * SECOND, &error_));
  dipc_request_free(request);
  return NULL;
}

static void metadata_of_batches_crosses(void) {
  char uri[DIPC_URI_BYTES];
  dipc_server *server = new_server(NULL, uri);
  OK(dipc_server_serve_pull(server, TICKET("labelled"), &error_));
  pthread_t thread;
  CHECK_EQ(pthread_create(&thread, NULL, push_with_metadata, server), 0);
  dipc_client *client = new_client();
  struct ArrowDeviceArrayStream stream = get(client, uri, "labelled");
  struct ArrowDeviceArray batch;
  CHECK(stream.get_next(&stream, &batch) != 0); /* the first request's metadata was malformed */
  stream.release(&stream);

  stream = get(client, uri, "labelled");
  uint8_t expected[64], metadata[64];
  const size_t expected_len = encode(expected);
  size_t len = 77;
  CHECK_EQ(stream.get_next(&stream, &batch), 0);
  batch.array.release(&batch.array);
  STATUS(DIPC_ERR_BUFFER_TOO_SMALL,
         dipc_stream_metadata(&stream, metadata, 4, &len, &error_));
  CHECK_EQ(len, expected_len);
  OK(dipc_stream_metadata(&stream, metadata, sizeof metadata, &len, &error_));
  CHECK(len == expected_len && memcmp(metadata, expected, len) == 0);
  CHECK_EQ(stream.get_next(&stream, &batch), 0);
  batch.array.release(&batch.array);
  OK(dipc_stream_metadata(&stream, metadata, sizeof metadata, &len, &error_));
  CHECK_EQ(len, 0); /* the next batch has none */
  stream.release(&stream);
  pthread_join(thread, NULL);
  dipc_client_free(client);
  dipc_server_free(server);
  table_wait_live(0);
}

static void *trigger(void *argument) {
  sleep_ms(50);
  OK(dipc_cancel_trigger(argument, &error_));
  return NULL;
}

static void waiting_for_a_request_ends(void) {
  char uri[DIPC_URI_BYTES];
  dipc_server *server = new_server(NULL, uri);
  dipc_request *request = NULL;
  STATUS(DIPC_NOTHING, dipc_server_next_request(server, SECOND / 100, NULL, &request, &error_));
  CHECK(request == NULL);
  dipc_cancel *cancel = NULL;
  OK(dipc_cancel_new(&cancel, &error_));
  pthread_t thread;
  CHECK_EQ(pthread_create(&thread, NULL, trigger, cancel), 0);
  STATUS(DIPC_ERR_CANCELLED,
         dipc_server_next_request(server, DIPC_FOREVER, cancel, &request, &error_));
  pthread_join(thread, NULL);
  dipc_cancel_free(cancel);
  OK(dipc_server_stop(server, 0, &error_));
  STATUS(DIPC_ERR_STOPPED, dipc_server_next_request(server, DIPC_FOREVER, NULL, &request, &error_));
  dipc_server_free(server);
}

int main(void) {
  requests_are_decided_here();
  batches_are_pushed_and_released_here();
  a_slow_client_makes_push_wait();
  a_request_fails_with_the_hosts_words();
  an_unfinished_request_fails_its_stream();
  broken_batches_fail_the_stream();
  metadata_of_batches_crosses();
  waiting_for_a_request_ends();
  return 0;
}
