//! How messages and memory reach the peer.
//!
//! A transport moves three classes of messages (untagged metadata, tagged bodies and requests,
//! control) and, where it can, lends memory instead of sending it. It knows nothing of streams,
//! tickets or Arrow: the driver joins it with the state machines of [`crate::proto`].
//!
//! | module | scheme | bodies |
//! |---|---|---|
//! | [`mem`] | `mem:` | both kinds, inside one process; for tests |
//! | [`shm`] | `shm:` | lent regions; small ones as bytes |
//! | [`tcp`] | `tcp:` | bytes, over one socket or several |
//! | [`ucx`] | `ucx:` | lent memory, which the client reads; others as bytes, over whatever UCX finds |
//!
//! A connection never blocks: the driver sleeps on [`Connection::readiness`] and calls
//! [`Connection::receive`] and [`Connection::flush`] when there is something to do. A new transport
//! is done when `tests/conformance` passes with it.

mod address;
mod lend;
pub mod mem;
pub mod shm;
pub(crate) mod stream;
pub mod tcp;
pub mod ucx;

use std::any::Any;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::device::cuda::{self, GpuBody};
use crate::device::{BufferRef, HostBuffer};
use crate::error::{Error, Result};
use crate::proto::{Span, Uri};

/// A way to reach peers, chosen by the scheme of a URI.
pub trait Transport: Send + Sync {
    /// The scheme of its URIs, without the colon.
    fn scheme(&self) -> &'static str;

    /// Whether it works on this machine.
    ///
    /// # Errors
    ///
    /// `Unsupported`, with a text that says what is missing and how to get it.
    fn available(&self) -> Result<()>;

    /// Whether it has a setting of that name (scheme, dot, name).
    fn knows_setting(&self, name: &str) -> bool {
        let _ = name;
        false
    }

    /// What `dipc info` says of it, where there is more to say than that it works: versions,
    /// devices, choices made. One line each, name and value.
    fn describe(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Starts to listen at the URI's address.
    ///
    /// # Errors
    ///
    /// `AddressInUse` when a live server listens there; `Permission`, `InvalidUri`, `Io`.
    fn listen(&self, uri: &Uri, options: &LinkOptions) -> Result<Box<dyn Listener>>;

    /// Connects to the URI's address, within `options.connect_timeout`.
    ///
    /// # Errors
    ///
    /// `Unreachable` when nobody listens there; `Permission` when the server runs as a user that
    /// the options do not admit; `Timeout`; `Io`.
    fn connect(&self, uri: &Uri, options: &LinkOptions) -> Result<Box<dyn Connection>>;
}

/// The transport for the scheme of a URI.
///
/// # Errors
///
/// `Unsupported` when this build has none.
pub fn by_scheme(scheme: &str) -> Result<&'static dyn Transport> {
    ALL.iter()
        .copied()
        .find(|transport| transport.scheme() == scheme)
        .ok_or_else(|| {
            let known: Vec<_> = ALL.iter().map(|transport| transport.scheme()).collect();
            Error::unsupported(format!(
                "this build has no transport for `{scheme}:`; it has {}",
                known.join(", ")
            ))
        })
}

/// Whether memory of a GPU is kept for peers that were cut off and may still read it.
pub(crate) fn keeps_lent_memory() -> bool {
    lend::is_keeping()
}

/// Every transport of this build.
pub const ALL: &[&dyn Transport] = &[&shm::Shm, &ucx::Ucx, &tcp::Tcp, &mem::Mem];

/// What both ends of a connection can be told about it.
#[derive(Debug, Clone)]
pub struct LinkOptions {
    /// How long `connect` may take.
    pub connect_timeout: Duration,
    /// Admit peers of every user, not only of this process's own.
    pub any_user: bool,
    /// Bodies up to this many bytes travel as bytes rather than lent memory.
    pub inline_bytes: u64,
    /// Most bytes of copies lent to one connection and not yet returned; beyond it bodies travel
    /// as bytes. Memory of a producer's own arena does not count.
    pub lent_limit: u64,
    /// Largest regions that copies go into, in bytes; a connection's first ones are smaller, and a
    /// larger body gets a region of its own.
    pub region_bytes: u64,
    /// A pooled region with no block in use is given back to the system after this long.
    pub region_idle: Duration,
    /// Bound on all regions for copies of one server, shared by its connections.
    pub budget: Arc<Budget>,
    /// A body that comes before its header is read at once up to this many bytes; a larger one
    /// waits in the connection until [`Connection::post_body`] names it.
    pub unexpected_bytes: u64,
    /// How bodies travel; the sender decides for all transports that can lend.
    pub body: BodyPolicy,
    /// Listen also where other machines can connect, on transports that neither encrypt nor
    /// authenticate.
    pub allow_remote: bool,
    /// Every process that can reach the listener may read and write this process's memory.
    pub trusted_network: bool,
    /// Connections that a client opens for one stream, where the transport can spread bodies over
    /// several.
    pub connections: u16,
    /// What only one transport knows, as `ucx.TLS`: name and value.
    pub settings: Settings,
}

/// How bodies travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BodyPolicy {
    /// Lent where that is possible and worth it.
    #[default]
    Auto,
    /// Always as bytes (kind 0).
    Packed,
    /// Lent wherever that is possible, small bodies and baseline peers included.
    Lent,
}

/// Settings of single transports, by name: the scheme, a dot, and what the transport calls it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Settings(BTreeMap<String, String>);

impl Settings {
    /// Sets one; an earlier value is replaced.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: no transport of this build has such a setting.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let known = ALL
            .iter()
            .any(|transport| transport.knows_setting(name) && !value.contains('\0'));
        if !known {
            return Err(Error::invalid_argument(format!(
                "no transport has a setting `{name}`; there are `ucx.KEY` for each key of UCX's \
                 configuration (as ucx.TLS), ucx.library, ucx.error_handling and tcp.keepalive"
            )));
        }
        self.0.insert(name.to_owned(), value.to_owned());
        Ok(())
    }

    /// The settings of one scheme, names without it.
    pub fn of<'a>(&'a self, scheme: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0.iter().filter_map(move |(name, value)| {
            let name = name.strip_prefix(scheme)?.strip_prefix('.')?;
            Some((name, value.as_str()))
        })
    }
}

impl Default for LinkOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            any_user: false,
            inline_bytes: 4096,
            lent_limit: 1 << 30,
            region_bytes: 64 << 20,
            region_idle: Duration::from_secs(10),
            budget: Arc::new(Budget::new(u64::MAX)),
            unexpected_bytes: 256 << 20,
            body: BodyPolicy::default(),
            allow_remote: false,
            trusted_network: false,
            connections: 1,
            settings: Settings::default(),
        }
    }
}

/// A bound on memory that several owners share.
#[derive(Debug)]
pub struct Budget {
    limit: u64,
    used: std::sync::atomic::AtomicU64,
}

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self {
            limit,
            used: std::sync::atomic::AtomicU64::new(0),
        }
    }

    /// Takes `bytes` if that stays within the limit.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, with the limit in the text; nothing was taken.
    pub fn take(&self, bytes: u64) -> Result<()> {
        use std::sync::atomic::Ordering::Relaxed;
        self.used
            .fetch_update(Relaxed, Relaxed, |used| {
                used.checked_add(bytes).filter(|sum| *sum <= self.limit)
            })
            .map(|_| ())
            .map_err(|used| {
                Error::out_of_memory(format!(
                    "{bytes} bytes more would pass the limit of {} bytes for regions ({used} in \
                     use); raise max_bytes or release batches sooner",
                    self.limit
                ))
            })
    }

    /// Gives back `bytes` taken before.
    pub fn give_back(&self, bytes: u64) {
        self.used
            .fetch_sub(bytes, std::sync::atomic::Ordering::Relaxed);
    }

    /// Bytes taken now.
    pub fn used(&self) -> u64 {
        self.used.load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// A socket, or its like, that peers connect to. Dropping it stops listening and removes what it
/// left in the file system.
pub trait Listener: Send {
    /// Readable when [`accept`](Self::accept) has something to do.
    fn fd(&self) -> Arc<OwnedFd>;

    /// The URI that reaches this listener, without any query; ports that the system chose filled in.
    fn address(&self) -> String;

    /// Fills in what else clients need to know of this listener (rules U2, E1): on ucx the version
    /// and, where baseline peers are lent memory, the key to it.
    fn complete(&self, uri: &mut Uri) {
        let _ = uri;
    }

    /// The next connection, or `None` when there is none now.
    ///
    /// One that turns out to be a part of a connection of several sockets ends when its first message
    /// is read; the whole comes out of here when its last part has come.
    ///
    /// # Errors
    ///
    /// Of one peer (`Permission`, `Io`: call again) or of the process (`OutOfResources`: wait).
    fn accept(&mut self) -> Result<Option<Box<dyn Connection>>>;
}

/// What a connection can be waited for.
///
/// The descriptors are shared, so that a thread can sleep on them without holding the connection.
#[derive(Debug, Clone)]
pub struct Readiness {
    /// Becomes readable when [`Connection::receive`] has something, and writable when
    /// [`Connection::flush`] can go on; both show as readable where it is not a `socket`.
    pub fd: Arc<OwnedFd>,
    /// Whether room to write is told apart from something to read.
    pub socket: bool,
    /// Becomes readable when the peer's process has ended, where the system can tell.
    pub peer_death: Option<Arc<OwnedFd>>,
}

impl Readiness {
    /// Whether the peer's process has ended.
    pub fn peer_has_died(&self) -> bool {
        self.peer_dies_within(Duration::ZERO)
    }

    /// Whether the peer's process has ended, or ends within `wait`.
    pub fn peer_dies_within(&self, wait: Duration) -> bool {
        let Some(death) = &self.peer_death else {
            return false;
        };
        let mut polled = [PollFd::new(death, PollFlags::IN)];
        let wait = Timespec::try_from(wait).ok();
        matches!(poll(&mut polled, wait.as_ref()), Ok(ready) if ready > 0)
    }
}

/// A message on its way out.
pub enum Outgoing {
    /// Untagged: the 5-byte prefix, and the header that follows it (rule M2).
    Metadata {
        /// Kind and sequence number.
        prefix: [u8; 5],
        /// Flatbuffer bytes; empty for the end of stream.
        header: Vec<u8>,
    },
    /// Tagged: a body, a request or a list of addresses to free.
    Tagged {
        /// The whole 64-bit tag.
        tag: u64,
        /// What the message holds.
        payload: Payload,
    },
    /// Tagged: a packed body that lies in a GPU's memory whole, padding included, and can be read.
    /// Only where [`Connection::sends_gpu`] says so.
    GpuBody {
        /// The whole 64-bit tag.
        tag: u64,
        /// The body; dropped when the message has left, on any thread.
        body: GpuBody,
    },
    /// Control (rule E3); `fd` goes with a REGION message on transports that pass descriptors.
    Control {
        /// The encoded message.
        bytes: Vec<u8>,
        /// Descriptor of the region that the message announces.
        fd: Option<Arc<OwnedFd>>,
    },
}

/// The bytes of a tagged message.
pub enum Payload {
    /// Bytes of our own.
    Bytes(Vec<u8>),
    /// Runs of memory sent one after the other, straight from where they lie.
    Gather {
        /// The runs, padding included.
        parts: Vec<BufferRef>,
        /// Keeps the memory of the runs alive; dropped when the message has left, on any thread.
        owner: Box<dyn Send>,
    },
}

/// A message that arrived.
#[derive(Debug)]
pub enum Incoming {
    /// Untagged: prefix and header, as they came.
    Metadata(Vec<u8>),
    /// A tagged message other than a packed body (a request, a free list, an address list).
    Tagged {
        /// The whole 64-bit tag.
        tag: u64,
        /// What the message holds.
        bytes: Vec<u8>,
    },
    /// A packed body (rule D3), in memory that can be handed out.
    Body {
        /// Sequence number, the low 32 bits of the tag.
        seq: u32,
        /// The bytes.
        memory: HostBuffer,
    },
    /// A packed body in the memory of the GPU that [`Connection::receive_on`] named.
    GpuBody {
        /// Sequence number, the low 32 bits of the tag.
        seq: u32,
        /// The bytes; nothing that the transport started is under way there.
        body: GpuBody,
    },
    /// Control message, with the descriptor of the region where it is a REGION and one came.
    Control {
        /// The encoded message.
        bytes: Vec<u8>,
        /// Descriptor that came with it.
        fd: Option<OwnedFd>,
    },
}

/// Memory named by an address list, found again at the receiver.
pub struct Resolved {
    /// One entry for each span, in order; empty ones as [`BufferRef::EMPTY`].
    pub buffers: Vec<BufferRef>,
    /// Keeps the memory mapped.
    pub owner: Arc<dyn Any + Send + Sync>,
    /// Whether the peer could still write to the memory.
    pub shared: bool,
    /// Whether this is a copy of our own: the peer can have its memory back at once.
    pub pulled: bool,
    /// Where the memory is a GPU's: the buffers are addresses there, which no processor reads.
    pub gpu: Option<ResolvedGpu>,
}

/// Where the memory of a body lies that is on a GPU.
pub struct ResolvedGpu {
    /// The GPU, as this process knows it.
    pub device: Arc<cuda::Device>,
    /// What work that reads the body waits for; `None`: it may be read.
    pub ready: Option<Arc<cuda::Event>>,
}

/// One connection to one peer. Every call returns at once.
pub trait Connection: Send {
    /// Who the peer is, for logs and `dipc_request_peer`: `pid 4711, uid 1000`.
    fn peer(&self) -> &str;

    /// Whether the peer runs as the same user as this process (then it is trusted as far as the
    /// validation level `structure` trusts, rule A8).
    fn same_user(&self) -> bool;

    /// What to sleep on.
    fn readiness(&self) -> Readiness;

    /// Queues a message and writes as much as goes without blocking.
    ///
    /// # Errors
    ///
    /// `Disconnected` and the like: the connection is over.
    fn send(&mut self, message: Outgoing) -> Result<()>;

    /// Queues a message that others will follow: [`write_queued`](Self::write_queued) then writes
    /// them in one go. Transports that gain nothing by that send it at once.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    fn queue(&mut self, message: Outgoing) -> Result<()> {
        self.send(message)
    }

    /// Writes what [`queue`](Self::queue) left, as much as goes without blocking.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    fn write_queued(&mut self) -> Result<()> {
        Ok(())
    }

    /// Writes on. Returns whether everything queued has left.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    fn flush(&mut self) -> Result<bool>;

    /// Bytes queued and not yet written.
    fn queued_bytes(&self) -> u64;

    /// Announces the body of `seq`, whose header has been seen: a packed body of exactly `packed`
    /// bytes, or an address list of exactly `list` bytes (rule D8). Bodies whose lengths differ
    /// are protocol errors.
    fn post_body(&mut self, seq: u32, packed: u64, list: u64);

    /// Forgets every posted body: the stream is over.
    fn clear_posted(&mut self);

    /// Whether packed bodies can be sent from where they lie in a GPU's memory
    /// ([`Outgoing::GpuBody`]). Where not, they have to be copied to the host first.
    fn sends_gpu(&self) -> bool {
        false
    }

    /// Where packed bodies that are announced from now on shall go: into a GPU's memory, or the
    /// host's (`None`, as at the beginning). It is a wish: those for which that is not possible, or
    /// not worth it, come on the host.
    fn receive_on(&mut self, gpu: Option<&Arc<cuda::Device>>) {
        let _ = gpu;
    }

    /// The next message, or `None` when there is none now.
    ///
    /// # Errors
    ///
    /// `Disconnected` when the peer is gone, `Protocol` when what came is not a message,
    /// `OutOfMemory`: the connection is over. Messages that came before are returned first.
    fn receive(&mut self) -> Result<Option<Incoming>>;

    /// Whether a body came that was not announced and is too large to be read on the chance: nothing
    /// more is read before [`post_body`](Self::post_body) announces it or
    /// [`clear_posted`](Self::clear_posted) has it thrown away, and the descriptor stays readable.
    fn is_waiting(&self) -> bool;

    /// Whether what the peer sent first arrives first. Where not, the next stream may begin only
    /// when every message of the last one has arrived.
    fn is_ordered(&self) -> bool {
        true
    }

    /// Asks the system whether the peer's machine still answers, where a connection may outlive it
    /// unnoticed. Gives the time after which it is worth asking again, while a stream is served.
    ///
    /// # Errors
    ///
    /// `Disconnected`: it does not.
    fn probe(&mut self) -> Result<Option<Duration>> {
        Ok(None)
    }

    /// The sending side's memory for lending, where the transport can lend.
    fn lender(&self) -> Option<Arc<dyn Lender>>;

    /// Maps a region that the peer announced (rule E3, REGION).
    ///
    /// # Errors
    ///
    /// `Protocol` when it is not sealed as the rules say, sparse, or its id is taken.
    fn map_region(&mut self, id: u16, handle: &[u8], fd: Option<OwnedFd>) -> Result<()>;

    /// Forgets a region that the peer retired (REGION_GONE). Arrays that still point into it keep
    /// it mapped.
    ///
    /// # Errors
    ///
    /// `Protocol` when no region has that id.
    fn unmap_region(&mut self, id: u16) -> Result<()>;

    /// Remembers that the body of message `seq`, whose address list comes later, may be read only
    /// once the peer's `event` has happened (READY). `handle` opens the event, the first time that
    /// the peer names it, and is empty afterwards.
    ///
    /// # Errors
    ///
    /// `Protocol` where no such event is known, or it was named before, or the transport knows no
    /// memory of GPUs.
    fn order(&mut self, seq: u32, event: u16, handle: &[u8]) -> Result<()> {
        let (_, _) = (event, handle);
        Err(Error::protocol(format!(
            "READY for message {seq} on a connection that carries no memory of GPUs (rule E3)"
        )))
    }

    /// Finds the memory of the address list that came for message `seq`. Spans of length 0 are
    /// empty whatever their address.
    ///
    /// # Errors
    ///
    /// `Protocol` when a span is not inside a region that the peer announced.
    fn resolve(&mut self, seq: u32, spans: &[Span]) -> Result<Resolved>;

    /// Cuts the connection; the peer sees the end, and later calls fail with `Disconnected`.
    fn close(&mut self);
}

/// What a transport says of [`Outgoing::GpuBody`] that sends host memory only.
fn sends_host_memory_only() -> Error {
    Error::unsupported("this transport sends bodies from host memory only")
}

/// Where a body goes.
pub enum Placement {
    /// Send the bytes (kind 0): lending is not worth it, or not possible now.
    Packed,
    /// Send an address list (kind 1).
    Lent(Lease),
}

/// Memory lent to the peer.
pub struct Lease {
    /// One span for each buffer, in order; (0, 0) for empty ones (rule A1).
    pub spans: Vec<Span>,
    /// Regions that the peer does not know yet, to be announced before the list is sent. They must
    /// be announced even if the list is not sent after all: later leases count on it.
    pub announce: Vec<RegionNotice>,
    /// Bytes copied into regions of the connection.
    pub copied: u64,
    /// Bytes lent where they lay: the producer's array must live until the peer returns them.
    pub borrowed: u64,
    /// Nothing was copied, and the peer will not copy either: it takes memory at neither end.
    pub in_place: bool,
    /// Bytes copied from one place of a GPU's memory to another, and lent from there.
    pub copied_on_device: u64,
    /// Bytes copied from a GPU's memory to the host's, and lent from there.
    pub staged: u64,
    /// Of memory of a GPU: where what keeps the producer's array alive goes, before the list is
    /// sent. It may be needed for longer than `hold` is.
    pub keep: Option<Keep>,
    /// What the peer is to wait for before it reads, told to it before the list.
    pub ready: Option<ReadyNotice>,
    /// The blocks and region references; dropped when the peer has returned every span, or after
    /// [`Lender::abandon`].
    pub hold: Box<dyn Send>,
}

impl Lease {
    /// A lease of the host's memory that announces nothing.
    pub fn new(spans: Vec<Span>, hold: Box<dyn Send>) -> Self {
        Self {
            spans,
            announce: Vec::new(),
            copied: 0,
            borrowed: 0,
            in_place: false,
            copied_on_device: 0,
            staged: 0,
            keep: None,
            ready: None,
            hold,
        }
    }
}

/// A place for what keeps lent memory alive, shared by all who need it to live. It is dropped with
/// the last of them, on any thread.
#[derive(Clone, Default)]
pub struct Keep(Arc<Mutex<Option<Box<dyn Send>>>>);

impl std::fmt::Debug for Keep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keep")
    }
}

impl Keep {
    /// Puts it there.
    pub fn put(&self, owner: Box<dyn Send>) {
        *self.0.lock() = Some(owner);
    }
}

/// An event as the peer is told of it (READY).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadyNotice {
    /// Its number on this connection.
    pub event: u16,
    /// What opens it, where the connection has not told it yet; else empty.
    pub handle: Vec<u8>,
}

/// What is to be known of buffers on a GPU. They are addresses there.
#[derive(Debug, Clone, Copy)]
pub struct OnGpu<'a> {
    /// The stream on which work with them is done.
    pub stream: &'a Arc<cuda::Stream>,
    /// Recorded on that stream: once it has happened they may be read.
    pub ready: &'a cuda::Event,
}

/// A region as the peer is told of it.
#[derive(Debug, Clone)]
pub struct RegionNotice {
    /// Its number on this connection, from 1.
    pub id: u16,
    /// What the REGION message carries: for shm and memory of the host its length, u64 LE.
    pub handle: Vec<u8>,
    /// Its descriptor, where the transport passes descriptors.
    pub fd: Option<Arc<OwnedFd>>,
}

/// Lends memory to the peer of one connection. It has its own lock: copying happens on the caller's
/// thread, outside the connection's.
pub trait Lender: Send + Sync {
    /// Decides how a body travels and, where it is lent, copies what does not lie in an arena. With
    /// `gpu` the buffers lie on a GPU: they are lent there to a client that asked for it and reaches
    /// it, and copied to the host for others. The caller keeps their owner until it has put it where
    /// the lease says.
    ///
    /// # Errors
    ///
    /// Only of the system or a GPU's driver, and only where sending the bytes would not help either;
    /// running out of memory or descriptors for regions gives [`Placement::Packed`].
    fn place(&self, buffers: &[BufferRef], gpu: Option<OnGpu<'_>>) -> Result<Placement>;

    /// Whether a body would be lent where it lies, and take memory at neither end: all of it is in
    /// arenas, and the peer maps those.
    fn lends_in_place(&self, buffers: &[BufferRef]) -> bool {
        let _ = buffers;
        false
    }

    /// What the client asked for: its own limit on copies lent and not returned (the lower of it and
    /// the option holds from now on), where it wants bodies (an `ArrowDeviceType`, 0 as sent), and the
    /// UUIDs of the GPUs that it reaches.
    fn set_client(&self, lent_limit: u64, device_type: i32, gpus: &[[u8; 16]]);

    /// Whether bodies on a GPU are lent there to this client, as far as can be told beforehand.
    fn lends_on_gpus(&self) -> bool {
        false
    }

    /// Whether [`take_retired`](Self::take_retired) would give something.
    fn has_retired(&self) -> bool {
        false
    }

    /// Regions that must be retired at once: their ids, for REGION_GONE messages.
    fn take_retired(&self) -> Vec<u16> {
        Vec::new()
    }

    /// Regions to retire now because they have been idle: their ids, for REGION_GONE messages.
    /// Returns also how long until the next one falls idle, where there is one.
    fn retire_idle(&self) -> (Vec<u16>, Option<Duration>);

    /// The peer has acknowledged REGION_GONE: the id may be used again.
    fn region_forgotten(&self, id: u16);

    /// The lender for a peer that knows nothing of regions (rule E1), where it can be lent to: what
    /// that one lends has no regions to announce.
    fn for_baseline(&self) -> Option<Arc<dyn Lender>> {
        None
    }

    /// The connection is over while the peer may still have memory mapped: nothing that is lent now
    /// is ever written again (rule F4), and nothing is lent any more.
    fn abandon(&self);
}
