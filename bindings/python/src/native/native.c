#include "native.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static dipc_python_functions functions_;

void dipc_python_init(const dipc_python_functions *functions) { functions_ = *functions; }

/* Capsules. */

void *dipc_python_new(size_t len_bytes) { return calloc(1, len_bytes); }

void dipc_python_destroy(void *capsule) {
  const char *name = functions_.capsule_name(capsule);
  void *pointer = functions_.capsule_pointer(capsule, name);
  if (strcmp(name, "arrow_schema") == 0) {
    struct ArrowSchema *schema = pointer;
    if (schema->release) schema->release(schema);
  } else if (strcmp(name, "arrow_array") == 0 || strcmp(name, "arrow_device_array") == 0) {
    /* A device array begins with its array. */
    struct ArrowArray *array = pointer;
    if (array->release) array->release(array);
  } else {
    /* What ends a stream may wait for a thread that needs the GIL. */
    void *state = functions_.save_thread();
    if (strcmp(name, "arrow_array_stream") == 0) {
      struct ArrowArrayStream *stream = pointer;
      if (stream->release) stream->release(stream);
    } else {
      struct ArrowDeviceArrayStream *stream = pointer;
      if (stream->release) stream->release(stream);
    }
    functions_.restore_thread(state);
  }
  free(pointer);
}

/* Owning. */

struct dipc_python_owner {
  _Atomic(void *) pointer;
  dipc_python_release release;
  bool waits;
  pid_t pid;
};

dipc_python_owner *dipc_python_own(void *pointer, dipc_python_release release, bool waits) {
  dipc_python_owner *owner = calloc(1, sizeof *owner);
  if (owner == NULL) return NULL;
  atomic_init(&owner->pointer, pointer);
  owner->release = release;
  owner->waits = waits;
  owner->pid = getpid();
  return owner;
}

void dipc_python_free(dipc_python_owner *owner) {
  void *pointer = atomic_exchange(&owner->pointer, NULL);
  if (pointer) owner->release(pointer);
}

void dipc_python_disown(void *capsule) {
  dipc_python_owner *owner = functions_.capsule_pointer(capsule, functions_.capsule_name(capsule));
  if (atomic_load(&owner->pointer) != NULL && owner->pid == getpid()) {
    void *state = owner->waits ? functions_.save_thread() : NULL;
    dipc_python_free(owner);
    if (owner->waits) functions_.restore_thread(state);
  }
  free(owner);
}

void dipc_python_dealloc(void *block) {
  /* The library finds the arena, which may be closed by now. */
  functions_.dealloc(NULL, block, NULL);
}

static atomic_int told_ = -1;

void dipc_python_tell_to(int fd) { atomic_store(&told_, fd); }

void dipc_python_tell(void *number) {
  /* A pipe takes so little whole; a full one has thousands before it. */
  if (write(atomic_load(&told_), &number, sizeof number) < 0) return;
}

/* The log. */

static void send_packet(void *socket, struct iovec *parts, size_t count) {
  struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
  /* If the reader is gone, so is the interpreter. */
  while (sendmsg((int)(intptr_t)socket, &message, MSG_NOSIGNAL) < 0 && errno == EINTR) continue;
}

void dipc_python_log_event(void *socket, int32_t level, const char *target, const char *text) {
  uint8_t first = (uint8_t)level;
  struct iovec parts[] = {
      {&first, 1}, {(char *)target, strlen(target) + 1}, {(char *)text, strlen(text)}};
  send_packet(socket, parts, sizeof parts / sizeof *parts);
}

void dipc_python_log_ended(void *socket) {
  uint8_t first = 0;
  struct iovec part = {&first, 1};
  send_packet(socket, &part, 1);
}

/* Sharing. */

struct dipc_python_shared {
  atomic_size_t holds;
  bool is_schema;
  union {
    struct ArrowSchema schema;
    struct ArrowDeviceArray array;
  } source;
};

static dipc_python_shared *share(bool is_schema) {
  dipc_python_shared *shared = calloc(1, sizeof *shared);
  if (shared == NULL) return NULL;
  atomic_init(&shared->holds, 1);
  shared->is_schema = is_schema;
  return shared;
}

dipc_python_shared *dipc_python_share_schema(struct ArrowSchema *source) {
  dipc_python_shared *shared = share(true);
  if (shared == NULL) return NULL;
  shared->source.schema = *source;
  source->release = NULL;
  return shared;
}

dipc_python_shared *dipc_python_share_array(struct ArrowDeviceArray *source) {
  dipc_python_shared *shared = share(false);
  if (shared == NULL) return NULL;
  shared->source.array = *source;
  source->array.release = NULL;
  return shared;
}

static void hold(dipc_python_shared *shared) {
  atomic_fetch_add_explicit(&shared->holds, 1, memory_order_relaxed);
}

void dipc_python_drop(dipc_python_shared *shared) {
  if (atomic_fetch_sub_explicit(&shared->holds, 1, memory_order_acq_rel) != 1) return;
  if (shared->is_schema) {
    shared->source.schema.release(&shared->source.schema);
  } else {
    shared->source.array.array.release(&shared->source.array.array);
  }
  free(shared);
}

/* What a given node owns: its hold, and the structs of its children, the dictionary's last. */
#define NODE(kind)                                                                              \
  typedef struct {                                                                              \
    dipc_python_shared *shared;                                                                 \
    struct kind **children;                                                                     \
    struct kind *nodes;                                                                         \
  } kind##Node;                                                                                 \
                                                                                                \
  static void release_##kind(struct kind *node) {                                               \
    kind##Node *own = node->private_data;                                                       \
    int64_t count = node->n_children;                                                           \
    for (int64_t i = 0; i < count; i++) {                                                       \
      if (own->nodes[i].release) own->nodes[i].release(&own->nodes[i]);                         \
    }                                                                                           \
    if (node->dictionary && node->dictionary->release) {                                        \
      node->dictionary->release(node->dictionary);                                              \
    }                                                                                           \
    node->release = NULL;                                                                       \
    dipc_python_drop(own->shared);                                                              \
    free(own->children);                                                                        \
    free(own->nodes);                                                                           \
    free(own);                                                                                  \
  }                                                                                             \
                                                                                                \
  /* If memory runs out, nothing is left behind, and `out` is not written. */                 \
  static bool give_##kind(dipc_python_shared *shared, const struct kind *source, struct kind *out) { \
    size_t count = (size_t)source->n_children;                                                  \
    kind##Node *own = calloc(1, sizeof *own);                                                   \
    struct kind **children = calloc(count + 1, sizeof *children);                               \
    struct kind *nodes = calloc(count + 1, sizeof *nodes);                                      \
    bool given = own && children && nodes;                                                      \
    for (size_t i = 0; given && i < count; i++) {                                               \
      children[i] = &nodes[i];                                                                  \
      given = give_##kind(shared, source->children[i], &nodes[i]);                              \
    }                                                                                           \
    if (given && source->dictionary) given = give_##kind(shared, source->dictionary, &nodes[count]); \
    if (!given) {                                                                               \
      for (size_t i = 0; nodes && i <= count; i++) {                                            \
        if (nodes[i].release) nodes[i].release(&nodes[i]);                                      \
      }                                                                                         \
      free(own);                                                                                \
      free(children);                                                                           \
      free(nodes);                                                                              \
      return false;                                                                             \
    }                                                                                           \
    hold(shared);                                                                               \
    *own = (kind##Node){shared, children, nodes};                                               \
    *out = *source;                                                                             \
    out->children = children;                                                                   \
    out->dictionary = source->dictionary ? &nodes[count] : NULL;                                \
    out->release = release_##kind;                                                              \
    out->private_data = own;                                                                    \
    return true;                                                                                \
  }

NODE(ArrowSchema)
NODE(ArrowArray)

bool dipc_python_give_schema(dipc_python_shared *shared, struct ArrowSchema *out) {
  return give_ArrowSchema(shared, &shared->source.schema, out);
}

bool dipc_python_give_array(dipc_python_shared *shared, struct ArrowDeviceArray *out) {
  struct ArrowArray array;
  if (!give_ArrowArray(shared, &shared->source.array.array, &array)) return false;
  *out = shared->source.array;
  out->array = array;
  return true;
}

/* DLPack: its structs, as its header has them. */

typedef struct {
  void *data;
  struct {
    int32_t type, id;
  } device;
  int32_t ndim;
  struct {
    uint8_t code, bits;
    uint16_t lanes;
  } dtype;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed {
  dl_tensor tensor;
  void *context;
  void (*deleter)(struct dl_managed *);
} dl_managed;

typedef struct dl_versioned {
  struct {
    uint32_t major, minor;
  } version;
  void *context;
  void (*deleter)(struct dl_versioned *);
  uint64_t flags;
  dl_tensor tensor;
} dl_versioned;

enum { DL_READ_ONLY = 1, DL_IS_COPIED = 2 };

/* What a tensor owns. */
typedef struct {
  union {
    dl_managed managed;
    dl_versioned versioned;
  } face;
  int64_t length, stride;
  struct ArrowDeviceArray column;
  void *copy;
} owned_tensor;

static void delete_tensor(owned_tensor *own) {
  if (own->column.array.release) own->column.array.release(&own->column.array);
  free(own->copy);
  free(own);
}

static void delete_managed(dl_managed *face) { delete_tensor(face->context); }
static void delete_versioned(dl_versioned *face) { delete_tensor(face->context); }

void *dipc_python_dlpack(const dipc_python_tensor *tensor, int64_t length, struct ArrowDeviceArray *column,
                         bool versioned, bool copied) {
  owned_tensor *own = calloc(1, sizeof *own);
  if (own == NULL) return NULL;
  own->length = length;
  own->stride = 1;
  void *data = tensor->data;
  if (copied) {
    size_t len_bytes = (size_t)length * (tensor->type_bits / 8);
    data = own->copy = malloc(len_bytes ? len_bytes : 1);
    if (data == NULL) {
      free(own);
      return NULL;
    }
    if (len_bytes) memcpy(data, tensor->data, len_bytes);
    column->array.release(&column->array);
  } else {
    own->column = *column;
    column->array.release = NULL;
  }
  dl_tensor face = {.data = data,
                    .device = {tensor->device_type, tensor->device_id},
                    .ndim = 1,
                    .dtype = {tensor->type_code, tensor->type_bits, 1},
                    .shape = &own->length,
                    .strides = &own->stride};
  if (versioned) {
    own->face.versioned = (dl_versioned){.version = {1, 0},
                                         .context = own,
                                         .deleter = delete_versioned,
                                         .flags = copied ? DL_IS_COPIED : DL_READ_ONLY,
                                         .tensor = face};
    return &own->face.versioned;
  }
  own->face.managed = (dl_managed){.tensor = face, .context = own, .deleter = delete_managed};
  return &own->face.managed;
}

void dipc_python_undlpack(void *capsule) {
  /* Who takes a tensor gives its capsule another name, and calls the deleter. */
  const char *name = functions_.capsule_name(capsule);
  if (strcmp(name, "dltensor") == 0) {
    dl_managed *face = functions_.capsule_pointer(capsule, name);
    face->deleter(face);
  } else if (strcmp(name, "dltensor_versioned") == 0) {
    dl_versioned *face = functions_.capsule_pointer(capsule, name);
    face->deleter(face);
  }
}

/* Streams. */

void dipc_python_move_stream(struct ArrowDeviceArrayStream *source, struct ArrowDeviceArrayStream *out) {
  *out = *source;
  source->release = NULL;
}

/* Another stream, which outlives it, and a place for a batch of that one that comes first. */
typedef struct {
  struct ArrowDeviceArrayStream *source;
  struct ArrowDeviceArray *slot;
} lent_stream;

static int lent_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out) {
  struct ArrowDeviceArrayStream *source = ((lent_stream *)stream->private_data)->source;
  return source->get_schema(source, out);
}

static int lent_next(struct ArrowArrayStream *stream, struct ArrowArray *out) {
  lent_stream *own = stream->private_data;
  struct ArrowDeviceArray batch;
  if (own->slot && own->slot->array.release) {
    *out = own->slot->array;
    own->slot->array.release = NULL;
    return 0;
  }
  memset(&batch, 0, sizeof batch);
  int code = own->source->get_next(own->source, &batch);
  if (code == 0) *out = batch.array;
  return code;
}

static const char *lent_last_error(struct ArrowArrayStream *stream) {
  struct ArrowDeviceArrayStream *source = ((lent_stream *)stream->private_data)->source;
  return source->get_last_error(source);
}

static void lent_release(struct ArrowArrayStream *stream) {
  free(stream->private_data);
  stream->release = NULL;
}

bool dipc_python_lend_stream(struct ArrowDeviceArrayStream *source, struct ArrowDeviceArray *slot,
                             struct ArrowArrayStream *out) {
  lent_stream *own = calloc(1, sizeof *own);
  if (own == NULL) return false;
  *own = (lent_stream){source, slot};
  *out = (struct ArrowArrayStream){.get_schema = lent_schema,
                                   .get_next = lent_next,
                                   .get_last_error = lent_last_error,
                                   .release = lent_release,
                                   .private_data = own};
  return true;
}

/* Serving. */

int dipc_python_send(const dipc_request *request, const struct ArrowSchema *schema,
                     struct ArrowDeviceArrayStream *stream, int32_t *out_status, dipc_error **error) {
  *out_status = functions_.start(request, schema, stream->device_type, error);
  while (*out_status >= 0) {
    struct ArrowDeviceArray batch;
    memset(&batch, 0, sizeof batch);
    /* Of a stream whose client has the rows that it asked for, no more is read. */
    if (!functions_.is_complete(request) && stream->get_next(stream, &batch) != 0) return 1;
    if (batch.array.release == NULL) {
      *out_status = functions_.finish(request, DIPC_FOREVER, error);
      return *out_status < 0 ? 2 : 0;
    }
    *out_status = functions_.push(request, &batch, NULL, 0, DIPC_FOREVER, error);
    /* Nothing, if it was pushed. */
    if (batch.array.release) batch.array.release(&batch.array);
  }
  return 2;
}
