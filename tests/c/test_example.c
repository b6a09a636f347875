/* Runs the examples of README.md and of the guide, the programs argv[1] and argv[2]. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util.h"

/* Runs the example; returns its exit status and both outputs. */
static int run(const char *program, const char *uri, const char *ticket, char *text, size_t size) {
  char command[DIPC_URI_BYTES + 512];
  snprintf(command, sizeof command, "'%s' '%s' '%s' 2>&1", program, uri, ticket);
  FILE *output = popen(command, "r");
  CHECK(output != NULL);
  const size_t len = fread(text, 1, size - 1, output);
  text[len] = 0;
  return WEXITSTATUS(pclose(output));
}

/* Starts the server of the guide; its first line is the URI. */
static pid_t start(const char *program, char *uri, size_t size) {
  int output[2];
  CHECK_EQ(pipe(output), 0);
  char address[64];
  snprintf(address, sizeof address, "shm:@dipc-guide-%ld", (long)getpid());
  const pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    dup2(output[1], STDOUT_FILENO);
    execl(program, program, address, (char *)NULL);
    _exit(127);
  }
  close(output[1]);
  FILE *lines = fdopen(output[0], "r");
  CHECK(fgets(uri, (int)size, lines) != NULL);
  uri[strcspn(uri, "\n")] = 0;
  fclose(lines);
  return pid;
}

static void the_guide_serves(const char *server, const char *client) {
  char uri[DIPC_URI_BYTES], text[4096];
  const pid_t pid = start(server, uri, sizeof uri);
  const int status = run(client, uri, "numbers", text, sizeof text);
  if (status != 0) FAIL("the example ended with %d: %s", status, text);
  CHECK(strstr(text, "1000 rows\n") != NULL);
  CHECK_EQ(kill(pid, SIGTERM), 0);
  int ended;
  CHECK_EQ(waitpid(pid, &ended, 0), pid);
  CHECK(WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
}

int main(int argc, char **argv) {
  CHECK_EQ(argc, 3);
  the_guide_serves(argv[2], argv[1]);
  char uri[DIPC_URI_BYTES], text[4096];
  dipc_server *server = new_server(NULL, uri);
  publish(server, "table", 2, 1000, NULL);
  const int status = run(argv[1], uri, "table", text, sizeof text);
  if (status != 0) FAIL("the example ended with %d: %s", status, text);
  CHECK(strstr(text, "1000 rows\n1000 rows\n") != NULL);
  CHECK_EQ(run(argv[1], uri, "no table", text, sizeof text), 1);
  CHECK(strstr(text, "no table") != NULL);
  dipc_server_free(server);
  table_wait_live(0);
  return 0;
}
