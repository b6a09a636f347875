/* Contexts, workers, addresses. */
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "peer.h"

ucp_context_h context_new(const struct options *options) {
  ucp_config_t *config;
  check(ucp_config_read(NULL, NULL, &config), "cannot read UCX's configuration");
  ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME, .name = "peer"};
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  if (!options->minimal) params.features |= UCP_FEATURE_RMA | UCP_FEATURE_STREAM;
  ucp_context_h context;
  check(ucp_init(&params, config, &context), "cannot initialise UCX");
  ucp_config_release(config);
  return context;
}

void worker_new(ucp_context_h context, struct worker *worker) {
  ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                .thread_mode = UCS_THREAD_MODE_SINGLE};
  check(ucp_worker_create(context, &params, &worker->handle), "cannot create a worker");
  check(ucp_worker_get_efd(worker->handle, &worker->event_fd), "cannot get a worker's descriptor");
}

int worker_progress(const struct worker *worker) {
  int any = 0;
  while (ucp_worker_progress(worker->handle) != 0) any = 1;
  return any;
}

void wait_for_events(const struct worker *const *workers, size_t count, int fd) {
  struct pollfd *fds = allocate((count + 1) * sizeof *fds);
  for (size_t i = 0; i < count; i++) {
    ucs_status_t status = ucp_worker_arm(workers[i]->handle);
    if (status == UCS_ERR_BUSY) {
      /* Something came since the last progress. */
      free(fds);
      return;
    }
    check(status, "cannot arm a worker");
    fds[i] = (struct pollfd){.fd = workers[i]->event_fd, .events = POLLIN};
  }
  /* poll() leaves out negative descriptors. */
  fds[count] = (struct pollfd){.fd = fd, .events = POLLIN};
  if (poll(fds, count + 1, -1) < 0 && errno != EINTR) die("cannot wait: %s", strerror(errno));
  free(fds);
}

void endpoint_close(const struct worker *worker, ucp_ep_h endpoint) {
  ucp_request_param_t params = {0};
  void *request = ucp_ep_close_nbx(endpoint, &params);
  if (!UCS_PTR_IS_PTR(request)) return;
  while (ucp_request_check_status(request) == UCS_INPROGRESS) {
    if (!worker_progress(worker)) wait_for_events(&worker, 1, -1);
  }
  ucp_request_free(request);
}

socklen_t parse_address(const char *text, struct sockaddr_storage *address) {
  const char *colon = strrchr(text, ':');
  char host[256];
  size_t length = colon == NULL ? 0 : (size_t)(colon - text);
  if (length == 0 || length >= sizeof host) die("%s is not host:port", text);
  if (text[0] == '[' && text[length - 1] == ']') {
    text++;
    length -= 2;
  }
  memcpy(host, text, length);
  host[length] = '\0';
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
  int failed = getaddrinfo(host, colon + 1, &hints, &found);
  if (failed) die("%s: %s", text, gai_strerror(failed));
  socklen_t bytes = found->ai_addrlen;
  memcpy(address, found->ai_addr, bytes);
  freeaddrinfo(found);
  return bytes;
}

void parse_uri(char *text, struct sockaddr_storage *address, socklen_t *bytes, uint64_t *want_data) {
  static const char scheme[] = "ucx://";
  if (strncmp(text, scheme, sizeof scheme - 1) != 0) die("%s is not a ucx URI", text);
  char *query = strchr(text, '?');
  if (query == NULL) die("%s has no want_data", text);
  *query++ = '\0';
  *bytes = parse_address(text + sizeof scheme - 1, address);
  int found = 0;
  for (char *part = strtok(query, "&"); part != NULL; part = strtok(NULL, "&")) {
    static const char name[] = "want_data=";
    if (strncmp(part, name, sizeof name - 1) != 0) continue;
    char *end;
    *want_data = strtoull(part + sizeof name - 1, &end, 10);
    found = end != part + sizeof name - 1 && *end == '\0';
  }
  if (!found) die("%s has no want_data", text);
}
