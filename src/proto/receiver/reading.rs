//! The messages that a receiver has for its consumer, and what it still reads.

use super::{Body, Message, Receiver, Side, StreamEnd};
use crate::proto::HeaderKind;
use crate::proto::receiver::ReceiverState;

/// Most messages that another thread reads for a consumer before the consumer takes them.
const MOST_WAITING: usize = 1024;

/// Whether the consumer may take the message. The answer of its connection tells how a lent body
/// goes back, and may arrive after the body if the transport keeps no order.
pub(super) fn may_take<B>(data: &Option<StreamEnd>, message: &Message<B>) -> bool {
    let unanswered = data.as_ref().is_some_and(StreamEnd::is_unanswered);
    !unanswered || matches!(message.body, Body::Packed(_))
}

impl<B> Receiver<B> {
    /// Whether the driver should read more from this connection. False if waiting messages fill the
    /// window, or if one connection is far ahead of the other: so a peer without credit cannot
    /// flood this side (rule E5).
    pub fn may_read(&self, side: Side) -> bool {
        let (headers_ahead, bodies_ahead, loose_bytes) = self.window.lead();
        let (awaits_header, awaits_body) = self.window.awaits();
        let far = crate::proto::window::REACH / 2;
        let window = self.config.request.credit;
        // The missing part of the oldest incomplete message is always read.
        let balanced = match (side, &self.data) {
            (Side::Metadata, Some(_)) => {
                self.state == ReceiverState::Requested
                    || awaits_header
                    || (headers_ahead < far && u64::from(headers_ahead) <= window.batches)
            }
            (Side::Data, _) => {
                // The answer may come after the bodies that wait for it.
                self.data.as_ref().is_some_and(StreamEnd::is_unanswered)
                    || awaits_body
                    || (bodies_ahead < far
                        && u64::from(bodies_ahead) <= window.batches
                        && loose_bytes <= window.bytes)
            }
            (Side::Metadata, None) => true,
        };
        // If the peer counts credit, the credit limits the waiting messages.
        let full =
            !self.config.metadata.extension && self.credit.full(self.ready.len(), self.ready_bytes);
        self.state.is_broken() || (balanced && !full)
    }

    /// Whether the next message waits for the answer of its body's connection, which says how the
    /// body goes back.
    pub fn is_held_up(&self) -> bool {
        let next = self.ready.front();
        next.is_some_and(|message| !may_take(&self.data, message))
    }

    /// Whether so many messages wait for the consumer that no thread reads in its place (rule Q11).
    pub fn is_full(&self) -> bool {
        self.ready.len() >= MOST_WAITING || self.credit.is_used_up() || self.bounds.is_half_full()
    }

    /// Whether the bodies come on a connection of their own.
    pub fn is_split(&self) -> bool {
        self.data.is_some()
    }

    /// Number of batches that the consumer can take now.
    pub fn batches_here(&self) -> usize {
        let takeable = self
            .ready
            .iter()
            .take_while(|message| may_take(&self.data, message));
        let batches = takeable.filter(|message| message.header.kind() == HeaderKind::RecordBatch);
        batches.count()
    }

    /// Number of messages that wait for the consumer.
    pub fn waiting(&self) -> usize {
        self.ready.len()
    }
}
