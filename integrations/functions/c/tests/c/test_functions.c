/* Functions: servers in processes of their own, which run example modules, over shared memory, tcp
 * and ucx.
 *
 *   test_functions MODULES FOLDER     as modules.h says; FOLDER has a key, and with it signed
 *                                     filter.wasm */
#include <stdatomic.h>

#include "forked.h"
#include "modules.h"

#define BATCHES 20
#define ROWS 1000
#define ALL (BATCHES * ROWS)

/* Reads a table with the ids from `first` on; returns the rows. */
static int64_t read_rows(struct ArrowDeviceArrayStream *table, int64_t first) {
  struct ArrowDeviceArray batch;
  int64_t rows = 0;
  for (;;) {
    if (table->get_next(table, &batch) != 0) FAIL("%s", table->get_last_error(table));
    if (batch.array.release == NULL) break;
    if (batch.array.length > 0) table_check(&batch.array, first + rows, batch.array.length);
    rows += batch.array.length;
    batch.array.release(&batch.array);
  }
  table->release(table);
  return rows;
}

static void (*table_release)(struct ArrowDeviceArrayStream *table);
static atomic_bool was_released;

static void release_watched(struct ArrowDeviceArrayStream *table) {
  table_release(table);
  atomic_store(&was_released, true);
}

/* Gives the table `watched`, and `released` with one row once that was released. */
static int32_t give(dipc_request *request, struct ArrowDeviceArrayStream *out) {
  char ticket[32] = "";
  size_t len = 0;
  OK(dipc_request_ticket(request, (uint8_t *)ticket, sizeof ticket - 1, &len, &error_));
  if (strcmp(ticket, "watched") == 0) {
    atomic_store(&was_released, false);
    table_stream(out, 1, ROWS, -1, NULL);
    table_release = out->release;
    out->release = release_watched;
    return 0;
  }
  if (strcmp(ticket, "released") == 0) {
    while (!atomic_load(&was_released)) sleep_ms(10);
    table_stream(out, 1, 1, -1, NULL);
    return 0;
  }
  OK(dipc_request_fail(request, DIPC_ERR_NOT_FOUND, "no such table", &error_));
  return 1;
}

/* Takes tables whose descriptor is the id of their first row. */
static int32_t host(void *userdata, dipc_request *request, struct ArrowDeviceArrayStream *out) {
  struct ArrowDeviceArrayStream table;
  struct ArrowDeviceArray batch;
  char first[32] = "";
  size_t len = 0;
  (void)userdata;
  if (dipc_request_verb(request) != DIPC_VERB_PUT) return give(request, out);
  OK(dipc_request_ticket(request, (uint8_t *)first, sizeof first - 1, &len, &error_));
  OK(dipc_request_source(request, &table, &error_));
  if (strcmp(first, "fails") == 0) {
    CHECK(table.get_next(&table, &batch) != 0);
    table.release(&table);
    return 1;
  }
  CHECK_EQ(read_rows(&table, atoll(first)), ALL - atoll(first));
  return 0;
}

static void allow(dipc_functions_policy *policy, const char *name) {
  uint8_t hash[32];
  dipc_function_module *module = module_of(name);
  OK(dipc_function_module_hash(module, hash, &error_));
  OK(dipc_functions_policy_allow_module(policy, hash, &error_));
  dipc_function_module_free(module);
}

static void enable(dipc_server *server, dipc_functions_policy *policy) {
  publish(server, "table", BATCHES, ROWS, NULL);
  OK(dipc_server_set_handler(server, host, NULL, NULL, 0, &error_));
  OK(dipc_functions_enable(server, policy, &error_));
  dipc_functions_policy_free(policy);
}

static void offer_listed(dipc_server *server) {
  dipc_functions_policy *policy = new_policy();
  allow(policy, "filter.wasm");
  allow(policy, "words.wasm");
  allow(policy, "faults.wasm");
  enable(server, policy);
}

static void offer_onward(dipc_server *server) {
  dipc_functions_policy *policy = new_policy();
  allow(policy, "faults.wasm");
  OK(dipc_functions_policy_allow_peer(policy, "shm:@dipc-c-forked-*", &error_));
  OK(dipc_functions_policy_allow_peer(policy, "tcp://127.0.0.1:*", &error_));
  OK(dipc_functions_policy_allow_peer(policy, "ucx://127.0.0.1:*", &error_));
  OK(dipc_functions_policy_set_limit(policy, DIPC_FUNCTIONS_LIMIT_HOPS, 2, &error_));
  enable(server, policy);
}

static void offer_nothing(dipc_server *server) {
  enable(server, new_policy());
}

static void offer_signed(dipc_server *server) {
  static file key;
  dipc_functions_policy *policy = new_policy();
  read_file(folder, "key", &key);
  CHECK_EQ(key.len, 32);
  OK(dipc_functions_policy_allow_key(policy, key.bytes, &error_));
  enable(server, policy);
}

static void offer_little(dipc_server *server) {
  dipc_functions_policy *policy = new_policy();
  OK(dipc_functions_policy_allow_any_module(policy, &error_));
  OK(dipc_functions_policy_set_limit(policy, DIPC_FUNCTIONS_LIMIT_OUTPUT_ROWS, 5000, &error_));
  OK(dipc_functions_policy_set_limit(policy, DIPC_FUNCTIONS_LIMIT_FUEL, 100 << 20, &error_));
  enable(server, policy);
}

static void offer_tiny_modules(dipc_server *server) {
  dipc_functions_policy *policy = new_policy();
  OK(dipc_functions_policy_allow_any_module(policy, &error_));
  OK(dipc_functions_policy_set_limit(policy, DIPC_FUNCTIONS_LIMIT_MODULE_BYTES, 1000, &error_));
  enable(server, policy);
}

static dipc_status try_get(const dipc_client *client, const char *uri,
                           const dipc_function_message *message, const char *ticket,
                           dipc_error **error) {
  struct ArrowDeviceArrayStream stream;
  const dipc_status status = dipc_function_get(message, client, &uri, 1, BYTES(ticket), NULL, NULL,
                                               NULL, &stream, error);
  if (status == DIPC_OK) stream.release(&stream);
  return status;
}

static void gets(const dipc_client *client, const char *uri) {
  struct ArrowDeviceArrayStream stream;
  dipc_get_options *options = NULL;
  dipc_function_message *message = message_of("filter.wasm", "keep", "id>9");
  OK(dipc_function_get(message, client, &uri, 1, TICKET("table"), NULL, NULL, NULL, &stream,
                       &error_));
  CHECK_EQ(read_rows(&stream, 10), ALL - 10);

  /* Rows are counted of what the function gives. */
  OK(dipc_get_options_new(&options, &error_));
  OK(dipc_get_options_set_range(options, 5, 100, &error_));
  OK(dipc_function_get(message, client, &uri, 1, TICKET("table"), options, NULL, NULL, &stream,
                       &error_));
  CHECK_EQ(read_rows(&stream, 15), 100);
  dipc_get_options_free(options);
  FAILS(DIPC_ERR_NOT_FOUND, "no such table", try_get(client, uri, message, "absent", &error_));
  dipc_function_message_free(message);
}

static void puts_through(const dipc_client *client, const char *uri) {
  struct ArrowDeviceArrayStream source;
  dipc_put *put = NULL;
  uint64_t batches = 0;
  dipc_function_message *message = message_of("filter.wasm", "keep", "id>9");
  table_stream(&source, BATCHES, ROWS, -1, NULL);
  OK(dipc_function_put(message, client, &uri, 1, TICKET("10"), NULL, NULL, NULL, &source, &put,
                       &error_));
  CHECK(source.release == NULL);
  OK(dipc_put_finish(put, DIPC_FOREVER, &batches, &error_));
  CHECK_EQ(batches, BATCHES);
  dipc_put_free(put);
  dipc_function_message_free(message);

  /* The function's failure is the put's, whatever the host says. */
  message = message_of("faults.wasm", "panics", "");
  table_stream(&source, BATCHES, ROWS, -1, NULL);
  OK(dipc_function_put(message, client, &uri, 1, TICKET("fails"), NULL, NULL, NULL, &source, &put,
                       &error_));
  FAILS(DIPC_ERR_PROVIDER, "a batch of 1000 rows is too much",
        dipc_put_finish(put, DIPC_FOREVER, NULL, &error_));
  dipc_put_free(put);
  dipc_function_message_free(message);
  table_wait_live(0);
}

static dipc_status try_exchange(const dipc_client *client, const char *uri,
                                const dipc_function_message *message, dipc_put **put,
                                struct ArrowDeviceArrayStream *answers, dipc_error **error) {
  struct ArrowSchema schema;
  table_schema(&schema);
  const dipc_status status =
      dipc_function_exchange(message, client, &uri, 1, NULL, NULL, NULL, NULL, &schema,
                             ARROW_DEVICE_CPU, put, answers, error);
  schema.release(&schema);
  return status;
}

static void push(dipc_put *put, int64_t number) {
  struct ArrowDeviceArray batch;
  table_batch(&batch, number * ROWS, ROWS, NULL);
  OK(dipc_put_push(put, &batch, NULL, 0, DIPC_FOREVER, &error_));
}

/* Sends the table batch by batch; the function's answer to each comes before the next is sent. */
static void sends_and_reads(dipc_put *put, struct ArrowDeviceArrayStream *answers) {
  struct ArrowDeviceArray batch;
  uint64_t batches = 0;
  for (int64_t i = 0; i < BATCHES; i++) {
    const int64_t kept = i == 0 ? ROWS - 10 : ROWS;
    push(put, i);
    if (answers->get_next(answers, &batch) != 0) FAIL("%s", answers->get_last_error(answers));
    CHECK_EQ(batch.array.length, kept);
    table_check(&batch.array, (i + 1) * ROWS - kept, kept);
    batch.array.release(&batch.array);
  }
  OK(dipc_put_finish(put, DIPC_FOREVER, &batches, &error_));
  CHECK_EQ(batches, BATCHES);
  CHECK_EQ(answers->get_next(answers, &batch), 0);
  CHECK(batch.array.release == NULL);
  answers->release(answers);
  dipc_put_free(put);
  table_wait_live(0);
}

static void exchanges(const dipc_client *client, const char *uri) {
  struct ArrowDeviceArrayStream answers;
  dipc_put *put = NULL;
  dipc_function_message *message = message_of("filter.wasm", "keep", "id>9");
  OK(try_exchange(client, uri, message, &put, &answers, &error_));
  sends_and_reads(put, &answers);
  dipc_function_message_free(message);

  /* A function's failure ends both tables. */
  message = message_of("faults.wasm", "panics", "");
  OK(try_exchange(client, uri, message, &put, &answers, &error_));
  push(put, 0);
  fails_later(&answers, DIPC_ERR_PROVIDER, "a batch of 1000 rows is too much");
  FAILS(DIPC_ERR_PROVIDER, "a batch of 1000 rows is too much",
        dipc_put_finish(put, DIPC_FOREVER, NULL, &error_));
  dipc_put_free(put);
  dipc_function_message_free(message);
  table_wait_live(0);
}

static void runs_alone(const dipc_client *client, const char *uri) {
  struct ArrowDeviceArrayStream stream;
  struct ArrowDeviceArray batch;
  dipc_function_message *message = message_of("words.wasm", "reverse", "stream");
  OK(dipc_function_run(message, client, &uri, 1, NULL, NULL, NULL, &stream, &error_));
  CHECK_EQ(stream.get_next(&stream, &batch), 0);
  CHECK_EQ(batch.array.length, 1);
  CHECK_EQ(memcmp(batch.array.children[0]->buffers[2], "maerts", 6), 0);
  batch.array.release(&batch.array);
  CHECK_EQ(stream.get_next(&stream, &batch), 0);
  CHECK(batch.array.release == NULL);
  stream.release(&stream);
  dipc_function_message_free(message);
}

/* The server has the module. */
static void polls_an_exchange(const dipc_client *client, const char *uri,
                              const dipc_function_message *message) {
  struct ArrowDeviceArrayStream answers;
  struct ArrowSchema schema;
  dipc_headers *headers = NULL;
  dipc_put_options *options = NULL;
  dipc_pending *pending = NULL;
  dipc_put *put = NULL;
  OK(dipc_headers_new(&headers, &error_));
  OK(dipc_function_message_headers(message, false, headers, &error_));
  OK(dipc_put_options_new(&options, &error_));
  OK(dipc_put_options_set_headers(options, headers, &error_));
  dipc_headers_free(headers);
  table_schema(&schema);
  OK(dipc_client_start_exchange(client, &uri, 1, NULL, 0, options, NULL, NULL, &schema,
                                ARROW_DEVICE_CPU, &pending, &error_));
  schema.release(&schema);
  dipc_put_options_free(options);
  wait_until_readable(pending);
  OK(dipc_pending_try_exchange(pending, &put, &answers, &error_));
  dipc_pending_free(pending);
  sends_and_reads(put, &answers);
}

/* For an event loop: the module first, then the headers of a message with dipc_client_start(). */
static void polls(const dipc_client *client, const char *uri) {
  struct ArrowDeviceArrayStream stream;
  dipc_function_module *module = module_of("filter.wasm");
  dipc_function_message *message = NULL;
  dipc_headers *headers = NULL;
  dipc_get_options *options = NULL;
  dipc_pending *pending = NULL;
  OK(dipc_function_message_new(module, "keep", TICKET("id>9"), &message, &error_));
  OK(dipc_headers_new(&headers, &error_));
  OK(dipc_function_message_headers(message, false, headers, &error_));
  OK(dipc_get_options_new(&options, &error_));
  OK(dipc_get_options_set_headers(options, headers, &error_));
  dipc_headers_free(headers);

  for (int has_module = 0; has_module < 2; has_module++) {
    OK(dipc_client_start(client, DIPC_VERB_GET, &uri, 1, TICKET("table"), options, NULL, &pending,
                         &error_));
    wait_until_readable(pending);
    if (!has_module) {
      FAILS(DIPC_ERR_NOT_FOUND, "send it first",
            dipc_pending_try_stream(pending, &stream, &error_));
      OK(dipc_function_send_module(module, client, &uri, 1, NULL, NULL, NULL, &error_));
      /* It may be there. */
      OK(dipc_function_send_module(module, client, &uri, 1, NULL, NULL, NULL, &error_));
    } else {
      OK(dipc_pending_try_stream(pending, &stream, &error_));
      CHECK_EQ(read_rows(&stream, 10), ALL - 10);
    }
    dipc_pending_free(pending);
  }
  dipc_get_options_free(options);
  polls_an_exchange(client, uri, message);
  dipc_function_message_free(message);
  dipc_function_module_free(module);
}

/* Failures end their call alone. */
static void fails(const dipc_client *client, const char *uri) {
  struct ArrowDeviceArrayStream stream;
  static const struct {
    const char *name, *function, *arguments, *part;
  } at_once[] = {
      {"filter.wasm", "no such function", "", "no such function"},
      {"filter.wasm", "keep", "colour>3", "colour"},
  }, later[] = {
      {"faults.wasm", "panics", "", "a batch of 1000 rows is too much"},
      {"faults.wasm", "short", "", "the function failed"},
  };
  for (size_t i = 0; i < sizeof at_once / sizeof *at_once; i++) {
    dipc_function_message *message =
        message_of(at_once[i].name, at_once[i].function, at_once[i].arguments);
    FAILS(DIPC_ERR_PROVIDER, at_once[i].part, try_get(client, uri, message, "table", &error_));
    dipc_function_message_free(message);
  }
  for (size_t i = 0; i < sizeof later / sizeof *later; i++) {
    dipc_function_message *message =
        message_of(later[i].name, later[i].function, later[i].arguments);
    OK(dipc_function_get(message, client, &uri, 1, TICKET("table"), NULL, NULL, NULL, &stream,
                         &error_));
    fails_later(&stream, DIPC_ERR_PROVIDER, later[i].part);
    dipc_function_message_free(message);
  }
  dipc_function_message *message = message_of("sum.wasm", "sum", "id");
  FAILS(DIPC_ERR_PERMISSION, "does not allow", try_get(client, uri, message, "table", &error_));
  dipc_function_message_free(message);
  gets(client, uri);
}

static void forbids(const dipc_client *client, const char *uri) {
  struct ArrowDeviceArrayStream source;
  dipc_put *put = NULL;
  struct ArrowDeviceArrayStream answers;
  dipc_function_message *message = message_of("filter.wasm", "keep", "id>9");
  FAILS(DIPC_ERR_PERMISSION, "does not allow the module",
        try_get(client, uri, message, "table", &error_));
  FAILS(DIPC_ERR_PERMISSION, "does not allow the module",
        try_exchange(client, uri, message, &put, &answers, &error_));
  /* Nothing of a put's table is read before the server has accepted. */
  table_stream(&source, BATCHES, ROWS, -1, NULL);
  FAILS(DIPC_ERR_PERMISSION, "does not allow the module",
        dipc_function_put(message, client, &uri, 1, TICKET("10"), NULL, NULL, NULL, &source, &put,
                          &error_));
  CHECK(put == NULL);
  CHECK_EQ(table_check_stream(&source), ALL);
  dipc_function_message_free(message);
  /* Other requests are served as ever. */
  source = get(client, uri, "table");
  CHECK_EQ(table_check_stream(&source), ALL);
}

static void wants_signatures(const dipc_client *client, const char *uri) {
  static file signed_;
  dipc_function_module *module = module_of("filter.wasm");
  dipc_function_message *message = NULL;
  read_file(folder, "signature", &signed_);
  CHECK_EQ(signed_.len, 64);
  FAILS(DIPC_ERR_PERMISSION, "with a signature alone",
        dipc_function_send_module(module, client, &uri, 1, NULL, NULL, NULL, &error_));
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "63 bytes",
        dipc_function_module_set_signature(module, signed_.bytes, 63, &error_));
  signed_.bytes[5] ^= 1;
  OK(dipc_function_module_set_signature(module, signed_.bytes, 64, &error_));
  FAILS(DIPC_ERR_PERMISSION, "none of the server's keys",
        dipc_function_send_module(module, client, &uri, 1, NULL, NULL, NULL, &error_));
  signed_.bytes[5] ^= 1;
  OK(dipc_function_module_set_signature(module, signed_.bytes, 64, &error_));
  OK(dipc_function_message_new(module, "keep", TICKET("id>9"), &message, &error_));
  OK(try_get(client, uri, message, "table", &error_));
  dipc_function_message_free(message);
  dipc_function_module_free(module);
}

static void gets_table(const dipc_client *client, const char *uri) {
  struct ArrowDeviceArrayStream stream = get(client, uri, "table");
  CHECK_EQ(table_check_stream(&stream), ALL);
}

/* A client that leaves ends its function in the middle of a step, at `at`, and others go on. */
static void leaves(const dipc_client *client, const char *uri, const char *at) {
  struct ArrowDeviceArrayStream stream;
  struct timespec begin, end;
  char arguments[2 * DIPC_URI_BYTES] = "";
  if (at != uri) snprintf(arguments, sizeof arguments, "%s watched\n", at);
  dipc_function_message *message = message_of("faults.wasm", "endless", arguments);
  dipc_cancel *cancel = NULL;
  OK(dipc_cancel_new(&cancel, &error_));
  OK(dipc_function_get(message, client, &uri, 1, TICKET("watched"), NULL, NULL, cancel, &stream,
                       &error_));
  dipc_function_message_free(message);
  gets_table(client, uri);
  /* The step runs, which nobody hears. */
  sleep_ms(200);
  clock_gettime(CLOCK_MONOTONIC, &begin);
  OK(dipc_cancel_trigger(cancel, &error_));
  stream.release(&stream);
  dipc_cancel_free(cancel);
  /* The server's host says when the table of the function is released. */
  stream = get(client, at, "released");
  CHECK_EQ(table_check_stream(&stream), 1);
  clock_gettime(CLOCK_MONOTONIC, &end);
  CHECK(end.tv_sec - begin.tv_sec < 20);
  gets_table(client, uri);
}

/* A function that goes on elsewhere: the rows of `table` here, and then of the next server. */
static void goes_on(const dipc_client *client, const char *uri, const char *next,
                    const char *unlisted) {
  struct ArrowDeviceArrayStream stream;
  char arguments[4 * DIPC_URI_BYTES];
  dipc_function_message *message;
  snprintf(arguments, sizeof arguments, "%s table\n%s table\n", next, uri);
  message = message_of("faults.wasm", "goes", arguments);
  OK(dipc_function_get(message, client, &uri, 1, TICKET("table"), NULL, NULL, NULL, &stream,
                       &error_));
  for (int64_t part = 0; part < 3; part++) {
    struct ArrowDeviceArray batch;
    for (int64_t rows = 0; rows < ALL; rows += batch.array.length) {
      if (rows > 0) batch.array.release(&batch.array);
      if (stream.get_next(&stream, &batch) != 0) FAIL("%s", stream.get_last_error(&stream));
      CHECK(batch.array.release != NULL);
      table_check(&batch.array, rows, batch.array.length);
    }
    batch.array.release(&batch.array);
  }
  stream.release(&stream);
  dipc_function_message_free(message);

  /* Two hops are the most. */
  snprintf(arguments, sizeof arguments, "%s table\n%s table\n%s table\n", next, uri, next);
  message = message_of("faults.wasm", "goes", arguments);
  OK(dipc_function_get(message, client, &uri, 1, TICKET("table"), NULL, NULL, NULL, &stream,
                       &error_));
  fails_later(&stream, DIPC_ERR_OUT_OF_RESOURCES, "hops to other servers");
  dipc_function_message_free(message);

  /* The next server's own failure, with its name. */
  snprintf(arguments, sizeof arguments, "%s absent\n", next);
  message = message_of("faults.wasm", "goes", arguments);
  OK(dipc_function_get(message, client, &uri, 1, TICKET("table"), NULL, NULL, NULL, &stream,
                       &error_));
  fails_later(&stream, DIPC_ERR_NOT_FOUND, "where the function went on, at ");
  dipc_function_message_free(message);

  snprintf(arguments, sizeof arguments, "%s table\n", unlisted);
  message = message_of("faults.wasm", "goes", arguments);
  OK(dipc_function_get(message, client, &uri, 1, TICKET("table"), NULL, NULL, NULL, &stream,
                       &error_));
  fails_later(&stream, DIPC_ERR_PERMISSION, "does not let functions go on");
  dipc_function_message_free(message);
}

static void keeps_bounds(const dipc_client *client, const char *uri) {
  struct ArrowDeviceArrayStream stream;
  dipc_function_message *message = message_of("faults.wasm", "copies", "");
  OK(dipc_function_get(message, client, &uri, 1, TICKET("table"), NULL, NULL, NULL, &stream,
                       &error_));
  fails_later(&stream, DIPC_ERR_OUT_OF_RESOURCES, "output rows: 5000");
  dipc_function_message_free(message);
  message = message_of("words.wasm", "words", "a b a");
  OK(dipc_function_run(message, client, &uri, 1, NULL, NULL, NULL, &stream, &error_));
  stream.release(&stream);
  dipc_function_message_free(message);
}

static void takes_no_module(const dipc_client *client, const char *uri) {
  dipc_function_module *module = module_of("filter.wasm");
  FAILS(DIPC_ERR_OUT_OF_RESOURCES, "1000 bytes",
        dipc_function_send_module(module, client, &uri, 1, NULL, NULL, NULL, &error_));
  dipc_function_module_free(module);
  OK(dipc_function_module_new((const uint8_t *)"no module", 9, &module, &error_));
  FAILS(DIPC_ERR_INVALID_DATA, "refused",
        dipc_function_send_module(module, client, &uri, 1, NULL, NULL, NULL, &error_));
  dipc_function_module_free(module);
}

static int32_t authorize(void *userdata, dipc_request *request) {
  dipc_headers *headers = NULL;
  char name[32] = "";
  size_t len = 0;
  (void)userdata;
  OK(dipc_request_headers(request, &headers, &error_));
  if (dipc_headers_get(headers, "name", (uint8_t *)name, sizeof name - 1, &len, NULL) == DIPC_OK) {
    OK(dipc_request_set_principal(request, name, &error_));
  }
  dipc_headers_free(headers);
  return 0;
}

/* The caller's own headers go with the module and with the call. */
static void knows_principals(const dipc_client *client) {
  char address[DIPC_URI_BYTES];
  const char *uri = address;
  static const char *const names[] = {"ann", "eve"};
  struct ArrowDeviceArrayStream stream;
  dipc_server_options *options = NULL;
  dipc_functions_policy *policy = new_policy();
  OK(dipc_server_options_new(&options, &error_));
  OK(dipc_server_options_set_authorizer(options, authorize, NULL, NULL, &error_));
  dipc_server *server = new_server(options, address);
  dipc_server_options_free(options);
  OK(dipc_functions_policy_allow_any_module(policy, &error_));
  OK(dipc_functions_policy_allow_principal(policy, "ann", &error_));
  enable(server, policy);

  dipc_function_message *message = message_of("filter.wasm", "keep", "id>9");
  FAILS(DIPC_ERR_PERMISSION, "has no name", try_get(client, uri, message, "table", &error_));
  for (int i = 0; i < 2; i++) {
    dipc_headers *headers = NULL;
    OK(dipc_headers_new(&headers, &error_));
    OK(dipc_headers_add(headers, "name", BYTES(names[i]), &error_));
    FAILS(i ? DIPC_ERR_PERMISSION : DIPC_OK, i ? "does not let \"eve\"" : "",
          dipc_function_get(message, client, &uri, 1, TICKET("table"), NULL, headers, NULL, &stream,
                            &error_));
    if (i == 0) CHECK_EQ(read_rows(&stream, 10), ALL - 10);
    CHECK_EQ(dipc_headers_count(headers), 1);
    dipc_headers_free(headers);
  }
  dipc_function_message_free(message);
  dipc_server_free(server);
}

#define NULLS(name, call) FAILS(DIPC_ERR_NULL_ARGUMENT, name " is NULL", call)

/* NULL for each pointer of each function. */
static void nulls(const dipc_client *client) {
  const char *uri = "shm:@nobody";
  uint8_t bytes[64] = {0};
  char address[DIPC_URI_BYTES];
  struct ArrowDeviceArrayStream stream;
  struct ArrowSchema schema;
  dipc_put *put = NULL;
  dipc_headers *headers = NULL;
  dipc_functions_policy *policy = new_policy();
  dipc_function_module *module = NULL;
  dipc_function_message *message = NULL;
  dipc_server *server = new_server(NULL, address);

  NULLS("out", dipc_functions_policy_new(NULL, &error_));
  NULLS("policy", dipc_functions_policy_allow_module(NULL, bytes, &error_));
  NULLS("hash", dipc_functions_policy_allow_module(policy, NULL, &error_));
  NULLS("policy", dipc_functions_policy_allow_key(NULL, bytes, &error_));
  NULLS("key", dipc_functions_policy_allow_key(policy, NULL, &error_));
  NULLS("policy", dipc_functions_policy_allow_any_module(NULL, &error_));
  NULLS("policy", dipc_functions_policy_allow_principal(NULL, "ann", &error_));
  NULLS("principal", dipc_functions_policy_allow_principal(policy, NULL, &error_));
  NULLS("policy", dipc_functions_policy_allow_peer(NULL, "shm:@one", &error_));
  NULLS("uri", dipc_functions_policy_allow_peer(policy, NULL, &error_));
  NULLS("policy", dipc_functions_policy_set_limit(NULL, DIPC_FUNCTIONS_LIMIT_FUEL, 1, &error_));
  NULLS("policy", dipc_functions_policy_set_folder(NULL, "/tmp", &error_));
  NULLS("folder", dipc_functions_policy_set_folder(policy, NULL, &error_));
  NULLS("policy", dipc_functions_policy_set_code_folder(NULL, "/tmp", &error_));
  NULLS("folder", dipc_functions_policy_set_code_folder(policy, NULL, &error_));
  NULLS("policy", dipc_functions_enable(server, NULL, &error_));
  NULLS("server", dipc_functions_enable(NULL, policy, &error_));
  CHECK_EQ(dipc_functions_enable(server, NULL, NULL), DIPC_ERR_NULL_ARGUMENT);
  CHECK_EQ(dipc_functions_enable(NULL, policy, NULL), DIPC_ERR_NULL_ARGUMENT);
  dipc_functions_policy_free(NULL);

  NULLS("wasm", dipc_function_module_new(NULL, 1, &module, &error_));
  NULLS("out", dipc_function_module_new(bytes, 1, NULL, &error_));
  OK(dipc_function_module_new(NULL, 0, &module, &error_));
  NULLS("module", dipc_function_module_hash(NULL, bytes, &error_));
  NULLS("out", dipc_function_module_hash(module, NULL, &error_));
  NULLS("module", dipc_function_module_set_signature(NULL, bytes, 64, &error_));
  NULLS("signature", dipc_function_module_set_signature(module, NULL, 64, &error_));
  NULLS("module", dipc_function_send_module(NULL, client, &uri, 1, NULL, NULL, NULL, &error_));
  NULLS("client", dipc_function_send_module(module, NULL, &uri, 1, NULL, NULL, NULL, &error_));
  NULLS("uris", dipc_function_send_module(module, client, NULL, 1, NULL, NULL, NULL, &error_));
  dipc_function_module_free(NULL);

  NULLS("module", dipc_function_message_new(NULL, "f", NULL, 0, &message, &error_));
  NULLS("function", dipc_function_message_new(module, NULL, NULL, 0, &message, &error_));
  NULLS("arguments", dipc_function_message_new(module, "f", NULL, 1, &message, &error_));
  NULLS("out", dipc_function_message_new(module, "f", NULL, 0, NULL, &error_));
  OK(dipc_function_message_new(module, "f", NULL, 0, &message, &error_));
  OK(dipc_headers_new(&headers, &error_));
  NULLS("message", dipc_function_message_headers(NULL, true, headers, &error_));
  NULLS("headers", dipc_function_message_headers(message, true, NULL, &error_));
  CHECK_EQ(dipc_headers_count(headers), 0);
  dipc_headers_free(headers);

  NULLS("message", dipc_function_get(NULL, client, &uri, 1, NULL, 0, NULL, NULL, NULL, &stream,
                                     &error_));
  NULLS("client", dipc_function_get(message, NULL, &uri, 1, NULL, 0, NULL, NULL, NULL, &stream,
                                    &error_));
  NULLS("uris", dipc_function_get(message, client, NULL, 1, NULL, 0, NULL, NULL, NULL, &stream,
                                  &error_));
  NULLS("ticket", dipc_function_get(message, client, &uri, 1, NULL, 1, NULL, NULL, NULL, &stream,
                                    &error_));
  NULLS("out", dipc_function_get(message, client, &uri, 1, NULL, 0, NULL, NULL, NULL, NULL,
                                 &error_));
  NULLS("message", dipc_function_run(NULL, client, &uri, 1, NULL, NULL, NULL, &stream, &error_));
  NULLS("client", dipc_function_run(message, NULL, &uri, 1, NULL, NULL, NULL, &stream, &error_));
  NULLS("uris", dipc_function_run(message, client, NULL, 1, NULL, NULL, NULL, &stream, &error_));
  NULLS("out", dipc_function_run(message, client, &uri, 1, NULL, NULL, NULL, NULL, &error_));
  table_stream(&stream, 1, 1, -1, NULL);
  NULLS("message", dipc_function_put(NULL, client, &uri, 1, NULL, 0, NULL, NULL, NULL, &stream,
                                     &put, &error_));
  NULLS("client", dipc_function_put(message, NULL, &uri, 1, NULL, 0, NULL, NULL, NULL, &stream,
                                    &put, &error_));
  NULLS("uris", dipc_function_put(message, client, NULL, 1, NULL, 0, NULL, NULL, NULL, &stream,
                                  &put, &error_));
  NULLS("descriptor", dipc_function_put(message, client, &uri, 1, NULL, 1, NULL, NULL, NULL,
                                        &stream, &put, &error_));
  NULLS("source", dipc_function_put(message, client, &uri, 1, NULL, 0, NULL, NULL, NULL, NULL,
                                    &put, &error_));
  NULLS("out", dipc_function_put(message, client, &uri, 1, NULL, 0, NULL, NULL, NULL, &stream, NULL,
                                 &error_));
  CHECK(put == NULL && stream.release != NULL);
  stream.release(&stream);

  table_schema(&schema);
#define EXCHANGE(message, client, uris, schema, out, answers)                                      \
  dipc_function_exchange(message, client, uris, 1, NULL, NULL, NULL, NULL, schema,                 \
                         ARROW_DEVICE_CPU, out, answers, &error_)
  NULLS("message", EXCHANGE(NULL, client, &uri, &schema, &put, &stream));
  NULLS("client", EXCHANGE(message, NULL, &uri, &schema, &put, &stream));
  NULLS("uris", EXCHANGE(message, client, NULL, &schema, &put, &stream));
  NULLS("schema", EXCHANGE(message, client, &uri, NULL, &put, &stream));
  NULLS("out", EXCHANGE(message, client, &uri, &schema, NULL, &stream));
  NULLS("answers", EXCHANGE(message, client, &uri, &schema, &put, NULL));
  CHECK(put == NULL && schema.release != NULL);
  schema.release(&schema);
  dipc_function_message_free(NULL);
  dipc_function_message_free(message);
  dipc_function_module_free(module);

  FAILS(DIPC_ERR_INVALID_ARGUMENT, "limit is 13",
        dipc_functions_policy_set_limit(policy, 13, 1, &error_));
  bytes[0] = 2; /* No point of the curve has this y. */
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "no public key",
        dipc_functions_policy_allow_key(policy, bytes, &error_));
  OK(dipc_functions_policy_set_folder(policy, "/dev/null/no", &error_));
  FAILS(DIPC_ERR_IO, "/dev/null/no", dipc_functions_enable(server, policy, &error_));
  dipc_functions_policy_free(policy);
  dipc_server_free(server);
}

int main(int count, char **arguments) {
  set_folders(count, arguments);
  forked_server listed = fork_server(offer_listed), nothing = fork_server(offer_nothing),
                with_key = fork_server(offer_signed), little = fork_server(offer_little),
                tiny = fork_server(offer_tiny_modules), onward = fork_server(offer_onward),
                further = fork_server(offer_onward);
  dipc_client *client = new_client();
  polls(client, listed.uris[0]);
  for (int i = 0; i < 3; i++) {
    const char *uri = uri_of(&listed, i);
    if (uri == NULL) continue;
    gets(client, uri);
    puts_through(client, uri);
    exchanges(client, uri);
    runs_alone(client, uri);
    fails(client, uri);
    leaves(client, uri, uri);
    leaves(client, onward.uris[i], further.uris[i]);
    goes_on(client, onward.uris[i], further.uris[i], "shm:@elsewhere");
    forbids(client, nothing.uris[i]);
  }
  wants_signatures(client, with_key.uris[0]);
  keeps_bounds(client, little.uris[0]);
  takes_no_module(client, tiny.uris[0]);
  knows_principals(client);
  nulls(client);
  dipc_client_free(client);
  /* The last first: each has the ends of the pipes that were there when it was forked. */
  end_server(&further);
  end_server(&onward);
  end_server(&tiny);
  end_server(&little);
  end_server(&with_key);
  end_server(&nothing);
  end_server(&listed);
  return 0;
}
