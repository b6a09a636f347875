//! The boundary to C: errors and panics become statuses here.

use crate::error::{Error, Result};
use crate::ffi::caught::{Panicked, caught, guard_value, panic_error};
use crate::ffi::error_details::dipc_error;
use crate::ffi::handle::{self, Handle};
use crate::ffi::status::{DIPC_NOTHING, DIPC_OK, dipc_status};

/// The outcome of a call that can succeed without an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Polled {
    /// The outputs are written.
    Done,
    /// Nothing is there now: no output is written.
    Nothing,
}

/// The success value of an export's body, as a status.
pub(super) trait Outcome {
    /// The number to return.
    fn status(&self) -> dipc_status;
}

impl Outcome for () {
    fn status(&self) -> dipc_status {
        DIPC_OK
    }
}

impl Outcome for Polled {
    fn status(&self) -> dipc_status {
        match self {
            Self::Done => DIPC_OK,
            Self::Nothing => DIPC_NOTHING,
        }
    }
}

/// Runs the body of an export, with or without a handle. The body gets a shared reference to a
/// `const` handle, and an exclusive reference to any other. The short forms are for the bodies that
/// many exports have.
macro_rules! export {
    // A setter: `export!(options, error, set max_idle = max_idle)`.
    ($handle:ident, $error:ident, set $($field:ident).+ = $value:expr) => {
        export!($handle, $error, |handle| {
            handle.inner.$($field).+ = $value;
            Ok(())
        })
    };
    // One output of no handle: `export!(error, out = boxed(Cancel::new()?))`.
    ($error:ident, $out:ident = $value:expr) => {
        export!($error, || {
            // SAFETY: the section `# Safety` of each export, which its caller upholds, says that
            // its outputs are NULL or writable.
            let out = unsafe { $crate::ffi::handle::try_out($out, stringify!($out)) }?;
            out.set($value);
            Ok(())
        })
    };
    // One output of a handle: `export!(put, error, out => |put| put.inner.fd()?.as_raw_fd())`.
    ($handle:ident, $error:ident, $out:ident => |$this:ident| $value:expr) => {
        export!($handle, $error, |$this| {
            // SAFETY: the section `# Safety` of each export, which its caller upholds, says that
            // its outputs are NULL or writable.
            let out = unsafe { $crate::ffi::handle::try_out($out, stringify!($out)) }?;
            out.set($value);
            Ok(())
        })
    };
    // A getter without an error, and its value for a handle that cannot be used:
    // `export!(headers or 0, |headers| headers.inner.len())`.
    ($handle:ident or $fallback:expr, |$this:ident| $value:expr) => {
        $crate::ffi::caught::guard_value($fallback, || {
            // SAFETY: the section `# Safety` of each export, which its caller upholds, says that
            // its handle is NULL or live.
            match unsafe { $crate::ffi::handle::try_ref($handle) } {
                Ok($this) => $value,
                Err(_) => $fallback,
            }
        })
    };
    ($error:expr, $body:expr) => {
        export!((), $error, $body)
    };
    ($handle:expr, $error:expr, $body:expr) => {{
        // SAFETY: the section `# Safety` of each export, which its caller upholds, says that its
        // handle is NULL, or came from the library and is not freed during the call; that no
        // other call on a handle that is not `const` is running; and that `error` is NULL or
        // writable.
        let call = unsafe { $crate::ffi::guard::Call::new($handle, $error) };
        call.run($body)
    }};
}

/// The arguments that all exports have: a handle (`()`: none), and the place for the details of a
/// failure, NULL if the caller does not want them. [`export!`] makes it.
pub(super) struct Call<H> {
    handle: H,
    error: *mut *mut dipc_error,
}

impl<H> Call<H> {
    /// Takes both arguments of an export.
    ///
    /// # Safety
    ///
    /// Until the export returns: `handle`, if a pointer, is NULL, or came from the library and is
    /// not freed, and if it is not `const`, no other call on it is running; `error` is NULL or
    /// writable.
    pub(super) unsafe fn new(handle: H, error: *mut *mut dipc_error) -> Self {
        Self { handle, error }
    }

    /// The status of an outcome. A failure's details go to the caller.
    fn end<O: Outcome>(&self, outcome: Result<O>) -> dipc_status {
        let failure = match outcome {
            Ok(outcome) => return outcome.status(),
            Err(failure) => dipc_error::from(failure),
        };
        let status = failure.code;
        if !self.error.is_null() {
            // SAFETY: it is not NULL, so the caller of `new` promised that it is writable.
            unsafe { self.error.write(Box::into_raw(Box::new(failure))) };
        }
        status
    }
}

impl Call<()> {
    /// Runs the body of an export that has no handle.
    pub(super) fn run<O: Outcome>(self, body: impl FnOnce() -> Result<O>) -> dipc_status {
        self.end(caught(body).unwrap_or_else(|panic| Err(panic_error(panic))))
    }
}

impl<H: Handle> Call<*const H> {
    /// Runs the body of an export on a handle that other threads may use at the same time.
    pub(super) fn run<O: Outcome>(self, body: impl FnOnce(&H) -> Result<O>) -> dipc_status {
        // SAFETY: the caller of `new` promised that the handle is NULL or live.
        let handle = unsafe { handle::try_ref(self.handle) };
        self.end(handle.and_then(|handle| {
            caught(|| body(handle)).unwrap_or_else(|panic| Err(poisoned(handle, panic)))
        }))
    }
}

impl<H: Handle> Call<*mut H> {
    /// Runs the body of an export on a handle that no other thread uses during the call.
    pub(super) fn run<O: Outcome>(self, body: impl FnOnce(&mut H) -> Result<O>) -> dipc_status {
        // SAFETY: the caller of `new` promised that the handle is NULL, or live and exclusive.
        let handle = unsafe { handle::try_mut(self.handle) };
        self.end(handle.and_then(|handle| {
            caught(|| body(&mut *handle)).unwrap_or_else(|panic| Err(poisoned(handle, panic)))
        }))
    }
}

/// Frees a handle. NULL does nothing. A panic of the drop ends here. In the child of a fork the
/// handle is leaked, because its drop needs threads and locks that the child lacks.
///
/// # Safety
///
/// `handle` is NULL, or came from the library, was not freed, and no call on it is running.
pub(super) unsafe fn guard_free<H: Handle>(handle: *mut H) {
    guard_value((), || {
        if handle.is_null() {
            return;
        }
        // SAFETY: it is not NULL, and the caller promises that it is live and unused.
        if unsafe { &*handle }.state().forked() {
            return;
        }
        // SAFETY: every handle is made by `Box::into_raw`, and the caller promises that this one
        // was not freed and is not used any more.
        drop(unsafe { Box::from_raw(handle) });
    });
}

/// The error of a panic, after which the handle can only be freed.
fn poisoned(handle: &impl Handle, panic: Panicked) -> Error {
    handle.state().poison();
    panic_error(panic)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ffi::status::{DIPC_ERR_FORKED, DIPC_ERR_NULL_ARGUMENT, DIPC_ERR_PANIC};
    use crate::ffi::status::{DIPC_ERR_POISONED, DIPC_ERR_TIMEOUT};
    use handle::HandleState;

    struct ProbeHandle {
        state: HandleState,
        value: u32,
    }
    handle!(ProbeHandle, "probe");

    fn probe() -> ProbeHandle {
        ProbeHandle {
            state: HandleState::new(),
            value: 7,
        }
    }

    fn nowhere() -> *mut *mut dipc_error {
        std::ptr::null_mut()
    }

    /// Runs `body` with a place for the error; returns status and text.
    fn status_and_text(
        body: impl FnOnce(*mut *mut dipc_error) -> dipc_status,
    ) -> (dipc_status, String) {
        let mut error = std::ptr::null_mut();
        let status = body(&raw mut error);
        if error.is_null() {
            return (status, String::new());
        }
        // SAFETY: `Call::end` made it with Box::into_raw and nobody else has it.
        let error = unsafe { Box::from_raw(error) };
        (status, error.text().to_owned())
    }

    /// Promise: a panic becomes a status, poisons that handle only, and its text names the place.
    #[test]
    fn a_panic_poisons_its_handle_only() {
        let (first, second) = (probe(), probe());
        let panicking = |_: &ProbeHandle| -> Result<()> { panic!("seventh {}", 1) };
        // SAFETY: `first` is live and only shared.
        let (status, text) =
            status_and_text(|error| unsafe { Call::new(&raw const first, error) }.run(panicking));
        assert_eq!(status, DIPC_ERR_PANIC);
        assert!(text.contains("seventh 1 at src/ffi/guard.rs:"), "{text}");
        // SAFETY: as above.
        let (status, _) =
            status_and_text(|error| unsafe { Call::new(&raw const first, error) }.run(|_| Ok(())));
        assert_eq!(status, DIPC_ERR_POISONED);
        // SAFETY: as above, with `second`.
        let (status, _) =
            status_and_text(|error| unsafe { Call::new(&raw const second, error) }.run(|_| Ok(())));
        assert_eq!(status, DIPC_OK);
    }

    /// Promise: NULL handles are refused by name, and their body does not run.
    #[test]
    fn null_handles_are_refused_by_name() {
        let body = |_: &mut ProbeHandle| -> Result<()> { panic!("the body ran") };
        let (status, text) = status_and_text(|error| {
            // SAFETY: NULL is allowed.
            unsafe { Call::new(std::ptr::null_mut::<ProbeHandle>(), error) }.run(body)
        });
        assert_eq!(
            (status, text.as_str()),
            (DIPC_ERR_NULL_ARGUMENT, "probe is NULL")
        );
    }

    /// Promise: a handle made before a fork is refused in the child.
    #[test]
    fn handles_of_the_parent_are_refused() {
        let handle = ProbeHandle {
            state: HandleState::of_another_process(),
            value: 7,
        };
        // SAFETY: `handle` is live and only shared.
        let (status, _) =
            status_and_text(|error| unsafe { Call::new(&raw const handle, error) }.run(|_| Ok(())));
        assert_eq!(status, DIPC_ERR_FORKED);
    }

    /// Promise: the error is optional, and progress is positive.
    #[test]
    fn errors_are_optional_and_progress_is_positive() {
        let mut handle = probe();
        let failing = |_: &mut ProbeHandle| -> Result<()> { Err(Error::timeout("late")) };
        // SAFETY: `handle` is live and exclusive.
        let status = unsafe { Call::new(&raw mut handle, nowhere()) }.run(failing);
        assert_eq!(status, DIPC_ERR_TIMEOUT);
        let body = |probe: &mut ProbeHandle| {
            probe.value += 1;
            Ok(Polled::Nothing)
        };
        // SAFETY: as above.
        let status = unsafe { Call::new(&raw mut handle, nowhere()) }.run(body);
        assert_eq!((status, handle.value), (DIPC_NOTHING, 8));
    }

    /// Promise: a panic inside the drop of a handle does not leave `_free`.
    #[test]
    fn freeing_never_unwinds() {
        struct Bomb(HandleState);
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("dropped");
            }
        }
        impl Handle for Bomb {
            const NAME: &'static str = "bomb";
            fn state(&self) -> &HandleState {
                &self.0
            }
        }
        // SAFETY: the handle is fresh and used nowhere else.
        unsafe { guard_free(Box::into_raw(Box::new(Bomb(HandleState::new())))) };
        // SAFETY: NULL is allowed.
        unsafe { guard_free(std::ptr::null_mut::<Bomb>()) };
        assert_eq!(guard_value(3, || panic!("no value")), 3);
    }
}
