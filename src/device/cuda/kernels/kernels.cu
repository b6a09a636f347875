// The kernels of libdipc. `build.py` compiles them to kernels.ptx, which is committed and loaded
// through the driver. The fake driver of the tests compiles this source for the host.
//
// Tasks and the results of dipc_gather lie in pinned host memory, all other memory on the device.
// The kernels do not check the addresses of a task.

#ifndef DIPC_FAKE
#define KERNEL extern "C" __global__ void
#define BYTES(address, len) ((unsigned char *)(address))
#define ADD(target, value) atomicAdd((unsigned long long *)(target), (unsigned long long)(value))
#define ONES(byte) __popc(byte)
#endif

// A small read: copies `len` bytes from `source` to `target`.
struct dipc_read {
  unsigned long long source, target, len;
};

// A range of bits: `len` bits from bit `first` of the byte at `source` on. `first` is less than 8.
struct dipc_bits {
  unsigned long long source, target, first, len;
};

// Each thread makes one read.
KERNEL dipc_gather(const struct dipc_read *reads, unsigned long long count) {
  unsigned long long index = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= count) return;
  const unsigned char *source = BYTES(reads[index].source, reads[index].len);
  unsigned char *target = BYTES(reads[index].target, reads[index].len);
  for (unsigned long long at = 0; at < reads[index].len; at++) target[at] = source[at];
}

// The byte of bits 8 * `at` to 8 * `at` + 7 of the range, with zeros after its end.
#define SHIFTED(out, task, bytes, at)                                                              \
  unsigned long long bit = 8 * (at);                                                               \
  unsigned long long left = (task)->len - bit;                                                     \
  unsigned int first = (unsigned int)(task)->first;                                                \
  unsigned int out = (unsigned int)(bytes)[at] >> first;                                           \
  /* The next byte exists only if the range has a bit of it. */                                    \
  if (first > 0 && left > 8 - first) out |= (unsigned int)(bytes)[(at) + 1] << (8 - first);        \
  out &= left < 8 ? (1u << left) - 1u : 0xFFu;

// Rule A2: a bitmap begins at bit 0. Row y of the grid is task y; its threads share the bytes.
KERNEL dipc_shift_bits(const struct dipc_bits *tasks) {
  const struct dipc_bits *task = &tasks[blockIdx.y];
  unsigned long long len = (task->len + 7) / 8;
  const unsigned char *source = BYTES(task->source, (task->first + task->len + 7) / 8);
  unsigned char *target = BYTES(task->target, len);
  unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
  for (unsigned long long at = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; at < len; at += step) {
    SHIFTED(value, task, source, at)
    target[at] = (unsigned char)value;
  }
}

// Adds the number of 1 bits to the number at `target`. The grid is as above.
KERNEL dipc_count_bits(const struct dipc_bits *tasks) {
  const struct dipc_bits *task = &tasks[blockIdx.y];
  unsigned long long len = (task->len + 7) / 8;
  const unsigned char *source = BYTES(task->source, (task->first + task->len + 7) / 8);
  unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
  unsigned long long ones = 0;
  for (unsigned long long at = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; at < len; at += step) {
    SHIFTED(value, task, source, at)
    ones += ONES(value);
  }
  if (ones > 0) ADD(BYTES(task->target, 8), ones);
}
