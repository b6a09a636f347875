//! What a receiver is told.

use super::waiting::Missing;
use super::{InBody, Receiver, ReceiverEvent, ReceiverState, Side, Stop};
use crate::error::Error;
use crate::proto::control::error_of;
use crate::proto::window::{Arrived, REACH};
use crate::proto::{
    AddressList, BODY_KIND_LIST, BODY_KIND_PACKED, BodyKind, Control, FEATURE_HEADERS, Header,
    HeaderKind, Headers, Prefix, PrefixKind, ProtocolError, StreamInfo, Timestamp, parse_body_tag,
};

/// Each of these returns the error with which the stream fails, if it does so in the call. What
/// arrives for a stream that has failed or was cancelled is ignored, but for addresses, which come
/// out of [`abandoned`](Receiver::abandoned). Spans of bodies that nobody will see, which the
/// server has sent before its answer: 16 MiB of them.
const MOST_EARLY_SPANS: usize = 1 << 20;

impl<B> Receiver<B> {
    /// Takes a metadata message; it is copied.
    ///
    /// # Errors
    ///
    /// `Protocol`: the peer broke a rule; its connection should be closed.
    pub fn handle_metadata(&mut self, now: Timestamp, message: &[u8]) -> Result<(), Error> {
        let result = self.metadata(now, message);
        self.conclude(result)
    }

    /// Takes the body of a message.
    ///
    /// # Errors
    ///
    /// As [`handle_metadata`](Self::handle_metadata).
    pub fn handle_body(
        &mut self,
        now: Timestamp,
        tag: u64,
        body: InBody<'_, B>,
    ) -> Result<(), Error> {
        self.has_bodies = true;
        let result = self.body(now, tag, body);
        self.conclude(result)
    }

    /// Takes a control message.
    ///
    /// # Errors
    ///
    /// As [`handle_metadata`](Self::handle_metadata); also what the server says in ERROR, where
    /// nothing is left to hand out before it.
    pub fn handle_control(
        &mut self,
        now: Timestamp,
        side: Side,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let result = Control::decode(bytes).and_then(|message| match message {
            Some(message) => self.control(now, side, message),
            // Rule E3: unknown kinds are ignored.
            None => Ok(()),
        });
        self.conclude(result)
    }

    /// A connection is over. Arrays handed out stay valid, and so does a stream that has arrived
    /// whole.
    pub fn handle_disconnect(&mut self, side: Side, reason: &Error) {
        self.over_on_wire &= side != Side::Metadata;
        let ended = self.state == ReceiverState::Ended;
        if self.state.is_broken() || (ended && !(side == Side::Data && self.is_held_up())) {
            return;
        }
        // The metadata is complete; the bodies come on the other connection.
        if side == Side::Metadata && self.data.is_some() && self.window.end_seen() {
            return;
        }
        // What the server said of the cause says more than the cut.
        let unsaid = self.stop.is_none();
        let error = self
            .stop
            .take()
            .map_or_else(|| self.cut_error(side, reason), |stop| stop.error);
        if let Some(peer) = self.peer_mut(side) {
            peer.failed = true;
        }
        // The other connection is told first.
        self.fail(error);
        self.faulty |= unsaid;
    }

    /// Time has passed. Does nothing before the time that [`poll_timeout`](Self::poll_timeout)
    /// names.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.waits(now);
        if self.poll_timeout().is_none_or(|deadline| now < deadline) {
            return;
        }
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            let time = self.config.request.deadline.unwrap_or_default();
            self.fail(Error::timeout(format!(
                "the stream has not ended within its deadline of {time:?}"
            )));
            return;
        }
        let stall = self.patience();
        if let Some(limit) = self.answer_limit() {
            let timeout = stall.map_or(limit.timeout, |stall| stall.min(limit.timeout));
            self.fail(Error::timeout(format!(
                "the server has not answered within {timeout:?}: its machine took the connection, \
                 and the server itself has not read the request; it is stopped, hangs, has no file \
                 descriptor left to accept with, or does not know the extension (then copy the \
                 URI that it printed)"
            )));
            return;
        }
        let timeout = stall.unwrap_or_default();
        let missing = self.missing();
        let hint = self.silence_hint(missing);
        self.fail(Error::timeout(match missing {
            Some(Missing::FirstBody(_)) => {
                format!("the server has sent headers, and no body for {timeout:?}: {hint}")
            }
            _ => format!("the server has sent nothing for {timeout:?}: {hint}"),
        }));
    }

    fn conclude(&mut self, result: Result<(), ProtocolError>) -> Result<(), Error> {
        let was_broken = self.state.is_broken();
        let result = result.map_err(Error::from).and_then(|()| match was_broken {
            true => Ok(()),
            false => self.advance(),
        });
        match (result, was_broken) {
            (Ok(()), false) if self.state == ReceiverState::Failed => Err(self
                .error
                .clone()
                .unwrap_or_else(|| Error::protocol("the stream failed"))),
            (Ok(()), _) => Ok(()),
            // The stream is over; only its connection is at fault now.
            (Err(error), true) => {
                self.faulty = true;
                Err(error)
            }
            (Err(error), false) => {
                self.faulty = true;
                Err(self.fail(error))
            }
        }
    }

    fn metadata(&mut self, now: Timestamp, message: &[u8]) -> Result<(), ProtocolError> {
        let (prefix, bytes) = Prefix::split(message)?;
        if prefix.kind == PrefixKind::EndOfStream {
            self.over_on_wire = true;
        }
        if self.state.is_broken() || self.beyond_stop(prefix.seq) {
            return Ok(());
        }
        self.last_heard = now;
        match prefix.kind {
            PrefixKind::EndOfStream => {
                self.last_header = None;
                self.window.put_end(prefix.seq)
            }
            PrefixKind::Metadata => {
                let header = self.parser.parse(bytes)?;
                if self.repeats() {
                    self.last_header = Some(header.clone());
                }
                self.header(prefix.seq, header)
            }
            PrefixKind::Repeat => {
                let last = self.last_header.clone().filter(|_| self.repeats());
                let header = last.ok_or_else(|| {
                    ProtocolError::new(
                        "M3",
                        "a metadata message repeats a header (kind 2), which was not agreed on, or \
                         there is none before it",
                    )
                })?;
                self.header(prefix.seq, header)
            }
        }
    }

    fn header(&mut self, seq: u32, header: Header) -> Result<(), ProtocolError> {
        if header.kind() != HeaderKind::Schema {
            let extension = self.config.metadata.extension;
            let in_place = self.spares_in_place();
            self.credit.arrived(&header, extension, in_place)?;
        }
        let (packed, list) = (header.body_len(), header.list_len());
        // Rule M6: order by number, whatever the order of arrival.
        if self.window.put_header(seq, header)? {
            self.first_body.get_or_insert(packed);
            // Rule D8: post by exact tag, both kinds.
            self.events
                .push_back(ReceiverEvent::Expect { seq, packed, list });
        }
        Ok(())
    }

    fn body(&mut self, now: Timestamp, tag: u64, body: InBody<'_, B>) -> Result<(), ProtocolError> {
        let (seq, kind) = parse_body_tag(tag)?;
        let peer = self.data.as_ref().unwrap_or(&self.metadata);
        let announced = match kind {
            BodyKind::Packed => BODY_KIND_PACKED,
            BodyKind::List => BODY_KIND_LIST,
        };
        // Rule E2: what the server said of the stream holds.
        if peer
            .info
            .is_some_and(|info| info.body_kinds & announced == 0)
        {
            return Err(ProtocolError::new(
                "E2",
                format!("body of message {seq} is of a kind that the server did not announce"),
            ));
        }
        let arrived = match (kind, body) {
            (BodyKind::Packed, InBody::Packed { len, memory }) => {
                let enforced = self.config.metadata.extension && self.spares_in_place();
                self.credit.arrived_packed(len, enforced)?;
                Arrived::Packed { len, memory }
            }
            (BodyKind::List, InBody::List(bytes)) => {
                let tags = self
                    .data
                    .as_ref()
                    .map_or(self.config.metadata, |peer| peer.config)
                    .tags;
                // Rule U2: without free_data nothing could be given back.
                if tags.free_data.is_none() {
                    return Err(ProtocolError::new(
                        "U2",
                        "address list from a server whose URI has no free_data",
                    ));
                }
                Arrived::List(AddressList::decode(bytes)?)
            }
            _ => {
                return Err(ProtocolError::new(
                    "D2",
                    format!("body tag {tag:#018x} does not say what came with it"),
                ));
            }
        };
        if self.state.is_broken() || self.beyond_stop(seq) {
            if let Arrived::List(list) = arrived {
                self.abandon(seq, list.spans);
            }
            if self.early.len() > REACH as usize || self.early_spans > MOST_EARLY_SPANS {
                return Err(ProtocolError::new(
                    "E2",
                    "bodies of a stream that the server has not accepted",
                ));
            }
            return Ok(());
        }
        self.last_heard = now;
        // Rule D5: the number alone joins it to its header.
        self.window.put_body(seq, arrived)
    }

    /// Whether the server has said that this message will not count.
    fn beyond_stop(&self, seq: u32) -> bool {
        self.stop.as_ref().is_some_and(|stop| {
            let stop = self.window.ahead(stop.seq).unwrap_or(0);
            self.window.ahead(seq).is_some_and(|ahead| ahead >= stop)
        })
    }

    /// Of control messages the answers alone count as something that the server has said: the
    /// others, known or not, bring the stream no further.
    fn control(
        &mut self,
        now: Timestamp,
        side: Side,
        message: Control,
    ) -> Result<(), ProtocolError> {
        let extension = self
            .peer_mut(side)
            .is_some_and(|peer| peer.config.extension);
        if !extension {
            return Err(ProtocolError::new(
                "E1",
                format!(
                    "{} message from a server that was not asked by dipc_want",
                    message.name()
                ),
            ));
        }
        match message {
            Control::Stream(info, headers) => {
                // A second one is an error.
                self.last_heard = now;
                self.stream(side, info, &headers)
            }
            Control::Error {
                status,
                seq,
                text,
                headers,
            } => {
                if self.peer_mut(side).is_some_and(|peer| !peer.failed) {
                    self.last_heard = now;
                }
                self.answered(side, &headers)?;
                self.stop(side, seq, of_server(error_of(status, &text)));
                Ok(())
            }
            Control::Pending { stream } => {
                // One of an earlier stream may come late, and a second one is no news.
                if stream == self.config.request.mark()
                    && let Some(peer) = self.peer_mut(side)
                    && !std::mem::replace(&mut peer.pending, true)
                {
                    self.last_heard = now;
                }
                Ok(())
            }
            // Regions belong to the connection: they count whatever became of the stream.
            Control::Region { id, handle } => {
                self.events
                    .push_back(ReceiverEvent::Region { side, id, handle });
                Ok(())
            }
            Control::RegionGone { id } => {
                self.events
                    .push_back(ReceiverEvent::RegionGone { side, id });
                self.control_out(side, Control::RegionForgotten { id }.encode());
                Ok(())
            }
            // So does it: what is under way of the stream still comes.
            Control::GoAway => Ok(()),
            // What connects to GPUs deals with it before the machine sees it.
            Control::Ready { seq, .. } => Err(ProtocolError::new(
                "E3",
                format!(
                    "READY message for message {seq}, and this client did not say that it reads \
                     a GPU's memory"
                ),
            )),
            Control::Cancel { .. }
            | Control::Credit { .. }
            | Control::RegionForgotten { .. }
            | Control::Return { .. } => Err(ProtocolError::new(
                "E3",
                format!(
                    "{} message from a server: only clients send it",
                    message.name()
                ),
            )),
        }
    }

    fn stream(
        &mut self,
        side: Side,
        info: StreamInfo,
        headers: &Headers,
    ) -> Result<(), ProtocolError> {
        let request = &self.config.request;
        let (min, max) = (request.lowest_version(), request.max_version);
        let unasked = info.features & !request.features;
        let broken = self.state.is_broken();
        let Some(peer) = self.peer_mut(side) else {
            return Ok(());
        };
        // Rule E2: one answer, within what was asked.
        let fault = if peer.info.is_some() {
            Some("a second time".to_owned())
        } else if !(min..=max).contains(&info.version) {
            Some(format!(
                "with version {}, asked for {min} to {max}",
                info.version
            ))
        } else if unasked != 0 {
            Some(format!(
                "with features {unasked:#x}, which were not asked for"
            ))
        } else {
            None
        };
        if let Some(fault) = fault {
            return Err(ProtocolError::new(
                "E2",
                format!("the server accepts {fault}"),
            ));
        }
        peer.info = Some(info);
        self.answered(side, headers)?;
        if side == Side::Data || self.data.is_none() {
            self.early_spans = 0;
            for (seq, spans) in std::mem::take(&mut self.early) {
                self.abandon(seq, spans);
            }
        }
        if broken {
            return Ok(());
        }
        if side == Side::Metadata && self.state == ReceiverState::Requested {
            self.state = ReceiverState::AwaitingSchema;
        }
        self.events.push_back(ReceiverEvent::Stream { side, info });
        Ok(())
    }

    /// Keeps the headers of an answer. Of two connections, that of the metadata has them.
    fn answered(&mut self, side: Side, headers: &Headers) -> Result<(), ProtocolError> {
        if headers.is_empty() {
            return Ok(());
        }
        if self.config.request.features & FEATURE_HEADERS == 0 {
            return Err(ProtocolError::new(
                "Q1",
                "the server answers with headers, which were not asked for",
            ));
        }
        if side == Side::Metadata {
            self.answer_headers.extend(headers);
        }
        Ok(())
    }

    /// ERROR: messages before `seq` stand, the others will not come.
    fn stop(&mut self, side: Side, seq: u32, error: Error) {
        if side == Side::Metadata {
            self.over_on_wire = true;
        }
        if let Some(peer) = self.peer_mut(side) {
            peer.failed = true;
        }
        // After the whole stream has come, an ERROR has nothing to say.
        if self.state.is_broken() || self.state == ReceiverState::Ended {
            return;
        }
        let ahead = self.window.ahead(seq).unwrap_or(0);
        // Two connections may each say ERROR: the first says why, the lowest number says where.
        let earlier = self
            .stop
            .as_ref()
            .is_none_or(|stop| Some(ahead) < self.window.ahead(stop.seq));
        if earlier {
            self.abandon_from(seq);
            let error = self.stop.take().map_or(error, |stop| stop.error);
            self.stop = Some(Stop { seq, error });
        }
    }
}

/// The server's error, as one: what it says of files and limits is not of this machine. Its own
/// words are the [cause](Error::cause).
fn of_server(error: Error) -> Error {
    const SERVER: &str = "the server";
    if error.text().starts_with(SERVER) {
        error
    } else {
        error.context(SERVER)
    }
}
