//! Values that must outlive the connection that used them.
//!
//! A lost peer may still read GPU memory, and the driver cannot revoke the peer's mapping. So this
//! module keeps the memory until the peer's process has ended, or until an event of this process
//! has happened. It also keeps UCX connections, whose close waits for the peer, and the charges of
//! memory that only the end of a process frees.
//!
//! One thread checks all kept values in turn. It runs only while something is kept. The pause
//! between its rounds grows while no value ends.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::device::cuda::Event;
use crate::fork::PerProcess;

/// A value that ends later.
pub trait Lingering: Send {
    /// Makes progress. Returns true at the end; the same thread then drops the value.
    fn turn(&mut self) -> bool;

    /// True if the value ends soon. [`wait`] waits for such values only.
    fn is_prompt(&self) -> bool {
        false
    }
}

#[derive(Default)]
struct Keeper {
    state: Mutex<KeeperState>,
    /// Signals a new value.
    added: Condvar,
    /// Signals the end of a value.
    ended: Condvar,
}

#[derive(Default)]
struct KeeperState {
    /// Values that the thread has not taken yet.
    new: Vec<Box<dyn Lingering>>,
    /// The number of kept values, and of the prompt values among them.
    count: usize,
    prompt: usize,
    /// True while the thread runs.
    runs: bool,
}

static KEEPER: PerProcess<Keeper> = PerProcess::new(Keeper::default);

/// The pauses between two rounds: the first, and the longest with and without prompt values.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PROMPT_PAUSE: Duration = Duration::from_millis(4);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// The longest time between the end of a process's sockets and the end of the process.
const GRACE_PERIOD: Duration = Duration::from_secs(5);
/// After this many errors of its queries, an event counts as happened.
const MOST_ERRORS: u32 = 3;

/// Drops `value` on another thread once the process of `peer` has ended.
pub fn keep_until_end(peer: &Arc<OwnedFd>, value: Box<dyn Send>) {
    keep(Box::new(UntilPeerEnds {
        peer: Arc::clone(peer),
        deadline: None,
        _value: value,
    }));
}

/// The same for a value that the peer probably no longer uses, but only for a limited time. A
/// process that lives on after this time was not about to end, so it closed the value before the
/// connection.
pub fn keep_for_a_while(peer: &Arc<OwnedFd>, value: Box<dyn Send>) {
    keep(Box::new(UntilPeerEnds {
        peer: Arc::clone(peer),
        deadline: Some(Instant::now() + GRACE_PERIOD),
        _value: value,
    }));
}

/// Drops `value` on another thread once `event` has happened.
pub fn keep_until_happened(event: Event, value: Box<dyn Send>) {
    keep(Box::new(UntilHappened {
        event,
        errors: 0,
        _value: value,
    }));
}

/// Calls `item.turn()` on another thread until the item has ended.
pub fn keep(item: Box<dyn Lingering>) {
    let keeper = KEEPER.get();
    let mut state = keeper.state.lock();
    state.count += 1;
    state.prompt += usize::from(item.is_prompt());
    state.new.push(item);
    keeper.added.notify_one();
    if state.runs {
        return;
    }
    let started = std::thread::Builder::new()
        .name("dipc-keeper".into())
        .spawn(|| keeper.run());
    match started {
        Ok(_) => state.runs = true,
        // The next call tries again.
        Err(error) => tracing::warn!("resources of ended connections are kept for now: {error}"),
    }
}

/// True if something is kept.
pub fn is_keeping() -> bool {
    KEEPER.get().state.lock().count > 0
}

/// Waits until the prompt values have ended, at most for `patience`.
pub fn wait(patience: Duration) {
    let deadline = Instant::now() + patience;
    let keeper = KEEPER.get();
    let mut state = keeper.state.lock();
    while state.prompt > 0 && !keeper.ended.wait_until(&mut state, deadline).timed_out() {}
}

impl Keeper {
    fn run(&self) {
        let (mut items, mut pause) = (Vec::new(), FIRST_PAUSE);
        let mut state = self.state.lock();
        loop {
            if !state.new.is_empty() {
                items.append(&mut state.new);
                pause = FIRST_PAUSE;
            }
            let before = items.len();
            // Without the lock: drops may be slow, and may lock.
            MutexGuard::unlocked(&mut state, || items.retain_mut(|item| !item.turn()));
            state.count -= before - items.len();
            let all = items.iter().chain(&state.new);
            state.prompt = all.filter(|item| item.is_prompt()).count();
            self.ended.notify_all();
            if state.count == 0 {
                state.runs = false;
                return;
            }
            if state.new.is_empty() {
                let latest = match state.prompt {
                    0 => LONGEST_PAUSE,
                    _ => LONGEST_PROMPT_PAUSE,
                };
                self.added.wait_for(&mut state, pause.min(latest));
                pause = match items.len() < before {
                    true => FIRST_PAUSE,
                    false => (pause * 2).min(LONGEST_PAUSE),
                };
            }
        }
    }
}

/// Ends with the process of `peer`, or at the optional deadline.
struct UntilPeerEnds {
    peer: Arc<OwnedFd>,
    deadline: Option<Instant>,
    _value: Box<dyn Send>,
}

impl Lingering for UntilPeerEnds {
    fn turn(&mut self) -> bool {
        let mut polled = [PollFd::new(&self.peer, PollFlags::IN)];
        matches!(poll(&mut polled, Some(&Timespec::default())), Ok(1..))
            || (self.deadline).is_some_and(|deadline| Instant::now() >= deadline)
    }
}

/// Ends with an event. A device that answers with errors only does no more work.
struct UntilHappened {
    event: Event,
    errors: u32,
    _value: Box<dyn Send>,
}

impl Lingering for UntilHappened {
    fn turn(&mut self) -> bool {
        self.event.is_ready().unwrap_or_else(|_| {
            self.errors += 1;
            self.errors >= MOST_ERRORS
        })
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::sync::mpsc;

    use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, getrlimit, pidfd_open, setrlimit};
    use rustix::time::{ClockId, clock_gettime};

    use super::*;

    struct DropSignal(mpsc::Sender<u32>, u32);

    impl Drop for DropSignal {
        fn drop(&mut self) {
            let _ = self.0.send(self.1);
        }
    }

    /// Each kept value goes with the end of its own peer and not before.
    #[test]
    fn what_is_kept_goes_with_its_process() {
        let (sender, drops) = mpsc::channel();
        let mut children: Vec<_> = (0..3)
            .map(|number| {
                let child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
                let pid = Pid::from_child(&child);
                let fd = Arc::new(pidfd_open(pid, PidfdFlags::empty()).unwrap());
                keep_until_end(&fd, Box::new(DropSignal(sender.clone(), number)));
                child
            })
            .collect();
        assert!(is_keeping());
        for number in [1, 2, 0] {
            assert!(drops.try_recv().is_err());
            let child = &mut children[number];
            child.kill().unwrap();
            assert_eq!(drops.recv().unwrap() as usize, number);
            child.wait().unwrap();
        }
    }
    /// Set in the process that runs the case below.
    const CASE: &str = "DIPC_TEST_OUTLIVE_CASE";

    /// The thread sleeps even if more peers are kept than a process may have descriptors. The test
    /// runs in a process of its own, because it lowers a limit.
    #[test]
    fn the_thread_sleeps_whatever_is_kept() {
        for case in ["one peer", "many peers"] {
            let output = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "device::outlive::tests::past_the_limit"])
                .args(["--ignored", "--nocapture"])
                .env(CASE, case)
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{case}: {output:?}");
            assert!(text.contains("1 passed"), "{case}: {output:?}");
        }
    }

    #[test]
    #[ignore = "lowers the limit of its process: run by another test, in a process of its own"]
    fn past_the_limit() {
        let Ok(case) = std::env::var(CASE) else {
            return;
        };
        const LIMIT: u64 = 64;
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = Pid::from_child(&child);
        let open = || Arc::new(pidfd_open(pid, PidfdFlags::empty()).unwrap());
        let one = open();
        let peers: Vec<_> = (0..2 * LIMIT)
            .map(|_| {
                if case == "one peer" {
                    Arc::clone(&one)
                } else {
                    open()
                }
            })
            .collect();
        let (sender, drops) = mpsc::channel();
        let keep =
            |number: u32, peer| keep_until_end(peer, Box::new(DropSignal(sender.clone(), number)));
        // The thread starts before the limit is lowered.
        keep(0, &one);
        let most = getrlimit(Resource::Nofile).maximum;
        let lowered = Rlimit {
            current: Some(LIMIT),
            maximum: most,
        };
        setrlimit(Resource::Nofile, lowered).unwrap();
        for (peer, number) in peers.iter().zip(1..) {
            keep(number, peer);
        }
        // A busy thread would use about as much processor time as this thread.
        let thread_time = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
        let process_time = || Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap();
        let (thread_start, process_start) = (thread_time(), process_time());
        while thread_time() - thread_start < Duration::from_millis(200) {}
        let (thread_used, process_used) =
            (thread_time() - thread_start, process_time() - process_start);
        assert!(
            process_used < thread_used * 5 / 4,
            "{process_used:?} for {thread_used:?} of this thread"
        );
        assert!(drops.try_recv().is_err());
        child.kill().unwrap();
        for _ in 0..=peers.len() {
            drops.recv().unwrap();
        }
        child.wait().unwrap();
    }
}
