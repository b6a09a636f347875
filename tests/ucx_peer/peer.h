/* A peer of Arrow's Dissociated IPC protocol over UCX that shares no code with libdipc. It behaves as the
 * reference peer does (rules R1 to R6), and reads address lists besides: libdipc's tests talk to it. */
#ifndef DIPC_TEST_UCX_PEER_H
#define DIPC_TEST_UCX_PEER_H

#include <stddef.h>
#include <stdint.h>
#include <ucp/api/ucp.h>

/* Rule R3: the server compares the low 44 bits; any of the others set asks for metadata. */
#define WANT_METADATA UINT64_C(0xFFFFFDEADBA0BAB0)
#define WANT_DATA UINT64_C(0x00000DEADBA0BAB0)
#define WANT_MASK UINT64_C(0x00000FFFFFFFFFFF)
/* Named in URIs, since a URI has one; nothing is ever lent here (rule R5). */
#define FREE_DATA UINT64_C(0x00000DEADBA0F4EE)

/* Rules M2, M3. */
#define PREFIX_BYTES 5
enum prefix_kind { PREFIX_END = 0, PREFIX_METADATA = 1 };

/* What the command line says. */
struct options {
  int error_mode_peer; /* endpoints with UCP_ERR_HANDLING_MODE_PEER; the reference has none (rule R6) */
  int minimal;         /* only the features TAG, AM and WAKEUP */
};

/* util.c ------------------------------------------------------------------------------------------- */

/* Prints the text to stderr and ends the process with 1. */
void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
/* As die(), with UCX's words, unless status is UCS_OK. */
void check(ucs_status_t status, const char *what);
/* Memory, zeroed; never NULL. */
void *allocate(size_t bytes);
/* `array` with room for `count` elements and more, the new ones zeroed. */
void *grow(void *array, size_t *capacity, size_t count, size_t element_bytes);
void put_u32(uint8_t *to, uint32_t value);
uint32_t get_u32(const uint8_t *from);

/* ipc.c -------------------------------------------------------------------------------------------- */

/* One encapsulated message of an Arrow IPC stream file. */
struct ipc_message {
  const uint8_t *header; /* the flatbuffer, with its padding */
  size_t header_bytes;
  const uint8_t *body;
  size_t body_bytes;
  int has_body; /* dictionaries and record batches have one, perhaps of 0 bytes (rule D1) */
};

struct ipc_stream {
  uint8_t *bytes;
  struct ipc_message *messages; /* the schema first */
  size_t count;
};

/* Reads a stream file; dies where it is none. */
void ipc_read(const char *path, struct ipc_stream *stream);
void ipc_free(struct ipc_stream *stream);
/* Reads a Message flatbuffer as far as needed. Returns 0 where it is malformed. */
int ipc_parse(const uint8_t *header, size_t bytes, int *has_body, size_t *body_bytes);
/* Writes a stream file with these messages; dies where it cannot. */
void ipc_write(const char *path, const struct ipc_message *messages, size_t count);

/* ucx.c -------------------------------------------------------------------------------------------- */

/* A worker, and the descriptor that tells when to look at it. */
struct worker {
  ucp_worker_h handle;
  int event_fd;
};

ucp_context_h context_new(const struct options *options);
void worker_new(ucp_context_h context, struct worker *worker);
/* Progresses a worker until it has nothing to do; returns whether there was anything. */
int worker_progress(const struct worker *worker);
/* Waits until one of the workers has something to do or `fd`, unless -1, can be read. */
void wait_for_events(const struct worker *const *workers, size_t count, int fd);
/* Closes an endpoint by flush (rule R6) and waits; an error of the other side ends it too. */
void endpoint_close(const struct worker *worker, ucp_ep_h endpoint);

/* "host:port" or "[host]:port" as an address; dies where it is none. Returns its length. */
socklen_t parse_address(const char *text, struct sockaddr_storage *address);
/* The parts of "ucx://host:port?want_data=N&...": others are ignored. `text` is changed. */
void parse_uri(char *text, struct sockaddr_storage *address, socklen_t *bytes, uint64_t *want_data);

/* pull.c ------------------------------------------------------------------------------------------- */

/* Memory that a server lends. */
struct lent {
  uint8_t *packed;    /* the key of its URI, or NULL */
  uint64_t free_data; /* the tag of what goes back, or 0 */
  ucp_rkey_h key;     /* once used */
  size_t lists;       /* read so far */
};

/* Takes what a URI says of it. */
void lent_open(struct lent *lent, const char *uri);
/* Reads what an address list names and gives it back; returns the body, as if it had come packed. */
uint8_t *lent_read(struct lent *lent, const struct worker *worker, ucp_ep_h endpoint,
                   const uint8_t *list, size_t bytes, size_t *body_bytes);
/* Before the worker is destroyed. */
void lent_close(struct lent *lent);

/* serve.c, get.c ----------------------------------------------------------------------------------- */

/* Serves the files, by their base names as tickets, until standard input ends. */
void serve(const struct options *options, const char *host, const char *port, char **files, int count);
/* Gets one table, writes it to `output`, and prints how many messages and bodies came, and how many of the
 * messages (metadata) by rendezvous and of the bodies as address lists. */
void get(const struct options *options, char *metadata_uri, char *data_uri, const char *ticket,
         const char *output);

#endif
