//! Peers of a server, and how many places each of them, and all together, may have (rule Q8).

use std::net::IpAddr;

use rustix::process::getuid;

use crate::error::{Error, Result, Status};
use crate::transport::PeerOrigin;

/// Places reserved for processes of the server's own user, so that strangers cannot shut these out.
const RESERVE: usize = 64;

/// What counts as one peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum PeerKey {
    /// A user of this machine.
    User(u32),
    /// Processes of this machine whose user is not known.
    Here,
    /// A machine.
    Machine(IpAddr),
    /// This process.
    Itself,
}

/// A kind of place that peers take, in words for those who are refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Thing {
    name: &'static str,
    /// The settings that bound all peers together, and each peer.
    all: &'static str,
    each: &'static str,
    /// How the bound on each peer follows from the one on all, if the host has not set it.
    half: &'static str,
    /// What raises the bounds.
    raise: &'static str,
}

pub(super) const STREAMS: Thing = Thing {
    name: "streams",
    all: "max_streams",
    each: "max_streams_per_peer",
    half: ", by default half of max_streams",
    raise: "raise it",
};

pub(super) const CONNECTIONS: Thing = Thing {
    name: "connections",
    all: "max_connections",
    each: "max_connections_per_peer",
    half: ", by default half of max_connections",
    raise: "raise it",
};

/// Descriptors of connections.
pub(super) const DESCRIPTORS: Thing = Thing {
    name: "files open for connections",
    all: "half of its limit (ulimit -n)",
    each: "a quarter of its limit (ulimit -n)",
    half: "",
    raise: "raise that limit or set max_connections",
};

/// Bounds on one kind of place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    thing: &'static Thing,
    all: usize,
    /// `None`: half of all.
    each: Option<usize>,
}

impl PeerKey {
    pub(super) fn of(origin: &PeerOrigin) -> Self {
        match (&origin.process, &origin.address) {
            (Some(process), _) => Self::User(process.uid),
            (None, Some(address)) => match address.ip().to_canonical() {
                ip if ip.is_loopback() => Self::Here,
                ip => Self::Machine(ip),
            },
            (None, None) => Self::Itself,
        }
    }

    /// Whether this stands for processes of the server's own user, as far as the system knows.
    fn is_own(self) -> bool {
        self == Self::Itself || self == Self::User(getuid().as_raw())
    }

    /// Whether the bound for one peer holds for this peer. It does not hold for processes of this
    /// machine, which could shut each other out anyway.
    fn is_bounded(self) -> bool {
        !self.is_own() && self != Self::Here
    }
}

impl Bounds {
    /// `each` is the bound on one peer; `None`: half of all.
    pub(super) fn new(thing: &'static Thing, all: usize, each: Option<usize>) -> Self {
        Self { thing, all, each }
    }

    /// The bound on all.
    pub(super) fn all(self) -> usize {
        self.all
    }

    /// Places reserved for the server's own user.
    pub(super) fn reserve(self) -> usize {
        RESERVE.min(self.all / 8)
    }

    /// Whether there is one more place for a peer, which has `of_peer` of the `taken` places.
    ///
    /// # Errors
    ///
    /// `Busy`.
    pub(super) fn ensure_place(self, peer: PeerKey, taken: usize, of_peer: usize) -> Result<()> {
        let Thing { name, all, .. } = self.thing;
        let (most, reserve) = (self.all, self.reserve());
        let (each, half) = match self.each {
            Some(each) => (each, ""),
            None => ((most / 2).max(1), self.thing.half),
        };
        if peer.is_bounded() && of_peer >= each {
            return self.refuse(format_args!(
                "this client's machine or user has as many {name} as {} allows ({each}{half})",
                self.thing.each
            ));
        }
        if taken >= most {
            return self.refuse(format_args!(
                "the server has as many {name} as {all} allows ({most})"
            ));
        }
        if !peer.is_own() && taken >= most - reserve {
            return self.refuse(format_args!(
                "the server has {taken} {name} of the {most} that {all} allows, and keeps the last \
                 {reserve} for processes of its own user over shm"
            ));
        }
        Ok(())
    }

    fn refuse(self, why: std::fmt::Arguments<'_>) -> Result<()> {
        let raise = self.thing.raise;
        let text = format!(
            "{why}; {raise} at the server, or give the request a deadline: until then it waits for \
             a place"
        );
        Err(Error::new(Status::Busy, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rule Q8: a refusal names the setting that was met and its number, what raises it, and that
    /// a deadline makes the request wait.
    #[test]
    fn a_refusal_names_its_setting() {
        let stranger = PeerKey::User(getuid().as_raw() + 1);
        let own = PeerKey::Itself;
        let streams = Bounds::new(&STREAMS, 64, None);
        let given = Bounds::new(&STREAMS, 64, Some(3));
        let files = Bounds::new(&DESCRIPTORS, 512, None);
        for (bounds, peer, counts, words) in [
            (
                streams,
                own,
                (64, 64),
                "streams as max_streams allows (64); raise it",
            ),
            (
                streams,
                PeerKey::Here,
                (64, 64),
                "as max_streams allows (64); raise it",
            ),
            (
                streams,
                PeerKey::Here,
                (56, 56),
                "56 streams of the 64 that max_streams allows",
            ),
            (
                streams,
                stranger,
                (32, 32),
                "max_streams_per_peer allows (32, by default half of",
            ),
            (
                given,
                stranger,
                (3, 3),
                "max_streams_per_peer allows (3); raise it",
            ),
            (
                files,
                own,
                (512, 512),
                "half of its limit (ulimit -n) allows (512); raise that",
            ),
            (
                files,
                stranger,
                (256, 256),
                "a quarter of its limit (ulimit -n) allows (256);",
            ),
        ] {
            let error = bounds.ensure_place(peer, counts.0, counts.1).unwrap_err();
            assert_eq!(error.status(), Status::Busy, "{error}");
            assert!(error.text().contains(words), "{error}");
            assert!(
                error.text().contains("give the request a deadline"),
                "{error}"
            );
            bounds
                .ensure_place(peer, counts.0 - 1, counts.1 - 1)
                .unwrap_or_else(|error| {
                    // The last places are not for everybody.
                    assert!(peer == PeerKey::Here && counts.0 == 64, "{error}");
                });
        }
    }
}
