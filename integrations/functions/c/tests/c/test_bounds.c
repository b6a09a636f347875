/* The bounds of a policy: each ends its own request with a text that names it, and its server goes
 * on. The arguments are those of modules.h. */
#include <dirent.h>

#include "modules.h"

/* A server in this process whose policy has one bound. */
static dipc_server *bounded(int32_t limit, uint64_t value, const char *kept, char *uri) {
  dipc_functions_policy *policy = new_policy();
  dipc_server *server = new_server(NULL, uri);
  OK(dipc_functions_policy_allow_any_module(policy, &error_));
  OK(dipc_functions_policy_set_limit(policy, limit, value, &error_));
  if (kept != NULL) OK(dipc_functions_policy_set_folder(policy, kept, &error_));
  OK(dipc_functions_enable(server, policy, &error_));
  dipc_functions_policy_free(policy);
  publish(server, "table", 2, 10, NULL);
  return server;
}

static int64_t rows_of(struct ArrowDeviceArrayStream *stream) {
  struct ArrowDeviceArray batch;
  int64_t rows = 0;
  for (;;) {
    if (stream->get_next(stream, &batch) != 0) FAIL("%s", stream->get_last_error(stream));
    if (batch.array.release == NULL) break;
    rows += batch.array.length;
    batch.array.release(&batch.array);
  }
  stream->release(stream);
  return rows;
}

/* A call within the bounds, and a request without a function. */
static void still_answers(const dipc_client *client, const char *uri) {
  struct ArrowDeviceArrayStream stream;
  dipc_function_message *message = message_of("numbers.wasm", "range", "10");
  OK(dipc_function_run(message, client, &uri, 1, NULL, NULL, NULL, &stream, &error_));
  CHECK_EQ(rows_of(&stream), 10);
  dipc_function_message_free(message);
  stream = get(client, uri, "table");
  CHECK_EQ(table_check_stream(&stream), 20);
}

/* Bounds of one call. Those modules that are not in MODULES are in FOLDER. */
static void calls_are_bounded(const dipc_client *client) {
  static const struct {
    int32_t limit;
    uint64_t value;
    const char *module, *arguments, *part;
  } cases[] = {
      {DIPC_FUNCTIONS_LIMIT_FUEL, 10 << 20, "spins.wasm", "", "fuel: 10485760"},
      {DIPC_FUNCTIONS_LIMIT_TIME_NS, SECOND / 2, "spins.wasm", "", "time in milliseconds: 500"},
      {DIPC_FUNCTIONS_LIMIT_MEMORY_BYTES, 4 << 20, "grows.wasm", "", "memory in bytes: 4194304"},
      {DIPC_FUNCTIONS_LIMIT_OUTPUT_ROWS, 5000, "numbers.wasm", "10000", "output rows: 5000"},
      {DIPC_FUNCTIONS_LIMIT_OUTPUT_BYTES, 50000, "numbers.wasm", "10000", "output bytes: 50000"},
      {DIPC_FUNCTIONS_LIMIT_STEP_BYTES, 50000, "numbers.wasm", "10000",
       "output bytes of one step: 50000"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct ArrowDeviceArrayStream stream;
    char address[DIPC_URI_BYTES];
    const char *uri = address;
    const bool is_example = strcmp(cases[i].module, "numbers.wasm") == 0;
    dipc_server *server = bounded(cases[i].limit, cases[i].value, NULL, address);
    dipc_function_message *message = message_in(is_example ? modules : folder, cases[i].module,
                                                "range", cases[i].arguments);
    OK(dipc_function_run(message, client, &uri, 1, NULL, NULL, NULL, &stream, &error_));
    fails_later(&stream, DIPC_ERR_OUT_OF_RESOURCES, cases[i].part);
    dipc_function_message_free(message);
    still_answers(client, uri);
    dipc_server_free(server);
  }
}

/* What a server says to a request that does not send the module. */
static bool has_module(const dipc_client *client, const char *uri,
                       const dipc_function_message *message) {
  struct ArrowDeviceArrayStream stream;
  dipc_headers *headers = NULL;
  dipc_get_options *options = NULL;
  dipc_error *error = NULL;
  OK(dipc_headers_new(&headers, &error_));
  OK(dipc_function_message_headers(message, true, headers, &error_));
  OK(dipc_get_options_new(&options, &error_));
  OK(dipc_get_options_set_headers(options, headers, &error_));
  const dipc_status status =
      dipc_client_get(client, &uri, 1, NULL, 0, options, NULL, &stream, &error);
  if (status == DIPC_OK) stream.release(&stream);
  else CHECK_EQ(status, DIPC_ERR_NOT_FOUND);
  dipc_error_free(error);
  dipc_get_options_free(options);
  dipc_headers_free(headers);
  return status == DIPC_OK;
}

static void runs(const dipc_client *client, const char *uri, const dipc_function_message *message) {
  struct ArrowDeviceArrayStream stream;
  OK(dipc_function_run(message, client, &uri, 1, NULL, NULL, NULL, &stream, &error_));
  CHECK_EQ(rows_of(&stream), 1);
}

/* There is room for one of the two, whose code takes about 2 MiB each, and not for both. A module
 * beyond the bound takes the place of the one that was not used for longest; a message sends it
 * again. */
static void modules_make_way(const dipc_client *client, int32_t limit, uint64_t value) {
  char address[DIPC_URI_BYTES];
  dipc_server *server = bounded(limit, value, NULL, address);
  dipc_function_message *numbers = message_of("numbers.wasm", "range", "1"),
                        *words = message_of("words.wasm", "words", "a");
  for (int i = 0; i < 2; i++) {
    runs(client, address, numbers);
    runs(client, address, words);
    CHECK(has_module(client, address, words));
    CHECK(!has_module(client, address, numbers));
  }
  dipc_function_message_free(words);
  dipc_function_message_free(numbers);
  still_answers(client, address);
  dipc_server_free(server);
}

static void a_module_is_bounded(const dipc_client *client) {
  char address[DIPC_URI_BYTES];
  const char *uri = address;
  dipc_server *server = bounded(DIPC_FUNCTIONS_LIMIT_MODULE_BYTES, 1000, NULL, address);
  dipc_function_module *module = module_of("filter.wasm");
  FAILS(DIPC_ERR_OUT_OF_RESOURCES, "the module has more than 1000 bytes",
        dipc_function_send_module(module, client, &uri, 1, NULL, NULL, NULL, &error_));
  dipc_function_module_free(module);
  /* This one has less. */
  module = module_in(folder, "spins.wasm");
  OK(dipc_function_send_module(module, client, &uri, 1, NULL, NULL, NULL, &error_));
  dipc_function_module_free(module);
  dipc_server_free(server);
}

static int count_files(const char *path) {
  int count = 0;
  DIR *listing = opendir(path);
  CHECK(listing != NULL);
  for (struct dirent *entry; (entry = readdir(listing)) != NULL;) {
    count += strstr(entry->d_name, ".wasm") != NULL;
  }
  closedir(listing);
  return count;
}

/* The folder has room for one of the two. */
static void a_folder_is_bounded(const dipc_client *client) {
  char address[DIPC_URI_BYTES], kept[4096];
  snprintf(kept, sizeof kept, "%s/kept", folder);
  dipc_server *server = bounded(DIPC_FUNCTIONS_LIMIT_FOLDER_BYTES, 600000, kept, address);
  dipc_function_message *numbers = message_of("numbers.wasm", "range", "1"),
                        *words = message_of("words.wasm", "words", "a");
  runs(client, address, numbers);
  runs(client, address, words);
  CHECK_EQ(count_files(kept), 1);
  dipc_function_message_free(words);
  dipc_function_message_free(numbers);
  still_answers(client, address);
  dipc_server_free(server);
}

int main(int count, char **arguments) {
  set_folders(count, arguments);
  dipc_client *client = new_client();
  calls_are_bounded(client);
  a_module_is_bounded(client);
  modules_make_way(client, DIPC_FUNCTIONS_LIMIT_MODULES, 1);
  modules_make_way(client, DIPC_FUNCTIONS_LIMIT_MODULES_BYTES, 3 << 20);
  a_folder_is_bounded(client);
  dipc_client_free(client);
  table_wait_live(0);
  return 0;
}
