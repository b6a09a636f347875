/* The C program of the matrix: what its files share. */
#ifndef DIPC_MATRIX_PEER_H
#define DIPC_MATRIX_PEER_H

#include <dipc.h>

/* What a program of the matrix exits with after it has said why. */
enum { EXIT_FAILED = 3 };

/* Prints `error STATUS TEXT` and frees the error. Gives EXIT_FAILED. */
int peer_failed(dipc_status status, dipc_error *error);

/* The same for a failure that is not libdipc's. */
int peer_failed_with(const char *text);

/* The same for a callback of a stream. */
int peer_stream_failed(const struct ArrowDeviceArrayStream *stream);

/* Writes a stream to a file, counts what it had, and releases it. Gives 0, or EXIT_FAILED after it has
 * said why. */
int peer_receive(struct ArrowDeviceArrayStream *stream, const char *out, int64_t *rows,
                 int64_t *batches);

/* Sends a file, and prints what the command line's put does. Gives the exit status. */
int peer_put(const dipc_client *client, const char *uri, const char *ticket, const char *path);

/* Sends a file, writes what comes for it to `out`, and prints what the command line's exchange
 * does. Gives the exit status. */
int peer_exchange(const dipc_client *client, const char *uri, const char *ticket, const char *path,
                  const char *out);

/* Serves a file until SIGTERM, or until the end of stdin unless `block`. Gives the exit status. */
int peer_serve(const char *uri, const char *file, bool block);

#endif
