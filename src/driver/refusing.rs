//! Connections that are not served: their peers only get an error that says why.

use std::time::Duration;

use crate::driver::clock;
use crate::error::Error;
use crate::proto::{Control, FEATURE_HEADERS, Headers, Request, RoleTags, Timestamp};
use crate::transport::{Connection, Incoming, Outgoing};

/// How long a refused client has to send its request. The refusal is the answer to it.
const PATIENCE: Duration = Duration::from_secs(1);

/// A connection that is refused. Dropping it closes the connection.
pub(super) struct Refused {
    connection: Box<dyn Connection>,
    why: Error,
    until: Timestamp,
}

impl Refused {
    pub(super) fn new(connection: Box<dyn Connection>, why: Error) -> Self {
        Self {
            connection,
            why,
            until: clock::after(PATIENCE),
        }
    }

    /// Answers the request, if it has come. Returns whether the request may still come.
    pub(super) fn answer(&mut self, tags: RoleTags) -> bool {
        match self.connection.receive_any() {
            Ok(None) => return clock::now() < self.until,
            // Rule E7: a baseline peer is only disconnected.
            Ok(Some(Incoming::Tagged { tag, bytes }))
                if matches!(tags.request(tag), Some((_, true))) =>
            {
                let knows_headers = Request::decode(&bytes)
                    .is_ok_and(|request| request.features & FEATURE_HEADERS != 0);
                let advice = self.why.advice().filter(|_| knows_headers);
                let bytes = Control::Error {
                    status: self.why.status().code(),
                    seq: 0,
                    text: self.why.text().to_owned(),
                    headers: advice.map_or_else(Headers::new, Headers::of_advice),
                }
                .encode();
                // A peer that has gone need not get the refusal.
                let _ = self.connection.send(Outgoing::Control { bytes, fd: None });
            }
            Ok(Some(_)) | Err(_) => {}
        }
        false
    }
}
