/* Middleware: a server in a process of its own, over shared memory, tcp and ucx. */
#include "forked.h"

#define BATCHES 20
#define ROWS 1000
#define NULLS(name, call) FAILS(DIPC_ERR_NULL_ARGUMENT, name " is NULL", call)

static int finalized;

static void finalize(void *userdata) {
  finalized += *(int *)userdata;
}

/* Passes each request on to what answers it without the middleware. */
static int32_t pass_on(void *userdata, dipc_request *request, struct ArrowDeviceArrayStream *out) {
  struct ArrowDeviceArrayStream table = {0};
  dipc_error *error = NULL;
  (void)userdata;
  switch (dipc_request_verb(request)) {
    case DIPC_VERB_GET:
      NULLS("out", dipc_request_forward(request, NULL, NULL, &error_));
      if (dipc_request_forward(request, NULL, out, &error) == DIPC_OK) return 0;
      OK(dipc_request_fail(request, dipc_error_code(error), dipc_error_text(error), &error_));
      dipc_error_free(error);
      return 1;
    case DIPC_VERB_PUT:
      FAILS(DIPC_ERR_INVALID_ARGUMENT, "a table goes with a put",
            dipc_request_forward(request, NULL, NULL, &error_));
      FAILS(DIPC_ERR_INVALID_ARGUMENT, "out is not NULL",
            dipc_request_forward(request, NULL, out, &error_));
      OK(dipc_request_source(request, &table, &error_));
      OK(dipc_request_forward(request, &table, NULL, &error_));
      CHECK(table.release == NULL);
      return 0;
    default:
      OK(dipc_request_source(request, &table, &error_));
      OK(dipc_request_forward(request, &table, out, &error_));
      CHECK(table.release == NULL);
      return 0;
  }
}

/* Takes tables, gives exchanged ones back, and knows one ticket. */
static int32_t host(void *userdata, dipc_request *request, struct ArrowDeviceArrayStream *out) {
  struct ArrowDeviceArrayStream table = {0};
  struct ArrowSchema schema;
  (void)userdata;
  switch (dipc_request_verb(request)) {
    case DIPC_VERB_GET:
      FAILS(DIPC_ERR_INVALID_ARGUMENT, "only a middleware",
            dipc_request_forward(request, NULL, &table, &error_));
      OK(dipc_request_fail(request, DIPC_ERR_NOT_FOUND, "not here", &error_));
      return 1;
    case DIPC_VERB_PUT:
      OK(dipc_request_source_schema(request, &schema, &error_));
      table_check_schema(&schema);
      schema.release(&schema);
      OK(dipc_request_source(request, &table, &error_));
      FAILS(DIPC_ERR_INVALID_ARGUMENT, "taken",
            dipc_request_source(request, &table, &error_));
      CHECK_EQ(table_check_stream(&table), BATCHES * ROWS);
      return 0;
    default:
      OK(dipc_request_source(request, out, &error_));
      return 0;
  }
}

static void offer(dipc_server *server) {
  static int one = 1, ten = 10;
  static table_memory arena;
  arena = arena_memory();
  publish(server, "table", BATCHES, ROWS, &arena);
  OK(dipc_server_set_handler(server, host, NULL, NULL, 0, &error_));
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "key",
        dipc_server_set_middleware(server, "No Key", pass_on, &ten, finalize, &error_));
  OK(dipc_server_set_middleware(server, "through", pass_on, &one, finalize, &error_));
  OK(dipc_server_set_middleware(server, "through", pass_on, NULL, NULL, &error_));
  for (int i = 0; i < 1000 && finalized == 0; i++) sleep_ms(10);
  CHECK_EQ(finalized, 1);
}

static void through(const dipc_client *client, const char *uri, bool lends) {
  struct ArrowDeviceArrayStream stream;
  struct ArrowSchema schema;
  struct ArrowDeviceArray batch;
  dipc_headers *headers = NULL;
  dipc_get_options *get_options = NULL;
  dipc_put_options *put_options = NULL;
  dipc_put *put = NULL;
  uint64_t batches = 0;
  OK(dipc_headers_new(&headers, &error_));
  OK(dipc_headers_add(headers, "through", (const uint8_t *)"1", 1, &error_));
  OK(dipc_get_options_new(&get_options, &error_));
  OK(dipc_get_options_set_headers(get_options, headers, &error_));
  OK(dipc_put_options_new(&put_options, &error_));
  OK(dipc_put_options_set_headers(put_options, headers, &error_));
  dipc_headers_free(headers);

  /* A published table: memory that the host has in an arena is lent through the middleware too. */
  OK(dipc_client_get(client, &uri, 1, TICKET("table"), get_options, NULL, &stream, &error_));
  CHECK_EQ(stream.get_next(&stream, &batch), 0);
  CHECK_EQ(stream_stat(&stream, DIPC_STREAM_STAT_BYTES_LENT) > 0, lends);
  table_check(&batch.array, 0, ROWS);
  batch.array.release(&batch.array);
  stream.release(&stream);
  FAILS(DIPC_ERR_NOT_FOUND, "not here",
        dipc_client_get(client, &uri, 1, TICKET("absent"), get_options, NULL, &stream, &error_));

  table_stream(&stream, BATCHES, ROWS, -1, NULL);
  OK(dipc_client_put(client, &uri, 1, TICKET("any"), put_options, NULL, &stream, &put, &error_));
  OK(dipc_put_finish(put, DIPC_FOREVER, &batches, &error_));
  CHECK_EQ(batches, BATCHES);
  dipc_put_free(put);

  table_schema(&schema);
  OK(dipc_client_exchange(client, &uri, 1, TICKET("any"), put_options, get_options, NULL, &schema,
                          ARROW_DEVICE_CPU, &put, &stream, &error_));
  schema.release(&schema);
  table_batch(&batch, 0, ROWS, NULL);
  OK(dipc_put_push(put, &batch, NULL, 0, DIPC_FOREVER, &error_));
  CHECK_EQ(stream.get_next(&stream, &batch), 0);
  table_check(&batch.array, 0, ROWS);
  batch.array.release(&batch.array);
  OK(dipc_put_finish(put, DIPC_FOREVER, NULL, &error_));
  CHECK_EQ(stream.get_next(&stream, &batch), 0);
  CHECK(batch.array.release == NULL);
  stream.release(&stream);
  dipc_put_free(put);
  dipc_get_options_free(get_options);
  dipc_put_options_free(put_options);
  table_wait_live(0);
}

int main(void) {
  forked_server server = fork_server(offer);
  dipc_client *client = new_client();
  for (int i = 0; i < 3; i++) {
    const char *uri = uri_of(&server, i);
    if (uri != NULL) through(client, uri, i == 0);
  }
  dipc_client_free(client);
  end_server(&server);
  return 0;
}
