/* Figures of a server: they add up after gets, a put and a refusal, by label and for the process,
 * and the struct may be of another version. */
#include "util.h"

#define BATCHES 5
#define ROWS 1000

/* Takes a client's table, under a label of the test's. */
static int32_t take(void *userdata, dipc_request *request, struct ArrowDeviceArrayStream *out) {
  (void)userdata, (void)out;
  struct ArrowDeviceArrayStream source;
  struct ArrowDeviceArray batch;
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "0 bytes", dipc_request_set_label(request, "", &error_));
  FAILS(DIPC_ERR_NULL_ARGUMENT, "label is NULL", dipc_request_set_label(request, NULL, &error_));
  OK(dipc_request_set_label(request, "taken", &error_));
  OK(dipc_request_source(request, &source, &error_));
  int code = 0;
  while ((code = source.get_next(&source, &batch)) == 0 && batch.array.release) {
    batch.array.release(&batch.array);
  }
  source.release(&source);
  return code;
}

static void put_table(const dipc_client *client, const char *uri) {
  dipc_put *put = NULL;
  uint64_t batches = 0;
  struct ArrowDeviceArrayStream table;
  table_stream(&table, BATCHES, ROWS, -1, NULL);
  OK(dipc_client_put(client, &uri, 1, TICKET("a table"), NULL, NULL, &table, &put, &error_));
  OK(dipc_put_finish(put, DIPC_FOREVER, &batches, &error_));
  CHECK_EQ(batches, BATCHES);
  dipc_put_free(put);
}

static uint64_t read_table(const dipc_client *client, const char *uri, const char *ticket) {
  struct ArrowDeviceArrayStream stream = get(client, uri, ticket);
  struct ArrowDeviceArray batch;
  while (stream.get_next(&stream, &batch) == 0 && batch.array.release) {
    batch.array.release(&batch.array);
  }
  uint64_t bytes = stream_stat(&stream, DIPC_STREAM_STAT_BYTES_LENT) +
                   stream_stat(&stream, DIPC_STREAM_STAT_BYTES_RECEIVED);
  stream.release(&stream);
  return bytes;
}

/* Waits until so many requests have ended: a server notes an end behind the client. */
static dipc_server_stats wait_finished(const dipc_server *server, uint64_t requests) {
  dipc_server_stats stats;
  do {
    memset(&stats, 0xaa, sizeof stats);
    OK(dipc_server_get_stats(server, &stats, sizeof stats, &error_));
    sleep_ms(1);
  } while (stats.requests_finished < requests);
  return stats;
}

static uint64_t sum(const uint64_t *numbers, size_t count) {
  uint64_t all = 0;
  for (size_t i = 0; i < count; i++) all += numbers[i];
  return all;
}

static void check_histogram(const dipc_histogram *histogram, uint64_t count) {
  CHECK_EQ(histogram->count, count);
  CHECK_EQ(sum(histogram->buckets, DIPC_HISTOGRAM_BUCKETS), count);
}

/* Of two gets, a put and a refusal each is counted once, in the right place. */
static void figures_add_up(void) {
  char uri[DIPC_URI_BYTES];
  dipc_server *server = new_server(NULL, uri);
  dipc_client *client = new_client();
  dipc_server_stats stats, label;
  const char *uris = uri;
  struct ArrowDeviceArrayStream stream;
  publish(server, "t", BATCHES, ROWS, NULL);
  STATUS(DIPC_ERR_NOT_FOUND,
         dipc_client_get(client, &uris, 1, TICKET("nowhere"), NULL, NULL, &stream, &error_));
  OK(dipc_server_set_handler(server, take, NULL, NULL, 0, &error_));
  uint64_t bytes = read_table(client, uri, "t") + read_table(client, uri, "t");
  put_table(client, uri);

  stats = wait_finished(server, 3);
  CHECK_EQ(stats.requests_finished, 3);
  CHECK_EQ(stats.requests_get, 2);
  CHECK_EQ(stats.requests_put, 1);
  CHECK_EQ(sum(stats.requests_failed, DIPC_STATS_STATUSES), 0);
  CHECK_EQ(stats.requests_refused[-DIPC_ERR_NOT_FOUND], 1);
  CHECK_EQ(sum(stats.requests_refused, DIPC_STATS_STATUSES), 1);
  CHECK_EQ(stats.batches_sent, 2 * BATCHES);
  CHECK_EQ(stats.rows_sent, 2 * BATCHES * ROWS);
  CHECK_EQ(stats.rows_read, stats.rows_sent);
  CHECK_EQ(stats.batches_received, BATCHES);
  CHECK_EQ(stats.rows_received, BATCHES * ROWS);
  CHECK(stats.bytes_received > BATCHES * ROWS);
  CHECK(stats.connections_opened >= 1);
  CHECK_EQ(stats.connections_opened - stats.connections_closed, stats.connections);
  check_histogram(&stats.first_batch_ns, 2);
  check_histogram(&stats.hand_over_ns, 2);
  check_histogram(&stats.request_bytes, 3);
  /* With the gaps between buffers, which the client does not count. */
  bytes += stats.bytes_received;
  CHECK(stats.request_bytes.sum >= bytes && stats.request_bytes.sum < bytes + bytes / 10);
  CHECK_EQ(server_stat(server, DIPC_SERVER_STAT_ROWS), stats.rows_sent);
  CHECK_EQ(server_stat(server, DIPC_SERVER_STAT_REQUESTS_REFUSED), 1);
  CHECK_EQ(server_stat(server, DIPC_SERVER_STAT_ROWS_READ), stats.rows_read);

  OK(dipc_server_get_label_stats(server, "t", &label, sizeof label, &error_));
  CHECK_EQ(label.batches_sent, 2 * BATCHES);
  CHECK_EQ(label.connections_opened, 0);
  OK(dipc_server_get_label_stats(server, "taken", &label, sizeof label, &error_));
  CHECK_EQ(label.batches_received, BATCHES);
  CHECK_EQ(label.requests_put, 1);
  FAILS(DIPC_ERR_NOT_FOUND, "no figures for the label \"nowhere\"",
        dipc_server_get_label_stats(server, "nowhere", &label, sizeof label, &error_));

  /* The text has the same numbers, whole or not at all. */
  size_t len = 0;
  char little[16] = "";
  OK(dipc_server_stats_text(server, NULL, 0, &len, &error_));
  CHECK(len > sizeof little);
  STATUS(DIPC_ERR_BUFFER_TOO_SMALL,
         dipc_server_stats_text(server, little, sizeof little, &len, &error_));
  char *text = malloc(len + 1024);
  CHECK(text != NULL);
  OK(dipc_server_stats_text(server, text, len + 1024, &len, &error_));
  CHECK_EQ(strlen(text), len);
  CHECK(strstr(text, "\ndipc_batches_sent_total{ticket=\"t\"} 10\n") != NULL);
  CHECK(strstr(text, "\ndipc_requests_total{ticket=\"taken\",verb=\"put\"} 1\n") != NULL);
  free(text);

  dipc_client_free(client);
  dipc_server_free(server);
  /* The process keeps what its servers have counted. */
  OK(dipc_process_get_stats(&stats, sizeof stats, &error_));
  CHECK_EQ(stats.requests_finished, 3);
  CHECK_EQ(stats.connections, 0);
}

/* The caller's header may be older or newer than the library: nothing behind its struct is written,
 * and what the library does not know is 0. */
static void structs_of_other_versions(void) {
  char uri[DIPC_URI_BYTES];
  dipc_server *server = new_server(NULL, uri);
  dipc_client *client = new_client();
  publish(server, "t", BATCHES, ROWS, NULL);
  read_table(client, uri, "t");
  dipc_server_stats whole = wait_finished(server, 1);
  struct {
    dipc_server_stats known;
    uint64_t unknown[4];
  } newer;
  memset(&newer, 0xaa, sizeof newer);
  OK(dipc_server_get_stats(server, &newer.known, sizeof newer - sizeof(uint64_t), &error_));
  CHECK_EQ(newer.known.rows_sent, whole.rows_sent);
  CHECK_EQ(newer.known.request_bytes.sum, whole.request_bytes.sum);
  CHECK_EQ(newer.known.rows_read, BATCHES * ROWS);
  CHECK_EQ(sum(newer.unknown, 3), 0);
  CHECK(newer.unknown[3] == UINT64_C(0xaaaaaaaaaaaaaaaa));
  uint64_t older[10];
  memset(older, 0xaa, sizeof older);
  OK(dipc_server_get_stats(server, (dipc_server_stats *)(void *)older, 9 * sizeof *older,
                           &error_));
  CHECK_EQ(older[8], whole.rows_sent);
  CHECK(older[9] == UINT64_C(0xaaaaaaaaaaaaaaaa));
  dipc_client_free(client);
  dipc_server_free(server);
}

/* The bounds of buckets, as the header has them. */
static void bounds(void) {
  CHECK_EQ(dipc_histogram_upper_bound(0), 256);
  CHECK_EQ(dipc_histogram_upper_bound(1), 320);
  CHECK_EQ(dipc_histogram_upper_bound(4), 512);
  CHECK_EQ(dipc_histogram_upper_bound(DIPC_HISTOGRAM_BUCKETS - 2), INT64_C(1) << 40);
  CHECK(dipc_histogram_upper_bound(DIPC_HISTOGRAM_BUCKETS - 1) == UINT64_MAX);
  CHECK(dipc_histogram_upper_bound(SIZE_MAX) == UINT64_MAX);
}

int main(void) {
  figures_add_up();
  structs_of_other_versions();
  bounds();
  return 0;
}
