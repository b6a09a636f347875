/* Columns and rows of a get: a server in a process of its own, over shared memory and tcp. */
#include "forked.h"

#define ROWS 20000

/* Gives "own" by selecting itself, and answers every other ticket with the whole table. */
static int32_t provide(void *userdata, dipc_request *request, struct ArrowDeviceArrayStream *out) {
  (void)userdata;
  char ticket[16] = "", name[16];
  size_t len = 0;
  OK(dipc_request_ticket(request, (uint8_t *)ticket, sizeof ticket - 1, &len, &error_));
  if (strcmp(ticket, "own") == 0) {
    CHECK(dipc_request_selects_columns(request));
    CHECK_EQ(dipc_request_column_count(request), 2);
    OK(dipc_request_column(request, 1, name, sizeof name, &len, &error_));
    CHECK_STR(name, "name");
    FAILS(DIPC_ERR_NOT_FOUND, "column 2",
          dipc_request_column(request, 2, name, sizeof name, &len, &error_));
    CHECK_EQ(dipc_request_first_row(request), 5);
    CHECK_EQ(dipc_request_rows(request), 10);
    CHECK(!dipc_request_is_complete(request));
    OK(dipc_request_take_selection(request, &error_));
    /* Whatever the host says is the selection. */
    table_stream(out, 1, 7, -1, NULL);
    return 0;
  }
  table_stream(out, 1000, ROWS / 2, -1, NULL);
  return 0;
}

static void *push(void *argument) {
  const dipc_server *server = argument;
  dipc_request *request = NULL;
  /* Both transports ask once. */
  for (int i = 0; i < 2; i++) {
    struct ArrowSchema schema;
    OK(dipc_server_next_request(server, 60 * SECOND, NULL, &request, &error_));
    table_schema(&schema);
    OK(dipc_request_start(request, &schema, ARROW_DEVICE_CPU, &error_));
    schema.release(&schema);
    FAILS(DIPC_ERR_INVALID_ARGUMENT, "has begun", dipc_request_take_selection(request, &error_));
    int64_t pushed = 0;
    while (!dipc_request_is_complete(request)) {
      struct ArrowDeviceArray batch;
      table_batch(&batch, 100 * pushed++, 100, NULL);
      OK(dipc_request_push(request, &batch, NULL, 0, DIPC_FOREVER, &error_));
    }
    CHECK_EQ(pushed, 4);
    OK(dipc_request_finish(request, DIPC_FOREVER, &error_));
    dipc_request_free(request);
  }
  for (int i = 0; i < 1000 && server_stat(server, DIPC_SERVER_STAT_STREAMS_ACTIVE); i++) {
    sleep_ms(10);
  }
  return NULL;
}

static void offer(dipc_server *server) {
  static table_memory lendable;
  static pthread_t pushing;
  lendable = arena_memory();
  publish(server, "published", 2, ROWS / 2, &lendable);
  OK(dipc_server_set_handler(server, provide, NULL, NULL, 0, &error_));
  OK(dipc_server_serve_pull(server, TICKET("pushed"), &error_));
  CHECK_EQ(pthread_create(&pushing, NULL, push, server), 0);
  CHECK_EQ(pthread_detach(pushing), 0);
}

static struct ArrowDeviceArrayStream get_with(const dipc_client *client, const char *uri,
                                              const char *ticket,
                                              const dipc_get_options *options) {
  struct ArrowDeviceArrayStream stream;
  OK(dipc_client_get(client, &uri, 1, (const uint8_t *)ticket, strlen(ticket), options, NULL,
                     &stream, &error_));
  return stream;
}

/* Options that ask for these columns, if there are any, and rows. */
static dipc_get_options *select_of(const char *const *names, size_t count, uint64_t first,
                                   uint64_t rows) {
  dipc_get_options *options = NULL;
  OK(dipc_get_options_new(&options, &error_));
  if (names) OK(dipc_get_options_set_columns(options, names, count, &error_));
  OK(dipc_get_options_set_range(options, first, rows, &error_));
  return options;
}

/* The ids of a stream of one column are first, first + 1, ...; returns the rows. */
static int64_t check_ids(struct ArrowDeviceArrayStream *stream, int64_t first) {
  struct ArrowSchema schema;
  struct ArrowDeviceArray batch;
  int64_t rows = 0;
  CHECK_EQ(stream->get_schema(stream, &schema), 0);
  CHECK_EQ(schema.n_children, 1);
  CHECK_STR(schema.children[0]->name, "id");
  schema.release(&schema);
  while (stream->get_next(stream, &batch) == 0 && batch.array.release) {
    const struct ArrowArray *ids = batch.array.children[0];
    const int64_t *values = ids->buffers[1];
    for (int64_t i = 0; i < ids->length; i++) CHECK_EQ(values[ids->offset + i], first + rows + i);
    rows += batch.array.length;
    batch.array.release(&batch.array);
  }
  OK(dipc_stream_status(stream, &error_));
  return rows;
}

/* Each form gives the selected column and rows; memory of an arena is lent where it lies. */
static void a_selection_comes(const dipc_client *client, const char *uri, bool lends) {
  const char *const id[] = {"id"};
  const char *forms[] = {"published", "provided", "pushed"};
  for (int i = 0; i < 3; i++) {
    bool is_small = i == 2;
    uint64_t first = is_small ? 250 : 6000, wanted = is_small ? 100 : 8000;
    dipc_get_options *options = select_of(id, 1, first, wanted);
    struct ArrowDeviceArrayStream stream = get_with(client, uri, forms[i], options);
    CHECK_EQ(check_ids(&stream, (int64_t)first), (int64_t)wanted);
    CHECK_EQ(stream_stat(&stream, DIPC_STREAM_STAT_BYTES_COPIED), 0);
    uint64_t lent = stream_stat(&stream, DIPC_STREAM_STAT_BYTES_LENT);
    uint64_t sent = stream_stat(&stream, DIPC_STREAM_STAT_BYTES_RECEIVED);
    CHECK(lent + sent >= 8 * wanted && lent + sent <= 8 * wanted + 128);
    if (i == 0) CHECK_EQ(lends ? sent : lent, 0);
    stream.release(&stream);
    dipc_get_options_free(options);
  }
}

static void a_host_may_select_itself(const dipc_client *client, const char *uri) {
  const char *const both[] = {"id", "name"};
  dipc_get_options *options = select_of(both, 2, 5, 10);
  struct ArrowDeviceArrayStream stream = get_with(client, uri, "own", options);
  CHECK_EQ(table_check_stream(&stream), 7);
  dipc_get_options_free(options);
}

static void what_cannot_be_selected_is_said(const dipc_client *client, const char *uri) {
  const char *const absent[] = {"id", "price"}, *const twice[] = {"id", "id"};
  dipc_get_options *options = select_of(absent, 2, 0, DIPC_ALL_ROWS);
  struct ArrowDeviceArrayStream stream;
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "\"price\"; the table has \"id\", \"name\"",
        dipc_client_get(client, &uri, 1, TICKET("published"), options, NULL, &stream, &error_));
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "twice",
        dipc_get_options_set_columns(options, twice, 2, &error_));
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "only a get",
        dipc_client_list(client, &uri, 1, TICKET(""), options, NULL, &stream, &error_));
  dipc_get_options_free(options);
  options = select_of(NULL, 0, 1, 1);
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "one part",
        dipc_client_get_parts(client, &uri, 1, TICKET("published"), options, NULL, &stream,
                              &error_));
  dipc_get_options_free(options);

  /* Rows without columns. */
  options = select_of(twice, 0, 3, 4);
  stream = get_with(client, uri, "published", options);
  struct ArrowDeviceArray batch;
  CHECK_EQ(stream.get_next(&stream, &batch), 0);
  CHECK_EQ(batch.array.length, 4);
  CHECK_EQ(batch.array.n_children, 0);
  batch.array.release(&batch.array);
  stream.release(&stream);
  dipc_get_options_free(options);
}

int main(void) {
  forked_server server = fork_server(offer);
  for (int i = 0; i < 2; i++) {
    dipc_client *client = new_client();
    a_selection_comes(client, server.uris[i], i == 0);
    a_host_may_select_itself(client, server.uris[i]);
    what_cannot_be_selected_is_said(client, server.uris[i]);
    dipc_client_free(client);
  }
  end_server(&server);
  return 0;
}
