//! A descriptor that is kept for the time when no other is left: clients are then told so, one
//! after the other, and do not wait in vain.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use crate::driver::clock;
use crate::driver::refusing::Refused;
use crate::error::{Error, Status};
use crate::proto::{RoleTags, Timestamp};
use crate::transport::Listener;

/// How long there is to be none before clients are refused: who has them may give some back soon.
const SHORTAGE: Duration = Duration::from_secs(1);

/// The descriptor, or the connection that has it.
#[derive(Default)]
pub(super) struct SpareDescriptor {
    fd: Option<OwnedFd>,
    refused: Option<Refused>,
    /// Since when none was left.
    short_since: Option<Timestamp>,
}

impl SpareDescriptor {
    /// Without a descriptor where there is none: clients wait then.
    pub(super) fn new() -> Self {
        Self {
            fd: open(),
            ..Self::default()
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
    pub(super) fn take_one(&mut self, listener: &mut dyn Listener, tags: RoleTags) {
        let now = clock::now();
        let since = *self.short_since.get_or_insert(now);
        let has_lasted = now.saturating_since(since) >= SHORTAGE;
        if self.refused.is_some() || !has_lasted || !listener.takes_one_descriptor() {
            return;
        }
        if self.fd.take().or_else(open).is_none() {
            return;
        }
        self.refused = match listener.accept_to_refuse() {
            Ok(connection) => connection.map(|connection| Refused::new(connection, shortage())),
            // Where another thread was quicker there is another time.
            Err(_) => (listener.refused()).map(|(connection, why)| Refused::new(connection, why)),
        };
        self.answer(tags);
    }

    /// Nobody is refused any more.
    pub(super) fn close(&mut self) {
        self.refused = None;
        self.fd = None;
    }

    /// Answers the request of the connection that has the descriptor, and takes that back. Returns
    /// whether there is more to do: the request is to come, or the descriptor, which a closer may
    /// still have.
    pub(super) fn answer(&mut self, tags: RoleTags) -> bool {
        if self.refused.as_mut().is_some_and(|it| it.answer(tags)) {
            return true;
        }
        self.refused = None;
        !self.keep()
    }
}

/// A descriptor that nothing is done with.
fn open() -> Option<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC).ok()
}

fn shortage() -> Error {
    Error::new(
        Status::OutOfResources,
        "the server has no file descriptor left for this connection: try again later, or raise its \
         limit of open files (ulimit -n)",
    )
}
