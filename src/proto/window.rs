//! Pairs headers with bodies and sorts the messages, whatever order they arrive in.

use std::collections::VecDeque;

use crate::proto::{AddressList, Header, HeaderKind, ProtocolError};

/// Limit for a message's number ahead of the oldest incomplete message. Peers that obey their
/// credit, and drivers that obey [`Receiver::may_read`](super::Receiver::may_read), stay far below.
pub(crate) const REACH: u32 = 1 << 16;
/// Limit for the bytes of headers that wait for earlier messages or for their bodies.
const WAITING_HEADER_BYTES: u64 = 256 << 20;

/// A body that has arrived.
#[derive(Debug)]
pub(crate) enum Arrived<B> {
    Packed { len: u64, memory: B },
    List(AddressList),
}

impl<B> Arrived<B> {
    /// Bytes that the body holds at this side.
    fn held(&self) -> u64 {
        match self {
            Self::Packed { len, .. } => *len,
            Self::List(list) => (list.spans.len() as u64).saturating_mul(16),
        }
    }
}

#[derive(Debug)]
struct MessageSlot<B> {
    header: Option<Header>,
    body: Option<Arrived<B>>,
}

impl<B> MessageSlot<B> {
    fn is_complete(&self) -> bool {
        // Rule D1: every message except the schema has a body.
        self.header
            .as_ref()
            .is_some_and(|header| header.kind() == HeaderKind::Schema || self.body.is_some())
    }
}

/// The messages that have arrived in part, or before earlier messages.
#[derive(Debug)]
pub(crate) struct Window<B> {
    /// Number of the oldest incomplete message, which has the first slot.
    base: u32,
    slots: VecDeque<MessageSlot<B>>,
    /// Whether `pop` has given the schema.
    started: bool,
    /// Number of the end of stream, if seen.
    end: Option<u32>,
    header_bytes: u64,
    headers: u32,
    bodies: u32,
    /// Bytes of bodies whose headers have not come, and the limit for them.
    loose_bytes: u64,
    most_loose_bytes: u64,
}

impl<B> Window<B> {
    /// An empty window; the schema has number `first`.
    pub(crate) fn new(first: u32, most_loose_bytes: u64) -> Self {
        Self {
            base: first,
            slots: VecDeque::new(),
            started: false,
            end: None,
            header_bytes: 0,
            headers: 0,
            bodies: 0,
            loose_bytes: 0,
            most_loose_bytes,
        }
    }

    /// Distance of `seq` from the oldest incomplete message; `None` if message `seq` is complete.
    pub(crate) fn ahead(&self, seq: u32) -> Option<u32> {
        // Rule M4: numbers wrap, so half of them lie ahead and half behind.
        Some(seq.wrapping_sub(self.base)).filter(|ahead| *ahead < 1 << 31)
    }

    /// The slot of a message, after a check of its number.
    fn index(&self, seq: u32, what: &str) -> Result<usize, ProtocolError> {
        let Some(ahead) = self.ahead(seq) else {
            return Err(broken!(
                "M4",
                "{what} of message {seq} after that message was complete"
            ));
        };
        // Rules M5, M6.
        if let Some(end) = self.end
            && self.ahead(end).is_none_or(|end| ahead >= end)
        {
            return Err(broken!(
                "M5",
                "{what} of message {seq} in a stream that ends at {end}"
            ));
        }
        if ahead >= REACH {
            return Err(broken!(
                "M6",
                "{what} of message {seq} while message {} is not complete: the peer runs ahead",
                self.base
            ));
        }
        Ok(ahead as usize)
    }

    fn slot(&mut self, index: usize) -> Option<&mut MessageSlot<B>> {
        while self.slots.len() <= index {
            self.slots.push_back(MessageSlot {
                header: None,
                body: None,
            });
        }
        self.slots.get_mut(index)
    }

    /// Adds a header. Returns whether the body of the message has yet to come.
    pub(crate) fn put_header(&mut self, seq: u32, header: Header) -> Result<bool, ProtocolError> {
        let index = self.index(seq, "header")?;
        // Rule M4: the first message is the schema, and no other message is.
        let first = !self.started && index == 0;
        if first != (header.kind() == HeaderKind::Schema) {
            let what = if first {
                "is not the schema"
            } else {
                "is another schema"
            };
            return Err(broken!("M4", "message {seq} {what}"));
        }
        if self.headers > 0 && self.header_bytes > WAITING_HEADER_BYTES {
            return Err(broken!(
                "M6",
                "more than {WAITING_HEADER_BYTES} bytes of headers wait for their bodies"
            ));
        }
        let len = header.bytes().len() as u64;
        let Some(slot) = self.slot(index) else {
            return Ok(false);
        };
        if slot.header.is_some() {
            return Err(broken!("M4", "two headers of message {seq}"));
        }
        if let Some(body) = &slot.body {
            matches(seq, &header, body)?;
        }
        let expects = header.kind() != HeaderKind::Schema && slot.body.is_none();
        let found = slot.body.as_ref().map_or(0, Arrived::held);
        slot.header = Some(header);
        self.loose_bytes = self.loose_bytes.saturating_sub(found);
        self.header_bytes = self.header_bytes.saturating_add(len);
        self.headers = self.headers.saturating_add(1);
        Ok(expects)
    }

    /// Adds a body.
    pub(crate) fn put_body(&mut self, seq: u32, body: Arrived<B>) -> Result<(), ProtocolError> {
        let index = self.index(seq, "body")?;
        let held = body.held();
        let too_many =
            self.loose_bytes > 0 && self.loose_bytes.saturating_add(held) > self.most_loose_bytes;
        let most = self.most_loose_bytes;
        let Some(slot) = self.slot(index) else {
            return Ok(());
        };
        if slot.body.is_some() {
            return Err(broken!("D1", "two bodies of message {seq}"));
        }
        match &slot.header {
            Some(header) => matches(seq, header, &body)?,
            None if too_many => {
                return Err(broken!(
                    "D5",
                    "more than {most} bytes of bodies came before their headers"
                ));
            }
            None => {}
        }
        let loose = slot.header.is_none();
        slot.body = Some(body);
        self.bodies = self.bodies.saturating_add(1);
        if loose {
            self.loose_bytes = self.loose_bytes.saturating_add(held);
        }
        Ok(())
    }

    /// Notes the end of stream.
    pub(crate) fn put_end(&mut self, seq: u32) -> Result<(), ProtocolError> {
        if let Some(end) = self.end {
            return Err(broken!("M5", "two ends of stream, at {end} and at {seq}"));
        }
        // Rule M5: the number of the end follows the number of the last message.
        let ahead = self.ahead(seq).map(|ahead| ahead as usize);
        if ahead.is_none_or(|ahead| ahead < self.occupied()) {
            return Err(broken!(
                "M5",
                "end of stream at {seq}, before messages that have come"
            ));
        }
        if ahead.is_some_and(|ahead| ahead >= REACH as usize) {
            return Err(broken!(
                "M6",
                "end of stream at {seq} while message {} is not complete",
                self.base
            ));
        }
        if seq == self.base && !self.started {
            return Err(broken!("M4", "end of stream in place of the schema"));
        }
        self.end = Some(seq);
        Ok(())
    }

    /// Number of slots up to the last slot that is not empty.
    fn occupied(&self) -> usize {
        let empty = self
            .slots
            .iter()
            .rev()
            .take_while(|slot| slot.header.is_none() && slot.body.is_none());
        self.slots.len().saturating_sub(empty.count())
    }

    /// Takes the oldest message out, if the message is complete. The schema has no body.
    pub(crate) fn pop(&mut self) -> Option<(u32, Header, Option<Arrived<B>>)> {
        if !self.slots.front()?.is_complete() {
            return None;
        }
        let MessageSlot {
            header: Some(header),
            body,
        } = self.slots.pop_front()?
        else {
            return None;
        };
        let seq = self.base;
        self.base = seq.wrapping_add(1);
        self.started = true;
        self.header_bytes = self
            .header_bytes
            .saturating_sub(header.bytes().len() as u64);
        self.headers = self.headers.saturating_sub(1);
        if body.is_some() {
            self.bodies = self.bodies.saturating_sub(1);
        }
        Some((seq, header, body))
    }

    /// Whether the end of stream has arrived.
    pub(crate) fn end_seen(&self) -> bool {
        self.end.is_some()
    }

    /// Whether the stream has ended and no message before its end is missing (rule M6).
    pub(crate) fn is_complete(&self) -> bool {
        self.end == Some(self.base)
    }

    /// The number of the oldest incomplete message.
    pub(crate) fn base(&self) -> u32 {
        self.base
    }

    /// Whether the oldest incomplete message lacks its header, and whether it lacks its body.
    pub(crate) fn awaits(&self) -> (bool, bool) {
        let front = self.slots.front();
        let header = front.and_then(|slot| slot.header.as_ref());
        (
            header.is_none(),
            self.started && front.is_none_or(|slot| slot.body.is_none()),
        )
    }

    /// Surplus of headers over bodies, surplus of bodies over headers, and the bytes of the bodies
    /// whose headers have not come.
    pub(crate) fn lead(&self) -> (u32, u32, u64) {
        (
            self.headers.saturating_sub(self.bodies),
            self.bodies.saturating_sub(self.headers),
            self.loose_bytes,
        )
    }

    /// Drops all messages from number `from` on. Returns their bodies with their numbers.
    pub(crate) fn cut(&mut self, from: u32) -> Vec<(u32, Arrived<B>)> {
        let keep = self.ahead(from).map_or(0, |ahead| ahead as usize);
        let keep = keep.min(self.slots.len());
        let dropped = self.slots.split_off(keep);
        let mut bodies = Vec::new();
        // Rule M4: numbers wrap. There are fewer slots than numbers.
        let first = self
            .base
            .wrapping_add(u32::try_from(keep).unwrap_or(u32::MAX));
        let numbers = std::iter::successors(Some(first), |seq| Some(seq.wrapping_add(1)));
        for (seq, slot) in numbers.zip(dropped) {
            if let Some(header) = &slot.header {
                self.headers = self.headers.saturating_sub(1);
                self.header_bytes = self
                    .header_bytes
                    .saturating_sub(header.bytes().len() as u64);
            }
            if let Some(body) = slot.body {
                self.bodies = self.bodies.saturating_sub(1);
                if slot.header.is_none() {
                    self.loose_bytes = self.loose_bytes.saturating_sub(body.held());
                }
                bodies.push((seq, body));
            }
        }
        bodies
    }
}

/// Checks a body against its header.
fn matches<B>(seq: u32, header: &Header, body: &Arrived<B>) -> Result<(), ProtocolError> {
    if header.kind() == HeaderKind::Schema {
        return Err(broken!("D1", "body of message {seq}, the schema"));
    }
    match body {
        Arrived::Packed { len, .. } if *len != header.body_len() => Err(broken!(
            "D3",
            "packed body of message {seq} has {len} bytes, its header says {}",
            header.body_len()
        )),
        Arrived::Packed { .. } => Ok(()),
        // Rule A4: lent buffers are used in place, so the body cannot be compressed.
        Arrived::List(_) if header.compressed() => Err(broken!(
            "A4",
            "address list for message {seq}, which is compressed: send it packed"
        )),
        Arrived::List(list) => {
            // Rule A1: one pair of equal length for each buffer. The total was checked before.
            let lengths = list.spans.iter().map(|span| span.length);
            if lengths.ne(header.buffers().map(|buffer| buffer.length)) {
                return Err(broken!(
                    "A1",
                    "address list of message {seq}: {} buffers of {} bytes do not agree with \
                         the {} of its header",
                    list.spans.len(),
                    list.total,
                    header.buffers().len()
                ));
            }
            Ok(())
        }
    }
}

#[cfg(test)]
#[path = "tests/window.rs"]
mod tests;
