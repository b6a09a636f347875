//! One descriptor for everything that a stream waits for. It is for hosts that sleep in an event
//! loop of their own.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::PollFlags;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io;
use smallvec::SmallVec;

use crate::cancel::{Cancel, Follower};
use crate::driver::bell::Bell;
use crate::driver::clock;
use crate::driver::signal::{Reason, Signal};
use crate::driver::waiting::{Again, Wants};
use crate::error::{Error, Result};
use crate::fork::Generation;
use crate::proto::Timestamp;
use crate::transport::{Awaited, ConnectionReadiness, Timer, Watched};

/// A descriptor that is readable when a stream may have something for its host.
///
/// It is an epoll instance over the descriptors of the stream's connections and further descriptors
/// that can wake the host. After the end of the stream it stays readable. Most streams need no
/// other descriptor, because there may be thousands of streams.
#[derive(Debug)]
pub struct Poller {
    signal: Arc<Signal>,
    /// Made when the host is first to be woken at a time.
    timer: Option<Timer>,
    /// When the host is to be woken.
    at: Option<Timestamp>,
    watched: SmallVec<[Interest; 2]>,
    /// Descriptors that are watched until the end of the stream.
    always: SmallVec<[Arc<dyn Watched>; 1]>,
    /// Makes the descriptor readable when the token is cancelled.
    token: Option<Arc<TokenSignal>>,
    generation: Generation,
}

/// Makes a descriptor readable for as long as a cancelled token is followed.
#[derive(Debug)]
struct TokenSignal {
    /// `None`: the token is not followed any more. The lock is held while the descriptor is made
    /// readable, so a late cancel of this token cannot pass for a cancel of the next one.
    signal: Mutex<Option<Arc<Signal>>>,
    generation: Generation,
}

impl Follower for TokenSignal {
    fn cancelled(&self) {
        // A forked child shares the epoll instance with its parent.
        if self.generation.is_same_process()
            && let Some(signal) = &*self.signal.lock()
        {
            signal.set(Reason::Cancel, true);
        }
    }
}

/// A descriptor of a connection, and what it is watched for.
type Interest = (Arc<dyn Watched>, EventFlags);

impl Poller {
    /// A descriptor that is readable at first. Each of `always` wakes the host too.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the process has no file descriptor left.
    pub fn new(always: impl IntoIterator<Item = Arc<dyn Watched>>) -> Result<Self> {
        let mut poller = Self {
            signal: Arc::new(Signal::new()?),
            timer: None,
            at: None,
            watched: SmallVec::new(),
            always: SmallVec::new(),
            token: None,
            generation: Generation::now(),
        };
        for always in always {
            poller.watch_always(always)?;
        }
        poller.set_timer(Some(clock::now()));
        Ok(poller)
    }

    /// The descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.signal.as_fd()
    }

    /// A bell that makes the descriptor readable.
    pub fn bell(&self) -> Bell {
        Bell::by(Arc::clone(&self.signal))
    }

    /// Makes the cancel of this token wake the host, and the cancel of an earlier token no longer.
    /// The descriptor of the token is not watched, because the system lets only some hundred epoll
    /// instances watch one descriptor.
    pub fn follow(&mut self, cancel: Option<&Cancel>) {
        if !self.generation.is_same_process() {
            return;
        }
        if let Some(earlier) = self.token.take() {
            *earlier.signal.lock() = None;
        }
        self.signal.set(Reason::Cancel, false);
        if let Some(cancel) = cancel {
            let told = Arc::new(TokenSignal {
                signal: Mutex::new(Some(Arc::clone(&self.signal))),
                generation: self.generation,
            });
            cancel.tell(Arc::downgrade(&told) as Weak<TokenSignal>);
            self.token = Some(told);
        }
    }

    /// Makes this descriptor wake the host too.
    ///
    /// # Errors
    ///
    /// `OutOfResources`: the system can watch no more descriptors.
    pub fn watch_always(&mut self, fd: Arc<dyn Watched>) -> Result<()> {
        let data = EventData::new_u64(0);
        epoll::add(&self.signal, &fd, data, EventFlags::IN)
            .map_err(|errno| Error::os("cannot watch a descriptor for an event loop", errno))?;
        self.always.push(fd);
        Ok(())
    }

    /// From now on announces what these connections wait for, and the time `at`.
    pub fn wait_for<'a>(
        &mut self,
        connections: impl IntoIterator<Item = (&'a ConnectionReadiness, Wants)>,
        mut at: Option<Timestamp>,
    ) {
        // A forked child shares the epoll instance and the timer with its parent.
        if !self.generation.is_same_process() {
            return;
        }
        let mut wanted = SmallVec::new();
        for (readiness, wants) in connections {
            match wants.again {
                Again::Now => at = Some(clock::now()),
                Again::At(time) => at = at.into_iter().chain([time]).min(),
                Again::OnEvent => {}
            }
            let (readable, writable) = wants.events(readiness.socket);
            let mut flags = EventFlags::empty();
            flags.set(EventFlags::IN, readable);
            flags.set(EventFlags::OUT, writable);
            // Epoll reports a hang-up in any case, even if the connection may not be read.
            if !flags.is_empty() {
                wanted.push((Arc::clone(&readiness.fd), flags));
                let death = readiness.peer_death.clone();
                wanted.extend(death.map(|death| (death, EventFlags::IN)));
            }
        }
        self.watch(wanted);
        self.set_timer(at);
    }

    /// From now on announces what an attempt to connect waits for.
    pub fn wait_for_attempt(&mut self, awaited: Awaited) {
        if !self.generation.is_same_process() {
            return;
        }
        let wanted = awaited.fd.into_iter().map(|(fd, events)| {
            let flags = match events.contains(PollFlags::OUT) {
                true => EventFlags::OUT,
                false => EventFlags::IN,
            };
            (fd, flags)
        });
        self.watch(wanted.collect());
        self.set_timer(Some(clock::at(awaited.until)));
    }

    /// The stream is over: the descriptor stays readable, and no connection is watched.
    pub fn end(&mut self) {
        self.wait_for([], Some(clock::now()));
    }

    /// Watches these descriptors alone.
    fn watch(&mut self, wanted: SmallVec<[Interest; 2]>) {
        for (old, _) in &self.watched {
            if !wanted.iter().any(|(new, _)| Arc::ptr_eq(new, old)) {
                let _ = epoll::delete(&self.signal, old);
            }
        }
        for (new, flags) in &wanted {
            let data = EventData::new_u64(0);
            let old = self.watched.iter().find(|(old, _)| Arc::ptr_eq(new, old));
            let outcome = match old {
                Some((_, old)) if old == flags => continue,
                Some(_) => epoll::modify(&self.signal, new, data, *flags),
                None => epoll::add(&self.signal, new, data, *flags),
            };
            if let Err(errno) = outcome {
                tracing::error!("cannot watch a connection for an event loop: {errno}");
            }
        }
        self.watched = wanted;
    }

    fn set_timer(&mut self, at: Option<Timestamp>) {
        // A time that has come counts until another one is set.
        if at == self.at && at.is_none_or(|at| at > clock::now()) {
            return;
        }
        let before = std::mem::replace(&mut self.at, at);
        let left = at.map(clock::until);
        let mut is_time = left.is_some_and(|left| left.is_zero());
        let to_come = left.filter(|left| !left.is_zero());
        if (to_come.is_some() || before.is_some())
            && let Err(errno) = self.set_alarm(to_come)
        {
            tracing::error!("a timer cannot be set: {errno}");
            // The host may look too often, but never too late.
            is_time = at.is_some();
        }
        self.signal.set(Reason::Time, is_time);
    }

    /// Sets the timer to go off after this time, or never.
    fn set_alarm(&mut self, after: Option<Duration>) -> io::Result<()> {
        let timer = match (self.timer.take(), after) {
            (Some(timer), _) => timer,
            (None, None) => return Ok(()),
            (None, Some(_)) => {
                let timer = Timer::new()?;
                let data = EventData::new_u64(0);
                epoll::add(&self.signal, &timer, data, EventFlags::IN)?;
                timer
            }
        };
        let set = timer.set(after);
        self.timer = Some(timer);
        set
    }
}
