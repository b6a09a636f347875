//! The consuming side of one stream.

mod arrivals;
mod bounds;
mod control;
mod credit;
mod input;
mod peer;
mod reading;
mod returns;
mod types;
mod waiting;

use std::collections::VecDeque;

use crate::error::Error;
use crate::proto::window::{Arrived, Window};
use crate::proto::{
    Control, FEATURE_IN_PLACE, FEATURE_REPEAT, Header, HeaderKind, HeaderParser, Headers, Return,
    Span, StreamInfo, Timestamp, Verb,
};
use arrivals::Arrivals;
use bounds::MessageBounds;
use credit::CreditCount;
use peer::StreamEnd;
use reading::may_take;
use types::Stop;
pub use types::{
    AnswerLimit, Body, ExpectedBody, InBody, Message, ReceiverConfig, ReceiverEvent, ReceiverState,
    ReceiverTransmit, Side, SideConfig,
};

/// Limit for bytes of bodies without headers, or twice the window if that is larger.
const LEAST_LOOSE_BYTES: u64 = 512 << 20;

/// The consuming side of one stream, over one connection or two: at a client the stream that it
/// asked for, at a server the stream that a client sends.
///
/// `B` is the memory of a packed body. The receiver does not read it.
///
/// Call order: [`start`](Self::start), then `handle_*` for each input and
/// [`next_message`](Self::next_message) for each message that the consumer takes. After each call,
/// `poll_transmit` until `None`, `poll_event` until `None`, then `poll_timeout`. A failed or
/// cancelled stream hands out no further message. [`abandoned`](Self::abandoned) gives the lent
/// bodies to return that nobody will see.
///
/// A failure that the server announces comes in order: messages before the number in its ERROR are
/// still handed out. Any other failure takes effect at once.
#[derive(Debug)]
pub struct Receiver<B> {
    config: ReceiverConfig,
    state: ReceiverState,
    started: bool,
    /// This side is the server: its [`Sender`](crate::proto::Sender) answers the client.
    is_server: bool,
    metadata: StreamEnd,
    data: Option<StreamEnd>,
    parser: HeaderParser,
    /// The header of the previous message, if the next message may repeat the header.
    last_header: Option<Header>,
    window: Window<B>,
    ready: VecDeque<Message<B>>,
    ready_bytes: u64,
    credit: CreditCount,
    bounds: MessageBounds,
    arrivals: Arrivals,
    /// A message is past the bounds: the stream fails at the end of the call.
    refused: Option<Error>,
    stop: Option<Stop>,
    /// Whether the metadata connection has carried its last message of this stream.
    over_on_wire: bool,
    /// The server broke a rule, or the stream's connection was cut. An ERROR of the server is
    /// neither, whatever its status.
    faulty: bool,
    /// Whether the stream, or all of it before the server's ERROR, has arrived.
    whole: bool,
    error: Option<Error>,
    /// Headers of STREAM, then headers of ERROR.
    answer_headers: Headers,
    abandoned: Vec<Return>,
    /// Abandoned bodies that came before the server said how bodies go back.
    early: Vec<(u32, Vec<Span>)>,
    /// Number of spans in `early`.
    early_spans: usize,
    last_heard: Timestamp,
    /// Time at which the stream must have ended.
    deadline: Option<Timestamp>,
    /// Bytes of the first body that is announced.
    first_body: Option<u64>,
    /// Whether any body has come.
    has_bodies: bool,
    /// The consumer took a message since it last waited. Until then, the peer may have had no
    /// credit.
    taken_since: bool,
    transmits: VecDeque<ReceiverTransmit>,
    events: VecDeque<ReceiverEvent>,
}

impl<B> Receiver<B> {
    /// The receiver of a stream before its request.
    ///
    /// # Errors
    ///
    /// `InvalidUri`: tags that break rule U4. `InvalidArgument`: an empty range of versions, a
    /// ticket or headers that are too long, or a selection that does not go with the verb.
    /// `Unsupported`: a request of version 2 or 3 for a baseline server.
    pub fn new(config: ReceiverConfig) -> Result<Self, Error> {
        for side in [Some(config.metadata), config.data].into_iter().flatten() {
            if side.extension {
                side.tags.validate()?;
            } else {
                side.tags.validate_baseline()?;
            }
        }
        let request = &config.request;
        request.ensure_fits()?;
        let extension = config.metadata.extension || config.data.is_some_and(|side| side.extension);
        let lowest = request.lowest_version();
        if extension && (lowest == 0 || lowest > request.max_version) {
            return Err(Error::invalid_argument(format!(
                "versions {lowest} to {} of the extension: there is none",
                request.max_version
            )));
        }
        let baseline = !config.metadata.extension || config.data.is_some_and(|it| !it.extension);
        if baseline && lowest > 1 {
            return Err(Error::unsupported(
                "the server does not speak libdipc's extension, and so knows neither headers, \
                 selections of columns and rows, nor another verb than get",
            ));
        }
        let loose = request
            .credit
            .bytes
            .saturating_mul(2)
            .max(LEAST_LOOSE_BYTES);
        Ok(Self {
            // Rule E2: only a server that speaks the extension answers before the schema.
            state: if config.metadata.extension {
                ReceiverState::Requested
            } else {
                ReceiverState::AwaitingSchema
            },
            started: false,
            is_server: false,
            metadata: StreamEnd::new(config.metadata),
            data: config.data.map(StreamEnd::new),
            parser: HeaderParser::default(),
            last_header: None,
            window: Window::new(config.first_seq, loose),
            ready: VecDeque::new(),
            ready_bytes: 0,
            credit: CreditCount::new(request.credit),
            bounds: MessageBounds::default(),
            arrivals: Arrivals::default(),
            refused: None,
            stop: None,
            over_on_wire: false,
            faulty: false,
            whole: false,
            error: None,
            answer_headers: Headers::new(),
            abandoned: Vec::new(),
            early: Vec::new(),
            early_spans: 0,
            last_heard: Timestamp::default(),
            deadline: None,
            first_body: None,
            has_bodies: false,
            taken_since: false,
            transmits: VecDeque::new(),
            events: VecDeque::new(),
            config,
        })
    }

    /// The receiver of a stream that a client sends (rule Q3). The `config` has the credit and the
    /// limits of this server, and the features that are used.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn of_client(config: ReceiverConfig, now: Timestamp) -> Result<Self, Error> {
        let features = config.request.features;
        let source = config.request.source;
        let mut receiver = Self::new(config)?;
        receiver.metadata.info = source.map(|source| StreamInfo { features, ..source });
        receiver.is_server = true;
        receiver.started = true;
        receiver.state = ReceiverState::AwaitingSchema;
        receiver.last_heard = now;
        let deadline = receiver.config.request.deadline;
        receiver.deadline = deadline.map(|deadline| now.saturating_add(deadline));
        Ok(receiver)
    }

    /// The receiver of the server's stream of an exchange (rule Q5), which the client's
    /// [`Sender`](crate::proto::Sender) asks for.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn of_exchange(config: ReceiverConfig, now: Timestamp) -> Result<Self, Error> {
        let mut receiver = Self::new(config)?;
        receiver.started = true;
        receiver.last_heard = now;
        Ok(receiver)
    }

    /// Tells the receiver that the stream probably begins with this schema, which was read before.
    pub fn expect_schema(&mut self, schema: &Header) {
        self.parser = HeaderParser::expecting(schema.clone());
    }

    /// Sends the request on each connection (rules M1, E1). Further calls do nothing.
    pub fn start(&mut self, now: Timestamp) {
        if self.started || self.state.is_broken() {
            return;
        }
        self.started = true;
        self.last_heard = now;
        let deadline = self.config.request.deadline;
        self.deadline = deadline.map(|deadline| now.saturating_add(deadline));
        let sides = [
            (Side::Metadata, Some(self.config.metadata)),
            (Side::Data, self.config.data),
        ];
        for (side, config) in sides {
            let Some(SideConfig { tags, extension }) = config else {
                continue;
            };
            let (tag, bytes) = if extension {
                (tags.dipc_want, self.config.request.encode())
            } else {
                (tags.want_data, self.config.request.ticket.clone())
            };
            self.transmits
                .push_back(ReceiverTransmit::Tagged { side, tag, bytes });
        }
    }

    /// The next dictionary or batch, if present. The producer's credit counts messages that are
    /// taken here (rule E5).
    #[inline]
    pub fn next_message(&mut self) -> Option<Message<B>> {
        let message = self
            .ready
            .pop_front_if(|message| may_take(&self.data, message))?;
        self.ready_bytes = self.ready_bytes.saturating_sub(message.header.body_len());
        self.bounds.taken(&message.header);
        self.taken_since = true;
        let packed = matches!(message.body, Body::Packed(_));
        let in_place = self.spares_in_place();
        if self.credit.taken(&message.header, packed, in_place) {
            self.flush_credit();
        }
        self.settle();
        Some(message)
    }

    /// Tells the producer which totals the consumer has taken. Call this before the consumer
    /// sleeps, or the producer might wait for ever.
    pub fn flush_credit(&mut self) {
        // Sent after the end too: a server of bodies waits to hear that the client took all bodies.
        if !matches!(self.state, ReceiverState::Streaming | ReceiverState::Ended) {
            return;
        }
        let Some(credit) = self.credit.tell() else {
            return;
        };
        let stream = self.config.request.mark();
        let bytes = Control::Credit { stream, credit }.encode();
        // Rule E5: both connections get the credit while the stream runs there. Later, the next
        // stream could take the credit for its own.
        let ended = self.window.end_seen() || self.metadata.failed;
        if self.config.metadata.extension && !ended {
            self.control_out(Side::Metadata, bytes.clone());
        }
        if self
            .data
            .as_ref()
            .is_some_and(|peer| peer.config.extension && !peer.failed)
        {
            self.control_out(Side::Data, bytes);
        }
    }

    /// Cancels the stream: the consumer wants no more.
    pub fn cancel(&mut self) {
        if self.state.is_broken() {
            return;
        }
        self.tell_cancelled();
        self.abandon_all();
        self.error = Some(Error::cancelled("the stream was cancelled"));
        self.state = ReceiverState::Cancelled;
    }

    /// Whether the sender has sent anything that shows that it has read the request.
    pub fn is_answered(&self) -> bool {
        !self.metadata.is_unheard()
    }

    /// Whether a client sends the stream.
    pub fn is_of_client(&self) -> bool {
        self.is_server
    }

    /// Whether the peer broke a rule, or its connection was cut.
    pub fn is_peer_at_fault(&self) -> bool {
        self.faulty
    }

    /// The state.
    pub fn state(&self) -> ReceiverState {
        self.state
    }

    /// Headers of the server's answers: headers of STREAM, then headers of ERROR.
    pub fn answer_headers(&self) -> &Headers {
        &self.answer_headers
    }

    /// The reason why the stream failed or was cancelled.
    pub fn error(&self) -> Option<&Error> {
        self.error.as_ref()
    }

    /// Whether the stream has ended without an error and the consumer has taken every message.
    pub fn is_complete(&self) -> bool {
        self.state == ReceiverState::Ended && self.ready.is_empty()
    }

    /// Whether nothing more of this stream can come on its only connection, so that the connection
    /// may carry the next stream (rule E4). The stream has ended, or the server has sent ERROR,
    /// which also answers a cancel. Never true after a broken rule or a cut.
    pub fn is_over_on_wire(&self) -> bool {
        let arrived = self.state == ReceiverState::Ended || self.state.is_broken();
        self.over_on_wire && arrived && !self.faulty
    }

    /// Whether every message of the stream has certainly arrived. If a connection keeps no order,
    /// the stream is over only if this and [`is_over_on_wire`](Self::is_over_on_wire) are both
    /// true.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// Whether the sender has said its last word, every body has come (wanted or not), and the
    /// answer has come that tells how lent bodies go back.
    pub fn has_all_bodies(&self) -> bool {
        self.arrivals.is_whole() && !self.metadata.is_unanswered()
    }

    /// The next message for a transport.
    pub fn poll_transmit(&mut self) -> Option<ReceiverTransmit> {
        self.transmits.pop_front()
    }

    /// Whether there is a message, an event or a body to return.
    pub fn has_output(&self) -> bool {
        !self.transmits.is_empty() || !self.events.is_empty() || !self.abandoned.is_empty()
    }

    /// The body that is expected, if this is the next event.
    pub fn take_expected(&mut self) -> Option<ExpectedBody> {
        let ReceiverEvent::Expect(expected) = *self.events.front()? else {
            return None;
        };
        self.events.pop_front();
        Some(expected)
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<ReceiverEvent> {
        self.events.pop_front()
    }

    /// Whether bodies lent in place use no credit of bytes. True as well if the request allows this
    /// and the answer has not come.
    fn spares_in_place(&self) -> bool {
        let info = self.metadata.info.as_ref();
        let features = info.map_or(self.config.request.features, |info| info.features);
        features & FEATURE_IN_PLACE != 0
    }

    /// Whether the server may repeat headers. STREAM says so before the first header.
    fn repeats(&self) -> bool {
        let info = self.metadata.info.as_ref();
        info.is_some_and(|info| info.features & FEATURE_REPEAT != 0)
    }

    fn control_out(&mut self, side: Side, bytes: Vec<u8>) {
        self.transmits
            .push_back(ReceiverTransmit::Control { side, bytes });
    }

    fn peer_mut(&mut self, side: Side) -> Option<&mut StreamEnd> {
        match side {
            Side::Metadata => Some(&mut self.metadata),
            Side::Data => self.data.as_mut(),
        }
    }

    /// Sends CANCEL on each connection where the stream may still run.
    fn tell_cancelled(&mut self) {
        // A server sends ERROR instead. Its sender does this.
        if !self.started || self.is_server || self.state == ReceiverState::Ended {
            return;
        }
        let end_seen = self.window.end_seen();
        let stream = self.config.request.mark();
        for side in [Side::Metadata, Side::Data] {
            let over = side == Side::Metadata && end_seen;
            let Some(peer) = self.peer_mut(side) else {
                continue;
            };
            if peer.config.extension && !over && !peer.failed && !peer.cancelled {
                peer.cancelled = true;
                self.control_out(side, Control::Cancel { stream }.encode());
            }
        }
    }

    /// Fails the stream now.
    fn fail(&mut self, error: Error) -> Error {
        // A peer that broke a rule gets no further message.
        if !self.faulty {
            self.tell_cancelled();
        }
        self.abandon_all();
        self.error = Some(error.clone());
        self.state = ReceiverState::Failed;
        error
    }

    /// Moves complete messages to `ready`.
    fn advance(&mut self) -> Result<(), Error> {
        // Rule E2: the server's answer counts before the schema, even if the answer arrives later.
        if self.state == ReceiverState::Requested {
            self.settle();
            return Ok(());
        }
        while let Some((seq, header, body)) = self.window.pop() {
            let body = match body {
                Some(Arrived::Packed { memory, .. }) => Body::Packed(memory),
                Some(Arrived::List(list)) => Body::Lent(list.spans),
                None if header.kind() == HeaderKind::Schema => {
                    self.state = ReceiverState::Streaming;
                    self.events.push_back(ReceiverEvent::Schema(header));
                    continue;
                }
                None => break,
            };
            self.ready_bytes = self.ready_bytes.saturating_add(header.body_len());
            self.ready.push_back(Message { seq, header, body });
        }
        // Rule M6: the end counts once no earlier message is missing.
        if self.window.is_complete() && self.state == ReceiverState::Streaming {
            self.state = ReceiverState::Ended;
            self.whole = true;
        }
        self.settle();
        Ok(())
    }

    /// Fails the stream after an ERROR, once all messages before the ERROR have been handed out.
    fn settle(&mut self) {
        let Some(stop) = &self.stop else { return };
        let reached = self.window.ahead(stop.seq).is_none_or(|ahead| ahead == 0);
        let over = self.state.is_broken() || self.state == ReceiverState::Ended;
        if reached && self.ready.is_empty() && !over {
            let error = stop.error.clone();
            // The server's stream of an exchange can have ended before the ERROR, which does not
            // count that end.
            self.whole = self.config.request.verb != Verb::Exchange;
            self.fail(error);
        }
    }
}

#[cfg(test)]
#[path = "../tests/receiver.rs"]
mod tests;
