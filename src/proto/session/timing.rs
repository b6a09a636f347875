//! What a session does when time has passed.

use super::Session;
use super::role::SessionRole;
use crate::error::Error;
use crate::proto::Timestamp;

impl<P, K, B> Session<P, K, B> {
    /// When [`handle_timeout`](Self::handle_timeout) is due.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        if self.closed().is_some() {
            return None;
        }
        let quiet = match &self.role {
            SessionRole::Server(server) => server.quiet.at,
            SessionRole::Client { .. } => None,
        };
        let silent = self.streams.silent_at();
        quiet.into_iter().chain(silent).min()
    }

    /// Notes that time has passed. `is_unused`: nothing waits for room at the transport, and the
    /// host has no memory of the peer.
    ///
    /// # Errors
    ///
    /// `Timeout`: nothing was asked for too long, and neither side has memory of the other. The
    /// caller closes the connection.
    pub fn handle_timeout(&mut self, now: Timestamp, is_unused: bool) -> Result<(), Error> {
        self.streams.handle_timeout(now);
        let is_idle = is_unused && self.streams.is_idle();
        let is_closed = self.closed().is_some();
        let SessionRole::Server(server) = &mut self.role else {
            return Ok(());
        };
        if is_closed {
            return Ok(());
        }
        server.quiet.look(now, is_idle)
    }
}
