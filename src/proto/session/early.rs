//! Messages that nobody reads yet: either their stream has not begun (rules Q3, Q11), or the stream
//! belongs to another session.

use std::collections::VecDeque;

use super::StreamMessage;
use crate::proto::Bytes;

/// Most messages that are kept.
const MOST_EARLY: usize = 1024;

/// Most bytes of messages other than bodies. The message that crosses this limit is kept too.
const MOST_EARLY_BYTES: u64 = 64 << 20;

#[derive(Debug)]
pub(super) struct EarlyMessages<B> {
    messages: VecDeque<StreamMessage<Bytes, B>>,
    body_bytes: u64,
    other_bytes: u64,
    /// Most bytes of bodies. The body that crosses this limit is kept too.
    pub(super) body_limit: u64,
}

impl<B> EarlyMessages<B> {
    pub(super) fn new() -> Self {
        Self {
            messages: VecDeque::new(),
            body_bytes: 0,
            other_bytes: 0,
            body_limit: 0,
        }
    }

    /// Keeps a message that takes `bytes` of memory.
    pub(super) fn push(&mut self, message: StreamMessage<&[u8], B>, bytes: u64) {
        let count = match message {
            StreamMessage::Body { .. } => &mut self.body_bytes,
            _ => &mut self.other_bytes,
        };
        *count = count.saturating_add(bytes);
        self.messages.push_back(kept(message));
    }

    /// Takes all messages out.
    pub(super) fn take(&mut self) -> VecDeque<StreamMessage<Bytes, B>> {
        (self.body_bytes, self.other_bytes) = (0, 0);
        std::mem::take(&mut self.messages)
    }

    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether the kept messages are so many that nothing more is read (rule Q11).
    pub(super) fn is_full(&self) -> bool {
        self.body_bytes > self.body_limit
            || self.other_bytes > MOST_EARLY_BYTES
            || self.messages.len() >= MOST_EARLY
    }
}

/// A copy of the message that owns its bytes.
fn kept<B>(message: StreamMessage<&[u8], B>) -> StreamMessage<Bytes, B> {
    match message {
        StreamMessage::Metadata(bytes) => StreamMessage::Metadata(bytes.into()),
        StreamMessage::Tagged { tag, bytes } => StreamMessage::Tagged {
            tag,
            bytes: bytes.into(),
        },
        StreamMessage::Body { seq, len, memory } => StreamMessage::Body { seq, len, memory },
        StreamMessage::Control(control) => StreamMessage::Control(control),
    }
}
