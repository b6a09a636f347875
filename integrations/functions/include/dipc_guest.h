/* Functions that a libdipc server runs on the batches of its tables, written in C without a C library.
 *
 *     clang --target=wasm32 -mbulk-memory -O2 -ffreestanding -nostdlib -I include \
 *       -Wl,--no-entry -o sum.wasm sum.c
 *
 * One source file of a module includes this header. It defines dipc_abi_version(), dipc_alloc() and
 * dipc_free(), which a module must export; the source file defines dipc_init(), dipc_process() and
 * dipc_finish(). All others are for its use.
 *
 * A module has one thread, and an instance of it serves one call, that is one table: static variables
 * begin as they are written. -mbulk-memory makes copies of memory instructions instead of calls of
 * memcpy() and memset(), which nobody defines.
 */
#ifndef DIPC_GUEST_H
#define DIPC_GUEST_H

#if !defined(__wasm32__)
#error "functions are built for wasm32: clang --target=wasm32"
#endif

#include <stddef.h>
#include <stdint.h>

/* Arrow's C data interface. The server's structs have no release, and the server calls none: input is
 * borrowed, and a function keeps its output's memory. */
#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

struct ArrowSchema {
  const char *format;
  const char *name;
  const char *metadata;
  int64_t flags;
  int64_t n_children;
  struct ArrowSchema **children;
  struct ArrowSchema *dictionary;
  void (*release)(struct ArrowSchema *);
  void *private_data;
};

struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void **buffers;
  struct ArrowArray **children;
  struct ArrowArray *dictionary;
  void (*release)(struct ArrowArray *);
  void *private_data;
};

#endif /* ARROW_C_DATA_INTERFACE */

_Static_assert(sizeof(struct ArrowSchema) == 48, "the layout of the ABI");
_Static_assert(sizeof(struct ArrowArray) == 64, "the layout of the ABI");

#define DIPC_ABI_VERSION 1

#define DIPC_EXPORT(name) __attribute__((export_name(#name)))
#define DIPC_IMPORT(name) __attribute__((import_module("dipc"), import_name(#name)))

/* What the server gives. */

/* Gives out a batch: a struct array that agrees with the output's schema. The server copies it before
 * it returns. Returns 0, or 1 if the receiver needs no more rows. */
DIPC_IMPORT(emit) int32_t dipc_emit(const struct ArrowArray *array);

/* Gives out a value of a function whose output is bytes. Copied; returns as dipc_emit(). */
DIPC_IMPORT(emit_bytes) int32_t dipc_emit_bytes(const void *bytes, size_t length);

/* Sets the text, UTF-8, of the failure that the function returns next. Copied. */
DIPC_IMPORT(fail) void dipc_fail(const char *text, size_t length);

/* Has the call go on at another server once dipc_finish() has returned 0: this function runs there on
 * the table `descriptor` (of no length: without a table), with `state` as its arguments. Its output has
 * the same schema and follows this one's. `uri` is UTF-8 of at most 4 KiB, `descriptor` has at most
 * 64 KiB, `state` 48 KiB. Copied. Returns 0, after which another call of it ends the call; or 1 if the
 * server lets the call go nowhere: the function may give out what it has, or fail without a text,
 * whereupon the client is told so. */
DIPC_IMPORT(forward)
int32_t dipc_forward(const char *uri, size_t uri_length, const void *descriptor, size_t descriptor_length,
                     const void *state, size_t state_length);

/* What a module defines. Each returns 0, or another number for a failure, with which the call ends. */

/* Begins a call of the function `name`. `arguments` are bytes that client and function agree on.
 * `input` is the schema of the table, or NULL in a call without one. All of these are readable during
 * this call alone. `output` is zeroed: the function fills in the schema of its output, a struct whose
 * parts stay readable until the next call; left as it is, the output is bytes. */
DIPC_EXPORT(dipc_init)
int32_t dipc_init(const char *name, size_t name_length, const void *arguments, size_t arguments_length,
                  const struct ArrowSchema *input, struct ArrowSchema *output);

/* Takes the next batch: a struct array of the input's schema, readable during this call alone. A
 * validity bitmap may be NULL where nothing is null; the offsets of arrays are honoured. */
DIPC_EXPORT(dipc_process) int32_t dipc_process(const struct ArrowArray *array);

/* The table has no further batch; in a call without a table, the only call after dipc_init(). */
DIPC_EXPORT(dipc_finish) int32_t dipc_finish(void);

/* Memory. The server takes what it needs for one call, and gives all of it back after the call. So
 * memory grows upwards, and begins anew once all of it was given back. */

extern unsigned char __heap_base; /* the linker's: the first byte after stack and data */

static uintptr_t dipc_base; /* where memory begins anew; 0: at __heap_base */
static uintptr_t dipc_top;  /* the first free byte */
static size_t dipc_blocks;  /* taken since dipc_base, and not given back */

/* Memory of `length` bytes at a multiple of `alignment`, a power of two; NULL if there is none. A
 * function may take some too, and gives it back before it returns. */
DIPC_EXPORT(dipc_alloc) void *dipc_alloc(size_t length, size_t alignment) {
  if (dipc_base == 0) dipc_base = dipc_top = (uintptr_t)&__heap_base;
  /* 64 bits: the sum of two numbers of 32 bits fits. */
  const uint64_t start = ((uint64_t)dipc_top + alignment - 1) & ~(uint64_t)(alignment - 1);
  const uint64_t end = start + (length > 0 ? length : 1); /* each block has its own address */
  const uint64_t size = (uint64_t)__builtin_wasm_memory_size(0) * 65536;
  if (end > UINT32_MAX) return NULL;
  if (end > size) {
    const size_t pages = (size_t)((end - size + 65535) / 65536);
    if (__builtin_wasm_memory_grow(0, pages) == SIZE_MAX) return NULL;
  }
  dipc_top = (uintptr_t)end;
  dipc_blocks++;
  return (void *)(uintptr_t)start;
}

/* Gives memory back. */
DIPC_EXPORT(dipc_free) void dipc_free(void *pointer, size_t length, size_t alignment) {
  (void)length, (void)alignment;
  /* Under the base lies what dipc_keep() has fixed. */
  if ((uintptr_t)pointer < dipc_base) return;
  if (--dipc_blocks == 0) dipc_top = dipc_base;
}

/* Memory that a function keeps to the end of the call, or NULL. What was taken before it, and is not yet
 * given back, stays taken too: so it is best called in dipc_init(), or seldom. */
__attribute__((unused)) static void *dipc_keep(size_t length, size_t alignment) {
  void *kept = dipc_alloc(length, alignment);
  if (kept != NULL) {
    dipc_base = dipc_top;
    dipc_blocks = 0;
  }
  return kept;
}

/* Small helpers. */

DIPC_EXPORT(dipc_abi_version) int32_t dipc_abi_version(void) { return DIPC_ABI_VERSION; }

__attribute__((unused)) static size_t dipc_length(const char *text) {
  size_t length = 0;
  while (text[length] != '\0') length++;
  return length;
}

/* True if `bytes` are those of the C string `text`. */
__attribute__((unused)) static int dipc_equal(const void *bytes, size_t length, const char *text) {
  if (length != dipc_length(text)) return 0;
  for (size_t i = 0; i < length; i++) {
    if (((const char *)bytes)[i] != text[i]) return 0;
  }
  return 1;
}

/* A failure with a text: `return dipc_failed("no such column");`. */
__attribute__((unused)) static int32_t dipc_failed(const char *text) {
  dipc_fail(text, dipc_length(text));
  return 1;
}

/* True if the value at `row`, counted from the array's offset, is not null. */
__attribute__((unused)) static int dipc_is_valid(const struct ArrowArray *array, int64_t row) {
  const uint8_t *bits = (const uint8_t *)array->buffers[0];
  const uint64_t bit = (uint64_t)(array->offset + row);
  return bits == NULL || (bits[bit / 8] >> (bit % 8) & 1) != 0;
}

#endif /* DIPC_GUEST_H */
