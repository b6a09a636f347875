//! The producing side of one connection, and at a server the requests on it.

mod asking;
mod commands;
mod input;
mod taking;
mod types;
mod window;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::error::Status;
use crate::proto::control::error_of;
use crate::proto::extension::{FEATURE_IN_PLACE, FEATURE_PENDING};
use crate::proto::{Control, Headers, Ledger, Role};
pub use types::{OutBody, SenderConfig, SenderEvent, SenderState, Transmit};
use window::CreditWindow;
pub use window::WindowRoom;

/// The stream that the sender serves.
#[derive(Debug)]
struct SentStream {
    /// Name of the stream in control messages ([`Request::mark`]).
    mark: u64,
    role: Role,
    next_seq: u32,
    schema_sent: bool,
    cancelled: bool,
    /// `None` for a baseline peer: incomplete sends limit the sender there (rule E5).
    window: Option<CreditWindow>,
    /// The version that both sides speak.
    version: u16,
    /// Features of [`FEATURES`](crate::proto::extension::FEATURES) that the client knows.
    features: u64,
    /// Headers of the next answer, STREAM or ERROR.
    answer_headers: Headers,
    /// The client sends a stream (rule Q3).
    has_source: bool,
    /// The server sends a stream too (rule Q5).
    is_exchange: bool,
    /// The server takes the client's stream.
    is_granted: bool,
    /// The client's stream has come to its end, good or not (rule Q10).
    is_incoming_over: bool,
    /// The header of the previous message. The sender compares pointers only: an encoder uses equal
    /// headers again, and a comparison of wide headers costs as much as to send them.
    last_header: Option<Arc<[u8]>>,
}

/// The producing side of one connection: it serves stream after stream (rule E4).
///
/// At a server it also answers requests to take a stream, which a
/// [`Receiver`](crate::proto::Receiver) reads. At a client it [asks](Self::ask) the server to take
/// a stream.
///
/// `P` is the payload of a packed body. `K` keeps lent memory alive. The sender reads neither.
///
/// Call order: `handle_*` for each input. On [`SenderEvent::Requested`], `accept`, then
/// `send_schema`, then dictionaries and batches, then `end` (or `fail` at any point). Returns may
/// arrive at any time: they belong to the connection, not to the stream.
#[derive(Debug)]
pub struct Sender<P, K> {
    config: SenderConfig,
    state: SenderState,
    /// Whether an extension request has ever been sent on the connection.
    extension: bool,
    /// This side is the client.
    is_client: bool,
    stream: Option<SentStream>,
    /// Mark and credit of a stream of role Data after its end. The credit still counts: only the
    /// credit tells when the consumer has everything.
    tail: Option<(u64, CreditWindow)>,
    ledger: Ledger<K>,
    transmits: VecDeque<Transmit<P>>,
    events: VecDeque<SenderEvent<K>>,
}

impl<P, K> Sender<P, K> {
    /// The sender of a fresh connection.
    pub fn new(config: SenderConfig) -> Self {
        Self {
            config,
            state: SenderState::Idle,
            extension: false,
            is_client: false,
            stream: None,
            tail: None,
            ledger: Ledger::new(),
            transmits: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Whether this client has asked the server to take a stream, and the server's last word has
    /// not come.
    pub fn is_asking(&self) -> bool {
        self.is_client && self.stream.is_some()
    }

    /// Whether a tagged message with this tag gives lent memory back.
    pub fn takes(&self, tag: u64) -> bool {
        self.extension && self.config.tags.is_free(tag)
    }

    /// The state.
    pub fn state(&self) -> SenderState {
        self.state
    }

    /// Whether the peer has sent a request of the extension.
    pub fn is_extension(&self) -> bool {
        self.extension
    }

    /// Whether the client waits for an answer to its request, and wants PENDING if the answer takes
    /// long.
    pub fn awaits_pending(&self) -> bool {
        let stream = self.stream.as_ref();
        self.state == SenderState::Requested
            && stream.is_some_and(|stream| stream.features & FEATURE_PENDING != 0)
    }

    /// Whether the client has cancelled the running stream.
    pub fn is_cancelled(&self) -> bool {
        self.stream.as_ref().is_some_and(|stream| stream.cancelled)
    }

    /// The role of the requested or running stream.
    pub fn role(&self) -> Option<Role> {
        self.stream.as_ref().map(|stream| stream.role)
    }

    /// The number of the next message.
    pub fn next_seq(&self) -> u32 {
        self.stream
            .as_ref()
            .map_or(self.config.first_seq, |stream| stream.next_seq)
    }

    /// Number of lent spans that are not yet returned.
    pub fn lent_outstanding(&self) -> usize {
        self.ledger.outstanding()
    }

    /// The rest of the client's credit (rule E5); `None` for a baseline peer, which has none.
    pub fn room(&self) -> Option<WindowRoom> {
        if matches!(self.state, SenderState::Asked | SenderState::Ending) {
            return Some(WindowRoom::NONE);
        }
        let spares_in_place = self.spares_in_place();
        self.window().map(|window| window.room(spares_in_place))
    }

    /// Whether the driver may pull the next batch from the producer, whatever the size of the batch
    /// (rule E5). Always true for a baseline peer.
    pub fn may_pull(&self) -> bool {
        self.room().is_none_or(WindowRoom::may_pull)
    }

    /// Whether half of the consumer's window is used (rule E5). Always false for a baseline peer.
    pub fn is_half_used(&self) -> bool {
        self.window().is_some_and(CreditWindow::is_half_used)
    }

    /// Whether the sender may now send a dictionary or batch with a body of `body_len` bytes (rule
    /// E5). Always true for a baseline peer. `in_place`: as in [`OutBody::Lent`].
    pub fn admits(&self, body_len: u64, in_place: bool) -> bool {
        self.room()
            .is_none_or(|room| room.admits(body_len, in_place))
    }

    /// Whether bodies lent in place use no credit of bytes.
    fn spares_in_place(&self) -> bool {
        let features = self.stream.as_ref().map_or(0, |stream| stream.features);
        features & FEATURE_IN_PLACE != 0
    }

    /// The number of record batches that the consumer has taken. Its credit tells this number. A
    /// baseline peer gives no credit, so its number is 0.
    pub fn batches_taken(&self) -> u64 {
        let window = self
            .window()
            .or(self.tail.as_ref().map(|(_, window)| window));
        window.map_or(0, CreditWindow::batches_taken)
    }

    /// The next message for the transport.
    pub fn poll_transmit(&mut self) -> Option<Transmit<P>> {
        self.transmits.pop_front()
    }

    /// Whether there is a message or an event.
    pub fn has_output(&self) -> bool {
        !self.transmits.is_empty() || !self.events.is_empty()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<SenderEvent<K>> {
        self.events.pop_front()
    }

    fn window(&self) -> Option<&CreditWindow> {
        self.stream.as_ref()?.window.as_ref()
    }

    /// Takes the headers for the answer that is sent now.
    fn take_answer_headers(&mut self) -> Headers {
        let stream = self.stream.as_mut();
        stream.map_or_else(Headers::new, |stream| {
            std::mem::take(&mut stream.answer_headers)
        })
    }

    fn disconnect(&mut self, reason: String) {
        self.state = SenderState::Closed;
        self.stream = None;
        self.transmits.push_back(Transmit::Disconnect { reason });
    }

    fn control_out(&mut self, message: &Control) {
        self.transmits.push_back(Transmit::Control {
            bytes: message.encode(),
            region: None,
        });
    }

    /// Ends the stream with an error (rules E2, E4), or a baseline peer's connection (rule E7).
    fn over(&mut self, status: i32, text: &str) {
        if self.extension {
            // A status of success would be malformed on the wire.
            let status = if status < 0 {
                status
            } else {
                Status::Provider.code()
            };
            let (seq, headers) = (self.next_seq(), self.take_answer_headers());
            self.control_out(&Control::Error {
                status,
                seq,
                text: text.to_owned(),
                headers,
            });
            self.said_last();
        } else {
            self.disconnect(error_of(status, text).text().to_owned());
        }
    }
}

/// Whether the message answers a client that sends a stream.
pub(crate) fn is_answer(message: &Control) -> bool {
    matches!(
        message,
        Control::Grant { .. }
            | Control::Pending { .. }
            | Control::Error { .. }
            | Control::Result { .. }
            | Control::End { .. }
    )
}

#[cfg(test)]
#[path = "../tests/sender.rs"]
mod tests;
