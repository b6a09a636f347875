//! Looks at sources whose descriptors need not tell of what comes, which spares the peer a wake for each message:
//! while the thread spins, or for a moment before it sleeps.

use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, Event};

use super::{Shared, Source, guarded_for};
use crate::driver::brief::Brief;
use crate::driver::clock;

/// How long sources are looked at before descriptors, timers and other threads have their turn.
pub(super) const LOOK_TIME: Duration = Duration::from_micros(2);
/// More sources than that which were told of something since the last sleep are left to their descriptors: to
/// look at one costs each of the others time.
const MOST_RECENT: usize = 4;

/// Sources that were told of something since the thread last slept: more may follow soon.
#[derive(Debug, Default)]
pub(super) struct Recent {
    keys: Vec<u64>,
    /// Their descriptors need not tell of what comes now.
    looked: bool,
}

impl Recent {
    /// A source that may be looked at was told of something.
    pub(super) fn note(&mut self, key: u64) {
        if self.keys.len() <= MOST_RECENT && !self.keys.contains(&key) {
            self.keys.push(key);
        }
    }

    /// Whether that source's descriptor may tell of what was seen already.
    pub(super) fn looks_at(&self, key: u64) -> bool {
        self.looked && self.keys.contains(&key)
    }
}

impl Shared {
    /// Waits for the descriptors, `spins` or until the first timer. Sources that were told of something lately
    /// are looked at for a moment before that.
    pub(super) fn wait(
        &self,
        events: &mut Vec<Event>,
        spins: bool,
        brief: &mut Brief,
        recent: &mut Recent,
    ) -> rustix::io::Result<()> {
        let now = Timespec::default();
        let ask = |events: &mut Vec<Event>, timeout: Option<&Timespec>| {
            events.clear();
            epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), timeout)
        };
        let at_once = |this: &Self| spins || !this.soon.lock().is_empty();
        let few = recent.keys.len() <= MOST_RECENT;
        if recent.looked && (at_once(self) || !few) {
            // They are not looked at now, so that their descriptors have to tell again.
            self.look_last_at(recent);
        }
        if !at_once(self) {
            let looks = self.spin.is_zero() && few && !recent.keys.is_empty();
            let found = brief.look(|| {
                recent.looked |= looks;
                let found = looks && self.look_at(&recent.keys);
                found
                    | (ask(events, Some(&now)).is_ok()
                        && events.iter().any(|it| !recent.looks_at(it.data.u64())))
            });
            if found {
                return Ok(());
            }
            self.look_last_at(recent);
        }
        let timeout = if at_once(self) {
            Some(now)
        } else {
            self.next_timeout()
        };
        ask(events, timeout.as_ref()).map(drop)
    }

    fn source(&self, key: u64) -> Option<Arc<dyn Source>> {
        self.sources.lock().get(&key).and_then(Weak::upgrade)
    }

    /// Looks at these in turn for a moment. Returns whether there was something.
    fn look_at(&self, keys: &[u64]) -> bool {
        let start = clock::now();
        let mut found = false;
        while !found && clock::since(start) < LOOK_TIME {
            for source in keys.iter().filter_map(|key| self.source(*key)) {
                guarded_for(&*source, || found |= source.look());
            }
            std::hint::spin_loop();
        }
        found
    }

    /// The thread is about to sleep: has those that it looked at tell of what comes.
    fn look_last_at(&self, recent: &mut Recent) {
        let looked = std::mem::take(&mut recent.looked);
        for key in recent.keys.drain(..).filter(|_| looked) {
            if let Some(source) = self.source(key) {
                guarded_for(&*source, || source.ready());
            }
        }
    }

    /// Whether a source is to be looked at now while the thread spins, where there are such sources.
    pub(super) fn looks(&self) -> Option<bool> {
        self.source_to_look_at(0)?;
        // One by one: what is called may watch others, or end.
        let sources = (0..).map_while(|index| self.source_to_look_at(index));
        let mut sources = sources.filter_map(|source| source.upgrade());
        Some(sources.any(|source| source.is_to_be_looked_at()))
    }

    /// Looks at each source in turn for that long. Returns whether there was something.
    pub(super) fn look_for(&self, time: Duration) -> bool {
        let start = clock::now();
        let mut found = false;
        while clock::since(start) < time {
            let sources = (0..).map_while(|index| self.source_to_look_at(index));
            for source in sources.filter_map(|source| source.upgrade()) {
                guarded_for(&*source, || found |= source.look());
            }
            std::hint::spin_loop();
        }
        found
    }

    fn source_to_look_at(&self, index: usize) -> Option<Weak<dyn Source>> {
        let looked_at = self.looked_at.lock();
        looked_at.get(index).map(|(_, source)| Weak::clone(source))
    }

    /// The thread is about to sleep: has every source that it looked at tell of what comes.
    pub(super) fn look_last(&self) {
        let sources: Vec<_> = self.looked_at.lock().iter().cloned().collect();
        for source in sources.iter().filter_map(|(_, source)| source.upgrade()) {
            guarded_for(&*source, || source.ready());
        }
    }
}
