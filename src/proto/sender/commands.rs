//! Commands of the driver to a sender.

use std::sync::Arc;

use super::{OutBody, Sender, SenderEvent, SenderState, SentStream, Transmit};
use crate::error::{Error, Status};
use crate::proto::extension::{FEATURE_HEADERS, FEATURE_IN_PLACE, FEATURE_REPEAT, FEATURE_RETURN};
use crate::proto::{
    AddressList, BodyKind, Control, Headers, IPC_HANDLE_BYTES, MAX_ANSWER_HEADERS, Prefix,
    PrefixKind, Role, StreamInfo, body_tag,
};

/// Commands. If the state does not allow a command, the command fails and changes nothing.
impl<P, K> Sender<P, K> {
    /// Accepts the request and describes the stream to the client (rule E2). The sender sets the
    /// version, and adds to `info` the features that both sides know.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: no request for a stream of this side waits. `Cancelled`: the client has
    /// cancelled the request.
    pub fn accept(&mut self, mut info: StreamInfo) -> Result<(), Error> {
        let may_begin = match &self.stream {
            // Rule Q5: the server may accept after the grant too.
            Some(stream) if stream.has_source => stream.is_exchange && !stream.schema_sent,
            _ => true,
        };
        let is_asked = matches!(self.state, SenderState::Requested | SenderState::Taking);
        if !is_asked || !may_begin {
            return Err(misuse("accept", self.state));
        }
        self.ensure_wanted()?;
        if self.extension {
            if let Some(stream) = &self.stream {
                info.version = stream.version;
                info.features |= stream.features;
            }
            let headers = self.take_answer_headers();
            self.control_out(&Control::Stream(info, headers));
        }
        self.state = SenderState::Streaming;
        Ok(())
    }

    /// Adds headers to the next answer: STREAM before [`accept`](Self::accept), and ERROR after it.
    /// A client that does not know headers gets none.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: no stream is requested or runs, or the headers are longer than
    /// [`MAX_ANSWER_HEADERS`].
    pub fn add_answer_headers(&mut self, headers: &Headers) -> Result<(), Error> {
        let state = self.state;
        let stream = self
            .stream
            .as_mut()
            .ok_or_else(|| misuse("add_answer_headers", state))?;
        if stream.features & FEATURE_HEADERS == 0 {
            return Ok(());
        }
        let mut all = stream.answer_headers.clone();
        all.extend(headers);
        all.ensure_fit(MAX_ANSWER_HEADERS)?;
        stream.answer_headers = all;
        Ok(())
    }

    /// Tells the client that the server has read its request, if the client [waits for this
    /// message](Self::awaits_pending).
    pub fn say_pending(&mut self) {
        if self.awaits_pending()
            && let Some(stream) = self.stream.as_ref().map(|stream| stream.mark)
        {
            self.control_out(&Control::Pending { stream });
        }
    }

    /// Refuses the request. A baseline peer knows no errors, so the connection ends (rule E7).
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: no request waits.
    pub fn refuse(&mut self, status: i32, text: &str) -> Result<(), Error> {
        if self.state != SenderState::Requested {
            return Err(misuse("refuse", self.state));
        }
        self.over(status, text);
        Ok(())
    }

    /// Sends the schema, the first message of the stream (rule M4).
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: no stream runs, or the schema was sent. `Cancelled`.
    pub fn send_schema(&mut self, header: impl Into<Arc<[u8]>>) -> Result<(), Error> {
        let asked = self.state == SenderState::Asked;
        let stream = match &mut self.stream {
            // Rule Q3: the server decides with the schema.
            Some(stream) if asked => stream,
            _ => self.streaming("send_schema")?,
        };
        if std::mem::replace(&mut stream.schema_sent, true) {
            return Err(Error::invalid_argument(
                "the schema of the stream has been sent",
            ));
        }
        let (role, seq) = (stream.role, stream.next_seq);
        // Rule M4: numbers wrap.
        stream.next_seq = seq.wrapping_add(1);
        self.header_out(role, seq, header.into());
        Ok(())
    }

    /// Sends a dictionary. A dictionary uses bytes of the window, but no batches (rule E5). First
    /// wait until [`admits`](Self::admits) returns true.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: no stream runs, no schema was sent, or the body does not fit the role,
    /// its length or rule A1. `Cancelled`. The call drops the header and the body.
    pub fn send_dictionary(
        &mut self,
        header: impl Into<Arc<[u8]>>,
        body_len: u64,
        body: OutBody<P, K>,
    ) -> Result<(), Error> {
        self.send(header.into(), body_len, body, 0)
    }

    /// Sends a record batch. First wait until [`admits`](Self::admits) returns true.
    ///
    /// # Errors
    ///
    /// As [`send_dictionary`](Self::send_dictionary).
    pub fn send_batch(
        &mut self,
        header: impl Into<Arc<[u8]>>,
        body_len: u64,
        body: OutBody<P, K>,
    ) -> Result<(), Error> {
        self.send(header.into(), body_len, body, 1)
    }

    /// Ends the stream. Sends nothing on a connection of role Data: the metadata carries the end.
    ///
    /// The state is then `Idle`, or [`Ended`](SenderState::Ended) for a baseline peer and role
    /// Data. If the client has cancelled, the sender answers the cancellation instead (rule E4).
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: no stream runs, or its schema was not sent.
    pub fn end(&mut self) -> Result<(), Error> {
        let (extension, is_client) = (self.extension, self.is_client);
        let stream = match &self.stream {
            Some(stream) if self.state == SenderState::Streaming => stream,
            _ => return Err(misuse("end", self.state)),
        };
        if stream.cancelled && extension {
            self.over(Status::Cancelled.code(), "the client cancelled the stream");
            return Ok(());
        }
        if !stream.schema_sent {
            return Err(Error::invalid_argument(
                "a stream has a schema before its end",
            ));
        }
        let (role, seq) = (stream.role, stream.next_seq);
        if role != Role::Data {
            // Rule M5: exactly a prefix, with the next number.
            let prefix = Prefix {
                kind: PrefixKind::EndOfStream,
                seq,
            }
            .encode();
            self.transmits.push_back(Transmit::Metadata {
                prefix,
                header: None,
            });
        }
        if is_client {
            self.state = SenderState::Ending;
            return Ok(());
        }
        if self.is_taking() {
            // Rule Q5: the client's stream may still come.
            self.state = SenderState::Taking;
            return Ok(());
        }
        let ended = self.stream.take();
        if role == Role::Data {
            self.tail = ended.and_then(|stream| Some((stream.mark, stream.window?)));
        }
        self.state = if extension && role != Role::Data {
            SenderState::Idle
        } else {
            SenderState::Ended
        };
        Ok(())
    }

    /// Ends the stream with an error; for a baseline peer, ends the connection instead (rule E7).
    /// At a server, the stream may be one that the client sends. At a client whose own stream has
    /// ended, sends CANCEL.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: no stream is requested or runs.
    pub fn fail(&mut self, status: i32, text: &str) -> Result<(), Error> {
        match self.state {
            SenderState::Requested | SenderState::Taking => self.over(status, text),
            SenderState::Streaming if !self.is_client => self.over(status, text),
            SenderState::Streaming | SenderState::Asked => self.abort(status, text),
            SenderState::Ending => self.cancel_taking(),
            state => return Err(misuse("fail", state)),
        }
        Ok(())
    }

    /// Tells the peer to read the body of the next message only after a CUDA event. `handle` opens
    /// the event. `handle` is empty if the connection has sent the handle before. Then send that
    /// message, with a lent body.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: the peer does not speak the extension, or the handle has a wrong length.
    pub fn announce_ready(&mut self, event: u16, handle: &[u8]) -> Result<(), Error> {
        if self.state == SenderState::Closed || !self.extension {
            return Err(misuse("announce_ready", self.state));
        }
        if !matches!(handle.len(), 0 | IPC_HANDLE_BYTES) {
            return Err(Error::invalid_argument(format!(
                "the handle of an event does not have {} bytes",
                handle.len()
            )));
        }
        // Sent also after a cancellation: later messages rely on the handle.
        let ready = Control::Ready {
            seq: self.next_seq(),
            event,
            handle: handle.to_vec(),
        };
        self.control_out(&ready);
        Ok(())
    }

    pub(super) fn ensure_wanted(&self) -> Result<(), Error> {
        if self.is_cancelled() {
            return Err(Error::cancelled("the client cancelled the stream"));
        }
        Ok(())
    }

    fn streaming(&mut self, what: &str) -> Result<&mut SentStream, Error> {
        self.ensure_wanted()?;
        match &mut self.stream {
            Some(stream) if self.state == SenderState::Streaming => Ok(stream),
            _ => Err(misuse(what, self.state)),
        }
    }

    fn header_out(&mut self, role: Role, seq: u32, header: Arc<[u8]>) {
        if role == Role::Data {
            return;
        }
        let agreed = |stream: &&mut SentStream| stream.features & FEATURE_REPEAT != 0;
        let repeats = self.stream.as_mut().filter(agreed).is_some_and(|stream| {
            let last = stream.last_header.replace(Arc::clone(&header));
            last.is_some_and(|last| Arc::ptr_eq(&last, &header))
        });
        let (kind, header) = if repeats {
            (PrefixKind::Repeat, None)
        } else {
            // Rule M2: the message is prefix and header, nothing else.
            (PrefixKind::Metadata, Some(header))
        };
        let prefix = Prefix { kind, seq }.encode();
        self.transmits
            .push_back(Transmit::Metadata { prefix, header });
    }

    fn send(
        &mut self,
        header: Arc<[u8]>,
        body_len: u64,
        body: OutBody<P, K>,
        batches: u64,
    ) -> Result<(), Error> {
        let stream = self.streaming("send")?;
        let (role, seq) = (stream.role, stream.next_seq);
        if !stream.schema_sent {
            return Err(Error::invalid_argument(
                "the schema comes before dictionaries and batches",
            ));
        }
        let wrong = |what: &str| Err(Error::invalid_argument(format!("body of {what}")));
        // The checks come before the first change.
        let mut total = 0;
        match &body {
            OutBody::Elsewhere if role == Role::Metadata => {}
            OutBody::Packed { len, .. } if role != Role::Metadata => {
                if *len != body_len {
                    return wrong(&format!("{len} bytes under a header that says {body_len}"));
                }
            }
            OutBody::Lent { spans, .. } if role != Role::Metadata => {
                // Rule U2: without `free_data` the peer cannot return lent memory.
                let tags = self.config.tags.get(role);
                if tags.is_none_or(|tags| tags.free_data.is_none()) {
                    return wrong("lent memory where the URI has no free_data");
                }
                total = AddressList::total_of(spans)
                    .map_err(|error| Error::invalid_argument(error.to_string()))?;
                if total > body_len {
                    return wrong(&format!("{total} bytes lent for one of {body_len}"));
                }
            }
            _ => {
                return wrong(&format!(
                    "the wrong connection for the role {}",
                    role.as_str()
                ));
            }
        }
        let stream = self.streaming("send")?;
        let (mark, features) = (stream.mark, stream.features);
        stream.next_seq = seq.wrapping_add(1);
        let in_place = matches!(&body, OutBody::Lent { in_place: true, .. });
        let free = in_place && features & FEATURE_IN_PLACE != 0;
        if let Some(window) = &mut stream.window {
            window.sent(batches, body_len, free);
        }
        self.header_out(role, seq, header);
        // Rule D1: each message has a body message, even for a body of 0 bytes.
        match body {
            OutBody::Elsewhere => {}
            OutBody::Packed {
                payload: packed, ..
            } => {
                let tag = body_tag(seq, BodyKind::Packed);
                self.transmits.push_back(Transmit::Body { tag, packed });
            }
            OutBody::Lent { spans, hold, .. } => {
                let tag = body_tag(seq, BodyKind::List);
                let bytes = AddressList::bytes_of(total, &spans);
                self.transmits.push_back(Transmit::List { tag, bytes });
                // A list of empty buffers lends nothing.
                let unused = if features & FEATURE_RETURN != 0 {
                    self.ledger.lend_numbered(mark, seq, &spans, hold)
                } else {
                    self.ledger.lend(&spans, hold)
                };
                self.events.extend(unused.map(SenderEvent::Freed));
            }
        }
        Ok(())
    }
}

pub(super) fn misuse(what: &str, state: SenderState) -> Error {
    Error::invalid_argument(format!(
        "{what} is not possible while the sender is {state:?}"
    ))
}
