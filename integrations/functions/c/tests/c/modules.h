/* Modules, and servers that run them.
 *
 *   PROGRAM MODULES FOLDER     MODULES has the modules of tools/build-functions.sh; FOLDER has what
 *                              c.rs has written, and compiled code goes there */
#ifndef DIPC_FUNCTIONS_TESTS_MODULES_H
#define DIPC_FUNCTIONS_TESTS_MODULES_H

#include <dipc_functions.h>

#include "util.h"

#define BYTES(text) (const uint8_t *)(text), strlen(text)

typedef struct {
  uint8_t bytes[1 << 22];
  size_t len;
} file;

static const char *modules, *folder;

static inline void set_folders(int count, char **arguments) {
  CHECK_EQ(count, 3);
  modules = arguments[1];
  folder = arguments[2];
}

static inline void read_file(const char *from, const char *name, file *out) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", from, name);
  FILE *stream = fopen(path, "rb");
  if (stream == NULL) FAIL("cannot open %s", path);
  out->len = fread(out->bytes, 1, sizeof out->bytes, stream);
  CHECK(feof(stream));
  fclose(stream);
}

static inline dipc_function_module *module_in(const char *from, const char *name) {
  static file wasm;
  dipc_function_module *module = NULL;
  read_file(from, name, &wasm);
  OK(dipc_function_module_new(wasm.bytes, wasm.len, &module, &error_));
  return module;
}

static inline dipc_function_module *module_of(const char *name) {
  return module_in(modules, name);
}

static inline dipc_function_message *message_in(const char *from, const char *name,
                                                const char *function, const char *arguments) {
  dipc_function_module *module = module_in(from, name);
  dipc_function_message *message = NULL;
  OK(dipc_function_message_new(module, function, BYTES(arguments), &message, &error_));
  dipc_function_module_free(module);
  return message;
}

static inline dipc_function_message *message_of(const char *name, const char *function,
                                                const char *arguments) {
  return message_in(modules, name, function, arguments);
}

/* The servers share compiled code: a compiler that is not optimised is slow. */
static inline dipc_functions_policy *new_policy(void) {
  dipc_functions_policy *policy = NULL;
  char path[4096];
  snprintf(path, sizeof path, "%s/code", folder);
  OK(dipc_functions_policy_new(&policy, &error_));
  OK(dipc_functions_policy_set_code_folder(policy, path, &error_));
  return policy;
}

/* The stream fails with a status and a text after its schema. */
static inline void fails_later(struct ArrowDeviceArrayStream *stream, dipc_status status,
                               const char *part) {
  struct ArrowDeviceArray batch;
  for (;;) {
    if (stream->get_next(stream, &batch) != 0) break;
    if (batch.array.release == NULL) FAIL("the stream ended well");
    batch.array.release(&batch.array);
  }
  FAILS(status, part, dipc_stream_status(stream, &error_));
  stream->release(stream);
}

#endif
