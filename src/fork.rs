//! Detection of a forked child.
//!
//! A forked child has a copy of every handle, but no thread of the parent, and shares sockets and
//! regions with the parent. It must not use the handles. Every entry point calls
//! [`Generation::ensure_same_process`] before it takes a lock: another thread of the parent may
//! have held the lock at the fork.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use once_cell::sync::OnceCell;

use crate::error::{Error, Result, Status};

/// The number of forks between the first process and this process.
static GENERATION: AtomicU64 = AtomicU64::new(0);
/// Set once the fork handler is registered; the value is the result of `pthread_atfork`.
static REGISTERED: OnceCell<i32> = OnceCell::new();

/// Runs in every child, before `fork` returns there.
extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// True in a forked child of a process that used the library.
pub fn is_child() -> bool {
    GENERATION.load(Ordering::Relaxed) != 0
}

/// Identifies the process that made a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generation(u64);

impl Generation {
    /// The generation of this process. The first call registers the fork handler, so every handle
    /// takes its generation when it is made.
    pub fn now() -> Self {
        REGISTERED.get_or_init(|| {
            // SAFETY: `in_child` exists for the life of the process (the library is linked `-z
            // nodelete`). It only adds to an atomic, which is async-signal-safe, as POSIX requires
            // of a child handler.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) }
        });
        Self(GENERATION.load(Ordering::Relaxed))
    }

    /// True in the process that called [`now`](Self::now).
    pub fn is_same_process(self) -> bool {
        GENERATION.load(Ordering::Relaxed) == self.0
    }

    /// Returns an error in another process.
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

/// A static value of each process. In a forked child, a thread of the parent may hold the locks of
/// the parent's value for ever.
pub struct PerProcess<T: 'static> {
    /// Never freed: a forked child leaves its parent's value alone.
    current: AtomicPtr<ProcessValue<T>>,
    new: fn() -> T,
}

struct ProcessValue<T> {
    generation: Generation,
    value: T,
}

impl<T: Send + Sync> PerProcess<T> {
    /// `new` makes the value at the first [`get`](Self::get) of each process.
    pub const fn new(new: fn() -> T) -> Self {
        Self {
            current: AtomicPtr::new(std::ptr::null_mut()),
            new,
        }
    }

    /// The value of this process.
    pub fn get(&'static self) -> &'static T {
        let mut known = self.current.load(Ordering::Acquire);
        loop {
            // SAFETY: `known` is NULL or a box that the code below leaked and that nobody writes
            // again. The acquiring load sees the box's content.
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
                    // SAFETY: the box was made above, and no other thread has seen it.
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

    /// Promise of the README: after `fork` the calls of the child return an error, and the parent
    /// goes on.
    #[test]
    fn a_child_is_another_generation() {
        let generation = Generation::now();
        // SAFETY: the child only reads and compares an atomic, and leaves by `_exit`. Before that
        // it takes no lock and allocates nothing, unless the check has already failed.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let code = if generation.is_same_process() { 1 } else { 0 };
            // SAFETY: `_exit` ends the child at once and runs no exit handler of the parent.
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
