/* Streams for Arrow's asynchronous handlers, and requests for event loops: a server in a process of
 * its own, over shared memory and tcp. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/wait.h>

#include "util.h"

#define STREAMS 40
#define BATCHES 50
#define ROWS 100

/* The layout of arrow/c/abi.h, which Arrow C++ and Arrow Go ship. */
_Static_assert(sizeof(struct ArrowAsyncTask) == 16, "a function and a pointer");
_Static_assert(offsetof(struct ArrowAsyncTask, private_data) == 8, "");
_Static_assert(sizeof(struct ArrowAsyncProducer) == 40, "without the member of the page");
_Static_assert(offsetof(struct ArrowAsyncProducer, request) == 8, "");
_Static_assert(offsetof(struct ArrowAsyncProducer, cancel) == 16, "");
_Static_assert(offsetof(struct ArrowAsyncProducer, additional_metadata) == 24, "");
_Static_assert(offsetof(struct ArrowAsyncProducer, private_data) == 32, "");
_Static_assert(sizeof(struct ArrowAsyncDeviceStreamHandler) == 48, "six pointers");
_Static_assert(offsetof(struct ArrowAsyncDeviceStreamHandler, on_next_task) == 8, "");
_Static_assert(offsetof(struct ArrowAsyncDeviceStreamHandler, on_error) == 16, "");
_Static_assert(offsetof(struct ArrowAsyncDeviceStreamHandler, release) == 24, "");
_Static_assert(offsetof(struct ArrowAsyncDeviceStreamHandler, producer) == 32, "");

/* --- the server --------------------------------------------------------- */

static int32_t produce(void *userdata, dipc_request *request, struct ArrowDeviceArrayStream *out) {
  (void)userdata;
  char ticket[16] = "";
  size_t len = 0;
  dipc_headers *answer = NULL;
  OK(dipc_request_ticket(request, (uint8_t *)ticket, sizeof ticket - 1, &len, &error_));
  if (strcmp(ticket, "none") == 0) {
    OK(dipc_request_fail(request, DIPC_ERR_NOT_FOUND, "never heard of it", &error_));
    return 1;
  }
  OK(dipc_headers_new(&answer, &error_));
  OK(dipc_headers_add(answer, "who", (const uint8_t *)"me", 2, &error_));
  /* The client may have gone already. */
  int32_t added = dipc_request_add_headers(request, answer, NULL);
  dipc_headers_free(answer);
  if (added != DIPC_OK) return 1;
  if (strcmp(ticket, "late") == 0) sleep_ms(100);
  if (strcmp(ticket, "never") == 0) {
    while (!dipc_request_is_cancelled(request)) sleep_ms(1);
    return 1;
  }
  int64_t batches = strcmp(ticket, "ever") == 0 ? 1 << 30 : strcmp(ticket, "empty") ? BATCHES : 0;
  table_stream(out, batches, ROWS, strcmp(ticket, "fails") ? -1 : 5, NULL);
  return 0;
}

static void serve(int control, int out, const char *address) {
  dipc_server *server = NULL;
  char uris[2][DIPC_URI_BYTES] = {"", ""}, end;
  size_t len = 0;
  OK(dipc_server_new(NULL, &server, &error_));
  OK(dipc_server_listen(server, address, uris[0], DIPC_URI_BYTES, &len, &error_));
  OK(dipc_server_listen(server, "tcp://127.0.0.1:0", uris[1], DIPC_URI_BYTES, &len, &error_));
  OK(dipc_server_set_handler(server, produce, NULL, NULL, 0, &error_));
  CHECK_EQ(write(out, uris, sizeof uris), (ssize_t)sizeof uris);
  CHECK_EQ(read(control, &end, 1), 0);
  dipc_server_free(server);
  _exit(0);
}

/* --- the consumer ------------------------------------------------------- */

typedef struct {
  struct ArrowAsyncDeviceStreamHandler handler;
  /* What it does: asks for so many in on_schema, and for so many with each batch. */
  int64_t first, more;
  /* Cancels, or returns an errno, with the batch of this number, from 1. */
  int cancel_at, refuse_at;
  bool refuses_schema;
  /* Keeps the first task for later; discards the others. */
  bool keeps;
  dipc_client *frees;
  struct ArrowAsyncTask task;
  /* What it has seen. */
  atomic_bool inside;
  atomic_int schemas, batches, ends, errors, releases;
  int64_t rows;
  int code;
  char text[256], status[16];
  bool has_metadata;
  pthread_t thread;
} consumer;

static void enter(consumer *seen) {
  CHECK(!atomic_exchange(&seen->inside, true));
  CHECK_EQ(seen->releases, 0);
  CHECK_EQ(seen->ends, 0);
  CHECK_EQ(seen->errors, 0);
  if (seen->schemas > 0) CHECK(pthread_equal(seen->thread, pthread_self()));
  seen->thread = pthread_self();
}

static int leave(consumer *seen, int result) {
  atomic_store(&seen->inside, false);
  return result;
}

/* Whether encoded metadata begins with so many pairs, and has this one first. */
static bool begins(const char *metadata, int32_t pairs, const char *key, const char *value) {
  int32_t count, key_len, value_len;
  if (metadata == NULL) return false;
  memcpy(&count, metadata, 4);
  memcpy(&key_len, metadata + 4, 4);
  memcpy(&value_len, metadata + 8 + key_len, 4);
  return count == pairs && key_len == (int32_t)strlen(key) &&
         memcmp(metadata + 8, key, strlen(key)) == 0 && value_len == (int32_t)strlen(value) &&
         memcmp(metadata + 12 + key_len, value, strlen(value)) == 0;
}

static int on_schema(struct ArrowAsyncDeviceStreamHandler *self, struct ArrowSchema *schema) {
  consumer *seen = self->private_data;
  enter(seen);
  CHECK_EQ(seen->schemas++, 0);
  CHECK_EQ(seen->batches, 0);
  CHECK_EQ(self->producer->device_type, ARROW_DEVICE_CPU);
  seen->has_metadata = begins(self->producer->additional_metadata, 1, "who", "me");
  table_check_schema(schema);
  schema->release(schema);
  if (seen->first != 0) self->producer->request(self->producer, seen->first);
  return leave(seen, seen->refuses_schema ? EIO : 0);
}

static int on_next_task(struct ArrowAsyncDeviceStreamHandler *self, struct ArrowAsyncTask *task,
                        const char *metadata) {
  consumer *seen = self->private_data;
  struct ArrowDeviceArray batch;
  enter(seen);
  CHECK_EQ(seen->schemas, 1);
  if (task == NULL) {
    seen->ends++;
    return leave(seen, 0);
  }
  seen->has_metadata |= begins(metadata, 1, "note", "of the batch");
  if (seen->keeps) {
    if (seen->batches == 0) {
      seen->task = *task;
    } else {
      CHECK_EQ(task->extract_data(task, NULL), 0);
      CHECK_EQ(task->extract_data(task, &batch), EINVAL);
    }
  } else {
    CHECK_EQ(task->extract_data(task, &batch), 0);
    CHECK_EQ(batch.device_type, ARROW_DEVICE_CPU);
    table_check(&batch.array, seen->rows, ROWS);
    batch.array.release(&batch.array);
  }
  seen->rows += ROWS;
  const int at = ++seen->batches;
  if (at == 2 && seen->frees != NULL) dipc_client_free(seen->frees);
  if (seen->more != 0) self->producer->request(self->producer, seen->more);
  if (at == seen->cancel_at) {
    self->producer->cancel(self->producer);
    self->producer->cancel(self->producer);
    self->producer->request(self->producer, 10);
  }
  return leave(seen, at == seen->refuse_at ? ENOMEM : 0);
}

static void on_error(struct ArrowAsyncDeviceStreamHandler *self, int code, const char *message,
                     const char *metadata) {
  consumer *seen = self->private_data;
  enter(seen);
  seen->code = code;
  snprintf(seen->text, sizeof seen->text, "%s", message);
  snprintf(seen->status, sizeof seen->status, "%d", (int)DIPC_ERR_DISCONNECTED);
  for (int32_t status = -1; status > -30; status--) {
    char number[16];
    snprintf(number, sizeof number, "%d", (int)status);
    if (begins(metadata, seen->schemas ? 2 : 1, "dipc_status", number)) {
      memcpy(seen->status, number, sizeof number);
      CHECK_EQ(dipc_status_errno(status), code);
    }
  }
  seen->errors++;
  leave(seen, 0);
}

static void release(struct ArrowAsyncDeviceStreamHandler *self) {
  consumer *seen = self->private_data;
  CHECK(!atomic_load(&seen->inside));
  self->release = NULL;
  seen->releases++;
}

static consumer *new_consumer(int64_t first, int64_t more) {
  consumer *fresh = calloc(1, sizeof *fresh);
  fresh->handler = (struct ArrowAsyncDeviceStreamHandler){
      on_schema, on_next_task, on_error, release, NULL, fresh};
  fresh->first = first;
  fresh->more = more;
  return fresh;
}

static void start(const dipc_client *client, const char *uri, const char *ticket, consumer *to) {
  OK(dipc_client_get_async(client, &uri, 1, (const uint8_t *)ticket, strlen(ticket), NULL,
                           &to->handler, &error_));
  CHECK(to->handler.producer != NULL);
}

static void wait_for(atomic_int *count, int value) {
  for (int i = 0; i < 30000; i++) {
    if (atomic_load(count) >= value) return;
    sleep_ms(1);
  }
  FAIL("%d, not %d", atomic_load(count), value);
}

/* Waits for the release, and checks how the stream ended. */
static void ended(consumer *seen, int batches, int ends, int errors) {
  wait_for(&seen->releases, 1);
  /* As Arrow Go may do, too late. */
  seen->handler.producer->cancel(seen->handler.producer);
  seen->handler.producer->request(seen->handler.producer, 1);
  if (batches >= 0) CHECK_EQ(seen->batches, batches);
  if (seen->errors != errors) FAIL("%d errors: %s", seen->errors, seen->text);
  CHECK_EQ(seen->ends, ends);
}

static void finish(consumer *seen, int batches, int ends, int errors) {
  ended(seen, batches, ends, errors);
  free(seen);
}

/* --- the tests ---------------------------------------------------------- */

static void many_streams_at_once(const char *uri) {
  dipc_client *client = new_client();
  consumer *all[STREAMS];
  for (int i = 0; i < STREAMS; i++) {
    all[i] = new_consumer(i % 3 ? 1 : BATCHES, i % 3 ? i % 3 : 0);
    start(client, uri, i % 2 ? "late" : "soon", all[i]);
  }
  for (int i = 0; i < STREAMS; i++) {
    ended(all[i], BATCHES, 1, 0);
    CHECK(all[i]->has_metadata);
    CHECK(pthread_equal(all[i]->thread, all[0]->thread));
  }
  for (int i = 0; i < STREAMS; i++) free(all[i]);
  /* Connections are used again. */
  uint64_t idle = 0;
  OK(dipc_client_stat(client, DIPC_CLIENT_STAT_CONNECTIONS_IDLE, &idle, &error_));
  CHECK(idle > 0);
  dipc_client_free(client);
}

static void a_consumer_gets_what_it_asks_for(const char *uri) {
  dipc_client *client = new_client();
  consumer *seen = new_consumer(0, 0);
  start(client, uri, "ever", seen);
  wait_for(&seen->schemas, 1);
  sleep_ms(30);
  CHECK_EQ(seen->batches, 0);
  seen->handler.producer->request(seen->handler.producer, 2);
  seen->handler.producer->request(seen->handler.producer, 1);
  wait_for(&seen->batches, 3);
  sleep_ms(30);
  CHECK_EQ(seen->batches, 3);
  /* Another stream is not delayed. */
  consumer *other = new_consumer(INT64_MAX, INT64_MAX);
  start(client, uri, "soon", other);
  finish(other, BATCHES, 1, 0);
  CHECK_EQ(seen->batches, 3);
  seen->handler.producer->cancel(seen->handler.producer);
  finish(seen, 3, 0, 0);
  /* The end needs no request. */
  seen = new_consumer(0, 0);
  start(client, uri, "empty", seen);
  finish(seen, 0, 1, 0);
  seen = new_consumer(BATCHES, 0);
  start(client, uri, "soon", seen);
  finish(seen, BATCHES, 1, 0);
  dipc_client_free(client);
}

static void wrong_requests_are_errors(const char *uri) {
  dipc_client *client = new_client();
  const int64_t wrong[] = {0, -1, INT64_MIN};
  for (int i = 0; i < 3; i++) {
    consumer *seen = new_consumer(0, 0);
    start(client, uri, "ever", seen);
    wait_for(&seen->schemas, 1);
    seen->handler.producer->request(seen->handler.producer, wrong[i]);
    ended(seen, 0, 0, 1);
    CHECK_EQ(seen->code, EINVAL);
    CHECK(strstr(seen->text, "fewer than one") != NULL);
    free(seen);
  }
  /* From inside, where on_error must wait for the end of the callback. */
  consumer *seen = new_consumer(1, -5);
  start(client, uri, "ever", seen);
  finish(seen, 1, 0, 1);
  dipc_client_free(client);
}

static void a_cancel_is_no_error(const char *uri) {
  dipc_client *client = new_client();
  consumer *seen = new_consumer(1, 1);
  seen->cancel_at = 3;
  start(client, uri, "ever", seen);
  finish(seen, 3, 0, 0);
  /* From outside, while batches come. */
  seen = new_consumer(INT64_MAX, 0);
  start(client, uri, "ever", seen);
  wait_for(&seen->batches, 5);
  seen->handler.producer->cancel(seen->handler.producer);
  finish(seen, -1, 0, 0);
  /* Before the server has answered, and before a thread has asked. */
  consumer *all[STREAMS];
  for (int i = 0; i < STREAMS; i++) {
    all[i] = new_consumer(1, 1);
    start(client, uri, "late", all[i]);
  }
  for (int i = 0; i < STREAMS; i++) all[i]->handler.producer->cancel(all[i]->handler.producer);
  for (int i = 0; i < STREAMS; i++) finish(all[i], -1, 0, 0);
  /* A consumer that fails has cancelled. */
  seen = new_consumer(1, 1);
  seen->refuse_at = 4;
  start(client, uri, "ever", seen);
  finish(seen, 4, 0, 0);
  seen = new_consumer(1, 1);
  seen->refuses_schema = true;
  start(client, uri, "ever", seen);
  finish(seen, 0, 0, 0);
  dipc_client_free(client);
}

static void failures_reach_the_consumer(const char *uri) {
  dipc_client *client = new_client();
  consumer *seen = new_consumer(1, 1);
  start(client, uri, "none", seen);
  ended(seen, 0, 0, 1);
  CHECK_EQ(seen->schemas, 0);
  CHECK_EQ(seen->code, ENOENT);
  CHECK_EQ(atoi(seen->status), DIPC_ERR_NOT_FOUND);
  free(seen);
  seen = new_consumer(1, 1);
  start(client, "shm:@dipc-c-nobody", "soon", seen);
  ended(seen, 0, 0, 1);
  CHECK_EQ(seen->code, ECONNREFUSED);
  CHECK_EQ(atoi(seen->status), DIPC_ERR_UNREACHABLE);
  free(seen);
  seen = new_consumer(1, 1);
  start(client, uri, "fails", seen);
  ended(seen, 5, 0, 1);
  CHECK_EQ(atoi(seen->status), DIPC_ERR_PROVIDER);
  CHECK(strstr(seen->text, "broken pipe dream") != NULL);
  free(seen);
  /* What the call itself refuses does not reach the handler. */
  seen = new_consumer(1, 1);
  const char *wrong = "nonsense";
  FAILS(DIPC_ERR_INVALID_URI, "nonsense",
        dipc_client_get_async(client, &wrong, 1, TICKET("t"), NULL, &seen->handler, &error_));
  seen->handler.on_error = NULL;
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "on_error",
        dipc_client_get_async(client, &uri, 1, TICKET("t"), NULL, &seen->handler, &error_));
  sleep_ms(5);
  CHECK_EQ(seen->releases + seen->errors, 0);
  free(seen);
  dipc_client_free(client);
}

static void tasks_and_streams_outlive_their_client(const char *uri) {
  dipc_client *client = new_client();
  consumer *kept = new_consumer(1, 1), *inside = new_consumer(0, 1);
  kept->keeps = true;
  start(client, uri, "soon", kept);
  ended(kept, BATCHES, 1, 0);
  consumer *late = new_consumer(1, 1);
  start(client, uri, "late", late);
  inside->frees = client;
  start(client, uri, "soon", inside);
  inside->handler.producer->request(inside->handler.producer, 1);
  finish(inside, BATCHES, 1, 0);
  finish(late, BATCHES, 1, 0);
  struct ArrowDeviceArray batch;
  struct ArrowAsyncTask task = kept->task;
  struct ArrowAsyncProducer *producer = kept->handler.producer;
  free(kept);
  /* As Arrow C++ does: until its tasks are extracted, the producer is there. */
  producer->request(producer, 1);
  producer->cancel(producer);
  CHECK_EQ(task.extract_data(&task, &batch), 0);
  table_check(&batch.array, 0, ROWS);
  batch.array.release(&batch.array);
  /* Freed while streams run, wait for the server, and wait for a thread. */
  client = new_client();
  consumer *all[STREAMS];
  for (int i = 0; i < STREAMS; i++) {
    all[i] = new_consumer(1, 1);
    start(client, uri, i % 2 ? "late" : "soon", all[i]);
  }
  dipc_client_free(client);
  for (int i = 0; i < STREAMS; i++) finish(all[i], BATCHES, 1, 0);
}

static dipc_pending *pend_with(const dipc_client *client, int32_t verb, const char *uri,
                               const char *descriptor, const dipc_cancel *cancel) {
  dipc_pending *pending = NULL;
  OK(dipc_client_start(client, verb, &uri, 1, (const uint8_t *)descriptor, strlen(descriptor), NULL,
                       cancel, &pending, &error_));
  return pending;
}

static dipc_pending *pend(const dipc_client *client, int32_t verb, const char *uri,
                          const char *descriptor) {
  return pend_with(client, verb, uri, descriptor, NULL);
}

static void requests_are_polled(const char *uri) {
  dipc_client *client = new_client();
  dipc_pending *all[STREAMS];
  struct ArrowDeviceArrayStream stream, left;
  struct ArrowDeviceArray batch;
  dipc_description *description = NULL;
  int32_t status;
  for (int i = 0; i < STREAMS; i++) {
    all[i] = pend(client, DIPC_VERB_GET, uri, i % 2 ? "late" : "soon");
  }
  STATUS(DIPC_NOTHING, dipc_pending_try_stream(all[STREAMS - 1], &stream, &error_));
  for (int i = 0; i < STREAMS; i++) {
    wait_until_readable(all[i]);
    FAILS(DIPC_ERR_INVALID_ARGUMENT, "another verb",
          dipc_pending_try_description(all[i], &description, &error_));
    OK(dipc_pending_try_stream(all[i], &stream, &error_));
    FAILS(DIPC_ERR_INVALID_ARGUMENT, "taken before",
          dipc_pending_try_stream(all[i], &stream, &error_));
    wait_until_readable(all[i]);
    dipc_pending_free(all[i]);
    CHECK_EQ(table_check_stream(&stream), BATCHES * ROWS);
  }
  /* Rule S10: they share a connection. */
  uint64_t made = 0;
  OK(dipc_client_stat(client, DIPC_CLIENT_STAT_CONNECTIONS_MADE, &made, &error_));
  CHECK_EQ(made, 1);
  /* A failure is said at each call. */
  all[0] = pend(client, DIPC_VERB_GET, uri, "none");
  wait_until_readable(all[0]);
  for (int i = 0; i < 2; i++) {
    FAILS(DIPC_ERR_NOT_FOUND, "never heard of it",
          dipc_pending_try_stream(all[0], &stream, &error_));
  }
  dipc_pending_free(all[0]);
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "verb is 2",
        dipc_client_start(client, DIPC_VERB_PUT, &uri, 1, TICKET("t"), NULL, NULL, &all[0],
                          &error_));
  /* A token ends requests, and the streams that they have given; so does one that is triggered. */
  dipc_cancel *cancel = NULL;
  OK(dipc_cancel_new(&cancel, &error_));
  all[0] = pend_with(client, DIPC_VERB_GET, uri, "soon", cancel);
  wait_until_readable(all[0]);
  OK(dipc_pending_try_stream(all[0], &stream, &error_));
  dipc_pending_free(all[0]);
  for (int i = 0; i < 2; i++) all[i] = pend_with(client, DIPC_VERB_GET, uri, "never", cancel);
  STATUS(DIPC_NOTHING, dipc_pending_try_stream(all[0], &left, &error_));
  OK(dipc_cancel_trigger(cancel, &error_));
  all[2] = pend_with(client, DIPC_VERB_GET, uri, "soon", cancel);
  dipc_cancel_free(cancel);
  for (int i = 0; i < 3; i++) {
    wait_until_readable(all[i]);
    FAILS(DIPC_ERR_CANCELLED, "cancelled", dipc_pending_try_stream(all[i], &left, &error_));
    dipc_pending_free(all[i]);
  }
  CHECK(stream.get_next(&stream, &batch) != 0);
  STATUS(DIPC_ERR_CANCELLED, dipc_stream_status(&stream, &error_));
  stream.release(&stream);
  /* Freed before the answer, with one in hand, and after the client. */
  for (int i = 0; i < STREAMS; i++) all[i] = pend(client, DIPC_VERB_GET, uri, "late");
  for (int i = 1; i < STREAMS; i++) dipc_pending_free(all[i]);
  wait_until_readable(all[0]);
  dipc_pending_free(all[0]);
  all[0] = pend(client, DIPC_VERB_GET, uri, "late");
  dipc_client_free(client);
  wait_until_readable(all[0]);
  status = dipc_pending_try_stream(all[0], &stream, NULL);
  CHECK_EQ(status, DIPC_OK);
  dipc_pending_free(all[0]);
  CHECK_EQ(table_check_stream(&stream), BATCHES * ROWS);
}

/* The server is this process, and knows its tickets. */
static void lists_and_descriptions_are_polled(void) {
  char uri[DIPC_URI_BYTES];
  dipc_server *server = new_server(NULL, uri);
  dipc_client *client = new_client();
  struct ArrowDeviceArrayStream stream;
  struct ArrowDeviceArray batch;
  dipc_description *description = NULL;
  publish(server, "t", 3, ROWS, NULL);
  dipc_pending *list = pend(client, DIPC_VERB_LIST, uri, "");
  dipc_pending *describe = pend(client, DIPC_VERB_DESCRIBE, uri, "t");
  wait_until_readable(list);
  OK(dipc_pending_try_stream(list, &stream, &error_));
  CHECK_EQ(stream.get_next(&stream, &batch), 0);
  CHECK_EQ(batch.array.length, 1);
  batch.array.release(&batch.array);
  stream.release(&stream);
  wait_until_readable(describe);
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "another verb",
        dipc_pending_try_stream(describe, &stream, &error_));
  OK(dipc_pending_try_description(describe, &description, &error_));
  CHECK_EQ(dipc_description_total(description, DIPC_TOTAL_ROWS), 3 * ROWS);
  dipc_description_free(description);
  dipc_pending_free(list);
  dipc_pending_free(describe);
  dipc_client_free(client);
  dipc_server_free(server);
}

/* The server is this process: its host pushes batches with metadata. */
static void batches_have_their_metadata(void) {
  char uri[DIPC_URI_BYTES];
  dipc_server *server = new_server(NULL, uri);
  dipc_client *client = new_client();
  dipc_request *request = NULL;
  struct ArrowSchema schema;
  struct ArrowDeviceArray batch;
  uint8_t metadata[] = "\1\0\0\0\4\0\0\0note\14\0\0\0of the batch";
  OK(dipc_server_serve_pull(server, TICKET("t"), &error_));
  consumer *seen = new_consumer(1, 1);
  start(client, uri, "t", seen);
  OK(dipc_server_next_request(server, 30 * SECOND, NULL, &request, &error_));
  table_schema(&schema);
  OK(dipc_request_start(request, &schema, ARROW_DEVICE_CPU, &error_));
  schema.release(&schema);
  table_batch(&batch, 0, ROWS, NULL);
  OK(dipc_request_push(request, &batch, metadata, sizeof metadata - 1, 30 * SECOND, &error_));
  OK(dipc_request_finish(request, 30 * SECOND, &error_));
  dipc_request_free(request);
  ended(seen, 1, 1, 0);
  CHECK(seen->has_metadata);
  free(seen);
  dipc_client_free(client);
  dipc_server_free(server);
}

static void a_killed_server_is_an_error(const char *uri, pid_t server) {
  dipc_client *client = new_client();
  consumer *idle = new_consumer(0, 0), *busy = new_consumer(1, 1);
  int status = 0;
  start(client, uri, "ever", idle);
  start(client, uri, "ever", busy);
  wait_for(&idle->schemas, 1);
  wait_for(&busy->batches, 5);
  CHECK_EQ(kill(server, SIGKILL), 0);
  CHECK_EQ(waitpid(server, &status, 0), server);
  ended(busy, -1, 0, 1);
  CHECK_EQ(busy->code, ECONNRESET);
  CHECK_EQ(atoi(busy->status), DIPC_ERR_DISCONNECTED);
  free(busy);
  /* What has come is there for a consumer that was late. */
  idle->handler.producer->request(idle->handler.producer, INT64_MAX);
  finish(idle, -1, 0, 1);
  dipc_client_free(client);
}

int main(void) {
  pid_t servers[2];
  char uris[2][2][DIPC_URI_BYTES];
  int control[2];
  CHECK_EQ(pipe(control), 0);
  /* Forked before this process uses the library. */
  for (int i = 0; i < 2; i++) {
    char address[64];
    int out[2];
    snprintf(address, sizeof address, "shm:@dipc-c-async-%ld-%d", (long)getpid(), i);
    CHECK_EQ(pipe(out), 0);
    servers[i] = fork();
    CHECK(servers[i] >= 0);
    if (servers[i] == 0) {
      close(control[1]);
      close(out[0]);
      serve(control[0], out[1], address);
    }
    close(out[1]);
    size_t len = 0;
    while (len < sizeof uris[i]) {
      ssize_t more = read(out[0], (char *)uris[i] + len, sizeof uris[i] - len);
      CHECK(more > 0);
      len += (size_t)more;
    }
    close(out[0]);
  }
  for (int i = 0; i < 2; i++) {
    const char *uri = uris[i][i];
    many_streams_at_once(uri);
    a_consumer_gets_what_it_asks_for(uri);
    wrong_requests_are_errors(uri);
    a_cancel_is_no_error(uri);
    failures_reach_the_consumer(uri);
    tasks_and_streams_outlive_their_client(uri);
    requests_are_polled(uri);
    a_killed_server_is_an_error(uri, servers[i]);
  }
  lists_and_descriptions_are_polled();
  batches_have_their_metadata();
  table_wait_live(0);
  return 0;
}
