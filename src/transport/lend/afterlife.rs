//! What must outlive the connection that lent it: a peer that was cut off may still read memory of a
//! GPU, and the driver can take it away from nobody. So it is kept until the peer's process has ended,
//! or until an event of our own has happened.
//!
//! One thread for the process sleeps on the descriptors of such peers. It is there only while
//! something is kept.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::device::cuda::Event;

/// What is waited for.
enum Until {
    /// The process behind this descriptor has ended, or, where there is one, this time has come.
    PeerEnds(Arc<OwnedFd>, Option<Instant>),
    /// The event has happened. A device that says nothing but errors does nothing more.
    Happened { event: Event, errors: u32 },
}

struct Item {
    until: Until,
    _thing: Box<dyn Send>,
}

struct State {
    items: Vec<Item>,
    /// Wakes the thread; `None`: there is none.
    wake: Option<Arc<OwnedFd>>,
}

static STATE: Mutex<State> = Mutex::new(State {
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
    keep(Item {
        until: Until::PeerEnds(Arc::clone(peer), None),
        _thing: thing,
    });
}

/// The same of what the peer is done with, as far as is known: a process that goes on for a while
/// was not about to end, and has closed it before the connection.
pub fn keep_for_a_while(peer: &Arc<OwnedFd>, thing: Box<dyn Send>) {
    keep(Item {
        until: Until::PeerEnds(Arc::clone(peer), Some(Instant::now() + A_WHILE)),
        _thing: thing,
    });
}

/// Drops `thing` once `event` has happened, on a thread of its own.
pub fn keep_until_happened(event: Event, thing: Box<dyn Send>) {
    keep(Item {
        until: Until::Happened { event, errors: 0 },
        _thing: thing,
    });
}

/// Whether something is kept.
pub fn is_keeping() -> bool {
    !STATE.lock().items.is_empty()
}

fn keep(item: Item) {
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
        .name("dipc-afterlife".into())
        .spawn(move || run(&ours));
    match started {
        Ok(_) => state.wake = Some(wake),
        Err(error) => tracing::warn!("memory that a lost peer may read is kept for ever: {error}"),
    }
}

fn notify(wake: &OwnedFd) {
    let _ = rustix::io::write(wake, &1_u64.to_ne_bytes());
}

fn run(wake: &OwnedFd) {
    let mut pause = SOONEST;
    loop {
        let (peers, events, deadline) = {
            let mut state = STATE.lock();
            if state.items.is_empty() {
                state.wake = None;
                return;
            }
            let peer = |item: &Item| match &item.until {
                Until::PeerEnds(peer, _) => Some(Arc::clone(peer)),
                Until::Happened { .. } => None,
            };
            let peers: Vec<_> = state.items.iter().filter_map(peer).collect();
            let events = peers.len() < state.items.len();
            let deadlines = state.items.iter().filter_map(|item| match &item.until {
                Until::PeerEnds(_, deadline) => *deadline,
                Until::Happened { .. } => None,
            });
            (peers, events, deadlines.min())
        };
        let mut fds = vec![PollFd::new(wake, PollFlags::IN)];
        fds.extend(peers.iter().map(|peer| PollFd::new(peer, PollFlags::IN)));
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let timeout = events.then_some(pause).into_iter().chain(left).min();
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let woken = poll(&mut fds, timeout.as_ref());
        drop(fds);
        pause = match woken {
            // Nothing but time has passed.
            Ok(0) => (pause * 2).min(LATEST),
            _ => SOONEST,
        };
        let _ = rustix::io::read(wake, &mut [0; 8]);
        let over: Vec<Item> = {
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

    use rustix::process::{Pid, PidfdFlags, pidfd_open};

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
}
