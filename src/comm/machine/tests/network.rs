//! A network that delays. What one rank sends to another arrives in order.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::{Dice, Rank};
use crate::proto::Timestamp;

/// What arrives.
#[derive(Debug)]
pub(super) struct Delivery<T> {
    pub(super) from: Rank,
    pub(super) to: Rank,
    pub(super) what: T,
}

/// Messages under way, and the time.
#[derive(Debug)]
pub(super) struct Network<T> {
    pub(super) now: Timestamp,
    pub(super) most_delay: Duration,
    /// In the order of arrival; the number tells apart what arrives at one time.
    under_way: BTreeMap<(Timestamp, u64), Delivery<T>>,
    count: u64,
    last: HashMap<(Rank, Rank), Timestamp>,
    /// Messages sent and received, by rank.
    pub(super) messages: HashMap<Rank, usize>,
}

impl<T> Network<T> {
    pub(super) fn new(most_delay: Duration) -> Self {
        Self {
            now: Timestamp::from_nanos(1),
            most_delay,
            under_way: BTreeMap::new(),
            count: 0,
            last: HashMap::new(),
            messages: HashMap::new(),
        }
    }

    pub(super) fn send(&mut self, dice: &mut Dice, from: Rank, to: Rank, what: T) {
        assert_ne!(from, to);
        let most = usize::try_from(self.most_delay.as_nanos()).unwrap();
        let delay = Duration::from_nanos(u64::try_from(dice.roll(most + 1)).unwrap());
        let last = self.last.entry((from, to)).or_default();
        *last = self.now.saturating_add(delay).max(*last);
        self.count += 1;
        let delivery = Delivery { from, to, what };
        self.under_way.insert((*last, self.count), delivery);
        *self.messages.entry(from).or_default() += 1;
    }

    /// When the next message arrives.
    pub(super) fn next_at(&self) -> Option<Timestamp> {
        self.under_way.keys().next().map(|(at, _)| *at)
    }

    /// The next message; the time goes on to its arrival.
    pub(super) fn deliver(&mut self) -> Option<Delivery<T>> {
        let ((at, _), delivery) = self.under_way.pop_first()?;
        self.now = self.now.max(at);
        *self.messages.entry(delivery.to).or_default() += 1;
        Some(delivery)
    }

    /// Loses what `from` has sent and what has not arrived.
    pub(super) fn lose(&mut self, from: Rank) {
        self.under_way.retain(|_, delivery| delivery.from != from);
    }
}
