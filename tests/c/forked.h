/* A server in a process of its own. */
#ifndef DIPC_TESTS_FORKED_H
#define DIPC_TESTS_FORKED_H

#include <errno.h>
#include <sys/wait.h>

#include "util.h"

typedef struct {
  pid_t pid;
  /* Closed, it ends the server. */
  int control;
  /* Over shared memory, tcp, and ucx; empty where there is no ucx. */
  char uris[3][DIPC_URI_BYTES];
} forked_server;

static inline void serve_forked(int control, int out, void (*offer)(dipc_server *server)) {
  dipc_server *server = NULL;
  dipc_server_options *options = NULL;
  char address[64], uris[3][DIPC_URI_BYTES] = {"", "", ""};
  size_t len = 0;
  snprintf(address, sizeof address, "shm:@dipc-c-forked-%ld", (long)getpid());
  OK(dipc_server_options_new(&options, &error_));
  OK(dipc_server_options_set_trusted_network(options, true, &error_));
  OK(dipc_server_new(options, &server, &error_));
  dipc_server_options_free(options);
  OK(dipc_server_listen(server, address, uris[0], DIPC_URI_BYTES, &len, &error_));
  OK(dipc_server_listen(server, "tcp://127.0.0.1:0", uris[1], DIPC_URI_BYTES, &len, &error_));
  if (dipc_transport_available("ucx", NULL) == DIPC_OK) {
    OK(dipc_server_listen(server, "ucx://127.0.0.1:0", uris[2], DIPC_URI_BYTES, &len, &error_));
  }
  offer(server);
  CHECK_EQ(write(out, uris, sizeof uris), (ssize_t)sizeof uris);
  char byte;
  while (read(control, &byte, 1) < 0 && errno == EINTR) {
  }
  for (int i = 0; i < 1000 && server_stat(server, DIPC_SERVER_STAT_STREAMS_ACTIVE); i++) {
    sleep_ms(10);
  }
  CHECK_EQ(server_stat(server, DIPC_SERVER_STAT_STREAMS_ACTIVE), 0);
  dipc_server_free(server);
  table_wait_live(0);
  _exit(0);
}

/* Starts a server, to which `offer` gives tickets or a handler. Called before this process uses the
 * library, which does not survive a fork. */
static inline forked_server fork_server(void (*offer)(dipc_server *server)) {
  forked_server server;
  int control[2], out[2];
  CHECK_EQ(pipe(control), 0);
  CHECK_EQ(pipe(out), 0);
  fflush(NULL);
  server.pid = fork();
  CHECK(server.pid >= 0);
  if (server.pid == 0) {
    close(control[1]);
    close(out[0]);
    serve_forked(control[0], out[1], offer);
  }
  close(control[0]);
  close(out[1]);
  server.control = control[1];
  CHECK_EQ(read(out[0], server.uris, sizeof server.uris), (ssize_t)sizeof server.uris);
  close(out[0]);
  return server;
}

/* The server's URI over its transport number `i`; NULL, and said so, where it has none. */
static inline const char *uri_of(const forked_server *server, int i) {
  if (server->uris[i][0]) return server->uris[i];
  printf("skipped: ucx is not available\n");
  return NULL;
}

/* Ends the server, which must have no stream left and hold no array. */
static inline void end_server(const forked_server *server) {
  int status = 0;
  close(server->control);
  CHECK_EQ(waitpid(server->pid, &status, 0), server->pid);
  CHECK(WIFEXITED(status));
  CHECK_EQ(WEXITSTATUS(status), 0);
}

#endif
