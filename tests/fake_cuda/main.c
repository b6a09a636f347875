// The driver: initialisation, devices, contexts, errors, and functions for tests.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake.h"

struct device fake_devices[MAX_DEVICES];
int fake_device_count = 1;
int fake_no_vmm, fake_no_peer, fake_no_concurrent;
atomic_int fake_delay_us;
pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
atomic_long fake_live[LIVE_KINDS];

static pid_t initialised;
static __thread struct context *stack[MAX_DEPTH];
static __thread int depth;

struct counter {
  char name[48];
  long calls;
  long fail_at;
  CUresult code;
};
static struct counter counters[128];
static int counter_count;
static pthread_mutex_t counter_lock = PTHREAD_MUTEX_INITIALIZER;

static struct counter *counter(const char *name) {
  for (int i = 0; i < counter_count; i++)
    if (!strcmp(counters[i].name, name)) return &counters[i];
  if (counter_count == 128) abort();
  struct counter *fresh = &counters[counter_count++];
  snprintf(fresh->name, sizeof fresh->name, "%s", name);
  return fresh;
}

static long number(const char *variable, long otherwise) {
  const char *text = getenv(variable);
  return text ? strtol(text, NULL, 0) : otherwise;
}

__attribute__((constructor)) static void load(void) {
  const char *text = getenv("FAKE_CUDA_FAIL");
  char name[48];
  long nth;
  int code;
  if (text && sscanf(text, "%47[^:]:%ld:%d", name, &nth, &code) == 3) {
    struct counter *counted = counter(name);
    counted->fail_at = nth;
    counted->code = code;
  }
}

CUresult fake_enter(const char *function, int needs_init) {
  pthread_mutex_lock(&counter_lock);
  struct counter *counted = counter(function);
  CUresult code = ++counted->calls == counted->fail_at ? counted->code : OK;
  pthread_mutex_unlock(&counter_lock);
  // A forked child has no driver: CUDA does not survive a fork.
  if (needs_init && initialised != getpid()) return NOT_INITIALIZED;
  return code;
}

CUresult fake_current(struct context **out) {
  if (depth == 0 || !stack[depth - 1]) return INVALID_CONTEXT;
  struct context *context = stack[depth - 1];
  if (context->dead) return CONTEXT_IS_DESTROYED;
  *out = context;
  return atomic_load(&context->error);
}

void fake_keep(void *thing) {
  static struct kept {
    struct kept *next;
    void *thing;
  } *kept;
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  struct kept *node = malloc(sizeof *node);
  pthread_mutex_lock(&lock);
  *node = (struct kept){kept, thing};
  kept = node;
  pthread_mutex_unlock(&lock);
}

// Functions for tests.

// The next nth call of `function` from now on returns `code`; 0 for never.
EXPORT void fakeCudaFail(const char *function, long nth, int code) {
  pthread_mutex_lock(&counter_lock);
  struct counter *counted = counter(function);
  counted->fail_at = nth ? counted->calls + nth : 0;
  counted->code = code;
  pthread_mutex_unlock(&counter_lock);
}

EXPORT long fakeCudaCalls(const char *function) {
  pthread_mutex_lock(&counter_lock);
  long calls = counter(function)->calls;
  pthread_mutex_unlock(&counter_lock);
  return calls;
}

// The name of the called function at `index`; NULL past the last.
EXPORT const char *fakeCudaFunction(int index) {
  return index < counter_count ? counters[index].name : NULL;
}

EXPORT long fakeCudaLive(int kind) { return kind < LIVE_KINDS ? atomic_load(&fake_live[kind]) : -1; }

EXPORT size_t fakeCudaUsed(int device) {
  pthread_mutex_lock(&fake_lock);
  size_t used = fake_devices[device].used;
  pthread_mutex_unlock(&fake_lock);
  return used;
}


EXPORT void fakeCudaDelay(int microseconds) { atomic_store(&fake_delay_us, microseconds); }

// Initialisation and devices.

EXPORT CUresult cuInit(unsigned flags) {
  CUresult code = fake_enter("cuInit", 0);
  if (code) return code;
  if (flags) return INVALID_VALUE;
  pthread_mutex_lock(&fake_lock);
  if (!initialised) {
    fake_device_count = (int)number("FAKE_CUDA_DEVICES", 1);
    if (fake_device_count > MAX_DEVICES) abort();
    for (int i = 0; i < fake_device_count; i++)
      fake_devices[i].total = (size_t)number("FAKE_CUDA_MEMORY", 1L << 30);
    fake_no_vmm = getenv("FAKE_CUDA_NO_VMM") != NULL;
    fake_no_peer = getenv("FAKE_CUDA_NO_PEER") != NULL;
    fake_no_concurrent = getenv("FAKE_CUDA_NO_CONCURRENT") != NULL;
    atomic_store(&fake_delay_us, (int)number("FAKE_CUDA_DELAY_US", 0));
    if (fake_device_count > 0) initialised = getpid();
  }
  pthread_mutex_unlock(&fake_lock);
  if (fake_device_count == 0) return NO_DEVICE;
  return initialised == getpid() ? OK : NOT_INITIALIZED;
}

EXPORT CUresult cuDriverGetVersion(int *version) {
  CUresult code = fake_enter("cuDriverGetVersion", 0);
  if (code) return code;
  *version = (int)number("FAKE_CUDA_VERSION", 12020);
  return OK;
}

EXPORT CUresult cuDeviceGetCount(int *count) {
  CALL("cuDeviceGetCount");
  *count = fake_device_count;
  return OK;
}

static int known(CUdevice device) { return device >= 0 && device < fake_device_count; }

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  CALL("cuDeviceGet");
  if (!known(ordinal)) return INVALID_DEVICE;
  *device = ordinal;
  return OK;
}

EXPORT CUresult cuDeviceGetName(char *name, int len, CUdevice device) {
  CALL("cuDeviceGetName");
  if (!known(device)) return INVALID_DEVICE;
  snprintf(name, (size_t)len, "Fake GPU %d", device);
  return OK;
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  CALL("cuDeviceTotalMem_v2");
  if (!known(device)) return INVALID_DEVICE;
  *bytes = fake_devices[device].total;
  return OK;
}

EXPORT CUresult cuDeviceGetUuid_v2(uint8_t uuid[16], CUdevice device) {
  CALL("cuDeviceGetUuid_v2");
  if (!known(device)) return INVALID_DEVICE;
  for (int i = 0; i < 16; i++) uuid[i] = (uint8_t)(0xF0 + i);
  uuid[15] = (uint8_t)device;
  return OK;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
  CALL("cuDeviceGetAttribute");
  if (!known(device)) return INVALID_DEVICE;
  switch (attribute) {
    case 41: *value = 1; return OK;             // unified addressing
    case 33: *value = 1 + device; return OK;    // where it is on its bus, and in which of them
    case 34: *value = 0; return OK;
    case 50: *value = 0; return OK;
    case 75: *value = 9; return OK;             // compute capability
    case 76: *value = 0; return OK;
    case 83: *value = 1; return OK;             // managed memory
    case 89: *value = !fake_no_concurrent; return OK;  // which the processor touches at any time
    case 102: *value = !fake_no_vmm; return OK; // virtual memory management
    case 103: *value = !fake_no_vmm; return OK; // its handles as file descriptors
    default: return INVALID_VALUE;
  }
}

EXPORT CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
  CALL("cuDeviceCanAccessPeer");
  if (!known(device) || !known(peer)) return INVALID_DEVICE;
  *can = device != peer && !fake_no_peer;
  return OK;
}

// Contexts. They are never freed, so that stale handles are detected.

static void begin_context(struct context *context) {
  context->dead = 0;
  context->peers = 0;
  atomic_store(&context->error, OK);
  atomic_store(&context->id, fake_next_id());
  atomic_fetch_add(&fake_live[CONTEXTS], 1);
}

static struct context *make_context(int device, int primary) {
  struct context *context = calloc(1, sizeof *context);
  context->device = device;
  context->primary = primary;
  fake_keep(context);
  begin_context(context);
  return context;
}

static void end_context(struct context *context) {
  if (context->dead) return;
  context->dead = 1;
  atomic_fetch_sub(&fake_live[CONTEXTS], 1);
  for (int kind = 0; kind < LIVE_KINDS && context->primary; kind++)
    atomic_fetch_sub(&fake_live[kind], atomic_exchange(&context->live[kind], 0));
  fake_forget_context(context);
}

// For LeakSanitizer, objects in this list are reachable.
static void **counted;

void fake_counted(void *object) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static size_t count;
  pthread_mutex_lock(&lock);
  void **longer = realloc(counted, (count + 1) * sizeof *counted);
  if (longer) {
    counted = longer;
    counted[count++] = object;
  }
  pthread_mutex_unlock(&lock);
}

void fake_count(struct context *context, enum live kind, int change) {
  atomic_fetch_add(&fake_live[kind], change);
  atomic_fetch_add(&context->live[kind], change);
}

int fake_gone(struct context *context, uint64_t id) { return context->dead || atomic_load(&context->id) != id; }

CUresult fake_alive(struct context *context, uint64_t id) {
  if (!fake_gone(context, id)) return OK;
  if (!context->primary) return CONTEXT_IS_DESTROYED;
  fprintf(stderr, "fake CUDA: a handle of a context that was reset\n");
  abort();
}

// Threads that may wait.

static atomic_int frees_wait;
atomic_long fake_under_way;

// 1: from now on calls that free something wait until no stream has work, as the driver may.
EXPORT void fakeCudaFreesWait(int waits) { atomic_store(&frees_wait, waits); }

void fake_may_wait(const char *function, const void *caller) {
  char name[16] = "";
  pthread_getname_np(pthread_self(), name, sizeof name);
  size_t len = strlen(name);
  if (strncmp(name, "dipc-", 5) || len < 3 || strcmp(name + len - 3, "-io")) return;
  // UCX's calls are not checked.
  Dl_info from;
  if (dladdr(caller, &from) && from.dli_fname && strstr(from.dli_fname, "libuc")) return;
  fprintf(stderr, "fake CUDA: %s may wait for the device, and the thread %s must not\n", function, name);
  abort();
}

void fake_may_wait_to_free(const char *function, const void *caller) {
  fake_may_wait(function, caller);
  while (atomic_load(&frees_wait) && atomic_load(&fake_under_way) > 0) usleep(100);
}

EXPORT CUresult cuDevicePrimaryCtxRetain(struct context **out, CUdevice device) {
  CALL("cuDevicePrimaryCtxRetain");
  if (!known(device)) return INVALID_DEVICE;
  pthread_mutex_lock(&fake_lock);
  struct device *of = &fake_devices[device];
  if (!of->primary) of->primary = make_context(device, 1);
  if (of->primary->dead) begin_context(of->primary);
  of->retained++;
  *out = of->primary;
  pthread_mutex_unlock(&fake_lock);
  return OK;
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  CALL_LATE("cuDevicePrimaryCtxRelease_v2");
  if (!known(device)) return INVALID_DEVICE;
  pthread_mutex_lock(&fake_lock);
  struct device *of = &fake_devices[device];
  CUresult code = of->retained > 0 ? late : INVALID_CONTEXT;
  if (of->retained > 0 && --of->retained == 0 && of->primary) end_context(of->primary);
  pthread_mutex_unlock(&fake_lock);
  return code;
}

// Actions of a host program in libdipc's process.
EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  CALL("cuDevicePrimaryCtxReset_v2");
  if (!known(device)) return INVALID_DEVICE;
  pthread_mutex_lock(&fake_lock);
  if (fake_devices[device].primary) end_context(fake_devices[device].primary);
  pthread_mutex_unlock(&fake_lock);
  return OK;
}

EXPORT CUresult cuCtxPushCurrent_v2(struct context *context) {
  CALL("cuCtxPushCurrent_v2");
  if (!context) return INVALID_CONTEXT;
  if (context->dead) return CONTEXT_IS_DESTROYED;
  if (depth == MAX_DEPTH) abort();
  stack[depth++] = context;
  return OK;
}

EXPORT CUresult cuCtxPopCurrent_v2(struct context **out) {
  CALL_LATE("cuCtxPopCurrent_v2");
  if (depth == 0) return INVALID_CONTEXT;
  struct context *context = stack[--depth];
  if (out) *out = context;
  return late;
}

EXPORT CUresult cuCtxGetCurrent(struct context **out) {
  CALL("cuCtxGetCurrent");
  *out = depth ? stack[depth - 1] : NULL;
  return OK;
}

CUresult fake_set_current(struct context *context) {
  if (context && context->dead) return CONTEXT_IS_DESTROYED;
  if (depth) depth--;
  if (context) stack[depth++] = context;
  return OK;
}

EXPORT CUresult cuCtxCreate_v2(struct context **out, unsigned flags, CUdevice device) {
  CALL("cuCtxCreate_v2");
  (void)flags;
  if (!known(device)) return INVALID_DEVICE;
  if (depth == MAX_DEPTH) abort();
  *out = stack[depth++] = make_context(device, 0);
  return OK;
}

EXPORT CUresult cuCtxDestroy_v2(struct context *context) {
  CALL_LATE("cuCtxDestroy_v2");
  if (!context || context->dead) return INVALID_CONTEXT;
  pthread_mutex_lock(&fake_lock);
  end_context(context);
  pthread_mutex_unlock(&fake_lock);
  if (depth && stack[depth - 1] == context) depth--;
  return late;
}

// Errors.

static const struct {
  CUresult code;
  const char *name, *text;
} texts[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {208, "CUDA_ERROR_ALREADY_MAPPED", "resource already mapped"},
    {218, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static CUresult text_of(CUresult code, const char **out, int name) {
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    if (texts[i].code == code) {
      *out = name ? texts[i].name : texts[i].text;
      return OK;
    }
  *out = NULL;
  return INVALID_VALUE;
}

EXPORT CUresult cuGetErrorName(CUresult code, const char **out) { return text_of(code, out, 1); }
EXPORT CUresult cuGetErrorString(CUresult code, const char **out) { return text_of(code, out, 0); }
