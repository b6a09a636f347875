/* The example of README.md; tests/exports.rs compares the two. */
#include <dipc.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: %s URI TICKET\n", argv[0]);
    return 2;
  }
  dipc_error *error = NULL;
  dipc_client *client = NULL;
  struct ArrowDeviceArrayStream device = {.release = NULL};
  struct ArrowArrayStream stream;
  struct ArrowArray batch;
  const char *uris[] = {argv[1]};
  if (dipc_client_new(NULL, &client, &error) != DIPC_OK ||
      dipc_client_get(client, uris, 1, (const uint8_t *)argv[2], strlen(argv[2]), NULL, NULL,
                      &device, &error) != DIPC_OK ||
      dipc_stream_to_host(&device, &stream, &error) != DIPC_OK) {
    fprintf(stderr, "%s\n", dipc_error_text(error));
    dipc_error_free(error);
    if (device.release != NULL) device.release(&device);
    dipc_client_free(client);
    return 1;
  }
  int failed;
  while ((failed = stream.get_next(&stream, &batch)) == 0 && batch.release != NULL) {
    printf("%lld rows\n", (long long)batch.length);
    batch.release(&batch);
  }
  if (failed) fprintf(stderr, "%s\n", stream.get_last_error(&stream));
  stream.release(&stream);
  dipc_client_free(client);
  return failed != 0;
}
