/* Tables made of plain C structs: a column of numbers and a column of names. */
#ifndef DIPC_TESTS_TABLE_H
#define DIPC_TESTS_TABLE_H

#include "check.h"

/* The allocator of a table's buffers. */
typedef struct {
  void *(*alloc)(void *context, size_t len);
  void (*dealloc)(void *context, void *block);
  void *context;
} table_memory;

/* The number of structs of this file that are not released; safe from any thread. */
long table_live(void);

/* Waits up to ten seconds until table_live() is `count`. */
void table_wait_live(long count);

/* struct<id: int64 not null, name: utf8> */
void table_schema(struct ArrowSchema *out);

/* Rows first, first + 1, ...: id is the number and name is "row <number>"; every seventh name is
 * null. `memory` NULL: malloc. */
void table_batch(struct ArrowDeviceArray *out, int64_t first, int64_t rows,
                 const table_memory *memory);

/* A stream of `batches` batches of `rows` rows. get_next number `fail_at` (from 0) fails with EIO
 * and "broken pipe dream"; -1: no failure. */
void table_stream(struct ArrowDeviceArrayStream *out, int64_t batches, int64_t rows,
                  int64_t fail_at, const table_memory *memory);

/* Checks against table_schema() and table_batch(). */
void table_check_schema(const struct ArrowSchema *schema);
void table_check(const struct ArrowArray *array, int64_t first, int64_t rows);

/* Reads a stream to its end, checks every batch, releases stream and batches; returns the rows. */
int64_t table_check_stream(struct ArrowDeviceArrayStream *stream);

#endif
