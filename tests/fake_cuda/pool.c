// Pools of stream-ordered memory.
#include <stdlib.h>

#include "fake.h"

struct pool {
  int device;
};

static struct pool *default_pools[MAX_DEVICES];

EXPORT CUresult cuDeviceGetDefaultMemPool(struct pool **out, CUdevice device) {
  CALL("cuDeviceGetDefaultMemPool");
  if (device < 0 || device >= fake_device_count) return INVALID_DEVICE;
  pthread_mutex_lock(&fake_lock);
  if (!default_pools[device]) {
    default_pools[device] = calloc(1, sizeof(struct pool));
    default_pools[device]->device = device;
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
  if (!pool || !stream) return INVALID_VALUE;
  uintptr_t address = 0;
  CUresult code = fake_allocate_in(&address, size, pool->device);
  if (code) return code;
  pthread_mutex_lock(&fake_lock);
  fake_find(address)->pool = pool;
  pthread_mutex_unlock(&fake_lock);
  *out = address;
  return OK;
}
