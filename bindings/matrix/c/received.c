/* The C program of the matrix: how it ends, and streams that it receives. */
#include "peer.h"

#include "ipc_file.h"

#include <stdio.h>

int peer_failed(dipc_status status, dipc_error *error) {
  printf("error %s %s\n", dipc_status_name(status), dipc_error_text(error));
  dipc_error_free(error);
  return EXIT_FAILED;
}

int peer_failed_with(const char *text) {
  printf("error DIPC_UNKNOWN %s\n", text);
  return EXIT_FAILED;
}

int peer_stream_failed(const struct ArrowDeviceArrayStream *stream) {
  dipc_error *error = NULL;
  const dipc_status status = dipc_stream_status(stream, &error);
  return peer_failed(status, error);
}

/* Writes what is left of a stream. */
static int write_batches(struct ArrowDeviceArrayStream *stream, ipc_writer *writer, int64_t *rows,
                         int64_t *batches) {
  for (;;) {
    struct ArrowDeviceArray batch;
    if (stream->get_next(stream, &batch) != 0) return peer_stream_failed(stream);
    if (batch.array.release == NULL) return 0;
    *rows += batch.array.length;
    ++*batches;
    const char *why = ipc_writer_write(writer, &batch.array);
    if (why != NULL) return peer_failed_with(why);
  }
}

int peer_receive(struct ArrowDeviceArrayStream *stream, const char *out, int64_t *rows,
                 int64_t *batches) {
  int result;
  struct ArrowSchema schema;
  ipc_writer *writer = NULL;
  *rows = *batches = 0;
  if (stream->get_schema(stream, &schema) != 0) {
    result = peer_stream_failed(stream);
  } else {
    const char *why = ipc_writer_open(out, &schema, &writer);
    if (why != NULL) {
      result = peer_failed_with(why);
    } else {
      result = write_batches(stream, writer, rows, batches);
      why = ipc_writer_close(writer);
      if (why != NULL && result == 0) result = peer_failed_with(why);
    }
  }
  stream->release(stream);
  return result;
}
