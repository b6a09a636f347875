//! What both ends of a connection can be told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::transport::TlsOptions;
use crate::transport::budget::{MappingBudget, MemoryBudget};

/// What both ends of a connection can be told about it.
#[derive(Debug, Clone, Default)]
pub struct LinkOptions {
    /// Of a client that connects.
    pub connect: ConnectOptions,
    /// Which peers are let in.
    pub access: AccessOptions,
    /// What is lent.
    pub lending: LendingOptions,
    /// Bounds on what comes.
    pub receiving: ReceivingOptions,
    /// Certificates, for tls.
    pub tls: Arc<TlsOptions>,
    /// What only one transport knows, as `ucx.TLS`: name and value.
    pub settings: Settings,
}

/// How a client connects.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// How long it may take.
    pub timeout: Duration,
    /// Connections for one stream, if the transport can spread bodies.
    pub connections: u16,
    /// Asks for checksums (rule E8).
    pub checksums: bool,
}

/// Which peers are let in.
#[derive(Debug, Clone, Copy, Default)]
pub struct AccessOptions {
    /// Admit peers of every user, not only of this process's own.
    pub any_user: bool,
    /// Listen also where other machines can connect, without encryption or authentication.
    pub allow_remote: bool,
    /// Every process that can reach the listener may read and write this process's memory.
    pub trusted_network: bool,
}

/// How bodies are lent.
#[derive(Debug, Clone)]
pub struct LendingOptions {
    /// Bodies up to this many bytes travel as bytes rather than lent memory.
    pub inline_bytes: u64,
    /// Most bytes of copies lent to one connection and not yet returned; beyond it bodies travel
    /// as bytes. Memory of a producer's own arena does not count.
    pub lent_limit: u64,
    /// Largest regions that copies go into, in bytes; a connection's first ones are smaller, and a
    /// larger body gets a region of its own.
    pub region_bytes: u64,
    /// A pooled region with no block in use is given back to the system after this long: a
    /// millisecond at least, and a year at most.
    pub region_idle: Duration,
    /// Bound on all regions for copies of one server, shared by its connections. A region counts
    /// until nobody has its memory any more.
    pub budget: Arc<MemoryBudget>,
    /// How bodies travel; the sender decides for all transports that can lend.
    pub body: BodyPolicy,
}

/// Bounds on what comes from peers.
#[derive(Debug, Clone)]
pub struct ReceivingOptions {
    /// Bound on long requests that have come in part, shared by the connections of one server.
    pub partial: Arc<MemoryBudget>,
    /// Bound on peers' regions that are mapped here, shared by the connections of these options.
    pub mappings: Arc<MappingBudget>,
    /// A body that comes before its header is read at once up to this many bytes; a larger one
    /// waits for [`Connection::post_body`](super::Connection::post_body).
    pub unexpected_bytes: u64,
    /// How long a peer may take for a handshake of TLS, and for all sockets of one connection.
    pub handshake_timeout: Duration,
}

/// Longer than anybody waits, and short enough for clocks of every kind to add.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// The shortest idle time of a region. A server looks again after this time if a region cannot go
/// yet.
const SHORTEST_IDLE: Duration = Duration::from_millis(1);

impl ConnectOptions {
    /// How long it may take; never more than a year.
    pub(crate) fn time(&self) -> Duration {
        self.timeout.min(LONGEST)
    }
}

impl ReceivingOptions {
    /// How long a handshake may take; never more than a year.
    pub(crate) fn handshake_time(&self) -> Duration {
        self.handshake_timeout.min(LONGEST)
    }
}

impl LendingOptions {
    /// The idle time of a region at a server, within bounds that its timer can keep.
    pub(crate) fn idle_time(&self) -> Duration {
        self.region_idle.clamp(SHORTEST_IDLE, LONGEST)
    }
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(10),
            connections: 1,
            checksums: false,
        }
    }
}

impl Default for LendingOptions {
    fn default() -> Self {
        Self {
            inline_bytes: 4096,
            lent_limit: 1 << 30,
            region_bytes: 64 << 20,
            region_idle: Duration::from_secs(10),
            budget: Arc::new(MemoryBudget::new(u64::MAX)),
            body: BodyPolicy::default(),
        }
    }
}

impl Default for ReceivingOptions {
    fn default() -> Self {
        Self {
            partial: Arc::new(MemoryBudget::new(u64::MAX)),
            mappings: Arc::default(),
            unexpected_bytes: 256 << 20,
            handshake_timeout: Duration::from_secs(10),
        }
    }
}

/// How bodies travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum BodyPolicy {
    /// Lent where that is possible and worth it.
    #[default]
    Auto,
    /// Always as bytes (kind 0).
    Packed,
    /// Lent wherever that is possible, small bodies and baseline peers included.
    Lent,
}

/// Settings of single transports, by name: the scheme, a dot, and what the transport calls it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Settings(pub(super) BTreeMap<String, String>);

impl Settings {
    /// The settings of one scheme, names without it.
    pub fn of<'a>(&'a self, scheme: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0.iter().filter_map(move |(name, value)| {
            let name = name.strip_prefix(scheme)?.strip_prefix('.')?;
            Some((name, value.as_str()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `LendingOptions::region_idle`: what no clock can count to, and what would have a server look
    /// without a pause, is brought to what can be done.
    #[test]
    fn times_are_brought_to_what_clocks_count() {
        let idle = |region_idle| LendingOptions {
            region_idle,
            ..LendingOptions::default()
        };
        for (asked, given) in [
            (Duration::ZERO, SHORTEST_IDLE),
            (Duration::from_secs(7), Duration::from_secs(7)),
            (Duration::from_nanos(u64::MAX), LONGEST),
            (Duration::MAX, LONGEST),
        ] {
            assert_eq!(idle(asked).idle_time(), given);
        }
    }
}
