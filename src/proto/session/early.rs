//! Messages that come before anybody reads the stream to which they belong (rules Q3, Q11).

use std::collections::VecDeque;

use crate::proto::Control;

/// Most messages.
const MOST_EARLY: usize = 1024;

/// Most bytes of messages that are no bodies, and one message more.
const MOST_EARLY_BYTES: u64 = 64 << 20;

/// A message that waits for the reader of its stream.
#[derive(Debug)]
pub struct Early<M> {
    /// As the transport has it.
    pub message: M,
    /// The same, if it is a control message.
    pub control: Option<Control>,
    held: Held,
}

/// Memory that a message takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// Bytes of a packed body, which the window bounds.
    Body(u64),
    /// Bytes of another message, which uses no credit.
    Other(u64),
}

#[derive(Debug)]
pub(super) struct EarlyMessages<M> {
    messages: VecDeque<Early<M>>,
    body_bytes: u64,
    other_bytes: u64,
    /// Most bytes of bodies, and one body more.
    pub(super) body_limit: u64,
}

impl<M> EarlyMessages<M> {
    pub(super) fn new() -> Self {
        Self {
            messages: VecDeque::new(),
            body_bytes: 0,
            other_bytes: 0,
            body_limit: 0,
        }
    }

    pub(super) fn push(&mut self, message: M, control: Option<Control>, held: Held) {
        let (count, bytes) = self.count(held);
        *count = count.saturating_add(bytes);
        self.messages.push_back(Early {
            message,
            control,
            held,
        });
    }

    pub(super) fn pop(&mut self) -> Option<Early<M>> {
        let early = self.messages.pop_front()?;
        let (count, bytes) = self.count(early.held);
        *count = count.saturating_sub(bytes);
        Some(early)
    }

    fn count(&mut self, held: Held) -> (&mut u64, u64) {
        match held {
            Held::Body(bytes) => (&mut self.body_bytes, bytes),
            Held::Other(bytes) => (&mut self.other_bytes, bytes),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether so much waits that nothing more is read (rule Q11).
    pub(super) fn is_full(&self) -> bool {
        self.body_bytes > self.body_limit
            || self.other_bytes > MOST_EARLY_BYTES
            || self.messages.len() >= MOST_EARLY
    }

    pub(super) fn clear(&mut self) {
        self.messages.clear();
        (self.body_bytes, self.other_bytes) = (0, 0);
    }
}
