/* Runs the examples of README.md and of the guide, the programs argv[1] to argv[4]. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util.h"

/* Runs the example; returns its exit status and both outputs. */
static int run(const char *program, const char *uri, const char *ticket, char *text, size_t size) {
  char command[3 * DIPC_URI_BYTES + 512];
  snprintf(command, sizeof command, "'%s' '%s' '%s' 2>&1", program, uri, ticket);
  FILE *output = popen(command, "r");
  CHECK(output != NULL);
  const size_t len = fread(text, 1, size - 1, output);
  text[len] = 0;
  return WEXITSTATUS(pclose(output));
}

/* Starts a server of the guide, whose first line is the URI. Returns what it prints after that. */
static FILE *start(const char *program, char *uri, size_t size, pid_t *pid) {
  int output[2];
  CHECK_EQ(pipe(output), 0);
  char address[64];
  snprintf(address, sizeof address, "shm:@dipc-guide-%ld", (long)getpid());
  *pid = fork();
  CHECK(*pid >= 0);
  if (*pid == 0) {
    dup2(output[1], STDOUT_FILENO);
    execl(program, program, address, (char *)NULL);
    _exit(127);
  }
  close(output[1]);
  FILE *lines = fdopen(output[0], "r");
  CHECK(fgets(uri, (int)size, lines) != NULL);
  uri[strcspn(uri, "\n")] = 0;
  return lines;
}

/* Ends a server of the guide as its user does. */
static void end(pid_t pid, FILE *lines) {
  CHECK_EQ(kill(pid, SIGTERM), 0);
  int ended;
  CHECK_EQ(waitpid(pid, &ended, 0), pid);
  CHECK(WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
  fclose(lines);
}

static void the_guide_serves(const char *server, const char *client) {
  char uri[DIPC_URI_BYTES], text[4096];
  pid_t pid;
  FILE *lines = start(server, uri, sizeof uri, &pid);
  const int status = run(client, uri, "numbers", text, sizeof text);
  if (status != 0) FAIL("the example ended with %d: %s", status, text);
  CHECK(strstr(text, "1000 rows\n") != NULL);
  end(pid, lines);
}

/* Takes a table of 2000 rows that is called `table`; refuses others. */
static int32_t take(void *userdata, dipc_request *request, struct ArrowDeviceArrayStream *out) {
  (void)userdata;
  (void)out;
  uint8_t ticket[16] = {0};
  size_t len = 0;
  struct ArrowDeviceArrayStream source;
  OK(dipc_request_ticket(request, ticket, sizeof ticket - 1, &len, &error_));
  if (strcmp((char *)ticket, "table") != 0) {
    OK(dipc_request_fail(request, DIPC_ERR_PERMISSION, "not this one", &error_));
    return 1;
  }
  OK(dipc_request_source(request, &source, &error_));
  CHECK_EQ(table_check_stream(&source), 2000);
  return 0;
}

static void the_guide_puts(const char *program, const char *from) {
  char to[DIPC_URI_BYTES], both[2 * DIPC_URI_BYTES], text[4096];
  dipc_server *server = new_server(NULL, to);
  OK(dipc_server_set_handler(server, take, NULL, NULL, 0, &error_));
  snprintf(both, sizeof both, "table' '%s", to);
  const int status = run(program, from, both, text, sizeof text);
  if (status != 0) FAIL("the example ended with %d: %s", status, text);
  CHECK(strstr(text, "2 batches are there\n") != NULL);
  snprintf(both, sizeof both, "other' '%s", to);
  CHECK_EQ(run(program, from, both, text, sizeof text), 1);
  CHECK(strstr(text, "not this one") != NULL);
  dipc_server_free(server);
}

/* The guide's sender sends to its taker. */
static void the_guide_takes(const char *taker, const char *sender, const char *getter,
                            const char *from) {
  char to[DIPC_URI_BYTES], both[2 * DIPC_URI_BYTES], text[4096];
  pid_t pid;
  FILE *lines = start(taker, to, sizeof to, &pid);
  snprintf(both, sizeof both, "table' '%s", to);
  const int status = run(sender, from, both, text, sizeof text);
  if (status != 0) FAIL("the example ended with %d: %s", status, text);
  CHECK(fgets(text, sizeof text, lines) != NULL);
  CHECK(strcmp(text, "table has 2000 rows\n") == 0);
  CHECK_EQ(run(getter, to, "table", text, sizeof text), 1);
  CHECK(strstr(text, "only takes tables") != NULL);
  end(pid, lines);
}

int main(int argc, char **argv) {
  CHECK_EQ(argc, 5);
  the_guide_serves(argv[2], argv[1]);
  char uri[DIPC_URI_BYTES], text[4096];
  dipc_server *server = new_server(NULL, uri);
  publish(server, "table", 2, 1000, NULL);
  const int status = run(argv[1], uri, "table", text, sizeof text);
  if (status != 0) FAIL("the example ended with %d: %s", status, text);
  CHECK(strstr(text, "1000 rows\n1000 rows\n") != NULL);
  CHECK_EQ(run(argv[1], uri, "no table", text, sizeof text), 1);
  CHECK(strstr(text, "no table") != NULL);
  publish(server, "other", 1, 10, NULL);
  the_guide_puts(argv[3], uri);
  the_guide_takes(argv[4], argv[3], argv[1], uri);
  dipc_server_free(server);
  table_wait_live(0);
  return 0;
}
