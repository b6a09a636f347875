/* What cgo cannot say itself: calls through function pointers, callbacks, and memory whose layout
 * C keeps. Private to the package. */
#ifndef DIPC_GO_SHIM_H
#define DIPC_GO_SHIM_H

#include <dipc.h>
#include <stdlib.h>

/* The file that the library was loaded from, or NULL; valid for the life of the process. */
const char *dipcgo_library_path(void);

/* A copy of a descriptor, for Go's runtime to watch; -1 and errno if there is none. */
int dipcgo_fd_copy(int fd);

/* Whether a descriptor is readable now. */
_Bool dipcgo_fd_readable(int fd);

/* The next batch of a stream of dipc_client_get() if it is there, and the length of its custom
 * metadata; DIPC_NOTHING where it is not. At the end out is a released array. A failure comes with
 * the details of dipc_stream_status(). */
dipc_status dipcgo_stream_next(struct ArrowDeviceArrayStream *stream, struct ArrowDeviceArray *out,
                               size_t *out_metadata_bytes, dipc_error **error);

/* The schema of a stream, with the same failures. */
dipc_status dipcgo_stream_schema(struct ArrowDeviceArrayStream *stream, struct ArrowSchema *out,
                                 dipc_error **error);

/* The schema of the answer of dipc_description_to_stream(), and its next batch; false at the end. */
_Bool dipcgo_answer_schema(struct ArrowDeviceArrayStream *answer, struct ArrowSchema *out);
_Bool dipcgo_answer_next(struct ArrowDeviceArrayStream *answer, struct ArrowDeviceArray *out);

/* Release what is not released, and its memory if it came from calloc. NULL does nothing. */
void dipcgo_stream_free(struct ArrowDeviceArrayStream *stream);
void dipcgo_schema_release(struct ArrowSchema *schema);
void dipcgo_array_release(struct ArrowArray *array);

/* dipc_server_serve() with the Go handle of a service, which the library gives back. */
dipc_status dipcgo_server_serve(const dipc_server *server, const uint8_t *ticket,
                                size_t ticket_len_bytes, uintptr_t service, uint32_t flags,
                                dipc_error **error);

/* dipc_server_set_handler() with such a handle; 0 takes the handler away. */
dipc_status dipcgo_server_set_handler(const dipc_server *server, uintptr_t service, uint32_t flags,
                                      dipc_error **error);

/* dipc_server_options_set_authorizer() with the Go handle of an authorizer, which the library gives
 * back. */
dipc_status dipcgo_server_options_set_authorizer(dipc_server_options *options, uintptr_t authorizer,
                                                 dipc_error **error);

/* dipc_log_set() with the Go handle of a logger; 0 stops the log. */
dipc_status dipcgo_log_set(int32_t level, uintptr_t logger, dipc_error **error);

/* Fills a stream of host memory that asks the Go handle of a producer, and lets go of it when it is
 * released. */
void dipcgo_stream_fill(struct ArrowDeviceArrayStream *out, uintptr_t producer);

/* One block of memory for the structs of an array and all that is below it. Go fills it in.
 *
 * Each array's release marks it released and lets go of its part of the block; the last one gives
 * the block back, and the Go handle of what holds the buffers. */
typedef struct dipcgo_block {
  struct ArrowArray *arrays;   /* n_arrays, all released: [0] is the root */
  struct ArrowArray **children; /* n_children pointers */
  const void **buffers;         /* n_buffers pointers */
  int64_t *sizes;               /* n_sizes numbers */
} dipcgo_block;

/* Everything zero; false if there is no memory. */
_Bool dipcgo_block_new(size_t n_arrays, size_t n_children, size_t n_buffers, size_t n_sizes,
                       dipcgo_block *out);

/* Frees a block that is not finished. */
void dipcgo_block_free(dipcgo_block *block);

/* Makes the arrays of a filled block live, and moves the root out. */
void dipcgo_block_finish(dipcgo_block *block, size_t n_arrays, uintptr_t hold, struct ArrowArray *out);

/* Eight zero bytes, for buffers that have no bytes: some readers refuse NULL. */
extern const int64_t dipcgo_nothing;

#endif
