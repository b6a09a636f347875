#include "table.h"

#include "ipc_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int table_take(struct ArrowDeviceArrayStream *stream, table *out) {
  memset(out, 0, sizeof *out);
  int failed = stream->get_schema(stream, &out->schema);
  while (!failed) {
    struct ArrowDeviceArray *grown = realloc(out->batches, (out->count + 1) * sizeof *grown);
    if (grown == NULL) {
      failed = ENOMEM;
      break;
    }
    out->batches = grown;
    failed = stream->get_next(stream, &grown[out->count]);
    if (failed || grown[out->count].array.release == NULL) break;
    out->count++;
  }
  if (failed) table_release(out);
  return failed;
}

const char *table_read(const char *path, table *out) {
  struct ArrowArrayStream file;
  struct ArrowDeviceArrayStream stream;
  memset(out, 0, sizeof *out);
  const char *why = ipc_read(path, &file);
  if (why != NULL) return why;
  if (dipc_stream_from_host(&file, &stream, NULL) != DIPC_OK) {
    file.release(&file);
    return "the file's stream cannot be turned into a device stream";
  }
  const int failed = table_take(&stream, out);
  stream.release(&stream);
  return failed ? strerror(failed) : NULL;
}

void table_release(table *self) {
  for (size_t i = 0; i < self->count; i++) {
    struct ArrowArray *array = &self->batches[i].array;
    if (array->release != NULL) array->release(array);
  }
  free(self->batches);
  if (self->schema.release != NULL) self->schema.release(&self->schema);
  memset(self, 0, sizeof *self);
}
