/* Sending: a table by put, and one in exchange for another. */
#define _POSIX_C_SOURCE 200809L
#include "ipc_file.h"
#include "peer.h"
#include "table.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static dipc_status put_table(const dipc_client *client, const char *uri, const char *ticket,
                             struct ArrowDeviceArrayStream *source, uint64_t *batches,
                             dipc_error **error) {
  dipc_put *put = NULL;
  dipc_status status = dipc_client_put(client, &uri, 1, (const uint8_t *)ticket, strlen(ticket),
                                       NULL, NULL, source, &put, error);
  if (status == DIPC_OK) status = dipc_put_finish(put, DIPC_FOREVER, batches, error);
  dipc_put_free(put);
  return status;
}

/* NULL, or why the file cannot be read. */
static const char *count_rows(const char *path, int64_t *rows) {
  table whole;
  const char *why = table_read(path, &whole);
  if (why != NULL) return why;
  *rows = 0;
  for (size_t i = 0; i < whole.count; i++) *rows += whole.batches[i].array.length;
  table_release(&whole);
  return NULL;
}

int peer_put(const dipc_client *client, const char *uri, const char *ticket, const char *path) {
  struct ArrowArrayStream file;
  struct ArrowDeviceArrayStream source = {.release = NULL};
  dipc_error *error = NULL;
  int64_t rows = 0;
  uint64_t batches = 0;
  const char *why = count_rows(path, &rows);
  if (why == NULL) why = ipc_read(path, &file);
  if (why != NULL) return peer_failed_with(why);
  dipc_status status = dipc_stream_from_host(&file, &source, &error);
  if (status == DIPC_OK) status = put_table(client, uri, ticket, &source, &batches, &error);
  if (source.release != NULL) source.release(&source);
  if (file.release != NULL) file.release(&file);
  if (status != DIPC_OK) return peer_failed(status, error);
  printf("rows=%" PRId64 " batches=%" PRIu64 "\n", rows, batches);
  return 0;
}

/* The table from here, which a thread sends while another one reads the table from there. */
typedef struct {
  struct ArrowArrayStream file;
  dipc_put *put;
  dipc_status status;
  dipc_error *error;
} sending;

static void *send_batches(void *argument) {
  sending *self = argument;
  struct ArrowDeviceArray batch = {.device_id = -1, .device_type = ARROW_DEVICE_CPU};
  do {
    if (self->file.get_next(&self->file, &batch.array) != 0) {
      dipc_put_fail(self->put, DIPC_ERR_PROVIDER, self->file.get_last_error(&self->file), NULL);
      break;
    }
    if (batch.array.release == NULL) break;
    self->status = dipc_put_push(self->put, &batch, NULL, 0, DIPC_FOREVER, &self->error);
  } while (self->status == DIPC_OK);
  if (batch.array.release != NULL) batch.array.release(&batch.array);
  if (self->status == DIPC_OK)
    self->status = dipc_put_finish(self->put, DIPC_FOREVER, NULL, &self->error);
  else /* a batch that cannot be sent fails alone: whoever reads the answers would wait for it */
    dipc_put_fail(self->put, self->status, dipc_error_text(self->error), NULL);
  return NULL;
}

static int send_and_receive(sending *sent, struct ArrowDeviceArrayStream *answers,
                            const char *out) {
  pthread_t sender;
  int64_t rows = 0, batches = 0;
  const int failed = pthread_create(&sender, NULL, send_batches, sent);
  if (failed) {
    answers->release(answers);
    return peer_failed_with(strerror(failed));
  }
  const int result = peer_receive(answers, out, &rows, &batches);
  pthread_join(sender, NULL);
  if (result != 0) {
    dipc_error_free(sent->error); /* both tables fail at once, and that was told */
    return result;
  }
  if (sent->status != DIPC_OK) return peer_failed(sent->status, sent->error);
  printf("rows=%" PRId64 " batches=%" PRId64 "\n", rows, batches);
  return 0;
}

int peer_exchange(const dipc_client *client, const char *uri, const char *ticket, const char *path,
                  const char *out) {
  sending sent = {.status = DIPC_OK};
  struct ArrowDeviceArrayStream answers;
  struct ArrowSchema schema;
  const char *why = ipc_read(path, &sent.file);
  if (why != NULL) return peer_failed_with(why);
  if (sent.file.get_schema(&sent.file, &schema) != 0) {
    sent.file.release(&sent.file);
    return peer_failed_with("the file has no schema");
  }
  const dipc_status status = dipc_client_exchange(
      client, &uri, 1, (const uint8_t *)ticket, strlen(ticket), NULL, NULL, NULL, &schema,
      ARROW_DEVICE_CPU, &sent.put, &answers, &sent.error);
  schema.release(&schema);
  const int result = status == DIPC_OK ? send_and_receive(&sent, &answers, out)
                                       : peer_failed(status, sent.error);
  dipc_put_free(sent.put);
  sent.file.release(&sent.file);
  return result;
}
