//! What may wait for a device, done on a thread of ours, so that nobody waits who must not: an I/O
//! thread, whoever holds a connection's lock, a consumer that releases an array. A kernel of the
//! host's that never ends would stop them all.
//!
//! Which calls may wait, as CUDA's documentation says, or leaves open:
//!
//! | call | may it wait? | where it is made |
//! |---|---|---|
//! | `cuMemFree`, `cuMemFreeHost`, `cuMemHostUnregister` | until the device has done all its work | here |
//! | `cuMemUnmap` and `cuMemAddressFree`, `cuMemRelease`, `cuIpcCloseMemHandle` | nothing is promised, and they unmap or free | here |
//! | `cuStreamSynchronize`, `cuEventSynchronize` | that is what they are for | by who needs the result, never on an I/O thread |
//! | `cuMemAlloc`, `cuMemCreate`, `cuMemHostAlloc`, `cuMemHostRegister`, `cuModuleLoadData` | yes | by producers and consumers, never on an I/O thread |
//! | `cuStreamDestroy`, `cuEventDestroy` | no: what is under way is let go of when it is done | wherever they are dropped |
//! | queries, records, waits of streams, asynchronous copies, launches | no | anywhere |
//!
//! The thread is there while there is something to do, and a moment longer. Who must see memory
//! back before going on [waits](wait) for what has been given up so far.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::device::cuda::context::Device;
use crate::device::cuda::driver::Driver;
use crate::device::cuda::event::Event;
use crate::device::cuda::stream::left;
use crate::error::Result;

/// How long the thread stays when it has nothing to do: what is given up comes in bursts.
const LINGER: Duration = Duration::from_millis(100);
/// Events are asked for after so long, and then less and less often.
const SOONEST: Duration = Duration::from_millis(1);
const LATEST: Duration = Duration::from_millis(50);
/// Errors in answer to the question whether an event has happened, after which it counts as such: a
/// device that says nothing else does nothing more.
const MOST_ERRORS: u32 = 3;
/// How long whoever frees a handle of ours waits for memory to be back. A device that is stuck
/// keeps nobody.
pub const PATIENCE: Duration = Duration::from_secs(1);

type GiveBack = Box<dyn FnOnce() + Send>;

/// Memory that work of ours uses until the event has happened.
struct KeptUntil {
    event: Arc<Event>,
    errors: u32,
    /// As the jobs are numbered.
    number: u64,
    _memory: Box<dyn Send>,
}

struct GiveBackQueue {
    /// With their numbers, in order.
    jobs: VecDeque<(u64, GiveBack)>,
    /// The lowest number of what the thread has taken out, to do it.
    doing: Option<u64>,
    kept: Vec<KeptUntil>,
    /// The number that the next one gets.
    next: u64,
    thread: Option<ThreadId>,
}

static STATE: Mutex<GiveBackQueue> = Mutex::new(GiveBackQueue {
    jobs: VecDeque::new(),
    doing: None,
    kept: Vec::new(),
    next: 0,
    thread: None,
});
/// There is something to do.
static GIVEN: Condvar = Condvar::new();
/// Something has been done.
static DONE: Condvar = Condvar::new();
/// Whether there ever was something to do: then the driver has been loaded.
static USED: AtomicBool = AtomicBool::new(false);

/// The state; `None` where there is nothing in it, or it belongs to the parent of this process, in
/// which it may have been locked.
fn state() -> Option<MutexGuard<'static, GiveBackQueue>> {
    let ours = USED.load(Ordering::Acquire) && Driver::get().is_ok();
    ours.then(|| STATE.lock())
}

/// Gives something of `device` back to the driver, under its context: later, on another thread.
/// Where the context is gone, so is everything in it, and `work` is not called.
pub(super) fn free(
    device: &Arc<Device>,
    what: &'static str,
    work: impl FnOnce(&Device) -> Result<()> + Send + 'static,
) {
    let device = Arc::clone(device);
    run(move || {
        let gone = device.enter_to_drop().and_then(|_current| work(&device));
        left(gone, what);
    });
}

/// Does `job` later, on another thread.
pub(super) fn run(job: impl FnOnce() + Send + 'static) {
    // In a forked child there is no driver, and nothing to give back.
    if Driver::get().is_ok() {
        USED.store(true, Ordering::Release);
        let mut state = STATE.lock();
        let number = state.take_number();
        state.jobs.push_back((number, Box::new(job)));
        state.ensure_thread();
    }
}

/// Drops `memory` once `event` has happened, later and on another thread; at once where it has.
/// What `memory` drops does not call the host.
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

/// Does `job` on that thread, when everything has been done that was to be done before. It takes
/// little time, and does not call the host. `Err`: there is nothing, and the caller does it.
pub fn after<J: FnOnce() + Send + 'static>(job: J) -> Result<(), J> {
    let Some(mut state) = state() else {
        return Err(job);
    };
    if state.jobs.is_empty() && state.doing.is_none() {
        return Err(job);
    }
    let number = state.take_number();
    state.jobs.push_back((number, Box::new(job)));
    state.ensure_thread();
    Ok(())
}

/// Waits until everything is back with the driver that has been given up so far, for `patience` at
/// most. Not for an I/O thread. Returns whether it is.
pub fn wait(patience: Duration) -> bool {
    let Some(mut state) = state() else {
        return true;
    };
    if state.thread == Some(std::thread::current().id()) {
        // What is being dropped there is what would be waited for.
        return false;
    }
    let deadline = Instant::now() + patience;
    // Twice: what waited for an event goes to the driver only now.
    for _ in 0..2 {
        let last = state.next;
        while state.is_before(last) {
            state.ensure_thread();
            if DONE.wait_until(&mut state, deadline).timed_out() {
                return !state.is_before(last);
            }
        }
    }
    true
}

impl GiveBackQueue {
    fn take_number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Whether something with a number below `number` is still to be done.
    fn is_before(&self, number: u64) -> bool {
        let jobs = self.jobs.front().map(|(number, _)| *number);
        let kept = self.kept.iter().map(|kept| kept.number);
        let mut all = jobs.into_iter().chain(self.doing).chain(kept);
        all.any(|open| open < number)
    }

    /// Wakes the thread, or starts one. Where none is to be had, the next call tries again.
    fn ensure_thread(&mut self) {
        if self.thread.is_some() {
            GIVEN.notify_one();
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

/// The thread.
fn work() {
    let mut pause = SOONEST;
    let mut state = STATE.lock();
    loop {
        if let Some((number, job)) = state.jobs.pop_front() {
            state.doing = Some(number);
            MutexGuard::unlocked(&mut state, job);
            state.doing = None;
            DONE.notify_all();
            continue;
        }
        if !state.kept.is_empty() {
            let mut kept = std::mem::take(&mut state.kept);
            let before = kept.len();
            state.doing = kept.iter().map(|kept| kept.number).min();
            MutexGuard::unlocked(&mut state, || kept.retain_mut(|kept| !kept.is_over()));
            state.doing = None;
            if kept.len() < before {
                pause = SOONEST;
                DONE.notify_all();
            }
            state.kept.append(&mut kept);
        }
        if !state.jobs.is_empty() {
            continue;
        }
        let idle = state.kept.is_empty();
        let nap = if idle { LINGER } else { pause };
        let given = !GIVEN.wait_for(&mut state, nap).timed_out();
        pause = if given {
            SOONEST
        } else {
            (pause * 2).min(LATEST)
        };
        if idle && !given && state.jobs.is_empty() && state.kept.is_empty() {
            state.thread = None;
            return;
        }
    }
}
