//! Figures of a client.

/// Figures of a client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientStats {
    /// Streams asked for since the start.
    pub streams: u64,
    /// Connections made since the start.
    pub connections_made: u64,
    /// Idle connections, kept for later streams.
    pub connections_idle: u64,
}
