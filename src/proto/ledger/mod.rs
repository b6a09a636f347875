//! Section F at the server: the record of lent memory.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;

use foldhash::HashMap;

use crate::proto::{ProtocolError, Span};

mod numbered;

use numbered::{Back, LentSpan, Number, Numbered};

/// The lends of one connection. `K` keeps the memory of one lend alive. The ledger gives `K` back
/// once the peer has returned every span of the lend, or the number of its message.
#[derive(Debug)]
pub struct Ledger<K> {
    /// Lends that come back by number.
    numbered: Numbered<K>,
    /// Lends that come back by address. Index: number of the lend. `None`: the number is free.
    lends: Vec<Option<Lend<K>>>,
    free_numbers: Vec<u32>,
    /// Number of lends so far.
    count: u64,
    addresses: HashMap<u64, SpanAddress>,
    outstanding: usize,
}

#[derive(Debug)]
struct Lend<K> {
    /// Number of lends before this lend.
    age: u64,
    /// Occurrences of addresses that are not yet returned.
    missing: usize,
    hold: K,
}

/// The occurrences of one address in the sent lists, oldest first.
///
/// The struct is small: each lent buffer has one, and a wide batch has more of them than the caches
/// hold.
#[derive(Debug)]
struct SpanAddress {
    /// Length of the oldest occurrence. Most addresses have no other occurrence.
    length: u64,
    lend: u32,
    /// How often the current free list names the address.
    claimed: u32,
    more: Option<Box<MoreSpans>>,
}

/// Further data of an address that is lent more than once.
#[derive(Debug, Default)]
struct MoreSpans {
    others: VecDeque<Occurrence>,
    /// Whether lengths have differed since the last time that every occurrence was back.
    mixed: bool,
    /// Returns that may mean any occurrence, because lengths differ.
    returned: usize,
}

#[derive(Debug, Clone, Copy)]
struct Occurrence {
    length: u64,
    lend: u32,
}

impl SpanAddress {
    fn new(first: Occurrence) -> Self {
        Self {
            length: first.length,
            lend: first.lend,
            claimed: 0,
            more: None,
        }
    }

    fn lend(&mut self, occurrence: Occurrence) {
        let more = self.more.get_or_insert_default();
        let last = more.others.back().map_or(self.length, |last| last.length);
        more.mixed |= last != occurrence.length;
        more.others.push_back(occurrence);
    }

    fn missing(&self) -> usize {
        let Some(more) = &self.more else { return 1 };
        let lent = more.others.len().saturating_add(1);
        lent.saturating_sub(more.returned)
    }
}

impl<K> Default for Ledger<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K> Ledger<K> {
    /// Nothing is lent.
    pub fn new() -> Self {
        Self {
            numbered: Numbered::new(),
            lends: Vec::new(),
            free_numbers: Vec::new(),
            count: 0,
            addresses: HashMap::default(),
            outstanding: 0,
        }
    }

    /// Records the spans of one message as lent. If every span is empty, nothing is lent and `hold`
    /// comes back at once.
    pub fn lend(&mut self, spans: &[Span], hold: K) -> Option<K> {
        // Rule F3: a pair of length 0 is never freed.
        let lent = || spans.iter().filter(|span| span.length != 0);
        let missing = lent().count();
        if missing == 0 {
            return Some(hold);
        }
        let age = self.count;
        self.count = age.wrapping_add(1);
        let new = Some(Lend { age, missing, hold });
        let free = self.free_numbers.pop();
        let slot = free.and_then(|number| Some((number, self.lends.get_mut(number as usize)?)));
        let lend = match slot {
            Some((number, slot)) => {
                *slot = new;
                number
            }
            None => {
                self.lends.push(new);
                // Each lend takes memory, so the number of lends fits in 32 bits.
                u32::try_from(self.lends.len().saturating_sub(1)).unwrap_or(u32::MAX)
            }
        };
        for span in lent() {
            let length = span.length;
            let occurrence = Occurrence { length, lend };
            match self.addresses.entry(span.address) {
                Entry::Occupied(mut entry) => entry.get_mut().lend(occurrence),
                Entry::Vacant(entry) => drop(entry.insert(SpanAddress::new(occurrence))),
            }
        }
        self.outstanding = self.outstanding.saturating_add(missing);
        None
    }

    /// Records the spans of message `seq` of a stream as lent, to come back by that number. If
    /// every span is empty, nothing is lent and `hold` comes back at once.
    pub fn lend_numbered(&mut self, stream: u64, seq: u32, spans: &[Span], hold: K) -> Option<K> {
        let spans = spans.iter().filter(|span| span.length != 0).count();
        if spans == 0 {
            return Some(hold);
        }
        let age = self.count;
        self.count = age.wrapping_add(1);
        self.outstanding = self.outstanding.saturating_add(spans);
        let number = Number { stream, seq };
        self.numbered.lend(number, LentSpan { age, spans, hold });
        None
    }

    /// Takes back the lends with these numbers, and adds their `K` to `freed`.
    ///
    /// # Errors
    ///
    /// Rule F3: a number is not lent, or not as often. Earlier numbers of `seqs` are taken back.
    pub fn free_numbers(
        &mut self,
        stream: u64,
        seqs: &[u32],
        freed: &mut Vec<K>,
    ) -> Result<(), ProtocolError> {
        for seq in seqs {
            let (lent, others) = match self.numbered.take_back(Number { stream, seq: *seq }) {
                Back::Unknown => {
                    return Err(broken!(
                        "F3",
                        "return of the body of message {seq}, which is not lent"
                    ));
                }
                Back::Incomplete => continue,
                Back::One(lent) => (lent, Vec::new()),
                Back::All(lent, others) => (lent, others),
            };
            self.outstanding = self.outstanding.saturating_sub(lent.spans);
            freed.push(lent.hold);
            freed.extend(others);
        }
        Ok(())
    }

    /// Takes addresses back, and adds to `freed` the `K` of each lend that is complete again.
    ///
    /// # Errors
    ///
    /// Rule F3: an address is not lent, or not as often. Then nothing is taken back.
    pub fn free(&mut self, addresses: &[u64], freed: &mut Vec<K>) -> Result<(), ProtocolError> {
        // Rule F3: all or nothing, so the checks come first.
        for address in addresses {
            if !self.claim(*address) {
                return Err(self.refuse(*address, addresses));
            }
        }
        for address in addresses {
            self.take_back(*address, freed);
        }
        Ok(())
    }

    /// Claims an address for the current message. False: the address is not lent as often.
    fn claim(&mut self, address: u64) -> bool {
        let Some(held) = self.addresses.get_mut(&address) else {
            return false;
        };
        if held.claimed as usize >= held.missing() {
            return false;
        }
        held.claimed = held.claimed.saturating_add(1);
        true
    }

    fn refuse(&mut self, address: u64, message: &[u64]) -> ProtocolError {
        for address in message {
            if let Some(held) = self.addresses.get_mut(address) {
                held.claimed = 0;
            }
        }
        let missing = self.addresses.get(&address).map_or(0, SpanAddress::missing);
        let freed = message.iter().filter(|other| **other == address).count();
        broken!(
            "F3",
            "free of address {address:#x}, {freed} times, which is lent {missing} times: \
                 nothing is freed"
        )
    }

    fn take_back(&mut self, address: u64, freed: &mut Vec<K>) {
        let Entry::Occupied(mut entry) = self.addresses.entry(address) else {
            return;
        };
        self.outstanding = self.outstanding.saturating_sub(1);
        let held = entry.get_mut();
        held.claimed = held.claimed.saturating_sub(1);
        let first = held.lend;
        match &mut held.more {
            // Lengths differ, and a return does not say which occurrence it means: all must come
            // back first.
            Some(more) if more.mixed => {
                more.returned = more.returned.saturating_add(1);
                if held.missing() > 0 {
                    return;
                }
                let others = entry.remove().more.map(|more| more.others);
                self.settle(first, freed);
                for occurrence in others.into_iter().flatten() {
                    self.settle(occurrence.lend, freed);
                }
            }
            // Lengths are equal: any occurrence may go, so the oldest goes.
            more => {
                match more.as_mut().and_then(|more| more.others.pop_front()) {
                    Some(next) => (held.length, held.lend) = (next.length, next.lend),
                    None => drop(entry.remove()),
                }
                self.settle(first, freed);
            }
        }
    }

    /// Counts one returned occurrence of a lend.
    fn settle(&mut self, number: u32, freed: &mut Vec<K>) {
        let Some(slot) = self.lends.get_mut(number as usize) else {
            return;
        };
        if let Some(lend) = slot {
            lend.missing = lend.missing.saturating_sub(1);
        }
        if let Some(lend) = slot.take_if(|lend| lend.missing == 0) {
            self.free_numbers.push(number);
            freed.push(lend.hold);
        }
    }

    /// Lent spans that are not yet returned, including the spans that come back by number.
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Ends every lend (rule F4) and gives back the `K` of each, oldest lend first.
    pub fn drain(&mut self) -> Vec<K> {
        self.addresses.clear();
        self.free_numbers.clear();
        self.outstanding = 0;
        let lends = self.lends.drain(..).flatten();
        let mut holds: Vec<_> = lends.map(|lend| (lend.age, lend.hold)).collect();
        holds.extend(self.numbered.drain());
        holds.sort_by_key(|(age, _)| *age);
        holds.into_iter().map(|(_, hold)| hold).collect()
    }
}

#[cfg(test)]
#[path = "../tests/ledger.rs"]
mod tests;
