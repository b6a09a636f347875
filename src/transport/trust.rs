//! How far the way to a peer is trusted, as data of each transport.

use std::net::SocketAddr;

use crate::transport::address::is_loopback;

/// How far away the peers of a transport may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// In this process; for tests.
    Process,
    /// On this host, where the system tells which user a peer is.
    Host,
    /// On other machines too. An address does not identify a user.
    Network,
}

/// How far a transport's way to its peers is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trust {
    /// Where the peers are.
    pub reach: Reach,
    /// Nobody on the way can read or change the data. Certificates say who the peers are.
    pub is_encrypted: bool,
    /// A peer may read and write this process's memory, so the network has to be trusted.
    pub opens_memory: bool,
}

impl Trust {
    /// For peers within this process.
    pub const PROCESS: Self = Self {
        reach: Reach::Process,
        ..Self::NETWORK
    };
    /// For other processes of this host.
    pub const HOST: Self = Self {
        reach: Reach::Host,
        ..Self::NETWORK
    };
    /// For a network without encryption.
    pub const NETWORK: Self = Self {
        reach: Reach::Network,
        is_encrypted: false,
        opens_memory: false,
    };
    /// For a network with encryption.
    pub const ENCRYPTED: Self = Self {
        is_encrypted: true,
        ..Self::NETWORK
    };
    /// For a network whose peers reach this process's memory.
    pub const OPEN_MEMORY: Self = Self {
        opens_memory: true,
        ..Self::NETWORK
    };

    /// Whether no fault of a network can change a message unnoticed.
    pub fn is_intact(self) -> bool {
        self.reach != Reach::Network || self.is_encrypted
    }

    /// Whether only this machine's administrator can read what goes to a peer at `address`, if the
    /// peer has one (rule Q7).
    pub fn is_private(self, address: Option<&SocketAddr>) -> bool {
        self.is_intact() || (!self.opens_memory && address.is_some_and(is_loopback))
    }

    /// Whether a server that was reached in this way may send a client to a server that is reached
    /// by `next`. `trusted_network`: the program lets servers reach its memory.
    pub fn may_lead_to(self, next: Self, trusted_network: bool) -> bool {
        if next.reach != Reach::Network {
            return self.reach != Reach::Network;
        }
        let keeps_secrets = next.is_encrypted || !self.is_encrypted;
        let keeps_memory = !next.opens_memory || self.opens_memory || trusted_network;
        keeps_secrets && keeps_memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::trust_of;

    /// Rule Q7: shared memory, the loopback interface and TLS are private; networks and ucx are
    /// not.
    #[test]
    fn networks_are_not_private() {
        let is_private = |scheme, address: &str| {
            let address = address.parse().ok();
            trust_of(scheme).is_private(address.as_ref())
        };
        assert!(is_private("shm", "") && is_private("mem", ""));
        for address in ["127.0.0.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert!(is_private("tcp", address), "{address}");
        }
        assert!(Trust::ENCRYPTED.is_private("10.0.0.1:1".parse().ok().as_ref()));
        for (scheme, address) in [("tcp", "10.0.0.1:1"), ("tcp", "?"), ("ucx", "127.0.0.1:1")] {
            assert!(!is_private(scheme, address), "{scheme} {address}");
        }
    }
}
