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
use crate::arrow::decode::DecodedBatch;
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

impl Stream {
    /// Asks again, for the same arrays in the same place, and gives the first array. `error` is the
    /// failure of the first request.
    pub(super) fn retry_without_gpus(
        &mut self,
        fallback: Fallback,
        error: &Error,
    ) -> Result<Option<DecodedBatch>> {
        let Fallback {
            client,
            uris,
            ticket,
            mut options,
        } = fallback;
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
        // The consumer knows the place of the arrays already.
        if let Some(fetch) = &self.fetch {
            options.device = fetch.target();
        }
        // The connection serves the next stream after the end of this one. For the log both
        // requests are one stream, so the account is kept.
        let account = self.account.take();
        self.end(false);
        self.account = account;
        let mut fresh = client.ask(
            &uris,
            (Verb::Get, &ticket),
            &options,
            false,
            self.cancel.as_ref(),
        )?;
        let bytes = |stream: &Self| stream.schema.as_ref().map(|schema| schema.bytes().to_vec());
        if bytes(&fresh) != bytes(self) {
            return Err(Error::invalid_data(format!(
                "the server's memory on a GPU cannot be opened here ({error}), and when it was \
                 asked for arrays elsewhere, it gave another schema"
            )));
        }
        self.key = fresh.key.take();
        let fetch = self.fetch.insert(match fresh.fetch.take() {
            Some(fetch) => fetch,
            None => return Ok(None),
        });
        let outcome = fetch.next(self.cancel.as_ref());
        self.stats = fetch.stats();
        outcome
    }
}
