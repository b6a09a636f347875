//! A descriptor that is kept for the time when no other is left: clients are then told so, one
//! after the other, and do not wait in vain.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use crate::driver::clock;
use crate::error::{Error, Status};
use crate::proto::{Control, RoleTags, Timestamp};
use crate::transport::{Connection, Incoming, Listener, Outgoing};

/// How long there is to be none before clients are refused: who has them may give some back soon.
const SHORTAGE: Duration = Duration::from_secs(1);
/// How long a client has for its request, to which the refusal is the answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// The descriptor, and the connection that has it.
pub(super) struct Spare {
    tags: RoleTags,
    fd: Option<OwnedFd>,
    refused: Option<Box<dyn Connection>>,
    since: Timestamp,
    /// Since when none was left.
    short_since: Option<Timestamp>,
}

impl Spare {
    /// Without a descriptor where there is none: clients wait then.
    pub(super) fn new(tags: RoleTags) -> Self {
        Self {
            tags,
            fd: open(),
            refused: None,
            since: Timestamp::default(),
            short_since: None,
        }
    }

    /// A connection is taken into service: the shortage is over.
    pub(super) fn there_are_others(&mut self) {
        self.short_since = None;
    }

    /// Keeps a descriptor again, where it is missing and there is one. Returns whether it is kept.
    pub(super) fn keep(&mut self) -> bool {
        if self.refused.is_none() && self.fd.is_none() {
            self.fd = open();
        }
        self.fd.is_some()
    }

    /// No descriptor was left for a connection: takes one in place of the spare descriptor.
    pub(super) fn take_one(&mut self, listener: &mut dyn Listener) {
        let now = clock::now();
        let since = *self.short_since.get_or_insert(now);
        let has_lasted = now.saturating_since(since) >= SHORTAGE;
        if self.refused.is_some() || !has_lasted || !listener.takes_one_descriptor() {
            return;
        }
        if self.fd.take().or_else(open).is_none() {
            return;
        }
        // Where another thread was quicker there is another time.
        self.refused = listener.accept().ok().flatten();
        self.since = now;
        self.answer();
    }

    /// Nobody is refused any more.
    pub(super) fn close(&mut self) {
        self.refused = None;
        self.fd = None;
    }

    /// Answers the request of the connection that has the descriptor, and takes that back. Returns
    /// whether there is more to do: the request is to come, or the descriptor, which a closer may
    /// still have.
    pub(super) fn answer(&mut self) -> bool {
        if let Some(connection) = &mut self.refused
            && clock::since(self.since) < PATIENCE
        {
            match connection.receive() {
                Ok(None) => return true,
                Ok(Some(Incoming::Tagged { tag, .. })) => {
                    refuse(connection.as_mut(), self.tags, tag)
                }
                // Nobody to be answered.
                Ok(Some(_)) | Err(_) => {}
            }
        }
        self.refused = None;
        !self.keep()
    }
}

/// A descriptor that nothing is done with.
fn open() -> Option<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC).ok()
}

/// Rule E7: a baseline peer is disconnected, and no more.
fn refuse(connection: &mut dyn Connection, tags: RoleTags, tag: u64) {
    if !matches!(tags.request(tag), Some((_, true))) {
        return;
    }
    let error = Error::new(
        Status::OutOfResources,
        "the server has no file descriptor left for this connection: try again later, or raise its limit \
         of open files (ulimit -n)",
    );
    let bytes = Control::Error {
        status: error.status().code(),
        seq: 0,
        text: error.text().to_owned(),
    }
    .encode();
    // Who has gone need not hear it.
    let _ = connection.send(Outgoing::Control { bytes, fd: None });
}
