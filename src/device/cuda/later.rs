//! Frees resources on a separate thread, because calls of the driver may wait for the device. An
//! I/O thread, the holder of a connection's lock, and a consumer that releases an array must not
//! wait: a kernel of the host program that never ends would stop them.
//!
//! Which calls may wait, according to CUDA's documentation:
//!
//! - `cuMemFree`, `cuMemFreeHost` and `cuMemHostUnregister` wait for all work of the device. For
//!   `cuMemUnmap`, `cuMemAddressFree`, `cuMemRelease` and `cuIpcCloseMemHandle` nothing is
//!   documented. Only this thread makes these calls.
//! - `cuStreamSynchronize`, `cuEventSynchronize`, `cuMemAlloc`, `cuMemCreate`, `cuMemHostAlloc`,
//!   `cuMemHostRegister` and `cuModuleLoadData` may wait. I/O threads do not call them.
//! - `cuStreamDestroy` and `cuEventDestroy` do not wait, nor do queries, records, waits of streams,
//!   asynchronous copies and launches. Any thread calls them.
//!
//! The thread runs while it has work, and a moment longer. A caller that needs freed memory back
//! calls [`wait`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::device::cuda::context::Device;
use crate::device::cuda::driver::Driver;
use crate::device::cuda::event::Event;
use crate::device::cuda::stream::log_drop_error;
use crate::error::Result;

/// The thread stays this long without work, since frees come in bursts.
const LINGER: Duration = Duration::from_millis(100);
/// The first and the longest pause between two queries of the events; the pause doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
/// After this many errors of its queries, an event counts as happened: a device that reports only
/// errors does no more work.
const MOST_ERRORS: u32 = 3;
/// The longest wait for memory after a free of a handle. A stuck device must not block the caller.
pub const PATIENCE: Duration = Duration::from_secs(1);

type FreeJob = Box<dyn FnOnce() + Send>;

/// Memory that work uses until the event has happened.
struct KeptUntil {
    event: Arc<Event>,
    errors: u32,
    /// The number, from the same count as the numbers of the jobs.
    number: u64,
    _memory: Box<dyn Send>,
}

struct FreeQueue {
    /// The jobs with their numbers, in order.
    jobs: VecDeque<(u64, FreeJob)>,
    /// The lowest number of the jobs and kept values that the thread works on.
    running: Option<u64>,
    kept: Vec<KeptUntil>,
    /// The next number.
    next: u64,
    thread: Option<ThreadId>,
}

static STATE: Mutex<FreeQueue> = Mutex::new(FreeQueue {
    jobs: VecDeque::new(),
    running: None,
    kept: Vec::new(),
    next: 0,
    thread: None,
});
/// Signals new work.
static WORK_ADDED: Condvar = Condvar::new();
/// Signals finished work.
static WORK_DONE: Condvar = Condvar::new();
/// True once there was work. Then the driver is loaded.
static USED: AtomicBool = AtomicBool::new(false);

/// The locked state. `None` if there never was work, or in a forked child, where the lock may be
/// held for ever.
fn state() -> Option<MutexGuard<'static, FreeQueue>> {
    let is_usable = USED.load(Ordering::Acquire) && Driver::get().is_ok();
    is_usable.then(|| STATE.lock())
}

/// Runs `work` later on another thread, in the context of `device`, to free something. Does not
/// call `work` if the context is gone, because its resources are then gone too.
pub(super) fn free(
    device: &Arc<Device>,
    what: &'static str,
    work: impl FnOnce(&Device) -> Result<()> + Send + 'static,
) {
    let device = Arc::clone(device);
    run(move || {
        let outcome = device.enter_to_drop().and_then(|_current| work(&device));
        log_drop_error(outcome, what);
    });
}

/// Runs `job` later on another thread, after all earlier jobs. The job does not call the host
/// program.
pub fn run(job: impl FnOnce() + Send + 'static) {
    // A forked child has no driver and nothing to free.
    if Driver::get().is_ok() {
        USED.store(true, Ordering::Release);
        let mut state = STATE.lock();
        let number = state.take_number();
        state.jobs.push_back((number, Box::new(job)));
        state.ensure_thread();
    }
}

/// Drops `memory` on another thread once `event` has happened; at once if it already has. The drop
/// must not call the host program.
pub fn keep_until(event: Arc<Event>, memory: Box<dyn Send>) {
    if matches!(event.is_ready(), Ok(true)) || Driver::get().is_err() {
        return;
    }
    USED.store(true, Ordering::Release);
    let mut state = STATE.lock();
    let number = state.take_number();
    state.kept.push(KeptUntil {
        event,
        errors: 0,
        number,
        _memory: memory,
    });
    state.ensure_thread();
}

/// Waits until the driver has got back all memory that was freed so far, at most for `patience`.
/// Returns true if the driver has got it back. An I/O thread must not call this function.
pub fn wait(patience: Duration) -> bool {
    let Some(mut state) = state() else {
        return true;
    };
    if state.thread == Some(std::thread::current().id()) {
        // The thread would wait for its own job.
        return false;
    }
    let deadline = Instant::now() + patience;
    // Twice, because memory whose event has happened becomes a new job.
    for _ in 0..2 {
        let last = state.next;
        while state.has_open_before(last) {
            state.ensure_thread();
            if WORK_DONE.wait_until(&mut state, deadline).timed_out() {
                return !state.has_open_before(last);
            }
        }
    }
    true
}

impl FreeQueue {
    fn take_number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// True if work with a number below `number` is still open.
    fn has_open_before(&self, number: u64) -> bool {
        let jobs = self.jobs.front().map(|(number, _)| *number);
        let kept = self.kept.iter().map(|kept| kept.number);
        let mut all = jobs.into_iter().chain(self.running).chain(kept);
        all.any(|open| open < number)
    }

    /// Wakes the thread, or starts it. After a failure the next call tries again.
    fn ensure_thread(&mut self) {
        if self.thread.is_some() {
            WORK_ADDED.notify_one();
            return;
        }
        let started = std::thread::Builder::new()
            .name("dipc-cuda-later".into())
            .spawn(work);
        match started {
            Ok(thread) => self.thread = Some(thread.thread().id()),
            Err(error) => tracing::warn!("memory of a GPU is given back later: {error}"),
        }
    }
}

impl KeptUntil {
    fn is_over(&mut self) -> bool {
        self.event.is_ready().unwrap_or_else(|_| {
            self.errors += 1;
            self.errors >= MOST_ERRORS
        })
    }
}

/// The body of the thread.
fn work() {
    let mut pause = FIRST_PAUSE;
    let mut state = STATE.lock();
    loop {
        if let Some((number, job)) = state.jobs.pop_front() {
            state.running = Some(number);
            MutexGuard::unlocked(&mut state, job);
            state.running = None;
            WORK_DONE.notify_all();
            continue;
        }
        if !state.kept.is_empty() {
            let mut kept = std::mem::take(&mut state.kept);
            let before = kept.len();
            state.running = kept.iter().map(|kept| kept.number).min();
            MutexGuard::unlocked(&mut state, || kept.retain_mut(|kept| !kept.is_over()));
            state.running = None;
            if kept.len() < before {
                pause = FIRST_PAUSE;
                WORK_DONE.notify_all();
            }
            state.kept.append(&mut kept);
        }
        if !state.jobs.is_empty() {
            continue;
        }
        let idle = state.kept.is_empty();
        let nap = if idle { LINGER } else { pause };
        let given = !WORK_ADDED.wait_for(&mut state, nap).timed_out();
        pause = if given {
            FIRST_PAUSE
        } else {
            (pause * 2).min(LONGEST_PAUSE)
        };
        if idle && !given && state.jobs.is_empty() && state.kept.is_empty() {
            state.thread = None;
            return;
        }
    }
}
