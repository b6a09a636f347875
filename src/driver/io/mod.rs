//! A thread that sleeps in epoll on behalf of many connections.

pub(super) mod source;
mod timers;
mod watch;

pub use rustix::event::epoll::EventFlags;
pub use source::{Source, guarded};
pub use watch::Registration;

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::{JoinHandle, ThreadId};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::epoll::{self, Event, EventData};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io;

use crate::driver::clock;
use crate::driver::waiting::Looks;
use crate::error::{Error, Result};
use crate::proto::Timestamp;
use crate::transport::Watched;
use source::guarded_for;
use timers::Timers;
use watch::WatchSet;

/// The handle of an I/O thread. Clones share it; the thread ends when the last one is dropped.
#[derive(Clone)]
pub struct IoThread {
    handle: Arc<ThreadHandle>,
}

struct ThreadHandle {
    reactor: Arc<Reactor>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Reactor {
    watched: Arc<WatchSet>,
    /// Written to in order to wake the thread: to stop it, or to make it call a source.
    wake: OwnedFd,
    spin: Duration,
    /// Threads that hold connections of this one.
    holders: AtomicUsize,
    stop: AtomicBool,
    /// The thread sleeps, so only a descriptor wakes it.
    is_asleep: AtomicBool,
    timers: Timers,
    /// Sources to call after the others were called.
    soon: Mutex<Vec<Weak<dyn Source>>>,
    /// The thread itself. Its own calls need not wake it.
    thread: OnceLock<ThreadId>,
}

/// How often one source is called before the others are called.
pub const CALLS_AT_ONCE: usize = 16;

/// Keys of the wake-up descriptors; sources count from the next one.
const WAKE: u64 = 0;
const ALARM: u64 = 1;

impl IoThread {
    /// Starts the thread, which looks for work for `spin` before it sleeps.
    pub fn start(name: &str, spin: Duration) -> Result<Self> {
        let failed = |errno| Error::os("cannot set up an I/O thread", errno);
        let watched = Arc::new(WatchSet::new(ALARM + 1).map_err(failed)?);
        let epoll = &watched.epoll;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed)?;
        epoll::add(epoll, &wake, EventData::new_u64(WAKE), EventFlags::IN).map_err(failed)?;
        let timers = Timers::new().map_err(failed)?;
        let alarm = EventData::new_u64(ALARM);
        epoll::add(epoll, &timers.alarm, alarm, EventFlags::IN).map_err(failed)?;
        let reactor = Arc::new(Reactor {
            watched,
            wake,
            spin,
            holders: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            is_asleep: AtomicBool::new(false),
            timers,
            soon: Mutex::default(),
            thread: OnceLock::new(),
        });
        let runs = Arc::clone(&reactor);
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || runs.run())
            .map_err(|error| Error::io("cannot start an I/O thread", &error))?;
        let thread = Mutex::new(Some(thread));
        Ok(Self {
            handle: Arc::new(ThreadHandle { reactor, thread }),
        })
    }

    /// Wakes `source` when one of `fds` is ready, until the registration is dropped.
    pub fn register(
        &self,
        source: Weak<dyn Source>,
        fds: impl IntoIterator<Item = Arc<dyn Watched>>,
        interest: EventFlags,
    ) -> Result<Registration> {
        (self.handle.reactor.watched).register(source, fds, interest)
    }

    /// Calls [`Source::timer`] at `deadline` or soon after, if the source still lives.
    pub fn call_at(&self, deadline: Timestamp, source: Weak<dyn Source>) {
        let reactor = &self.handle.reactor;
        // A forked child has no I/O thread, and its descriptor would set the parent's alarm.
        if reactor.watched.generation.is_same_process() {
            reactor.timers.add(deadline, source);
        }
    }

    /// How long the thread looks for work before it sleeps.
    pub fn spin(&self) -> Duration {
        self.handle.reactor.spin
    }

    /// The number of the thread's connections that have a holder. If there is one, the thread does
    /// not spin, because the holder may need its processor.
    pub fn holders(&self) -> &AtomicUsize {
        &self.handle.reactor.holders
    }

    /// Whether the thread is calling its sources, or looks for sources to call. Then a
    /// [call](Self::call_soon) costs no system call.
    pub fn is_awake(&self) -> bool {
        !self.handle.reactor.is_asleep.load(Ordering::SeqCst)
    }

    /// Calls [`Source::ready`] once every source that is ready now was called.
    pub fn call_soon(&self, source: Weak<dyn Source>) {
        let reactor = &self.handle.reactor;
        reactor.soon.lock().push(source);
        // An awake thread looks once more before it sleeps.
        if reactor.is_asleep.load(Ordering::SeqCst) {
            reactor.wake();
        }
    }

    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        let reactor = &self.handle.reactor;
        reactor.timers.len() + reactor.soon.lock().len()
    }

    /// Ends the thread now, and waits for that unless it is the caller. Nothing that was registered
    /// is called again.
    pub fn shut_down(&self) {
        self.handle.shut_down();
    }
}

impl ThreadHandle {
    fn shut_down(&self) {
        self.reactor.stop.store(true, Ordering::Release);
        self.reactor.wake();
        // The thread itself may drop the last connection. It leaves its loop later.
        let this = std::thread::current().id();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != this) {
            let _ = thread.join();
        }
    }
}

impl Drop for ThreadHandle {
    fn drop(&mut self) {
        // A forked child has no such thread to wait for.
        if self.reactor.watched.generation.is_same_process() {
            self.shut_down();
        }
    }
}

impl Reactor {
    fn wake(&self) {
        // Before it sleeps again, it looks at everything that its own call may have added.
        if self.is_current() {
            return;
        }
        // A full counter means that a wake-up is already under way.
        let _ = io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    fn is_current(&self) -> bool {
        self.thread.get() == Some(&std::thread::current().id())
    }

    fn run(&self) {
        let _ = self.thread.set(std::thread::current().id());
        let mut events = Vec::with_capacity(64);
        let mut idle_since = clock::now();
        let mut looks = Looks::default();
        while !self.stop.load(Ordering::Acquire) {
            let spins = !self.spin.is_zero()
                && self.holders.load(Ordering::Relaxed) == 0
                && clock::since(idle_since) < self.spin;
            match self.wait(&mut events, spins, &mut looks) {
                Ok(()) | Err(io::Errno::INTR) => {}
                Err(errno) => {
                    tracing::error!("an I/O thread cannot wait and ends: {errno}");
                    return;
                }
            }
            if !events.is_empty() {
                idle_since = clock::now();
            } else if spins {
                std::thread::yield_now();
            }
            for event in &events {
                self.handle(event.data.u64());
            }
            // Taken out first: a call may add another source.
            let soon = std::mem::take(&mut *self.soon.lock());
            for source in soon.into_iter().filter_map(|it| it.upgrade()) {
                guarded_for(&*source, || source.ready());
            }
        }
    }

    /// Waits for the descriptors. Does not wait while the thread `spins` or has a source to call.
    fn wait(&self, events: &mut Vec<Event>, spins: bool, looks: &mut Looks) -> io::Result<()> {
        events.clear();
        let now = Timespec::default();
        let mut ask = |timeout: Option<&Timespec>| {
            events.clear();
            epoll::wait(
                &self.watched.epoll,
                rustix::buffer::spare_capacity(events),
                timeout,
            )
        };
        if spins || !self.soon.lock().is_empty() {
            return ask(Some(&now)).map(drop);
        }
        let is_called = || !self.soon.lock().is_empty();
        if looks.look(|| is_called() || ask(Some(&now)).is_ok_and(|count| count > 0)) {
            return Ok(());
        }
        self.is_asleep.store(true, Ordering::SeqCst);
        // A call from before the store has woken nobody.
        let waited = match is_called() {
            true => ask(Some(&now)),
            false => ask(None),
        };
        self.is_asleep.store(false, Ordering::SeqCst);
        waited.map(drop)
    }

    /// Handles the event that one of the descriptors with this key is ready.
    fn handle(&self, key: u64) {
        let mut counter = [0; 8];
        match key {
            WAKE => drop(io::read(&self.wake, &mut counter)),
            ALARM => {
                let _ = io::read(&self.timers.alarm, &mut counter);
                for source in self.timers.take_due().filter_map(|it| it.upgrade()) {
                    guarded_for(&*source, || source.timer());
                }
            }
            key => {
                if let Some(source) = self.watched.find(key) {
                    guarded_for(&*source, || source.ready());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
