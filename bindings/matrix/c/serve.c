/* Serving: a table that is published, two tickets with a provider, and what clients send. */
#define _POSIX_C_SOURCE 200809L
#include "ipc_file.h"
#include "peer.h"
#include "shared.h"
#include "table.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A stream of the first batch: without end, or with one that fails. */
typedef struct {
  const char *file;
  shared_array *first;
  bool broken;
} source;

typedef struct {
  const source *source;
  const dipc_request *request;
  long given;
} made_stream;

static int get_schema(struct ArrowDeviceArrayStream *stream, struct ArrowSchema *out) {
  made_stream *self = stream->private_data;
  struct ArrowArrayStream file;
  if (ipc_read(self->source->file, &file) != NULL) return EIO;
  const int failed = file.get_schema(&file, out);
  file.release(&file);
  return failed;
}

static int get_next(struct ArrowDeviceArrayStream *stream, struct ArrowDeviceArray *out) {
  made_stream *self = stream->private_data;
  if (self->source->broken && self->given > 0) {
    dipc_request_fail(self->request, DIPC_ERR_PROVIDER, "the provider failed on purpose", NULL);
    return EIO;
  }
  memset(out, 0, sizeof *out);
  out->device_type = ARROW_DEVICE_CPU;
  out->device_id = -1;
  if (!shared_give(self->source->first, &out->array)) return ENOMEM;
  self->given++;
  return 0;
}

static const char *get_last_error(struct ArrowDeviceArrayStream *stream) {
  (void)stream;
  return NULL;
}

static void release_stream(struct ArrowDeviceArrayStream *stream) {
  free(stream->private_data);
  stream->release = NULL;
}

static int32_t provide(void *userdata, dipc_request *request, struct ArrowDeviceArrayStream *out) {
  made_stream *self = calloc(1, sizeof *self);
  if (self == NULL) return ENOMEM;
  self->source = userdata;
  self->request = request;
  out->device_type = ARROW_DEVICE_CPU;
  out->get_schema = get_schema;
  out->get_next = get_next;
  out->get_last_error = get_last_error;
  out->release = release_stream;
  out->private_data = self;
  return 0;
}

static void forget_source(void *userdata) {
  source *self = userdata;
  shared_free(self->first);
  free(self);
}

/* Serves a ticket made of the first batch, which `first` has. NULL, or why not. */
static const char *add_provider(const dipc_server *server, const char *ticket, const char *file,
                                struct ArrowArray *first, bool broken, dipc_status *status,
                                dipc_error **error) {
  source *made = calloc(1, sizeof *made);
  if (made == NULL) {
    first->release(first);
    return strerror(ENOMEM);
  }
  made->file = file;
  made->broken = broken;
  made->first = shared_new(first);
  if (made->first == NULL) {
    free(made);
    return strerror(ENOMEM);
  }
  *status = dipc_server_serve(server, (const uint8_t *)ticket, strlen(ticket), provide, made,
                              forget_source, 0, error);
  if (*status != DIPC_OK) forget_source(made);
  return NULL;
}

/* The two of them, where there is a first batch. */
static const char *add_providers(const dipc_server *server, const char *file, dipc_status *status,
                                 dipc_error **error) {
  const char *why = NULL;
  for (int broken = 0; broken < 2 && why == NULL && *status == DIPC_OK; broken++) {
    table whole;
    why = table_read(file, &whole);
    if (why != NULL) return why;
    if (whole.count > 0)
      why = add_provider(server, broken ? "broken" : "endless", file, &whole.batches[0].array,
                         broken != 0, status, error);
    table_release(&whole);
  }
  return why;
}

static dipc_status publish(const dipc_server *server, table *whole, dipc_error **error) {
  return dipc_server_publish(server, (const uint8_t *)"table", 5, &whole->schema, whole->batches,
                             whole->count, error);
}

/* Serves the table of a put from now on. */
static dipc_status take(const dipc_server *server, const dipc_request *request,
                        const uint8_t *ticket, size_t len, dipc_error **error) {
  struct ArrowDeviceArrayStream source;
  table whole;
  dipc_status status = dipc_request_source(request, &source, error);
  if (status != DIPC_OK) return status;
  if (table_take(&source, &whole) != 0) status = dipc_stream_status(&source, error);
  if (status == DIPC_OK)
    status = dipc_server_replace(server, ticket, len, &whole.schema, whole.batches, whole.count,
                                 error);
  table_release(&whole);
  source.release(&source);
  return status;
}

/* What clients want with a ticket that is not served by itself. The server is the userdata. */
static int32_t handle(void *userdata, dipc_request *request, struct ArrowDeviceArrayStream *out) {
  uint8_t ticket[200];
  size_t len = 0;
  dipc_error *error = NULL;
  dipc_status status = dipc_request_ticket(request, ticket, sizeof ticket, &len, &error);
  if (status == DIPC_OK) {
    switch (dipc_request_verb(request)) {
      case DIPC_VERB_PUT:
        status = take(userdata, request, ticket, len, &error);
        break;
      case DIPC_VERB_EXCHANGE: /* the client's table is its own answer */
        status = dipc_request_source(request, out, &error);
        break;
      default: {
        char text[sizeof ticket + 40];
        snprintf(text, sizeof text, "there is no ticket %.*s", (int)len, (const char *)ticket);
        dipc_request_fail(request, DIPC_ERR_NOT_FOUND, text, NULL);
        return EIO;
      }
    }
  }
  if (status == DIPC_OK) return 0;
  dipc_request_fail(request, status, dipc_error_text(error), NULL);
  dipc_error_free(error);
  return EIO;
}

/* The other end of a pipe into which a signal writes. */
static int signalled[2];

static void on_signal(int number) {
  const char byte = (char)number;
  const ssize_t written = write(signalled[1], &byte, 1);
  (void)written; /* full: it was told before */
}

static void wait_for_the_end(bool look_at_stdin) {
  struct pollfd waits[2] = {{.fd = signalled[0], .events = POLLIN},
                            {.fd = STDIN_FILENO, .events = POLLIN}};
  for (;;) {
    if (poll(waits, look_at_stdin ? 2 : 1, -1) < 0) continue; /* interrupted */
    if (waits[0].revents != 0) return;
    char bytes[256];
    if (waits[1].revents != 0 && read(STDIN_FILENO, bytes, sizeof bytes) <= 0) return;
  }
}

static dipc_status make_server(dipc_server **out, dipc_error **error) {
  dipc_server_options *options = NULL;
  dipc_status status = dipc_server_options_new(&options, error);
  /* A test's network. */
  if (status == DIPC_OK) status = dipc_server_options_set_trusted_network(options, true, error);
  if (status == DIPC_OK) status = dipc_server_new(options, out, error);
  dipc_server_options_free(options);
  return status;
}

int peer_serve(const char *uri, const char *file, bool block) {
  if (pipe(signalled) != 0) return peer_failed_with(strerror(errno));
  struct sigaction action = {.sa_handler = on_signal};
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGINT, &action, NULL);

  dipc_error *error = NULL;
  dipc_server *server = NULL;
  char bound[DIPC_URI_BYTES];
  size_t len = 0;
  table whole;
  const char *why = table_read(file, &whole);
  if (why != NULL) return peer_failed_with(why);
  dipc_status status = make_server(&server, &error);
  if (status == DIPC_OK) status = publish(server, &whole, &error);
  if (status == DIPC_OK) why = add_providers(server, file, &status, &error);
  if (status == DIPC_OK && why == NULL)
    status = dipc_server_set_handler(server, handle, server, NULL, 0, &error);
  if (status == DIPC_OK && why == NULL)
    status = dipc_server_listen(server, uri, bound, sizeof bound, &len, &error);
  if (status == DIPC_OK && why == NULL) {
    printf("%s\n", bound);
    fflush(stdout);
    wait_for_the_end(!block);
  }
  dipc_server_free(server);
  table_release(&whole);
  if (why != NULL) return peer_failed_with(why);
  return status == DIPC_OK ? 0 : peer_failed(status, error);
}
