/* Requests answered by producers of Arrow's asynchronous interface: a server in a process of its
 * own, over shared memory, tcp and ucx. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "util.h"

#define CLIENTS 20
#define BATCHES 50
#define ROWS 100
/* The most tasks that the library asks for ahead. */
#define AHEAD 8

/* What the producers have seen, for the process of the clients too. */
typedef struct {
  atomic_int started, asked, extracted, cancels, refusals, releases;
} record;

static record *seen;

/* --- a producer, with a thread of its own ------------------------------- */

typedef struct {
  struct ArrowAsyncDeviceStreamHandler handler;
  struct ArrowAsyncProducer raw;
  char ticket[16];
  struct ArrowDeviceArrayStream source;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int64_t asked, brought;
  atomic_int extracted;
  bool is_cancelled, is_released;
  pthread_t thread;
} producer;

typedef struct {
  producer *own;
  int64_t number;
} batch_task;

static bool is(const producer *own, const char *ticket) { return strcmp(own->ticket, ticket) == 0; }

/* Encodes one pair; keys and values are short. */
static const char *pair(const char *key, const char *value) {
  static _Thread_local char out[64];
  const int32_t one = 1, key_len = (int32_t)strlen(key), value_len = (int32_t)strlen(value);
  memcpy(out, &one, 4);
  memcpy(out + 4, &key_len, 4);
  memcpy(out + 8, key, strlen(key));
  memcpy(out + 8 + key_len, &value_len, 4);
  memcpy(out + 12 + key_len, value, strlen(value));
  return out;
}

static int extract(struct ArrowAsyncTask *task, struct ArrowDeviceArray *out) {
  batch_task *own = task->private_data;
  CHECK(own != NULL);
  producer *of = own->own;
  const int64_t number = own->number;
  task->private_data = NULL;
  free(own);
  atomic_fetch_add(&of->extracted, 1);
  CHECK(out != NULL);
  if (is(of, "unread") && number == 3) return ENOMEM;
  atomic_fetch_add(&seen->extracted, 1);
  table_batch(out, number * ROWS, ROWS, NULL);
  return 0;
}

static int bring(producer *own) {
  batch_task *data = malloc(sizeof *data);
  *data = (batch_task){own, own->brought++};
  struct ArrowAsyncTask task = {extract, data};
  const char *metadata = data->number == 0 ? pair("note", "of the batch") : NULL;
  return own->handler.on_next_task(&own->handler, &task, metadata);
}

static void say_end(producer *own) {
  CHECK_EQ(own->handler.on_next_task(&own->handler, NULL, NULL), 0);
}

static void release(producer *own) {
  CHECK(own->handler.release != NULL);
  own->handler.release(&own->handler);
  CHECK(own->handler.release == NULL);
  atomic_fetch_add(&seen->releases, 1);
}

static void request(struct ArrowAsyncProducer *self, int64_t n) {
  producer *own = self->private_data;
  CHECK(n > 0);
  atomic_fetch_add(&seen->asked, (int)n);
  pthread_mutex_lock(&own->lock);
  own->asked += n;
  CHECK(!own->is_cancelled);
  CHECK(own->asked - own->extracted <= AHEAD);
  pthread_cond_signal(&own->changed);
  pthread_mutex_unlock(&own->lock);
  if (!is(own, "inside")) return;
  for (; n > 0 && own->brought < BATCHES; n--) CHECK_EQ(bring(own), 0);
  if (own->brought == BATCHES && !own->is_released) {
    own->is_released = true;
    say_end(own);
    release(own);
  }
}

static void cancel(struct ArrowAsyncProducer *self) {
  producer *own = self->private_data;
  pthread_mutex_lock(&own->lock);
  CHECK(!own->is_cancelled);
  own->is_cancelled = true;
  pthread_cond_signal(&own->changed);
  pthread_mutex_unlock(&own->lock);
  atomic_fetch_add(&seen->cancels, 1);
}

/* Waits until another batch is wanted. False: none will be. */
static bool is_wanted(producer *own) {
  pthread_mutex_lock(&own->lock);
  while (own->asked == own->brought && !own->is_cancelled) {
    pthread_cond_wait(&own->changed, &own->lock);
  }
  const bool is_wanted = !own->is_cancelled;
  pthread_mutex_unlock(&own->lock);
  return is_wanted;
}

static void wait_for_cancel(producer *own) {
  pthread_mutex_lock(&own->lock);
  while (!own->is_cancelled) pthread_cond_wait(&own->changed, &own->lock);
  pthread_mutex_unlock(&own->lock);
}

/* Brings everything but the end. False: the stream is over. */
static bool bring_all(producer *own) {
  const int64_t batches = is(own, "ever")    ? INT64_MAX
                          : is(own, "empty") ? 0
                          : is(own, "fails") ? 5
                          : is(own, "leaves") ? 2
                                              : BATCHES;
  if (is(own, "echo")) CHECK_EQ(table_check_stream(&own->source), (int64_t)BATCHES * ROWS);
  for (int64_t i = 0; i < batches; i++) {
    if (!is_wanted(own)) return false;
    CHECK_EQ(bring(own), 0);
  }
  return true;
}

static void *produce(void *argument) {
  producer *own = argument;
  struct ArrowAsyncDeviceStreamHandler *handler = &own->handler;
  struct ArrowSchema schema;
  if (is(own, "late")) sleep_ms(100);
  if (is(own, "none")) {
    char status[16];
    snprintf(status, sizeof status, "%d", (int)DIPC_ERR_NOT_FOUND);
    handler->on_error(handler, ENOENT, "never heard of it", pair("dipc_status", status));
    release(own);
    return NULL;
  }
  handler->producer = &own->raw;
  if (is(own, "broken")) {
    /* A schema that does not say its type. */
    table_schema(&schema);
    schema.children[0]->format = "?";
  } else {
    table_schema(&schema);
  }
  own->raw.additional_metadata = pair("who", "me");
  const int refused = handler->on_schema(handler, &schema);
  own->raw.additional_metadata = NULL;
  CHECK(schema.release == NULL);
  if (refused != 0) {
    CHECK_EQ(refused, ECANCELED);
    atomic_fetch_add(&seen->refusals, 1);
    release(own);
    return NULL;
  }
  if (is(own, "inside")) return NULL;
  if (is(own, "greedy")) {
    CHECK(is_wanted(own));
    /* The lock keeps the library in one call that asks for more. */
    pthread_mutex_lock(&own->lock);
    while (own->brought <= own->asked + AHEAD) CHECK_EQ(bring(own), 0);
    pthread_mutex_unlock(&own->lock);
    wait_for_cancel(own);
  } else if (is(own, "broken")) {
    wait_for_cancel(own);
    say_end(own);
  } else if (is(own, "deaf")) {
    /* Goes on for a while where nobody listens. */
    wait_for_cancel(own);
    sleep_ms(50);
    CHECK_EQ(bring(own), 0);
    handler->on_error(handler, EIO, "unheard", NULL);
  } else if (bring_all(own)) {
    if (is(own, "fails")) {
      handler->on_error(handler, EIO, "broken pipe dream", NULL);
    } else if (!is(own, "leaves")) {
      say_end(own);
    }
  }
  release(own);
  return NULL;
}

/* --- the server --------------------------------------------------------- */

/* A handler that frees itself: a table of this server is handed on. */
typedef struct {
  struct ArrowAsyncDeviceStreamHandler handler;
  void (*release)(struct ArrowAsyncDeviceStreamHandler *);
} relay;

static void release_relay(struct ArrowAsyncDeviceStreamHandler *self) {
  relay *own = (relay *)self;
  own->release(self);
  free(own);
  atomic_fetch_add(&seen->releases, 1);
}

static void hand_on(const dipc_client *client, const char *uri, const char *ticket,
                    dipc_request *from) {
  relay *own = malloc(sizeof *own);
  OK(dipc_request_answer_async(from, &own->handler, &error_));
  own->release = own->handler.release;
  own->handler.release = release_relay;
  OK(dipc_client_get_async(client, &uri, 1, (const uint8_t *)ticket, strlen(ticket), NULL,
                           &own->handler, &error_));
}

static producer *answer(dipc_request *from, const char *ticket) {
  producer *own = calloc(1, sizeof *own);
  snprintf(own->ticket, sizeof own->ticket, "%s", ticket);
  own->raw = (struct ArrowAsyncProducer){
      .device_type = ARROW_DEVICE_CPU, .request = request, .cancel = cancel, .private_data = own};
  CHECK_EQ(pthread_mutex_init(&own->lock, NULL), 0);
  CHECK_EQ(pthread_cond_init(&own->changed, NULL), 0);
  if (dipc_request_verb(from) == DIPC_VERB_EXCHANGE) {
    OK(dipc_request_source(from, &own->source, &error_));
  }
  OK(dipc_request_answer_async(from, &own->handler, &error_));
  CHECK_EQ(pthread_create(&own->thread, NULL, produce, own), 0);
  return own;
}

static void refuse(dipc_request *from) {
  struct ArrowAsyncDeviceStreamHandler handler;
  struct ArrowSchema schema;
  if (dipc_request_verb(from) != DIPC_VERB_PUT) {
    table_schema(&schema);
    OK(dipc_request_start(from, &schema, ARROW_DEVICE_CPU, &error_));
    schema.release(&schema);
  }
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "", dipc_request_answer_async(from, &handler, &error_));
  OK(dipc_request_fail(from, DIPC_ERR_UNSUPPORTED, "not so", &error_));
  dipc_request_free(from);
}

/* Serves until `control` is closed. */
static void serve(int control, int out, const char *address) {
  producer *all[1000];
  size_t count = 0;
  dipc_server *server = NULL;
  dipc_server_options *options = NULL;
  char uris[5][DIPC_URI_BYTES] = {"", "", "", "", ""};
  size_t len = 0;
  OK(dipc_server_options_new(&options, &error_));
  OK(dipc_server_options_set_trusted_network(options, true, &error_));
  OK(dipc_server_new(options, &server, &error_));
  dipc_server_options_free(options);
  OK(dipc_server_listen(server, address, uris[0], DIPC_URI_BYTES, &len, &error_));
  OK(dipc_server_listen(server, "tcp://127.0.0.1:0", uris[1], DIPC_URI_BYTES, &len, &error_));
  if (dipc_transport_available("ucx", NULL) == DIPC_OK) {
    OK(dipc_server_listen(server, "ucx://127.0.0.1:0", uris[2], DIPC_URI_BYTES, &len, &error_));
  }
  OK(dipc_server_location(server, DIPC_ROLE_METADATA, uris[3], DIPC_URI_BYTES, &len, &error_));
  OK(dipc_server_location(server, DIPC_ROLE_DATA, uris[4], DIPC_URI_BYTES, &len, &error_));
  OK(dipc_server_set_handler_pull(server, &error_));
  CHECK_EQ(write(out, uris, sizeof uris), (ssize_t)sizeof uris);
  dipc_client *client = new_client();
  struct pollfd polled[2] = {{control, POLLIN, 0}, {-1, POLLIN, 0}};
  OK(dipc_server_request_fd(server, &polled[1].fd, &error_));
  for (;;) {
    dipc_request *from = NULL;
    dipc_error *error = NULL;
    const dipc_status status = dipc_server_next_request(server, 0, NULL, &from, &error);
    if (status == DIPC_NOTHING) {
      CHECK(poll(polled, 2, -1) > 0);
      if (polled[0].revents) break;
      continue;
    }
    CHECK_EQ(status, DIPC_OK);
    char ticket[16] = "";
    OK(dipc_request_ticket(from, (uint8_t *)ticket, sizeof ticket - 1, &len, &error_));
    if (strcmp(ticket, "refused") == 0) {
      refuse(from);
      continue;
    }
    atomic_fetch_add(&seen->started, 1);
    if (strncmp(ticket, "on:", 3) == 0) {
      hand_on(client, uris[0], ticket + 3, from);
    } else {
      all[count++] = answer(from, ticket);
    }
  }
  /* Neither waits for producers. */
  dipc_client_free(client);
  dipc_server_free(server);
  for (size_t i = 0; i < count; i++) {
    CHECK_EQ(pthread_join(all[i]->thread, NULL), 0);
    CHECK_EQ(all[i]->extracted, all[i]->brought);
    CHECK_EQ(pthread_cond_destroy(&all[i]->changed), 0);
    CHECK_EQ(pthread_mutex_destroy(&all[i]->lock), 0);
    free(all[i]);
  }
  CHECK_EQ(seen->releases, seen->started);
  table_wait_live(0);
  _exit(0);
}

/* --- the clients -------------------------------------------------------- */

static void wait_for(atomic_int *count, int value) {
  for (int i = 0; i < 30000; i++) {
    if (atomic_load(count) >= value) return;
    sleep_ms(1);
  }
  FAIL("%d, not %d", atomic_load(count), value);
}

/* Waits for the end of every producer; how many were cancelled since, and how many refused. */
static void all_released(int cancels, int refusals) {
  wait_for(&seen->releases, atomic_load(&seen->started));
  CHECK_EQ(seen->releases, seen->started);
  CHECK_EQ(seen->cancels, cancels);
  CHECK_EQ(seen->refusals, refusals);
  seen->cancels = seen->refusals = seen->asked = seen->extracted = 0;
}

static void *read_table(void *uri) {
  dipc_client *client = new_client();
  for (int i = 0; i < 3; i++) {
    struct ArrowDeviceArrayStream stream = get(client, uri, i % 2 ? "late" : "soon");
    CHECK_EQ(table_check_stream(&stream), (int64_t)BATCHES * ROWS);
  }
  dipc_client_free(client);
  return NULL;
}

static void tables_cross(char *uri) {
  pthread_t threads[CLIENTS];
  for (int i = 0; i < CLIENTS; i++) CHECK_EQ(pthread_create(&threads[i], NULL, read_table, uri), 0);
  for (int i = 0; i < CLIENTS; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
  all_released(0, 0);
  dipc_client *client = new_client();
  struct ArrowDeviceArrayStream stream = get(client, uri, "empty");
  CHECK_EQ(table_check_stream(&stream), 0);
  stream = get(client, uri, "inside");
  CHECK_EQ(table_check_stream(&stream), (int64_t)BATCHES * ROWS);
  /* Another server's table, and its failure. */
  stream = get(client, uri, "on:soon");
  CHECK_EQ(table_check_stream(&stream), (int64_t)BATCHES * ROWS);
  const char *u = uri;
  FAILS(DIPC_ERR_NOT_FOUND, "never heard of it",
        dipc_client_get(client, &u, 1, TICKET("on:none"), NULL, NULL, &stream, &error_));
  all_released(0, 0);
  dipc_client_free(client);
}

/* Metadata over one connection, bodies over another. */
static void tables_cross_on_two_connections(const char *metadata, const char *data) {
  dipc_client *client = new_client();
  const char *both[] = {metadata, data};
  for (int i = 0; i < 10; i++) {
    struct ArrowDeviceArrayStream stream;
    OK(dipc_client_get(client, both, 2, TICKET("soon"), NULL, NULL, &stream, &error_));
    CHECK_EQ(table_check_stream(&stream), (int64_t)BATCHES * ROWS);
  }
  all_released(0, 0);
  dipc_client_free(client);
}

/* Rows of an endless producer, which is cancelled behind the last one. */
static void a_range_ends_a_producer(const char *uri) {
  dipc_client *client = new_client();
  dipc_get_options *options = NULL;
  struct ArrowDeviceArrayStream stream;
  struct ArrowDeviceArray batch;
  const int64_t rows[] = {ROWS / 2, ROWS, ROWS / 2};
  OK(dipc_get_options_new(&options, &error_));
  OK(dipc_get_options_set_range(options, 5 * ROWS + ROWS / 2, 2 * ROWS, &error_));
  OK(dipc_client_get(client, &uri, 1, TICKET("ever"), options, NULL, &stream, &error_));
  int64_t first = 5 * ROWS + ROWS / 2;
  for (int i = 0; i < 3; first += rows[i++]) {
    CHECK_EQ(stream.get_next(&stream, &batch), 0);
    table_check(&batch.array, first, rows[i]);
    batch.array.release(&batch.array);
  }
  CHECK_EQ(stream.get_next(&stream, &batch), 0);
  CHECK(batch.array.release == NULL);
  stream.release(&stream);
  all_released(1, 0);
  dipc_get_options_free(options);
  dipc_client_free(client);
}

/* The answer's headers, and the metadata of a batch. */
static void metadata_crosses(const char *uri) {
  dipc_client *client = new_client();
  for (int i = 0; i < 2; i++) {
    struct ArrowDeviceArrayStream stream = get(client, uri, i ? "on:soon" : "soon");
    struct ArrowDeviceArray batch;
    dipc_headers *headers = NULL;
    uint8_t value[64];
    size_t len = 0;
    OK(dipc_stream_headers(&stream, &headers, &error_));
    CHECK_EQ(dipc_headers_count(headers), 1);
    OK(dipc_headers_get(headers, "who", value, sizeof value, &len, &error_));
    CHECK(len == 2 && memcmp(value, "me", 2) == 0);
    dipc_headers_free(headers);
    CHECK_EQ(stream.get_next(&stream, &batch), 0);
    batch.array.release(&batch.array);
    OK(dipc_stream_metadata(&stream, value, sizeof value, &len, &error_));
    CHECK(len == 28 && memcmp(value, pair("note", "of the batch"), len) == 0);
    CHECK_EQ(stream.get_next(&stream, &batch), 0);
    batch.array.release(&batch.array);
    OK(dipc_stream_metadata(&stream, value, sizeof value, &len, &error_));
    CHECK_EQ(len, 0);
    stream.release(&stream);
  }
  wait_for(&seen->releases, atomic_load(&seen->started));
  /* The ends may cross. */
  seen->cancels = 0;
  all_released(0, 0);
  dipc_client_free(client);
}

static void a_producer_brings_what_the_client_has_room_for(const char *uri) {
  dipc_client *client = new_client();
  dipc_get_options *options = NULL;
  struct ArrowDeviceArrayStream stream;
  struct ArrowDeviceArray batch;
  OK(dipc_get_options_new(&options, &error_));
  for (int window = 1; window <= 4; window++) {
    OK(dipc_get_options_set_window(options, (uint32_t)window, 1 << 20, &error_));
    OK(dipc_client_get(client, &uri, 1, TICKET("soon"), options, NULL, &stream, &error_));
    wait_for(&seen->asked, window);
    sleep_ms(20);
    CHECK_EQ(seen->asked, window);
    for (int i = 0; i < BATCHES; i++) {
      CHECK_EQ(stream.get_next(&stream, &batch), 0);
      CHECK(seen->asked <= i + 1 + window);
      table_check(&batch.array, (int64_t)i * ROWS, ROWS);
      batch.array.release(&batch.array);
    }
    CHECK_EQ(stream.get_next(&stream, &batch), 0);
    CHECK(batch.array.release == NULL);
    stream.release(&stream);
    all_released(0, 0);
  }
  /* A batch that is larger than the window goes alone. */
  OK(dipc_get_options_set_window(options, 4, 100, &error_));
  OK(dipc_client_get(client, &uri, 1, TICKET("soon"), options, NULL, &stream, &error_));
  CHECK_EQ(table_check_stream(&stream), (int64_t)BATCHES * ROWS);
  all_released(0, 0);
  dipc_get_options_free(options);
  dipc_client_free(client);
}

/* Reads batches until one fails. */
static void fails_after(struct ArrowDeviceArrayStream *stream, int64_t batches, dipc_status status,
                        const char *part) {
  struct ArrowDeviceArray batch;
  int64_t count = 0;
  while (stream->get_next(stream, &batch) == 0) {
    CHECK(batch.array.release != NULL);
    table_check(&batch.array, count++ * ROWS, ROWS);
    batch.array.release(&batch.array);
  }
  if (batches >= 0) CHECK_EQ(count, batches);
  FAILS(status, part, dipc_stream_status(stream, &error_));
  stream->release(stream);
}

static void failures_reach_the_client(const char *uri) {
  dipc_client *client = new_client();
  struct ArrowDeviceArrayStream stream;
  dipc_put *put = NULL;
  FAILS(DIPC_ERR_NOT_FOUND, "never heard of it",
        dipc_client_get(client, &uri, 1, TICKET("none"), NULL, NULL, &stream, &error_));
  stream = get(client, uri, "refused");
  fails_after(&stream, 0, DIPC_ERR_UNSUPPORTED, "not so");
  table_stream(&stream, 1, ROWS, -1, NULL);
  FAILS(DIPC_ERR_UNSUPPORTED, "not so",
        dipc_client_put(client, &uri, 1, TICKET("refused"), NULL, NULL, &stream, &put, &error_));
  if (stream.release != NULL) stream.release(&stream);
  all_released(0, 0);
  stream = get(client, uri, "fails");
  fails_after(&stream, 5, DIPC_ERR_PROVIDER, "broken pipe dream");
  all_released(0, 0);
  stream = get(client, uri, "leaves");
  fails_after(&stream, 2, DIPC_ERR_PROVIDER, "before the end of its stream");
  all_released(0, 0);
  stream = get(client, uri, "unread");
  fails_after(&stream, 3, DIPC_ERR_PROVIDER, "cannot give a batch");
  all_released(1, 0);
  stream = get(client, uri, "greedy");
  fails_after(&stream, -1, DIPC_ERR_PROVIDER, "more than it was asked for");
  all_released(1, 0);
  FAILS(DIPC_ERR_INVALID_DATA, "?",
        dipc_client_get(client, &uri, 1, TICKET("broken"), NULL, NULL, &stream, &error_));
  all_released(1, 0);
  dipc_client_free(client);
}

static void a_client_that_leaves_is_a_cancel(const char *uri) {
  dipc_client *client = new_client();
  struct ArrowDeviceArray batch;
  struct ArrowDeviceArrayStream stream = get(client, uri, "ever");
  for (int64_t i = 0; i < 20; i++) {
    CHECK_EQ(stream.get_next(&stream, &batch), 0);
    table_check(&batch.array, i * ROWS, ROWS);
    batch.array.release(&batch.array);
  }
  stream.release(&stream);
  all_released(1, 0);
  /* A producer that has brought nothing, and one that hears late. */
  stream = get(client, uri, "deaf");
  stream.release(&stream);
  all_released(1, 0);
  /* A table that is handed on. */
  stream = get(client, uri, "on:ever");
  CHECK_EQ(stream.get_next(&stream, &batch), 0);
  batch.array.release(&batch.array);
  stream.release(&stream);
  all_released(1, 0);
  /* Before the schema. */
  dipc_pending *pending = NULL;
  const int started = seen->started;
  OK(dipc_client_start(client, DIPC_VERB_GET, &uri, 1, TICKET("late"), NULL, NULL, &pending,
                       &error_));
  wait_for(&seen->started, started + 1);
  dipc_pending_free(pending);
  all_released(0, 1);
  /* With the client and its connections. */
  stream = get(client, uri, "ever");
  dipc_client_free(client);
  stream.release(&stream);
  all_released(1, 0);
}

static void an_exchange_is_answered(const char *uri) {
  dipc_client *client = new_client();
  struct ArrowDeviceArrayStream answers;
  struct ArrowSchema schema;
  dipc_put *put = NULL;
  table_schema(&schema);
  OK(dipc_client_exchange(client, &uri, 1, TICKET("echo"), NULL, NULL, NULL, &schema,
                          ARROW_DEVICE_CPU, &put, &answers, &error_));
  schema.release(&schema);
  for (int64_t i = 0; i < BATCHES; i++) {
    struct ArrowDeviceArray batch;
    table_batch(&batch, i * ROWS, ROWS, NULL);
    OK(dipc_put_push(put, &batch, NULL, 0, DIPC_FOREVER, &error_));
  }
  /* Says the end. */
  STATUS(DIPC_ERR_TIMEOUT, dipc_put_finish(put, 0, NULL, &error_));
  CHECK_EQ(table_check_stream(&answers), (int64_t)BATCHES * ROWS);
  OK(dipc_put_finish(put, DIPC_FOREVER, NULL, &error_));
  dipc_put_free(put);
  all_released(0, 0);
  dipc_client_free(client);
}

/* Reads for ever, in a process of its own. */
static void read_for_ever(int in) {
  char uri[DIPC_URI_BYTES];
  if (read(in, uri, sizeof uri) != (ssize_t)sizeof uri) _exit(0);
  dipc_client *client = new_client();
  struct ArrowDeviceArrayStream stream = get(client, uri, "ever");
  for (;;) {
    struct ArrowDeviceArray batch;
    CHECK_EQ(stream.get_next(&stream, &batch), 0);
    batch.array.release(&batch.array);
  }
}

static void a_killed_client_is_a_cancel(const char *uri, pid_t reader, int to) {
  int status = 0;
  CHECK_EQ(write(to, uri, DIPC_URI_BYTES), DIPC_URI_BYTES);
  wait_for(&seen->extracted, 30);
  CHECK_EQ(kill(reader, SIGKILL), 0);
  CHECK_EQ(waitpid(reader, &status, 0), reader);
  all_released(1, 0);
}

/* The server ends with streams under way, one of whose producers hears late. */
static void a_server_ends(const char *uri, pid_t server, int control) {
  dipc_client *client = new_client();
  struct ArrowDeviceArray batch;
  struct ArrowDeviceArrayStream ever = get(client, uri, "ever"), deaf = get(client, uri, "deaf");
  CHECK_EQ(ever.get_next(&ever, &batch), 0);
  batch.array.release(&batch.array);
  close(control);
  CHECK(deaf.get_next(&deaf, &batch) != 0);
  while (ever.get_next(&ever, &batch) == 0) batch.array.release(&batch.array);
  ever.release(&ever);
  deaf.release(&deaf);
  int status = 0;
  CHECK_EQ(waitpid(server, &status, 0), server);
  CHECK_EQ(status, 0);
  all_released(2, 0);
  dipc_client_free(client);
}

static void *stop(void *server) {
  OK(dipc_server_stop(server, 60 * SECOND, &error_));
  return NULL;
}

/* In this process: a stop waits for a producer that goes on. */
static void a_stop_waits_for_the_end(void) {
  char uri[DIPC_URI_BYTES];
  const char *uris[] = {uri};
  record own = {0};
  seen = &own;
  dipc_server *server = new_server(NULL, uri);
  OK(dipc_server_set_handler_pull(server, &error_));
  dipc_client *client = new_client();
  dipc_get_options *options = NULL;
  OK(dipc_get_options_new(&options, &error_));
  OK(dipc_get_options_set_window(options, 2, 1 << 20, &error_));
  dipc_pending *pending = NULL;
  OK(dipc_client_start(client, DIPC_VERB_GET, uris, 1, TICKET("soon"), options, NULL, &pending,
                       &error_));
  dipc_get_options_free(options);
  dipc_request *from = NULL;
  OK(dipc_server_next_request(server, DIPC_FOREVER, NULL, &from, &error_));
  producer *answering = answer(from, "soon");
  wait_until_readable(pending);
  struct ArrowDeviceArrayStream stream;
  OK(dipc_pending_try_stream(pending, &stream, &error_));
  dipc_pending_free(pending);
  pthread_t thread;
  CHECK_EQ(pthread_create(&thread, NULL, stop, server), 0);
  CHECK_EQ(table_check_stream(&stream), (int64_t)BATCHES * ROWS);
  CHECK_EQ(pthread_join(thread, NULL), 0);
  CHECK_EQ(pthread_join(answering->thread, NULL), 0);
  CHECK_EQ(own.releases, 1);
  CHECK_EQ(own.cancels, 0);
  dipc_server_free(server);
  dipc_client_free(client);
  free(answering);
}

static pid_t start(void (*run)(int in, int out, const char *address), const char *address, int *to,
                   int *from) {
  int in[2], out[2];
  CHECK_EQ(pipe(in), 0);
  CHECK_EQ(pipe(out), 0);
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    close(in[1]);
    close(out[0]);
    run(in[0], out[1], address);
  }
  close(in[0]);
  close(out[1]);
  *to = in[1];
  *from = out[0];
  return pid;
}

static void run_reader(int in, int out, const char *address) {
  (void)out, (void)address;
  read_for_ever(in);
}

int main(void) {
  pid_t server[3], reader[3];
  int to[3], from[3], reader_to[3], reader_from[3];
  record *records[3];
  /* Forked before this process uses the library. The readers come first: they hold no pipe of a
   * server. */
  for (int i = 0; i < 3; i++) {
    reader[i] = start(run_reader, NULL, &reader_to[i], &reader_from[i]);
  }
  for (int i = 0; i < 3; i++) {
    char address[64];
    seen = records[i] = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                             -1, 0);
    CHECK(seen != MAP_FAILED);
    snprintf(address, sizeof address, "shm:@dipc-c-answers-%ld-%d", (long)getpid(), i);
    server[i] = start(serve, address, &to[i], &from[i]);
  }
  /* A server holds pipes of those before it, so it ends before them. */
  for (int i = 2; i >= 0; i--) {
    char uris[5][DIPC_URI_BYTES];
    size_t len = 0;
    while (len < sizeof uris) {
      ssize_t more = read(from[i], (char *)uris + len, sizeof uris - len);
      CHECK(more > 0);
      len += (size_t)more;
    }
    char *uri = uris[i];
    seen = records[i];
    if (uri[0] == '\0') {
      CHECK_EQ(kill(server[i], SIGKILL), 0);
      CHECK_EQ(waitpid(server[i], NULL, 0), server[i]);
      continue;
    }
    tables_cross(uri);
    tables_cross_on_two_connections(uris[3], uris[4]);
    a_range_ends_a_producer(uri);
    metadata_crosses(uri);
    a_producer_brings_what_the_client_has_room_for(uri);
    failures_reach_the_client(uri);
    a_client_that_leaves_is_a_cancel(uri);
    an_exchange_is_answered(uri);
    a_killed_client_is_a_cancel(uri, reader[i], reader_to[i]);
    a_server_ends(uri, server[i], to[i]);
  }
  a_stop_waits_for_the_end();
  table_wait_live(0);
  return 0;
}
