/* What the Python package cannot do in Python: callbacks that C calls, and finalizers.
 *
 * A callback made by ctypes must not run while an exception is on its way (it would lose it), and that
 * is when capsules and arrays are often destroyed; nor may it run on a thread of the library's when the
 * interpreter is ending. So whatever C calls back is here. And a finalizer in Python must not run on the
 * main thread: a signal's handler that raises in there, as Ctrl-C does, is lost. So what dies with an object
 * is freed by a capsule's destructor, which runs no Python. The file knows nothing of Python's headers or
 * version: the few functions that it needs come from dipc_python_init().
 */
#ifndef DIPC_PYTHON_NATIVE_H
#define DIPC_PYTHON_NATIVE_H

#include <dipc.h>

#define EXPORT __attribute__((visibility("default")))

/* Functions of the interpreter and of libdipc, by address. */
typedef struct {
  const char *(*capsule_name)(void *capsule);
  void *(*capsule_pointer)(void *capsule, const char *name);
  dipc_status (*start)(const dipc_request *, const struct ArrowSchema *, int32_t, dipc_error **);
  dipc_status (*push)(const dipc_request *, struct ArrowDeviceArray *, const uint8_t *, size_t, uint64_t,
                      dipc_error **);
  dipc_status (*finish)(const dipc_request *, uint64_t, dipc_error **);
  bool (*is_complete)(const dipc_request *);
  dipc_status (*dealloc)(const dipc_arena *, void *, dipc_error **);
  void *(*save_thread)(void);
  void (*restore_thread)(void *);
} dipc_python_functions;

/* Called once, before anything else. */
EXPORT void dipc_python_init(const dipc_python_functions *functions);

/* Memory for a struct that a capsule will own; NULL if there is none. Freed by the capsule's
 * destructor below, after releasing the struct if nobody took it. */
EXPORT void *dipc_python_new(size_t len_bytes);
EXPORT void dipc_python_destroy(void *capsule);

/* Memory for a capsule that owns `pointer`; NULL if there is none. `pointer` is freed by `release`,
 * once: by dipc_python_free(), or by the capsule's destructor, which does so in the process that
 * made it only, and lets go of the GIL for it if `waits`. */
typedef struct dipc_python_owner dipc_python_owner;
typedef void (*dipc_python_release)(void *pointer);
EXPORT dipc_python_owner *dipc_python_own(void *pointer, dipc_python_release release, bool waits);
EXPORT void dipc_python_free(dipc_python_owner *owner);
EXPORT void dipc_python_disown(void *capsule);

/* For dipc_python_own(): a block of an arena; and a number, which is written to a descriptor whose other end a
 * thread reads that does in Python what is to be done. */
EXPORT void dipc_python_dealloc(void *block);
EXPORT void dipc_python_tell(void *number);
EXPORT void dipc_python_tell_to(int fd);

/* For dipc_log_set(): each writes one packet to the socket whose descriptor is `socket`. That of an event is its
 * level, target, a NUL and the text; that of the end is a NUL. The socket may be full: the log's own thread waits. */
EXPORT void dipc_python_log_event(void *socket, int32_t level, const char *target, const char *text);
EXPORT void dipc_python_log_ended(void *socket);

/* A schema or array that is given to several consumers. `source` is moved on success; each give() fills
 * an independent struct that shares its memory, whose children may be moved as Arrow allows; the source
 * is released when the last of them and the holder's own hold are gone. */
typedef struct dipc_python_shared dipc_python_shared;
EXPORT dipc_python_shared *dipc_python_share_schema(struct ArrowSchema *source);
EXPORT dipc_python_shared *dipc_python_share_array(struct ArrowDeviceArray *source);
EXPORT bool dipc_python_give_schema(dipc_python_shared *shared, struct ArrowSchema *out);
EXPORT bool dipc_python_give_array(dipc_python_shared *shared, struct ArrowDeviceArray *out);
EXPORT void dipc_python_drop(dipc_python_shared *shared);

/* A tensor of DLPack over a column, in the memory of one struct. */
typedef struct {
  void *data;
  int32_t device_type, device_id;
  uint8_t type_code, type_bits;
} dipc_python_tensor;

/* A PyCapsule's pointer for `tensor`, of one dimension with `length` elements, which owns `column` (moved; NULL if
 * memory runs out, and the caller then keeps it). It is a DLManagedTensorVersioned if `versioned`, which says that
 * the memory is read-only, and otherwise a DLManagedTensor. If `copied` it owns a copy of host memory, and `column`
 * is released at once. The destructor of its capsule ends it if no consumer took it. */
EXPORT void *dipc_python_dlpack(const dipc_python_tensor *tensor, int64_t length, struct ArrowDeviceArray *column,
                                bool versioned, bool copied);
EXPORT void dipc_python_undlpack(void *capsule);

/* Moves a stream. In one call, between whose halves no signal's handler can run. */
EXPORT void dipc_python_move_stream(struct ArrowDeviceArrayStream *source,
                                    struct ArrowDeviceArrayStream *out);

/* Fills `out` with a stream that reads `source`, one of host memory, which the caller keeps: releasing `out`
 * leaves it as it is. `out` must not be read once `source` is released. What the caller puts into `slot`, if
 * there is one, `out` gives before the next batch of `source`. False if memory runs out. */
EXPORT bool dipc_python_lend_stream(struct ArrowDeviceArrayStream *source, struct ArrowDeviceArray *slot,
                                    struct ArrowArrayStream *out);

/* Sends a stream from schema to end. All in one call, since between two of them the interpreter
 * would be needed, which a client in this process may hold while it waits. Gives 0 at the end; 1 if
 * the stream failed; 2 if sending failed, with the status in *out_status and `error` for
 * dipc_error_free(). */
EXPORT int dipc_python_send(const dipc_request *request, const struct ArrowSchema *schema,
                            struct ArrowDeviceArrayStream *stream, int32_t *out_status, dipc_error **error);

#endif
