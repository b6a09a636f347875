/* The serving example of docs/guide/c.md, which shows it from the next line on. */
#include <dipc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 1000 };

/* A column `n` of int64, and the struct of columns, the table. */
static void release_schema(struct ArrowSchema *schema) {
  for (int64_t i = 0; i < schema->n_children; i++) {
    struct ArrowSchema *child = schema->children[i];
    if (child->release != NULL) child->release(child);
  }
  schema->release = NULL;
}
static struct ArrowSchema column_schema = {.format = "l", .name = "n", .release = release_schema};
static struct ArrowSchema *columns[] = {&column_schema};
static struct ArrowSchema table_schema = {
    .format = "+s", .name = "", .n_children = 1, .children = columns, .release = release_schema};

static const void *column_buffers[2]; /* validity (none is null), values */
static void release_column(struct ArrowArray *array) { array->release = NULL; }
static struct ArrowArray column = {
    .length = ROWS, .n_buffers = 2, .buffers = column_buffers, .release = release_column};
static struct ArrowArray *children[] = {&column};
static const void *no_validity[1];

/* The library calls this on one of its threads when nobody needs the table any more: after its
 * ticket was withdrawn and the last client has returned its memory. */
static void release_table(struct ArrowArray *array) {
  if (column.release != NULL) column.release(&column);
  dipc_arena_dealloc(NULL, (void *)column_buffers[1], NULL);
  array->release = NULL;
}

static dipc_error *error;

static void check(dipc_status status) {
  if (status == DIPC_OK) return;
  fprintf(stderr, "%s: %s\n", dipc_status_name(status), dipc_error_text(error));
  dipc_error_free(error);
  exit(1);
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: %s URI\n", argv[0]);
    return 2;
  }
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  /* Before the library starts threads, which inherit the mask. */
  sigprocmask(SIG_BLOCK, &signals, NULL);

  /* Values in an arena are lent without a copy; any other memory is copied once. */
  dipc_arena *arena = NULL;
  void *values = NULL;
  check(dipc_arena_new(ARROW_DEVICE_CPU, 0, NULL, &arena, &error));
  check(dipc_arena_alloc(arena, ROWS * sizeof(int64_t), &values, &error));
  for (int64_t row = 0; row < ROWS; row++) ((int64_t *)values)[row] = row;
  column_buffers[1] = values;

  struct ArrowDeviceArray batch = {.array = {.length = ROWS,
                                             .n_buffers = 1,
                                             .n_children = 1,
                                             .buffers = no_validity,
                                             .children = children,
                                             .release = release_table},
                                   .device_id = -1,
                                   .device_type = ARROW_DEVICE_CPU};
  dipc_server *server = NULL;
  char uri[DIPC_URI_BYTES];
  check(dipc_server_new(NULL, &server, &error));
  check(dipc_server_publish(server, (const uint8_t *)"numbers", strlen("numbers"), &table_schema,
                            &batch, 1, &error));
  size_t len;
  check(dipc_server_listen(server, argv[1], uri, sizeof uri, &len, &error));
  printf("%s\n", uri);
  fflush(stdout);

  int signal;
  sigwait(&signals, &signal);
  /* Running streams have two seconds to end. */
  check(dipc_server_stop(server, 2000000000, &error));
  dipc_server_free(server);
  dipc_arena_free(arena);
  return 0;
}
