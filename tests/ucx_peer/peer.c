/* The command line: see usage() and peer.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "peer.h"

static int usage(void) {
  fprintf(stderr,
          "usage: peer [OPTION...] serve HOST PORT FILE...\n"
          "       peer [OPTION...] get METADATA_URI DATA_URI TICKET OUT\n"
          "  --error-mode none|peer   of the endpoints (none)\n"
          "  --features all|minimal   minimal: TAG, AM and WAKEUP alone (all)\n"
          "  --timeout SECONDS        end by SIGALRM then (never)\n"
          "serve prints its two URIs, metadata and data, and serves until standard input ends.\n"
          "Files are Arrow IPC streams, and tickets their base names.\n");
  return 2;
}

int main(int argc, char **argv) {
  struct options options = {0};
  int next = 1;
  for (; next + 1 < argc && strncmp(argv[next], "--", 2) == 0; next += 2) {
    const char *name = argv[next], *value = argv[next + 1];
    if (strcmp(name, "--error-mode") == 0 && strcmp(value, "none") == 0) {
      options.error_mode_peer = 0;
    } else if (strcmp(name, "--error-mode") == 0 && strcmp(value, "peer") == 0) {
      options.error_mode_peer = 1;
    } else if (strcmp(name, "--features") == 0 && strcmp(value, "all") == 0) {
      options.minimal = 0;
    } else if (strcmp(name, "--features") == 0 && strcmp(value, "minimal") == 0) {
      options.minimal = 1;
    } else if (strcmp(name, "--timeout") == 0 && atoi(value) > 0) {
      alarm((unsigned)atoi(value));
    } else {
      return usage();
    }
  }
  argc -= next;
  argv += next;
  if (argc >= 4 && strcmp(argv[0], "serve") == 0) {
    serve(&options, argv[1], argv[2], argv + 3, argc - 3);
  } else if (argc == 5 && strcmp(argv[0], "get") == 0) {
    get(&options, argv[1], argv[2], argv[3], argv[4]);
  } else {
    return usage();
  }
  return 0;
}
