//! How many connections a server keeps, in all and of each peer. A client beyond a bound gets an
//! error (rule Q8).

use std::collections::HashMap;
use std::sync::Arc;

use rustix::process::{Resource, getrlimit};

use crate::driver::end::EndLink;
use crate::error::Result;
use crate::server::peers::{Bounds, CONNECTIONS, DESCRIPTORS, PeerKey};
use crate::transport::PeerOrigin;

/// Descriptors of a connection over shm: the socket, and the peer's process.
const DESCRIPTORS_OVER_SHM: usize = 2;
/// The default bound on descriptors if the process may open any number of files.
const MOST: usize = 1 << 20;

/// The bounds on a server's connections: a number, or by default a share of the files that this
/// process may open.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConnectionBounds {
    connections: Bounds,
    descriptors: Bounds,
}

/// The connections of one server, by their numbers.
#[derive(Default)]
pub(super) struct ConnectionTable {
    links: HashMap<u64, KeptLink>,
    all: PeerUse,
    peers: HashMap<PeerKey, PeerUse>,
}

/// A connection, and the number of its descriptors.
struct KeptLink {
    link: Arc<EndLink>,
    descriptors: usize,
}

/// What one peer has, or all peers together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct PeerUse {
    connections: usize,
    descriptors: usize,
}

impl ConnectionBounds {
    /// The bounds as given, or their defaults: half of the files for all connections, and half of
    /// that for those of one peer. A host that gives a number knows its limit of files.
    pub(super) fn new(all: Option<usize>, each: Option<usize>) -> Self {
        let files = getrlimit(Resource::Nofile).current;
        let files = files.and_then(|files| usize::try_from(files).ok());
        let half = files.map_or(MOST, |files| (files / 2).clamp(1, MOST));
        let any = Some(usize::MAX);
        let (connections, descriptors) = match (all, each) {
            (Some(all), each) => ((all, each), (usize::MAX, any)),
            (None, Some(each)) => ((usize::MAX, Some(each)), (half, any)),
            (None, None) => ((usize::MAX, any), (half, None)),
        };
        Self {
            connections: Bounds::new(&CONNECTIONS, connections.0, connections.1),
            descriptors: Bounds::new(&DESCRIPTORS, descriptors.0, descriptors.1),
        }
    }

    /// How many connections there may be, if each has as many descriptors as one over shm.
    pub(super) fn most(self) -> usize {
        let by_files = self.descriptors.all() / DESCRIPTORS_OVER_SHM;
        self.connections.all().min(by_files.max(1))
    }
}

impl PeerUse {
    fn add(&mut self, descriptors: usize) {
        self.connections += 1;
        self.descriptors += descriptors;
    }

    fn remove(&mut self, descriptors: usize) {
        self.connections -= 1;
        self.descriptors -= descriptors;
    }
}

impl ConnectionTable {
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<EndLink>> {
        self.links.values().map(|kept| &kept.link)
    }

    /// Whether there is a place for another connection of a peer.
    ///
    /// # Errors
    ///
    /// `Busy`.
    pub(super) fn ensure_place(&self, origin: &PeerOrigin, bounds: ConnectionBounds) -> Result<()> {
        let key = PeerKey::of(origin);
        let of_peer = self.peers.get(&key).copied().unwrap_or_default();
        let taken = self.all;
        bounds
            .connections
            .ensure_place(key, taken.connections, of_peer.connections)?;
        bounds
            .descriptors
            .ensure_place(key, taken.descriptors, of_peer.descriptors)
    }

    /// Counts a connection and its descriptors.
    pub(super) fn add(&mut self, link: &Arc<EndLink>, descriptors: usize) {
        let key = PeerKey::of(link.origin());
        let kept = KeptLink {
            link: Arc::clone(link),
            descriptors,
        };
        self.links.insert(link.context.id, kept);
        self.all.add(descriptors);
        self.peers.entry(key).or_default().add(descriptors);
    }

    /// Whether `link` is one of the connections and has closed: another thread is about to remove
    /// it.
    pub(super) fn has_closed(&self, link: &EndLink) -> bool {
        link.is_closed() && self.links.contains_key(&link.context.id)
    }

    /// Removes `link`. Returns whether it was one of the connections.
    pub(super) fn remove(&mut self, link: &EndLink) -> bool {
        let Some(KeptLink { descriptors, .. }) = self.links.remove(&link.context.id) else {
            return false;
        };
        self.all.remove(descriptors);
        let key = PeerKey::of(link.origin());
        if let Some(held) = self.peers.get_mut(&key) {
            held.remove(descriptors);
            if *held == PeerUse::default() {
                self.peers.remove(&key);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::PeerIds;
    use rustix::process::getuid;

    fn shm(uid: u32) -> PeerOrigin {
        PeerOrigin {
            process: Some(PeerIds {
                pid: 1,
                uid,
                gid: 0,
            }),
            ..PeerOrigin::default()
        }
    }

    fn at(address: &str) -> PeerOrigin {
        PeerOrigin {
            address: address.parse().ok(),
            ..PeerOrigin::default()
        }
    }

    fn with(peers: &[(&PeerOrigin, usize)]) -> ConnectionTable {
        let mut connections = ConnectionTable::default();
        for (origin, count) in peers {
            for _ in 0..*count {
                let held = connections.peers.entry(PeerKey::of(origin)).or_default();
                held.add(1);
                connections.all.add(1);
            }
        }
        connections
    }

    /// One machine or one other user cannot get every place. Connections of one peer count as such
    /// even if ports or forms of its address differ.
    #[test]
    fn one_peer_has_a_bound() {
        let bounds = ConnectionBounds::new(Some(300), Some(50));
        let stranger = shm(getuid().as_raw() + 1);
        let full = with(&[
            (&at("10.0.0.7:1"), 50),
            (&stranger, 50),
            (&at("127.0.0.1:1"), 50),
        ]);
        for (origin, has_place) in [
            (at("10.0.0.7:2"), false),
            (at("[::ffff:10.0.0.7]:2"), false),
            (at("10.0.0.8:1"), true),
            (stranger, false),
            (shm(getuid().as_raw()), true),
            (at("127.0.0.1:2"), true),
        ] {
            let place = full.ensure_place(&origin, bounds);
            assert_eq!(place.is_ok(), has_place, "{origin:?}");
        }
    }

    /// A bound on each peer holds even if there is no bound on all.
    #[test]
    fn each_bound_may_be_given_alone() {
        let stranger = shm(getuid().as_raw() + 1);
        let full = with(&[(&stranger, 5)]);
        for (all, each, has_place) in [
            (None, None, true),
            (None, Some(5), false),
            (Some(64), Some(5), false),
            (Some(64), None, true),
            (Some(10), None, false),
        ] {
            let place = full.ensure_place(&stranger, ConnectionBounds::new(all, each));
            assert_eq!(place.is_ok(), has_place, "{all:?}, {each:?}");
        }
    }
}
