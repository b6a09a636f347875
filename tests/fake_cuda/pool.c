// Pools of stream-ordered memory, and their exports to other processes.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fake.h"

// Another process imports an empty file whose name identifies the pool.
struct pool {
  int fd;  // -1: it cannot be exported
  int device;
  unsigned types;
  int imported;
  uint64_t id;
  unsigned readable;  // devices that may touch what is imported
  long refs;          // the handle and what lies in it: destroying it waits for that
};

struct location {
  unsigned type;
  int id;
};
struct properties {
  unsigned type;
  unsigned handle_types;
  struct location location;
  void *win32;
  uint8_t reserved[64];
};
struct access {
  struct location location;
  unsigned flags;
};

struct share {
  uint32_t magic;
  int32_t pid, fd, device;
  uint64_t size, id, pool;
  uint8_t rest[24];
};
_Static_assert(sizeof(struct share) == 64, "what CUDA's has");
enum { MAGIC = 0x900151 };

static struct pool *default_pools[MAX_DEVICES];

unsigned fake_pool_types(struct range *range) { return range->pool->imported ? 0 : range->pool->types; }
int fake_pool_readable(struct range *range, int device) {
  return !range->pool->imported || range->pool->readable >> device & 1;
}

// Under the lock.
void fake_leave_pool(struct range *range) {
  struct pool *pool = range->pool;
  range->pool = NULL;
  if (!pool || --pool->refs) return;
  if (pool->fd >= 0) close(pool->fd);
  if (pool->imported) atomic_fetch_sub(&fake_live[POOLS], 1);
  free(pool);
}

static struct pool *make(int device, unsigned types, uint64_t id, int imported, int fd) {
  struct pool *pool = calloc(1, sizeof *pool);
  *pool = (struct pool){fd, device, types, imported, id, 1u << device, 1};
  if (imported) atomic_fetch_add(&fake_live[POOLS], 1);
  return pool;
}

EXPORT CUresult cuMemPoolCreate(struct pool **out, const struct properties *properties) {
  CALL("cuMemPoolCreate");
  if (fake_no_pools) return NOT_SUPPORTED;
  if (properties->type != 1 || properties->location.type != 1 || properties->win32) return INVALID_VALUE;
  if (properties->location.id < 0 || properties->location.id >= fake_device_count) return INVALID_DEVICE;
  if (properties->handle_types & ~1u) return NOT_SUPPORTED;
  uint64_t id = fake_next_id();
  int fd = -1;
  if (properties->handle_types) {
    char name[64];
    snprintf(name, sizeof name, "fake-cuda-pool:%d:%llx", properties->location.id, (unsigned long long)id);
    fd = memfd_create(name, MFD_CLOEXEC);
    if (fd < 0) return 304;
  }
  *out = make(properties->location.id, properties->handle_types, id, 0, fd);
  return OK;
}

EXPORT CUresult cuMemPoolDestroy(struct pool *pool) {
  CALL_LATE("cuMemPoolDestroy");
  if (!pool) return INVALID_VALUE;
  pthread_mutex_lock(&fake_lock);
  struct range handle = {.pool = pool};
  fake_leave_pool(&handle);
  pthread_mutex_unlock(&fake_lock);
  return late;
}

EXPORT CUresult cuDeviceGetDefaultMemPool(struct pool **out, CUdevice device) {
  CALL("cuDeviceGetDefaultMemPool");
  if (fake_no_pools) return NOT_SUPPORTED;
  if (device < 0 || device >= fake_device_count) return INVALID_DEVICE;
  pthread_mutex_lock(&fake_lock);
  if (!default_pools[device]) {
    default_pools[device] = make(device, 0, fake_next_id(), 0, -1);
    fake_keep(default_pools[device]);
  }
  *out = default_pools[device];
  pthread_mutex_unlock(&fake_lock);
  return OK;
}

// The memory exists at once: nothing uses it before its stream has reached the allocation.
EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t size, struct pool *pool, struct stream *stream) {
  CALL("cuMemAllocFromPoolAsync");
  NEED_CONTEXT;
  // An imported pool cannot allocate.
  if (!pool || !stream || pool->imported) return INVALID_VALUE;
  uintptr_t address = 0;
  CUresult code = fake_allocate_in(&address, size, pool->device);
  if (code) return code;
  pthread_mutex_lock(&fake_lock);
  fake_find(address)->pool = pool;
  pool->refs++;
  pthread_mutex_unlock(&fake_lock);
  *out = address;
  return OK;
}

EXPORT CUresult cuMemPoolSetAccess(struct pool *pool, const struct access *access, size_t count) {
  CALL("cuMemPoolSetAccess");
  CUresult code = pool ? OK : INVALID_VALUE;
  pthread_mutex_lock(&fake_lock);
  for (size_t i = 0; i < count && !code; i++) {
    int device = access[i].location.id;
    if (access[i].location.type != 1 || device < 0 || device >= fake_device_count) code = INVALID_DEVICE;
    else if (device != pool->device && fake_no_peer) code = NOT_SUPPORTED;
    else if (access[i].flags) pool->readable |= 1u << device;
    else if (device == pool->device) code = INVALID_VALUE;
    else pool->readable &= ~(1u << device);
  }
  pthread_mutex_unlock(&fake_lock);
  return code;
}

EXPORT CUresult cuMemPoolExportToShareableHandle(void *out, struct pool *pool, unsigned type,
                                                 unsigned long long flags) {
  CALL("cuMemPoolExportToShareableHandle");
  if (!pool || flags || type != 1 || !(pool->types & type) || pool->imported) return INVALID_VALUE;
  int fd = fcntl(pool->fd, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return 304;
  *(int *)out = fd;
  return OK;
}

EXPORT CUresult cuMemPoolImportFromShareableHandle(struct pool **out, void *handle, unsigned type,
                                                   unsigned long long flags) {
  CALL("cuMemPoolImportFromShareableHandle");
  if (flags || fake_no_pools || type != 1) return NOT_SUPPORTED;
  int fd = (int)(intptr_t)handle;
  char path[64], name[128];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  ssize_t len = readlink(path, name, sizeof name - 1);
  int device;
  unsigned long long id;
  if (len < 0) return INVALID_VALUE;
  name[len] = 0;
  if (sscanf(name, "/memfd:fake-cuda-pool:%d:%llx", &device, &id) != 2) return INVALID_VALUE;
  pthread_mutex_lock(&fake_lock);
  *out = make(device, 1, id, 1, -1);
  pthread_mutex_unlock(&fake_lock);
  return OK;
}

EXPORT CUresult cuMemPoolExportPointer(struct share *out, CUdeviceptr address) {
  CALL("cuMemPoolExportPointer");
  pthread_mutex_lock(&fake_lock);
  struct range *range = fake_find((uintptr_t)address);
  struct pool *pool = range && range->base == address ? range->pool : NULL;
  CUresult code = pool && pool->types && !pool->imported ? OK : INVALID_VALUE;
  // Each export differs, so that no program relies on equal exports.
  if (!code) {
    static uint8_t number;
    *out = (struct share){MAGIC, getpid(), range->fd, range->device, range->size, range->id, pool->id, {++number}};
  }
  pthread_mutex_unlock(&fake_lock);
  return code;
}

EXPORT CUresult cuMemPoolImportPointer(CUdeviceptr *out, struct pool *pool, const struct share *share) {
  CALL("cuMemPoolImportPointer");
  NEED_CONTEXT;
  if (!pool || !pool->imported || share->magic != MAGIC || share->pool != pool->id) return INVALID_VALUE;
  struct range *range = NULL;
  CUresult code = fake_open(share->pid, share->fd, share->device, share->size, share->id, &range);
  if (code == ALREADY_MAPPED) {
    // The real driver gives the same address again, and the first free ends both imports.
    fprintf(stderr, "fake CUDA: an allocation of a pool is imported twice\n");
    abort();
  }
  if (code) return code;
  pthread_mutex_lock(&fake_lock);
  range->pool = pool;
  pool->refs++;
  *out = range->base;
  pthread_mutex_unlock(&fake_lock);
  return OK;
}
