//! How many connections a server keeps, and of whom. A client past a bound hears so (rule Q8).

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use rustix::process::{Resource, getrlimit, getuid};

use crate::driver::end::EndLink;
use crate::error::{Error, Result, Status};
use crate::transport::PeerOrigin;

/// Places that only processes of the server's own user get, so that strangers do not shut them out.
const RESERVE: usize = 64;
/// Descriptors of one connection, at most but for regions.
const DESCRIPTORS: usize = 2;
/// The default bound where the process may open any number of files.
const MOST: usize = 1 << 20;

/// The connections of one server, by their numbers.
#[derive(Default)]
pub(super) struct Connections {
    links: HashMap<u64, Arc<EndLink>>,
    /// How many each peer has.
    peers: HashMap<PeerKey, usize>,
}

/// Whose connections are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum PeerKey {
    /// A user of this machine.
    User(u32),
    /// Processes of this machine, of users that are not known.
    Here,
    /// A machine.
    Machine(IpAddr),
    /// This process.
    Itself,
}

/// Bounds on connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) all: usize,
    pub(super) each: usize,
}

impl Bounds {
    /// The given bounds, or their defaults: half of the files that this process may open, and half
    /// of the connections for one peer.
    pub(super) fn new(all: Option<usize>, each: Option<usize>) -> Self {
        let files = getrlimit(Resource::Nofile).current;
        let files = files.and_then(|files| usize::try_from(files).ok());
        let default = files.map_or(MOST, |files| (files / DESCRIPTORS).clamp(1, MOST));
        let all = all.unwrap_or(default);
        Self {
            all,
            each: each.unwrap_or((all / 2).max(1)),
        }
    }

    /// Places that strangers do not get.
    fn reserve(self) -> usize {
        RESERVE.min(self.all / 8)
    }
}

impl PeerKey {
    fn of(origin: &PeerOrigin) -> Self {
        match (&origin.process, &origin.address) {
            (Some(process), _) => Self::User(process.uid),
            (None, Some(address)) => match address.ip().to_canonical() {
                ip if ip.is_loopback() => Self::Here,
                ip => Self::Machine(ip),
            },
            (None, None) => Self::Itself,
        }
    }

    /// Processes of the server's own user, as far as the system tells.
    fn is_own(self) -> bool {
        self == Self::Itself || self == Self::User(getuid().as_raw())
    }

    /// Whether the bound for one peer holds for it: not for this machine, whose processes could
    /// take each other's places anyway.
    fn is_bounded(self) -> bool {
        !self.is_own() && self != Self::Here
    }
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
        let busy = |text: String| Err(Error::new(Status::Busy, text));
        if key.is_bounded() && of_peer >= bounds.each {
            return busy(format!(
                "the server has {of_peer} connections of this client's machine or user, as many as \
                 max_connections_per_peer allows"
            ));
        }
        let is_full = match key.is_own() {
            true => self.links.len() >= bounds.all,
            false => self.links.len() >= bounds.all - bounds.reserve(),
        };
        if is_full {
            return busy(format!(
                "the server has {} connections, as many as max_connections allows; try again later",
                self.links.len()
            ));
        }
        Ok(())
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
        let bounds = Bounds::new(Some(100), None);
        assert_eq!(bounds.each, 50);
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
