//! What a server serves for tickets that it was not given.

use std::ffi::c_void;

use crate::ffi::error_details::dipc_error;
use crate::ffi::foreign::dipc_finalizer;
use crate::ffi::provider::{ForeignProvider, dipc_provider};
use crate::ffi::server::dipc_server;
use crate::ffi::status::dipc_status;

/// Sets the provider for every ticket that the server does not have, such as queries, commands, or
/// keys of partitions. dipc_request_ticket() says what the client wants, and dipc_request_verb()
/// what it wants with it: the table, a description of it, or a list of the tickets that begin with
/// it. A handler that does not know a verb fails the request with DIPC_ERR_UNSUPPORTED. A handler
/// set before is replaced; its streams go on.
///
/// @param server     Server.
/// @param provider   Called once for each stream, as dipc_provider says. NULL: no handler.
/// @param userdata   Given to provider and finalizer; may be NULL.
/// @param finalizer  Called once, when the handler was replaced or the server freed, and the last
///                   call has returned; may be NULL. Not used if provider is NULL.
/// @param flags      0, or DIPC_PROVIDER_DETERMINISTIC.
/// @param error      May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK: the library calls the finalizer. Otherwise it does not.
///         DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: unknown flags. DIPC_ERR_STOPPED.
///
/// # Safety
///
/// `server` is NULL or live; `provider` and `finalizer` may be called with `userdata` on any thread
/// until the finalizer has run; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_set_handler(
    server: *const dipc_server,
    provider: dipc_provider,
    userdata: *mut c_void,
    finalizer: dipc_finalizer,
    flags: u32,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(server, error, |server| {
        let Some(function) = provider else {
            return server.inner.clear_handler();
        };
        ForeignProvider::hand_over(function, userdata, finalizer, flags, |provider| {
            server.inner.set_handler(provider)
        })
    })
}

/// Serves, in the pull form, every ticket that the server does not have: dipc_server_next_request()
/// gives their requests. A handler set before is replaced.
///
/// @param server  Server.
/// @param error   May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_STOPPED.
///
/// # Safety
///
/// `server` is NULL or live; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_set_handler_pull(
    server: *const dipc_server,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(server, error, |server| server.inner.set_handler_pull())
}
