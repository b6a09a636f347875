// Modules and kernels. The kernels are libdipc's own source, run thread after thread.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

static struct { unsigned x, y; } blockIdx, blockDim, threadIdx, gridDim;
static struct context *running;

// The processor's pointer for a device pointer. A fault ends the kernel's work, not the process.
static unsigned char *reach(uint64_t address, uint64_t len) {
  static unsigned char nowhere[1 << 16];
  unsigned char *at = fake_reach((uintptr_t)address, (size_t)len, running->device, 1);
  if (at) return at;
  atomic_store(&running->error, ILLEGAL_ADDRESS);
  if (len > sizeof nowhere) abort();
  return nowhere;
}

#define DIPC_FAKE
#define KERNEL static void
#define BYTES(address, len) reach(address, len)
#define ADD(target, value) (*(uint64_t *)(target) += (value))
#define ONES(byte) __builtin_popcount(byte)
#include "../../src/device/cuda/kernels/kernels.cu"

static void gather(const uint64_t *params) {
  const struct dipc_read *reads = (void *)reach(params[0], params[1] * sizeof *reads);
  dipc_gather(reads, params[1]);
}
static void shift_bits(const uint64_t *params) {
  dipc_shift_bits((void *)reach(params[0], gridDim.y * sizeof(struct dipc_bits)));
}
static void count_bits(const uint64_t *params) {
  dipc_count_bits((void *)reach(params[0], gridDim.y * sizeof(struct dipc_bits)));
}

struct function {
  const char *name;
  size_t params;
  void (*run)(const uint64_t *params);
};
static struct function functions[] = {
    {"dipc_gather", 2, gather},
    {"dipc_shift_bits", 1, shift_bits},
    {"dipc_count_bits", 1, count_bits},
};

// Under the lock, so that one kernel at a time has the variables above.
void fake_run_kernel(struct function *function, const unsigned *shape, const uint64_t *params,
                     struct context *context) {
  running = context;
  gridDim.x = shape[0];
  gridDim.y = shape[1];
  blockDim.x = shape[3];
  blockDim.y = shape[4];
  for (blockIdx.y = 0; blockIdx.y < gridDim.y; blockIdx.y++)
    for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++)
      for (threadIdx.x = 0; threadIdx.x < blockDim.x; threadIdx.x++) {
        function->run(params);
        if (atomic_load(&context->error)) return;
      }
}

struct module {
  struct context *context;
  uint64_t id;
  char *image;
};

EXPORT CUresult cuModuleLoadData(struct module **out, const char *image) {
  MAY_WAIT("cuModuleLoadData");
  CALL("cuModuleLoadData");
  NEED_CONTEXT;
  if (!strstr(image, ".version") || !strstr(image, ".target")) return INVALID_PTX;
  struct module *module = malloc(sizeof *module);
  *module = (struct module){context, atomic_load(&context->id), strdup(image)};
  fake_counted(module);
  fake_count(context, MODULES, 1);
  *out = module;
  return OK;
}

EXPORT CUresult cuModuleUnload(struct module *module) {
  MAY_WAIT_TO_FREE("cuModuleUnload");
  CALL_LATE("cuModuleUnload");
  NEED_CONTEXT;
  CUresult code = fake_alive(module->context, module->id);
  if (code) return code;
  fake_count(module->context, MODULES, -1);
  free(module->image);
  free(module);
  return late;
}

EXPORT CUresult cuModuleGetFunction(struct function **out, struct module *module, const char *name) {
  CALL("cuModuleGetFunction");
  NEED_CONTEXT;
  CUresult code = fake_alive(module->context, module->id);
  if (code) return code;
  char entry[64];
  snprintf(entry, sizeof entry, ".entry %s(", name);
  if (!strstr(module->image, entry)) return NOT_FOUND;
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
    if (!strcmp(functions[i].name, name)) {
      *out = &functions[i];
      return OK;
    }
  return NOT_FOUND;
}

CUresult fake_launch(void *stream, struct function *function, const unsigned *shape, const uint64_t *params,
                     size_t count);

EXPORT CUresult cuLaunchKernel(struct function *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                               unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                               void *stream, void **params, void **extra) {
  CALL("cuLaunchKernel");
  NEED_CONTEXT;
  const unsigned shape[6] = {grid_x, grid_y, grid_z, block_x, block_y, block_z};
  uint64_t each = (uint64_t)block_x * block_y * block_z;
  // The limits of every GPU.
  if (!grid_x || !grid_y || grid_y > 65535 || grid_z != 1 || !each || each > 1024 || block_y != 1 || shared || extra)
    return INVALID_VALUE;
  uint64_t values[4] = {0};
  for (size_t i = 0; i < function->params; i++) memcpy(&values[i], params[i], sizeof *values);
  return fake_launch(stream, function, shape, values, function->params);
}
