#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>

#include "_cgo_export.h"

const int64_t dipcgo_nothing = 0;

const char *dipcgo_library_path(void) {
  Dl_info info;
  if (!dladdr((void *)dipc_version, &info)) return NULL;
  return info.dli_fname;
}

/* Descriptors. */

int dipcgo_fd_copy(int fd) {
  const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  /* Go's runtime watches a descriptor that has this flag. The library waits by poll() alone. */
  if (copy >= 0) fcntl(copy, F_SETFL, fcntl(copy, F_GETFL) | O_NONBLOCK);
  return copy;
}

_Bool dipcgo_fd_readable(int fd) {
  struct pollfd polled = {.fd = fd, .events = POLLIN};
  return poll(&polled, 1, 0) > 0;
}

/* Streams of the library's. */

static dipc_status stream_failure(struct ArrowDeviceArrayStream *stream, dipc_error **error) {
  const dipc_status status = dipc_stream_status(stream, error);
  return status < DIPC_OK ? status : DIPC_ERR_IO;
}

dipc_status dipcgo_stream_next(struct ArrowDeviceArrayStream *stream, struct ArrowDeviceArray *out,
                               size_t *out_metadata_bytes, dipc_error **error) {
  *out_metadata_bytes = 0;
  dipc_status status = dipc_stream_try_next(stream, out, NULL);
  /* A stream that copies between devices waits. */
  if (status == DIPC_ERR_UNSUPPORTED) status = stream->get_next(stream, out) == 0 ? DIPC_OK : status;
  if (status == DIPC_NOTHING) return status;
  if (status != DIPC_OK) return stream_failure(stream, error);
  if (out->array.release != NULL) dipc_stream_metadata(stream, NULL, 0, out_metadata_bytes, NULL);
  return DIPC_OK;
}

dipc_status dipcgo_stream_schema(struct ArrowDeviceArrayStream *stream, struct ArrowSchema *out,
                                 dipc_error **error) {
  return stream->get_schema(stream, out) == 0 ? DIPC_OK : stream_failure(stream, error);
}

_Bool dipcgo_answer_schema(struct ArrowDeviceArrayStream *answer, struct ArrowSchema *out) {
  return answer->get_schema(answer, out) == 0;
}

_Bool dipcgo_answer_next(struct ArrowDeviceArrayStream *answer, struct ArrowDeviceArray *out) {
  return answer->get_next(answer, out) == 0 && out->array.release != NULL;
}

void dipcgo_stream_free(struct ArrowDeviceArrayStream *stream) {
  if (stream == NULL) return;
  if (stream->release != NULL) stream->release(stream);
  free(stream);
}

void dipcgo_schema_release(struct ArrowSchema *schema) {
  if (schema->release != NULL) schema->release(schema);
}

void dipcgo_array_release(struct ArrowArray *array) {
  if (array->release != NULL) array->release(array);
}

/* Callbacks: the library's userdata is the number of a Go handle. */

static int32_t provide(void *userdata, dipc_request *request, struct ArrowDeviceArrayStream *out) {
  return dipcgoProvide((uintptr_t)userdata, request, out);
}

static void forget(void *userdata) { dipcgoForget((uintptr_t)userdata); }

dipc_status dipcgo_server_serve(const dipc_server *server, const uint8_t *ticket,
                                size_t ticket_len_bytes, uintptr_t service, uint32_t flags,
                                dipc_error **error) {
  return dipc_server_serve(server, ticket, ticket_len_bytes, provide, (void *)service, forget, flags,
                           error);
}

dipc_status dipcgo_server_set_handler(const dipc_server *server, uintptr_t service, uint32_t flags,
                                      dipc_error **error) {
  if (service == 0) return dipc_server_set_handler(server, NULL, NULL, NULL, 0, error);
  return dipc_server_set_handler(server, provide, (void *)service, forget, flags, error);
}

static int32_t authorize(void *userdata, dipc_request *request) {
  return dipcgoAuthorize((uintptr_t)userdata, request);
}

dipc_status dipcgo_server_options_set_authorizer(dipc_server_options *options, uintptr_t authorizer,
                                                 dipc_error **error) {
  return dipc_server_options_set_authorizer(options, authorize, (void *)authorizer, forget, error);
}

static void take_log(void *userdata, int32_t level, const char *target, const char *text) {
  dipcgoLog((uintptr_t)userdata, level, (char *)target, (char *)text);
}

dipc_status dipcgo_log_set(int32_t level, uintptr_t logger, dipc_error **error) {
  if (logger == 0) return dipc_log_set(level, NULL, NULL, NULL, error);
  return dipc_log_set(level, take_log, (void *)logger, forget, error);
}

/* Streams of Go's. Outputs are cleared first: Go may not store into memory whose old content only
 * looks like pointers. */

static int produce_schema(struct ArrowDeviceArrayStream *stream, struct ArrowSchema *out) {
  memset(out, 0, sizeof *out);
  return dipcgoProduceSchema((uintptr_t)stream->private_data, out);
}

static int produce_next(struct ArrowDeviceArrayStream *stream, struct ArrowDeviceArray *out) {
  memset(out, 0, sizeof *out);
  return dipcgoProduceNext((uintptr_t)stream->private_data, out);
}

/* dipc_request_fail() gives the text. */
static const char *produce_error(struct ArrowDeviceArrayStream *stream) {
  (void)stream;
  return NULL;
}

static void produce_end(struct ArrowDeviceArrayStream *stream) {
  dipcgoProduceEnd((uintptr_t)stream->private_data);
  stream->release = NULL;
}

void dipcgo_stream_fill(struct ArrowDeviceArrayStream *out, uintptr_t producer) {
  *out = (struct ArrowDeviceArrayStream){
      .device_type = ARROW_DEVICE_CPU,
      .get_schema = produce_schema,
      .get_next = produce_next,
      .get_last_error = produce_error,
      .release = produce_end,
      .private_data = (void *)producer,
  };
}

/* Arrays of Go's. */

typedef struct {
  atomic_size_t live; /* arrays that are not released */
  uintptr_t hold;
} owner;

static void array_release(struct ArrowArray *array) {
  for (int64_t i = 0; i < array->n_children; i++) dipcgo_array_release(array->children[i]);
  if (array->dictionary != NULL) dipcgo_array_release(array->dictionary);
  owner *o = array->private_data;
  array->release = NULL;
  if (atomic_fetch_sub(&o->live, 1) == 1) {
    const uintptr_t hold = o->hold;
    free(o); /* array may lie in it */
    dipcgoUnhold(hold);
  }
}

_Bool dipcgo_block_new(size_t n_arrays, size_t n_children, size_t n_buffers, size_t n_sizes,
                       dipcgo_block *out) {
  char *memory = calloc(1, sizeof(owner) + n_arrays * sizeof *out->arrays +
                               n_children * sizeof *out->children + n_buffers * sizeof *out->buffers +
                               n_sizes * sizeof *out->sizes);
  if (memory == NULL) return 0;
  memory += sizeof(owner);
  out->arrays = (struct ArrowArray *)memory;
  memory += n_arrays * sizeof *out->arrays;
  out->children = (struct ArrowArray **)memory;
  memory += n_children * sizeof *out->children;
  out->buffers = (const void **)memory;
  memory += n_buffers * sizeof *out->buffers;
  out->sizes = (int64_t *)memory;
  return 1;
}

static owner *block_owner(const dipcgo_block *block) {
  return (owner *)((char *)block->arrays - sizeof(owner));
}

void dipcgo_block_free(dipcgo_block *block) { free(block_owner(block)); }

void dipcgo_block_finish(dipcgo_block *block, size_t n_arrays, uintptr_t hold, struct ArrowArray *out) {
  owner *o = block_owner(block);
  o->hold = hold;
  atomic_init(&o->live, n_arrays);
  for (size_t i = 0; i < n_arrays; i++) {
    block->arrays[i].private_data = o;
    block->arrays[i].release = array_release;
  }
  *out = block->arrays[0];
}
