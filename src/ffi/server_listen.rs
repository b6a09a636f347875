//! Listening on sockets that the host has opened.

use std::ffi::c_char;
use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd};

use crate::error::Error;
use crate::ffi::error_details::dipc_error;
use crate::ffi::server::{DIPC_URI_BYTES, dipc_server};
use crate::ffi::status::dipc_status;
use crate::ffi::text::{TextOut, try_str};

/// Listens on a socket that listens already, such as one from a service manager (LISTEN_FDS), and
/// gives the URI for clients. The socket's address decides the URI. Other processes that have the
/// socket can go on using it: the server neither shuts it down nor removes its file.
///
/// @param server         Server.
/// @param scheme         "shm": fd is a Unix stream socket, at a path or an abstract name. "tcp",
///                       "tls": fd is a TCP socket.
/// @param fd             Descriptor. The server closes it if the call succeeds. The call makes the
///                       socket non-blocking (O_NONBLOCK), also for other processes that have it.
/// @param buffer         Receives the URI for clients and a NUL; NULL if it is not wanted.
/// @param size_bytes     Size of buffer: at least DIPC_URI_BYTES, or 0 with a NULL buffer.
/// @param out_len_bytes  Receives the length of the URI, without the NUL.
/// @param error          May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is
///         DIPC_URI_BYTES and the server does not listen. DIPC_ERR_INVALID_ARGUMENT: fd is no such
///         socket. DIPC_ERR_UNSUPPORTED: another scheme. DIPC_ERR_PERMISSION: others could connect,
///         as for dipc_server_listen(). DIPC_ERR_STOPPED. DIPC_ERR_OUT_OF_RESOURCES. On tls also
///         DIPC_ERR_NOT_FOUND, DIPC_ERR_IO: its files cannot be used.
///
/// # Safety
///
/// `server` is NULL or live; `scheme` is NULL or a NUL-terminated string; `fd` is negative or open
/// and, if the call succeeds, used by nobody else; `buffer` is NULL or writable for `size_bytes`;
/// `out_len_bytes` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_listen_fd(
    server: *const dipc_server,
    scheme: *const c_char,
    fd: i32,
    buffer: *mut c_char,
    size_bytes: usize,
    out_len_bytes: *mut usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(server, error, |server| {
        // SAFETY: the caller promises `scheme` is NULL or a string.
        let scheme = unsafe { try_str(scheme, "scheme") }?;
        // SAFETY: the caller promises `buffer` is NULL or writable for `size_bytes`, and
        // `out_len_bytes` is NULL or writable.
        let out = unsafe { TextOut::new(buffer.cast(), size_bytes, out_len_bytes) }?;
        // The size is checked first, so that a failed call does not leave the server listening.
        let out = out.at_least(DIPC_URI_BYTES)?;
        if fd < 0 {
            let text = format!("fd is {fd}: no descriptor");
            return Err(Error::invalid_argument(text));
        }
        // SAFETY: `fd` is not negative, and the caller promises that it is open.
        let socket = unsafe { BorrowedFd::borrow_raw(fd) };
        let uri = server.inner.listen_fd(scheme, socket)?;
        // SAFETY: the caller promises that `fd` is open, and nobody else's now.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
        out.set_text(&uri)
    })
}
