//! What the way to a peer is trusted with, as data of each transport.

use std::net::SocketAddr;

use crate::transport::address::is_loopback;

/// How far away the peers of a transport may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// In this process, as tests have them.
    Process,
    /// On this host, where the system says which user a peer is.
    Host,
    /// On other machines too. An address says nothing of users.
    Network,
}

/// What a transport's way to its peers is trusted with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trust {
    /// Where the peers are.
    pub reach: Reach,
    /// Nobody on the way can read or change what is sent. Certificates say who the peers are.
    pub is_encrypted: bool,
    /// A peer may read and write this process's memory: the network has to be trusted.
    pub opens_memory: bool,
}

impl Trust {
    /// Of peers within this process.
    pub const PROCESS: Self = Self {
        reach: Reach::Process,
        ..Self::NETWORK
    };
    /// Of other processes of this host.
    pub const HOST: Self = Self {
        reach: Reach::Host,
        ..Self::NETWORK
    };
    /// Of a network, in the clear.
    pub const NETWORK: Self = Self {
        reach: Reach::Network,
        is_encrypted: false,
        opens_memory: false,
    };
    /// Of a network, encrypted.
    pub const ENCRYPTED: Self = Self {
        is_encrypted: true,
        ..Self::NETWORK
    };
    /// Of a network whose peers reach this process's memory.
    pub const OPEN_MEMORY: Self = Self {
        opens_memory: true,
        ..Self::NETWORK
    };

    /// No fault of a network can change a message unseen.
    pub fn is_intact(self) -> bool {
        self.reach != Reach::Network || self.is_encrypted
    }

    /// Nobody but this machine's administrator can read what goes to a peer at `address`, if it has
    /// one (rule Q7).
    pub fn is_private(self, address: Option<&SocketAddr>) -> bool {
        self.is_intact() || (!self.opens_memory && address.is_some_and(is_loopback))
    }

    /// Whether a server reached so may lead a client to a server that is reached by `next`.
    /// `trusted_network`: the program lets servers reach its memory.
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
