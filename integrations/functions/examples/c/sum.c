/* "sum": the sum of an int64 column, in one row; null if no value is there. The arguments are the
 * column's name. */
#include <dipc_guest.h>

static int64_t column;
static int64_t sum;
static int64_t count;

static struct ArrowSchema result = {.format = "l", .name = "sum", .flags = ARROW_FLAG_NULLABLE};
static struct ArrowSchema *results[] = {&result};

int32_t dipc_init(const char *name, size_t name_length, const void *arguments, size_t arguments_length,
                  const struct ArrowSchema *input, struct ArrowSchema *output) {
  if (!dipc_equal(name, name_length, "sum")) return dipc_failed("the module has the function sum alone");
  if (input == NULL) return dipc_failed("sum needs a table");
  while (column < input->n_children &&
         !dipc_equal(arguments, arguments_length, input->children[column]->name)) {
    column++;
  }
  if (column == input->n_children) return dipc_failed("the table has no such column");
  const struct ArrowSchema *found = input->children[column];
  if (!dipc_equal("l", 1, found->format) || found->dictionary != NULL) {
    return dipc_failed("the column is not int64");
  }
  output->format = "+s";
  output->n_children = 1;
  output->children = results;
  return 0;
}

int32_t dipc_process(const struct ArrowArray *array) {
  const struct ArrowArray *values = array->children[column];
  const int64_t *numbers = (const int64_t *)values->buffers[1] + values->offset;
  /* The offset of the batch is that of a slice of all columns. */
  for (int64_t row = array->offset; row < array->offset + array->length; row++) {
    if (!dipc_is_valid(values, row)) continue;
    if (__builtin_add_overflow(sum, numbers[row], &sum)) {
      return dipc_failed("the sum is too large for int64");
    }
    count++;
  }
  return 0;
}

int32_t dipc_finish(void) {
  const uint8_t valid = count > 0;
  const void *buffers[] = {&valid, &sum};
  struct ArrowArray value = {.length = 1, .null_count = !valid, .n_buffers = 2, .buffers = buffers};
  struct ArrowArray *children[] = {&value};
  const void *none[] = {NULL};
  const struct ArrowArray row = {
      .length = 1, .n_buffers = 1, .n_children = 1, .buffers = none, .children = children};
  dipc_emit(&row);
  return 0;
}
