/*
 * libdipc: senders and receivers for hosts that carry the messages themselves.
 *
 * Generated from src/ffi/machines by cbindgen; change the Rust source and run
 * `DIPC_BLESS=1 cargo test --test header`.
 *
 * SPDX-License-Identifier: Apache-2.0
 */

/**
 * @file dipc_machines.h
 * @brief The protocol without a transport: senders and receivers.
 *
 * For hosts that carry the messages themselves; others need dipc.h alone. The conventions are those
 * of dipc.h.
 */

#ifndef DIPC_MACHINES_H
#define DIPC_MACHINES_H

#include "dipc.h"

/**
 * An untagged message of the metadata stream.
 */
#define DIPC_MESSAGE_METADATA 1

/**
 * A tagged message: a body, an address list, a request, or a free_data list.
 */
#define DIPC_MESSAGE_TAGGED 2

/**
 * A control message of libdipc's extension.
 */
#define DIPC_MESSAGE_CONTROL 3

/**
 * An order to cut the connection, not a message. The one part is the reason, UTF-8 without a NUL.
 */
#define DIPC_MESSAGE_DISCONNECT 4

/**
 * The server has not answered the request.
 */
#define DIPC_RECEIVER_REQUESTED 1

/**
 * The server has accepted the request; the schema has not arrived.
 */
#define DIPC_RECEIVER_AWAITING_SCHEMA 2

/**
 * The schema has arrived.
 */
#define DIPC_RECEIVER_STREAMING 3

/**
 * Everything has arrived. Batches may still wait for dipc_receiver_next().
 */
#define DIPC_RECEIVER_ENDED 4

/**
 * The stream has failed; dipc_receiver_next() gives the reason.
 */
#define DIPC_RECEIVER_FAILED 5

/**
 * This side has cancelled the stream.
 */
#define DIPC_RECEIVER_CANCELLED 6

/**
 * Bodies are sent as lists of their addresses in this process, for clients that can read its
 * memory. Only for arrays in host memory, and only for dipc_sender_new().
 */
#define DIPC_BODY_LIST 3

/**
 * No request waits and no stream is running.
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
 * The consuming side of one stream, for hosts that carry the messages themselves. It has no
 * transport, no clock and no threads. One thread at a time may use it; any thread may release
 * batches.
 *
 * After dipc_receiver_start(), hand in each arriving message, and take batches by
 * dipc_receiver_next(). After each call send the messages of dipc_receiver_poll_transmit() until
 * it returns DIPC_NOTHING, then read the next deadline by dipc_receiver_poll_timeout().
 */
typedef struct dipc_receiver dipc_receiver;

/**
 * The producing side of one connection, for hosts that carry the messages themselves. It has no
 * transport, no clock and no threads. One thread at a time may use it.
 *
 * Hand in each arriving message. When a request has come, read dipc_sender_verb(), and answer by
 * dipc_sender_start() or dipc_sender_refuse(). Send batches while dipc_sender_may_send() is true,
 * then call dipc_sender_end(). After each call send the messages of dipc_sender_poll_transmit()
 * until it returns DIPC_NOTHING.
 */
typedef struct dipc_sender dipc_sender;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Makes a receiver for one stream.
 *
 * @param uris              n_uris strings, read for their tags: the URI of the one connection, or
 *                          the URIs of the metadata connection and the body connection.
 * @param n_uris            1 or 2.
 * @param verb              DIPC_VERB_GET, DIPC_VERB_DESCRIBE or DIPC_VERB_LIST. The answers to the
 *                          last two are tables too: see dipc_description_to_stream().
 * @param ticket            Name of the table: any bytes, at most 1016 KiB. Copied.
 * @param ticket_len_bytes  Length of ticket.
 * @param stream_id         16 bytes, different for each stream of the server, best random; NULL
 *                          with one connection.
 * @param options           Copied; NULL: the defaults. Options for connecting have no effect.
 * @param out               Receives the receiver, to be freed by dipc_receiver_free().
 * @param error             May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_URI. DIPC_ERR_UNSUPPORTED,
 *         DIPC_ERR_INVALID_ARGUMENT: this machine lacks the options' device, the server at the URI
 *         knows no verbs, verb is none of the three, or the ticket is too long.
 */
dipc_status dipc_receiver_new(const char *const *uris,
                              size_t n_uris,
                              int32_t verb,
                              const uint8_t *ticket,
                              size_t ticket_len_bytes,
                              const uint8_t *stream_id,
                              const struct dipc_get_options *options,
                              struct dipc_receiver **out,
                              struct dipc_error **error);

/**
 * Starts the stream: dipc_receiver_poll_transmit() then gives the request.
 *
 * @param receiver  Receiver; exclusive during the call.
 * @param now_ns    Monotonic time in nanoseconds; never less than in an earlier call.
 * @param error     May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_receiver_start(struct dipc_receiver *receiver,
                                uint64_t now_ns,
                                struct dipc_error **error);

/**
 * Hands in an untagged message of the metadata stream.
 *
 * @param receiver   Receiver; exclusive during the call.
 * @param now_ns     Monotonic time in nanoseconds; never less than in an earlier call.
 * @param data       Message, read during the call only; may be NULL if len_bytes is 0.
 * @param len_bytes  Length of data.
 * @param error      May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. Otherwise the status that ended the stream:
 *         DIPC_ERR_PROTOCOL if the server broke the protocol, or the server's own status.
 */
dipc_status dipc_receiver_handle_metadata(struct dipc_receiver *receiver,
                                          uint64_t now_ns,
                                          const uint8_t *data,
                                          size_t len_bytes,
                                          struct dipc_error **error);

/**
 * Hands in a tagged message: a body, which is copied, or an address list.
 *
 * @param receiver   Receiver; exclusive during the call.
 * @param now_ns     Monotonic time in nanoseconds; never less than in an earlier call.
 * @param tag        The message's tag.
 * @param data       Message, read during the call only; may be NULL if len_bytes is 0.
 * @param len_bytes  Length of data.
 * @param error      May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. Otherwise the status that ended the stream:
 *         DIPC_ERR_PROTOCOL if the server broke the protocol, or the server's own status.
 *         DIPC_ERR_OUT_OF_MEMORY.
 */
dipc_status dipc_receiver_handle_tagged(struct dipc_receiver *receiver,
                                        uint64_t now_ns,
                                        uint64_t tag,
                                        const uint8_t *data,
                                        size_t len_bytes,
                                        struct dipc_error **error);

/**
 * Hands in a control message.
 *
 * @param receiver   Receiver; exclusive during the call.
 * @param now_ns     Monotonic time in nanoseconds; never less than in an earlier call.
 * @param role       Connection of the message: DIPC_ROLE_DATA for the second of two connections,
 *                   otherwise DIPC_ROLE_METADATA.
 * @param data       Message, read during the call only; may be NULL if len_bytes is 0.
 * @param len_bytes  Length of data.
 * @param error      May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. Otherwise the status that ended the stream:
 *         DIPC_ERR_PROTOCOL if the server broke the protocol, or the server's own status.
 *         DIPC_ERR_INVALID_ARGUMENT: the role is unknown.
 */
dipc_status dipc_receiver_handle_control(struct dipc_receiver *receiver,
                                         uint64_t now_ns,
                                         int32_t role,
                                         const uint8_t *data,
                                         size_t len_bytes,
                                         struct dipc_error **error);

/**
 * Reports that a connection has ended. Batches that have arrived can still be taken. After them
 * the stream fails, unless everything has arrived.
 *
 * @param receiver  Receiver; exclusive during the call.
 * @param role      Connection, as in dipc_receiver_handle_control().
 * @param text      Reason; UTF-8, copied.
 * @param error     May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the role is unknown.
 */
dipc_status dipc_receiver_handle_disconnect(struct dipc_receiver *receiver,
                                            int32_t role,
                                            const char *text,
                                            struct dipc_error **error);

/**
 * Reports that the time of dipc_receiver_poll_timeout() has come.
 *
 * @param receiver  Receiver; exclusive during the call.
 * @param now_ns    Monotonic time in nanoseconds; never less than in an earlier call.
 * @param error     May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_receiver_handle_timeout(struct dipc_receiver *receiver,
                                         uint64_t now_ns,
                                         struct dipc_error **error);

/**
 * Maps a range of the server's addresses to memory of this process, for lent bodies. An address
 * list may name addresses in such ranges only; any other address is a protocol error.
 *
 * @param receiver   Receiver; exclusive during the call.
 * @param address    First address of the range in the server.
 * @param data       The same memory in this process.
 * @param len_bytes  Length of the memory.
 * @param userdata   Given to the finalizer; may be NULL.
 * @param finalizer  Called once, on any thread, when neither the receiver nor a batch needs the
 *                   memory any more; may be NULL.
 * @param error      May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK: the library calls the finalizer. Otherwise it does not. DIPC_ERR_NULL_ARGUMENT.
 *         DIPC_ERR_INVALID_ARGUMENT: a length or address of 0, or an overlap with an earlier
 *         range.
 */
dipc_status dipc_receiver_add_memory(struct dipc_receiver *receiver,
                                     uint64_t address,
                                     const uint8_t *data,
                                     size_t len_bytes,
                                     void *userdata,
                                     dipc_finalizer finalizer,
                                     struct dipc_error **error);

/**
 * Frees a receiver. NULL does nothing. Its batches stay valid, but their addresses can no longer
 * be given back one by one: cut the connection after the last batch is released.
 *
 * @param receiver  Receiver, or NULL; no call on it is running.
 */
void dipc_receiver_free(struct dipc_receiver *receiver);

/**
 * Gives the schema of the stream.
 *
 * @param receiver  Receiver; exclusive during the call.
 * @param out       Receives a schema, to be released by the caller.
 * @param error     May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_NOTHING: the schema has not arrived. DIPC_ERR_NULL_ARGUMENT. Otherwise the
 *         status that ended the stream before its schema.
 */
dipc_status dipc_receiver_schema(struct dipc_receiver *receiver,
                                 struct ArrowSchema *out,
                                 struct dipc_error **error);

/**
 * Gives the headers of the server's answer: those that came with the schema, then those that came
 * with a failure.
 *
 * @param receiver  Receiver.
 * @param out       Receives a copy of the headers, to be freed by dipc_headers_free().
 * @param error     May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_receiver_headers(const struct dipc_receiver *receiver,
                                  dipc_headers **out,
                                  struct dipc_error **error);

/**
 * Takes the next batch, which lets the server send another.
 *
 * @param receiver  Receiver; exclusive during the call.
 * @param out       Receives the batch, to be released by the caller; a released batch at the end
 *                  of the stream.
 * @param error     May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_NOTHING: no whole batch has arrived. DIPC_ERR_NULL_ARGUMENT. Otherwise the
 *         status that ended the stream, also in later calls.
 */
dipc_status dipc_receiver_next(struct dipc_receiver *receiver,
                               struct ArrowDeviceArray *out,
                               struct dipc_error **error);

/**
 * Cancels the stream. The receiver tells the server, and gives lent memory back.
 *
 * @param receiver  Receiver; exclusive during the call.
 * @param error     May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_receiver_cancel(struct dipc_receiver *receiver, struct dipc_error **error);

/**
 * Takes the next message to send. Send its parts as one message, in order.
 *
 * @param receiver        Receiver; exclusive during the call.
 * @param now_ns          Monotonic time, nanoseconds; never less than in an earlier call.
 * @param out_class       Receives DIPC_MESSAGE_*.
 * @param out_role        Receives the message's connection: DIPC_ROLE_METADATA or DIPC_ROLE_DATA.
 * @param out_tag         Receives the tag of a tagged message, otherwise 0.
 * @param out_parts       Receives an array of pointers to the parts. Array and parts are valid
 *                        until the next call of this function or dipc_receiver_free().
 * @param out_lens_bytes  Receives an array of the parts' lengths, valid for the same time.
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
 * Gives the next body to expect, for transports that post receives in advance. Its header has
 * arrived. The body will come packed or as an address list, with exactly these lengths.
 *
 * @param receiver          Receiver; exclusive during the call.
 * @param out_sequence      Receives the body's number, the low 32 bits of its tag.
 * @param out_packed_bytes  Receives the length if the body comes packed.
 * @param out_list_bytes    Receives the length if an address list comes.
 * @param error             May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_NOTHING: no body is expected. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_receiver_poll_expected(struct dipc_receiver *receiver,
                                        uint32_t *out_sequence,
                                        uint64_t *out_packed_bytes,
                                        uint64_t *out_list_bytes,
                                        struct dipc_error **error);

/**
 * Gives the latest time for the next dipc_receiver_handle_timeout() and polls. A past time means
 * now. The time can become earlier when other threads release batches.
 *
 * @param receiver  Receiver; exclusive during the call.
 * @param out_ns    Receives the time, on the clock of now_ns.
 * @param error     May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_NOTHING: no call is due. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_receiver_poll_timeout(struct dipc_receiver *receiver,
                                       uint64_t *out_ns,
                                       struct dipc_error **error);

/**
 * Gives the state of a receiver.
 *
 * @param receiver  Receiver, or NULL.
 * @return DIPC_RECEIVER_*; DIPC_RECEIVER_FAILED for NULL and in the child of a fork.
 */
int32_t dipc_receiver_state(const struct dipc_receiver *receiver);

/**
 * Counts the lent addresses that batches hold or that wait to be sent back. The receiver needs its
 * connection until the count is 0.
 *
 * @param receiver  Receiver, or NULL.
 * @return Number of addresses; 0 for NULL.
 */
size_t dipc_receiver_lent_count(const struct dipc_receiver *receiver);

/**
 * Makes the sender of a new connection.
 *
 * @param uri    The URI that the clients have, read for its tags and role; NULL: the
 *               default tags, every role.
 * @param body   DIPC_BODY_PACKED or DIPC_BODY_LIST.
 * @param out    Receives the sender, to be freed by dipc_sender_free().
 * @param error  May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_URI: a malformed URI, or
 *         DIPC_BODY_LIST with a URI without free_data. DIPC_ERR_INVALID_ARGUMENT: body is neither
 *         of the two.
 */
dipc_status dipc_sender_new(const char *uri,
                            int32_t body,
                            struct dipc_sender **out,
                            struct dipc_error **error);

/**
 * Hands in a tagged message of the client: a request, or a free_data list. This call releases the
 * batches that the client gives back.
 *
 * @param sender     Sender; exclusive during the call.
 * @param tag        The message's tag.
 * @param data       Message; read during the call only; may be NULL when len_bytes is 0.
 * @param len_bytes  Length of data.
 * @param error      May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_PROTOCOL: the client broke the protocol; send
 *         the messages that wait, and cut the connection.
 */
dipc_status dipc_sender_handle_tagged(struct dipc_sender *sender,
                                      uint64_t tag,
                                      const uint8_t *data,
                                      size_t len_bytes,
                                      struct dipc_error **error);

/**
 * Hands in a control message of the client.
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
 * Reports that the connection has ended. This call releases everything that was lent: the client
 * must no longer be able to read it.
 *
 * @param sender  Sender; exclusive during the call.
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_sender_handle_disconnect(struct dipc_sender *sender, struct dipc_error **error);

/**
 * Accepts the request, and sends the schema.
 *
 * @param sender       Sender, in state DIPC_SENDER_REQUESTED; exclusive during the call.
 * @param schema       Read, not moved.
 * @param device_type  Where the batches lie, for example ARROW_DEVICE_CPU.
 * @param error        May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: no request waits.
 *         DIPC_ERR_INVALID_DATA: the schema is invalid. DIPC_ERR_UNSUPPORTED: this process cannot
 *         read the device. DIPC_ERR_CANCELLED.
 */
dipc_status dipc_sender_start(struct dipc_sender *sender,
                              const struct ArrowSchema *schema,
                              int32_t device_type,
                              struct dipc_error **error);

/**
 * Refuses the request. A client without libdipc's extension is disconnected instead.
 *
 * @param sender  Sender, in state DIPC_SENDER_REQUESTED; exclusive during the call.
 * @param code    A DIPC_ERR_*. Any other number becomes DIPC_ERR_PROVIDER for the client.
 * @param text    UTF-8; copied.
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: no request waits.
 */
dipc_status dipc_sender_refuse(struct dipc_sender *sender,
                               int32_t code,
                               const char *text,
                               struct dipc_error **error);

/**
 * Sends a batch, and the dictionaries that it needs.
 *
 * @param sender              Sender, with a stream running; exclusive during the call.
 * @param batch               Moved on success: its release becomes NULL. It is released after its
 *                            body was sent or, if it was lent, given back.
 * @param metadata            Custom metadata of the batch, encoded as in ArrowSchema; NULL: none.
 * @param metadata_len_bytes  Length of metadata.
 * @param error               May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. Otherwise the caller still owns the batch. DIPC_ERR_NULL_ARGUMENT.
 *         DIPC_ERR_BUSY: the window is full; hand in control messages and try again.
 *         DIPC_ERR_INVALID_ARGUMENT: no stream is running. DIPC_ERR_INVALID_DATA,
 *         DIPC_ERR_UNSUPPORTED: this batch cannot be sent; the stream goes on. DIPC_ERR_CANCELLED.
 */
dipc_status dipc_sender_send_batch(struct dipc_sender *sender,
                                   struct ArrowDeviceArray *batch,
                                   const uint8_t *metadata,
                                   size_t metadata_len_bytes,
                                   struct dipc_error **error);

/**
 * Completes the stream, after all messages that still wait to be sent.
 *
 * @param sender  Sender, with a stream running; exclusive during the call.
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: no stream is running.
 */
dipc_status dipc_sender_end(struct dipc_sender *sender, struct dipc_error **error);

/**
 * Ends the stream with an error, which is sent to the client.
 *
 * @param sender  Sender, with a request or a running stream; exclusive during the call.
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
 * Takes the next message to send. Send its parts as one message, in order.
 *
 * @param sender          Sender; exclusive during the call.
 * @param out_class       Receives DIPC_MESSAGE_*.
 * @param out_tag         Receives the tag of a tagged message, otherwise 0.
 * @param out_parts       Receives an array of pointers to the parts. Array and parts are valid
 *                        until the next call of this function, dipc_sender_handle_disconnect() or
 *                        dipc_sender_free().
 * @param out_lens_bytes  Receives an array of the parts' lengths, valid for the same time.
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
 * Gives the ticket that the client asked for.
 *
 * @param sender         Sender, in state DIPC_SENDER_REQUESTED or after.
 * @param buffer         Receives the ticket, without a NUL; NULL asks for the length only.
 * @param size_bytes     Size of buffer.
 * @param out_len_bytes  Receives the length of the ticket.
 * @param error          May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_NOT_FOUND: no request has come.
 *         DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is still written.
 */
dipc_status dipc_sender_ticket(const struct dipc_sender *sender,
                               uint8_t *buffer,
                               size_t size_bytes,
                               size_t *out_len_bytes,
                               struct dipc_error **error);

/**
 * Gives the verb of the request.
 *
 * @param sender  Sender, or NULL.
 * @return DIPC_VERB_GET: the client wants the table. DIPC_VERB_DESCRIBE, DIPC_VERB_LIST: it wants
 *         the table of dipc_description_to_stream(); a host without descriptions calls
 *         dipc_sender_refuse(). The sender itself refuses other verbs, and a get of some columns
 *         or rows (dipc_get_options_set_columns()), by DIPC_ERR_UNSUPPORTED. 0 for NULL, without a
 *         request and in the child of a fork.
 */
int32_t dipc_sender_verb(const struct dipc_sender *sender);

/**
 * Gives the time that the client allows for the whole stream, from the request on. The sender has
 * no clock, so the host ends a stream that takes longer, by dipc_sender_fail().
 *
 * @param sender  Sender, or NULL.
 * @return Nanoseconds; DIPC_FOREVER if the client has set no deadline, for NULL, without a request
 *         and in the child of a fork.
 */
uint64_t dipc_sender_deadline_ns(const struct dipc_sender *sender);

/**
 * Gives the headers of the request.
 *
 * @param sender  Sender, in state DIPC_SENDER_REQUESTED or after.
 * @param out     Receives a copy of the headers, to be freed by dipc_headers_free().
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_NOT_FOUND: no request has come.
 */
dipc_status dipc_sender_headers(const struct dipc_sender *sender,
                                dipc_headers **out,
                                struct dipc_error **error);

/**
 * Adds headers to the answer. The client gets them with the schema; headers that are added after
 * dipc_sender_start() go with a failure of the stream. A client that does not know headers gets
 * none.
 *
 * @param sender   Sender, with a request or a running stream; exclusive during the call.
 * @param headers  Copied. One answer has at most 32 KiB, 5 bytes for each pair included.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: more than 32 KiB, or there
 *         is no stream.
 */
dipc_status dipc_sender_add_headers(struct dipc_sender *sender,
                                    const dipc_headers *headers,
                                    struct dipc_error **error);

/**
 * Gives the state of a sender.
 *
 * @param sender  Sender, or NULL.
 * @return DIPC_SENDER_*; DIPC_SENDER_CLOSED for NULL and in the child of a fork.
 */
int32_t dipc_sender_state(const struct dipc_sender *sender);

/**
 * Tells whether the client's window has room for a batch.
 *
 * @param sender  Sender, or NULL.
 * @return true if dipc_sender_send_batch() would not return DIPC_ERR_BUSY; false for NULL.
 */
bool dipc_sender_may_send(const struct dipc_sender *sender);

/**
 * Tells whether the client has cancelled the stream.
 *
 * @param sender  Sender, or NULL.
 * @return true if it has; false for NULL.
 */
bool dipc_sender_is_cancelled(const struct dipc_sender *sender);

/**
 * Counts the lent addresses that the client has not given back. The sender needs its connection
 * until the count is 0.
 *
 * @param sender  Sender, or NULL.
 * @return Number of addresses; 0 for NULL.
 */
size_t dipc_sender_lent_count(const struct dipc_sender *sender);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* DIPC_MACHINES_H */
