/* The example of README.md does what it says: argv[1] is the program. */
#include <sys/wait.h>

#include "util.h"

/* Runs the example; returns its exit status and what it printed on both outputs. */
static int run(const char *program, const char *uri, const char *ticket, char *text, size_t size) {
  char command[DIPC_URI_BYTES + 512];
  snprintf(command, sizeof command, "'%s' '%s' '%s' 2>&1", program, uri, ticket);
  FILE *output = popen(command, "r");
  CHECK(output != NULL);
  const size_t len = fread(text, 1, size - 1, output);
  text[len] = 0;
  return WEXITSTATUS(pclose(output));
}

int main(int argc, char **argv) {
  CHECK_EQ(argc, 2);
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
