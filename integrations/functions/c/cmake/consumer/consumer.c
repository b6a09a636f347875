/* A server that runs functions, and a client that calls one.
 *
 *   consumer ADDRESS words.wasm     the module of examples/words.rs */
#include <dipc_functions.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static dipc_error *error = NULL;

static void check(dipc_status status) {
  if (status == DIPC_OK) return;
  fprintf(stderr, "%s\n", dipc_error_text(error));
  exit(1);
}

static dipc_function_module *read_module(const char *path) {
  dipc_function_module *module = NULL;
  uint8_t *bytes = (uint8_t *)malloc(1 << 22);
  FILE *file = fopen(path, "rb");
  if (bytes == NULL || file == NULL) {
    perror(path);
    exit(1);
  }
  check(dipc_function_module_new(bytes, fread(bytes, 1, 1 << 22, file), &module, &error));
  fclose(file);
  free(bytes);
  return module;
}

/* Lets clients run this module. */
static void enable(const dipc_server *server, const dipc_function_module *module) {
  uint8_t hash[32];
  dipc_functions_policy *policy = NULL;
  check(dipc_functions_policy_new(&policy, &error));
  check(dipc_function_module_hash(module, hash, &error));
  check(dipc_functions_policy_allow_module(policy, hash, &error));
  check(dipc_functions_enable(server, policy, &error));
  dipc_functions_policy_free(policy);
}

/* Prints what the function `reverse` makes of a text; 0 if that is `expected`. */
static int reverse(const dipc_function_module *module, const char *uri, const char *text,
                   const char *expected) {
  dipc_client *client = NULL;
  dipc_function_message *message = NULL;
  struct ArrowDeviceArrayStream stream;
  struct ArrowDeviceArray batch;
  check(dipc_client_new(NULL, &client, &error));
  check(dipc_function_message_new(module, "reverse", (const uint8_t *)text, strlen(text), &message,
                                  &error));
  check(dipc_function_run(message, client, &uri, 1, NULL, NULL, NULL, &stream, &error));
  if (stream.get_next(&stream, &batch) != 0 || batch.array.release == NULL) {
    fprintf(stderr, "%s\n", stream.get_last_error(&stream));
    return 1;
  }
  const char *bytes = (const char *)batch.array.children[0]->buffers[2];
  const int differs = strncmp(bytes, expected, strlen(expected));
  printf("%.*s\n", (int)strlen(text), bytes);
  batch.array.release(&batch.array);
  stream.release(&stream);
  dipc_function_message_free(message);
  dipc_client_free(client);
  return differs != 0;
}

int main(int count, char **arguments) {
  char uri[DIPC_URI_BYTES];
  size_t len = 0;
  dipc_server *server = NULL;
  if (count != 3) {
    fprintf(stderr, "usage: %s ADDRESS words.wasm\n", arguments[0]);
    return 2;
  }
  dipc_function_module *module = read_module(arguments[2]);
  check(dipc_server_new(NULL, &server, &error));
  enable(server, module);
  check(dipc_server_listen(server, arguments[1], uri, sizeof uri, &len, &error));
  const int result = reverse(module, uri, "stream", "maerts");
  dipc_server_free(server);
  dipc_function_module_free(module);
  return result;
}
