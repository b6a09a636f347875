//! One connection to one peer, as the driver sees it.

use std::sync::Arc;
use std::time::Duration;

use rustix::event::PollFlags;

use crate::error::{Error, Result};
use crate::proto::ExpectedBody;
use crate::transport::lend::{RegionPool, RegionTable};
use crate::transport::patience::PeerMachine;
use crate::transport::wait::wait;
use crate::transport::{Incoming, Lender, Outgoing, PeerOrigin, PeerRegions, Trust, Watched};

/// Which end of a connection this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionEnd {
    /// The end that connected. It sends requests and credit, which the server reads at once.
    Client,
    /// The end that accepted. It sends bodies, which the client reads when it likes.
    Server,
}

/// Facts about a connection that never change.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Who the peer is, for logs and `dipc_request_peer`: `pid 4711, uid 1000`.
    pub peer: String,
    /// The peer as data.
    pub origin: PeerOrigin,
    /// Whether the peer runs as the same user as this process. Then it is trusted as far as the
    /// validation level `structure` requires (rule A8).
    pub same_user: bool,
    /// The descriptors on which a thread can sleep.
    pub readiness: ConnectionReadiness,
    /// How many descriptors the connection has, except those of memory.
    pub descriptors: usize,
    /// How the connection behaves.
    pub profile: Profile,
}

/// The descriptors of a connection. They are shared, so that a thread can sleep on them without the
/// connection.
#[derive(Debug, Clone)]
pub struct ConnectionReadiness {
    /// Readable if [`Connection::receive`] has something, and writable if [`Connection::flush`] can
    /// go on. If `socket` is false, readable in both cases.
    pub fd: Arc<dyn Watched>,
    /// The descriptor reports room to write and something to read as different events.
    pub socket: bool,
    /// Becomes readable when the peer's process has ended, if the system can report that.
    pub peer_death: Option<Arc<dyn Watched>>,
    /// The peer's machine, if a connection may outlive that machine unnoticed.
    pub peer_machine: Option<PeerMachine>,
}

impl ConnectionReadiness {
    /// Whether the peer's process has ended.
    pub fn peer_has_died(&self) -> bool {
        self.peer_dies_within(Duration::ZERO)
    }

    /// Whether the peer has ended its side of the connection. A socket reports that even if not
    /// everything was read.
    pub fn has_hung_up(&self) -> bool {
        self.socket && wait(&self.fd, PollFlags::RDHUP, Duration::ZERO, None) == Ok(true)
    }

    /// Whether the peer's process has ended, or ends within `time`.
    pub fn peer_dies_within(&self, time: Duration) -> bool {
        let death = self.peer_death.as_ref();
        death.is_some_and(|death| wait(death, PollFlags::IN, time, None) == Ok(true))
    }
}

/// How a connection behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    /// Messages arrive in the order in which they were sent. Otherwise the next stream begins only
    /// when every message of the last one has arrived.
    pub is_ordered: bool,
    /// Many streams at once are possible (section S).
    pub carries_many: bool,
    /// Messages that have reached the peer can be read after this side's
    /// [`close`](Connection::close).
    pub is_read_after_close: bool,
    /// How far the way to the peer is trusted.
    pub trust: Trust,
}

impl Profile {
    /// The profile of a socket within this machine.
    pub const SOCKET: Self = Self {
        is_ordered: true,
        carries_many: true,
        is_read_after_close: true,
        trust: Trust::HOST,
    };
}

/// Bytes on their way out, and those that have come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Queued and not yet written.
    pub queued: u64,
    /// The part of `queued` that lies in memory of the queue itself. Bodies that are sent from
    /// where they lie do not count.
    pub held: u64,
    /// All bytes received. If the transport sees parts of a message, they count too: they show that
    /// a peer on a slow network is at work.
    pub received: u64,
}

/// The ways for bodies to a peer, in addition to bytes from host memory.
#[derive(Clone, Default)]
pub struct BodyWays {
    /// Lends memory to the peer, if the connection can.
    pub lender: Option<Arc<dyn Lender>>,
    /// Packed bodies may come from a GPU's memory ([`Outgoing::GpuBody`]).
    pub gpu: bool,
}

impl BodyWays {
    /// For a transport that lends regions to peers with our `extension`.
    pub(super) fn lending(pool: &Arc<RegionPool>, extension: bool) -> Self {
        Self {
            lender: extension.then(|| Arc::clone(pool) as _),
            gpu: false,
        }
    }
}

/// One connection to one peer. Every call returns at once.
pub trait Connection: Send {
    /// Facts that never change.
    fn identity(&self) -> &Identity;

    /// Takes a message of the stream `number` (rule S2). The transport may write it at once;
    /// [`flush`](Self::flush) writes the rest. A control message of a client may wait until the
    /// server has sent one.
    ///
    /// # Errors
    ///
    /// `Disconnected` and similar errors: the connection is over.
    fn queue(&mut self, number: u32, message: Outgoing) -> Result<()>;

    /// Writes as much of the queue as is possible without blocking. Returns whether all of it was
    /// sent.
    ///
    /// # Errors
    ///
    /// As [`queue`](Self::queue).
    fn flush(&mut self) -> Result<bool>;

    /// The bytes on their way.
    fn traffic(&self) -> Traffic;

    /// Ends sending, and tells the peer so after the queued messages. Returns true if a
    /// [`close`](Self::close) now loses nothing that was sent. If false, the caller asks again.
    fn finish(&mut self) -> bool {
        self.traffic().queued == 0
    }

    /// The peer's stream `number` is about to come. From now on the peer may announce memory, until
    /// [`end_stream`](Self::end_stream). `early_bytes`: at a server, bodies of up to this many
    /// bytes may be read before they are announced.
    fn begin_stream(&mut self, number: u32, early_bytes: u64) {
        let _ = (number, early_bytes);
    }

    /// Everything of the stream has come.
    fn end_stream(&mut self) {}

    /// Announces a body of the stream `number`, whose header has been seen: a packed body or an
    /// address list of exactly so many bytes (rule D8).
    fn post_body(&mut self, number: u32, body: ExpectedBody);

    /// Nobody wants bodies of the stream `number` any more. A transport without order still hands
    /// over the bodies that arrive, because the receiver counts them: packed bodies perhaps without
    /// their bytes, and address lists so that the memory can be given back.
    fn forget_bodies(&mut self, number: u32);

    /// The stream whose next body was not announced and is too large to be read before its header.
    /// Nothing is read until [`post_body`](Self::post_body) announces the body or
    /// [`forget_bodies`](Self::forget_bodies) discards it. The descriptor stays readable.
    fn waiting(&self) -> Option<u32> {
        None
    }

    /// The next message, and the number of its stream; `None` if there is none now.
    ///
    /// # Errors
    ///
    /// `Disconnected` if the peer is gone, `Protocol` if what came is not a message, `OutOfMemory`.
    /// Messages that came before are returned first. After an error the connection is over.
    fn receive(&mut self) -> Result<Option<(u32, Incoming)>>;

    /// The caller looks for messages until it calls [`doze`](Self::doze). Until then messages may
    /// come without a system call, and the descriptor need not announce them.
    fn wake(&mut self) {}

    /// The caller is about to sleep on the descriptor. Returns whether it has to receive first.
    fn doze(&mut self) -> bool {
        false
    }

    /// The ways for bodies to a peer with our `extension`, or without it (rule E1). With checksums
    /// (rule E8) all bodies travel as bytes from host memory.
    fn ways(&self, extension: bool) -> BodyWays {
        let _ = extension;
        BodyWays::default()
    }

    /// The regions that this side lends, if the transport can lend.
    fn pool(&self) -> Option<Arc<RegionPool>> {
        None
    }

    /// The memory that the peer lends, if the transport knows such memory.
    fn regions(&mut self) -> Option<&mut dyn PeerRegions> {
        self.table().map(|table| table as _)
    }

    /// The same if the peer is on this machine: its regions are mapped here, and may be a GPU's.
    fn table(&mut self) -> Option<&mut RegionTable> {
        None
    }

    /// Cuts the connection: later calls fail with `Disconnected`. `lent` owns the memory that the
    /// peer was lent. It is returned if the caller may drop it at once. Otherwise another thread
    /// drops it when the peer can no longer reach the memory.
    fn close(&mut self, lent: Option<Box<dyn Send>>) -> Option<Box<dyn Send>>;
}

impl dyn Connection + '_ {
    /// Queues a message of the first stream and writes as much as goes without blocking.
    ///
    /// # Errors
    ///
    /// As [`Connection::queue`].
    pub fn send(&mut self, message: Outgoing) -> Result<()> {
        self.queue(0, message)?;
        self.flush().map(drop)
    }

    /// The next message of any stream.
    ///
    /// # Errors
    ///
    /// As [`Connection::receive`].
    pub fn receive_any(&mut self) -> Result<Option<Incoming>> {
        Ok(self.receive()?.map(|(_, message)| message))
    }

    /// Runs `step` on the memory that the peer lends. If there is no such memory, `step` gets an
    /// empty set.
    pub fn with_regions<R>(&mut self, step: impl FnOnce(&mut dyn PeerRegions) -> R) -> R {
        match self.regions() {
            Some(regions) => step(regions),
            None => step(&mut RegionTable::default()),
        }
    }

    /// See [`RegionTable::order`].
    ///
    /// # Errors
    ///
    /// Those of [`RegionTable::order`]; `Protocol` on a connection without such a table.
    pub fn order(&mut self, seq: u32, event: u16, handle: &[u8]) -> Result<()> {
        match self.table() {
            Some(table) => table.order(seq, event, handle),
            None => Err(Error::protocol(format!(
                // Rule E3.
                "READY for message {seq} on a connection that carries no memory of GPUs"
            ))),
        }
    }
}
