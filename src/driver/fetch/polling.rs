//! A consumer that sleeps in an event loop of its own, on one descriptor for the whole stream.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use smallvec::SmallVec;

use super::{Fetch, NextBatch};
use crate::arrow::decode::DecodedBatch;
use crate::cancel::Cancel;
use crate::driver::clock;
use crate::error::{Error, Result};
use crate::fork::Generation;
use crate::proto::Timestamp;
use crate::transport::Watched;

/// A descriptor that is readable when a stream may have something for its consumer.
///
/// It is an epoll instance over the descriptors of the stream's connections, the consumer's token
/// and a timer. Behind the end of the stream it stays readable.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
    timer: OwnedFd,
    /// When the timer goes off.
    at: Option<Timestamp>,
    watched: SmallVec<[Interest; 4]>,
    /// Keeps the token's descriptor open.
    _cancel: Option<Cancel>,
    generation: Generation,
}

/// A descriptor of a connection, and what it is watched for.
#[derive(Debug, Clone)]
struct Interest {
    fd: Arc<dyn Watched>,
    flags: EventFlags,
}

impl Poller {
    /// A descriptor that is readable at once: nothing is watched yet.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the process has no file descriptor left.
    pub fn new(cancel: Option<&Cancel>) -> Result<Self> {
        let failed = |errno| Error::os("cannot make a descriptor for an event loop", errno);
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(failed)?;
        let data = EventData::new_u64(0);
        epoll::add(&epoll, &timer, data, EventFlags::IN).map_err(failed)?;
        if let Some(cancel) = cancel {
            epoll::add(&epoll, cancel.fd(), data, EventFlags::IN).map_err(failed)?;
        }
        let mut poller = Self {
            epoll,
            timer,
            at: None,
            watched: SmallVec::new(),
            _cancel: cancel.cloned(),
            generation: Generation::now(),
        };
        poller.set_timer(Some(clock::now()));
        Ok(poller)
    }

    /// The descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// The stream is over: the descriptor stays readable, and no connection is watched.
    pub fn end(&mut self) {
        // A forked child shares the epoll instance and the timer with its parent.
        if self.generation.is_same_process() {
            self.watch(SmallVec::new());
            self.set_timer(Some(clock::now()));
        }
    }

    /// Watches these descriptors alone.
    fn watch(&mut self, wanted: SmallVec<[Interest; 4]>) {
        for old in &self.watched {
            if !wanted.iter().any(|new| Arc::ptr_eq(&new.fd, &old.fd)) {
                let _ = epoll::delete(&self.epoll, &old.fd);
            }
        }
        for new in &wanted {
            let data = EventData::new_u64(0);
            let old = self
                .watched
                .iter()
                .find(|old| Arc::ptr_eq(&new.fd, &old.fd));
            let outcome = match old {
                Some(old) if old.flags == new.flags => continue,
                Some(_) => epoll::modify(&self.epoll, &new.fd, data, new.flags),
                None => epoll::add(&self.epoll, &new.fd, data, new.flags),
            };
            if let Err(errno) = outcome {
                tracing::error!("cannot watch a connection for an event loop: {errno}");
            }
        }
        self.watched = wanted;
    }

    fn set_timer(&mut self, at: Option<Timestamp>) {
        // A timer that has gone off is readable until it is set anew.
        if at == self.at && at.is_none_or(|at| at > clock::now()) {
            return;
        }
        self.at = at;
        // Zero would be no timer at all.
        let left = at.map(|at| clock::until(at).max(Duration::from_nanos(1)));
        let alarm = Itimerspec {
            it_interval: Timespec::default(),
            it_value: (left.and_then(|left| left.try_into().ok())).unwrap_or_default(),
        };
        if let Err(errno) = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &alarm) {
            tracing::error!("a timer cannot be set: {errno}");
        }
    }
}

impl Fetch {
    /// [`next`](Self::next) without a wait. Where nothing has come, `poller` tells when to look
    /// again.
    ///
    /// # Errors
    ///
    /// As [`next`](Self::next).
    pub fn try_next(
        &mut self,
        cancel: Option<&Cancel>,
        poller: Option<&mut Poller>,
    ) -> Result<NextBatch<DecodedBatch>> {
        self.begin_next(cancel)?;
        self.inbound.receiver.handle_timeout(clock::now());
        let mut found = self.find_next(cancel)?;
        if matches!(found, NextBatch::NotYet) && self.has_peer_died() {
            // What it left is read, and then its end.
            self.peer_has_died = true;
            found = self.find_next(cancel)?;
        }
        if !matches!(found, NextBatch::NotYet) {
            return Ok(found);
        }
        // Rule E5: the server is told of everything taken, or both would wait.
        self.tell_credit();
        if let Some(poller) = poller {
            self.arm(poller);
        } else {
            self.doze();
        }
        Ok(NextBatch::NotYet)
    }

    fn has_peer_died(&self) -> bool {
        let mut links = self.inbound.links.iter();
        links.any(|link| link.readiness().peer_has_died())
    }

    /// Has the poller tell of what the stream waits for.
    fn arm(&mut self, poller: &mut Poller) {
        let Self {
            connections,
            inbound,
            ..
        } = self;
        let mut wanted = SmallVec::new();
        let mut at = inbound.receiver.poll_timeout();
        for (side, connection) in connections.iter_mut() {
            let wants = connection.step(|end, _| inbound.wants(side, end));
            at = at.into_iter().chain(wants.at).min();
            if wants.soon {
                at = Some(clock::now());
            }
            let readiness = connection.link().readiness();
            let mut flags = EventFlags::empty();
            flags.set(
                EventFlags::IN,
                wants.read || (wants.write && !readiness.socket),
            );
            flags.set(EventFlags::OUT, wants.write && readiness.socket);
            // Epoll tells of a hang-up whatever is watched for, also where it may not be read.
            if !flags.is_empty() {
                let fd = Arc::clone(&readiness.fd);
                wanted.push(Interest { fd, flags });
                if let Some(death) = readiness.peer_death.clone() {
                    let flags = EventFlags::IN;
                    wanted.push(Interest { fd: death, flags });
                }
            }
        }
        poller.watch(wanted);
        poller.set_timer(at);
    }
}
