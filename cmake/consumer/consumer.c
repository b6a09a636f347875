/* The least a C program does with libdipc: compare versions, make a handle, read an error. */
#include <dipc.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  const uint32_t header =
      DIPC_VERSION_MAJOR * 1000000 + DIPC_VERSION_MINOR * 1000 + DIPC_VERSION_PATCH;
  if (dipc_version() != header) {
    fprintf(stderr, "the header is of version %u, the library of %u\n", (unsigned)header,
            (unsigned)dipc_version());
    return 1;
  }

  dipc_error *error = NULL;
  dipc_cancel *cancel = NULL;
  if (dipc_cancel_new(&cancel, &error) != DIPC_OK) {
    fprintf(stderr, "%s\n", dipc_error_text(error));
    return 1;
  }
  dipc_cancel_free(cancel);

  if (dipc_cancel_trigger(NULL, &error) != DIPC_ERR_NULL_ARGUMENT) return 1;
  if (strcmp(dipc_error_text(error), "cancel is NULL") != 0) return 1;
  dipc_error_free(error);
  printf("libdipc %s\n", dipc_version_string());
  return 0;
}
