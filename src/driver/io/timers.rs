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
use crate::proto::Timestamp;

/// Timers, and an alarm that goes off with the first of them.
pub(super) struct Timers {
    alarm: OwnedFd,
    set: Mutex<Set>,
}

/// By time, and by the address of the source: one source has each time once.
type Set = BTreeMap<(Timestamp, usize), Weak<dyn Source>>;

impl Timers {
    pub(super) fn new() -> rustix::io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self {
            alarm: timerfd_create(TimerfdClockId::Monotonic, flags)?,
            set: Mutex::default(),
        })
    }

    pub(super) fn alarm(&self) -> &OwnedFd {
        &self.alarm
    }

    pub(super) fn add(&self, deadline: Timestamp, source: Weak<dyn Source>) {
        let mut set = self.set.lock();
        let key = (deadline, source.as_ptr().addr());
        let is_new = set.insert(key, source).is_none();
        if is_new && set.first_key_value().map(|(first, _)| *first) == Some(key) {
            self.set_alarm(&set);
        }
    }

    /// Takes out the timers that are due now.
    pub(super) fn take_due(&self) -> impl Iterator<Item = Weak<dyn Source>> + use<> {
        let mut set = self.set.lock();
        let later = set.split_off(&(clock::now(), usize::MAX));
        let due = std::mem::replace(&mut *set, later);
        self.set_alarm(&set);
        due.into_values()
    }

    fn set_alarm(&self, set: &Set) {
        let Some(((first, _), _)) = set.first_key_value() else {
            return;
        };
        // Zero would be no alarm at all.
        let left = clock::until(*first).max(Duration::from_nanos(1));
        let alarm = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec::try_from(left).unwrap_or_default(),
        };
        if let Err(errno) = timerfd_settime(&self.alarm, TimerfdTimerFlags::empty(), &alarm) {
            tracing::error!("a timer cannot be set: {errno}");
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.set.lock().len()
    }
}
