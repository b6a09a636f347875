//! One TCP socket to one peer, which is a connection by itself, or a part of one.

use std::io::IoSliceMut;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::transport::features::{Feature, Scheme};
use crate::transport::patience::Patience;
use crate::transport::stream::{Channel, SocketReader};
use crate::transport::tcp::group::Groups;
use crate::transport::tcp::socket::{has_arrived, has_fallen_silent};
use crate::transport::{Connection, Identity, Incoming, Outgoing, Profile, Queued, Readiness};

/// Reads bytes: nothing comes beside them.
pub struct ByteReader;

impl SocketReader for ByteReader {
    fn read(
        &mut self,
        socket: BorrowedFd<'_>,
        runs: &mut [IoSliceMut<'_>],
    ) -> Result<usize, Errno> {
        rustix::io::readv(socket, runs)
    }
}

/// A connected socket with the time that its peer may be silent.
pub struct WatchedSocket {
    pub channel: Channel<ByteReader>,
    pub patience: Patience,
}

impl WatchedSocket {
    /// Takes over a connected, non-blocking socket to `peer`.
    pub fn new(socket: OwnedFd, peer: SocketAddr, unexpected: u64, patience: Patience) -> Self {
        Self {
            channel: Channel::new(Arc::new(socket), peer.to_string(), unexpected, ByteReader),
            patience,
        }
    }

    /// See [`Connection::finish`]: a close while something is unread, or is still to come, makes
    /// the system forget what the peer's has not acknowledged.
    pub fn finish(&mut self) -> bool {
        self.channel.end_sending() && self.has_arrived()
    }

    /// Whether the peer's system has acknowledged all that was written.
    pub fn has_arrived(&self) -> bool {
        has_arrived(self.channel.socket())
    }

    /// See [`Connection::probe`].
    ///
    /// # Errors
    ///
    /// `Disconnected`.
    pub fn probe(&self) -> Result<Option<Duration>> {
        if has_fallen_silent(self.channel.socket(), self.patience) {
            return Err(self.channel.silence_error(Errno::TIMEDOUT));
        }
        // A dead machine is noticed within a quarter more than the time allowed.
        Ok(Some(self.patience.duration() / 4))
    }
}

/// [`Connection`] over one TCP socket.
pub struct TcpConnection {
    identity: Identity,
    /// `None` once it has become a part of another connection.
    line: Option<WatchedSocket>,
    /// At a server, until the first message.
    joins: Option<JoinTarget>,
}

/// The groups that a socket may turn out to be of.
pub struct JoinTarget {
    /// Where sockets of one stream find each other.
    pub groups: Weak<Groups>,
    /// Where the socket came from.
    pub from: IpAddr,
}

impl TcpConnection {
    /// Takes over a socket; `joins` at a server alone.
    pub fn new(line: WatchedSocket, joins: Option<JoinTarget>) -> Self {
        let readiness = Readiness {
            fd: Arc::clone(line.channel.socket()),
            socket: true,
            peer_death: None,
        };
        Self {
            identity: identity(line.channel.peer().to_owned(), readiness, Profile::SOCKET),
            line: Some(line),
            joins,
        }
    }

    fn channel(&mut self) -> Result<&mut Channel<ByteReader>> {
        match &mut self.line {
            Some(line) => Ok(&mut line.channel),
            None => Err(joined()),
        }
    }

    /// The socket goes to its group, unless the message is another one.
    fn take_join(&mut self, message: Incoming) -> Result<Option<Incoming>> {
        let Some(joins) = self.joins.take() else {
            return Ok(Some(message));
        };
        let join = match &message {
            Incoming::Control { bytes, .. } => Feature::decode(Scheme::Tcp, bytes)?,
            _ => None,
        };
        let Some(Feature::Join(join)) = join else {
            return Ok(Some(message));
        };
        let groups = joins.groups.upgrade().ok_or_else(|| {
            Error::disconnected("the listener has gone before every socket of the stream had come")
        })?;
        match self.line.take() {
            Some(line) => groups.add(join, joins.from, line).and(Err(joined())),
            None => Err(joined()),
        }
    }
}

/// The identity of a peer over tcp.
///
/// Rule A8: it is never the same user. A port says nothing of the user behind it, on the loopback
/// interface neither: every user of the machine may listen at any free port and connect to any, and
/// what the kernel lists of its sockets may be another's by the time it is read.
pub fn identity(peer: String, readiness: Readiness, profile: Profile) -> Identity {
    Identity {
        peer,
        same_user: false,
        readiness,
        profile,
    }
}

/// Why nothing more comes through a socket that is a part of another connection.
fn joined() -> Error {
    Error::disconnected("the socket has become a part of a connection of several")
}

impl Connection for TcpConnection {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn queue(&mut self, message: Outgoing) -> Result<()> {
        self.channel()?.queue(message)
    }

    fn flush(&mut self) -> Result<bool> {
        self.channel()?.flush()
    }

    fn queued(&self) -> Queued {
        let line = self.line.as_ref();
        line.map_or_else(Queued::default, |line| line.channel.queued())
    }

    fn finish(&mut self) -> bool {
        self.line.as_mut().is_none_or(WatchedSocket::finish)
    }

    fn post_body(&mut self, seq: u32, packed: u64, list: u64) {
        if let Ok(channel) = self.channel() {
            channel.reader().post(seq, packed, list);
        }
    }

    fn forget_bodies(&mut self) {
        if let Ok(channel) = self.channel() {
            channel.forget_bodies();
        }
    }

    fn receive(&mut self) -> Result<Option<Incoming>> {
        match self.channel()?.receive()? {
            Some(message) => self.take_join(message),
            None => Ok(None),
        }
    }

    fn is_waiting(&self) -> bool {
        self.line
            .as_ref()
            .is_some_and(|line| line.channel.is_waiting())
    }

    fn probe(&mut self) -> Result<Option<Duration>> {
        self.line.as_ref().map_or(Ok(None), WatchedSocket::probe)
    }

    fn close(&mut self, lent: Option<Box<dyn Send>>) -> Option<Box<dyn Send>> {
        if let Some(line) = &mut self.line {
            line.channel.close();
        }
        lent
    }
}

impl Drop for TcpConnection {
    fn drop(&mut self) {
        self.close(None);
    }
}
