//! The log callback.

use std::ffi::{CString, c_char, c_void};
use std::sync::Arc;

use tracing::Level;

use crate::error::{Error, Result};
use crate::ffi::error_details::{c_text, dipc_error};
use crate::ffi::foreign::{ForeignData, dipc_finalizer};
use crate::ffi::status::dipc_status;
use crate::log::{self, LEVELS, LogRecord, Sink, level_number};

/// Failures that no call can report.
pub const DIPC_LOG_ERROR: i32 = 1;
/// Problems that the library handled: a provider failed, with its text; the server was too busy for
/// a peer. Events that a peer can cause at will are logged at a limited rate, and the last line
/// says so. Refusals of a provider (not found, permission, busy, already exists, unsupported,
/// invalid argument), and a selection that does not fit its table, are logged at INFO only.
pub const DIPC_LOG_WARN: i32 = 2;
/// Servers start and stop listening. Each stream's begin and end, at both sides, with ticket, peer,
/// status, batches, rows and bytes. For an audit, each request that is refused or has ended, at the
/// server: who, what, how much, how long, and the status (target "dipc::audit").
pub const DIPC_LOG_INFO: i32 = 3;
/// Decisions of the library: connections made and reused, connections ended, with reasons.
pub const DIPC_LOG_DEBUG: i32 = 4;
/// Every message: its direction, kind, number and length.
pub const DIPC_LOG_TRACE: i32 = 5;

/// Takes one log event. Runs on the log's own thread, one call at a time. It may call any function
/// of the library. It must not unwind. The strings are valid during the call.
///
/// @param userdata  The userdata of dipc_log_set().
/// @param level     DIPC_LOG_ERROR to DIPC_LOG_TRACE.
/// @param target    The part of the library that logs, such as "dipc::transport::shm".
/// @param text      The event; UTF-8, no newline at the end, at most 4 KiB. An event of a request
///                  ends with its spans in parentheses: verb, ticket, peer, and the traceparent
///                  that the client gave as a header.
pub type dipc_log_callback = Option<
    unsafe extern "C" fn(
        userdata: *mut c_void,
        level: i32,
        target: *const c_char,
        text: *const c_char,
    ),
>;

/// Sends log events to a callback, which replaces an earlier callback. Without a callback the
/// library logs nothing, and it never prints. Starts one thread, which ends after the finalizer.
///
/// The earlier callback gets the events logged until now. After its last call its finalizer runs on
/// its thread. This call does not wait for the finalizer: wait for it before you unload the
/// callback's code. Events that are too fast for the callback are dropped, and their number is
/// logged. The child of a fork logs nothing until it calls this function.
///
/// @param level      The most detailed level wanted: DIPC_LOG_ERROR to DIPC_LOG_TRACE.
/// @param callback   NULL stops the log; level, userdata and finalizer are then ignored.
/// @param userdata   Passed to callback and finalizer; may be NULL.
/// @param finalizer  Called once, after the last use of userdata; may be NULL.
/// @param error      May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK: the library calls the finalizer. Otherwise the finalizer is not called and
///         nothing changed. DIPC_ERR_INVALID_ARGUMENT: no such level. DIPC_ERR_OUT_OF_RESOURCES:
///         the system has no thread left. DIPC_ERR_UNSUPPORTED: libdipc is part of a Rust program
///         that has its own tracing subscriber.
///
/// # Safety
///
/// `callback` and `finalizer` may be called on any thread with `userdata` until the finalizer has
/// run; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_log_set(
    level: i32,
    callback: dipc_log_callback,
    userdata: *mut c_void,
    finalizer: dipc_finalizer,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(error, || {
        let Some(callback) = callback else {
            return log::set(Level::ERROR, None::<Callback>).map_err(|(error, _)| error);
        };
        let level = parse_level(level)?;
        let data = Arc::new(ForeignData::new(userdata, finalizer));
        let sink = Callback {
            function: callback,
            data: Arc::clone(&data),
        };
        log::set(level, Some(sink)).map_err(|(error, _sink)| {
            data.relinquish();
            error
        })
    })
}

/// The constants above are the numbers of the levels.
fn parse_level(level: i32) -> Result<Level> {
    let place = usize::try_from(level)
        .ok()
        .and_then(|level| level.checked_sub(1));
    let known = place.and_then(|place| LEVELS.get(place)).copied();
    known.ok_or_else(|| {
        Error::invalid_argument(format!(
            "level is {level}; levels go from {DIPC_LOG_ERROR} (error) to {DIPC_LOG_TRACE} (trace)"
        ))
    })
}

/// The host's callback as a sink of the log.
struct Callback {
    function: unsafe extern "C" fn(*mut c_void, i32, *const c_char, *const c_char),
    data: Arc<ForeignData>,
}

impl Sink for Callback {
    fn log(&self, entry: &LogRecord) {
        let target: CString = c_text(entry.target);
        let text: CString = c_text(&entry.text);
        let level = level_number(entry.level).into();
        // SAFETY: the host promised in `dipc_log_set` that the callback may be called on any thread
        // until its finalizer has run, and `data`, which runs it, is alive; the strings are live.
        unsafe { (self.function)(self.data.pointer(), level, target.as_ptr(), text.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A level outside the table is refused.
    #[test]
    fn levels_are_checked() {
        for level in DIPC_LOG_ERROR..=DIPC_LOG_TRACE {
            assert_eq!(i32::from(level_number(parse_level(level).unwrap())), level);
        }
        assert_eq!(parse_level(DIPC_LOG_WARN).unwrap(), Level::WARN);
        assert!(parse_level(0).is_err());
        assert!(parse_level(6).is_err());
    }
}
