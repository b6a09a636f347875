// Streams, each a thread with a queue, and events.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "fake.h"

// The state of an event, in memory that other processes may share.
struct state {
  atomic_uint_fast64_t recorded, completed;
  atomic_int recorder;  // the process that recorded it last
};

struct event {
  struct context *context;
  uint64_t made;  // the number that the context had
  struct state *state;
  int fd;  // of an event for several processes; -1
  int opened;
  int dead;
  uint64_t id;
};

enum op { COPY, FILL, RECORD, WAIT, LAUNCH, CALLBACK };

struct work {
  struct work *next;
  enum op op;
  uintptr_t target, source;
  size_t len;
  uint8_t byte;
  struct state *state;
  uint64_t number;
  struct function *function;
  unsigned shape[6];
  uint64_t params[4];
  void (*callback)(struct stream *, CUresult, void *);
  void *argument;
};

struct stream {
  struct context *context;
  uint64_t made;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  struct work *first, **last;
  int busy, closing, dead;
  atomic_int delay_us, held;
};

static void nap(int microseconds) {
  struct timespec time = {microseconds / 1000000, microseconds % 1000000 * 1000L};
  nanosleep(&time, NULL);
}

// An event of an ended process counts as complete: the driver ends the process's work.
static int over(struct state *state, uint64_t number) {
  if (atomic_load(&state->completed) >= number) {
    // All work ran under this lock. Taking it shows the order to ThreadSanitizer, which does not
    // see the atomics of uninstrumented C.
    pthread_mutex_lock(&fake_lock);
    pthread_mutex_unlock(&fake_lock);
    return 1;
  }
  pid_t recorder = atomic_load(&state->recorder);
  return recorder != getpid() && kill(recorder, 0) && errno == ESRCH;
}

static void perform(struct stream *stream, struct work *work) {
  struct context *context = stream->context;
  int delay = atomic_load(&stream->delay_us) + atomic_load(&fake_delay_us);
  if (delay) nap(delay);
  while (atomic_load(&stream->held) && !fake_gone(context, stream->made)) nap(50);
  if (work->op == WAIT) {
    while (!over(work->state, work->number) && !fake_gone(context, stream->made)) nap(50);
    return;
  }
  if (work->op == RECORD) {
    uint64_t seen = atomic_load(&work->state->completed);
    while (seen < work->number && !atomic_compare_exchange_weak(&work->state->completed, &seen, work->number)) {
    }
    return;
  }
  if (work->op == CALLBACK) {
    work->callback(stream, atomic_load(&context->error), work->argument);
    return;
  }
  // After a fault no more work is done.
  if (fake_gone(context, stream->made) || atomic_load(&context->error)) return;
  pthread_mutex_lock(&fake_lock);
  if (work->op == LAUNCH) {
    fake_run_kernel(work->function, work->shape, work->params, context);
  } else {
    uint8_t *target = fake_reach(work->target, work->len, context->device, 0);
    uint8_t *source = work->op == COPY ? fake_reach(work->source, work->len, context->device, 0) : target;
    if (!target || !source) atomic_store(&context->error, ILLEGAL_ADDRESS);
    else if (work->op == COPY) memmove(target, source, work->len);
    else memset(target, work->byte, work->len);
  }
  pthread_mutex_unlock(&fake_lock);
}

static void *run(void *argument) {
  struct stream *stream = argument;
  pthread_mutex_lock(&stream->lock);
  for (;;) {
    while (!stream->first && !stream->closing) pthread_cond_wait(&stream->changed, &stream->lock);
    struct work *work = stream->first;
    if (!work) break;
    stream->first = work->next;
    if (!stream->first) stream->last = &stream->first;
    stream->busy = 1;
    pthread_mutex_unlock(&stream->lock);
    perform(stream, work);
    free(work);
    atomic_fetch_sub(&fake_under_way, 1);
    pthread_mutex_lock(&stream->lock);
    stream->busy = 0;
    pthread_cond_broadcast(&stream->changed);
  }
  pthread_mutex_unlock(&stream->lock);
  return NULL;
}

// The default stream is not allowed: its work waits for all other work on the device.
static CUresult usable(struct stream *stream) {
  if (!stream || stream->dead) return INVALID_HANDLE;
  return fake_alive(stream->context, stream->made);
}

static CUresult push(struct stream *stream, struct work work) {
  CUresult code = usable(stream);
  if (code) return code;
  struct work *kept = malloc(sizeof *kept);
  *kept = work;
  kept->next = NULL;
  atomic_fetch_add(&fake_under_way, 1);
  pthread_mutex_lock(&stream->lock);
  *stream->last = kept;
  stream->last = &kept->next;
  pthread_cond_broadcast(&stream->changed);
  pthread_mutex_unlock(&stream->lock);
  return OK;
}

EXPORT CUresult cuStreamCreate(struct stream **out, unsigned flags) {
  CALL("cuStreamCreate");
  NEED_CONTEXT;
  if (flags > 1) return INVALID_VALUE;
  struct stream *stream = calloc(1, sizeof *stream);
  stream->context = context;
  stream->made = atomic_load(&context->id);
  stream->last = &stream->first;
  pthread_mutex_init(&stream->lock, NULL);
  pthread_cond_init(&stream->changed, NULL);
  pthread_t thread;
  if (pthread_create(&thread, NULL, run, stream)) {
    free(stream);
    return OUT_OF_MEMORY;
  }
  pthread_detach(thread);
  fake_keep(stream);
  fake_count(context, STREAMS, 1);
  *out = stream;
  return OK;
}

// As with the driver, running work is finished, and the call does not wait.
EXPORT CUresult cuStreamDestroy_v2(struct stream *stream) {
  CALL_LATE("cuStreamDestroy_v2");
  if (!stream || stream->dead) return INVALID_HANDLE;
  CUresult code = fake_alive(stream->context, stream->made);
  pthread_mutex_lock(&stream->lock);
  stream->dead = stream->closing = 1;
  pthread_cond_broadcast(&stream->changed);
  pthread_mutex_unlock(&stream->lock);
  fake_count(stream->context, STREAMS, -1);
  return code ? code : late;
}

EXPORT CUresult cuStreamSynchronize(struct stream *stream) {
  MAY_WAIT("cuStreamSynchronize");
  CALL("cuStreamSynchronize");
  NEED_CONTEXT;
  CUresult code = usable(stream);
  if (code) return code;
  pthread_mutex_lock(&stream->lock);
  while (stream->first || stream->busy) pthread_cond_wait(&stream->changed, &stream->lock);
  pthread_mutex_unlock(&stream->lock);
  return atomic_load(&context->error);
}

EXPORT CUresult cuStreamQuery(struct stream *stream) {
  CALL("cuStreamQuery");
  NEED_CONTEXT;
  CUresult code = usable(stream);
  if (code) return code;
  pthread_mutex_lock(&stream->lock);
  int waiting = stream->first || stream->busy;
  pthread_mutex_unlock(&stream->lock);
  return waiting ? NOT_READY : OK;
}

// Makes every piece of work of one stream wait before it begins.
EXPORT void fakeCudaStreamDelay(struct stream *stream, int microseconds) {
  atomic_store(&stream->delay_us, microseconds);
}

// Holds a stream (1) or releases it (0), so that a test decides when work is done.
EXPORT void fakeCudaHold(struct stream *stream, int held) {
  // As in `over`: the continued work sees the caller's earlier writes.
  pthread_mutex_lock(&fake_lock);
  atomic_store(&stream->held, held);
  pthread_mutex_unlock(&fake_lock);
}

// Copies and fills.

static CUresult copy(CUdeviceptr target, CUdeviceptr source, size_t len, struct stream *stream) {
  return push(stream, (struct work){.op = COPY, .target = (uintptr_t)target, .source = (uintptr_t)source, .len = len});
}

EXPORT CUresult cuMemcpyAsync(CUdeviceptr target, CUdeviceptr source, size_t len, struct stream *stream) {
  CALL("cuMemcpyAsync");
  NEED_CONTEXT;
  return copy(target, source, len, stream);
}

EXPORT CUresult cuMemcpyPeerAsync(CUdeviceptr target, struct context *to, CUdeviceptr source,
                                  struct context *from, size_t len, struct stream *stream) {
  CALL("cuMemcpyPeerAsync");
  NEED_CONTEXT;
  if (!to || !from) return INVALID_CONTEXT;
  if (to->dead || from->dead) return CONTEXT_IS_DESTROYED;
  return copy(target, source, len, stream);
}

EXPORT CUresult cuMemsetD8Async(CUdeviceptr target, uint8_t byte, size_t len, struct stream *stream) {
  CALL("cuMemsetD8Async");
  NEED_CONTEXT;
  return push(stream, (struct work){.op = FILL, .target = (uintptr_t)target, .byte = byte, .len = len});
}

// Copies at once, for the tests themselves.
static CUresult now(uintptr_t target, uintptr_t source, size_t len, struct context *context) {
  pthread_mutex_lock(&fake_lock);
  uint8_t *to = fake_reach(target, len, context->device, 0);
  uint8_t *from = fake_reach(source, len, context->device, 0);
  if (to && from) memmove(to, from, len);
  pthread_mutex_unlock(&fake_lock);
  return to && from ? OK : INVALID_VALUE;
}

EXPORT CUresult cuMemcpy(CUdeviceptr target, CUdeviceptr source, size_t len) {
  CALL("cuMemcpy");
  NEED_CONTEXT;
  return now((uintptr_t)target, (uintptr_t)source, len, context);
}

EXPORT CUresult cuStreamAddCallback(struct stream *stream, void (*callback)(struct stream *, CUresult, void *),
                                    void *argument, unsigned flags) {
  CALL("cuStreamAddCallback");
  NEED_CONTEXT;
  if (!callback || flags) return INVALID_VALUE;
  return push(stream, (struct work){.op = CALLBACK, .callback = callback, .argument = argument});
}

// Events.

static CUresult make_event(struct event **out, int fd, int opened, struct context *context) {
  int flags = fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
  struct state *state = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (state == MAP_FAILED) return OUT_OF_MEMORY;
  struct event *event = calloc(1, sizeof *event);
  *event = (struct event){context, atomic_load(&context->id), state, fd, opened, 0, fake_next_id()};
  fake_keep(event);
  fake_count(context, EVENTS, 1);
  *out = event;
  return OK;
}

EXPORT CUresult cuEventCreate(struct event **out, unsigned flags) {
  CALL("cuEventCreate");
  NEED_CONTEXT;
  int shared = flags & 4;
  if (flags & ~7u || (shared && !(flags & 2))) return INVALID_VALUE;
  int fd = -1;
  if (shared) {
    fd = memfd_create("fake-cuda-event", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, sizeof(struct state))) return OUT_OF_MEMORY;
  }
  return make_event(out, fd, 0, context);
}

static CUresult alive(struct event *event) {
  if (!event || event->dead) return INVALID_HANDLE;
  return fake_alive(event->context, event->made);
}

EXPORT CUresult cuEventDestroy_v2(struct event *event) {
  CALL_LATE("cuEventDestroy_v2");
  CUresult code = alive(event);
  if (code == INVALID_HANDLE) return code;
  event->dead = 1;
  if (event->fd >= 0) close(event->fd);
  fake_count(event->context, EVENTS, -1);
  return code ? code : late;
}

EXPORT CUresult cuEventRecord(struct event *event, struct stream *stream) {
  CALL("cuEventRecord");
  NEED_CONTEXT;
  CUresult code = alive(event);
  if (!code) code = usable(stream);
  if (!code && event->context != stream->context) code = INVALID_HANDLE;
  if (code) return code;
  atomic_store(&event->state->recorder, getpid());
  uint64_t number = atomic_fetch_add(&event->state->recorded, 1) + 1;
  return push(stream, (struct work){.op = RECORD, .state = event->state, .number = number});
}

EXPORT CUresult cuStreamWaitEvent(struct stream *stream, struct event *event, unsigned flags) {
  CALL("cuStreamWaitEvent");
  NEED_CONTEXT;
  CUresult code = alive(event);
  if (code) return code;
  if (flags) return INVALID_VALUE;
  uint64_t number = atomic_load(&event->state->recorded);
  return push(stream, (struct work){.op = WAIT, .state = event->state, .number = number});
}

EXPORT CUresult cuEventQuery(struct event *event) {
  CALL("cuEventQuery");
  NEED_CONTEXT;
  CUresult code = alive(event);
  if (code) return code;
  return over(event->state, atomic_load(&event->state->recorded)) ? OK : NOT_READY;
}

EXPORT CUresult cuEventSynchronize(struct event *event) {
  MAY_WAIT("cuEventSynchronize");
  CALL("cuEventSynchronize");
  NEED_CONTEXT;
  CUresult code = alive(event);
  if (code) return code;
  uint64_t number = atomic_load(&event->state->recorded);
  while (!over(event->state, number)) nap(50);
  return atomic_load(&context->error);
}

struct event_handle {
  uint32_t magic;
  int32_t pid, fd;
  uint8_t rest[52];
};
_Static_assert(sizeof(struct event_handle) == 64, "what CUDA's handle has");

EXPORT CUresult cuIpcGetEventHandle(struct event_handle *out, struct event *event) {
  CALL("cuIpcGetEventHandle");
  NEED_CONTEXT;
  CUresult code = alive(event);
  if (code) return code;
  if (event->fd < 0 || event->opened) return INVALID_HANDLE;
  *out = (struct event_handle){0xE4E47, getpid(), event->fd, {0}};
  return OK;
}

EXPORT CUresult cuIpcOpenEventHandle(struct event **out, struct event_handle handle) {
  CALL("cuIpcOpenEventHandle");
  NEED_CONTEXT;
  // The answer of driver 580 to bytes that are no handle.
  if (handle.magic != 0xE4E47) return MAPPING_FAILED;
  if (handle.pid == getpid()) return INVALID_CONTEXT;
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/fd/%d", handle.pid, handle.fd);
  int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return INVALID_HANDLE;
  return make_event(out, fd, 1, context);
}

// Kernels.

CUresult fake_launch(struct stream *stream, struct function *function, const unsigned *shape,
                     const uint64_t *params, size_t count) {
  struct work work = {.op = LAUNCH, .function = function};
  memcpy(work.shape, shape, sizeof work.shape);
  memcpy(work.params, params, count * sizeof *params);
  return push(stream, work);
}
