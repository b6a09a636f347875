//! How messages and memory reach the peer.
//!
//! A transport moves three classes of messages (untagged metadata, tagged bodies and requests,
//! control) and, where it can, lends memory instead of sending it. It knows nothing of streams,
//! tickets or Arrow: the driver joins it with the state machines of [`crate::proto`].
//!
//! | module | scheme | bodies |
//! |---|---|---|
//! | `mem` | `mem:` | both kinds, inside one process; for tests |
//! | [`shm`] | `shm:` | lent regions; small ones as bytes |
//! | [`tcp`] | `tcp:`, `tls:` | bytes, over one socket or several |
//! | [`ucx`] | `ucx:` | bytes, over what UCX finds; lent memory where the server is told to |
//!
//! A connection never blocks: the driver sleeps on its [`ConnectionReadiness`] and calls
//! [`Connection::receive`] and [`Connection::flush`] when there is something to do. A new transport
//! is done when `tests/conformance` passes with it.

mod address;
mod all;
mod attempt;
mod budget;
pub(crate) mod checked;
mod closing;
mod connection;
mod features;
mod lend;
mod lender;
mod listening;
#[cfg(any(test, feature = "mem"))]
pub mod mem;
mod message;
mod options;
mod patience;
mod peer;
mod rdma;
mod regions;
mod rights;
pub mod shm;
pub(crate) mod stream;
pub mod tcp;
mod tls_options;
mod trust;
pub mod ucx;
mod wait;

use std::fmt::Debug;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

pub use all::{ALL, by_scheme, trust_of};
pub use attempt::{Attempt, Awaited, Connecting};
pub(crate) use budget::Charge;
pub use budget::MemoryBudget;
pub use connection::{BodyWays, Connection, ConnectionReadiness, Identity, Profile, Traffic};
pub use lend::{RegionPool, RegionTable};
pub use lender::{Keep, Lease, Lender, MemoryOwner, OnGpu, Placement, ReadyNotice, RegionNotice};
/// What `benches/tls` measures: a channel, and TLS below it, in whose place it puts other wires.
#[cfg(feature = "tls")]
pub mod measured {
    pub use crate::transport::stream::{Channel, Outbox, Wire};
    pub use crate::transport::tcp::tls::{Handshake, HandshakeProgress, config};
}
use message::{BodyPlace, sends_host_memory_only};
pub use message::{COPIED_BYTES, Incoming, Outgoing, Payload};
pub use options::{
    AccessOptions, BodyPolicy, ConnectOptions, LendingOptions, LinkOptions, ReceivingOptions,
    Settings,
};
pub use peer::{PeerCertificate, PeerIds, PeerOrigin};
pub use regions::{PeerRegions, Resolved, ResolvedGpu, Unmapped};
pub use tls_options::{TlsFiles, TlsOptions};
pub use trust::{Reach, Trust};
pub(crate) use wait::Timer;

use crate::device::outlive;
use crate::error::{Error, Result};
use crate::proto::Uri;

/// A way to reach peers, chosen by the scheme of a URI.
pub trait Transport: Send + Sync {
    /// The scheme of its URIs, without the colon.
    fn scheme(&self) -> &'static str;

    /// What the way to its peers is trusted with.
    fn trust(&self) -> Trust;

    /// Whether it works on this machine.
    ///
    /// # Errors
    ///
    /// `Unsupported`, with a text that says what is missing and how to get it.
    fn available(&self) -> Result<()>;

    /// Whether it has a setting of that name (scheme, dot, name), as far as is known beforehand.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: the setting does not take the value, or cannot be given in this way.
    fn takes_setting(&self, name: &str, value: &str) -> Result<bool> {
        let _ = (name, value);
        Ok(false)
    }

    /// Starts to listen at the URI's address.
    ///
    /// # Errors
    ///
    /// `AddressInUse` when a live server listens there; `Permission`, `InvalidUri`, `Io`.
    fn listen(&self, uri: &Uri, options: &LinkOptions) -> Result<Box<dyn Listener>>;

    /// Goes on with a socket that listens already, which others may have too: it is neither shut
    /// down nor removed in the end.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` when it is no such socket; `Permission` as [`listen`](Self::listen);
    /// `Unsupported` when the transport has no listening sockets.
    fn listen_by(&self, socket: OwnedFd, options: &LinkOptions) -> Result<Box<dyn Listener>> {
        let _ = (socket, options);
        let scheme = self.scheme();
        Err(Error::unsupported(format!(
            "{scheme} does not listen by a descriptor: shm, tcp and tls do"
        )))
    }

    /// Connects to the URI's address, within `options.connect.timeout`, as a future of `attempt`.
    ///
    /// # Errors
    ///
    /// `Unreachable` when nobody listens there; `Permission` when the server runs as a user that
    /// the options do not admit; `Timeout`; `Cancelled` by the token of `attempt`; `Io`.
    fn connecting<'a>(
        &'a self,
        uri: &'a Uri,
        options: &'a LinkOptions,
        attempt: &'a Attempt,
    ) -> Connecting<'a>;

    /// [`connecting`](Self::connecting) on this thread, with an attempt that nobody ends.
    ///
    /// # Errors
    ///
    /// As [`connecting`](Self::connecting).
    fn connect(&self, uri: &Uri, options: &LinkOptions) -> Result<Box<dyn Connection>> {
        let attempt = Attempt::default();
        attempt.block_on(self.connecting(uri, options, &attempt))
    }
}

/// Whether memory is kept for peers that were cut off and may still read it. Memory of a GPU is
/// kept until the peer has ended. Memory that UCX still uses is kept until the peer has closed the
/// connection.
pub(crate) fn keeps_memory() -> bool {
    outlive::is_keeping()
}

/// Waits, no longer than `patience`, until closed connections have released what they held. Does
/// not wait for connections whose peer delays the release.
pub(crate) fn wait_closed(patience: Duration) {
    outlive::wait(patience);
}

/// A descriptor to sleep on. Its sleepers share it, and the last one closes it.
pub trait Watched: AsFd + Debug + Send + Sync {}

impl<T: AsFd + Debug + Send + Sync> Watched for T {}

/// A socket, or its like, that peers connect to. Dropping it stops listening and removes what it
/// left in the file system.
pub trait Listener: Send {
    /// Readable when [`accept`](Self::accept) has something to do.
    fn fd(&self) -> Arc<dyn Watched>;

    /// The URI that reaches this listener, without a query. It has the ports that the system chose.
    fn address(&self) -> String;

    /// Fills in what else clients need to know of this listener (rules U2, E1): on ucx the version
    /// and, where baseline peers are lent memory, the key to it.
    fn complete(&self, uri: &mut Uri) {
        let _ = uri;
    }

    /// The next connection, or `None` when there is none now.
    ///
    /// A socket may prove to be a part of a connection of several sockets. It then ends when its
    /// first message is read, and the whole connection is returned here after its last part has
    /// come.
    ///
    /// # Errors
    ///
    /// Of one peer (`Permission`, `Disconnected`, `Io`), or of the process (`OutOfResources`,
    /// `OutOfMemory`).
    fn accept(&mut self) -> Result<Option<Box<dyn Connection>>>;

    /// The connection whose peer the last [`accept`](Self::accept) refused, and the answer to its
    /// request.
    fn refused(&mut self) -> Option<(Box<dyn Connection>, Error)> {
        None
    }
}
