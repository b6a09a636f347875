/* The taking example of docs/guide/c.md, which shows it from the next line on. */
#include <dipc.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

/* The library calls this once for each request, on one of its threads. */
static int32_t take(void *userdata, dipc_request *request, struct ArrowDeviceArrayStream *out) {
  (void)userdata;
  (void)out; /* the answer to a get; a put has none */
  if (dipc_request_verb(request) != DIPC_VERB_PUT) {
    dipc_request_fail(request, DIPC_ERR_UNSUPPORTED, "this server only takes tables", NULL);
    return 1;
  }
  uint8_t name[100];
  size_t len = 0;
  if (dipc_request_ticket(request, name, sizeof name, &len, NULL) != DIPC_OK) {
    dipc_request_fail(request, DIPC_ERR_INVALID_ARGUMENT, "the name is too long", NULL);
    return 1;
  }
  /* Until here a failure refuses the table. From here on the client sends it. */
  struct ArrowDeviceArrayStream table;
  if (dipc_request_source(request, &table, NULL) != DIPC_OK) return 1;
  struct ArrowDeviceArray batch;
  int64_t rows = 0;
  int failed;
  while ((failed = table.get_next(&table, &batch)) == 0 && batch.array.release != NULL) {
    rows += batch.array.length;
    batch.array.release(&batch.array);
  }
  if (failed) {
    fprintf(stderr, "%s\n", table.get_last_error(&table));
  } else {
    printf("%.*s has %" PRId64 " rows\n", (int)len, (const char *)name, rows);
    fflush(stdout);
  }
  table.release(&table);
  return failed; /* 0 tells the client that the whole table is taken */
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

  dipc_server *server = NULL;
  char uri[DIPC_URI_BYTES];
  size_t len;
  check(dipc_server_new(NULL, &server, &error));
  check(dipc_server_set_handler(server, take, NULL, NULL, 0, &error));
  check(dipc_server_listen(server, argv[1], uri, sizeof uri, &len, &error));
  printf("%s\n", uri);
  fflush(stdout);

  int signal;
  sigwait(&signals, &signal);
  /* Tables under way have two seconds to end. */
  check(dipc_server_stop(server, 2000000000, &error));
  dipc_server_free(server);
  return 0;
}
