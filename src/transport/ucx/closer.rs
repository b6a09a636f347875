//! The thread that closes connections: UCX waits for peers while it does, and an I/O thread must
//! not.
//!
//! One for the process, there only while something is being closed. What a peer that does nothing
//! keeps UCX from letting go of stays here until that peer is gone.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::fork::PerProcess;
use crate::transport::ucx::closing::{Closing, Rest, borrow};
use crate::transport::ucx::ending;

/// What one process's has.
struct EndpointCloser {
    state: Mutex<CloserQueue>,
    /// Fewer are waited for.
    fewer: Condvar,
}

#[derive(Default)]
struct CloserQueue {
    /// Given to the thread and not yet taken by it.
    new: Vec<Closing>,
    /// All there are, those too that the thread has.
    count: usize,
    /// Those among them that are soon over.
    prompt: usize,
    /// Wakes the thread; `None`: there is none.
    wake: Option<Arc<OwnedFd>>,
}

static CLOSER: PerProcess<EndpointCloser> = PerProcess::new(|| EndpointCloser {
    state: Mutex::default(),
    fewer: Condvar::new(),
});

/// The process was ending when some connection was to be closed: it has memory of producers', and
/// what keeps that alive.
static LEFT: AtomicBool = AtomicBool::new(false);

/// Whether UCX has memory that is on its way to a peer, or from one, of a connection that is over.
pub(in crate::transport) fn is_keeping() -> bool {
    LEFT.load(Ordering::Acquire) || CLOSER.get().state.lock().count > 0
}

/// Waits until what is being closed is closed, as far as no peer holds that up, and no longer than
/// `patience`.
pub(in crate::transport) fn wait(patience: Duration) {
    let deadline = Instant::now() + patience;
    let closer = CLOSER.get();
    let mut state = closer.state.lock();
    while state.prompt > 0 && !closer.fewer.wait_until(&mut state, deadline).timed_out() {}
}

/// Closes a connection, on the thread.
pub(super) fn close(closing: Closing) {
    let closer = CLOSER.get();
    let mut state = closer.state.lock();
    state.new.push(closing);
    state.count += 1;
    state.prompt += 1;
    if let Some(wake) = &state.wake {
        let _ = rustix::io::write(wake, &1_u64.to_ne_bytes());
        return;
    }
    // Where no thread is to be had, it stays until one is: the next call tries again.
    let Ok(wake) = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK) else {
        return;
    };
    let wake = Arc::new(wake);
    let ours = Arc::clone(&wake);
    let started = std::thread::Builder::new()
        .name("dipc-closer".into())
        .spawn(move || closer.run(&ours));
    match started {
        Ok(_) => state.wake = Some(wake),
        Err(error) => tracing::warn!("a connection cannot be closed now: {error}"),
    }
}

impl EndpointCloser {
    fn run(&self, wake: &OwnedFd) {
        let mut all = Vec::new();
        loop {
            {
                let mut state = self.state.lock();
                all.append(&mut state.new);
                if all.is_empty() {
                    state.wake = None;
                    return;
                }
            }
            let Some(held_off) = ending::hold_off() else {
                return self.leave(all);
            };
            let over: Vec<Closing> = all.extract_if(.., Closing::turn).collect();
            let count = over.len();
            over.into_iter().for_each(Closing::end);
            let rests = all.iter_mut().map(Closing::rest).collect::<Vec<_>>();
            drop(held_off);
            {
                let mut state = self.state.lock();
                state.count -= count;
                let prompt = all.iter().filter(|closing| !closing.is_late()).count();
                state.prompt = prompt + state.new.len();
            }
            self.fewer.notify_all();
            if !all.is_empty() {
                sleep(wake, &all, &rests);
            }
            let _ = rustix::io::read(wake, &mut [0; 8]);
        }
    }

    /// The process ends: UCX is called no more.
    fn leave(&self, all: Vec<Closing>) {
        LEFT.store(true, Ordering::Release);
        all.into_iter().for_each(Closing::leave);
        self.state.lock().prompt = 0;
        self.fewer.notify_all();
    }
}

/// Sleeps until one of them is to be turned again, or `wake` says so.
fn sleep(wake: &OwnedFd, all: &[Closing], rests: &[Rest]) {
    let deadlines = all.iter().filter_map(Closing::deadline);
    let left = deadlines.map(|at| at.saturating_duration_since(Instant::now()));
    let pauses = rests.iter().filter_map(|rest| match rest {
        Rest::After(pause) => Some(*pause),
        Rest::Readable(_) => None,
    });
    let timeout = left.chain(pauses).min();
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    let mut fds = vec![PollFd::new(wake, PollFlags::IN)];
    fds.extend(rests.iter().filter_map(|rest| match rest {
        // SAFETY: its closing is in `all`.
        Rest::Readable(fd) => Some(PollFd::from_borrowed_fd(
            unsafe { borrow(*fd) },
            PollFlags::IN,
        )),
        Rest::After(_) => None,
    }));
    if poll(&mut fds, timeout.as_ref()).is_err() {
        // A signal, or memory is short.
        std::thread::sleep(Duration::from_millis(1));
    }
}
