//! A connection's work for a stream that a client sends: the request, and the server's answers.

use super::{End, EndEffects, EndLink, OutSender, Writes};
use crate::error::Result;
use crate::proto::Request;

impl End {
    /// Asks the server to take the stream of the request. The request leaves together with the
    /// schema, which follows.
    ///
    /// # Errors
    ///
    /// As [`SessionStream::ask`](crate::proto::SessionStream::ask), or the connection is over.
    pub fn ask(&mut self, number: u32, request: &Request, effects: &mut EndEffects) -> Result<()> {
        self.session.ensure_open()?;
        let asked = self.stream_mut(number)?.ask(request);
        self.pump_unwritten(effects);
        self.session.ensure_open().and(asked)
    }

    /// Nobody waits for the server's last word any more.
    pub fn stop_asking(&mut self, number: u32, effects: &mut EndEffects) {
        if let Ok(stream) = self.stream_mut(number) {
            stream.stop_asking();
        }
        self.pump(effects);
    }

    /// Tells the client that its request was read, and that the answer takes longer.
    pub fn say_pending(&mut self, number: u32, effects: &mut EndEffects) {
        if let Ok(stream) = self.stream_mut(number) {
            stream.say_pending();
        }
        self.pump(effects);
    }

    /// Answers the client of the stream `mark`, unless that stream is over.
    pub(super) fn answer(
        &mut self,
        number: u32,
        mark: u64,
        answer: impl FnOnce(&mut OutSender) -> Result<()>,
        effects: &mut EndEffects,
    ) -> Result<()> {
        let answered = self.stream_mut(number)?.answer(mark, answer);
        self.pump_unwritten(effects);
        self.write_later(Writes::AtOnce, effects);
        self.session.ensure_open().and(answered)
    }
}

impl EndLink {
    /// Makes the client ask on another connection from now on, unless this one carries many
    /// streams.
    pub fn serve_no_more(&self) {
        self.interfere(|end, effects| {
            if end.session.is_many() {
                return;
            }
            // It fails only if the connection is over.
            let _ = end.session.go_away();
            end.pump(effects);
        });
    }
}
