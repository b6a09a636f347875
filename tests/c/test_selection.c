/* Columns, rows and filters of a get: a server in a process of its own, over shared memory and tcp. */
#include "forked.h"

#define ROWS 20000

/* id > 3; of pyarrow, for a schema of id: int64:
 * bytes((pyarrow.compute.field("id") > 3).to_substrait(schema)). */
static const uint8_t above_three[] = {
    0x0a, 0x5a, 0x12, 0x58, 0x68, 0x74, 0x74, 0x70, 0x73, 0x3a, 0x2f, 0x2f, 0x67, 0x69, 0x74, 0x68,
    0x75, 0x62, 0x2e, 0x63, 0x6f, 0x6d, 0x2f, 0x73, 0x75, 0x62, 0x73, 0x74, 0x72, 0x61, 0x69, 0x74,
    0x2d, 0x69, 0x6f, 0x2f, 0x73, 0x75, 0x62, 0x73, 0x74, 0x72, 0x61, 0x69, 0x74, 0x2f, 0x62, 0x6c,
    0x6f, 0x62, 0x2f, 0x6d, 0x61, 0x69, 0x6e, 0x2f, 0x65, 0x78, 0x74, 0x65, 0x6e, 0x73, 0x69, 0x6f,
    0x6e, 0x73, 0x2f, 0x66, 0x75, 0x6e, 0x63, 0x74, 0x69, 0x6f, 0x6e, 0x73, 0x5f, 0x63, 0x6f, 0x6d,
    0x70, 0x61, 0x72, 0x69, 0x73, 0x6f, 0x6e, 0x2e, 0x79, 0x61, 0x6d, 0x6c, 0x12, 0x06, 0x1a, 0x04,
    0x1a, 0x02, 0x67, 0x74, 0x1a, 0x2a, 0x0a, 0x1c, 0x1a, 0x1a, 0x1a, 0x04, 0x0a, 0x02, 0x10, 0x01,
    0x22, 0x0a, 0x1a, 0x08, 0x12, 0x06, 0x0a, 0x02, 0x12, 0x00, 0x22, 0x00, 0x22, 0x06, 0x1a, 0x04,
    0x0a, 0x02, 0x38, 0x03, 0x1a, 0x0a, 0x65, 0x78, 0x70, 0x72, 0x65, 0x73, 0x73, 0x69, 0x6f, 0x6e,
    0x22, 0x0c, 0x0a, 0x02, 0x69, 0x64, 0x12, 0x06, 0x0a, 0x04, 0x3a, 0x02, 0x10, 0x01, 0x3a, 0x10,
    0x10, 0x2c, 0x2a, 0x0c, 0x41, 0x63, 0x65, 0x72, 0x6f, 0x20, 0x32, 0x36, 0x2e, 0x30, 0x2e, 0x31,
};

/* Gives "own" by selecting itself, and answers every other ticket with the whole table. */
static int32_t provide(void *userdata, dipc_request *request, struct ArrowDeviceArrayStream *out) {
  (void)userdata;
  char ticket[16] = "", name[16];
  size_t len = 0;
  uint8_t filter[sizeof above_three];
  OK(dipc_request_ticket(request, (uint8_t *)ticket, sizeof ticket - 1, &len, &error_));
  if (strcmp(ticket, "own filter") == 0) {
    FAILS(DIPC_ERR_BUFFER_TOO_SMALL, "",
          dipc_request_filter(request, filter, sizeof filter - 1, &len, &error_));
    CHECK_EQ(len, sizeof above_three);
    OK(dipc_request_filter(request, NULL, 0, &len, &error_));
    CHECK_EQ(len, sizeof above_three);
    OK(dipc_request_filter(request, filter, sizeof filter, &len, &error_));
    CHECK(memcmp(filter, above_three, sizeof filter) == 0);
    OK(dipc_request_take_selection(request, &error_));
    table_stream(out, 1, 7, -1, NULL);
    return 0;
  }
  if (strcmp(ticket, "own") == 0) {
    CHECK(dipc_request_selects_columns(request));
    CHECK_EQ(dipc_request_column_count(request), 2);
    OK(dipc_request_column(request, 1, name, sizeof name, &len, &error_));
    CHECK_STR(name, "name");
    FAILS(DIPC_ERR_NOT_FOUND, "column 2",
          dipc_request_column(request, 2, name, sizeof name, &len, &error_));
    CHECK_EQ(dipc_request_first_row(request), 5);
    CHECK_EQ(dipc_request_rows(request), 10);
    OK(dipc_request_filter(request, filter, sizeof filter, &len, &error_));
    CHECK_EQ(len, 0);
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

static dipc_get_options *filter_by(const uint8_t *message, size_t len) {
  dipc_get_options *options = NULL;
  OK(dipc_get_options_new(&options, &error_));
  OK(dipc_get_options_set_filter(options, message, len, &error_));
  return options;
}

/* The server evaluates the filter for either form; a range counts the rows that pass. */
static void rows_that_pass_come(const dipc_client *client, const char *uri) {
  const char *const id[] = {"id"};
  const char *forms[] = {"published", "provided"};
  for (int i = 0; i < 2; i++) {
    dipc_get_options *options = filter_by(above_three, sizeof above_three);
    OK(dipc_get_options_set_columns(options, id, 1, &error_));
    struct ArrowDeviceArrayStream stream = get_with(client, uri, forms[i], options);
    if (i == 0) CHECK_EQ(check_ids(&stream, 4), ROWS - 4);
    stream.release(&stream);
    OK(dipc_get_options_set_range(options, 6000, 8000, &error_));
    stream = get_with(client, uri, forms[i], options);
    CHECK_EQ(check_ids(&stream, 6004), 8000);
    stream.release(&stream);
    dipc_get_options_free(options);
  }
  dipc_get_options *options = filter_by(above_three, sizeof above_three);
  struct ArrowDeviceArrayStream stream = get_with(client, uri, "own filter", options);
  CHECK_EQ(table_check_stream(&stream), 7);
  dipc_get_options_free(options);
}

static void refuses(const dipc_client *client, const char *uri, const uint8_t *message, size_t len,
                    dipc_status expected, const char *text) {
  dipc_get_options *options = filter_by(message, len);
  struct ArrowDeviceArrayStream stream;
  FAILS(expected, text,
        dipc_client_get(client, &uri, 1, TICKET("published"), options, NULL, &stream, &error_));
  dipc_get_options_free(options);
}

/* above_three with another name, of the same length, for its function or its column. */
static void rename_in(uint8_t *out, const char *name, const char *other) {
  size_t len = strlen(name), at = 0;
  while (memcmp(above_three + at, name, len) != 0) at++;
  memcpy(out, above_three, sizeof above_three);
  memcpy(out + at, other, len);
}

static void a_filter_that_is_refused_is_said(const dipc_client *client, const char *uri) {
  refuses(client, uri, TICKET("no message"), DIPC_ERR_INVALID_ARGUMENT, "the filter's message");
  refuses(client, uri, above_three, sizeof above_three - 1, DIPC_ERR_INVALID_ARGUMENT,
          "the filter's message");

  uint8_t other[sizeof above_three];
  rename_in(other, "\002gt", "\002go");
  refuses(client, uri, other, sizeof other, DIPC_ERR_UNSUPPORTED, "the function \"go\"");
  rename_in(other, "\002id", "\002no");
  refuses(client, uri, other, sizeof other, DIPC_ERR_INVALID_ARGUMENT, "\"no\"");

  dipc_get_options *options = NULL;
  OK(dipc_get_options_new(&options, &error_));
  static const uint8_t too_long[(64 << 10) + 1];
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "filter",
        dipc_get_options_set_filter(options, above_three, 0, &error_));
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "filter",
        dipc_get_options_set_filter(options, too_long, sizeof too_long, &error_));
  dipc_get_options_free(options);
}

int main(void) {
  forked_server server = fork_server(offer);
  for (int i = 0; i < 2; i++) {
    dipc_client *client = new_client();
    a_selection_comes(client, server.uris[i], i == 0);
    a_host_may_select_itself(client, server.uris[i]);
    what_cannot_be_selected_is_said(client, server.uris[i]);
    rows_that_pass_come(client, server.uris[i]);
    a_filter_that_is_refused_is_said(client, server.uris[i]);
    dipc_client_free(client);
  }
  end_server(&server);
  return 0;
}
