//! Statuses and their names.

use std::ffi::c_char;

use crate::error::Status;
use crate::ffi::caught::guard_value;

/// The result of a call: 0 for success, a positive number for no failure and no output, a negative
/// number for a failure. A number never changes its meaning.
pub type dipc_status = i32;

/// Success.
pub const DIPC_OK: i32 = 0;
/// No failure, but nothing is there now: no output was written.
pub const DIPC_NOTHING: i32 = 1;
/// A pointer that must not be NULL was NULL; nothing changed.
pub const DIPC_ERR_NULL_ARGUMENT: i32 = -1;
/// An argument has a value that the function does not take; nothing changed.
pub const DIPC_ERR_INVALID_ARGUMENT: i32 = -2;
/// A URI is malformed, or lacks a required part.
pub const DIPC_ERR_INVALID_URI: i32 = -3;
/// This build, this machine or the peer cannot do this.
pub const DIPC_ERR_UNSUPPORTED: i32 = -4;
/// The server has no such ticket.
pub const DIPC_ERR_NOT_FOUND: i32 = -5;
/// The server serves the ticket already.
pub const DIPC_ERR_ALREADY_EXISTS: i32 = -6;
/// Another live server listens at the address.
pub const DIPC_ERR_ADDRESS_IN_USE: i32 = -7;
/// No server listens at the address, or the network does not reach it.
pub const DIPC_ERR_UNREACHABLE: i32 = -8;
/// The peer, or the operating system, does not admit this user.
pub const DIPC_ERR_PERMISSION: i32 = -9;
/// The peer broke a rule of the protocol.
pub const DIPC_ERR_PROTOCOL: i32 = -10;
/// The peer went away: its process ended or the connection was cut.
pub const DIPC_ERR_DISCONNECTED: i32 = -11;
/// The stream was cancelled, by this side or the other.
pub const DIPC_ERR_CANCELLED: i32 = -12;
/// Connecting, or waiting for the peer, took longer than the option allows.
pub const DIPC_ERR_TIMEOUT: i32 = -13;
/// The server, or the stream's window, has no room now; try again later.
pub const DIPC_ERR_BUSY: i32 = -14;
/// Memory ran out, or a limit of the options was reached.
pub const DIPC_ERR_OUT_OF_MEMORY: i32 = -15;
/// File descriptors, threads or another resource of the process ran out.
pub const DIPC_ERR_OUT_OF_RESOURCES: i32 = -16;
/// The operating system reported an error that has no status of its own.
pub const DIPC_ERR_IO: i32 = -17;
/// An Arrow array or schema, the caller's or the peer's, is not valid.
pub const DIPC_ERR_INVALID_DATA: i32 = -18;
/// The provider of the ticket failed; the text is the provider's.
pub const DIPC_ERR_PROVIDER: i32 = -19;
/// The server or client was stopped.
pub const DIPC_ERR_STOPPED: i32 = -20;
/// The handle was made before a fork(), and this process is the child.
pub const DIPC_ERR_FORKED: i32 = -21;
/// A bug in libdipc: the call panicked, and the handle can only be freed.
pub const DIPC_ERR_PANIC: i32 = -22;
/// An earlier call on the handle panicked; the handle can only be freed.
pub const DIPC_ERR_POISONED: i32 = -23;
/// The caller's buffer is too small; the length needed was written.
pub const DIPC_ERR_BUFFER_TOO_SMALL: i32 = -24;

/// Gives the name of a status, as in this header: "DIPC_ERR_TIMEOUT".
///
/// @param status  Any number.
/// @return A static string, never NULL; "DIPC_UNKNOWN" for a number that is no status.
#[unsafe(no_mangle)]
pub extern "C" fn dipc_status_name(status: dipc_status) -> *const c_char {
    guard_value(c"DIPC_UNKNOWN".as_ptr(), || match status {
        DIPC_OK => c"DIPC_OK".as_ptr(),
        DIPC_NOTHING => c"DIPC_NOTHING".as_ptr(),
        _ => Status::from_code(status)
            .map_or(c"DIPC_UNKNOWN", Status::c_symbol)
            .as_ptr(),
    })
}

/// Gives the errno for a status. The callbacks of Arrow's streams return this errno.
///
/// @param status  Any number.
/// @return 0 for 0 and positive numbers; EIO for a negative number that is no status.
#[unsafe(no_mangle)]
pub extern "C" fn dipc_status_errno(status: dipc_status) -> i32 {
    guard_value(libc::EIO, || match status {
        0.. => 0,
        _ => Status::from_code(status).map_or(libc::EIO, Status::errno),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise of `dipc.h`: its constants have the numbers and names of [`Status`].
    #[test]
    fn constants_are_those_of_the_table() {
        let source = include_str!("status.rs");
        for status in Status::ALL {
            let line = format!("pub const {}: i32 = {};", status.symbol(), status.code());
            assert!(source.contains(&line), "no line `{line}`");
            assert_eq!(status.c_symbol().to_str(), Ok(status.symbol()));
        }
        let constants = source
            .lines()
            .filter(|l| l.starts_with("pub const DIPC_ERR_"))
            .count();
        assert_eq!(constants, Status::ALL.len());
    }

    /// Promise of `dipc.h`: no number gives NULL, and only failures have an errno.
    #[test]
    fn every_number_has_a_name_and_an_errno() {
        for code in -40..5 {
            assert!(!dipc_status_name(code).is_null());
            assert_eq!(dipc_status_errno(code) > 0, code < 0);
        }
        assert_eq!(dipc_status_errno(DIPC_ERR_NOT_FOUND), libc::ENOENT);
    }
}
