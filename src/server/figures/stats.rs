//! The figures of a server, as its host gets them.

use crate::driver::figures::{STATUSES, StreamSums, sums};

/// Figures of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStats {
    /// Connections open now.
    pub connections: u64,
    /// Streams served now, except those whose clients have gone.
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
    /// Those of `connections_opened` that are over.
    pub connections_closed: u64,
    /// Connections that were not accepted: the peer was not allowed, a bound was reached, or the
    /// handshake failed.
    pub connections_refused: u64,
    /// Requests that were refused, by status: status -N has the place N.
    pub refused: [u64; STATUSES],
    /// All figures of streams, those above included.
    pub streams: StreamSums,
}

sums!(ServerStats {
    connections,
    streams_active,
    streams_served,
    batches,
    bytes_lent,
    bytes_copied,
    bytes_sent,
    bytes_copied_on_device,
    bytes_staged,
    lent_outstanding,
    region_bytes,
    connections_opened,
    connections_closed,
    connections_refused,
    refused,
    streams
});
