//! One Unix stream socket to one peer.

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, Shutdown};

use crate::error::{Error, Result, Status};
use crate::fork::Generation;
use crate::proto::Span;
use crate::transport::lend::{ByDescriptor, Pool, RegionTable};
use crate::transport::shm::REGION_KIND;
use crate::transport::shm::socket::Peer;
use crate::transport::stream::Outbox;
use crate::transport::stream::{Frame, FrameReader};
use crate::transport::{Connection, Incoming, Lender, LinkOptions, Outgoing, Readiness, Resolved};

/// Bytes read at once: many small frames per system call.
const BUFFER_BYTES: usize = 64 << 10;
/// Descriptors that one message can carry at most (`SCM_MAX_FD`); room for all of them, so that
/// only a lack of descriptors can cut them off.
const MAX_DESCRIPTORS: usize = 253;
/// Descriptors that wait for their REGION message; an honest peer has at most two on the way
/// between two system calls.
const MAX_WAITING: usize = 4;

/// [`Connection`] over shared memory.
pub struct ShmConnection {
    socket: Arc<OwnedFd>,
    death: Option<Arc<OwnedFd>>,
    peer: String,
    same_user: bool,
    generation: Generation,
    inbox: Inbox,
    outbox: Outbox,
    regions: RegionTable,
    lender: Arc<dyn Lender>,
    /// Why nothing more is received.
    over: Option<Error>,
    /// Why nothing more is sent.
    broken: Option<Error>,
}

struct Inbox {
    reader: FrameReader,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// Bytes received since the start.
    received: u64,
    descriptors: VecDeque<Descriptor>,
}

struct Descriptor {
    fd: OwnedFd,
    /// Where in the stream the bytes end that it came with. Its message begins before.
    arrived: u64,
}

/// What one system call received.
struct Received {
    bytes: usize,
    descriptors: Vec<OwnedFd>,
    cut_off: bool,
}

impl ShmConnection {
    /// Takes over a connected socket.
    ///
    /// # Errors
    ///
    /// `Permission` when the peer is a user that the options do not admit.
    pub fn new(socket: OwnedFd, options: &LinkOptions) -> Result<Self> {
        let generation = Generation::now();
        let peer = Peer::of(&socket)?;
        peer.ensure_admitted(options.any_user)?;
        let inbox = Inbox {
            reader: FrameReader::new(options.unexpected_bytes),
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            received: 0,
            descriptors: VecDeque::new(),
        };
        Ok(Self {
            socket: Arc::new(socket),
            death: peer.watch_death(),
            peer: peer.to_string(),
            same_user: peer.is_same_user(),
            generation,
            inbox,
            outbox: Outbox::default(),
            regions: RegionTable::default(),
            lender: Arc::new(Pool::new(options, Box::new(ByDescriptor))),
            over: None,
            broken: None,
        })
    }

    fn receive_frame(&mut self) -> Result<Option<Incoming>> {
        loop {
            if let Some(frame) = self.inbox.next_frame()? {
                return self.inbox.deliver(frame).map(Some);
            }
            if self.inbox.reader.is_waiting() {
                return Ok(None);
            }
            let received = match self.inbox.fill(&self.socket) {
                Ok(received) => received,
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => continue,
                Err(Errno::CONNRESET) => return Err(self.gone()),
                Err(errno) => return Err(Error::os("cannot read from the peer", errno)),
            };
            if received.cut_off {
                return Err(Error::new(
                    Status::OutOfResources,
                    "no file descriptor is left to receive a region of the peer; raise the limit \
                     of open files (ulimit -n)",
                ));
            }
            if received.bytes == 0 {
                return Err(self.gone());
            }
            self.inbox.take_descriptors(received)?;
        }
    }

    fn gone(&self) -> Error {
        let place = if self.inbox.reader.is_mid_frame() {
            " in the middle of a message"
        } else {
            ""
        };
        Error::disconnected(format!(
            "the peer ({}) closed the connection{place}",
            self.peer
        ))
    }
}

impl Inbox {
    fn next_frame(&mut self) -> Result<Option<Frame>> {
        let Self {
            reader,
            buffer,
            start,
            end,
            ..
        } = self;
        let mut input = &buffer[*start..*end];
        let frame = reader.read(&mut input);
        *start = *end - input.len();
        frame
    }

    /// Reads what the socket has: the rest of a body to its place, what follows to the buffer.
    fn fill(&mut self, socket: &OwnedFd) -> Result<Received, Errno> {
        let mut empty = [];
        let body = self.reader.body_space().unwrap_or(&mut empty);
        let body_len = body.len();
        let mut runs = [IoSliceMut::new(body), IoSliceMut::new(&mut self.buffer)];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let message = rustix::net::recvmsg(socket, &mut runs, &mut control, flags)?;
        let mut descriptors = Vec::new();
        for item in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = item {
                descriptors.extend(fds);
            }
        }
        let in_body = message.bytes.min(body_len);
        self.reader.body_filled(in_body);
        self.start = 0;
        self.end = message.bytes - in_body;
        self.received += u64::try_from(message.bytes).unwrap_or(0);
        let cut_off = message.flags.contains(ReturnFlags::CTRUNC);
        Ok(Received {
            bytes: message.bytes,
            descriptors,
            cut_off,
        })
    }

    fn take_descriptors(&mut self, received: Received) -> Result<()> {
        if received.descriptors.len() > 1 {
            return Err(Error::protocol(format!(
                "the peer sent {} descriptors with one message; a REGION has one",
                received.descriptors.len()
            )));
        }
        let arrived = self.received;
        let new = received
            .descriptors
            .into_iter()
            .map(|fd| Descriptor { fd, arrived });
        self.descriptors.extend(new);
        if self.descriptors.len() > MAX_WAITING {
            return Err(stray());
        }
        Ok(())
    }

    /// Joins a REGION message with its descriptor. One that came with any other message is stray,
    /// and closed.
    fn deliver(&mut self, frame: Frame) -> Result<Incoming> {
        let incoming = match frame {
            Frame::Metadata(bytes) => Incoming::Metadata(bytes),
            Frame::Tagged { tag, bytes } => Incoming::Tagged { tag, bytes },
            Frame::Body { seq, memory } => Incoming::Body { seq, memory },
            Frame::Control(bytes) => {
                let is_region = bytes.first() == Some(&REGION_KIND);
                let fd = if is_region {
                    self.descriptors.pop_front()
                } else {
                    None
                };
                Incoming::Control {
                    bytes,
                    fd: fd.map(|descriptor| descriptor.fd),
                }
            }
        };
        // The system gives a descriptor out with the first byte sent beside it and ends the read
        // there, so a message that ends where that read ended, or later, was the one it came with.
        let read_to = self.received - u64::try_from(self.end - self.start).unwrap_or(0);
        match self.descriptors.front() {
            Some(waiting) if waiting.arrived <= read_to => Err(stray()),
            _ => Ok(incoming),
        }
    }
}

fn stray() -> Error {
    Error::protocol("the peer sent a descriptor that belongs to no REGION message")
}

impl Connection for ShmConnection {
    fn peer(&self) -> &str {
        &self.peer
    }

    fn same_user(&self) -> bool {
        self.same_user
    }

    fn readiness(&self) -> Readiness {
        Readiness {
            fd: Arc::clone(&self.socket),
            socket: true,
            peer_death: self.death.clone(),
        }
    }

    fn send(&mut self, message: Outgoing) -> Result<()> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        // Behind what is queued already, there is no use in trying.
        let first = self.outbox.queued_bytes() == 0;
        self.outbox.push(message)?;
        if first {
            self.flush().map(drop)
        } else {
            Ok(())
        }
    }

    fn flush(&mut self) -> Result<bool> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        self.outbox.flush(&self.socket).inspect_err(|error| {
            // What the peer sent before it went can still be received.
            self.broken = Some(error.clone());
            self.outbox.clear();
        })
    }

    fn queued_bytes(&self) -> u64 {
        self.outbox.queued_bytes()
    }

    fn post_body(&mut self, seq: u32, packed: u64, list: u64) {
        self.inbox.reader.post(seq, packed, list);
    }

    fn is_waiting(&self) -> bool {
        self.inbox.reader.is_waiting()
    }

    fn clear_posted(&mut self) {
        self.inbox.reader.clear_posted();
    }

    fn receive(&mut self) -> Result<Option<Incoming>> {
        if let Some(error) = &self.over {
            return Err(error.clone());
        }
        self.receive_frame().inspect_err(|error| {
            self.over = Some(error.clone());
            self.inbox.descriptors.clear();
        })
    }

    fn lender(&self) -> Option<Arc<dyn Lender>> {
        Some(Arc::clone(&self.lender))
    }

    fn map_region(&mut self, id: u16, handle: &[u8], fd: Option<OwnedFd>) -> Result<()> {
        self.regions.map(id, handle, fd)
    }

    fn unmap_region(&mut self, id: u16) -> Result<()> {
        self.regions.unmap(id)
    }

    fn resolve(&mut self, _seq: u32, spans: &[Span]) -> Result<Resolved> {
        self.regions.resolve(spans)
    }

    fn close(&mut self) {
        let error = Error::disconnected("the connection was closed by this side");
        self.over.get_or_insert_with(|| error.clone());
        self.broken.get_or_insert(error);
        self.outbox.clear();
        self.inbox.descriptors.clear();
        // The regions stay: messages that came before the end may still be resolved.
        // Rule F4: the peer may hold on to what it has mapped.
        self.lender.abandon();
        if self.generation.is_same_process() {
            // Not only dropped: whoever sleeps on the descriptor holds it too, and is to wake. A
            // forked child must not do this to its parent's socket.
            let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
        }
    }
}

impl Drop for ShmConnection {
    fn drop(&mut self) {
        self.close();
    }
}
