/* Two processes: a table, a killed client, a killed server, and the child of a fork. */
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

#include "util.h"

/* Waits for a child and checks its success. */
static void join(pid_t child) {
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK(WIFEXITED(status));
  CHECK_EQ(WEXITSTATUS(status), 0);
}

static void tell(int fd, const char *text) { CHECK(write(fd, text, strlen(text) + 1) > 0); }

static void hear(int fd, char *text, size_t size) {
  for (size_t i = 0; i < size; i++) {
    CHECK_EQ(read(fd, &text[i], 1), 1);
    if (!text[i]) return;
  }
  FAIL("no end of the text");
}

/* A server in a child that was forked before any use of the library here; it ends when `control`
 * is closed. Writes its URI to `out`. */
static void serve(int control, int out, const char *address) {
  dipc_server *server = NULL;
  char uri[DIPC_URI_BYTES];
  size_t len = 0;
  OK(dipc_server_new(NULL, &server, &error_));
  OK(dipc_server_listen(server, address, uri, sizeof uri, &len, &error_));
  table_memory lendable = arena_memory();
  publish(server, "plain", 20, 10000, NULL);
  publish(server, "arena", 20, 10000, &lendable);
  tell(out, uri);
  char byte;
  while (read(control, &byte, 1) < 0 && errno == EINTR) {
  }
  /* Everything that clients held is back, after any end of theirs. */
  for (int i = 0; server_stat(server, DIPC_SERVER_STAT_CONNECTIONS) > 1 && i < 5000; i++)
    sleep_ms(1);
  dipc_server_free(server);
  dipc_arena_free(lendable.context);
  table_wait_live(0);
  _exit(0);
}

typedef struct {
  pid_t pid;
  int control;
  char uri[DIPC_URI_BYTES];
} remote;

static remote start_server(const char *address) {
  remote self;
  int control[2], out[2];
  CHECK_EQ(pipe(control), 0);
  CHECK_EQ(pipe(out), 0);
  self.pid = fork();
  CHECK(self.pid >= 0);
  if (self.pid == 0) {
    close(control[1]);
    close(out[0]);
    serve(control[0], out[1], address);
  }
  close(control[0]);
  close(out[1]);
  self.control = control[1];
  hear(out[0], self.uri, sizeof self.uri);
  close(out[0]);
  return self;
}

static void stop_server(remote *self) {
  close(self->control);
  join(self->pid);
}

/* A client in another process, killed while it holds batches of both kinds. */
static void be_killed(const char *uri, int out) {
  dipc_client *client = new_client();
  struct ArrowDeviceArrayStream plain = get(client, uri, "plain"), arena = get(client, uri, "arena");
  struct ArrowDeviceArray batches[4];
  for (int i = 0; i < 2; i++) {
    CHECK_EQ(plain.get_next(&plain, &batches[i]), 0);
    CHECK_EQ(arena.get_next(&arena, &batches[i + 2]), 0);
  }
  tell(out, "holding");
  for (;;) pause();
}

static void fetch_all(const char *uri) {
  dipc_client *client = new_client();
  struct ArrowDeviceArrayStream stream = get(client, uri, "plain");
  CHECK_EQ(table_check_stream(&stream), 200000);
  stream = get(client, uri, "arena");
  CHECK_EQ(table_check_stream(&stream), 200000);
  dipc_client_free(client);
}

int main(void) {
  char address[64], path[64], word[16];
  snprintf(address, sizeof address, "shm:@dipc-c-processes-%ld", (long)getpid());
  snprintf(path, sizeof path, "shm:/tmp/dipc-c-%ld.sock", (long)getpid());
  remote abstract = start_server(address), named = start_server(path);

  /* A child that will be killed, forked before this process uses the library. */
  int out[2];
  CHECK_EQ(pipe(out), 0);
  const pid_t victim = fork();
  CHECK(victim >= 0);
  if (victim == 0) be_killed(abstract.uri, out[1]);
  hear(out[0], word, sizeof word);
  CHECK_EQ(kill(victim, SIGKILL), 0);
  int status = 0;
  CHECK_EQ(waitpid(victim, &status, 0), victim);

  /* A table arrives; after a client was killed the next client is served. */
  fetch_all(abstract.uri);

  /* kill -9 of the server: an error that says so, and received batches stay unchanged. */
  dipc_client *client = new_client();
  struct ArrowDeviceArrayStream plain = get(client, named.uri, "plain");
  struct ArrowDeviceArray batch, next;
  CHECK_EQ(plain.get_next(&plain, &batch), 0);
  CHECK_EQ(kill(named.pid, SIGKILL), 0);
  CHECK_EQ(waitpid(named.pid, &status, 0), named.pid);
  int code = 0;
  while ((code = plain.get_next(&plain, &next)) == 0) {
    CHECK(next.array.release != NULL); /* the stream is not complete */
    next.array.release(&next.array);
  }
  CHECK_EQ(code, dipc_status_errno(DIPC_ERR_DISCONNECTED));
  STATUS(DIPC_ERR_DISCONNECTED, dipc_stream_status(&plain, &error_));
  table_check(&batch.array, 0, 10000);
  CHECK_EQ(access(path + 4, F_OK), 0); /* left by the killed server, and taken over */
  dipc_server *heir = NULL;
  size_t len = 0;
  char uri[DIPC_URI_BYTES];
  OK(dipc_server_new(NULL, &heir, &error_));
  OK(dipc_server_listen(heir, path, uri, sizeof uri, &len, &error_));
  publish(heir, "new", 1, 10, NULL);
  struct ArrowDeviceArrayStream stream = get(client, uri, "new");
  CHECK_EQ(table_check_stream(&stream), 10);
  table_check(&batch.array, 0, 10000);

  /* The child of a fork: every call fails, every release does nothing, freeing is safe. */
  struct ArrowDeviceArrayStream half = get(client, abstract.uri, "arena");
  struct ArrowDeviceArray held;
  CHECK_EQ(half.get_next(&half, &held), 0);
  table_memory lendable = arena_memory();
  void *block = arena_alloc(lendable.context, 100);
  dipc_cancel *cancel = NULL;
  OK(dipc_cancel_new(&cancel, &error_));
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    size_t count = 0;
    FAILS(DIPC_ERR_FORKED, "fork", dipc_server_ticket_count(heir, &count, &error_));
    STATUS(DIPC_ERR_FORKED, dipc_server_serve_pull(heir, TICKET("x"), &error_));
    STATUS(DIPC_ERR_FORKED, dipc_server_stop(heir, 0, &error_));
    const char *uris[] = {uri};
    STATUS(DIPC_ERR_FORKED,
           dipc_client_get(client, uris, 1, TICKET("new"), NULL, NULL, &stream, &error_));
    STATUS(DIPC_ERR_FORKED, dipc_arena_alloc(lendable.context, 8, &block, &error_));
    STATUS(DIPC_ERR_FORKED, dipc_arena_dealloc(lendable.context, block, &error_));
    STATUS(DIPC_ERR_FORKED, dipc_cancel_trigger(cancel, &error_));
    CHECK(half.get_next(&half, &next) != 0);
    table_check(&held.array, 0, 10000);
    held.array.release(&held.array);
    half.release(&half);
    dipc_client_free(client);
    dipc_server_free(heir);
    dipc_arena_free(lendable.context);
    dipc_cancel_free(cancel);
    /* The child leaks handles that it cannot free, so no leak checker may run at its end. */
    kill(getpid(), SIGKILL);
  }
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL); /* a failed check is an abort */

  /* The parent goes on. */
  CHECK(!dipc_cancel_is_triggered(cancel));
  dipc_cancel_free(cancel);
  arena_dealloc(lendable.context, block);
  dipc_arena_free(lendable.context);
  table_check(&held.array, 0, 10000);
  held.array.release(&held.array);
  while (half.get_next(&half, &next) == 0 && next.array.release) next.array.release(&next.array);
  OK(dipc_stream_status(&half, &error_));
  half.release(&half);
  stream = get(client, uri, "new");
  CHECK_EQ(table_check_stream(&stream), 10);
  batch.array.release(&batch.array);
  plain.release(&plain);
  dipc_client_free(client);
  dipc_server_free(heir);
  CHECK(access(path + 4, F_OK) != 0); /* removed by a stop */
  table_wait_live(0);
  stop_server(&abstract);
  return 0;
}
