// What header building asks of a GPU. `build.py` compiles this to kernels.ptx, which is committed and
// loaded through the driver; the fake driver of the tests compiles this same source for the host.
//
// Tasks lie in pinned host memory, and so does what dipc_gather writes; everything else is on the
// device. A task's memory is the host's word: nothing is checked here.

#ifndef DIPC_FAKE
#define KERNEL extern "C" __global__ void
#define BYTES(address, len) ((unsigned char *)(address))
#define ADD(target, value) atomicAdd((unsigned long long *)(target), (unsigned long long)(value))
#define ONES(byte) __popc(byte)
#endif

// A small read: `len` bytes at `source`, to be written at `target`.
struct dipc_read {
  unsigned long long source, target, len;
};

// Some bits of a bitmap: `len` bits from bit `first` of the byte at `source` on, where `first` is less
// than 8.
struct dipc_bits {
  unsigned long long source, target, first, len;
};

// One thread for each read.
KERNEL dipc_gather(const struct dipc_read *reads, unsigned long long count) {
  unsigned long long index = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= count) return;
  const unsigned char *source = BYTES(reads[index].source, reads[index].len);
  unsigned char *target = BYTES(reads[index].target, reads[index].len);
  for (unsigned long long at = 0; at < reads[index].len; at++) target[at] = source[at];
}

// The byte of the bitmap that begins at bit 8 * `at` of the bits, with zeros past their end.
#define SHIFTED(out, task, bytes, at)                                                              \
  unsigned long long bit = 8 * (at);                                                               \
  unsigned long long left = (task)->len - bit;                                                     \
  unsigned int first = (unsigned int)(task)->first;                                                \
  unsigned int out = (unsigned int)(bytes)[at] >> first;                                           \
  /* The next byte is there only if a bit of it is asked for. */                                   \
  if (first > 0 && left > 8 - first) out |= (unsigned int)(bytes)[(at) + 1] << (8 - first);        \
  out &= left < 8 ? (1u << left) - 1u : 0xFFu;

// Rule A2: a bitmap begins at bit 0. Row y of the grid is the y-th task, its threads take bytes by turns.
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

// Adds how many bits are 1 to the number at `target`. The grid is as above.
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
