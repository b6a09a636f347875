//! How long a server keeps a connection without requests.

use std::time::Duration;

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
    pub(super) at: Option<Timestamp>,
    /// At the last look nothing was asked for, and neither side had memory of the other. If the
    /// next look sees the same, the connection ends.
    was_idle: bool,
    idle: Option<Duration>,
}

impl Wait {
    pub(super) fn for_first_request(times: QuietTimes, now: Timestamp) -> Self {
        // Without a time limit for the first request, the connection counts as idle from the
        // beginning.
        let first = times.request.or(times.idle);
        Self {
            at: first.map(|time| now.saturating_add(time)),
            was_idle: times.request.is_some(),
            idle: times.idle,
        }
    }

    pub(super) fn requested(&mut self) {
        self.was_idle = false;
    }

    /// Looks at the connection, if it is time to.
    ///
    /// # Errors
    ///
    /// `Timeout`: two looks saw a connection that nobody uses.
    pub(super) fn look(&mut self, now: Timestamp, is_idle: bool) -> Result<(), Error> {
        if self.at.take_if(|at| *at <= now).is_none() {
            return Ok(());
        }
        if is_idle && self.was_idle {
            return Err(Error::timeout(
                "the client has asked for nothing for too long",
            ));
        }
        self.was_idle = is_idle;
        self.at = self.idle.map(|idle| now.saturating_add(idle));
        Ok(())
    }
}
