//! Panics end here.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::Once;

use crate::error::{Error, Status, panic_text};

/// Runs the body of an export that returns a plain value. A panic gives `fallback`.
pub(super) fn guard_value<T>(fallback: T, body: impl FnOnce() -> T) -> T {
    caught(body).unwrap_or(fallback)
}

thread_local! {
    /// How many guards are on this thread's stack.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// Text and place of the last panic inside a guard.
    static LAST_PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The payload of a panic.
pub(super) type Panicked = Box<dyn Any + Send>;

/// Runs code whose panic becomes a value.
pub(super) fn caught<T>(body: impl FnOnce() -> T) -> std::result::Result<T, Panicked> {
    static HOOK: Once = Once::new();
    HOOK.call_once(keep_panics_silent);
    DEPTH.with(|depth| depth.set(depth.get().saturating_add(1)));
    // Unwind safety: the body changes local state and its handle only. After a panic the callers
    // poison the handle, so that nothing uses it again.
    let result = catch_unwind(AssertUnwindSafe(body));
    DEPTH.with(|depth| depth.set(depth.get().saturating_sub(1)));
    result
}

/// Keeps the text of a panic inside a guard for the caller, because the library never prints. Other
/// panics of the process go to the earlier hook: libdipc may be part of a Rust program.
fn keep_panics_silent() {
    let previous = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info: &PanicHookInfo<'_>| {
        let guarded = DEPTH.try_with(|depth| depth.get() > 0).unwrap_or(false);
        if !guarded {
            return previous(info);
        }
        let place = info
            .location()
            .map(|at| format!(" at {}:{}", at.file(), at.line()));
        let text = format!(
            "{}{}",
            panic_text(info.payload()),
            place.unwrap_or_default()
        );
        // On a thread that is ending the variable is gone; the payload is enough then.
        let _ = LAST_PANIC.try_with(|last| last.replace(Some(text)));
    }));
}

/// The error for the caller of the export that panicked.
pub(super) fn panic_error(payload: Panicked) -> Error {
    let text = LAST_PANIC
        .with(|last| last.take())
        .unwrap_or_else(|| panic_text(payload.as_ref()).to_owned());
    // Dropping a payload can panic as well.
    let _ = caught(move || drop(payload));
    let error = Error::new(
        Status::Panic,
        format!("a bug in libdipc, please report it: {text}; the handle can only be freed"),
    );
    tracing::error!("{error}");
    error
}
