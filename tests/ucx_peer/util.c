#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peer.h"

void die(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fputs("peer: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  exit(1);
}

void check(ucs_status_t status, const char *what) {
  if (status != UCS_OK) die("%s: %s", what, ucs_status_string(status));
}

void *allocate(size_t bytes) {
  void *memory = calloc(1, bytes > 0 ? bytes : 1);
  if (memory == NULL) die("no memory for %zu bytes", bytes);
  return memory;
}

void *grow(void *array, size_t *capacity, size_t count, size_t element_bytes) {
  if (count <= *capacity) return array;
  size_t wanted = 2 * count + 16;
  uint8_t *larger = realloc(array, wanted * element_bytes);
  if (larger == NULL) die("no memory for %zu elements", wanted);
  memset(larger + *capacity * element_bytes, 0, (wanted - *capacity) * element_bytes);
  *capacity = wanted;
  return larger;
}

void put_u32(uint8_t *to, uint32_t value) {
  for (int i = 0; i < 4; i++) to[i] = (uint8_t)(value >> (8 * i));
}

uint32_t get_u32(const uint8_t *from) {
  uint32_t value = 0;
  for (int i = 0; i < 4; i++) value |= (uint32_t)from[i] << (8 * i);
  return value;
}
