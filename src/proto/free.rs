//! Rule F5 at the client: lent bodies on their way back to the server.

use std::collections::VecDeque;
use std::time::Duration;

use crate::proto::{Control, Timestamp, encode_frees};

/// Longest wait of a return (rule F5).
const LONGEST_WAIT: Duration = Duration::from_millis(10);
/// This many addresses or numbers go back without a wait. The server then takes many batches back
/// together, and their data still fits in its caches.
const WORTH_SENDING: usize = 1024;
/// A return takes the waiting returns along if the first of them has waited this long. A slow
/// consumer has large batches, and the server gets their memory back while it is still in the
/// caches. A fast consumer with small batches sends few messages.
const WORTH_WAITING: Duration = Duration::from_millis(1);
/// If at least this many numbers wait, the clock is read for one number in this many.
const TIMED_EACH: usize = 16;
/// Most addresses or numbers in one message: 64 KiB of addresses.
const MOST_IN_ONE: usize = 8192;

/// The way in which one lent body goes back to the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Return {
    /// By the addresses of its list (rule F1), without the address 0 of empty buffers (rule F3).
    Addresses(Vec<u64>),
    /// By the number of its message, if the server takes numbers ([`Control::Return`]).
    Number {
        /// Number of the stream on its connection (rule S2).
        number: u32,
        /// The stream: [`Request::mark`](crate::proto::Request::mark).
        stream: u64,
        /// Number of the message.
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
    Control {
        /// Number of its stream on the connection (rule S2).
        number: u32,
        /// The message.
        bytes: Vec<u8>,
    },
}

/// Gathers the returns of one connection into few messages.
#[derive(Debug)]
pub struct FreeQueue {
    free_tag: u64,
    addresses: Vec<u64>,
    /// The number of the stream, the stream, and the number of each message.
    numbers: VecDeque<(u32, u64, u32)>,
    deadline: Option<Timestamp>,
    /// From this time on, the next return takes the waiting returns along.
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

    /// Whether [`push`](Self::push) and [`is_due`](Self::is_due) need the present time. Otherwise
    /// any earlier time is enough: to read the clock for each small batch is slow, and many numbers
    /// come back long before the first number has waited too long. Addresses do not tell the number
    /// of batches, so addresses always need the time.
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
            Return::Number {
                number,
                stream,
                seq,
            } => self.numbers.push_back((*number, *stream, *seq)),
        }
        if self.deadline.is_none() && !self.is_empty() {
            // Rule F5: 10 ms from the first address on.
            self.deadline = Some(now.saturating_add(LONGEST_WAIT));
            self.ripe = Some(now.saturating_add(WORTH_WAITING));
        }
    }

    /// The next message that is due: enough returns wait, or the first return has waited long
    /// enough. Call this after [`push`](Self::push) until `None`, and at the
    /// [`deadline`](Self::deadline).
    pub fn poll(&mut self, now: Timestamp) -> Option<FreeMessage> {
        if self.is_due(now) { self.flush() } else { None }
    }

    /// Whether [`poll`](Self::poll) has a message.
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.ripe.is_some_and(|ripe| now >= ripe) || self.len() >= WORTH_SENDING
    }

    /// The next message at once, due or not. Call this until `None`.
    pub fn flush(&mut self) -> Option<FreeMessage> {
        let message = self.next_numbers().or_else(|| self.next_addresses());
        if self.is_empty() {
            self.deadline = None;
            self.ripe = None;
        }
        message
    }

    /// The first waiting numbers, as far as they belong to one stream.
    fn next_numbers(&mut self) -> Option<FreeMessage> {
        let (number, stream, _) = *self.numbers.front()?;
        let is_other = |(_, of, _): &(u32, u64, u32)| *of != stream;
        let others = self.numbers.iter().position(is_other);
        let count = others.unwrap_or(self.numbers.len()).min(MOST_IN_ONE);
        let seqs = self.numbers.drain(..count).map(|(.., seq)| seq).collect();
        let bytes = Control::Return { stream, seqs }.encode();
        Some(FreeMessage::Control { number, bytes })
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

    /// The time at which [`poll`](Self::poll) has a message even without a further `push`.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.deadline
    }

    /// Number of waiting addresses and numbers.
    pub fn len(&self) -> usize {
        self.addresses.len().saturating_add(self.numbers.len())
    }

    /// Whether no return waits.
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

    /// A message of the stream `stream`, whose number is one more.
    fn number(stream: u64, seq: u32) -> Return {
        Return::Number {
            number: u32::try_from(stream).unwrap() + 1,
            stream,
            seq,
        }
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

    /// Rule F5: many addresses go before their time. One message carries a limited number, and the
    /// rest keeps its deadline.
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

    /// Rule F5: returns wait for each other only for a moment. A later return sends itself and all
    /// that wait, so that memory comes back while the caches still have it.
    #[test]
    fn a_late_address_takes_the_others_along() {
        let mut queue = FreeQueue::new(9);
        queue.push(at(0), &addresses(&[1]));
        queue.push(Timestamp::from_nanos(MS - 1), &addresses(&[2]));
        assert_eq!(queue.poll(Timestamp::from_nanos(MS - 1)), None);
        queue.push(at(1), &addresses(&[3]));
        assert_eq!(list(queue.poll(at(1))).len(), 8 * 3);
        // The next return starts a new wait.
        queue.push(at(2), &addresses(&[4]));
        assert_eq!((queue.poll(at(2)), queue.deadline()), (None, Some(at(12))));
    }

    /// A consumer that returns one body at a time reads the clock for each. If many numbers wait,
    /// one number in 16 reads the clock. The wait starts with the first number, and a message
    /// leaves at most 16 numbers late.
    #[test]
    fn the_clock_is_read_for_few_of_many() {
        let mut queue = FreeQueue::new(9);
        let mut read = 0;
        for seq in 0..1000 {
            read += u32::from(queue.needs_time());
            assert!(queue.needs_time() || seq >= 16);
            let now = if queue.needs_time() { at(5) } else { at(0) };
            queue.push(now, &number(7, seq));
            assert!(!queue.is_due(now));
        }
        assert_eq!((read, queue.deadline()), (16 + 62, Some(at(15))));
        assert!(!queue.needs_time());
        // Twenty addresses may be a single batch of a slow consumer, so the next return takes them
        // along.
        queue.push(at(0), &addresses(&[1; 20]));
        assert!(queue.needs_time() && queue.is_due(at(6)));
    }

    /// Numbers of one stream share a message. Another stream has its own message.
    #[test]
    fn numbers_go_by_stream() {
        let mut queue = FreeQueue::new(9);
        for (stream, seq) in [(7, 1), (7, 3), (8, 2)] {
            queue.push(at(0), &number(stream, seq));
        }
        assert_eq!((queue.poll(at(0)), queue.deadline()), (None, Some(at(10))));
        let returned = |stream: u64, seqs: &[u32]| {
            let seqs = seqs.to_vec();
            let bytes = Control::Return { stream, seqs }.encode();
            let number = u32::try_from(stream).unwrap() + 1;
            Some(FreeMessage::Control { number, bytes })
        };
        assert_eq!(queue.poll(at(10)), returned(7, &[1, 3]));
        assert_eq!(queue.flush(), returned(8, &[2]));
        assert_eq!((queue.flush(), queue.deadline()), (None, None));
    }
}
