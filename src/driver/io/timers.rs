//! The times at which an I/O thread calls its sources.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Weak;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::Timespec;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use super::Source;
use crate::driver::clock;
use crate::fork::Generation;
use crate::proto::Timestamp;

/// How long the thread sleeps at most, to look at its timers again: before Linux 5.11 the system
/// counts milliseconds in 31 bits, and the thread would end over more.
const LONGEST_SLEEP: Duration = Duration::from_secs(24 * 3600);

/// Timers, and an alarm that wakes the thread for one that another thread has set.
pub(super) struct Timers {
    generation: Generation,
    alarm: OwnedFd,
    set: Mutex<Set>,
}

#[derive(Default)]
struct Set {
    /// By time; several may be due at once.
    sources: BTreeMap<(Timestamp, u64), Weak<dyn Source>>,
    next: u64,
}

impl Timers {
    pub(super) fn new() -> rustix::io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self {
            generation: Generation::now(),
            alarm: timerfd_create(TimerfdClockId::Monotonic, flags)?,
            set: Mutex::default(),
        })
    }

    /// Readable when the alarm has gone off.
    pub(super) fn alarm(&self) -> &OwnedFd {
        &self.alarm
    }

    /// Sets a timer. Returns whether it is the first of all.
    pub(super) fn add(&self, deadline: Timestamp, source: Weak<dyn Source>) -> bool {
        let mut set = self.set.lock();
        set.next += 1;
        let key = (deadline, set.next);
        set.sources.insert(key, source);
        set.sources.first_key_value().map(|(first, _)| *first) == Some(key)
    }

    /// Has the alarm go off at `deadline`, or before. Returns whether that can be.
    pub(super) fn set_alarm(&self, deadline: Timestamp) -> bool {
        // A forked child has no such thread, and its descriptor is the parent's alarm.
        if !self.generation.is_same_process() {
            return true;
        }
        // Under the lock, so that the alarm is that of the first timer.
        let set = self.set.lock();
        let first = set.sources.first_key_value();
        let first = first.map_or(deadline, |((first, _), _)| *first);
        // Zero would be no alarm at all.
        let left = clock::until(first).clamp(Duration::from_nanos(1), LONGEST_SLEEP);
        let alarm = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec::try_from(left).unwrap_or_default(),
        };
        timerfd_settime(&self.alarm, TimerfdTimerFlags::empty(), &alarm).is_ok()
    }

    /// How long to sleep: until the first timer, or for ever.
    pub(super) fn next_timeout(&self) -> Option<Timespec> {
        let set = self.set.lock();
        let ((first, _), _) = set.sources.first_key_value()?;
        Timespec::try_from(clock::until(*first).min(LONGEST_SLEEP)).ok()
    }

    /// Takes out the first timer that is due at `now`.
    pub(super) fn take_due(&self, now: Timestamp) -> Option<Weak<dyn Source>> {
        let mut set = self.set.lock();
        let first = set.sources.first_entry()?;
        let (deadline, _) = first.key();
        (*deadline <= now).then(|| first.remove())
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.set.lock().sources.len()
    }
}
