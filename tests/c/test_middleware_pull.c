/* A middleware before a host of the pull form, which takes requests, pushes batches, and releases on
 * its own thread. */
#include <stdatomic.h>

#include "util.h"

#define BATCHES 5
#define ROWS 1000

/* Passes each request on; what fails there fails here. */
static int32_t pass_on(void *userdata, dipc_request *request, struct ArrowDeviceArrayStream *out) {
  struct ArrowDeviceArrayStream table = {0};
  dipc_error *error = NULL;
  dipc_status status;
  (void)userdata;
  if (dipc_request_verb(request) == DIPC_VERB_GET) {
    status = dipc_request_forward(request, NULL, out, &error);
  } else {
    OK(dipc_request_source(request, &table, &error_));
    const bool is_put = dipc_request_verb(request) == DIPC_VERB_PUT;
    status = dipc_request_forward(request, &table, is_put ? NULL : out, &error);
    CHECK(table.release == NULL);
  }
  if (status == DIPC_OK) return 0;
  OK(dipc_request_fail(request, status, dipc_error_text(error), &error_));
  dipc_error_free(error);
  return 1;
}

static dipc_server *new_host(char *uri) {
  dipc_server *server = new_server(NULL, uri);
  OK(dipc_server_serve_pull(server, TICKET("pulled"), &error_));
  OK(dipc_server_set_handler_pull(server, &error_));
  OK(dipc_server_set_middleware(server, "through", pass_on, NULL, NULL, &error_));
  return server;
}

/* A client on its own thread. */
typedef struct {
  const char *uri;
  int32_t verb;
  int64_t most_rows; /* 0: all */
  dipc_cancel *cancel;
  atomic_bool holds; /* read nothing until this is false */
  int64_t rows;
  dipc_status status;
  char text[256];
  pthread_t thread;
} asker;

static void gets(asker *self, const dipc_client *client, const dipc_headers *headers,
                 dipc_error **error) {
  struct ArrowDeviceArrayStream stream;
  struct ArrowDeviceArray batch;
  dipc_get_options *options = NULL;
  OK(dipc_get_options_new(&options, &error_));
  OK(dipc_get_options_set_headers(options, headers, &error_));
  if (self->most_rows) OK(dipc_get_options_set_range(options, 0, self->most_rows, &error_));
  self->status = dipc_client_get(client, &self->uri, 1, TICKET("pulled"), options, self->cancel,
                                 &stream, error);
  dipc_get_options_free(options);
  if (self->status != DIPC_OK) return;
  while (atomic_load(&self->holds)) sleep_ms(1);
  while (stream.get_next(&stream, &batch) == 0 && batch.array.release) {
    table_check(&batch.array, self->rows, batch.array.length);
    self->rows += batch.array.length;
    batch.array.release(&batch.array);
  }
  self->status = dipc_stream_status(&stream, error);
  stream.release(&stream);
}

static void puts_table(asker *self, const dipc_client *client, const dipc_headers *headers,
                       dipc_error **error) {
  struct ArrowDeviceArrayStream table;
  dipc_put_options *options = NULL;
  dipc_put *put = NULL;
  OK(dipc_put_options_new(&options, &error_));
  OK(dipc_put_options_set_headers(options, headers, &error_));
  table_stream(&table, BATCHES, ROWS, -1, NULL);
  self->status = dipc_client_put(client, &self->uri, 1, TICKET("taken"), options, self->cancel,
                                 &table, &put, error);
  if (self->status == DIPC_OK) self->status = dipc_put_finish(put, DIPC_FOREVER, NULL, error);
  dipc_put_free(put);
  if (table.release) table.release(&table);
  dipc_put_options_free(options);
}

static void exchanges(asker *self, const dipc_client *client, const dipc_headers *headers,
                      dipc_error **error) {
  struct ArrowDeviceArrayStream answers;
  struct ArrowSchema schema;
  dipc_put_options *options = NULL;
  dipc_put *put = NULL;
  OK(dipc_put_options_new(&options, &error_));
  OK(dipc_put_options_set_headers(options, headers, &error_));
  table_schema(&schema);
  self->status = dipc_client_exchange(client, &self->uri, 1, NULL, 0, options, NULL, NULL, &schema,
                                      ARROW_DEVICE_CPU, &put, &answers, error);
  schema.release(&schema);
  if (self->status == DIPC_OK) {
    self->status = dipc_put_finish(put, DIPC_FOREVER, NULL, error);
    answers.release(&answers);
  }
  dipc_put_free(put);
  dipc_put_options_free(options);
}

static void *ask(void *argument) {
  asker *self = argument;
  dipc_client *client = new_client();
  dipc_headers *headers = NULL;
  dipc_error *error = NULL;
  OK(dipc_headers_new(&headers, &error_));
  OK(dipc_headers_add(headers, "through", (const uint8_t *)"1", 1, &error_));
  (self->verb == DIPC_VERB_GET   ? gets
   : self->verb == DIPC_VERB_PUT ? puts_table
                                 : exchanges)(self, client, headers, &error);
  snprintf(self->text, sizeof self->text, "%s", dipc_error_text(error));
  dipc_error_free(error);
  dipc_headers_free(headers);
  dipc_client_free(client);
  return NULL;
}

static void start(asker *self) {
  CHECK_EQ(pthread_create(&self->thread, NULL, ask, self), 0);
}

static void ends(asker *self, dipc_status status, const char *part) {
  CHECK_EQ(pthread_join(self->thread, NULL), 0);
  if (self->status != status || strstr(self->text, part) == NULL) {
    FAIL("%s: %s", dipc_status_name(self->status), self->text);
  }
}

static dipc_request *next(const dipc_server *server) {
  dipc_request *request = NULL;
  OK(dipc_server_next_request(server, 10 * SECOND, NULL, &request, &error_));
  CHECK(request != NULL);
  return request;
}

static void begin(const dipc_request *request) {
  struct ArrowSchema schema;
  table_schema(&schema);
  OK(dipc_request_start(request, &schema, ARROW_DEVICE_CPU, &error_));
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "begun before",
        dipc_request_start(request, &schema, ARROW_DEVICE_CPU, &error_));
  schema.release(&schema);
}

static dipc_status push(const dipc_request *request, int64_t number, uint64_t timeout_ns,
                        dipc_error **error) {
  struct ArrowDeviceArray batch;
  table_batch(&batch, number * ROWS, ROWS, NULL);
  const dipc_status status = dipc_request_push(request, &batch, NULL, 0, timeout_ns, error);
  CHECK_EQ(batch.array.release == NULL, status == DIPC_OK);
  if (batch.array.release) batch.array.release(&batch.array);
  return status;
}

/* Releases on this thread until everything is, and the server has no stream. */
static void drain(const dipc_server *server) {
  size_t count = 0;
  for (int i = 0; i < 10000; i++) {
    OK(dipc_server_drain_releases(server, &count, &error_));
    if (table_live() == 0 && server_stat(server, DIPC_SERVER_STAT_STREAMS_ACTIVE) == 0) return;
    sleep_ms(1);
  }
  FAIL("%ld structs are left", table_live());
}

static void a_get_comes_through(const dipc_server *server, const char *uri) {
  asker client = {.uri = uri, .verb = DIPC_VERB_GET};
  start(&client);
  dipc_request *request = next(server);
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "start it first", push(request, 0, 0, &error_));
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "start it first", dipc_request_finish(request, 0, &error_));
  begin(request);
  for (int64_t i = 0; i < BATCHES; i++) OK(push(request, i, DIPC_FOREVER, &error_));
  /* The library itself releases nothing of the host's. */
  CHECK(table_live() > 0);
  OK(dipc_request_finish(request, DIPC_FOREVER, &error_));
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "answered before", push(request, 0, 0, &error_));
  dipc_request_free(request);
  ends(&client, DIPC_OK, "");
  CHECK_EQ(client.rows, BATCHES * ROWS);
  drain(server);
}

/* A host with an event loop. */
static void an_event_loop_waits_for_the_middleware(const dipc_server *server, const char *uri) {
  asker client = {.uri = uri, .verb = DIPC_VERB_GET};
  struct pollfd polled = {-1, POLLIN, 0};
  start(&client);
  dipc_request *request = next(server);
  OK(dipc_request_fd(request, &polled.fd, &error_));
  CHECK_EQ(poll(&polled, 1, 0), 1);
  begin(request);
  for (int64_t i = 0; i < 100; i++) {
    dipc_status status;
    while ((status = push(request, i, 0, NULL)) == DIPC_ERR_TIMEOUT) {
      CHECK_EQ(poll(&polled, 1, 30000), 1);
    }
    CHECK_EQ(status, DIPC_OK);
  }
  OK(dipc_request_finish(request, 0, &error_));
  CHECK_EQ(poll(&polled, 1, 0), 1);
  dipc_request_free(request);
  ends(&client, DIPC_OK, "");
  CHECK_EQ(client.rows, 100 * ROWS);
  drain(server);
}

/* A middleware that has what the client wants reads no more. */
static void the_host_hears_of_enough(const dipc_server *server, const char *uri) {
  asker client = {.uri = uri, .verb = DIPC_VERB_GET, .most_rows = ROWS / 2};
  int64_t pushed = 0;
  start(&client);
  dipc_request *request = next(server);
  begin(request);
  while (!dipc_request_is_complete(request)) OK(push(request, pushed++, DIPC_FOREVER, &error_));
  OK(push(request, pushed, DIPC_FOREVER, &error_));
  OK(dipc_request_finish(request, DIPC_FOREVER, &error_));
  dipc_request_free(request);
  ends(&client, DIPC_OK, "");
  CHECK_EQ(client.rows, ROWS / 2);
  drain(server);
}

/* Before the stream, in it, and by a host that drops its request. A stream of C has a text alone. */
static void failures_come_through(const dipc_server *server, const char *uri) {
  static const struct {
    bool begins, says;
    dipc_status status;
    const char *part;
  } cases[] = {
      {false, true, DIPC_ERR_NOT_FOUND, "it is gone"},
      {true, true, DIPC_ERR_PROVIDER, "it is gone"},
      {false, false, DIPC_ERR_PROVIDER, "dropped the request"},
      {true, false, DIPC_ERR_PROVIDER, "dropped the request"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    asker client = {.uri = uri, .verb = DIPC_VERB_GET};
    start(&client);
    dipc_request *request = next(server);
    if (cases[i].begins) {
      begin(request);
      OK(push(request, 0, DIPC_FOREVER, &error_));
    }
    if (cases[i].says) {
      OK(dipc_request_fail(request, DIPC_ERR_NOT_FOUND, "it is gone", &error_));
      FAILS(DIPC_ERR_INVALID_ARGUMENT, "answered before",
            dipc_request_finish(request, 0, &error_));
    }
    dipc_request_free(request);
    ends(&client, cases[i].status, cases[i].part);
    drain(server);
  }
}

static void *fail_soon(void *request) {
  sleep_ms(50);
  OK(dipc_request_fail(request, DIPC_ERR_NOT_FOUND, "it is gone", &error_));
  return NULL;
}

/* Another thread of the host fails the request while a push waits. */
static void a_push_that_waits_hears_of_the_end(const dipc_server *server, const char *uri) {
  asker client = {.uri = uri, .verb = DIPC_VERB_GET, .holds = true};
  pthread_t other;
  dipc_status status;
  int64_t pushed = 0;
  start(&client);
  dipc_request *request = next(server);
  begin(request);
  while ((status = push(request, pushed, SECOND / 2, NULL)) == DIPC_OK) pushed++;
  CHECK_EQ(status, DIPC_ERR_TIMEOUT);
  CHECK_EQ(pthread_create(&other, NULL, fail_soon, request), 0);
  FAILS(DIPC_ERR_CANCELLED, "", push(request, pushed, DIPC_FOREVER, &error_));
  CHECK_EQ(pthread_join(other, NULL), 0);
  dipc_request_free(request);
  atomic_store(&client.holds, false);
  ends(&client, DIPC_ERR_PROVIDER, "it is gone");
  drain(server);
}

static void a_put_is_taken(const dipc_server *server, const char *uri) {
  for (int fails = 0; fails < 2; fails++) {
    asker client = {.uri = uri, .verb = DIPC_VERB_PUT};
    struct ArrowDeviceArrayStream table;
    struct ArrowSchema schema;
    start(&client);
    dipc_request *request = next(server);
    OK(dipc_request_source_schema(request, &schema, &error_));
    table_check_schema(&schema);
    schema.release(&schema);
    OK(dipc_request_source(request, &table, &error_));
    CHECK_EQ(table_check_stream(&table), BATCHES * ROWS);
    table_schema(&schema);
    FAILS(DIPC_ERR_INVALID_ARGUMENT, "gets none",
          dipc_request_start(request, &schema, ARROW_DEVICE_CPU, &error_));
    schema.release(&schema);
    if (fails) OK(dipc_request_fail(request, DIPC_ERR_ALREADY_EXISTS, "it is here", &error_));
    else OK(dipc_request_finish(request, DIPC_FOREVER, &error_));
    dipc_request_free(request);
    ends(&client, fails ? DIPC_ERR_ALREADY_EXISTS : DIPC_OK, fails ? "it is here" : "");
    drain(server);
  }
}

static void an_exchange_is_refused(const dipc_server *server, const char *uri) {
  asker client = {.uri = uri, .verb = DIPC_VERB_EXCHANGE};
  start(&client);
  ends(&client, DIPC_ERR_UNSUPPORTED, "an exchange cannot be forwarded");
  drain(server);
}

/* The middleware waits no more, though the host has not answered. */
static void a_client_that_goes_ends_the_wait(const dipc_server *server, const char *uri) {
  static const int32_t verbs[] = {DIPC_VERB_GET, DIPC_VERB_GET, DIPC_VERB_PUT};
  for (int i = 0; i < 3; i++) {
    asker client = {.uri = uri, .verb = verbs[i]};
    OK(dipc_cancel_new(&client.cancel, &error_));
    start(&client);
    dipc_request *request = next(server);
    if (i == 1) begin(request);
    CHECK(!dipc_request_is_cancelled(request));
    OK(dipc_cancel_trigger(client.cancel, &error_));
    ends(&client, DIPC_ERR_CANCELLED, "");
    drain(server);
    CHECK(dipc_request_is_cancelled(request));
    if (i == 1) FAILS(DIPC_ERR_CANCELLED, "", push(request, 0, DIPC_FOREVER, &error_));
    dipc_request_free(request);
    dipc_cancel_free(client.cancel);
  }
}

/* One request waits for the host, which has another. */
static void a_stop_ends_the_wait(void) {
  char uri[DIPC_URI_BYTES];
  dipc_server *server = new_host(uri);
  asker taken = {.uri = uri, .verb = DIPC_VERB_GET}, waiting = taken;
  start(&taken);
  dipc_request *request = next(server);
  start(&waiting);
  while (server_stat(server, DIPC_SERVER_STAT_STREAMS_ACTIVE) < 2) sleep_ms(1);
  OK(dipc_server_stop(server, 0, &error_));
  CHECK_EQ(server_stat(server, DIPC_SERVER_STAT_STREAMS_ACTIVE), 0);
  CHECK_EQ(pthread_join(taken.thread, NULL), 0);
  CHECK_EQ(pthread_join(waiting.thread, NULL), 0);
  CHECK(taken.status < 0 && waiting.status < 0);
  dipc_request_free(request);
  dipc_server_free(server);
  table_wait_live(0);
}

int main(void) {
  char uri[DIPC_URI_BYTES];
  dipc_server *server = new_host(uri);
  a_get_comes_through(server, uri);
  an_event_loop_waits_for_the_middleware(server, uri);
  the_host_hears_of_enough(server, uri);
  failures_come_through(server, uri);
  a_push_that_waits_hears_of_the_end(server, uri);
  a_put_is_taken(server, uri);
  an_exchange_is_refused(server, uri);
  a_client_that_goes_ends_the_wait(server, uri);
  dipc_server_free(server);
  a_stop_ends_the_wait();
  return 0;
}
