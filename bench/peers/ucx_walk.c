/* What UCX alone makes of memory that is walked: tagged messages from one process to another, out of distinct
 * memory as long as the batches of `dipc bench` take, into one buffer. `ucx_perftest` sends one buffer again and
 * again, which stays in a cache.
 *
 *   ucx_walk MESSAGE_BYTES COUNT WALKED_BYTES
 *
 * Both endpoints have the error mode PEER; UCX_TLS says which way to go. Prints what the receiver saw, as a line
 * of JSON: {"seconds": S, "bytes": B, "messages": N}. Both processes look for work all the time, as
 * `ucx_perftest` does. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

/* Messages on the way at once: 1, 2 and 8 were slower over tcp. */
#define WINDOW 4
#define TAG UINT64_C(0x77616c6b)

static void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

static void die(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fputs("ucx_walk: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  exit(1);
}

static void check(ucs_status_t status, const char *what) {
  if (status != UCS_OK) die("%s: %s", what, ucs_status_string(status));
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static size_t number(const char *text) {
  char *end;
  errno = 0;
  unsigned long long value = strtoull(text, &end, 10);
  if (errno != 0 || end == text || *end != '\0' || value == 0) die("%s is not a number above 0", text);
  return (size_t)value;
}

static void say(int socket, const void *bytes, size_t count) {
  if (send(socket, bytes, count, MSG_NOSIGNAL) != (ssize_t)count) die("cannot tell the other process");
}

static void hear(int socket, void *bytes, size_t count) {
  if (recv(socket, bytes, count, MSG_WAITALL) != (ssize_t)count) die("the other process has ended");
}

/* An endpoint's error is also that of the message which then fails. */
static void failed(void *argument, ucp_ep_h endpoint, ucs_status_t status) {
  (void)argument;
  (void)endpoint;
  (void)status;
}

/* One end: a worker, and its endpoint to the other process. */
struct end {
  ucp_context_h context;
  ucp_worker_h worker;
  ucp_ep_h endpoint;
};

static void open_end(struct end *end, int socket) {
  ucp_config_t *config;
  check(ucp_config_read(NULL, NULL, &config), "cannot read UCX's configuration");
  ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
  check(ucp_init(&params, config, &end->context), "cannot initialise UCX");
  ucp_config_release(config);
  ucp_worker_params_t single = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                .thread_mode = UCS_THREAD_MODE_SINGLE};
  check(ucp_worker_create(end->context, &single, &end->worker), "cannot create a worker");

  ucp_address_t *mine;
  size_t length;
  check(ucp_worker_get_address(end->worker, &mine, &length), "cannot get a worker's address");
  say(socket, &length, sizeof length);
  say(socket, mine, length);
  ucp_worker_release_address(end->worker, mine);
  hear(socket, &length, sizeof length);
  void *theirs = malloc(length);
  if (theirs == NULL) die("no memory for %zu bytes", length);
  hear(socket, theirs, length);
  ucp_ep_params_t to = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
                        .address = theirs,
                        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                        .err_handler = {.cb = failed}};
  check(ucp_ep_create(end->worker, &to, &end->endpoint), "cannot create an endpoint");
  free(theirs);
}

/* Closes it, and turns the worker until the other process has closed its own: it may wait for an answer. */
static void close_end(struct end *end, int socket) {
  ucp_request_param_t params = {0};
  void *request = ucp_ep_close_nbx(end->endpoint, &params);
  char said = 0;
  int closed = 0, told = 0;
  while (!closed || !told) {
    ucp_worker_progress(end->worker);
    if (!closed && (!UCS_PTR_IS_PTR(request) || ucp_request_check_status(request) != UCS_INPROGRESS)) {
      closed = 1;
      say(socket, &said, 1);
    }
    /* Where it has ended, too. */
    if (!told) told = recv(socket, &said, 1, MSG_DONTWAIT) >= 0;
  }
  if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);
  ucp_worker_destroy(end->worker);
  ucp_cleanup(end->context);
}

/* Sends or receives `count` messages and returns the seconds they took, behind a tenth as many that are not
 * counted. */
static double move_all(struct end *end, int sends, size_t bytes, size_t count, uint8_t *memory, size_t walked) {
  void *requests[WINDOW] = {NULL};
  ucp_request_param_t params = {0};
  size_t before = count / 10 + WINDOW, posted = 0, done = 0, at = 0;
  double start = 0;
  while (done < before + count) {
    while (posted < before + count && posted - done < WINDOW) {
      void *request = sends ? ucp_tag_send_nbx(end->endpoint, memory + at, bytes, TAG, &params)
                            : ucp_tag_recv_nbx(end->worker, memory + at, bytes, TAG, UINT64_MAX, &params);
      if (UCS_PTR_IS_ERR(request)) check(UCS_PTR_STATUS(request), "cannot move a message");
      requests[posted++ % WINDOW] = request;
      at += bytes;
      if (at + bytes > walked) at = 0;
    }
    ucp_worker_progress(end->worker);
    while (done < posted) {
      void *request = requests[done % WINDOW];
      if (request != NULL) {
        ucs_status_t status = ucp_request_check_status(request);
        if (status == UCS_INPROGRESS) break;
        check(status, "a message failed");
        ucp_request_free(request);
      }
      if (++done == before) start = now();
    }
  }
  return now() - start;
}

int main(int argc, char **argv) {
  if (argc != 4) die("usage: ucx_walk MESSAGE_BYTES COUNT WALKED_BYTES");
  size_t bytes = number(argv[1]), count = number(argv[2]), walked = number(argv[3]);
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) die("socketpair: %s", strerror(errno));
  pid_t child = fork();
  if (child < 0) die("fork: %s", strerror(errno));
  int sends = child == 0;
  close(sockets[!sends]);
  int socket = sockets[sends];

  if (!sends || walked < bytes) walked = bytes;
  uint8_t *memory = mmap(NULL, walked, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) die("no memory for %zu bytes", walked);
  /* Written before, as the batches are. */
  memset(memory, 1, walked);
  struct end end;
  open_end(&end, socket);
  double seconds = move_all(&end, sends, bytes, count, memory, walked);
  close_end(&end, socket);
  if (sends) return 0;
  int status;
  if (waitpid(child, &status, 0) != child || status != 0) die("the sender failed");
  printf("{\"seconds\": %.9f, \"bytes\": %zu, \"messages\": %zu}\n", seconds, bytes * count, count);
  return 0;
}
