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

mod accept;
mod address;
mod closing;
mod lend;
mod lender;
pub mod mem;
mod message;
mod options;
mod patience;
mod rights;
pub mod shm;
pub(crate) mod stream;
pub mod tcp;
pub mod ucx;
mod wait;

use std::any::Any;
use std::fmt::Debug;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

pub use lender::{Keep, Lease, Lender, OnGpu, Owner, Placement, ReadyNotice, RegionNotice};
pub use message::{COPIED_BYTES, Incoming, Outgoing, Payload};
pub(crate) use options::Charge;
pub use options::{BodyPolicy, Budget, LinkOptions, Settings};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::device::BufferRef;
use crate::device::afterlife;
use crate::device::cuda;
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

    /// Whether it has a setting of that name (scheme, dot, name), as far as it is known before the
    /// transport is used.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: the setting does not take the value, or cannot be given in this way.
    fn takes_setting(&self, name: &str, value: &str) -> Result<bool> {
        let _ = (name, value);
        Ok(false)
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
    /// the options do not admit; `Timeout`; `Cancelled` by `options.cancel`; `Io`.
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

/// Whether memory is kept for peers that were cut off and may still read it: of a GPU until they
/// have ended, of what UCX does not let go of until they have closed the connection.
pub(crate) fn keeps_memory() -> bool {
    afterlife::is_keeping() || ucx::is_keeping()
}

/// Waits until connections that were closed let go of what they had, as far as no peer holds that
/// up, and no longer than `patience`.
pub(crate) fn wait_closed(patience: Duration) {
    ucx::wait_closed(patience);
}

/// Every transport of this build.
pub const ALL: &[&dyn Transport] = &[&shm::Shm, &ucx::Ucx, &tcp::Tcp, &mem::Mem];

/// A descriptor to sleep on. Those who do share it, and with the last of them it is closed.
pub trait Watched: AsFd + Debug + Send + Sync {}

impl<T: AsFd + Debug + Send + Sync> Watched for T {}

/// A socket, or its like, that peers connect to. Dropping it stops listening and removes what it
/// left in the file system.
pub trait Listener: Send {
    /// Readable when [`accept`](Self::accept) has something to do.
    fn fd(&self) -> Arc<dyn Watched>;

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
    /// Of one peer (`Permission`, `Disconnected`, `Io`: call again) or of the process (`OutOfResources`,
    /// `OutOfMemory`: wait). Which it is need not be known: whoever calls again bounds how often.
    fn accept(&mut self) -> Result<Option<Box<dyn Connection>>>;

    /// The connection, if any, whose peer the last call of [`accept`](Self::accept) refused, and
    /// what that peer is to be told in answer to its request. Nothing else is done for it.
    fn refused(&mut self) -> Option<(Box<dyn Connection>, Error)> {
        None
    }

    /// Whether one descriptor is enough for a connection that is answered and closed.
    fn takes_one_descriptor(&self) -> bool {
        false
    }

    /// Accepts a connection that is only going to be refused. One that turns out to be a part of a
    /// connection of several sockets is answered over the one that brings the request.
    ///
    /// # Errors
    ///
    /// As [`accept`](Self::accept).
    fn accept_to_refuse(&mut self) -> Result<Option<Box<dyn Connection>>> {
        self.accept()
    }
}

/// What a connection can be waited for.
///
/// The descriptors are shared, so that a thread can sleep on them without holding the connection.
#[derive(Debug, Clone)]
pub struct Readiness {
    /// Becomes readable when [`Connection::receive`] has something, and writable when
    /// [`Connection::flush`] can go on; both show as readable where it is not a `socket`.
    pub fd: Arc<dyn Watched>,
    /// Whether room to write is told apart from something to read.
    pub socket: bool,
    /// Becomes readable when the peer's process has ended, where the system can tell.
    pub peer_death: Option<Arc<dyn Watched>>,
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

/// When a region of the peer's that was forgotten is not mapped here any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Unmapped {
    /// It is not.
    Now,
    /// When what was given to [`cuda::later`] so far is done: the driver may wait for the device.
    Later,
}

/// How a connection behaves from its beginning to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    /// The message that the peer sent first arrives first. Where not, the next stream may begin
    /// only when every message of the last one has arrived.
    pub is_ordered: bool,
    /// The peer can read messages that have reached it also after this side's
    /// [`close`](Connection::close). Where not, only the peer knows when nothing is lost.
    pub is_read_after_close: bool,
    /// Packed bodies can be sent from where they lie in a GPU's memory ([`Outgoing::GpuBody`]).
    /// Where not, they have to be copied to the host first.
    pub sends_gpu: bool,
    /// To look is cheaper than to ask the descriptor: a thread that spins looks by itself.
    pub is_for_looking: bool,
    /// Each [`receive`](Connection::receive) takes in one more part of a body. A caller that does
    /// not spin waits for the descriptor, and then reads a larger part.
    pub comes_in_pieces: bool,
    /// From how many bytes on a body is announced by the call that sends it, and moved while the
    /// connection is turned. `None`: the call writes every body.
    pub announces_from: Option<u64>,
}

impl Profile {
    /// A socket's, and that of any connection that says no other.
    pub const ORDINARY: Self = Self {
        is_ordered: true,
        is_read_after_close: true,
        sends_gpu: false,
        is_for_looking: false,
        comes_in_pieces: false,
        announces_from: None,
    };
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

    /// How the connection behaves, always the same.
    fn profile(&self) -> Profile {
        Profile::ORDINARY
    }

    /// Queues a message and writes as much as goes without blocking. A control message of a client
    /// may wait until one of the server's has come.
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

    /// How many of these lie in memory that was made for them: headers and lists, say, and not bodies
    /// that are sent from where they are.
    fn held_bytes(&self) -> u64 {
        0
    }

    /// Nothing more will be sent: tells the peer so behind what is queued. Returns whether all that was
    /// sent outlives a [`close`](Self::close); where not, it is asked again.
    fn finish(&mut self) -> bool {
        self.queued_bytes() == 0
    }

    /// Client: a stream is about to be asked for. From now on the server may announce memory, until
    /// [`end_stream`](Self::end_stream).
    fn begin_stream(&mut self) {}

    /// Client: everything of the stream has come.
    fn end_stream(&mut self) {}

    /// Announces the body of `seq`, whose header has been seen: a packed body of exactly `packed`
    /// bytes, or an address list of exactly `list` bytes (rule D8). Bodies whose lengths differ
    /// are protocol errors.
    fn post_body(&mut self, seq: u32, packed: u64, list: u64);

    /// Forgets every posted body: the stream is over.
    fn clear_posted(&mut self);

    /// A number that grows whenever a part of a message has come; over UCX, from and to this machine alone, also where one has left. Always
    /// 0 where the transport cannot tell, or a look would be too long for what a network brings.
    fn moved(&self) -> u64 {
        0
    }

    /// Where the bodies that are announced from now on shall go: into a GPU's memory, or the host's
    /// (`None`, as at the beginning). It is a wish: those for which that is not possible, or not
    /// worth it, come on the host. Lent memory of the host is made ready to be copied from.
    fn receive_on(&mut self, gpu: Option<&Arc<cuda::Device>>) {
        let _ = gpu;
    }

    /// The GPUs, by UUID, whose memory the peer may announce from now on: those that the request names.
    /// None at the beginning.
    fn accept_gpus(&mut self, gpus: &[[u8; 16]]) {
        let _ = gpus;
    }

    /// Whether a body was not found ([`resolve`](Self::resolve)) since this process cannot open memory or
    /// an event of the peer's on a GPU, since the GPUs were accepted: it is better asked for bodies elsewhere.
    fn misses_gpus(&self) -> bool {
        false
    }

    /// The next message, or `None` when there is none now: whoever gets `None` waits for the
    /// descriptor, or asks again.
    ///
    /// # Errors
    ///
    /// `Disconnected` when the peer is gone, `Protocol` when what came is not a message,
    /// `OutOfMemory`: the connection is over. Messages that came before are returned first.
    fn receive(&mut self) -> Result<Option<Incoming>>;

    /// The caller looks for messages, and does not wait for the descriptor, until it says
    /// [`doze`](Self::doze): messages may come without a system call, and the descriptor need not tell
    /// of them meanwhile.
    fn wake(&mut self) {}

    /// The caller is about to wait for the descriptor. Returns whether something is there to be
    /// received first.
    fn doze(&mut self) -> bool {
        false
    }

    /// Whether a body came that was not announced and is too large to be read on the chance: nothing
    /// more is read before [`post_body`](Self::post_body) announces it or
    /// [`clear_posted`](Self::clear_posted) has it thrown away, and the descriptor stays readable.
    fn is_waiting(&self) -> bool;

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

    /// Maps a region that the peer announced (rule E3, REGION). One on a GPU is opened when a body is
    /// first [resolved](Self::resolve) that lies in it; where that fails, it is an error only for the bodies
    /// in it.
    ///
    /// # Errors
    ///
    /// `Protocol` when it is not sealed as the rules say, sparse, on a GPU that was not
    /// [accepted](Self::accept_gpus), or its id is taken.
    fn map_region(&mut self, id: u16, handle: &[u8], fd: Option<OwnedFd>) -> Result<()>;

    /// Forgets a region that the peer retired (REGION_GONE). Arrays that still point into it keep
    /// it mapped. Gives when the peer may be told.
    ///
    /// # Errors
    ///
    /// `Protocol` when no region has that id.
    fn unmap_region(&mut self, id: u16) -> Result<Unmapped>;

    /// Whether what the peer announced can be read. Where not, since the host has reset a GPU, the
    /// connection serves no further stream.
    fn is_sound(&self) -> bool {
        true
    }

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
            // Rule E3.
            "READY for message {seq} on a connection that carries no memory of GPUs"
        )))
    }

    /// Finds the memory of the address list that came for message `seq`. Spans of length 0 are
    /// empty whatever their address.
    ///
    /// # Errors
    ///
    /// `Protocol` when a span is not inside a region that the peer announced; what the driver said of
    /// a region on a GPU.
    fn resolve(&mut self, seq: u32, spans: Vec<Span>) -> Result<Resolved>;

    /// Cuts the connection; the peer sees the end, and later calls fail with `Disconnected`.
    fn close(&mut self);

    /// The same where the peer was `lent` something. Gives it back where it can be dropped at once;
    /// else it is dropped, on another thread, when the peer can reach it no more.
    fn close_lent(&mut self, lent: Option<Box<dyn Send>>) -> Option<Box<dyn Send>> {
        self.close();
        lent
    }
}

/// What a transport says of [`Outgoing::GpuBody`] that sends host memory only.
fn sends_host_memory_only() -> Error {
    Error::unsupported("this transport sends bodies from host memory only")
}
