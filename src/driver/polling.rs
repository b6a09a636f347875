//! One descriptor for all that a stream waits for, for hosts that sleep in an event loop of their
//! own.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use smallvec::SmallVec;

use crate::driver::clock;
use crate::driver::turning::Wants;
use crate::error::{Error, Result};
use crate::fork::Generation;
use crate::proto::Timestamp;
use crate::transport::{Readiness, Watched};

/// A descriptor that is readable when a stream may have something for its host.
///
/// It is an epoll instance over the descriptors of the stream's connections, a timer, and more
/// descriptors that can wake the host. After the end of the stream it stays readable.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
    timer: OwnedFd,
    /// When the timer goes off.
    at: Option<Timestamp>,
    watched: SmallVec<[Interest; 4]>,
    /// The descriptors that are watched always.
    _always: Vec<Arc<dyn Watched>>,
    generation: Generation,
}

/// A descriptor of a connection, and what it is watched for.
#[derive(Debug, Clone)]
struct Interest {
    fd: Arc<dyn Watched>,
    flags: EventFlags,
}

impl Poller {
    /// A descriptor that is readable at once. Each of `always` wakes the host too.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the process has no file descriptor left.
    pub fn new(always: Vec<Arc<dyn Watched>>) -> Result<Self> {
        let failed = |errno| Error::os("cannot make a descriptor for an event loop", errno);
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(failed)?;
        let data = EventData::new_u64(0);
        epoll::add(&epoll, &timer, data, EventFlags::IN).map_err(failed)?;
        for always in &always {
            epoll::add(&epoll, always, data, EventFlags::IN).map_err(failed)?;
        }
        let mut poller = Self {
            epoll,
            timer,
            at: None,
            watched: SmallVec::new(),
            _always: always,
            generation: Generation::now(),
        };
        poller.set_timer(Some(clock::now()));
        Ok(poller)
    }

    /// The descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Tells from now on of what these connections want, and of `at`.
    pub fn wait_for<'a>(
        &mut self,
        connections: impl IntoIterator<Item = (&'a Readiness, Wants)>,
        mut at: Option<Timestamp>,
    ) {
        // A forked child shares the epoll instance and the timer with its parent.
        if !self.generation.is_same_process() {
            return;
        }
        let mut wanted = SmallVec::new();
        for (readiness, wants) in connections {
            at = at.into_iter().chain(wants.at).min();
            if wants.soon {
                at = Some(clock::now());
            }
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
        self.watch(wanted);
        self.set_timer(at);
    }

    /// The stream is over: the descriptor stays readable, and no connection is watched.
    pub fn end(&mut self) {
        self.wait_for([], Some(clock::now()));
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
