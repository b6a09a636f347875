/* Versions, statuses, errors, cancel tokens and options, without a peer. */
#include <errno.h>

#include "util.h"

static void versions_agree(void) {
  char text[32];
  snprintf(text, sizeof text, "%d.%d.%d", DIPC_VERSION_MAJOR, DIPC_VERSION_MINOR,
           DIPC_VERSION_PATCH);
  CHECK_STR(dipc_version_string(), text);
  CHECK_EQ(dipc_version(),
           DIPC_VERSION_MAJOR * 1000000 + DIPC_VERSION_MINOR * 1000 + DIPC_VERSION_PATCH);
}

static void statuses_have_names_and_errnos(void) {
  CHECK_STR(dipc_status_name(DIPC_OK), "DIPC_OK");
  CHECK_STR(dipc_status_name(DIPC_NOTHING), "DIPC_NOTHING");
  CHECK_STR(dipc_status_name(DIPC_ERR_TIMEOUT), "DIPC_ERR_TIMEOUT");
  CHECK_STR(dipc_status_name(-1000), "DIPC_UNKNOWN");
  CHECK_EQ(dipc_status_errno(DIPC_OK), 0);
  CHECK_EQ(dipc_status_errno(DIPC_NOTHING), 0);
  CHECK_EQ(dipc_status_errno(DIPC_ERR_NOT_FOUND), ENOENT);
  CHECK_EQ(dipc_status_errno(-1000), EIO);
}

static void transports_say_whether_they_work(void) {
  OK(dipc_transport_available("shm", &error_));
  FAILS(DIPC_ERR_UNSUPPORTED, "carrier-pigeon", dipc_transport_available("carrier-pigeon", &error_));
}

static void errors_have_sources(void) {
  /* A URI without an address fails; the chain of causes must end. */
  dipc_client *client = new_client();
  const char *uri = "shm:@dipc-c-test-nobody-listens-here";
  struct ArrowDeviceArrayStream stream = {.private_data = &stream};
  dipc_error *error = NULL;
  CHECK_EQ(dipc_client_get(client, &uri, 1, TICKET("t"), NULL, NULL, &stream, &error),
           DIPC_ERR_UNREACHABLE);
  CHECK(stream.private_data == &stream); /* outputs are written on success only */
  CHECK_EQ(dipc_error_code(error), DIPC_ERR_UNREACHABLE);
  CHECK(dipc_error_os_errno(error) >= 0);
  int depth = 0;
  for (const dipc_error *source = error; source; source = dipc_error_source(source), depth++)
    CHECK(strstr(dipc_error_text(error), dipc_error_text(source)) != NULL);
  CHECK(depth < 10);
  dipc_error_free(error);
  /* The error is optional. */
  CHECK_EQ(dipc_client_get(client, &uri, 1, TICKET("t"), NULL, NULL, &stream, NULL),
           DIPC_ERR_UNREACHABLE);
  dipc_client_free(client);
}

static void libraries_above_make_errors(void) {
  FAILS(DIPC_ERR_PERMISSION, "not you", dipc_error_new(DIPC_ERR_PERMISSION, "not you", &error_));
  FAILS(DIPC_ERR_PROVIDER, "odd", dipc_error_new(DIPC_NOTHING, "odd", &error_));
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "UTF-8", dipc_error_new(DIPC_ERR_IO, "\xff", &error_));
}

static void tokens_stay_triggered(void) {
  dipc_cancel *cancel = NULL;
  OK(dipc_cancel_new(&cancel, &error_));
  CHECK(!dipc_cancel_is_triggered(cancel));
  OK(dipc_cancel_trigger(cancel, &error_));
  OK(dipc_cancel_trigger(cancel, &error_));
  CHECK(dipc_cancel_is_triggered(cancel));
  CHECK(!dipc_cancel_is_triggered(NULL));
  dipc_cancel_free(cancel);
}

static void options_check_their_values(void) {
  dipc_server_options *server = NULL;
  OK(dipc_server_options_new(&server, &error_));
  OK(dipc_server_options_set_max_streams(server, 3, &error_));
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "max_streams",
        dipc_server_options_set_max_streams(server, 0, &error_));
  OK(dipc_server_options_set_max_providers(server, 3, &error_));
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "max_providers",
        dipc_server_options_set_max_providers(server, 0, &error_));
  OK(dipc_server_options_set_max_region_bytes(server, 1 << 20, &error_));
  OK(dipc_server_options_set_region_bytes(server, 1 << 16, &error_));
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "region_bytes",
        dipc_server_options_set_region_bytes(server, 0, &error_));
  OK(dipc_server_options_set_region_idle_ns(server, SECOND, &error_));
  OK(dipc_server_options_set_inline_bytes(server, 0, &error_));
  OK(dipc_server_options_set_lent_limit_bytes(server, 1 << 20, &error_));
  OK(dipc_server_options_set_any_user(server, true, &error_));
  OK(dipc_server_options_set_body(server, DIPC_BODY_PACKED, &error_));
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "body is 9", dipc_server_options_set_body(server, 9, &error_));
  OK(dipc_server_options_set_compression(server, DIPC_COMPRESSION_ZSTD, &error_));
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "compression is -1",
        dipc_server_options_set_compression(server, -1, &error_));
  dipc_server_options_free(server);

  dipc_client_options *client = NULL;
  OK(dipc_client_options_new(&client, &error_));
  OK(dipc_client_options_set_any_user(client, false, &error_));
  OK(dipc_client_options_set_idle_timeout_ns(client, DIPC_FOREVER, &error_));
  OK(dipc_client_options_set_max_idle(client, 0, &error_));
  dipc_client_options_free(client);

  dipc_get_options *get = NULL;
  OK(dipc_get_options_new(&get, &error_));
  OK(dipc_get_options_set_connect_timeout_ns(get, SECOND, &error_));
  OK(dipc_get_options_set_stall_timeout_ns(get, DIPC_FOREVER, &error_));
  OK(dipc_get_options_set_window(get, 1, 1, &error_));
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "window", dipc_get_options_set_window(get, 0, 1, &error_));
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "window", dipc_get_options_set_window(get, 1, 0, &error_));
  OK(dipc_get_options_set_lent_limit_bytes(get, 0, &error_));
  OK(dipc_get_options_set_message_limit_bytes(get, 64 << 20, &error_));
  OK(dipc_get_options_set_device(get, ARROW_DEVICE_CPU, 0, &error_));
  OK(dipc_get_options_set_device(get, DIPC_DEVICE_AS_SENT, 0, &error_));
  OK(dipc_get_options_set_validation(get, DIPC_VALIDATION_FULL, &error_));
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "validation is 3",
        dipc_get_options_set_validation(get, 3, &error_));
  dipc_get_options_free(get);
}

static void bad_uris_are_refused(void) {
  dipc_client *client = new_client();
  struct ArrowDeviceArrayStream stream;
  static const struct {
    const char *uri;
    dipc_status status;
  } bad[] = {
      {"", DIPC_ERR_INVALID_URI},
      {"shm", DIPC_ERR_INVALID_URI},
      {"pigeon:@a", DIPC_ERR_UNSUPPORTED},
      {"shm:@a?want_data=1&want_data=2", DIPC_ERR_INVALID_URI},
      {"shm:@a?want_data=many", DIPC_ERR_INVALID_URI},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    STATUS(bad[i].status, dipc_client_get(client, &bad[i].uri, 1, TICKET("t"), NULL, NULL, &stream,
                                          &error_));
  const char *three[] = {"shm:@a", "shm:@b", "shm:@c"};
  FAILS(DIPC_ERR_INVALID_URI, "3 URIs",
        dipc_client_get(client, three, 3, TICKET("t"), NULL, NULL, &stream, &error_));
  STATUS(DIPC_ERR_INVALID_URI,
         dipc_client_get(client, three, 0, TICKET("t"), NULL, NULL, &stream, &error_));
  const char *latin1 = "shm:@\xe9";
  STATUS(DIPC_ERR_INVALID_ARGUMENT,
         dipc_client_get(client, &latin1, 1, TICKET("t"), NULL, NULL, &stream, &error_));
  dipc_client_free(client);
}

int main(void) {
  versions_agree();
  statuses_have_names_and_errnos();
  transports_say_whether_they_work();
  errors_have_sources();
  libraries_above_make_errors();
  tokens_stay_triggered();
  options_check_their_values();
  bad_uris_are_refused();
  return 0;
}
