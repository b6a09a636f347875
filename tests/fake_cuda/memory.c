// Memory: allocations, virtual memory management, and pointer attributes.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake.h"

static struct range *ranges;
static const size_t GRANULARITY = 2 << 20;

struct range *fake_ranges(void) { return ranges; }

static size_t pages(size_t size) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  return (size + page - 1) / page * page;
}

uint64_t fake_next_id(void) {
  static atomic_uint_fast64_t next = 1;
  return (uint64_t)getpid() << 32 | atomic_fetch_add(&next, 1);
}

// The name identifies the memory for receivers of the descriptor.
int fake_memfd(int device, uint64_t id, size_t size) {
  char name[64];
  snprintf(name, sizeof name, "fake-cuda:%d:%llx:%zu", device, (unsigned long long)id, size);
  int fd = memfd_create(name, MFD_CLOEXEC);
  // The last page lists the processes that have it open.
  if (fd >= 0 && ftruncate(fd, (off_t)(pages(size) + pages(1)))) {
    close(fd);
    return -1;
  }
  return fd;
}

struct range *fake_find(uintptr_t address) {
  for (struct range **link = &ranges; *link; link = &(*link)->next) {
    struct range *range = *link;
    if (address < range->base || address - range->base >= range->size) continue;
    // To the front, because the same range is mostly needed again.
    *link = range->next;
    range->next = ranges;
    ranges = range;
    return range;
  }
  return NULL;
}

// A process that opens memory takes an entry, and frees it at the close.
static void enroll(struct importers *importers, int from, int to) {
  for (size_t i = 0; i < sizeof importers->pids / sizeof *importers->pids; i++) {
    int seen = from;
    if (atomic_compare_exchange_strong(&importers->pids[i], &seen, to)) return;
  }
  abort();
}

int fake_is_open_elsewhere(struct range *range) {
  for (size_t i = 0; i < sizeof range->importers->pids / sizeof *range->importers->pids; i++) {
    int pid = atomic_load(&range->importers->pids[i]);
    char path[64], name[8];
    snprintf(path, sizeof path, "/proc/%d/exe", pid);
    // An ended process, also a zombie, no longer has it open.
    if (pid && pid != getpid() && readlink(path, name, sizeof name) >= 0) return pid;
  }
  return 0;
}

CUresult fake_map(int fd, size_t size, int device, enum kind kind, struct range **out) {
  struct range *range = calloc(1, sizeof *range);
  range->size = size;
  range->mapped = pages(size);
  range->kind = kind;
  range->device = device;
  range->fd = fd;
  range->shadow = mmap(NULL, range->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (range->shadow == MAP_FAILED) {
    free(range);
    return OUT_OF_MEMORY;
  }
  if (kind == DEVICE || kind == OPENED || (kind == MANAGED && fake_no_concurrent)) {
    void *base = mmap(NULL, range->mapped, PROT_NONE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
      munmap(range->shadow, range->mapped);
      free(range);
      return OUT_OF_MEMORY;
    }
    range->base = (uintptr_t)base;
    range->importers = mmap(NULL, pages(1), PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)range->mapped);
    if (range->importers == MAP_FAILED) abort();
    if (kind == OPENED) enroll(range->importers, 0, getpid());
  } else {
    range->base = (uintptr_t)range->shadow;
  }
  range->next = ranges;
  ranges = range;
  *out = range;
  return OK;
}

void fake_unmap(struct range *range) {
  struct range **link = &ranges;
  while (*link != range) link = &(*link)->next;
  *link = range->next;
  if (range->kind == MAPPED) {
    // The address reservation stays.
    mmap((void *)range->base, range->mapped, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    munmap(range->shadow, range->mapped);
  } else {
    if (range->kind == OPENED) enroll(range->importers, getpid(), 0);
    if (range->importers) munmap(range->importers, pages(1));
    if ((uintptr_t)range->shadow != range->base) munmap((void *)range->base, range->mapped);
    munmap(range->shadow, range->mapped);
    close(range->fd);
  }
  free(range);
}

uint8_t *fake_reach(uintptr_t address, size_t len, int device, int kernel) {
  struct range *range = fake_find(address);
  if (range) {
    size_t offset = address - range->base;
    if (len > range->size - offset) return NULL;
    if (range->kind == MAPPED && !(range->readable & 1u << device)) return NULL;
    // Copies cross devices without peer access; kernels need it.
    struct context *context = fake_devices[device].primary;
    int foreign = range->device != device && (range->kind == DEVICE || range->kind == OPENED);
    // Kernels here run in primary contexts; each context has its own addresses.
    int elsewhere = range->kind == DEVICE && range->context && !range->context->primary;
    if (kernel && elsewhere) return NULL;
    if (kernel && foreign && !(context && context->peers & 1u << range->device)) return NULL;
    return range->shadow + offset;
  }
  // Kernels reach only host memory that the driver knows.
  if (kernel) return NULL;
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  uintptr_t start = address / page * page;
  unsigned char there;
  for (uintptr_t at = start; at < address + len; at += page)
    if (mincore((void *)at, page, &there)) return NULL;
  return (uint8_t *)address;
}

// The program's memory that the driver pins. It must stay mapped until it is unregistered.
static struct registered {
  struct registered *next;
  uintptr_t base;
  size_t size;
  struct context *context;
} *registrations;

void fake_forget_context(struct context *context) {
  for (struct registered **link = &registrations; *link;) {
    struct registered *gone = *link;
    if (gone->context != context) {
      link = &gone->next;
      continue;
    }
    *link = gone->next;
    free(gone);
    atomic_fetch_sub(&fake_live[PINNED], 1);
  }
  struct range *next;
  for (struct range *range = ranges; range; range = next) {
    next = range->next;
    if (range->context != context) continue;
    if (range->kind == DEVICE || range->kind == MANAGED) {
      fake_devices[range->device].used -= range->size;
      atomic_fetch_sub(&fake_live[ALLOCATIONS], 1);
    } else if (range->kind == HOST) {
      atomic_fetch_sub(&fake_live[PINNED], 1);
    } else {
      atomic_fetch_sub(&fake_live[OPEN_HANDLES], 1);
    }
    fake_unmap(range);
  }
}

// Under the lock.
static int pay(int device, size_t size) {
  struct device *of = &fake_devices[device];
  if (size > of->total || of->used > of->total - size) return 0;
  of->used += size;
  return 1;
}

static CUresult allocate_on(uintptr_t *out, size_t size, enum kind kind, int device, struct context *context) {
  if (!size || !out) return INVALID_VALUE;
  pthread_mutex_lock(&fake_lock);
  CUresult code = OUT_OF_MEMORY;
  int paid = kind == HOST || pay(device, size);
  if (paid) {
    uint64_t id = fake_next_id();
    int fd = fake_memfd(device, id, size);
    struct range *range = NULL;
    if (fd >= 0) code = fake_map(fd, size, device, kind, &range);
    if (code == OK) {
      // The initial content of an allocation is undefined, and here not zero.
      memset(range->shadow, 0xA5, size);
      range->id = id;
      range->context = context;
      *out = range->base;
      atomic_fetch_add(&fake_live[kind == HOST ? PINNED : ALLOCATIONS], 1);
    } else {
      if (fd >= 0) close(fd);
      if (kind != HOST) fake_devices[device].used -= size;
    }
  }
  pthread_mutex_unlock(&fake_lock);
  return code;
}

static CUresult allocate(uintptr_t *out, size_t size, enum kind kind, struct context *context) {
  return allocate_on(out, size, kind, context->device, context);
}

CUresult fake_allocate_in(uintptr_t *out, size_t size, int device) {
  return allocate_on(out, size, DEVICE, device, NULL);
}

static CUresult release(uintptr_t address, int host) {
  pthread_mutex_lock(&fake_lock);
  struct range *range = fake_find(address);
  CUresult code = INVALID_VALUE;
  int right = range && (host ? range->kind == HOST : range->kind == DEVICE || range->kind == MANAGED);
  if (right && range->base == address) {
    int pid = range->kind == DEVICE ? fake_is_open_elsewhere(range) : 0;
    if (pid) {
      fprintf(stderr, "fake CUDA: memory is freed that process %d has open\n", pid);
      abort();
    }
    if (!host) fake_devices[range->device].used -= range->size;
    atomic_fetch_sub(&fake_live[host ? PINNED : ALLOCATIONS], 1);
    fake_unmap(range);
    code = OK;
  }
  pthread_mutex_unlock(&fake_lock);
  return code;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t size) {
  MAY_WAIT("cuMemAlloc_v2");
  CALL("cuMemAlloc_v2");
  NEED_CONTEXT;
  uintptr_t address = 0;
  CUresult code = allocate(&address, size, DEVICE, context);
  if (!code) *out = address;
  return code;
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *out, size_t size, unsigned flags) {
  MAY_WAIT("cuMemAllocManaged");
  CALL("cuMemAllocManaged");
  NEED_CONTEXT;
  if (flags != 1) return INVALID_VALUE;
  uintptr_t address = 0;
  CUresult code = allocate(&address, size, MANAGED, context);
  if (!code) *out = address;
  return code;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
  MAY_WAIT_TO_FREE("cuMemFree_v2");
  CALL_LATE("cuMemFree_v2");
  NEED_CONTEXT;
  CUresult code = release((uintptr_t)address, 0);
  return code ? code : late;
}

EXPORT CUresult cuMemHostAlloc(void **out, size_t size, unsigned flags) {
  MAY_WAIT("cuMemHostAlloc");
  CALL("cuMemHostAlloc");
  NEED_CONTEXT;
  if (flags & ~7u) return INVALID_VALUE;
  uintptr_t address = 0;
  CUresult code = allocate(&address, size, HOST, context);
  if (!code) *out = (void *)address;
  return code;
}

EXPORT CUresult cuMemFreeHost(void *address) {
  MAY_WAIT_TO_FREE("cuMemFreeHost");
  CALL_LATE("cuMemFreeHost");
  NEED_CONTEXT;
  CUresult code = release((uintptr_t)address, 1);
  return code ? code : late;
}

EXPORT CUresult cuMemHostRegister_v2(void *address, size_t size, unsigned flags) {
  MAY_WAIT("cuMemHostRegister_v2");
  CALL("cuMemHostRegister_v2");
  NEED_CONTEXT;
  uintptr_t base = (uintptr_t)address;
  if (!base || !size || flags & ~15u) return INVALID_VALUE;
  pthread_mutex_lock(&fake_lock);
  CUresult code = fake_reach(base, size, context->device, 0) ? OK : INVALID_VALUE;
  for (struct registered *at = registrations; at && !code; at = at->next)
    if (base < at->base + at->size && at->base < base + size) code = 712;
  if (!code) {
    struct registered *fresh = calloc(1, sizeof *fresh);
    *fresh = (struct registered){registrations, base, size, context};
    registrations = fresh;
    atomic_fetch_add(&fake_live[PINNED], 1);
  }
  pthread_mutex_unlock(&fake_lock);
  return code;
}

EXPORT CUresult cuMemHostUnregister(void *address) {
  MAY_WAIT_TO_FREE("cuMemHostUnregister");
  CALL_LATE("cuMemHostUnregister");
  NEED_CONTEXT;
  pthread_mutex_lock(&fake_lock);
  struct registered **link = &registrations;
  while (*link && (*link)->base != (uintptr_t)address) link = &(*link)->next;
  struct registered *found = *link;
  CUresult code = found ? late : 713;
  if (found) {
    // Pages that are unmapped already are a mistake of the caller.
    if (!fake_reach(found->base, found->size, context->device, 0)) code = INVALID_VALUE;
    *link = found->next;
    free(found);
    atomic_fetch_sub(&fake_live[PINNED], 1);
  }
  pthread_mutex_unlock(&fake_lock);
  return code;
}

EXPORT CUresult cuMemGetInfo_v2(size_t *available, size_t *total) {
  CALL("cuMemGetInfo_v2");
  NEED_CONTEXT;
  pthread_mutex_lock(&fake_lock);
  struct device *of = &fake_devices[context->device];
  *total = of->total;
  *available = of->used < of->total ? of->total - of->used : 0;
  pthread_mutex_unlock(&fake_lock);
  return OK;
}

EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address) {
  CALL("cuMemGetAddressRange_v2");
  NEED_CONTEXT;
  pthread_mutex_lock(&fake_lock);
  struct range *range = fake_find((uintptr_t)address);
  CUresult code = range && range->kind != HOST ? OK : INVALID_VALUE;
  if (!code && base) *base = range->base;
  if (!code && size) *size = range->size;
  pthread_mutex_unlock(&fake_lock);
  return code;
}

static struct reservation {
  struct reservation *next;
  uintptr_t base;
  size_t size;
} *reservations;

// Attributes of a pointer. For an unknown pointer every answer is 0, and the call succeeds.
static CUresult attribute(int what, void *out, struct range *range) {
  uintptr_t base = range ? range->base : 0;
  size_t size = range ? range->size : 0;
  for (struct reservation *in = reservations; in && range; in = in->next)
    if (base >= in->base && base - in->base < in->size) {
      // For mapped memory the driver gives the reservation; cuMemGetAddressRange gives the mapping.
      base = in->base;
      size = in->size;
    }
  switch (what) {
    case 1: *(void **)out = range ? range->context : NULL; return OK;
    case 2: *(unsigned *)out = !range ? 0 : range->kind == HOST ? 1 : 2; return OK;
    case 8: *(unsigned *)out = range && range->kind == MANAGED; return OK;
    case 9: *(int *)out = range ? range->device : -2; return OK;
    case 10: *(uint8_t *)out = range && range->kind == DEVICE && !range->pool; return OK;
    case 11: *(CUdeviceptr *)out = base; return OK;
    case 12: *(size_t *)out = size; return OK;
    case 13: *(uint8_t *)out = range != NULL; return OK;
    case 14:
      *(uint64_t *)out = range && range->kind == MAPPED ? range->allocation->types : 0;
      return OK;
    case 17: *(void **)out = range ? range->pool : NULL; return OK;
    default: return INVALID_VALUE;
  }
}

EXPORT CUresult cuPointerGetAttributes(unsigned count, const int *which, void **out, CUdeviceptr address) {
  CALL("cuPointerGetAttributes");
  pthread_mutex_lock(&fake_lock);
  struct range *range = fake_find((uintptr_t)address);
  CUresult code = OK;
  for (unsigned i = 0; i < count && !code; i++) code = attribute(which[i], out[i], range);
  pthread_mutex_unlock(&fake_lock);
  return code;
}

// Virtual memory management.

struct location {
  unsigned type;
  int id;
};
struct properties {
  unsigned type;
  unsigned handle_types;
  struct location location;
  void *win32;
  uint8_t flags[8];
};
struct access {
  struct location location;
  unsigned flags;
};

static CUresult check(const struct properties *properties) {
  if (fake_no_vmm) return NOT_SUPPORTED;
  if (properties->type != 1 || properties->location.type != 1 || properties->win32) return INVALID_VALUE;
  if (properties->location.id < 0 || properties->location.id >= fake_device_count) return INVALID_DEVICE;
  return properties->handle_types & ~1u ? NOT_SUPPORTED : OK;
}

// Under the lock.
static void drop(struct allocation *allocation) {
  if (--allocation->refs) return;
  if (allocation->owned) {
    fake_devices[allocation->device].used -= allocation->size;
    atomic_fetch_sub(&fake_live[ALLOCATIONS], 1);
  } else {
    atomic_fetch_sub(&fake_live[OPEN_HANDLES], 1);
  }
  close(allocation->fd);
  free(allocation);
}

EXPORT CUresult cuMemGetAllocationGranularity(size_t *out, const struct properties *properties, unsigned option) {
  CALL("cuMemGetAllocationGranularity");
  CUresult code = check(properties);
  if (!code && option > 1) code = INVALID_VALUE;
  if (!code) *out = GRANULARITY;
  return code;
}

EXPORT CUresult cuMemCreate(struct allocation **out, size_t size, const struct properties *properties,
                            unsigned long long flags) {
  MAY_WAIT("cuMemCreate");
  CALL("cuMemCreate");
  CUresult code = check(properties);
  if (code) return code;
  if (flags || !size || size % GRANULARITY) return INVALID_VALUE;
  int device = properties->location.id;
  pthread_mutex_lock(&fake_lock);
  code = OUT_OF_MEMORY;
  if (pay(device, size)) {
    int fd = fake_memfd(device, fake_next_id(), size);
    struct allocation *allocation = fd < 0 ? NULL : calloc(1, sizeof *allocation);
    if (allocation) {
      *allocation = (struct allocation){fd, device, size, properties->handle_types, 1, 1};
      fake_counted(allocation);
      atomic_fetch_add(&fake_live[ALLOCATIONS], 1);
      *out = allocation;
      code = OK;
    } else {
      fake_devices[device].used -= size;
    }
  }
  pthread_mutex_unlock(&fake_lock);
  return code;
}

EXPORT CUresult cuMemRelease(struct allocation *allocation) {
  MAY_WAIT_TO_FREE("cuMemRelease");
  CALL_LATE("cuMemRelease");
  if (!allocation) return INVALID_VALUE;
  pthread_mutex_lock(&fake_lock);
  drop(allocation);
  pthread_mutex_unlock(&fake_lock);
  return late;
}

EXPORT CUresult cuMemAddressReserve(CUdeviceptr *out, size_t size, size_t alignment, CUdeviceptr wished,
                                    unsigned long long flags) {
  CALL("cuMemAddressReserve");
  if (fake_no_vmm) return NOT_SUPPORTED;
  if (!size || size % GRANULARITY || wished || flags || alignment > GRANULARITY) return INVALID_VALUE;
  void *base = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return OUT_OF_MEMORY;
  struct reservation *reservation = calloc(1, sizeof *reservation);
  pthread_mutex_lock(&fake_lock);
  *reservation = (struct reservation){reservations, (uintptr_t)base, size};
  reservations = reservation;
  atomic_fetch_add(&fake_live[RESERVATIONS], 1);
  pthread_mutex_unlock(&fake_lock);
  *out = (uintptr_t)base;
  return OK;
}

EXPORT CUresult cuMemAddressFree(CUdeviceptr address, size_t size) {
  MAY_WAIT_TO_FREE("cuMemAddressFree");
  CALL_LATE("cuMemAddressFree");
  pthread_mutex_lock(&fake_lock);
  struct reservation **link = &reservations;
  while (*link && (*link)->base != (uintptr_t)address) link = &(*link)->next;
  struct reservation *found = *link;
  CUresult code = INVALID_VALUE;
  // A mapped reservation cannot be freed.
  if (found && found->size == size && !fake_find((uintptr_t)address)) {
    *link = found->next;
    munmap((void *)found->base, size);
    free(found);
    atomic_fetch_sub(&fake_live[RESERVATIONS], 1);
    code = late;
  }
  pthread_mutex_unlock(&fake_lock);
  return code;
}

EXPORT CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, struct allocation *allocation,
                         unsigned long long flags) {
  CALL("cuMemMap");
  if (!allocation || offset || flags || size < allocation->size) return INVALID_VALUE;
  // The answer of driver 580 to a length beyond the allocation.
  if (size > allocation->size) return NOT_SUPPORTED;
  pthread_mutex_lock(&fake_lock);
  struct reservation *in = reservations;
  while (in && !(address >= in->base && address + size <= in->base + in->size)) in = in->next;
  CUresult code = INVALID_VALUE;
  if (in && !fake_find((uintptr_t)address)) {
    struct range *range = NULL;
    code = fake_map(allocation->fd, size, allocation->device, MAPPED, &range);
    if (!code) {
      range->base = (uintptr_t)address;
      range->allocation = allocation;
      mmap((void *)range->base, size, PROT_NONE, MAP_SHARED | MAP_FIXED, allocation->fd, 0);
      allocation->refs++;
      atomic_fetch_add(&fake_live[MAPPINGS], 1);
    }
  }
  pthread_mutex_unlock(&fake_lock);
  return code;
}

EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
  MAY_WAIT_TO_FREE("cuMemUnmap");
  CALL_LATE("cuMemUnmap");
  pthread_mutex_lock(&fake_lock);
  struct range *range = fake_find((uintptr_t)address);
  CUresult code = INVALID_VALUE;
  if (range && range->kind == MAPPED && range->base == address && range->size == size) {
    struct allocation *allocation = range->allocation;
    fake_unmap(range);
    drop(allocation);
    atomic_fetch_sub(&fake_live[MAPPINGS], 1);
    code = late;
  }
  pthread_mutex_unlock(&fake_lock);
  return code;
}

EXPORT CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const struct access *access, size_t count) {
  CALL("cuMemSetAccess");
  pthread_mutex_lock(&fake_lock);
  struct range *range = fake_find((uintptr_t)address);
  CUresult code = range && range->kind == MAPPED && range->size == size ? OK : INVALID_VALUE;
  for (size_t i = 0; i < count && !code; i++) {
    int device = access[i].location.id;
    if (access[i].location.type != 1 || device < 0 || device >= fake_device_count) code = INVALID_DEVICE;
    else if (device != range->device && fake_no_peer) code = NOT_SUPPORTED;
    else if (access[i].flags) range->readable |= 1u << device;
    else range->readable &= ~(1u << device);
  }
  pthread_mutex_unlock(&fake_lock);
  return code;
}

EXPORT CUresult cuMemRetainAllocationHandle(struct allocation **out, void *address) {
  CALL("cuMemRetainAllocationHandle");
  pthread_mutex_lock(&fake_lock);
  struct range *range = fake_find((uintptr_t)address);
  CUresult code = range && range->kind == MAPPED ? OK : INVALID_VALUE;
  if (!code) {
    range->allocation->refs++;
    *out = range->allocation;
  }
  pthread_mutex_unlock(&fake_lock);
  return code;
}

EXPORT CUresult cuMemExportToShareableHandle(void *out, struct allocation *allocation, unsigned type,
                                             unsigned long long flags) {
  CALL("cuMemExportToShareableHandle");
  if (flags || !allocation || type != 1 || !(allocation->types & type)) return INVALID_VALUE;
  int fd = fcntl(allocation->fd, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return 304;
  *(int *)out = fd;
  return OK;
}

EXPORT CUresult cuMemImportFromShareableHandle(struct allocation **out, void *handle, unsigned type) {
  CALL("cuMemImportFromShareableHandle");
  if (fake_no_vmm || type != 1) return NOT_SUPPORTED;
  int fd = (int)(intptr_t)handle;
  char path[64], name[128];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  ssize_t len = readlink(path, name, sizeof name - 1);
  int device;
  unsigned long long id;
  size_t size;
  if (len < 0) return INVALID_VALUE;
  name[len] = 0;
  if (sscanf(name, "/memfd:fake-cuda:%d:%llx:%zu", &device, &id, &size) != 3) return INVALID_VALUE;
  int ours = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (ours < 0) return 304;
  struct allocation *allocation = calloc(1, sizeof *allocation);
  *allocation = (struct allocation){ours, device, size, 1, 1, 0};
  atomic_fetch_add(&fake_live[OPEN_HANDLES], 1);
  *out = allocation;
  return OK;
}
