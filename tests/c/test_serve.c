/* Serving in one process: providers, published tables, tickets, limits, stopping. */
#include <poll.h>
#include <stdatomic.h>

#include "util.h"

/* A provider's orders and observations. */
typedef struct {
  int64_t batches, rows, fail_at;
  int32_t code;
  const char *text;
  bool no_stream;
  atomic_int calls, finalized;
  char ticket[64], peer[128];
  _Atomic(bool) hold; /* wait in the call until this is false, or the client is gone */
} plan;

static int32_t provide(void *userdata, dipc_request *request, struct ArrowDeviceArrayStream *out) {
  plan *self = userdata;
  atomic_fetch_add(&self->calls, 1);
  size_t len = 0;
  OK(dipc_request_ticket(request, NULL, 0, &len, &error_));
  CHECK(len < sizeof self->ticket);
  memset(self->ticket, 0, sizeof self->ticket);
  OK(dipc_request_ticket(request, (uint8_t *)self->ticket, sizeof self->ticket, &len, &error_));
  OK(dipc_request_peer(request, self->peer, sizeof self->peer, &len, &error_));
  CHECK_EQ(len, strlen(self->peer));
  dipc_request_free(request); /* belongs to the library: no effect */
  while (atomic_load(&self->hold) && !dipc_request_is_cancelled(request)) sleep_ms(1);
  /* The calls of the pull form are not for providers. */
  struct ArrowSchema schema;
  table_schema(&schema);
  STATUS(DIPC_ERR_INVALID_ARGUMENT, dipc_request_start(request, &schema, 1, &error_));
  schema.release(&schema);
  STATUS(DIPC_ERR_INVALID_ARGUMENT, dipc_request_finish(request, 0, &error_));
  if (self->text) OK(dipc_request_fail(request, self->code, self->text, &error_));
  if (self->code) return self->code;
  if (!self->no_stream) table_stream(out, self->batches, self->rows, self->fail_at, NULL);
  return 0;
}

static void finalize(void *userdata) {
  plan *self = userdata;
  atomic_fetch_add(&self->finalized, 1);
}

static void wait_for(atomic_int *value, int wanted) {
  for (int i = 0; i < 10000 && atomic_load(value) < wanted; i++) sleep_ms(1);
  CHECK_EQ(atomic_load(value), wanted);
}

static void a_provider_is_called_for_each_stream(void) {
  char uri[DIPC_URI_BYTES];
  dipc_server *server = new_server(NULL, uri);
  dipc_client *client = new_client();
  plan p = {.batches = 5, .rows = 1000, .fail_at = -1};
  OK(dipc_server_serve(server, TICKET("table"), provide, &p, finalize, 0, &error_));
  for (int i = 1; i <= 3; i++) {
    struct ArrowDeviceArrayStream stream = get(client, uri, "table");
    CHECK_EQ(table_check_stream(&stream), 5000);
    CHECK_EQ(atomic_load(&p.calls), i);
  }
  CHECK_STR(p.ticket, "table");
  CHECK(strstr(p.peer, "pid") != NULL);
  CHECK_EQ(server_stat(server, DIPC_SERVER_STAT_STREAMS_SERVED), 3);
  CHECK_EQ(server_stat(server, DIPC_SERVER_STAT_BATCHES), 15);
  uint64_t made = 0;
  OK(dipc_client_stat(client, DIPC_CLIENT_STAT_CONNECTIONS_MADE, &made, &error_));
  CHECK_EQ(made, 1); /* connections are kept */
  OK(dipc_client_stat(client, DIPC_CLIENT_STAT_STREAMS, &made, &error_));
  CHECK_EQ(made, 3);
  CHECK_EQ(atomic_load(&p.finalized), 0);
  OK(dipc_server_withdraw(server, TICKET("table"), &error_));
  wait_for(&p.finalized, 1);
  dipc_client_free(client);
  dipc_server_free(server);
  CHECK_EQ(atomic_load(&p.finalized), 1);
  table_wait_live(0);
}

static void a_provider_fails_with_its_own_words(void) {
  char uri[DIPC_URI_BYTES];
  dipc_server *server = new_server(NULL, uri);
  dipc_client *client = new_client();
  struct ArrowDeviceArrayStream stream;
  const char *uris[] = {uri};
  plan mute = {.code = 5}, words = {.code = 7, .text = "the disk is on fire"},
       status = {.code = DIPC_ERR_PERMISSION, .text = "not for you"}, empty = {.no_stream = true},
       late = {.batches = 3, .rows = 10, .fail_at = 2};
  OK(dipc_server_serve(server, TICKET("mute"), provide, &mute, NULL, 0, &error_));
  OK(dipc_server_serve(server, TICKET("words"), provide, &words, NULL, 0, &error_));
  OK(dipc_server_serve(server, TICKET("status"), provide, &status, NULL, 0, &error_));
  OK(dipc_server_serve(server, TICKET("empty"), provide, &empty, NULL, 0, &error_));
  OK(dipc_server_serve(server, TICKET("late"), provide, &late, NULL, 0, &error_));
  FAILS(DIPC_ERR_PROVIDER, "returned 5",
        dipc_client_get(client, uris, 1, TICKET("mute"), NULL, NULL, &stream, &error_));
  FAILS(DIPC_ERR_PROVIDER, "the disk is on fire",
        dipc_client_get(client, uris, 1, TICKET("words"), NULL, NULL, &stream, &error_));
  FAILS(DIPC_ERR_PERMISSION, "not for you",
        dipc_client_get(client, uris, 1, TICKET("status"), NULL, NULL, &stream, &error_));
  FAILS(DIPC_ERR_PROVIDER, "gave no stream",
        dipc_client_get(client, uris, 1, TICKET("empty"), NULL, NULL, &stream, &error_));

  /* A failure within a stream: earlier batches arrive, and the status is available. */
  stream = get(client, uri, "late");
  OK(dipc_stream_status(&stream, &error_));
  struct ArrowDeviceArray batch;
  for (int i = 0; i < 2; i++) {
    const int code = stream.get_next(&stream, &batch);
    if (code != 0) {
      CHECK(i > 0 || code != 0); /* an error may overtake batches that were not taken */
      break;
    }
    table_check(&batch.array, i * 10, 10);
    batch.array.release(&batch.array);
  }
  CHECK(stream.get_next(&stream, &batch) != 0);
  CHECK(strstr(stream.get_last_error(&stream), "broken pipe dream") != NULL);
  FAILS(DIPC_ERR_PROVIDER, "broken pipe dream", dipc_stream_status(&stream, &error_));
  stream.release(&stream);

  /* The server goes on. */
  publish(server, "fine", 1, 10, NULL);
  stream = get(client, uri, "fine");
  CHECK_EQ(table_check_stream(&stream), 10);
  dipc_client_free(client);
  dipc_server_free(server);
  table_wait_live(0);
}

static void tickets_are_served_once(void) {
  char uri[DIPC_URI_BYTES];
  dipc_server *server = new_server(NULL, uri);
  plan p = {.batches = 1, .rows = 1, .fail_at = -1};
  publish(server, "b", 1, 10, NULL);
  OK(dipc_server_serve(server, TICKET("a"), provide, &p, finalize, 0, &error_));
  OK(dipc_server_serve_pull(server, TICKET("c\0d"), &error_));

  FAILS(DIPC_ERR_ALREADY_EXISTS, "`b`",
        dipc_server_serve(server, TICKET("b"), provide, &p, finalize, 0, &error_));
  CHECK_EQ(atomic_load(&p.finalized), 0); /* the caller keeps userdata */
  STATUS(DIPC_ERR_ALREADY_EXISTS, dipc_server_serve_pull(server, TICKET("a"), &error_));
  struct ArrowSchema schema;
  struct ArrowDeviceArray batches[2];
  table_schema(&schema);
  table_batch(&batches[0], 0, 5, NULL);
  table_batch(&batches[1], 5, 5, NULL);
  STATUS(DIPC_ERR_ALREADY_EXISTS,
         dipc_server_publish(server, TICKET("a"), &schema, batches, 2, &error_));
  table_check_schema(&schema); /* and the arrays */
  table_check(&batches[0].array, 0, 5);
  table_check(&batches[1].array, 5, 5);
  batches[1].array.release(&batches[1].array);
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "batch 1 is released",
        dipc_server_publish(server, TICKET("e"), &schema, batches, 2, &error_));
  table_check(&batches[0].array, 0, 5);
  batches[0].array.release(&batches[0].array);
  schema.release(&schema);
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "schema is released",
        dipc_server_publish(server, TICKET("e"), &schema, batches, 0, &error_));
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "flags",
        dipc_server_serve(server, TICKET("e"), provide, &p, finalize, 6, &error_));

  size_t count = 0, len = 0;
  OK(dipc_server_ticket_count(server, &count, &error_));
  CHECK_EQ(count, 3);
  static const struct {
    const char *text;
    size_t len;
  } expected[] = {{"a", 1}, {"b", 1}, {"c\0d", 3}};
  for (size_t i = 0; i < 3; i++) {
    uint8_t buffer[8];
    OK(dipc_server_ticket(server, i, buffer, sizeof buffer, &len, &error_));
    CHECK_EQ(len, expected[i].len);
    CHECK(memcmp(buffer, expected[i].text, len) == 0);
  }
  STATUS(DIPC_ERR_NOT_FOUND, dipc_server_ticket(server, 3, NULL, 0, &len, &error_));
  uint8_t small[2] = {'?', '?'};
  len = 0;
  STATUS(DIPC_ERR_BUFFER_TOO_SMALL, dipc_server_ticket(server, 2, small, 2, &len, &error_));
  CHECK_EQ(len, 3);
  CHECK_EQ(small[0], '?');

  OK(dipc_server_withdraw(server, TICKET("b"), &error_));
  STATUS(DIPC_ERR_NOT_FOUND, dipc_server_withdraw(server, TICKET("b"), &error_));
  dipc_client *client = new_client();
  struct ArrowDeviceArrayStream stream;
  const char *uris[] = {uri};
  FAILS(DIPC_ERR_NOT_FOUND, "`b`",
        dipc_client_get(client, uris, 1, TICKET("b"), NULL, NULL, &stream, &error_));
  dipc_client_free(client);
  dipc_server_free(server);
  CHECK_EQ(atomic_load(&p.finalized), 1);
  table_wait_live(0);
}

/* Fetches a ticket twenty times. */
typedef struct {
  const char *uri;
  const dipc_client *client;
} reader;

static void *read_often(void *argument) {
  const reader *self = argument;
  for (int i = 0; i < 20; i++) {
    struct ArrowDeviceArrayStream stream = get(self->client, self->uri, "shared");
    CHECK_EQ(table_check_stream(&stream), 4000);
  }
  return NULL;
}

static void published_tables_are_fetched_by_many_at_once(void) {
  char uri[DIPC_URI_BYTES];
  dipc_server *server = new_server(NULL, uri);
  publish(server, "shared", 4, 1000, NULL);
  publish(server, "nothing", 0, 0, NULL);
  dipc_client *client = new_client();
  pthread_t threads[4];
  reader self = {uri, client};
  for (int i = 0; i < 4; i++) CHECK_EQ(pthread_create(&threads[i], NULL, read_often, &self), 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  struct ArrowDeviceArrayStream stream = get(client, uri, "nothing");
  CHECK_EQ(table_check_stream(&stream), 0);

  /* A client may be freed before its streams, and the server before both. */
  stream = get(client, uri, "shared");
  struct ArrowDeviceArray batch;
  CHECK_EQ(stream.get_next(&stream, &batch), 0);
  dipc_client_free(client);
  table_check(&batch.array, 0, 1000);
  dipc_server_free(server);
  table_check(&batch.array, 0, 1000);
  batch.array.release(&batch.array);
  stream.release(&stream);
  table_wait_live(0);
}

static void metadata_and_bodies_may_take_two_connections(void) {
  char uri[DIPC_URI_BYTES], metadata[DIPC_URI_BYTES], data[DIPC_URI_BYTES];
  dipc_server *server = NULL;
  size_t len = 0;
  OK(dipc_server_new(NULL, &server, &error_));
  STATUS(DIPC_ERR_NOT_FOUND,
         dipc_server_location(server, DIPC_ROLE_BOTH, uri, sizeof uri, &len, &error_));
  dipc_server_free(server);
  server = new_server(NULL, uri);
  STATUS(DIPC_ERR_INVALID_ARGUMENT,
         dipc_server_location(server, 3, metadata, sizeof metadata, &len, &error_));
  OK(dipc_server_location(server, DIPC_ROLE_METADATA, metadata, sizeof metadata, &len, &error_));
  OK(dipc_server_location(server, DIPC_ROLE_DATA, data, sizeof data, &len, &error_));
  CHECK(strcmp(metadata, data) != 0);
  publish(server, "split", 3, 100, NULL);
  dipc_client *client = new_client();
  const char *uris[] = {metadata, data};
  struct ArrowDeviceArrayStream stream;
  OK(dipc_client_get(client, uris, 2, TICKET("split"), NULL, NULL, &stream, &error_));
  CHECK_EQ(table_check_stream(&stream), 300);
  STATUS(DIPC_ERR_INVALID_URI, dipc_client_get(client, uris + 1, 1, TICKET("split"), NULL, NULL,
                                               &stream, &error_));
  dipc_client_free(client);
  dipc_server_free(server);
  table_wait_live(0);
}

static void listening_needs_room_and_a_free_address(void) {
  char uri[DIPC_URI_BYTES], address[DIPC_URI_BYTES];
  dipc_server *first = new_server(NULL, uri), *second = NULL;
  snprintf(address, sizeof address, "%.*s", (int)strcspn(uri, "?"), uri);
  OK(dipc_server_new(NULL, &second, &error_));
  size_t len = 0;
  char small[16] = "?";
  STATUS(DIPC_ERR_BUFFER_TOO_SMALL,
         dipc_server_listen(second, "shm:@dipc-c-small", small, sizeof small, &len, &error_));
  CHECK_EQ(len, DIPC_URI_BYTES);
  CHECK_EQ(small[0], '?');
  STATUS(DIPC_ERR_NOT_FOUND, dipc_server_location(second, 0, NULL, 0, &len, &error_));
  STATUS(DIPC_ERR_ADDRESS_IN_USE,
         dipc_server_listen(second, address, NULL, 0, &len, &error_));
  dipc_server_free(first);
  OK(dipc_server_listen(second, address, NULL, 0, &len, &error_));
  CHECK(len >= strlen(address));
  dipc_server_free(second);
}

static void *stop_server(void *argument) {
  OK(dipc_server_stop(argument, 10 * SECOND, &error_));
  return NULL;
}

static void stopping_drains_then_cuts(void) {
  char uri[DIPC_URI_BYTES];
  const char *uris[] = {uri};
  dipc_server *server = new_server(NULL, uri);
  dipc_client *client = new_client();
  publish(server, "long", 100, 1000, NULL);
  struct ArrowDeviceArrayStream stream = get(client, uri, "long");
  pthread_t thread;
  CHECK_EQ(pthread_create(&thread, NULL, stop_server, server), 0);
  CHECK_EQ(table_check_stream(&stream), 100000); /* it may end */
  pthread_join(thread, NULL);
  STATUS(DIPC_ERR_STOPPED, dipc_server_serve_pull(server, TICKET("x"), &error_));
  struct ArrowDeviceArrayStream none;
  CHECK(dipc_client_get(client, uris, 1, TICKET("long"), NULL, NULL, &none, NULL) < 0);
  OK(dipc_server_stop(server, 0, &error_)); /* again */
  dipc_server_free(server);

  /* A consumer that does not read is cut at the deadline, and keeps its batches. */
  server = new_server(NULL, uri);
  publish(server, "long", 100, 1000, NULL);
  stream = get(client, uri, "long");
  struct ArrowDeviceArray batch;
  CHECK_EQ(stream.get_next(&stream, &batch), 0);
  OK(dipc_server_stop(server, SECOND / 10, &error_));
  dipc_server_free(server);
  table_check(&batch.array, 0, 1000);
  batch.array.release(&batch.array);
  int code = 0;
  while ((code = stream.get_next(&stream, &batch)) == 0) {
    CHECK(batch.array.release != NULL); /* the stream is not complete */
    batch.array.release(&batch.array);
  }
  CHECK(dipc_stream_status(&stream, NULL) < 0);
  stream.release(&stream);
  dipc_client_free(client);
  table_wait_live(0);
}

static int32_t produce_for_ever(void *userdata, dipc_request *request,
                                struct ArrowDeviceArrayStream *out) {
  (void)userdata, (void)request;
  table_stream(out, INT64_MAX, 100, -1, NULL);
  return 0;
}

/* valgrind sees whether the connection is given up: the I/O thread has read both the failure and the
 * end of the connection. */
static void a_client_may_hear_late_of_a_stop(void) {
  dipc_get_options *options = NULL;
  OK(dipc_get_options_new(&options, &error_));
  OK(dipc_get_options_set_window(options, 2, 1 << 20, &error_));
  for (int i = 0; i < 3; i++) {
    char uri[DIPC_URI_BYTES];
    const char *uris[] = {uri};
    dipc_server *server = new_server(NULL, uri);
    OK(dipc_server_serve(server, TICKET("ever"), produce_for_ever, NULL, NULL, 0, &error_));
    dipc_client *client = new_client();
    struct ArrowDeviceArrayStream stream;
    struct ArrowDeviceArray batch;
    OK(dipc_client_get(client, uris, 1, TICKET("ever"), options, NULL, &stream, &error_));
    dipc_server_free(server);
    sleep_ms(100 * i);
    while (stream.get_next(&stream, &batch) == 0) batch.array.release(&batch.array);
    STATUS(DIPC_ERR_STOPPED, dipc_stream_status(&stream, &error_));
    stream.release(&stream);
    dipc_client_free(client);
  }
  dipc_get_options_free(options);
  table_wait_live(0);
}

static void a_provider_that_hangs_is_left_behind(void) {
  char uri[DIPC_URI_BYTES];
  dipc_server *server = new_server(NULL, uri);
  dipc_client *client = new_client();
  static plan p = {.batches = 1, .rows = 1, .fail_at = -1, .code = 1};
  atomic_store(&p.hold, true);
  OK(dipc_server_serve(server, TICKET("hangs"), provide, &p, finalize, 0, &error_));
  dipc_get_options *options = NULL;
  OK(dipc_get_options_new(&options, &error_));
  OK(dipc_get_options_set_stall_timeout_ns(options, SECOND / 5, &error_));
  const char *uris[] = {uri};
  struct ArrowDeviceArrayStream stream;
  STATUS(DIPC_ERR_TIMEOUT,
         dipc_client_get(client, uris, 1, TICKET("hangs"), options, NULL, &stream, &error_));
  dipc_get_options_free(options);
  dipc_client_free(client);
  dipc_server_free(server);
  atomic_store(&p.hold, false);
  wait_for(&p.finalized, 1);
}

/* The thread that takes a request, and the place for it. */
typedef struct {
  dipc_server *server;
  dipc_request **out;
} take_request;

static void *take_one(void *userdata) {
  const take_request *self = userdata;
  OK(dipc_server_next_request(self->server, 60 * SECOND, NULL, self->out, &error_));
  CHECK(*self->out != NULL);
  return NULL;
}

/* Waits for an event that never comes, or for the client's end. */
static int32_t provide_after_poll(void *userdata, dipc_request *request,
                                  struct ArrowDeviceArrayStream *out) {
  plan *self = userdata;
  int never[2], fd = -1, again = -1;
  CHECK(pipe(never) == 0);
  OK(dipc_request_cancel_fd(request, &fd, &error_));
  OK(dipc_request_cancel_fd(request, &again, &error_));
  CHECK_EQ(fd, again);
  struct pollfd fds[] = {{.fd = never[0], .events = POLLIN}, {.fd = fd, .events = POLLIN}};
  CHECK_EQ(poll(fds, 2, 0), 0); /* the client has not gone */
  atomic_fetch_add(&self->calls, 1);
  CHECK_EQ(poll(fds, 2, 60000), 1);
  CHECK(fds[0].revents == 0 && fds[1].revents == POLLIN);
  CHECK(dipc_request_is_cancelled(request));
  close(never[0]);
  close(never[1]);
  (void)out;
  return DIPC_ERR_CANCELLED;
}

static void a_provider_waits_for_its_client_beside_others(void) {
  char uri[DIPC_URI_BYTES];
  dipc_server *server = new_server(NULL, uri);
  plan p = {.fail_at = -1};
  OK(dipc_server_serve(server, TICKET("polls"), provide_after_poll, &p, finalize, 0, &error_));
  dipc_client *client = new_client();
  dipc_get_options *options = NULL;
  OK(dipc_get_options_new(&options, &error_));
  OK(dipc_get_options_set_stall_timeout_ns(options, SECOND / 5, &error_));
  struct ArrowDeviceArrayStream stream;
  const char *uris[] = {uri};
  FAILS(DIPC_ERR_TIMEOUT, "sent nothing",
        dipc_client_get(client, uris, 1, TICKET("polls"), options, NULL, &stream, &error_));
  dipc_get_options_free(options);
  dipc_client_free(client);
  wait_for(&p.calls, 1);
  OK(dipc_server_withdraw(server, TICKET("polls"), &error_));
  wait_for(&p.finalized, 1); /* the provider has returned */
  dipc_server_free(server);
}

/* Clients that come and go while no provider returns. */
static void stuck_providers_are_limited(void) {
  char uri[DIPC_URI_BYTES];
  dipc_server_options *options = NULL;
  OK(dipc_server_options_new(&options, &error_));
  OK(dipc_server_options_set_max_streams(options, 1, &error_));
  OK(dipc_server_options_set_max_providers(options, 2, &error_));
  dipc_server *server = new_server(options, uri);
  dipc_server_options_free(options);
  OK(dipc_server_serve_pull(server, TICKET("held"), &error_));
  publish(server, "table", 1, 10, NULL);
  dipc_get_options *impatient = NULL;
  OK(dipc_get_options_new(&impatient, &error_));
  OK(dipc_get_options_set_stall_timeout_ns(impatient, SECOND / 5, &error_));
  struct ArrowDeviceArrayStream stream;
  const char *uris[] = {uri};
  dipc_request *requests[2] = {NULL, NULL};
  for (int i = 0; i < 2; i++) {
    dipc_client *client = new_client();
    pthread_t taker;
    take_request take = {server, &requests[i]};
    CHECK(pthread_create(&taker, NULL, take_one, &take) == 0);
    FAILS(DIPC_ERR_TIMEOUT, "sent nothing",
          dipc_client_get(client, uris, 1, TICKET("held"), impatient, NULL, &stream, &error_));
    CHECK(pthread_join(taker, NULL) == 0);
    dipc_client_free(client);
    for (int j = 0; server_stat(server, DIPC_SERVER_STAT_STREAMS_ACTIVE) > 0 && j < 10000; j++)
      sleep_ms(1);
    int fd = -1;
    OK(dipc_request_cancel_fd(requests[i], &fd, &error_));
    CHECK_EQ(poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 60000), 1);
  }
  dipc_client *client = new_client();
  FAILS(DIPC_ERR_BUSY, "max_providers",
        dipc_client_get(client, uris, 1, TICKET("held"), impatient, NULL, &stream, &error_));
  stream = get(client, uri, "table");
  CHECK_EQ(table_check_stream(&stream), 10);
  dipc_get_options_free(impatient);
  dipc_client_free(client);
  dipc_request_free(requests[0]);
  dipc_request_free(requests[1]);
  dipc_server_free(server);
  table_wait_live(0);
}

static void streams_are_limited(void) {
  char uri[DIPC_URI_BYTES];
  dipc_server_options *options = NULL;
  OK(dipc_server_options_new(&options, &error_));
  OK(dipc_server_options_set_max_streams(options, 1, &error_));
  dipc_server *server = new_server(options, uri);
  dipc_server_options_free(options);
  publish(server, "long", 100, 1000, NULL);
  dipc_client *client = new_client();
  struct ArrowDeviceArrayStream first = get(client, uri, "long"), second;
  const char *uris[] = {uri};
  FAILS(DIPC_ERR_BUSY, "max_streams allows (1)",
        dipc_client_get(client, uris, 1, TICKET("long"), NULL, NULL, &second, &error_));
  CHECK_EQ(table_check_stream(&first), 100000);
  for (int i = 0; server_stat(server, DIPC_SERVER_STAT_STREAMS_ACTIVE) > 0 && i < 1000; i++)
    sleep_ms(1);
  second = get(client, uri, "long");
  second.release(&second); /* half read, and cancelled */
  dipc_client_free(client);
  dipc_server_free(server);
  table_wait_live(0);
}

int main(void) {
  a_provider_is_called_for_each_stream();
  a_provider_fails_with_its_own_words();
  tickets_are_served_once();
  published_tables_are_fetched_by_many_at_once();
  metadata_and_bodies_may_take_two_connections();
  listening_needs_room_and_a_free_address();
  stopping_drains_then_cuts();
  a_client_may_hear_late_of_a_stop();
  a_provider_that_hangs_is_left_behind();
  a_provider_waits_for_its_client_beside_others();
  stuck_providers_are_limited();
  streams_are_limited();
  return 0;
}
