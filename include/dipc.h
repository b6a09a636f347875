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
 * - A call returns a dipc_status: 0 (DIPC_OK), a positive number for progress without a failure,
 *   or a negative number for a failure. Details of a failure come out of the last argument where
 *   the caller gives one; there is no error state elsewhere.
 * - Outputs are written on DIPC_OK only. The one exception is the length that a text or a ticket
 *   needs, which is also written with DIPC_ERR_BUFFER_TOO_SMALL.
 * - Text goes into the caller's buffer with a NUL at its end; the length that comes out does not
 *   count the NUL, and text never comes out cut off. A NULL buffer of size 0 asks for the length.
 * - The ownership of an argument moves only when the call returns DIPC_OK. Arrow structs move as
 *   Arrow's C data interface says: after success the source's release is NULL.
 * - A const handle may be used by several threads at once; any other by one thread at a time.
 * - Every handle has one function that frees it and takes NULL.
 * - A callback comes with userdata and a finalizer, which is called once, after the last use. No
 *   callback may unwind (throw, longjmp), and none runs on an I/O thread of the library.
 * - After fork() the child's calls on handles of the parent fail with DIPC_ERR_FORKED.
 * - A bug of the library returns DIPC_ERR_PANIC and spoils the handle only, not the process.
 */

#ifndef DIPC_H
#define DIPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Structs of Arrow's C data, C device data and C stream interfaces, each under the guard that
 * Arrow's documents give it, so that this header can stand beside any other that has them. */

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

#ifdef __cplusplus
}  /* extern "C" */
#endif

/**
 * Success.
 */
#define DIPC_OK 0

/**
 * No failure, and nothing there now: no output was written.
 */
#define DIPC_NOTHING 1

/**
 * A pointer that must not be NULL was NULL; nothing changed.
 */
#define DIPC_ERR_NULL_ARGUMENT -1

/**
 * An argument is outside what the function takes; nothing changed.
 */
#define DIPC_ERR_INVALID_ARGUMENT -2

/**
 * A URI cannot be read, or lacks a part that it must have.
 */
#define DIPC_ERR_INVALID_URI -3

/**
 * This build, machine or peer cannot do what was asked.
 */
#define DIPC_ERR_UNSUPPORTED -4

/**
 * The server has no such ticket.
 */
#define DIPC_ERR_NOT_FOUND -5

/**
 * The ticket is served already.
 */
#define DIPC_ERR_ALREADY_EXISTS -6

/**
 * Another live server listens at the address.
 */
#define DIPC_ERR_ADDRESS_IN_USE -7

/**
 * Nobody listens at the address, or it cannot be reached.
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
 * The server serves as many streams as its options allow; try again later.
 */
#define DIPC_ERR_BUSY -14

/**
 * Memory for bodies or regions ran out, or an option's limit on it was reached.
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
 * The handle was made before a fork() and this is the child.
 */
#define DIPC_ERR_FORKED -21

/**
 * A bug in libdipc: the call panicked and the handle can only be freed.
 */
#define DIPC_ERR_PANIC -22

/**
 * An earlier call on the handle panicked; it can only be freed.
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
 * Minor version of the header; before 1.0 each may break the ABI.
 */
#define DIPC_VERSION_MINOR 1

/**
 * Patch version of the header.
 */
#define DIPC_VERSION_PATCH 0

/**
 * Something failed that no call could report.
 */
#define DIPC_LOG_ERROR 1

/**
 * Something is wrong and was coped with: a provider that failed, with its words; a peer that was
 * refused for want of room. Of what peers can bring about at will only some is told, and how much
 * was left out.
 */
#define DIPC_LOG_WARN 2

/**
 * Servers listen and stop; streams begin and end, at both ends a line each, with ticket, peer,
 * status, batches, rows and bytes.
 */
#define DIPC_LOG_INFO 3

/**
 * What the library decides: clients' connections and what they are asked for, requests that are
 * refused, connections that end, and why.
 */
#define DIPC_LOG_DEBUG 4

/**
 * Every message: which way it goes, its kind, number and length.
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
 * Connections kept for the next stream.
 */
#define DIPC_CLIENT_STAT_CONNECTIONS_IDLE 3

/**
 * A time that never comes, for timeouts.
 */
#define DIPC_FOREVER UINT64_MAX

/**
 * The structure alone is checked for a server of the same user, the values as well for others.
 */
#define DIPC_VALIDATION_AUTO 0

/**
 * Lengths, counts and ranges are checked: no cost per row, safe against wild pointers.
 */
#define DIPC_VALIDATION_STRUCTURE 1

/**
 * Values are checked as well, those that lead to others and text:
 * - all types: the null count is that of the bitmap;
 * - utf8, binary, list, map: offsets do not fall and lie in the data or the child; text is UTF-8,
 *   each value by itself; no key of a map is null;
 * - string and binary views: they lie in their data buffers, prefixes are those of the data, short
 *   ones are padded with zeros, text is UTF-8;
 * - list views: each offset and size lies in the child;
 * - unions: type ids are known; offsets of dense ones lie in the child and do not fall within it;
 * - run-end encoded: run ends rise and reach the length;
 * - dictionary-encoded: each index is that of a value;
 * - booleans, integers, floats, decimals, dates, times, timestamps, durations, intervals,
 *   fixed-size binary: nothing. Decimals may have more digits than their precision, times may lie
 *   outside of a day, and date64 need not be a whole day, which Arrow's full validation refuses
 *   and writers in use send.
 *
 * Values under a null, of the array or of one above it, and those that no row of a list view or
 * union names, are not looked at. Where a consumer could follow them all the same they become
 * harmless: empty, zero, or null.
 */
#define DIPC_VALIDATION_FULL 2

/**
 * An untagged message of the metadata stream.
 */
#define DIPC_MESSAGE_METADATA 1

/**
 * A tagged message: a body, an address list, a request, frees.
 */
#define DIPC_MESSAGE_TAGGED 2

/**
 * A control message of libdipc's extension.
 */
#define DIPC_MESSAGE_CONTROL 3

/**
 * No message: the connection is to be cut. The part is the reason, UTF-8 without a NUL.
 */
#define DIPC_MESSAGE_DISCONNECT 4

/**
 * Asked, and not answered.
 */
#define DIPC_RECEIVER_REQUESTED 1

/**
 * Accepted; the schema has not come.
 */
#define DIPC_RECEIVER_AWAITING_SCHEMA 2

/**
 * The schema has come.
 */
#define DIPC_RECEIVER_STREAMING 3

/**
 * Everything has arrived; batches may wait to be taken.
 */
#define DIPC_RECEIVER_ENDED 4

/**
 * It failed: dipc_receiver_next() says why.
 */
#define DIPC_RECEIVER_FAILED 5

/**
 * This side cancelled it.
 */
#define DIPC_RECEIVER_CANCELLED 6

/**
 * Bodies are sent as lists of the addresses that they have in this process, for clients that can
 * read its memory. Only where nothing else than memory of the host's is served.
 */
#define DIPC_BODY_LIST 2

/**
 * Nothing is asked for.
 */
#define DIPC_SENDER_IDLE 1

/**
 * A request waits for its answer.
 */
#define DIPC_SENDER_REQUESTED 2

/**
 * A stream is running.
 */
#define DIPC_SENDER_STREAMING 3

/**
 * The stream has ended and the client cannot ask for another.
 */
#define DIPC_SENDER_ENDED 4

/**
 * The connection is over.
 */
#define DIPC_SENDER_CLOSED 5

/**
 * A buffer of this many bytes takes any URI that the library gives.
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
 * Body bytes lent where they lay, since the start.
 */
#define DIPC_SERVER_STAT_BYTES_LENT 5

/**
 * Body bytes copied on the host, since the start: into regions, to be lent from there. Bodies of
 * up to 1 KiB that are sent are copies.
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
 * Bytes of regions for copies that this process has, or a client.
 */
#define DIPC_SERVER_STAT_REGION_BYTES 9

/**
 * Body bytes copied from one place of a GPU's memory to another and lent from there, since the
 * start.
 */
#define DIPC_SERVER_STAT_BYTES_COPIED_ON_DEVICE 10

/**
 * Body bytes copied from a GPU's memory to the host's, since the start; then lent or sent.
 */
#define DIPC_SERVER_STAT_BYTES_STAGED 11

/**
 * Bodies are lent where that is possible and worth it, and sent as bytes elsewhere.
 */
#define DIPC_BODY_AUTO 0

/**
 * Bodies are always sent as bytes.
 */
#define DIPC_BODY_PACKED 1

/**
 * Bodies are lent wherever that is possible, small ones and those of clients that do not speak
 * libdipc's extension included.
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
 * The provider gives the same batches for each call, so that a client that is not libdipc may
 * fetch metadata and bodies over two connections.
 */
#define DIPC_PROVIDER_DETERMINISTIC 1

/**
 * Rows handed out.
 */
#define DIPC_STREAM_STAT_ROWS 1

/**
 * Record batches handed out.
 */
#define DIPC_STREAM_STAT_BATCHES 2

/**
 * Body bytes that the server lent and this process mapped.
 */
#define DIPC_STREAM_STAT_BYTES_LENT 3

/**
 * Body bytes copied in this process: joined dictionaries, values copied to be checked.
 */
#define DIPC_STREAM_STAT_BYTES_COPIED 4

/**
 * Body bytes that came through the connection.
 */
#define DIPC_STREAM_STAT_BYTES_RECEIVED 5

/**
 * Body bytes copied in this process from one place of a device to another, or between devices.
 */
#define DIPC_STREAM_STAT_BYTES_COPIED_ON_DEVICE 6

/**
 * Body bytes copied in this process between the host and a device.
 */
#define DIPC_STREAM_STAT_BYTES_STAGED 7

/**
 * Record batches that have come and were not handed out: get_next gives so many without waiting
 * for the server. Where there are none, what the connection has is read first.
 */
#define DIPC_STREAM_STAT_BATCHES_HERE 8

/**
 * Gives out memory, of the host or of a CUDA device, whose contents reach a client on the same
 * machine without a copy: a client maps it. Made by dipc_arena_new(); every call is allowed from
 * any thread, also several at once.
 *
 * A client that was lent one block can read the whole region it lies in, for as long as it likes:
 * an arena is as public as the most public ticket whose batches lie in it.
 */
typedef struct dipc_arena dipc_arena;

/**
 * What an arena is told when it is made. Given to dipc_arena_new().
 */
typedef struct dipc_arena_options dipc_arena_options;

/**
 * Ends calls that wait, from another thread. One token may be given to any number of calls, also
 * at the same time; once triggered it stays so. Made by dipc_cancel_new().
 */
typedef struct dipc_cancel dipc_cancel;

/**
 * Fetches tables from servers, and keeps connections for the next one. Made by dipc_client_new();
 * every call is allowed from any thread, also several at once.
 */
typedef struct dipc_client dipc_client;

/**
 * What a client is told when it is made. Given to dipc_client_new().
 */
typedef struct dipc_client_options dipc_client_options;

/**
 * Why a call failed: a status for programs, a text for people. Plain data: it may be read by any
 * thread, also after a fork, and is independent of the handle it came from.
 */
typedef struct dipc_error dipc_error;

/**
 * What one stream is told when it is asked for. Given to dipc_client_get().
 */
typedef struct dipc_get_options dipc_get_options;

/**
 * The consuming side of one stream, for hosts that move messages themselves: no transport, no
 * clock, no threads. After dipc_receiver_start(), hand in what arrives and take batches by
 * dipc_receiver_next(). After each call, send what dipc_receiver_poll_transmit() gives until it
 * gives DIPC_NOTHING, then see dipc_receiver_poll_timeout(). One thread at a time; batches may be
 * released by any.
 */
typedef struct dipc_receiver dipc_receiver;

/**
 * A stream that a client asks for. A provider gets one with each call; in the pull form it comes
 * out of dipc_server_next_request(), and dipc_request_start(), dipc_request_push() and
 * dipc_request_finish() say what the stream holds. Every call is allowed from any thread.
 */
typedef struct dipc_request dipc_request;

/**
 * The producing side of one connection, for hosts that move messages themselves: no transport, no
 * clock, no threads. Hand in what arrives; answer a request by dipc_sender_start() or
 * dipc_sender_refuse(); send batches while dipc_sender_may_send(); end. After each call, send what
 * dipc_sender_poll_transmit() gives until it gives DIPC_NOTHING. One thread at a time.
 */
typedef struct dipc_sender dipc_sender;

/**
 * Serves tables to clients. Made by dipc_server_new(); every call is allowed from any thread, also
 * several at once.
 */
typedef struct dipc_server dipc_server;

/**
 * What a server is told when it is made. Given to dipc_server_new().
 */
typedef struct dipc_server_options dipc_server_options;

/**
 * What a call came to: 0 is success, positive numbers are progress without a failure, negative
 * ones are failures. A number never changes its meaning.
 */
typedef int32_t dipc_status;

/**
 * Takes one log event. Runs on a thread of the log's own, one call at a time; may call any
 * function of the library; must not unwind. The strings are valid during the call.
 *
 * @param userdata  What was given with the callback.
 * @param level     DIPC_LOG_ERROR to DIPC_LOG_TRACE.
 * @param target    The part of the library that speaks, as "dipc::transport::shm".
 * @param text      What happened; UTF-8, no newline at its end; cut after 4 KiB.
 */
typedef void (*dipc_log_callback)(void *userdata,
                                  int32_t level,
                                  const char *target,
                                  const char *text);

/**
 * Called exactly once, when the library will not use `userdata` again; never during a callback
 * that uses it, and never on an I/O thread.
 */
typedef void (*dipc_finalizer)(void *userdata);

/**
 * Opens the stream that a request asks for. Called once for each stream, on a thread of its own,
 * which then also pulls and releases the stream: it may block, and may fetch from its own server.
 * Must not unwind.
 *
 * @param userdata  What was given with the provider.
 * @param request   Who asks for what; valid until the stream is released, not to be freed. To fail
 *                  with a text of its own, call dipc_request_fail() and return non-zero.
 * @param out       Receives the stream, which the library then owns; a released one to be filled.
 * @return 0; anything else is a failure, and out is not looked at.
 */
typedef int32_t (*dipc_provider)(void *userdata,
                                 struct dipc_request *request,
                                 struct ArrowDeviceArrayStream *out);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The name of a status, as in this header: "DIPC_ERR_TIMEOUT".
 *
 * @param status  Any number.
 * @return A static string, never NULL; "DIPC_UNKNOWN" for a number that is no status.
 */
const char *dipc_status_name(dipc_status status);

/**
 * The errno that stands for a status in the callbacks of Arrow's streams, which can return
 * nothing else.
 *
 * @param status  Any number.
 * @return 0 for 0 and positive numbers; EIO for a negative number that is no status.
 */
int32_t dipc_status_errno(dipc_status status);

/**
 * The status of an error.
 *
 * @param error  Error, or NULL.
 * @return The number that the failing call returned; DIPC_OK for NULL.
 */
dipc_status dipc_error_code(const struct dipc_error *error);

/**
 * The text of an error: the cause and, where there is one, the remedy. UTF-8, one line, no
 * newline at its end.
 *
 * @param error  Error, or NULL.
 * @return Owned by the error, valid until dipc_error_free(); "" for NULL.
 */
const char *dipc_error_text(const struct dipc_error *error);

/**
 * The errno of the system call behind an error.
 *
 * @param error  Error, or NULL.
 * @return 0 where no system call failed, and for NULL.
 */
int32_t dipc_error_os_errno(const struct dipc_error *error);

/**
 * The error that caused this one, where this one adds what was being done. The text of this one
 * contains the text of its source.
 *
 * @param error  Error, or NULL.
 * @return Owned by the error, valid until dipc_error_free(), not to be freed; NULL at the end.
 */
const struct dipc_error *dipc_error_source(const struct dipc_error *error);

/**
 * Frees an error. NULL does nothing.
 *
 * @param error  Error that a call gave, or NULL; not one from dipc_error_source().
 */
void dipc_error_free(struct dipc_error *error);

/**
 * The version of the library that was loaded, to be compared with the header's.
 *
 * @return DIPC_VERSION_MAJOR * 1000000 + DIPC_VERSION_MINOR * 1000 + DIPC_VERSION_PATCH.
 */
uint32_t dipc_version(void);

/**
 * The version of the library that was loaded, as text: "0.1.0".
 *
 * @return A static string, never NULL.
 */
const char *dipc_version_string(void);

/**
 * Whether a transport works on this machine.
 *
 * @param scheme  Scheme of its URIs, without the colon: "shm".
 * @param error   May be NULL; on failure receives what is missing and how to get it.
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_UNSUPPORTED: it does not, or this build has no
 *         such transport.
 */
dipc_status dipc_transport_available(const char *scheme, struct dipc_error **error);

/**
 * Sends log events to a callback, in place of the one set before. The library prints nothing, and
 * says nothing at all until this is called. Starts one thread, which ends after the finalizer.
 *
 * The callback set before gets what was logged until now; its finalizer runs, on its thread, after
 * its last call. Nothing waits for that: wait in the finalizer's own way before unloading code.
 * Events that come faster than the callback takes them are dropped, and their number is logged.
 * The child of a fork is silent until it calls this itself.
 *
 * @param level      The finest level wanted: DIPC_LOG_ERROR to DIPC_LOG_TRACE.
 * @param callback   NULL stops the log; userdata and finalizer are then ignored.
 * @param userdata   Given to the callback and to the finalizer; may be NULL.
 * @param finalizer  Called once, when userdata is not used any more; may be NULL.
 * @param error      May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK: the library calls the finalizer. Otherwise the finalizer is not called and
 *         nothing changed. DIPC_ERR_INVALID_ARGUMENT: no such level. DIPC_ERR_OUT_OF_RESOURCES: no
 *         thread could be started. DIPC_ERR_UNSUPPORTED: libdipc is part of a Rust program that
 *         has its own tracing subscriber.
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
 * Ends every call that the token was given to, now and later, with DIPC_ERR_CANCELLED. May be
 * called from any thread, more than once; not from a signal handler.
 *
 * @param cancel  Token; concurrent calls are allowed.
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_cancel_trigger(const struct dipc_cancel *cancel, struct dipc_error **error);

/**
 * Whether a token was triggered.
 *
 * @param cancel  Token, or NULL; concurrent calls are allowed.
 * @return true once it was; false for NULL and in the child of a fork.
 */
bool dipc_cancel_is_triggered(const struct dipc_cancel *cancel);

/**
 * Frees a token. NULL does nothing. Calls that it was given to go on; they can then no longer be
 * ended by it.
 *
 * @param cancel  Token, or NULL; no call with it is running.
 */
void dipc_cancel_free(struct dipc_cancel *cancel);

/**
 * Makes options with the defaults, which each setter names.
 *
 * @param out    Receives the options, to be freed by dipc_arena_options_free().
 * @param error  May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_arena_options_new(struct dipc_arena_options **out, struct dipc_error **error);

/**
 * Sets the size of one region; a larger block gets a region of its own. A client maps whole
 * regions. Default 64 MiB.
 *
 * @param options       Options to change; exclusive during the call.
 * @param region_bytes  Bytes; rounded up to whole pages, on a CUDA device to what it maps at once
 *                      (mostly 2 MiB).
 * @param error         May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: 0.
 */
dipc_status dipc_arena_options_set_region_bytes(struct dipc_arena_options *options,
                                                uint64_t region_bytes,
                                                struct dipc_error **error);

/**
 * Sets the bound on all regions of the arena together; past it dipc_arena_alloc() fails with
 * DIPC_ERR_OUT_OF_MEMORY. A region that the arena has given up counts until no client has it any
 * more. Default no bound.
 *
 * @param options    Options to change; exclusive during the call.
 * @param max_bytes  Bytes; UINT64_MAX: no bound.
 * @param error      May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_arena_options_set_max_bytes(struct dipc_arena_options *options,
                                             uint64_t max_bytes,
                                             struct dipc_error **error);

/**
 * Frees options. NULL does nothing; arenas made with them keep their copy.
 *
 * @param options  Options, or NULL.
 */
void dipc_arena_options_free(struct dipc_arena_options *options);

/**
 * Makes an arena. It takes memory from the system with the first block, one region at a time.
 *
 * @param device_type  Where the memory lies: ARROW_DEVICE_CPU or ARROW_DEVICE_CUDA.
 * @param device_id    Number of the CUDA device; of no meaning for the host.
 * @param options      Copied; NULL: the defaults.
 * @param out          Receives the arena, to be freed by dipc_arena_free().
 * @param error        May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_UNSUPPORTED: another device type, there is no
 *         CUDA driver, or the device cannot lend memory. DIPC_ERR_INVALID_ARGUMENT: the driver has
 *         no device of that number.
 */
dipc_status dipc_arena_new(int32_t device_type,
                           int64_t device_id,
                           const struct dipc_arena_options *options,
                           struct dipc_arena **out,
                           struct dipc_error **error);

/**
 * Allocates a block, aligned to 64 bytes. What it holds is not defined. On a CUDA device it is an
 * address for the device: the processor must not touch it.
 *
 * @param arena      Arena.
 * @param len_bytes  Length; 0 gives a block that must be given back like any other.
 * @param out        Receives the block, to be given back by dipc_arena_dealloc().
 * @param error      May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_OUT_OF_MEMORY: of the system or the device, or
 *         the limit of the options. DIPC_ERR_OUT_OF_RESOURCES: no file descriptor is left for a
 *         region.
 */
dipc_status dipc_arena_alloc(const struct dipc_arena *arena,
                             size_t len_bytes,
                             void **out,
                             struct dipc_error **error);

/**
 * Gives a block back. Memory that a client may still read is not used again before it is given
 * back by the client too.
 *
 * A client that was lent a region can read all of it for as long as it keeps it, whatever was
 * freed there: overwrite a block before it is freed if nobody is to read it afterwards.
 *
 * A block of a CUDA device may be given out again at once: work on it must be done.
 *
 * @param arena  The block's arena; NULL finds it, also when dipc_arena_free() was called.
 * @param block  Block, or NULL, for which nothing happens.
 * @param error  May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_INVALID_ARGUMENT: no block in use begins there; nothing changed.
 */
dipc_status dipc_arena_dealloc(const struct dipc_arena *arena,
                               void *block,
                               struct dipc_error **error);

/**
 * One figure of an arena.
 *
 * @param arena  Arena.
 * @param stat   DIPC_ARENA_STAT_*.
 * @param out    Receives the figure.
 * @param error  May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the library has no such
 *         figure; an older one than the header may not.
 */
dipc_status dipc_arena_stat(const struct dipc_arena *arena,
                            int32_t stat,
                            uint64_t *out,
                            struct dipc_error **error);

/**
 * Frees an arena. NULL does nothing. Its memory lives until the last block is given back.
 *
 * @param arena  Arena, or NULL; no call on it is running.
 */
void dipc_arena_free(struct dipc_arena *arena);

/**
 * Makes a client. Starts one thread, which lives as long as any of the client's connections.
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
 * Asks a server for a ticket. Returns once the schema is there, or with the reason why there is
 * none. The stream and its arrays may be used and released by any thread, and outlive the client;
 * the thread that calls the stream's get_next reads the connection itself. Releasing the stream
 * before its end cancels it.
 *
 * Failures later on come out of the stream's own callbacks, as an errno and get_last_error(), and
 * in full from dipc_stream_status().
 *
 * @param client            Client.
 * @param uris              n_uris strings: one URI for metadata and bodies, or two for one each.
 * @param n_uris            1 or 2.
 * @param ticket            What is asked for: any bytes, at most 1016 KiB.
 * @param ticket_len_bytes  Length of ticket.
 * @param options           Copied; NULL: the defaults.
 * @param cancel            Ends this call, and calls of the stream, from another thread; may be
 *                          NULL, and may be freed before the stream is.
 * @param out               Receives the stream; what it held before is not released.
 * @param error             May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_URI: also where there are not 1 or 2.
 *         DIPC_ERR_INVALID_ARGUMENT: the ticket is too long. DIPC_ERR_UNSUPPORTED: no such
 *         transport or device here. DIPC_ERR_UNREACHABLE: nobody listens there.
 *         DIPC_ERR_PERMISSION: the server is of another user. DIPC_ERR_NOT_FOUND: no such ticket.
 *         DIPC_ERR_BUSY. DIPC_ERR_TIMEOUT.
 *         DIPC_ERR_CANCELLED. DIPC_ERR_PROVIDER, or what the provider says.
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
 * One figure of a client.
 *
 * @param client  Client.
 * @param stat    DIPC_CLIENT_STAT_*.
 * @param out     Receives the figure.
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the library has no such
 *         figure; an older one than the header may not.
 */
dipc_status dipc_client_stat(const struct dipc_client *client,
                             int32_t stat,
                             uint64_t *out,
                             struct dipc_error **error);

/**
 * Frees a client. NULL does nothing. Its streams and arrays stay valid, and keep what they need.
 *
 * @param client  Client, or NULL; no call on it is running.
 */
void dipc_client_free(struct dipc_client *client);

/**
 * Makes options with the defaults, which each setter names.
 *
 * @param out    Receives the options, to be freed by dipc_client_options_free().
 * @param error  May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_client_options_new(struct dipc_client_options **out, struct dipc_error **error);

/**
 * Takes streams from servers of every user of this machine, not only of the user that runs the
 * client. Default false.
 *
 * @param options   Options to change; exclusive during the call.
 * @param any_user  Whether to trust them.
 * @param error     May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_client_options_set_any_user(struct dipc_client_options *options,
                                             bool any_user,
                                             struct dipc_error **error);

/**
 * Sets how long a connection on which no stream is is kept for the next one; then it ends at both
 * sides. Arrays that lie in memory of the server keep theirs. Default 60 s.
 *
 * @param options          Options to change; exclusive during the call.
 * @param idle_timeout_ns  Nanoseconds, or DIPC_FOREVER; 0: a connection is for one stream.
 * @param error            May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_client_options_set_idle_timeout_ns(struct dipc_client_options *options,
                                                    uint64_t idle_timeout_ns,
                                                    struct dipc_error **error);

/**
 * Sets how many connections on which no stream is are kept for each server, by its URI; past that
 * the one that was used longest ago ends. Default 8.
 *
 * @param options   Options to change; exclusive during the call.
 * @param max_idle  Connections; 0: a connection is for one stream.
 * @param error     May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_client_options_set_max_idle(struct dipc_client_options *options,
                                             size_t max_idle,
                                             struct dipc_error **error);

/**
 * Frees options. NULL does nothing; clients made with them keep their copy.
 *
 * @param options  Options, or NULL.
 */
void dipc_client_options_free(struct dipc_client_options *options);

/**
 * Makes options with the defaults, which each setter names.
 *
 * @param out    Receives the options, to be freed by dipc_get_options_free().
 * @param error  May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_get_options_new(struct dipc_get_options **out, struct dipc_error **error);

/**
 * Sets how long connecting may take, up to the server's first answer: its schema, its refusal, or,
 * where its provider takes longer for those, its word that it has read the request. Default 10 s.
 * A server without libdipc's extension has no such word: 60 s, or the stall timeout, for its
 * schema.
 *
 * @param options             Options to change; exclusive during the call.
 * @param connect_timeout_ns  Nanoseconds, or DIPC_FOREVER.
 * @param error               May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_get_options_set_connect_timeout_ns(struct dipc_get_options *options,
                                                    uint64_t connect_timeout_ns,
                                                    struct dipc_error **error);

/**
 * Sets how long the server may say nothing while something is waited for; then the stream fails
 * with DIPC_ERR_TIMEOUT. Default DIPC_FOREVER: a provider may take its time, and a server that
 * dies is noticed all the same.
 *
 * @param options           Options to change; exclusive during the call.
 * @param stall_timeout_ns  Nanoseconds, or DIPC_FOREVER.
 * @param error             May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_get_options_set_stall_timeout_ns(struct dipc_get_options *options,
                                                  uint64_t stall_timeout_ns,
                                                  struct dipc_error **error);

/**
 * Sets how far the server may run ahead of what the consumer has taken. Default 16 batches, 256
 * MiB.
 *
 * @param options  Options to change; exclusive during the call.
 * @param batches  Record batches; at least 1.
 * @param bytes    Bytes of bodies; one batch is always admitted, whatever its size.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: 0 batches or bytes.
 */
dipc_status dipc_get_options_set_window(struct dipc_get_options *options,
                                        uint64_t batches,
                                        uint64_t bytes,
                                        struct dipc_error **error);

/**
 * Sets the most bytes of copies that the server may lend at once, while the consumer keeps what it
 * took; past it bodies travel as bytes. Default 1 GiB.
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
 * Sets the most bytes of this process's memory that one message of the server may take beside its
 * body, or as many as its body has, where those are more: for compressed buffers unpacked, for
 * copies of what the server could still write to, for the structs of the schema and of arrays,
 * and, over the whole stream, for dictionaries with their deltas. A message that needs more ends
 * the stream with DIPC_ERR_OUT_OF_MEMORY. Default 512 MiB; 16 GiB for a server of the same user.
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
 * Sets where arrays shall be. Default ARROW_DEVICE_CPU. Where the server has them there already,
 * and this process can map its memory, nothing is copied; otherwise they are copied, once on each
 * way between the host and a device.
 *
 * @param options      Options to change; exclusive during the call.
 * @param device_type  ARROW_DEVICE_CPU, ARROW_DEVICE_CUDA, or 0: where the server has them if this
 *                     process reaches that without a copy, otherwise on the host.
 * @param device_id    Number of the CUDA device, as the driver of this process counts; of no
 *                     meaning for the others.
 * @param error        May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK; where there is no such device, or no driver, dipc_client_get() fails.
 *         DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_UNSUPPORTED: another device type.
 *         DIPC_ERR_INVALID_ARGUMENT: a negative number, or too large a one.
 */
dipc_status dipc_get_options_set_device(struct dipc_get_options *options,
                                        int32_t device_type,
                                        int64_t device_id,
                                        struct dipc_error **error);

/**
 * Sets how much of what arrives is checked before it is handed out. Default DIPC_VALIDATION_AUTO.
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
 * Sets the number of the stream's first message, for tests of the wrap-around at 2^32. The other
 * side must be told the same. Default 0, which the protocol asks for.
 *
 * @param options         Options to change; exclusive during the call.
 * @param first_sequence  Sequence number.
 * @param error           May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_get_options_set_first_sequence(struct dipc_get_options *options,
                                                uint32_t first_sequence,
                                                struct dipc_error **error);

/**
 * Frees options. NULL does nothing; streams made with them keep their copy.
 *
 * @param options  Options, or NULL.
 */
void dipc_get_options_free(struct dipc_get_options *options);

/**
 * Lets a server listen on tcp where other machines can connect. Default false: a tcp listener has
 * neither encryption nor authentication, and beyond the loopback interface it is refused with
 * DIPC_ERR_PERMISSION.
 *
 * @param options  Options to change; exclusive during the call.
 * @param allow_remote  Whether to allow it.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_server_options_set_allow_remote(struct dipc_server_options *options,
                                                 bool allow_remote,
                                                 struct dipc_error **error);

/**
 * Says that every process that can reach this server's network is trusted. Default false, and then
 * every ucx listener, on the loopback interface too, is refused with DIPC_ERR_PERMISSION: UCX
 * checks no access rights on some of its paths, so whoever connects can read and write the memory
 * of this process.
 *
 * @param options  Options to change; exclusive during the call.
 * @param trusted_network  Whether it is so.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_server_options_set_trusted_network(struct dipc_server_options *options,
                                                    bool trusted_network,
                                                    struct dipc_error **error);

/**
 * Sets what only one transport knows. `ucx.KEY` for each key of UCX's configuration, without its
 * UCX_ (as `ucx.TLS` with `tcp`); `ucx.library`, the path of libucp to load; `ucx.error_handling`,
 * `peer` (the default: a dead peer is noticed) or `none` (faster on some transports);
 * `tcp.keepalive` and `ucx.keepalive`, the seconds after which a machine that does not answer is
 * taken for dead (60). A key or a value that UCX does not take is an error here where that can be
 * known without loading UCX, else where ucx is first used.
 *
 * @param options  Options to change; exclusive during the call.
 * @param name     The scheme, a dot, and the name; UTF-8.
 * @param value    The value; UTF-8.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: no transport has it, or it
 *         does not take the value.
 */
dipc_status dipc_server_options_set_transport(struct dipc_server_options *options,
                                              const char *name,
                                              const char *value,
                                              struct dipc_error **error);

/**
 * Sets what only one transport knows. `ucx.KEY` for each key of UCX's configuration, without its
 * UCX_ (as `ucx.TLS` with `tcp`); `ucx.library`, the path of libucp to load; `ucx.error_handling`,
 * `peer` (the default: a dead peer is noticed) or `none` (faster on some transports);
 * `tcp.keepalive` and `ucx.keepalive`, the seconds after which a machine that does not answer is
 * taken for dead (60). A key or a value that UCX does not take is an error here where that can be
 * known without loading UCX, else where ucx is first used.
 *
 * @param options  Options to change; exclusive during the call.
 * @param name     The scheme, a dot, and the name; UTF-8.
 * @param value    The value; UTF-8.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: no transport has it, or it
 *         does not take the value.
 */
dipc_status dipc_client_options_set_transport(struct dipc_client_options *options,
                                              const char *name,
                                              const char *value,
                                              struct dipc_error **error);

/**
 * Sets how long the server's I/O thread looks for work before it sleeps. Default 0: 50
 * microseconds at most, where that has lately found something. While it spins it uses a whole
 * core, and answers sooner; it sleeps while as many providers' threads are awake as there are
 * cores for them and one client.
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
 * Sets how long a thread that waits for the stream looks for it before it sleeps. Default 0: 50
 * microseconds at most, where that has lately found something. While it spins it uses a whole
 * core, and notices sooner.
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
 * Sets how many connections carry one stream where the transport can spread bodies over several
 * (tcp). Default 1.
 *
 * @param options  Options to change; exclusive during the call.
 * @param connections  1 to 64.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: not 1 to 64.
 */
dipc_status dipc_get_options_set_connections(struct dipc_get_options *options,
                                             uint32_t connections,
                                             struct dipc_error **error);

/**
 * Makes a receiver for one stream.
 *
 * @param uris              n_uris strings, for their tags: the URI of the one connection, or of
 *                          the one for metadata and the one for bodies.
 * @param n_uris            1 or 2.
 * @param ticket            What is asked for: any bytes, at most 1016 KiB. Copied.
 * @param ticket_len_bytes  Length of ticket.
 * @param stream_id         16 bytes that tell this stream from others of the server's, best drawn
 *                          by chance; NULL where there is one connection.
 * @param options           Copied; NULL: the defaults. Those about connecting are not used.
 * @param out               Receives the receiver, to be freed by dipc_receiver_free().
 * @param error             May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_URI. DIPC_ERR_UNSUPPORTED,
 *         DIPC_ERR_INVALID_ARGUMENT: the options name a device that is not here, or the ticket is
 *         too long.
 */
dipc_status dipc_receiver_new(const char *const *uris,
                              size_t n_uris,
                              const uint8_t *ticket,
                              size_t ticket_len_bytes,
                              const uint8_t *stream_id,
                              const struct dipc_get_options *options,
                              struct dipc_receiver **out,
                              struct dipc_error **error);

/**
 * Asks: the request comes out of dipc_receiver_poll_transmit().
 *
 * @param receiver  Receiver; exclusive during the call.
 * @param now_ns    Monotonic time, nanoseconds; never less than in an earlier call.
 * @param error     May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_receiver_start(struct dipc_receiver *receiver,
                                uint64_t now_ns,
                                struct dipc_error **error);

/**
 * Takes an untagged message of the metadata stream.
 *
 * @param receiver   Receiver; exclusive during the call.
 * @param now_ns     Monotonic time, nanoseconds; never less than in an earlier call.
 * @param data       Message; read during the call only; may be NULL when len_bytes is 0.
 * @param len_bytes  Length of data.
 * @param error      May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. Otherwise what ended the stream: DIPC_ERR_PROTOCOL,
 *         where the server is at fault, or what it told.
 */
dipc_status dipc_receiver_handle_metadata(struct dipc_receiver *receiver,
                                          uint64_t now_ns,
                                          const uint8_t *data,
                                          size_t len_bytes,
                                          struct dipc_error **error);

/**
 * Takes a tagged message: a body, which is copied, or an address list.
 *
 * @param receiver   Receiver; exclusive during the call.
 * @param now_ns     Monotonic time, nanoseconds; never less than in an earlier call.
 * @param tag        The message's tag.
 * @param data       Message; read during the call only; may be NULL when len_bytes is 0.
 * @param len_bytes  Length of data.
 * @param error      May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. Otherwise what ended the stream: DIPC_ERR_PROTOCOL,
 *         where the server is at fault, or what it told. DIPC_ERR_OUT_OF_MEMORY.
 */
dipc_status dipc_receiver_handle_tagged(struct dipc_receiver *receiver,
                                        uint64_t now_ns,
                                        uint64_t tag,
                                        const uint8_t *data,
                                        size_t len_bytes,
                                        struct dipc_error **error);

/**
 * Takes a control message.
 *
 * @param receiver   Receiver; exclusive during the call.
 * @param now_ns     Monotonic time, nanoseconds; never less than in an earlier call.
 * @param role       The connection: DIPC_ROLE_DATA for the one for bodies where there are two,
 *                   otherwise DIPC_ROLE_METADATA.
 * @param data       Message; read during the call only; may be NULL when len_bytes is 0.
 * @param len_bytes  Length of data.
 * @param error      May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. Otherwise what ended the stream: DIPC_ERR_PROTOCOL,
 *         where the server is at fault, or what it told. DIPC_ERR_INVALID_ARGUMENT: no such role.
 */
dipc_status dipc_receiver_handle_control(struct dipc_receiver *receiver,
                                         uint64_t now_ns,
                                         int32_t role,
                                         const uint8_t *data,
                                         size_t len_bytes,
                                         struct dipc_error **error);

/**
 * Says that a connection is over. The stream fails, unless everything has arrived.
 *
 * @param receiver  Receiver; exclusive during the call.
 * @param role      The connection, as in dipc_receiver_handle_control().
 * @param text      Why; UTF-8, copied.
 * @param error     May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: no such role.
 */
dipc_status dipc_receiver_handle_disconnect(struct dipc_receiver *receiver,
                                            int32_t role,
                                            const char *text,
                                            struct dipc_error **error);

/**
 * Says that the time of dipc_receiver_poll_timeout() has come.
 *
 * @param receiver  Receiver; exclusive during the call.
 * @param now_ns    Monotonic time, nanoseconds; never less than in an earlier call.
 * @param error     May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_receiver_handle_timeout(struct dipc_receiver *receiver,
                                         uint64_t now_ns,
                                         struct dipc_error **error);

/**
 * Says where memory of the server's can be read in this process, for bodies that are lent: what an
 * address list names inside it is found there, and what it names elsewhere is a protocol error.
 *
 * @param receiver   Receiver; exclusive during the call.
 * @param address    First address, as the server calls it.
 * @param data       The same memory in this process.
 * @param len_bytes  Length of the memory.
 * @param userdata   Given to the finalizer; may be NULL.
 * @param finalizer  Called once, on any thread, when neither the receiver nor a batch needs the
 *                   memory; may be NULL.
 * @param error      May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK: the library calls the finalizer. Otherwise it does not. DIPC_ERR_NULL_ARGUMENT.
 *         DIPC_ERR_INVALID_ARGUMENT: length or address 0, or memory that was named before.
 */
dipc_status dipc_receiver_add_memory(struct dipc_receiver *receiver,
                                     uint64_t address,
                                     const uint8_t *data,
                                     size_t len_bytes,
                                     void *userdata,
                                     dipc_finalizer finalizer,
                                     struct dipc_error **error);

/**
 * Frees a receiver. NULL does nothing. Its batches stay valid; addresses that they hold can no
 * longer be given back one by one, so cut the connection when they are released.
 *
 * @param receiver  Receiver, or NULL; no call on it is running.
 */
void dipc_receiver_free(struct dipc_receiver *receiver);

/**
 * The schema of the stream.
 *
 * @param receiver  Receiver; exclusive during the call.
 * @param out       Receives a schema of its own, to be released.
 * @param error     May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_NOTHING: it has not come. DIPC_ERR_NULL_ARGUMENT. Otherwise what ended the
 *         stream before it came.
 */
dipc_status dipc_receiver_schema(struct dipc_receiver *receiver,
                                 struct ArrowSchema *out,
                                 struct dipc_error **error);

/**
 * The next batch. Taking it is what gives the server room for another.
 *
 * @param receiver  Receiver; exclusive during the call.
 * @param out       Receives the batch, to be released; a released one at the end of the stream.
 * @param error     May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_NOTHING: more has to arrive. DIPC_ERR_NULL_ARGUMENT. Otherwise what ended
 *         the stream; later calls say the same.
 */
dipc_status dipc_receiver_next(struct dipc_receiver *receiver,
                               struct ArrowDeviceArray *out,
                               struct dipc_error **error);

/**
 * Ends the stream early. The server is told; what is lent goes back.
 *
 * @param receiver  Receiver; exclusive during the call.
 * @param error     May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_receiver_cancel(struct dipc_receiver *receiver, struct dipc_error **error);

/**
 * The next message to send: its parts, one after the other.
 *
 * @param receiver        Receiver; exclusive during the call.
 * @param now_ns          Monotonic time, nanoseconds; never less than in an earlier call.
 * @param out_class       Receives DIPC_MESSAGE_*.
 * @param out_role        Receives the connection: DIPC_ROLE_METADATA or DIPC_ROLE_DATA.
 * @param out_tag         Receives the tag of a tagged message; 0 for others.
 * @param out_parts       Receives an array of pointers to the parts. It and they are valid until
 *                        the next call of this function or dipc_receiver_free().
 * @param out_lens_bytes  Receives an array of their lengths, valid as long.
 * @param out_n_parts     Receives the number of parts.
 * @param error           May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_NOTHING: no message waits. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_receiver_poll_transmit(struct dipc_receiver *receiver,
                                        uint64_t now_ns,
                                        int32_t *out_class,
                                        int32_t *out_role,
                                        uint64_t *out_tag,
                                        const void *const **out_parts,
                                        const size_t **out_lens_bytes,
                                        size_t *out_n_parts,
                                        struct dipc_error **error);

/**
 * The next body whose header has come and which has not come itself, for transports where receives
 * are posted ahead: it comes packed, or as an address list, with exactly these lengths.
 *
 * @param receiver          Receiver; exclusive during the call.
 * @param out_sequence      Receives its number, the low 32 bits of its tag.
 * @param out_packed_bytes  Receives the length of a packed body.
 * @param out_list_bytes    Receives the length of an address list.
 * @param error             May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_NOTHING: there is none. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_receiver_poll_expected(struct dipc_receiver *receiver,
                                        uint32_t *out_sequence,
                                        uint64_t *out_packed_bytes,
                                        uint64_t *out_list_bytes,
                                        struct dipc_error **error);

/**
 * When to call dipc_receiver_handle_timeout() and to poll again, at the latest. A time that has
 * passed means now. Batches that other threads release can make it earlier.
 *
 * @param receiver  Receiver; exclusive during the call.
 * @param out_ns    Receives the time, on the clock of now_ns.
 * @param error     May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_NOTHING: there is no such time. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_receiver_poll_timeout(struct dipc_receiver *receiver,
                                       uint64_t *out_ns,
                                       struct dipc_error **error);

/**
 * Where a receiver stands.
 *
 * @param receiver  Receiver, or NULL.
 * @return DIPC_RECEIVER_*; DIPC_RECEIVER_FAILED for NULL and in the child of a fork.
 */
int32_t dipc_receiver_state(const struct dipc_receiver *receiver);

/**
 * How many addresses batches hold, or wait to be sent back. While there are some the connection is
 * needed.
 *
 * @param receiver  Receiver, or NULL.
 * @return Their number; 0 for NULL.
 */
size_t dipc_receiver_lent_count(const struct dipc_receiver *receiver);

/**
 * What the client asked for.
 *
 * @param request        Request.
 * @param buffer         Receives the ticket, without a NUL; NULL asks for the length only.
 * @param size_bytes     Size of buffer.
 * @param out_len_bytes  Receives the length of the ticket.
 * @param error          May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is written all
 *         the same.
 */
dipc_status dipc_request_ticket(const struct dipc_request *request,
                                uint8_t *buffer,
                                size_t size_bytes,
                                size_t *out_len_bytes,
                                struct dipc_error **error);

/**
 * Who asked, for logs: "pid 4711, uid 1000".
 *
 * @param request        Request.
 * @param buffer         Receives the text and a NUL; NULL asks for the length only.
 * @param size_bytes     Size of buffer.
 * @param out_len_bytes  Receives the length of the text, without the NUL.
 * @param error          May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is written all
 *         the same.
 */
dipc_status dipc_request_peer(const struct dipc_request *request,
                              char *buffer,
                              size_t size_bytes,
                              size_t *out_len_bytes,
                              struct dipc_error **error);

/**
 * Whether the client has gone or has cancelled, so that more batches are of no use.
 *
 * @param request  Request, or NULL.
 * @return true then; also for NULL and in the child of a fork, where there is nobody to serve.
 */
bool dipc_request_is_cancelled(const struct dipc_request *request);

/**
 * A descriptor that says when dipc_request_is_cancelled() becomes true, for poll() and the like: a
 * provider that waits for something else can wait for both. It is readable (POLLIN) from then on.
 *
 * It is the request's: the same with each call, not to be closed, read from or written to, and
 * valid until the request is freed; a provider's, until its stream is released. Whoever needs it
 * for longer takes a dup().
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
 * Pull form: gives the schema, before the first batch.
 *
 * @param request      Request.
 * @param schema       Read, not moved.
 * @param device_type  Where the batches lie, as ARROW_DEVICE_CPU.
 * @param error        May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: called twice, or the request
 *         belongs to a provider. DIPC_ERR_INVALID_DATA: a bad schema. DIPC_ERR_UNSUPPORTED: a
 *         device that cannot be read here. DIPC_ERR_CANCELLED, DIPC_ERR_DISCONNECTED: the client
 *         is gone.
 */
dipc_status dipc_request_start(const struct dipc_request *request,
                               const struct ArrowSchema *schema,
                               int32_t device_type,
                               struct dipc_error **error);

/**
 * Pull form: sends a batch, waiting for room where the client is slow.
 *
 * @param request             Request.
 * @param batch               Moved on success: its release becomes NULL. It is released when the
 *                            client has given it back, by dipc_server_drain_releases(). Its
 *                            sync_event is waited for in this call.
 * @param metadata            Custom metadata of the batch, encoded as in ArrowSchema; NULL: none.
 * @param metadata_len_bytes  Length of metadata.
 * @param timeout_ns          Nanoseconds to wait at most; DIPC_FOREVER waits on.
 * @param error               May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. Otherwise the caller still owns the batch. DIPC_ERR_NULL_ARGUMENT.
 *         DIPC_ERR_TIMEOUT: no room came in time; call again. DIPC_ERR_INVALID_ARGUMENT: not
 *         started, or the request belongs to a provider. DIPC_ERR_INVALID_DATA: a bad batch, and
 *         the stream has failed. DIPC_ERR_CANCELLED, DIPC_ERR_DISCONNECTED: the client is gone.
 */
dipc_status dipc_request_push(const struct dipc_request *request,
                              struct ArrowDeviceArray *batch,
                              const uint8_t *metadata,
                              size_t metadata_len_bytes,
                              uint64_t timeout_ns,
                              struct dipc_error **error);

/**
 * Pull form: ends the stream well, waiting for the last batches to leave.
 *
 * @param request     Request.
 * @param timeout_ns  Nanoseconds to wait at most; DIPC_FOREVER waits on.
 * @param error       May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_TIMEOUT: call again.
 *         DIPC_ERR_INVALID_ARGUMENT: not started, or the request belongs to a provider.
 *         DIPC_ERR_CANCELLED, DIPC_ERR_DISCONNECTED: the client is gone.
 */
dipc_status dipc_request_finish(const struct dipc_request *request,
                                uint64_t timeout_ns,
                                struct dipc_error **error);

/**
 * Says why there is no stream, or no more of it. In the pull form the stream ends now, and a call
 * on another thread that waits for the client returns DIPC_ERR_CANCELLED. A provider then returns
 * non-zero, or its stream an errno: the client gets these words in place of others, behind "the
 * server: "; its dipc_error_source() has them alone.
 *
 * @param request  Request.
 * @param code     A DIPC_ERR_*, which the client sees as it is, or any number of the host's, which
 *                 it sees as DIPC_ERR_PROVIDER. So it sees those of the caller's own pointers,
 *                 handles and process: NULL_ARGUMENT, FORKED, PANIC, POISONED, BUFFER_TOO_SMALL.
 * @param text     UTF-8; copied.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: text is not UTF-8.
 */
dipc_status dipc_request_fail(const struct dipc_request *request,
                              int32_t code,
                              const char *text,
                              struct dipc_error **error);

/**
 * Frees a request of the pull form; one that is not finished fails its stream. NULL does nothing,
 * and a request that a provider was given is left to the library.
 *
 * @param request  Request, or NULL; no call on it is running.
 */
void dipc_request_free(struct dipc_request *request);

/**
 * Makes the sender of a fresh connection.
 *
 * @param uri             The URI that clients of the connection were given, for its tags and role;
 *                        NULL: the defaults, every role.
 * @param body            DIPC_BODY_PACKED or DIPC_BODY_LIST.
 * @param first_sequence  0; another number in tests of the wrap-around at 2^32.
 * @param out             Receives the sender, to be freed by dipc_sender_free().
 * @param error           May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_URI: also with DIPC_BODY_LIST and
 *         no free_data. DIPC_ERR_INVALID_ARGUMENT: no such way for bodies.
 */
dipc_status dipc_sender_new(const char *uri,
                            int32_t body,
                            uint32_t first_sequence,
                            struct dipc_sender **out,
                            struct dipc_error **error);

/**
 * Takes a tagged message of the client's: a request, or frees. Batches that come back are released
 * in this call.
 *
 * @param sender     Sender; exclusive during the call.
 * @param tag        The message's tag.
 * @param data       Message; read during the call only; may be NULL when len_bytes is 0.
 * @param len_bytes  Length of data.
 * @param error      May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_PROTOCOL: the client is at fault; send what is
 *         to be sent, and cut the connection.
 */
dipc_status dipc_sender_handle_tagged(struct dipc_sender *sender,
                                      uint64_t tag,
                                      const uint8_t *data,
                                      size_t len_bytes,
                                      struct dipc_error **error);

/**
 * Takes a control message of the client's.
 *
 * @param sender     Sender; exclusive during the call.
 * @param data       Message; read during the call only; may be NULL when len_bytes is 0.
 * @param len_bytes  Length of data.
 * @param error      May be NULL; on failure receives details for dipc_error_free().
 * @return As dipc_sender_handle_tagged().
 */
dipc_status dipc_sender_handle_control(struct dipc_sender *sender,
                                       const uint8_t *data,
                                       size_t len_bytes,
                                       struct dipc_error **error);

/**
 * Says that the connection is over. Everything that was lent is released in this call: the client
 * must not be able to read it any more.
 *
 * @param sender  Sender; exclusive during the call.
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_sender_handle_disconnect(struct dipc_sender *sender, struct dipc_error **error);

/**
 * Accepts the request and gives the schema.
 *
 * @param sender       Sender, in state DIPC_SENDER_REQUESTED; exclusive during the call.
 * @param schema       Read, not moved.
 * @param device_type  Where the batches lie, as ARROW_DEVICE_CPU.
 * @param error        May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: nothing is asked for.
 *         DIPC_ERR_INVALID_DATA: a bad schema. DIPC_ERR_UNSUPPORTED: a device that cannot be read
 *         here. DIPC_ERR_CANCELLED.
 */
dipc_status dipc_sender_start(struct dipc_sender *sender,
                              const struct ArrowSchema *schema,
                              int32_t device_type,
                              struct dipc_error **error);

/**
 * Refuses the request. A client that does not speak libdipc's extension is cut off instead.
 *
 * @param sender  Sender, in state DIPC_SENDER_REQUESTED; exclusive during the call.
 * @param code    A DIPC_ERR_*, or any number of the host's, which the client sees as
 *                DIPC_ERR_PROVIDER.
 * @param text    UTF-8; copied.
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: nothing is asked for.
 */
dipc_status dipc_sender_refuse(struct dipc_sender *sender,
                               int32_t code,
                               const char *text,
                               struct dipc_error **error);

/**
 * Sends a batch, and the dictionaries that it needs.
 *
 * @param sender              Sender, with a stream running; exclusive during the call.
 * @param batch               Moved on success: its release becomes NULL. It is released when its
 *                            body was sent or, where it was lent, given back.
 * @param metadata            Custom metadata of the batch, encoded as in ArrowSchema; NULL: none.
 * @param metadata_len_bytes  Length of metadata.
 * @param error               May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. Otherwise the caller still owns the batch. DIPC_ERR_NULL_ARGUMENT.
 *         DIPC_ERR_BUSY: the window is full; hand in control messages and try again.
 *         DIPC_ERR_INVALID_ARGUMENT: no stream is running. DIPC_ERR_INVALID_DATA,
 *         DIPC_ERR_UNSUPPORTED: a batch that cannot be sent; another one can be.
 *         DIPC_ERR_CANCELLED.
 */
dipc_status dipc_sender_send_batch(struct dipc_sender *sender,
                                   struct ArrowDeviceArray *batch,
                                   const uint8_t *metadata,
                                   size_t metadata_len_bytes,
                                   struct dipc_error **error);

/**
 * Ends the stream well, once everything before has gone.
 *
 * @param sender  Sender, with a stream running; exclusive during the call.
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: no stream is running.
 */
dipc_status dipc_sender_end(struct dipc_sender *sender, struct dipc_error **error);

/**
 * Ends the stream with an error that the client is told.
 *
 * @param sender  Sender, with a stream asked for or running; exclusive during the call.
 * @param code    As in dipc_sender_refuse().
 * @param text    UTF-8; copied.
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: there is no stream.
 */
dipc_status dipc_sender_fail(struct dipc_sender *sender,
                             int32_t code,
                             const char *text,
                             struct dipc_error **error);

/**
 * The next message to send: its parts, one after the other.
 *
 * @param sender          Sender; exclusive during the call.
 * @param out_class       Receives DIPC_MESSAGE_*.
 * @param out_tag         Receives the tag of a tagged message; 0 for others.
 * @param out_parts       Receives an array of pointers to the parts. It and they are valid until
 *                        the next call of this function, dipc_sender_handle_disconnect() or
 *                        dipc_sender_free().
 * @param out_lens_bytes  Receives an array of their lengths, valid as long.
 * @param out_n_parts     Receives the number of parts; an empty body has none.
 * @param error           May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_NOTHING: no message waits. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_sender_poll_transmit(struct dipc_sender *sender,
                                      int32_t *out_class,
                                      uint64_t *out_tag,
                                      const void *const **out_parts,
                                      const size_t **out_lens_bytes,
                                      size_t *out_n_parts,
                                      struct dipc_error **error);

/**
 * Frees a sender. NULL does nothing. Batches that were lent are released.
 *
 * @param sender  Sender, or NULL; no call on it is running.
 */
void dipc_sender_free(struct dipc_sender *sender);

/**
 * Where a sender stands.
 *
 * @param sender  Sender, or NULL.
 * @return DIPC_SENDER_*; DIPC_SENDER_CLOSED for NULL and in the child of a fork.
 */
int32_t dipc_sender_state(const struct dipc_sender *sender);

/**
 * Whether the client's window has room for a batch.
 *
 * @param sender  Sender, or NULL.
 * @return true where dipc_sender_send_batch() would not say DIPC_ERR_BUSY; false for NULL.
 */
bool dipc_sender_may_send(const struct dipc_sender *sender);

/**
 * Whether the client has cancelled the stream.
 *
 * @param sender  Sender, or NULL.
 * @return true then; false for NULL.
 */
bool dipc_sender_is_cancelled(const struct dipc_sender *sender);

/**
 * How many addresses were lent and not yet given back. While there are some the connection is
 * needed.
 *
 * @param sender  Sender, or NULL.
 * @return Their number; 0 for NULL.
 */
size_t dipc_sender_lent_count(const struct dipc_sender *sender);

/**
 * What the client asks for.
 *
 * @param sender         Sender, in state DIPC_SENDER_REQUESTED or after.
 * @param buffer         Receives the ticket, without a NUL; NULL asks for the length only.
 * @param size_bytes     Size of buffer.
 * @param out_len_bytes  Receives the length of the ticket.
 * @param error          May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_NOT_FOUND: nothing was asked for yet.
 *         DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is written all the same.
 */
dipc_status dipc_sender_ticket(const struct dipc_sender *sender,
                               uint8_t *buffer,
                               size_t size_bytes,
                               size_t *out_len_bytes,
                               struct dipc_error **error);

/**
 * Makes a server that serves nothing yet. Starts two threads: one for connections, and one that
 * releases arrays which clients have given back.
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
 * Listens, and gives the URI that reaches the server. May be called for several addresses.
 *
 * @param server         Server.
 * @param uri            "shm:/path" or "shm:@name"; may set tags of its own (want_data=N).
 * @param buffer         Receives the whole URI and a NUL; NULL where it is not wanted.
 * @param size_bytes     Size of buffer: at least DIPC_URI_BYTES, or 0 where it is NULL.
 * @param out_len_bytes  Receives the length of the URI, without the NUL.
 * @param error          May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is
 *         DIPC_URI_BYTES and the server does not listen. DIPC_ERR_INVALID_URI.
 *         DIPC_ERR_UNSUPPORTED: no such transport here. DIPC_ERR_ADDRESS_IN_USE: a live server
 *         listens there. DIPC_ERR_PERMISSION. DIPC_ERR_STOPPED.
 */
dipc_status dipc_server_listen(const struct dipc_server *server,
                               const char *uri,
                               char *buffer,
                               size_t size_bytes,
                               size_t *out_len_bytes,
                               struct dipc_error **error);

/**
 * The URI of the first address the server listens at, for one role. A client that takes two URIs,
 * for metadata and for bodies, gets one for each.
 *
 * @param server         Server.
 * @param role           DIPC_ROLE_BOTH, DIPC_ROLE_METADATA or DIPC_ROLE_DATA.
 * @param buffer         Receives the URI and a NUL; NULL asks for the length only.
 * @param size_bytes     Size of buffer; DIPC_URI_BYTES is always enough.
 * @param out_len_bytes  Receives the length of the URI, without the NUL.
 * @param error          May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: no such role.
 *         DIPC_ERR_NOT_FOUND: the server listens nowhere. DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes
 *         is written all the same.
 */
dipc_status dipc_server_location(const struct dipc_server *server,
                                 int32_t role,
                                 char *buffer,
                                 size_t size_bytes,
                                 size_t *out_len_bytes,
                                 struct dipc_error **error);

/**
 * Pull form: waits for the next request for a ticket of dipc_server_serve_pull().
 *
 * @param server      Server.
 * @param timeout_ns  Nanoseconds to wait at most; 0 does not wait, DIPC_FOREVER waits on.
 * @param cancel      Ends the wait from another thread; may be NULL.
 * @param out         Receives the request, to be freed by dipc_request_free().
 * @param error       May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_NOTHING: none came in time, out is not written. DIPC_ERR_NULL_ARGUMENT.
 *         DIPC_ERR_CANCELLED: by the token. DIPC_ERR_STOPPED.
 */
dipc_status dipc_server_next_request(const struct dipc_server *server,
                                     uint64_t timeout_ns,
                                     const struct dipc_cancel *cancel,
                                     struct dipc_request **out,
                                     struct dipc_error **error);

/**
 * Pull form: releases, on the calling thread, the arrays that clients have given back. Call it now
 * and then; dipc_server_free() does the rest.
 *
 * @param server     Server.
 * @param out_count  Receives how many releases were run.
 * @param error      May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_server_drain_releases(const struct dipc_server *server,
                                       size_t *out_count,
                                       struct dipc_error **error);

/**
 * One figure of a server.
 *
 * @param server  Server.
 * @param stat    DIPC_SERVER_STAT_*.
 * @param out     Receives the figure.
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the library has no such
 *         figure; an older one than the header may not.
 */
dipc_status dipc_server_stat(const struct dipc_server *server,
                             int32_t stat,
                             uint64_t *out,
                             struct dipc_error **error);

/**
 * Stops a server: no new connections and no new streams; streams under way may end until the
 * deadline; then their connections are cut. Before that it waits, within the deadline, until what
 * was sent has arrived: over ucx, where only the client can tell, until each client has closed its
 * connection, which libdipc's do when they are told of the stop; other clients are given a quarter
 * of a second. Arrays that clients hold stay valid. May be called again.
 *
 * @param server       Server.
 * @param deadline_ns  Nanoseconds from now; 0 cuts at once, DIPC_FOREVER waits for every stream.
 * @param error        May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_TIMEOUT: a provider had still not returned a
 *         moment after the cut; it is not called again, and its finalizer runs when it returns.
 */
dipc_status dipc_server_stop(const struct dipc_server *server,
                             uint64_t deadline_ns,
                             struct dipc_error **error);

/**
 * Stops a server at once, if dipc_server_stop() did not, and frees it. NULL does nothing. Where a
 * provider has not returned yet, nothing waits for it: its finalizer runs when it does. Arrays on
 * a GPU that a client was lent and has not given back are released when the client's process has
 * ended, on a thread of the library's. Over ucx, arrays on their way to a client are never
 * released where UCX does not let go of its connection within a second; the log says so.
 *
 * @param server  Server, or NULL; no call on it is running.
 */
void dipc_server_free(struct dipc_server *server);

/**
 * Makes options with the defaults, which each setter names.
 *
 * @param out    Receives the options, to be freed by dipc_server_options_free().
 * @param error  May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_server_options_new(struct dipc_server_options **out, struct dipc_error **error);

/**
 * Sets how many streams are served at once; one more is refused with DIPC_ERR_BUSY. Each stream of
 * a provider has a thread of its own. A stream whose client has gone does not count, though its
 * provider may not have returned: dipc_server_options_set_max_providers() bounds those. Default
 * 64.
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
 * Sets how many streams providers may be busy with at once, or the host in the pull form, those
 * included whose clients have gone; past it a request for such a ticket is refused with
 * DIPC_ERR_BUSY. So clients that come and go cannot pile up threads in a provider that is stuck:
 * one that waits should also wait for dipc_request_cancel_fd(). Until the provider returns, a
 * client that stays uses another connection; it closes the stream's when the server has said
 * nothing for its stall timeout, or 60 s. Default: max_streams and 64 more.
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
 * Sets the most memory of regions that copies are lent from; past it bodies travel as bytes. A
 * region counts until nobody has its memory, neither this process nor any that it was lent to or
 * passed on to. All processes of another user together have half of it at most. The memory of a
 * dipc_arena does not count. Default 16 GiB. Bodies that a stream's client has not read wait up to
 * this divided by max_streams, at least 1 MiB and at most 64 MiB; then no more are made.
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
 * Sets the size of one region that copies are lent from; a larger body gets a region of its own.
 * Default 64 MiB.
 *
 * @param options       Options to change; exclusive during the call.
 * @param region_bytes  Bytes; rounded up to whole pages.
 * @param error         May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: 0.
 */
dipc_status dipc_server_options_set_region_bytes(struct dipc_server_options *options,
                                                 uint64_t region_bytes,
                                                 struct dipc_error **error);

/**
 * Sets how long a region with nothing in use is kept for the next copies. Default 10 s.
 *
 * @param options         Options to change; exclusive during the call.
 * @param region_idle_ns  Nanoseconds, from a millisecond to a year; others count as the nearest of
 *                        these.
 * @param error           May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_server_options_set_region_idle_ns(struct dipc_server_options *options,
                                                   uint64_t region_idle_ns,
                                                   struct dipc_error **error);

/**
 * Sets up to which size a body travels as bytes rather than as lent memory. Default 4096.
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
 * Sets the most bytes of copies lent to one connection and not yet given back; past it bodies
 * travel as bytes. The smaller of this and what the client asks for counts. Default 1 GiB.
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
 * Admits clients of every user of this machine, not only of the user that runs the server. Default
 * false.
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
 * Sets how bodies travel. Default DIPC_BODY_AUTO.
 *
 * @param options  Options to change; exclusive during the call.
 * @param body     DIPC_BODY_AUTO, DIPC_BODY_PACKED or DIPC_BODY_LENT.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: no such way.
 */
dipc_status dipc_server_options_set_body(struct dipc_server_options *options,
                                         int32_t body,
                                         struct dipc_error **error);

/**
 * Compresses bodies, which then travel as bytes. Default DIPC_COMPRESSION_NONE.
 *
 * @param options      Options to change; exclusive during the call.
 * @param compression  DIPC_COMPRESSION_NONE, DIPC_COMPRESSION_LZ4 or DIPC_COMPRESSION_ZSTD.
 * @param error        May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: no such codec.
 */
dipc_status dipc_server_options_set_compression(struct dipc_server_options *options,
                                                int32_t compression,
                                                struct dipc_error **error);

/**
 * Sets the number of each stream's first message, for tests of the wrap-around at 2^32. The other
 * side must be told the same. Default 0, which the protocol asks for.
 *
 * @param options         Options to change; exclusive during the call.
 * @param first_sequence  Sequence number.
 * @param error           May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_server_options_set_first_sequence(struct dipc_server_options *options,
                                                   uint32_t first_sequence,
                                                   struct dipc_error **error);

/**
 * Frees options. NULL does nothing; servers made with them keep their copy.
 *
 * @param options  Options, or NULL.
 */
void dipc_server_options_free(struct dipc_server_options *options);

/**
 * Serves a ticket by calling a provider for each stream.
 *
 * @param server            Server.
 * @param ticket            What clients ask for: any bytes, at most 1016 KiB. Copied.
 * @param ticket_len_bytes  Length of ticket.
 * @param provider          Called once for each stream, on a thread of its own.
 * @param userdata          Given to provider and finalizer; may be NULL.
 * @param finalizer         Called once, when the ticket was withdrawn and the last call has
 *                          returned; may be NULL.
 * @param flags             0, or DIPC_PROVIDER_DETERMINISTIC.
 * @param error             May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK: the library calls the finalizer. Otherwise it does not.
 *         DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: unknown flags, a ticket
 *         that is too long.
 *         DIPC_ERR_ALREADY_EXISTS: the ticket is served. DIPC_ERR_STOPPED.
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
 * Serves a ticket in the pull form: its requests come out of dipc_server_next_request(), and no
 * thread of the library ever calls the host.
 *
 * @param server            Server.
 * @param ticket            What clients ask for: any bytes, at most 1016 KiB. Copied.
 * @param ticket_len_bytes  Length of ticket.
 * @param error             May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the ticket is too long.
 *         DIPC_ERR_ALREADY_EXISTS: the ticket is served. DIPC_ERR_STOPPED.
 */
dipc_status dipc_server_serve_pull(const struct dipc_server *server,
                                   const uint8_t *ticket,
                                   size_t ticket_len_bytes,
                                   struct dipc_error **error);

/**
 * Serves a ticket with a table that can be fetched any number of times, by many clients at once.
 * The arrays are released when the ticket was withdrawn and the last client has given them back.
 *
 * @param server            Server.
 * @param ticket            What clients ask for: any bytes, at most 1016 KiB. Copied.
 * @param ticket_len_bytes  Length of ticket.
 * @param schema            Moved on success: its release becomes NULL.
 * @param batches           An array of n_batches arrays, each moved on success. An array's
 *                          sync_event is waited for by the library, on a thread of a stream.
 * @param n_batches         Number of batches; 0 is a table without rows.
 * @param error             May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. Otherwise the caller still owns schema and batches. DIPC_ERR_NULL_ARGUMENT.
 *         DIPC_ERR_INVALID_ARGUMENT: one of them is released, or the ticket is too long.
 *         DIPC_ERR_INVALID_DATA: the schema cannot be sent, as where a name, or a key or value of
 *         its metadata, is not UTF-8, which the IPC format asks for. DIPC_ERR_ALREADY_EXISTS: the
 *         ticket is served. DIPC_ERR_STOPPED.
 */
dipc_status dipc_server_publish(const struct dipc_server *server,
                                const uint8_t *ticket,
                                size_t ticket_len_bytes,
                                struct ArrowSchema *schema,
                                struct ArrowDeviceArray *batches,
                                size_t n_batches,
                                struct dipc_error **error);

/**
 * Stops serving a ticket. Streams under way go on. A client that was lent memory can read it for
 * as long as it keeps it.
 *
 * @param server            Server.
 * @param ticket            Ticket.
 * @param ticket_len_bytes  Length of ticket.
 * @param error             May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_NOT_FOUND: it is not served.
 */
dipc_status dipc_server_withdraw(const struct dipc_server *server,
                                 const uint8_t *ticket,
                                 size_t ticket_len_bytes,
                                 struct dipc_error **error);

/**
 * How many tickets are served now.
 *
 * @param server     Server.
 * @param out_count  Receives their number.
 * @param error      May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_server_ticket_count(const struct dipc_server *server,
                                     size_t *out_count,
                                     struct dipc_error **error);

/**
 * One of the tickets served now, in byte order. Tickets that come and go meanwhile move the
 * others: to list them, count up from 0 until DIPC_ERR_NOT_FOUND.
 *
 * @param server         Server.
 * @param index          Number of the ticket, from 0.
 * @param buffer         Receives the ticket, without a NUL; NULL asks for the length only.
 * @param size_bytes     Size of buffer.
 * @param out_len_bytes  Receives the length of the ticket.
 * @param error          May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_NOT_FOUND: there are not so many.
 *         DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is written all the same.
 */
dipc_status dipc_server_ticket(const struct dipc_server *server,
                               size_t index,
                               uint8_t *buffer,
                               size_t size_bytes,
                               size_t *out_len_bytes,
                               struct dipc_error **error);

/**
 * Why a stream of the library's failed, in full: its own callbacks can only say an errno and a
 * text.
 *
 * @param stream  Stream of dipc_client_get() or dipc_stream_from_host(), not released; no callback
 *                of it is running.
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK: it has not failed. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: it is
 *         released, or is not the library's. Otherwise what the stream failed with.
 */
dipc_status dipc_stream_status(const struct ArrowDeviceArrayStream *stream,
                               struct dipc_error **error);

/**
 * Custom metadata of the batch that get_next gave last.
 *
 * @param stream         Stream of dipc_client_get(), not released; no callback of it is running.
 * @param buffer         Receives the metadata, encoded as in ArrowSchema; NULL asks for the length
 *                       only.
 * @param size_bytes     Size of buffer.
 * @param out_len_bytes  Receives the length; 0 where the batch has none.
 * @param error          May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the stream is released, or
 *         is not of dipc_client_get(). DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is written all the
 *         same.
 */
dipc_status dipc_stream_metadata(const struct ArrowDeviceArrayStream *stream,
                                 uint8_t *buffer,
                                 size_t size_bytes,
                                 size_t *out_len_bytes,
                                 struct dipc_error **error);

/**
 * One figure of a stream, so far.
 *
 * @param stream  Stream of dipc_client_get(), not released; no callback of it is running.
 * @param stat    DIPC_STREAM_STAT_*.
 * @param out     Receives the figure.
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the stream is released, or
 *         is not of dipc_client_get(), or the library has no such figure.
 */
dipc_status dipc_stream_stat(const struct ArrowDeviceArrayStream *stream,
                             int32_t stat,
                             uint64_t *out,
                             struct dipc_error **error);

/**
 * Turns a device stream into a host stream, for hosts that know only the C data interface. Arrays
 * in host memory are handed on; those of CUDA (device types 2, 3 and 13) are copied to the host,
 * each when it is asked for.
 *
 * @param source  Moved on success: its release becomes NULL.
 * @param out     Receives the stream; what it held before is not released. May not be source.
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. Otherwise the caller still owns source. DIPC_ERR_NULL_ARGUMENT.
 *         DIPC_ERR_INVALID_ARGUMENT: source is released. DIPC_ERR_UNSUPPORTED: its arrays lie on a
 *         device that this machine has no driver for, or that the library does not know.
 */
dipc_status dipc_stream_to_host(struct ArrowDeviceArrayStream *source,
                                struct ArrowArrayStream *out,
                                struct dipc_error **error);

/**
 * Turns a device stream into one whose arrays lie in the memory of another device, or of the host.
 * Each is copied when it is asked for, where it does not lie there already. What an array on a GPU
 * carries as sync_event is behind its copy.
 *
 * @param source       Moved on success: its release becomes NULL.
 * @param device_type  Where to: 1, the host (ARROW_DEVICE_CPU), or 2, a GPU (ARROW_DEVICE_CUDA).
 * @param device_id    The GPU's number; not looked at for the host.
 * @param out          Receives the stream; what it held before is not released. May not be source.
 * @param error        May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. Otherwise the caller still owns source. DIPC_ERR_NULL_ARGUMENT.
 *         DIPC_ERR_INVALID_ARGUMENT: source is released, or there is no such GPU.
 *         DIPC_ERR_UNSUPPORTED: arrays cannot be moved from there, or to there, or there is no
 *         driver.
 */
dipc_status dipc_stream_to_device(struct ArrowDeviceArrayStream *source,
                                  int32_t device_type,
                                  int64_t device_id,
                                  struct ArrowDeviceArrayStream *out,
                                  struct dipc_error **error);

/**
 * Turns a host stream into a device stream of host memory, as providers give it.
 *
 * @param source  Moved on success: its release becomes NULL.
 * @param out     Receives the stream; what it held before is not released. May not be source.
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. Otherwise the caller still owns source. DIPC_ERR_NULL_ARGUMENT.
 *         DIPC_ERR_INVALID_ARGUMENT: source is released.
 */
dipc_status dipc_stream_from_host(struct ArrowArrayStream *source,
                                  struct ArrowDeviceArrayStream *out,
                                  struct dipc_error **error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* DIPC_H */
