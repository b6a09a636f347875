// Further functions of the driver, which UCX's CUDA modules need.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "fake.h"

EXPORT CUresult cuCtxGetDevice(CUdevice *device) {
  CALL("cuCtxGetDevice");
  NEED_CONTEXT;
  *device = context->device;
  return OK;
}

EXPORT CUresult cuCtxSetCurrent(struct context *context) {
  CALL("cuCtxSetCurrent");
  return fake_set_current(context);
}

EXPORT CUresult cuCtxGetId(struct context *of, unsigned long long *id) {
  CALL("cuCtxGetId");
  if (!of) {
    NEED_CONTEXT;
    of = context;
  }
  if (of->dead) return CONTEXT_IS_DESTROYED;
  *id = atomic_load(&of->id);
  return OK;
}

EXPORT CUresult cuDeviceGetUuid(uint8_t uuid[16], CUdevice device) { return cuDeviceGetUuid_v2(uuid, device); }

EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
  CALL("cuDevicePrimaryCtxGetState");
  if (device < 0 || device >= fake_device_count) return INVALID_DEVICE;
  pthread_mutex_lock(&fake_lock);
  struct context *primary = fake_devices[device].primary;
  *flags = 0;
  *active = primary && !primary->dead && fake_devices[device].retained > 0;
  pthread_mutex_unlock(&fake_lock);
  return OK;
}

// The newest version of a function. `found`: 0 if it exists, otherwise 1.
EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *found) {
  CALL("cuGetProcAddress_v2");
  (void)version, (void)flags;
  char name[128];
  for (int number = 3; number > 0; number--) {
    snprintf(name, sizeof name, number > 1 ? "%s_v%d" : "%s", symbol, number);
    *function = dlsym(RTLD_DEFAULT, name);
    if (*function) break;
  }
  if (found) *found = *function == NULL;
  return *function ? OK : NOT_FOUND;
}

EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr target, CUdeviceptr source, size_t len, struct stream *stream) {
  return cuMemcpyAsync(target, source, len, stream);
}

EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr target, const void *source, size_t len) {
  return cuMemcpy(target, (CUdeviceptr)(uintptr_t)source, len);
}

EXPORT CUresult cuPointerGetAttribute(void *out, int attribute, CUdeviceptr address) {
  CUresult code = cuPointerGetAttributes(1, &attribute, &out, address);
  // A query of one attribute fails for unknown memory; a query of several does not.
  if (!code && attribute == 2 && !*(unsigned *)out) return INVALID_VALUE;
  return code;
}

// The attribute requests synchronous copies; here all copies of this kind are synchronous.
EXPORT CUresult cuPointerSetAttribute(const void *value, int attribute, CUdeviceptr address) {
  CALL("cuPointerSetAttribute");
  (void)value, (void)attribute;
  pthread_mutex_lock(&fake_lock);
  CUresult code = fake_find((uintptr_t)address) ? OK : INVALID_VALUE;
  pthread_mutex_unlock(&fake_lock);
  return code;
}

// Features that the fake GPUs lack; UCX works without them.

#define NOT_HERE(name)                  \
  EXPORT CUresult name(void) {          \
    CALL(#name);                        \
    return NOT_SUPPORTED;               \
  }
NOT_HERE(cuMemGetAllocationPropertiesFromHandle)
NOT_HERE(cuMemRangeGetAttribute)
