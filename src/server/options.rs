//! Options and figures of a server.

use std::time::Duration;

use crate::arrow::Compression;
use crate::arrow::decode::Level;
use crate::driver::figures::{STATUSES, StreamSums};
use crate::proto::Credit;
use crate::server::SharedAuthorizer;
use crate::server::peers::{Bounds, STREAMS};
use crate::transport::{BodyPolicy, LinkOptions};

/// Options for streams that clients send.
#[derive(Debug, Clone)]
pub struct TakeOptions {
    /// How many batches and bytes a client may send before the host takes them.
    pub window: Credit,
    /// Most bytes of copies that a client may lend at once. Beyond it bodies travel as bytes.
    pub lent_limit: u64,
    /// Level of validation; `None`: `Structure` for a client of the same user, `Full` for others
    /// (rule A8).
    pub level: Option<Level>,
    /// Most memory that one message may take here beside its body; `None`: 16 GiB from a client of
    /// the same user, [`DecodeOptions`](crate::arrow::decode::DecodeOptions)' default from others.
    pub message_limit: Option<u64>,
    /// How long a client may be silent while the host waits for it; `None`: for ever.
    pub stall_timeout: Option<Duration>,
}

impl Default for TakeOptions {
    fn default() -> Self {
        Self {
            window: Credit {
                batches: 16,
                bytes: 256 << 20,
            },
            lent_limit: 1 << 30,
            level: None,
            message_limit: None,
            stall_timeout: None,
        }
    }
}

/// Options of a server.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Most streams served at once; further requests are refused with `Busy`. An eighth, 64 at
    /// most, is only for processes of the server's own user, by shm.
    pub max_streams: usize,
    /// Most streams with providers and hosts of the pull form, including streams whose clients have
    /// gone; further requests are refused with `Busy`. `None`: `max_streams` and 64 more.
    pub max_providers: Option<usize>,
    /// Most connections; further ones are refused with `Busy`. Some places are kept for processes
    /// of the server's own user. `None`: as many as take half of the files that the process may
    /// open. One over shm takes two, one over tcp one for each socket.
    pub max_connections: Option<usize>,
    /// Most connections of one machine, or of one other user of this one. `None`: half of
    /// `max_connections`, or of its files.
    pub max_connections_per_peer: Option<usize>,
    /// Most streams of one machine, or of one other user of this one. `None`: half of
    /// `max_streams`.
    pub max_streams_per_peer: Option<usize>,
    /// How long a stream may wait for its client, for credit or for the next batch of a put, while
    /// other requests find no place; then it ends. `None`: for ever.
    pub credit_timeout: Option<Duration>,
    /// Most bytes of requests of more than 64 KiB that have come in part, over all connections.
    pub max_request_bytes: u64,
    /// How long a connection's first request may take to come; `None`: for ever.
    pub request_timeout: Option<Duration>,
    /// How long a connection without a stream is kept, up to twice this time; `None`: for ever.
    pub idle_timeout: Option<Duration>,
    /// Options of each connection.
    pub link: LinkOptions,
    /// Most bytes of regions for copies, over all connections. Beyond it bodies travel as bytes.
    pub max_bytes: u64,
    /// For streams that clients send.
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

    /// Least limit of queued bytes. Less saves nothing, because a stream holds a whole body anyway.
    const LEAST_QUEUED: u64 = 1 << 20;

    /// Most bytes that wait to be written for one stream before its production pauses. All streams
    /// together queue at most `max_bytes`, beside one body each.
    pub(super) fn most_queued(&self) -> u64 {
        let streams = u64::try_from(self.max_streams).unwrap_or(u64::MAX);
        let share = self.max_bytes.checked_div(streams).unwrap_or(u64::MAX);
        share.max(Self::LEAST_QUEUED)
    }

    /// The bounds on streams.
    pub(super) fn stream_bounds(&self) -> Bounds {
        Bounds::new(&STREAMS, self.max_streams, self.max_streams_per_peer)
    }

    /// [`max_providers`](Self::max_providers), or its default.
    pub(super) fn most_providers(&self) -> usize {
        let default = self.max_streams.saturating_add(Self::MORE_PROVIDERS);
        self.max_providers.unwrap_or(default)
    }
}

/// Figures of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStats {
    /// Connections open now.
    pub connections: u64,
    /// Streams served now, without those whose clients have gone.
    pub streams_active: u64,
    /// Streams begun since the start.
    pub streams_served: u64,
    /// Record batches sent since the start.
    pub batches: u64,
    /// Body bytes lent without a copy, since the start.
    pub bytes_lent: u64,
    /// Body bytes copied on the host since the start: into regions, to be lent from them. Includes
    /// sent bodies of at most 1 KiB.
    pub bytes_copied: u64,
    /// Body bytes sent through connections, since the start.
    pub bytes_sent: u64,
    /// Body bytes copied within a GPU's memory and lent from the copy, since the start.
    pub bytes_copied_on_device: u64,
    /// Body bytes copied from a GPU's memory to the host, then lent or sent, since the start.
    pub bytes_staged: u64,
    /// Buffers lent and not yet given back.
    pub lent_outstanding: u64,
    /// Bytes of regions for copies that exist now.
    pub region_bytes: u64,
    /// Connections accepted since the start.
    pub connections_opened: u64,
    /// Of these, those that are over.
    pub connections_closed: u64,
    /// Connections that were not accepted: of strangers, past a bound, or without a handshake.
    pub connections_refused: u64,
    /// Requests that were refused, by status: status -N has the place N.
    pub refused: [u64; STATUSES],
    /// All figures of streams, those above included.
    pub streams: StreamSums,
}

impl Default for ServerStats {
    fn default() -> Self {
        Self {
            connections: 0,
            streams_active: 0,
            streams_served: 0,
            batches: 0,
            bytes_lent: 0,
            bytes_copied: 0,
            bytes_sent: 0,
            bytes_copied_on_device: 0,
            bytes_staged: 0,
            lent_outstanding: 0,
            region_bytes: 0,
            connections_opened: 0,
            connections_closed: 0,
            connections_refused: 0,
            refused: [0; STATUSES],
            streams: StreamSums::default(),
        }
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
