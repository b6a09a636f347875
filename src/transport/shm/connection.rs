//! One Unix stream socket to one peer.

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags};

use crate::device::cuda::Device;
use crate::error::{Error, Result, Status};
use crate::proto::Span;
use crate::transport::lend::{ByDescriptor, GpuHandle, PeerProcess, Pool, RegionTable};
use crate::transport::shm::REGION_KIND;
use crate::transport::shm::socket::Peer;
use crate::transport::stream::{Channel, Frame, Intake};
use crate::transport::{Connection, Incoming, Lender, LinkOptions, Outgoing, Readiness, Resolved};

/// Descriptors that one message can carry at most (`SCM_MAX_FD`); room for all of them, so that
/// only a lack of descriptors can cut them off.
const MAX_DESCRIPTORS: usize = 253;
/// Descriptors that wait for their REGION message; an honest peer has at most two on the way
/// between two system calls.
const MAX_WAITING: usize = 4;

/// [`Connection`] over shared memory.
pub struct ShmConnection {
    channel: Channel<Descriptors>,
    death: Option<Arc<OwnedFd>>,
    same_user: bool,
    regions: RegionTable,
    lender: Arc<dyn Lender>,
}

/// What comes beside the bytes: descriptors of regions.
#[derive(Default)]
struct Descriptors {
    /// Bytes received since the start.
    received: u64,
    waiting: VecDeque<Descriptor>,
    /// Descriptors that came with the last read.
    came: usize,
    /// Whether the last read had some that found no room in this process.
    cut_off: bool,
}

struct Descriptor {
    fd: OwnedFd,
    /// Where in the stream the bytes end that it came with. Its message begins before.
    arrived: u64,
}

impl ShmConnection {
    /// Takes over a connected socket.
    ///
    /// # Errors
    ///
    /// `Permission` when the peer is a user that the options do not admit.
    pub fn new(socket: OwnedFd, options: &LinkOptions) -> Result<Self> {
        let peer = Peer::of(&socket)?;
        peer.ensure_admitted(options.any_user)?;
        let unexpected = options.unexpected_bytes;
        let intake = Descriptors::default();
        let death = peer.watch_death();
        let process = death.clone().map(|death| PeerProcess {
            death,
            is_this: u32::try_from(peer.pid).is_ok_and(|pid| pid == std::process::id()),
        });
        let pool = Pool::for_process(options, Box::new(ByDescriptor), process);
        Ok(Self {
            channel: Channel::new(socket, peer.to_string(), unexpected, intake),
            death,
            same_user: peer.is_same_user(),
            regions: RegionTable::of_peer(peer.pid),
            lender: Arc::new(pool),
        })
    }
}

impl Intake for Descriptors {
    fn read(&mut self, socket: &OwnedFd, runs: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let message = rustix::net::recvmsg(socket, runs, &mut control, flags)?;
        self.received += u64::try_from(message.bytes).unwrap_or(0);
        let arrived = self.received;
        let before = self.waiting.len();
        for item in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = item {
                self.waiting
                    .extend(fds.map(|fd| Descriptor { fd, arrived }));
            }
        }
        self.came = self.waiting.len() - before;
        self.cut_off = message.flags.contains(ReturnFlags::CTRUNC);
        Ok(message.bytes)
    }

    fn check(&mut self) -> Result<()> {
        if self.cut_off {
            return Err(Error::new(
                Status::OutOfResources,
                "no file descriptor is left to receive a region of the peer; raise the limit of \
                 open files (ulimit -n)",
            ));
        }
        if self.came > 1 {
            return Err(Error::protocol(format!(
                "the peer sent {} descriptors with one message; a REGION has one",
                self.came
            )));
        }
        if self.waiting.len() > MAX_WAITING {
            return Err(stray());
        }
        Ok(())
    }

    /// Joins a REGION message with its descriptor. One that came with any other message is stray,
    /// and closed.
    fn deliver(&mut self, frame: Frame, unread: usize) -> Result<Incoming> {
        let incoming = match frame {
            Frame::Metadata(bytes) => Incoming::Metadata(bytes),
            Frame::Tagged { tag, bytes } => Incoming::Tagged { tag, bytes },
            Frame::Body { seq, memory } => Incoming::Body { seq, memory },
            Frame::Control(bytes) => {
                // A legacy handle of a GPU's memory comes alone: the descriptor that waits is a later
                // message's.
                let brings = match bytes.split_first_chunk() {
                    Some(([REGION_KIND, _, _], handle)) => GpuHandle::brings_descriptor(handle),
                    _ => bytes.first() == Some(&REGION_KIND),
                };
                let fd = if brings {
                    self.waiting.pop_front()
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
        let read_to = self.received - u64::try_from(unread).unwrap_or(0);
        match self.waiting.front() {
            Some(waiting) if waiting.arrived <= read_to => Err(stray()),
            _ => Ok(incoming),
        }
    }

    fn clear(&mut self) {
        self.waiting.clear();
    }
}

fn stray() -> Error {
    Error::protocol("the peer sent a descriptor that belongs to no REGION message")
}

impl Connection for ShmConnection {
    fn peer(&self) -> &str {
        self.channel.peer()
    }

    fn same_user(&self) -> bool {
        self.same_user
    }

    fn readiness(&self) -> Readiness {
        Readiness {
            fd: Arc::clone(self.channel.socket()),
            socket: true,
            peer_death: self.death.clone(),
        }
    }

    fn send(&mut self, message: Outgoing) -> Result<()> {
        self.channel.send(message)
    }

    fn queue(&mut self, message: Outgoing) -> Result<()> {
        self.channel.queue(message)
    }

    fn write_queued(&mut self) -> Result<()> {
        self.channel.write_queued()
    }

    fn flush(&mut self) -> Result<bool> {
        self.channel.flush()
    }

    fn queued_bytes(&self) -> u64 {
        self.channel.queued_bytes()
    }

    fn post_body(&mut self, seq: u32, packed: u64, list: u64) {
        self.channel.reader().post(seq, packed, list);
    }

    fn is_waiting(&self) -> bool {
        self.channel.is_waiting()
    }

    fn clear_posted(&mut self) {
        self.channel.reader().clear_posted();
        self.regions.clear_orders();
    }

    fn receive(&mut self) -> Result<Option<Incoming>> {
        self.channel.receive()
    }

    fn lender(&self) -> Option<Arc<dyn Lender>> {
        Some(Arc::clone(&self.lender))
    }

    fn receive_on(&mut self, gpu: Option<&Arc<Device>>) {
        self.regions.receive_on(gpu.cloned());
    }

    fn accept_gpus(&mut self, gpus: &[[u8; 16]]) {
        self.regions.accept_gpus(gpus);
    }

    fn map_region(&mut self, id: u16, handle: &[u8], fd: Option<OwnedFd>) -> Result<()> {
        self.regions.map(id, handle, fd)
    }

    fn unmap_region(&mut self, id: u16) -> Result<()> {
        self.regions.unmap(id)
    }

    fn order(&mut self, seq: u32, event: u16, handle: &[u8]) -> Result<()> {
        self.regions.order(seq, event, handle)
    }

    fn resolve(&mut self, seq: u32, spans: &[Span]) -> Result<Resolved> {
        self.regions.resolve(seq, spans)
    }

    fn close(&mut self) {
        // The regions stay: messages that came before the end may still be resolved.
        // Rule F4: the peer may hold on to what it has mapped.
        self.lender.abandon();
        self.channel.close();
    }
}

impl Drop for ShmConnection {
    fn drop(&mut self) {
        // Before the server sees the end: from then on it counts what was lent as closed, where this
        // process lives on.
        self.regions = RegionTable::default();
        self.close();
    }
}
