//! The host's decision about each request.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use crate::error::{Error, Result, Status};
use crate::ffi::caught::guard_value;
use crate::ffi::error_details::dipc_error;
use crate::ffi::foreign::{ForeignData, dipc_finalizer};
use crate::ffi::request::dipc_request;
use crate::ffi::server_options::dipc_server_options;
use crate::ffi::status::dipc_status;
use crate::ffi::text::{TextOut, try_str};
use crate::server::{Authorizer, ServerRequest, SharedAuthorizer};

/// Decides whether a client may do what its request says, before anything is done for it.
/// dipc_request_verb(), dipc_request_ticket(), dipc_request_headers(), dipc_request_peer_id(),
/// dipc_request_peer_address() and dipc_request_peer_certificate() say who wants what. For
/// DIPC_VERB_LIST and DIPC_VERB_DESCRIBE it is also called with DIPC_VERB_GET for each ticket that
/// the answer would show, and the answer leaves out the tickets that are refused. Called on several
/// threads at once, never on an I/O thread, and may block. It must not unwind.
///
/// @param userdata  The userdata of dipc_server_options_set_authorizer().
/// @param request   The client's request; valid during the call, not to be freed. To refuse with
/// its                  own status and text the authorizer calls dipc_request_fail() and returns
///                  non-zero. dipc_request_set_principal() names the client.
/// @return 0 to allow. Any other number refuses, with DIPC_ERR_PERMISSION if dipc_request_fail()
///         was not called.
pub type dipc_authorizer =
    Option<unsafe extern "C" fn(userdata: *mut c_void, request: *mut dipc_request) -> i32>;

struct ForeignAuthorizer {
    function: unsafe extern "C" fn(*mut c_void, *mut dipc_request) -> i32,
    data: Arc<ForeignData>,
}

impl Authorizer for ForeignAuthorizer {
    fn authorize(&self, request: &ServerRequest) -> Result<()> {
        let handle = dipc_request::lent(request);
        let pointer = std::ptr::from_ref(&handle).cast_mut();
        // SAFETY: the host promised in `dipc_server_options_set_authorizer` that the authorizer may
        // be called on any thread until its finalizer has run, and `data`, which runs it, is alive;
        // `handle` lives as long as the call.
        match unsafe { (self.function)(self.data.pointer(), pointer) } {
            0 => Ok(()),
            _ => Err(Error::new(
                Status::Permission,
                "the server does not allow this request",
            )),
        }
    }
}

/// Sets the function that decides about each request. Default: whoever can connect may do
/// everything.
///
/// @param options     Options to change; exclusive during the call.
/// @param authorizer  Called for each request, as dipc_authorizer says. NULL: the default.
/// @param userdata    Given to authorizer and finalizer; may be NULL.
/// @param finalizer   Called once, when the options and every server made with them have been
///                    freed, or the options have another authorizer, and the last call has
///                    returned; may be NULL. Not used if authorizer is NULL.
/// @param error       May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK: the library calls the finalizer. Otherwise it does not.
///         DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_server_options_new() and was not freed; `authorizer` and
/// `finalizer` may be called with `userdata` on any thread until the finalizer has run; `error` is
/// NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_options_set_authorizer(
    options: *mut dipc_server_options,
    authorizer: dipc_authorizer,
    userdata: *mut c_void,
    finalizer: dipc_finalizer,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, |options| {
        let shared = authorizer.map(|function| {
            let data = Arc::new(ForeignData::new(userdata, finalizer));
            SharedAuthorizer(Arc::new(ForeignAuthorizer { function, data }))
        });
        options.inner.authorizer = shared;
        Ok(())
    })
}

/// Pull form: dipc_server_next_request() gives each request twice, first for the decision about it,
/// as dipc_authorizer says. dipc_request_is_undecided() tells the two apart. The host answers by
/// dipc_request_allow(), or refuses by dipc_request_fail(), and frees the request; freeing alone
/// refuses it. This is for hosts whose functions a library cannot call. Default: false. No effect
/// if the options have an authorizer.
///
/// @param options  Options to change; exclusive during the call.
/// @param pulled   Whether the host decides in the pull form. It must then take requests even if no
///                 ticket is served in the pull form, because clients wait for the decision.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_server_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_options_set_authorizer_pull(
    options: *mut dipc_server_options,
    pulled: bool,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set authorizes_by_pull = pulled)
}

/// Pull form: tells whether a request waits for the host's decision.
///
/// @param request  Request, or NULL.
/// @return true until dipc_request_allow() or dipc_request_fail(), if
///         dipc_server_options_set_authorizer_pull() asks for decisions; false for any other
///         request and for NULL.
///
/// # Safety
///
/// `request` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_request_is_undecided(request: *const dipc_request) -> bool {
    guard_value(false, || {
        // SAFETY: the caller promises `request` is NULL or live.
        unsafe { request.as_ref() }.is_some_and(|request| request.get().is_undecided())
    })
}

/// Pull form: allows what a client asks for. Call dipc_request_set_principal() before this, if at
/// all.
///
/// @param request  Request for which dipc_request_is_undecided() is true; still to be freed.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: there is nothing to decide.
///
/// # Safety
///
/// `request` is NULL or live; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_request_allow(
    request: *const dipc_request,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(request, error, |request| request.get().allow())
}

/// Names the client of a request, in an authorizer: handlers see the name by
/// dipc_request_principal().
///
/// @param request    Request.
/// @param principal  Name of the client; UTF-8.
/// @param error      May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the name is not UTF-8.
///
/// # Safety
///
/// `request` is NULL or live; `principal` is NULL or a C string; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_request_set_principal(
    request: *mut dipc_request,
    principal: *const c_char,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(request.cast_const(), error, |request| {
        // SAFETY: the caller promises `principal` is NULL or a C string.
        let principal = unsafe { try_str(principal, "principal") }?;
        request.get().set_principal(principal);
        Ok(())
    })
}

/// The name that the server's authorizer has given the client.
///
/// @param request        Request.
/// @param buffer         Receives the name and a NUL; NULL asks for the length only.
/// @param size_bytes     Size of buffer.
/// @param out_len_bytes  Receives the length of the name, without the NUL.
/// @param error          May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_NOT_FOUND: the authorizer has given no name.
///         DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is written all the same.
///
/// # Safety
///
/// `request` is NULL or live; `buffer` is NULL or writable for `size_bytes`; `out_len_bytes` and
/// `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_request_principal(
    request: *const dipc_request,
    buffer: *mut c_char,
    size_bytes: usize,
    out_len_bytes: *mut usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(request, error, |request| {
        // SAFETY: the caller promises `buffer` is NULL or writable for `size_bytes`, and
        // `out_len_bytes` is NULL or writable.
        let out = unsafe { TextOut::new(buffer.cast(), size_bytes, out_len_bytes) }?;
        let principal = request.get().principal();
        let none = || Error::new(Status::NotFound, "no authorizer has named the client");
        out.set_text(&principal.ok_or_else(none)?)
    })
}
