/* NULL for each pointer of each function: an error that names the argument, or no effect, never a
 * crash. The memory behind the other arguments stays unchanged. */
#include <dipc_machines.h>

#include "util.h"

#define NULLS(name, call) FAILS(DIPC_ERR_NULL_ARGUMENT, name " is NULL", call)

static int32_t provide(void *userdata, dipc_request *request, struct ArrowDeviceArrayStream *out) {
  (void)userdata, (void)request, (void)out;
  return 1;
}

static void errors_and_values(void) {
  CHECK_EQ(dipc_error_code(NULL), DIPC_OK);
  CHECK_STR(dipc_error_text(NULL), "");
  CHECK_EQ(dipc_error_os_errno(NULL), 0);
  CHECK_EQ(dipc_error_retry_after_ns(NULL), 0);
  CHECK(dipc_error_source(NULL) == NULL);
  NULLS("text", dipc_error_new(DIPC_ERR_IO, NULL, &error_));
  CHECK_EQ(dipc_error_new(DIPC_ERR_IO, "text", NULL), DIPC_ERR_IO);
  dipc_error_free(NULL);
  CHECK(dipc_status_name(0) != NULL);
  CHECK_EQ(dipc_status_errno(0), 0);
  CHECK_EQ(dipc_histogram_upper_bound(0), 256);
  CHECK(dipc_version() > 0);
  CHECK(dipc_version_string() != NULL);
  NULLS("scheme", dipc_transport_available(NULL, &error_));
  OK(dipc_log_set(DIPC_LOG_INFO, NULL, NULL, NULL, &error_));
  CHECK_EQ(dipc_log_set(DIPC_LOG_INFO, NULL, NULL, NULL, NULL), DIPC_OK);
}

static void tokens(void) {
  NULLS("out", dipc_cancel_new(NULL, &error_));
  NULLS("cancel", dipc_cancel_trigger(NULL, &error_));
  CHECK_EQ(dipc_cancel_trigger(NULL, NULL), DIPC_ERR_NULL_ARGUMENT);
  CHECK(!dipc_cancel_is_triggered(NULL));
  dipc_cancel_free(NULL);
}

static void puts_and_sources(void) {
  dipc_put *put = NULL;
  dipc_put_options *options = NULL;
  dipc_headers *headers = NULL;
  dipc_client *client = new_client();
  const char *uri = "shm:@nobody";
  struct ArrowDeviceArrayStream stream;
  struct ArrowDeviceArray batch;
  struct ArrowSchema schema;
  uint64_t figure = 0;
  size_t len = 0;
  int fd = 0;
  NULLS("out", dipc_put_options_new(NULL, &error_));
  NULLS("options", dipc_put_options_set_connect_timeout_ns(NULL, 1, &error_));
  NULLS("options", dipc_put_options_set_stall_timeout_ns(NULL, 1, &error_));
  NULLS("options", dipc_put_options_set_deadline_ns(NULL, 1, &error_));
  NULLS("options", dipc_put_options_set_headers(NULL, headers, &error_));
  NULLS("options", dipc_put_options_set_send_secrets(NULL, true, &error_));
  NULLS("options", dipc_put_options_set_checksums(NULL, true, &error_));
  NULLS("options", dipc_put_options_set_body(NULL, DIPC_BODY_AUTO, &error_));
  NULLS("options", dipc_put_options_set_compression(NULL, DIPC_COMPRESSION_NONE, &error_));
  NULLS("options", dipc_put_options_set_connections(NULL, 1, &error_));
  OK(dipc_put_options_new(&options, &error_));
  NULLS("headers", dipc_put_options_set_headers(options, NULL, &error_));
  dipc_put_options_free(options);
  dipc_put_options_free(NULL);
  table_stream(&stream, 1, 1, -1, NULL);
  table_schema(&schema);
  table_batch(&batch, 0, 1, NULL);
  NULLS("client", dipc_client_put(NULL, &uri, 1, TICKET("t"), NULL, NULL, &stream, &put, &error_));
  NULLS("uris", dipc_client_put(client, NULL, 1, TICKET("t"), NULL, NULL, &stream, &put, &error_));
  NULLS("descriptor",
        dipc_client_put(client, &uri, 1, NULL, 1, NULL, NULL, &stream, &put, &error_));
  NULLS("source", dipc_client_put(client, &uri, 1, TICKET("t"), NULL, NULL, NULL, &put, &error_));
  NULLS("out", dipc_client_put(client, &uri, 1, TICKET("t"), NULL, NULL, &stream, NULL, &error_));
  NULLS("schema", dipc_client_put_open(client, &uri, 1, TICKET("t"), NULL, NULL, NULL, 1, &put,
                                       &error_));
  NULLS("out", dipc_client_put_open(client, &uri, 1, TICKET("t"), NULL, NULL, &schema, 1, NULL,
                                    &error_));
  NULLS("schema", dipc_client_exchange(client, &uri, 1, TICKET("t"), NULL, NULL, NULL, NULL, 1,
                                       &put, &stream, &error_));
  NULLS("out", dipc_client_exchange(client, &uri, 1, TICKET("t"), NULL, NULL, NULL, &schema, 1,
                                    NULL, &stream, &error_));
  NULLS("answers", dipc_client_exchange(client, &uri, 1, TICKET("t"), NULL, NULL, NULL, &schema, 1,
                                        &put, NULL, &error_));
  NULLS("put", dipc_put_push(NULL, &batch, NULL, 0, 0, &error_));
  NULLS("batch", dipc_batch_set_metadata(NULL, NULL, 0, &error_));
  NULLS("metadata", dipc_batch_set_metadata(&batch, NULL, 8, &error_));
  NULLS("stream_schema", dipc_batch_check_schema(NULL, &schema, &error_));
  NULLS("batch_schema", dipc_batch_check_schema(&schema, NULL, &error_));
  NULLS("batch", dipc_batch_metadata(NULL, NULL, 0, &len, &error_));
  NULLS("out_len_bytes", dipc_batch_metadata(&batch, NULL, 0, NULL, &error_));
  NULLS("client",
        dipc_client_get_parts(NULL, &uri, 1, TICKET("t"), NULL, NULL, &stream, &error_));
  NULLS("uris",
        dipc_client_get_parts(client, NULL, 1, TICKET("t"), NULL, NULL, &stream, &error_));
  NULLS("ticket",
        dipc_client_get_parts(client, &uri, 1, NULL, 1, NULL, NULL, &stream, &error_));
  NULLS("out", dipc_client_get_parts(client, &uri, 1, TICKET("t"), NULL, NULL, NULL, &error_));
  NULLS("description", dipc_description_set_ordered(NULL, true, &error_));
  CHECK(!dipc_description_is_ordered(NULL));
  NULLS("put", dipc_put_next_result(NULL, 0, &figure, &error_));
  NULLS("put", dipc_put_result(NULL, NULL, 0, &len, &error_));
  NULLS("put", dipc_put_finish(NULL, 0, NULL, &error_));
  NULLS("put", dipc_put_fail(NULL, 1, "text", &error_));
  NULLS("put", dipc_put_headers(NULL, &headers, &error_));
  NULLS("put", dipc_put_fd(NULL, &fd, &error_));
  NULLS("put", dipc_put_stat(NULL, DIPC_PUT_STAT_BATCHES, &figure, &error_));
  CHECK(dipc_put_is_over(NULL));
  dipc_put_free(NULL);
  NULLS("request", dipc_request_source_schema(NULL, &schema, &error_));
  NULLS("request", dipc_request_source(NULL, &stream, &error_));
  NULLS("request", dipc_request_forward(NULL, NULL, &stream, &error_));
  NULLS("request", dipc_request_result(NULL, 1, NULL, 0, &error_));
  CHECK(put == NULL && stream.release && schema.release && batch.array.release);
  stream.release(&stream);
  schema.release(&schema);
  batch.array.release(&batch.array);
  dipc_client_free(client);
}

static void description(void) {
  dipc_description *description = NULL;
  dipc_headers *headers = NULL;
  struct ArrowDeviceArrayStream stream;
  struct ArrowSchema schema;
  size_t len = 0;
  NULLS("out", dipc_description_new(NULL, &error_));
  NULLS("description", dipc_description_set_schema(NULL, NULL, &error_));
  NULLS("description", dipc_description_set_total(NULL, DIPC_TOTAL_ROWS, 1, &error_));
  NULLS("description",
        dipc_description_add_endpoint(NULL, TICKET("t"), NULL, 0, 1, 1, &error_));
  NULLS("description", dipc_description_to_stream(NULL, &stream, &error_));
  NULLS("server", dipc_server_set_description(NULL, TICKET("t"), NULL, &error_));
  NULLS("description", dipc_description_schema(NULL, &schema, &error_));
  NULLS("description", dipc_description_headers(NULL, &headers, &error_));
  NULLS("description", dipc_description_endpoint_descriptor(NULL, 0, NULL, 0, &len, &error_));
  NULLS("description", dipc_description_endpoint_uri(NULL, 0, 0, NULL, 0, &len, &error_));
  CHECK_EQ(dipc_description_total(NULL, DIPC_TOTAL_ROWS), DIPC_UNKNOWN);
  CHECK_EQ(dipc_description_endpoint_count(NULL), 0);
  CHECK_EQ(dipc_description_endpoint_total(NULL, 0, DIPC_TOTAL_ROWS), DIPC_UNKNOWN);
  CHECK_EQ(dipc_description_endpoint_uri_count(NULL, 0), 0);
  dipc_description_free(NULL);
  OK(dipc_description_new(&description, &error_));
  NULLS("schema", dipc_description_set_schema(description, NULL, &error_));
  NULLS("descriptor",
        dipc_description_add_endpoint(description, NULL, 1, NULL, 0, 1, 1, &error_));
  NULLS("uris",
        dipc_description_add_endpoint(description, TICKET("t"), NULL, 1, 1, 1, &error_));
  NULLS("out", dipc_description_to_stream(description, NULL, &error_));
  NULLS("out", dipc_description_schema(description, NULL, &error_));
  NULLS("out", dipc_description_headers(description, NULL, &error_));
  NULLS("out_len_bytes",
        dipc_description_endpoint_descriptor(description, 0, NULL, 0, NULL, &error_));
  NULLS("out_len_bytes",
        dipc_description_endpoint_uri(description, 0, 0, NULL, 0, NULL, &error_));
  dipc_description_free(description);
}

static void headers(void) {
  dipc_headers *headers = NULL;
  dipc_get_options *options = NULL;
  uint8_t value[8] = "?";
  size_t len = 77;
  NULLS("out", dipc_headers_new(NULL, &error_));
  NULLS("headers", dipc_headers_add(NULL, "k", value, 1, &error_));
  NULLS("headers", dipc_headers_key(NULL, 0, NULL, 0, &len, &error_));
  NULLS("headers", dipc_headers_value(NULL, 0, NULL, 0, &len, &error_));
  NULLS("headers", dipc_headers_get(NULL, "k", NULL, 0, &len, &error_));
  CHECK_EQ(dipc_headers_count(NULL), 0);
  dipc_headers_free(NULL);
  OK(dipc_headers_new(&headers, &error_));
  NULLS("key", dipc_headers_add(headers, NULL, value, 1, &error_));
  NULLS("value", dipc_headers_add(headers, "k", NULL, 1, &error_));
  OK(dipc_headers_add(headers, "k", value, 1, &error_));
  NULLS("out_len_bytes", dipc_headers_key(headers, 0, NULL, 0, NULL, &error_));
  NULLS("buffer", dipc_headers_value(headers, 0, NULL, 8, &len, &error_));
  NULLS("key", dipc_headers_get(headers, NULL, value, 8, &len, &error_));
  CHECK_EQ(len, 77);
  OK(dipc_get_options_new(&options, &error_));
  NULLS("options", dipc_get_options_set_headers(NULL, headers, &error_));
  NULLS("headers", dipc_get_options_set_headers(options, NULL, &error_));
  const char *const columns[] = {NULL};
  NULLS("names", dipc_get_options_set_columns(options, NULL, 1, &error_));
  NULLS("column", dipc_get_options_set_columns(options, columns, 1, &error_));
  NULLS("message", dipc_get_options_set_filter(options, NULL, 1, &error_));
  dipc_get_options_free(options);
  dipc_headers_free(headers);
}

static void certificates(void) {
  dipc_server_options *server = NULL;
  dipc_client_options *client = NULL;
  OK(dipc_server_options_new(&server, &error_));
  NULLS("options", dipc_server_options_set_tls(NULL, "a", "b", &error_));
  NULLS("certificate_file", dipc_server_options_set_tls(server, NULL, "b", &error_));
  NULLS("key_file", dipc_server_options_set_tls(server, "a", NULL, &error_));
  NULLS("options", dipc_server_options_set_tls_client_ca(NULL, "a", &error_));
  NULLS("ca_file", dipc_server_options_set_tls_client_ca(server, NULL, &error_));
  NULLS("server", dipc_server_reload_tls(NULL, &error_));
  NULLS("options", dipc_server_options_set_authorizer(NULL, NULL, NULL, NULL, &error_));
  NULLS("options", dipc_server_options_set_authorizer_pull(NULL, true, &error_));
  dipc_server_options_free(server);
  OK(dipc_client_options_new(&client, &error_));
  NULLS("options", dipc_client_options_set_tls(NULL, "a", "b", &error_));
  NULLS("certificate_file", dipc_client_options_set_tls(client, NULL, "b", &error_));
  NULLS("key_file", dipc_client_options_set_tls(client, "a", NULL, &error_));
  NULLS("options", dipc_client_options_set_tls_ca(NULL, "a", &error_));
  NULLS("ca_file", dipc_client_options_set_tls_ca(client, NULL, &error_));
  NULLS("options", dipc_client_options_set_tls_server_name(NULL, "a", &error_));
  NULLS("name", dipc_client_options_set_tls_server_name(client, NULL, &error_));
  dipc_client_options_free(client);
}

static void options(void) {
  NULLS("out", dipc_server_options_new(NULL, &error_));
  NULLS("options", dipc_server_options_set_max_streams(NULL, 1, &error_));
  NULLS("options", dipc_server_options_set_max_providers(NULL, 1, &error_));
  NULLS("options", dipc_server_options_set_max_region_bytes(NULL, 1, &error_));
  NULLS("options", dipc_server_options_set_region_bytes(NULL, 1, &error_));
  NULLS("options", dipc_server_options_set_region_idle_ns(NULL, 1, &error_));
  NULLS("options", dipc_server_options_set_inline_bytes(NULL, 1, &error_));
  NULLS("options", dipc_server_options_set_lent_limit_bytes(NULL, 1, &error_));
  NULLS("options", dipc_server_options_set_put_window(NULL, 1, 1, &error_));
  NULLS("options", dipc_server_options_set_put_validation(NULL, 0, &error_));
  NULLS("options", dipc_server_options_set_put_stall_timeout_ns(NULL, 1, &error_));
  NULLS("options", dipc_server_options_set_put_message_limit_bytes(NULL, 1, &error_));
  NULLS("options", dipc_server_options_set_max_connections(NULL, 1, &error_));
  NULLS("options", dipc_server_options_set_max_connections_per_peer(NULL, 1, &error_));
  NULLS("options", dipc_server_options_set_max_streams_per_peer(NULL, 1, &error_));
  NULLS("options", dipc_server_options_set_max_streams_per_connection(NULL, 1, &error_));
  NULLS("options", dipc_server_options_set_credit_timeout_ns(NULL, 1, &error_));
  NULLS("options", dipc_server_options_set_max_request_bytes(NULL, 1, &error_));
  NULLS("options", dipc_server_options_set_handshake_timeout_ns(NULL, 1, &error_));
  NULLS("options", dipc_server_options_set_request_timeout_ns(NULL, 1, &error_));
  NULLS("options", dipc_server_options_set_idle_timeout_ns(NULL, 1, &error_));
  NULLS("options", dipc_server_options_set_any_user(NULL, true, &error_));
  NULLS("options", dipc_server_options_set_body(NULL, 0, &error_));
  NULLS("options", dipc_server_options_set_compression(NULL, 0, &error_));
  NULLS("options", dipc_server_options_set_allow_remote(NULL, true, &error_));
  NULLS("options", dipc_server_options_set_trusted_network(NULL, true, &error_));
  certificates();
  NULLS("options", dipc_server_options_set_transport(NULL, "ucx.TLS", "tcp", &error_));
  NULLS("options", dipc_server_options_set_spin_ns(NULL, 1, &error_));
  dipc_server_options_free(NULL);
  NULLS("out", dipc_client_options_new(NULL, &error_));
  NULLS("options", dipc_client_options_set_any_user(NULL, true, &error_));
  NULLS("options", dipc_client_options_set_idle_timeout_ns(NULL, 0, &error_));
  NULLS("options", dipc_client_options_set_max_idle(NULL, 0, &error_));
  NULLS("options", dipc_client_options_set_connections(NULL, 1, &error_));
  NULLS("options", dipc_client_options_set_transport(NULL, "ucx.TLS", "tcp", &error_));
  dipc_client_options_free(NULL);
  NULLS("out", dipc_get_options_new(NULL, &error_));
  NULLS("options", dipc_get_options_set_connect_timeout_ns(NULL, 1, &error_));
  NULLS("options", dipc_get_options_set_stall_timeout_ns(NULL, 1, &error_));
  NULLS("options", dipc_get_options_set_window(NULL, 1, 1, &error_));
  NULLS("options", dipc_get_options_set_lent_limit_bytes(NULL, 1, &error_));
  NULLS("options", dipc_get_options_set_message_limit_bytes(NULL, 1, &error_));
  NULLS("options", dipc_get_options_set_device(NULL, 1, 0, &error_));
  NULLS("options", dipc_get_options_set_validation(NULL, 0, &error_));
  NULLS("options", dipc_get_options_set_deadline_ns(NULL, 0, &error_));
  NULLS("options", dipc_get_options_set_send_secrets(NULL, true, &error_));
  NULLS("options", dipc_get_options_set_checksums(NULL, true, &error_));
  NULLS("options", dipc_get_options_set_trusted_network(NULL, true, &error_));
  NULLS("options", dipc_get_options_set_columns(NULL, NULL, 0, &error_));
  NULLS("options", dipc_get_options_set_range(NULL, 0, 1, &error_));
  NULLS("options", dipc_get_options_set_filter(NULL, NULL, 0, &error_));
  description();
  puts_and_sources();
  headers();
  NULLS("options", dipc_get_options_set_spin_ns(NULL, 1, &error_));
  NULLS("options", dipc_get_options_set_connections(NULL, 1, &error_));
  dipc_get_options_free(NULL);
  NULLS("out", dipc_arena_options_new(NULL, &error_));
  NULLS("options", dipc_arena_options_set_region_bytes(NULL, 1, &error_));
  NULLS("options", dipc_arena_options_set_max_bytes(NULL, 1, &error_));
  dipc_arena_options_free(NULL);
}

static void servers(void) {
  char uri[DIPC_URI_BYTES], buffer[8] = "?";
  uint8_t *bytes = (uint8_t *)buffer;
  dipc_server *server = new_server(NULL, uri);
  dipc_request *request = NULL;
  size_t len = 77, count = 77;
  uint64_t figure = 77;
  dipc_server_stats stats;
  struct ArrowSchema schema;
  struct ArrowDeviceArray batch;
  table_schema(&schema);
  table_batch(&batch, 0, 3, NULL);

  NULLS("out", dipc_server_new(NULL, NULL, &error_));
  NULLS("server", dipc_server_listen(NULL, "shm:@a", NULL, 0, &len, &error_));
  NULLS("uri", dipc_server_listen(server, NULL, NULL, 0, &len, &error_));
  NULLS("buffer", dipc_server_listen(server, "shm:@a", NULL, 8, &len, &error_));
  NULLS("out_len_bytes", dipc_server_listen(server, "shm:@a", NULL, 0, NULL, &error_));
  NULLS("server", dipc_server_location(NULL, 0, NULL, 0, &len, &error_));
  NULLS("buffer", dipc_server_location(server, 0, NULL, 8, &len, &error_));
  NULLS("out_len_bytes", dipc_server_location(server, 0, NULL, 0, NULL, &error_));
  NULLS("server", dipc_server_serve(NULL, TICKET("t"), provide, NULL, NULL, 0, &error_));
  NULLS("ticket", dipc_server_serve(server, NULL, 1, provide, NULL, NULL, 0, &error_));
  NULLS("provider", dipc_server_serve(server, TICKET("t"), NULL, NULL, NULL, 0, &error_));
  NULLS("server", dipc_server_serve_pull(NULL, TICKET("t"), &error_));
  NULLS("ticket", dipc_server_serve_pull(server, NULL, 1, &error_));
  NULLS("server", dipc_server_set_handler(NULL, provide, NULL, NULL, 0, &error_));
  NULLS("server", dipc_server_set_middleware(NULL, "key", provide, NULL, NULL, &error_));
  NULLS("server", dipc_server_set_handler_pull(NULL, &error_));
  NULLS("server", dipc_server_replace(NULL, TICKET("t"), &schema, &batch, 1, &error_));
  NULLS("schema", dipc_server_replace(server, TICKET("t"), NULL, &batch, 1, &error_));
  NULLS("server", dipc_server_publish(NULL, TICKET("t"), &schema, &batch, 1, &error_));
  NULLS("ticket", dipc_server_publish(server, NULL, 1, &schema, &batch, 1, &error_));
  NULLS("schema", dipc_server_publish(server, TICKET("t"), NULL, &batch, 1, &error_));
  NULLS("batches", dipc_server_publish(server, TICKET("t"), &schema, NULL, 1, &error_));
  NULLS("server", dipc_server_withdraw(NULL, TICKET("t"), &error_));
  NULLS("ticket", dipc_server_withdraw(server, NULL, 1, &error_));
  NULLS("server", dipc_server_ticket_count(NULL, &count, &error_));
  NULLS("out_count", dipc_server_ticket_count(server, NULL, &error_));
  NULLS("server", dipc_server_ticket(NULL, 0, NULL, 0, &len, &error_));
  NULLS("buffer", dipc_server_ticket(server, 0, NULL, 8, &len, &error_));
  NULLS("out_len_bytes", dipc_server_ticket(server, 0, bytes, 8, NULL, &error_));
  NULLS("server", dipc_server_next_request(NULL, 0, NULL, &request, &error_));
  NULLS("out", dipc_server_next_request(server, 0, NULL, NULL, &error_));
  STATUS(DIPC_NOTHING, dipc_server_next_request(server, 0, NULL, &request, &error_));
  NULLS("server", dipc_server_drain_releases(NULL, &count, &error_));
  NULLS("out_count", dipc_server_drain_releases(server, NULL, &error_));
  NULLS("server", dipc_server_stat(NULL, DIPC_SERVER_STAT_BATCHES, &figure, &error_));
  NULLS("out", dipc_server_stat(server, DIPC_SERVER_STAT_BATCHES, NULL, &error_));
  STATUS(DIPC_ERR_INVALID_ARGUMENT, dipc_server_stat(server, 0, &figure, &error_));
  NULLS("server", dipc_server_listen_fd(NULL, "shm", -1, NULL, 0, &len, &error_));
  NULLS("scheme", dipc_server_listen_fd(server, NULL, -1, NULL, 0, &len, &error_));
  NULLS("buffer", dipc_server_listen_fd(server, "shm", -1, NULL, 8, &len, &error_));
  NULLS("out_len_bytes", dipc_server_listen_fd(server, "shm", -1, NULL, 0, NULL, &error_));
  STATUS(DIPC_ERR_INVALID_ARGUMENT,
         dipc_server_listen_fd(server, "shm", -1, NULL, 0, &len, &error_));
  NULLS("server", dipc_server_drain(NULL, NULL, 0, &error_));
  NULLS("uris", dipc_server_drain(server, NULL, 1, &error_));
  NULLS("a URI", dipc_server_drain(server, (const char *const[]){NULL}, 1, &error_));
  CHECK(!dipc_server_is_ready(NULL));
  NULLS("server", dipc_server_get_stats(NULL, &stats, sizeof stats, &error_));
  NULLS("out", dipc_server_get_stats(server, NULL, sizeof stats, &error_));
  STATUS(DIPC_ERR_INVALID_ARGUMENT, dipc_server_get_stats(server, &stats, 0, &error_));
  NULLS("server", dipc_server_get_label_stats(NULL, "t", &stats, sizeof stats, &error_));
  NULLS("label", dipc_server_get_label_stats(server, NULL, &stats, sizeof stats, &error_));
  NULLS("out", dipc_server_get_label_stats(server, "t", NULL, sizeof stats, &error_));
  NULLS("out", dipc_process_get_stats(NULL, sizeof stats, &error_));
  STATUS(DIPC_ERR_INVALID_ARGUMENT, dipc_process_get_stats(&stats, 0, &error_));
  NULLS("server", dipc_server_stats_text(NULL, buffer, sizeof buffer, &len, &error_));
  NULLS("buffer", dipc_server_stats_text(server, NULL, 1, &len, &error_));
  NULLS("out_len_bytes", dipc_server_stats_text(server, buffer, sizeof buffer, NULL, &error_));
  NULLS("server", dipc_server_stop(NULL, 0, &error_));
  dipc_server_free(NULL);

  /* Nothing was written, nothing was taken, nothing is served. */
  CHECK(request == NULL);
  CHECK_EQ(len, 77);
  CHECK_EQ(count, 77);
  CHECK_EQ(figure, 77);
  CHECK_EQ(buffer[0], '?');
  table_check_schema(&schema);
  table_check(&batch.array, 0, 3);
  OK(dipc_server_ticket_count(server, &count, &error_));
  CHECK_EQ(count, 0);
  schema.release(&schema);
  batch.array.release(&batch.array);
  dipc_server_free(server);
}

/* A client that asks for "t" of the server at this URI, until the host fails its request. */
static void *ask(void *uri) {
  dipc_client *client = new_client();
  const char *uris[] = {uri};
  struct ArrowDeviceArrayStream stream;
  FAILS(DIPC_ERR_PROVIDER, "enough",
        dipc_client_get(client, uris, 1, TICKET("t"), NULL, NULL, &stream, &error_));
  dipc_client_free(client);
  return NULL;
}

static void requests(void) {
  char uri[DIPC_URI_BYTES];
  uint8_t buffer[8] = "?";
  struct ArrowSchema schema;
  struct ArrowDeviceArray batch;
  size_t len = 77;
  table_schema(&schema);
  table_batch(&batch, 0, 3, NULL);
  NULLS("request", dipc_request_ticket(NULL, NULL, 0, &len, &error_));
  NULLS("request", dipc_request_peer(NULL, NULL, 0, &len, &error_));
  dipc_headers *headers = NULL;
  size_t text_len = 0;
  CHECK_EQ(dipc_request_peer_id(NULL, DIPC_PEER_PID), -1);
  int pull_fd = -1;
  NULLS("request", dipc_request_fd(NULL, &pull_fd, &error_));
  struct ArrowAsyncDeviceStreamHandler handler;
  NULLS("request", dipc_request_answer_async(NULL, &handler, &error_));
  NULLS("server", dipc_server_request_fd(NULL, &pull_fd, &error_));
  NULLS("request", dipc_request_peer_transport(NULL, NULL, 0, &text_len, &error_));
  NULLS("request", dipc_request_peer_address(NULL, NULL, 0, &text_len, &error_));
  NULLS("request", dipc_request_peer_certificate(NULL, 1, NULL, 0, &text_len, &error_));
  NULLS("request", dipc_request_set_principal(NULL, "a", &error_));
  NULLS("request", dipc_request_set_label(NULL, "a", &error_));
  NULLS("request", dipc_request_principal(NULL, NULL, 0, &text_len, &error_));
  NULLS("request", dipc_request_headers(NULL, &headers, &error_));
  NULLS("request", dipc_request_add_headers(NULL, NULL, &error_));
  CHECK_EQ(dipc_request_verb(NULL), 0);
  CHECK_EQ(dipc_request_time_left_ns(NULL), 0);
  CHECK(dipc_request_is_cancelled(NULL));
  CHECK(!dipc_request_selects_columns(NULL));
  CHECK_EQ(dipc_request_column_count(NULL), 0);
  NULLS("request", dipc_request_column(NULL, 0, NULL, 0, &len, &error_));
  CHECK_EQ(dipc_request_first_row(NULL), 0);
  CHECK(dipc_request_rows(NULL) == DIPC_ALL_ROWS);
  NULLS("request", dipc_request_filter(NULL, NULL, 0, &len, &error_));
  NULLS("request", dipc_request_take_selection(NULL, &error_));
  CHECK(!dipc_request_is_complete(NULL));
  int32_t fd = 0;
  NULLS("request", dipc_request_cancel_fd(NULL, &fd, &error_));
  NULLS("request", dipc_request_start(NULL, &schema, 1, &error_));
  NULLS("request", dipc_request_push(NULL, &batch, NULL, 0, 0, &error_));
  NULLS("request", dipc_request_finish(NULL, 0, &error_));
  NULLS("request", dipc_request_fail(NULL, 1, "text", &error_));
  NULLS("request", dipc_request_allow(NULL, &error_));
  CHECK(!dipc_request_is_undecided(NULL));
  dipc_request_free(NULL);

  /* The same on a live request, of a client on another thread. */
  dipc_server *server = new_server(NULL, uri);
  OK(dipc_server_serve_pull(server, TICKET("t"), &error_));
  pthread_t client;
  CHECK_EQ(pthread_create(&client, NULL, ask, uri), 0);
  dipc_request *request = NULL;
  OK(dipc_server_next_request(server, 60 * SECOND, NULL, &request, &error_));
  NULLS("out_len_bytes", dipc_request_ticket(request, buffer, 8, NULL, &error_));
  NULLS("buffer", dipc_request_ticket(request, NULL, 8, &len, &error_));
  NULLS("out_fd", dipc_request_cancel_fd(request, NULL, &error_));
  NULLS("out", dipc_request_fd(request, NULL, &error_));
  NULLS("out", dipc_request_answer_async(request, NULL, &error_));
  NULLS("out_len_bytes", dipc_request_peer_transport(request, NULL, 0, NULL, &error_));
  NULLS("out_len_bytes", dipc_request_peer_address(request, NULL, 0, NULL, &error_));
  NULLS("out_len_bytes", dipc_request_peer_certificate(request, 1, NULL, 0, NULL, &error_));
  NULLS("principal", dipc_request_set_principal(request, NULL, &error_));
  NULLS("out_len_bytes", dipc_request_principal(request, NULL, 0, NULL, &error_));
  NULLS("out_len_bytes", dipc_request_column(request, 0, NULL, 0, NULL, &error_));
  NULLS("out_len_bytes", dipc_request_filter(request, NULL, 0, NULL, &error_));
  NULLS("buffer", dipc_request_filter(request, NULL, 8, &len, &error_));
  NULLS("out", dipc_request_headers(request, NULL, &error_));
  NULLS("headers", dipc_request_add_headers(request, NULL, &error_));
  NULLS("out_len_bytes", dipc_request_peer(request, (char *)buffer, 8, NULL, &error_));
  NULLS("buffer", dipc_request_peer(request, NULL, 8, &len, &error_));
  NULLS("schema", dipc_request_start(request, NULL, 1, &error_));
  NULLS("array", dipc_request_push(request, NULL, NULL, 0, 0, &error_));
  NULLS("metadata", dipc_request_push(request, &batch, NULL, 8, 0, &error_));
  NULLS("text", dipc_request_fail(request, 1, NULL, &error_));
  table_check_schema(&schema);
  table_check(&batch.array, 0, 3);
  CHECK_EQ(len, 77);
  CHECK_EQ(buffer[0], '?');
  schema.release(&schema);
  batch.array.release(&batch.array);
  OK(dipc_request_fail(request, 1, "enough", &error_));
  dipc_request_free(request);
  CHECK_EQ(pthread_join(client, NULL), 0);
  dipc_server_free(server);
}

static void clients_and_streams(void) {
  dipc_client *client = new_client();
  const char *uris[] = {"shm:@a"}, *none[] = {NULL};
  struct ArrowDeviceArrayStream device = {.private_data = uris};
  struct ArrowArrayStream host = {.private_data = uris};
  uint64_t figure = 77;
  size_t len = 77;
  uint8_t buffer[8] = "?";
  NULLS("out", dipc_client_new(NULL, NULL, &error_));
  NULLS("client", dipc_client_get(NULL, uris, 1, TICKET("t"), NULL, NULL, &device, &error_));
  NULLS("uris", dipc_client_get(client, NULL, 1, TICKET("t"), NULL, NULL, &device, &error_));
  NULLS("a URI", dipc_client_get(client, none, 1, TICKET("t"), NULL, NULL, &device, &error_));
  NULLS("ticket", dipc_client_get(client, uris, 1, NULL, 1, NULL, NULL, &device, &error_));
  NULLS("out", dipc_client_get(client, uris, 1, TICKET("t"), NULL, NULL, NULL, &error_));
  NULLS("client", dipc_client_list(NULL, uris, 1, NULL, 0, NULL, NULL, &device, &error_));
  NULLS("uris", dipc_client_list(client, NULL, 1, NULL, 0, NULL, NULL, &device, &error_));
  NULLS("prefix", dipc_client_list(client, uris, 1, NULL, 1, NULL, NULL, &device, &error_));
  NULLS("out", dipc_client_list(client, uris, 1, NULL, 0, NULL, NULL, NULL, &error_));
  struct ArrowAsyncDeviceStreamHandler handler = {.private_data = uris};
  NULLS("client", dipc_client_get_async(NULL, uris, 1, TICKET("t"), NULL, &handler, &error_));
  NULLS("uris", dipc_client_get_async(client, NULL, 1, TICKET("t"), NULL, &handler, &error_));
  NULLS("a URI", dipc_client_get_async(client, none, 1, TICKET("t"), NULL, &handler, &error_));
  NULLS("ticket", dipc_client_get_async(client, uris, 1, NULL, 1, NULL, &handler, &error_));
  NULLS("handler", dipc_client_get_async(client, uris, 1, TICKET("t"), NULL, NULL, &error_));
  dipc_description *description = NULL;
  dipc_pending *pending = NULL;
  int descriptor = -1;
  const int32_t verb = DIPC_VERB_GET;
  NULLS("client",
        dipc_client_start(NULL, verb, uris, 1, TICKET("t"), NULL, NULL, &pending, &error_));
  NULLS("uris",
        dipc_client_start(client, verb, NULL, 1, TICKET("t"), NULL, NULL, &pending, &error_));
  NULLS("a URI",
        dipc_client_start(client, verb, none, 1, TICKET("t"), NULL, NULL, &pending, &error_));
  NULLS("descriptor",
        dipc_client_start(client, verb, uris, 1, NULL, 1, NULL, NULL, &pending, &error_));
  NULLS("out", dipc_client_start(client, verb, uris, 1, TICKET("t"), NULL, NULL, NULL, &error_));
  NULLS("pending", dipc_pending_fd(NULL, &descriptor, &error_));
  NULLS("pending", dipc_pending_try_stream(NULL, &device, &error_));
  NULLS("pending", dipc_pending_try_description(NULL, &description, &error_));
  dipc_pending_free(NULL);
  OK(dipc_client_start(client, verb, uris, 1, TICKET("t"), NULL, NULL, &pending, &error_));
  NULLS("out", dipc_pending_fd(pending, NULL, &error_));
  NULLS("out", dipc_pending_try_stream(pending, NULL, &error_));
  NULLS("out", dipc_pending_try_description(pending, NULL, &error_));
  dipc_put *put = NULL;
  NULLS("pending", dipc_pending_try_put(NULL, &put, &error_));
  NULLS("out", dipc_pending_try_put(pending, NULL, &error_));
  NULLS("pending", dipc_pending_try_exchange(NULL, &put, &device, &error_));
  NULLS("out", dipc_pending_try_exchange(pending, NULL, &device, &error_));
  NULLS("answers", dipc_pending_try_exchange(pending, &put, NULL, &error_));
  dipc_pending_free(pending);
  struct ArrowSchema sent;
  table_schema(&sent);
  NULLS("client",
        dipc_client_start_put(NULL, uris, 1, TICKET("t"), NULL, NULL, &sent, ARROW_DEVICE_CPU,
                                        &pending, &error_));
  NULLS("uris",
        dipc_client_start_put(client, NULL, 1, TICKET("t"), NULL, NULL, &sent, ARROW_DEVICE_CPU,
                                      &pending, &error_));
  NULLS("schema", dipc_client_start_put(client, uris, 1, TICKET("t"), NULL, NULL, NULL,
                                        ARROW_DEVICE_CPU, &pending, &error_));
  NULLS("out",
        dipc_client_start_put(client, uris, 1, TICKET("t"), NULL, NULL, &sent, ARROW_DEVICE_CPU,
                                     NULL, &error_));
  NULLS("client", dipc_client_start_exchange(NULL, uris, 1, TICKET("t"), NULL, NULL, NULL, &sent,
                                             ARROW_DEVICE_CPU, &pending, &error_));
  NULLS("schema", dipc_client_start_exchange(client, uris, 1, TICKET("t"), NULL, NULL, NULL, NULL,
                                             ARROW_DEVICE_CPU, &pending, &error_));
  NULLS("out", dipc_client_start_exchange(client, uris, 1, TICKET("t"), NULL, NULL, NULL, &sent,
                                          ARROW_DEVICE_CPU, NULL, &error_));
  sent.release(&sent);
  NULLS("client",
        dipc_client_describe(NULL, uris, 1, TICKET("t"), NULL, NULL, &description, &error_));
  NULLS("uris",
        dipc_client_describe(client, NULL, 1, TICKET("t"), NULL, NULL, &description, &error_));
  NULLS("descriptor",
        dipc_client_describe(client, uris, 1, NULL, 1, NULL, NULL, &description, &error_));
  NULLS("out", dipc_client_describe(client, uris, 1, TICKET("t"), NULL, NULL, NULL, &error_));
  NULLS("client", dipc_client_stat(NULL, DIPC_CLIENT_STAT_STREAMS, &figure, &error_));
  NULLS("out", dipc_client_stat(client, DIPC_CLIENT_STAT_STREAMS, NULL, &error_));
  STATUS(DIPC_ERR_INVALID_ARGUMENT, dipc_client_stat(client, 99, &figure, &error_));
  dipc_client_free(NULL);

  NULLS("stream", dipc_stream_status(NULL, &error_));
  dipc_headers *answer = NULL;
  int fd = -1;
  struct ArrowArray host_batch;
  struct ArrowDeviceArray device_batch;
  NULLS("stream", dipc_stream_fd(NULL, &fd, &error_));
  NULLS("stream", dipc_stream_try_next(NULL, &device_batch, &error_));
  NULLS("stream", dipc_host_stream_fd(NULL, &fd, &error_));
  NULLS("stream", dipc_host_stream_try_next(NULL, &host_batch, &error_));
  NULLS("stream", dipc_stream_headers(NULL, &answer, &error_));
  NULLS("stream", dipc_host_stream_status(NULL, &error_));
  NULLS("stream", dipc_host_stream_metadata(NULL, buffer, 8, &len, &error_));
  NULLS("stream", dipc_host_stream_stat(NULL, DIPC_STREAM_STAT_ROWS, &figure, &error_));
  NULLS("stream", dipc_host_stream_headers(NULL, &answer, &error_));
  NULLS("stream", dipc_stream_metadata(NULL, buffer, 8, &len, &error_));
  NULLS("stream", dipc_stream_stat(NULL, DIPC_STREAM_STAT_ROWS, &figure, &error_));
  NULLS("source", dipc_stream_to_host(NULL, &host, &error_));
  NULLS("source", dipc_stream_from_host(NULL, &device, &error_));
  NULLS("source", dipc_stream_to_device(NULL, ARROW_DEVICE_CPU, 0, &device, &error_));
  struct ArrowDeviceArrayStream source;
  struct ArrowArrayStream host_source;
  table_stream(&source, 1, 1, -1, NULL);
  NULLS("out", dipc_stream_to_host(&source, NULL, &error_));
  NULLS("out", dipc_stream_to_device(&source, ARROW_DEVICE_CPU, 0, NULL, &error_));
  OK(dipc_stream_to_host(&source, &host_source, &error_));
  NULLS("out", dipc_stream_from_host(&host_source, NULL, &error_));
  NULLS("out_len_bytes", dipc_host_stream_metadata(&host_source, buffer, 8, NULL, &error_));
  NULLS("out", dipc_host_stream_stat(&host_source, DIPC_STREAM_STAT_ROWS, NULL, &error_));
  NULLS("out", dipc_host_stream_headers(&host_source, NULL, &error_));
  NULLS("out", dipc_host_stream_fd(&host_source, NULL, &error_));
  NULLS("out", dipc_host_stream_try_next(&host_source, NULL, &error_));
  OK(dipc_stream_from_host(&host_source, &source, &error_));
  NULLS("out_len_bytes", dipc_stream_metadata(&source, buffer, 8, NULL, &error_));
  NULLS("buffer", dipc_stream_metadata(&source, NULL, 8, &len, &error_));
  NULLS("out", dipc_stream_stat(&source, DIPC_STREAM_STAT_ROWS, NULL, &error_));
  NULLS("out", dipc_stream_headers(&source, NULL, &error_));
  NULLS("out", dipc_stream_fd(&source, NULL, &error_));
  NULLS("out", dipc_stream_try_next(&source, NULL, &error_));
  source.release(&source);
  CHECK(device.private_data == uris);
  CHECK(host.private_data == uris);
  CHECK_EQ(figure, 77);
  CHECK_EQ(len, 77);
  CHECK_EQ(buffer[0], '?');
  dipc_client_free(client);
}

static void arenas(void) {
  dipc_arena *arena = NULL;
  void *block = &arena;
  uint64_t figure = 77;
  NULLS("out", dipc_arena_new(ARROW_DEVICE_CPU, 0, NULL, NULL, &error_));
  OK(dipc_arena_new(ARROW_DEVICE_CPU, 0, NULL, &arena, &error_));
  NULLS("arena", dipc_arena_alloc(NULL, 8, &block, &error_));
  NULLS("out", dipc_arena_alloc(arena, 8, NULL, &error_));
  CHECK(block == &arena);
  OK(dipc_arena_dealloc(arena, NULL, &error_));
  OK(dipc_arena_dealloc(NULL, NULL, &error_));
  int fd = -7;
  uint64_t offset = 77;
  NULLS("data", dipc_arena_find_file(NULL, 8, &fd, &offset, &error_));
  NULLS("out_fd", dipc_arena_find_file(&fd, 8, NULL, &offset, &error_));
  NULLS("out_offset", dipc_arena_find_file(&fd, 8, &fd, NULL, &error_));
  STATUS(DIPC_NOTHING, dipc_arena_find_file(&fd, sizeof fd, &fd, &offset, &error_));
  CHECK(fd == -7 && offset == 77);
  NULLS("arena", dipc_arena_stat(NULL, DIPC_ARENA_STAT_USED_BYTES, &figure, &error_));
  NULLS("out", dipc_arena_stat(arena, DIPC_ARENA_STAT_USED_BYTES, NULL, &error_));
  STATUS(DIPC_ERR_INVALID_ARGUMENT, dipc_arena_stat(arena, 0, &figure, &error_));
  CHECK_EQ(figure, 77);
  dipc_arena_free(NULL);
  dipc_arena_free(arena);
}

static void senders(void) {
  dipc_sender *sender = NULL;
  struct ArrowSchema schema;
  struct ArrowDeviceArray batch;
  table_schema(&schema);
  table_batch(&batch, 0, 3, NULL);
  int32_t class = 77;
  uint64_t tag = 77;
  const void *const *parts = NULL;
  const size_t *lens = NULL;
  size_t count = 77, len = 77;
  uint8_t buffer[8] = "?";
  NULLS("out", dipc_sender_new(NULL, DIPC_BODY_PACKED, NULL, &error_));
  STATUS(DIPC_ERR_INVALID_ARGUMENT, dipc_sender_new(NULL, 0, &sender, &error_));
  STATUS(DIPC_ERR_INVALID_URI, dipc_sender_new("", DIPC_BODY_PACKED, &sender, &error_));
  OK(dipc_sender_new(NULL, DIPC_BODY_PACKED, &sender, &error_));
  NULLS("sender", dipc_sender_handle_tagged(NULL, 1, buffer, 1, &error_));
  NULLS("data", dipc_sender_handle_tagged(sender, 1, NULL, 1, &error_));
  NULLS("sender", dipc_sender_handle_control(NULL, buffer, 1, &error_));
  NULLS("data", dipc_sender_handle_control(sender, NULL, 1, &error_));
  NULLS("sender", dipc_sender_handle_disconnect(NULL, &error_));
  CHECK_EQ(dipc_sender_state(NULL), DIPC_SENDER_CLOSED);
  CHECK(!dipc_sender_may_send(NULL));
  CHECK(!dipc_sender_is_cancelled(NULL));
  CHECK_EQ(dipc_sender_lent_count(NULL), 0);
  NULLS("sender", dipc_sender_ticket(NULL, NULL, 0, &len, &error_));
  NULLS("buffer", dipc_sender_ticket(sender, NULL, 8, &len, &error_));
  NULLS("out_len_bytes", dipc_sender_ticket(sender, buffer, 8, NULL, &error_));
  CHECK_EQ(dipc_sender_verb(NULL), 0);
  CHECK_EQ(dipc_sender_verb(sender), 0);
  CHECK_EQ(dipc_sender_deadline_ns(NULL), DIPC_FOREVER);
  CHECK_EQ(dipc_sender_deadline_ns(sender), DIPC_FOREVER);
  dipc_headers *headers = NULL;
  NULLS("sender", dipc_sender_headers(NULL, &headers, &error_));
  NULLS("out", dipc_sender_headers(sender, NULL, &error_));
  STATUS(DIPC_ERR_NOT_FOUND, dipc_sender_headers(sender, &headers, &error_));
  NULLS("sender", dipc_sender_add_headers(NULL, headers, &error_));
  NULLS("headers", dipc_sender_add_headers(sender, NULL, &error_));
  NULLS("sender", dipc_sender_start(NULL, &schema, 1, &error_));
  NULLS("schema", dipc_sender_start(sender, NULL, 1, &error_));
  NULLS("sender", dipc_sender_refuse(NULL, 1, "text", &error_));
  NULLS("text", dipc_sender_refuse(sender, 1, NULL, &error_));
  NULLS("sender", dipc_sender_send_batch(NULL, &batch, NULL, 0, &error_));
  NULLS("array", dipc_sender_send_batch(sender, NULL, NULL, 0, &error_));
  NULLS("metadata", dipc_sender_send_batch(sender, &batch, NULL, 8, &error_));
  NULLS("sender", dipc_sender_end(NULL, &error_));
  NULLS("sender", dipc_sender_fail(NULL, 1, "text", &error_));
  NULLS("text", dipc_sender_fail(sender, 1, NULL, &error_));
  NULLS("sender", dipc_sender_poll_transmit(NULL, &class, &tag, &parts, &lens, &count, &error_));
  NULLS("out_class",
        dipc_sender_poll_transmit(sender, NULL, &tag, &parts, &lens, &count, &error_));
  NULLS("out_tag", dipc_sender_poll_transmit(sender, &class, NULL, &parts, &lens, &count, &error_));
  NULLS("out_parts", dipc_sender_poll_transmit(sender, &class, &tag, NULL, &lens, &count, &error_));
  NULLS("out_lens_bytes",
        dipc_sender_poll_transmit(sender, &class, &tag, &parts, NULL, &count, &error_));
  NULLS("out_n_parts",
        dipc_sender_poll_transmit(sender, &class, &tag, &parts, &lens, NULL, &error_));
  STATUS(DIPC_NOTHING,
         dipc_sender_poll_transmit(sender, &class, &tag, &parts, &lens, &count, &error_));
  table_check_schema(&schema);
  table_check(&batch.array, 0, 3);
  CHECK(class == 77 && tag == 77 && count == 77 && len == 77 && !parts && !lens);
  schema.release(&schema);
  batch.array.release(&batch.array);
  dipc_sender_free(NULL);
  dipc_sender_free(sender);
}

static void receivers(void) {
  dipc_receiver *receiver = NULL;
  const char *uris[] = {"mem:a"}, *none[] = {NULL};
  struct ArrowSchema schema = {.private_data = uris};
  struct ArrowDeviceArray batch = {.sync_event = uris};
  int32_t class = 77, role = 77;
  uint32_t sequence = 77;
  uint64_t tag = 77, time = 77;
  const void *const *parts = NULL;
  const size_t *lens = NULL;
  size_t count = 77;
  const uint8_t data[1] = {0};
  NULLS("uris", dipc_receiver_new(NULL, 1, DIPC_VERB_GET, TICKET("t"), NULL, NULL, &receiver, &error_));
  NULLS("a URI", dipc_receiver_new(none, 1, DIPC_VERB_GET, TICKET("t"), NULL, NULL, &receiver, &error_));
  NULLS("ticket", dipc_receiver_new(uris, 1, DIPC_VERB_GET, NULL, 1, NULL, NULL, &receiver, &error_));
  NULLS("out", dipc_receiver_new(uris, 1, DIPC_VERB_GET, TICKET("t"), NULL, NULL, NULL, &error_));
  OK(dipc_receiver_new(uris, 1, DIPC_VERB_GET, TICKET("t"), NULL, NULL, &receiver, &error_));
  NULLS("receiver", dipc_receiver_start(NULL, 0, &error_));
  NULLS("receiver", dipc_receiver_handle_metadata(NULL, 0, data, 1, &error_));
  NULLS("data", dipc_receiver_handle_metadata(receiver, 0, NULL, 1, &error_));
  NULLS("receiver", dipc_receiver_handle_tagged(NULL, 0, 1, data, 1, &error_));
  NULLS("data", dipc_receiver_handle_tagged(receiver, 0, 1, NULL, 1, &error_));
  NULLS("receiver", dipc_receiver_handle_control(NULL, 0, 0, data, 1, &error_));
  NULLS("data", dipc_receiver_handle_control(receiver, 0, 0, NULL, 1, &error_));
  STATUS(DIPC_ERR_INVALID_ARGUMENT, dipc_receiver_handle_control(receiver, 0, 9, data, 1, &error_));
  NULLS("receiver", dipc_receiver_handle_disconnect(NULL, 0, "text", &error_));
  NULLS("text", dipc_receiver_handle_disconnect(receiver, 0, NULL, &error_));
  NULLS("receiver", dipc_receiver_handle_timeout(NULL, 0, &error_));
  NULLS("receiver", dipc_receiver_add_memory(NULL, 1, data, 1, NULL, NULL, &error_));
  NULLS("data", dipc_receiver_add_memory(receiver, 1, NULL, 1, NULL, NULL, &error_));
  dipc_headers *headers = NULL;
  NULLS("receiver", dipc_receiver_headers(NULL, &headers, &error_));
  NULLS("out", dipc_receiver_headers(receiver, NULL, &error_));
  NULLS("receiver", dipc_receiver_schema(NULL, &schema, &error_));
  NULLS("out", dipc_receiver_schema(receiver, NULL, &error_));
  STATUS(DIPC_NOTHING, dipc_receiver_schema(receiver, &schema, &error_));
  NULLS("receiver", dipc_receiver_next(NULL, &batch, &error_));
  NULLS("out", dipc_receiver_next(receiver, NULL, &error_));
  STATUS(DIPC_NOTHING, dipc_receiver_next(receiver, &batch, &error_));
  NULLS("receiver", dipc_receiver_poll_transmit(NULL, 0, &class, &role, &tag, &parts, &lens, &count,
                                                &error_));
  NULLS("out_class", dipc_receiver_poll_transmit(receiver, 0, NULL, &role, &tag, &parts, &lens,
                                                 &count, &error_));
  NULLS("out_role", dipc_receiver_poll_transmit(receiver, 0, &class, NULL, &tag, &parts, &lens,
                                                &count, &error_));
  NULLS("out_tag", dipc_receiver_poll_transmit(receiver, 0, &class, &role, NULL, &parts, &lens,
                                               &count, &error_));
  NULLS("out_parts", dipc_receiver_poll_transmit(receiver, 0, &class, &role, &tag, NULL, &lens,
                                                 &count, &error_));
  NULLS("out_lens_bytes", dipc_receiver_poll_transmit(receiver, 0, &class, &role, &tag, &parts,
                                                      NULL, &count, &error_));
  NULLS("out_n_parts", dipc_receiver_poll_transmit(receiver, 0, &class, &role, &tag, &parts, &lens,
                                                   NULL, &error_));
  NULLS("receiver", dipc_receiver_poll_expected(NULL, &sequence, &tag, &time, &error_));
  NULLS("out_sequence", dipc_receiver_poll_expected(receiver, NULL, &tag, &time, &error_));
  NULLS("out_packed_bytes", dipc_receiver_poll_expected(receiver, &sequence, NULL, &time, &error_));
  NULLS("out_list_bytes", dipc_receiver_poll_expected(receiver, &sequence, &tag, NULL, &error_));
  STATUS(DIPC_NOTHING, dipc_receiver_poll_expected(receiver, &sequence, &tag, &time, &error_));
  NULLS("receiver", dipc_receiver_poll_timeout(NULL, &time, &error_));
  NULLS("out_ns", dipc_receiver_poll_timeout(receiver, NULL, &error_));
  CHECK_EQ(dipc_receiver_state(NULL), DIPC_RECEIVER_FAILED);
  CHECK_EQ(dipc_receiver_lent_count(NULL), 0);
  CHECK(class == 77 && role == 77 && sequence == 77 && tag == 77 && time == 77 && count == 77);
  CHECK(schema.private_data == uris && batch.sync_event == uris && !parts && !lens);
  NULLS("receiver", dipc_receiver_cancel(NULL, &error_));
  OK(dipc_receiver_cancel(receiver, &error_));
  dipc_receiver_free(NULL);
  dipc_receiver_free(receiver);
}

int main(void) {
  errors_and_values();
  tokens();
  options();
  servers();
  requests();
  clients_and_streams();
  arenas();
  senders();
  receivers();
  table_wait_live(0);
  return 0;
}
