//! A second request for a stream, after its bodies on a GPU could not be opened.
//!
//! A server and a client may see the same GPU and still be unable to share its memory. Containers
//! may separate the namespaces that handles need, and a process under MPS cannot export handles.
//! The first body shows this. While the consumer has no array, the client can ask again, for bodies
//! outside GPUs. The provider is then called twice.

use std::sync::Arc;

use super::asking::ClientCore;
use super::uris::{KnownUri, MOST_KNOWN};
use super::{GetOptions, Stream};
use crate::cancel::Cancel;
use crate::device::Target;
use crate::driver::fetch::Retry;
use crate::error::{Error, Result, Status};
use crate::proto::Verb;

/// The arguments of the second request.
pub(super) struct Fallback {
    client: Arc<ClientCore>,
    uris: Arc<[KnownUri]>,
    ticket: Vec<u8>,
    options: GetOptions,
}

impl Fallback {
    pub(super) fn new(
        client: &Arc<ClientCore>,
        uris: &Arc<[KnownUri]>,
        ticket: &[u8],
        options: &GetOptions,
    ) -> Self {
        Self {
            client: Arc::clone(client),
            uris: Arc::clone(uris),
            ticket: ticket.to_vec(),
            options: options.clone(),
        }
    }
}

impl Retry for Fallback {
    fn ask(
        self: Box<Self>,
        target: Option<Target>,
        error: &Error,
        cancel: Option<&Cancel>,
    ) -> Result<Stream> {
        let Self {
            client,
            uris,
            ticket,
            mut options,
        } = *self;
        tracing::debug!("asked again for bodies elsewhere: {error}");
        // A full GPU may have room later, so its server is not marked as closed.
        if error.status() != Status::OutOfMemory
            && let Some(bodies) = uris.last()
        {
            let name = Arc::clone(&bodies.name);
            let mut closed = client.closed_gpus.lock();
            if closed.len() >= MOST_KNOWN {
                closed.clear();
            }
            closed.insert(name);
        }
        options.device = target.unwrap_or(options.device);
        client.ask(&uris, (Verb::Get, &ticket), &options, false, cancel)
    }
}
