//! Connections that are not served: their peers are told why, and nothing else is done for them.

use std::time::Duration;

use crate::driver::clock;
use crate::error::Error;
use crate::proto::{Control, RoleTags, Timestamp};
use crate::transport::{Connection, Incoming, Outgoing};

/// How long a client has for its request, to which the refusal is the answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// A connection that is refused. It is looked at from time to time, and closed when it is dropped.
pub(super) struct Refused {
    connection: Box<dyn Connection>,
    why: Error,
    since: Timestamp,
}

impl Refused {
    /// Refuses `connection`, for the reason that its peer is to be told.
    pub(super) fn new(connection: Box<dyn Connection>, why: Error) -> Self {
        Self {
            connection,
            why,
            since: clock::now(),
        }
    }

    /// Answers the request, if it has come. Returns whether it may still come.
    pub(super) fn answer(&mut self, tags: RoleTags) -> bool {
        if clock::since(self.since) >= PATIENCE {
            return false;
        }
        match self.connection.receive() {
            Ok(None) => return true,
            Ok(Some(Incoming::Tagged { tag, .. })) => self.refuse(tags, tag),
            // Nobody to be answered.
            Ok(Some(_)) | Err(_) => {}
        }
        false
    }

    /// Rule E7: a baseline peer is disconnected, and no more.
    fn refuse(&mut self, tags: RoleTags, tag: u64) {
        if !matches!(tags.request(tag), Some((_, true))) {
            return;
        }
        let bytes = Control::Error {
            status: self.why.status().code(),
            seq: 0,
            text: self.why.text().to_owned(),
        }
        .encode();
        // Who has gone need not hear it.
        let _ = self.connection.send(Outgoing::Control { bytes, fd: None });
    }
}
