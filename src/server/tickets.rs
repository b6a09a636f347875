//! The tickets of a server, and the source of each ticket's table.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use once_cell::sync::OnceCell;
use parking_lot::RwLock;

use crate::arrow::OwnedDeviceStream;
use crate::arrow::description::Description;
use crate::arrow::stream::export_device_stream;
use crate::driver::callbacks::{Callbacks, Deferred};
use crate::driver::produce::Published;
use crate::driver::wording::shown;
use crate::error::{Error, Result, Status};
use crate::proto::{self, Verb, ensure_ticket_fits};
use crate::server::host::HostProvider;
use crate::server::request::ServerRequest;

/// The header by which a request names the header of its middleware. Without that middleware the
/// request has no meaning.
const NEEDS_MIDDLEWARE: &str = "needs-middleware";

/// The source of a ticket's table. [`Deferred`] drops an object of the host on a thread where host
/// code may run, because the I/O thread may hold the last reference to it.
#[derive(Clone)]
pub(super) enum Entry {
    Provider(Arc<Deferred<Box<dyn HostProvider>>>),
    Published(Arc<Deferred<Published>>),
    Pull,
}

impl Entry {
    /// Whether all requests give the same batches (rule E6).
    pub(super) fn replays(&self) -> bool {
        match self {
            Self::Provider(provider) => provider.is_deterministic(),
            Self::Published(_) => true,
            Self::Pull => false,
        }
    }
}

/// An entry that calls `provider` for each stream.
pub(super) fn provided(provider: Box<dyn HostProvider>, callbacks: Callbacks) -> Entry {
    Entry::Provider(Arc::new(Deferred::new(provider, callbacks)))
}

/// The arrays of a published table, for a client that selects from them and for a middleware.
pub(super) struct PublishedTable(pub(super) Arc<Deferred<Published>>);

impl HostProvider for PublishedTable {
    fn open(&self, _: &ServerRequest) -> Result<OwnedDeviceStream> {
        let reader = Published::read(Arc::clone(&self.0));
        Ok(export_device_stream(reader))
    }

    fn is_deterministic(&self) -> bool {
        true
    }
}

/// What one ticket stands for.
#[derive(Clone)]
pub(super) struct Own {
    pub(super) entry: Entry,
    /// What the host has said about the ticket.
    pub(super) description: Option<Arc<Description>>,
    /// The answer to a describe, once a client has asked for it.
    pub(super) answer: Arc<OnceCell<Entry>>,
}

/// The provider that answers the requests with a certain header, instead of their tickets.
pub(super) struct Middleware {
    pub(super) header: String,
    pub(super) entry: Entry,
}

/// The tickets of a server.
#[derive(Default)]
pub(super) struct Tickets {
    entries: RwLock<BTreeMap<Vec<u8>, Own>>,
    /// Answers for every other ticket.
    handler: RwLock<Option<Entry>>,
    middleware: RwLock<Option<Middleware>>,
}

impl Tickets {
    /// Adds what `wrap` makes of `thing`, or gives `thing` back. What `ticket` stood for before
    /// stays, or is replaced.
    pub(super) fn add<T>(
        &self,
        ticket: &[u8],
        replaces: bool,
        thing: T,
        wrap: impl FnOnce(T) -> Entry,
    ) -> Result<(), (Error, T)> {
        if let Err(error) = ensure_ticket_fits(ticket) {
            return Err((error, thing));
        }
        let mut entries = self.entries.write();
        if !replaces && entries.contains_key(ticket) {
            let text = format!(
                "the ticket {} is served already: withdraw or replace it",
                shown(ticket)
            );
            return Err((Error::new(Status::AlreadyExists, text), thing));
        }
        let own = Own {
            entry: wrap(thing),
            description: None,
            answer: Arc::default(),
        };
        let before = entries.insert(ticket.to_vec(), own);
        drop(entries);
        drop(before);
        Ok(())
    }

    pub(super) fn withdraw(&self, ticket: &[u8]) -> Result<Own> {
        self.entries
            .write()
            .remove(ticket)
            .ok_or_else(|| Self::unknown(ticket))
    }

    /// Sets what the host says about one of the server's own tickets.
    pub(super) fn set_description(&self, ticket: &[u8], description: Description) -> Result<()> {
        let mut entries = self.entries.write();
        let own = (entries.get_mut(ticket)).ok_or_else(|| Self::unknown(ticket))?;
        own.description = Some(Arc::new(description));
        own.answer = Arc::default();
        Ok(())
    }

    /// Sets what answers every ticket that is not served by itself.
    pub(super) fn set_handler(&self, handler: Option<Entry>) -> Option<Entry> {
        std::mem::replace(&mut *self.handler.write(), handler)
    }

    /// Sets what answers the requests that have a certain header. Returns the middleware of before.
    pub(super) fn set_middleware(&self, middleware: Option<Middleware>) -> Option<Middleware> {
        std::mem::replace(&mut *self.middleware.write(), middleware)
    }

    /// The middleware, if the request has its header.
    pub(super) fn middleware(&self, request: &proto::Request) -> Option<Entry> {
        if !matches!(request.verb, Verb::Get | Verb::Put | Verb::Exchange) {
            return None;
        }
        let middleware = self.middleware.read();
        let middleware = middleware.as_ref()?;
        request.headers.get(&middleware.header)?;
        Some(middleware.entry.clone())
    }

    /// Refuses a request that needs another middleware than the server has (rule Q13).
    pub(super) fn ensure_middleware(&self, request: &proto::Request) -> Result<()> {
        let Some(needed) = request.headers.get(NEEDS_MIDDLEWARE) else {
            return Ok(());
        };
        let middleware = self.middleware.read();
        match middleware.as_ref() {
            Some(middleware) if middleware.header.as_bytes() == needed => Ok(()),
            _ => Err(Error::unsupported(format!(
                "the request needs a middleware for the header {}, and this server's program has \
                 set none; for `function` it has to enable functions",
                shown(needed)
            ))),
        }
    }

    pub(super) fn find(&self, ticket: &[u8]) -> Result<Entry> {
        let own = self.own(ticket).map(|own| own.entry);
        let entry = own.or_else(|| self.handler());
        entry.ok_or_else(|| Self::unknown(ticket))
    }

    /// What `ticket` itself stands for: a table or a provider of its own.
    pub(super) fn own(&self, ticket: &[u8]) -> Option<Own> {
        self.entries.read().get(ticket).cloned()
    }

    /// Whether `ticket` itself stands for something.
    pub(super) fn has(&self, ticket: &[u8]) -> bool {
        self.entries.read().contains_key(ticket)
    }

    /// The tickets that begin with `prefix`, in byte order.
    pub(super) fn beginning_with(&self, prefix: &[u8]) -> Vec<(Vec<u8>, Own)> {
        let entries = self.entries.read();
        let from = entries.range::<[u8], _>((Bound::Included(prefix), Bound::Unbounded));
        let own = from.take_while(|(ticket, _)| ticket.starts_with(prefix));
        own.map(|(ticket, own)| (ticket.clone(), own.clone()))
            .collect()
    }

    /// What answers every ticket that is not served by itself.
    pub(super) fn handler(&self) -> Option<Entry> {
        self.handler.read().clone()
    }

    /// What takes the tables that clients send.
    pub(super) fn taker(&self) -> Result<Entry> {
        self.handler().ok_or_else(|| {
            Error::unsupported(
                "this server takes no tables: its program has no handler for them (dipc serve has \
                 one with --accept)",
            )
        })
    }

    pub(super) fn names(&self) -> Vec<Vec<u8>> {
        self.entries.read().keys().cloned().collect()
    }

    pub(super) fn clear(&self) {
        let entries = std::mem::take(&mut *self.entries.write());
        drop((entries, self.set_handler(None)));
        drop(self.set_middleware(None));
    }

    pub(super) fn unknown(ticket: &[u8]) -> Error {
        Error::new(
            Status::NotFound,
            format!("the server has no ticket {}", shown(ticket)),
        )
    }
}
