// A CUDA driver without a GPU, for tests: libcuda.so.1 with the functions that libdipc calls.
//
// Device memory is a memfd, mapped twice. At its "device" address it has no access rights, so that
// the processor faults as with a GPU. At a hidden address it is readable and writable for copies
// and kernels. Streams are threads, so that work really is deferred.
//
// The fake enforces rules of the real driver, and rules of good use: no call without a current
// context, no default stream, no freed memory. Some faults end the process: a handle of a reset
// primary context, and a call on an I/O thread of libdipc that may wait for the device.
//
// Environment (read by cuInit, or when the library is loaded):
//   FAKE_CUDA_DEVICES   how many GPUs there are (1); 0: cuInit fails as it does without a GPU
//   FAKE_CUDA_VERSION   what cuDriverGetVersion says (12020)
//   FAKE_CUDA_MEMORY    bytes of each GPU (1 GiB)
//   FAKE_CUDA_NO_VMM, FAKE_CUDA_NO_PEER, FAKE_CUDA_NO_CONCURRENT   if set: what the GPUs cannot do (the
//                       last: the processor never touches managed memory, as if work were always under way)
//   FAKE_CUDA_DELAY_US  how long each piece of work on a stream waits before it begins (0)
//   FAKE_CUDA_FAIL      FUNCTION:N:CODE, the N-th call of FUNCTION returns CODE
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define EXPORT __attribute__((visibility("default")))

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;

enum {
  OK = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  NOT_INITIALIZED = 3,
  NO_DEVICE = 100,
  INVALID_DEVICE = 101,
  INVALID_CONTEXT = 201,
  MAPPING_FAILED = 205,
  ALREADY_MAPPED = 208,
  INVALID_PTX = 218,
  INVALID_HANDLE = 400,
  NOT_FOUND = 500,
  NOT_READY = 600,
  ILLEGAL_ADDRESS = 700,
  CONTEXT_IS_DESTROYED = 709,
  NOT_SUPPORTED = 801,
};

enum { MAX_DEVICES = 8, MAX_DEPTH = 16 };

enum kind { DEVICE = 1, MANAGED, HOST, MAPPED, OPENED };

// Kinds of live objects; fakeCudaLive() gives their numbers.
enum live { CONTEXTS, STREAMS, EVENTS, ALLOCATIONS, MAPPINGS, OPEN_HANDLES, PINNED, MODULES, RESERVATIONS, LIVE_KINDS };
extern atomic_long fake_live[LIVE_KINDS];
// For LeakSanitizer, objects lost by a device reset are no leak; the numbers above count them.
void fake_counted(void *object);

struct context {
  int device;
  int primary;
  int dead;
  // A primary context keeps its address after a reset, but gets another number.
  _Atomic uint64_t id;
  atomic_long live[LIVE_KINDS];  // streams, events and modules made since
  atomic_int error;  // what a kernel or a copy broke; every later call says so
  unsigned peers;    // devices whose memory kernels may touch
};

struct device {
  size_t total;
  size_t used;
  struct context *primary;
  int retained;
};

struct allocation {
  int fd;
  int device;
  size_t size;
  unsigned types;  // handle types that it may be exported as
  int refs;        // handles and mappings
  int owned;       // made by this process, which pays for it
};

struct range {
  struct range *next;
  uintptr_t base;
  size_t size;
  size_t mapped;  // whole pages
  uint8_t *shadow;
  enum kind kind;
  int device;
  int fd;
  uint64_t id;
  unsigned readable;  // devices that may touch it, of kind MAPPED
  struct allocation *allocation;
  uint64_t peer_id;  // of kind OPENED: the allocation in its own process
  struct context *context;
  struct pool *pool;          // of kinds DEVICE and OPENED: what it was allocated from
  struct importers *importers;  // likewise: who has it open, in memory that processes share
};

// Memory that other processes have open must not be freed. The real driver leaves the result
// undefined; the fake ends the process.
struct importers {
  atomic_int pids[256];
};

extern struct device fake_devices[MAX_DEVICES];
extern int fake_device_count;
extern int fake_no_vmm, fake_no_peer, fake_no_concurrent;
extern atomic_int fake_delay_us;
// Guards devices, ranges, contexts and the lists of handles; never held while work waits.
extern pthread_mutex_t fake_lock;

// Counts an object made in a context, or freed (-1).
void fake_count(struct context *context, enum live kind, int change);
// Checks that an object of a context with this number still exists. Ends the process if the context
// was reset.
CUresult fake_alive(struct context *context, uint64_t id);
// The same for running work.
int fake_gone(struct context *context, uint64_t id);

// A call in which the driver may wait until the device is idle: not allowed on an I/O thread of
// libdipc.
void fake_may_wait(const char *function, const void *caller);
#define MAY_WAIT(function) fake_may_wait(function, __builtin_return_address(0))
// A call that frees something; it waits if a test requests that.
void fake_may_wait_to_free(const char *function, const void *caller);
#define MAY_WAIT_TO_FREE(function) fake_may_wait_to_free(function, __builtin_return_address(0))
// The number of unfinished pieces of work on streams.
extern atomic_long fake_under_way;

// Counts the call and gives the error that was injected for it.
CUresult fake_enter(const char *function, int needs_init);
CUresult fake_current(struct context **out);
// For leak checkers: memory that is never freed, so that stale handles are detected.
void fake_keep(void *thing);

// A call that an injected error prevents.
#define CALL(function)                         \
  do {                                         \
    CUresult code_ = fake_enter(function, 1);  \
    if (code_) return code_;                   \
  } while (0)
// A call that frees something. It is done, and then returns the injected error, like the driver
// with errors of earlier work.
#define CALL_LATE(function)                     \
  CUresult late = fake_enter(function, 1);      \
  if (late == NOT_INITIALIZED) return late
#define NEED_CONTEXT                              \
  struct context *context = NULL;                 \
  do {                                            \
    CUresult code_ = fake_current(&context);      \
    if (code_) return code_;                      \
  } while (0)

// main.c
CUresult fake_set_current(struct context *context);
CUresult cuDeviceGetUuid_v2(uint8_t uuid[16], CUdevice device);

// memory.c
struct range *fake_ranges(void);                // under the lock
struct range *fake_find(uintptr_t address);     // under the lock
// The processor's address of `len` bytes at `address`, or NULL. Under the lock.
uint8_t *fake_reach(uintptr_t address, size_t len, int device, int kernel);
CUresult fake_map(int fd, size_t size, int device, enum kind kind, struct range **out);
void fake_unmap(struct range *range);
int fake_memfd(int device, uint64_t id, size_t size);
uint64_t fake_next_id(void);
void fake_forget_context(struct context *context);

// Memory of a device that belongs to no context.
CUresult fake_allocate_in(uintptr_t *out, size_t size, int device);
// Whether a live process other than this one has it open. Under the lock.
int fake_is_open_elsewhere(struct range *range);

// ipc.c
// Opens memory of another process by its descriptor there.
CUresult fake_open(int pid, int fd, int device, size_t size, uint64_t id, struct range **out);

CUresult cuPointerGetAttributes(unsigned count, const int *which, void **out, CUdeviceptr address);

// stream.c
struct stream;
CUresult cuMemcpyAsync(CUdeviceptr target, CUdeviceptr source, size_t len, struct stream *stream);
CUresult cuMemcpy(CUdeviceptr target, CUdeviceptr source, size_t len);

// kernel.c
struct function;
void fake_run_kernel(struct function *function, const unsigned *shape, const uint64_t *params,
                     struct context *context);
