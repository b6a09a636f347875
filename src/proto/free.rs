//! Rule F5 at the client: lent bodies on their way back to the server.

use std::collections::VecDeque;
use std::time::Duration;

use crate::proto::{Control, Timestamp, encode_frees};

/// Longest time that an address waits (rule F5).
const LONGEST_WAIT: Duration = Duration::from_millis(10);
/// As many addresses or numbers as make a message worth sending before its time: the server then
/// takes back many batches at once, and they still are few enough to stay in its caches.
const WORTH_SENDING: usize = 1024;
/// Addresses are given back together with those returned this long after them: a consumer that is
/// slow enough for its batches to be large has them back soon, and the server's memory stays in use
/// where it is warm, and one that takes many small ones sends few messages.
const WORTH_WAITING: Duration = Duration::from_millis(1);
/// Once as many numbers wait, the clock is read for one in so many.
const TIMED_EACH: usize = 16;
/// Most addresses or numbers in one message: 64 KiB of addresses.
const MOST_IN_ONE: usize = 8192;

/// How one lent body goes back to the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Return {
    /// By the addresses of its list (rule F1); 0, which stands for empty buffers, is left out (rule
    /// F3).
    Addresses(Vec<u64>),
    /// By the number of its message, where the server takes that ([`Control::Return`]).
    Number {
        /// Of which stream: [`Request::mark`](crate::proto::Request::mark).
        stream: u64,
        /// The number.
        seq: u32,
    },
}

/// A message that gives lent bodies back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FreeMessage {
    /// A free list (rule F1).
    Tagged {
        /// The `free_data` of the server's URI.
        tag: u64,
        /// The list.
        bytes: Vec<u8>,
    },
    /// A control message.
    Control(Vec<u8>),
}

/// Gathers what one connection no longer needs into few messages.
#[derive(Debug)]
pub struct FreeQueue {
    free_tag: u64,
    addresses: Vec<u64>,
    /// Streams and numbers.
    numbers: VecDeque<(u64, u32)>,
    deadline: Option<Timestamp>,
    /// From when on the next one takes those that wait with it.
    ripe: Option<Timestamp>,
}

impl FreeQueue {
    /// An empty queue; `free_tag` is the `free_data` of the server's URI (rule U2).
    pub fn new(free_tag: u64) -> Self {
        Self {
            free_tag,
            addresses: Vec::new(),
            numbers: VecDeque::new(),
            deadline: None,
            ripe: None,
        }
    }

    /// Whether [`push`](Self::push) and [`is_due`](Self::is_due) are to be told the time now, or
    /// may be told any earlier one: a consumer of small batches would feel a look at the clock for
    /// each, and has given back so many numbers long before the first of them has waited for a
    /// while. Addresses say nothing of how many batches there were.
    pub fn needs_time(&self) -> bool {
        let numbers = self.numbers.len();
        !self.addresses.is_empty() || numbers < TIMED_EACH || numbers.is_multiple_of(TIMED_EACH)
    }

    /// Adds a body.
    pub fn push(&mut self, now: Timestamp, body: &Return) {
        match body {
            Return::Addresses(addresses) => {
                let named = addresses.iter().copied().filter(|address| *address != 0);
                self.addresses.extend(named);
            }
            Return::Number { stream, seq } => self.numbers.push_back((*stream, *seq)),
        }
        if self.deadline.is_none() && !self.is_empty() {
            // Rule F5: 10 ms from the first address on.
            self.deadline = Some(now.saturating_add(LONGEST_WAIT));
            self.ripe = Some(now.saturating_add(WORTH_WAITING));
        }
    }

    /// The next message that is due: enough addresses are there, or the first of them has waited a
    /// while. To be called after [`push`](Self::push) until `None`, and at the
    /// [`deadline`](Self::deadline).
    pub fn poll(&mut self, now: Timestamp) -> Option<FreeMessage> {
        if self.is_due(now) { self.flush() } else { None }
    }

    /// Whether [`poll`](Self::poll) has something to give.
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.ripe.is_some_and(|ripe| now >= ripe) || self.len() >= WORTH_SENDING
    }

    /// The next message at once, whatever waits. Call until `None`.
    pub fn flush(&mut self) -> Option<FreeMessage> {
        let message = self.next_numbers().or_else(|| self.next_addresses());
        if self.is_empty() {
            self.deadline = None;
            self.ripe = None;
        }
        message
    }

    /// The numbers of one stream that came one after the other.
    fn next_numbers(&mut self) -> Option<FreeMessage> {
        let (stream, _) = *self.numbers.front()?;
        let others = self.numbers.iter().position(|(of, _)| *of != stream);
        let count = others.unwrap_or(self.numbers.len()).min(MOST_IN_ONE);
        let seqs = self.numbers.drain(..count).map(|(_, seq)| seq).collect();
        let bytes = Control::Return { stream, seqs }.encode();
        Some(FreeMessage::Control(bytes))
    }

    fn next_addresses(&mut self) -> Option<FreeMessage> {
        if self.addresses.is_empty() {
            return None;
        }
        let count = self.addresses.len().min(MOST_IN_ONE);
        let rest = self.addresses.split_off(count);
        let bytes = encode_frees(&self.addresses);
        self.addresses = rest;
        let tag = self.free_tag;
        Some(FreeMessage::Tagged { tag, bytes })
    }

    /// When [`poll`](Self::poll) has something to give even if nothing is pushed.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.deadline
    }

    /// Addresses and numbers that wait.
    pub fn len(&self) -> usize {
        self.addresses.len().saturating_add(self.numbers.len())
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::decode_frees;

    const MS: u64 = 1_000_000;

    fn addresses(addresses: &[u64]) -> Return {
        Return::Addresses(addresses.to_vec())
    }

    /// The bytes of a free list.
    fn list(message: Option<FreeMessage>) -> Vec<u8> {
        match message.unwrap() {
            FreeMessage::Tagged { tag: 9, bytes } => bytes,
            other => panic!("{other:?}"),
        }
    }

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * MS)
    }

    /// Rule F5: 10 ms after the first address, not after the last.
    #[test]
    fn no_address_waits_longer_than_10_ms() {
        let mut queue = FreeQueue::new(9);
        assert_eq!(queue.deadline(), None);
        queue.push(at(5), &addresses(&[1]));
        assert_eq!(queue.poll(Timestamp::from_nanos(6 * MS - 1)), None);
        queue.push(at(14), &addresses(&[2, 2]));
        assert_eq!(queue.deadline(), Some(at(15)));
        let bytes = list(queue.poll(at(15)));
        assert_eq!(decode_frees(&bytes), Ok(vec![1, 2, 2]));
        assert_eq!((queue.poll(at(99)), queue.deadline()), (None, None));
    }

    /// Rule F3: the address of empty buffers is never freed, and never makes a message.
    #[test]
    fn address_0_is_never_sent() {
        let mut queue = FreeQueue::new(9);
        queue.push(at(0), &addresses(&[0, 0]));
        assert_eq!((queue.deadline(), queue.flush()), (None, None));
        assert!(queue.is_empty());
    }

    /// Rule F5: many addresses go before their time; one message carries a bounded number, and
    /// what stays behind keeps its deadline.
    #[test]
    fn many_go_at_once_in_messages_of_bounded_size() {
        let mut queue = FreeQueue::new(9);
        queue.push(at(0), &addresses(&vec![1; WORTH_SENDING - 1]));
        assert_eq!(queue.poll(at(0)), None);
        queue.push(at(0), &addresses(&[1]));
        assert_eq!(list(queue.poll(at(0))).len(), 8 * WORTH_SENDING);
        queue.push(at(0), &addresses(&vec![1; MOST_IN_ONE + 3]));
        assert_eq!(list(queue.poll(at(0))).len(), 8 * MOST_IN_ONE);
        assert_eq!((queue.poll(at(0)), queue.len()), (None, 3));
        assert_eq!(list(queue.poll(at(10))).len(), 8 * 3);
    }

    /// An address that comes later than 1 ms takes along what waits: memory that was copied comes
    /// back while it is warm.
    #[test]
    fn a_late_address_takes_the_others_along() {
        let mut queue = FreeQueue::new(9);
        queue.push(at(0), &addresses(&[1]));
        queue.push(Timestamp::from_nanos(MS - 1), &addresses(&[2]));
        assert_eq!(queue.poll(Timestamp::from_nanos(MS - 1)), None);
        queue.push(at(1), &addresses(&[3]));
        assert_eq!(list(queue.poll(at(1))).len(), 8 * 3);
        // What comes next begins to wait anew.
        queue.push(at(2), &addresses(&[4]));
        assert_eq!((queue.poll(at(2)), queue.deadline()), (None, Some(at(12))));
    }

    /// Who gives one back at a time has the clock read for each, and who gives many back for one in
    /// sixteen: the first of them begins to wait when it came, and those behind it are taken along
    /// within 16 of what is due.
    #[test]
    fn the_clock_is_read_for_few_of_many() {
        let mut queue = FreeQueue::new(9);
        let mut read = 0;
        for seq in 0..1000 {
            read += u32::from(queue.needs_time());
            assert!(queue.needs_time() || seq >= 16);
            let now = if queue.needs_time() { at(5) } else { at(0) };
            queue.push(now, &Return::Number { stream: 7, seq });
            assert!(!queue.is_due(now));
        }
        assert_eq!((read, queue.deadline()), (16 + 62, Some(at(15))));
        assert!(!queue.needs_time());
        // Twenty addresses may be one batch of a slow consumer, so that the next one takes them
        // along.
        queue.push(at(0), &addresses(&[1; 20]));
        assert!(queue.needs_time() && queue.is_due(at(6)));
    }

    /// Numbers of one stream share a message, and are told from those of another.
    #[test]
    fn numbers_go_by_stream() {
        let mut queue = FreeQueue::new(9);
        for (stream, seq) in [(7, 1), (7, 3), (8, 2)] {
            queue.push(at(0), &Return::Number { stream, seq });
        }
        assert_eq!((queue.poll(at(0)), queue.deadline()), (None, Some(at(10))));
        let returned = |stream: u64, seqs: &[u32]| {
            let seqs = seqs.to_vec();
            Some(FreeMessage::Control(
                Control::Return { stream, seqs }.encode(),
            ))
        };
        assert_eq!(queue.poll(at(10)), returned(7, &[1, 3]));
        assert_eq!(queue.flush(), returned(8, &[2]));
        assert_eq!((queue.flush(), queue.deadline()), (None, None));
    }
}
