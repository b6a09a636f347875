//! Who turns a connection.
//!
//! A connection has one owner at a time. The right to turn a connection is a value, the
//! [`Turner`](super::Turner), which exists unless the I/O thread owns the connection.
//!
//! ```text
//!               acquire                        enter_host
//!   IoThread ──────────────▶ Holder ────────────────────────────▶ Host
//!       ▲                     │  ▲                                 │ │
//!       └─────────────────────┘  └──────────────── hold ───────────┘ │ admit_io, too late
//!               give_back        └──────────────── hold ── Deputy ◀──┘
//! ```
//!
//! A connection that carries many streams stays [`Shared`](Owner::Shared) for good: the I/O thread
//! turns it, and each stream is a guest with a token.
//!
//! A holder may stay in the host's code for long, while the peer cancels, returns memory or dies.
//! When it enters, it names a time. From that time on, the I/O thread stands in until the holder is
//! back.

use crate::proto::Timestamp;

/// The owner of a connection. Kept under the connection's lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The I/O thread, whose epoll watches the descriptors.
    IoThread,
    /// The holder of the token. It turns the connection, or sleeps on the descriptors itself.
    Holder,
    /// The holder, which is in the host's code and may be back soon.
    Host {
        /// From then on the I/O thread stands in.
        until: Timestamp,
    },
    /// The I/O thread, in place of a holder that is in the host's code.
    Deputy,
    /// The I/O thread, for good: the connection carries many streams.
    Shared,
}

impl Owner {
    /// Makes the token, unless there is one. Returns whether it was made.
    pub fn acquire(&mut self) -> bool {
        let is_free = *self == Self::IoThread;
        if is_free {
            *self = Self::Holder;
        }
        is_free
    }

    /// The token is dropped.
    pub fn give_back(&mut self) {
        *self = Self::IoThread;
    }

    /// From now on the I/O thread turns the connection, whoever has it.
    pub fn share(&mut self) {
        *self = Self::Shared;
    }

    /// The holder has the connection again, whether it comes from the host's code or not.
    pub fn hold(&mut self) {
        *self = Self::Holder;
    }

    /// The holder enters the host's code. From `until` on the I/O thread stands in.
    pub fn enter_host(&mut self, until: Timestamp) {
        *self = Self::Host { until };
    }

    /// Whether the I/O thread turns the connection at `now`. If a holder is late in the host's
    /// code, this call makes the I/O thread its deputy.
    pub fn admit_io(&mut self, now: Timestamp) -> bool {
        match *self {
            Self::IoThread | Self::Deputy | Self::Shared => true,
            Self::Host { until } if now >= until => {
                *self = Self::Deputy;
                true
            }
            Self::Host { .. } | Self::Holder => false,
        }
    }

    /// When the I/O thread must ask again; `Some` if a holder is in the host's code.
    pub fn deputy_at(self) -> Option<Timestamp> {
        match self {
            Self::Host { until } => Some(until),
            Self::IoThread | Self::Holder | Self::Deputy | Self::Shared => None,
        }
    }
}

/// How the I/O thread gets a connection back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GiveBack {
    /// It watches the connection at once, and turns it if there is something to do.
    Now,
    /// It is the calling thread. It watches the connection, and turns it next.
    Here,
    /// It begins to watch only after [`HOST_PATIENCE`](crate::driver::waiting::HOST_PATIENCE),
    /// unless something is to be written.
    Later,
}

#[cfg(all(loom, test))]
#[path = "ownership_model.rs"]
mod model;

#[cfg(test)]
mod tests {
    use super::*;

    /// design.md, "One owner per connection": there is one token, and the I/O thread turns a
    /// connection with a token only in place of a holder that is late.
    #[test]
    fn a_connection_has_one_owner() {
        let (soon, later) = (Timestamp::from_nanos(1), Timestamp::from_nanos(2));
        let mut owner = Owner::IoThread;
        assert!(owner.admit_io(later));
        assert!(owner.acquire());
        assert!(!owner.acquire(), "a second token");
        assert!(!owner.admit_io(later));
        owner.enter_host(later);
        assert!(!owner.acquire(), "a second token");
        assert!(!owner.admit_io(soon));
        assert!(owner.admit_io(later));
        assert_eq!(owner, Owner::Deputy);
        owner.hold();
        assert!(!owner.admit_io(later));
        owner.give_back();
        assert!(owner.admit_io(soon));
    }
}
