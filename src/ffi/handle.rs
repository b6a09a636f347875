//! The checks of every handle before each use: NULL, fork, poison.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result, Status};
use crate::fork::Generation;

/// The common part of all handles.
pub(super) struct HandleState {
    /// The process that made the handle; `None` in a test that stands for a child.
    generation: Option<Generation>,
    poisoned: AtomicBool,
}

impl HandleState {
    pub(super) fn new() -> Self {
        Self {
            generation: Some(Generation::now()),
            poisoned: AtomicBool::new(false),
        }
    }

    #[cfg(test)]
    pub(super) fn of_another_process() -> Self {
        Self {
            generation: None,
            poisoned: AtomicBool::new(false),
        }
    }

    /// Whether this process is a forked child of the handle's process. Threads that the child lacks
    /// may hold the locks behind the handle, so the child must not use it.
    pub(super) fn forked(&self) -> bool {
        self.generation
            .is_none_or(|generation| !generation.is_same_process())
    }

    /// Marks the handle after a panic: the state behind it may be half changed.
    pub(super) fn poison(&self) {
        self.poisoned.store(true, Ordering::Relaxed);
    }

    fn check(&self, name: &str) -> Result<()> {
        if self.forked() {
            return Err(Error::new(
                Status::Forked,
                format!("the {name} was made before a fork; the child must make its own"),
            ));
        }
        if self.poisoned.load(Ordering::Relaxed) {
            return Err(Error::new(
                Status::Poisoned,
                format!("an earlier call on the {name} panicked; it can only be freed"),
            ));
        }
        Ok(())
    }
}

/// A type behind an opaque pointer of the C API, made by `Box::into_raw`.
pub(super) trait Handle {
    /// The handle's name in error texts.
    const NAME: &'static str;

    /// The common part of the handle.
    fn state(&self) -> &HandleState;
}

/// Implements [`Handle`] for a struct with a field `state`, and [`From`] for a struct whose only
/// other field is `inner`.
macro_rules! handle {
    ($type:ident, $name:literal, $inner:ty) => {
        handle!($type, $name);

        impl From<$inner> for $type {
            fn from(inner: $inner) -> Self {
                let state = $crate::ffi::handle::HandleState::new();
                Self { state, inner }
            }
        }
    };
    ($type:ty, $name:literal) => {
        impl $crate::ffi::handle::Handle for $type {
            const NAME: &'static str = $name;

            fn state(&self) -> &$crate::ffi::handle::HandleState {
                &self.state
            }
        }
    };
}

/// The error for a pointer argument that must not be NULL.
pub(super) fn null_argument(name: &str) -> Error {
    Error::new(Status::NullArgument, format!("{name} is NULL"))
}

/// A handle for shared use.
///
/// # Safety
///
/// `handle` is NULL, or came from the library and is not freed for `'a`.
pub(super) unsafe fn try_ref<'a, H: Handle>(handle: *const H) -> Result<&'a H> {
    // SAFETY: the caller promises that it is NULL, or live for 'a; calls on a const handle only
    // share it.
    let handle = unsafe { handle.as_ref() }.ok_or_else(|| null_argument(H::NAME))?;
    handle.state().check(H::NAME)?;
    Ok(handle)
}

/// A handle that may be NULL.
///
/// # Safety
///
/// As [`try_ref`].
pub(super) unsafe fn try_option<'a, H: Handle>(handle: *const H) -> Result<Option<&'a H>> {
    if handle.is_null() {
        return Ok(None);
    }
    // SAFETY: it is not NULL; the caller promises that it came from the library and is not freed
    // for 'a.
    unsafe { try_ref(handle) }.map(Some)
}

/// A handle for exclusive use.
///
/// # Safety
///
/// `handle` is NULL, or came from the library, is not freed for `'a`, and nobody else uses it.
pub(super) unsafe fn try_mut<'a, H: Handle>(handle: *mut H) -> Result<&'a mut H> {
    // SAFETY: the caller promises that it is NULL, or live and exclusive for 'a.
    let handle = unsafe { handle.as_mut() }.ok_or_else(|| null_argument(H::NAME))?;
    handle.state().check(H::NAME)?;
    Ok(handle)
}

/// Checks the place for an output before the work; [`Out::set`] writes it afterwards.
///
/// # Safety
///
/// `place` is NULL, or aligned and writable for `'a`, and nobody else uses it.
pub(super) unsafe fn try_out<'a, T>(place: *mut T, name: &str) -> Result<Out<'a, T>> {
    if place.is_null() {
        return Err(null_argument(name));
    }
    Ok(Out {
        place,
        scope: std::marker::PhantomData,
    })
}

/// A writable place. Its old content is neither read nor dropped.
pub(super) struct Out<'a, T> {
    place: *mut T,
    scope: std::marker::PhantomData<&'a mut T>,
}

impl<T> Out<'_, T> {
    /// Writes the output.
    pub(super) fn set(self, value: T) {
        // SAFETY: `try_out` saw that it is not NULL, and its caller promised that it is aligned
        // and writable.
        unsafe { self.place.write(value) };
    }
}

/// A new handle, which the C side frees.
pub(super) fn boxed<H: Handle>(handle: impl Into<H>) -> *mut H {
    Box::into_raw(Box::new(handle.into()))
}
