/* Custom metadata of batches, whichever way the batches go: a server in a process of its own, over
 * shared memory, tcp and ucx. */
#include "forked.h"

#define BATCHES 3
#define ROWS 100

/* Metadata that have one value under "n". */
static void note(struct ArrowDeviceArray *batch, int64_t number) {
  uint8_t pairs[] = "\1\0\0\0\1\0\0\0n\1\0\0\0_";
  pairs[sizeof pairs - 2] = (uint8_t)('0' + number);
  OK(dipc_batch_set_metadata(batch, pairs, sizeof pairs - 1, &error_));
}

/* Checks that the last batch of the stream has the metadata of note(). */
static void check_note(const struct ArrowDeviceArrayStream *stream, int64_t number) {
  uint8_t pairs[64];
  size_t len = 0;
  OK(dipc_stream_metadata(stream, pairs, sizeof pairs, &len, &error_));
  CHECK_EQ(len, 14);
  CHECK_EQ(pairs[13], '0' + number);
}

/* A stream whose batches have metadata. */
typedef struct {
  struct ArrowDeviceArrayStream table;
  int64_t next;
} noted;

static int noted_schema(struct ArrowDeviceArrayStream *stream, struct ArrowSchema *out) {
  noted *own = stream->private_data;
  return own->table.get_schema(&own->table, out);
}

static int noted_next(struct ArrowDeviceArrayStream *stream, struct ArrowDeviceArray *out) {
  noted *own = stream->private_data;
  int code = own->table.get_next(&own->table, out);
  if (code == 0 && out->array.release) note(out, own->next++);
  return code;
}

static const char *noted_error(struct ArrowDeviceArrayStream *stream) {
  noted *own = stream->private_data;
  return own->table.get_last_error(&own->table);
}

static void noted_release(struct ArrowDeviceArrayStream *stream) {
  noted *own = stream->private_data;
  own->table.release(&own->table);
  free(own);
  stream->release = NULL;
}

static void noted_stream(struct ArrowDeviceArrayStream *out) {
  noted *own = calloc(1, sizeof *own);
  table_stream(&own->table, BATCHES, ROWS, -1, NULL);
  *out = (struct ArrowDeviceArrayStream){.device_type = ARROW_DEVICE_CPU,
                                         .get_schema = noted_schema,
                                         .get_next = noted_next,
                                         .get_last_error = noted_error,
                                         .release = noted_release,
                                         .private_data = own};
}

/* Reads a stream to its end, and checks the batches with their metadata. */
static void check_noted(struct ArrowDeviceArrayStream *stream) {
  struct ArrowDeviceArray batch;
  int64_t batches = 0;
  for (;;) {
    CHECK_EQ(stream->get_next(stream, &batch), 0);
    if (!batch.array.release) break;
    table_check(&batch.array, batches * ROWS, ROWS);
    check_note(stream, batches++);
    batch.array.release(&batch.array);
  }
  CHECK_EQ(batches, BATCHES);
  stream->release(stream);
}

/* Gives a stream, takes one, or gives the client's batches back as they come. */
static int32_t handle(void *userdata, dipc_request *request, struct ArrowDeviceArrayStream *out) {
  (void)userdata;
  struct ArrowDeviceArrayStream source;
  switch (dipc_request_verb(request)) {
    case DIPC_VERB_GET:
      noted_stream(out);
      return 0;
    case DIPC_VERB_PUT:
      OK(dipc_request_source(request, &source, &error_));
      check_noted(&source);
      return 0;
    default:
      OK(dipc_request_source(request, out, &error_));
      return 0;
  }
}

static void offer(dipc_server *server) {
  struct ArrowSchema schema;
  struct ArrowDeviceArray batches[BATCHES];
  table_schema(&schema);
  for (int64_t i = 0; i < BATCHES; i++) {
    table_batch(&batches[i], i * ROWS, ROWS, NULL);
    note(&batches[i], i);
  }
  OK(dipc_server_publish(server, TICKET("published"), &schema, batches, BATCHES, &error_));
  OK(dipc_server_set_handler(server, handle, NULL, NULL, 0, &error_));
}

/* Promise: the metadata go with a published batch, and with one of a stream, in each direction. A
 * batch that is received has its metadata, so that they go on with it. */
static void metadata_go_with_batches(const dipc_client *client, const char *uri) {
  struct ArrowDeviceArrayStream stream, answers;
  struct ArrowSchema schema;
  dipc_put *put = NULL;
  stream = get(client, uri, "published");
  check_noted(&stream);
  stream = get(client, uri, "of a stream");
  check_noted(&stream);
  noted_stream(&stream);
  OK(dipc_client_put(client, &uri, 1, TICKET("put"), NULL, NULL, &stream, &put, &error_));
  OK(dipc_put_finish(put, DIPC_FOREVER, NULL, &error_));
  dipc_put_free(put);

  /* Sent on by this client, and back by the server. */
  stream = get(client, uri, "published");
  table_schema(&schema);
  OK(dipc_client_exchange(client, &uri, 1, TICKET("echo"), NULL, NULL, NULL, &schema,
                          ARROW_DEVICE_CPU, &put, &answers, &error_));
  schema.release(&schema);
  for (int64_t i = 0; i < BATCHES; i++) {
    struct ArrowDeviceArray batch;
    CHECK_EQ(stream.get_next(&stream, &batch), 0);
    OK(dipc_put_push(put, &batch, NULL, 0, DIPC_FOREVER, &error_));
  }
  stream.release(&stream);
  OK(dipc_put_finish(put, DIPC_FOREVER, NULL, &error_));
  check_noted(&answers);
  dipc_put_free(put);
}

/* Promise: the last metadata count, those of a push more than the batch's own, and what is not
 * metadata is refused. */
static void metadata_are_set_and_refused(const dipc_client *client, const char *uri) {
  struct ArrowDeviceArrayStream answers;
  struct ArrowDeviceArray batch;
  struct ArrowSchema schema;
  dipc_put *put = NULL;
  size_t len = 1;
  const uint8_t pairs[] = "\1\0\0\0\1\0\0\0n\1\0\0\0" "7";
  table_batch(&batch, 0, ROWS, NULL);
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "metadata",
        dipc_batch_set_metadata(&batch, pairs, sizeof pairs - 2, &error_));
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "UTF-8",
        dipc_batch_set_metadata(&batch, (const uint8_t *)"\1\0\0\0\1\0\0\0\xff\0\0\0\0", 13,
                                &error_));
  note(&batch, 1);
  OK(dipc_batch_set_metadata(&batch, NULL, 0, &error_));
  table_schema(&schema);
  OK(dipc_client_exchange(client, &uri, 1, TICKET("echo"), NULL, NULL, NULL, &schema,
                          ARROW_DEVICE_CPU, &put, &answers, &error_));
  schema.release(&schema);
  OK(dipc_put_push(put, &batch, NULL, 0, DIPC_FOREVER, &error_));
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "released",
        dipc_batch_set_metadata(&batch, pairs, sizeof pairs - 1, &error_));
  table_batch(&batch, ROWS, ROWS, NULL);
  note(&batch, 1);
  note(&batch, 2);
  OK(dipc_put_push(put, &batch, NULL, 0, DIPC_FOREVER, &error_));
  table_batch(&batch, 2 * ROWS, ROWS, NULL);
  note(&batch, 1);
  OK(dipc_put_push(put, &batch, pairs, sizeof pairs - 1, DIPC_FOREVER, &error_));
  OK(dipc_put_finish(put, DIPC_FOREVER, NULL, &error_));
  for (int64_t i = 0; i < 3; i++) {
    CHECK_EQ(answers.get_next(&answers, &batch), 0);
    table_check(&batch.array, i * ROWS, ROWS);
    batch.array.release(&batch.array);
    if (i == 0) {
      OK(dipc_stream_metadata(&answers, NULL, 0, &len, &error_));
      CHECK_EQ(len, 0);
    } else {
      check_note(&answers, i == 1 ? 2 : 7);
    }
  }
  answers.release(&answers);
  dipc_put_free(put);
  /* Changes of the host's stay, and the last pair is the end. */
  const uint8_t longer[] = "\1\0\0\0\1\0\0\0n\1\0\0\0" "7 and more";
  uint8_t read[32];
  table_batch(&batch, 0, ROWS, NULL);
  note(&batch, 1);
  batch.array.length = 5;
  batch.device_id = 3;
  OK(dipc_batch_set_metadata(&batch, longer, sizeof longer - 1, &error_));
  CHECK(batch.array.length == 5 && batch.device_id == 3);
  OK(dipc_batch_metadata(&batch, read, sizeof read, &len, &error_));
  CHECK(len == sizeof pairs - 1 && memcmp(read, pairs, len) == 0);
  OK(dipc_batch_set_metadata(&batch, NULL, 0, &error_));
  CHECK(batch.array.length == 5);
  OK(dipc_batch_metadata(&batch, NULL, 0, &len, &error_));
  CHECK_EQ(len, 0);
  batch.array.release(&batch.array);
  /* A batch that is never sent. */
  table_batch(&batch, 0, ROWS, NULL);
  note(&batch, 1);
  batch.array.release(&batch.array);
}

int main(void) {
  forked_server server = fork_server(offer);
  dipc_client *client = new_client();
  for (int i = 0; i < 3; i++) {
    const char *uri = uri_of(&server, i);
    if (uri == NULL) continue;
    metadata_go_with_batches(client, uri);
    metadata_are_set_and_refused(client, uri);
    table_wait_live(0);
  }
  dipc_client_free(client);
  end_server(&server);
  return 0;
}
