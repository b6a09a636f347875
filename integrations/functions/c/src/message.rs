//! Functions on their way to a server.

use std::ffi::c_char;

use arrow::ffi::FFI_ArrowSchema;
use dipc_sandbox::service::{ARGUMENTS, Ask, Call, HEADER, NEEDS};

use crate::arguments::{bytes, output, shared, text};
use crate::calls::{Headers, Server, add, get_options, is, key, put_options};
use crate::error::{Result, guard, guard_free};
use crate::module::dipc_function_module;
use crate::sys::*;

/// A function of a module, with arguments, on its way to a server. It can be sent any number of
/// times, to any servers.
pub struct dipc_function_message {
    pub(crate) module: dipc_function_module,
    pub(crate) call: Call,
}

/// Makes a call of a function.
///
/// @param module               Module; the message keeps its bytes and its signature.
/// @param function             Name of a function of the module; UTF-8. Copied.
/// @param arguments            Bytes for the function, whose module says what they mean. With the
///                             other headers of the request they have at most 64 KiB. Copied.
/// @param arguments_len_bytes  Length of arguments.
/// @param out                  Receives the message, to be freed by dipc_function_message_free().
/// @param error                May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the name is not UTF-8.
///
/// # Safety
///
/// `module` is NULL or live; `function` is NULL or NUL-terminated; `arguments` is readable for
/// `arguments_len_bytes`; `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_function_message_new(
    module: *const dipc_function_module,
    function: *const c_char,
    arguments: *const u8,
    arguments_len_bytes: usize,
    out: *mut *mut dipc_function_message,
    error: *mut *mut dipc_error,
) -> dipc_status {
    let body = || {
        // SAFETY: the caller promises `module` is NULL or live.
        let module = unsafe { shared(module, "module") }?;
        // SAFETY: the caller promises `function` is NULL or NUL-terminated.
        let function = unsafe { text(function, "function") }?;
        // SAFETY: the caller promises `arguments` is readable.
        let arguments = unsafe { bytes(arguments, arguments_len_bytes, "arguments") }?;
        // SAFETY: the caller promises `out` is NULL or writable.
        let set = unsafe { output(out, "out") }?;
        set(Box::into_raw(Box::new(dipc_function_message {
            module: module.clone(),
            call: Call {
                module: module.hash,
                function: function.to_owned(),
                arguments: arguments.to_vec(),
            },
        })));
        Ok(())
    };
    // SAFETY: the caller promises `error` is NULL or writable.
    unsafe { guard(error, body) }
}

/// Adds the headers that ask for the function, for every call of dipc.h that has options: they make
/// a dipc_client_start(), a dipc_client_get_async() or a dipc_client_exchange() one for the
/// function. The call fails with DIPC_ERR_NOT_FOUND where the server lacks the module:
/// dipc_function_send_module() comes first.
///
/// @param message  Message.
/// @param alone    True: the function runs without a table, and the request is a get, whose ticket
///                 does not matter. False: it runs on the table of the get, put or exchange.
/// @param headers  Headers to add to; exclusive during the call. Go into the options of a request.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `message` is NULL or live; `headers` is NULL, or live and used by nobody else; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_function_message_headers(
    message: *const dipc_function_message,
    alone: bool,
    headers: *mut dipc_headers,
    error: *mut *mut dipc_error,
) -> dipc_status {
    let body = || {
        // SAFETY: the caller promises `message` is NULL or live.
        let message = unsafe { shared(message, "message") }?;
        // SAFETY: the caller promises `headers` is NULL, or live and exclusive.
        unsafe { message.add_to(headers, alone) }
    };
    // SAFETY: the caller promises `error` is NULL or writable.
    unsafe { guard(error, body) }
}

/// Gets what a function makes of a server's table. Where the server lacks the module, sends it and
/// asks again, once.
///
/// @param message           Message.
/// @param client            Client.
/// @param uris              As for dipc_client_get().
/// @param n_uris            1: a module goes to one server.
/// @param ticket            Name of the server's table.
/// @param ticket_len_bytes  Length of ticket.
/// @param options           Options, whose headers are replaced; exclusive during the call. Columns,
///                          filter and rows are those of the function's output. NULL: the defaults.
/// @param headers           Headers of the caller's own, as for the server's authorizer; may be NULL.
/// @param cancel            Token that ends this call and the stream's calls; may be NULL.
/// @param out               Receives the stream. An old value is overwritten, not released.
/// @param error             May be NULL; on failure receives details for dipc_error_free().
/// @return As dipc_client_get() and dipc_function_send_module(). DIPC_ERR_PERMISSION: the server does
///         not allow it. DIPC_ERR_PROVIDER: the function failed, with its text.
///         DIPC_ERR_OUT_OF_RESOURCES: it reached a bound. DIPC_ERR_UNSUPPORTED: the server runs no
///         functions, or the table is not in host memory.
///
/// # Safety
///
/// `message`, `client`, `headers` and `cancel` are NULL or live; `options` is NULL, or live and used
/// by nobody else; `uris` points to `n_uris` pointers, each NULL or NUL-terminated; `ticket` is
/// readable for `ticket_len_bytes`; `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_function_get(
    message: *const dipc_function_message,
    client: *const dipc_client,
    uris: *const *const c_char,
    n_uris: usize,
    ticket: *const u8,
    ticket_len_bytes: usize,
    options: *mut dipc_get_options,
    headers: *const dipc_headers,
    cancel: *const dipc_cancel,
    out: *mut ArrowDeviceArrayStream,
    error: *mut *mut dipc_error,
) -> dipc_status {
    let body = || {
        // SAFETY: the caller promises `message` is NULL or live.
        let message = unsafe { shared(message, "message") }?;
        // SAFETY: the caller promises `ticket` is readable.
        let ticket = unsafe { bytes(ticket, ticket_len_bytes, "ticket") }?;
        let server = Server {
            client,
            uris,
            n_uris,
            cancel,
        };
        // SAFETY: the caller promises handles that are NULL or live, options that nobody else uses,
        // `n_uris` strings, and an `out` that is NULL or writable.
        unsafe { message.get(server, ticket, false, options, headers, out) }
    };
    // SAFETY: the caller promises `error` is NULL or writable.
    unsafe { guard(error, body) }
}

/// Runs a function alone, and gives what it puts out: batches, or bytes as a column `bytes` of
/// binary with a row for each piece. Where the server lacks the module, sends it and asks again,
/// once.
///
/// @param message  Message.
/// @param client   Client.
/// @param uris     As for dipc_client_get().
/// @param n_uris   1.
/// @param options  Options, whose headers are replaced; exclusive during the call. NULL: the
///                 defaults.
/// @param headers  Headers of the caller's own, as for the server's authorizer; may be NULL.
/// @param cancel   Token that ends this call and the stream's calls; may be NULL.
/// @param out      Receives the stream. An old value is overwritten, not released.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return As dipc_function_get().
///
/// # Safety
///
/// As of dipc_function_get().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_function_run(
    message: *const dipc_function_message,
    client: *const dipc_client,
    uris: *const *const c_char,
    n_uris: usize,
    options: *mut dipc_get_options,
    headers: *const dipc_headers,
    cancel: *const dipc_cancel,
    out: *mut ArrowDeviceArrayStream,
    error: *mut *mut dipc_error,
) -> dipc_status {
    let body = || {
        // SAFETY: the caller promises `message` is NULL or live.
        let message = unsafe { shared(message, "message") }?;
        let server = Server {
            client,
            uris,
            n_uris,
            cancel,
        };
        // SAFETY: the caller promises handles that are NULL or live, options that nobody else uses,
        // `n_uris` strings, and an `out` that is NULL or writable.
        unsafe { message.get(server, b"", true, options, headers, out) }
    };
    // SAFETY: the caller promises `error` is NULL or writable.
    unsafe { guard(error, body) }
}

/// Puts a table, which goes through a function before the server's host has it. Where the server
/// lacks the module, sends it and asks again, once; no batch is sent before the server has it.
///
/// @param message               Message.
/// @param client                Client.
/// @param uris                  One string: the server's URI.
/// @param n_uris                1.
/// @param descriptor            Name of the table for the server's host.
/// @param descriptor_len_bytes  Length of descriptor.
/// @param options               Options, whose headers are replaced; exclusive during the call.
///                              NULL: the defaults.
/// @param headers               Headers of the caller's own, as for the server's authorizer; may be
///                              NULL.
/// @param cancel                Token that ends this call and the put's calls; may be NULL.
/// @param source                Moved on success: its release becomes NULL.
/// @param out                   Receives the put, to be freed by dipc_put_free(): dipc_put_finish()
///                              sends the table.
/// @param error                 May be NULL; on failure receives details for dipc_error_free().
/// @return As dipc_client_put(), dipc_function_get() and dipc_function_send_module(). What fails in
///         the function, dipc_put_finish() reports. Otherwise than on DIPC_OK the caller still owns
///         source.
///
/// # Safety
///
/// As of dipc_function_get(), for `descriptor`; `source` is NULL, or a stream that is the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_function_put(
    message: *const dipc_function_message,
    client: *const dipc_client,
    uris: *const *const c_char,
    n_uris: usize,
    descriptor: *const u8,
    descriptor_len_bytes: usize,
    options: *mut dipc_put_options,
    headers: *const dipc_headers,
    cancel: *const dipc_cancel,
    source: *mut ArrowDeviceArrayStream,
    out: *mut *mut dipc_put,
    error: *mut *mut dipc_error,
) -> dipc_status {
    let body = || {
        // SAFETY: the caller promises `message` is NULL or live.
        let message = unsafe { shared(message, "message") }?;
        // SAFETY: the caller promises `descriptor` is readable.
        let descriptor = unsafe { bytes(descriptor, descriptor_len_bytes, "descriptor") }?;
        let server = Server {
            client,
            uris,
            n_uris,
            cancel,
        };
        // SAFETY: the caller promises `headers` is NULL or live.
        let asking = unsafe { message.asking(headers, false) }?;
        // SAFETY: the caller promises options that are NULL, or live and exclusive.
        let options = unsafe { put_options(options, &asking) }?;
        // SAFETY: the caller promises handles that are NULL or live, `n_uris` strings, and its own
        // stream and a writable `out`, or NULL. Where the put fails the source is still there.
        let put = || unsafe { server.put(descriptor, options.as_ptr(), source, out) };
        // SAFETY: the caller promises handles that are NULL or live, and `n_uris` strings.
        unsafe { message.sending(server, headers, put) }
    };
    // SAFETY: the caller promises `error` is NULL or writable.
    unsafe { guard(error, body) }
}

/// Exchanges a table with a function, which answers each batch as it comes: one table from here,
/// batch by batch, and the function's output, on one connection at once. Where the server lacks the
/// module, sends it and asks again, once. Then the calls of dipc_client_exchange() go on.
///
/// @param message         Message.
/// @param client          Client.
/// @param uris            One string: the server's URI.
/// @param n_uris          1.
/// @param options         Of the table from here: its headers are replaced; exclusive during the
///                        call. NULL: the defaults.
/// @param answer_options  Of the function's output, as for dipc_client_exchange(). Copied; NULL: the
///                        defaults.
/// @param headers         Headers of the caller's own, as for the server's authorizer; may be NULL.
/// @param cancel          Token that ends this call, and the calls of the put and the stream; may be
///                        NULL.
/// @param schema          Of the table from here. Read, not moved.
/// @param device_type     Device of the batches, as ARROW_DEVICE_CPU.
/// @param out             Receives the put, to be freed by dipc_put_free().
/// @param answers         Receives the stream of the function's output. Its get_schema waits for the
///                        function. An old value is overwritten, not released.
/// @param error           May be NULL; on failure receives details for dipc_error_free().
/// @return As dipc_client_exchange(), dipc_function_get() and dipc_function_send_module(). What fails
///         in the function after this call, both tables report.
///
/// # Safety
///
/// As of dipc_function_get(), for `answer_options` too; `schema` is NULL, or a schema of Arrow's
/// interface; `answers` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_function_exchange(
    message: *const dipc_function_message,
    client: *const dipc_client,
    uris: *const *const c_char,
    n_uris: usize,
    options: *mut dipc_put_options,
    answer_options: *const dipc_get_options,
    headers: *const dipc_headers,
    cancel: *const dipc_cancel,
    schema: *const FFI_ArrowSchema,
    device_type: i32,
    out: *mut *mut dipc_put,
    answers: *mut ArrowDeviceArrayStream,
    error: *mut *mut dipc_error,
) -> dipc_status {
    let body = || {
        // SAFETY: the caller promises `message` is NULL or live.
        let message = unsafe { shared(message, "message") }?;
        let server = Server {
            client,
            uris,
            n_uris,
            cancel,
        };
        // SAFETY: the caller promises `headers` is NULL or live.
        let asking = unsafe { message.asking(headers, false) }?;
        // SAFETY: the caller promises options that are NULL, or live and exclusive.
        let options = unsafe { put_options(options, &asking) }?;
        let options = (options.as_ptr().cast_const(), answer_options);
        // SAFETY: the caller promises handles that are NULL or live, `n_uris` strings, a schema of
        // Arrow's or NULL, and outputs that are NULL or writable; `options` is live here.
        let exchange = || unsafe { server.exchange(options, (schema, device_type), out, answers) };
        // SAFETY: the caller promises handles that are NULL or live, and `n_uris` strings.
        unsafe { message.sending(server, headers, exchange) }
    };
    // SAFETY: the caller promises `error` is NULL or writable.
    unsafe { guard(error, body) }
}

impl dipc_function_message {
    /// # Safety
    ///
    /// `headers` is NULL, or live and used by nobody else.
    unsafe fn add_to(&self, headers: *mut dipc_headers, alone: bool) -> Result<()> {
        let ask = match alone {
            true => Ask::Alone(self.call.clone()),
            false => Ask::Call(self.call.clone()),
        };
        // SAFETY: the caller promises that `headers` is NULL, or live and used by nobody else.
        unsafe { add(headers, &key(NEEDS), HEADER.as_bytes()) }?;
        // SAFETY: the caller promises that `headers` is NULL, or live and used by nobody else.
        unsafe { add(headers, &key(HEADER), ask.header().as_bytes()) }?;
        if self.call.arguments.is_empty() {
            return Ok(());
        }
        // SAFETY: the caller promises that `headers` is NULL, or live and used by nobody else.
        unsafe { add(headers, &key(ARGUMENTS), &self.call.arguments) }
    }

    /// The headers of a request: a caller's own, and those that ask for the function.
    ///
    /// # Safety
    ///
    /// `headers` is NULL or live.
    pub(crate) unsafe fn asking(
        &self,
        headers: *const dipc_headers,
        alone: bool,
    ) -> Result<Headers> {
        // SAFETY: the caller promises that `headers` is NULL or live.
        let asking = unsafe { Headers::copy_of(headers) }?;
        // SAFETY: the copy is live, and this function's own.
        unsafe { self.add_to(asking.as_ptr(), alone) }?;
        Ok(asking)
    }

    /// # Safety
    ///
    /// The pointers are those of dipc_function_get().
    unsafe fn get(
        &self,
        server: Server,
        ticket: &[u8],
        alone: bool,
        options: *mut dipc_get_options,
        headers: *const dipc_headers,
        out: *mut ArrowDeviceArrayStream,
    ) -> Result<()> {
        // SAFETY: the caller promises that `headers` is NULL or live.
        let asking = unsafe { self.asking(headers, alone) }?;
        // SAFETY: the caller promises that `options` is NULL, or live and used by nobody else.
        let options = unsafe { get_options(options, &asking) }?;
        // SAFETY: the options live until the call returns. The caller promises handles that are
        // NULL or live, `n_uris` strings, and an `out` that is NULL or writable.
        let get = || unsafe { server.get(ticket, options.as_ptr(), out) };
        // SAFETY: the caller promises handles that are NULL or live, and `n_uris` strings.
        unsafe { self.sending(server, headers, get) }
    }

    /// Sends, and sends the module first where the server may lack it. A server that says
    /// DIPC_ERR_NOT_FOUND lacks the module or the table: then the second answer tells.
    ///
    /// # Safety
    ///
    /// The pointers are those of dipc_function_send_module().
    unsafe fn sending(
        &self,
        server: Server,
        headers: *const dipc_headers,
        send: impl Fn() -> Result<()>,
    ) -> Result<()> {
        let sent = send();
        if !is(&sent, DIPC_ERR_NOT_FOUND) {
            return sent;
        }
        // SAFETY: the caller promises handles that are NULL or live, and `n_uris` strings; NULL
        // stands for new options.
        unsafe { self.module.send(server, std::ptr::null_mut(), headers) }?;
        send()
    }
}

/// Frees a message. NULL does nothing.
///
/// @param message  Message, or NULL.
///
/// # Safety
///
/// `message` is NULL, or came from dipc_function_message_new() and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_function_message_free(message: *mut dipc_function_message) {
    // SAFETY: the caller promises that `message` is NULL, or came from dipc_function_message_new()
    // and is not used any more.
    unsafe { guard_free(message) };
}
