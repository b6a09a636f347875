//! What a consumer does while nothing has come: it looks for a while, where it is to spin, and then it
//! sleeps.

use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use smallvec::SmallVec;

use super::{Fetch, side_index};
use crate::cancel::Cancel;
use crate::driver::brief::Seen;
use crate::driver::clock;
use crate::error::{Error, Result};
use crate::proto::{Side, Timestamp};

/// How long a spinning consumer looks before it tells the server of less than half a window: the
/// server has credit then, but where a message is larger than what is left of it.
const CREDIT_PAUSE: Duration = Duration::from_millis(1);
/// How often it asks whether the server's process lives.
const DEATH_PAUSE: Duration = Duration::from_millis(1);
/// How long it looks before others may have its core: the longer time where nobody wanted it, since
/// asking the system cools the caches for what is waited for.
const SHORTEST_YIELD_PAUSE: Duration = Duration::from_micros(2);
const LONGEST_YIELD_PAUSE: Duration = Duration::from_micros(16);
/// A yield that takes longer gave the core to somebody.
const NOBODY_TOOK_IT: Duration = Duration::from_micros(1);

/// Looks before the clock is read and the processor pauses, each of which was a fifth of the loop: what comes meanwhile
/// waits.
const LOOKS_AT_ONCE: u32 = 8;

impl Fetch {
    /// Spins for a while. Returns whether something came, or the token was triggered.
    pub(super) fn look_on(&mut self, cancel: Option<&Cancel>) -> bool {
        if self.spin.is_zero() {
            return false;
        }
        self.links().iter().for_each(|link| link.wake());
        if self.step() {
            return true;
        }
        let start = clock::now();
        let (mut yielded, mut told, mut asked) = (start, false, start);
        let mut yield_pause = SHORTEST_YIELD_PAUSE;
        loop {
            for _ in 0..LOOKS_AT_ONCE {
                if self.step() {
                    return true;
                }
            }
            if cancel.is_some_and(Cancel::is_cancelled) {
                return true;
            }
            let now = clock::now();
            let looked = now.saturating_since(start);
            if looked >= self.spin {
                return false;
            }
            if !told && looked >= CREDIT_PAUSE {
                told = true;
                self.tell_credit();
            }
            if now.saturating_since(asked) >= DEATH_PAUSE {
                // Who is awake is told through a ring alone, in which nobody says that he has ended, or hung up.
                let links = self.links();
                self.suspected = links.iter().any(|link| link.readiness().peer_has_died());
                for link in &links {
                    link.doze();
                }
                let came = self.step();
                links.iter().for_each(|link| link.wake());
                if came {
                    return true;
                }
                asked = now;
                self.receiver.handle_timeout(now);
                if self.receiver.error().is_some() {
                    return true;
                }
            }
            // Another hardware thread of the same core may be the one who sends.
            std::hint::spin_loop();
            if now.saturating_since(yielded) >= yield_pause {
                // Whoever is to send it may need this core: there may be more who look than cores.
                std::thread::yield_now();
                yielded = clock::now();
                yield_pause = match yielded.saturating_since(now) < NOBODY_TOOK_IT {
                    true => (yield_pause * 2).min(LONGEST_YIELD_PAUSE),
                    false => SHORTEST_YIELD_PAUSE,
                };
            }
        }
    }

    /// Looks for a moment, where it is not to spin; as long as parts of a body move that do so only in turns of the connection
    /// (UCX's, from this machine). From a socket as much comes at once as was written meanwhile. Returns whether something came.
    pub(super) fn look_briefly(&mut self) -> bool {
        if !self.spin.is_zero() {
            return false;
        }
        let mut brief = std::mem::take(&mut self.brief);
        let by_turns = !self.links().iter().all(|link| link.readiness().socket);
        let mut moved = self.moved();
        let found = brief.look(|| {
            if self.step() {
                return Seen::Found;
            }
            let before = std::mem::replace(&mut moved, self.moved());
            if by_turns && moved != before {
                Seen::Moving
            } else {
                Seen::Nothing
            }
        });
        self.brief = brief;
        found
    }

    /// Tells the server of everything that was taken.
    pub(super) fn tell_credit(&mut self) {
        self.receiver.flush_credit();
        self.pump();
    }

    /// Sleeps until one of the connections has something, or time has passed.
    pub(super) fn sleep(&mut self, cancel: Option<&Cancel>) -> Result<()> {
        let mut fds = SmallVec::<[PollFd<'_>; 5]>::new();
        let mut deaths = SmallVec::<[usize; 2]>::new();
        let sides = [(Side::Metadata, &self.metadata), (Side::Data, &self.data)];
        let count = if self.has_one_link() { 1 } else { 2 };
        for (side, link) in sides.into_iter().take(count) {
            // What may not be read now must not wake this thread either, or it would spin.
            let reads = self.may_read(side) && !link.is_waiting();
            let writes = link.is_writing();
            if self.gone[side_index(side)] || !(reads || writes) {
                continue;
            }
            if link.doze() && reads {
                return Ok(());
            }
            let readiness = link.readiness();
            let mut events = PollFlags::empty();
            events.set(PollFlags::IN, reads || !readiness.socket);
            events.set(PollFlags::OUT, writes && readiness.socket);
            fds.push(PollFd::new(&readiness.fd, events));
            if let Some(death) = &readiness.peer_death {
                deaths.push(fds.len());
                fds.push(PollFd::new(death, PollFlags::IN));
            }
        }
        if let Some(cancel) = cancel {
            fds.push(PollFd::from_borrowed_fd(cancel.fd(), PollFlags::IN));
        }
        let timeout = self.receiver.poll_timeout().map(timespec_until);
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(Error::os("cannot wait for the server", errno)),
        }
        let ended = |at: &usize| fds.get(*at).is_some_and(|fd| !fd.revents().is_empty());
        self.suspected = deaths.iter().any(ended);
        Ok(())
    }
}

fn timespec_until(deadline: Timestamp) -> Timespec {
    let left = clock::until(deadline);
    Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    }
}
