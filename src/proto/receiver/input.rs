//! Inputs of a receiver.

use super::waiting::Missing;
use super::{ExpectedBody, InBody, Receiver, ReceiverEvent, ReceiverState, Side};
use crate::error::Error;
use crate::proto::window::{Arrived, REACH};
use crate::proto::{
    AddressList, BODY_KIND_LIST, BODY_KIND_PACKED, BodyKind, Control, Header, HeaderKind, Prefix,
    PrefixKind, ProtocolError, Timestamp, parse_body_tag,
};

/// Limit for spans in abandoned bodies that come before the server's answer: 16 MiB of spans.
const MOST_EARLY_SPANS: usize = 1 << 20;

/// Inputs. If the stream fails in a call, the call returns the error. A failed or cancelled stream
/// ignores its inputs, except addresses, which go to [`abandoned`](Receiver::abandoned).
impl<B> Receiver<B> {
    /// Copies and takes a metadata message.
    ///
    /// # Errors
    ///
    /// `Protocol`: the peer broke a rule, and the caller should close the connection.
    #[inline]
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
        self.arrivals.body();
        let result = self.body(now, tag, body);
        self.conclude(result)
    }

    /// Takes a control message that was decoded.
    ///
    /// # Errors
    ///
    /// As [`handle_metadata`](Self::handle_metadata), or the error in an ERROR message, if no
    /// message is left to hand out first.
    pub fn handle(&mut self, now: Timestamp, side: Side, message: Control) -> Result<(), Error> {
        let result = self.control(now, side, message);
        self.conclude(result)
    }

    /// Takes a control message.
    ///
    /// # Errors
    ///
    /// As [`handle`](Self::handle).
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

    /// Notes that a connection is over. Arrays that the consumer has stay valid, and so does a
    /// stream that has arrived completely.
    pub fn handle_disconnect(&mut self, side: Side, reason: &Error) {
        self.over_on_wire &= side != Side::Metadata;
        let ended = self.state == ReceiverState::Ended;
        if self.state.is_broken() || (ended && !(side == Side::Data && self.is_held_up())) {
            return;
        }
        // The metadata is complete, and the bodies come on the other connection.
        if side == Side::Metadata && self.data.is_some() && self.window.end_seen() {
            return;
        }
        // An ERROR of the server explains more than the cut.
        let unsaid = self.stop.is_none();
        let error = self
            .stop
            .take()
            .map_or_else(|| self.cut_error(side, reason), |stop| stop.error);
        if let Some(peer) = self.peer_mut(side) {
            peer.failed = true;
        }
        // The other connection hears of the failure only while `faulty` is not set.
        self.fail(error);
        self.faulty |= unsaid;
    }

    /// Notes that time has passed. Does nothing before the time of
    /// [`poll_timeout`](Self::poll_timeout).
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.waits(now);
        if self.poll_timeout().is_none_or(|deadline| now < deadline) {
            return;
        }
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            let given = self.config.given_deadline;
            let time = given.or(self.config.request.deadline).unwrap_or_default();
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
                 and the server itself has not read the request; the time-out is too short, or the \
                 server is stopped, hangs, has no file descriptor left to accept with, or does not \
                 know the extension (then copy the URI that it printed)"
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
        // The peer broke no rule. So it is told of the end, and the connection can carry further
        // streams.
        if self.refused.is_some()
            && let Some(error) = self.refused.take_if(|_| result.is_ok() && !was_broken)
        {
            return Err(self.fail(error));
        }
        match (result, was_broken) {
            (Ok(()), false) if self.state == ReceiverState::Failed => Err(self
                .error
                .clone()
                .unwrap_or_else(|| Error::protocol("the stream failed"))),
            (Ok(()), _) => Ok(()),
            // The stream was over before this error, so the error concerns only the connection.
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
            self.arrivals.end(self.config.first_seq, prefix.seq);
            self.lower_stop(prefix.seq);
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
                    broken!(
                        "M3",
                        "a metadata message repeats a header (kind 2), which was not agreed on, or \
                         there is none before it"
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
            let bounds = self.bounds.ensure_body(seq, &header);
            if let Err(error) = bounds.and_then(|()| self.bounds.waits(&header)) {
                self.refused.get_or_insert(error);
            }
        }
        let (packed, list) = (header.body_len(), header.list_len());
        // Rule M6: messages are sorted by number, whatever the order of arrival.
        if self.window.put_header(seq, header)? {
            self.first_body.get_or_insert(packed);
            // Rule D8: the driver posts receives by exact tag, for both kinds.
            let expected = ExpectedBody::new(seq, packed, list);
            self.events.push_back(ReceiverEvent::Expect(expected));
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
        // Rule E2: bodies agree with the server's STREAM.
        if peer
            .info
            .is_some_and(|info| info.body_kinds & announced == 0)
        {
            return Err(broken!(
                "E2",
                "body of message {seq} is of a kind that its sender did not announce"
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
                // Rule U2: without free_data the client could not return lent memory.
                if tags.free_data.is_none() {
                    return Err(broken!(
                        "U2",
                        "address list from a server whose URI has no free_data"
                    ));
                }
                Arrived::List(AddressList::decode(bytes)?)
            }
            _ => {
                return Err(broken!(
                    "D2",
                    "body tag {tag:#018x} does not say what came with it"
                ));
            }
        };
        if self.state.is_broken() || self.beyond_stop(seq) {
            if let Arrived::List(list) = arrived {
                self.abandon(seq, list.spans);
            }
            if self.early.len() > REACH as usize || self.early_spans > MOST_EARLY_SPANS {
                return Err(broken!("E2", "bodies of a stream that was not accepted"));
            }
            return Ok(());
        }
        self.last_heard = now;
        // Rule D5: the number alone joins a body to its header.
        self.window.put_body(seq, arrived)
    }

    /// Whether the server's ERROR excludes this message.
    fn beyond_stop(&self, seq: u32) -> bool {
        self.stop.as_ref().is_some_and(|stop| {
            let stop = self.window.ahead(stop.seq).unwrap_or(0);
            self.window.ahead(seq).is_some_and(|ahead| ahead >= stop)
        })
    }
}
