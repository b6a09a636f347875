/* Arrow IPC stream files, for a language that has no Arrow library of its own. Behind these
 * functions is Arrow C++; nothing of libdipc is. */
#ifndef DIPC_MATRIX_IPC_FILE_H
#define DIPC_MATRIX_IPC_FILE_H

#include <dipc.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Opens a file as a stream. Gives NULL, or the reason, valid until the next call on the thread. */
const char *ipc_read(const char *path, struct ArrowArrayStream *out);

typedef struct ipc_writer ipc_writer;

/* Makes a file of the schema, which is released. */
const char *ipc_writer_open(const char *path, struct ArrowSchema *schema, ipc_writer **out);
/* Writes a batch, which is released. */
const char *ipc_writer_write(ipc_writer *writer, struct ArrowArray *batch);
/* Ends the file and frees the writer. */
const char *ipc_writer_close(ipc_writer *writer);

#ifdef __cplusplus
}
#endif

#endif
