//! What must outlive the connection that lent it: a peer that was cut off may still read memory of
//! a GPU, and the driver can take it away from nobody. So it is kept until the peer's process has
//! ended, or until an event of our own has happened. What memory counts against is kept here as
//! well, where nothing but the end of a process says that it is free.
//!
//! One thread for the process sleeps on the descriptors of such peers. It is there only while
//! something is kept.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::device::cuda::Event;

/// What is waited for.
enum Until {
    /// The process behind this descriptor has ended, or, where there is one, this time has come.
    PeerEnds(Arc<OwnedFd>, Option<Instant>),
    /// The event has happened. A device that says nothing but errors does nothing more.
    Happened { event: Event, errors: u32 },
}

struct KeptThing {
    until: Until,
    _thing: Box<dyn Send>,
}

struct KeptThings {
    items: Vec<KeptThing>,
    /// Wakes the thread; `None`: there is none.
    wake: Option<Arc<OwnedFd>>,
}

static STATE: Mutex<KeptThings> = Mutex::new(KeptThings {
    items: Vec::new(),
    wake: None,
});

/// Events are asked for after so long, and then less and less often.
const SOONEST: Duration = Duration::from_millis(1);
const LATEST: Duration = Duration::from_millis(50);
/// How long a process may take to end after its sockets have.
const A_WHILE: Duration = Duration::from_secs(5);
/// Errors in answer to the question whether an event has happened, after which it counts as such.
const MOST_ERRORS: u32 = 3;

/// Drops `thing` once the process behind `peer` has ended, on a thread of its own.
pub fn keep_until_end(peer: &Arc<OwnedFd>, thing: Box<dyn Send>) {
    keep(KeptThing {
        until: Until::PeerEnds(Arc::clone(peer), None),
        _thing: thing,
    });
}

/// The same of what the peer is done with, as far as is known: a process that goes on for a while
/// was not about to end, and has closed it before the connection.
pub fn keep_for_a_while(peer: &Arc<OwnedFd>, thing: Box<dyn Send>) {
    keep(KeptThing {
        until: Until::PeerEnds(Arc::clone(peer), Some(Instant::now() + A_WHILE)),
        _thing: thing,
    });
}

/// Drops `thing` once `event` has happened, on a thread of its own.
pub fn keep_until_happened(event: Event, thing: Box<dyn Send>) {
    keep(KeptThing {
        until: Until::Happened { event, errors: 0 },
        _thing: thing,
    });
}

/// Whether something is kept.
pub fn is_keeping() -> bool {
    !STATE.lock().items.is_empty()
}

fn keep(item: KeptThing) {
    let mut state = STATE.lock();
    state.items.push(item);
    if let Some(wake) = &state.wake {
        notify(wake);
        return;
    }
    // Where no thread is to be had, what is kept stays until one is: the next call tries again.
    let Ok(wake) = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK) else {
        return;
    };
    let wake = Arc::new(wake);
    let ours = Arc::clone(&wake);
    let started = std::thread::Builder::new()
        .name("dipc-outlive".into())
        .spawn(move || run(&ours));
    match started {
        Ok(_) => state.wake = Some(wake),
        Err(error) => tracing::warn!("memory that a lost peer may read is kept for ever: {error}"),
    }
}

fn notify(wake: &OwnedFd) {
    let _ = rustix::io::write(wake, &1_u64.to_ne_bytes());
}

/// What the thread waits for next.
struct WaitSet {
    /// Each once: the system refuses to wait for more descriptors than a process may have.
    peers: Vec<Arc<OwnedFd>>,
    /// Whether there are events, which no descriptor tells of.
    events: bool,
    deadline: Option<Instant>,
}

impl WaitSet {
    fn of(items: &[KeptThing]) -> Self {
        let mut waiting = Self {
            peers: Vec::new(),
            events: false,
            deadline: None,
        };
        for item in items {
            match &item.until {
                Until::PeerEnds(peer, deadline) => {
                    waiting.peers.push(Arc::clone(peer));
                    let deadlines = waiting.deadline.into_iter().chain(*deadline);
                    waiting.deadline = deadlines.min();
                }
                Until::Happened { .. } => waiting.events = true,
            }
        }
        waiting.peers.sort_unstable_by_key(Arc::as_ptr);
        waiting.peers.dedup_by(|one, other| Arc::ptr_eq(one, other));
        waiting
    }

    /// Sleeps until `wake` or a peer says something, or it is time to look again: after `pause`
    /// where nothing would say so. Returns whether nothing but time has passed.
    fn sleep(&self, wake: &OwnedFd, pause: Duration) -> bool {
        let mut fds = vec![PollFd::new(wake, PollFlags::IN)];
        fds.extend(
            self.peers
                .iter()
                .map(|peer| PollFd::new(peer, PollFlags::IN)),
        );
        let left = self
            .deadline
            .map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let timeout = self.events.then_some(pause).into_iter().chain(left).min();
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        match poll(&mut fds, timeout.as_ref()) {
            Ok(0) => true,
            Ok(_) | Err(Errno::INTR) => false,
            // Of too many peers, or where memory is short.
            Err(_) => {
                std::thread::sleep(pause);
                true
            }
        }
    }
}

fn run(wake: &OwnedFd) {
    let mut pause = SOONEST;
    loop {
        let waiting = {
            let mut state = STATE.lock();
            if state.items.is_empty() {
                state.wake = None;
                return;
            }
            WaitSet::of(&state.items)
        };
        pause = if waiting.sleep(wake, pause) {
            (pause * 2).min(LATEST)
        } else {
            SOONEST
        };
        let _ = rustix::io::read(wake, &mut [0; 8]);
        let over: Vec<KeptThing> = {
            let mut state = STATE.lock();
            state
                .items
                .extract_if(.., |item| item.until.is_over())
                .collect()
        };
        // What drops takes its time, and locks.
        drop(over);
    }
}

impl Until {
    fn is_over(&mut self) -> bool {
        match self {
            Self::PeerEnds(peer, deadline) => {
                let mut polled = [PollFd::new(peer, PollFlags::IN)];
                matches!(poll(&mut polled, Some(&Timespec::default())), Ok(1..))
                    || deadline.is_some_and(|deadline| Instant::now() >= deadline)
            }
            Self::Happened { event, errors } => match event.is_ready() {
                Ok(ready) => ready,
                Err(_) => {
                    *errors += 1;
                    *errors >= MOST_ERRORS
                }
            },
        }
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
