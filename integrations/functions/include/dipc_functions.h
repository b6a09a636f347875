/*
 * Functions that travel to the tables of libdipc's servers.
 *
 * Generated from integrations/functions/c by cbindgen; change the Rust source and run
 * `DIPC_BLESS=1 cargo test --test header`.
 *
 * SPDX-License-Identifier: Apache-2.0
 */

/**
 * @file dipc_functions.h
 * @brief The C API of libdipc_functions, which works with the handles of dipc.h.
 *
 * A client has a module of WebAssembly and makes a message of it: a function with its arguments. It
 * sends the message with a get (the server's table goes through the function), with a put (the
 * client's table does, before the server's host has it), with an exchange (the function answers each
 * batch as it comes), or alone. The module's code goes to a server once, when the server says that
 * it lacks it.
 *
 * A server runs no functions until its operator enables them with a policy.
 *
 * The conventions are those of dipc.h. One more is of this library: the calls that set headers of
 * options (dipc_function_get() and the like) leave these headers in the caller's options. A handle
 * of this library is plain memory, which the child of a fork() may use too.
 *
 * For an event loop, and for every other call of dipc.h that takes options: send the module by
 * dipc_function_send_module(), add a message's headers to a dipc_headers by
 * dipc_function_message_headers(), set them in the options, and call dipc_client_start() or the
 * like.
 */

#ifndef DIPC_FUNCTIONS_H
#define DIPC_FUNCTIONS_H

#include <dipc.h>

/**
 * About one unit for each instruction of the module, in one call. Default: 2^40.
 */
#define DIPC_FUNCTIONS_LIMIT_FUEL 1

/**
 * Nanoseconds inside the module, in one call; the time between two batches does not count.
 * Default: 60 s.
 */
#define DIPC_FUNCTIONS_LIMIT_TIME_NS 2

/**
 * Bytes of the module's linear memory, in one call. Default: 256 MiB.
 */
#define DIPC_FUNCTIONS_LIMIT_MEMORY_BYTES 3

/**
 * Rows of all output of one call. Default: 2^32.
 */
#define DIPC_FUNCTIONS_LIMIT_OUTPUT_ROWS 4

/**
 * Bytes of all output of one call, as they lie in the server's memory. Default: 64 GiB.
 */
#define DIPC_FUNCTIONS_LIMIT_OUTPUT_BYTES 5

/**
 * Bytes that one step of a call (a batch of its table, or the table's end) may put out. The server
 * holds them until the step has ended. Default: 256 MiB.
 */
#define DIPC_FUNCTIONS_LIMIT_STEP_BYTES 6

/**
 * Bytes of the greatest module. Default: 16 MiB.
 */
#define DIPC_FUNCTIONS_LIMIT_MODULE_BYTES 7

/**
 * Compiled modules in memory. Those that were not used for longest go first. Default: 64.
 */
#define DIPC_FUNCTIONS_LIMIT_MODULES 8

/**
 * Bytes of compiled modules in memory. Default: 256 MiB.
 */
#define DIPC_FUNCTIONS_LIMIT_MODULES_BYTES 9

/**
 * Bytes of all modules in the folder of dipc_functions_policy_set_folder(). Default: 1 GiB.
 */
#define DIPC_FUNCTIONS_LIMIT_FOLDER_BYTES 10

/**
 * How often a call may go on at another server (dipc_functions_policy_allow_peer()), counted from its
 * first server. Default: 64.
 */
#define DIPC_FUNCTIONS_LIMIT_HOPS 11

/**
 * Nanoseconds that a server where a call goes on may send nothing while this one waits for it. It
 * sends nothing while a step runs there, nor while it waits for a further server. Default: 600 s.
 */
#define DIPC_FUNCTIONS_LIMIT_STALL_NS 12

/**
 * A function of a module, with arguments, on its way to a server. It can be sent any number of
 * times, to any servers.
 */
typedef struct dipc_function_message dipc_function_message;

/**
 * A module of WebAssembly, as a client has it.
 */
typedef struct dipc_function_module dipc_function_module;

/**
 * What the operator of a server allows its clients to run: nothing, until it names modules, keys
 * or all modules. And what one call may use.
 */
typedef struct dipc_functions_policy dipc_functions_policy;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Makes a call of a function.
 *
 * @param module               Module; the message keeps its bytes and its signature.
 * @param function             Name of a function of the module; UTF-8. Copied.
 * @param arguments            Bytes for the function, whose module says what they mean. With the
 *                             other headers of the request they have at most 64 KiB. Copied.
 * @param arguments_len_bytes  Length of arguments.
 * @param out                  Receives the message, to be freed by dipc_function_message_free().
 * @param error                May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the name is not UTF-8.
 */
dipc_status dipc_function_message_new(const struct dipc_function_module *module,
                                      const char *function,
                                      const uint8_t *arguments,
                                      size_t arguments_len_bytes,
                                      struct dipc_function_message **out,
                                      dipc_error **error);

/**
 * Adds the headers that ask for the function, for every call of dipc.h that has options: they make
 * a dipc_client_start(), a dipc_client_get_async() or a dipc_client_exchange() one for the
 * function. The call fails with DIPC_ERR_NOT_FOUND where the server lacks the module:
 * dipc_function_send_module() comes first.
 *
 * @param message  Message.
 * @param alone    True: the function runs without a table, and the request is a get, whose ticket
 *                 does not matter. False: it runs on the table of the get, put or exchange.
 * @param headers  Headers to add to; exclusive during the call. Go into the options of a request.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_function_message_headers(const struct dipc_function_message *message,
                                          bool alone,
                                          dipc_headers *headers,
                                          dipc_error **error);

/**
 * Gets what a function makes of a server's table. Where the server lacks the module, sends it and
 * asks again, once.
 *
 * @param message           Message.
 * @param client            Client.
 * @param uris              As for dipc_client_get().
 * @param n_uris            1: a module goes to one server.
 * @param ticket            Name of the server's table.
 * @param ticket_len_bytes  Length of ticket.
 * @param options           Options, whose headers are replaced; exclusive during the call. Columns,
 *                          filter and rows are those of the function's output. NULL: the defaults.
 * @param headers           Headers of the caller's own, as for the server's authorizer; may be NULL.
 * @param cancel            Token that ends this call and the stream's calls; may be NULL.
 * @param out               Receives the stream. An old value is overwritten, not released.
 * @param error             May be NULL; on failure receives details for dipc_error_free().
 * @return As dipc_client_get() and dipc_function_send_module(). DIPC_ERR_PERMISSION: the server does
 *         not allow it. DIPC_ERR_PROVIDER: the function failed, with its text.
 *         DIPC_ERR_OUT_OF_RESOURCES: it reached a bound. DIPC_ERR_UNSUPPORTED: the server runs no
 *         functions, or the table is not in host memory.
 */
dipc_status dipc_function_get(const struct dipc_function_message *message,
                              const dipc_client *client,
                              const char *const *uris,
                              size_t n_uris,
                              const uint8_t *ticket,
                              size_t ticket_len_bytes,
                              dipc_get_options *options,
                              const dipc_headers *headers,
                              const dipc_cancel *cancel,
                              struct ArrowDeviceArrayStream *out,
                              dipc_error **error);

/**
 * Runs a function alone, and gives what it puts out: batches, or bytes as a column `bytes` of
 * binary with a row for each piece. Where the server lacks the module, sends it and asks again,
 * once.
 *
 * @param message  Message.
 * @param client   Client.
 * @param uris     As for dipc_client_get().
 * @param n_uris   1.
 * @param options  Options, whose headers are replaced; exclusive during the call. NULL: the
 *                 defaults.
 * @param headers  Headers of the caller's own, as for the server's authorizer; may be NULL.
 * @param cancel   Token that ends this call and the stream's calls; may be NULL.
 * @param out      Receives the stream. An old value is overwritten, not released.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return As dipc_function_get().
 */
dipc_status dipc_function_run(const struct dipc_function_message *message,
                              const dipc_client *client,
                              const char *const *uris,
                              size_t n_uris,
                              dipc_get_options *options,
                              const dipc_headers *headers,
                              const dipc_cancel *cancel,
                              struct ArrowDeviceArrayStream *out,
                              dipc_error **error);

/**
 * Puts a table, which goes through a function before the server's host has it. Where the server
 * lacks the module, sends it and asks again, once; no batch is sent before the server has it.
 *
 * @param message               Message.
 * @param client                Client.
 * @param uris                  One string: the server's URI.
 * @param n_uris                1.
 * @param descriptor            Name of the table for the server's host.
 * @param descriptor_len_bytes  Length of descriptor.
 * @param options               Options, whose headers are replaced; exclusive during the call.
 *                              NULL: the defaults.
 * @param headers               Headers of the caller's own, as for the server's authorizer; may be
 *                              NULL.
 * @param cancel                Token that ends this call and the put's calls; may be NULL.
 * @param source                Moved on success: its release becomes NULL.
 * @param out                   Receives the put, to be freed by dipc_put_free(): dipc_put_finish()
 *                              sends the table.
 * @param error                 May be NULL; on failure receives details for dipc_error_free().
 * @return As dipc_client_put(), dipc_function_get() and dipc_function_send_module(). What fails in
 *         the function, dipc_put_finish() reports. Otherwise than on DIPC_OK the caller still owns
 *         source.
 */
dipc_status dipc_function_put(const struct dipc_function_message *message,
                              const dipc_client *client,
                              const char *const *uris,
                              size_t n_uris,
                              const uint8_t *descriptor,
                              size_t descriptor_len_bytes,
                              dipc_put_options *options,
                              const dipc_headers *headers,
                              const dipc_cancel *cancel,
                              struct ArrowDeviceArrayStream *source,
                              dipc_put **out,
                              dipc_error **error);

/**
 * Exchanges a table with a function, which answers each batch as it comes: one table from here,
 * batch by batch, and the function's output, on one connection at once. Where the server lacks the
 * module, sends it and asks again, once. Then the calls of dipc_client_exchange() go on.
 *
 * @param message         Message.
 * @param client          Client.
 * @param uris            One string: the server's URI.
 * @param n_uris          1.
 * @param options         Of the table from here: its headers are replaced; exclusive during the
 *                        call. NULL: the defaults.
 * @param answer_options  Of the function's output, as for dipc_client_exchange(). Copied; NULL: the
 *                        defaults.
 * @param headers         Headers of the caller's own, as for the server's authorizer; may be NULL.
 * @param cancel          Token that ends this call, and the calls of the put and the stream; may be
 *                        NULL.
 * @param schema          Of the table from here. Read, not moved.
 * @param device_type     Device of the batches, as ARROW_DEVICE_CPU.
 * @param out             Receives the put, to be freed by dipc_put_free().
 * @param answers         Receives the stream of the function's output. Its get_schema waits for the
 *                        function. An old value is overwritten, not released.
 * @param error           May be NULL; on failure receives details for dipc_error_free().
 * @return As dipc_client_exchange(), dipc_function_get() and dipc_function_send_module(). What fails
 *         in the function after this call, both tables report.
 */
dipc_status dipc_function_exchange(const struct dipc_function_message *message,
                                   const dipc_client *client,
                                   const char *const *uris,
                                   size_t n_uris,
                                   dipc_put_options *options,
                                   const dipc_get_options *answer_options,
                                   const dipc_headers *headers,
                                   const dipc_cancel *cancel,
                                   const struct ArrowSchema *schema,
                                   int32_t device_type,
                                   dipc_put **out,
                                   struct ArrowDeviceArrayStream *answers,
                                   dipc_error **error);

/**
 * Frees a message. NULL does nothing.
 *
 * @param message  Message, or NULL.
 */
void dipc_function_message_free(struct dipc_function_message *message);

/**
 * Makes a module of its bytes. The server checks them.
 *
 * @param wasm            Bytes of a file NAME.wasm. Copied.
 * @param wasm_len_bytes  Length of wasm.
 * @param out             Receives the module, to be freed by dipc_function_module_free().
 * @param error           May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_function_module_new(const uint8_t *wasm,
                                     size_t wasm_len_bytes,
                                     struct dipc_function_module **out,
                                     dipc_error **error);

/**
 * Gives the hash of a module, which names it.
 *
 * @param module  Module.
 * @param out     Receives 32 bytes: the SHA-256 of the module's bytes.
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_function_module_hash(const struct dipc_function_module *module,
                                      uint8_t *out,
                                      dipc_error **error);

/**
 * Sets the signature that goes with a module, for servers that allow modules by a key.
 *
 * @param module               Module to change; exclusive during the call. Messages that were made
 *                             of it stay as they are.
 * @param signature            64 bytes: a signature of Ed25519 over the text "libdipc function
 *                             module 1", a NUL, and the 32 bytes of the hash. Copied.
 * @param signature_len_bytes  64.
 * @param error                May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: another length.
 */
dipc_status dipc_function_module_set_signature(struct dipc_function_module *module,
                                               const uint8_t *signature,
                                               size_t signature_len_bytes,
                                               dipc_error **error);

/**
 * Sends a module to a server, which compiles and keeps it. Before a message's headers go with a
 * call of dipc.h, as dipc_client_start() or dipc_client_get_async(), the server must have its
 * module; dipc_function_get() and the like send it by themselves.
 *
 * @param module   Module.
 * @param client   Client.
 * @param uris     One string: the server's URI.
 * @param n_uris   1.
 * @param options  Options, whose headers are replaced; exclusive during the call. NULL: the
 *                 defaults.
 * @param headers  Headers of the caller's own, as for the server's authorizer; may be NULL.
 * @param cancel   Token that ends the call; may be NULL.
 * @param error    May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK: the server has the module, which may have been there before.
 *         DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_PERMISSION: the server does not allow the module, or
 *         this client. DIPC_ERR_INVALID_DATA: no sandbox takes it. DIPC_ERR_OUT_OF_RESOURCES: it is
 *         too large. DIPC_ERR_UNSUPPORTED: the server runs no functions. Those of
 *         dipc_client_put() and dipc_put_finish().
 */
dipc_status dipc_function_send_module(const struct dipc_function_module *module,
                                      const dipc_client *client,
                                      const char *const *uris,
                                      size_t n_uris,
                                      dipc_put_options *options,
                                      const dipc_headers *headers,
                                      const dipc_cancel *cancel,
                                      dipc_error **error);

/**
 * Frees a module. Messages that were made of it stay valid. NULL does nothing.
 *
 * @param module  Module, or NULL.
 */
void dipc_function_module_free(struct dipc_function_module *module);

/**
 * Makes a policy that allows nothing.
 *
 * @param out    Receives the policy, to be freed by dipc_functions_policy_free().
 * @param error  May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_functions_policy_new(struct dipc_functions_policy **out, dipc_error **error);

/**
 * Allows the module with this hash.
 *
 * @param policy  Policy to change; exclusive during the call.
 * @param hash    32 bytes: the SHA-256 of the module's bytes (dipc_function_module_hash()).
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_functions_policy_allow_module(struct dipc_functions_policy *policy,
                                               const uint8_t *hash,
                                               dipc_error **error);

/**
 * Allows modules that the owner of this key has signed (dipc_function_module_set_signature()).
 * Such a module may run for every client that the policy lets through, once one has sent it.
 *
 * @param policy  Policy to change; exclusive during the call.
 * @param key     32 bytes: a public key of Ed25519.
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the bytes are no such key.
 */
dipc_status dipc_functions_policy_allow_key(struct dipc_functions_policy *policy,
                                            const uint8_t *key,
                                            dipc_error **error);

/**
 * Allows every module: the sandbox alone stands between its code and this machine.
 *
 * @param policy  Policy to change; exclusive during the call.
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
 */
dipc_status dipc_functions_policy_allow_any_module(struct dipc_functions_policy *policy,
                                                   dipc_error **error);

/**
 * Lets clients with this principal alone ask for functions, and those of further calls. Without a
 * call of this, every client may that the server admits.
 *
 * @param policy     Policy to change; exclusive during the call.
 * @param principal  Name that the server's authorizer gives (dipc_request_set_principal()); UTF-8.
 *                   Copied.
 * @param error      May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the name is not UTF-8.
 */
dipc_status dipc_functions_policy_allow_principal(struct dipc_functions_policy *policy,
                                                  const char *principal,
                                                  dipc_error **error);

/**
 * Lets functions that ask for it go on at a server. Without a call of this, no call leaves its
 * server.
 *
 * A function chooses the URI, and this server asks in its own name: name servers alone that may be
 * reached by everybody who may run a function here. A beginning should contain the port's colon, as
 * tcp://node-1:*, since other hosts' names may begin alike.
 *
 * @param policy  Policy to change; exclusive during the call.
 * @param uri     A URI, whose parameters do not matter, or, with `*` at its end, all that begin so;
 *                UTF-8. Copied.
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the URI is not UTF-8.
 */
dipc_status dipc_functions_policy_allow_peer(struct dipc_functions_policy *policy,
                                             const char *uri,
                                             dipc_error **error);

/**
 * Sets a bound.
 *
 * @param policy  Policy to change; exclusive during the call.
 * @param limit   DIPC_FUNCTIONS_LIMIT_*.
 * @param value   The most that is allowed, in the unit of the limit.
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: limit is unknown.
 */
dipc_status dipc_functions_policy_set_limit(struct dipc_functions_policy *policy,
                                            int32_t limit,
                                            uint64_t value,
                                            dipc_error **error);

/**
 * Sets a folder for the modules' bytes, so that they outlive this process. Its files are checked
 * when they are read. Default: modules are kept in memory alone.
 *
 * @param policy  Policy to change; exclusive during the call.
 * @param folder  Path; dipc_functions_enable() makes the folder if it is missing.
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: an empty path.
 */
dipc_status dipc_functions_policy_set_folder(struct dipc_functions_policy *policy,
                                             const char *folder,
                                             dipc_error **error);

/**
 * Sets a folder for compiled code. Code from there runs unchecked: nobody but the server's user
 * may write there. Default: each process compiles for itself.
 *
 * @param policy  Policy to change; exclusive during the call.
 * @param folder  Path; dipc_functions_enable() makes the folder if it is missing.
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: an empty path.
 */
dipc_status dipc_functions_policy_set_code_folder(struct dipc_functions_policy *policy,
                                                  const char *folder,
                                                  dipc_error **error);

/**
 * Frees a policy. Servers that were enabled with it go on. NULL does nothing.
 *
 * @param policy  Policy, or NULL.
 */
void dipc_functions_policy_free(struct dipc_functions_policy *policy);

/**
 * Lets clients of a server run functions, as a policy says. It is the server's middleware
 * (dipc_server_set_middleware()); another one that is set replaces it, and turns functions off.
 *
 * A function reads tables in host memory: the published ones, and those of the server's providers
 * and handler. It runs on the thread of the request, and ends in the middle of a step when the client
 * goes or cancels.
 *
 * Where the policy has peers (dipc_functions_policy_allow_peer()), a function may go on there. The
 * server asks them by a client with the default options, and none of the request's headers is
 * passed on.
 *
 * @param server  Server.
 * @param policy  Copied.
 * @param error   May be NULL; on failure receives details for dipc_error_free().
 * @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_UNSUPPORTED: this machine cannot run a sandbox.
 *         DIPC_ERR_IO: a folder of the policy cannot be used. DIPC_ERR_STOPPED.
 */
dipc_status dipc_functions_enable(const dipc_server *server,
                                  const struct dipc_functions_policy *policy,
                                  dipc_error **error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* DIPC_FUNCTIONS_H */
