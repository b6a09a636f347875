/* All batches of a stream. */
#ifndef DIPC_MATRIX_TABLE_H
#define DIPC_MATRIX_TABLE_H

#include <dipc.h>

typedef struct {
  struct ArrowSchema schema;
  struct ArrowDeviceArray *batches;
  size_t count;
} table;

/* Reads a stream to its end, which stays the caller's to release. 0, or an errno: then `out` is
 * empty. */
int table_take(struct ArrowDeviceArrayStream *stream, table *out);

/* Reads a file. NULL, or why not. */
const char *table_read(const char *path, table *out);

/* What was moved out of the table stays. An empty table has nothing. */
void table_release(table *self);

#endif
