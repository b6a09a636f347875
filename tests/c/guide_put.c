/* The sending example of docs/guide/c.md, which shows it from the next line on. */
#include <dipc.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: %s FROM TICKET TO\n", argv[0]);
    return 2;
  }
  dipc_error *error = NULL;
  dipc_client *client = NULL;
  dipc_put *put = NULL;
  struct ArrowDeviceArrayStream table = {.release = NULL};
  const char *from[] = {argv[1]}, *to[] = {argv[3]};
  const uint8_t *name = (const uint8_t *)argv[2];
  const size_t len = strlen(argv[2]);
  uint64_t batches = 0;
  /* The put takes the stream, any stream, and pulls its batches until the server has them all. */
  const int failed =
      dipc_client_new(NULL, &client, &error) != DIPC_OK ||
      dipc_client_get(client, from, 1, name, len, NULL, NULL, &table, &error) != DIPC_OK ||
      dipc_client_put(client, to, 1, name, len, NULL, NULL, &table, &put, &error) != DIPC_OK ||
      dipc_put_finish(put, DIPC_FOREVER, &batches, &error) != DIPC_OK;
  if (failed) {
    fprintf(stderr, "%s\n", dipc_error_text(error));
    dipc_error_free(error);
  } else {
    printf("%" PRIu64 " batches are there\n", batches);
  }
  if (table.release != NULL) table.release(&table);
  dipc_put_free(put);
  dipc_client_free(client);
  return failed;
}
