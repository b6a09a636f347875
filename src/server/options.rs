//! Options of a server.

use std::time::Duration;

use crate::arrow::Compression;
use crate::server::client_stream::TakeOptions;
use crate::server::host::SharedAuthorizer;
use crate::server::peers::{Bounds, STREAMS};
use crate::transport::{BodyPolicy, LinkOptions};

/// Options of a server.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Most streams served at once; further requests are refused with `Busy`. An eighth of them, at
    /// most 64, is reserved for processes of the server's own user that come over shm.
    pub max_streams: usize,
    /// Most streams with providers and hosts of the pull form, including streams whose clients have
    /// gone; further requests are refused with `Busy`. `None`: `max_streams` plus 64.
    pub max_providers: Option<usize>,
    /// Most connections; further ones are refused with `Busy`. Some places are reserved for
    /// processes of the server's own user. `None`: as many as take half of the files that the
    /// process may open. A connection over shm takes two files, one over tcp takes one for each
    /// socket.
    pub max_connections: Option<usize>,
    /// Most connections of one other machine, or of one other user of this machine. `None`: half of
    /// `max_connections`, or half of its files.
    pub max_connections_per_peer: Option<usize>,
    /// Most streams of one other machine, or of one other user of this machine. `None`: half of
    /// `max_streams`.
    pub max_streams_per_peer: Option<usize>,
    /// Most streams that one connection carries at once, for clients that put many on one
    /// connection. `None`: `max_streams`. With 1, each stream has its own connection.
    pub max_streams_per_connection: Option<u32>,
    /// How long a stream may wait for its client (for credit, or for the next batch of a put) while
    /// other requests find no place; then the stream ends. `None`: for ever.
    pub credit_timeout: Option<Duration>,
    /// Most bytes of requests longer than 64 KiB that have come only in part, over all connections.
    pub max_request_bytes: u64,
    /// How long a server waits for a connection's first request; `None`: for ever.
    pub request_timeout: Option<Duration>,
    /// How long a connection without a stream is kept, up to twice this time; `None`: for ever.
    pub idle_timeout: Option<Duration>,
    /// Options of each connection.
    pub link: LinkOptions,
    /// Most bytes of regions for copies, over all connections. Bodies beyond this limit travel as
    /// bytes.
    pub max_bytes: u64,
    /// Options for streams that clients send.
    pub take: TakeOptions,
    /// Compression of bodies. Compressed bodies travel as bytes (rule A4).
    pub compression: Option<Compression>,
    /// How bodies travel.
    pub body: BodyPolicy,
    /// Decides about each request. `None`: whoever can connect may do everything.
    pub authorizer: Option<SharedAuthorizer>,
    /// Without an `authorizer`: the host decides about each request in the pull form.
    pub authorizes_by_pull: bool,
    /// How long the I/O thread spins before it sleeps.
    pub spin: Duration,
    /// Number of each stream's schema message: 0, except in tests of the wrap-around (rule M4).
    pub first_seq: u32,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            max_streams: 64,
            max_providers: None,
            max_connections: None,
            max_connections_per_peer: None,
            max_streams_per_peer: None,
            max_streams_per_connection: None,
            credit_timeout: Some(Duration::from_secs(30)),
            max_request_bytes: 64 << 20,
            request_timeout: Some(Duration::from_secs(30)),
            idle_timeout: Some(Duration::from_secs(600)),
            link: LinkOptions::default(),
            max_bytes: 16 << 30,
            take: TakeOptions::default(),
            compression: None,
            body: BodyPolicy::default(),
            authorizer: None,
            authorizes_by_pull: false,
            spin: Duration::ZERO,
            first_seq: 0,
        }
    }
}

impl ServerOptions {
    /// How far the default of `max_providers` exceeds `max_streams`.
    const MORE_PROVIDERS: usize = 64;

    /// The smallest limit of queued bytes. A smaller one saves nothing, because a stream holds a
    /// whole body anyway.
    const LEAST_QUEUED: u64 = 1 << 20;

    /// Most bytes that wait to be written for one stream before its production pauses. All streams
    /// together queue at most `max_bytes`, in addition to one body each.
    pub(super) fn most_queued(&self) -> u64 {
        let streams = u64::try_from(self.max_streams).unwrap_or(u64::MAX);
        let share = self.max_bytes.checked_div(streams).unwrap_or(u64::MAX);
        share.max(Self::LEAST_QUEUED)
    }

    /// The bounds on streams.
    pub(super) fn stream_bounds(&self) -> Bounds {
        Bounds::new(&STREAMS, self.max_streams, self.max_streams_per_peer)
    }

    /// [`max_streams_per_connection`](Self::max_streams_per_connection), or its default.
    pub(super) fn most_streams_per_connection(&self) -> u32 {
        let default = || u32::try_from(self.max_streams).unwrap_or(u32::MAX);
        self.max_streams_per_connection.unwrap_or_else(default)
    }

    /// [`max_providers`](Self::max_providers), or its default.
    pub(super) fn most_providers(&self) -> usize {
        let default = self.max_streams.saturating_add(Self::MORE_PROVIDERS);
        self.max_providers.unwrap_or(default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise of security.md: the bodies that wait for all streams share `max_bytes`, but each
    /// stream may have 1 MiB.
    #[test]
    fn waiting_bodies_share_the_bound() {
        let most = |max_bytes, max_streams| {
            let options = ServerOptions {
                max_bytes,
                max_streams,
                ..ServerOptions::default()
            };
            options.most_queued()
        };
        assert_eq!(most(256 << 20, 64), 4 << 20);
        assert_eq!(most(64 << 20, 1000), 1 << 20);
        assert_eq!(most(0, 1), 1 << 20);
        assert_eq!(most(1 << 30, 0), u64::MAX);
    }
}
