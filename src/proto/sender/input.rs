//! Inputs of a sender.

use super::{CreditWindow, Sender, SenderEvent, SenderState, SentStream, is_answer};
use crate::error::{Error, Status};
use crate::proto::extension::{FEATURES, VERSION};
use crate::proto::{Control, Credit, Headers, ProtocolError, Request, Role, Verb, decode_frees};

impl<P, K> Sender<P, K> {
    /// Takes a tagged message: a request or a free list. Does nothing if the state is `Closed`.
    ///
    /// # Errors
    ///
    /// The peer broke a rule. The state is then `Closed`, [`Transmit::Disconnect`] waits, and
    /// [`handle_disconnect`](Self::handle_disconnect) gives back the lends.
    pub fn handle_tagged(&mut self, tag: u64, bytes: &[u8]) -> Result<(), ProtocolError> {
        if self.state == SenderState::Closed {
            return Ok(());
        }
        let result = match self.config.tags.request(tag) {
            Some((role, extension)) => Request::of(extension, bytes).and_then(|request| {
                let admitted = request.ensure_served();
                self.request(role, extension, request, admitted)
            }),
            None if self.config.tags.is_free(tag) => self.take_back(bytes),
            None => Err(broken!(
                "U1",
                "message with tag {tag}, which no URI of this server names: the client has a \
                     wrong or an old URI"
            )),
        };
        result.map_err(|error| self.close(error))
    }

    /// Takes a control message. Does nothing if the state is `Closed`.
    ///
    /// # Errors
    ///
    /// As [`handle_tagged`](Self::handle_tagged).
    pub fn handle_control(&mut self, bytes: &[u8]) -> Result<(), ProtocolError> {
        if self.state == SenderState::Closed {
            return Ok(());
        }
        match Control::decode(bytes) {
            Ok(Some(message)) => self.handle(&message),
            // Rule E3: unknown kinds are ignored.
            Ok(None) => Ok(()),
            Err(error) => Err(self.close(error)),
        }
    }

    /// As [`handle_control`](Self::handle_control), for a decoded message.
    ///
    /// # Errors
    ///
    /// As [`handle_tagged`](Self::handle_tagged).
    pub fn handle(&mut self, message: &Control) -> Result<(), ProtocolError> {
        if self.state == SenderState::Closed {
            return Ok(());
        }
        let result = self.control(message);
        result.map_err(|error| self.close(error))
    }

    /// Notes that the connection is over, and gives back every lend (rule F4). The peer may still
    /// map the memory, so the caller must not write to it.
    pub fn handle_disconnect(&mut self) -> Vec<K> {
        self.state = SenderState::Closed;
        self.stream = None;
        self.transmits.clear();
        let mut holds = self.ledger.drain();
        // Lends that the peer returned earlier may still wait in `events`.
        for event in std::mem::take(&mut self.events) {
            match event {
                SenderEvent::Freed(hold) => holds.push(hold),
                other => self.events.push_back(other),
            }
        }
        holds
    }

    /// Takes a request that was read. A request that is not admitted is refused at once. Does
    /// nothing if the state is `Closed`.
    ///
    /// # Errors
    ///
    /// As [`handle_tagged`](Self::handle_tagged).
    pub(in crate::proto) fn requested(
        &mut self,
        role: Role,
        extension: bool,
        request: Request,
        admitted: Result<(), Error>,
    ) -> Result<(), ProtocolError> {
        if self.state == SenderState::Closed {
            return Ok(());
        }
        let result = self.request(role, extension, request, admitted);
        result.map_err(|error| self.close(error))
    }

    fn request(
        &mut self,
        role: Role,
        extension: bool,
        request: Request,
        admitted: Result<(), Error>,
    ) -> Result<(), ProtocolError> {
        // Rule E4: one stream at a time; a baseline peer asks once.
        if self.state != SenderState::Idle || (self.extension && !extension) {
            let when = match self.state {
                SenderState::Idle => "without the extension that it used before",
                SenderState::Ended => "on a connection that carries one stream only",
                _ => "while one is served",
            };
            return Err(broken!("E4", "second request, {when}"));
        }
        self.extension = extension;
        let window = extension.then(|| CreditWindow::new(request.credit));
        self.stream = Some(SentStream {
            mark: request.mark(),
            role,
            next_seq: self.config.first_seq,
            schema_sent: false,
            cancelled: false,
            window,
            version: VERSION.min(request.max_version),
            features: request.features & FEATURES,
            answer_headers: Headers::new(),
            has_source: request.source.is_some(),
            is_exchange: request.verb == Verb::Exchange,
            is_granted: false,
            is_incoming_over: false,
            last_header: None,
        });
        self.state = SenderState::Requested;
        if let Err(error) = admitted {
            self.over(error.status().code(), error.text());
            return Ok(());
        }
        self.events.push_back(SenderEvent::Requested {
            request,
            extension,
            role,
        });
        Ok(())
    }

    fn take_back(&mut self, bytes: &[u8]) -> Result<(), ProtocolError> {
        let addresses = decode_frees(bytes)?;
        let mut freed = Vec::new();
        self.ledger.free(&addresses, &mut freed)?;
        self.events
            .extend(freed.into_iter().map(SenderEvent::Freed));
        Ok(())
    }

    fn take_numbers_back(&mut self, stream: u64, seqs: &[u32]) -> Result<(), ProtocolError> {
        let mut freed = Vec::new();
        let result = self.ledger.free_numbers(stream, seqs, &mut freed);
        self.events
            .extend(freed.into_iter().map(SenderEvent::Freed));
        result
    }

    fn control(&mut self, message: &Control) -> Result<(), ProtocolError> {
        if !self.extension && self.stream.is_some() {
            return Err(broken!(
                "E1",
                "{} message from a client that did not ask by dipc_want",
                message.name()
            ));
        }
        match message {
            _ if self.is_client && is_answer(message) => self.answered(message),
            Control::Cancel { stream } if !self.is_client => self.cancel(*stream),
            Control::Credit { stream, credit } => self.credit(*stream, *credit),
            Control::Return { stream, seqs } => self.take_numbers_back(*stream, seqs),
            Control::Abort { stream, .. } if !self.is_client => {
                if self.stream.as_ref().is_some_and(|own| own.mark == *stream) {
                    self.incoming_over();
                }
                Ok(())
            }
            _ => Err(self.wrong_side(message)),
        }
    }

    pub(super) fn wrong_side(&self, message: &Control) -> ProtocolError {
        let (from, senders) = match self.is_client {
            true => ("server", "clients"),
            false => ("client", "servers"),
        };
        let name = message.name();
        broken!("E3", "{name} message from a {from}: only {senders} send it")
    }

    /// Ignores a CANCEL of a stream that has ended.
    fn cancel(&mut self, mark: u64) -> Result<(), ProtocolError> {
        let running = self.stream.as_mut().filter(|stream| stream.mark == mark);
        if let Some(stream) = running {
            if !std::mem::replace(&mut stream.cancelled, true) {
                self.events.push_back(SenderEvent::Cancelled);
            }
        } else if let Some((_, tail)) = self.tail.as_mut().filter(|(of, _)| *of == mark) {
            tail.take_all();
            self.events.push_back(SenderEvent::CreditChanged);
        }
        Ok(())
    }

    fn credit(&mut self, mark: u64, credit: Credit) -> Result<(), ProtocolError> {
        let running = self
            .stream
            .as_mut()
            .filter(|stream| stream.mark == mark)
            .and_then(|stream| stream.window.as_mut());
        let tail = self.tail.as_mut().filter(|(of, _)| *of == mark);
        // `None`: the stream has ended, or the peer has no window.
        let Some(window) = running.or(tail.map(|(_, window)| window)) else {
            return Ok(());
        };
        window.update(credit)?;
        self.events.push_back(SenderEvent::CreditChanged);
        Ok(())
    }

    /// Ends the connection because the peer broke a rule, unless it has ended.
    pub(in crate::proto) fn close(&mut self, error: ProtocolError) -> ProtocolError {
        if self.state == SenderState::Closed {
            return error;
        }
        if self.extension && !self.is_client && self.stream.is_some() {
            // Only a peer with the extension can read the reason.
            let (status, text) = (Status::Protocol.code(), error.to_string());
            self.control_out(&Control::Error {
                status,
                seq: self.next_seq(),
                text,
                headers: Headers::new(),
            });
        }
        self.disconnect(error.to_string());
        error
    }
}
