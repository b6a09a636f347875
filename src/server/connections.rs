//! How many connections a server keeps, and of whom. A client past a bound hears so (rule Q8).

use std::collections::HashMap;
use std::sync::Arc;

use rustix::process::{Resource, getrlimit};

use crate::driver::end::EndLink;
use crate::error::Result;
use crate::server::peers::{Bounds, PeerKey};
use crate::transport::PeerOrigin;

/// Descriptors of one connection, at most but for regions.
const DESCRIPTORS: usize = 2;
/// The default bound where the process may open any number of files.
const MOST: usize = 1 << 20;

/// The connections of one server, by their numbers.
#[derive(Default)]
pub(super) struct Connections {
    links: HashMap<u64, Arc<EndLink>>,
    peers: HashMap<PeerKey, usize>,
}

/// The bounds on connections, as given, or their defaults: half of the files that this process may
/// open, and half of the connections for one peer.
pub(super) fn bounds(all: Option<usize>, each: Option<usize>) -> Bounds {
    let files = getrlimit(Resource::Nofile).current;
    let files = files.and_then(|files| usize::try_from(files).ok());
    let default = files.map_or(MOST, |files| (files / DESCRIPTORS).clamp(1, MOST));
    Bounds::new(all.unwrap_or(default), each)
}

impl Connections {
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<EndLink>> {
        self.links.values()
    }

    /// Whether there is a place for another connection of a peer.
    ///
    /// # Errors
    ///
    /// `Busy`.
    pub(super) fn ensure_place(&self, origin: &PeerOrigin, bounds: Bounds) -> Result<()> {
        let key = PeerKey::of(origin);
        let of_peer = self.peers.get(&key).copied().unwrap_or(0);
        bounds.ensure_place("connections", key, (self.links.len(), of_peer))
    }

    pub(super) fn add(&mut self, link: &Arc<EndLink>) {
        let key = PeerKey::of(link.origin());
        self.links.insert(link.beside.id, Arc::clone(link));
        *self.peers.entry(key).or_default() += 1;
    }

    /// Returns whether it was one of them.
    pub(super) fn remove(&mut self, link: &EndLink) -> bool {
        if self.links.remove(&link.beside.id).is_none() {
            return false;
        }
        let key = PeerKey::of(link.origin());
        if let Some(count) = self.peers.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
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
        PeerOrigin::shm(PeerIds {
            pid: 1,
            uid,
            gid: 0,
        })
    }

    fn at(address: &str) -> PeerOrigin {
        PeerOrigin::at("tcp", address.parse().ok())
    }

    fn with(peers: &[(&PeerOrigin, usize)]) -> Connections {
        let mut connections = Connections::default();
        for (origin, count) in peers {
            connections.peers.insert(PeerKey::of(origin), *count);
        }
        connections
    }

    /// One machine or one other user does not take every place; ports and forms of an address do
    /// not make two of one.
    #[test]
    fn one_peer_has_a_bound() {
        let bounds = bounds(Some(100), None);
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
}
