//! UCX's log, taken over: by default UCX prints it to the standard output.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::panic::catch_unwind;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::bindings::{
    UCS_LOG_FUNC_RC_CONTINUE, UCS_LOG_FUNC_RC_STOP, ucs_log_component_config_t, ucs_log_func_rc_t,
    ucs_log_level_t,
};
use crate::table::Api;

/// Takes one message: level (`UCS_LOG_LEVEL_*`), source file and line, text.
///
/// It is called on whatever thread UCX logs on, also on UCX's own, maybe on several at once, and
/// must not call UCX. A panic in it ends there.
pub type LogHandler = fn(level: ucs_log_level_t, file: &str, line: u32, text: &str);

/// Longer messages are cut, as UCX's own handler does.
const TEXT_BYTES: usize = 4096;

/// The [`LogHandler`], or NULL.
static HANDLER: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

impl Api {
    /// Hands UCX's log to `handler` from now on; nothing is printed any more. `None` gives it back
    /// to UCX. One handler serves the process, so messages of other users of the same UCX come too.
    ///
    /// Which levels there are is UCX's own setting (`UCX_LOG_LEVEL`, warnings by default).
    pub fn set_log_handler(&self, handler: Option<LogHandler>) {
        static PUSHED: Once = Once::new();
        let pointer = handler.map_or(std::ptr::null_mut(), |handler| handler as *mut c_void);
        HANDLER.store(pointer, Ordering::Release);
        // UCX keeps a stack of handlers. Ours goes there once and is never popped, since the
        // topmost need not be ours by then. SAFETY: the handler has the type that UCX calls, and
        // lives as long as the process.
        PUSHED.call_once(|| unsafe { self.ucs_log_push_handler(Some(on_message)) });
    }
}

/// The handler that UCX knows.
///
/// C passes a `va_list` parameter as a pointer on both architectures: on x86-64 it is an array,
/// which decays to one; on aarch64 a struct of 32 bytes, and such large ones are passed by
/// reference to a copy. So a pointer that is handed on as it came is right, although Rust has no
/// type for it.
unsafe extern "C" fn on_message(
    file: *const c_char,
    line: c_uint,
    _function: *const c_char,
    level: ucs_log_level_t,
    _component: *const ucs_log_component_config_t,
    format: *const c_char,
    arguments: *mut c_void,
) -> ucs_log_func_rc_t {
    unsafe extern "C" {
        fn vsnprintf(
            text: *mut c_char,
            bytes: usize,
            format: *const c_char,
            arguments: *mut c_void,
        ) -> c_int;
    }
    let handler = HANDLER.load(Ordering::Acquire);
    if handler.is_null() {
        return UCS_LOG_FUNC_RC_CONTINUE;
    }
    // SAFETY: not NULL, so it was made from a LogHandler in `set_log_handler`.
    let handler = unsafe { std::mem::transmute::<*mut c_void, LogHandler>(handler) };
    let mut text = [0_u8; TEXT_BYTES];
    // SAFETY: UCX passes a format and the arguments that belong to it, and uses them no more after
    // a handler that stops; at most the buffer is written, with a zero at its end.
    unsafe { vsnprintf(text.as_mut_ptr().cast(), text.len(), format, arguments) };
    // Unwinding into C would be undefined. The payload of the panic is ignored.
    let called = catch_unwind(|| {
        let text = CStr::from_bytes_until_nul(&text)
            .unwrap_or_default()
            .to_string_lossy();
        let file = if file.is_null() {
            "".into()
        } else {
            // SAFETY: not NULL, hence the name of a source file, a constant of UCX's.
            unsafe { CStr::from_ptr(file) }.to_string_lossy()
        };
        handler(level, &file, line, &text);
    });
    if let Err(payload) = called {
        // Its destructor could panic in turn, so it does not run.
        let _left = std::mem::ManuallyDrop::new(payload);
    }
    UCS_LOG_FUNC_RC_STOP
}
