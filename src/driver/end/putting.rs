//! A connection's part in a stream that a client sends: the request, and the server's answers.

use super::{End, EndEffects, EndLink, OutSender, Writes};
use crate::error::Result;
use crate::proto::{Grant, Request, StreamInfo};

impl End {
    /// Asks the server to take the stream of the request. Leaves with the schema, which follows.
    ///
    /// # Errors
    ///
    /// As [`SessionStream::ask`](crate::proto::SessionStream::ask), or the connection is over.
    pub fn ask(&mut self, request: &Request, effects: &mut EndEffects) -> Result<()> {
        self.session.ensure_open()?;
        let asked = self.session.first_mut().ask(request);
        self.pump_unwritten(effects);
        self.session.ensure_open().and(asked)
    }

    /// Nobody waits for the server's last word any more.
    pub fn stop_asking(&mut self, effects: &mut EndEffects) {
        self.session.first_mut().stop_asking();
        self.pump(effects);
    }

    /// Tells the client that its request was read, and that the answer takes longer.
    pub fn say_pending(&mut self, effects: &mut EndEffects) {
        self.session.first_mut().say_pending();
        self.pump(effects);
    }

    /// Answers the client of the stream `mark`, unless that stream is over.
    fn answer(
        &mut self,
        mark: u64,
        answer: impl FnOnce(&mut OutSender) -> Result<()>,
        effects: &mut EndEffects,
    ) -> Result<()> {
        let answered = self.session.first_mut().answer(mark, answer);
        self.pump_unwritten(effects);
        self.write_later(Writes::AtOnce, effects);
        self.session.ensure_open().and(answered)
    }
}

impl EndLink {
    /// Takes the stream `mark` that the client has described.
    ///
    /// # Errors
    ///
    /// `Cancelled`, or the connection is over.
    pub fn grant(&self, mark: u64, info: StreamInfo, grant: Grant) -> Result<()> {
        let answer = |sender: &mut OutSender| sender.grant(info, grant);
        self.interfere(|end, effects| end.answer(mark, answer, effects))
    }

    /// Tells the client that the first `batches` of its stream are safe.
    ///
    /// # Errors
    ///
    /// As [`Sender::say_result`], or the connection is over.
    pub fn say_result(&self, mark: u64, batches: u64, bytes: &[u8]) -> Result<()> {
        let answer = |sender: &mut OutSender| sender.say_result(batches, bytes);
        self.interfere(|end, effects| end.answer(mark, answer, effects))
    }

    /// Tells the client that the host has taken its stream, `batches` of them.
    ///
    /// # Errors
    ///
    /// As [`Sender::finish_taking`], or the connection is over.
    pub fn finish_taking(&self, mark: u64, batches: u64) -> Result<()> {
        let answer = |sender: &mut OutSender| sender.finish_taking(batches);
        self.interfere(|end, effects| end.answer(mark, answer, effects))
    }

    /// Has the client ask on another connection from now on.
    pub fn serve_no_more(&self) {
        self.interfere(|end, effects| {
            // It fails only where the connection is over.
            let _ = end.session.go_away();
            end.pump(effects);
        });
    }

    /// Refuses or fails the client's stream. A client that has gone is not told.
    pub fn fail_taking(&self, mark: u64, status: i32, text: &str) {
        self.interfere(|end, effects| {
            // The next request may have come already.
            if end.session.first_mut().sender().mark() == Some(mark) {
                end.send_failure(status, text, effects);
            }
        });
    }
}
