/* The log callback: on its own thread, one call at a time, with a finalizer at the end. */
#include <stdatomic.h>

#include "util.h"

typedef struct {
  atomic_int calls, finalized, inside;
  _Atomic(int32_t) finest;
  pthread_t host, thread;
} sink;

static void take(void *userdata, int32_t level, const char *target, const char *text) {
  sink *self = userdata;
  CHECK_EQ(atomic_fetch_add(&self->inside, 1), 0);
  CHECK(level >= DIPC_LOG_ERROR && level <= DIPC_LOG_TRACE);
  if (level > atomic_load(&self->finest)) atomic_store(&self->finest, level);
  CHECK(strncmp(target, "dipc", 4) == 0);
  CHECK(strlen(text) > 0 && text[strlen(text) - 1] != '\n');
  CHECK(!pthread_equal(pthread_self(), self->host));
  if (atomic_load(&self->calls) > 0) CHECK(pthread_equal(pthread_self(), self->thread));
  self->thread = pthread_self();
  /* The callback may call any function of the library. */
  dipc_cancel *cancel = NULL;
  OK(dipc_cancel_new(&cancel, &error_));
  dipc_cancel_free(cancel);
  atomic_fetch_sub(&self->inside, 1);
  atomic_fetch_add(&self->calls, 1);
}

static void finalize(void *userdata) {
  sink *self = userdata;
  CHECK_EQ(atomic_load(&self->inside), 0);
  atomic_fetch_add(&self->finalized, 1);
}

static int32_t fail(void *userdata, dipc_request *request, struct ArrowDeviceArrayStream *out) {
  (void)userdata, (void)request, (void)out;
  return 1;
}

/* A call that the library logs. */
static void make_noise(void) {
  char uri[DIPC_URI_BYTES];
  dipc_server *server = new_server(NULL, uri);
  OK(dipc_server_serve(server, TICKET("noise"), fail, NULL, NULL, 0, &error_));
  dipc_client *client = new_client();
  const char *uris[] = {uri};
  struct ArrowDeviceArrayStream stream;
  CHECK(dipc_client_get(client, uris, 1, TICKET("noise"), NULL, NULL, &stream, NULL) < 0);
  dipc_client_free(client);
  dipc_server_free(server);
}

static void wait_for(atomic_int *value) {
  for (int i = 0; i < 10000 && !atomic_load(value); i++) sleep_ms(1);
  CHECK_EQ(atomic_load(value), 1);
}

int main(void) {
  static sink first, second, never;
  first.host = second.host = pthread_self();
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "level is 0", dipc_log_set(0, take, &never, finalize, &error_));
  STATUS(DIPC_ERR_INVALID_ARGUMENT, dipc_log_set(6, take, &never, finalize, &error_));
  OK(dipc_log_set(DIPC_LOG_TRACE, take, &first, finalize, &error_));
  make_noise();
  for (int i = 0; i < 10000 && !atomic_load(&first.calls); i++) sleep_ms(1);
  CHECK(atomic_load(&first.calls) > 0);

  /* The second sink ends the first; a level excludes more detailed events. */
  OK(dipc_log_set(DIPC_LOG_ERROR, take, &second, finalize, &error_));
  wait_for(&first.finalized);
  const int calls = atomic_load(&first.calls);
  make_noise();
  CHECK_EQ(atomic_load(&first.calls), calls);
  OK(dipc_log_set(0, NULL, NULL, NULL, &error_));
  wait_for(&second.finalized);
  CHECK(atomic_load(&second.finest) <= DIPC_LOG_ERROR);
  make_noise();
  CHECK_EQ(atomic_load(&first.finalized), 1);
  CHECK_EQ(atomic_load(&never.finalized), 0);
  sleep_ms(20); /* the log's threads end */
  return 0;
}
