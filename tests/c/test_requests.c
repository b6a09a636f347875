/* What a request carries beside its ticket, and what its answer carries: a server in a process of
 * its own, over shared memory and tcp. */
#include "forked.h"

/* The value of a header as a string; "" where there is none. */
static const char *value_of(const dipc_headers *headers, const char *key) {
  static char values[4][256];
  static int next;
  char *value = values[next++ % 4];
  size_t len = 0;
  memset(value, 0, 256);
  dipc_error *error = NULL;
  int32_t status = dipc_headers_get(headers, key, (uint8_t *)value, 255, &len, &error);
  dipc_error_free(error);
  if (status == DIPC_ERR_NOT_FOUND) return "";
  CHECK_EQ(status, DIPC_OK);
  return value;
}

static void add(dipc_headers *headers, const char *key, const char *value) {
  OK(dipc_headers_add(headers, key, (const uint8_t *)value, strlen(value), &error_));
}

/* A table of 10 rows in two parts, or a list of one descriptor. */
static void describe(const char *descriptor, bool is_list, struct ArrowDeviceArrayStream *out) {
  const char *elsewhere[] = {"shm:@there", "tcp://there:1"};
  dipc_description *description = NULL;
  struct ArrowSchema schema;
  OK(dipc_description_new(&description, &error_));
  OK(dipc_description_add_endpoint(description, (const uint8_t *)descriptor, strlen(descriptor),
                                   NULL, 0, 4, DIPC_UNKNOWN, &error_));
  if (!is_list) {
    OK(dipc_description_add_endpoint(description, TICKET("far"), elsewhere, 2, 6, 100, &error_));
    OK(dipc_description_set_total(description, DIPC_TOTAL_ROWS, 10, &error_));
    OK(dipc_description_set_total(description, DIPC_TOTAL_BYTES, 10, &error_));
    OK(dipc_description_set_total(description, DIPC_TOTAL_BYTES, DIPC_UNKNOWN, &error_));
    OK(dipc_description_set_total(description, DIPC_TOTAL_BATCHES, 3, &error_));
    FAILS(DIPC_ERR_INVALID_ARGUMENT, "no total",
          dipc_description_set_total(description, 4, 1, &error_));
    table_schema(&schema);
    OK(dipc_description_set_schema(description, &schema, &error_));
    schema.release(&schema);
  }
  OK(dipc_description_to_stream(description, out, &error_));
  dipc_description_free(description);
}

/* Answers with what the request said: `echo` and `left` as headers. The ticket "refuse" fails. */
static int32_t handle(void *userdata, dipc_request *request, struct ArrowDeviceArrayStream *out) {
  (void)userdata;
  char ticket[64] = "", left[32];
  size_t len = 0;
  OK(dipc_request_ticket(request, (uint8_t *)ticket, sizeof ticket - 1, &len, &error_));
  if (dipc_request_verb(request) != DIPC_VERB_GET) {
    bool is_list = dipc_request_verb(request) == DIPC_VERB_LIST;
    CHECK(is_list || dipc_request_verb(request) == DIPC_VERB_DESCRIBE);
    describe(ticket, is_list, out);
    return 0;
  }
  dipc_headers *asked = NULL, *answer = NULL;
  OK(dipc_request_headers(request, &asked, &error_));
  OK(dipc_headers_new(&answer, &error_));
  for (size_t i = 0; i < dipc_headers_count(asked); i++) {
    char key[64], value[64] = "";
    OK(dipc_headers_key(asked, i, key, sizeof key, &len, &error_));
    OK(dipc_headers_value(asked, i, (uint8_t *)value, sizeof value - 1, &len, &error_));
    add(answer, key, value);
  }
  char transport[8], address[64];
  bool is_shm = dipc_request_peer_id(request, DIPC_PEER_PID) >= 0;
  OK(dipc_request_peer_transport(request, transport, sizeof transport, &len, &error_));
  CHECK_STR(transport, is_shm ? "shm" : "tcp");
  CHECK_EQ(dipc_request_peer_id(request, DIPC_PEER_UID), is_shm ? (int64_t)getuid() : -1);
  CHECK_EQ(dipc_request_peer_id(request, DIPC_PEER_GID), is_shm ? (int64_t)getgid() : -1);
  CHECK_EQ(dipc_request_peer_id(request, 4), -1);
  if (is_shm) {
    FAILS(DIPC_ERR_NOT_FOUND, "without addresses",
          dipc_request_peer_address(request, address, sizeof address, &len, &error_));
  } else {
    OK(dipc_request_peer_address(request, address, sizeof address, &len, &error_));
    CHECK(strncmp(address, "127.0.0.1:", 10) == 0);
  }
  uint64_t time_left = dipc_request_time_left_ns(request);
  snprintf(left, sizeof left, "%s", time_left == DIPC_FOREVER ? "forever"
                                    : time_left > 50 * SECOND && time_left <= 60 * SECOND
                                        ? "a minute"
                                        : "other");
  add(answer, "left", left);
  add(answer, "ticket", ticket);
  OK(dipc_request_add_headers(request, answer, &error_));
  dipc_headers_free(asked);
  dipc_headers_free(answer);
  if (strcmp(ticket, "refuse") == 0) {
    OK(dipc_request_fail(request, 77, "not today", &error_));
    return 1;
  }
  if (strcmp(ticket, "slow") == 0) {
    while (!dipc_request_is_cancelled(request)) sleep_ms(1);
  }
  table_stream(out, 3, 100, -1, NULL);
  return 0;
}

/* Describes a table of ten parts of one row, of which the last server alone is there. */
static void publish_parts(dipc_server *server, const char *ticket, bool is_ordered) {
  dipc_description *description = NULL;
  char uri[DIPC_URI_BYTES];
  const char *uris[] = {"shm:@dipc-c-nobody", uri};
  size_t len = 0;
  OK(dipc_server_location(server, DIPC_ROLE_BOTH, uri, sizeof uri, &len, &error_));
  OK(dipc_description_new(&description, &error_));
  OK(dipc_description_set_ordered(description, is_ordered, &error_));
  for (int64_t i = 0; i < 10; i++) {
    char part[16];
    struct ArrowSchema schema;
    struct ArrowDeviceArray batch;
    snprintf(part, sizeof part, "%s-%d", ticket, (int)i);
    table_schema(&schema);
    table_batch(&batch, i, 1, NULL);
    OK(dipc_server_publish(server, (const uint8_t *)part, strlen(part), &schema, &batch, 1,
                           &error_));
    OK(dipc_description_add_endpoint(description, (const uint8_t *)part, strlen(part), uris,
                                     i % 2 ? 2 : 0, 1, DIPC_UNKNOWN, &error_));
  }
  OK(dipc_server_serve_pull(server, (const uint8_t *)ticket, strlen(ticket), &error_));
  OK(dipc_server_set_description(server, (const uint8_t *)ticket, strlen(ticket), description,
                                 &error_));
  dipc_description_free(description);
}

static void offer(dipc_server *server) {
  OK(dipc_server_set_handler(server, handle, NULL, NULL, 0, &error_));
  publish(server, "table", 1, 10, NULL);
  publish_parts(server, "parts", false);
  publish_parts(server, "ordered", true);
}

/* Promise: a table in parts comes as one stream, in order where that matters. */
static void parts_come_as_one_table(const char *uri) {
  dipc_client *client = new_client();
  struct ArrowDeviceArrayStream stream;
  struct ArrowDeviceArray batch;
  uint64_t value = 0;
  OK(dipc_client_get_parts(client, &uri, 1, TICKET("ordered"), NULL, NULL, &stream, &error_));
  CHECK_EQ(table_check_stream(&stream), 10);
  OK(dipc_client_get_parts(client, &uri, 1, TICKET("parts"), NULL, NULL, &stream, &error_));
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "dipc_client_get()",
        dipc_stream_stat(&stream, DIPC_STREAM_STAT_ROWS, &value, &error_));
  bool seen[10] = {false};
  for (;;) {
    CHECK_EQ(stream.get_next(&stream, &batch), 0);
    if (!batch.array.release) break;
    int64_t first = ((const int64_t *)batch.array.children[0]->buffers[1])[0];
    CHECK(first >= 0 && first < 10 && !seen[first]);
    seen[first] = true;
    table_check(&batch.array, first, 1);
    batch.array.release(&batch.array);
  }
  for (int i = 0; i < 10; i++) CHECK(seen[i]);
  stream.release(&stream);
  dipc_client_free(client);
}

static int32_t ask(const dipc_client *client, const char *uri, const char *ticket,
                   const dipc_headers *headers, uint64_t deadline_ns,
                   struct ArrowDeviceArrayStream *out, dipc_error **error) {
  dipc_get_options *options = NULL;
  OK(dipc_get_options_new(&options, &error_));
  if (headers) OK(dipc_get_options_set_headers(options, headers, &error_));
  OK(dipc_get_options_set_deadline_ns(options, deadline_ns, &error_));
  OK(dipc_get_options_set_send_secrets(options, false, &error_));
  OK(dipc_get_options_set_checksums(options, true, &error_));
  int32_t status = dipc_client_get(client, &uri, 1, (const uint8_t *)ticket, strlen(ticket),
                                   options, NULL, out, error);
  dipc_get_options_free(options);
  return status;
}

static void headers_and_deadlines_cross(const char *uri) {
  dipc_client *client = new_client();
  dipc_headers *headers = NULL, *answer = NULL;
  struct ArrowDeviceArrayStream stream;
  OK(dipc_headers_new(&headers, &error_));
  add(headers, "traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
  add(headers, "twice", "1");
  add(headers, "twice", "2");
  OK(ask(client, uri, "any query", headers, 60 * SECOND, &stream, &error_));
  OK(dipc_stream_headers(&stream, &answer, &error_));
  CHECK_EQ(dipc_headers_count(answer), 5);
  CHECK_STR(value_of(answer, "traceparent"),
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
  CHECK_STR(value_of(answer, "twice"), "1");
  CHECK_STR(value_of(answer, "left"), "a minute");
  CHECK_STR(value_of(answer, "ticket"), "any query");
  CHECK_STR(value_of(answer, "absent"), "");
  dipc_headers_free(answer);
  CHECK_EQ(table_check_stream(&stream), 300);

  /* Neither headers nor a deadline; and a ticket of its own comes before the handler. */
  OK(ask(client, uri, "another", NULL, DIPC_FOREVER, &stream, &error_));
  OK(dipc_stream_headers(&stream, &answer, &error_));
  CHECK_EQ(dipc_headers_count(answer), 2);
  CHECK_STR(value_of(answer, "left"), "forever");
  dipc_headers_free(answer);
  CHECK_EQ(table_check_stream(&stream), 300);
  OK(ask(client, uri, "table", headers, DIPC_FOREVER, &stream, &error_));
  CHECK_EQ(table_check_stream(&stream), 10);

  FAILS(DIPC_ERR_PROVIDER, "not today",
        ask(client, uri, "refuse", headers, DIPC_FOREVER, &stream, &error_));
  /* The server's host waits for the client, which leaves at its deadline. */
  FAILS(DIPC_ERR_TIMEOUT, "deadline", ask(client, uri, "slow", NULL, SECOND / 5, &stream, &error_));
  dipc_headers_free(headers);
  dipc_client_free(client);
}

static dipc_description *ask_what(const dipc_client *client, const char *uri,
                                  const char *descriptor) {
  dipc_description *description = NULL;
  OK(dipc_client_describe(client, &uri, 1, (const uint8_t *)descriptor, strlen(descriptor), NULL,
                          NULL, &description, &error_));
  return description;
}

/* Reads a list of one row, and gives its rows; -1: not known. */
static int64_t only_row(struct ArrowDeviceArrayStream *stream, const char *descriptor) {
  struct ArrowDeviceArray batch;
  CHECK_EQ(stream->get_next(stream, &batch), 0);
  CHECK_EQ(batch.array.length, 1);
  CHECK_EQ(batch.array.n_children, 4);
  const struct ArrowArray *name = batch.array.children[0], *rows = batch.array.children[2];
  const int32_t *offsets = name->buffers[1];
  CHECK_EQ((size_t)(offsets[1] - offsets[0]), strlen(descriptor));
  CHECK(memcmp((const char *)name->buffers[2] + offsets[0], descriptor, strlen(descriptor)) == 0);
  int64_t found = rows->null_count > 0 ? -1 : ((const int64_t *)rows->buffers[1])[0];
  batch.array.release(&batch.array);
  CHECK_EQ(stream->get_next(stream, &batch), 0);
  CHECK(batch.array.release == NULL);
  stream->release(stream);
  return found;
}

/* Tables are described and listed without being sent; the handler answers for the rest. */
static void tables_are_described_and_listed(const char *uri) {
  dipc_client *client = new_client();
  struct ArrowSchema schema;
  struct ArrowDeviceArrayStream stream;
  char text[64];
  size_t len = 0;
  dipc_description *table = ask_what(client, uri, "table");
  CHECK_EQ(dipc_description_total(table, DIPC_TOTAL_ROWS), 10);
  CHECK_EQ(dipc_description_total(table, DIPC_TOTAL_BATCHES), 1);
  CHECK(dipc_description_total(table, DIPC_TOTAL_BYTES) != DIPC_UNKNOWN);
  CHECK_EQ(dipc_description_total(table, 4), DIPC_UNKNOWN);
  OK(dipc_description_schema(table, &schema, &error_));
  CHECK_STR(schema.format, "+s");
  schema.release(&schema);
  CHECK_EQ(dipc_description_endpoint_count(table), 1);
  CHECK_EQ(dipc_description_endpoint_uri_count(table, 0), 0);
  OK(dipc_description_endpoint_descriptor(table, 0, (uint8_t *)text, sizeof text, &len, &error_));
  CHECK(len == 5 && memcmp(text, "table", len) == 0);
  dipc_description_free(table);

  table = ask_what(client, uri, "near");
  CHECK_EQ(dipc_description_total(table, DIPC_TOTAL_ROWS), 10);
  CHECK_EQ(dipc_description_total(table, DIPC_TOTAL_BYTES), DIPC_UNKNOWN);
  CHECK_EQ(dipc_description_total(table, DIPC_TOTAL_BATCHES), 3);
  CHECK_EQ(dipc_description_endpoint_count(table), 2);
  CHECK_EQ(dipc_description_endpoint_total(table, 0, DIPC_TOTAL_ROWS), 4);
  CHECK_EQ(dipc_description_endpoint_total(table, 0, DIPC_TOTAL_BYTES), DIPC_UNKNOWN);
  CHECK_EQ(dipc_description_endpoint_total(table, 1, DIPC_TOTAL_BYTES), 100);
  CHECK_EQ(dipc_description_endpoint_total(table, 2, DIPC_TOTAL_BYTES), DIPC_UNKNOWN);
  CHECK_EQ(dipc_description_endpoint_uri_count(table, 1), 2);
  OK(dipc_description_endpoint_uri(table, 1, 1, text, sizeof text, &len, &error_));
  CHECK_STR(text, "tcp://there:1");
  FAILS(DIPC_ERR_NOT_FOUND, "no URI 2",
        dipc_description_endpoint_uri(table, 1, 2, text, sizeof text, &len, &error_));
  FAILS(DIPC_ERR_NOT_FOUND, "no endpoint 2",
        dipc_description_endpoint_descriptor(table, 2, NULL, 0, &len, &error_));
  FAILS(DIPC_ERR_BUFFER_TOO_SMALL, "14",
        dipc_description_endpoint_uri(table, 1, 1, text, 13, &len, &error_));
  dipc_headers *headers = NULL;
  OK(dipc_description_headers(table, &headers, &error_));
  CHECK_EQ(dipc_headers_count(headers), 0);
  dipc_headers_free(headers);
  dipc_description_free(table);

  OK(dipc_client_list(client, &uri, 1, TICKET("tab"), NULL, NULL, &stream, &error_));
  CHECK_EQ(only_row(&stream, "table"), 10);
  OK(dipc_client_list(client, &uri, 1, TICKET("x"), NULL, NULL, &stream, &error_));
  CHECK_EQ(only_row(&stream, "x"), 4);
  dipc_client_free(client);

  dipc_description *empty = NULL;
  OK(dipc_description_new(&empty, &error_));
  FAILS(DIPC_ERR_NOT_FOUND, "not known", dipc_description_schema(empty, &schema, &error_));
  dipc_description_free(empty);
}

static void wrong_headers_are_refused(void) {
  dipc_headers *headers = NULL;
  dipc_get_options *options = NULL;
  size_t len = 77;
  char buffer[4] = "";
  OK(dipc_headers_new(&headers, &error_));
  OK(dipc_get_options_new(&options, &error_));
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "other characters",
        dipc_headers_add(headers, "Key", NULL, 0, &error_));
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "sets such headers itself",
        dipc_headers_add(headers, "dipc-key", NULL, 0, &error_));
  FAILS(DIPC_ERR_NOT_FOUND, "no header 0",
        dipc_headers_key(headers, 0, buffer, sizeof buffer, &len, &error_));
  CHECK_EQ(len, 77);
  OK(dipc_headers_add(headers, "key", NULL, 0, &error_));
  FAILS(DIPC_ERR_BUFFER_TOO_SMALL, "4",
        dipc_headers_key(headers, 0, buffer, 3, &len, &error_));
  CHECK_EQ(len, 3);
  uint8_t *large = calloc(1, 65 << 10);
  OK(dipc_headers_add(headers, "large", large, 65 << 10, &error_));
  free(large);
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "the limit is 65536",
        dipc_get_options_set_headers(options, headers, &error_));
  dipc_headers_free(headers);
  dipc_get_options_free(options);
}

/* A new version of a ticket takes the place of the old one, whose stream goes on. */
static void a_ticket_is_replaced(void) {
  char uri[DIPC_URI_BYTES];
  dipc_server *server = new_server(NULL, uri);
  dipc_client *client = new_client();
  publish(server, "t", 50, 1000, NULL);
  struct ArrowDeviceArrayStream old = get(client, uri, "t"), new;
  struct ArrowSchema schema;
  struct ArrowDeviceArray batch;
  table_schema(&schema);
  table_batch(&batch, 0, 7, NULL);
  FAILS(DIPC_ERR_ALREADY_EXISTS, "withdraw or replace",
        dipc_server_publish(server, TICKET("t"), &schema, &batch, 1, &error_));
  OK(dipc_server_replace(server, TICKET("t"), &schema, &batch, 1, &error_));
  CHECK(schema.release == NULL && batch.array.release == NULL);
  new = get(client, uri, "t");
  CHECK_EQ(table_check_stream(&new), 7);
  CHECK_EQ(table_check_stream(&old), 50000);
  /* One that was not there is added. */
  table_schema(&schema);
  OK(dipc_server_replace(server, TICKET("u"), &schema, NULL, 0, &error_));
  new = get(client, uri, "u");
  CHECK_EQ(table_check_stream(&new), 0);
  dipc_client_free(client);
  dipc_server_free(server);
  table_wait_live(0);
}

/* The host says what a provider's ticket stands for. */
static void a_providers_ticket_is_described(void) {
  char uri[DIPC_URI_BYTES];
  dipc_server *server = new_server(NULL, uri);
  dipc_client *client = new_client();
  dipc_description *description = NULL;
  OK(dipc_description_new(&description, &error_));
  OK(dipc_description_set_total(description, DIPC_TOTAL_ROWS, 1000, &error_));
  FAILS(DIPC_ERR_NOT_FOUND, "no ticket",
        dipc_server_set_description(server, TICKET("t"), description, &error_));
  OK(dipc_server_serve_pull(server, TICKET("t"), &error_));
  FAILS(DIPC_ERR_NULL_ARGUMENT, "description is NULL",
        dipc_server_set_description(server, TICKET("t"), NULL, &error_));
  FAILS(DIPC_ERR_NULL_ARGUMENT, "ticket is NULL",
        dipc_server_set_description(server, NULL, 1, description, &error_));
  OK(dipc_server_set_description(server, TICKET("t"), description, &error_));
  dipc_description_free(description);
  description = ask_what(client, uri, "t");
  CHECK_EQ(dipc_description_total(description, DIPC_TOTAL_ROWS), 1000);
  CHECK_EQ(dipc_description_endpoint_total(description, 0, DIPC_TOTAL_ROWS), 1000);
  dipc_description_free(description);
  dipc_client_free(client);
  dipc_server_free(server);
}

/* Two batches, and then the provider fails. */
static int32_t fail_later(void *userdata, dipc_request *request,
                          struct ArrowDeviceArrayStream *out) {
  (void)userdata;
  dipc_headers *answer = NULL;
  OK(dipc_headers_new(&answer, &error_));
  add(answer, "k", "v");
  OK(dipc_request_add_headers(request, answer, &error_));
  dipc_headers_free(answer);
  table_stream(out, 5, 100, 2, NULL);
  return 0;
}

/* A host stream of a fetched one keeps its status, its figures, its headers and its metadata. */
static void a_host_stream_keeps_what_its_struct_cannot_say(void) {
  char uri[DIPC_URI_BYTES];
  dipc_server *server = new_server(NULL, uri);
  dipc_client *client = new_client();
  OK(dipc_server_set_handler(server, fail_later, NULL, NULL, 0, &error_));
  struct ArrowDeviceArrayStream device = get(client, uri, "t");
  struct ArrowArrayStream host;
  OK(dipc_stream_to_host(&device, &host, &error_));
  CHECK(device.release == NULL);
  struct ArrowArray array;
  for (int i = 0; i < 2; i++) {
    OK(dipc_host_stream_status(&host, &error_));
    CHECK_EQ(host.get_next(&host, &array), 0);
    table_check(&array, 100 * i, 100);
    array.release(&array);
  }
  uint64_t rows = 0;
  OK(dipc_host_stream_stat(&host, DIPC_STREAM_STAT_ROWS, &rows, &error_));
  CHECK_EQ(rows, 200);
  size_t len = 77;
  OK(dipc_host_stream_metadata(&host, NULL, 0, &len, &error_));
  CHECK_EQ(len, 0);
  dipc_headers *headers = NULL;
  OK(dipc_host_stream_headers(&host, &headers, &error_));
  CHECK_STR(value_of(headers, "k"), "v");
  dipc_headers_free(headers);
  CHECK(host.get_next(&host, &array) != 0);
  FAILS(DIPC_ERR_PROVIDER, host.get_last_error(&host), dipc_host_stream_status(&host, &error_));
  host.release(&host);
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "released", dipc_host_stream_status(&host, &error_));

  /* One that is moved again stays one of a client's; one of another library's never was. */
  table_stream(&device, 1, 10, -1, NULL);
  OK(dipc_stream_to_host(&device, &host, &error_));
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "dipc_client_get",
        dipc_host_stream_stat(&host, DIPC_STREAM_STAT_ROWS, &rows, &error_));
  host.release(&host);
  dipc_client_free(client);
  dipc_server_free(server);
  table_wait_live(0);
}

/* The pull form of a handler, its end, and a handler that replaces another one. */
static void handlers_come_and_go(void) {
  char uri[DIPC_URI_BYTES];
  const char *uris[] = {uri};
  dipc_server *server = new_server(NULL, uri);
  dipc_client *client = new_client();
  struct ArrowDeviceArrayStream stream;
  FAILS(DIPC_ERR_NOT_FOUND, "no ticket",
        dipc_client_get(client, uris, 1, TICKET("t"), NULL, NULL, &stream, &error_));
  OK(dipc_server_set_handler(server, handle, NULL, NULL, DIPC_PROVIDER_DETERMINISTIC, &error_));
  stream = get(client, uri, "t");
  CHECK_EQ(table_check_stream(&stream), 300);
  OK(dipc_server_set_handler_pull(server, &error_));
  dipc_get_options *options = NULL;
  dipc_request *request = NULL;
  OK(dipc_get_options_new(&options, &error_));
  OK(dipc_get_options_set_connect_timeout_ns(options, SECOND / 5, &error_));
  OK(dipc_get_options_set_deadline_ns(options, SECOND / 5, &error_));
  FAILS(DIPC_ERR_TIMEOUT, "deadline",
        dipc_client_get(client, uris, 1, TICKET("t"), options, NULL, &stream, &error_));
  OK(dipc_server_next_request(server, 60 * SECOND, NULL, &request, &error_));
  dipc_request_free(request);
  OK(dipc_server_set_handler(server, NULL, NULL, NULL, 0, &error_));
  FAILS(DIPC_ERR_NOT_FOUND, "no ticket",
        dipc_client_get(client, uris, 1, TICKET("t"), NULL, NULL, &stream, &error_));
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "unknown bits",
        dipc_server_set_handler(server, handle, NULL, NULL, 2, &error_));
  dipc_get_options_free(options);
  dipc_client_free(client);
  dipc_server_free(server);
  table_wait_live(0);
}

int main(void) {
  forked_server server = fork_server(offer);
  for (int i = 0; i < 2; i++) {
    headers_and_deadlines_cross(server.uris[i]);
    tables_are_described_and_listed(server.uris[i]);
    parts_come_as_one_table(server.uris[i]);
  }
  end_server(&server);
  wrong_headers_are_refused();
  a_ticket_is_replaced();
  a_providers_ticket_is_described();
  handlers_come_and_go();
  a_host_stream_keeps_what_its_struct_cannot_say();
  return 0;
}
