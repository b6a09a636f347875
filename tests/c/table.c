#include "table.h"

#include <errno.h>
#include <stdatomic.h>
#include <time.h>

static atomic_long live;

long table_live(void) { return atomic_load(&live); }

void table_wait_live(long count) {
  for (int i = 0; i < 10000; i++) {
    if (table_live() <= count) return;
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
  FAIL("%ld structs are live, not %ld", table_live(), count);
}

/* --- schema ------------------------------------------------------------- */

static void release_schema(struct ArrowSchema *schema) {
  for (int64_t i = 0; i < schema->n_children; i++) {
    if (schema->children[i]->release) schema->children[i]->release(schema->children[i]);
    free(schema->children[i]);
  }
  free(schema->children);
  schema->release = NULL;
  atomic_fetch_sub(&live, 1);
}

static void init_schema(struct ArrowSchema *out, const char *format, const char *name,
                        int64_t flags, int64_t n_children) {
  memset(out, 0, sizeof *out);
  out->format = format;
  out->name = name;
  out->flags = flags;
  out->n_children = n_children;
  if (n_children) out->children = calloc((size_t)n_children, sizeof *out->children);
  for (int64_t i = 0; i < n_children; i++) out->children[i] = calloc(1, sizeof *out);
  out->release = release_schema;
  atomic_fetch_add(&live, 1);
}

void table_schema(struct ArrowSchema *out) {
  init_schema(out, "+s", "", 0, 2);
  init_schema(out->children[0], "l", "id", 0, 0);
  init_schema(out->children[1], "u", "name", ARROW_FLAG_NULLABLE, 0);
}

void table_check_schema(const struct ArrowSchema *schema) {
  CHECK(schema->release != NULL);
  CHECK_STR(schema->format, "+s");
  CHECK_EQ(schema->n_children, 2);
  CHECK_STR(schema->children[0]->format, "l");
  CHECK_STR(schema->children[0]->name, "id");
  CHECK_EQ(schema->children[0]->flags & ARROW_FLAG_NULLABLE, 0);
  CHECK_STR(schema->children[1]->format, "u");
  CHECK_STR(schema->children[1]->name, "name");
  CHECK_EQ(schema->children[1]->flags & ARROW_FLAG_NULLABLE, ARROW_FLAG_NULLABLE);
}

/* --- arrays ------------------------------------------------------------- */

static void *plain_alloc(void *context, size_t len) {
  (void)context;
  return malloc(len ? len : 1);
}

static void plain_dealloc(void *context, void *block) {
  (void)context;
  free(block);
}

static const table_memory plain = {plain_alloc, plain_dealloc, NULL};

static void release_array(struct ArrowArray *array) {
  const table_memory *memory = array->private_data;
  for (int64_t i = 0; i < array->n_children; i++) {
    if (array->children[i]->release) array->children[i]->release(array->children[i]);
    free(array->children[i]);
  }
  free(array->children);
  for (int64_t i = 0; i < array->n_buffers; i++)
    if (array->buffers[i]) memory->dealloc(memory->context, (void *)array->buffers[i]);
  free((void *)array->buffers);
  array->release = NULL;
  atomic_fetch_sub(&live, 1);
}

static void init_array(struct ArrowArray *out, int64_t rows, int64_t nulls, int64_t n_buffers,
                       int64_t n_children, const table_memory *memory) {
  memset(out, 0, sizeof *out);
  out->length = rows;
  out->null_count = nulls;
  out->n_buffers = n_buffers;
  out->n_children = n_children;
  out->buffers = calloc((size_t)n_buffers, sizeof *out->buffers);
  if (n_children) out->children = calloc((size_t)n_children, sizeof *out->children);
  for (int64_t i = 0; i < n_children; i++) out->children[i] = calloc(1, sizeof *out);
  out->release = release_array;
  out->private_data = (void *)memory;
  atomic_fetch_add(&live, 1);
}

static int is_null(int64_t number) { return number % 7 == 0; }

static int name_of(int64_t number, char text[32]) {
  return is_null(number) ? 0 : snprintf(text, 32, "row %lld", (long long)number);
}

void table_batch(struct ArrowDeviceArray *out, int64_t first, int64_t rows,
                 const table_memory *memory) {
  if (!memory) memory = &plain;
  memset(out, 0, sizeof *out);
  out->device_type = ARROW_DEVICE_CPU;
  out->device_id = -1;
  init_array(&out->array, rows, 0, 1, 2, memory);

  struct ArrowArray *ids = out->array.children[0];
  init_array(ids, rows, 0, 2, 0, memory);
  int64_t *numbers = memory->alloc(memory->context, (size_t)rows * sizeof *numbers);
  for (int64_t i = 0; i < rows; i++) numbers[i] = first + i;
  ids->buffers[1] = numbers;

  char text[32];
  int64_t nulls = 0;
  size_t bytes = 0;
  for (int64_t i = 0; i < rows; i++) {
    nulls += is_null(first + i);
    bytes += (size_t)name_of(first + i, text);
  }
  struct ArrowArray *names = out->array.children[1];
  init_array(names, rows, nulls, 3, 0, memory);
  const size_t bitmap_bytes = (size_t)(rows + 7) / 8;
  uint8_t *valid = memory->alloc(memory->context, bitmap_bytes);
  int32_t *offsets = memory->alloc(memory->context, (size_t)(rows + 1) * sizeof *offsets);
  char *data = memory->alloc(memory->context, bytes);
  memset(valid, 0, bitmap_bytes);
  offsets[0] = 0;
  for (int64_t i = 0; i < rows; i++) {
    const int len = name_of(first + i, text);
    if (!is_null(first + i)) valid[i / 8] |= (uint8_t)(1 << i % 8);
    memcpy(data + offsets[i], text, (size_t)len);
    offsets[i + 1] = offsets[i] + len;
  }
  names->buffers[0] = valid;
  names->buffers[1] = offsets;
  names->buffers[2] = data;
}

void table_check(const struct ArrowArray *array, int64_t first, int64_t rows) {
  CHECK(array->release != NULL);
  CHECK_EQ(array->length, rows);
  CHECK_EQ(array->n_children, 2);
  const struct ArrowArray *ids = array->children[0], *names = array->children[1];
  CHECK_EQ(ids->length, rows);
  CHECK_EQ(names->length, rows);
  const int64_t *numbers = (const int64_t *)ids->buffers[1] + ids->offset;
  const uint8_t *valid = names->buffers[0];
  const int32_t *offsets = (const int32_t *)names->buffers[1] + names->offset;
  const char *data = names->buffers[2];
  char text[32];
  for (int64_t i = 0; i < rows; i++) {
    CHECK_EQ(numbers[i], first + i);
    const int64_t bit = names->offset + i;
    const int null = valid && !(valid[bit / 8] >> bit % 8 & 1);
    CHECK_EQ(null, is_null(first + i));
    const int len = name_of(first + i, text);
    CHECK_EQ(offsets[i + 1] - offsets[i], len);
    CHECK(len == 0 || memcmp(data + offsets[i], text, (size_t)len) == 0);
  }
}

/* --- streams ------------------------------------------------------------ */

typedef struct {
  int64_t batches, rows, fail_at, next;
  const table_memory *memory;
} source;

static int source_schema(struct ArrowDeviceArrayStream *stream, struct ArrowSchema *out) {
  (void)stream;
  table_schema(out);
  return 0;
}

static int source_next(struct ArrowDeviceArrayStream *stream, struct ArrowDeviceArray *out) {
  source *self = stream->private_data;
  if (self->next == self->fail_at) return EIO;
  if (self->next == self->batches) {
    memset(out, 0, sizeof *out);
    return 0;
  }
  table_batch(out, self->next * self->rows, self->rows, self->memory);
  self->next++;
  return 0;
}

static const char *source_error(struct ArrowDeviceArrayStream *stream) {
  const source *self = stream->private_data;
  return self->next == self->fail_at ? "broken pipe dream" : NULL;
}

static void source_release(struct ArrowDeviceArrayStream *stream) {
  free(stream->private_data);
  stream->release = NULL;
  atomic_fetch_sub(&live, 1);
}

void table_stream(struct ArrowDeviceArrayStream *out, int64_t batches, int64_t rows,
                  int64_t fail_at, const table_memory *memory) {
  source *self = malloc(sizeof *self);
  *self = (source){batches, rows, fail_at, 0, memory};
  *out = (struct ArrowDeviceArrayStream){.device_type = ARROW_DEVICE_CPU,
                                         .get_schema = source_schema,
                                         .get_next = source_next,
                                         .get_last_error = source_error,
                                         .release = source_release,
                                         .private_data = self};
  atomic_fetch_add(&live, 1);
}

int64_t table_check_stream(struct ArrowDeviceArrayStream *stream) {
  struct ArrowSchema schema;
  CHECK_EQ(stream->get_schema(stream, &schema), 0);
  table_check_schema(&schema);
  schema.release(&schema);
  int64_t rows = 0;
  for (;;) {
    struct ArrowDeviceArray batch;
    const int code = stream->get_next(stream, &batch);
    if (code != 0) FAIL("get_next gave %d: %s", code, stream->get_last_error(stream));
    if (!batch.array.release) break;
    table_check(&batch.array, rows, batch.array.length);
    rows += batch.array.length;
    batch.array.release(&batch.array);
  }
  stream->release(stream);
  return rows;
}
