// Memory of other processes, opened by its descriptor there; legacy handles.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fake.h"

struct handle {
  uint32_t magic;
  int32_t pid, fd, device;
  uint64_t size, id;
  uint8_t rest[32];
};
_Static_assert(sizeof(struct handle) == 64, "what CUDA's handle has");
enum { MAGIC = 0xFACADE };

EXPORT CUresult cuIpcGetMemHandle(struct handle *out, CUdeviceptr address) {
  CALL("cuIpcGetMemHandle");
  NEED_CONTEXT;
  pthread_mutex_lock(&fake_lock);
  struct range *range = fake_find((uintptr_t)address);
  int right = range && range->kind == DEVICE && !range->pool && range->base == address;
  CUresult code = right ? OK : INVALID_VALUE;
  if (!code)
    *out = (struct handle){MAGIC, getpid(), range->fd, range->device, range->size, range->id, {0}};
  pthread_mutex_unlock(&fake_lock);
  return code;
}

static struct range *opened(uint64_t id, uintptr_t address) {
  for (struct range *range = fake_ranges(); range; range = range->next)
    if (range->kind == OPENED && (id ? range->peer_id == id : range->base == address)) return range;
  return NULL;
}

CUresult fake_open(int pid, int fd, int device, size_t size, uint64_t id, struct range **out) {
  char path[64], name[128], wanted[64];
  snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
  ssize_t len = readlink(path, name, sizeof name - 1);
  if (len < 0) return INVALID_HANDLE;
  name[len] = 0;
  snprintf(wanted, sizeof wanted, "/memfd:fake-cuda:%d:%llx:", device, (unsigned long long)id);
  // The descriptor may name another file by now.
  if (strncmp(name, wanted, strlen(wanted))) return INVALID_HANDLE;
  int ours = open(path, O_RDWR | O_CLOEXEC);
  if (ours < 0) return INVALID_HANDLE;
  pthread_mutex_lock(&fake_lock);
  CUresult code = opened(id, 0) ? ALREADY_MAPPED : fake_map(ours, size, device, OPENED, out);
  if (code) {
    close(ours);
  } else {
    (*out)->peer_id = id;
    atomic_fetch_add(&fake_live[OPEN_HANDLES], 1);
  }
  pthread_mutex_unlock(&fake_lock);
  return code;
}

EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, struct handle handle, unsigned flags) {
  CALL("cuIpcOpenMemHandle_v2");
  NEED_CONTEXT;
  if (flags != 1) return INVALID_VALUE;
  // The answer of driver 580 to bytes that are no handle.
  if (handle.magic != MAGIC) return MAPPING_FAILED;
  if (handle.pid == getpid()) return INVALID_CONTEXT;
  struct range *range = NULL;
  CUresult code = fake_open(handle.pid, handle.fd, handle.device, handle.size, handle.id, &range);
  if (code) return code;
  pthread_mutex_lock(&fake_lock);
  range->context = context;
  *out = range->base;
  // The flag requests this.
  context->peers |= 1u << handle.device;
  pthread_mutex_unlock(&fake_lock);
  return OK;
}

EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  MAY_WAIT_TO_FREE("cuIpcCloseMemHandle");
  CALL_LATE("cuIpcCloseMemHandle");
  NEED_CONTEXT;
  pthread_mutex_lock(&fake_lock);
  struct range *range = opened(0, (uintptr_t)address);
  if (range) {
    fake_unmap(range);
    atomic_fetch_sub(&fake_live[OPEN_HANDLES], 1);
  }
  pthread_mutex_unlock(&fake_lock);
  return range ? late : INVALID_VALUE;
}
