/* Tables in both directions on one connection: a server in a process of its own, over shared memory,
 * tcp and ucx. */
#include <pthread.h>

#include "forked.h"

#define BATCHES 60
#define ROWS 1000

/* Gives the client's batches back as they come. */
typedef struct {
  struct ArrowDeviceArrayStream source;
} echo;

static int echo_schema(struct ArrowDeviceArrayStream *stream, struct ArrowSchema *out) {
  (void)stream;
  table_schema(out);
  return 0;
}

static int echo_next(struct ArrowDeviceArrayStream *stream, struct ArrowDeviceArray *out) {
  struct ArrowDeviceArrayStream *source = &((echo *)stream->private_data)->source;
  return source->get_next(source, out);
}

static const char *echo_error(struct ArrowDeviceArrayStream *stream) {
  struct ArrowDeviceArrayStream *source = &((echo *)stream->private_data)->source;
  return source->get_last_error(source);
}

static void echo_release(struct ArrowDeviceArrayStream *stream) {
  echo *own = stream->private_data;
  own->source.release(&own->source);
  free(own);
  stream->release = NULL;
}

static int32_t answer(void *userdata, dipc_request *request, struct ArrowDeviceArrayStream *out) {
  (void)userdata;
  if (dipc_request_verb(request) != DIPC_VERB_EXCHANGE) return 1;
  echo *own = calloc(1, sizeof *own);
  OK(dipc_request_source(request, &own->source, &error_));
  *out = (struct ArrowDeviceArrayStream){.device_type = ARROW_DEVICE_CPU,
                                         .get_schema = echo_schema,
                                         .get_next = echo_next,
                                         .get_last_error = echo_error,
                                         .release = echo_release,
                                         .private_data = own};
  return 0;
}

static void offer(dipc_server *server) {
  OK(dipc_server_set_handler(server, answer, NULL, NULL, 0, &error_));
}

static dipc_put *begin(const dipc_client *client, const char *uri,
                       struct ArrowDeviceArrayStream *answers) {
  dipc_put *put = NULL;
  struct ArrowSchema schema;
  table_schema(&schema);
  OK(dipc_client_exchange(client, &uri, 1, TICKET("echo"), NULL, NULL, NULL, &schema,
                          ARROW_DEVICE_CPU, &put, answers, &error_));
  schema.release(&schema);
  return put;
}

static void push(dipc_put *put, int64_t number, const table_memory *memory) {
  struct ArrowDeviceArray batch;
  table_batch(&batch, number * ROWS, ROWS, memory);
  OK(dipc_put_push(put, &batch, NULL, 0, DIPC_FOREVER, &error_));
}

/* One thread sends and reads in turn; the memory is an arena's. */
static void in_turn(const dipc_client *client, const char *uri) {
  struct ArrowDeviceArrayStream answers;
  struct ArrowDeviceArray batch;
  struct ArrowSchema schema;
  uint64_t batches = 0;
  table_memory arena = arena_memory();
  dipc_put *put = begin(client, uri, &answers);
  for (int64_t i = 0; i < BATCHES; i++) {
    push(put, i, &arena);
    if (i == 0) {
      CHECK_EQ(answers.get_schema(&answers, &schema), 0);
      table_check_schema(&schema);
      schema.release(&schema);
    }
    CHECK_EQ(answers.get_next(&answers, &batch), 0);
    table_check(&batch.array, i * ROWS, ROWS);
    batch.array.release(&batch.array);
  }
  OK(dipc_put_finish(put, DIPC_FOREVER, &batches, &error_));
  CHECK_EQ(batches, BATCHES);
  CHECK_EQ(answers.get_next(&answers, &batch), 0);
  CHECK(batch.array.release == NULL);
  answers.release(&answers);
  dipc_put_free(put);
  table_wait_live(0);
  dipc_arena_free(arena.context);
}

static void *read_answers(void *answers) {
  CHECK_EQ(table_check_stream(answers), BATCHES * ROWS);
  return NULL;
}

/* Two threads, one for each direction. */
static void at_once(const dipc_client *client, const char *uri) {
  struct ArrowDeviceArrayStream answers;
  pthread_t reader;
  dipc_put *put = begin(client, uri, &answers);
  CHECK_EQ(pthread_create(&reader, NULL, read_answers, &answers), 0);
  for (int64_t i = 0; i < BATCHES; i++) push(put, i, NULL);
  OK(dipc_put_finish(put, DIPC_FOREVER, NULL, &error_));
  CHECK_EQ(pthread_join(reader, NULL), 0);
  dipc_put_free(put);
  table_wait_live(0);
}

/* Several exchanges of an event loop, on one thread: nothing waits but poll(). */
static void from_an_event_loop(const dipc_client *client, const char *uri) {
  enum { EXCHANGES = 3 };
  dipc_pending *pending[EXCHANGES];
  struct ArrowDeviceArrayStream answers[EXCHANGES];
  struct ArrowDeviceArray batch;
  struct ArrowSchema schema;
  dipc_put *puts[EXCHANGES];
  for (int i = 0; i < EXCHANGES; i++) {
    table_schema(&schema);
    OK(dipc_client_start_exchange(client, &uri, 1, TICKET("echo"), NULL, NULL, NULL, &schema,
                                  ARROW_DEVICE_CPU, &pending[i], &error_));
    schema.release(&schema);
  }
  for (int i = 0; i < EXCHANGES; i++) {
    wait_until_readable(pending[i]);
    FAILS(DIPC_ERR_INVALID_ARGUMENT, "another verb",
          dipc_pending_try_put(pending[i], &puts[i], &error_));
    OK(dipc_pending_try_exchange(pending[i], &puts[i], &answers[i], &error_));
    FAILS(DIPC_ERR_INVALID_ARGUMENT, "taken before",
          dipc_pending_try_exchange(pending[i], &puts[i], &answers[i], &error_));
    dipc_pending_free(pending[i]);
    push(puts[i], 0, NULL);
  }
  for (int i = 0; i < EXCHANGES; i++) {
    struct pollfd polled = {-1, POLLIN, 0};
    OK(dipc_stream_fd(&answers[i], &polled.fd, &error_));
    int32_t status;
    while ((status = dipc_stream_try_next(&answers[i], &batch, NULL)) == DIPC_NOTHING) {
      CHECK_EQ(poll(&polled, 1, 30000), 1);
    }
    CHECK_EQ(status, DIPC_OK);
    table_check(&batch.array, 0, ROWS);
    batch.array.release(&batch.array);
    OK(dipc_put_finish(puts[i], DIPC_FOREVER, NULL, &error_));
    answers[i].release(&answers[i]);
    dipc_put_free(puts[i]);
  }
  table_wait_live(0);
}

/* A client that leaves either table: the other one fails, and nothing leaks. */
static void one_is_left(const dipc_client *client, const char *uri) {
  struct ArrowDeviceArrayStream answers;
  struct ArrowDeviceArray batch;
  dipc_put *put = begin(client, uri, &answers);
  push(put, 0, NULL);
  dipc_put_free(put);
  int code = 0;
  do {
    code = answers.get_next(&answers, &batch);
    if (code == 0) {
      CHECK(batch.array.release != NULL);
      batch.array.release(&batch.array);
    }
  } while (code == 0);
  answers.release(&answers);
  put = begin(client, uri, &answers);
  push(put, 0, NULL);
  answers.release(&answers);
  dipc_error *error = NULL;
  CHECK(dipc_put_finish(put, DIPC_FOREVER, NULL, &error) != DIPC_OK);
  dipc_error_free(error);
  dipc_put_free(put);
  table_wait_live(0);
}

int main(void) {
  forked_server server = fork_server(offer);
  dipc_client *client = new_client();
  for (int i = 0; i < 3; i++) {
    const char *uri = uri_of(&server, i);
    if (uri == NULL) continue;
    in_turn(client, uri);
    at_once(client, uri);
    from_an_event_loop(client, uri);
    one_is_left(client, uri);
    in_turn(client, uri);
  }
  dipc_client_free(client);
  end_server(&server);
  return 0;
}
