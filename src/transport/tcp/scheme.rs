//! The two schemes over TCP.

use crate::transport::Trust;

/// [`Transport`](crate::transport::Transport) for `tcp://host:port` and `tls://host:port`.
#[derive(Debug, Clone, Copy)]
pub struct Tcp {
    pub(super) scheme: &'static str,
    pub(super) trust: Trust,
}

impl Tcp {
    /// Without encryption.
    pub const PLAIN: Self = Self {
        scheme: "tcp",
        trust: Trust::NETWORK,
    };
    /// Encrypted.
    #[cfg(feature = "tls")]
    pub const TLS: Self = Self {
        scheme: "tls",
        trust: Trust::ENCRYPTED,
    };
}
