/* The setup of most tests: a server at a new address, a client, and time. */
#ifndef DIPC_TESTS_UTIL_H
#define DIPC_TESTS_UTIL_H

#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "table.h"

#define SECOND UINT64_C(1000000000)

static inline void sleep_ms(long ms) {
  nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* Makes a server that listens at an abstract address, and writes its URI. */
static inline dipc_server *new_server(const dipc_server_options *options,
                                      char uri[DIPC_URI_BYTES]) {
  static int count;
  char address[64];
  snprintf(address, sizeof address, "shm:@dipc-c-test-%ld-%d", (long)getpid(), count++);
  dipc_server *server = NULL;
  OK(dipc_server_new(options, &server, &error_));
  size_t len = 0;
  OK(dipc_server_listen(server, address, uri, DIPC_URI_BYTES, &len, &error_));
  CHECK_EQ(len, strlen(uri));
  CHECK(strncmp(uri, address, strlen(address)) == 0);
  return server;
}

/* Memory of a new arena, which is the context. */
static inline void *arena_alloc(void *context, size_t len) {
  void *block = NULL;
  OK(dipc_arena_alloc(context, len, &block, &error_));
  CHECK((uintptr_t)block % 64 == 0);
  return block;
}

static inline void arena_dealloc(void *context, void *block) {
  OK(dipc_arena_dealloc(context, block, &error_));
}

static inline table_memory arena_memory(void) {
  dipc_arena *arena = NULL;
  OK(dipc_arena_new(ARROW_DEVICE_CPU, 0, NULL, &arena, &error_));
  return (table_memory){arena_alloc, arena_dealloc, arena};
}

/* Whether this machine has a CUDA driver. */
static inline bool has_driver(void) {
  void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver == NULL) return false;
  dlclose(driver);
  return true;
}

static inline dipc_client *new_client(void) {
  dipc_client *client = NULL;
  OK(dipc_client_new(NULL, &client, &error_));
  return client;
}

/* Until a request of an event loop has its answer. */
static inline void wait_until_readable(const dipc_pending *pending) {
  struct pollfd polled = {-1, POLLIN, 0};
  OK(dipc_pending_fd(pending, &polled.fd, &error_));
  CHECK_EQ(poll(&polled, 1, 30000), 1);
}

/* Gets a ticket, with the defaults. */
static inline struct ArrowDeviceArrayStream get(const dipc_client *client, const char *uri,
                                                const char *ticket) {
  struct ArrowDeviceArrayStream stream;
  OK(dipc_client_get(client, &uri, 1, (const uint8_t *)ticket, strlen(ticket), NULL, NULL, &stream,
                     &error_));
  CHECK(stream.release != NULL);
  CHECK_EQ(stream.device_type, ARROW_DEVICE_CPU);
  return stream;
}

/* Publishes `batches` batches of `rows` rows. */
static inline void publish(const dipc_server *server, const char *ticket, int64_t batches,
                           int64_t rows, const table_memory *memory) {
  struct ArrowSchema schema;
  table_schema(&schema);
  struct ArrowDeviceArray *arrays = calloc((size_t)batches + 1, sizeof *arrays);
  for (int64_t i = 0; i < batches; i++) table_batch(&arrays[i], i * rows, rows, memory);
  OK(dipc_server_publish(server, (const uint8_t *)ticket, strlen(ticket), &schema, arrays,
                         (size_t)batches, &error_));
  CHECK(schema.release == NULL);
  for (int64_t i = 0; i < batches; i++) CHECK(arrays[i].array.release == NULL);
  free(arrays);
}

static inline uint64_t server_stat(const dipc_server *server, int32_t stat) {
  uint64_t value = UINT64_MAX;
  OK(dipc_server_stat(server, stat, &value, &error_));
  return value;
}

static inline uint64_t stream_stat(const struct ArrowDeviceArrayStream *stream, int32_t stat) {
  uint64_t value = UINT64_MAX;
  OK(dipc_stream_stat(stream, stat, &value, &error_));
  return value;
}

#endif
