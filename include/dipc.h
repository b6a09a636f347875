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
 * Something is wrong and was coped with: a peer that was refused, a limit that was met.
 */
#define DIPC_LOG_WARN 2

/**
 * Servers, clients and streams come and go.
 */
#define DIPC_LOG_INFO 3

/**
 * What the library decides, stream by stream.
 */
#define DIPC_LOG_DEBUG 4

/**
 * Every message.
 */
#define DIPC_LOG_TRACE 5

/**
 * Ends calls that wait, from another thread. One token may be given to any number of calls, also
 * at the same time; once triggered it stays so. Made by dipc_cancel_new().
 */
typedef struct dipc_cancel dipc_cancel;

/**
 * Why a call failed: a status for programs, a text for people. Plain data: it may be read by any
 * thread, also after a fork, and is independent of the handle it came from.
 */
typedef struct dipc_error dipc_error;

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
 * @param text      What happened; UTF-8, no newline at its end.
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
 * Sends log events to a callback, in place of the one set before. The library prints nothing, and
 * says nothing at all until this is called. Starts one thread, which ends after the finalizer.
 *
 * The callback set before gets what was logged until now; its finalizer runs, on its thread, after
 * its last call. Nothing waits for that: wait in the finalizer's own way before unloading code.
 * Events that come faster than the callback takes them are dropped, and their number is logged.
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
 * Sends log events to a callback, in place of the one set before. The library prints nothing, and
 * says nothing at all until this is called. Starts one thread, which ends after the finalizer.
 *
 * The callback set before gets what was logged until now; its finalizer runs, on its thread, after
 * its last call. Nothing waits for that: wait in the finalizer's own way before unloading code.
 * Events that come faster than the callback takes them are dropped, and their number is logged.
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

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* DIPC_H */
