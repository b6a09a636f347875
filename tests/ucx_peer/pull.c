/* Bodies that come as address lists (rule D4): read from the server's memory with the key of the URI, and
 * given back. The reference peer cannot do this; a baseline peer may. */
#include <stdlib.h>
#include <string.h>

#include "peer.h"

/* Received bodies are laid out as their headers say they would be if they came packed (rule A2). */
#define PADDING 64

static uint64_t get_u64(const uint8_t *from) {
  return get_u32(from) | (uint64_t)get_u32(from + 4) << 32;
}

/* The value of a parameter of a URI, up to the next; NULL where there is none. */
static const char *parameter(const char *uri, const char *name, size_t *length) {
  const char *part = strchr(uri, '?');
  size_t bytes = strlen(name);
  while (part != NULL) {
    part++;
    if (strncmp(part, name, bytes) == 0 && part[bytes] == '=') {
      *length = strcspn(part + bytes + 1, "&");
      return part + bytes + 1;
    }
    part = strchr(part, '&');
  }
  return NULL;
}

/* Rule U2: URL-safe, without padding. Returns the bytes, and how many. */
static uint8_t *decode(const char *text, size_t length, size_t *bytes) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  uint8_t *decoded = allocate(length);
  uint32_t bits = 0;
  int held = 0;
  *bytes = 0;
  for (size_t i = 0; i < length; i++) {
    const char *digit = strchr(digits, text[i]);
    if (digit == NULL) die("remote_handle is not base64");
    bits = bits << 6 | (uint32_t)(digit - digits);
    held += 6;
    if (held >= 8) {
      held -= 8;
      decoded[(*bytes)++] = (uint8_t)(bits >> held);
    }
  }
  return decoded;
}

void lent_open(struct lent *lent, const char *uri) {
  size_t length;
  const char *value = parameter(uri, "remote_handle", &length);
  if (value != NULL) lent->packed = decode(value, length, &length);
  value = parameter(uri, "free_data", &length);
  if (value != NULL) lent->free_data = strtoull(value, NULL, 10);
}

void lent_close(struct lent *lent) {
  if (lent->key != NULL) ucp_rkey_destroy(lent->key);
  free(lent->packed);
}

/* Waits for an operation, and frees it. */
static void finish(const struct worker *worker, void *request, const char *what) {
  if (!UCS_PTR_IS_PTR(request)) {
    check(UCS_PTR_STATUS(request), what);
    return;
  }
  while (ucp_request_check_status(request) == UCS_INPROGRESS) {
    if (!worker_progress(worker)) wait_for_events(&worker, 1, -1);
  }
  check(ucp_request_check_status(request), what);
  ucp_request_free(request);
}

uint8_t *lent_read(struct lent *lent, const struct worker *worker, ucp_ep_h endpoint,
                   const uint8_t *list, size_t bytes, size_t *body_bytes) {
  if (lent->packed == NULL || lent->free_data == 0) die("a list, and no key to read what it names");
  if (lent->key == NULL) {
    check(ucp_ep_rkey_unpack(endpoint, lent->packed, &lent->key), "cannot use the key");
  }
  size_t count = bytes < 16 ? 0 : (size_t)get_u64(list + 8);
  if (bytes != 16 + 16 * count) die("an address list of %zu bytes", bytes);
  uint64_t total = 0;
  *body_bytes = 0;
  for (size_t i = 0; i < count; i++) {
    uint64_t length = get_u64(list + 24 + 16 * i);
    total += length;
    *body_bytes += (size_t)(length + PADDING - 1) / PADDING * PADDING;
  }
  if (total != get_u64(list)) die("an address list whose lengths do not add up");
  uint8_t *body = allocate(*body_bytes), *freed = allocate(8 * count);
  size_t at = 0, frees = 0;
  ucp_request_param_t params = {0};
  for (size_t i = 0; i < count; i++) {
    const uint8_t *pair = list + 16 + 16 * i;
    uint64_t address = get_u64(pair), length = get_u64(pair + 8);
    if (length == 0) continue; /* rule F3 */
    void *request = ucp_get_nbx(endpoint, body + at, (size_t)length, address, lent->key, &params);
    finish(worker, request, "cannot read a buffer");
    memcpy(freed + 8 * frees++, pair, 8);
    at += (size_t)(length + PADDING - 1) / PADDING * PADDING;
  }
  /* Rule F1. */
  if (frees > 0) {
    void *request = ucp_tag_send_nbx(endpoint, freed, 8 * frees, lent->free_data, &params);
    finish(worker, request, "cannot give memory back");
  }
  free(freed);
  lent->lists++;
  return body;
}
