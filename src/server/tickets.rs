//! What a server has to give, by ticket.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use crate::arrow::{Encoder, OwnedDeviceStream};
use crate::driver::callbacks::Deferred;
use crate::driver::produce::Published;
use crate::driver::telling::shown;
use crate::error::{Error, Result, Status};
use crate::proto::ensure_ticket_fits;
use crate::server::Request;

/// Gives the stream of a ticket.
///
/// Each call is made on a thread of its own, which then also pulls the stream, so a provider may
/// block, and may fetch from its own server. Dropping the provider is a call to the host, too.
pub trait Provider: Send + Sync + 'static {
    /// Opens the stream that `request` asks for. `request` lives until that stream is released.
    ///
    /// # Errors
    ///
    /// Any error: the client is told its status and text.
    fn open(&self, request: &Request) -> Result<OwnedDeviceStream>;

    /// Whether two calls give the same batches, so that a baseline peer on two connections can be
    /// served by two calls (rule E6).
    fn is_deterministic(&self) -> bool {
        false
    }
}

/// What stands behind a ticket. The host's things are dropped where host code may run, since the
/// last hold on one may be an I/O thread's.
#[derive(Clone)]
pub(super) enum Entry {
    Provider(Arc<Provided>),
    Published(Arc<Deferred<Published>>),
    Pull,
}

impl Entry {
    /// Whether two requests give the same batches (rule E6).
    pub(super) fn replays(&self) -> bool {
        match self {
            Self::Provider(provided) => provided
                .provider
                .get()
                .is_some_and(|provider| provider.is_deterministic()),
            Self::Published(_) => true,
            Self::Pull => false,
        }
    }
}

/// A provider, and what its last stream was like.
pub(super) struct Provided {
    pub(super) provider: Deferred<Box<dyn Provider>>,
    /// For the next stream, which most often has the same schema.
    pub(super) encoder: Mutex<Option<Encoder>>,
}

/// The tickets of a server.
#[derive(Default)]
pub(super) struct Tickets {
    entries: RwLock<BTreeMap<Vec<u8>, Entry>>,
}

impl Tickets {
    /// Adds what `wrap` makes of `thing`, or gives `thing` back.
    pub(super) fn add<T>(
        &self,
        ticket: &[u8],
        thing: T,
        wrap: impl FnOnce(T) -> Entry,
    ) -> Result<(), (Error, T)> {
        if let Err(error) = ensure_ticket_fits(ticket) {
            return Err((error, thing));
        }
        let mut entries = self.entries.write();
        if entries.contains_key(ticket) {
            let text = format!(
                "the ticket {} is served already; withdraw it first",
                shown(ticket)
            );
            return Err((Error::new(Status::AlreadyExists, text), thing));
        }
        entries.insert(ticket.to_vec(), wrap(thing));
        Ok(())
    }

    pub(super) fn withdraw(&self, ticket: &[u8]) -> Result<Entry> {
        self.entries
            .write()
            .remove(ticket)
            .ok_or_else(|| Self::unknown(ticket))
    }

    pub(super) fn find(&self, ticket: &[u8]) -> Result<Entry> {
        self.entries
            .read()
            .get(ticket)
            .cloned()
            .ok_or_else(|| Self::unknown(ticket))
    }

    pub(super) fn names(&self) -> Vec<Vec<u8>> {
        self.entries.read().keys().cloned().collect()
    }

    pub(super) fn clear(&self) {
        let entries = std::mem::take(&mut *self.entries.write());
        drop(entries);
    }

    fn unknown(ticket: &[u8]) -> Error {
        Error::new(
            Status::NotFound,
            format!("the server has no ticket {}", shown(ticket)),
        )
    }
}
