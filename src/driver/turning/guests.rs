//! The guests of a connection, which are the streams that share it. They do not turn the
//! connection. Their bells announce what the I/O thread has read.

use std::sync::Arc;

use foldhash::HashMap;
use smallvec::{SmallVec, smallvec};

use super::Stirred;
use crate::driver::bell::Bell;

/// Bells to be rung after the lock is released, because whoever is woken may take other locks.
pub(super) type Bells = SmallVec<[Arc<Bell>; 4]>;

/// The guests of a connection, by the number of their stream.
#[derive(Default)]
pub(super) struct Guests(HashMap<u32, SmallVec<[Guest; 1]>>);

/// A token of a stream. A stream that goes both ways has two.
struct Guest {
    slot: usize,
    bell: Option<Arc<Bell>>,
}

impl Guests {
    /// Adds a token of the stream. Returns which of the stream's tokens it is.
    pub(super) fn add(&mut self, number: u32) -> usize {
        let guest = |slot| Guest { slot, bell: None };
        match self.0.get_mut(&number) {
            Some(guests) => {
                let slot = usize::from(guests.iter().any(|it| it.slot == 0));
                guests.push(guest(slot));
                slot
            }
            None => {
                self.0.insert(number, smallvec![guest(0)]);
                0
            }
        }
    }

    /// Removes a token. Returns whether it was the last one of its stream.
    pub(super) fn remove(&mut self, number: u32, slot: usize) -> bool {
        let Some(guests) = self.0.get_mut(&number) else {
            return false;
        };
        guests.retain(|guest| guest.slot != slot);
        guests.is_empty() && self.0.remove(&number).is_some()
    }

    pub(super) fn set_bell(&mut self, number: u32, slot: usize, bell: Option<Arc<Bell>>) {
        let mut guests = self.0.get_mut(&number).into_iter().flatten();
        if let Some(guest) = guests.find(|guest| guest.slot == slot) {
            guest.bell = bell;
        }
    }

    /// The bells of the guests whose streams have changed and have news.
    pub(super) fn bells(&self, stirred: &Stirred, has_news: impl Fn(u32) -> bool) -> Bells {
        // A guest whose bell has rung is about to look, and sees the change then.
        let bell = |guest: &Guest| guest.bell.clone().filter(|bell| !bell.has_rung());
        if stirred.all {
            let guests = self.0.iter().filter(|(number, _)| has_news(**number));
            return guests.flat_map(|(_, it)| it).filter_map(bell).collect();
        }
        let numbers = stirred.numbers.iter().filter(|it| has_news(**it));
        let numbers = numbers.chain(&stirred.late);
        let guests = numbers.filter_map(|it| self.0.get(it)).flatten();
        guests.filter_map(bell).collect()
    }
}
