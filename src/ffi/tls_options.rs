//! Certificates, of servers and clients.

use std::ffi::c_char;
use std::path::PathBuf;

use crate::error::{Error, Status};
use crate::ffi::client_options::dipc_client_options;
use crate::ffi::error_details::dipc_error;
use crate::ffi::request::dipc_request;
use crate::ffi::server::dipc_server;
use crate::ffi::server_options::dipc_server_options;
use crate::ffi::status::dipc_status;
use crate::ffi::text::{TextOut, try_str};

/// The subject of the client's certificate: "CN=alice, O=Example".
pub const DIPC_CERTIFICATE_SUBJECT: i32 = 1;
/// The certificate's alternative names, each after its kind, with ", " between them:
/// "DNS:a.example, URI:spiffe://example/a". Kinds: DNS, IP, URI, email.
pub const DIPC_CERTIFICATE_NAMES: i32 = 2;
/// The certificate's SHA-256: 64 lower-case hexadecimal digits.
pub const DIPC_CERTIFICATE_FINGERPRINT: i32 = 3;

/// Sets the server's certificate, for addresses that begin with tls://. The files are read by
/// dipc_server_listen(), and again by dipc_server_reload_tls().
///
/// @param options           Options to change; exclusive during the call.
/// @param certificate_file  Path of a PEM file: the server's certificate, then the intermediate
///                          certificates up to its authority.
/// @param key_file          Path of a PEM file: the certificate's private key.
/// @param error             May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: a path is not UTF-8.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_server_options_new() and was not freed; `certificate_file`
/// and `key_file` are NULL or C strings; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_options_set_tls(
    options: *mut dipc_server_options,
    certificate_file: *const c_char,
    key_file: *const c_char,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, |options| {
        // SAFETY: the caller promises `certificate_file` is NULL or a C string.
        let certificate = unsafe { try_str(certificate_file, "certificate_file") }?;
        // SAFETY: the caller promises `key_file` is NULL or a C string.
        let key = unsafe { try_str(key_file, "key_file") }?;
        let tls = &mut options.inner.link.tls;
        *tls = tls.with(|files| files.identity = Some((certificate.into(), key.into())));
        Ok(())
    })
}

/// Makes a server ask its tls clients for a certificate, and refuse clients whose certificate is
/// not from one of these authorities. Default: clients are not asked.
///
/// @param options  Options to change; exclusive during the call.
/// @param ca_file  Path of a PEM file: the authorities.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the path is not UTF-8.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_server_options_new() and was not freed; `ca_file` is NULL
/// or a C string; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_options_set_tls_client_ca(
    options: *mut dipc_server_options,
    ca_file: *const c_char,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, |options| {
        // SAFETY: the caller promises `ca_file` is NULL or a C string.
        let ca = unsafe { try_str(ca_file, "ca_file") }?;
        let tls = &mut options.inner.link.tls;
        *tls = tls.with(|files| files.ca = Some(PathBuf::from(ca)));
        Ok(())
    })
}

/// Reads the server's certificate, key and authorities again. New connections use them. Open
/// connections stay as they are. TLS sessions from before the call cannot be resumed.
///
/// @param server  Server.
/// @param error   May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK, also for a server without certificates. DIPC_ERR_NULL_ARGUMENT.
///         DIPC_ERR_INVALID_ARGUMENT, DIPC_ERR_NOT_FOUND, DIPC_ERR_PERMISSION, DIPC_ERR_IO: a file
///         cannot be used, and the server goes on with the earlier files.
///
/// # Safety
///
/// `server` is NULL or live; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_reload_tls(
    server: *const dipc_server,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(server, error, |server| server.inner.reload_tls())
}

/// Sets the client's certificate, for servers that ask for one.
///
/// @param options           Options to change; exclusive during the call.
/// @param certificate_file  Path of a PEM file: the client's certificate, then the intermediate
///                          certificates up to its authority.
/// @param key_file          Path of a PEM file: the certificate's private key.
/// @param error             May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: a path is not UTF-8. The
///         files are read by the client's first tls connection, which fails if a file cannot be
///         used.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_client_options_new() and was not freed; `certificate_file`
/// and `key_file` are NULL or C strings; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_client_options_set_tls(
    options: *mut dipc_client_options,
    certificate_file: *const c_char,
    key_file: *const c_char,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, |options| {
        // SAFETY: the caller promises `certificate_file` is NULL or a C string.
        let certificate = unsafe { try_str(certificate_file, "certificate_file") }?;
        // SAFETY: the caller promises `key_file` is NULL or a C string.
        let key = unsafe { try_str(key_file, "key_file") }?;
        let tls = &mut options.inner.tls;
        *tls = tls.with(|files| files.identity = Some((certificate.into(), key.into())));
        Ok(())
    })
}

/// Sets the authorities whose certificates servers may have. Default: the system's authorities.
///
/// @param options  Options to change; exclusive during the call.
/// @param ca_file  Path of a PEM file: the authorities.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the path is not UTF-8.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_client_options_new() and was not freed; `ca_file` is NULL
/// or a C string; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_client_options_set_tls_ca(
    options: *mut dipc_client_options,
    ca_file: *const c_char,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, |options| {
        // SAFETY: the caller promises `ca_file` is NULL or a C string.
        let ca = unsafe { try_str(ca_file, "ca_file") }?;
        let tls = &mut options.inner.tls;
        *tls = tls.with(|files| files.ca = Some(PathBuf::from(ca)));
        Ok(())
    })
}

/// Sets the name that a server's certificate must have. Default: the host of the URI.
///
/// @param options  Options to change; exclusive during the call.
/// @param name     A DNS name or an IP address; UTF-8.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the name is not UTF-8.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_client_options_new() and was not freed; `name` is NULL or a
/// C string; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_client_options_set_tls_server_name(
    options: *mut dipc_client_options,
    name: *const c_char,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, |options| {
        // SAFETY: the caller promises `name` is NULL or a C string.
        let name = unsafe { try_str(name, "name") }?;
        let tls = &mut options.inner.tls;
        *tls = tls.with(|files| files.server_name = Some(name.to_owned()));
        Ok(())
    })
}

/// Gives the subject, the names or the fingerprint of the client's certificate. An authority of the
/// server's options has signed the certificate.
///
/// @param request        Request.
/// @param which          DIPC_CERTIFICATE_*.
/// @param buffer         Receives the text and a NUL; NULL asks for the length only.
/// @param size_bytes     Size of buffer.
/// @param out_len_bytes  Receives the length of the text, without the NUL.
/// @param error          May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_NOT_FOUND: the client showed no certificate.
///         DIPC_ERR_INVALID_ARGUMENT: `which` is unknown. DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes
///         is written all the same.
///
/// # Safety
///
/// `request` is NULL or live; `buffer` is NULL or writable for `size_bytes`; `out_len_bytes` and
/// `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_request_peer_certificate(
    request: *const dipc_request,
    which: i32,
    buffer: *mut c_char,
    size_bytes: usize,
    out_len_bytes: *mut usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(request, error, |request| {
        // SAFETY: the caller promises `buffer` is NULL or writable for `size_bytes`, and
        // `out_len_bytes` is NULL or writable.
        let out = unsafe { TextOut::new(buffer.cast(), size_bytes, out_len_bytes) }?;
        let certificate = request.get().origin().certificate.as_ref();
        let certificate = certificate
            .ok_or_else(|| Error::new(Status::NotFound, "the client showed no certificate"))?;
        match which {
            DIPC_CERTIFICATE_SUBJECT => out.set_text(&certificate.subject),
            DIPC_CERTIFICATE_NAMES => out.set_text(&certificate.names.join(", ")),
            DIPC_CERTIFICATE_FINGERPRINT => out.set_text(&certificate.fingerprint),
            _ => Err(Error::invalid_argument(format!(
                "{which} is no part of a certificate: DIPC_CERTIFICATE_* are"
            ))),
        }
    })
}
