//! Modules, as a client has them.

use std::ffi::c_char;
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, RecordBatch};
use dipc_sandbox::service::{Ask, HEADER, Hash, NEEDS, SIGNATURE};

use crate::arguments::{bytes, exclusive, invalid, output, shared};
use crate::calls::{Headers, Server, add, is, key, put_options};
use crate::error::{Result, guard, guard_free};
use crate::stream::{Stream, export};
use crate::sys::*;

/// Bytes of a module in one row.
const PART: usize = 1 << 20;

/// A module of WebAssembly, as a client has it.
#[derive(Clone)]
pub struct dipc_function_module {
    wasm: Arc<[u8]>,
    pub(crate) hash: Hash,
    signature: Option<Arc<[u8]>>,
}

/// Makes a module of its bytes. The server checks them.
///
/// @param wasm            Bytes of a file NAME.wasm. Copied.
/// @param wasm_len_bytes  Length of wasm.
/// @param out             Receives the module, to be freed by dipc_function_module_free().
/// @param error           May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `wasm` is readable for `wasm_len_bytes`; `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_function_module_new(
    wasm: *const u8,
    wasm_len_bytes: usize,
    out: *mut *mut dipc_function_module,
    error: *mut *mut dipc_error,
) -> dipc_status {
    let body = || {
        // SAFETY: the caller promises `wasm` is readable.
        let wasm = unsafe { bytes(wasm, wasm_len_bytes, "wasm") }?;
        // SAFETY: the caller promises `out` is NULL or writable.
        let set = unsafe { output(out, "out") }?;
        set(Box::into_raw(Box::new(dipc_function_module {
            wasm: wasm.into(),
            hash: Hash::of(wasm),
            signature: None,
        })));
        Ok(())
    };
    // SAFETY: the caller promises `error` is NULL or writable.
    unsafe { guard(error, body) }
}

/// Gives the hash of a module, which names it.
///
/// @param module  Module.
/// @param out     Receives 32 bytes: the SHA-256 of the module's bytes.
/// @param error   May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `module` is NULL or live; `out` is NULL or writable for 32 bytes; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_function_module_hash(
    module: *const dipc_function_module,
    out: *mut u8,
    error: *mut *mut dipc_error,
) -> dipc_status {
    let body = || {
        // SAFETY: the caller promises `module` is NULL or live.
        let module = unsafe { shared(module, "module") }?;
        // SAFETY: the caller promises `out` is NULL or 32 bytes; bytes have no alignment.
        let set = unsafe { output(out.cast::<[u8; 32]>(), "out") }?;
        set(module.hash.0);
        Ok(())
    };
    // SAFETY: the caller promises `error` is NULL or writable.
    unsafe { guard(error, body) }
}

/// Sets the signature that goes with a module, for servers that allow modules by a key.
///
/// @param module               Module to change; exclusive during the call. Messages that were made
///                             of it stay as they are.
/// @param signature            64 bytes: a signature of Ed25519 over the text "libdipc function
///                             module 1", a NUL, and the 32 bytes of the hash. Copied.
/// @param signature_len_bytes  64.
/// @param error                May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: another length.
///
/// # Safety
///
/// `module` is NULL, or live and used by nobody else; `signature` is readable for
/// `signature_len_bytes`; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_function_module_set_signature(
    module: *mut dipc_function_module,
    signature: *const u8,
    signature_len_bytes: usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    let body = || {
        // SAFETY: the caller promises `module` is NULL, or live and exclusive.
        let module = unsafe { exclusive(module, "module") }?;
        // SAFETY: the caller promises `signature` is readable.
        let signature = unsafe { bytes(signature, signature_len_bytes, "signature") }?;
        if signature.len() != 64 {
            let length = signature.len();
            return Err(invalid(format!("the signature has {length} bytes, not 64")));
        }
        module.signature = Some(signature.into());
        Ok(())
    };
    // SAFETY: the caller promises `error` is NULL or writable.
    unsafe { guard(error, body) }
}

/// Sends a module to a server, which compiles and keeps it. Before a message's headers go with a
/// call of dipc.h, as dipc_client_start() or dipc_client_get_async(), the server must have its
/// module; dipc_function_get() and the like send it by themselves.
///
/// @param module   Module.
/// @param client   Client.
/// @param uris     One string: the server's URI.
/// @param n_uris   1.
/// @param options  Options, whose headers are replaced; exclusive during the call. NULL: the
///                 defaults.
/// @param headers  Headers of the caller's own, as for the server's authorizer; may be NULL.
/// @param cancel   Token that ends the call; may be NULL.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK: the server has the module, which may have been there before.
///         DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_PERMISSION: the server does not allow the module, or
///         this client. DIPC_ERR_INVALID_DATA: no sandbox takes it. DIPC_ERR_OUT_OF_RESOURCES: it is
///         too large. DIPC_ERR_UNSUPPORTED: the server runs no functions. Those of
///         dipc_client_put() and dipc_put_finish().
///
/// # Safety
///
/// `module`, `client`, `headers` and `cancel` are NULL or live; `options` is NULL, or live and used
/// by nobody else; `uris` points to `n_uris` pointers, each NULL or NUL-terminated; `error` is NULL
/// or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_function_send_module(
    module: *const dipc_function_module,
    client: *const dipc_client,
    uris: *const *const c_char,
    n_uris: usize,
    options: *mut dipc_put_options,
    headers: *const dipc_headers,
    cancel: *const dipc_cancel,
    error: *mut *mut dipc_error,
) -> dipc_status {
    let body = || {
        // SAFETY: the caller promises `module` is NULL or live.
        let module = unsafe { shared(module, "module") }?;
        let server = Server {
            client,
            uris,
            n_uris,
            cancel,
        };
        // SAFETY: the caller promises handles that are NULL or live, options that nobody else uses,
        // and `n_uris` strings.
        unsafe { module.send(server, options, headers) }
    };
    // SAFETY: the caller promises `error` is NULL or writable.
    unsafe { guard(error, body) }
}

impl dipc_function_module {
    /// The module of a server, which has checked the hash.
    pub(crate) fn known(hash: Hash, wasm: Arc<[u8]>) -> Self {
        Self {
            wasm,
            hash,
            signature: None,
        }
    }

    /// # Safety
    ///
    /// The pointers are those of dipc_function_send_module().
    pub(crate) unsafe fn send(
        &self,
        server: Server,
        options: *mut dipc_put_options,
        headers: *const dipc_headers,
    ) -> Result<()> {
        // SAFETY: the caller promises that `headers` is NULL or live.
        let headers = unsafe { Headers::copy_of(headers) }?;
        let ask = Ask::Module(self.hash).header();
        // SAFETY: the headers are live, and this function's own.
        unsafe { add(headers.as_ptr(), &key(NEEDS), HEADER.as_bytes()) }?;
        // SAFETY: the headers are live, and this function's own.
        unsafe { add(headers.as_ptr(), &key(HEADER), ask.as_bytes()) }?;
        if let Some(signature) = &self.signature {
            // SAFETY: the headers are live, and this function's own.
            unsafe { add(headers.as_ptr(), &key(SIGNATURE), signature) }?;
        }
        // SAFETY: the caller promises that `options` is NULL, or live and used by nobody else.
        let options = unsafe { put_options(options, &headers) }?;
        // SAFETY: the options live until the call returns. The caller promises a client and a token
        // that are NULL or live, and `n_uris` strings.
        let sent = unsafe { server.put_all(self.table()?, options.as_ptr()) };
        match is(&sent, DIPC_ERR_ALREADY_EXISTS) {
            true => Ok(()),
            false => sent,
        }
    }

    /// The bytes as a table: a row for each part, in order.
    fn table(&self) -> Result<Stream> {
        let parts: ArrayRef = Arc::new(BinaryArray::from_iter_values(self.wasm.chunks(PART)));
        let batch = RecordBatch::try_from_iter([("wasm", parts)]);
        let batch = batch.map_err(|error| invalid(error.to_string()))?;
        let schema = batch.schema();
        Ok(export(schema, std::iter::once(Ok(batch)), Box::new(|_| {})))
    }
}

/// Frees a module. Messages that were made of it stay valid. NULL does nothing.
///
/// @param module  Module, or NULL.
///
/// # Safety
///
/// `module` is NULL, or came from dipc_function_module_new() and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_function_module_free(module: *mut dipc_function_module) {
    // SAFETY: the caller promises that `module` is NULL, or came from dipc_function_module_new()
    // and is not used any more.
    unsafe { guard_free(module) };
}
