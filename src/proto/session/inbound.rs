//! The stream that comes in: when its messages may come, and who has them until it is read.

use super::{Early, Held, Session, SessionEvent};
use crate::error::{Error, Result};
use crate::proto::{Control, SenderState};

/// Most messages that may overtake a request: the schema, and an ABORT.
const MOST_OVERTAKING: usize = 4;

/// The direction in which the peer sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InboundState {
    /// A server of which no client has wanted to send.
    Never,
    /// Between streams.
    Idle,
    /// A server's host decides about a stream that the client may begin to send meanwhile.
    Undecided,
    /// A stream comes in.
    Open,
    /// No stream comes after the last one, of which the rest is thrown away.
    Retired,
}

impl InboundState {
    /// Whether the peer may announce its memory: streams come in here, or have come.
    pub(super) fn has_come(self) -> bool {
        self != Self::Never
    }
}

impl<P, K, M> Session<P, K, M> {
    /// At a server: the host decides about a stream that the client sends. The stream's messages
    /// are kept until [`begin_receiving`](Self::begin_receiving).
    pub fn await_decision(&mut self) {
        self.inbound = InboundState::Undecided;
    }

    /// A stream is about to come in. Of its bodies `early_bytes` are kept while nobody reads it.
    pub fn begin_receiving(&mut self, early_bytes: u64) {
        self.inbound = InboundState::Open;
        self.early.body_limit = early_bytes;
    }

    /// Everything of a stream has come, or nothing more comes.
    pub fn end_receiving(&mut self) {
        self.early.clear();
        if matches!(self.inbound, InboundState::Open | InboundState::Undecided) {
            self.inbound = InboundState::Idle;
        }
        self.set_host_waiting(None);
    }

    /// No stream comes after the last one: the connection serves the arrays that point into the
    /// peer's memory.
    pub fn retire(&mut self) {
        self.inbound = InboundState::Retired;
    }

    /// The client's stream has come to its end (rule Q10).
    pub fn incoming_over(&mut self) {
        if self.is_server() {
            self.sender.incoming_over();
        }
    }

    /// Whether a stream comes in.
    pub fn is_receiving(&self) -> bool {
        self.inbound == InboundState::Open
    }

    /// Whether a stream comes in, or the host decides about one.
    pub(super) fn is_expecting(&self) -> bool {
        matches!(self.inbound, InboundState::Open | InboundState::Undecided)
    }

    /// The next message that came before the reader of the stream.
    pub fn take_early(&mut self) -> Option<Early<M>> {
        if self.inbound != InboundState::Open {
            return None;
        }
        let early = self.early.pop()?;
        if let Some(abort @ Control::Abort { .. }) = &early.control
            && self.is_server()
        {
            // It may have overtaken the request, before which the sender knew no stream. The same
            // message twice changes nothing.
            let _ = self.sender.handle(abort);
            self.events.push_back(SessionEvent::Lost);
        }
        Some(early)
    }

    /// Whether such messages wait for the reader.
    pub fn has_early(&self) -> bool {
        self.is_receiving() && self.early.len() > 0
    }

    /// Whether so many of them wait that nothing more is read (rule Q11).
    pub fn is_full_of_early(&self) -> bool {
        self.early.is_full()
    }

    /// Keeps a message of the stream that comes in, which nobody reads now: its reader is in the
    /// host's code, the host decides about the stream, or the message has overtaken the request
    /// (rule Q3). A retired connection throws it away.
    ///
    /// # Errors
    ///
    /// The peer sends a message that nobody asked for.
    pub fn set_aside(&mut self, message: M, control: Option<Control>, held: Held) -> Result<()> {
        match self.inbound {
            InboundState::Retired => Ok(()),
            InboundState::Open | InboundState::Undecided => {
                self.early.push(message, control, held);
                Ok(())
            }
            InboundState::Never | InboundState::Idle if self.may_overtake_request() => {
                self.early.push(message, control, held);
                Ok(())
            }
            InboundState::Never | InboundState::Idle => Err(self.unasked(match held {
                Held::Body(_) => "a body",
                Held::Other(_) => "a message",
            })),
        }
    }

    /// Nothing can be read now. `is_waiting`: the transport has a body that was not announced.
    /// Returns whether the transport is to forget that body.
    ///
    /// # Errors
    ///
    /// The peer sends a body that nobody asked for; the server is being stopped.
    pub fn nothing_came(&self, is_waiting: bool) -> Result<bool> {
        match (is_waiting, self.inbound) {
            // The reader of the stream announces the body.
            (true, InboundState::Open) => Ok(false),
            (true, InboundState::Retired) => Ok(true),
            (true, _) => Err(self.unasked("a body")),
            // The server waits for the client's end, so that the client loses nothing unread.
            (false, InboundState::Idle | InboundState::Retired)
                if self.is_dismissed() && !self.sender.is_asking() =>
            {
                Err(Error::disconnected("the server is being stopped"))
            }
            (false, _) => Ok(false),
        }
    }

    /// Whether a message may come before the request to which it belongs (rule Q3).
    pub(super) fn may_overtake_request(&self) -> bool {
        self.is_server()
            && !self.is_ordered
            && self.sender.state() == SenderState::Idle
            && self.early.len() < MOST_OVERTAKING
    }

    fn unasked(&self, what: &str) -> Error {
        Error::protocol(match self.is_server() {
            // Rule M1.
            true => format!("the client sent {what} that only servers send"),
            // Rule E4.
            false => format!("the server sent {what} while no stream was asked for"),
        })
    }
}
