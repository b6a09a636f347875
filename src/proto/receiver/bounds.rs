//! Bounds on the memory of one message of a peer, and of messages that wait for the consumer.

use super::Receiver;
use crate::error::Error;
use crate::proto::{Header, HeaderKind};

/// Memory of a message that waits for the consumer, besides the bytes of its header and body.
const EACH: u64 = 256;

/// Limits for messages, which the driver knows once it knows the peer.
#[derive(Debug, Clone, Copy)]
pub(super) struct MessageBounds {
    /// Longest body, packed or lent.
    body: u64,
    /// Most bytes of headers that wait for the consumer.
    headers: u64,
    /// Bytes of the headers that wait now.
    waiting: u64,
}

/// Least limit for the headers that wait. It admits a full window of batches with many columns.
const LEAST_HEADERS: u64 = 64 << 20;

impl Default for MessageBounds {
    fn default() -> Self {
        Self {
            body: u64::MAX,
            headers: u64::MAX,
            waiting: 0,
        }
    }
}

impl MessageBounds {
    /// Checks a header that has come.
    pub(super) fn ensure_body(&self, seq: u32, header: &Header) -> Result<(), Error> {
        if header.body_len() <= self.body {
            return Ok(());
        }
        Err(self.past_body(seq, header))
    }

    #[cold]
    fn past_body(&self, seq: u32, header: &Header) -> Error {
        let (bytes, most) = (header.body_len(), self.body);
        let what = match header.kind() {
            HeaderKind::Dictionary => "dictionary",
            HeaderKind::RecordBatch | HeaderKind::Schema => "batch",
        };
        Error::out_of_memory(format!(
            "the {what} of message {seq} has a body of {bytes} bytes, past the limit for a body \
             ({most} bytes): raise message_limit_bytes (--max-message), a body may have 32 times \
             as many, or have the sender send smaller batches"
        ))
    }

    /// A message waits for its body or for the consumer from now on.
    pub(super) fn waits(&mut self, header: &Header) -> Result<(), Error> {
        let cost = cost(header);
        self.waiting = self.waiting.saturating_add(cost);
        // One message may always wait.
        if self.waiting <= self.headers || self.waiting == cost {
            return Ok(());
        }
        Err(self.past_headers())
    }

    #[cold]
    fn past_headers(&self) -> Error {
        Error::out_of_memory(format!(
            "the headers of messages that wait for the consumer take {} bytes, past their limit \
             ({} bytes): raise message_limit_bytes (--max-message) if the sender is trusted",
            self.waiting, self.headers
        ))
    }

    /// Whether the headers that wait take more than half of the least limit.
    pub(super) fn is_half_full(&self) -> bool {
        self.waiting > LEAST_HEADERS / 2
    }

    /// Nothing waits any more.
    pub(super) fn forget(&mut self) {
        self.waiting = 0;
    }

    /// The consumer takes a message.
    pub(super) fn taken(&mut self, header: &Header) {
        self.waiting = self.waiting.saturating_sub(cost(header));
    }
}

fn cost(header: &Header) -> u64 {
    EACH.saturating_add(header.bytes().len() as u64)
}

impl<B> Receiver<B> {
    /// Limits each body to `body` bytes, and the headers that wait for the consumer to `headers`
    /// bytes, or 64 MiB if that is more. Without this call nothing is limited.
    ///
    /// A stream that exceeds a limit fails with `OutOfMemory` as soon as the header has come.
    pub fn limit_messages(&mut self, body: u64, headers: u64) {
        self.bounds.body = body;
        self.bounds.headers = headers.max(LEAST_HEADERS);
    }
}
