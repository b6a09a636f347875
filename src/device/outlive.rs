//! What must outlive the connection that used it.
//!
//! A peer that was cut off may still read memory of a GPU, and the driver can take it away from
//! nobody: so it is kept until the peer's process has ended, or until an event of our own has
//! happened. UCX waits for peers while it closes a connection. What memory counts against is kept
//! here as well, where nothing but the end of a process says that it is free.
//!
//! One thread for the process looks at all of it by turns. It is there only while something is
//! kept, and looks the less often the longer nothing ends.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::device::cuda::Event;
use crate::fork::PerProcess;

/// Something that ends later.
pub trait Lingering: Send {
    /// Goes on. Returns whether it has ended; it is dropped then, on the same thread.
    fn turn(&mut self) -> bool;

    /// Whether it ends soon, so that [`wait`] waits for it.
    fn is_prompt(&self) -> bool {
        false
    }
}

#[derive(Default)]
struct Keeper {
    state: Mutex<KeeperState>,
    /// Something was given to the thread.
    given: Condvar,
    /// Something has ended.
    ended: Condvar,
}

#[derive(Default)]
struct KeeperState {
    /// What the thread has not taken yet.
    new: Vec<Box<dyn Lingering>>,
    /// All that is kept, and the prompt ones among them.
    count: usize,
    prompt: usize,
    /// There is a thread.
    runs: bool,
}

static KEEPER: PerProcess<Keeper> = PerProcess::new(Keeper::default);

/// The pauses between two looks: the first, and the longest with and without prompt ones.
const SOONEST: Duration = Duration::from_millis(1);
const LATEST_FOR_PROMPT: Duration = Duration::from_millis(4);
const LATEST: Duration = Duration::from_millis(100);
/// How long a process may take to end after its sockets have.
const A_WHILE: Duration = Duration::from_secs(5);
/// Errors in answer to the question whether an event has happened, after which it counts as such.
const MOST_ERRORS: u32 = 3;

/// Drops `thing` once the process behind `peer` has ended, on a thread of its own.
pub fn keep_until_end(peer: &Arc<OwnedFd>, thing: Box<dyn Send>) {
    keep(Box::new(UntilPeerEnds {
        peer: Arc::clone(peer),
        deadline: None,
        _thing: thing,
    }));
}

/// The same of what the peer is done with, as far as is known: a process that goes on for a while
/// was not about to end, and has closed it before the connection.
pub fn keep_for_a_while(peer: &Arc<OwnedFd>, thing: Box<dyn Send>) {
    keep(Box::new(UntilPeerEnds {
        peer: Arc::clone(peer),
        deadline: Some(Instant::now() + A_WHILE),
        _thing: thing,
    }));
}

/// Drops `thing` once `event` has happened, on a thread of its own.
pub fn keep_until_happened(event: Event, thing: Box<dyn Send>) {
    keep(Box::new(UntilHappened {
        event,
        errors: 0,
        _thing: thing,
    }));
}

/// Turns `item` on a thread of its own until it has ended.
pub fn keep(item: Box<dyn Lingering>) {
    let keeper = KEEPER.get();
    let mut state = keeper.state.lock();
    state.count += 1;
    state.prompt += usize::from(item.is_prompt());
    state.new.push(item);
    keeper.given.notify_one();
    if state.runs {
        return;
    }
    let started = std::thread::Builder::new()
        .name("dipc-keeper".into())
        .spawn(|| keeper.run());
    match started {
        Ok(_) => state.runs = true,
        // The next call tries again.
        Err(error) => tracing::warn!("what ended connections used is kept for now: {error}"),
    }
}

/// Whether something is kept.
pub fn is_keeping() -> bool {
    KEEPER.get().state.lock().count > 0
}

/// Waits until what is prompt has ended, and no longer than `patience`.
pub fn wait(patience: Duration) {
    let deadline = Instant::now() + patience;
    let keeper = KEEPER.get();
    let mut state = keeper.state.lock();
    while state.prompt > 0 && !keeper.ended.wait_until(&mut state, deadline).timed_out() {}
}

impl Keeper {
    fn run(&self) {
        let (mut items, mut pause) = (Vec::new(), SOONEST);
        let mut state = self.state.lock();
        loop {
            if !state.new.is_empty() {
                items.append(&mut state.new);
                pause = SOONEST;
            }
            let before = items.len();
            // What drops takes its time, and locks.
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
                    0 => LATEST,
                    _ => LATEST_FOR_PROMPT,
                };
                self.given.wait_for(&mut state, pause.min(latest));
                pause = match items.len() < before {
                    true => SOONEST,
                    false => (pause * 2).min(LATEST),
                };
            }
        }
    }
}

/// Kept until the process behind a descriptor has ended or, where there is one, a time has come.
struct UntilPeerEnds {
    peer: Arc<OwnedFd>,
    deadline: Option<Instant>,
    _thing: Box<dyn Send>,
}

impl Lingering for UntilPeerEnds {
    fn turn(&mut self) -> bool {
        let mut polled = [PollFd::new(&self.peer, PollFlags::IN)];
        matches!(poll(&mut polled, Some(&Timespec::default())), Ok(1..))
            || (self.deadline).is_some_and(|deadline| Instant::now() >= deadline)
    }
}

/// Kept until an event has happened. A device that says nothing but errors does nothing more.
struct UntilHappened {
    event: Event,
    errors: u32,
    _thing: Box<dyn Send>,
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

    struct Told(mpsc::Sender<u32>, u32);

    impl Drop for Told {
        fn drop(&mut self) {
            let _ = self.0.send(self.1);
        }
    }

    /// "Kept until the peer's process has ended": what is kept for one peer goes with it, and not
    /// before, whatever becomes of the others.
    #[test]
    fn what_is_kept_goes_with_its_process() {
        let (sender, told) = mpsc::channel();
        let mut children: Vec<_> = (0..3)
            .map(|number| {
                let child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
                let pid = Pid::from_child(&child);
                let fd = Arc::new(pidfd_open(pid, PidfdFlags::empty()).unwrap());
                keep_until_end(&fd, Box::new(Told(sender.clone(), number)));
                child
            })
            .collect();
        assert!(is_keeping());
        for number in [1, 2, 0] {
            assert!(told.try_recv().is_err());
            let child = &mut children[number];
            child.kill().unwrap();
            assert_eq!(told.recv().unwrap() as usize, number);
            child.wait().unwrap();
        }
    }
    /// Who says that a process runs the case below.
    const CASE: &str = "DIPC_TEST_OUTLIVE_CASE";

    /// "One thread for the process sleeps": with more kept than a process may have descriptors,
    /// too. In a process of its own, whose limit it lowers.
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
        let (sender, told) = mpsc::channel();
        let keep = |number: u32, peer| keep_until_end(peer, Box::new(Told(sender.clone(), number)));
        // The thread has a descriptor of its own.
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
        // A thread that does not sleep takes about as much of the processors as this one.
        let ours = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
        let all = || Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap();
        let (ours_before, all_before) = (ours(), all());
        while ours() - ours_before < Duration::from_millis(200) {}
        let (of_us, of_all) = (ours() - ours_before, all() - all_before);
        assert!(of_all < of_us * 5 / 4, "{of_all:?} for {of_us:?} of ours");
        assert!(told.try_recv().is_err());
        child.kill().unwrap();
        for _ in 0..=peers.len() {
            told.recv().unwrap();
        }
        child.wait().unwrap();
    }
}
