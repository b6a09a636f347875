/* The C program of the matrix. bindings/matrix/README.md has its command line. */
#include "peer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static dipc_status open_stream(const char *uri, const char *ticket, const dipc_cancel *cancel,
                               struct ArrowDeviceArrayStream *out, dipc_error **error) {
  dipc_client *client = NULL;
  dipc_status status = dipc_client_new(NULL, &client, error);
  if (status == DIPC_OK)
    status = dipc_client_get(client, &uri, 1, (const uint8_t *)ticket, strlen(ticket), NULL, cancel,
                             out, error);
  dipc_client_free(client); /* the stream keeps what it needs */
  return status;
}

static int get(const char *uri, const char *ticket, const char *out) {
  dipc_error *error = NULL;
  int64_t rows, batches;
  struct ArrowDeviceArrayStream stream;
  const dipc_status status = open_stream(uri, ticket, NULL, &stream, &error);
  if (status != DIPC_OK) return peer_failed(status, error);
  const int result = peer_receive(&stream, out, &rows, &batches);
  if (result == 0) printf("rows=%" PRId64 " batches=%" PRId64 "\n", rows, batches);
  return result;
}

/* Sends one file after another: TICKET FILE, or TICKET FILE OUT for an exchange. */
static int send_all(const char *uri, char **words, int count, bool exchanges) {
  dipc_error *error = NULL;
  dipc_client *client = NULL;
  const dipc_status status = dipc_client_new(NULL, &client, &error);
  if (status != DIPC_OK) return peer_failed(status, error);
  int result = 0;
  for (int i = 0; i < count; i += exchanges ? 3 : 2) {
    const int one = exchanges ? peer_exchange(client, uri, words[i], words[i + 1], words[i + 2])
                              : peer_put(client, uri, words[i], words[i + 1]);
    if (one != 0) result = one;
  }
  dipc_client_free(client);
  return result;
}

/* Takes `count` batches, triggers the token and looks at what the stream says then. */
static int cancel_after(struct ArrowDeviceArrayStream *stream, const dipc_cancel *token,
                        long count) {
  struct ArrowDeviceArray batch;
  for (long taken = 0; taken < count; taken++) {
    if (stream->get_next(stream, &batch) != 0) return peer_stream_failed(stream);
    if (batch.array.release == NULL) return peer_failed_with("the stream ended too early");
    batch.array.release(&batch.array);
  }
  dipc_error *error = NULL;
  const dipc_status status = dipc_cancel_trigger(token, &error);
  if (status != DIPC_OK) return peer_failed(status, error);
  /* What had come before is still handed out; the next wait is what ends. */
  while (stream->get_next(stream, &batch) == 0) {
    if (batch.array.release == NULL)
      return peer_failed_with("the stream ended well after it was cancelled");
    batch.array.release(&batch.array);
  }
  if (dipc_stream_status(stream, NULL) != DIPC_ERR_CANCELLED) return peer_stream_failed(stream);
  printf("cancelled after %ld\n", count);
  return 0;
}

static int cancel(const char *uri, const char *ticket, long count) {
  dipc_error *error = NULL;
  dipc_cancel *token = NULL;
  struct ArrowDeviceArrayStream stream;
  dipc_status status = dipc_cancel_new(&token, &error);
  if (status == DIPC_OK) status = open_stream(uri, ticket, token, &stream, &error);
  if (status != DIPC_OK) {
    dipc_cancel_free(token);
    return peer_failed(status, error);
  }
  const int result = cancel_after(&stream, token, count);
  stream.release(&stream);
  dipc_cancel_free(token);
  return result;
}

int main(int argc, char **argv) {
  const char *verb = argc > 1 ? argv[1] : "";
  if (strcmp(verb, "serve") == 0 && (argc == 4 || (argc == 5 && !strcmp(argv[4], "--block"))))
    return peer_serve(argv[2], argv[3], argc == 5);
  if (strcmp(verb, "get") == 0 && argc == 5) return get(argv[2], argv[3], argv[4]);
  if (strcmp(verb, "cancel") == 0 && argc == 5)
    return cancel(argv[2], argv[3], strtol(argv[4], NULL, 10));
  if (strcmp(verb, "put") == 0 && argc > 3 && (argc - 3) % 2 == 0)
    return send_all(argv[2], argv + 3, argc - 3, false);
  if (strcmp(verb, "exchange") == 0 && argc > 3 && (argc - 3) % 3 == 0)
    return send_all(argv[2], argv + 3, argc - 3, true);
  fprintf(stderr,
          "usage: peer-c serve URI FILE [--block] | get URI TICKET OUT | cancel URI TICKET N | "
          "put URI TICKET FILE ... | exchange URI TICKET FILE OUT ...\n");
  return 2;
}
