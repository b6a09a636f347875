/* The operations of a consumer on a stream and its arrays. */
#include <errno.h>

#include "util.h"

static void *release_there(void *argument) {
  struct ArrowDeviceArray *batch = argument;
  batch->array.release(&batch->array);
  CHECK(batch->array.release == NULL);
  return NULL;
}

static void arrays_are_released_by_any_thread(const dipc_client *client, const char *uri) {
  struct ArrowDeviceArrayStream stream = get(client, uri, "table");
  struct ArrowDeviceArray batches[4];
  pthread_t threads[4];
  for (int64_t i = 0; i < 4; i++) CHECK_EQ(stream.get_next(&stream, &batches[i]), 0);
  stream.release(&stream);
  for (int64_t i = 0; i < 4; i++) table_check(&batches[i].array, i * 1000, 1000);
  for (int i = 0; i < 4; i++)
    CHECK_EQ(pthread_create(&threads[i], NULL, release_there, &batches[i]), 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
}

static void children_are_moved_out(const dipc_client *client, const char *uri) {
  struct ArrowDeviceArrayStream stream = get(client, uri, "table");
  struct ArrowDeviceArray batch;
  struct ArrowSchema schema;
  CHECK_EQ(stream.get_schema(&stream, &schema), 0);
  CHECK_EQ(stream.get_next(&stream, &batch), 0);
  struct ArrowArray ids = *batch.array.children[0];
  batch.array.children[0]->release = NULL;
  struct ArrowSchema name = *schema.children[1];
  schema.children[1]->release = NULL;
  batch.array.release(&batch.array);
  schema.release(&schema);
  stream.release(&stream);
  for (int64_t i = 0; i < 1000; i++) CHECK_EQ(((const int64_t *)ids.buffers[1])[ids.offset + i], i);
  CHECK_STR(name.name, "name");
  ids.release(&ids);
  CHECK(ids.release == NULL);
  name.release(&name);
}

/* Batches that count as arrived need no server any more. */
static void batches_that_are_here_need_no_server(const dipc_client *client) {
  bool seen = false;
  for (int round = 0; round < 100 && !seen; round++) {
    char uri[DIPC_URI_BYTES];
    dipc_server *server = new_server(NULL, uri);
    struct ArrowSchema schema;
    struct ArrowDeviceArray batches[8], batch;
    table_schema(&schema);
    for (int i = 0; i < 8; i++) table_batch(&batches[i], 10 * i, 10, NULL);
    OK(dipc_server_publish(server, TICKET("few"), &schema, batches, 8, &error_));
    struct ArrowDeviceArrayStream stream = get(client, uri, "few");
    const uint64_t here = stream_stat(&stream, DIPC_STREAM_STAT_BATCHES_HERE);
    dipc_server_free(server);
    for (uint64_t i = 0; i < here; i++) {
      CHECK_EQ(stream_stat(&stream, DIPC_STREAM_STAT_BATCHES_HERE), here - i);
      CHECK_EQ(stream.get_next(&stream, &batch), 0);
      CHECK(batch.array.release != NULL);
      table_check(&batch.array, 10 * (int64_t)i, 10);
      batch.array.release(&batch.array);
    }
    seen = here > 0;
    stream.release(&stream);
  }
  CHECK(seen);
}

static void the_end_stays_the_end(const dipc_client *client, const char *uri) {
  struct ArrowDeviceArrayStream stream = get(client, uri, "empty");
  struct ArrowDeviceArray batch = {.array.release = (void (*)(struct ArrowArray *))1};
  for (int i = 0; i < 3; i++) {
    CHECK_EQ(stream.get_next(&stream, &batch), 0);
    CHECK(batch.array.release == NULL);
  }
  struct ArrowSchema schema; /* allowed at any time */
  CHECK_EQ(stream.get_schema(&stream, &schema), 0);
  schema.release(&schema);
  CHECK(stream.get_last_error(&stream) == NULL);
  OK(dipc_stream_status(&stream, &error_));
  size_t len = 77;
  OK(dipc_stream_metadata(&stream, NULL, 0, &len, &error_));
  CHECK_EQ(len, 0);
  stream.release(&stream);
  CHECK(stream.release == NULL);
  STATUS(DIPC_ERR_INVALID_ARGUMENT, dipc_stream_status(&stream, &error_));
}

static void streams_are_cancelled(const dipc_client *client, const char *uri) {
  dipc_cancel *cancel = NULL;
  OK(dipc_cancel_new(&cancel, &error_));
  struct ArrowDeviceArrayStream stream;
  struct ArrowDeviceArray batch;
  OK(dipc_client_get(client, &uri, 1, TICKET("table"), NULL, cancel, &stream, &error_));
  CHECK_EQ(stream.get_next(&stream, &batch), 0);
  OK(dipc_cancel_trigger(cancel, &error_));
  int code = 0;
  struct ArrowDeviceArray next; /* an arrived batch may still come */
  while ((code = stream.get_next(&stream, &next)) == 0) {
    CHECK(next.array.release != NULL);
    next.array.release(&next.array);
  }
  CHECK_EQ(code, dipc_status_errno(DIPC_ERR_CANCELLED));
  CHECK_EQ(code, ECANCELED);
  FAILS(DIPC_ERR_CANCELLED, "cancelled", dipc_stream_status(&stream, &error_));
  CHECK_EQ(stream.get_next(&stream, &next), code); /* again, after the error */
  table_check(&batch.array, 0, 1000);
  batch.array.release(&batch.array);
  stream.release(&stream);
  STATUS(DIPC_ERR_CANCELLED,
         dipc_client_get(client, &uri, 1, TICKET("table"), NULL, cancel, &stream, &error_));
  dipc_cancel_free(cancel);
}

static void host_streams_stand_for_device_streams(const dipc_client *client, const char *uri) {
  struct ArrowDeviceArrayStream device = get(client, uri, "table"), back;
  struct ArrowArrayStream host;
  OK(dipc_stream_to_host(&device, &host, &error_));
  CHECK(device.release == NULL);
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "released", dipc_stream_to_host(&device, &host, &error_));
  struct ArrowSchema schema;
  CHECK_EQ(host.get_schema(&host, &schema), 0);
  table_check_schema(&schema);
  schema.release(&schema);
  struct ArrowArray array;
  CHECK_EQ(host.get_next(&host, &array), 0);
  table_check(&array, 0, 1000);
  OK(dipc_stream_from_host(&host, &back, &error_));
  CHECK(host.release == NULL);
  STATUS(DIPC_ERR_INVALID_ARGUMENT, dipc_stream_from_host(&host, &back, &error_));
  CHECK_EQ(back.device_type, ARROW_DEVICE_CPU);
  int64_t rows = 1000;
  struct ArrowDeviceArray batch;
  while (back.get_next(&back, &batch) == 0 && batch.array.release) {
    table_check(&batch.array, rows, 1000);
    rows += 1000;
    batch.array.release(&batch.array);
  }
  CHECK_EQ(rows, 100000);
  back.release(&back);
  table_check(&array, 0, 1000);
  array.release(&array);

  /* Memory that the host cannot read is refused, and stays with the caller. */
  table_stream(&device, 1, 1, -1, NULL);
  device.device_type = ARROW_DEVICE_ROCM;
  FAILS(DIPC_ERR_UNSUPPORTED, "device type 10", dipc_stream_to_host(&device, &host, &error_));
  FAILS(DIPC_ERR_UNSUPPORTED, "device type 10",
        dipc_stream_to_device(&device, ARROW_DEVICE_CPU, 0, &back, &error_));
  device.device_type = ARROW_DEVICE_CPU;
  FAILS(DIPC_ERR_UNSUPPORTED, "device type 10",
        dipc_stream_to_device(&device, ARROW_DEVICE_ROCM, 0, &back, &error_));
  FAILS(DIPC_ERR_UNSUPPORTED, "device type 1",
        dipc_stream_to_device(&device, 0, 0, &back, &error_));
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "-1",
        dipc_stream_to_device(&device, ARROW_DEVICE_CUDA, -1, &back, &error_));
  CHECK(device.release != NULL);
  OK(dipc_stream_to_device(&device, ARROW_DEVICE_CPU, 0, &back, &error_));
  CHECK(device.release == NULL);
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "released",
        dipc_stream_to_device(&device, ARROW_DEVICE_CPU, 0, &back, &error_));
  CHECK_EQ(back.device_type, ARROW_DEVICE_CPU);
  CHECK_EQ(table_check_stream(&back), 1);

  /* Failures keep their text. */
  table_stream(&device, 2, 10, 1, NULL);
  OK(dipc_stream_to_host(&device, &host, &error_));
  CHECK_EQ(host.get_next(&host, &array), 0);
  array.release(&array);
  CHECK(host.get_next(&host, &array) != 0);
  CHECK(strstr(host.get_last_error(&host), "broken pipe dream") != NULL);
  host.release(&host);
}

static void streams_of_others_are_told_apart(void) {
  struct ArrowDeviceArrayStream stream;
  table_stream(&stream, 1, 1, -1, NULL);
  uint64_t figure = 0;
  size_t len = 0;
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "not one that libdipc made",
        dipc_stream_status(&stream, &error_));
  STATUS(DIPC_ERR_INVALID_ARGUMENT,
         dipc_stream_stat(&stream, DIPC_STREAM_STAT_ROWS, &figure, &error_));
  STATUS(DIPC_ERR_INVALID_ARGUMENT, dipc_stream_metadata(&stream, NULL, 0, &len, &error_));
  stream.release(&stream);
}

static void every_level_of_validation_reads_the_same(const dipc_client *client, const char *uri) {
  dipc_get_options *options = NULL;
  OK(dipc_get_options_new(&options, &error_));
  for (int32_t level = DIPC_VALIDATION_AUTO; level <= DIPC_VALIDATION_FULL; level++) {
    OK(dipc_get_options_set_validation(options, level, &error_));
    struct ArrowDeviceArrayStream stream;
    OK(dipc_client_get(client, &uri, 1, TICKET("table"), options, NULL, &stream, &error_));
    CHECK_EQ(table_check_stream(&stream), 100000);
  }
  dipc_get_options_free(options);
}

/* Without arrays on a device, "as sent" means the host. Without a driver, arrays cannot go to a
 * device; the error comes before connecting. */
static void arrays_come_to_where_they_are_wanted(const dipc_client *client, const char *uri) {
  dipc_get_options *options = NULL;
  OK(dipc_get_options_new(&options, &error_));
  const int32_t host[] = {ARROW_DEVICE_CPU, 0};
  for (int i = 0; i < 2; i++) {
    OK(dipc_get_options_set_device(options, host[i], -1, &error_));
    struct ArrowDeviceArrayStream stream;
    OK(dipc_client_get(client, &uri, 1, TICKET("table"), options, NULL, &stream, &error_));
    CHECK_EQ(stream.device_type, ARROW_DEVICE_CPU);
    CHECK_EQ(stream_stat(&stream, DIPC_STREAM_STAT_BYTES_STAGED), 0);
    CHECK_EQ(stream_stat(&stream, DIPC_STREAM_STAT_BYTES_COPIED_ON_DEVICE), 0);
    CHECK_EQ(table_check_stream(&stream), 100000);
  }
  OK(dipc_get_options_set_device(options, ARROW_DEVICE_CUDA, 0, &error_));
  if (!has_driver()) {
    struct ArrowDeviceArrayStream stream;
    const char *nowhere = "shm:@dipc-nobody-listens-here";
    FAILS(DIPC_ERR_UNSUPPORTED, "libcuda.so.1",
          dipc_client_get(client, &nowhere, 1, TICKET("table"), options, NULL, &stream, &error_));
  }
  FAILS(DIPC_ERR_UNSUPPORTED, "device type 3",
        dipc_get_options_set_device(options, ARROW_DEVICE_CUDA_HOST, 0, &error_));
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "-1",
        dipc_get_options_set_device(options, ARROW_DEVICE_CUDA, -1, &error_));
  dipc_get_options_free(options);
}

int main(void) {
  char uri[DIPC_URI_BYTES];
  dipc_server *server = new_server(NULL, uri);
  publish(server, "table", 100, 1000, NULL);
  publish(server, "empty", 0, 0, NULL);
  dipc_client *client = new_client();
  arrays_are_released_by_any_thread(client, uri);
  children_are_moved_out(client, uri);
  batches_that_are_here_need_no_server(client);
  the_end_stays_the_end(client, uri);
  streams_are_cancelled(client, uri);
  host_streams_stand_for_device_streams(client, uri);
  streams_of_others_are_told_apart();
  every_level_of_validation_reads_the_same(client, uri);
  arrays_come_to_where_they_are_wanted(client, uri);
  dipc_client_free(client);
  dipc_server_free(server);
  table_wait_live(0);
  return 0;
}
