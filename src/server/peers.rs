//! Peers of a server, and how much of a thing all of them and each of them may have (rule Q8).

use std::net::IpAddr;

use rustix::process::getuid;

use crate::error::{Error, Result, Status};
use crate::transport::PeerOrigin;

/// Places that only processes of the server's own user get, so that strangers do not shut them out.
const RESERVE: usize = 64;

/// Who is counted as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum PeerKey {
    /// A user of this machine.
    User(u32),
    /// Processes of this machine, of users that are not known.
    Here,
    /// A machine.
    Machine(IpAddr),
    /// This process.
    Itself,
}

/// Bounds on a thing that peers have: connections, streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    all: usize,
    each: usize,
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

impl Bounds {
    /// `each`: of one peer; `None`: half of all.
    pub(super) fn new(all: usize, each: Option<usize>) -> Self {
        Self {
            all,
            each: each.unwrap_or((all / 2).max(1)),
        }
    }

    /// The bound on all.
    pub(super) fn all(self) -> usize {
        self.all
    }

    /// Places that strangers do not get.
    pub(super) fn reserve(self) -> usize {
        RESERVE.min(self.all / 8)
    }

    /// Whether there is a place for one more of a peer. `things` names them, as in the option
    /// `max_things`. All peers have `taken.0` of them, and this one has `taken.1`.
    ///
    /// # Errors
    ///
    /// `Busy`.
    pub(super) fn ensure_place(
        self,
        things: &str,
        peer: PeerKey,
        (taken, of_peer): (usize, usize),
    ) -> Result<()> {
        let busy = |text: String| Err(Error::new(Status::Busy, text));
        if peer.is_bounded() && of_peer >= self.each {
            return busy(format!(
                "this client's machine or user has as many {things} ({of_peer}) as \
                 max_{things}_per_peer allows"
            ));
        }
        let most = match peer.is_own() {
            true => self.all,
            false => self.all - self.reserve(),
        };
        if taken >= most {
            return busy(format!(
                "the server has as many {things} ({taken}) as max_{things} allows; try again later"
            ));
        }
        Ok(())
    }
}
