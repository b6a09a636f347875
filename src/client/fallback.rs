//! A stream whose bodies on a GPU cannot be opened here is asked for once more, with bodies elsewhere.
//!
//! That a server and a client see the same GPU does not say that they can pass its memory to each other:
//! containers may not share what handles need, and a process under MPS has none for others. It shows
//! when the first body is needed. As long as the consumer has no array, nothing is lost to it by a
//! second request; a provider is called twice.

use std::sync::Arc;

use super::asking::ClientCore;
use super::uris::{KnownUri, MOST_KNOWN};
use super::{GetOptions, Stream};
use crate::arrow::decode::DecodedBatch;
use crate::error::{Error, Result, Status};

/// How to ask once more.
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
    /// Asks again, for the same arrays in the same place, and takes the first from there. `error` is
    /// why the first request did not do.
    pub(super) fn go_on_without_gpus(
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
        // What is full now need not be later.
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
        // The consumer has been told where they are.
        if let Some(fetch) = &self.fetch {
            options.device = fetch.target();
        }
        // The connection serves the next stream once this one is at its end.
        // For the log it is one stream.
        let account = self.account.take();
        self.end(false);
        self.account = account;
        let mut fresh = client.ask(&uris, &ticket, &options, false, self.cancel.as_ref())?;
        let bytes = |stream: &Self| stream.schema.as_ref().map(|schema| schema.bytes().to_vec());
        if bytes(&fresh) != bytes(self) {
            return Err(Error::invalid_data(format!(
                "the server's memory on a GPU cannot be opened here ({error}), and when it was asked \
                 for arrays elsewhere, it gave another schema"
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
