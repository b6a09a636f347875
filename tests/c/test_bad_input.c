/* What a host should not do with requests: each call says so by its status and its text, nothing
 * leaks, and the next stream is served. Server and client in this process, over shared memory and
 * tcp. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "util.h"

#define ROWS 1000
#define LONGEST ((size_t)1016 << 10)

typedef struct {
  dipc_server *server;
  dipc_client *client;
  char uris[2][DIPC_URI_BYTES];
} pair;

/* A server of the table "table", of 30 rows, and a client. */
static pair new_pair(void) {
  pair both;
  size_t len = 0;
  both.server = new_server(NULL, both.uris[0]);
  OK(dipc_server_listen(both.server, "tcp://127.0.0.1:0", both.uris[1], DIPC_URI_BYTES, &len,
                        &error_));
  publish(both.server, "table", 3, 10, NULL);
  both.client = new_client();
  return both;
}

/* The server serves nothing any more, goes on to serve, and has everything back. */
static void end_pair(pair *both) {
  for (int i = 0; i < 2; i++) {
    struct ArrowDeviceArrayStream stream = get(both->client, both->uris[i], "table");
    CHECK_EQ(table_check_stream(&stream), 30);
  }
  for (int i = 0; server_stat(both->server, DIPC_SERVER_STAT_STREAMS_ACTIVE) && i < 10000; i++)
    sleep_ms(1);
  CHECK_EQ(server_stat(both->server, DIPC_SERVER_STAT_STREAMS_ACTIVE), 0);
  dipc_client_free(both->client);
  dipc_server_free(both->server);
  table_wait_live(0);
}

/* Pull form: releases the arrays that come back, until the published table alone is left. */
static void drain(const dipc_server *server) {
  size_t released = 0;
  for (int i = 0; server_stat(server, DIPC_SERVER_STAT_STREAMS_ACTIVE) && i < 10000; i++)
    sleep_ms(1);
  OK(dipc_server_drain_releases(server, &released, &error_));
}

static int32_t try_put(const dipc_client *client, const char *uri, const uint8_t *descriptor,
                       size_t len, const dipc_put_options *options, dipc_put **out,
                       dipc_error **error) {
  struct ArrowSchema schema;
  table_schema(&schema);
  int32_t status = dipc_client_put_open(client, &uri, 1, descriptor, len, options, NULL, &schema,
                                        ARROW_DEVICE_CPU, out, error);
  schema.release(&schema);
  return status;
}

static int32_t try_exchange(const dipc_client *client, const char *uri, const uint8_t *descriptor,
                            size_t len, dipc_put **out, struct ArrowDeviceArrayStream *answers,
                            dipc_error **error) {
  struct ArrowSchema schema;
  table_schema(&schema);
  int32_t status = dipc_client_exchange(client, &uri, 1, descriptor, len, NULL, NULL, NULL,
                                        &schema, ARROW_DEVICE_CPU, out, answers, error);
  schema.release(&schema);
  return status;
}

static dipc_pending *start(const dipc_client *client, int32_t verb, const char *uri,
                           const uint8_t *descriptor, size_t len) {
  dipc_pending *pending = NULL;
  struct ArrowSchema schema;
  if (verb != DIPC_VERB_PUT && verb != DIPC_VERB_EXCHANGE) {
    OK(dipc_client_start(client, verb, &uri, 1, descriptor, len, NULL, NULL, &pending, &error_));
    return pending;
  }
  table_schema(&schema);
  if (verb == DIPC_VERB_PUT) {
    OK(dipc_client_start_put(client, &uri, 1, descriptor, len, NULL, NULL, &schema,
                             ARROW_DEVICE_CPU, &pending, &error_));
  } else {
    OK(dipc_client_start_exchange(client, &uri, 1, descriptor, len, NULL, NULL, NULL, &schema,
                                  ARROW_DEVICE_CPU, &pending, &error_));
  }
  schema.release(&schema);
  return pending;
}

static dipc_put *started_put(const dipc_pending *pending) {
  dipc_put *put = NULL;
  wait_until_readable(pending);
  OK(dipc_pending_try_put(pending, &put, &error_));
  return put;
}

static int32_t try_push(dipc_put *put, int64_t number, const table_memory *memory,
                        uint64_t timeout_ns, dipc_error **error) {
  struct ArrowDeviceArray batch;
  table_batch(&batch, number * ROWS, ROWS, memory);
  int32_t status = dipc_put_push(put, &batch, NULL, 0, timeout_ns, error);
  CHECK_EQ(batch.array.release == NULL, status == DIPC_OK);
  if (batch.array.release) batch.array.release(&batch.array);
  return status;
}

static int32_t try_answer(const dipc_request *request, int64_t number, uint64_t timeout_ns,
                          dipc_error **error) {
  struct ArrowDeviceArray batch;
  table_batch(&batch, number * ROWS, ROWS, NULL);
  int32_t status = dipc_request_push(request, &batch, NULL, 0, timeout_ns, error);
  CHECK_EQ(batch.array.release == NULL, status == DIPC_OK);
  if (batch.array.release) batch.array.release(&batch.array);
  return status;
}

static dipc_request *next_request(const dipc_server *server) {
  dipc_request *request = NULL;
  OK(dipc_server_next_request(server, 60 * SECOND, NULL, &request, &error_));
  CHECK(request != NULL);
  return request;
}

static int32_t start_answer(const dipc_request *request, dipc_error **error) {
  struct ArrowSchema schema;
  table_schema(&schema);
  int32_t status = dipc_request_start(request, &schema, ARROW_DEVICE_CPU, error);
  schema.release(&schema);
  return status;
}

/* Reads the next batch, which is batch `number`. */
static void take_batch(struct ArrowDeviceArrayStream *stream, int64_t number) {
  struct ArrowDeviceArray batch;
  CHECK_EQ(stream->get_next(stream, &batch), 0);
  CHECK(batch.array.release != NULL);
  table_check(&batch.array, number * ROWS, ROWS);
  batch.array.release(&batch.array);
}

static void take_end(struct ArrowDeviceArrayStream *stream) {
  struct ArrowDeviceArray batch;
  CHECK_EQ(stream->get_next(stream, &batch), 0);
  CHECK(batch.array.release == NULL);
}

/* Takes every table, and tells the client how long its descriptor and its header `large` were. */
static int32_t measure(void *userdata, dipc_request *request, struct ArrowDeviceArrayStream *out) {
  (void)userdata, (void)out;
  struct ArrowDeviceArrayStream source;
  size_t ticket = 0, value = 0;
  char text[64];
  dipc_headers *headers = NULL, *answer = NULL;
  OK(dipc_request_ticket(request, NULL, 0, &ticket, &error_));
  OK(dipc_request_headers(request, &headers, &error_));
  int32_t found = dipc_headers_get(headers, "large", NULL, 0, &value, NULL);
  CHECK(found == DIPC_OK || found == DIPC_ERR_NOT_FOUND);
  dipc_headers_free(headers);

  /* An answer has less room for headers; what does not fit is not added. */
  uint8_t *large = calloc(1, 32 << 10);
  OK(dipc_headers_new(&answer, &error_));
  OK(dipc_headers_add(answer, "large", large, 32 << 10, &error_));
  free(large);
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "the limit is 32768",
        dipc_request_add_headers(request, answer, &error_));
  dipc_headers_free(answer);

  OK(dipc_request_source(request, &source, &error_));
  int64_t rows = table_check_stream(&source);
  int len = snprintf(text, sizeof text, "%zu %zu %lld", ticket, value, (long long)rows);
  OK(dipc_request_result(request, (uint64_t)(rows / ROWS), (const uint8_t *)text, (size_t)len,
                         &error_));
  return 0;
}

/* Finishes a put of measure(), and checks its word. */
static void finish_measured(dipc_put *put, const char *expected) {
  char text[64] = "";
  size_t len = 0;
  uint64_t batches = 0;
  dipc_headers *headers = NULL;
  OK(dipc_put_finish(put, DIPC_FOREVER, NULL, &error_));
  OK(dipc_put_next_result(put, 0, &batches, &error_));
  OK(dipc_put_result(put, (uint8_t *)text, sizeof text - 1, &len, &error_));
  CHECK_STR(text, expected);
  OK(dipc_put_headers(put, &headers, &error_));
  CHECK_EQ(dipc_headers_count(headers), 0);
  dipc_headers_free(headers);
  dipc_put_free(put);
}

/* A descriptor past the limit, alone or with headers: no verb sends it, and the source stays the
 * caller's. One at the limit arrives whole. */
static void a_descriptor_that_is_too_long_is_refused(void) {
  pair both = new_pair();
  OK(dipc_server_set_handler(both.server, measure, NULL, NULL, 0, &error_));
  uint8_t *descriptor = calloc(1, LONGEST + 1);
  static const char limit[] = "the limit is 1040384";
  static const int32_t verbs[] = {DIPC_VERB_GET, DIPC_VERB_PUT, DIPC_VERB_EXCHANGE,
                                  DIPC_VERB_DESCRIBE, DIPC_VERB_LIST};
  for (int i = 0; i < 2; i++) {
    const char *uris[] = {both.uris[i]};
    struct ArrowDeviceArrayStream stream = {.release = NULL};
    dipc_description *description = NULL;
    dipc_put *put = NULL;
    FAILS(DIPC_ERR_INVALID_ARGUMENT, limit,
          dipc_client_get(both.client, uris, 1, descriptor, LONGEST + 1, NULL, NULL, &stream,
                          &error_));
    FAILS(DIPC_ERR_INVALID_ARGUMENT, limit,
          dipc_client_list(both.client, uris, 1, descriptor, LONGEST + 1, NULL, NULL, &stream,
                           &error_));
    FAILS(DIPC_ERR_INVALID_ARGUMENT, limit,
          dipc_client_describe(both.client, uris, 1, descriptor, LONGEST + 1, NULL, NULL,
                               &description, &error_));
    FAILS(DIPC_ERR_INVALID_ARGUMENT, limit,
          try_put(both.client, uris[0], descriptor, LONGEST + 1, NULL, &put, &error_));
    FAILS(DIPC_ERR_INVALID_ARGUMENT, limit,
          try_exchange(both.client, uris[0], descriptor, LONGEST + 1, &put, &stream, &error_));
    CHECK(stream.release == NULL && description == NULL && put == NULL);
    table_stream(&stream, 2, ROWS, -1, NULL);
    FAILS(DIPC_ERR_INVALID_ARGUMENT, limit,
          dipc_client_put(both.client, uris, 1, descriptor, LONGEST + 1, NULL, NULL, &stream, &put,
                          &error_));
    CHECK(stream.release != NULL && put == NULL);
    stream.release(&stream);

    for (size_t verb = 0; verb < 5; verb++) {
      dipc_pending *pending = start(both.client, verbs[verb], uris[0], descriptor, LONGEST + 1);
      wait_until_readable(pending);
      switch (verbs[verb]) {
        case DIPC_VERB_PUT:
          FAILS(DIPC_ERR_INVALID_ARGUMENT, limit, dipc_pending_try_put(pending, &put, &error_));
          break;
        case DIPC_VERB_EXCHANGE:
          FAILS(DIPC_ERR_INVALID_ARGUMENT, limit,
                dipc_pending_try_exchange(pending, &put, &stream, &error_));
          break;
        case DIPC_VERB_DESCRIBE:
          FAILS(DIPC_ERR_INVALID_ARGUMENT, limit,
                dipc_pending_try_description(pending, &description, &error_));
          break;
        default:
          FAILS(DIPC_ERR_INVALID_ARGUMENT, limit,
                dipc_pending_try_stream(pending, &stream, &error_));
      }
      dipc_pending_free(pending);
    }

    /* Descriptor and headers share the room. */
    dipc_headers *headers = NULL;
    dipc_put_options *options = NULL;
    OK(dipc_headers_new(&headers, &error_));
    OK(dipc_headers_add(headers, "k", NULL, 0, &error_));
    OK(dipc_put_options_new(&options, &error_));
    OK(dipc_put_options_set_headers(options, headers, &error_));
    dipc_headers_free(headers);
    FAILS(DIPC_ERR_INVALID_ARGUMENT, "with its headers",
          try_put(both.client, uris[0], descriptor, LONGEST, options, &put, &error_));
    dipc_put_options_free(options);

    OK(try_put(both.client, uris[0], descriptor, LONGEST, NULL, &put, &error_));
    OK(try_push(put, 0, NULL, DIPC_FOREVER, &error_));
    finish_measured(put, "1040384 0 1000");
  }
  free(descriptor);
  end_pair(&both);
}

/* A key that no header may have, and 65 KiB of headers: what was set before still holds. 64 KiB
 * cross. */
static void headers_that_are_wrong_are_refused(void) {
  pair both = new_pair();
  OK(dipc_server_set_handler(both.server, measure, NULL, NULL, 0, &error_));
  dipc_headers *headers = NULL;
  dipc_put_options *options = NULL;
  OK(dipc_headers_new(&headers, &error_));
  OK(dipc_put_options_new(&options, &error_));
  char too_long[257];
  memset(too_long, 'k', 256);
  too_long[256] = 0;
  const char *keys[] = {"", "Key", "a key", "key:", "key\n", "k\xc3\xa4", "k/v", too_long};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    FAILS(DIPC_ERR_INVALID_ARGUMENT, "other characters",
          dipc_headers_add(headers, keys[i], NULL, 0, &error_));
  }
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "UTF-8", dipc_headers_add(headers, "k\xff", NULL, 0, &error_));
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "begins with `dipc-`",
        dipc_headers_add(headers, "dipc-status", NULL, 0, &error_));
  CHECK_EQ(dipc_headers_count(headers), 0);

  const size_t most = (64 << 10) - 5 - strlen("large");
  uint8_t *value = calloc(1, 65 << 10);
  OK(dipc_headers_add(headers, "large", value, most, &error_));
  OK(dipc_put_options_set_headers(options, headers, &error_));
  OK(dipc_headers_add(headers, "more", value, 1 << 10, &error_));
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "the limit is 65536",
        dipc_put_options_set_headers(options, headers, &error_));
  dipc_headers_free(headers);
  free(value);
  for (int i = 0; i < 2; i++) {
    dipc_put *put = NULL;
    OK(try_put(both.client, both.uris[i], TICKET("t"), options, &put, &error_));
    OK(try_push(put, 0, NULL, DIPC_FOREVER, &error_));
    finish_measured(put, "1 65526 1000");
  }
  dipc_put_options_free(options);
  end_pair(&both);
}

static uint64_t connections_made(const dipc_client *client) {
  uint64_t made = 0;
  OK(dipc_client_stat(client, DIPC_CLIENT_STAT_CONNECTIONS_MADE, &made, &error_));
  return made;
}

/* A server without a handler takes no tables and says so. The source stays the caller's. */
static void a_server_without_a_handler_takes_no_tables(void) {
  pair both = new_pair();
  for (int i = 0; i < 2; i++) {
    const char *uris[] = {both.uris[i]};
    struct ArrowDeviceArrayStream stream = {.release = NULL};
    dipc_put *put = NULL;
    const uint64_t before = connections_made(both.client);
    /* "table" is a ticket that the server has: it can be fetched alone. */
    static const char *const names[] = {"table", "no table"};
    for (int name = 0; name < 2; name++) {
      const uint8_t *descriptor = (const uint8_t *)names[name];
      size_t len = strlen(names[name]);
      FAILS(DIPC_ERR_UNSUPPORTED, "no handler",
            try_put(both.client, uris[0], descriptor, len, NULL, &put, &error_));
      CHECK(put == NULL);
      table_stream(&stream, 2, ROWS, -1, NULL);
      FAILS(DIPC_ERR_UNSUPPORTED, "no handler",
            dipc_client_put(both.client, uris, 1, descriptor, len, NULL, NULL, &stream, &put,
                            &error_));
      CHECK(put == NULL && stream.release != NULL);
      stream.release(&stream);
    }
    /* A refusal does not cost the connection. */
    CHECK_EQ(connections_made(both.client), before + 1);
    stream.release = NULL;
    FAILS(DIPC_ERR_UNSUPPORTED, "no handler",
          try_exchange(both.client, uris[0], TICKET("t"), &put, &stream, &error_));
    CHECK(put == NULL && stream.release == NULL);
    dipc_pending *pending = start(both.client, DIPC_VERB_PUT, uris[0], TICKET("t"));
    wait_until_readable(pending);
    FAILS(DIPC_ERR_UNSUPPORTED, "no handler", dipc_pending_try_put(pending, &put, &error_));
    dipc_pending_free(pending);
    pending = start(both.client, DIPC_VERB_EXCHANGE, uris[0], TICKET("t"));
    wait_until_readable(pending);
    FAILS(DIPC_ERR_UNSUPPORTED, "no handler",
          dipc_pending_try_exchange(pending, &put, &stream, &error_));
    dipc_pending_free(pending);
    CHECK(put == NULL && stream.release == NULL);
  }
  end_pair(&both);
}

/* Verbs that no call or no server has, and a server that is known to have none. */
static void a_verb_that_is_not_known_is_refused(void) {
  pair both = new_pair();
  const char *uris[] = {both.uris[0]};
  dipc_pending *pending = NULL;
  static const int32_t verbs[] = {INT32_MIN, -1, 0, DIPC_VERB_PUT, DIPC_VERB_EXCHANGE, 6, 77, 257};
  for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
    FAILS(DIPC_ERR_INVALID_ARGUMENT, "DIPC_VERB_GET",
          dipc_client_start(both.client, verbs[i], uris, 1, TICKET("table"), NULL, NULL, &pending,
                            &error_));
    CHECK(pending == NULL);
  }
  /* The same server, by a URI as of one without the extension. */
  char baseline[DIPC_URI_BYTES];
  const char *other[] = {baseline};
  strcpy(baseline, both.uris[0]);
  *strstr(baseline, "&dipc=") = 0;
  struct ArrowDeviceArrayStream stream = {.release = NULL};
  dipc_description *description = NULL;
  dipc_put *put = NULL;
  FAILS(DIPC_ERR_UNSUPPORTED, "takes no tables",
        try_put(both.client, other[0], TICKET("t"), NULL, &put, &error_));
  FAILS(DIPC_ERR_UNSUPPORTED, "takes no tables",
        try_exchange(both.client, other[0], TICKET("t"), &put, &stream, &error_));
  FAILS(DIPC_ERR_UNSUPPORTED, "another verb than get",
        dipc_client_describe(both.client, other, 1, TICKET("table"), NULL, NULL, &description,
                             &error_));
  FAILS(DIPC_ERR_UNSUPPORTED, "another verb than get",
        dipc_client_list(both.client, other, 1, TICKET("table"), NULL, NULL, &stream, &error_));
  CHECK(put == NULL && stream.release == NULL && description == NULL);
  end_pair(&both);
}

/* Pull form, a table from here: each call that answers counts once. */
static void a_request_is_answered_once(void) {
  pair both = new_pair();
  OK(dipc_server_serve_pull(both.server, TICKET("t"), &error_));
  for (int i = 0; i < 2; i++) {
    struct ArrowDeviceArrayStream stream, none = {.release = NULL};
    dipc_pending *pending = start(both.client, DIPC_VERB_GET, both.uris[i], TICKET("t"));
    dipc_request *request = next_request(both.server);
    FAILS(DIPC_ERR_INVALID_ARGUMENT, "sends no stream",
          dipc_request_source(request, &none, &error_));
    FAILS(DIPC_ERR_INVALID_ARGUMENT, "sends no stream",
          dipc_request_result(request, 1, NULL, 0, &error_));
    CHECK(none.release == NULL);
    FAILS(DIPC_ERR_INVALID_ARGUMENT, "schema", try_answer(request, 0, 0, &error_));
    FAILS(DIPC_ERR_INVALID_ARGUMENT, "schema", dipc_request_finish(request, 0, &error_));
    OK(start_answer(request, &error_));
    FAILS(DIPC_ERR_INVALID_ARGUMENT, "has its schema already", start_answer(request, &error_));
    OK(try_answer(request, 0, DIPC_FOREVER, &error_));
    wait_until_readable(pending);
    OK(dipc_pending_try_stream(pending, &stream, &error_));
    FAILS(DIPC_ERR_INVALID_ARGUMENT, "taken before",
          dipc_pending_try_stream(pending, &none, &error_));
    dipc_pending_free(pending);
    OK(dipc_request_finish(request, DIPC_FOREVER, &error_));
    /* Over: nothing of what follows reaches the client. */
    STATUS(DIPC_ERR_INVALID_ARGUMENT, try_answer(request, 1, 0, &error_));
    STATUS(DIPC_ERR_INVALID_ARGUMENT, start_answer(request, &error_));
    OK(dipc_request_fail(request, DIPC_ERR_IO, "too late", &error_));
    OK(dipc_request_finish(request, DIPC_FOREVER, &error_));
    take_batch(&stream, 0);
    take_end(&stream);
    OK(dipc_stream_status(&stream, &error_));
    stream.release(&stream);
    dipc_request_free(request);

    /* The first failure counts. */
    pending = start(both.client, DIPC_VERB_GET, both.uris[i], TICKET("t"));
    request = next_request(both.server);
    OK(start_answer(request, &error_));
    wait_until_readable(pending);
    OK(dipc_pending_try_stream(pending, &stream, &error_));
    dipc_pending_free(pending);
    OK(dipc_request_fail(request, DIPC_ERR_PERMISSION, "the first reason", &error_));
    OK(dipc_request_fail(request, DIPC_ERR_IO, "the second reason", &error_));
    STATUS(DIPC_ERR_INVALID_ARGUMENT, try_answer(request, 0, 0, &error_));
    FAILS(DIPC_ERR_INVALID_ARGUMENT, "answered before",
          dipc_request_finish(request, DIPC_FOREVER, &error_));
    dipc_request_free(request);
    struct ArrowDeviceArray batch;
    CHECK(stream.get_next(&stream, &batch) != 0);
    FAILS(DIPC_ERR_PERMISSION, "the first reason", dipc_stream_status(&stream, &error_));
    stream.release(&stream);
  }
  drain(both.server);
  end_pair(&both);
}

/* Pull form, a table from the client. */
static void a_table_is_taken_and_answered_once(void) {
  pair both = new_pair();
  OK(dipc_server_set_handler_pull(both.server, &error_));
  for (int i = 0; i < 2; i++) {
    struct ArrowDeviceArrayStream source, none = {.release = NULL};
    struct ArrowSchema schema = {.release = NULL};
    uint64_t batches = 0;
    dipc_pending *pending = start(both.client, DIPC_VERB_PUT, both.uris[i], TICKET("t"));
    dipc_request *request = next_request(both.server);
    FAILS(DIPC_ERR_INVALID_ARGUMENT, "take it first",
          dipc_request_result(request, 0, NULL, 0, &error_));
    STATUS(DIPC_ERR_INVALID_ARGUMENT, start_answer(request, &error_));
    STATUS(DIPC_ERR_INVALID_ARGUMENT, try_answer(request, 0, 0, &error_));
    OK(dipc_request_source(request, &source, &error_));
    FAILS(DIPC_ERR_INVALID_ARGUMENT, "taken before",
          dipc_request_source(request, &none, &error_));
    FAILS(DIPC_ERR_INVALID_ARGUMENT, "taken before",
          dipc_request_source_schema(request, &schema, &error_));
    CHECK(none.release == NULL && schema.release == NULL);
    uint8_t *large = calloc(1, (32 << 10) + 1);
    FAILS(DIPC_ERR_INVALID_ARGUMENT, "32768",
          dipc_request_result(request, 1, large, (32 << 10) + 1, &error_));
    free(large);
    dipc_put *put = started_put(pending);
    dipc_pending_free(pending);
    OK(try_push(put, 0, NULL, DIPC_FOREVER, &error_));
    STATUS(DIPC_ERR_TIMEOUT, dipc_put_finish(put, 0, NULL, &error_));
    take_batch(&source, 0);
    take_end(&source);
    source.release(&source);
    OK(dipc_request_result(request, 1, (const uint8_t *)"safe", 4, &error_));
    OK(dipc_request_finish(request, DIPC_FOREVER, &error_));
    /* The client has the end. */
    FAILS(DIPC_ERR_INVALID_ARGUMENT, "answered before",
          dipc_request_finish(request, DIPC_FOREVER, &error_));
    OK(dipc_request_fail(request, DIPC_ERR_IO, "too late", &error_));
    FAILS(DIPC_ERR_INVALID_ARGUMENT, "is over",
          dipc_request_source(request, &none, &error_));
    FAILS(DIPC_ERR_INVALID_ARGUMENT, "answered before",
          dipc_request_result(request, 1, NULL, 0, &error_));
    OK(dipc_put_finish(put, DIPC_FOREVER, &batches, &error_));
    CHECK_EQ(batches, 1);
    OK(dipc_put_next_result(put, 0, &batches, &error_));
    CHECK_EQ(dipc_put_next_result(put, 0, &batches, NULL), DIPC_NOTHING);
    dipc_put_free(put);
    dipc_request_free(request);

    /* The first failure counts. */
    pending = start(both.client, DIPC_VERB_PUT, both.uris[i], TICKET("t"));
    request = next_request(both.server);
    OK(dipc_request_source(request, &source, &error_));
    put = started_put(pending);
    dipc_pending_free(pending);
    OK(try_push(put, 0, NULL, DIPC_FOREVER, &error_));
    OK(dipc_request_fail(request, DIPC_ERR_PERMISSION, "the first reason", &error_));
    OK(dipc_request_fail(request, DIPC_ERR_IO, "the second reason", &error_));
    FAILS(DIPC_ERR_INVALID_ARGUMENT, "answered before",
          dipc_request_finish(request, DIPC_FOREVER, &error_));
    FAILS(DIPC_ERR_PERMISSION, "the first reason",
          dipc_put_finish(put, DIPC_FOREVER, NULL, &error_));
    CHECK(dipc_put_is_over(put));
    struct ArrowDeviceArray batch;
    CHECK(source.get_next(&source, &batch) != 0);
    source.release(&source);
    dipc_put_free(put);
    dipc_request_free(request);

    /* Taken, and answered before its end: no success for either side. */
    pending = start(both.client, DIPC_VERB_PUT, both.uris[i], TICKET("t"));
    request = next_request(both.server);
    OK(dipc_request_source(request, &source, &error_));
    put = started_put(pending);
    dipc_pending_free(pending);
    OK(try_push(put, 0, NULL, DIPC_FOREVER, &error_));
    take_batch(&source, 0);
    FAILS(DIPC_ERR_PROVIDER, "before its end",
          dipc_request_finish(request, DIPC_FOREVER, &error_));
    dipc_request_free(request);
    FAILS(DIPC_ERR_PROVIDER, "before its end",
          dipc_put_finish(put, DIPC_FOREVER, NULL, &error_));
    source.release(&source);
    dipc_put_free(put);
  }
  end_pair(&both);
}

/* Fails the request, and says by its return value that it is well. */
static int32_t answer_twice(void *userdata, dipc_request *request,
                            struct ArrowDeviceArrayStream *out) {
  (void)userdata;
  struct ArrowDeviceArrayStream source;
  int32_t verb = dipc_request_verb(request);
  if (verb != DIPC_VERB_GET) {
    OK(dipc_request_source(request, &source, &error_));
    table_check_stream(&source);
  }
  OK(dipc_request_fail(request, DIPC_ERR_PERMISSION, "the first reason", &error_));
  OK(dipc_request_fail(request, DIPC_ERR_IO, "the last reason", &error_));
  if (verb != DIPC_VERB_PUT) table_stream(out, 2, ROWS, -1, NULL);
  return 0;
}

/* Accepts a table, and reads nothing of it. */
static int32_t read_nothing(void *userdata, dipc_request *request,
                            struct ArrowDeviceArrayStream *out) {
  (void)userdata, (void)out;
  struct ArrowDeviceArrayStream source;
  OK(dipc_request_source(request, &source, &error_));
  source.release(&source);
  return 0;
}

/* Provider form: a request that its host has failed does not end well, whatever the provider
 * returns afterwards. */
static void a_failed_request_does_not_end_well(void) {
  pair both = new_pair();
  OK(dipc_server_set_handler(both.server, answer_twice, NULL, NULL, 0, &error_));
  for (int i = 0; i < 2; i++) {
    const char *uri = both.uris[i];
    dipc_put *put = NULL;
    struct ArrowDeviceArrayStream answers;
    struct ArrowDeviceArray batch;
    OK(try_put(both.client, uri, TICKET("t"), NULL, &put, &error_));
    OK(try_push(put, 0, NULL, DIPC_FOREVER, &error_));
    FAILS(DIPC_ERR_IO, "the last reason",
          dipc_put_finish(put, DIPC_FOREVER, NULL, &error_));
    dipc_put_free(put);

    OK(try_exchange(both.client, uri, TICKET("t"), &put, &answers, &error_));
    OK(try_push(put, 0, NULL, DIPC_FOREVER, &error_));
    FAILS(DIPC_ERR_IO, "the last reason",
          dipc_put_finish(put, DIPC_FOREVER, NULL, &error_));
    int code;
    while ((code = answers.get_next(&answers, &batch)) == 0) {
      CHECK(batch.array.release != NULL);
      batch.array.release(&batch.array);
    }
    FAILS(DIPC_ERR_IO, "the last reason", dipc_stream_status(&answers, &error_));
    answers.release(&answers);
    dipc_put_free(put);

    FAILS(DIPC_ERR_IO, "the last reason",
          dipc_client_get(both.client, &uri, 1, TICKET("t"), NULL, NULL, &answers, &error_));
  }
  OK(dipc_server_set_handler(both.server, read_nothing, NULL, NULL, 0, &error_));
  for (int i = 0; i < 2; i++) {
    dipc_put *put = NULL;
    dipc_error *error = NULL;
    OK(try_put(both.client, both.uris[i], TICKET("t"), NULL, &put, &error_));
    int32_t status = DIPC_OK;
    for (int n = 0; status == DIPC_OK && n < 3; n++)
      status = try_push(put, n, NULL, DIPC_FOREVER, &error);
    if (status == DIPC_OK) status = dipc_put_finish(put, DIPC_FOREVER, NULL, &error);
    CHECK_EQ(status, DIPC_ERR_PROVIDER);
    CHECK(strstr(dipc_error_text(error), "before its end") != NULL);
    dipc_error_free(error);
    dipc_put_free(put);
  }
  end_pair(&both);
}

/* Describes so many endpoints as the descriptor says. */
static int32_t describe_many(void *userdata, dipc_request *request,
                             struct ArrowDeviceArrayStream *out) {
  (void)userdata;
  char text[64] = "";
  const char *uris[] = {text};
  size_t len = 0;
  dipc_description *description = NULL;
  OK(dipc_request_ticket(request, (uint8_t *)text, sizeof text - 1, &len, &error_));
  const long count = atol(text);
  OK(dipc_description_new(&description, &error_));
  for (long i = 0; i < count; i++) {
    snprintf(text, sizeof text, "tcp://host%ld:1", i);
    OK(dipc_description_add_endpoint(description, (const uint8_t *)&i, sizeof i, uris, 1,
                                     (uint64_t)i, DIPC_UNKNOWN, &error_));
  }
  OK(dipc_description_set_total(description, DIPC_TOTAL_ROWS, 7, &error_));
  OK(dipc_description_to_stream(description, out, &error_));
  dipc_description_free(description);
  return 0;
}

/* 10,000 endpoints cross whole. More than a client reads, or than its memory may hold, fail with the
 * limit in the text, and the next answer is read. */
static void many_endpoints_are_described(void) {
  pair both = new_pair();
  OK(dipc_server_set_handler(both.server, describe_many, NULL, NULL, 0, &error_));
  dipc_get_options *options = NULL;
  OK(dipc_get_options_new(&options, &error_));
  OK(dipc_get_options_set_message_limit_bytes(options, 1000, &error_));
  for (int i = 0; i < 2; i++) {
    const char *uris[] = {both.uris[i]};
    dipc_description *description = NULL;
    char text[64], expected[64];
    long number = -1;
    size_t len = 0;
    OK(dipc_client_describe(both.client, uris, 1, TICKET("10000"), NULL, NULL, &description,
                            &error_));
    CHECK_EQ(dipc_description_endpoint_count(description), 10000);
    CHECK_EQ(dipc_description_total(description, DIPC_TOTAL_ROWS), 7);
    for (size_t at = 0; at < 10000; at += 3333) {
      OK(dipc_description_endpoint_descriptor(description, at, (uint8_t *)&number, sizeof number,
                                              &len, &error_));
      CHECK_EQ(number, at);
      OK(dipc_description_endpoint_uri(description, at, 0, text, sizeof text, &len, &error_));
      snprintf(expected, sizeof expected, "tcp://host%zu:1", at);
      CHECK_STR(text, expected);
      CHECK_EQ(dipc_description_endpoint_total(description, at, DIPC_TOTAL_ROWS), at);
    }
    FAILS(DIPC_ERR_NOT_FOUND, "no endpoint 10000",
          dipc_description_endpoint_descriptor(description, 10000, NULL, 0, &len, &error_));
    dipc_description_free(description);
    description = NULL;
    FAILS(DIPC_ERR_INVALID_DATA, "65536 endpoints",
          dipc_client_describe(both.client, uris, 1, TICKET("65537"), NULL, NULL, &description,
                               &error_));
    FAILS(DIPC_ERR_OUT_OF_MEMORY, "limit",
          dipc_client_describe(both.client, uris, 1, TICKET("10000"), options, NULL, &description,
                               &error_));
    dipc_pending *pending = start(both.client, DIPC_VERB_DESCRIBE, uris[0], TICKET("65537"));
    wait_until_readable(pending);
    FAILS(DIPC_ERR_INVALID_DATA, "65536 endpoints",
          dipc_pending_try_description(pending, &description, &error_));
    dipc_pending_free(pending);
    CHECK(description == NULL);
  }
  dipc_get_options_free(options);
  end_pair(&both);
}

/* What several threads do at once, each until it is done. */
typedef struct {
  const dipc_server *server;
  const dipc_pending *pending;
  const dipc_request *request;
  struct ArrowDeviceArrayStream stream;
  pthread_barrier_t *barrier;
  int64_t first;
  int got;
} caller;

static void *try_stream(void *userdata) {
  caller *self = userdata;
  pthread_barrier_wait(self->barrier);
  int32_t status = dipc_pending_try_stream(self->pending, &self->stream, NULL);
  self->got = status == DIPC_OK;
  CHECK(status == DIPC_OK || status == DIPC_ERR_INVALID_ARGUMENT);
  return NULL;
}

static void *try_requests(void *userdata) {
  caller *self = userdata;
  dipc_request *request = NULL;
  pthread_barrier_wait(self->barrier);
  for (;;) {
    int32_t status = dipc_server_next_request(self->server, 0, NULL, &request, NULL);
    if (status == DIPC_NOTHING) return NULL;
    CHECK_EQ(status, DIPC_OK);
    OK(dipc_request_fail(request, DIPC_ERR_PERMISSION, "nobody", &error_));
    dipc_request_free(request);
    self->got++;
  }
}

static void *try_pushes(void *userdata) {
  caller *self = userdata;
  pthread_barrier_wait(self->barrier);
  while (self->got < 50) {
    int32_t status = try_answer(self->request, self->first + self->got, 0, NULL);
    CHECK(status == DIPC_OK || status == DIPC_ERR_TIMEOUT);
    if (status == DIPC_OK) self->got++;
    else sleep_ms(1);
  }
  return NULL;
}

enum { CALLERS = 4 };

static void call_at_once(caller callers[CALLERS], void *(*call)(void *)) {
  pthread_barrier_t barrier;
  pthread_t threads[CALLERS];
  CHECK_EQ(pthread_barrier_init(&barrier, NULL, CALLERS), 0);
  for (int i = 0; i < CALLERS; i++) {
    callers[i].barrier = &barrier;
    CHECK_EQ(pthread_create(&threads[i], NULL, call, &callers[i]), 0);
  }
  for (int i = 0; i < CALLERS; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
  CHECK_EQ(pthread_barrier_destroy(&barrier), 0);
}

/* Calls without a wait, on handles that several threads may use: each result goes to one thread. */
static void threads_call_without_a_wait(void) {
  pair both = new_pair();
  for (int i = 0; i < 20; i++) {
    caller callers[CALLERS] = {0};
    dipc_pending *pending = start(both.client, DIPC_VERB_GET, both.uris[i % 2], TICKET("table"));
    wait_until_readable(pending);
    for (int at = 0; at < CALLERS; at++) callers[at].pending = pending;
    call_at_once(callers, try_stream);
    int got = 0;
    for (int at = 0; at < CALLERS; at++) {
      got += callers[at].got;
      if (callers[at].got) CHECK_EQ(table_check_stream(&callers[at].stream), 30);
    }
    CHECK_EQ(got, 1);
    dipc_pending_free(pending);
  }

  OK(dipc_server_serve_pull(both.server, TICKET("t"), &error_));
  enum { REQUESTS = 8 };
  dipc_pending *pending[REQUESTS];
  caller callers[CALLERS] = {0};
  for (int i = 0; i < REQUESTS; i++)
    pending[i] = start(both.client, DIPC_VERB_GET, both.uris[i % 2], TICKET("t"));
  for (int at = 0; at < CALLERS; at++) callers[at].server = both.server;
  int got = 0;
  while (got < REQUESTS) {
    call_at_once(callers, try_requests);
    got = 0;
    for (int at = 0; at < CALLERS; at++) got += callers[at].got;
  }
  CHECK_EQ(got, REQUESTS);
  for (int i = 0; i < REQUESTS; i++) {
    struct ArrowDeviceArrayStream stream;
    wait_until_readable(pending[i]);
    FAILS(DIPC_ERR_PERMISSION, "nobody",
          dipc_pending_try_stream(pending[i], &stream, &error_));
    dipc_pending_free(pending[i]);
  }

  /* Each batch of each thread arrives once, in the order of its thread. */
  for (int i = 0; i < 2; i++) {
    struct ArrowDeviceArrayStream stream;
    struct ArrowDeviceArray batch;
    dipc_pending *asked = start(both.client, DIPC_VERB_GET, both.uris[i], TICKET("t"));
    dipc_request *request = next_request(both.server);
    OK(start_answer(request, &error_));
    wait_until_readable(asked);
    OK(dipc_pending_try_stream(asked, &stream, &error_));
    dipc_pending_free(asked);
    pthread_barrier_t barrier;
    pthread_t threads[2];
    caller pushers[2] = {{.request = request, .barrier = &barrier},
                         {.request = request, .barrier = &barrier, .first = 50}};
    CHECK_EQ(pthread_barrier_init(&barrier, NULL, 2), 0);
    for (int at = 0; at < 2; at++)
      CHECK_EQ(pthread_create(&threads[at], NULL, try_pushes, &pushers[at]), 0);
    int64_t next[2] = {0, 50};
    for (int n = 0; n < 100; n++) {
      CHECK_EQ(stream.get_next(&stream, &batch), 0);
      CHECK(batch.array.release != NULL);
      int64_t id = ((const int64_t *)batch.array.children[0]->buffers[1])[0] / ROWS;
      int64_t *expected = &next[id >= 50];
      CHECK_EQ(id, *expected);
      table_check(&batch.array, id * ROWS, ROWS);
      *expected += 1;
      batch.array.release(&batch.array);
    }
    for (int at = 0; at < 2; at++) CHECK_EQ(pthread_join(threads[at], NULL), 0);
    CHECK_EQ(pthread_barrier_destroy(&barrier), 0);
    OK(dipc_request_finish(request, DIPC_FOREVER, &error_));
    dipc_request_free(request);
    take_end(&stream);
    stream.release(&stream);
  }
  drain(both.server);
  end_pair(&both);
}

/* Everything that a fork may find under way. */
typedef struct {
  dipc_pending *pending;
  dipc_put *put;
  dipc_request *request;
  struct ArrowDeviceArrayStream source, answers;
  struct ArrowDeviceArray held;
  bool is_exchange;
} under_way;

/* In the child: each call says that it is the child's, and freeing does no harm. */
static void use_after_fork(under_way *self) {
  uint64_t figure = 0;
  int fd = -1;
  dipc_headers *headers = NULL;
  dipc_put *put = NULL;
  struct ArrowSchema schema = {.release = NULL};
  struct ArrowDeviceArrayStream stream;
  struct ArrowDeviceArray batch;
  const int32_t forked = DIPC_ERR_FORKED;
  FAILS(forked, "fork", try_push(self->put, 9, NULL, 0, &error_));
  FAILS(forked, "fork", try_push(self->put, 9, NULL, DIPC_FOREVER, &error_));
  FAILS(forked, "fork", dipc_put_next_result(self->put, DIPC_FOREVER, &figure, &error_));
  FAILS(forked, "fork", dipc_put_finish(self->put, DIPC_FOREVER, &figure, &error_));
  FAILS(forked, "fork", dipc_put_fail(self->put, DIPC_ERR_IO, "the child's", &error_));
  FAILS(forked, "fork", dipc_put_headers(self->put, &headers, &error_));
  FAILS(forked, "fork", dipc_put_fd(self->put, &fd, &error_));
  FAILS(forked, "fork", dipc_put_stat(self->put, DIPC_PUT_STAT_BATCHES, &figure, &error_));
  CHECK(dipc_put_is_over(self->put));
  FAILS(forked, "fork", dipc_pending_fd(self->pending, &fd, &error_));
  FAILS(forked, "fork", dipc_pending_try_put(self->pending, &put, &error_));
  FAILS(forked, "fork", dipc_request_source(self->request, &stream, &error_));
  FAILS(forked, "fork", dipc_request_source_schema(self->request, &schema, &error_));
  FAILS(forked, "fork", dipc_request_result(self->request, 1, NULL, 0, &error_));
  FAILS(forked, "fork", start_answer(self->request, &error_));
  FAILS(forked, "fork", try_answer(self->request, 0, DIPC_FOREVER, &error_));
  FAILS(forked, "fork", dipc_request_finish(self->request, DIPC_FOREVER, &error_));
  FAILS(forked, "fork", dipc_request_fail(self->request, DIPC_ERR_IO, "the child's", &error_));
  FAILS(forked, "fork", dipc_request_fd(self->request, &fd, &error_));
  CHECK(dipc_request_is_cancelled(self->request));
  CHECK_EQ(dipc_request_verb(self->request), 0);
  CHECK(self->source.get_next(&self->source, &batch) != 0);
  FAILS(forked, "fork", dipc_stream_try_next(&self->source, &batch, &error_));
  CHECK(put == NULL && headers == NULL && fd == -1 && schema.release == NULL);
  if (self->is_exchange) {
    CHECK(self->answers.get_next(&self->answers, &batch) != 0);
    FAILS(forked, "fork", dipc_stream_try_next(&self->answers, &batch, &error_));
    self->answers.release(&self->answers);
  }
  table_check(&self->held.array, 0, ROWS);
  self->held.array.release(&self->held.array);
  self->source.release(&self->source);
  dipc_request_free(self->request);
  dipc_put_free(self->put);
  dipc_pending_free(self->pending);
}

/* A fork in the middle of a put and of an exchange: both go on in the parent. */
static void a_fork_disturbs_no_table(void) {
  pair both = new_pair();
  table_memory arena = arena_memory();
  OK(dipc_server_set_handler_pull(both.server, &error_));
  for (int i = 0; i < 4; i++) {
    const char *uri = both.uris[i % 2];
    under_way self = {.is_exchange = i >= 2};
    const int32_t verb = self.is_exchange ? DIPC_VERB_EXCHANGE : DIPC_VERB_PUT;
    dipc_pending *asked = start(both.client, verb, uri, TICKET("t"));
    self.request = next_request(both.server);
    OK(dipc_request_source(self.request, &self.source, &error_));
    wait_until_readable(asked);
    if (self.is_exchange) {
      OK(dipc_pending_try_exchange(asked, &self.put, &self.answers, &error_));
      OK(start_answer(self.request, &error_));
      OK(try_answer(self.request, 0, DIPC_FOREVER, &error_));
      take_batch(&self.answers, 0);
    } else {
      OK(dipc_pending_try_put(asked, &self.put, &error_));
    }
    dipc_pending_free(asked);
    for (int n = 0; n < 3; n++) OK(try_push(self.put, n, &arena, DIPC_FOREVER, &error_));
    CHECK_EQ(self.source.get_next(&self.source, &self.held), 0);
    /* One that the server has not answered. */
    self.pending = start(both.client, DIPC_VERB_PUT, uri, TICKET("u"));
    dipc_request *unanswered = next_request(both.server);

    fflush(NULL);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      alarm(60);
      use_after_fork(&self);
      FAILS(DIPC_ERR_FORKED, "fork",
            try_put(both.client, uri, TICKET("t"), NULL, &self.put, &error_));
      dipc_request_free(unanswered);
      dipc_client_free(both.client);
      dipc_server_free(both.server);
      /* The child leaks handles that it cannot free, so no leak checker may run at its end. */
      kill(getpid(), SIGKILL);
    }
    int status = 0;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL); /* a failed check is an abort */

    table_check(&self.held.array, 0, ROWS);
    self.held.array.release(&self.held.array);
    for (int n = 3; n < 6; n++) OK(try_push(self.put, n, &arena, DIPC_FOREVER, &error_));
    STATUS(DIPC_ERR_TIMEOUT, dipc_put_finish(self.put, 0, NULL, &error_));
    for (int n = 1; n < 6; n++) take_batch(&self.source, n);
    take_end(&self.source);
    OK(dipc_request_result(self.request, 6, NULL, 0, &error_));
    if (self.is_exchange) OK(try_answer(self.request, 1, DIPC_FOREVER, &error_));
    OK(dipc_request_finish(self.request, DIPC_FOREVER, &error_));
    if (self.is_exchange) {
      take_batch(&self.answers, 1);
      take_end(&self.answers);
      self.answers.release(&self.answers);
    }
    uint64_t batches = 0;
    OK(dipc_put_finish(self.put, DIPC_FOREVER, &batches, &error_));
    CHECK_EQ(batches, 6);
    OK(dipc_put_next_result(self.put, 0, &batches, &error_));
    CHECK_EQ(batches, 6);
    self.source.release(&self.source);
    dipc_request_free(self.request);
    dipc_put_free(self.put);

    OK(dipc_request_fail(unanswered, DIPC_ERR_PERMISSION, "nobody", &error_));
    dipc_request_free(unanswered);
    wait_until_readable(self.pending);
    FAILS(DIPC_ERR_PERMISSION, "nobody",
          dipc_pending_try_put(self.pending, &self.put, &error_));
    dipc_pending_free(self.pending);
  }
  drain(both.server);
  end_pair(&both);
  dipc_arena_free(arena.context);
}

/* What a host does to a descriptor of the library's: closes it, or has a file of its own there. */
typedef enum { CLOSED, REPLACED } harm;

typedef struct {
  harm how;
  int file;
} stranger;

static stranger new_stranger(harm how) {
  char name[] = "/tmp/dipc-c-bad-input-XXXXXX";
  stranger self = {how, mkstemp(name)};
  CHECK(self.file >= 0);
  CHECK_EQ(unlink(name), 0);
  return self;
}

/* A closed number is free for the next descriptor of any thread, so this comes late for CLOSED. */
static void do_harm(const stranger *self, harm how, int fd) {
  CHECK(fd >= 0);
  if (self->how != how) return;
  if (how == CLOSED) CHECK_EQ(close(fd), 0);
  else CHECK_EQ(dup2(self->file, fd), fd);
}

/* Nothing of the library's was written to the file. */
static void is_untouched(const stranger *self) {
  struct stat found;
  CHECK_EQ(fstat(self->file, &found), 0);
  CHECK_EQ(found.st_size, 0);
}

/* The status that a call without a wait has in the end. */
#define EVENTUALLY(status, not_yet, call)                              \
  do {                                                                 \
    status = (call);                                                   \
    for (int n_ = 0; status == (not_yet) && n_ < 10000; n_++) {        \
      sleep_ms(1);                                                     \
      status = (call);                                                 \
    }                                                                  \
  } while (0)

static void a_pendings_descriptor_is_harmed(const pair *both, int at, const stranger *self) {
  struct ArrowDeviceArrayStream stream;
  int fd = -1, status;
  dipc_pending *pending = start(both->client, DIPC_VERB_GET, both->uris[at], TICKET("t"));
  dipc_request *request = next_request(both->server);
  OK(dipc_pending_fd(pending, &fd, &error_));
  do_harm(self, REPLACED, fd);
  OK(dipc_request_fail(request, DIPC_ERR_PERMISSION, "nobody", &error_));
  dipc_request_free(request);
  EVENTUALLY(status, DIPC_NOTHING, dipc_pending_try_stream(pending, &stream, NULL));
  do_harm(self, CLOSED, fd);
  FAILS(DIPC_ERR_PERMISSION, "nobody", dipc_pending_try_stream(pending, &stream, &error_));
  dipc_pending_free(pending);
}

/* Of both ends of a stream. */
static void a_streams_descriptors_are_harmed(const pair *both, int at, const stranger *self) {
  struct ArrowDeviceArrayStream stream;
  struct ArrowDeviceArray batch;
  int fd = -1, own_fd = -1, status;
  dipc_pending *pending = start(both->client, DIPC_VERB_GET, both->uris[at], TICKET("t"));
  dipc_request *request = next_request(both->server);
  OK(start_answer(request, &error_));
  wait_until_readable(pending);
  OK(dipc_pending_try_stream(pending, &stream, &error_));
  dipc_pending_free(pending);
  OK(dipc_stream_fd(&stream, &fd, &error_));
  OK(dipc_request_fd(request, &own_fd, &error_));
  do_harm(self, REPLACED, fd);
  do_harm(self, REPLACED, own_fd);
  for (int64_t n = 0; n < 40; n++) {
    EVENTUALLY(status, DIPC_ERR_TIMEOUT, try_answer(request, n, 0, NULL));
    CHECK_EQ(status, DIPC_OK);
    if (n % 2) {
      take_batch(&stream, n);
    } else {
      EVENTUALLY(status, DIPC_NOTHING, dipc_stream_try_next(&stream, &batch, NULL));
      CHECK_EQ(status, DIPC_OK);
      table_check(&batch.array, n * ROWS, ROWS);
      batch.array.release(&batch.array);
    }
  }
  do_harm(self, CLOSED, fd);
  CHECK_EQ(dipc_stream_try_next(&stream, &batch, NULL), DIPC_NOTHING);
  stream.release(&stream);
  do_harm(self, CLOSED, own_fd);
  EVENTUALLY(status, DIPC_OK, try_answer(request, 0, 0, NULL));
  CHECK(status == DIPC_ERR_CANCELLED || status == DIPC_ERR_TIMEOUT);
  dipc_request_free(request);
}

/* Of the client's end of a put, and of the table at the server. */
static void a_puts_descriptors_are_harmed(const pair *both, int at, const stranger *self) {
  struct ArrowDeviceArrayStream source;
  struct ArrowDeviceArray batch;
  int fd = -1, own_fd = -1, status;
  dipc_pending *pending = start(both->client, DIPC_VERB_PUT, both->uris[at], TICKET("t"));
  dipc_request *request = next_request(both->server);
  OK(dipc_request_source(request, &source, &error_));
  dipc_put *put = started_put(pending);
  dipc_pending_free(pending);
  OK(dipc_put_fd(put, &fd, &error_));
  OK(dipc_stream_fd(&source, &own_fd, &error_));
  do_harm(self, REPLACED, fd);
  do_harm(self, REPLACED, own_fd);
  for (int64_t n = 0; n < 40; n++) {
    EVENTUALLY(status, DIPC_ERR_TIMEOUT, try_push(put, n, NULL, 0, NULL));
    CHECK_EQ(status, DIPC_OK);
    EVENTUALLY(status, DIPC_NOTHING, dipc_stream_try_next(&source, &batch, NULL));
    CHECK_EQ(status, DIPC_OK);
    table_check(&batch.array, n * ROWS, ROWS);
    batch.array.release(&batch.array);
  }
  STATUS(DIPC_ERR_TIMEOUT, dipc_put_finish(put, 0, NULL, &error_));
  EVENTUALLY(status, DIPC_NOTHING, dipc_stream_try_next(&source, &batch, NULL));
  CHECK(status == DIPC_OK && batch.array.release == NULL);
  do_harm(self, CLOSED, own_fd);
  source.release(&source);
  OK(dipc_request_finish(request, DIPC_FOREVER, &error_));
  dipc_request_free(request);
  do_harm(self, CLOSED, fd);
  EVENTUALLY(status, DIPC_ERR_TIMEOUT, dipc_put_finish(put, 0, NULL, NULL));
  CHECK_EQ(status, DIPC_OK);
  dipc_put_free(put);
}

static void *ask_later(void *both) {
  sleep_ms(50);
  pair *own = both;
  dipc_pending *pending = start(own->client, DIPC_VERB_GET, own->uris[0], TICKET("t"));
  wait_until_readable(pending);
  return pending;
}

/* Of a server, and of a request that may be cancelled. */
static void a_servers_descriptors_are_harmed(pair *both, const stranger *self) {
  int fd = -1, cancel_fd = -1;
  void *pending = NULL;
  pthread_t asking;
  OK(dipc_server_request_fd(both->server, &fd, &error_));
  do_harm(self, REPLACED, fd);
  CHECK_EQ(pthread_create(&asking, NULL, ask_later, both), 0);
  /* This call sleeps, and is woken. */
  dipc_request *request = next_request(both->server);
  OK(dipc_request_cancel_fd(request, &cancel_fd, &error_));
  do_harm(self, REPLACED, cancel_fd);
  OK(start_answer(request, &error_));
  CHECK_EQ(pthread_join(asking, &pending), 0);
  dipc_pending_free(pending);
  for (int i = 0; !dipc_request_is_cancelled(request) && i < 10000; i++) {
    CHECK(try_answer(request, 0, 0, NULL) <= 0);
    sleep_ms(1);
  }
  CHECK(dipc_request_is_cancelled(request));
  do_harm(self, CLOSED, cancel_fd);
  dipc_request_free(request);
  request = NULL;
  CHECK_EQ(dipc_server_next_request(both->server, 0, NULL, &request, NULL), DIPC_NOTHING);
  drain(both->server);
  dipc_client_free(both->client);
  do_harm(self, CLOSED, fd);
  CHECK_EQ(dipc_server_next_request(both->server, 0, NULL, &request, NULL), DIPC_NOTHING);
  dipc_server_free(both->server);
  table_wait_live(0);
}

/* A host that closes a descriptor which it should not: the process lives, no call hangs, and what the
 * host has opened in its place gets nothing of the library's. */
static void a_descriptor_is_closed_by_the_host(void) {
  alarm(240);
  for (harm how = CLOSED; how <= REPLACED; how++) {
    stranger self = new_stranger(how);
    for (int at = 0; at < 2; at++) {
      pair both = new_pair();
      OK(dipc_server_set_handler_pull(both.server, &error_));
      a_pendings_descriptor_is_harmed(&both, at, &self);
      a_streams_descriptors_are_harmed(&both, at, &self);
      a_puts_descriptors_are_harmed(&both, at, &self);
      drain(both.server);
      end_pair(&both);
    }
    pair both = new_pair();
    OK(dipc_server_set_handler_pull(both.server, &error_));
    a_servers_descriptors_are_harmed(&both, &self);
    is_untouched(&self);
    CHECK_EQ(close(self.file), 0);
  }
  alarm(0);
}

/* A batch's columns are those of its stream, by name, order and type. */
static void batches_of_other_columns_are_told(void) {
  struct ArrowSchema stream, batch;
  table_schema(&stream);
  table_schema(&batch);
  OK(dipc_batch_check_schema(&stream, &batch, &error_));
  const char *name = batch.children[1]->name;
  batch.children[1]->name = "other";
  FAILS(DIPC_ERR_INVALID_DATA, "column 2 is \"other\" and not \"name\"",
        dipc_batch_check_schema(&stream, &batch, &error_));
  batch.children[1]->name = name;
  const char *format = batch.children[0]->format;
  batch.children[0]->format = "i";
  FAILS(DIPC_ERR_INVALID_DATA, "\"id\" is of type Int32 and not Int64",
        dipc_batch_check_schema(&stream, &batch, &error_));
  batch.children[0]->format = format;
  batch.release(&batch);
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "batch_schema is released",
        dipc_batch_check_schema(&stream, &batch, &error_));
  stream.release(&stream);
}

int main(void) {
  batches_of_other_columns_are_told();
  a_descriptor_that_is_too_long_is_refused();
  headers_that_are_wrong_are_refused();
  a_server_without_a_handler_takes_no_tables();
  a_verb_that_is_not_known_is_refused();
  a_request_is_answered_once();
  a_table_is_taken_and_answered_once();
  a_failed_request_does_not_end_well();
  many_endpoints_are_described();
  threads_call_without_a_wait();
  a_fork_disturbs_no_table();
  a_descriptor_is_closed_by_the_host();
  return 0;
}
