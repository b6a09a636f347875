//! A connection over one TCP socket, or over several; encrypted, or plain.
//!
//! With several sockets, bodies are spread by their sequence numbers, and everything else uses the
//! first socket. So a body may arrive before its header, and messages of the next stream before the
//! last ones of this stream.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use smallvec::{SmallVec, smallvec};

use crate::error::{Error, Result};
use crate::proto::{ExpectedBody, body_of_tag};
use crate::transport::features::Join;
use crate::transport::patience::PeerMachine;
use crate::transport::stream::Channel;
use crate::transport::tcp::group::Groups;
use crate::transport::tcp::watched::WatchedSocket;
use crate::transport::wait::Timer;
use crate::transport::{
    Connection, ConnectionReadiness, Identity, Incoming, Outgoing, Profile, Traffic,
};

/// How long the other sockets may go on after the peer has ended one of them, because data that the
/// peer sent before it closed them all may still be on its way.
const END_TIME: Duration = Duration::from_secs(2);

/// [`Connection`] over TCP.
pub struct TcpConnection {
    identity: Identity,
    /// The sockets, in the order of their numbers. Empty once the only socket has become a part of
    /// another connection.
    sockets: SmallVec<[WatchedSocket; 1]>,
    /// Present if there are several sockets.
    watch: Option<SocketWatch>,
    /// Since when nothing has come although some sockets have ended.
    ending: Option<Instant>,
    /// The socket to read next.
    next: usize,
    over: Option<Error>,
    /// At a server, until the first message: the groups that the socket may join.
    joins: Option<JoinTarget>,
}

/// Watches several sockets.
struct SocketWatch {
    /// Readable when a socket is readable, or has the room that was waited for.
    epoll: Arc<OwnedFd>,
    /// Watched by the epoll instance: goes off when [`END_TIME`] is over.
    end_timer: Timer,
}

/// The groups that a socket may belong to.
pub struct JoinTarget {
    /// The groups in which sockets of one connection find each other.
    pub groups: Weak<Groups>,
    /// The address that the socket came from.
    pub from: IpAddr,
}

impl SocketWatch {
    /// The epoll instance and the timer.
    const DESCRIPTORS: usize = 2;

    fn new(sockets: &[WatchedSocket]) -> Result<Self, Errno> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let end_timer = Timer::new()?;
        let data = EventData::new_u64(0);
        epoll::add(&epoll, &end_timer, data, EventFlags::IN)?;
        for socket in sockets {
            epoll::add(&epoll, &socket.channel.socket, data, EventFlags::IN)?;
        }
        Ok(Self {
            epoll: Arc::new(epoll),
            end_timer,
        })
    }
}

impl TcpConnection {
    /// Takes over one socket. `joins` is given only at a server.
    pub fn new(socket: WatchedSocket, joins: Option<JoinTarget>) -> Self {
        let mut connection = Self::over(smallvec![socket], None);
        connection.joins = joins;
        connection
    }

    /// Takes over two or more sockets, in the order of their numbers.
    ///
    /// # Errors
    ///
    /// An error of the system, together with the sockets: no descriptors are left.
    pub fn joined(sockets: Vec<WatchedSocket>) -> Result<Self, (Error, Vec<WatchedSocket>)> {
        match SocketWatch::new(&sockets) {
            Ok(watch) => Ok(Self::over(sockets.into(), Some(watch))),
            Err(errno) => {
                let doing = "cannot set up a connection of several sockets";
                Err((Error::os(doing, errno), sockets))
            }
        }
    }

    fn over(sockets: SmallVec<[WatchedSocket; 1]>, watch: Option<SocketWatch>) -> Self {
        let first = &sockets[0];
        let (name, socket) = (&first.channel.peer, &first.channel.socket);
        let (peer, fd) = match &watch {
            None => (name.to_owned(), Arc::clone(socket)),
            Some(watch) => (
                format!("{name} over {} sockets", sockets.len()),
                Arc::clone(&watch.epoll) as _,
            ),
        };
        let each = sockets.iter().map(|it| Arc::clone(&it.channel.socket));
        let identity = Identity {
            origin: first.origin.clone(),
            peer,
            // Rule A8: the peer never counts as the same user. A port does not identify the user
            // behind it, not even on the loopback interface: every user of the machine may listen
            // at any free port and connect to any, and the kernel's list of its sockets may be
            // outdated.
            same_user: false,
            readiness: ConnectionReadiness {
                fd,
                socket: watch.is_none(),
                peer_death: None,
                peer_machine: Some(PeerMachine::new(each.collect(), first.patience)),
            },
            descriptors: sockets.len() + watch.as_ref().map_or(0, |_| SocketWatch::DESCRIPTORS),
            profile: Profile {
                is_ordered: watch.is_none(),
                carries_many: watch.is_none(),
                trust: first.trust,
                ..Profile::SOCKET
            },
        };
        Self {
            identity,
            sockets,
            watch,
            ending: None,
            next: 0,
            over: None,
            joins: None,
        }
    }

    /// If the message asks to join a group, gives the socket to the group. Otherwise returns the
    /// message.
    fn take_join(&mut self, (number, message): (u32, Incoming)) -> Result<Option<(u32, Incoming)>> {
        let Some(joins) = self.joins.take() else {
            return Ok(Some((number, message)));
        };
        let join = match &message {
            Incoming::Control { bytes, .. } => Join::decode(bytes)?,
            _ => None,
        };
        let Some(join) = join else {
            return Ok(Some((number, message)));
        };
        let groups = joins.groups.upgrade().ok_or_else(|| {
            Error::disconnected("the listener has gone before every socket of the stream had come")
        })?;
        if let Some(socket) = self.sockets.pop() {
            groups.add(join, joins.from, socket)?;
        }
        Err(Error::disconnected(
            "the socket has become a part of a connection of several",
        ))
    }

    /// The index of the socket that carries the body of a message of the stream `number`.
    fn socket_of(&self, number: u32, seq: u32) -> usize {
        // Neighbouring bodies of a stream go to different sockets, and so do those of neighbouring
        // streams.
        usize::try_from(number.wrapping_add(seq)).unwrap_or(0) % self.sockets.len().max(1)
    }

    /// The index of the socket that carries a tagged message of the stream `number`.
    fn socket_of_tag(&self, number: u32, tag: u64) -> usize {
        body_of_tag(tag).map_or(0, |(seq, _)| self.socket_of(number, seq))
    }

    fn ensure_open(&self) -> Result<()> {
        self.over.clone().map_or(Ok(()), Err)
    }

    /// Makes the epoll instance watch a socket for what can be done with it now.
    fn watch(&mut self, index: usize) {
        let (Some(watch), Some(socket)) = (&self.watch, self.sockets.get_mut(index)) else {
            return;
        };
        let channel = &socket.channel;
        let mut wanted = EventFlags::empty();
        // While a body waits to be posted, epoll would report the socket again and again.
        wanted.set(EventFlags::IN, channel.waiting().is_none());
        wanted.set(EventFlags::OUT, channel.is_full);
        if channel.has_ended {
            let _ = epoll::delete(&watch.epoll, &channel.socket);
        } else if wanted != socket.watched {
            let data = EventData::new_u64(0);
            match epoll::modify(&watch.epoll, &channel.socket, data, wanted) {
                Ok(()) => socket.watched = wanted,
                Err(errno) => tracing::error!("cannot change what is watched: {errno}"),
            }
        }
    }

    /// Checks that a message came over the socket where it belongs.
    fn check(&self, index: usize, number: u32, message: &Incoming) -> Result<()> {
        let belongs = match message {
            Incoming::Body { seq, .. } | Incoming::GpuBody { seq, .. } => {
                self.socket_of(number, *seq)
            }
            Incoming::Tagged { tag, .. } => self.socket_of_tag(number, *tag),
            Incoming::Metadata(_) | Incoming::Control { .. } => 0,
        };
        if belongs == index {
            return Ok(());
        }
        Err(Error::protocol(format!(
            "the peer sent a message over socket {index} of {} that belongs on socket {belongs} \
             (docs/wire.md)",
            self.sockets.len()
        )))
    }

    fn receive_next(&mut self) -> Result<Option<(u32, Incoming)>> {
        let count = self.sockets.len();
        let mut end = None;
        for index in (self.next..count).chain(0..self.next) {
            let channel = &mut self.sockets[index].channel;
            let received = channel.receive();
            let ended = channel.has_ended;
            self.watch(index);
            match received {
                Ok(Some((number, message))) => {
                    self.check(index, number, &message)?;
                    // The next read begins with another socket, so that none falls behind.
                    self.next = (index + 1) % count;
                    self.set_ending(None)?;
                    return self.take_join((number, message));
                }
                Ok(None) => {}
                Err(error) if ended => end = Some(error),
                Err(error) => return Err(error),
            }
        }
        let Some(error) = end else { return Ok(None) };
        // The end of one socket ends the connection, once the others have ended too or their time
        // is over.
        let all = self.sockets.iter().all(|socket| socket.channel.has_ended);
        match self.ending {
            _ if all => Err(error),
            Some(since) if since.elapsed() >= END_TIME => Err(error),
            Some(_) => Ok(None),
            None => self.set_ending(Some(Instant::now())).map(|()| None),
        }
    }

    fn set_ending(&mut self, since: Option<Instant>) -> Result<()> {
        if self.ending.is_none() && since.is_none() {
            return Ok(());
        }
        self.ending = since;
        let set = |watch: &SocketWatch| watch.end_timer.set(since.map(|_| END_TIME));
        (self.watch.as_ref().map_or(Ok(()), set))
            .map_err(|errno| Error::os("cannot wait for the end of a connection", errno))
    }
}

impl Connection for TcpConnection {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn queue(&mut self, number: u32, message: Outgoing) -> Result<()> {
        self.ensure_open()?;
        let index = match &message {
            Outgoing::Tagged { tag, .. } | Outgoing::GpuBody { tag, .. } => {
                self.socket_of_tag(number, *tag)
            }
            Outgoing::Metadata { .. } | Outgoing::Control { .. } => 0,
        };
        self.sockets[index].channel.queue(number, message)
    }

    fn flush(&mut self) -> Result<bool> {
        self.ensure_open()?;
        let mut all = true;
        for index in 0..self.sockets.len() {
            let channel = &mut self.sockets[index].channel;
            // Messages on the other sockets are read first.
            if !channel.has_ended {
                let flushed = channel.flush();
                self.watch(index);
                match flushed {
                    Ok(flushed) => all &= flushed,
                    Err(error) => {
                        // Everything that has come over any socket is read first.
                        let channels = self.sockets.iter_mut().map(|socket| &mut socket.channel);
                        channels.for_each(Channel::look_again);
                        return Err(error);
                    }
                }
            }
        }
        Ok(all)
    }

    fn traffic(&self) -> Traffic {
        let parts = self.sockets.iter().map(|socket| socket.channel.traffic());
        parts.fold(Traffic::default(), |sum, part| Traffic {
            queued: sum.queued + part.queued,
            held: sum.held + part.held,
            received: sum.received.wrapping_add(part.received),
        })
    }

    /// If a socket is closed while it has unread bytes or bytes still come, the system drops sent
    /// data that the peer's system has not acknowledged.
    fn finish(&mut self) -> bool {
        // With several sockets, none is ended before all data has arrived, because the peer takes
        // the end of one socket for the end of all.
        if self.sockets.len() > 1
            && (self.traffic().queued > 0 || !self.sockets.iter().all(WatchedSocket::has_arrived))
        {
            return false;
        }
        let finish =
            |socket: &mut WatchedSocket| socket.channel.end_sending() && socket.has_arrived();
        let finished = self.sockets.iter_mut().map(finish);
        finished.fold(true, |all, finished| all & finished)
    }

    fn begin_stream(&mut self, _: u32, early_bytes: u64) {
        for socket in &mut self.sockets {
            socket.channel.reader.expect_stream(Some(early_bytes));
        }
    }

    fn end_stream(&mut self) {
        for socket in &mut self.sockets {
            socket.channel.reader.expect_stream(None);
        }
    }

    fn post_body(&mut self, number: u32, body: ExpectedBody) {
        let index = self.socket_of(number, body.seq);
        if let Some(socket) = self.sockets.get_mut(index) {
            socket.channel.reader.post(number, body);
            self.watch(index);
        }
    }

    fn forget_bodies(&mut self, number: u32) {
        for index in 0..self.sockets.len() {
            self.sockets[index].channel.forget_bodies(number);
            self.watch(index);
        }
    }

    fn receive(&mut self) -> Result<Option<(u32, Incoming)>> {
        self.ensure_open()?;
        self.receive_next().inspect_err(|error| {
            self.over = Some(error.clone());
        })
    }

    /// A body that waits on another socket than the first one does not delay its own header.
    fn waiting(&self) -> Option<u32> {
        self.sockets.first()?.channel.waiting()
    }

    fn close(&mut self, lent: Option<Box<dyn Send>>) -> Option<Box<dyn Send>> {
        self.over
            .get_or_insert_with(|| Error::disconnected("the connection was closed by this side"));
        for socket in &mut self.sockets {
            socket.channel.close();
        }
        lent
    }
}

impl Drop for TcpConnection {
    fn drop(&mut self) {
        self.close(None);
    }
}
