//! One Unix stream socket to one peer.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::device::cuda::later;
use crate::device::memfd::Process;
use crate::error::{Error, Result, Status};
use crate::proto::ExpectedBody;
use crate::transport::closing::{Socket, closer};
use crate::transport::connection::ConnectionEnd;
use crate::transport::features::RingMessage;
use crate::transport::lend::{ByDescriptor, PeerProcess, RegionPool, RegionTable};
use crate::transport::shm::descriptors::DescriptorReader;
use crate::transport::shm::process;
use crate::transport::shm::ring::{FILE_BYTES, RingMapping, RingReader, RingWriter};
use crate::transport::stream::Channel;
use crate::transport::{
    BodyWays, Connection, ConnectionReadiness, Identity, Incoming, LinkOptions, MemoryBudget,
    Outgoing, PeerIds, PeerOrigin, Profile, Traffic, Unmapped,
};

/// [`Connection`] over shared memory.
pub struct ShmConnection {
    identity: Identity,
    channel: Channel<DescriptorReader>,
    /// The socket of the channel.
    socket: Arc<Socket>,
    /// The peer's process. Memory that the peer is given is charged to it.
    whom: Option<Process>,
    regions: RegionTable,
    pool: Arc<RegionPool>,
    /// The budget for memory that the peer is given.
    budget: Arc<MemoryBudget>,
    end: ConnectionEnd,
    /// The peer may send REGION and RING (rule E1).
    extension: bool,
    /// A stream of the peer may come.
    takes_stream: bool,
    /// The ring for frames of the server.
    server_ring: RingProgress,
    /// The ring for frames of the client.
    client_ring: RingProgress,
    /// The caller looks for messages ([`Connection::wake`]).
    awake: bool,
}

/// What must still happen for a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RingProgress {
    /// Client: asks for the ring after this many more messages.
    AfterMessages(u32),
    /// Client: has asked for the ring.
    Asked,
    /// Server: the client may ask for the ring.
    MayBeAsked,
    /// Nothing more will happen.
    Settled,
}

/// The bytes with which a ring counts, and the length that RING names.
const RING_FILE_BYTES: u64 = FILE_BYTES as u64;

/// Messages of one end after which the client asks for the ring of that end's frames: some ten
/// streams of a small table, or a stream of thirty batches. A connection with less traffic, of
/// which there may be thousands, needs no memory for a ring.
const MESSAGES_BEFORE_RING: u32 = 64;

impl ShmConnection {
    /// Takes over a connected socket.
    /// Errors: `Permission` if the options do not admit the peer's user.
    pub fn new(socket: Socket, options: &LinkOptions, end: ConnectionEnd) -> Result<Self> {
        let peer = PeerIds::of(&socket)?;
        peer.ensure_admitted(options.access.any_user)?;
        closer::ensure_room(peer.uid)?;
        let unexpected = options.receiving.unexpected_bytes;
        // A client may connect after the server has ended, because a service manager keeps the
        // socket for the next server.
        let death = process::watch(&socket, peer.pid)
            .filter(|death| end == ConnectionEnd::Server || !process::has_ended(death));
        let socket = Arc::new(socket);
        let reader = DescriptorReader::new(peer.uid, Arc::clone(&socket));
        let is_this = u32::try_from(peer.pid).is_ok_and(|pid| pid == std::process::id());
        let process = death.clone().map(|death| PeerProcess {
            death,
            is_this,
            same_user: peer.is_same_user(),
        });
        let mut lending = options.lending.clone();
        let mut partial = Arc::clone(&options.receiving.partial);
        if !peer.is_same_user() {
            lending.budget = lending.budget.share_of(peer.uid);
            partial = partial.share_of(peer.uid);
        }
        let whom = death.clone().filter(|_| !is_this);
        let whom = whom.map(|end| Process { pid: peer.pid, end });
        let export = ByDescriptor {
            process: whom.clone(),
        };
        let pool = RegionPool::new(&lending, Box::new(export), process);
        let watched = Arc::clone(&socket) as _;
        let mut channel = Channel::new(watched, peer.shown(), unexpected, Box::new(reader));
        let ring = match end {
            // It is not known yet whether the server is one of libdipc's.
            ConnectionEnd::Client => RingProgress::Settled,
            ConnectionEnd::Server => RingProgress::MayBeAsked,
        };
        if end == ConnectionEnd::Server {
            channel.reader.expect_requests(&partial);
        }
        let readiness = ConnectionReadiness {
            fd: Arc::clone(&channel.socket),
            socket: true,
            peer_death: death.map(|death| death as _),
            peer_machine: None,
        };
        Ok(Self {
            identity: Identity {
                peer: peer.shown(),
                origin: PeerOrigin {
                    scheme: "shm",
                    process: Some(peer),
                    ..PeerOrigin::default()
                },
                same_user: peer.is_same_user(),
                descriptors: 1 + usize::from(readiness.peer_death.is_some()),
                readiness,
                profile: Profile::SOCKET,
            },
            channel,
            socket,
            whom,
            regions: RegionTable::of_peer(peer.uid, &options.receiving.mappings),
            pool,
            budget: lending.budget,
            end,
            extension: end == ConnectionEnd::Server,
            takes_stream: false,
            server_ring: ring,
            client_ring: ring,
            awake: false,
        })
    }

    /// Takes over the socket of a peer that is not admitted. The peer is given no memory and no
    /// ring.
    /// Errors: `Permission` if too much of what its user has sent must still be closed.
    pub fn to_refuse(socket: Socket, options: &LinkOptions) -> Result<Self> {
        let mut options = options.clone();
        options.access.any_user = true;
        let mut connection = Self::new(socket, &options, ConnectionEnd::Server)?;
        connection.server_ring = RingProgress::Settled;
        connection.client_ring = RingProgress::Settled;
        Ok(connection)
    }

    /// Client: the server is one of libdipc's, so the client will ask for rings after some
    /// messages.
    pub fn speak_extension(&mut self) {
        self.extension = true;
        self.server_ring = RingProgress::AfterMessages(MESSAGES_BEFORE_RING);
        self.client_ring = self.server_ring;
    }

    /// The ring for the frames of `writer`.
    fn ring_of(&mut self, writer: ConnectionEnd) -> &mut RingProgress {
        match writer {
            ConnectionEnd::Server => &mut self.server_ring,
            ConnectionEnd::Client => &mut self.client_ring,
        }
    }

    /// Client: counts a message of `writer`. When there are enough, asks for the ring of its
    /// frames, together with what is sent next.
    fn count_to_ring(&mut self, writer: ConnectionEnd) {
        let ring = self.ring_of(writer);
        let RingProgress::AfterMessages(left) = *ring else {
            return;
        };
        if left > 1 {
            *ring = RingProgress::AfterMessages(left - 1);
            return;
        }
        *ring = RingProgress::Settled;
        // A ring needs a free descriptor.
        if rustix::io::fcntl_dupfd_cloexec(&self.socket, 0).is_ok() {
            *self.ring_of(writer) = RingProgress::Asked;
            self.settle_descriptors();
            // If this fails, the connection is over, and the next read or write reports that.
            let _ = (self.channel).queue(0, message(writer, None, None));
        }
    }

    /// Admits descriptors while a REGION or a ring may come.
    fn settle_descriptors(&mut self) {
        let rings = [self.server_ring, self.client_ring];
        let takes = (self.takes_stream && self.extension) || rings.contains(&RingProgress::Asked);
        self.channel.wire.take_descriptors(takes);
    }

    /// Handles a client's request for a ring, or the server's ring.
    fn handle_ring(&mut self, ring: RingMessage, fd: Option<OwnedFd>) -> Result<()> {
        let RingMessage { writer, length } = ring;
        let progress = std::mem::replace(self.ring_of(writer), RingProgress::Settled);
        match (progress, length) {
            (RingProgress::MayBeAsked, None) => self.give_ring(writer),
            (RingProgress::Asked, Some(RING_FILE_BYTES)) => self.take_ring(writer, fd),
            _ => Err(Error::protocol(format!(
                "the peer sent a RING that makes no sense: a client asks once for each, and a \
                 server answers once, with a ring of {RING_FILE_BYTES} bytes"
            ))),
        }
    }

    /// Client: maps a ring. If there is no memory for it here, all frames go through the socket:
    /// the server writes to a ring only after its reader says that it is awake.
    fn take_ring(&mut self, writer: ConnectionEnd, fd: Option<OwnedFd>) -> Result<()> {
        let Some(fd) = fd else {
            tracing::debug!("everything goes through the socket: no descriptor is left for a ring");
            return Ok(());
        };
        match RingMapping::of_server(&fd) {
            Ok(memory) => self.use_ring(writer, memory),
            Err(error) if error.status() == Status::OutOfMemory => {
                tracing::debug!("everything goes through the socket: {error}");
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Server: makes a ring. If that fails, everything still goes through the socket.
    fn give_ring(&mut self, writer: ConnectionEnd) -> Result<()> {
        let made = self.budget.charge(RING_FILE_BYTES).and_then(|charge| {
            let memory = RingMapping::make()?;
            let file = memory.file().map(|file| {
                file.charge(Box::new(charge));
                file.give(self.whom.as_ref())
            });
            Ok((memory, file))
        });
        match made {
            Ok((memory, file)) => {
                self.use_ring(writer, memory);
                let ring = message(writer, Some(RING_FILE_BYTES), file);
                self.channel.queue(0, ring)
            }
            Err(error) => {
                tracing::debug!("a client that asked for a ring gets none: {error}");
                Ok(())
            }
        }
    }

    /// From now on the frames of `writer` use the ring.
    fn use_ring(&mut self, writer: ConnectionEnd, memory: RingMapping) {
        if writer == self.end {
            return self.channel.wire.set_writer(RingWriter::new(memory));
        }
        let mut reader = RingReader::new(memory);
        if self.awake {
            reader.wake();
        }
        self.channel.reader.switches = true;
        self.channel.wire.reader = Some(reader);
    }
}

fn message(writer: ConnectionEnd, length: Option<u64>, fd: Option<Arc<OwnedFd>>) -> Outgoing {
    let bytes = RingMessage { writer, length }.encode();
    Outgoing::Control { bytes, fd }
}

impl Connection for ShmConnection {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn queue(&mut self, number: u32, message: Outgoing) -> Result<()> {
        if matches!(message, Outgoing::Metadata { .. }) {
            self.count_to_ring(ConnectionEnd::Client);
        }
        self.channel.queue(number, message)
    }

    fn flush(&mut self) -> Result<bool> {
        self.channel.flush()
    }

    fn traffic(&self) -> Traffic {
        self.channel.traffic()
    }

    fn begin_stream(&mut self, _: u32, early_bytes: u64) {
        self.channel.reader.expect_stream(Some(early_bytes));
        self.takes_stream = true;
        self.settle_descriptors();
    }

    fn end_stream(&mut self) {
        self.channel.reader.expect_stream(None);
        self.takes_stream = false;
        self.settle_descriptors();
    }

    fn post_body(&mut self, number: u32, body: ExpectedBody) {
        self.channel.reader.post(number, body);
    }

    fn waiting(&self) -> Option<u32> {
        self.channel.waiting()
    }

    fn forget_bodies(&mut self, number: u32) {
        self.channel.forget_bodies(number);
        self.regions.clear_orders();
    }

    fn receive(&mut self) -> Result<Option<(u32, Incoming)>> {
        let mut received = self.channel.receive();
        while let Ok(Some((0, Incoming::Control { bytes, fd }))) = &mut received {
            let handled = match RingMessage::decode(bytes) {
                Ok(Some(ring)) => self.handle_ring(ring, fd.take()),
                Ok(None) => break,
                Err(error) => Err(error),
            };
            received = match handled {
                Ok(()) => self.channel.receive(),
                Err(error) => {
                    self.channel.give_up(error.clone());
                    Err(error)
                }
            };
        }
        if matches!(received, Ok(Some(_))) {
            self.count_to_ring(ConnectionEnd::Server);
        }
        received
    }

    fn wake(&mut self) {
        self.awake = true;
        if let Some(reader) = &mut self.channel.wire.reader {
            reader.wake();
        }
    }

    fn doze(&mut self) -> bool {
        self.awake = false;
        let reader = self.channel.wire.reader.as_mut();
        let has_bytes = reader.is_some_and(RingReader::doze);
        // Bytes in the ring may come after frames of the socket. The socket announces those frames,
        // which wakes a sleeper.
        has_bytes && self.channel.is_aside
    }

    fn ways(&self, extension: bool) -> BodyWays {
        BodyWays::lending(&self.pool, extension)
    }

    fn pool(&self) -> Option<Arc<RegionPool>> {
        Some(Arc::clone(&self.pool))
    }

    fn table(&mut self) -> Option<&mut RegionTable> {
        Some(&mut self.regions)
    }

    fn close(&mut self, lent: Option<Box<dyn Send>>) -> Option<Box<dyn Send>> {
        // The regions stay, because messages that came before the end may still be resolved. Rule
        // F4: the peer may keep what it has mapped.
        self.pool.abandon();
        self.channel.close();
        lent
    }
}

impl Drop for ShmConnection {
    fn drop(&mut self) {
        if self.regions.clear() == Unmapped::Now {
            self.close(None);
            return;
        }
        // The connection ends only after the regions are unmapped: from that end on, the server
        // counts the lent memory as closed, even if this process lives on.
        let socket = Arc::clone(&self.socket);
        // A close is not enough, because a forked child may have the socket too.
        later::run(move || {
            let _ = rustix::net::shutdown(&socket, rustix::net::Shutdown::Both);
        });
        self.pool.abandon();
    }
}
