//! The request for a stream.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::busy::Tries;
use super::core::{AtOnce, ClientCore, Reached};
use super::dial::{key_of, sides};
use super::getting::{AskedStream, Wanted};
use super::uris::{KnownUri, MOST_KNOWN};
use super::{GetOptions, Stream};
use crate::cancel::Cancel;
use crate::driver::bell::Bell;
use crate::driver::clock;
use crate::driver::end::EndLink;
use crate::driver::fetch::{Fetch, Retry};
use crate::driver::telling::Account;
use crate::driver::turning::Turner;
use crate::driver::wording::shown;
use crate::error::{Error, Result, Status};
use crate::proto::{FEATURE_STREAMS, Headers, Timestamp, Verb};
use crate::transport::Attempt;

impl ClientCore {
    /// Asks for a stream, and logs the outcome.
    pub(super) fn open(
        self: &Arc<Self>,
        uris: &Arc<[KnownUri]>,
        asked_for: (Verb, &[u8]),
        options: &GetOptions,
        cancel: Option<&Cancel>,
    ) -> Result<Stream> {
        self.streams.fetch_add(1, Ordering::Relaxed);
        self.opened(asked_for, self.ask(uris, asked_for, options, true, cancel))
    }

    pub(super) fn opened(
        &self,
        (_, ticket): (Verb, &[u8]),
        asked: Result<Stream>,
    ) -> Result<Stream> {
        let mut stream = asked.map_err(|error| self.not_got(ticket, error))?;
        self.note(ticket, &mut stream);
        Ok(stream)
    }

    /// Logs the stream, and later its end.
    pub(super) fn note(&self, ticket: &[u8], stream: &mut Stream) {
        let account = Account::open("from", ticket, stream.peer());
        stream.account = account;
    }

    /// Logs that there is no stream.
    pub(super) fn not_got(&self, ticket: &[u8], error: Error) -> Error {
        let status = error.status().symbol();
        tracing::info!("no stream of {}: {status}: {error}", shown(ticket));
        error
    }

    /// Logs that the server takes no stream.
    pub(super) fn not_taken(&self, descriptor: &[u8], error: Error) -> Error {
        let status = error.status().symbol();
        tracing::info!("{} is not taken: {status}: {error}", shown(descriptor));
        error
    }

    /// Asks for a stream, and follows the redirects of servers that drain. `on_gpus`: the server
    /// may lend bodies in GPU memory.
    pub(super) fn ask(
        self: &Arc<Self>,
        uris: &Arc<[KnownUri]>,
        asked_for: (Verb, &[u8]),
        options: &GetOptions,
        on_gpus: bool,
        cancel: Option<&Cancel>,
    ) -> Result<Stream> {
        let due = options.deadline.map(clock::after);
        match self.ask_at(uris, asked_for, options, (on_gpus, due), cancel) {
            Ok(stream) => Ok(stream),
            Err(error) => self.go_on(uris, asked_for, options, (on_gpus, due), error, cancel),
        }
    }

    /// Asks for a stream at these URIs, until the deadline while the server is busy.
    pub(super) fn ask_at(
        self: &Arc<Self>,
        uris: &Arc<[KnownUri]>,
        (verb, ticket): (Verb, &[u8]),
        options: &GetOptions,
        (on_gpus, due): (bool, Option<Timestamp>),
        cancel: Option<&Cancel>,
    ) -> Result<Stream> {
        let wanted = Wanted::new(self, uris, (verb, ticket), options, on_gpus, due)?;
        let mut tries = Tries::until(due);
        loop {
            let answered = self.begin(&wanted, cancel).and_then(|mut asked| {
                let found = asked.fetch.wait_for_schema(cancel);
                asked.end(self, &wanted, found, cancel)
            });
            match answered {
                Ok(None) => {}
                Ok(Some(stream)) => return Ok(stream),
                Err(error) => tries.wait(error, cancel)?,
            }
        }
    }

    /// Asks once more, for bodies outside GPUs, after those on a GPU could not be opened.
    ///
    /// A server and a client may see the same GPU and still be unable to share its memory.
    /// Containers may separate the namespaces that handles need, and a process under MPS cannot
    /// export handles. The first body shows this. While the consumer has no array, the client can
    /// ask again. The provider is then called twice.
    pub(super) fn again(self: &Arc<Self>, wanted: &Wanted<'_>) -> Retry {
        let (client, uris) = (Arc::clone(self), Arc::clone(wanted.uris));
        let (ticket, mut options) = (wanted.ticket.to_vec(), wanted.options.clone());
        Box::new(move |target, error, cancel| {
            tracing::debug!("asked again for bodies elsewhere: {error}");
            // A full GPU may have room later, so its server is not marked as closed.
            if error.status() != Status::OutOfMemory
                && let Some(bodies) = uris.last()
            {
                let mut closed = client.closed_gpus.lock();
                if closed.len() >= MOST_KNOWN {
                    closed.clear();
                }
                closed.insert(Arc::clone(&bodies.name));
            }
            options.device = target.unwrap_or(options.device);
            client.ask(&uris, (Verb::Get, &ticket), &options, false, cancel)
        })
    }

    /// Connects, and asks for a stream. The server has not answered then.
    pub(super) fn begin(
        self: &Arc<Self>,
        wanted: &Wanted<'_>,
        cancel: Option<&Cancel>,
    ) -> Result<AskedStream> {
        let attempt = Attempt::new(cancel.cloned());
        let shares = (wanted.may_share(), None);
        let options = (wanted.options, wanted.due);
        let reached = self.connections(wanted.uris, shares, options, &attempt);
        let mut asked = self.ask_over(wanted, attempt.block_on(reached)?)?;
        asked.settle(cancel);
        Ok(asked)
    }

    /// Asks for a stream on a connection that is open and that streams share. `bell` rings when
    /// there may be an answer, and `later` when there may be a connection.
    pub(super) fn begin_at_once(
        self: &Arc<Self>,
        wanted: &Wanted<'_>,
        bell: &Arc<Bell>,
        later: Option<&Arc<Bell>>,
    ) -> Result<AtOnce<Box<AskedStream>>> {
        let (metadata, _) = sides(wanted.uris)?;
        let key = key_of(wanted.uris, wanted.options)?;
        let Some(key) = key.filter(|_| wanted.may_share()) else {
            return Ok(AtOnce::Elsewhere);
        };
        let mut reached = match self.reach_at_once(metadata, key, wanted.options, later)? {
            AtOnce::Done(reached) => reached,
            AtOnce::Later => return Ok(AtOnce::Later),
            AtOnce::Opens(opener) => return Ok(AtOnce::Opens(opener)),
            AtOnce::Elsewhere => return Ok(AtOnce::Elsewhere),
        };
        // Set before the answer can come.
        (reached.connections.metadata).set_bell(Some(Arc::clone(bell)));
        let mut asked = self.ask_over(wanted, reached)?;
        asked.fetch.is_rung_by(bell);
        Ok(AtOnce::Done(Box::new(asked)))
    }

    /// Asks for a stream over these connections.
    pub(super) fn ask_over(
        self: &Arc<Self>,
        wanted: &Wanted<'_>,
        reached: Reached,
    ) -> Result<AskedStream> {
        let options = wanted.options;
        let Reached {
            connections,
            key,
            answer,
            is_reused,
            opener,
        } = reached;
        let id = self.ids.next(connections.data.is_some())?;
        let mut config = wanted.config(id, answer, &connections);
        config.request.number = connections.metadata.number();
        if opener.is_some() || connections.metadata.is_guest() {
            config.request.features |= FEATURE_STREAMS;
        }
        let checked = match options.send_secrets {
            true => Ok(()),
            false => {
                let links = connections.iter().map(Turner::link);
                ensure_secrets_are_safe(&options.headers, links)
            }
        };
        if let Err(error) = checked {
            self.put_back(connections, key.as_ref());
            return Err(error);
        }
        let same_user = (connections.iter()).all(|it| it.link().same_user());
        let decode = options.decode(same_user);
        match Fetch::start(config, connections, decode, options.device, options.spin) {
            Ok(fetch) => Ok(AskedStream {
                fetch,
                decode,
                key,
                is_reused,
                opener,
            }),
            Err((error, connections)) => {
                self.put_back(connections, key.as_ref());
                Err(error)
            }
        }
    }
}

/// Rule Q7: a token is not sent where others can read it, unless the caller insists.
///
/// # Errors
///
/// `Permission`.
pub(super) fn ensure_secrets_are_safe<'a>(
    headers: &Headers,
    links: impl IntoIterator<Item = &'a Arc<EndLink>>,
) -> Result<()> {
    if headers.get("authorization").is_none() {
        return Ok(());
    }
    let mut links = links.into_iter();
    let Some(open) = links.find(|link| !link.is_private()) else {
        return Ok(());
    };
    let text = format!(
        "the header `authorization` is not sent to {}, for others may read the connection; use \
         tls, shm or the loopback interface, or allow it (dipc_get_options_set_send_secrets)",
        open.peer()
    );
    Err(Error::new(Status::Permission, text))
}
