//! A request for a stream, up to the server's answer.

use std::sync::Arc;
use std::time::Duration;

use super::core::{ClientCore, end};
use super::dial::sides;
use super::pool::ConnectionKey;
use super::sharing::Opener;
use super::uris::KnownUri;
use super::{GetOptions, SILENCE_TIMEOUT, Stream};
use crate::arrow::decode::DecodeOptions;
use crate::cancel::Cancel;
use crate::device::Target;
use crate::driver::clock;
use crate::driver::fetch::{Connections, Fetch};
use crate::driver::polling::Poller;
use crate::error::{Result, Status};
use crate::proto::{
    AnswerLimit, FEATURE_PENDING, FEATURE_REPEAT, ReceiverConfig, Request, SideConfig, Timestamp,
    UUID_BYTES, Verb,
};

/// What a client asks for.
pub(super) struct Wanted<'a> {
    pub(super) uris: &'a Arc<[KnownUri]>,
    verb: Verb,
    pub(super) ticket: &'a [u8],
    pub(super) options: &'a GetOptions,
    /// GPUs in whose memory the server may lend bodies.
    gpus: Vec<[u8; UUID_BYTES]>,
    pub(super) due: Option<Timestamp>,
}

impl<'a> Wanted<'a> {
    /// `on_gpus`: the server may lend bodies in GPU memory. `due`: the request's deadline.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for the wrong number of URIs; of the device.
    pub(super) fn new(
        client: &ClientCore,
        uris: &'a Arc<[KnownUri]>,
        (verb, ticket): (Verb, &'a [u8]),
        options: &'a GetOptions,
        on_gpus: bool,
        due: Option<Timestamp>,
    ) -> Result<Self> {
        let mut wanted = Self {
            uris,
            verb,
            ticket,
            options,
            gpus: Vec::new(),
            due,
        };
        let (metadata, data) = sides(uris)?;
        let bodies = data.unwrap_or(metadata);
        if on_gpus && !client.closed_gpus.lock().contains(&bodies.name) {
            wanted.gpus = options.device.reachable_gpus()?;
        }
        Ok(wanted)
    }

    /// Whether the stream may share a connection: its bodies come to the host.
    pub(super) fn may_share(&self) -> bool {
        !matches!(self.options.device, Target::Cuda(_)) && self.gpus.is_empty()
    }

    pub(super) fn config(
        &self,
        stream_id: u128,
        answer: AnswerLimit,
        connections: &Connections,
    ) -> ReceiverConfig {
        let side = |known: &KnownUri| SideConfig::from(&known.uri);
        let options = self.options;
        let mut request = Request {
            verb: self.verb,
            lent_limit: options.lent_limit,
            stream_id,
            device_type: options.device.device_type(),
            gpus: self.gpus.clone(),
            // A repeated request has less time left. Zero on the wire would mean no deadline.
            deadline: (self.due).map(|due| clock::until(due).max(Duration::from_nanos(1))),
            headers: options.headers.clone(),
            selection: options.selection.clone(),
            ..Request::new(self.ticket, options.window)
        };
        request.features |= FEATURE_PENDING;
        if connections.metadata.link().profile().is_ordered {
            request.features |= FEATURE_REPEAT;
        }
        ReceiverConfig {
            data: self.uris.get(1).map(side),
            first_seq: options.first_seq,
            stall_timeout: options.stall_timeout,
            silence_timeout: Some(SILENCE_TIMEOUT),
            given_deadline: options.deadline,
            answer: Some(answer),
            ..ReceiverConfig::new(request, side(&self.uris[0]))
        }
    }
}

/// A stream that the server was asked for.
pub(super) struct AskedStream {
    pub(super) fetch: Box<Fetch>,
    pub(super) decode: DecodeOptions,
    pub(super) key: Option<ConnectionKey>,
    /// The connection had an earlier stream.
    pub(super) is_reused: bool,
    /// Other streams wait to share the connection, until the server has said whether they may.
    pub(super) opener: Option<Opener>,
}

impl AskedStream {
    /// Waits until it is known whether the streams that want to share the connection may do so.
    pub(super) fn settle(&mut self, cancel: Option<&Cancel>) {
        if let Some(opener) = self.opener.take() {
            let is_many = self.fetch.wait_for_streams(cancel);
            // The error is not lost: the wait for the schema reports it.
            opener.end(is_many.ok(), self.fetch.connection());
        }
    }

    /// [`settle`](Self::settle) without a wait. If it is not known yet, `poller` tells when to look
    /// again.
    pub(super) fn try_settle(
        &mut self,
        cancel: Option<&Cancel>,
        poller: Option<&mut Poller>,
    ) -> bool {
        let Some(opener) = self.opener.take() else {
            return true;
        };
        match self.fetch.try_streams(cancel, poller) {
            Ok(None) => {
                self.opener = Some(opener);
                false
            }
            is_many => {
                opener.end(is_many.ok().flatten(), self.fetch.connection());
                true
            }
        }
    }

    /// The stream, if the schema was `found`. `None`: ask once more, on another connection.
    ///
    /// # Errors
    ///
    /// The server's refusal, or why there is no answer.
    pub(super) fn end(
        self,
        client: &Arc<ClientCore>,
        wanted: &Wanted<'_>,
        found: Result<()>,
        cancel: Option<&Cancel>,
    ) -> Result<Option<Stream>> {
        let Self {
            fetch,
            decode,
            key,
            is_reused,
            ..
        } = self;
        let owner = Arc::downgrade(client);
        if let Err(error) = found {
            let is_answer = fetch.is_settled();
            end(owner, fetch, key);
            // The server may have restarted since the connection was last used.
            let is_dead = matches!(error.status(), Status::Disconnected | Status::Protocol);
            return match is_reused && is_dead && !is_answer {
                true => Ok(None),
                false => Err(error),
            };
        }
        tracing::debug!(
            "{} serves the stream, which is checked at level {:?}",
            fetch.peer(),
            decode.level
        );
        let ending = move |fetch| end(owner, fetch, key);
        let mut stream = Stream::new(fetch, decode, cancel, Box::new(ending));
        if !wanted.gpus.is_empty() {
            stream.retry = Some(client.again(wanted));
        }
        Ok(Some(stream))
    }
}
