//! Options that both ends of a connection can have.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::transport::TlsOptions;
use crate::transport::budget::{MappingBudget, MemoryBudget};

/// Options that both ends of a connection can have.
#[derive(Debug, Clone, Default)]
pub struct LinkOptions {
    /// For a client that connects.
    pub connect: ConnectOptions,
    /// Which peers are admitted.
    pub access: AccessOptions,
    /// How memory is lent.
    pub lending: LendingOptions,
    /// Bounds on what peers send.
    pub receiving: ReceivingOptions,
    /// Certificates, for tls.
    pub tls: Arc<TlsOptions>,
    /// Settings that only one transport knows, such as `ucx.TLS`: name and value.
    pub settings: Settings,
}

/// How a client connects.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// The most time for it.
    pub timeout: Duration,
    /// Connections for one stream, if the transport can spread bodies over several.
    pub connections: u16,
    /// Asks for checksums (rule E8).
    pub checksums: bool,
}

/// Which peers are admitted.
#[derive(Debug, Clone, Copy, Default)]
pub struct AccessOptions {
    /// Admit peers of every user, and not only of this process's own user.
    pub any_user: bool,
    /// Also listen at addresses to which other machines can connect without encryption or
    /// authentication.
    pub allow_remote: bool,
    /// Accept that every process that can reach the listener may read and write this process's
    /// memory.
    pub trusted_network: bool,
}

/// How bodies are lent.
#[derive(Debug, Clone)]
pub struct LendingOptions {
    /// Bodies of up to this many bytes travel as bytes instead of lent memory.
    pub inline_bytes: u64,
    /// Most bytes of copies that are lent to one connection and not yet returned; bodies beyond
    /// this limit travel as bytes. Memory of a producer's own arena does not count.
    pub lent_limit: u64,
    /// Most bytes of a region for copies. A connection's first regions are smaller, and a larger
    /// body gets a region of its own.
    pub region_bytes: u64,
    /// A pooled region with no block in use is given back to the system after this time: at least a
    /// millisecond, at most a year.
    pub region_idle: Duration,
    /// Bound on all regions for copies of one server, shared by its connections. A region counts
    /// until nobody has its memory any more.
    pub budget: Arc<MemoryBudget>,
    /// How bodies travel; the sender decides this for all transports that can lend.
    pub body: BodyPolicy,
}

/// Bounds on what peers send.
#[derive(Debug, Clone)]
pub struct ReceivingOptions {
    /// Bound on the bytes of long requests that have come only in part, shared by the connections
    /// of one server.
    pub partial: Arc<MemoryBudget>,
    /// Bound on peers' regions that are mapped here, shared by the connections of these options.
    pub mappings: Arc<MappingBudget>,
    /// A body that comes before its header is read at once up to this many bytes. A larger body
    /// waits for [`Connection::post_body`](super::Connection::post_body).
    pub unexpected_bytes: u64,
    /// How long a peer may take for a TLS handshake, and until all sockets of one connection have
    /// come.
    pub handshake_timeout: Duration,
}

/// Longer than anybody waits, but short enough to be added to every kind of clock.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// The shortest idle time of a region. If a region cannot go yet, a server looks again after this
/// time.
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
    /// Lent if that is possible and worth while.
    #[default]
    Auto,
    /// Always as bytes (kind 0).
    Packed,
    /// Lent whenever that is possible, even small bodies, and to baseline peers.
    Lent,
}

/// Settings of single transports, by name: the scheme, a dot, and the transport's own name for it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Settings(pub(super) BTreeMap<String, String>);

impl Settings {
    /// The settings of one scheme, by names without the scheme.
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

    /// `LendingOptions::region_idle`: a time that no clock can count to, or that would make a
    /// server look without a pause, is replaced by a possible one.
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
