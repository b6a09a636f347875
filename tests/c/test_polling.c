/* Streams in an event loop: a server in a process of its own, and one thread that reads many streams
 * of it by epoll, over shared memory and tcp. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include "util.h"

#define STREAMS 16

static bool is_readable(int fd, int timeout_ms) {
  struct pollfd polled = {fd, POLLIN, 0};
  return poll(&polled, 1, timeout_ms) > 0;
}

/* Gives 50 batches; for the ticket "ever" so many that nobody reads them all. */
static int32_t produce(void *userdata, dipc_request *request, struct ArrowDeviceArrayStream *out) {
  (void)userdata;
  char ticket[16] = "";
  size_t len = 0;
  OK(dipc_request_ticket(request, (uint8_t *)ticket, sizeof ticket - 1, &len, &error_));
  if (strcmp(ticket, "late") == 0) sleep_ms(100);
  table_stream(out, strcmp(ticket, "ever") == 0 ? 1 << 30 : 50, 100, -1, NULL);
  return 0;
}

/* A stream that the pushing server sends. */
typedef struct {
  dipc_request *request;
  int fd, sent;
} sending;

/* Sends what can be sent now; false once the stream is over. */
static bool send_on(sending *stream) {
  struct ArrowDeviceArray batch;
  int32_t status = DIPC_OK;
  while (stream->sent < 50 && status == DIPC_OK) {
    table_batch(&batch, 100 * stream->sent, 100, NULL);
    status = dipc_request_push(stream->request, &batch, NULL, 0, 0, NULL);
    if (status == DIPC_OK) {
      stream->sent++;
    } else {
      batch.array.release(&batch.array);
    }
  }
  if (status == DIPC_OK) status = dipc_request_finish(stream->request, 0, NULL);
  if (status == DIPC_ERR_TIMEOUT) return true;
  CHECK_EQ(status, DIPC_OK);
  dipc_request_free(stream->request);
  return false;
}

/* Serves the ticket "pushed" by one thread that never waits for a client. */
static void push_in_a_loop(dipc_server *server, int control) {
  static sending streams[STREAMS];
  struct epoll_event events[4], event = {EPOLLIN, {.u32 = STREAMS}};
  struct ArrowSchema schema;
  int loop = epoll_create1(EPOLL_CLOEXEC), fd = -1, count = 0;
  table_schema(&schema);
  OK(dipc_server_serve_pull(server, TICKET("pushed"), &error_));
  OK(dipc_server_request_fd(server, &fd, &error_));
  CHECK_EQ(epoll_ctl(loop, EPOLL_CTL_ADD, fd, &event), 0);
  event.data.u32 = STREAMS + 1;
  CHECK_EQ(epoll_ctl(loop, EPOLL_CTL_ADD, control, &event), 0);
  for (;;) {
    int ready = epoll_wait(loop, events, 4, 30000);
    for (int i = 0; i < ready; i++) {
      uint32_t at = events[i].data.u32;
      if (at == STREAMS + 1) {
        schema.release(&schema);
        close(loop);
        return;
      }
      if (at < STREAMS) {
        if (!send_on(&streams[at])) streams[at].request = NULL;
        continue;
      }
      dipc_request *request = NULL;
      while (dipc_server_next_request(server, 0, NULL, &request, NULL) == DIPC_OK) {
        sending *stream = &streams[count];
        *stream = (sending){request, -1, 0};
        OK(dipc_request_start(request, &schema, ARROW_DEVICE_CPU, &error_));
        OK(dipc_request_fd(request, &stream->fd, &error_));
        event.data.u32 = (uint32_t)count++;
        CHECK_EQ(epoll_ctl(loop, EPOLL_CTL_ADD, stream->fd, &event), 0);
      }
    }
    size_t released = 0;
    OK(dipc_server_drain_releases(server, &released, &error_));
  }
}

static void serve(int control, int out, const char *address) {
  dipc_server *server = NULL;
  char uris[2][DIPC_URI_BYTES] = {"", ""};
  size_t len = 0;
  OK(dipc_server_new(NULL, &server, &error_));
  OK(dipc_server_listen(server, address, uris[0], DIPC_URI_BYTES, &len, &error_));
  OK(dipc_server_listen(server, "tcp://127.0.0.1:0", uris[1], DIPC_URI_BYTES, &len, &error_));
  OK(dipc_server_set_handler(server, produce, NULL, NULL, 0, &error_));
  CHECK_EQ(write(out, uris, sizeof uris), (ssize_t)sizeof uris);
  push_in_a_loop(server, control);
  dipc_server_free(server);
  _exit(0);
}

/* Reads what is there; false once the stream has ended. */
static bool drain(struct ArrowDeviceArrayStream *stream, int64_t *rows) {
  struct ArrowDeviceArray batch;
  int32_t status;
  while ((status = dipc_stream_try_next(stream, &batch, NULL)) == DIPC_OK) {
    if (batch.array.release == NULL) return false;
    table_check(&batch.array, *rows, 100);
    *rows += batch.array.length;
    batch.array.release(&batch.array);
  }
  CHECK_EQ(status, DIPC_NOTHING);
  return true;
}

/* With the ticket "pushed" the server has one thread, too. */
static void one_thread_reads_many_streams(const char *uri, const char *odd, const char *even) {
  dipc_client *client = new_client();
  struct ArrowDeviceArrayStream streams[STREAMS];
  int64_t rows[STREAMS] = {0};
  int loop = epoll_create1(EPOLL_CLOEXEC), fd = -1, left = STREAMS;
  CHECK(loop >= 0);
  for (int i = 0; i < STREAMS; i++) {
    streams[i] = get(client, uri, i % 2 ? odd : even);
    OK(dipc_stream_fd(&streams[i], &fd, &error_));
    struct epoll_event event = {EPOLLIN, {.u32 = (uint32_t)i}};
    CHECK_EQ(epoll_ctl(loop, EPOLL_CTL_ADD, fd, &event), 0);
  }
  while (left > 0) {
    struct epoll_event events[4];
    int ready = epoll_wait(loop, events, 4, 30000);
    CHECK(ready > 0 || errno == EINTR);
    for (int i = 0; i < ready; i++) {
      uint32_t at = events[i].data.u32;
      if (drain(&streams[at], &rows[at])) continue;
      CHECK_EQ(rows[at], 5000);
      OK(dipc_stream_status(&streams[at], &error_));
      /* get_next agrees that the stream has ended. */
      struct ArrowDeviceArray batch;
      CHECK_EQ(streams[at].get_next(&streams[at], &batch), 0);
      CHECK(batch.array.release == NULL);
      streams[at].release(&streams[at]);
      left--;
    }
  }
  close(loop);
  dipc_client_free(client);
}

static void a_host_stream_is_polled(const char *uri) {
  dipc_client *client = new_client();
  struct ArrowDeviceArrayStream device = get(client, uri, "soon");
  struct ArrowArrayStream host;
  struct ArrowArray batch;
  int fd = -1;
  int64_t rows = 0;
  int32_t status;
  OK(dipc_stream_to_host(&device, &host, &error_));
  OK(dipc_host_stream_fd(&host, &fd, &error_));
  do {
    CHECK(is_readable(fd, 30000));
    while ((status = dipc_host_stream_try_next(&host, &batch, NULL)) == DIPC_OK) {
      if (batch.release == NULL) break;
      rows += batch.length;
      batch.release(&batch);
    }
  } while (status == DIPC_NOTHING);
  CHECK_EQ(status, DIPC_OK);
  CHECK_EQ(rows, 5000);
  CHECK(is_readable(fd, 0));
  host.release(&host);
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "released", dipc_host_stream_fd(&host, &fd, &error_));
  dipc_client_free(client);

  /* A stream of another library has neither. */
  table_stream(&device, 1, 10, -1, NULL);
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "not one that libdipc made",
        dipc_stream_fd(&device, &fd, &error_));
  device.release(&device);
}

/* The descriptor tells that the server's process was killed. */
static void a_killed_server_is_noticed(const char *uri, pid_t server) {
  dipc_client *client = new_client();
  struct ArrowDeviceArrayStream stream = get(client, uri, "ever");
  struct ArrowDeviceArray batch;
  int fd = -1, status = 0;
  int32_t result;
  OK(dipc_stream_fd(&stream, &fd, &error_));
  do {
    CHECK(is_readable(fd, 30000));
    result = dipc_stream_try_next(&stream, &batch, NULL);
  } while (result == DIPC_NOTHING);
  CHECK_EQ(result, DIPC_OK);
  batch.array.release(&batch.array);
  CHECK_EQ(kill(server, SIGKILL), 0);
  CHECK_EQ(waitpid(server, &status, 0), server);
  do {
    CHECK(is_readable(fd, 30000));
    result = dipc_stream_try_next(&stream, &batch, NULL);
    if (result == DIPC_OK) batch.array.release(&batch.array);
  } while (result == DIPC_OK || result == DIPC_NOTHING);
  CHECK_EQ(result, DIPC_ERR_DISCONNECTED);
  CHECK_EQ(dipc_stream_status(&stream, NULL), DIPC_ERR_DISCONNECTED);
  CHECK(stream.get_next(&stream, &batch) != 0);
  CHECK(strlen(stream.get_last_error(&stream)) > 0);
  stream.release(&stream);
  dipc_client_free(client);
}

int main(void) {
  pid_t servers[2];
  char uris[2][2][DIPC_URI_BYTES];
  int control[2];
  CHECK_EQ(pipe(control), 0);
  /* Forked before this process uses the library. */
  for (int i = 0; i < 2; i++) {
    char address[64];
    int out[2];
    snprintf(address, sizeof address, "shm:@dipc-c-polling-%ld-%d", (long)getpid(), i);
    CHECK_EQ(pipe(out), 0);
    servers[i] = fork();
    CHECK(servers[i] >= 0);
    if (servers[i] == 0) {
      close(control[1]);
      close(out[0]);
      serve(control[0], out[1], address);
    }
    close(out[1]);
    size_t len = 0;
    while (len < sizeof uris[i]) {
      ssize_t more = read(out[0], (char *)uris[i] + len, sizeof uris[i] - len);
      CHECK(more > 0);
      len += (size_t)more;
    }
    close(out[0]);
  }
  for (int i = 0; i < 2; i++) {
    one_thread_reads_many_streams(uris[i][i], "late", "soon");
    one_thread_reads_many_streams(uris[i][i], "pushed", "pushed");
    a_host_stream_is_polled(uris[i][i]);
    a_killed_server_is_noticed(uris[i][i], servers[i]);
  }
  return 0;
}
