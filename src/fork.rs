//! Telling a forked child from the process that made a handle.
//!
//! A child that `fork` made has a copy of every handle, but none of the threads, and shares sockets
//! and regions with its parent. It must not use them: every entry point asks
//! [`Generation::ensure_same_process`] first, before it takes a lock that some other thread of the
//! parent may have held at the moment of the fork.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use once_cell::sync::OnceCell;

use crate::error::{Error, Result, Status};

/// How many forks lie between the first process and this one.
static GENERATION: AtomicU64 = AtomicU64::new(0);
/// Whether the handler that counts was registered; the value is what registering returned.
static REGISTERED: OnceCell<i32> = OnceCell::new();

/// Runs in every child, before `fork` returns there.
extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// Whether this process is a child of one that used the library.
pub fn is_child() -> bool {
    GENERATION.load(Ordering::Relaxed) != 0
}

/// The process that something was made in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generation(u64);

impl Generation {
    /// This process. The first call registers the handler that counts forks, so a handle must take
    /// its generation when it is made.
    pub fn now() -> Self {
        REGISTERED.get_or_init(|| {
            // SAFETY: `in_child` is a function for the life of the process (the library is linked
            // `-z nodelete`), and does nothing but add to an atomic, which is async-signal-safe as
            // POSIX asks of a child handler.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) }
        });
        Self(GENERATION.load(Ordering::Relaxed))
    }

    /// Whether this is still the process of [`now`](Self::now).
    pub fn is_same_process(self) -> bool {
        GENERATION.load(Ordering::Relaxed) == self.0
    }

    /// [`is_same_process`](Self::is_same_process), as an error for entry points to return.
    ///
    /// # Errors
    ///
    /// `Forked` in a child.
    pub fn ensure_same_process(self) -> Result<()> {
        if self.is_same_process() {
            return Ok(());
        }
        Err(Error::new(
            Status::Forked,
            "this handle was made before a fork and cannot be used in the child process: make a \
             new one there, or call exec",
        ))
    }
}

/// A static behind a lock, of which each process has its own: in a forked child the parent's may be
/// locked for ever, by a thread that is not there.
pub struct PerProcess<T: 'static> {
    /// Never freed: what it pointed to in the parent is left alone.
    current: AtomicPtr<ProcessValue<T>>,
    new: fn() -> T,
}

struct ProcessValue<T> {
    generation: Generation,
    value: T,
}

impl<T: Send + Sync> PerProcess<T> {
    /// `new` makes a process's own, when it is first asked for.
    pub const fn new(new: fn() -> T) -> Self {
        Self {
            current: AtomicPtr::new(std::ptr::null_mut()),
            new,
        }
    }

    /// This process's.
    pub fn get(&'static self) -> &'static T {
        let mut known = self.current.load(Ordering::Acquire);
        loop {
            // SAFETY: NULL, or a box that was leaked below and is never written again; the
            // acquiring load has seen what made it.
            if let Some(owned) = unsafe { known.as_ref() }
                && owned.generation.is_same_process()
            {
                return &owned.value;
            }
            let owned = Box::into_raw(Box::new(ProcessValue {
                generation: Generation::now(),
                value: (self.new)(),
            }));
            let exchanged =
                self.current
                    .compare_exchange(known, owned, Ordering::AcqRel, Ordering::Acquire);
            known = match exchanged {
                Ok(_) => owned,
                Err(other) => {
                    // SAFETY: made above, and nobody else has seen it.
                    drop(unsafe { Box::from_raw(owned) });
                    other
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise of design.md, "Failure is per stream": after `fork` the child's calls return an
    /// error, and the parent's go on.
    #[test]
    fn a_child_is_another_generation() {
        let generation = Generation::now();
        // SAFETY: the child only reads an atomic, compares, and leaves by `_exit`; it takes no
        // lock and allocates nothing before that unless the check has failed already.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let code = if generation.is_same_process() { 1 } else { 0 };
            // SAFETY: ends the child at once, running none of the parent's exit handlers.
            unsafe { libc::_exit(code) };
        }
        assert!(child > 0);
        let mut status = -1;
        // SAFETY: `child` is this process's own child and `status` is writable.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(waited, child);
        assert_eq!(status, 0, "the child took itself for its parent");
        generation.ensure_same_process().unwrap();
        let other = Generation(generation.0 + 1)
            .ensure_same_process()
            .unwrap_err();
        assert_eq!(other.status(), Status::Forked);
        assert!(other.text().contains("fork"));
    }
}
