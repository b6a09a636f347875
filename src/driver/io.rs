//! A thread that sleeps in epoll on behalf of many connections.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::{JoinHandle, ThreadId};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::driver::clock;
use crate::driver::waiting::Looks;
use crate::error::{Error, Result};
use crate::fork::Generation;
use crate::proto::Timestamp;
use crate::transport::Watched;

/// Something that an I/O thread wakes. Calls come from the I/O thread, one at a time.
pub trait Source: Send + Sync {
    /// One of the source's descriptors is ready, or was a moment ago.
    fn ready(&self);

    /// A time asked for by [`IoThread::call_at`] has come.
    fn timer(&self) {}

    /// The turn asked for by [`IoThread::call_soon`] has come.
    fn turn(&self) {}

    /// A call to it panicked half-way: it is to go on no more.
    fn panicked(&self) {}
}

/// How long the thread sleeps at most, to look at its timers again: before Linux 5.11 the system counts
/// milliseconds in 31 bits, and the thread would end over more.
const LONGEST_SLEEP: Duration = Duration::from_secs(24 * 3600);

/// What a registration waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Something to read, or the end.
    Read,
    /// Also room to write.
    ReadWrite,
    /// Room to write alone.
    Write,
    /// Nothing for now.
    Nothing,
}

impl Interest {
    fn flags(self) -> EventFlags {
        match self {
            Self::Read => EventFlags::IN,
            Self::ReadWrite => EventFlags::IN | EventFlags::OUT,
            Self::Write => EventFlags::OUT,
            Self::Nothing => EventFlags::empty(),
        }
    }
}

/// The handle of an I/O thread. Clones share it; the thread ends when the last one is dropped.
#[derive(Clone)]
pub struct IoThread {
    handle: Arc<Handle>,
}

struct Handle {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    generation: Generation,
    epoll: OwnedFd,
    /// Written to wake the thread: it shall stop, or somebody is to have a turn.
    wake: OwnedFd,
    /// Wakes it for a timer that another thread has set, once that is due. To wake it at once, only so that it sleeps for less,
    /// would take a processor from those who move a stream.
    alarm: OwnedFd,
    spin: Duration,
    /// Threads that hold connections of this one.
    holders: AtomicUsize,
    stop: AtomicBool,
    next_key: AtomicU64,
    sources: Mutex<HashMap<u64, Weak<dyn Source>>>,
    timers: Mutex<BTreeMap<TimerKey, Weak<dyn Source>>>,
    next_timer: AtomicU64,
    /// Sources that have more to do once the others had their turn.
    soon: Mutex<Vec<Weak<dyn Source>>>,
    /// The thread itself, whose own calls need not wake it.
    thread: OnceLock<ThreadId>,
}

/// Keys of the wake-up descriptors; sources count from the next one.
const WAKE: u64 = 0;
const ALARM: u64 = 1;

impl IoThread {
    /// Starts the thread. It looks for work for `spin` before it sleeps.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the process has no descriptors or threads left.
    pub fn start(name: &str, spin: Duration) -> Result<Self> {
        let failed = |errno| Error::os("cannot set up an I/O thread", errno);
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed)?;
        epoll::add(&epoll, &wake, EventData::new_u64(WAKE), EventFlags::IN).map_err(failed)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let alarm = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(failed)?;
        epoll::add(&epoll, &alarm, EventData::new_u64(ALARM), EventFlags::IN).map_err(failed)?;
        let shared = Arc::new(Shared {
            generation: Generation::now(),
            epoll,
            wake,
            alarm,
            spin,
            holders: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            next_key: AtomicU64::new(ALARM + 1),
            sources: Mutex::default(),
            timers: Mutex::default(),
            next_timer: AtomicU64::new(0),
            soon: Mutex::default(),
            thread: OnceLock::new(),
        });
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn({
                let shared = Arc::clone(&shared);
                move || shared.run()
            })
            .map_err(|error| Error::io("cannot start an I/O thread", &error))?;
        Ok(Self {
            handle: Arc::new(Handle {
                shared,
                thread: Mutex::new(Some(thread)),
            }),
        })
    }

    /// Wakes `source` when one of `fds` is ready, until the registration is dropped.
    ///
    /// # Errors
    ///
    /// `OutOfResources` or `OutOfMemory` when the system refuses.
    pub fn register(
        &self,
        source: Weak<dyn Source>,
        fds: impl IntoIterator<Item = Arc<dyn Watched>>,
        interest: Interest,
    ) -> Result<Registration> {
        let shared = &self.handle.shared;
        let key = shared.next_key.fetch_add(1, Ordering::Relaxed);
        shared.sources.lock().insert(key, source);
        let mut registration = Registration {
            shared: Arc::clone(shared),
            key,
            fds: Vec::new(),
            interest,
        };
        for fd in fds {
            epoll::add(
                &shared.epoll,
                &fd,
                EventData::new_u64(key),
                interest.flags(),
            )
            .map_err(|errno| Error::os("cannot watch a connection", errno))?;
            registration.fds.push(fd);
        }
        Ok(registration)
    }

    /// Calls [`Source::timer`] at `deadline` or soon after, if the source still lives and the timer is not
    /// [cancelled](Self::cancel).
    pub fn call_at(&self, deadline: Timestamp, source: Weak<dyn Source>) -> TimerKey {
        let shared = &self.handle.shared;
        let key = TimerKey {
            deadline,
            number: shared.next_timer.fetch_add(1, Ordering::Relaxed),
        };
        let mut timers = shared.timers.lock();
        timers.insert(key, source);
        // Under the lock: the alarm is that of the first timer. The thread itself looks before it sleeps.
        if shared.first_of(&timers) == Some(deadline) && !shared.is_current() {
            shared.set_alarm(Some(deadline));
        }
        key
    }

    /// Takes a timer back; one that is due may come all the same.
    pub fn cancel(&self, timer: TimerKey) {
        let shared = &self.handle.shared;
        let mut timers = shared.timers.lock();
        let first = shared.first_of(&timers);
        let gone = timers.remove(&timer);
        if first == Some(timer.deadline) && !shared.is_current() {
            shared.set_alarm(shared.first_of(&timers));
        }
        // What drops with it may take the lock.
        drop(timers);
        drop(gone);
    }

    /// How long the thread looks for work before it sleeps.
    pub fn spin(&self) -> Duration {
        self.handle.shared.spin
    }

    /// A connection of the thread's has a holder from now on, or has none any more. Holders that are
    /// awake need the processor on which this thread would spin.
    pub fn count_holder(&self, is_there: bool) {
        let holders = &self.handle.shared.holders;
        if is_there {
            holders.fetch_add(1, Ordering::Relaxed);
        } else {
            holders.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether the caller is the thread.
    pub fn is_current(&self) -> bool {
        self.handle.shared.is_current()
    }

    /// Calls [`Source::turn`] once every source that is ready now has had its turn.
    pub fn call_soon(&self, source: Weak<dyn Source>) {
        let shared = &self.handle.shared;
        shared.soon.lock().push(source);
        shared.wake();
    }

    /// Calls that are asked for and have not come.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        let shared = &self.handle.shared;
        shared.timers.lock().len() + shared.soon.lock().len()
    }

    /// Ends the thread now, and waits for that unless it is the caller. Nothing that was registered
    /// is called again.
    pub fn shut_down(&self) {
        self.handle.shut_down();
    }
}

impl Handle {
    fn is_current(&self) -> bool {
        let thread = self.thread.lock();
        thread
            .as_ref()
            .is_some_and(|thread| thread.thread().id() == std::thread::current().id())
    }
}

impl Handle {
    fn shut_down(&self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.wake();
        let current = self.is_current();
        if let Some(thread) = self.thread.lock().take()
            // The last connection may be dropped by the I/O thread itself, which cannot wait for
            // its own end; it leaves its loop when it returns there.
            && !current
        {
            let _ = thread.join();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // A forked child has no such thread to wait for.
        if self.shared.generation.is_same_process() {
            self.shut_down();
        }
    }
}

impl Shared {
    fn wake(&self) {
        // Before it sleeps again it looks at everything that a call of its own may have added.
        if self.is_current() {
            return;
        }
        // A full counter is a wake-up already under way.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    fn first_of(&self, timers: &BTreeMap<TimerKey, Weak<dyn Source>>) -> Option<Timestamp> {
        Some(timers.first_key_value()?.0.deadline)
    }

    /// Has the thread woken at `deadline`, before which it may sleep.
    fn set_alarm(&self, deadline: Option<Timestamp>) {
        // A forked child has no such thread, and its descriptor is the parent's alarm.
        if !self.generation.is_same_process() {
            return;
        }
        // Zero would be none at all, and is that.
        let left = deadline.map_or(Duration::ZERO, |deadline| {
            clock::until(deadline).clamp(Duration::from_nanos(1), LONGEST_SLEEP)
        });
        let alarm = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec::try_from(left).unwrap_or_default(),
        };
        if timerfd_settime(&self.alarm, TimerfdTimerFlags::empty(), &alarm).is_err() {
            self.wake();
        }
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
                Ok(()) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => {
                    tracing::error!("an I/O thread cannot wait and ends: {errno}");
                    return;
                }
            }
            if !events.is_empty() {
                idle_since = clock::now();
            } else if spins {
                // As whoever else looks for work does: there may be more of them than cores.
                std::thread::yield_now();
            }
            for event in &events {
                self.tell(event.data.u64());
            }
            self.run_timers();
            // Taken out first: a turn may ask for another one.
            let soon = std::mem::take(&mut *self.soon.lock());
            for source in soon {
                if let Some(source) = source.upgrade() {
                    guarded_for(&*source, || source.turn());
                }
            }
        }
    }

    /// Waits for the descriptors: not at all while the thread `spins` or a source is to have a turn,
    /// until the first timer otherwise.
    fn wait(
        &self,
        events: &mut Vec<Event>,
        spins: bool,
        looks: &mut Looks,
    ) -> rustix::io::Result<()> {
        let now = Timespec::default();
        let ask = |events: &mut Vec<Event>, timeout: Option<&Timespec>| {
            events.clear();
            epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), timeout)
        };
        if spins || !self.soon.lock().is_empty() {
            return ask(events, Some(&now)).map(drop);
        }
        if looks.look(|| ask(events, Some(&now)).is_ok_and(|count| count > 0)) {
            return Ok(());
        }
        ask(events, self.next_timeout().as_ref()).map(drop)
    }

    /// One of the descriptors with that key is ready.
    fn tell(&self, key: u64) {
        let mut counter = [0; 8];
        match key {
            WAKE => drop(rustix::io::read(&self.wake, &mut counter)),
            // What is due is seen when timers run.
            ALARM => drop(rustix::io::read(&self.alarm, &mut counter)),
            key => {
                let source = self.sources.lock().get(&key).and_then(Weak::upgrade);
                if let Some(source) = source {
                    guarded_for(&*source, || source.ready());
                }
            }
        }
    }

    /// How long to sleep: until the first timer, or for ever.
    fn next_timeout(&self) -> Option<Timespec> {
        let timers = self.timers.lock();
        let left = clock::until(self.first_of(&timers)?);
        Timespec::try_from(left.min(LONGEST_SLEEP)).ok()
    }

    fn run_timers(&self) {
        if self.timers.lock().is_empty() {
            return;
        }
        // Not those that are set meanwhile: the descriptors have their turn first.
        let now = clock::now();
        loop {
            let due = {
                let mut timers = self.timers.lock();
                let first = timers.first_entry();
                let due = first.filter(|first| first.key().deadline <= now);
                due.map(|due| due.remove())
            };
            let Some(source) = due else { return };
            if let Some(source) = source.upgrade() {
                guarded_for(&*source, || source.timer());
            }
        }
    }
}

/// A timer of [`IoThread::call_at`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimerKey {
    /// When it is due.
    pub deadline: Timestamp,
    /// Several may be due at once.
    number: u64,
}

/// Runs a call to a source. A panic there is a bug of ours: it is logged, and costs that source and
/// not every other connection. Returns whether there was none.
pub fn guarded(call: impl FnOnce()) -> bool {
    let done = catch_unwind(AssertUnwindSafe(call)).is_ok();
    if !done {
        tracing::error!("a call to a connection or a listener panicked: please report this bug");
    }
    done
}

/// [`guarded`], for a call to `source`, which is told of a panic.
fn guarded_for(source: &dyn Source, call: impl FnOnce()) {
    if !guarded(call) {
        guarded(|| source.panicked());
    }
}

/// Descriptors watched for one source. Dropping it stops the watching; the source is not called
/// again afterwards, except by a call already under way.
pub struct Registration {
    shared: Arc<Shared>,
    key: u64,
    fds: Vec<Arc<dyn Watched>>,
    interest: Interest,
}

impl Registration {
    /// What the first descriptor is watched for.
    pub fn interest(&self) -> Interest {
        self.interest
    }

    /// Changes what the first descriptor is watched for.
    pub fn set_interest(&mut self, interest: Interest) {
        if self.interest == interest {
            return;
        }
        let Some(fd) = self.fds.first() else { return };
        let data = EventData::new_u64(self.key);
        match epoll::modify(&self.shared.epoll, fd, data, interest.flags()) {
            Ok(()) => self.interest = interest,
            Err(errno) => tracing::error!("cannot change what is watched: {errno}"),
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if self.shared.generation.ensure_same_process().is_err() {
            // A forked child shares the epoll instance itself: it must not take the parent's
            // descriptors out of it.
            return;
        }
        for fd in &self.fds {
            // Explicitly, since a forked child may keep the descriptor's description open, and
            // epoll would go on reporting it.
            let _ = epoll::delete(&self.shared.epoll, fd);
        }
        let gone = self.shared.sources.lock().remove(&self.key);
        // What drops with it may take the lock.
        drop(gone);
    }
}

#[cfg(test)]
#[path = "io_tests.rs"]
mod tests;
