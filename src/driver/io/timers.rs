//! The times at which an I/O thread calls its sources.

use std::collections::BTreeMap;
use std::sync::Weak;

use parking_lot::Mutex;

use super::source::Source;
use crate::driver::clock;
use crate::proto::Timestamp;
use crate::transport::Timer;

/// Dropped sources may keep up to so many timers. Each keeps the memory of its source, and every
/// client that goes leaves one.
const LEAST_SWEPT: usize = 256;

/// Timers, and an alarm that goes off with the first of them.
pub(super) struct Timers {
    pub(super) alarm: Timer,
    waiting: Mutex<WaitingTimers>,
}

struct WaitingTimers {
    set: Set,
    /// At this number of timers, those of dropped sources are removed.
    sweep_at: usize,
}

/// By time, and by the address of the source: a source has at most one timer for each time.
type Set = BTreeMap<(Timestamp, usize), Weak<dyn Source>>;

impl Timers {
    pub(super) fn new() -> rustix::io::Result<Self> {
        Ok(Self {
            alarm: Timer::new()?,
            waiting: Mutex::new(WaitingTimers {
                set: Set::new(),
                sweep_at: LEAST_SWEPT,
            }),
        })
    }

    pub(super) fn add(&self, deadline: Timestamp, source: Weak<dyn Source>) {
        let mut waiting = self.waiting.lock();
        waiting.sweep();
        let set = &mut waiting.set;
        let key = (deadline, source.as_ptr().addr());
        let is_new = set.insert(key, source).is_none();
        if is_new && set.first_key_value().map(|(first, _)| *first) == Some(key) {
            self.set_alarm(set);
        }
    }

    /// Takes out the timers that are due now.
    pub(super) fn take_due(&self) -> impl Iterator<Item = Weak<dyn Source>> + use<> {
        let set = &mut self.waiting.lock().set;
        let later = set.split_off(&(clock::now(), usize::MAX));
        let due = std::mem::replace(set, later);
        self.set_alarm(set);
        due.into_values()
    }

    fn set_alarm(&self, set: &Set) {
        let Some(((first, _), _)) = set.first_key_value() else {
            return;
        };
        if let Err(errno) = self.alarm.set(Some(clock::until(*first))) {
            tracing::error!("a timer cannot be set: {errno}");
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.waiting.lock().set.len()
    }
}

impl WaitingTimers {
    /// Drops the timers of sources that are gone, if there may be many of them.
    fn sweep(&mut self) {
        if self.set.len() >= self.sweep_at {
            self.set.retain(|_, source| source.strong_count() > 0);
            self.sweep_at = (self.set.len() * 2).max(LEAST_SWEPT);
        }
    }
}
