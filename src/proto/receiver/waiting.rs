//! How long a receiver waits for its server, and what it says of silence.

use std::time::Duration;

use super::{AnswerLimit, Receiver, ReceiverState, Side, StreamEnd};
use crate::error::Error;
use crate::proto::Timestamp;

/// How slowly a body may come, in bytes a second, where its arrival alone is seen.
const SLOWEST_BYTES: u64 = 1 << 20;

/// What a server has not sent that may never say why: one without the extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    Schema,
    /// Headers have come, and no body, of which the first has this many bytes.
    FirstBody(u64),
}

impl<B> Receiver<B> {
    /// When to call [`handle_timeout`](Self::handle_timeout), if nothing happens before.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let held_up = self.is_held_up();
        let awaited = match self.state {
            ReceiverState::Ended => held_up,
            ReceiverState::Requested | ReceiverState::AwaitingSchema | ReceiverState::Streaming => {
                true
            }
            ReceiverState::Failed | ReceiverState::Cancelled => false,
        };
        if !self.started || !awaited {
            return None;
        }
        // While messages wait for the consumer, the peer may have no credit to send others.
        if !(self.ready.is_empty() || held_up) {
            return self.deadline;
        }
        let stall = self
            .patience()
            .map(|timeout| self.last_heard.saturating_add(timeout));
        let answer = self.answer_limit().map(|limit| limit.by);
        [stall, answer, self.deadline].into_iter().flatten().min()
    }

    /// The consumer waits from `now` on: the time before it made room is not the server's. To be
    /// called when it is about to sleep.
    pub fn waits(&mut self, now: Timestamp) {
        if (self.ready.is_empty() || self.is_held_up()) && std::mem::take(&mut self.taken_since) {
            self.last_heard = self.last_heard.max(now);
        }
    }

    /// The limit for an answer that has not come.
    pub(super) fn answer_limit(&self) -> Option<AnswerLimit> {
        let unheard =
            self.metadata.is_unheard() || self.data.as_ref().is_some_and(StreamEnd::is_unheard);
        self.config.answer.filter(|_| unheard)
    }

    /// How long the server may say nothing while something is waited for; `None`: for ever.
    pub fn stall_timeout(&self) -> Option<Duration> {
        self.config.stall_timeout
    }

    /// How long the server may say nothing now.
    pub(super) fn patience(&self) -> Option<Duration> {
        let silence = self.config.silence_timeout;
        let of_its_kind = match self.missing() {
            // Rule R5: that is how such a server says that it does not know a ticket.
            Some(Missing::Schema) => silence,
            Some(Missing::FirstBody(bytes)) => {
                silence.map(|time| time.saturating_add(Duration::from_secs(bytes / SLOWEST_BYTES)))
            }
            None => None,
        };
        self.config.stall_timeout.or(of_its_kind)
    }

    /// What has not come of a stream that has not begun, from a server that may never say why.
    pub(super) fn missing(&self) -> Option<Missing> {
        let of_metadata = self.config.metadata.extension;
        let of_bodies = self.config.data.map_or(of_metadata, |side| side.extension);
        match self.state {
            ReceiverState::AwaitingSchema if !(of_metadata && of_bodies) => Some(Missing::Schema),
            ReceiverState::Streaming if !of_bodies && !self.has_bodies => {
                self.first_body.map(Missing::FirstBody)
            }
            _ => None,
        }
    }

    /// What silence means most likely. A server without the extension has two URIs, of the metadata
    /// and of the bodies (rule U3).
    pub(super) fn silence_hint(&self, missing: Option<Missing>) -> &'static str {
        match (missing, self.data.is_some()) {
            (Some(Missing::Schema), false) => {
                "such a server is silent when it does not know the ticket, when the URI's numbers \
                 are not its own, when it hangs, or when the URI is that of its bodies alone: give \
                 both of its URIs, the one of the metadata first"
            }
            (Some(Missing::Schema), true) => {
                "such a server is silent when it does not know the ticket, when the URIs' numbers \
                 are not its own, when it hangs, or when the two URIs are swapped: the one of the \
                 metadata comes first"
            }
            (Some(Missing::FirstBody(_)), false) => {
                "such a server sends bodies on a connection of their own: give both of its URIs, \
                 the one of the metadata first"
            }
            (Some(Missing::FirstBody(_)), true) => {
                "the two URIs may be swapped: the one of the metadata comes first, then the one \
                 of the bodies"
            }
            (None, _) => "raise the stall timeout if its data takes longer to make",
        }
    }

    pub(super) fn cut_error(&self, side: Side, reason: &Error) -> Error {
        let baseline = self
            .data
            .as_ref()
            .filter(|_| side == Side::Data)
            .map_or(!self.config.metadata.extension, |peer| {
                !peer.config.extension
            });
        let hint = match self.state {
            // Rule E7: that is how a server refuses where nothing else is understood.
            ReceiverState::AwaitingSchema if baseline => {
                "; such a server gives no reason: its log may, and the ticket may be unknown"
            }
            _ => "",
        };
        Error::new(
            reason.status(),
            format!(
                "the connection ended before the stream did: {}{hint}",
                reason.text()
            ),
        )
    }
}
