//! Time limits of a receiver, and its texts about a silent server.

use std::time::Duration;

use super::{AnswerLimit, Receiver, ReceiverState, Side, StreamEnd};
use crate::error::Error;
use crate::proto::Timestamp;

/// Slowest rate of a body, in bytes a second, if only the end of its arrival is visible.
const SLOWEST_BYTES: u64 = 1 << 20;

/// The missing message of a server without the extension, which may never give a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    Schema,
    /// Headers have come, but no body. The first body has this many bytes.
    FirstBody(u64),
}

impl<B> Receiver<B> {
    /// Time to call [`handle_timeout`](Self::handle_timeout), if nothing happens before.
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
        // While messages wait for the consumer, the peer may have no credit.
        if !(self.ready.is_empty() || held_up) {
            return self.deadline;
        }
        let stall = self
            .patience()
            .map(|timeout| self.last_heard.saturating_add(timeout));
        let answer = self.answer_limit().map(|limit| limit.by);
        [stall, answer, self.deadline].into_iter().flatten().min()
    }

    /// The latest time for the end of the stream, even if the consumer never waits.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.deadline
    }

    /// Notes that the consumer waits from `now` on: earlier time does not count as the server's
    /// silence. Call this before the consumer sleeps.
    pub fn waits(&mut self, now: Timestamp) {
        if (self.ready.is_empty() || self.is_held_up()) && std::mem::take(&mut self.taken_since) {
            self.last_heard = self.last_heard.max(now);
        }
    }

    /// The limit for the answer, if no answer has come.
    pub(super) fn answer_limit(&self) -> Option<AnswerLimit> {
        let unheard =
            self.metadata.is_unheard() || self.data.as_ref().is_some_and(StreamEnd::is_unheard);
        self.config.answer.filter(|_| unheard)
    }

    /// Longest silence of the server while the client waits; `None`: no limit.
    pub fn stall_timeout(&self) -> Option<Duration> {
        self.config.stall_timeout
    }

    /// Longest silence of the server in the present state.
    pub(super) fn patience(&self) -> Option<Duration> {
        let silence = self.config.silence_timeout;
        let of_its_kind = match self.missing() {
            // Rule R5: silence is the refusal of such a server for an unknown ticket.
            Some(Missing::Schema) => silence,
            Some(Missing::FirstBody(bytes)) => {
                silence.map(|time| time.saturating_add(Duration::from_secs(bytes / SLOWEST_BYTES)))
            }
            None => None,
        };
        self.config.stall_timeout.or(of_its_kind)
    }

    /// The missing part of a stream that has not begun, from a server that may give no reason.
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

    /// The most likely reason for silence. A server without the extension has two URIs, for the
    /// metadata and for the bodies (rule U3).
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
            // Rule E7: a server refuses a baseline client by a cut.
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
