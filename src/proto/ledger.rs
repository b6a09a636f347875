//! Section F at the server: what was lent, until it came back.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use crate::proto::{ProtocolError, Span};

/// The lends of one connection. `K` keeps the memory of one lend alive; it comes out again once
/// every span of the lend has been returned.
#[derive(Debug)]
pub struct Ledger<K> {
    lends: HashMap<u64, Lend<K>>,
    next_lend: u64,
    addresses: HashMap<u64, Address>,
    outstanding: usize,
}

#[derive(Debug)]
struct Lend<K> {
    /// Occurrences not yet returned.
    missing: usize,
    hold: K,
}

/// The occurrences of one address in the lists sent, oldest first.
#[derive(Debug)]
struct Address {
    lent: VecDeque<Occurrence>,
    /// Whether lengths have differed since the address was last wholly returned.
    mixed: bool,
    /// Returns that could not be told apart, because lengths differ.
    returned: usize,
}

#[derive(Debug, Clone, Copy)]
struct Occurrence {
    lend: u64,
    length: u64,
}

impl Address {
    fn lend(&mut self, occurrence: Occurrence) {
        self.mixed |= self
            .lent
            .back()
            .is_some_and(|last| last.length != occurrence.length);
        self.lent.push_back(occurrence);
    }

    fn missing(&self) -> usize {
        self.lent.len().saturating_sub(self.returned)
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
            lends: HashMap::new(),
            next_lend: 0,
            addresses: HashMap::new(),
            outstanding: 0,
        }
    }

    /// Notes the spans of one message as lent. Where none has a length nothing is, and `hold` comes
    /// back at once.
    pub fn lend(&mut self, spans: &[Span], hold: K) -> Option<K> {
        let lend = self.next_lend;
        let mut missing = 0_usize;
        // Rule F3: a pair of length 0 is never freed.
        for span in spans.iter().filter(|span| span.length != 0) {
            let address = self
                .addresses
                .entry(span.address)
                .or_insert_with(|| Address {
                    lent: VecDeque::new(),
                    mixed: false,
                    returned: 0,
                });
            address.lend(Occurrence {
                lend,
                length: span.length,
            });
            missing = missing.saturating_add(1);
        }
        if missing == 0 {
            return Some(hold);
        }
        self.next_lend = lend.wrapping_add(1);
        self.outstanding = self.outstanding.saturating_add(missing);
        self.lends.insert(lend, Lend { missing, hold });
        None
    }

    /// Takes addresses back and adds to `freed` what keeps the lends alive that are whole again.
    ///
    /// # Errors
    ///
    /// Rule F3: an address was not lent, or not as often; then nothing is taken back.
    pub fn free(&mut self, addresses: &[u64], freed: &mut Vec<K>) -> Result<(), ProtocolError> {
        self.check(addresses)?;
        for address in addresses {
            self.take_back(*address, freed);
        }
        Ok(())
    }

    /// Rule F3: all or nothing, so everything is checked first.
    fn check(&self, addresses: &[u64]) -> Result<(), ProtocolError> {
        let mut sorted = addresses.to_vec();
        sorted.sort_unstable();
        for run in sorted.chunk_by(|left, right| left == right) {
            let address = run.first().copied().unwrap_or_default();
            let missing = self.addresses.get(&address).map_or(0, Address::missing);
            if run.len() > missing {
                return Err(ProtocolError::new(
                    "F3",
                    format!(
                        "free of address {address:#x}, {} times, which is lent {missing} times: \
                         nothing is freed",
                        run.len()
                    ),
                ));
            }
        }
        Ok(())
    }

    fn take_back(&mut self, address: u64, freed: &mut Vec<K>) {
        let Entry::Occupied(mut entry) = self.addresses.entry(address) else {
            return;
        };
        self.outstanding = self.outstanding.saturating_sub(1);
        let held = entry.get_mut();
        if !held.mixed {
            // Equal lengths: whichever is meant, the first lent may go first.
            let first = held.lent.pop_front();
            if held.lent.is_empty() {
                entry.remove();
            }
            if let Some(occurrence) = first {
                settle(&mut self.lends, occurrence.lend, freed);
            }
            return;
        }
        // Lengths differ, and a return does not say which occurrence it means: all must be back.
        held.returned = held.returned.saturating_add(1);
        if held.missing() == 0 {
            for occurrence in entry.remove().lent {
                settle(&mut self.lends, occurrence.lend, freed);
            }
        }
    }

    /// Occurrences of addresses that are lent now.
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Ends every lend (rule F4) and gives back what keeps their memory alive, oldest first.
    pub fn drain(&mut self) -> Vec<K> {
        self.addresses.clear();
        self.outstanding = 0;
        let mut lends: Vec<_> = self.lends.drain().collect();
        lends.sort_unstable_by_key(|(lend, _)| *lend);
        lends.into_iter().map(|(_, lend)| lend.hold).collect()
    }
}

/// One occurrence of `lend` is back.
fn settle<K>(lends: &mut HashMap<u64, Lend<K>>, lend: u64, freed: &mut Vec<K>) {
    let Entry::Occupied(mut entry) = lends.entry(lend) else {
        return;
    };
    entry.get_mut().missing = entry.get().missing.saturating_sub(1);
    if entry.get().missing == 0 {
        freed.push(entry.remove().hold);
    }
}

#[cfg(test)]
#[path = "tests/ledger.rs"]
mod tests;
