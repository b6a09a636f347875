//! The figures of a server, as its host gets them.

use crate::driver::figures::{STATUSES, StreamSums};

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

impl ServerStats {
    /// Adds the figures of another server.
    pub(super) fn add(&mut self, more: &Self) {
        self.connections += more.connections;
        self.streams_active += more.streams_active;
        self.streams_served += more.streams_served;
        self.batches += more.batches;
        self.bytes_lent += more.bytes_lent;
        self.bytes_copied += more.bytes_copied;
        self.bytes_sent += more.bytes_sent;
        self.bytes_copied_on_device += more.bytes_copied_on_device;
        self.bytes_staged += more.bytes_staged;
        self.lent_outstanding += more.lent_outstanding;
        self.region_bytes += more.region_bytes;
        self.connections_opened += more.connections_opened;
        self.connections_closed += more.connections_closed;
        self.connections_refused += more.connections_refused;
        for (sum, count) in self.refused.iter_mut().zip(&more.refused) {
            *sum += count;
        }
        self.streams.add_sums(&more.streams);
    }
}
