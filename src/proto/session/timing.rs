//! How long a server keeps a connection without requests.

use std::time::Duration;

use super::Session;
use super::role::SessionRole;
use crate::error::Error;
use crate::proto::Timestamp;

/// Times of a connection at a server.
#[derive(Debug, Clone, Copy, Default)]
pub struct QuietTimes {
    /// How long the first request may take to come; `None`: for ever.
    pub request: Option<Duration>,
    /// How long a connection without a stream is kept, up to twice this time; `None`: for ever.
    pub idle: Option<Duration>,
}

/// The time that a server gives a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait {
    /// When to look next whether something was asked for.
    at: Option<Timestamp>,
    /// What the last look saw.
    seen: Seen,
    idle: Option<Duration>,
}

/// What a look at a connection saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// Nothing was asked for, and neither side had memory of the other. If the next look sees the
    /// same, the connection ends.
    Quiet,
    Busy,
}

impl Wait {
    pub(super) fn for_first_request(times: QuietTimes, now: Timestamp) -> Self {
        // Without a time limit for the first request, the connection counts as idle from the
        // beginning.
        let first = times.request.or(times.idle);
        Self {
            at: first.map(|time| now.saturating_add(time)),
            seen: match times.request {
                Some(_) => Seen::Quiet,
                None => Seen::Busy,
            },
            idle: times.idle,
        }
    }

    pub(super) fn requested(&mut self) {
        self.seen = Seen::Busy;
    }
}

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

    /// Notes that time has passed. `is_unused`: nothing waits for room at the transport, and the host
    /// has no memory of the peer's.
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
        let wait = &mut server.quiet;
        if is_closed || wait.at.take_if(|at| *at <= now).is_none() {
            return Ok(());
        }
        if is_idle && wait.seen == Seen::Quiet {
            return Err(Error::timeout(
                "the client has asked for nothing for too long",
            ));
        }
        wait.seen = match is_idle {
            true => Seen::Quiet,
            false => Seen::Busy,
        };
        wait.at = wait.idle.map(|idle| now.saturating_add(idle));
        Ok(())
    }
}
