/* Arrow IPC stream files: continuation (ffffffff), length of the padded flatbuffer, flatbuffer, body. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peer.h"

#define CONTINUATION UINT32_C(0xFFFFFFFF)

/* Fields of the table Message, by number, and its kinds of header. */
enum { FIELD_HEADER_TYPE = 1, FIELD_BODY_LENGTH = 3 };
enum { HEADER_SCHEMA = 1, HEADER_DICTIONARY = 2, HEADER_BATCH = 3 };

static size_t padded(size_t bytes) { return (bytes + 7) & ~(size_t)7; }

/* The place of a field of the root table, or 0 where it is absent or does not fit. */
static size_t field(const uint8_t *buffer, size_t bytes, unsigned number, size_t width) {
  if (bytes < 8) return 0;
  size_t table = get_u32(buffer);
  if (table > bytes - 4) return 0;
  /* The table begins with the signed distance back to its vtable. */
  int64_t vtable = (int64_t)table - (int32_t)get_u32(buffer + table);
  if (vtable < 0 || (uint64_t)vtable > bytes - 4) return 0;
  const uint8_t *entries = buffer + vtable;
  size_t vtable_bytes = (size_t)(entries[0] | entries[1] << 8);
  size_t entry = 4 + 2 * (size_t)number;
  if (entry + 2 > vtable_bytes || vtable_bytes > bytes - (size_t)vtable) return 0;
  size_t offset = (size_t)(entries[entry] | entries[entry + 1] << 8);
  if (offset == 0 || table + offset > bytes || width > bytes - table - offset) return 0;
  return table + offset;
}

int ipc_parse(const uint8_t *header, size_t bytes, int *has_body, size_t *body_bytes) {
  size_t type = field(header, bytes, FIELD_HEADER_TYPE, 1);
  if (type == 0 || header[type] < HEADER_SCHEMA || header[type] > HEADER_BATCH) return 0;
  *has_body = header[type] != HEADER_SCHEMA;
  /* A length of 0 is the default, which is not written. */
  size_t length = field(header, bytes, FIELD_BODY_LENGTH, 8);
  *body_bytes = 0;
  if (length != 0) {
    *body_bytes = (size_t)((uint64_t)get_u32(header + length) | (uint64_t)get_u32(header + length + 4) << 32);
  }
  return *body_bytes < SIZE_MAX / 2;
}

static uint8_t *read_whole(const char *path, size_t *bytes) {
  FILE *file = fopen(path, "rb");
  if (file == NULL) die("cannot open %s: %s", path, strerror(errno));
  if (fseek(file, 0, SEEK_END) != 0) die("cannot read %s: %s", path, strerror(errno));
  long end = ftell(file);
  if (end < 0 || fseek(file, 0, SEEK_SET) != 0) die("cannot read %s: %s", path, strerror(errno));
  *bytes = (size_t)end;
  uint8_t *content = allocate(*bytes);
  if (fread(content, 1, *bytes, file) != *bytes) die("cannot read %s", path);
  fclose(file);
  return content;
}

void ipc_read(const char *path, struct ipc_stream *stream) {
  size_t bytes, capacity = 0, at = 0;
  memset(stream, 0, sizeof *stream);
  stream->bytes = read_whole(path, &bytes);
  /* A stream ends with a length of 0, or just so. */
  while (at < bytes) {
    if (bytes - at < 8 || get_u32(stream->bytes + at) != CONTINUATION) {
      die("%s is no Arrow IPC stream (at byte %zu)", path, at);
    }
    struct ipc_message message = {0};
    message.header_bytes = get_u32(stream->bytes + at + 4);
    if (message.header_bytes == 0) break;
    at += 8;
    if (message.header_bytes > bytes - at) die("%s is cut (at byte %zu)", path, at);
    message.header = stream->bytes + at;
    if (!ipc_parse(message.header, message.header_bytes, &message.has_body, &message.body_bytes)) {
      die("%s has a malformed message (at byte %zu)", path, at);
    }
    at += message.header_bytes;
    if (message.body_bytes > bytes - at) die("%s is cut (at byte %zu)", path, at);
    message.body = stream->bytes + at;
    at += message.body_bytes;
    stream->messages = grow(stream->messages, &capacity, stream->count + 1, sizeof message);
    stream->messages[stream->count++] = message;
  }
  if (stream->count == 0 || stream->messages[0].has_body) die("%s does not begin with a schema", path);
}

void ipc_free(struct ipc_stream *stream) {
  free(stream->messages);
  free(stream->bytes);
}

void ipc_write(const char *path, const struct ipc_message *messages, size_t count) {
  static const uint8_t zeros[8];
  FILE *file = fopen(path, "wb");
  if (file == NULL) die("cannot write %s: %s", path, strerror(errno));
  uint8_t start[8];
  put_u32(start, CONTINUATION);
  for (size_t i = 0; i < count; i++) {
    const struct ipc_message *message = &messages[i];
    put_u32(start + 4, (uint32_t)padded(message->header_bytes));
    fwrite(start, 1, sizeof start, file);
    fwrite(message->header, 1, message->header_bytes, file);
    fwrite(zeros, 1, padded(message->header_bytes) - message->header_bytes, file);
    if (message->body_bytes > 0) fwrite(message->body, 1, message->body_bytes, file);
    fwrite(zeros, 1, padded(message->body_bytes) - message->body_bytes, file);
  }
  put_u32(start + 4, 0);
  fwrite(start, 1, sizeof start, file);
  int failed = ferror(file);
  if (fclose(file) != 0 || failed) die("cannot write %s: %s", path, strerror(errno));
}
