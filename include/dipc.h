/*
 * libdipc: moves Apache Arrow tables between processes without serialising them.
 *
 * Generated from src/ffi by cbindgen; change the Rust source and run
 * `DIPC_BLESS=1 cargo test --test header`.
 *
 * SPDX-License-Identifier: Apache-2.0
 */

/**
 * @file dipc.h
 * @brief The C API of libdipc.
 *
 * Conventions, for every function:
 *
 * - A call returns a dipc_status: 0 (DIPC_OK), a positive number for no failure and no output, or a
 *   negative number for a failure. The last argument receives the details of a failure if it is not
 *   NULL. The library keeps no other error state.
 * - Outputs are written on DIPC_OK only. One exception: DIPC_ERR_BUFFER_TOO_SMALL also writes the
 *   length of the text or ticket.
 * - Text is written to the caller's buffer with a NUL at the end, and is never truncated. Its
 *   length does not count the NUL. A NULL buffer of size 0 asks for the length only.
 * - The ownership of an argument moves only when the call returns DIPC_OK. Arrow structs move as in
 *   Arrow's C data interface: after success the source's release is NULL.
 * - Several threads may use a const handle at once, but only one thread a non-const handle.
 * - Every handle has one function that frees it. That function ignores NULL.
 * - A callback comes with userdata and a finalizer, which is called once, after the last use of
 *   both. No callback may unwind (throw, longjmp). No callback runs on an I/O thread.
 * - After fork() the child's calls on its parent's handles fail with DIPC_ERR_FORKED.
 * - A bug of the library returns DIPC_ERR_PANIC. The handle can then only be freed; the process
 *   goes on.
 *
 * dipc_machines.h has the protocol for hosts that carry the messages themselves.
 */

#ifndef DIPC_H
#define DIPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The structs of Arrow's C data, C device data, C stream and C async stream interfaces. Each stands
 * under the guard of Arrow's documents, so that another header may define it too. */

#ifdef __cplusplus
extern "C" {
#endif

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

struct ArrowSchema {
  const char *format;
  const char *name;
  const char *metadata;
  int64_t flags;
  int64_t n_children;
  struct ArrowSchema **children;
  struct ArrowSchema *dictionary;
  void (*release)(struct ArrowSchema *);
  void *private_data;
};

struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void **buffers;
  struct ArrowArray **children;
  struct ArrowArray *dictionary;
  void (*release)(struct ArrowArray *);
  void *private_data;
};

#endif /* ARROW_C_DATA_INTERFACE */

#ifndef ARROW_C_DEVICE_DATA_INTERFACE
#define ARROW_C_DEVICE_DATA_INTERFACE

typedef int32_t ArrowDeviceType;

#define ARROW_DEVICE_CPU 1
#define ARROW_DEVICE_CUDA 2
#define ARROW_DEVICE_CUDA_HOST 3
#define ARROW_DEVICE_OPENCL 4
#define ARROW_DEVICE_VULKAN 7
#define ARROW_DEVICE_METAL 8
#define ARROW_DEVICE_VPI 9
#define ARROW_DEVICE_ROCM 10
#define ARROW_DEVICE_ROCM_HOST 11
#define ARROW_DEVICE_EXT_DEV 12
#define ARROW_DEVICE_CUDA_MANAGED 13
#define ARROW_DEVICE_ONEAPI 14
#define ARROW_DEVICE_WEBGPU 15
#define ARROW_DEVICE_HEXAGON 16

struct ArrowDeviceArray {
  struct ArrowArray array;
  int64_t device_id;
  ArrowDeviceType device_type;
  void *sync_event;
  int64_t reserved[3];
};

#endif /* ARROW_C_DEVICE_DATA_INTERFACE */

#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE

struct ArrowArrayStream {
  int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *out);
  int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *out);
  const char *(*get_last_error)(struct ArrowArrayStream *);
  void (*release)(struct ArrowArrayStream *);
  void *private_data;
};

#endif /* ARROW_C_STREAM_INTERFACE */

#ifndef ARROW_C_DEVICE_STREAM_INTERFACE
#define ARROW_C_DEVICE_STREAM_INTERFACE

struct ArrowDeviceArrayStream {
  ArrowDeviceType device_type;
  int (*get_schema)(struct ArrowDeviceArrayStream *, struct ArrowSchema *out);
  int (*get_next)(struct ArrowDeviceArrayStream *, struct ArrowDeviceArray *out);
  const char *(*get_last_error)(struct ArrowDeviceArrayStream *);
  void (*release)(struct ArrowDeviceArrayStream *);
  void *private_data;
};

#endif /* ARROW_C_DEVICE_STREAM_INTERFACE */

#ifndef ARROW_C_ASYNC_STREAM_INTERFACE
#define ARROW_C_ASYNC_STREAM_INTERFACE

struct ArrowAsyncTask {
  int (*extract_data)(struct ArrowAsyncTask *, struct ArrowDeviceArray *out);
  void *private_data;
};

/* As in arrow/c/abi.h of Arrow C++ and Arrow Go. The page of the specification has one member more
 * in this struct, which no shipped header has. */
struct ArrowAsyncProducer {
  ArrowDeviceType device_type;
  void (*request)(struct ArrowAsyncProducer *, int64_t n);
  void (*cancel)(struct ArrowAsyncProducer *);
  const char *additional_metadata;
  void *private_data;
};

struct ArrowAsyncDeviceStreamHandler {
  int (*on_schema)(struct ArrowAsyncDeviceStreamHandler *, struct ArrowSchema *schema);
  int (*on_next_task)(struct ArrowAsyncDeviceStreamHandler *, struct ArrowAsyncTask *task,
                      const char *metadata);
  void (*on_error)(struct ArrowAsyncDeviceStreamHandler *, int code, const char *message,
                   const char *metadata);
  void (*release)(struct ArrowAsyncDeviceStreamHandler *);
  struct ArrowAsyncProducer *producer;
  void *private_data;
};

#endif /* ARROW_C_ASYNC_STREAM_INTERFACE */

#ifdef __cplusplus
}  /* extern "C" */
#endif

/**
 * Success.
 */
#define DIPC_OK 0

/**
 * No failure, but nothing is there now: no output was written.
 */
#define DIPC_NOTHING 1

/**
 * A pointer that must not be NULL was NULL; nothing changed.
 */
#define DIPC_ERR_NULL_ARGUMENT -1

/**
 * An argument has a value that the function does not take; nothing changed.
 */
#define DIPC_ERR_INVALID_ARGUMENT -2

/**
 * A URI is malformed, or lacks a required part.
 */
#define DIPC_ERR_INVALID_URI -3

/**
 * This build, this machine or the peer cannot do this.
 */
#define DIPC_ERR_UNSUPPORTED -4

/**
 * The server has no such ticket.
 */
#define DIPC_ERR_NOT_FOUND -5

/**
 * The server serves the ticket already.
 */
#define DIPC_ERR_ALREADY_EXISTS -6

/**
 * Another live server listens at the address.
 */
#define DIPC_ERR_ADDRESS_IN_USE -7

/**
 * No server listens at the address, or the network does not reach it.
 */
#define DIPC_ERR_UNREACHABLE -8

/**
 * The peer, or the operating system, does not admit this user.
 */
#define DIPC_ERR_PERMISSION -9

/**
 * The peer broke a rule of the protocol.
 */
#define DIPC_ERR_PROTOCOL -10

/**
 * The peer went away: its process ended or the connection was cut.
 */
#define DIPC_ERR_DISCONNECTED -11

/**
 * The stream was cancelled, by this side or the other.
 */
#define DIPC_ERR_CANCELLED -12

/**
 * Connecting, or waiting for the peer, took longer than the option allows.
 */
#define DIPC_ERR_TIMEOUT -13

/**
 * The server, or the stream's window, has no room now; try again later.
 */
#define DIPC_ERR_BUSY -14

/**
 * Memory ran out, or a limit of the options was reached.
 */
#define DIPC_ERR_OUT_OF_MEMORY -15

/**
 * File descriptors, threads or another resource of the process ran out.
 */
#define DIPC_ERR_OUT_OF_RESOURCES -16

/**
 * The operating system reported an error that has no status of its own.
 */
#define DIPC_ERR_IO -17

/**
 * An Arrow array or schema, the caller's or the peer's, is not valid.
 */
#define DIPC_ERR_INVALID_DATA -18

/**
 * The provider of the ticket failed; the text is the provider's.
 */
#define DIPC_ERR_PROVIDER -19

/**
 * The server or client was stopped.
 */
#define DIPC_ERR_STOPPED -20

/**
 * The handle was made before a fork(), and this process is the child.
 */
#define DIPC_ERR_FORKED -21

/**
 * A bug in libdipc: the call panicked, and the handle can only be freed.
 */
#define DIPC_ERR_PANIC -22

/**
 * An earlier call on the handle panicked; the handle can only be freed.
 */
#define DIPC_ERR_POISONED -23

/**
 * The caller's buffer is too small; the length needed was written.
 */
#define DIPC_ERR_BUFFER_TOO_SMALL -24

/**
 * Major version of the header; see dipc_version().
 */
#define DIPC_VERSION_MAJOR 0

/**
 * Minor version of the header. Before 1.0 each minor version may break the ABI.
 */
#define DIPC_VERSION_MINOR 1

/**
 * Patch version of the header.
 */
#define DIPC_VERSION_PATCH 0

/**
 * Failures that no call can report.
 */
#define DIPC_LOG_ERROR 1

/**
 * Problems that the library handled: a provider failed, with its text; the server was too busy for
 * a peer. Events that a peer can cause at will are logged at a limited rate, and the last line
 * says so. Refusals of a provider (not found, permission, busy, already exists, unsupported,
 * invalid argument), and a selection that does not fit its table, are logged at INFO only.
 */
#define DIPC_LOG_WARN 2

/**
 * Servers start and stop listening. Each stream's begin and end, at both sides, with ticket, peer,
 * status, batches, rows and bytes. For an audit, each request that is refused or has ended, at the
 * server: who, what, how much, how long, and the status (target "dipc::audit").
 */
#define DIPC_LOG_INFO 3

/**
 * Decisions of the library: connections made and reused, connections ended, with reasons.
 */
#define DIPC_LOG_DEBUG 4

/**
 * Every message: its direction, kind, number and length.
 */
#define DIPC_LOG_TRACE 5

/**
 * Bytes of blocks in use.
 */
#define DIPC_ARENA_STAT_USED_BYTES 1

/**
 * Bytes of all regions, taken from the system or the device.
 */
#define DIPC_ARENA_STAT_MAPPED_BYTES 2

/**
 * Streams asked for since the start.
 */
#define DIPC_CLIENT_STAT_STREAMS 1

/**
 * Connections made since the start.
 */
#define DIPC_CLIENT_STAT_CONNECTIONS_MADE 2

/**
 * Idle connections, kept for later streams.
 */
#define DIPC_CLIENT_STAT_CONNECTIONS_IDLE 3

/**
 * A timeout that never ends.
 */
#define DIPC_FOREVER UINT64_MAX

/**
 * A value for parameters that take an Arrow device type. The arrays come to the server's device if
 * this process reaches its memory without a copy, otherwise to the host.
 */
#define DIPC_DEVICE_AS_SENT 0

/**
 * DIPC_VALIDATION_STRUCTURE for a server of the same user, DIPC_VALIDATION_FULL for other servers.
 */
#define DIPC_VALIDATION_AUTO 0

/**
 * Checks lengths, counts and ranges of buffers, but no values. The cost does not depend on the
 * number of rows.
 */
#define DIPC_VALIDATION_STRUCTURE 1

/**
 * Checks the structure, and those values that are text or refer to other values:
 * - all types: the null count matches the bitmap;
 * - utf8, binary, list, map: offsets never decrease and stay within the data or the child; each
 *   text value is UTF-8; no key of a map is null;
 * - string and binary views: views lie within their data buffers, prefixes match the data, short
 *   values are padded with zeros, text is UTF-8;
 * - list views: each offset and size stays within the child;
 * - unions: type ids are known; offsets of dense unions stay within each child and never decrease;
 * - run-end encoded: run ends increase and reach the length;
 * - dictionary-encoded: each index names a value of the dictionary;
 * - booleans, integers, floats, decimals, dates, times, timestamps, durations, intervals,
 *   fixed-size binary: no check. A decimal may have more digits than its precision, a time may lie
 *   outside a day, and a date64 may be a part of a day: Arrow's full validation refuses these, but
 *   some writers send them.
 *
 * Values below a null, and values that no row of a list view or union refers to, are not checked.
 * If a consumer could still follow such a value, the library makes it harmless: empty, zero or
 * null.
 */
#define DIPC_VALIDATION_FULL 2

/**
 * Rows.
 */
#define DIPC_TOTAL_ROWS 1

/**
 * Bytes of bodies.
 */
#define DIPC_TOTAL_BYTES 2

/**
 * Record batches; an endpoint does not have this total.
 */
#define DIPC_TOTAL_BATCHES 3

/**
 * A total that is not known.
 */
#define DIPC_UNKNOWN UINT64_MAX

/**
 * The provider gives the same batches at each call. Then a client other than libdipc may fetch
 * metadata and bodies over two connections.
 */
#define DIPC_PROVIDER_DETERMINISTIC 1

/**
 * Record batches sent.
 */
#define DIPC_PUT_STAT_BATCHES 1

/**
 * Bytes of bodies that the server was lent where they lay.
 */
#define DIPC_PUT_STAT_BYTES_LENT 2

/**
 * Bytes of bodies that were copied here, to be lent from the copy or sent.
 */
#define DIPC_PUT_STAT_BYTES_COPIED 3

/**
 * Bytes of bodies sent through the connection.
 */
#define DIPC_PUT_STAT_BYTES_SENT 4

/**
 * Buffers that this client has lent to the server over this connection and has not got back. Their
 * arrays are released when the server gives them back, or when its process has ended.
 */
#define DIPC_PUT_STAT_LENT_OUTSTANDING 5

/**
 * The client gets a table.
 */
#define DIPC_VERB_GET 1

/**
 * The client sends a table: dipc_request_source() accepts it.
 */
#define DIPC_VERB_PUT 2

/**
 * Both sides send: dipc_request_source() accepts the client's table, and the answer is a table as
 * for DIPC_VERB_GET.
 */
#define DIPC_VERB_EXCHANGE 3

/**
 * The client asks what a ticket stands for: answer by dipc_description_to_stream().
 */
#define DIPC_VERB_DESCRIBE 4

/**
 * The client asks which tickets begin with the request's ticket: answer by
 * dipc_description_to_stream() with an endpoint for each.
 */
#define DIPC_VERB_LIST 5

/**
 * The number of the client's process; 0 if it has no number in this process's namespace.
 */
#define DIPC_PEER_PID 1

/**
 * The number of its user.
 */
#define DIPC_PEER_UID 2

/**
 * The number of its group.
 */
#define DIPC_PEER_GID 3

/**
 * As a number of rows: all up to the end of the table.
 */
#define DIPC_ALL_ROWS UINT64_MAX

/**
 * Size of a buffer that is large enough for every URI of the library.
 */
#define DIPC_URI_BYTES 1024

/**
 * Metadata and bodies over one connection.
 */
#define DIPC_ROLE_BOTH 0

/**
 * Metadata alone.
 */
#define DIPC_ROLE_METADATA 1

/**
 * Bodies alone.
 */
#define DIPC_ROLE_DATA 2

/**
 * Connections open now.
 */
#define DIPC_SERVER_STAT_CONNECTIONS 1

/**
 * Streams served now.
 */
#define DIPC_SERVER_STAT_STREAMS_ACTIVE 2

/**
 * Streams begun since the start.
 */
#define DIPC_SERVER_STAT_STREAMS_SERVED 3

/**
 * Record batches sent since the start.
 */
#define DIPC_SERVER_STAT_BATCHES 4

/**
 * Body bytes lent without a copy, since the start.
 */
#define DIPC_SERVER_STAT_BYTES_LENT 5

/**
 * Body bytes copied on the host since the start: into regions, to be lent from them. Includes sent
 * bodies of at most 1 KiB.
 */
#define DIPC_SERVER_STAT_BYTES_COPIED 6

/**
 * Body bytes sent through connections, since the start.
 */
#define DIPC_SERVER_STAT_BYTES_SENT 7

/**
 * Buffers lent and not yet given back.
 */
#define DIPC_SERVER_STAT_LENT_OUTSTANDING 8

/**
 * Bytes of regions for copies that this process or a client maps.
 */
#define DIPC_SERVER_STAT_REGION_BYTES 9

/**
 * Body bytes copied within a GPU's memory and lent from the copy, since the start.
 */
#define DIPC_SERVER_STAT_BYTES_COPIED_ON_DEVICE 10

/**
 * Body bytes copied from a GPU's memory to the host, then lent or sent, since the start.
 */
#define DIPC_SERVER_STAT_BYTES_STAGED 11

/**
 * Rows of the batches sent since the start.
 */
#define DIPC_SERVER_STAT_ROWS 12

/**
 * Record batches that clients have sent since the start.
 */
#define DIPC_SERVER_STAT_BATCHES_RECEIVED 13

/**
 * Rows of the batches that clients have sent since the start.
 */
#define DIPC_SERVER_STAT_ROWS_RECEIVED 14

/**
 * Body bytes that clients have sent since the start, lent ones included.
 */
#define DIPC_SERVER_STAT_BYTES_RECEIVED 15

/**
 * Connections accepted since the start.
 */
#define DIPC_SERVER_STAT_CONNECTIONS_OPENED 16

/**
 * Connections that were not accepted, since the start.
 */
#define DIPC_SERVER_STAT_CONNECTIONS_REFUSED 17

/**
 * Requests that have ended well, since the start.
 */
#define DIPC_SERVER_STAT_REQUESTS_FINISHED 18

/**
 * Requests that were begun and have ended otherwise, since the start.
 */
#define DIPC_SERVER_STAT_REQUESTS_FAILED 19

/**
 * Requests that were refused, since the start.
 */
#define DIPC_SERVER_STAT_REQUESTS_REFUSED 20

/**
 * Rows of the batches that tables and providers gave to be sent since the start, including the
 * rows that a filter or a range left out.
 */
#define DIPC_SERVER_STAT_ROWS_READ 21

/**
 * Bodies are lent if that is possible and faster, otherwise sent as bytes.
 */
#define DIPC_BODY_AUTO 0

/**
 * Bodies are always sent as bytes.
 */
#define DIPC_BODY_PACKED 1

/**
 * Bodies are lent whenever that is possible, also small bodies, and also to clients without
 * libdipc's extension.
 */
#define DIPC_BODY_LENT 2

/**
 * Bodies are not compressed.
 */
#define DIPC_COMPRESSION_NONE 0

/**
 * Bodies are compressed as LZ4 frames.
 */
#define DIPC_COMPRESSION_LZ4 1

/**
 * Bodies are compressed by ZSTD.
 */
#define DIPC_COMPRESSION_ZSTD 2

/**
 * Buckets of a histogram.
 */
#define DIPC_HISTOGRAM_BUCKETS 130

/**
 * Places for figures by status.
 */
#define DIPC_STATS_STATUSES 64

/**
 * Rows given to the consumer.
 */
#define DIPC_STREAM_STAT_ROWS 1

/**
 * Record batches given to the consumer.
 */
#define DIPC_STREAM_STAT_BATCHES 2

/**
 * Body bytes that the server lent and this process mapped.
 */
#define DIPC_STREAM_STAT_BYTES_LENT 3

/**
 * Body bytes copied in this process, to join dictionaries or to check values.
 */
#define DIPC_STREAM_STAT_BYTES_COPIED 4

/**
 * Body bytes received through the connection.
 */
#define DIPC_STREAM_STAT_BYTES_RECEIVED 5

/**
 * Body bytes copied in this process within a device or between devices.
 */
#define DIPC_STREAM_STAT_BYTES_COPIED_ON_DEVICE 6

/**
 * Body bytes copied in this process between the host and a device.
 */
#define DIPC_STREAM_STAT_BYTES_STAGED 7

/**
 * Record batches that get_next can give without waiting for the server. If there are none, the
 * call first reads the connection.
 */
#define DIPC_STREAM_STAT_BATCHES_HERE 8

/**
 * The subject of the client's certificate: "CN=alice, O=Example".
 */
#define DIPC_CERTIFICATE_SUBJECT 1

/**
 * The certificate's alternative names, each after its kind, with ", " between them:
 * "DNS:a.example, URI:spiffe://example/a". Kinds: DNS, IP, URI, email.
 */
#define DIPC_CERTIFICATE_NAMES 2

/**
 * The certificate's SHA-256: 64 lower-case hexadecimal digits.
 */
#define DIPC_CERTIFICATE_FINGERPRINT 3

/**
 * Allocates memory of the host or of a CUDA device that a client on the same machine can map, so
 * that tables in it are not copied. Made by dipc_arena_new(). Several threads may call an arena at
 * once.
 *
 * A client that was lent one block can read the block's whole region for as long as it likes. So
 * an arena is as public as the most public ticket whose batches lie in it.
 */
typedef struct dipc_arena dipc_arena;

/**
 * Options of an arena, for dipc_arena_new().
 */
typedef struct dipc_arena_options dipc_arena_options;

/**
 * A token that ends waiting calls from another thread. Any number of calls may share one token. A
 * triggered token stays triggered. Made by dipc_cancel_new().
 */
typedef struct dipc_cancel dipc_cancel;

/**
 * Fetches tables from servers, and keeps idle connections for later streams. Made by
 * dipc_client_new(). Several threads may call a client at once.
 */
typedef struct dipc_client dipc_client;

/**
 * Options of a client, for dipc_client_new().
 */
typedef struct dipc_client_options dipc_client_options;

/**
 * What a descriptor stands for: a schema and totals, each of which may be unknown, and the
 * endpoints that have the table's parts. Made by dipc_client_describe(), or by
 * dipc_description_new() for a handler that answers.
 */
typedef struct dipc_description dipc_description;

/**
 * The details of a failure: a status for programs and a text for people. Any thread may read an
 * error, also after a fork and after its handle was freed.
 */
typedef struct dipc_error dipc_error;

/**
 * Options of one stream, for dipc_client_get().
 */
typedef struct dipc_get_options dipc_get_options;

/**
 * Pairs of a key and a value, in order; a key may come more than once. Made by dipc_headers_new(),
 * dipc_request_headers() or dipc_stream_headers().
 */
typedef struct dipc_headers dipc_headers;

/**
 * A request that threads of the client make, begun by dipc_client_start(),
 * dipc_client_start_put() or dipc_client_start_exchange(). Outlives the client.
 */
typedef struct dipc_pending dipc_pending;

/**
 * A table on its way to a server. Made by dipc_client_put(), dipc_client_put_open() or
 * dipc_client_exchange(). One thread
 * at a time uses it; a dipc_cancel ends a call on another thread.
 *
 * The thread that calls also writes and reads the connection. Between two calls the library
 * answers the server. After a call that fails, other than by DIPC_ERR_TIMEOUT,
 * DIPC_ERR_INVALID_ARGUMENT or DIPC_ERR_INVALID_DATA of a batch, the put is over: every later call
 * returns the same status.
 */
typedef struct dipc_put dipc_put;

/**
 * Options of a put, for dipc_client_put() and dipc_client_put_open().
 */
typedef struct dipc_put_options dipc_put_options;

/**
 * A client's request for a stream. Each call of a provider has one. In the pull form
 * dipc_server_next_request() gives the request, and dipc_request_start(), dipc_request_push() and
 * dipc_request_finish() fill its stream. Any thread may call any function on it.
 */
typedef struct dipc_request dipc_request;

/**
 * Serves tables to clients. Made by dipc_server_new(). Several threads may call a server at once.
 */
typedef struct dipc_server dipc_server;

/**
 * Options of a server, for dipc_server_new().
 */
typedef struct dipc_server_options dipc_server_options;

/**
 * The result of a call: 0 for success, a positive number for no failure and no output, a negative
 * number for a failure. A number never changes its meaning.
 */
typedef int32_t dipc_status;

/**
 * Takes one log event. Runs on the log's own thread, one call at a time. It may call any function
 * of the library. It must not unwind. The strings are valid during the call.
 *
 * @param userdata  The userdata of dipc_log_set().
 * @param level     DIPC_LOG_ERROR to DIPC_LOG_TRACE.
 * @param target    The part of the library that logs, such as "dipc::transport::shm".
 * @param text      The event; UTF-8, no newline at the end, at most 4 KiB. An event of a request
 *                  ends with its spans in parentheses: verb, ticket, peer, and the traceparent
 *                  that the client gave as a header.
 */
typedef void (*dipc_log_callback)(void *userdata,
                                  int32_t level,
                                  const char *target,
                                  const char *text);

/**
 * Called exactly once, after the library's last use of userdata. Never runs during a callback that
 * has the same userdata, and never on an I/O thread.
 */
typedef void (*dipc_finalizer)(void *userdata);

/**
 * Opens the stream for a request. The library calls a provider once for each stream. The thread of
 * the call then reads and releases the stream, and serves no other one meanwhile. So a provider
 * may block, and may fetch from its own server. It must not unwind. The thread may serve another
 * stream later.
 *
 * @param userdata  The userdata of dipc_server_serve() or dipc_server_set_handler().
 * @param request   The client's request; valid until the stream is released, not to be freed. To
 *                  fail with its own text the provider calls dipc_request_fail() and returns
 *                  non-zero. With DIPC_VERB_PUT the client sends a table: the provider accepts it
 *                  by dipc_request_source(), reads it to its end, and sets no stream; the request
 *                  is valid until the provider returns. With DIPC_VERB_EXCHANGE it accepts the
 *                  client's table too, and sets a stream, whose get_next may read that table; the
 *                  table is read to its end before the stream ends.
 * @param out       Receives the stream, which the library then owns; its release is NULL before
 *                  the call.
 * @return 0, or any other number for a failure: then out is ignored.
 */
typedef int32_t (*dipc_provider)(void *userdata,
                                 struct dipc_request *request,
                                 struct ArrowDeviceArrayStream *out);

/**
 * Decides whether a client may do what its request says, before anything is done for it.
 * dipc_request_verb(), dipc_request_ticket(), dipc_request_headers(), dipc_request_peer_id(),
 * dipc_request_peer_address() and dipc_request_peer_certificate() say who wants what. For
 * DIPC_VERB_LIST and DIPC_VERB_DESCRIBE it is also called with DIPC_VERB_GET for each ticket that
 * the answer would show, and the answer leaves out the tickets that are refused. Called on several
 * threads at once, never on an I/O thread, and may block. It must not unwind.
 *
 * @param userdata  The userdata of dipc_server_options_set_authorizer().
 * @param request   The client's request; valid during the call, not to be freed. To refuse with
 * its                  own status and text the authorizer calls dipc_request_fail() and returns
 *                  non-zero. dipc_request_set_principal() names the client.
 * @return 0 to allow. Any other number refuses, with DIPC_ERR_PERMISSION if dipc_request_fail()
 *         was not called.
 */
typedef int32_t (*dipc_authorizer)(void *userdata, struct dipc_request *request);

/**
 * How often values came, by size. Bucket i counts the values that are greater than
 * dipc_histogram_upper_bound(i - 1) and not greater than dipc_histogram_upper_bound(i).
 */
typedef struct dipc_histogram {
  /**
   * How many values came.
   */
  uint64_t count;
  /**
   * Their sum.
   */
  uint64_t sum;
  /**
   * How many came for each bucket.
   */
  uint64_t buckets[DIPC_HISTOGRAM_BUCKETS];
} dipc_histogram;

/**
 * Figures of a server, of one label, or of the process, since the start unless they say "now".
 * Later versions append members.
 */
typedef struct dipc_server_stats {
  /**
   * Connections open now; 0 for a label.
   */
  uint64_t connections;
  /**
   * Connections accepted; 0 for a label.
   */
  uint64_t connections_opened;
  /**
   * Accepted connections that are over; 0 for a label.
   */
  uint64_t connections_closed;
  /**
   * Connections that were not accepted: the user is not allowed, a limit is reached, or the
   * handshake fails; 0 for a label.
   */
  uint64_t connections_refused;
  /**
   * Streams with a client now; 0 for a label.
   */
  uint64_t streams_active;
  /**
   * Buffers lent and not yet given back, now; 0 for a label.
   */
  uint64_t lent_outstanding;
  /**
   * Bytes of regions for copies that this process or a client maps now; 0 for a label.
   */
  uint64_t region_bytes;
  /**
   * Record batches sent.
   */
  uint64_t batches_sent;
  /**
   * Rows of these batches.
   */
  uint64_t rows_sent;
  /**
   * Record batches that clients sent.
   */
  uint64_t batches_received;
  /**
   * Rows of these batches.
   */
  uint64_t rows_received;
  /**
   * Body bytes lent without a copy.
   */
  uint64_t bytes_lent;
  /**
   * Body bytes copied on the host: into regions, to be lent from them. Includes sent bodies of
   * at most 1 KiB.
   */
  uint64_t bytes_copied;
  /**
   * Body bytes sent through connections.
   */
  uint64_t bytes_sent;
  /**
   * Body bytes copied within a GPU's memory and lent from the copy.
   */
  uint64_t bytes_copied_on_device;
  /**
   * Body bytes copied from a GPU's memory to the host, then lent or sent.
   */
  uint64_t bytes_staged;
  /**
   * Body bytes that clients sent, lent ones included.
   */
  uint64_t bytes_received;
  /**
   * Requests to get a table that were begun.
   */
  uint64_t requests_get;
  /**
   * Requests to put a table that were begun.
   */
  uint64_t requests_put;
  /**
   * Exchanges that were begun.
   */
  uint64_t requests_exchange;
  /**
   * Requests for a description that were begun.
   */
  uint64_t requests_describe;
  /**
   * Requests for a list that were begun.
   */
  uint64_t requests_list;
  /**
   * Requests that have ended well.
   */
  uint64_t requests_finished;
  /**
   * Requests that were begun and have ended otherwise, by status: DIPC_ERR_BUSY (-14) at place
   * 14, and numbers of the host's at place 0.
   */
  uint64_t requests_failed[DIPC_STATS_STATUSES];
  /**
   * Requests that were refused before they were begun, in the same places; 0 for a label.
   */
  uint64_t requests_refused[DIPC_STATS_STATUSES];
  /**
   * Nanoseconds from a request's arrival until its first batch was sent.
   */
  struct dipc_histogram first_batch_ns;
  /**
   * Nanoseconds from when a batch was there until the connection had it: encoding, a copy if one
   * is needed, and waiting for a slow client. Measured for the first batch of each stream, and
   * for every 64th batch after it.
   */
  struct dipc_histogram hand_over_ns;
  /**
   * Body bytes that a request has carried, both ways, when it ended.
   */
  struct dipc_histogram request_bytes;
  /**
   * Rows of the batches that tables and providers gave to be sent, including the rows that a
   * filter or a range left out. Batches after the end of a range are not read.
   */
  uint64_t rows_read;
} dipc_server_stats;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Gives the name of a status, as in this header: "DIPC_ERR_TIMEOUT".
 *
 * @param status  Any number.
 * @return A static string, never NULL; "DIPC_UNKNOWN" for a number that is no status.
 */
const char *dipc_status_name(dipc_status status);

/**
 * Gives the errno for a status. The callbacks of Arrow's streams return this errno.
 *
 * @param status  Any number.
 * @return 0 for 0 and positive numbers; EIO for a negative number that is no status.
 */
int32_t dipc_status_errno(dipc_status status);

/**
 * Gives the status of an error.
 *
 * @param error  Error, or NULL.
 * @return The number that the failed call returned; DIPC_OK for NULL.
 */
dipc_status dipc_error_code(const struct dipc_error *error);

/**
 * Gives the text of an error: the cause, and the remedy if one is known. UTF-8, one line, no
 * newline at the end.
 *
 * @param error  Error, or NULL.
 * @return A string of the error, valid until dipc_error_free(); "" for NULL.
 */
const char *dipc_error_text(const struct dipc_error *error);

/**
 * Gives the errno of the system call that failed.
 *
 * @param error  Error, or NULL.
 * @return 0 if no system call failed, and for NULL.
 */
int32_t dipc_error_os_errno(const struct dipc_error *error);

/**
 * Gives the time after which the server that refused a request should be asked again. A caller
 * that asks again should wait at least this long, and longer with each try. A request with a
 * deadline asks again in this way by itself, until its deadline.
 *
 * @param error  Error, or NULL.
 * @return Nanoseconds; 0 if the server has not said, and for NULL.
 */
uint64_t dipc_error_retry_after_ns(const struct dipc_error *error);

/**
 * Gives the cause of an error that adds context to another error. The text of an error contains
 * the text of its cause.
 *
 * @param error  Error, or NULL.
 * @return The cause, valid until dipc_error_free() of this error, not to be freed; NULL if there
 *         is none.
 */
const struct dipc_error *dipc_error_source(const struct dipc_error *error);

/**
 * Makes an error, for a library that is built on this one and whose functions report failures in
 * the same way.
 *
 * @param code   A DIPC_ERR_*; any other number becomes DIPC_ERR_PROVIDER.
 * @param text   One line of UTF-8: the cause, and the remedy if one is known. Copied.
 * @param error  May be NULL; receives the error, to be freed by dipc_error_free().
 * @return The status of the error. DIPC_ERR_NULL_ARGUMENT, DIPC_ERR_INVALID_ARGUMENT: the text is
 *         NULL or not UTF-8, and the error says so.
 */
dipc_status dipc_error_new(int32_t code, const char *text, struct dipc_error **error);

/**
 * Frees an error. NULL does nothing.
 *
 * @param error  Error from a call's last argument, or NULL; not from dipc_error_source().
 */
void dipc_error_free(struct dipc_error *error);

/**
 * Gives the version of the loaded library, to compare it with the header's.
 *
 * @return DIPC_VERSION_MAJOR * 1000000 + DIPC_VERSION_MINOR * 1000 + DIPC_VERSION_PATCH.
 */
uint32_t dipc_version(void);

/**
 * Gives the version of the loaded library as text: "0.1.0".
 *
 * @return A static string, never NULL.
 */
const char *dipc_version_string(void);

/**
 * Checks that a transport works on this machine.
 *
 * @param scheme  Scheme of its URIs, without the colon: "shm".
 * @param error   May be NULL; on failure receives details for dipc_error_free(): what is missing,
 *                and how to install it.
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_UNSUPPORTED: the transport does not work here,
 *         or this build lacks it.
 */
dipc_status dipc_transport_available(const char *scheme, struct dipc_error **error);

/**
 * Sends log events to a callback, which replaces an earlier callback. Without a callback the
 * library logs nothing, and it never prints. Starts one thread, which ends after the finalizer.
 *
 * The earlier callback gets the events logged until now. After its last call its finalizer runs on
 * its thread. This call does not wait for the finalizer: wait for it before you unload the
 * callback's code. Events that are too fast for the callback are dropped, and their number is
 * logged. The child of a fork logs nothing until it calls this function.
 *
 * @param level      The most detailed level wanted: DIPC_LOG_ERROR to DIPC_LOG_TRACE.
 * @param callback   NULL stops the log; level, userdata and finalizer are then ignored.
 * @param userdata   Passed to callback and finalizer; may be NULL.
 * @param finalizer  Called once, after the last use of userdata; may be NULL.
 * @param error      May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK: the library calls the finalizer. Otherwise the finalizer is not called and
 *         nothing changed. DIPC_ERR_INVALID_ARGUMENT: no such level. DIPC_ERR_OUT_OF_RESOURCES:
 *         the system has no thread left. DIPC_ERR_UNSUPPORTED: libdipc is part of a Rust program
 *         that has its own tracing subscriber.
 */
dipc_status dipc_log_set(int32_t level,
                         dipc_log_callback callback,
                         void *userdata,
                         dipc_finalizer finalizer,
                         struct dipc_error **error);

/**
 * Makes a token that is not triggered.
 *
 * @param out    Receives the token, to be freed by dipc_cancel_free().
 * @param error  May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_OUT_OF_RESOURCES: no file descriptor is left.
 */
dipc_status dipc_cancel_new(struct dipc_cancel **out, struct dipc_error **error);

/**
 * Ends every call that has the token, now and later, with DIPC_ERR_CANCELLED. Any thread may
 * trigger a token, more than once. A signal handler must not.
 *
 * @param cancel  Token. Concurrent calls are allowed.
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_cancel_trigger(const struct dipc_cancel *cancel, struct dipc_error **error);

/**
 * Tells whether a token was triggered.
 *
 * @param cancel  Token, or NULL; concurrent calls are allowed.
 * @return true if it was; false for NULL and in the child of a fork.
 */
bool dipc_cancel_is_triggered(const struct dipc_cancel *cancel);

/**
 * Frees a token. NULL does nothing. Streams that have the token go on; nothing can cancel them by
 * it any more.
 *
 * @param cancel  Token, or NULL. No call that has the token may be running.
 */
void dipc_cancel_free(struct dipc_cancel *cancel);

/**
 * Makes options with the default values. Each setter names its default.
 *
 * @param out    Receives the options, to be freed by dipc_arena_options_free().
 * @param error  May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_arena_options_new(struct dipc_arena_options **out, struct dipc_error **error);

/**
 * Sets the size of one region. A larger block gets a region of its own. A client maps whole
 * regions. Default: 64 MiB.
 *
 * @param options       Options to change; exclusive during the call.
 * @param region_bytes  Bytes, rounded up to whole pages; on a CUDA device, to its mapping unit
 *                      (mostly 2 MiB).
 * @param error         May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: 0.
 */
dipc_status dipc_arena_options_set_region_bytes(struct dipc_arena_options *options,
                                                uint64_t region_bytes,
                                                struct dipc_error **error);

/**
 * Sets the limit for all regions of the arena together. Beyond the limit dipc_arena_alloc() fails
 * with DIPC_ERR_OUT_OF_MEMORY. A region that the arena has given up counts until no client maps
 * it. Default: no limit.
 *
 * @param options    Options to change; exclusive during the call.
 * @param max_bytes  Bytes; UINT64_MAX: no limit.
 * @param error      May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_arena_options_set_max_bytes(struct dipc_arena_options *options,
                                             uint64_t max_bytes,
                                             struct dipc_error **error);

/**
 * Frees options. NULL does nothing. Arenas keep a copy of their options.
 *
 * @param options  Options, or NULL.
 */
void dipc_arena_options_free(struct dipc_arena_options *options);

/**
 * Makes an arena. The first block takes memory from the system, one region at a time.
 *
 * @param device_type  Where the memory lies: ARROW_DEVICE_CPU or ARROW_DEVICE_CUDA.
 * @param device_id    Number of the CUDA device; ignored for the host.
 * @param options      Copied; NULL: the defaults.
 * @param out          Receives the arena, to be freed by dipc_arena_free().
 * @param error        May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_UNSUPPORTED: another device type, no CUDA
 *         driver, or a device that cannot lend memory. DIPC_ERR_INVALID_ARGUMENT: the driver has
 *         no device of that number.
 */
dipc_status dipc_arena_new(int32_t device_type,
                           int64_t device_id,
                           const struct dipc_arena_options *options,
                           struct dipc_arena **out,
                           struct dipc_error **error);

/**
 * Allocates a block, aligned to 64 bytes. Its content is undefined. A block of a CUDA device has a
 * device address: the processor must not access it.
 *
 * @param arena      Arena.
 * @param len_bytes  Length; 0 gives a block too, which must be given back.
 * @param out        Receives the block, to be given back by dipc_arena_dealloc().
 * @param error      May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: no region can have this
 *         length. DIPC_ERR_OUT_OF_MEMORY: the system or the device has no memory left, or the
 *         options' limit is reached. DIPC_ERR_OUT_OF_RESOURCES: no file descriptor is left for a
 *         region.
 */
dipc_status dipc_arena_alloc(const struct dipc_arena *arena,
                             size_t len_bytes,
                             void **out,
                             struct dipc_error **error);

/**
 * Gives a block back. The arena reuses the memory when no client has it lent any more.
 *
 * A client that maps a region can read all of it, freed blocks included. Overwrite a secret before
 * you give its block back.
 *
 * The arena may reuse a block of a CUDA device at once, so the device's work on the block must be
 * done before the call.
 *
 * @param arena  The block's arena; NULL: the library finds it, even after dipc_arena_free().
 * @param block  Block; NULL does nothing.
 * @param error  May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_INVALID_ARGUMENT: no block in use begins at this address; nothing
 *         changed.
 */
dipc_status dipc_arena_dealloc(const struct dipc_arena *arena,
                               void *block,
                               struct dipc_error **error);

/**
 * Finds the file that has bytes of a host arena of this process. A mapping of the file shows the
 * same memory as the arena's own mapping. A new mapping that can be written to must be private
 * (MAP_PRIVATE).
 *
 * The file has a whole region: map no more than the pages of your own bytes. It cannot shrink.
 * When a block is given back, its memory is used again, and all mappings show the new content.
 *
 * @param data        The first byte, in a block that is not given back during the call.
 * @param len_bytes   How many bytes.
 * @param out_fd      Receives a file descriptor of the arena's, valid until the block is given
 *                    back; the caller does not close it.
 * @param out_offset  Receives the offset of the first byte in the file.
 * @param error       May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_NOTHING: no host arena has all of these bytes in one region.
 *         DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_arena_find_file(const void *data,
                                 size_t len_bytes,
                                 int32_t *out_fd,
                                 uint64_t *out_offset,
                                 struct dipc_error **error);

/**
 * Reads one figure of an arena.
 *
 * @param arena  Arena.
 * @param stat   DIPC_ARENA_STAT_*.
 * @param out    Receives the figure.
 * @param error  May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the library does not have
 *         this figure; it may be older than the header.
 */
dipc_status dipc_arena_stat(const struct dipc_arena *arena,
                            int32_t stat,
                            uint64_t *out,
                            struct dipc_error **error);

/**
 * Frees an arena. NULL does nothing. The memory lives until the last block is given back.
 *
 * @param arena  Arena, or NULL; no call on it is running.
 */
void dipc_arena_free(struct dipc_arena *arena);

/**
 * Asks a server for a ticket's table without waiting, and gives the table to a handler of Arrow's
 * C async stream interface.
 *
 * One thread of the client calls the handlers of all its streams, one after the other. A callback
 * that waits delays the others. Callbacks may call every function of the library. One more
 * thread connects, and waits for the servers' answers.
 *
 * - on_schema comes first, unless on_error does. The producer's additional_metadata are the
 *   headers of the answer; its device_type is right from on_schema on.
 * - The library calls on_next_task at most once for each array that the consumer has asked for by
 *   the producer's request, and with NULL at the end. Any thread may call request. The metadata of
 *   the call is the batch's.
 * - A task, or one copy of it, is extracted once: it owns the batch, also when on_next_task fails.
 *   extract_data gives the batch without a wait, on any thread, also after the release of the
 *   handler. With NULL in place of the array it discards the batch.
 * - on_error gives an errno and a text. Its metadata has the number of the dipc_status under
 *   `dipc_status`, and then the headers of the answer. A request for fewer than one array is an
 *   error.
 * - cancel, on any thread, also before on_schema, ends the stream without on_error. So does a
 *   callback that does not return 0.
 * - release comes last, once. Until then, and until every task is extracted, the consumer may call
 *   its producer. The stream outlives the client.
 *
 * @param client            Client.
 * @param uris              As for dipc_client_get().
 * @param n_uris            1 or 2.
 * @param ticket            As for dipc_client_get().
 * @param ticket_len_bytes  Length of ticket.
 * @param options           Copied; NULL: the defaults.
 * @param handler           With all its functions. On DIPC_OK the library sets its producer. It
 *                          stays where it is until its release, the library's last use of it.
 * @param error             May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK: the stream was asked for; the handler gets every later failure. Otherwise the
 *         handler was not used. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_URI.
 *         DIPC_ERR_INVALID_ARGUMENT: the handler lacks a function, or the GPU does not exist.
 *         DIPC_ERR_UNSUPPORTED: this machine lacks the device. DIPC_ERR_OUT_OF_RESOURCES: no
 *         threads or descriptors are left.
 */
dipc_status dipc_client_get_async(const struct dipc_client *client,
                                  const char *const *uris,
                                  size_t n_uris,
                                  const uint8_t *ticket,
                                  size_t ticket_len_bytes,
                                  const struct dipc_get_options *options,
                                  struct ArrowAsyncDeviceStreamHandler *handler,
                                  struct dipc_error **error);

/**
 * Pull form: answers a request with a producer of Arrow's C async stream interface, such as Arrow
 * C++'s ExportAsyncRecordBatchReader(). Gives the handler that the producer calls.
 *
 * The producer's threads call the handler, one after the other, and do not wait in it: its calls
 * put their arguments into a queue. One thread of the server sends the batches of all such
 * requests. It calls the producers' request, cancel and extract_data; a call that waits delays the
 * other streams. If request or cancel is running on another thread, the last callback of the
 * stream waits until that call has returned. No other callback holds a lock that a producer may
 * need.
 *
 * - on_schema sends the schema. The pairs of the producer's additional_metadata whose keys are
 *   valid keys of headers become headers of the answer.
 * - The library asks by request for as many tasks as the client's window has room for, but for at
 *   most 8 that are not sent yet. So a slow client slows the producer.
 * - The library extracts each task once, even if the batch is not needed, and never with NULL. Its
 *   array is released on a thread of the library. The metadata of a task are the batch's.
 * - on_next_task with NULL completes the stream. With DIPC_VERB_EXCHANGE it also completes the
 *   exchange, so the client's table must have been read to its end before.
 * - on_error fails the stream for the client, with DIPC_ERR_PROVIDER, or with the number that the
 *   metadata have under `dipc_status`. dipc_client_get_async() sets this number, so this handler
 *   can be given to dipc_client_get_async() to pass on a table of another server.
 * - When the client goes, or the server stops, the library calls the producer's cancel once, and
 *   discards what the producer still brings. Before on_schema the library does not call the
 *   producer; if the client has gone by then, on_schema returns ECANCELED.
 * - A producer that brings more than it was asked for, or releases the handler before the end,
 *   fails the stream.
 * - release is the last call. It clears the handler's release and private_data. The producer stays
 *   where it is until it has reported the end or an error, or has released the handler, even if
 *   the server was freed or the stream is over earlier. A producer that does none of these delays
 *   neither the client nor a stop of the server.
 *
 * @param request  Request of dipc_server_next_request(), for which dipc_request_start() was not
 *                 called, and not of DIPC_VERB_PUT. On DIPC_OK it is freed. No other call on it is
 *                 running.
 * @param out      Receives the handler, complete except for its producer. The caller owns the
 *                 place; the library does not keep its address.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK: the producer or the caller must release the handler. DIPC_ERR_NULL_ARGUMENT.
 *         DIPC_ERR_INVALID_ARGUMENT: a provider's request, one of DIPC_VERB_PUT, or one that was
 *         started. DIPC_ERR_STOPPED. DIPC_ERR_OUT_OF_RESOURCES: no threads or descriptors are
 *         left. After a failure the request is still the caller's.
 */
dipc_status dipc_request_answer_async(struct dipc_request *request,
                                      struct ArrowAsyncDeviceStreamHandler *out,
                                      struct dipc_error **error);

/**
 * Sets the custom metadata of a batch, and replaces earlier metadata. They are sent with the
 * batch, whether it is published, given by a stream's get_next, pushed or put. The batches of
 * dipc_client_get() have their metadata already, so a host that sends such a batch on also sends
 * its metadata.
 *
 * @param batch               Batch, exclusive during the call. Its private_data and release
 *                            change; all else stays.
 * @param metadata            Keys and values, encoded as in ArrowSchema; copied. NULL: none.
 * @param metadata_len_bytes  Length of metadata, at most 64 MiB.
 * @param error               May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. Otherwise the batch is unchanged. DIPC_ERR_NULL_ARGUMENT.
 *         DIPC_ERR_INVALID_ARGUMENT: the batch is released, or the metadata are not encoded as in
 *         ArrowSchema, not UTF-8, or too long.
 */
dipc_status dipc_batch_set_metadata(struct ArrowDeviceArray *batch,
                                    const uint8_t *metadata,
                                    size_t metadata_len_bytes,
                                    struct dipc_error **error);

/**
 * Gives the custom metadata of a batch: those of dipc_batch_set_metadata(), or those that came
 * with a batch of the library.
 *
 * @param batch          Batch, not released.
 * @param buffer         Receives the metadata, encoded as in ArrowSchema; NULL asks for the length
 *                       only.
 * @param size_bytes     Size of buffer.
 * @param out_len_bytes  Receives the length; 0 if the batch has no metadata.
 * @param error          May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is still
 *         written.
 */
dipc_status dipc_batch_metadata(const struct ArrowDeviceArray *batch,
                                uint8_t *buffer,
                                size_t size_bytes,
                                size_t *out_len_bytes,
                                struct dipc_error **error);

/**
 * Checks that a batch with one schema fits into a stream with another schema. A batch of the C
 * interface does not carry its schema. A host that knows the schemas of its batches calls this
 * before it hands over a batch, because the receiver reads the values by the names and types of
 * the stream's schema.
 *
 * Names, order and types of the columns, and of the fields of structs and unions, are the same.
 * Metadata may differ, and so may the names of parts that a type has once: a list's values, a
 * map's entries, keys and values. The stream's schema may declare a column without nulls that the
 * batch's schema declares with nulls: this call does not look at values. The library refuses a
 * batch with nulls in such a column when it sends the batch.
 *
 * @param stream_schema  Schema of the stream; not moved.
 * @param batch_schema   Schema of the batch; not moved.
 * @param error          May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: a schema is released.
 *         DIPC_ERR_INVALID_DATA: the schemas differ, and the text names the first difference; or a
 *         schema is not that of a table.
 */
dipc_status dipc_batch_check_schema(const struct ArrowSchema *stream_schema,
                                    const struct ArrowSchema *batch_schema,
                                    struct dipc_error **error);

/**
 * Makes a client. Starts one thread, which ends after the client's last connection.
 *
 * @param options  Copied; NULL: the defaults.
 * @param out      Receives the client, to be freed by dipc_client_free().
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_OUT_OF_RESOURCES: no threads or descriptors
 *         are left.
 */
dipc_status dipc_client_new(const struct dipc_client_options *options,
                            struct dipc_client **out,
                            struct dipc_error **error);

/**
 * Asks a server for a ticket's table, and waits for its schema. Releasing the stream before its
 * end cancels it. Any thread may use and release the stream and its arrays, which outlive the
 * client. The thread that calls get_next also reads the connection.
 *
 * The stream's callbacks report later failures as an errno and by get_last_error().
 * dipc_stream_status() reports them in full.
 *
 * @param client            Client.
 * @param uris              n_uris strings: one URI for metadata and bodies, or one for metadata
 *                          and one for bodies.
 * @param n_uris            1 or 2.
 * @param ticket            Name of the table: any bytes, at most 1016 KiB.
 * @param ticket_len_bytes  Length of ticket.
 * @param options           Copied; NULL: the defaults.
 * @param cancel            Token that ends this call and the stream's calls; may be NULL. It may
 *                          be freed before the stream.
 * @param out               Receives the stream. An old value is overwritten, not released.
 * @param error             May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_URI: a malformed URI, or n_uris is
 *         neither 1 nor 2. DIPC_ERR_INVALID_ARGUMENT: the ticket is too long, alone or with the
 *         options' headers. DIPC_ERR_UNSUPPORTED: this machine lacks the transport or the device,
 *         or the server does not know headers.
 *         DIPC_ERR_UNREACHABLE: no server listens at the URI. DIPC_ERR_PERMISSION: another user
 *         runs the server. DIPC_ERR_NOT_FOUND: the server has no such ticket. DIPC_ERR_BUSY.
 *         DIPC_ERR_TIMEOUT. DIPC_ERR_CANCELLED. DIPC_ERR_PROVIDER, or the provider's own status.
 */
dipc_status dipc_client_get(const struct dipc_client *client,
                            const char *const *uris,
                            size_t n_uris,
                            const uint8_t *ticket,
                            size_t ticket_len_bytes,
                            const struct dipc_get_options *options,
                            const struct dipc_cancel *cancel,
                            struct ArrowDeviceArrayStream *out,
                            struct dipc_error **error);

/**
 * Gets a table that lies in parts, on one server or several: asks what the ticket stands for, then
 * gets its endpoints, several at once. This needs no threads: the server of each part sends on its
 * own, up to the window of the options. The batches come in any order, unless the description says
 * that the order matters (dipc_description_set_ordered()). If an endpoint has several URIs, the
 * client uses the first one that it can reach. A ticket without endpoints is one part.
 *
 * The client gets further parts as the stream is read, also after dipc_client_free(). get_next
 * waits while it connects for the next part.
 *
 * Servers that the description names do not get the header `authorization`, unless
 * dipc_get_options_set_send_secrets() allows it, and are not asked over ucx, unless
 * dipc_get_options_set_trusted_network() does.
 *
 * @param client            Client.
 * @param uris              As for dipc_client_get(): the server that describes the ticket.
 * @param n_uris            1 or 2.
 * @param ticket            Any bytes, at most 1016 KiB.
 * @param ticket_len_bytes  Length of ticket.
 * @param options           Apply to each part; so each part has a window of this size. Copied;
 *                          NULL: the defaults.
 * @param cancel            Token that ends this call and the stream's calls; may be NULL. It may
 *                          be freed before the stream.
 * @param out               Receives the stream. Use it by its callbacks: dipc_stream_stat() and
 *                          similar functions need a stream of dipc_client_get(). An old value is
 *                          overwritten, not released.
 * @param error             May be NULL; on failure receives details for dipc_error_free().
 * @return As dipc_client_describe() and dipc_client_get(); the text names the part.
 *         DIPC_ERR_INVALID_DATA: the parts have different columns. DIPC_ERR_INVALID_ARGUMENT: the
 *         options have a range of rows (dipc_get_options_set_range()).
 */
dipc_status dipc_client_get_parts(const struct dipc_client *client,
                                  const char *const *uris,
                                  size_t n_uris,
                                  const uint8_t *ticket,
                                  size_t ticket_len_bytes,
                                  const struct dipc_get_options *options,
                                  const struct dipc_cancel *cancel,
                                  struct ArrowDeviceArrayStream *out,
                                  struct dipc_error **error);

/**
 * Asks a server which descriptors it has: its tickets that begin with a prefix. If no ticket does,
 * the server's handler answers.
 *
 * The answer is a table with a row for each descriptor. Its columns are `descriptor` (binary),
 * `uris` (list of utf8; empty: this server), `rows` and `bytes` (int64, null if unknown).
 *
 * @param client            Client.
 * @param uris              As for dipc_client_get().
 * @param n_uris            1 or 2.
 * @param prefix            Any bytes; may be NULL when prefix_len_bytes is 0: every descriptor.
 * @param prefix_len_bytes  Length of prefix.
 * @param options           Copied; NULL: the defaults.
 * @param cancel            Token that ends this call and the stream's calls; may be NULL. It may
 *                          be freed before the stream.
 * @param out               Receives the stream. An old value is overwritten, not released.
 * @param error             May be NULL; on failure receives details for dipc_error_free().
 * @return As dipc_client_get(). DIPC_ERR_UNSUPPORTED: the server is older than lists.
 */
dipc_status dipc_client_list(const struct dipc_client *client,
                             const char *const *uris,
                             size_t n_uris,
                             const uint8_t *prefix,
                             size_t prefix_len_bytes,
                             const struct dipc_get_options *options,
                             const struct dipc_cancel *cancel,
                             struct ArrowDeviceArrayStream *out,
                             struct dipc_error **error);

/**
 * Reads one figure of a client.
 *
 * @param client  Client.
 * @param stat    DIPC_CLIENT_STAT_*.
 * @param out     Receives the figure.
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the library does not have
 *         this figure; it may be older than the header.
 */
dipc_status dipc_client_stat(const struct dipc_client *client,
                             int32_t stat,
                             uint64_t *out,
                             struct dipc_error **error);

/**
 * Frees a client. NULL does nothing. Its streams and arrays stay valid.
 *
 * @param client  Client, or NULL; no call on it is running.
 */
void dipc_client_free(struct dipc_client *client);

/**
 * Makes options with the default values. Each setter names its default.
 *
 * @param out    Receives the options, to be freed by dipc_client_options_free().
 * @param error  May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_client_options_new(struct dipc_client_options **out, struct dipc_error **error);

/**
 * Accepts servers of every user of this machine, not only of the client's user. Default: false.
 *
 * @param options   Options to change; exclusive during the call.
 * @param any_user  Whether to accept them.
 * @param error     May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_client_options_set_any_user(struct dipc_client_options *options,
                                             bool any_user,
                                             struct dipc_error **error);

/**
 * Sets how long an idle connection is kept for later streams. Then both sides close it. A
 * connection stays open while arrays lie in memory of its server. Default: 60 s.
 *
 * @param options          Options to change; exclusive during the call.
 * @param idle_timeout_ns  Nanoseconds, or DIPC_FOREVER; 0: each connection serves one stream.
 * @param error            May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_client_options_set_idle_timeout_ns(struct dipc_client_options *options,
                                                    uint64_t idle_timeout_ns,
                                                    struct dipc_error **error);

/**
 * Sets the most connections of the client to one server, if the server takes many streams on one
 * connection. One connection is reserved for streams that share it. A stream that a thread waits
 * for has its own connection, until the number is reached; further streams share. Streams that are
 * polled or asynchronous, and parts of a table, share from the start. The next shared connection
 * is opened once the first carries as many streams as the server takes. Default: 16. Other servers
 * have no such limit.
 *
 * @param options      Options to change; exclusive during the call.
 * @param connections  Connections; 1: all streams share; 0: no streams share, and there is no
 *                     limit.
 * @param error        May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_client_options_set_connections(struct dipc_client_options *options,
                                                size_t connections,
                                                struct dipc_error **error);

/**
 * Sets how many idle connections are kept for each server URI. Beyond that number the least
 * recently used connection closes. Default: 8.
 *
 * @param options   Options to change; exclusive during the call.
 * @param max_idle  Connections; 0: each connection serves one stream.
 * @param error     May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_client_options_set_max_idle(struct dipc_client_options *options,
                                             size_t max_idle,
                                             struct dipc_error **error);

/**
 * Frees options. NULL does nothing. Clients keep a copy of their options.
 *
 * @param options  Options, or NULL.
 */
void dipc_client_options_free(struct dipc_client_options *options);

/**
 * Makes options with the default values. Each setter names its default.
 *
 * @param out    Receives the options, to be freed by dipc_get_options_free().
 * @param error  May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_get_options_new(struct dipc_get_options **out, struct dipc_error **error);

/**
 * Sets the time limit from connecting to the server's first answer. The answer is the schema, a
 * refusal, or a note that the request has arrived, which the server sends if its provider needs
 * longer. Default: 10 s. A server without libdipc's extension sends no note: it has 60 s, or the
 * stall timeout, for its schema.
 *
 * @param options             Options to change; exclusive during the call.
 * @param connect_timeout_ns  Nanoseconds, or DIPC_FOREVER. 0: no wait at all. The stream
 *                            then fails with DIPC_ERR_TIMEOUT unless the answer is there at the
 *                            first look.
 * @param error               May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_get_options_set_connect_timeout_ns(struct dipc_get_options *options,
                                                    uint64_t connect_timeout_ns,
                                                    struct dipc_error **error);

/**
 * Sets how long the server may be silent while the client waits for it. Then the stream fails with
 * DIPC_ERR_TIMEOUT. Default: DIPC_FOREVER. A provider may be slow, and the client notices a dead
 * server without this limit.
 *
 * @param options           Options to change; exclusive during the call.
 * @param stall_timeout_ns  Nanoseconds, or DIPC_FOREVER. 0: no wait at all. The stream then
 *                          fails if the next message is not there at the first look.
 * @param error             May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_get_options_set_stall_timeout_ns(struct dipc_get_options *options,
                                                  uint64_t stall_timeout_ns,
                                                  struct dipc_error **error);

/**
 * Sets how many batches and bytes the server may send before the consumer takes them. Default: 16
 * batches, 256 MiB.
 *
 * @param options  Options to change; exclusive during the call.
 * @param batches  Record batches; at least 1.
 * @param bytes    Bytes of bodies. One batch of any size is always allowed, up to 32 times
 *                 the limit of dipc_get_options_set_message_limit_bytes().
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: 0 batches or bytes.
 */
dipc_status dipc_get_options_set_window(struct dipc_get_options *options,
                                        uint64_t batches,
                                        uint64_t bytes,
                                        struct dipc_error **error);

/**
 * Sets how many bytes of copies the server may lend at once. The consumer's arrays count until it
 * releases them. Beyond the limit bodies travel as bytes. Default: 1 GiB.
 *
 * @param options           Options to change; exclusive during the call.
 * @param lent_limit_bytes  Bytes.
 * @param error             May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_get_options_set_lent_limit_bytes(struct dipc_get_options *options,
                                                  uint64_t lent_limit_bytes,
                                                  struct dipc_error **error);

/**
 * Sets how much memory of this process one message of the server may take in addition to its body.
 * A message that needs more ends the stream with DIPC_ERR_OUT_OF_MEMORY. Default: 512 MiB, or 16
 * GiB for a server of the same user.
 *
 * The limit counts decompressed buffers, copies of memory that the server could still change, and
 * the structs of schema and arrays. All dictionaries of a stream, with their deltas, share the
 * limit; so does the memory for all dictionary messages between two batches. A message may always
 * take as many bytes as its body has. A body, and the bodies of all dictionaries together, may
 * have 32 times as many bytes as the limit.
 *
 * @param options              Options to change; exclusive during the call.
 * @param message_limit_bytes  Bytes; UINT64_MAX for no limit.
 * @param error                May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_get_options_set_message_limit_bytes(struct dipc_get_options *options,
                                                     uint64_t message_limit_bytes,
                                                     struct dipc_error **error);

/**
 * Sets the device that the arrays come to. Default: ARROW_DEVICE_CPU. Nothing is copied if the
 * server's arrays lie on that device and this process can map them. Otherwise each step between
 * host and device copies them once.
 *
 * @param options      Options to change; exclusive during the call.
 * @param device_type  ARROW_DEVICE_CPU, ARROW_DEVICE_CUDA or DIPC_DEVICE_AS_SENT.
 * @param device_id    Number of the CUDA device, as this process's driver counts; ignored for
 *                     other types.
 * @param error        May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK: if the device or its driver is missing, dipc_client_get() fails.
 *         DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_UNSUPPORTED: another device type.
 *         DIPC_ERR_INVALID_ARGUMENT: device_id is negative or too large.
 */
dipc_status dipc_get_options_set_device(struct dipc_get_options *options,
                                        int32_t device_type,
                                        int64_t device_id,
                                        struct dipc_error **error);

/**
 * Sets how thoroughly arrays are checked before the consumer gets them. Default:
 * DIPC_VALIDATION_AUTO.
 *
 * @param options     Options to change; exclusive during the call.
 * @param validation  DIPC_VALIDATION_AUTO, DIPC_VALIDATION_STRUCTURE or DIPC_VALIDATION_FULL.
 * @param error       May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: no such level.
 */
dipc_status dipc_get_options_set_validation(struct dipc_get_options *options,
                                            int32_t validation,
                                            struct dipc_error **error);

/**
 * Frees options. NULL does nothing. Streams keep a copy of their options.
 *
 * @param options  Options, or NULL.
 */
void dipc_get_options_free(struct dipc_get_options *options);

/**
 * Asks a server what a descriptor stands for, and waits for the answer. For a published table the
 * answer has the schema and totals. For a provider's ticket it has only the descriptor, unless
 * dipc_server_set_description() was called. For descriptors that are no ticket the server's
 * handler answers.
 *
 * @param client                Client.
 * @param uris                  As for dipc_client_get().
 * @param n_uris                1 or 2.
 * @param descriptor            Any bytes, at most 1016 KiB.
 * @param descriptor_len_bytes  Length of descriptor.
 * @param options               Copied; NULL: the defaults.
 * @param cancel                Token that ends this call; may be NULL.
 * @param out                   Receives the description, to be freed by dipc_description_free().
 * @param error                 May be NULL; on failure receives details for dipc_error_free().
 * @return As dipc_client_get(). DIPC_ERR_UNSUPPORTED: the server is older than descriptions.
 *         DIPC_ERR_INVALID_DATA: the server's handler answered with a table of another kind.
 */
dipc_status dipc_client_describe(const struct dipc_client *client,
                                 const char *const *uris,
                                 size_t n_uris,
                                 const uint8_t *descriptor,
                                 size_t descriptor_len_bytes,
                                 const struct dipc_get_options *options,
                                 const struct dipc_cancel *cancel,
                                 struct dipc_description **out,
                                 struct dipc_error **error);

/**
 * Gives the schema of the table.
 *
 * @param description  Description.
 * @param out          Receives the schema, to be released by the caller.
 * @param error        May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_NOT_FOUND: the schema is not known.
 *         DIPC_ERR_INVALID_DATA, DIPC_ERR_UNSUPPORTED, DIPC_ERR_PROTOCOL: the server sent no valid
 *         schema.
 */
dipc_status dipc_description_schema(const struct dipc_description *description,
                                    struct ArrowSchema *out,
                                    struct dipc_error **error);

/**
 * Gives a total of the whole table.
 *
 * @param description  Description, or NULL.
 * @param total        DIPC_TOTAL_*.
 * @return The total; DIPC_UNKNOWN where it is not known, for an unknown total, for NULL and in
 *         the child of a fork.
 */
uint64_t dipc_description_total(const struct dipc_description *description, int32_t total);

/**
 * Tells whether the order of the endpoints is that of the table. Otherwise they may be read in any
 * order.
 *
 * @param description  Description, or NULL.
 * @return Whether it is; false for NULL and in the child of a fork.
 */
bool dipc_description_is_ordered(const struct dipc_description *description);

/**
 * Gives the headers of the server's answer.
 *
 * @param description  Description.
 * @param out          Receives a copy of the headers, to be freed by dipc_headers_free().
 * @param error        May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_description_headers(const struct dipc_description *description,
                                     struct dipc_headers **out,
                                     struct dipc_error **error);

/**
 * Counts the endpoints.
 *
 * @param description  Description, or NULL.
 * @return The number; 0 for NULL and in the child of a fork.
 */
size_t dipc_description_endpoint_count(const struct dipc_description *description);

/**
 * Gives the ticket of one endpoint.
 *
 * @param description    Description.
 * @param index          Which endpoint, from 0.
 * @param buffer         Receives the ticket, without a NUL; NULL asks for the length only.
 * @param size_bytes     Size of buffer.
 * @param out_len_bytes  Receives the length of the ticket.
 * @param error          May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_NOT_FOUND: there is no such endpoint.
 *         DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is still written.
 */
dipc_status dipc_description_endpoint_descriptor(const struct dipc_description *description,
                                                 size_t index,
                                                 uint8_t *buffer,
                                                 size_t size_bytes,
                                                 size_t *out_len_bytes,
                                                 struct dipc_error **error);

/**
 * Gives a total of one endpoint.
 *
 * @param description  Description, or NULL.
 * @param index        Which endpoint, from 0.
 * @param total        DIPC_TOTAL_ROWS or DIPC_TOTAL_BYTES.
 * @return The total; DIPC_UNKNOWN where it is not known, for an unknown endpoint or total, for
 *         NULL and in the child of a fork.
 */
uint64_t dipc_description_endpoint_total(const struct dipc_description *description,
                                         size_t index,
                                         int32_t total);

/**
 * Counts the URIs of an endpoint.
 *
 * @param description  Description, or NULL.
 * @param index        Which endpoint, from 0.
 * @return The number. An endpoint without URIs is at the server that was asked. 0 for an unknown
 *         endpoint, for NULL and in the child of a fork.
 */
size_t dipc_description_endpoint_uri_count(const struct dipc_description *description,
                                           size_t index);

/**
 * Gives a URI of one endpoint.
 *
 * @param description    Description.
 * @param index          Which endpoint, from 0.
 * @param uri            Which of its URIs, from 0; the best is the first.
 * @param buffer         Receives the URI and a NUL; NULL asks for the length only.
 * @param size_bytes     Size of buffer.
 * @param out_len_bytes  Receives the length of the URI, without the NUL.
 * @param error          May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_NOT_FOUND: there is no such endpoint or URI.
 *         DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is still written.
 */
dipc_status dipc_description_endpoint_uri(const struct dipc_description *description,
                                          size_t index,
                                          size_t uri,
                                          char *buffer,
                                          size_t size_bytes,
                                          size_t *out_len_bytes,
                                          struct dipc_error **error);

/**
 * Frees a description. NULL does nothing.
 *
 * @param description  Description, or NULL; no call with it is running.
 */
void dipc_description_free(struct dipc_description *description);

/**
 * Makes an empty description, for a handler that answers DIPC_VERB_DESCRIBE, or DIPC_VERB_LIST
 * with an endpoint for each descriptor.
 *
 * @param out    Receives the description, to be freed by dipc_description_free().
 * @param error  May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_description_new(struct dipc_description **out, struct dipc_error **error);

/**
 * Sets the answer to clients that ask what a ticket stands for. The server itself knows only
 * published tables, so this call is for tickets of providers and of the pull form. A new table for
 * the ticket removes the description.
 *
 * @param server            Server.
 * @param ticket            A ticket that the server was given.
 * @param ticket_len_bytes  Length of ticket.
 * @param description       Copied. Without endpoints the ticket itself is the only endpoint.
 * @param error             May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_NOT_FOUND: the server has no such ticket.
 *         DIPC_ERR_STOPPED.
 */
dipc_status dipc_server_set_description(const struct dipc_server *server,
                                        const uint8_t *ticket,
                                        size_t ticket_len_bytes,
                                        const struct dipc_description *description,
                                        struct dipc_error **error);

/**
 * Sets the schema.
 *
 * @param description  Description to change; exclusive during the call.
 * @param schema       Copied, not moved.
 * @param error        May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_DATA: a schema that cannot be sent.
 */
dipc_status dipc_description_set_schema(struct dipc_description *description,
                                        const struct ArrowSchema *schema,
                                        struct dipc_error **error);

/**
 * Says whether the order of the endpoints is that of the table. Default: false.
 *
 * @param description  Description to change; exclusive during the call.
 * @param is_ordered   Whether clients must keep the order.
 * @param error        May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_description_set_ordered(struct dipc_description *description,
                                         bool is_ordered,
                                         struct dipc_error **error);

/**
 * Sets a total of the whole table.
 *
 * @param description  Description to change; exclusive during the call.
 * @param total        DIPC_TOTAL_*.
 * @param value        The total; DIPC_UNKNOWN: not known.
 * @param error        May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: no such total.
 */
dipc_status dipc_description_set_total(struct dipc_description *description,
                                       int32_t total,
                                       uint64_t value,
                                       struct dipc_error **error);

/**
 * Adds an endpoint: a part of the table, or a descriptor of a list.
 *
 * @param description           Description to change; exclusive during the call.
 * @param descriptor            The ticket to ask for. Copied.
 * @param descriptor_len_bytes  Length of descriptor.
 * @param uris                  n_uris strings: servers that have the part, best first. Copied.
 * @param n_uris                0: this server has it.
 * @param rows                  Rows of the part, or DIPC_UNKNOWN.
 * @param bytes                 Bytes of its bodies, or DIPC_UNKNOWN.
 * @param error                 May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: a URI is not UTF-8.
 */
dipc_status dipc_description_add_endpoint(struct dipc_description *description,
                                          const uint8_t *descriptor,
                                          size_t descriptor_len_bytes,
                                          const char *const *uris,
                                          size_t n_uris,
                                          uint64_t rows,
                                          uint64_t bytes,
                                          struct dipc_error **error);

/**
 * The description as a stream of one batch: what a handler answers with.
 *
 * @param description  Description. It stays the caller's.
 * @param out          Receives the stream. An old value is overwritten, not released.
 * @param error        May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: a total of an endpoint past
 *         2^63 - 1, or more than 2 GiB of descriptors or URIs.
 */
dipc_status dipc_description_to_stream(const struct dipc_description *description,
                                       struct ArrowDeviceArrayStream *out,
                                       struct dipc_error **error);

/**
 * Makes an empty list of headers.
 *
 * @param out    Receives the headers, to be freed by dipc_headers_free().
 * @param error  May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_headers_new(struct dipc_headers **out, struct dipc_error **error);

/**
 * Adds a pair at the end.
 *
 * @param headers          Headers to change; exclusive during the call.
 * @param key              1 to 255 of the characters a to z, 0 to 9, '-', '_' and '.'. Keys that
 *                         begin with "dipc-" are the library's own. Copied.
 * @param value            Any bytes; may be NULL when value_len_bytes is 0. Copied.
 * @param value_len_bytes  Length of value.
 * @param error            May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the key has other
 *         characters, or begins with "dipc-".
 */
dipc_status dipc_headers_add(struct dipc_headers *headers,
                             const char *key,
                             const uint8_t *value,
                             size_t value_len_bytes,
                             struct dipc_error **error);

/**
 * Counts the pairs.
 *
 * @param headers  Headers, or NULL.
 * @return The number; 0 for NULL and in the child of a fork.
 */
size_t dipc_headers_count(const struct dipc_headers *headers);

/**
 * Gives the key of one pair.
 *
 * @param headers        Headers.
 * @param index          Which pair, from 0.
 * @param buffer         Receives the key and a NUL; NULL asks for the length only.
 * @param size_bytes     Size of buffer.
 * @param out_len_bytes  Receives the length of the key, without the NUL.
 * @param error          May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_NOT_FOUND: there is no such pair.
 *         DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is still written.
 */
dipc_status dipc_headers_key(const struct dipc_headers *headers,
                             size_t index,
                             char *buffer,
                             size_t size_bytes,
                             size_t *out_len_bytes,
                             struct dipc_error **error);

/**
 * Gives the value of one pair.
 *
 * @param headers        Headers.
 * @param index          Which pair, from 0.
 * @param buffer         Receives the value, without a NUL; NULL asks for the length only.
 * @param size_bytes     Size of buffer.
 * @param out_len_bytes  Receives the length of the value.
 * @param error          May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_NOT_FOUND: there is no such pair.
 *         DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is still written.
 */
dipc_status dipc_headers_value(const struct dipc_headers *headers,
                               size_t index,
                               uint8_t *buffer,
                               size_t size_bytes,
                               size_t *out_len_bytes,
                               struct dipc_error **error);

/**
 * Gives the value of the first pair with a key.
 *
 * @param headers        Headers.
 * @param key            The key.
 * @param buffer         Receives the value, without a NUL; NULL asks for the length only.
 * @param size_bytes     Size of buffer.
 * @param out_len_bytes  Receives the length of the value.
 * @param error          May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_NOT_FOUND: no pair has the key.
 *         DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is still written.
 */
dipc_status dipc_headers_get(const struct dipc_headers *headers,
                             const char *key,
                             uint8_t *buffer,
                             size_t size_bytes,
                             size_t *out_len_bytes,
                             struct dipc_error **error);

/**
 * Frees headers. NULL does nothing.
 *
 * @param headers  Headers, or NULL; no call with them is running.
 */
void dipc_headers_free(struct dipc_headers *headers);

/**
 * Reports in full why a host stream failed, as dipc_stream_status() does for a device stream.
 *
 * @param stream  Stream of dipc_stream_to_host(), not released; no callback of it is running.
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK: the stream has not failed. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT:
 *         the stream is released, or not of the library. Otherwise the stream's status.
 */
dipc_status dipc_host_stream_status(const struct ArrowArrayStream *stream,
                                    struct dipc_error **error);

/**
 * Gives the custom metadata of the last batch of get_next, as dipc_stream_metadata() does.
 *
 * @param stream         Stream of dipc_stream_to_host() that was made of a stream of
 *                       dipc_client_get(), not released; no callback of it is running.
 * @param buffer         Receives the metadata, encoded as in ArrowSchema; NULL asks for the length
 *                       only.
 * @param size_bytes     Size of buffer.
 * @param out_len_bytes  Receives the length; 0 if the batch has no metadata.
 * @param error          May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the stream is released, or
 *         was not made of a stream of dipc_client_get(). DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes
 *         is still written.
 */
dipc_status dipc_host_stream_metadata(const struct ArrowArrayStream *stream,
                                      uint8_t *buffer,
                                      size_t size_bytes,
                                      size_t *out_len_bytes,
                                      struct dipc_error **error);

/**
 * Reads one figure of a host stream, up to now, as dipc_stream_stat() does.
 *
 * @param stream  Stream of dipc_stream_to_host() that was made of a stream of dipc_client_get(),
 *                not released; no callback of it is running.
 * @param stat    DIPC_STREAM_STAT_*.
 * @param out     Receives the figure.
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the stream is released, or
 *         was not made of a stream of dipc_client_get(), or the library has no such figure.
 */
dipc_status dipc_host_stream_stat(const struct ArrowArrayStream *stream,
                                  int32_t stat,
                                  uint64_t *out,
                                  struct dipc_error **error);

/**
 * Gives the headers of the server's answer, as dipc_stream_headers() does.
 *
 * @param stream  Stream of dipc_stream_to_host() that was made of a stream of dipc_client_get(),
 *                not released; no callback of it is running.
 * @param out     Receives a copy of the headers, to be freed by dipc_headers_free().
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the stream is released, or
 *         was not made of a stream of dipc_client_get().
 */
dipc_status dipc_host_stream_headers(const struct ArrowArrayStream *stream,
                                     struct dipc_headers **out,
                                     struct dipc_error **error);

/**
 * Sets a provider that answers every get, put and exchange with the header `header`, instead of
 * the request's ticket. It may pass a request on by dipc_request_forward(), and change the tables
 * on their way. A middleware set before is replaced; its streams go on.
 *
 * @param server     Server.
 * @param header     Key of the header, NUL-terminated: lower-case ASCII.
 * @param provider   Called once for each stream, as dipc_provider says. NULL: no middleware.
 * @param userdata   Given to provider and finalizer; may be NULL.
 * @param finalizer  Called once, when the middleware was replaced or the server freed, and the
 *                   last call has returned; may be NULL. Not used if provider is NULL.
 * @param error      May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK: the library calls the finalizer. Otherwise it does not.
 *         DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: no header can have this key.
 *         DIPC_ERR_STOPPED.
 */
dipc_status dipc_server_set_middleware(const struct dipc_server *server,
                                       const char *header,
                                       dipc_provider provider,
                                       void *userdata,
                                       dipc_finalizer finalizer,
                                       struct dipc_error **error);

/**
 * Passes a request of a middleware on to what answers it without the middleware: the published
 * table, the provider of the ticket, or the handler. They see the same ticket and headers, but no
 * selection: the library applies the client's selection to the table that the middleware gives. A
 * host of the pull form gets the request by dipc_server_next_request(); the call waits until the
 * host has begun its stream, or has taken the table of a put. The host's arrays are released like
 * those of its other streams.
 *
 * @param request  Request that a middleware's provider has.
 * @param table    For DIPC_VERB_PUT and DIPC_VERB_EXCHANGE: the table to pass on instead of the
 *                 client's table, which dipc_request_source() gives the middleware. The call takes
 *                 table even if it fails, unless request is NULL, and leaves it released. For
 *                 DIPC_VERB_GET: NULL.
 * @param out      For DIPC_VERB_GET and DIPC_VERB_EXCHANGE: receives the whole table, to be
 *                 released. An old value is overwritten. For DIPC_VERB_PUT: NULL; the call returns
 *                 when the handler has taken the table.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT: out is missing. DIPC_ERR_INVALID_ARGUMENT: the request
 *         is not a middleware's, or table or out does not go with its verb. DIPC_ERR_UNSUPPORTED:
 *         there is no handler that takes tables, or an exchange would go to a host of the pull
 *         form. DIPC_ERR_CANCELLED: the client went while the call waited for such a host.
 *         DIPC_ERR_NOT_FOUND. DIPC_ERR_STOPPED. Otherwise the status of the provider that was
 *         called.
 */
dipc_status dipc_request_forward(const struct dipc_request *request,
                                 struct ArrowDeviceArrayStream *table,
                                 struct ArrowDeviceArrayStream *out,
                                 struct dipc_error **error);

/**
 * Allows tcp listeners that other machines can reach. Default: false, and listening on tcp beyond
 * the loopback interface fails with DIPC_ERR_PERMISSION. Tcp has neither encryption nor
 * authentication.
 *
 * @param options       Options to change; exclusive during the call.
 * @param allow_remote  Whether to allow them.
 * @param error         May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_server_options_set_allow_remote(struct dipc_server_options *options,
                                                 bool allow_remote,
                                                 struct dipc_error **error);

/**
 * Declares that every process on this server's network is trusted, and so allows ucx listeners.
 * Default: false, and listening on ucx fails with DIPC_ERR_PERMISSION, on the loopback interface
 * too. On some of its paths UCX checks no access rights: any process that connects can read and
 * write the memory of this process.
 *
 * @param options          Options to change; exclusive during the call.
 * @param trusted_network  Whether the network is trusted.
 * @param error            May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_server_options_set_trusted_network(struct dipc_server_options *options,
                                                    bool trusted_network,
                                                    struct dipc_error **error);

/**
 * Sets an option of one transport. A key or value that UCX refuses fails here if the library can
 * tell without loading UCX, otherwise at the first use of ucx. UCX reports some mistakes only in
 * its log.
 *
 * `ucx.KEY`: any key of UCX's configuration without its prefix UCX_, such as `ucx.TLS`.
 * `ucx.library`: the path of libucp. `ucx.error_handling`: `peer` (default, notices a dead peer)
 * or `none` (faster on some transports). `tcp.keepalive`, `ucx.keepalive`: seconds until a silent
 * machine counts as dead (default 60).
 *
 * @param options  Options to change; exclusive during the call.
 * @param name     Scheme, dot and name of the option; UTF-8.
 * @param value    Value of the option; UTF-8.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: no transport has the option,
 *         or the value is wrong.
 */
dipc_status dipc_server_options_set_transport(struct dipc_server_options *options,
                                              const char *name,
                                              const char *value,
                                              struct dipc_error **error);

/**
 * Sets an option of one transport. A key or value that UCX refuses fails here if the library can
 * tell without loading UCX, otherwise at the first use of ucx. UCX reports some mistakes only in
 * its log.
 *
 * `ucx.KEY`: any key of UCX's configuration without its prefix UCX_, such as `ucx.TLS`.
 * `ucx.library`: the path of libucp. `ucx.error_handling`: `peer` (default, notices a dead peer)
 * or `none` (faster on some transports). `tcp.keepalive`, `ucx.keepalive`: seconds until a silent
 * machine counts as dead (default 60).
 *
 * @param options  Options to change; exclusive during the call.
 * @param name     Scheme, dot and name of the option; UTF-8.
 * @param value    Value of the option; UTF-8.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: no transport has the option,
 *         or the value is wrong.
 */
dipc_status dipc_client_options_set_transport(struct dipc_client_options *options,
                                              const char *name,
                                              const char *value,
                                              struct dipc_error **error);

/**
 * Sets how long a thread of the server spins for the next request before it sleeps. A spinning
 * thread uses a whole core and answers sooner. Default: 0, which means at most 50 microseconds,
 * and only while spinning has lately found work. The I/O thread does not spin while the thread of
 * a stream has a connection.
 *
 * @param options  Options to change; exclusive during the call.
 * @param spin_ns  Nanoseconds.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_server_options_set_spin_ns(struct dipc_server_options *options,
                                            uint64_t spin_ns,
                                            struct dipc_error **error);

/**
 * Sets how long a thread that waits for the stream spins before it sleeps. A spinning thread uses
 * a whole core and continues sooner. Default: 0, which means at most 50 microseconds, and only
 * while spinning has lately found a message.
 *
 * @param options  Options to change; exclusive during the call.
 * @param spin_ns  Nanoseconds.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_get_options_set_spin_ns(struct dipc_get_options *options,
                                         uint64_t spin_ns,
                                         struct dipc_error **error);

/**
 * Sets how many connections carry one stream, if the transport can split bodies (tcp only).
 * Default: 1.
 *
 * @param options      Options to change; exclusive during the call.
 * @param connections  1 to 64.
 * @param error        May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: not 1 to 64.
 */
dipc_status dipc_get_options_set_connections(struct dipc_get_options *options,
                                             uint32_t connections,
                                             struct dipc_error **error);

/**
 * dipc_client_get(), dipc_client_list() or dipc_client_describe() without waiting, for event
 * loops. If streams share an open connection to the server, this call sends the request on it.
 * Otherwise, and for a description, a thread of the client connects. This one thread waits for the
 * answers of all servers, and a silent server delays no other request.
 *
 * @param client                Client.
 * @param verb                  DIPC_VERB_GET, DIPC_VERB_LIST or DIPC_VERB_DESCRIBE.
 * @param uris                  As for dipc_client_get().
 * @param n_uris                1 or 2.
 * @param descriptor            Ticket, prefix or descriptor, as for the call that waits.
 * @param descriptor_len_bytes  Length of descriptor.
 * @param options               Copied; NULL: the defaults.
 * @param cancel                Token that ends the request, and the calls of what it gives; may be
 *                              NULL. It may be freed before the request.
 * @param out                   Receives the request, to be freed by dipc_pending_free().
 * @param error                 May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK: the request gets every later failure. DIPC_ERR_NULL_ARGUMENT.
 *         DIPC_ERR_INVALID_URI. DIPC_ERR_INVALID_ARGUMENT: the verb is another one, or the GPU
 *         does not exist. DIPC_ERR_UNSUPPORTED: this machine lacks the device.
 *         DIPC_ERR_OUT_OF_RESOURCES: no threads or descriptors are left.
 */
dipc_status dipc_client_start(const struct dipc_client *client,
                              int32_t verb,
                              const char *const *uris,
                              size_t n_uris,
                              const uint8_t *descriptor,
                              size_t descriptor_len_bytes,
                              const struct dipc_get_options *options,
                              const struct dipc_cancel *cancel,
                              struct dipc_pending **out,
                              struct dipc_error **error);

/**
 * Gives a descriptor for poll(), epoll and event loops. It becomes readable when the answer has
 * come, and stays readable. If the request is made again, because the server is busy or drains,
 * the descriptor may also be readable for a moment before.
 *
 * @param pending  Request.
 * @param out      Receives the descriptor. It is the request's, which closes it; it is not to be
 *                 read or closed.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_OUT_OF_RESOURCES: no descriptors are left.
 */
dipc_status dipc_pending_fd(const struct dipc_pending *pending,
                            int *out,
                            struct dipc_error **error);

/**
 * Gives the stream of DIPC_VERB_GET or DIPC_VERB_LIST, if it is there. Then the request is done.
 *
 * @param pending  Request.
 * @param out      Receives the stream, once. An old value is overwritten, not released.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_NOTHING: the server has not answered yet; dipc_pending_fd() tells when.
 *         DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the stream was given before, or the
 *         verb is another one. Otherwise as dipc_client_get(), at every call.
 */
dipc_status dipc_pending_try_stream(const struct dipc_pending *pending,
                                    struct ArrowDeviceArrayStream *out,
                                    struct dipc_error **error);

/**
 * Gives the answer to DIPC_VERB_DESCRIBE, if it is there. Then the request is done.
 *
 * @param pending  Request.
 * @param out      Receives the description, once, to be freed by dipc_description_free().
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_NOTHING: the server has not answered yet; dipc_pending_fd() tells when.
 *         DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the description was given before, or
 *         the verb is another one. Otherwise as dipc_client_describe(), at every call.
 */
dipc_status dipc_pending_try_description(const struct dipc_pending *pending,
                                         struct dipc_description **out,
                                         struct dipc_error **error);

/**
 * Gives the put of dipc_client_start_put(), if the server has accepted. Then the request is done.
 *
 * @param pending  Request.
 * @param out      Receives the put, once, to be freed by dipc_put_free().
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_NOTHING: the server has not answered yet; dipc_pending_fd() tells when.
 *         DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the put was given before, or the
 *         request is another one. Otherwise as dipc_client_put_open(), at every call.
 */
dipc_status dipc_pending_try_put(const struct dipc_pending *pending,
                                 struct dipc_put **out,
                                 struct dipc_error **error);

/**
 * Gives the two tables of dipc_client_start_exchange(), if the server has accepted. Then the
 * request is done.
 *
 * @param pending  Request.
 * @param out      Receives the put, which sends this side's table, once; to be freed by
 *                 dipc_put_free().
 * @param answers  Receives the stream of the server's table, once. An old value is overwritten,
 *                 not released.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_NOTHING: the server has not answered yet; dipc_pending_fd() tells when.
 *         DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the tables were given before, or the
 *         request is another one. Otherwise as dipc_client_exchange(), at every call.
 */
dipc_status dipc_pending_try_exchange(const struct dipc_pending *pending,
                                      struct dipc_put **out,
                                      struct ArrowDeviceArrayStream *answers,
                                      struct dipc_error **error);

/**
 * Frees a request. NULL does nothing. A request that was not answered ends. Streams and other
 * results that the request gave stay valid.
 *
 * @param pending  Request, or NULL; no call on it is running.
 */
void dipc_pending_free(struct dipc_pending *pending);

/**
 * Gives a descriptor for poll(), epoll and event loops. It is readable when dipc_stream_try_next()
 * may find something: a batch, the end, a failure, a deadline that has passed, a triggered token.
 * It is readable at first, and stays readable after the end.
 *
 * Call dipc_stream_try_next() until it returns DIPC_NOTHING, and only then sleep on the
 * descriptor. Many streams can stand in one epoll instance; none has a thread.
 *
 * @param stream  Stream of dipc_client_get() or dipc_client_list(), not released. One thread at a
 *                time uses it; none of its callbacks may be running.
 * @param out     Receives the descriptor. It is the stream's, whose release closes it; it is not
 *                to be read or closed.
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the stream is released, or
 *         not of dipc_client_get(). DIPC_ERR_UNSUPPORTED: the stream copies the arrays of another
 *         stream. DIPC_ERR_OUT_OF_RESOURCES: no descriptors are left.
 */
dipc_status dipc_stream_fd(const struct ArrowDeviceArrayStream *stream,
                           int *out,
                           struct dipc_error **error);

/**
 * get_next without a wait: gives the next batch if it is there.
 *
 * @param stream  Stream of dipc_client_get() or dipc_client_list(), not released. One thread at a
 *                time uses it; none of its callbacks may be running.
 * @param out     Receives the batch; at the end an array whose release is NULL.
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_NOTHING: nothing has come yet; dipc_stream_fd() tells when to call again.
 *         DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the stream is released, or not of
 *         dipc_client_get(). DIPC_ERR_UNSUPPORTED: the stream copies the arrays of another stream.
 *         Otherwise the stream's status, as from dipc_stream_status().
 */
dipc_status dipc_stream_try_next(const struct ArrowDeviceArrayStream *stream,
                                 struct ArrowDeviceArray *out,
                                 struct dipc_error **error);

/**
 * dipc_stream_fd() for a host stream.
 *
 * @param stream  Stream of dipc_stream_to_host() that was made of a stream of dipc_client_get()
 *                with arrays on the host, not released. One thread at a time uses it; none of its
 *                callbacks may be running.
 * @param out     As for dipc_stream_fd().
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return As dipc_stream_fd().
 */
dipc_status dipc_host_stream_fd(const struct ArrowArrayStream *stream,
                                int *out,
                                struct dipc_error **error);

/**
 * dipc_stream_try_next() for a host stream.
 *
 * @param stream  As for dipc_host_stream_fd().
 * @param out     Receives the batch; at the end an array whose release is NULL.
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return As dipc_stream_try_next().
 */
dipc_status dipc_host_stream_try_next(const struct ArrowArrayStream *stream,
                                      struct ArrowArray *out,
                                      struct dipc_error **error);

/**
 * Gives a descriptor for the event loop of a host that serves in the pull form. It is readable
 * while a request waits, and once the server was stopped: call dipc_server_next_request() with
 * timeout_ns 0 then.
 *
 * @param server  Server.
 * @param out     Receives the descriptor. It is the server's, which closes it; it is not to be
 *                read or closed.
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_server_request_fd(const struct dipc_server *server,
                                   int *out,
                                   struct dipc_error **error);

/**
 * Gives a descriptor for the event loop of a host that pushes batches: the pull form without a
 * thread for each stream. Call dipc_request_push() and dipc_request_finish() with timeout_ns 0. If
 * a call returns DIPC_ERR_TIMEOUT, the descriptor becomes readable when it is useful to call
 * again: the client has taken batches, has gone, or has cancelled. It is readable at first, and
 * stays readable after the end.
 *
 * @param request  Request of dipc_server_next_request().
 * @param out      Receives the descriptor. It is the request's, which closes it; it is not to be
 *                 read or closed.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: a provider's request.
 *         DIPC_ERR_OUT_OF_RESOURCES: no descriptors are left.
 */
dipc_status dipc_request_fd(const struct dipc_request *request,
                            int *out,
                            struct dipc_error **error);

/**
 * Sends a batch, by a put of dipc_client_put_open() or dipc_client_exchange(). Waits for the
 * batch's sync_event, and for a slow server.
 *
 * @param put                 Put; exclusive during the call.
 * @param batch               Moved on success: its release becomes NULL. It is called when the
 *                            server has given the batch back, on a thread of the library or in a
 *                            call on the put.
 * @param metadata            Custom metadata of the batch, encoded as in ArrowSchema; NULL: none.
 * @param metadata_len_bytes  Length of metadata.
 * @param timeout_ns          Most nanoseconds to wait; DIPC_FOREVER: no limit; 0: no wait, and
 *                            dipc_put_fd() tells when there is room.
 * @param error               May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. Otherwise the caller still owns the batch. DIPC_ERR_NULL_ARGUMENT.
 *         DIPC_ERR_TIMEOUT: the server was too slow. Call again, unless dipc_put_is_over() is
 *         true: then the options' stall timeout or deadline has passed. DIPC_ERR_INVALID_ARGUMENT:
 *         the put has a source, or is over. DIPC_ERR_INVALID_DATA: the batch is invalid.
 *         DIPC_ERR_CANCELLED. DIPC_ERR_DISCONNECTED. The status with which the server's host has
 *         failed the table.
 */
dipc_status dipc_put_push(struct dipc_put *put,
                          struct ArrowDeviceArray *batch,
                          const uint8_t *metadata,
                          size_t metadata_len_bytes,
                          uint64_t timeout_ns,
                          struct dipc_error **error);

/**
 * Waits until the server's host reports by dipc_request_result() that a part of the table is safe.
 * While it waits, it sends the batches of the put's source, if there is one. Once the put is over,
 * gives the results that came before its end.
 *
 * @param put          Put; exclusive during the call.
 * @param timeout_ns   Most nanoseconds to wait; DIPC_FOREVER: no limit; 0: no wait, and
 *                     dipc_put_fd() tells when to call again.
 * @param out_batches  Receives the number of batches, from the first on, that are safe.
 *                     dipc_put_result() then gives the host's bytes.
 * @param error        May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_NOTHING: the server's host has taken the whole table; there are no more
 *         results. DIPC_ERR_NULL_ARGUMENT. Otherwise as dipc_put_push().
 */
dipc_status dipc_put_next_result(struct dipc_put *put,
                                 uint64_t timeout_ns,
                                 uint64_t *out_batches,
                                 struct dipc_error **error);

/**
 * Gives the host's bytes of the result that dipc_put_next_result() gave last.
 *
 * @param put            Put.
 * @param buffer         Receives the bytes, without a NUL; NULL asks for the length only.
 * @param size_bytes     Size of buffer.
 * @param out_len_bytes  Receives the length, at most 32 KiB.
 * @param error          May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is still
 *         written.
 */
dipc_status dipc_put_result(const struct dipc_put *put,
                            uint8_t *buffer,
                            size_t size_bytes,
                            size_t *out_len_bytes,
                            struct dipc_error **error);

/**
 * Ends the table, and waits until the server's host has taken all of it. Sends the rest of a
 * source first. dipc_put_next_result() still gives the results that nobody has asked for.
 *
 * @param put          Put; exclusive during the call.
 * @param timeout_ns   Most nanoseconds to wait; DIPC_FOREVER: no limit; 0: no wait, and
 *                     dipc_put_fd() tells when to call again.
 * @param out_batches  Receives the number of batches that the host has taken; may be NULL.
 * @param error        May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_TIMEOUT: call again, unless dipc_put_is_over()
 *         is true. DIPC_ERR_DISCONNECTED: the connection ended before the server's final answer.
 *         It is not known then whether the host has taken the table; the text says so. Otherwise
 *         as dipc_put_push().
 */
dipc_status dipc_put_finish(struct dipc_put *put,
                            uint64_t timeout_ns,
                            uint64_t *out_batches,
                            struct dipc_error **error);

/**
 * Fails the table with a reason, which the server's host sees.
 *
 * @param put    Put; exclusive during the call.
 * @param code   A DIPC_ERR_*; any other number becomes DIPC_ERR_PROVIDER.
 * @param text   UTF-8; copied.
 * @param error  May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK, also if the put is over. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT:
 *         text is not UTF-8.
 */
dipc_status dipc_put_fail(struct dipc_put *put,
                          int32_t code,
                          const char *text,
                          struct dipc_error **error);

/**
 * Gives the headers of the server's answers so far.
 *
 * @param put    Put; exclusive during the call.
 * @param out    Receives the headers, to be freed by dipc_headers_free().
 * @param error  May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_put_headers(struct dipc_put *put,
                             struct dipc_headers **out,
                             struct dipc_error **error);

/**
 * Gives a descriptor for an event loop. It is readable at first. After a call with timeout_ns 0
 * has returned DIPC_ERR_TIMEOUT, it becomes readable when it is useful to call again. Once the put
 * is over, it stays readable.
 *
 * @param put    Put; exclusive during the call.
 * @param out    Receives the descriptor. It is the put's, which closes it; it is not to be read or
 *               closed.
 * @param error  May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_OUT_OF_RESOURCES: no descriptor is left.
 */
dipc_status dipc_put_fd(struct dipc_put *put, int *out, struct dipc_error **error);

/**
 * Frees a put. NULL does nothing. A table that is not finished fails. Batches that the server
 * still has are released when it gives them back, or when its process has ended.
 *
 * @param put  Put, or NULL; no call on it is running.
 */
void dipc_put_free(struct dipc_put *put);

/**
 * Asks a server to take a table, and waits for its answer. Nothing of a batch is encoded or sent
 * before the server has accepted. Then dipc_put_next_result() and dipc_put_finish() pull the
 * batches of source and send them.
 *
 * A server takes tables by its handler (dipc_server_set_handler()).
 *
 * @param client                Client.
 * @param uris                  One string: the server's URI.
 * @param n_uris                1.
 * @param descriptor            Name of the table for the server's host: any bytes, at most
 *                              1016 KiB.
 * @param descriptor_len_bytes  Length of descriptor.
 * @param options               Copied; NULL: the defaults.
 * @param cancel                Token that ends this call and the put's calls; may be NULL. It may
 *                              be freed before the put.
 * @param source                Moved on success: its release becomes NULL. It is released when the
 *                              last batch has been pulled, or with the put.
 * @param out                   Receives the put, to be freed by dipc_put_free().
 * @param error                 May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. Otherwise the caller still owns source. As dipc_client_get(), and the status
 *         with which the server's host refuses the table. DIPC_ERR_UNSUPPORTED: the server takes
 *         no tables. DIPC_ERR_INVALID_DATA: the schema of source is invalid.
 */
dipc_status dipc_client_put(const struct dipc_client *client,
                            const char *const *uris,
                            size_t n_uris,
                            const uint8_t *descriptor,
                            size_t descriptor_len_bytes,
                            const struct dipc_put_options *options,
                            const struct dipc_cancel *cancel,
                            struct ArrowDeviceArrayStream *source,
                            struct dipc_put **out,
                            struct dipc_error **error);

/**
 * Push form of dipc_client_put(): asks a server to take a table of this schema, and waits for its
 * answer. Then dipc_put_push() sends batch after batch, and dipc_put_finish() ends the table.
 *
 * @param client                Client.
 * @param uris                  One string: the server's URI.
 * @param n_uris                1.
 * @param descriptor            As for dipc_client_put().
 * @param descriptor_len_bytes  Length of descriptor.
 * @param options               Copied; NULL: the defaults.
 * @param cancel                As for dipc_client_put().
 * @param schema                Read, not moved.
 * @param device_type           Device of the batches, for example ARROW_DEVICE_CPU.
 * @param out                   Receives the put, to be freed by dipc_put_free().
 * @param error                 May be NULL; on failure receives details for dipc_error_free().
 * @return As dipc_client_put(). DIPC_ERR_UNSUPPORTED: this process cannot read the device.
 */
dipc_status dipc_client_put_open(const struct dipc_client *client,
                                 const char *const *uris,
                                 size_t n_uris,
                                 const uint8_t *descriptor,
                                 size_t descriptor_len_bytes,
                                 const struct dipc_put_options *options,
                                 const struct dipc_cancel *cancel,
                                 const struct ArrowSchema *schema,
                                 int32_t device_type,
                                 struct dipc_put **out,
                                 struct dipc_error **error);

/**
 * Exchanges tables with a server over one connection: sends a table batch by batch, and receives
 * the server's table at the same time. Waits until the server accepts. Then dipc_put_push() and
 * dipc_put_finish() send, and the stream answers receives; two threads may do so at once. Either
 * table may end first. dipc_put_finish() waits until the server's host has ended its own table and
 * has read all of the client's table. Read answers to its end before this call or, on another
 * thread, during it.
 *
 * An error at either side ends both tables at both sides. So does the release of answers before
 * its end, and dipc_put_free() before dipc_put_finish().
 *
 * @param client                Client.
 * @param uris                  One string: the server's URI.
 * @param n_uris                1.
 * @param descriptor            As for dipc_client_put().
 * @param descriptor_len_bytes  Length of descriptor.
 * @param options               Of the table that is sent. Copied; NULL: the defaults.
 * @param answer_options        Of the server's table. Only window, validation, lent limit, stall
 *                              timeout and spinning have an effect. Copied; NULL: the defaults.
 * @param cancel                As for dipc_client_put().
 * @param schema                Of the table that is sent. Read, not moved.
 * @param device_type           Device of the batches, for example ARROW_DEVICE_CPU.
 * @param out                   Receives the put, to be freed by dipc_put_free().
 * @param answers               Receives the stream of the server's table, on the host. Its
 *                              get_schema waits for the server's schema. An old value is
 *                              overwritten, not released.
 * @param error                 May be NULL; on failure receives details for dipc_error_free().
 * @return As dipc_client_put_open(). DIPC_ERR_UNSUPPORTED: the server exchanges no tables.
 */
dipc_status dipc_client_exchange(const struct dipc_client *client,
                                 const char *const *uris,
                                 size_t n_uris,
                                 const uint8_t *descriptor,
                                 size_t descriptor_len_bytes,
                                 const struct dipc_put_options *options,
                                 const struct dipc_get_options *answer_options,
                                 const struct dipc_cancel *cancel,
                                 const struct ArrowSchema *schema,
                                 int32_t device_type,
                                 struct dipc_put **out,
                                 struct ArrowDeviceArrayStream *answers,
                                 struct dipc_error **error);

/**
 * Makes options with the default values. Each setter names its default.
 *
 * @param out    Receives the options, to be freed by dipc_put_options_free().
 * @param error  May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_put_options_new(struct dipc_put_options **out, struct dipc_error **error);

/**
 * Sets how long the server may take from the connection to its first answer. Default: 10 s. A
 * silent server fails the put after this time. The limit does not apply while the server's host
 * decides whether to take the table: only the stall timeout and the deadline end that wait.
 *
 * @param options  Options to change; exclusive during the call.
 * @param connect_timeout_ns  Nanoseconds.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_put_options_set_connect_timeout_ns(struct dipc_put_options *options,
                                                    uint64_t connect_timeout_ns,
                                                    struct dipc_error **error);

/**
 * Sets how long the server may neither take data nor send anything while the client waits for it.
 * After that the stream fails with DIPC_ERR_TIMEOUT. Default: DIPC_FOREVER.
 *
 * @param options  Options to change; exclusive during the call.
 * @param stall_timeout_ns  Nanoseconds, or DIPC_FOREVER.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_put_options_set_stall_timeout_ns(struct dipc_put_options *options,
                                                  uint64_t stall_timeout_ns,
                                                  struct dipc_error **error);

/**
 * Sets how long the whole stream may take, from the request on. After that it fails with
 * DIPC_ERR_TIMEOUT. The server's host sees the time that is left. Default: DIPC_FOREVER.
 *
 * @param options  Options to change; exclusive during the call.
 * @param deadline_ns  Nanoseconds, or DIPC_FOREVER.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_put_options_set_deadline_ns(struct dipc_put_options *options,
                                             uint64_t deadline_ns,
                                             struct dipc_error **error);

/**
 * Sets headers for the server's host, and replaces headers set before. Default: none.
 *
 * @param options  Options to change; exclusive during the call.
 * @param headers  Copied. At most 64 KiB in all, 5 bytes for each pair included.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the headers are too
 *         long.
 */
dipc_status dipc_put_options_set_headers(struct dipc_put_options *options,
                                         const struct dipc_headers *headers,
                                         struct dipc_error **error);

/**
 * Sends the header `authorization` also where others may read the connection, like
 * dipc_get_options_set_send_secrets(). Default: false.
 *
 * @param options  Options to change; exclusive during the call.
 * @param send_secrets  Whether to send it.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_put_options_set_send_secrets(struct dipc_put_options *options,
                                              bool send_secrets,
                                              struct dipc_error **error);

/**
 * Makes each message carry a checksum that the receiver checks, like
 * dipc_get_options_set_checksums(). In an exchange this option applies to both directions.
 * Default: false.
 *
 * @param options    Options to change; exclusive during the call.
 * @param checksums  Whether to check.
 * @param error      May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_put_options_set_checksums(struct dipc_put_options *options,
                                           bool checksums,
                                           struct dipc_error **error);

/**
 * Sets how bodies travel, like dipc_server_options_set_body(). Default: DIPC_BODY_AUTO.
 *
 * @param options  Options to change; exclusive during the call.
 * @param policy  DIPC_BODY_AUTO, DIPC_BODY_PACKED or DIPC_BODY_LENT.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: unknown.
 */
dipc_status dipc_put_options_set_body(struct dipc_put_options *options,
                                      int32_t policy,
                                      struct dipc_error **error);

/**
 * Sets the compression of bodies. Compressed bodies travel as bytes. Default:
 * DIPC_COMPRESSION_NONE.
 *
 * @param options  Options to change; exclusive during the call.
 * @param compression  DIPC_COMPRESSION_NONE, DIPC_COMPRESSION_LZ4 or DIPC_COMPRESSION_ZSTD.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: unknown.
 */
dipc_status dipc_put_options_set_compression(struct dipc_put_options *options,
                                             int32_t compression,
                                             struct dipc_error **error);

/**
 * Sets how many connections carry the stream, like dipc_get_options_set_connections(). Default: 1.
 *
 * @param options  Options to change; exclusive during the call.
 * @param connections  1 to 16.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: not 1 to 16.
 */
dipc_status dipc_put_options_set_connections(struct dipc_put_options *options,
                                             uint16_t connections,
                                             struct dipc_error **error);

/**
 * Frees options. NULL does nothing.
 *
 * @param options  Options, or NULL; no call on them is running.
 */
void dipc_put_options_free(struct dipc_put_options *options);

/**
 * dipc_client_put_open() without waiting, for event loops. Threads of the client connect and wait
 * for the server, as for dipc_client_start(). dipc_pending_try_put() gives the put.
 *
 * @param client                Client.
 * @param uris                  One string: the server's URI.
 * @param n_uris                1.
 * @param descriptor            As for dipc_client_put().
 * @param descriptor_len_bytes  Length of descriptor.
 * @param options               Copied; NULL: the defaults.
 * @param cancel                As for dipc_client_start().
 * @param schema                Read, not moved.
 * @param device_type           Device of the batches, for example ARROW_DEVICE_CPU.
 * @param out                   Receives the request, to be freed by dipc_pending_free().
 * @param error                 May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK: the request gets every later failure. DIPC_ERR_NULL_ARGUMENT.
 *         DIPC_ERR_INVALID_URI. DIPC_ERR_INVALID_ARGUMENT: schema is released.
 *         DIPC_ERR_INVALID_DATA: schema is invalid. DIPC_ERR_UNSUPPORTED: the IPC format cannot
 *         express schema, or the URI is that of a server that takes no tables.
 *         DIPC_ERR_OUT_OF_RESOURCES: no threads or descriptors are left.
 */
dipc_status dipc_client_start_put(const struct dipc_client *client,
                                  const char *const *uris,
                                  size_t n_uris,
                                  const uint8_t *descriptor,
                                  size_t descriptor_len_bytes,
                                  const struct dipc_put_options *options,
                                  const struct dipc_cancel *cancel,
                                  const struct ArrowSchema *schema,
                                  int32_t device_type,
                                  struct dipc_pending **out,
                                  struct dipc_error **error);

/**
 * dipc_client_exchange() without waiting, for event loops. Threads of the client connect and wait
 * for the server, as for dipc_client_start(). dipc_pending_try_exchange() gives the two tables.
 *
 * @param client                Client.
 * @param uris                  One string: the server's URI.
 * @param n_uris                1.
 * @param descriptor            As for dipc_client_put().
 * @param descriptor_len_bytes  Length of descriptor.
 * @param options               Of the table that is sent. Copied; NULL: the defaults.
 * @param answer_options        Of the server's table, as for dipc_client_exchange(). Copied; NULL:
 *                              the defaults.
 * @param cancel                As for dipc_client_start().
 * @param schema                Of the table that is sent. Read, not moved.
 * @param device_type           Device of the batches, for example ARROW_DEVICE_CPU.
 * @param out                   Receives the request, to be freed by dipc_pending_free().
 * @param error                 May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK: the request gets every later failure. DIPC_ERR_NULL_ARGUMENT.
 *         DIPC_ERR_INVALID_URI. DIPC_ERR_INVALID_ARGUMENT: schema is released.
 *         DIPC_ERR_INVALID_DATA: schema is invalid. DIPC_ERR_UNSUPPORTED: the IPC format cannot
 *         express schema, or the URI is that of a server that takes no tables.
 *         DIPC_ERR_OUT_OF_RESOURCES: no threads or descriptors are left.
 */
dipc_status dipc_client_start_exchange(const struct dipc_client *client,
                                       const char *const *uris,
                                       size_t n_uris,
                                       const uint8_t *descriptor,
                                       size_t descriptor_len_bytes,
                                       const struct dipc_put_options *options,
                                       const struct dipc_get_options *answer_options,
                                       const struct dipc_cancel *cancel,
                                       const struct ArrowSchema *schema,
                                       int32_t device_type,
                                       struct dipc_pending **out,
                                       struct dipc_error **error);

/**
 * Tells whether the put is over: finished, failed, cancelled or too late. If it is,
 * DIPC_ERR_TIMEOUT means that the put has failed, and another call does not help.
 *
 * @param put  Put, or NULL.
 * @return true if it is; true for NULL and in the child of a fork.
 */
bool dipc_put_is_over(const struct dipc_put *put);

/**
 * Reads one figure of a put.
 *
 * @param put    Put.
 * @param stat   DIPC_PUT_STAT_*.
 * @param out    Receives the figure.
 * @param error  May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the library does not have
 *         this figure; it may be older than the header.
 */
dipc_status dipc_put_stat(const struct dipc_put *put,
                          int32_t stat,
                          uint64_t *out,
                          struct dipc_error **error);

/**
 * Gives the ticket that the client asked for.
 *
 * @param request        Request.
 * @param buffer         Receives the ticket, without a NUL; NULL asks for the length only.
 * @param size_bytes     Size of buffer.
 * @param out_len_bytes  Receives the length of the ticket.
 * @param error          May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is still
 *         written.
 */
dipc_status dipc_request_ticket(const struct dipc_request *request,
                                uint8_t *buffer,
                                size_t size_bytes,
                                size_t *out_len_bytes,
                                struct dipc_error **error);

/**
 * Describes the client, for logs: "pid 4711, uid 1000".
 *
 * @param request        Request.
 * @param buffer         Receives the text and a NUL; NULL asks for the length only.
 * @param size_bytes     Size of buffer.
 * @param out_len_bytes  Receives the length of the text, without the NUL.
 * @param error          May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is still
 *         written.
 */
dipc_status dipc_request_peer(const struct dipc_request *request,
                              char *buffer,
                              size_t size_bytes,
                              size_t *out_len_bytes,
                              struct dipc_error **error);

/**
 * Tells whether the client has gone or has cancelled. Further batches are then not sent.
 *
 * @param request  Request, or NULL.
 * @return true if it has; true for NULL and in the child of a fork.
 */
bool dipc_request_is_cancelled(const struct dipc_request *request);

/**
 * Gives a descriptor that becomes readable (POLLIN) when dipc_request_is_cancelled() becomes true.
 * A provider that waits can poll() it together with its other descriptors.
 *
 * Each call gives the same descriptor. Do not close, read or write it. It is valid until the
 * request is freed or, for a provider, until its stream is released. Use dup() to keep it longer.
 *
 * @param request  Request.
 * @param out_fd   Receives the descriptor.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_OUT_OF_RESOURCES: no file descriptor is left.
 */
dipc_status dipc_request_cancel_fd(const struct dipc_request *request,
                                   int32_t *out_fd,
                                   struct dipc_error **error);

/**
 * Pull form: sends the schema. Call it before the first batch, with the schema of the whole table,
 * unless the host has called dipc_request_take_selection().
 *
 * @param request      Request.
 * @param schema       Read, not moved.
 * @param device_type  Device of the batches, for example ARROW_DEVICE_CPU.
 * @param error        May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: called twice, a provider's
 *         request, or the client has selected columns that the schema does not have; then the
 *         client has got the error. DIPC_ERR_INVALID_DATA: the schema is invalid.
 *         DIPC_ERR_UNSUPPORTED: this process cannot read the device. DIPC_ERR_CANCELLED,
 *         DIPC_ERR_DISCONNECTED: the client is gone.
 */
dipc_status dipc_request_start(const struct dipc_request *request,
                               const struct ArrowSchema *schema,
                               int32_t device_type,
                               struct dipc_error **error);

/**
 * Pull form: sends a batch, or the part of it that the client has selected. Waits for the batch's
 * sync_event, and for a slow client. If the client wants no rows of the batch, nothing is sent.
 *
 * @param request             Request.
 * @param batch               Moved on success: its release becomes NULL. After the client has
 *                            given it back, dipc_server_drain_releases() releases it.
 * @param metadata            Custom metadata of the batch, encoded as in ArrowSchema; NULL: none.
 * @param metadata_len_bytes  Length of metadata.
 * @param timeout_ns          Most nanoseconds to wait; DIPC_FOREVER: no limit; 0: no wait, and
 *                            dipc_request_fd() tells when there is room.
 * @param error               May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. Otherwise the caller still owns the batch. DIPC_ERR_NULL_ARGUMENT.
 *         DIPC_ERR_TIMEOUT: the client was too slow; call again. DIPC_ERR_INVALID_ARGUMENT: not
 *         started, or a provider's request. DIPC_ERR_INVALID_DATA: the batch is invalid; the
 *         stream has failed. DIPC_ERR_CANCELLED, DIPC_ERR_DISCONNECTED: the client is gone.
 */
dipc_status dipc_request_push(const struct dipc_request *request,
                              struct ArrowDeviceArray *batch,
                              const uint8_t *metadata,
                              size_t metadata_len_bytes,
                              uint64_t timeout_ns,
                              struct dipc_error **error);

/**
 * Pull form: completes the stream. Waits until the last batches have been sent.
 *
 * @param request     Request.
 * @param timeout_ns  Most nanoseconds to wait; DIPC_FOREVER: no limit.
 * @param error       May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_TIMEOUT: call again.
 *         DIPC_ERR_INVALID_ARGUMENT: not started, failed, or a provider's request.
 *         DIPC_ERR_CANCELLED, DIPC_ERR_DISCONNECTED: the client is gone.
 */
dipc_status dipc_request_finish(const struct dipc_request *request,
                                uint64_t timeout_ns,
                                struct dipc_error **error);

/**
 * Fails the stream with a reason. The client's error text is "the server: " and the reason; its
 * dipc_error_source() has the reason alone.
 *
 * Pull form: the stream ends now. A call on another thread that waits for the client returns
 * DIPC_ERR_CANCELLED.
 *
 * Undecided request (dipc_request_is_undecided()): refuses it. Any other number than a DIPC_ERR_*
 * becomes DIPC_ERR_PERMISSION.
 *
 * Provider: return non-zero afterwards, or an errno from the stream. The client gets the reason
 * given here, even if the provider then returns 0 and the stream ends well.
 *
 * @param request  Request.
 * @param code     A DIPC_ERR_*, which the client also gets. Any other number becomes
 *                 DIPC_ERR_PROVIDER for the client, and so do the statuses about the caller's own
 *                 pointers, handles and process: NULL_ARGUMENT, FORKED, PANIC, POISONED,
 *                 BUFFER_TOO_SMALL.
 * @param text     UTF-8; copied.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: text is not UTF-8.
 */
dipc_status dipc_request_fail(const struct dipc_request *request,
                              int32_t code,
                              const char *text,
                              struct dipc_error **error);

/**
 * Frees a request of the pull form. If it is not finished its stream fails. NULL does nothing. A
 * provider's request stays with the library.
 *
 * @param request  Request, or NULL; no call on it is running.
 */
void dipc_request_free(struct dipc_request *request);

/**
 * The verb of a request.
 *
 * @param request  Request, or NULL.
 * @return DIPC_VERB_*; 0 for NULL and in the child of a fork.
 */
int32_t dipc_request_verb(const struct dipc_request *request);

/**
 * How long the client still waits for the end of the stream.
 *
 * @param request  Request, or NULL.
 * @return Nanoseconds; DIPC_FOREVER if the client has set no deadline; 0 once it has passed, for
 *         NULL and in the child of a fork.
 */
uint64_t dipc_request_time_left_ns(const struct dipc_request *request);

/**
 * The headers of a request.
 *
 * @param request  Request.
 * @param out      Receives a copy of the headers, to be freed by dipc_headers_free().
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_request_headers(const struct dipc_request *request,
                                 struct dipc_headers **out,
                                 struct dipc_error **error);

/**
 * Adds headers to the answer of a request. The client gets them with the schema. Headers that are
 * added later reach the client only if the stream fails. A client gets no headers at all if it
 * does not know headers, or if its request fails before the schema, because then it has no stream.
 *
 * @param request  Request.
 * @param headers  Copied. One answer has at most 32 KiB, 5 bytes for each pair included.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: more than 32 KiB, or the
 *         stream is over.
 */
dipc_status dipc_request_add_headers(const struct dipc_request *request,
                                     const struct dipc_headers *headers,
                                     struct dipc_error **error);

/**
 * Sets how long the whole stream may take, from the request on. After that it fails with
 * DIPC_ERR_TIMEOUT. The server's host sees the time that is left (dipc_request_time_left_ns()).
 * Until the deadline the client asks a busy server again. Default: DIPC_FOREVER; then it asks a
 * busy server only once.
 *
 * @param options      Options to change; exclusive during the call.
 * @param deadline_ns  Nanoseconds, or DIPC_FOREVER. 0: the deadline has passed when the stream
 *                     begins.
 * @param error        May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_get_options_set_deadline_ns(struct dipc_get_options *options,
                                             uint64_t deadline_ns,
                                             struct dipc_error **error);

/**
 * Sends the header `authorization` also where others may read the connection: over tcp beyond the
 * loopback interface, and over ucx. Default false: a request with that header fails there with
 * DIPC_ERR_PERMISSION, and nothing is sent.
 *
 * @param options       Options to change; exclusive during the call.
 * @param send_secrets  Whether to send it.
 * @param error         May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_get_options_set_send_secrets(struct dipc_get_options *options,
                                              bool send_secrets,
                                              struct dipc_error **error);

/**
 * Makes each message carry a checksum (CRC-32C) that the receiver checks, over the transports
 * where a network could change a message unseen: tcp and ucx. The option has no effect over shm,
 * where nothing leaves the machine, and over tls, which has its own checks. A stream whose bytes
 * were changed fails: with DIPC_ERR_PROTOCOL if this side sees the change, and with
 * DIPC_ERR_DISCONNECTED if the server sees it; the reason is then in the server's log. With
 * checksums, bodies travel as bytes from and to host memory, also over ucx. Default: false. A
 * server without libdipc's extension is refused with DIPC_ERR_UNSUPPORTED.
 *
 * @param options    Options to change; exclusive during the call.
 * @param checksums  Whether to check.
 * @param error      May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_get_options_set_checksums(struct dipc_get_options *options,
                                           bool checksums,
                                           struct dipc_error **error);

/**
 * Lets dipc_client_get_parts() connect to ucx addresses of other servers that a description names.
 * Peers of ucx can read and write this process's memory. Default false.
 *
 * @param options          Options to change; exclusive during the call.
 * @param trusted_network  Whether every process that such a description can name is trusted.
 * @param error            May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_get_options_set_trusted_network(struct dipc_get_options *options,
                                                 bool trusted_network,
                                                 struct dipc_error **error);

/**
 * Sets headers for the server's host, and replaces headers set before. Default: none. A server
 * that does not know headers refuses the request with DIPC_ERR_UNSUPPORTED.
 *
 * @param options  Options to change; exclusive during the call.
 * @param headers  Copied. At most 64 KiB in all, 5 bytes for each pair included.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: more than 64 KiB.
 */
dipc_status dipc_get_options_set_headers(struct dipc_get_options *options,
                                         const struct dipc_headers *headers,
                                         struct dipc_error **error);

/**
 * A number of the client's process, as the system gave it when the client connected.
 *
 * @param request  Request, or NULL.
 * @param which    DIPC_PEER_*.
 * @return The number; -1 for a client that came over a network, for an unknown which, for NULL and
 *         in the child of a fork.
 */
int64_t dipc_request_peer_id(const struct dipc_request *request, int32_t which);

/**
 * The transport by which the client came: "shm", "tls", "tcp" or "ucx".
 *
 * @param request        Request.
 * @param buffer         Receives the text and a NUL; NULL asks for the length only.
 * @param size_bytes     Size of buffer.
 * @param out_len_bytes  Receives the length of the text, without the NUL.
 * @param error          May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is written all
 *         the same.
 */
dipc_status dipc_request_peer_transport(const struct dipc_request *request,
                                        char *buffer,
                                        size_t size_bytes,
                                        size_t *out_len_bytes,
                                        struct dipc_error **error);

/**
 * The client's address: "10.0.0.7:40112". The port does not show which user the client belongs to.
 *
 * @param request        Request.
 * @param buffer         Receives the text and a NUL; NULL asks for the length only.
 * @param size_bytes     Size of buffer.
 * @param out_len_bytes  Receives the length of the text, without the NUL.
 * @param error          May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_NOT_FOUND: the client came by shm, which has
 *         no addresses. DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is written all the same.
 */
dipc_status dipc_request_peer_address(const struct dipc_request *request,
                                      char *buffer,
                                      size_t size_bytes,
                                      size_t *out_len_bytes,
                                      struct dipc_error **error);

/**
 * Gives the schema of the table that the client sends, so that the host can decide whether to
 * accept the table. Waits for the schema, which the client sends right after the request.
 *
 * @param request  Request with DIPC_VERB_PUT or DIPC_VERB_EXCHANGE.
 * @param out      Receives the schema, to be released. An old value is overwritten.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the client sends no table,
 *         or dipc_request_source() has taken it. DIPC_ERR_CANCELLED, DIPC_ERR_DISCONNECTED: the
 *         client is gone. DIPC_ERR_PROTOCOL.
 */
dipc_status dipc_request_source_schema(const struct dipc_request *request,
                                       struct ArrowSchema *out,
                                       struct dipc_error **error);

/**
 * Accepts the table that the client sends, and gives it as a stream: from now on the client sends
 * batches, as fast as the host reads. The arrays outlive the request and the client.
 *
 * The host reads the stream to its end, then answers. For DIPC_VERB_PUT a provider returns 0 and
 * leaves its `out` alone; for DIPC_VERB_EXCHANGE it ends the stream that it gave; a host of the
 * pull form calls dipc_request_finish(). Anything else, such as an error or an answer before the
 * end of the stream, fails the table for the client. If the client goes or fails the table, the
 * stream ends with an error, never as if it were complete.
 *
 * dipc_stream_status(), dipc_stream_stat(), dipc_stream_metadata(), dipc_stream_fd() and
 * dipc_stream_try_next() work with the stream.
 *
 * @param request  Request with DIPC_VERB_PUT or DIPC_VERB_EXCHANGE.
 * @param out      Receives the stream, to be released. An old value is overwritten, not released.
 *                 After the answer its calls fail.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return As dipc_request_source_schema(). DIPC_ERR_INVALID_ARGUMENT: also for a second call.
 */
dipc_status dipc_request_source(const struct dipc_request *request,
                                struct ArrowDeviceArrayStream *out,
                                struct dipc_error **error);

/**
 * Tells the client that a part of its table is safe: whatever happens to the rest, the host has
 * these batches. dipc_put_next_result() gives the client the message.
 *
 * @param request          Request whose table dipc_request_source() has taken.
 * @param batches          Number of batches, from the first on, that are safe.
 * @param bytes            Bytes for the client's host; may be NULL when bytes_len_bytes is 0.
 * @param bytes_len_bytes  Length of bytes, at most 32 KiB.
 * @param error            May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: no table is taken, or bytes
 *         is too long. DIPC_ERR_CANCELLED, DIPC_ERR_DISCONNECTED: the client is gone.
 */
dipc_status dipc_request_result(const struct dipc_request *request,
                                uint64_t batches,
                                const uint8_t *bytes,
                                size_t bytes_len_bytes,
                                struct dipc_error **error);

/**
 * Asks for only some columns of a table. The stream's schema has them in the order of the names.
 * Buffers of other columns are not sent; nothing is copied for that. Default: all columns.
 *
 * The get itself fails with DIPC_ERR_INVALID_ARGUMENT if the table does not have a column, or has
 * several of the name, and with DIPC_ERR_UNSUPPORTED if the server knows no selections: one
 * without libdipc's extension, or of an earlier release.
 *
 * @param options  Options to change; exclusive during the call.
 * @param names    Names of fields of the schema itself, each NUL-terminated UTF-8; copied. May be
 *                 NULL when n_names is 0.
 * @param n_names  Their number, at most 4096. 0: rows without columns.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: a name comes twice or is not
 *         UTF-8, or there are too many, or more than 64 KiB.
 */
dipc_status dipc_get_options_set_columns(struct dipc_get_options *options,
                                         const char *const *names,
                                         size_t n_names,
                                         struct dipc_error **error);

/**
 * Asks for only a range of rows of a table. Batches outside the range are not sent, and the server
 * ends the stream after the last row. Default: all rows. If the table ends earlier, the stream has
 * fewer rows.
 *
 * dipc_client_get_parts() refuses a range, because it counts the rows of one part.
 *
 * @param options    Options to change; exclusive during the call.
 * @param first_row  The first row, counting from 0.
 * @param rows       The number of rows; DIPC_ALL_ROWS: all up to the end.
 * @param error      May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_get_options_set_range(struct dipc_get_options *options,
                                       uint64_t first_row,
                                       uint64_t rows,
                                       struct dipc_error **error);

/**
 * Asks for only the rows that pass a filter, which the server evaluates: other rows are not sent.
 * A range counts the rows that pass, and the filter may read columns that are not asked for.
 * Default: all rows.
 *
 * The get itself fails with DIPC_ERR_INVALID_ARGUMENT if the table does not have a column, or a
 * row has no result (a division by zero); with DIPC_ERR_UNSUPPORTED if filters do not support a
 * function or a type (the text has its name), if the table is in a GPU's memory, and if the server
 * knows no filters.
 *
 * @param options  Options to change; exclusive during the call.
 * @param message  A substrait.ExtendedExpression with one expression, which gives booleans, as
 *                 bytes of protobuf; copied. Null counts as false. pyarrow makes it by
 *                 Expression.to_substrait().
 * @param len      Bytes of the message, at most 64 KiB.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: no bytes, or too many.
 */
dipc_status dipc_get_options_set_filter(struct dipc_get_options *options,
                                        const uint8_t *message,
                                        size_t len,
                                        struct dipc_error **error);

/**
 * Says whether the client of a request wants only some columns (dipc_get_options_set_columns()).
 * The host gives all columns, and the library sends those that are wanted, unless the host calls
 * dipc_request_take_selection().
 *
 * @param request  Request, or NULL.
 * @return true if the client has named columns: dipc_request_column_count() of them. false for
 *         NULL and in the child of a fork.
 */
bool dipc_request_selects_columns(const struct dipc_request *request);

/**
 * Counts the columns that the client of a request has named.
 *
 * @param request  Request, or NULL.
 * @return The number. 0 also if dipc_request_selects_columns() is false: then the client wants all
 *         columns.
 */
size_t dipc_request_column_count(const struct dipc_request *request);

/**
 * Gives the name of one column that the client of a request wants.
 *
 * @param request        Request.
 * @param index          Which column, from 0, in the order of the result.
 * @param buffer         Receives the name and a NUL; NULL asks for the length only.
 * @param size_bytes     Size of buffer.
 * @param out_len_bytes  Receives the length of the name, without the NUL.
 * @param error          May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_NOT_FOUND: there is no such column.
 *         DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is still written.
 */
dipc_status dipc_request_column(const struct dipc_request *request,
                                size_t index,
                                char *buffer,
                                size_t size_bytes,
                                size_t *out_len_bytes,
                                struct dipc_error **error);

/**
 * Gives the first row that the client of a request wants (dipc_get_options_set_range()).
 *
 * @param request  Request, or NULL.
 * @return The row, counting from 0; 0 for NULL and in the child of a fork.
 */
uint64_t dipc_request_first_row(const struct dipc_request *request);

/**
 * Gives the number of rows that the client of a request wants (dipc_get_options_set_range()).
 *
 * @param request  Request, or NULL.
 * @return Rows; DIPC_ALL_ROWS: all up to the end, also for NULL and in the child of a fork.
 */
uint64_t dipc_request_rows(const struct dipc_request *request);

/**
 * Gives the filter of a request's client (dipc_get_options_set_filter()): the client wants only
 * the rows that pass it.
 *
 * @param request        Request.
 * @param buffer         Receives the bytes of a substrait.ExtendedExpression. The library has not
 *                       checked them. NULL asks for the length only.
 * @param size_bytes     Size of buffer.
 * @param out_len_bytes  Receives the length; 0: all rows pass.
 * @param error          May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is still
 *         written.
 */
dipc_status dipc_request_filter(const struct dipc_request *request,
                                uint8_t *buffer,
                                size_t size_bytes,
                                size_t *out_len_bytes,
                                struct dipc_error **error);

/**
 * Declares that the host selects itself: the stream that it gives for the request has only the
 * wanted columns, in their order, and only the wanted rows. This is for hosts that can then read
 * less, for example from a file. If a host does not call this, it gives the whole table, and the
 * library selects from it without a copy.
 *
 * @param request  Request, before its stream begins: before dipc_request_start(), or before a
 *                 provider's stream gives its schema.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK, also if the client selects nothing. DIPC_ERR_NULL_ARGUMENT.
 *         DIPC_ERR_INVALID_ARGUMENT: the stream has begun.
 */
dipc_status dipc_request_take_selection(const struct dipc_request *request,
                                        struct dipc_error **error);

/**
 * Says whether all rows that the client of a request has asked for were pushed, in the pull form.
 * Batches that are pushed later are released, and the host may call dipc_request_finish().
 *
 * @param request  Request, or NULL.
 * @return true if so. false for a client that has not limited the rows, for a provider's request,
 *         while another thread pushes, for NULL and in the child of a fork.
 */
bool dipc_request_is_complete(const struct dipc_request *request);

/**
 * Makes a server without tickets. Starts two threads: the first serves connections, the second
 * releases the arrays that clients have given back.
 *
 * @param options  Copied; NULL: the defaults.
 * @param out      Receives the server, to be freed by dipc_server_free().
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_OUT_OF_RESOURCES: no threads or descriptors
 *         are left.
 */
dipc_status dipc_server_new(const struct dipc_server_options *options,
                            struct dipc_server **out,
                            struct dipc_error **error);

/**
 * Listens at an address, and gives the URI for clients. A server may listen at several addresses.
 *
 * @param server         Server.
 * @param uri            "shm:/path" or "shm:@name": for processes of this host, by a socket in the
 *                       file system or an abstract one. "tls://host:port", "tcp://host:port",
 *                       "ucx://host:port": for other hosts too; port 0 takes a free one. May
 *                       set tags of its own (want_data=N).
 * @param buffer         Receives the URI for clients and a NUL; NULL if it is not wanted.
 * @param size_bytes     Size of buffer: at least DIPC_URI_BYTES, or 0 with a NULL buffer.
 * @param out_len_bytes  Receives the length of the URI, without the NUL.
 * @param error          May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is
 *         DIPC_URI_BYTES and the server does not listen. DIPC_ERR_INVALID_URI.
 *         DIPC_ERR_UNSUPPORTED: this machine lacks the transport. DIPC_ERR_ADDRESS_IN_USE: a live
 *         server listens there. DIPC_ERR_PERMISSION. DIPC_ERR_STOPPED. On tls also
 *         DIPC_ERR_INVALID_ARGUMENT, DIPC_ERR_NOT_FOUND, DIPC_ERR_IO: its files cannot be used.
 */
dipc_status dipc_server_listen(const struct dipc_server *server,
                               const char *uri,
                               char *buffer,
                               size_t size_bytes,
                               size_t *out_len_bytes,
                               struct dipc_error **error);

/**
 * Gives the URI of the server's first address, for one role. A client that needs two URIs, for
 * metadata and for bodies, gets one for each role.
 *
 * @param server         Server.
 * @param role           DIPC_ROLE_BOTH, DIPC_ROLE_METADATA or DIPC_ROLE_DATA.
 * @param buffer         Receives the URI and a NUL; NULL asks for the length only.
 * @param size_bytes     Size of buffer; DIPC_URI_BYTES is always enough.
 * @param out_len_bytes  Receives the length of the URI, without the NUL.
 * @param error          May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the role is unknown.
 *         DIPC_ERR_NOT_FOUND: the server does not listen. DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes
 *         is still written.
 */
dipc_status dipc_server_location(const struct dipc_server *server,
                                 int32_t role,
                                 char *buffer,
                                 size_t size_bytes,
                                 size_t *out_len_bytes,
                                 struct dipc_error **error);

/**
 * Pull form: waits for the next request for a ticket of dipc_server_serve_pull(), or for a ticket
 * that dipc_server_set_handler_pull() serves; with dipc_server_options_set_authorizer_pull() also
 * for a request that waits for the host's decision.
 *
 * @param server      Server.
 * @param timeout_ns  Most nanoseconds to wait; 0: do not wait; DIPC_FOREVER: no limit.
 * @param cancel      Token that ends the wait; may be NULL.
 * @param out         Receives the request, to be freed by dipc_request_free().
 * @param error       May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_NOTHING: no request came in time. DIPC_ERR_NULL_ARGUMENT.
 *         DIPC_ERR_CANCELLED: the token was triggered. DIPC_ERR_STOPPED.
 */
dipc_status dipc_server_next_request(const struct dipc_server *server,
                                     uint64_t timeout_ns,
                                     const struct dipc_cancel *cancel,
                                     struct dipc_request **out,
                                     struct dipc_error **error);

/**
 * Pull form: releases, on the calling thread, the arrays that clients have given back. Call it
 * regularly; dipc_server_free() releases the rest.
 *
 * @param server     Server.
 * @param out_count  Receives the number of releases.
 * @param error      May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_server_drain_releases(const struct dipc_server *server,
                                       size_t *out_count,
                                       struct dipc_error **error);

/**
 * Reads one figure of a server.
 *
 * @param server  Server.
 * @param stat    DIPC_SERVER_STAT_*.
 * @param out     Receives the figure.
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the library does not have
 *         this figure; it may be older than the header.
 */
dipc_status dipc_server_stat(const struct dipc_server *server,
                             int32_t stat,
                             uint64_t *out,
                             struct dipc_error **error);

/**
 * Stops a server. From now on it refuses connections and streams. Running streams have until the
 * deadline; then their connections are cut. Arrays that clients hold stay valid. May be called
 * again.
 *
 * Before the cut, within the deadline, the call waits until the sent data has arrived. Over ucx
 * the server sees this only when the client closes its connection. Clients of libdipc do so when
 * they hear of the stop. Other clients have a quarter of a second.
 *
 * @param server       Server.
 * @param deadline_ns  Nanoseconds from now; 0: cut at once; DIPC_FOREVER: wait for every stream.
 * @param error        May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_TIMEOUT: after the cut a provider still did
 *         not return. It is not called again; its finalizer runs after it returns.
 */
dipc_status dipc_server_stop(const struct dipc_server *server,
                             uint64_t deadline_ns,
                             struct dipc_error **error);

/**
 * Stops a server at once if it is running, and frees it. NULL does nothing. The call does not wait
 * for providers: the finalizer of a running provider runs after the provider returns.
 *
 * Lent arrays on a GPU are released, on a thread of the library, when the client's process has
 * ended. Over ucx, arrays that are being sent are never released if UCX does not close the
 * connection within a second; the log reports this.
 *
 * @param server  Server, or NULL; no call on it is running.
 */
void dipc_server_free(struct dipc_server *server);

/**
 * Sets the function that decides about each request. Default: whoever can connect may do
 * everything.
 *
 * @param options     Options to change; exclusive during the call.
 * @param authorizer  Called for each request, as dipc_authorizer says. NULL: the default.
 * @param userdata    Given to authorizer and finalizer; may be NULL.
 * @param finalizer   Called once, when the options and every server made with them have been
 *                    freed, or the options have another authorizer, and the last call has
 *                    returned; may be NULL. Not used if authorizer is NULL.
 * @param error       May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK: the library calls the finalizer. Otherwise it does not.
 *         DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_server_options_set_authorizer(struct dipc_server_options *options,
                                               dipc_authorizer authorizer,
                                               void *userdata,
                                               dipc_finalizer finalizer,
                                               struct dipc_error **error);

/**
 * Pull form: dipc_server_next_request() gives each request twice, first for the decision about it,
 * as dipc_authorizer says. dipc_request_is_undecided() tells the two apart. The host answers by
 * dipc_request_allow(), or refuses by dipc_request_fail(), and frees the request; freeing alone
 * refuses it. This is for hosts whose functions a library cannot call. Default: false. No effect
 * if the options have an authorizer.
 *
 * @param options  Options to change; exclusive during the call.
 * @param pulled   Whether the host decides in the pull form. It must then take requests even if no
 *                 ticket is served in the pull form, because clients wait for the decision.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_server_options_set_authorizer_pull(struct dipc_server_options *options,
                                                    bool pulled,
                                                    struct dipc_error **error);

/**
 * Pull form: tells whether a request waits for the host's decision.
 *
 * @param request  Request, or NULL.
 * @return true until dipc_request_allow() or dipc_request_fail(), if
 *         dipc_server_options_set_authorizer_pull() asks for decisions; false for any other
 *         request and for NULL.
 */
bool dipc_request_is_undecided(const struct dipc_request *request);

/**
 * Pull form: allows what a client asks for. Call dipc_request_set_principal() before this, if at
 * all.
 *
 * @param request  Request for which dipc_request_is_undecided() is true; still to be freed.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: there is nothing to decide.
 */
dipc_status dipc_request_allow(const struct dipc_request *request, struct dipc_error **error);

/**
 * Names the client of a request, in an authorizer: handlers see the name by
 * dipc_request_principal().
 *
 * @param request    Request.
 * @param principal  Name of the client; UTF-8.
 * @param error      May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the name is not UTF-8.
 */
dipc_status dipc_request_set_principal(struct dipc_request *request,
                                       const char *principal,
                                       struct dipc_error **error);

/**
 * The name that the server's authorizer has given the client.
 *
 * @param request        Request.
 * @param buffer         Receives the name and a NUL; NULL asks for the length only.
 * @param size_bytes     Size of buffer.
 * @param out_len_bytes  Receives the length of the name, without the NUL.
 * @param error          May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_NOT_FOUND: the authorizer has given no name.
 *         DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is written all the same.
 */
dipc_status dipc_request_principal(const struct dipc_request *request,
                                   char *buffer,
                                   size_t size_bytes,
                                   size_t *out_len_bytes,
                                   struct dipc_error **error);

/**
 * Has a server drain: from now on it refuses requests with DIPC_ERR_BUSY. Streams under way go on.
 * The server goes on listening, so that clients hear the refusal, and dipc_server_stop() ends what
 * is left. May be called again, to name other servers.
 *
 * Clients of libdipc ask the named servers next, by the rules of docs/operation.md. Every client
 * that can connect learns the URIs.
 *
 * @param server  Server.
 * @param uris    n_uris strings: URIs of servers that have the same tickets, best first; may be
 *                NULL when n_uris is 0.
 * @param n_uris  0 to 16.
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_URI. DIPC_ERR_INVALID_ARGUMENT: more
 *         than 16 URIs, or one of more than 1024 bytes. DIPC_ERR_STOPPED.
 */
dipc_status dipc_server_drain(const struct dipc_server *server,
                              const char *const *uris,
                              size_t n_uris,
                              struct dipc_error **error);

/**
 * Tells whether a server takes requests: it listens somewhere, and neither drains nor was stopped.
 * For the readiness checks of an orchestrator.
 *
 * @param server  Server, or NULL.
 * @return true if it does; false for NULL.
 */
bool dipc_server_is_ready(const struct dipc_server *server);

/**
 * Sets the provider for every ticket that the server does not have, such as queries, commands, or
 * keys of partitions. dipc_request_ticket() says what the client wants, and dipc_request_verb()
 * what it wants with it: the table, a description of it, or a list of the tickets that begin with
 * it. A handler that does not know a verb fails the request with DIPC_ERR_UNSUPPORTED. A handler
 * set before is replaced; its streams go on.
 *
 * @param server     Server.
 * @param provider   Called once for each stream, as dipc_provider says. NULL: no handler.
 * @param userdata   Given to provider and finalizer; may be NULL.
 * @param finalizer  Called once, when the handler was replaced or the server freed, and the last
 *                   call has returned; may be NULL. Not used if provider is NULL.
 * @param flags      0, or DIPC_PROVIDER_DETERMINISTIC.
 * @param error      May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK: the library calls the finalizer. Otherwise it does not.
 *         DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: unknown flags. DIPC_ERR_STOPPED.
 */
dipc_status dipc_server_set_handler(const struct dipc_server *server,
                                    dipc_provider provider,
                                    void *userdata,
                                    dipc_finalizer finalizer,
                                    uint32_t flags,
                                    struct dipc_error **error);

/**
 * Serves, in the pull form, every ticket that the server does not have: dipc_server_next_request()
 * gives their requests. A handler set before is replaced.
 *
 * @param server  Server.
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_STOPPED.
 */
dipc_status dipc_server_set_handler_pull(const struct dipc_server *server,
                                         struct dipc_error **error);

/**
 * Sets how many connections the server keeps. Further clients get DIPC_ERR_BUSY. An eighth of the
 * connections, at most 64, is reserved for processes of the server's own user over shm. Default:
 * connections may take half of the files that the process may open (RLIMIT_NOFILE). A connection
 * over shm takes two files, and a connection over tcp takes one for each of its sockets.
 *
 * @param options          Options to change; exclusive during the call.
 * @param max_connections  Connections; at least 1.
 * @param error            May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: 0.
 */
dipc_status dipc_server_options_set_max_connections(struct dipc_server_options *options,
                                                    size_t max_connections,
                                                    struct dipc_error **error);

/**
 * Sets how many connections one other machine may have, or one other user of this machine. Further
 * ones get DIPC_ERR_BUSY. Default: half of max_connections.
 *
 * @param options          Options to change; exclusive during the call.
 * @param max_connections  Connections; at least 1.
 * @param error            May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: 0.
 */
dipc_status dipc_server_options_set_max_connections_per_peer(struct dipc_server_options *options,
                                                             size_t max_connections,
                                                             struct dipc_error **error);

/**
 * Sets how many streams one other machine may have at once, or one other user of this machine.
 * Further ones get DIPC_ERR_BUSY. Default: half of max_streams.
 *
 * @param options      Options to change; exclusive during the call.
 * @param max_streams  Streams; at least 1.
 * @param error        May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: 0.
 */
dipc_status dipc_server_options_set_max_streams_per_peer(struct dipc_server_options *options,
                                                         size_t max_streams,
                                                         struct dipc_error **error);

/**
 * Sets how many streams one connection may carry at once, if the client can have many streams on
 * one connection. A client with more streams opens another connection. Default: max_streams. With
 * 1, each stream has its own connection.
 *
 * @param options      Options to change; exclusive during the call.
 * @param max_streams  Streams; at least 1.
 * @param error        May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: 0.
 */
dipc_status dipc_server_options_set_max_streams_per_connection(struct dipc_server_options *options,
                                                               size_t max_streams,
                                                               struct dipc_error **error);

/**
 * Sets how long a stream may wait for its client while other clients find no place for their
 * streams. A stream waits for its client to take batches, or to send the next batch of a put.
 * After this time the stream fails with DIPC_ERR_TIMEOUT, and its connection ends. While there are
 * places for all, a client may take as long as it likes. Default: 30 s.
 *
 * @param options     Options to change; exclusive during the call.
 * @param timeout_ns  Nanoseconds; DIPC_FOREVER: no limit.
 * @param error       May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: 0.
 */
dipc_status dipc_server_options_set_credit_timeout_ns(struct dipc_server_options *options,
                                                      uint64_t timeout_ns,
                                                      struct dipc_error **error);

/**
 * Sets how much memory all requests of more than 64 KiB together may take before they have arrived
 * completely. A client whose request does not fit is disconnected. Another user may take half of
 * it at most. Default: 64 MiB.
 *
 * @param options    Options to change; exclusive during the call.
 * @param max_bytes  Bytes; 0: no request may have more than 64 KiB.
 * @param error      May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_server_options_set_max_request_bytes(struct dipc_server_options *options,
                                                      uint64_t max_bytes,
                                                      struct dipc_error **error);

/**
 * Sets how long a client may take for the handshake of TLS, and until all sockets of one
 * connection have come. After that the sockets are closed. Default: 10 s.
 *
 * @param options     Options to change; exclusive during the call.
 * @param timeout_ns  Nanoseconds; DIPC_FOREVER: no limit.
 * @param error       May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: 0.
 */
dipc_status dipc_server_options_set_handshake_timeout_ns(struct dipc_server_options *options,
                                                         uint64_t timeout_ns,
                                                         struct dipc_error **error);

/**
 * Sets how long a client may take from its connection to the end of its first request. After that
 * the connection is closed. Default: 30 s.
 *
 * @param options     Options to change; exclusive during the call.
 * @param timeout_ns  Nanoseconds; DIPC_FOREVER: no limit.
 * @param error       May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: 0.
 */
dipc_status dipc_server_options_set_request_timeout_ns(struct dipc_server_options *options,
                                                       uint64_t timeout_ns,
                                                       struct dipc_error **error);

/**
 * Sets how long the server keeps a connection over which the client asks for nothing; it may take
 * twice this time. The server does not close a connection while either side lends memory over it,
 * nor one over which a table was sent to the server. A client of libdipc connects again when it
 * needs to. Default: 10 min.
 *
 * @param options     Options to change; exclusive during the call.
 * @param timeout_ns  Nanoseconds; DIPC_FOREVER: no limit.
 * @param error       May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: 0.
 */
dipc_status dipc_server_options_set_idle_timeout_ns(struct dipc_server_options *options,
                                                    uint64_t timeout_ns,
                                                    struct dipc_error **error);

/**
 * Listens on a socket that listens already, such as one from a service manager (LISTEN_FDS), and
 * gives the URI for clients. The socket's address decides the URI. Other processes that have the
 * socket can go on using it: the server neither shuts it down nor removes its file.
 *
 * @param server         Server.
 * @param scheme         "shm": fd is a Unix stream socket, at a path or an abstract name. "tcp",
 *                       "tls": fd is a TCP socket.
 * @param fd             Descriptor. The server closes it if the call succeeds. The call makes the
 *                       socket non-blocking (O_NONBLOCK), also for other processes that have it.
 * @param buffer         Receives the URI for clients and a NUL; NULL if it is not wanted.
 * @param size_bytes     Size of buffer: at least DIPC_URI_BYTES, or 0 with a NULL buffer.
 * @param out_len_bytes  Receives the length of the URI, without the NUL.
 * @param error          May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is
 *         DIPC_URI_BYTES and the server does not listen. DIPC_ERR_INVALID_ARGUMENT: fd is no such
 *         socket. DIPC_ERR_UNSUPPORTED: another scheme. DIPC_ERR_PERMISSION: others could connect,
 *         as for dipc_server_listen(). DIPC_ERR_STOPPED. DIPC_ERR_OUT_OF_RESOURCES. On tls also
 *         DIPC_ERR_NOT_FOUND, DIPC_ERR_IO: its files cannot be used.
 */
dipc_status dipc_server_listen_fd(const struct dipc_server *server,
                                  const char *scheme,
                                  int32_t fd,
                                  char *buffer,
                                  size_t size_bytes,
                                  size_t *out_len_bytes,
                                  struct dipc_error **error);

/**
 * Makes options with the default values. Each setter names its default.
 *
 * @param out    Receives the options, to be freed by dipc_server_options_free().
 * @param error  May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_server_options_new(struct dipc_server_options **out, struct dipc_error **error);

/**
 * Sets how many streams are served at once. Further requests are refused with DIPC_ERR_BUSY. A
 * client whose request has a deadline asks again until the deadline, and so waits for a place.
 * Each stream of a provider uses one thread. A stream whose client has gone does not count, even
 * if its provider has not returned; dipc_server_options_set_max_providers() limits such streams.
 * An eighth of the streams, 64 at most, is only for processes of the server's own user, by shm.
 * Default: 64.
 *
 * @param options      Options to change; exclusive during the call.
 * @param max_streams  Streams; at least 1.
 * @param error        May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: 0.
 */
dipc_status dipc_server_options_set_max_streams(struct dipc_server_options *options,
                                                size_t max_streams,
                                                struct dipc_error **error);

/**
 * Sets how many streams providers, or the host in the pull form, may work on at once. Streams
 * whose clients have gone count too. Further requests for such tickets are refused with
 * DIPC_ERR_BUSY. Default: max_streams and 64 more.
 *
 * The limit keeps clients from piling up threads in a provider that does not return. A provider
 * that waits should also wait for dipc_request_cancel_fd(). After a cancel the client uses other
 * connections until the provider returns. The client closes the stream's connection if the server
 * is silent for the stall timeout, or for 60 s.
 *
 * @param options        Options to change; exclusive during the call.
 * @param max_providers  Streams; at least 1.
 * @param error          May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: 0.
 */
dipc_status dipc_server_options_set_max_providers(struct dipc_server_options *options,
                                                  size_t max_providers,
                                                  struct dipc_error **error);

/**
 * Sets how much memory the regions for lent copies may take. Beyond the limit bodies travel as
 * bytes. A region counts until no process maps it. All processes of one other user together may
 * have half of the limit. Memory of a dipc_arena does not count. Default: 16 GiB.
 *
 * The limit divided by max_streams, but at least 1 MiB and at most 64 MiB, also limits the bodies
 * that wait for one stream's client to read. Then the server makes no more bodies for that stream.
 *
 * @param options           Options to change; exclusive during the call.
 * @param max_region_bytes  Bytes, over all connections of the server.
 * @param error             May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_server_options_set_max_region_bytes(struct dipc_server_options *options,
                                                     uint64_t max_region_bytes,
                                                     struct dipc_error **error);

/**
 * Sets the size of one region for lent copies. A larger body gets a region of its own. Default: 64
 * MiB.
 *
 * @param options       Options to change; exclusive during the call.
 * @param region_bytes  Bytes, rounded up to whole pages.
 * @param error         May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: 0.
 */
dipc_status dipc_server_options_set_region_bytes(struct dipc_server_options *options,
                                                 uint64_t region_bytes,
                                                 struct dipc_error **error);

/**
 * Sets how long an unused region is kept for later copies. Default: 10 s.
 *
 * @param options         Options to change; exclusive during the call.
 * @param region_idle_ns  Nanoseconds, limited to the range from a millisecond to a year.
 * @param error           May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_server_options_set_region_idle_ns(struct dipc_server_options *options,
                                                   uint64_t region_idle_ns,
                                                   struct dipc_error **error);

/**
 * Sets the size up to which bodies travel as bytes and are not lent. Default: 4096.
 *
 * @param options       Options to change; exclusive during the call.
 * @param inline_bytes  Bytes.
 * @param error         May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_server_options_set_inline_bytes(struct dipc_server_options *options,
                                                 uint64_t inline_bytes,
                                                 struct dipc_error **error);

/**
 * Sets how many bytes of copies may be lent to one connection at once. Beyond the limit bodies
 * travel as bytes. The client's own limit applies if it is smaller. Default: 1 GiB.
 *
 * @param options           Options to change; exclusive during the call.
 * @param lent_limit_bytes  Bytes.
 * @param error             May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_server_options_set_lent_limit_bytes(struct dipc_server_options *options,
                                                     uint64_t lent_limit_bytes,
                                                     struct dipc_error **error);

/**
 * Admits clients of every user of this machine, not only of the server's user. Default: false.
 *
 * @param options   Options to change; exclusive during the call.
 * @param any_user  Whether to admit them.
 * @param error     May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_server_options_set_any_user(struct dipc_server_options *options,
                                             bool any_user,
                                             struct dipc_error **error);

/**
 * Sets how bodies travel. Default: DIPC_BODY_AUTO.
 *
 * @param options  Options to change; exclusive during the call.
 * @param body     DIPC_BODY_AUTO, DIPC_BODY_PACKED or DIPC_BODY_LENT.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: body is none of these.
 */
dipc_status dipc_server_options_set_body(struct dipc_server_options *options,
                                         int32_t body,
                                         struct dipc_error **error);

/**
 * Sets the compression of bodies. Compressed bodies travel as bytes. dipc_server_publish()
 * compresses a table once, and the server keeps the compressed bodies in addition to the arrays.
 * Default: DIPC_COMPRESSION_NONE.
 *
 * @param options      Options to change; exclusive during the call.
 * @param compression  DIPC_COMPRESSION_NONE, DIPC_COMPRESSION_LZ4 or DIPC_COMPRESSION_ZSTD.
 * @param error        May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the codec is unknown.
 */
dipc_status dipc_server_options_set_compression(struct dipc_server_options *options,
                                                int32_t compression,
                                                struct dipc_error **error);

/**
 * Frees options. NULL does nothing. Servers keep a copy of their options.
 *
 * @param options  Options, or NULL.
 */
void dipc_server_options_free(struct dipc_server_options *options);

/**
 * Sets how many batches and bytes a client may send before the host takes them, in a put and in an
 * exchange. Default: 16 batches, 256 MiB. The bytes are at most those of
 * dipc_server_options_set_max_region_bytes() divided by the streams of
 * dipc_server_options_set_max_streams(), but 1 MiB is always allowed.
 *
 * @param options  Options to change; exclusive during the call.
 * @param batches  Record batches; at least 1.
 * @param bytes    Bytes of bodies. One batch of any size is always allowed, up to 32 times
 *                 the limit of dipc_server_options_set_put_message_limit_bytes().
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: 0 batches or bytes.
 */
dipc_status dipc_server_options_set_put_window(struct dipc_server_options *options,
                                               uint64_t batches,
                                               uint64_t bytes,
                                               struct dipc_error **error);

/**
 * Sets how thoroughly a client's arrays are checked before the host gets them. Default:
 * DIPC_VALIDATION_AUTO.
 *
 * @param options     Options to change; exclusive during the call.
 * @param validation  DIPC_VALIDATION_AUTO, DIPC_VALIDATION_STRUCTURE or DIPC_VALIDATION_FULL.
 * @param error       May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: no such level.
 */
dipc_status dipc_server_options_set_put_validation(struct dipc_server_options *options,
                                                   int32_t validation,
                                                   struct dipc_error **error);

/**
 * Sets how long a client may be silent while the host waits for its batches. After that the host's
 * stream fails with DIPC_ERR_TIMEOUT. Default: DIPC_FOREVER. A client may be slow, and the server
 * notices a dead client without this limit.
 *
 * @param options           Options to change; exclusive during the call.
 * @param stall_timeout_ns  Nanoseconds, or DIPC_FOREVER.
 * @param error             May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_server_options_set_put_stall_timeout_ns(struct dipc_server_options *options,
                                                         uint64_t stall_timeout_ns,
                                                         struct dipc_error **error);

/**
 * Sets how much memory of this process one message of a client may take in addition to its body. A
 * message that needs more ends the table with DIPC_ERR_OUT_OF_MEMORY. Default: 512 MiB, or 16 GiB
 * for a client of the same user. dipc_get_options_set_message_limit_bytes() says which memory
 * counts.
 *
 * @param options              Options to change; exclusive during the call.
 * @param message_limit_bytes  Bytes.
 * @param error                May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_server_options_set_put_message_limit_bytes(struct dipc_server_options *options,
                                                            uint64_t message_limit_bytes,
                                                            struct dipc_error **error);

/**
 * Gives all figures of a server. Several threads may call it at once; if figures rise during the
 * call, they may not match each other exactly.
 *
 * @param server      Server.
 * @param out         Receives the figures. Members that the library does not know become 0.
 * @param size_bytes  sizeof(dipc_server_stats) of the caller, which may be of another version of
 *                    the header.
 * @param error       May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: size_bytes is 0.
 */
dipc_status dipc_server_get_stats(const struct dipc_server *server,
                                  struct dipc_server_stats *out,
                                  size_t size_bytes,
                                  struct dipc_error **error);

/**
 * Gives the figures of the requests with one label: a ticket of the server's own, a label of
 * dipc_request_set_label(), "(handler)" for what a handler serves without one, "(list)" for lists
 * of the server's own, or "(other)" for all labels after the first 1,000. The label of a ticket is
 * its text: U+FFFD replaces bytes that are not UTF-8, and a text of more than 128 bytes is cut and
 * ends with "…".
 *
 * @param server      Server.
 * @param label       The label; UTF-8.
 * @param out         Receives the figures. Members that no label has become 0.
 * @param size_bytes  sizeof(dipc_server_stats) of the caller.
 * @param error       May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: size_bytes is 0.
 *         DIPC_ERR_NOT_FOUND: nothing was counted under this label.
 */
dipc_status dipc_server_get_label_stats(const struct dipc_server *server,
                                        const char *label,
                                        struct dipc_server_stats *out,
                                        size_t size_bytes,
                                        struct dipc_error **error);

/**
 * Gives the figures of all servers of this process together, those that were freed included. The
 * child of a fork begins with zeros.
 *
 * @param out         Receives the figures.
 * @param size_bytes  sizeof(dipc_server_stats) of the caller.
 * @param error       May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: size_bytes is 0.
 */
dipc_status dipc_process_get_stats(struct dipc_server_stats *out,
                                   size_t size_bytes,
                                   struct dipc_error **error);

/**
 * The largest value that a bucket counts: 256 for the first one, then four bounds in equal steps
 * for each power of two up to 2^40.
 *
 * @param bucket  Number of the bucket, from 0.
 * @return The bound; UINT64_MAX for the last bucket and for numbers beyond.
 */
uint64_t dipc_histogram_upper_bound(size_t bucket);

/**
 * Gives all figures of a server in Prometheus' text format, version 0.0.4: each label is a value
 * of the label "ticket". The text grows between calls: if the buffer has become too small, ask for
 * the length again.
 *
 * @param server         Server.
 * @param buffer         Receives the text and a NUL; NULL asks for the length only.
 * @param size_bytes     Size of buffer.
 * @param out_len_bytes  Receives the length of the text, without the NUL.
 * @param error          May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is still
 *         written.
 */
dipc_status dipc_server_stats_text(const struct dipc_server *server,
                                   char *buffer,
                                   size_t size_bytes,
                                   size_t *out_len_bytes,
                                   struct dipc_error **error);

/**
 * Names the label under which a request is counted (dipc_server_get_label_stats()). An authorizer
 * may call it. So may a handler before the stream begins: a provider before it returns its stream,
 * a host of the pull form before dipc_request_start(), and a handler of a put before it reads the
 * client's stream. Otherwise the label is the ticket, or "(handler)" for what a handler serves.
 * After the first 1,000 labels of a server all others are counted as "(other)".
 *
 * @param request  Request.
 * @param label    1 to 128 bytes of UTF-8. Choose few: each label has figures of its own.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the label is empty or too
 *         long, or the stream has begun.
 */
dipc_status dipc_request_set_label(const struct dipc_request *request,
                                   const char *label,
                                   struct dipc_error **error);

/**
 * Serves a ticket by calling a provider for each stream.
 *
 * @param server            Server.
 * @param ticket            Name of the table: any bytes, at most 1016 KiB. Copied.
 * @param ticket_len_bytes  Length of ticket.
 * @param provider          Called once for each stream, as dipc_provider says.
 * @param userdata          Passed to provider and finalizer; may be NULL.
 * @param finalizer         Called once, after the ticket was withdrawn or replaced, or the server
 *                          freed, and the last call of the provider has returned; may be NULL.
 * @param flags             0, or DIPC_PROVIDER_DETERMINISTIC.
 * @param error             May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK: the library calls the finalizer. Otherwise it does not. DIPC_ERR_NULL_ARGUMENT.
 *         DIPC_ERR_INVALID_ARGUMENT: unknown flags, or the ticket is too long.
 *         DIPC_ERR_ALREADY_EXISTS: the server serves the ticket already. DIPC_ERR_STOPPED.
 */
dipc_status dipc_server_serve(const struct dipc_server *server,
                              const uint8_t *ticket,
                              size_t ticket_len_bytes,
                              dipc_provider provider,
                              void *userdata,
                              dipc_finalizer finalizer,
                              uint32_t flags,
                              struct dipc_error **error);

/**
 * Serves a ticket in the pull form: dipc_server_next_request() gives its requests, and no thread
 * of the library calls the host.
 *
 * @param server            Server.
 * @param ticket            Name of the table: any bytes, at most 1016 KiB. Copied.
 * @param ticket_len_bytes  Length of ticket.
 * @param error             May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the ticket is too long.
 *         DIPC_ERR_ALREADY_EXISTS: the server serves the ticket already. DIPC_ERR_STOPPED.
 */
dipc_status dipc_server_serve_pull(const struct dipc_server *server,
                                   const uint8_t *ticket,
                                   size_t ticket_len_bytes,
                                   struct dipc_error **error);

/**
 * Publishes a table: many clients at once can fetch it, any number of times. The arrays are
 * released after the ticket was withdrawn or replaced, or the server freed, and the last client
 * has given them back.
 *
 * @param server            Server.
 * @param ticket            Name of the table: any bytes, at most 1016 KiB. Copied.
 * @param ticket_len_bytes  Length of ticket.
 * @param schema            Moved on success: its release becomes NULL.
 * @param batches           n_batches arrays, each moved on success. The call encodes them, and may
 *                          wait for their sync_events.
 * @param n_batches         Number of batches; 0: a table without rows.
 * @param error             May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. Otherwise the caller still owns schema and batches. DIPC_ERR_NULL_ARGUMENT.
 *         DIPC_ERR_INVALID_ARGUMENT: the schema or a batch is released, or the ticket is too long.
 *         DIPC_ERR_INVALID_DATA: the schema or a batch cannot be sent, for example because a
 *         name, or a key or value of the metadata, is not UTF-8. DIPC_ERR_ALREADY_EXISTS: the
 *         server serves the ticket already. DIPC_ERR_OUT_OF_MEMORY, DIPC_ERR_UNSUPPORTED: a batch
 *         on a GPU that this process cannot read. DIPC_ERR_STOPPED.
 */
dipc_status dipc_server_publish(const struct dipc_server *server,
                                const uint8_t *ticket,
                                size_t ticket_len_bytes,
                                struct ArrowSchema *schema,
                                struct ArrowDeviceArray *batches,
                                size_t n_batches,
                                struct dipc_error **error);

/**
 * Like dipc_server_publish(), but replaces what the ticket stands for, if anything. The ticket is
 * served all the time, and running streams go on with the earlier table.
 *
 * @param server            Server.
 * @param ticket            What clients ask for: any bytes, at most 1016 KiB. Copied.
 * @param ticket_len_bytes  Length of ticket.
 * @param schema            Moved on success: its release becomes NULL.
 * @param batches           An array of n_batches arrays, each moved on success.
 * @param n_batches         Number of batches; 0 is a table without rows.
 * @param error             May be NULL; on failure receives details for dipc_error_free().
 * @return As dipc_server_publish(), except DIPC_ERR_ALREADY_EXISTS.
 */
dipc_status dipc_server_replace(const struct dipc_server *server,
                                const uint8_t *ticket,
                                size_t ticket_len_bytes,
                                struct ArrowSchema *schema,
                                struct ArrowDeviceArray *batches,
                                size_t n_batches,
                                struct dipc_error **error);

/**
 * Stops serving a ticket. Running streams go on. Clients can read lent memory for as long as they
 * keep it.
 *
 * @param server            Server.
 * @param ticket            Ticket.
 * @param ticket_len_bytes  Length of ticket.
 * @param error             May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_NOT_FOUND: the server does not serve the
 *         ticket.
 */
dipc_status dipc_server_withdraw(const struct dipc_server *server,
                                 const uint8_t *ticket,
                                 size_t ticket_len_bytes,
                                 struct dipc_error **error);

/**
 * Counts the tickets that are served now.
 *
 * @param server     Server.
 * @param out_count  Receives the number of tickets.
 * @param error      May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_server_ticket_count(const struct dipc_server *server,
                                     size_t *out_count,
                                     struct dipc_error **error);

/**
 * Gives one of the tickets that are served now, in byte order. To list the tickets, count index up
 * from 0 until DIPC_ERR_NOT_FOUND. A ticket that is added or withdrawn between the calls shifts
 * the others.
 *
 * @param server         Server.
 * @param index          Number of the ticket, from 0.
 * @param buffer         Receives the ticket, without a NUL; NULL asks for the length only.
 * @param size_bytes     Size of buffer.
 * @param out_len_bytes  Receives the length of the ticket.
 * @param error          May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_NOT_FOUND: index is too large.
 *         DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is still written.
 */
dipc_status dipc_server_ticket(const struct dipc_server *server,
                               size_t index,
                               uint8_t *buffer,
                               size_t size_bytes,
                               size_t *out_len_bytes,
                               struct dipc_error **error);

/**
 * Reports in full why a stream of the library failed. The stream's callbacks have only an errno
 * and a text.
 *
 * @param stream  Stream of dipc_client_get() or dipc_stream_from_host(), not released. None of its
 *                callbacks may be running.
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK: the stream has not failed. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT:
 *         the stream is released, or not of the library. Otherwise the stream's status.
 */
dipc_status dipc_stream_status(const struct ArrowDeviceArrayStream *stream,
                               struct dipc_error **error);

/**
 * Gives the custom metadata of the last batch of get_next.
 *
 * @param stream         Stream of dipc_client_get(), not released. None of its callbacks may be
 *                       running.
 * @param buffer         Receives the metadata, encoded as in ArrowSchema; NULL asks for the length
 *                       only.
 * @param size_bytes     Size of buffer.
 * @param out_len_bytes  Receives the length; 0 if the batch has no metadata.
 * @param error          May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the stream is released, or
 *         not of dipc_client_get(). DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is still written.
 */
dipc_status dipc_stream_metadata(const struct ArrowDeviceArrayStream *stream,
                                 uint8_t *buffer,
                                 size_t size_bytes,
                                 size_t *out_len_bytes,
                                 struct dipc_error **error);

/**
 * Gives the headers of the server's answer: those that came with the schema, then those that came
 * with a failure.
 *
 * @param stream  Stream of dipc_client_get(), not released; no callback of it is running.
 * @param out     Receives a copy of the headers, to be freed by dipc_headers_free().
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the stream is released, or
 *         is not of dipc_client_get().
 */
dipc_status dipc_stream_headers(const struct ArrowDeviceArrayStream *stream,
                                struct dipc_headers **out,
                                struct dipc_error **error);

/**
 * Reads one figure of a stream, up to now.
 *
 * @param stream  Stream of dipc_client_get(), not released. None of its callbacks may be running.
 * @param stat    DIPC_STREAM_STAT_*.
 * @param out     Receives the figure.
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the stream is released, or
 *         not of dipc_client_get(), or the library does not have this figure.
 */
dipc_status dipc_stream_stat(const struct ArrowDeviceArrayStream *stream,
                             int32_t stat,
                             uint64_t *out,
                             struct dipc_error **error);

/**
 * Turns a device stream into a host stream, for consumers of Arrow's C Stream Interface. get_next
 * passes arrays in host memory on, and copies arrays of CUDA (device types 2, 3 and 13) to the
 * host.
 *
 * @param source  Moved on success: its release becomes NULL.
 * @param out     Receives the stream. An old value is overwritten, not released. Must not be
 *                source.
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. Otherwise the caller still owns source. DIPC_ERR_NULL_ARGUMENT.
 *         DIPC_ERR_INVALID_ARGUMENT: source is released. DIPC_ERR_UNSUPPORTED: the library does
 *         not know the arrays' device, or this machine has no driver for it.
 */
dipc_status dipc_stream_to_host(struct ArrowDeviceArrayStream *source,
                                struct ArrowArrayStream *out,
                                struct dipc_error **error);

/**
 * Turns a device stream into a stream whose arrays lie on another device or on the host. get_next
 * copies each array that does not lie there already. The sync_event of an array on a GPU completes
 * after its copy.
 *
 * @param source       Moved on success: its release becomes NULL.
 * @param device_type  Target: 1, the host (ARROW_DEVICE_CPU), or 2, a GPU (ARROW_DEVICE_CUDA).
 * @param device_id    Number of the GPU; ignored for the host.
 * @param out          Receives the stream. An old value is overwritten, not released. Must not be
 *                     source.
 * @param error        May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. Otherwise the caller still owns source. DIPC_ERR_NULL_ARGUMENT.
 *         DIPC_ERR_INVALID_ARGUMENT: source is released, or the GPU does not exist.
 *         DIPC_ERR_UNSUPPORTED: the library cannot copy between these devices, or the driver is
 *         missing.
 */
dipc_status dipc_stream_to_device(struct ArrowDeviceArrayStream *source,
                                  int32_t device_type,
                                  int64_t device_id,
                                  struct ArrowDeviceArrayStream *out,
                                  struct dipc_error **error);

/**
 * Turns a host stream into a device stream of host memory, the form that providers give.
 *
 * @param source  Moved on success: its release becomes NULL.
 * @param out     Receives the stream. An old value is overwritten, not released. Must not be
 *                source.
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. Otherwise the caller still owns source. DIPC_ERR_NULL_ARGUMENT.
 *         DIPC_ERR_INVALID_ARGUMENT: source is released.
 */
dipc_status dipc_stream_from_host(struct ArrowArrayStream *source,
                                  struct ArrowDeviceArrayStream *out,
                                  struct dipc_error **error);

/**
 * Sets the server's certificate, for addresses that begin with tls://. The files are read by
 * dipc_server_listen(), and again by dipc_server_reload_tls().
 *
 * @param options           Options to change; exclusive during the call.
 * @param certificate_file  Path of a PEM file: the server's certificate, then the intermediate
 *                          certificates up to its authority.
 * @param key_file          Path of a PEM file: the certificate's private key.
 * @param error             May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: a path is not UTF-8.
 */
dipc_status dipc_server_options_set_tls(struct dipc_server_options *options,
                                        const char *certificate_file,
                                        const char *key_file,
                                        struct dipc_error **error);

/**
 * Makes a server ask its tls clients for a certificate, and refuse clients whose certificate is
 * not from one of these authorities. Default: clients are not asked.
 *
 * @param options  Options to change; exclusive during the call.
 * @param ca_file  Path of a PEM file: the authorities.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the path is not UTF-8.
 */
dipc_status dipc_server_options_set_tls_client_ca(struct dipc_server_options *options,
                                                  const char *ca_file,
                                                  struct dipc_error **error);

/**
 * Reads the server's certificate, key and authorities again. New connections use them. Open
 * connections stay as they are. TLS sessions from before the call cannot be resumed.
 *
 * @param server  Server.
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK, also for a server without certificates. DIPC_ERR_NULL_ARGUMENT.
 *         DIPC_ERR_INVALID_ARGUMENT, DIPC_ERR_NOT_FOUND, DIPC_ERR_PERMISSION, DIPC_ERR_IO: a file
 *         cannot be used, and the server goes on with the earlier files.
 */
dipc_status dipc_server_reload_tls(const struct dipc_server *server, struct dipc_error **error);

/**
 * Sets the client's certificate, for servers that ask for one.
 *
 * @param options           Options to change; exclusive during the call.
 * @param certificate_file  Path of a PEM file: the client's certificate, then the intermediate
 *                          certificates up to its authority.
 * @param key_file          Path of a PEM file: the certificate's private key.
 * @param error             May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: a path is not UTF-8. The
 *         files are read by the client's first tls connection, which fails if a file cannot be
 *         used.
 */
dipc_status dipc_client_options_set_tls(struct dipc_client_options *options,
                                        const char *certificate_file,
                                        const char *key_file,
                                        struct dipc_error **error);

/**
 * Sets the authorities whose certificates servers may have. Default: the system's authorities.
 *
 * @param options  Options to change; exclusive during the call.
 * @param ca_file  Path of a PEM file: the authorities.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the path is not UTF-8.
 */
dipc_status dipc_client_options_set_tls_ca(struct dipc_client_options *options,
                                           const char *ca_file,
                                           struct dipc_error **error);

/**
 * Sets the name that a server's certificate must have. Default: the host of the URI.
 *
 * @param options  Options to change; exclusive during the call.
 * @param name     A DNS name or an IP address; UTF-8.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the name is not UTF-8.
 */
dipc_status dipc_client_options_set_tls_server_name(struct dipc_client_options *options,
                                                    const char *name,
                                                    struct dipc_error **error);

/**
 * Gives the subject, the names or the fingerprint of the client's certificate. An authority of the
 * server's options has signed the certificate.
 *
 * @param request        Request.
 * @param which          DIPC_CERTIFICATE_*.
 * @param buffer         Receives the text and a NUL; NULL asks for the length only.
 * @param size_bytes     Size of buffer.
 * @param out_len_bytes  Receives the length of the text, without the NUL.
 * @param error          May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_NOT_FOUND: the client showed no certificate.
 *         DIPC_ERR_INVALID_ARGUMENT: `which` is unknown. DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes
 *         is written all the same.
 */
dipc_status dipc_request_peer_certificate(const struct dipc_request *request,
                                          int32_t which,
                                          char *buffer,
                                          size_t size_bytes,
                                          size_t *out_len_bytes,
                                          struct dipc_error **error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* DIPC_H */
