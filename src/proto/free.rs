//! Rule F5 at the client: addresses on their way back to the server.

use std::time::Duration;

use crate::proto::{Timestamp, encode_frees};

/// Longest time that an address waits (rule F5).
const LONGEST_WAIT: Duration = Duration::from_millis(10);
/// As many addresses as make a message worth sending before its time: the server then takes back
/// many batches at once, and they still are few enough to stay in its caches.
const WORTH_SENDING: usize = 1024;
/// Addresses are given back together with those returned this long after them: a consumer that is
/// slow enough for its batches to be large has them back soon, and the server's memory stays in use
/// where it is warm, and one that takes many small ones sends few messages.
const WORTH_WAITING: Duration = Duration::from_millis(1);
/// Most addresses in one message: 64 KiB of them.
const MOST_IN_ONE: usize = 8192;

/// Gathers the addresses that one connection no longer needs into few messages.
#[derive(Debug)]
pub struct FreeQueue {
    free_tag: u64,
    waiting: Vec<u64>,
    deadline: Option<Timestamp>,
    /// From when on the next address takes those that wait with it.
    ripe: Option<Timestamp>,
}

impl FreeQueue {
    /// An empty queue; `free_tag` is the `free_data` of the server's URI (rule U2).
    pub fn new(free_tag: u64) -> Self {
        Self {
            free_tag,
            waiting: Vec::new(),
            deadline: None,
            ripe: None,
        }
    }

    /// Adds addresses; 0, which stands for empty buffers, is left out (rule F3).
    pub fn push(&mut self, now: Timestamp, addresses: &[u64]) {
        self.waiting
            .extend(addresses.iter().copied().filter(|address| *address != 0));
        if self.deadline.is_none() && !self.waiting.is_empty() {
            // Rule F5: 10 ms from the first address on.
            self.deadline = Some(now.saturating_add(LONGEST_WAIT));
            self.ripe = Some(now.saturating_add(WORTH_WAITING));
        }
    }

    /// The next message that is due, as its tag and bytes: enough addresses are there, or the first
    /// of them has waited a while. To be called after [`push`](Self::push) until `None`, and at the
    /// [`deadline`](Self::deadline).
    pub fn poll(&mut self, now: Timestamp) -> Option<(u64, Vec<u8>)> {
        let due = self.ripe.is_some_and(|ripe| now >= ripe);
        if due || self.waiting.len() >= WORTH_SENDING {
            self.flush()
        } else {
            None
        }
    }

    /// The next message at once, whatever waits. Call until `None`.
    pub fn flush(&mut self) -> Option<(u64, Vec<u8>)> {
        if self.waiting.is_empty() {
            return None;
        }
        let rest = self.waiting.split_off(self.waiting.len().min(MOST_IN_ONE));
        let bytes = encode_frees(&self.waiting);
        self.waiting = rest;
        if self.waiting.is_empty() {
            self.deadline = None;
            self.ripe = None;
        }
        Some((self.free_tag, bytes))
    }

    /// When [`poll`](Self::poll) has something to give even if nothing is pushed.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.deadline
    }

    /// Addresses that wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether no address waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::decode_frees;

    const MS: u64 = 1_000_000;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * MS)
    }

    /// Rule F5: 10 ms after the first address, not after the last.
    #[test]
    fn no_address_waits_longer_than_10_ms() {
        let mut queue = FreeQueue::new(9);
        assert_eq!(queue.deadline(), None);
        queue.push(at(5), &[1]);
        assert_eq!(queue.poll(Timestamp::from_nanos(6 * MS - 1)), None);
        queue.push(at(14), &[2, 2]);
        assert_eq!(queue.deadline(), Some(at(15)));
        let (tag, bytes) = queue.poll(at(15)).unwrap();
        assert_eq!((tag, decode_frees(&bytes)), (9, Ok(vec![1, 2, 2])));
        assert_eq!((queue.poll(at(99)), queue.deadline()), (None, None));
    }

    /// Rule F3: the address of empty buffers is never freed, and never makes a message.
    #[test]
    fn address_0_is_never_sent() {
        let mut queue = FreeQueue::new(9);
        queue.push(at(0), &[0, 0]);
        assert_eq!((queue.deadline(), queue.flush()), (None, None));
        assert!(queue.is_empty());
    }

    /// Rule F5: many addresses go before their time; one message carries a bounded number, and
    /// what stays behind keeps its deadline.
    #[test]
    fn many_go_at_once_in_messages_of_bounded_size() {
        let mut queue = FreeQueue::new(9);
        queue.push(at(0), &vec![1; WORTH_SENDING - 1]);
        assert_eq!(queue.poll(at(0)), None);
        queue.push(at(0), &[1]);
        assert_eq!(queue.poll(at(0)).unwrap().1.len(), 8 * WORTH_SENDING);
        queue.push(at(0), &vec![1; MOST_IN_ONE + 3]);
        assert_eq!(queue.poll(at(0)).unwrap().1.len(), 8 * MOST_IN_ONE);
        assert_eq!((queue.poll(at(0)), queue.len()), (None, 3));
        assert_eq!(queue.poll(at(10)).unwrap().1.len(), 8 * 3);
    }

    /// An address that comes later than 1 ms takes along what waits: memory that was copied comes
    /// back while it is warm.
    #[test]
    fn a_late_address_takes_the_others_along() {
        let mut queue = FreeQueue::new(9);
        queue.push(at(0), &[1]);
        queue.push(Timestamp::from_nanos(MS - 1), &[2]);
        assert_eq!(queue.poll(Timestamp::from_nanos(MS - 1)), None);
        queue.push(at(1), &[3]);
        assert_eq!(queue.poll(at(1)).unwrap().1.len(), 8 * 3);
        // What comes next begins to wait anew.
        queue.push(at(2), &[4]);
        assert_eq!((queue.poll(at(2)), queue.deadline()), (None, Some(at(12))));
    }
}
