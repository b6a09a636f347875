//! What the host does on signals, kept as it was.

use std::mem::MaybeUninit;

/// Signal numbers end here on Linux.
const LAST: i32 = 64;

/// Runs `call` and then gives every signal the handler that it had before, and this thread its
/// stack for handlers.
///
/// Loading UCX 1.13 installs handlers for HUP, ILL, BUS, FPE and SEGV and a stack for them, loading
/// 1.22 one for HUP; initialising either changes nothing. UCX can be told not to by the
/// environment, but changing that races with every thread that reads it.
///
/// A signal that arrives while `call` runs is handled by UCX, and a handler that another thread
/// installs meanwhile is lost: load UCX before there are threads that do so.
pub fn keep_signal_handlers<T>(call: impl FnOnce() -> T) -> T {
    // A guard, so that the handlers come back also if `call` panics.
    let _saved = Saved::now();
    call()
}

struct Saved {
    handlers: Vec<(i32, libc::sigaction)>,
    stack: libc::stack_t,
}

impl Saved {
    fn now() -> Self {
        Self {
            handlers: (1..=LAST)
                .filter_map(|signal| Some((signal, current(signal)?)))
                .collect(),
            stack: stack(),
        }
    }
}

impl Drop for Saved {
    fn drop(&mut self) {
        if stack().ss_sp != self.stack.ss_sp {
            // SAFETY: the stack that the thread had, or "none": whoever set it keeps its memory
            // until the thread ends or the stack is replaced, and UCX replaced it without their
            // knowledge.
            unsafe { libc::sigaltstack(&raw const self.stack, std::ptr::null_mut()) };
        }
        for (signal, before) in &self.handlers {
            if current(*signal).is_some_and(|now| same(&now, before)) {
                continue;
            }
            // SAFETY: `before` is what the C library itself gave out for this signal; the handler
            // was in force then, and no library is unloaded meanwhile. The last argument may be
            // NULL. It cannot fail: the signal exists, and can be handled since its handler
            // changed.
            unsafe { libc::sigaction(*signal, before, std::ptr::null_mut()) };
        }
    }
}

/// The stack on which this thread runs handlers.
fn stack() -> libc::stack_t {
    let mut stack = libc::stack_t {
        ss_sp: std::ptr::null_mut(),
        ss_flags: libc::SS_DISABLE,
        ss_size: 0,
    };
    // SAFETY: a NULL stack changes nothing, and the other is writable. It cannot fail.
    unsafe { libc::sigaltstack(std::ptr::null(), &raw mut stack) };
    stack
}

/// What happens on `signal`; `None` for the two that the C library keeps for itself.
fn current(signal: i32) -> Option<libc::sigaction> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a NULL action changes nothing, and `action` is writable and of the right type.
    let result = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: integers and an optional function pointer, for all of which zeros are valid; the call
    // above filled in the rest where it succeeded.
    (result == 0).then(|| unsafe { action.assume_init() })
}

/// Whether both do the same. The mask is not compared, because nobody changes only the mask; nor is
/// the flag that the C library itself adds.
fn same(one: &libc::sigaction, other: &libc::sigaction) -> bool {
    const SA_RESTORER: i32 = 0x0400_0000;
    one.sa_sigaction == other.sa_sigaction && (one.sa_flags ^ other.sa_flags) & !SA_RESTORER == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" fn handler(_signal: i32) {}

    /// A handler installed by the call is gone after it, also when the call panics.
    #[test]
    fn handlers_come_back() {
        let before = current(libc::SIGUSR2).unwrap();
        let install = || {
            // SAFETY: the handler does nothing, so it may run at any time.
            unsafe { libc::signal(libc::SIGUSR2, handler as extern "C" fn(i32) as usize) };
            assert!(!same(&current(libc::SIGUSR2).unwrap(), &before));
        };
        keep_signal_handlers(install);
        assert!(same(&current(libc::SIGUSR2).unwrap(), &before));
        let panicked = std::panic::catch_unwind(|| {
            keep_signal_handlers(|| {
                install();
                std::panic::resume_unwind(Box::new(()));
            })
        });
        assert!(panicked.is_err());
        assert!(same(&current(libc::SIGUSR2).unwrap(), &before));
    }
}
