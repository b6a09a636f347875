//! UCX in a process that may only make small files.
//!
//! UCX's shared memory (posix) lies in files, which it fills when a worker is made. Past the limit
//! on the size of files the kernel sends SIGXFSZ to the thread that writes, which ends the process
//! unless it is held off.

use std::mem::MaybeUninit;

use crate::device::memfd;

/// Whether the size of this process's files is limited.
pub(super) fn is_set() -> bool {
    memfd::most_bytes() != u64::MAX
}

/// Keeps SIGXFSZ from this thread until it is dropped: whoever passes the limit gets an error.
pub(super) struct HeldOff {
    /// The signals that were blocked before.
    before: libc::sigset_t,
    /// The signal had come before, and is left to whoever blocked it.
    was_pending: bool,
}

/// Holds the signal off where the size of files is limited.
pub(super) fn hold_off() -> Option<HeldOff> {
    is_set().then(HeldOff::new).flatten()
}

impl HeldOff {
    fn new() -> Option<Self> {
        let was_pending = is_pending();
        let ours = only_this();
        let mut before = MaybeUninit::uninit();
        // SAFETY: `ours` is a set, and `before` is writable; the mask is this thread's alone.
        let failed =
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const ours, before.as_mut_ptr()) };
        if failed != 0 {
            return None;
        }
        Some(Self {
            // SAFETY: the call has written it.
            before: unsafe { before.assume_init() },
            was_pending,
        })
    }
}

impl Drop for HeldOff {
    fn drop(&mut self) {
        if !self.was_pending && is_pending() {
            let (ours, none) = (
                only_this(),
                libc::timespec {
                    tv_sec: 0,
                    tv_nsec: 0,
                },
            );
            // SAFETY: both are readable, and nothing is asked about the signal, which is blocked
            // here.
            let _ = unsafe {
                libc::sigtimedwait(&raw const ours, std::ptr::null_mut(), &raw const none)
            };
        }
        // SAFETY: the mask that `new` was told; nothing is asked about the one that is replaced.
        let _ = unsafe {
            libc::pthread_sigmask(
                libc::SIG_SETMASK,
                &raw const self.before,
                std::ptr::null_mut(),
            )
        };
    }
}

/// The set of SIGXFSZ.
fn only_this() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `set` is writable.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: made a set by the call before; the number is a signal's.
    unsafe { libc::sigaddset(set.as_mut_ptr(), libc::SIGXFSZ) };
    // SAFETY: as above.
    unsafe { set.assume_init() }
}

fn is_pending() -> bool {
    let mut pending = MaybeUninit::uninit();
    // SAFETY: `pending` is writable.
    if unsafe { libc::sigpending(pending.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: the call has written it; the number is a signal's.
    unsafe { libc::sigismember(pending.as_ptr(), libc::SIGXFSZ) == 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes meanwhile is forgotten, and the thread's mask is as before.
    #[test]
    fn a_signal_that_is_held_off_is_forgotten() {
        let held = HeldOff::new().unwrap();
        // SAFETY: the signal is blocked in this thread, to which it is sent.
        unsafe { libc::raise(libc::SIGXFSZ) };
        assert!(is_pending());
        drop(held);
        // Had it stayed, or come, the process would have ended.
        assert!(!is_pending());
    }
}
