//! The steps of a client that puts or exchanges, of a server, and of the link between them.

use super::*;

impl SendingWorld {
    pub(super) fn produce_up(&mut self) -> bool {
        if self.up.has_ended || self.client.first().ensure_streaming().is_err() {
            return false;
        }
        if !self.up.has_schema_left {
            // Rule Q3: the schema follows the request at once.
            return self.up.send_schema(&mut self.client);
        }
        if self.client.first().put().unwrap().stage < PutStage::Granted {
            return false;
        }
        if self.setup.fate == Fate::ClientAborts(self.up.sent) {
            let code = Status::Provider.code();
            self.client
                .first_mut()
                .sender()
                .fail(code, "out of luck")
                .unwrap();
            self.up.has_ended = true;
            return true;
        }
        self.up.send(&mut self.client)
    }

    /// The server's stream of an exchange.
    pub(super) fn produce_down(&mut self) -> bool {
        let is_streaming = self.server.first().state() == SenderState::Streaming;
        if !is_streaming || self.server.first().ensure_streaming().is_err() {
            return false;
        }
        match self.down.has_schema_left {
            true => self.down.send(&mut self.server),
            false => self.down.send_schema(&mut self.server),
        }
    }

    pub(super) fn deliver_up(&mut self) -> bool {
        // Rule Q11: a side reads whatever its host does, up to its window.
        if self.server.first().is_full() || self.server.closed().is_some() {
            return false;
        }
        let is_there = (self.up_line).deliver(&mut self.dice, self.now, &mut self.server);
        self.deliveries += usize::from(is_there);
        is_there
    }

    pub(super) fn deliver_down(&mut self) -> bool {
        if self.client.first().is_full() {
            return false;
        }
        let is_there = (self.down_line).deliver(&mut self.dice, self.now, &mut self.client);
        self.deliveries += usize::from(is_there);
        is_there
    }

    /// The server's host decides, reads, and answers.
    pub(super) fn host_step(&mut self) -> bool {
        match self.host {
            HostState::Idle | HostState::Answered => false,
            HostState::Deciding => self.decide(),
            HostState::Taking => self.take() || self.end_taking(),
        }
    }

    fn decide(&mut self) -> bool {
        let request = Request {
            credit: self.setup.up.window,
            ..self.request()
        };
        let config = ReceiverConfig::new(request, SideConfig::extended(Tags::DEFAULT));
        let receiver = Receiver::of_client(config, self.now).unwrap();
        let stream = IncomingStream::new(receiver, self.setup.ordered);
        self.server
            .first_mut()
            .begin_receiving(self.now, stream)
            .unwrap();
        if self.setup.fate == Fate::Refused {
            self.answer_failure("not today");
            return true;
        }
        // Rule Q5: the host begins the two directions in any order.
        let accepts_first = self.dice.roll(2) == 0;
        if accepts_first && self.is_exchange() {
            self.accept();
        }
        let info = StreamInfo {
            features: FEATURES,
            ..INFO
        };
        let grant = Grant {
            credit: self.setup.up.window,
            ..GRANT
        };
        let granted = (self.server)
            .first_mut()
            .answer(self.mark, |sender| sender.grant(info, grant));
        if !accepts_first && self.is_exchange() {
            self.accept();
        }
        // The client may have given up.
        self.host = match granted {
            Ok(()) => HostState::Taking,
            Err(_) if self.server.first().ensure_streaming().is_err() => {
                self.answer_failure("the client left");
                HostState::Answered
            }
            Err(_) => HostState::Answered,
        };
        true
    }

    /// Begins the server's stream of an exchange, unless the client has gone.
    fn accept(&mut self) {
        let accepted = (self.server)
            .first_mut()
            .answer(self.mark, |sender| sender.accept(INFO));
        let has_gone = self.server.first().ensure_streaming().is_err()
            || matches!(self.setup.fate, Fate::ClientAborts(_));
        assert!(accepted.is_ok() || has_gone);
    }

    fn answer_failure(&mut self, text: &str) {
        let code = Status::Provider.code();
        let told = (self.server)
            .first_mut()
            .answer(self.mark, |sender| sender.fail(code, text));
        // The server sends its last word even to a client that has given up.
        if told.is_err() {
            let _ = self.server.first_mut().sender().fail(code, text);
        }
        self.leave();
        self.host = HostState::Answered;
    }

    /// The host wants no more of the stream.
    fn leave(&mut self) {
        if let Some(stream) = self.server.first_mut().incoming_mut() {
            stream.cancel();
            stream.leave(self.now, Duration::from_secs(60));
        }
    }

    fn take(&mut self) -> bool {
        if self.server.first().ensure_streaming().is_err() {
            // Rule Q5: CANCEL ends both directions.
            self.answer_failure("the client left");
            return true;
        }
        if matches!(self.setup.fate, Fate::HostFails(after) if self.up.taken >= after) {
            self.answer_failure("the disk is full");
            return true;
        }
        let Some(stream) = self.server.first_mut().incoming_mut() else {
            return false;
        };
        if !self.up.take(stream) {
            return false;
        }
        if self.dice.roll(3) == 0 {
            let taken = self.up.taken as u64;
            let said = (self.server)
                .first_mut()
                .answer(self.mark, |sender| sender.say_result(taken, b"safe"));
            said.unwrap();
        }
        true
    }

    fn end_taking(&mut self) -> bool {
        let Some(stream) = self.server.first_mut().incoming_mut() else {
            return false;
        };
        if stream.is_complete() {
            // Rule Q5: either direction may end first.
            if self.server.first().state() != SenderState::Taking {
                return false;
            }
            let taken = self.up.taken as u64;
            let finish = (self.server)
                .first_mut()
                .answer(self.mark, |sender| sender.finish_taking(taken));
            finish.unwrap();
            self.leave();
        } else if let Some(error) = stream.error() {
            // Rule Q10: the client gave up, by itself or because it left the server's stream.
            assert!(matches!(self.setup.fate, Fate::ClientAborts(_)), "{error}");
            assert!(error.text().contains("out of luck"), "{error}");
            self.answer_failure("the client gave up");
        } else {
            return false;
        }
        self.host = HostState::Answered;
        true
    }

    /// The client reads results, and the server's stream of an exchange.
    pub(super) fn client_step(&mut self) -> bool {
        while let Some(result) = self
            .client
            .first_mut()
            .put_mut()
            .and_then(|put| put.results.pop_front())
        {
            // Rule Q4: numbers of batches that were sent, ascending.
            assert!(result.batches > self.results && result.batches <= self.up.sent as u64);
            self.results = result.batches;
        }
        let Some(stream) = self.client.first_mut().incoming_mut() else {
            return false;
        };
        if self.reader == ReaderState::Left {
            return false;
        }
        let is_over = || Fate::ClientCancels(self.down.taken) == self.setup.fate;
        if is_over() && !stream.is_complete() && stream.error().is_none() {
            stream.cancel();
        } else if self.down.take(stream) {
            return true;
        } else if stream.is_complete() {
            self.client.first_mut().end_receiving();
            return true;
        } else if stream.error().is_none() {
            return false;
        }
        stream.leave(self.now, Duration::from_secs(60));
        self.reader = ReaderState::Left;
        true
    }

    pub(super) fn pass_time(&mut self) -> bool {
        self.now = self.now.saturating_add(Duration::from_millis(3));
        let by_server = self.up.pass_time(self.now, &mut self.down_line);
        let by_client = self.down.pass_time(self.now, &mut self.up_line);
        by_server || by_client
    }
}
