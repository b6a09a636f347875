//! A connection's part in a stream that this client sends: the request and the server's answers.

use super::{End, EndEffects};
use crate::error::Result;
use crate::proto::Request;

impl End {
    /// Asks the server to take the stream of the request. Leaves with the schema, which follows.
    ///
    /// # Errors
    ///
    /// As [`Session::ask`](crate::proto::Session::ask), or the connection is over.
    pub fn ask(&mut self, request: &Request, effects: &mut EndEffects) -> Result<()> {
        self.session.ensure_open()?;
        let asked = self.session.ask(request);
        self.pump_unwritten(effects);
        self.session.ensure_open().and(asked)
    }

    /// Nobody waits for the server's last word any more.
    pub fn stop_asking(&mut self, effects: &mut EndEffects) {
        self.session.stop_asking();
        self.pump(effects);
    }
}
