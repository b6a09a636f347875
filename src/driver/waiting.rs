//! How the holder of a connection waits: it looks for a while, and then it sleeps.
//!
//! A sleep and a wake-up cost both ends tens of microseconds. A thread therefore looks first: for
//! as long as its host has asked ([`spin`]), or for a moment, if such looks have often found
//! something ([`Looks`]). Only then it sleeps ([`sleep`]).

use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use smallvec::SmallVec;

use crate::cancel::Cancel;
use crate::driver::bell::Bell;
use crate::driver::clock;
use crate::error::{Error, Result};
use crate::proto::Timestamp;
use crate::transport::ConnectionReadiness;

/// The longest look before a sleep: as long as the sleep and the wake-up that it may save. Also the
/// time between two looks at a body that a GPU still writes.
pub const LONGEST_LOOK: Duration = Duration::from_micros(50);
/// After so many looks in vain, one after the other, a thread looks only once in 2^4 sleeps.
const MOST_IN_VAIN: u32 = 4;
/// How often a spinning thread looks before it reads the clock and offers its processor to others.
const LOOKS_AT_ONCE: u32 = 32;
/// How long a holder may be in the host's code before the I/O thread stands in: the peer may
/// cancel, return memory that the host waits for, or die. A stand-in wakes a second thread. With
/// this time, a host that makes a batch each millisecond still has its connection to itself.
pub const HOST_PATIENCE: Duration = Duration::from_millis(10);
/// How often a thread that spins does its upkeep, and how long the I/O thread waits for the lock of
/// one connection.
pub const UPKEEP: Duration = Duration::from_millis(1);
/// When to try again if something cannot be done now and no event will announce that it can: a lock
/// is held, a queue is full, a thread cannot be woken, or a process has not ended although its
/// sockets have.
pub const RETRY: Duration = Duration::from_millis(10);

/// Why a connection is turned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// A descriptor was ready. If nothing is left to be read, the turn asks the system whether the
    /// peer's process has ended.
    Ready,
    /// A sleep ended, but not because the peer's process ended.
    Woken,
    /// A look, whatever the descriptors say. A full socket is left alone until its descriptor
    /// announces room, because one write then takes many bytes.
    Look,
}

/// When a connection is turned next, whatever the descriptors say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Again {
    /// Not before an event.
    #[default]
    OnEvent,
    /// At this time, or at an earlier event.
    At(Timestamp),
    /// The last turn stopped at its bounds, and there may be more to do.
    Now,
}

/// What an owner waits for after a turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wants {
    /// Something to read.
    pub read: bool,
    /// Room to write.
    pub write: bool,
    /// When to turn the connection again even if no descriptor announces anything.
    pub again: Again,
}

impl Wants {
    /// Whether to watch the descriptor of a connection for being readable, and for being writable.
    /// If the descriptor is not a `socket`, it becomes readable in both cases.
    pub fn events(self, socket: bool) -> (bool, bool) {
        let Self { read, write, .. } = self;
        (read || (write && !socket), write && socket)
    }
}

/// The looks of one thread before its sleeps. Looks in vain make the next ones rare, so that a
/// connection on which little happens costs nothing.
#[derive(Debug, Default)]
pub struct Looks {
    /// Looks in vain since the last successful one.
    in_vain: u32,
    /// How many sleeps come next without a look.
    skip: u32,
}

impl Looks {
    /// Calls `look` for a moment, or not at all. Returns whether a call found something.
    pub fn look(&mut self, mut look: impl FnMut() -> bool) -> bool {
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        let start = clock::now();
        loop {
            // The other end may need this processor.
            std::thread::yield_now();
            if look() {
                self.in_vain = 0;
                return true;
            }
            if clock::since(start) >= LONGEST_LOOK {
                break;
            }
        }
        self.in_vain = (self.in_vain + 1).min(MOST_IN_VAIN);
        self.skip = (1 << self.in_vain) - 1;
        false
    }
}

/// Calls `look` again and again for `time`. Once in a millisecond it reads the clock and does the
/// upkeep. Returns whether a call returned true, or the token was triggered.
pub fn spin(
    time: Duration,
    cancel: Option<&Cancel>,
    mut look: impl FnMut(Option<Timestamp>) -> bool,
) -> bool {
    let start = clock::now();
    let mut kept = start;
    loop {
        if (0..LOOKS_AT_ONCE).any(|_| look(None)) || cancel.is_some_and(Cancel::is_cancelled) {
            return true;
        }
        // The other end may need this processor.
        std::thread::yield_now();
        let now = clock::now();
        if now.saturating_since(start) >= time {
            return false;
        }
        if now.saturating_since(kept) >= UPKEEP {
            kept = now;
            if look(Some(now)) {
                return true;
            }
        }
    }
}

/// Sleeps until a connection has what its owner wants, the bell rings, the token is triggered, or
/// `deadline` has passed. May return earlier. Returns why to turn the connections next. Fails if
/// the system cannot wait.
pub fn sleep<'a>(
    connections: impl IntoIterator<Item = (&'a ConnectionReadiness, Wants)>,
    bell: Option<&Bell>,
    cancel: Option<&Cancel>,
    deadline: Option<Timestamp>,
) -> Result<Cause> {
    let mut fds = SmallVec::<[PollFd<'_>; 6]>::new();
    let mut deaths = SmallVec::<[usize; 2]>::new();
    let mut deadline = deadline;
    for (readiness, wants) in connections {
        match wants.again {
            Again::Now => return Ok(Cause::Woken),
            Again::At(at) => deadline = deadline.into_iter().chain([at]).min(),
            Again::OnEvent => {}
        }
        let (readable, writable) = wants.events(readiness.socket);
        // Messages that must not be read now must not end the sleep.
        if !readable && !writable {
            continue;
        }
        let mut events = PollFlags::empty();
        events.set(PollFlags::IN, readable);
        events.set(PollFlags::OUT, writable);
        fds.push(PollFd::new(&readiness.fd, events));
        if let Some(death) = &readiness.peer_death {
            deaths.push(fds.len());
            fds.push(PollFd::new(death, PollFlags::IN));
        }
    }
    if let Some(cancel) = cancel {
        fds.push(PollFd::from_borrowed_fd(cancel.fd()?, PollFlags::IN));
    }
    if let Some(bell) = bell {
        fds.push(PollFd::from_borrowed_fd(bell.fd()?, PollFlags::IN));
    }
    let left = deadline.map(|deadline| Timespec::try_from(clock::until(deadline)));
    match poll(&mut fds, left.and_then(Result::ok).as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(errno) => return Err(Error::os("cannot wait for the peer", errno)),
    }
    let is_ready = |fd: Option<&PollFd<'_>>| fd.is_some_and(|fd| !fd.revents().is_empty());
    if let Some(bell) = bell
        && is_ready(fds.last())
    {
        bell.silence();
    }
    Ok(match deaths.iter().any(|at| is_ready(fds.get(*at))) {
        true => Cause::Ready,
        false => Cause::Woken,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread that finds nothing looks seldom, and often again once that has changed.
    #[test]
    fn looks_in_vain_become_seldom() {
        let mut all = Looks::default();
        let looks = |all: &mut Looks, found: bool| {
            let mut looked = false;
            all.look(|| {
                looked = true;
                found
            });
            looked
        };
        let in_vain = (0..1024).filter(|_| looks(&mut all, false)).count();
        assert!((64..80).contains(&in_vain), "{in_vain} looks");
        while !looks(&mut all, true) {}
        assert!((0..100).all(|_| looks(&mut all, true)));
    }

    /// A bell that has rung ends one sleep, and a time that has passed each.
    #[test]
    fn a_bell_ends_one_sleep() {
        let bell = Bell::new().unwrap();
        bell.ring();
        let slept = sleep([], Some(&bell), None, None).unwrap();
        assert_eq!(slept, Cause::Woken, "there is no peer");
        let now = clock::now();
        sleep([], Some(&bell), None, Some(now)).unwrap();
    }

    /// The token, a look and the upkeep each end a spin.
    #[test]
    fn a_spin_ends_by_each_of_its_ends() {
        let hour = Duration::from_secs(3600);
        let cancel = Cancel::new().unwrap();
        cancel.cancel();
        assert!(spin(hour, Some(&cancel), |_| false));
        assert!(spin(hour, None, |_| true));
        assert!(spin(hour, None, |upkeep| upkeep.is_some()));
        assert!(!spin(Duration::ZERO, None, |_| false));
    }
}
