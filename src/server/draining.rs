//! A server that drains: streams under way go on, and new clients are told where else to ask
//! (rule Q8).

use parking_lot::RwLock;

use crate::error::{Advice, Error, Status};

/// Whether a server drains.
#[derive(Default)]
pub(super) struct Draining {
    /// The answer to new requests, if the server drains.
    refusal: RwLock<Option<Error>>,
}

impl Draining {
    pub(super) fn begin(&self, elsewhere: Vec<String>) {
        let text = match elsewhere.is_empty() {
            true => "the server drains before it stops, and takes no new requests; ask again later",
            false => {
                "the server drains before it stops, and takes no new requests; ask the servers \
                 that it names"
            }
        };
        let refusal = Error::new(Status::Busy, text).with_advice(Some(Advice {
            elsewhere,
            retry_after: None,
        }));
        *self.refusal.write() = Some(refusal);
    }

    pub(super) fn is_on(&self) -> bool {
        self.refusal.read().is_some()
    }

    /// Why new requests are refused, if the server drains.
    pub(super) fn refusal(&self) -> Option<Error> {
        self.refusal.read().clone()
    }
}
