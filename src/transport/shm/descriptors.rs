//! What comes beside the bytes of a connection over shared memory: descriptors and a ring.

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags};

use crate::error::{Error, Result, Status};
use crate::transport::Incoming;
use crate::transport::closing::{Foreign, Socket};
use crate::transport::features::RingMessage;
use crate::transport::lend::GpuHandle;
use crate::transport::rights::{self, SocketContents};
use crate::transport::shm::ring::{RingReader, RingWriter};
use crate::transport::stream::{OutFrame, Outbox, RingRead, SWITCH, Wire};

/// The first byte of a REGION message (rule E3), to which a descriptor belongs.
pub const REGION_KIND: u8 = 5;
/// Most descriptors that one message can carry (`SCM_MAX_FD`). A read has room for all of them, so
/// descriptors are lost only if the process can have no more.
const MAX_DESCRIPTORS: usize = 253;
/// Most descriptors that wait for their message. An honest peer sends at most three between two
/// system calls of this side.
const MAX_WAITING: usize = 4;

/// Reads what comes beside the bytes of a socket.
pub struct DescriptorReader {
    /// The socket that is read.
    socket: Arc<Socket>,
    /// Whether REGION and RING may bring a descriptor. If false, each descriptor is stray and stays
    /// in the socket.
    takes: bool,
    /// The user at the other end.
    user: u32,
    /// Whether there is a descriptor in the socket although none may come.
    stray: bool,
    /// Bytes received since the start.
    received: u64,
    waiting: VecDeque<Descriptor>,
    /// Descriptors that came with the last read.
    came: usize,
    /// The writer's end of the ring for this end's frames, and the place of the next frame.
    writer: Option<(RingWriter, FramePlace)>,
    /// The reader's end of the ring for the peer's frames.
    pub reader: Option<RingReader>,
}

struct Descriptor {
    /// `None`: this process had no room for it.
    fd: Option<Foreign>,
    /// The position in the stream after the bytes that the descriptor came with. Its message begins
    /// before.
    arrived: u64,
}

/// The place of the next frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FramePlace {
    Socket,
    Ring,
}

impl DescriptorReader {
    /// For a connection to a process of `user`. It takes no descriptors at first.
    pub fn new(user: u32, socket: Arc<Socket>) -> Self {
        Self {
            socket,
            takes: false,
            user,
            stray: false,
            received: 0,
            waiting: VecDeque::new(),
            came: 0,
            writer: None,
            reader: None,
        }
    }

    /// Sets whether descriptors are taken from now on.
    pub fn take_descriptors(&mut self, take: bool) {
        if self.takes != take {
            self.takes = take;
            self.socket.pass(take);
        }
    }

    fn read_with_descriptors(
        &mut self,
        socket: BorrowedFd<'_>,
        runs: &mut [IoSliceMut<'_>],
    ) -> Result<usize, Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let message = rustix::net::recvmsg(socket, runs, &mut control, flags)?;
        let arrived = self.received + u64::try_from(message.bytes).unwrap_or(0);
        let before = self.waiting.len();
        for item in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = item {
                let fds = fds.map(|fd| Descriptor {
                    fd: Some(Foreign::new(fd, self.user)),
                    arrived,
                });
                self.waiting.extend(fds);
            }
        }
        if message.flags.contains(ReturnFlags::CTRUNC) {
            self.waiting.push_back(Descriptor { fd: None, arrived });
        }
        self.came = self.waiting.len() - before;
        Ok(message.bytes)
    }

    /// Sets the ring for this end's frames, once the peer knows the ring.
    pub fn set_writer(&mut self, writer: RingWriter) {
        self.writer = Some((writer, FramePlace::Socket));
    }
}

/// Puts a frame into the ring, if there is room for the frame and for two SWITCHes: one that wakes
/// the reader, and one before what then goes through the socket.
fn put(writer: &mut RingWriter, frame: &OutFrame) -> Result<bool> {
    let len = frame.runs().map(<[u8]>::len).sum::<usize>();
    let fits =
        !frame.brings_descriptor() && writer.has_room(len.saturating_add(2 * SWITCH.len()))?;
    if fits {
        frame.runs().for_each(|run| writer.write(run));
    }
    Ok(fits)
}

impl Wire for DescriptorReader {
    fn read(
        &mut self,
        socket: BorrowedFd<'_>,
        runs: &mut [IoSliceMut<'_>],
    ) -> Result<usize, Errno> {
        self.came = 0;
        let read = if self.takes {
            self.read_with_descriptors(socket, runs)?
        } else if self.socket.is_barred() {
            rights::read_plainly(&socket, runs)?
        } else {
            match rights::read_without(&socket, runs)? {
                SocketContents::Bytes(bytes) => bytes,
                SocketContents::Descriptor => {
                    self.stray = true;
                    // Returns a number other than 0, which would mean the end: `check` reports the
                    // error.
                    return Ok(1);
                }
            }
        };
        self.received += u64::try_from(read).unwrap_or(0);
        Ok(read)
    }

    fn check(&mut self) -> Result<()> {
        if self.stray {
            return Err(stray());
        }
        if self.came > 1 {
            return Err(Error::protocol(format!(
                "the peer sent {} descriptors with one message; a REGION or a RING has one",
                self.came
            )));
        }
        if self.waiting.len() > MAX_WAITING {
            return Err(stray());
        }
        Ok(())
    }

    /// The system ends a read after the bytes that a descriptor came with.
    fn was_cut_short(&self) -> bool {
        self.came > 0
    }

    /// Joins a REGION or RING message with its descriptor. A descriptor that came with any other
    /// message is stray, and is closed.
    fn join(&mut self, message: &mut Incoming, unread: usize) -> Result<()> {
        if let Incoming::Control { bytes, fd } = message {
            // A legacy handle of a GPU's memory comes without a descriptor.
            let brings = match bytes.split_first_chunk() {
                Some(([REGION_KIND, _, _], handle)) => GpuHandle::brings_descriptor(handle),
                _ => bytes.first() == Some(&REGION_KIND) || RingMessage::brings_descriptor(bytes),
            };
            if brings {
                let came = self.waiting.pop_front();
                let lost = came.as_ref().is_some_and(|came| came.fd.is_none());
                if lost && bytes.first() == Some(&REGION_KIND) {
                    return Err(Error::new(
                        Status::OutOfResources,
                        "no file descriptor is left to receive a region of the peer; raise the \
                         limit of open files (ulimit -n)",
                    ));
                }
                let came = came.and_then(|came| came.fd);
                let memory = came.as_ref().is_none_or(Foreign::is_memory);
                if !memory && !leads_to_gpu(bytes) {
                    return Err(Error::protocol(
                        "the peer sent a descriptor with a REGION or RING that is not of memory \
                         (a memfd)",
                    ));
                }
                *fd = came.map(Foreign::into_inner);
            }
        }
        // The system ends a read after the bytes that a descriptor came with, so its message ends
        // there or later.
        let read_to = self.received - u64::try_from(unread).unwrap_or(0);
        match self.waiting.front() {
            Some(waiting) if waiting.arrived <= read_to => Err(stray()),
            _ => Ok(()),
        }
    }

    fn clear(&mut self) {
        self.waiting.clear();
    }

    /// While the peer looks at the ring, puts frames there, up to the first frame that has to go
    /// through the socket.
    fn divert(&mut self, outbox: &mut Outbox) -> Result<()> {
        let Some((writer, place)) = self.writer.as_mut().filter(|_| outbox.fresh().is_some())
        else {
            outbox.commit();
            return Ok(());
        };
        let awake = writer.is_awake();
        if *place == FramePlace::Socket {
            // Earlier frames must have left through the socket, because the peer reads them first.
            let Some(first) = outbox.fresh().filter(|_| awake && outbox.is_flushed()) else {
                outbox.commit();
                return Ok(());
            };
            if !put(writer, first)? {
                outbox.commit();
                return Ok(());
            }
            outbox.pop_fresh();
            outbox.push_switch();
            *place = FramePlace::Ring;
        }
        while let Some(frame) = outbox.fresh() {
            if !awake || !put(writer, frame)? {
                writer.write(&SWITCH);
                *place = FramePlace::Socket;
                break;
            }
            outbox.pop_fresh();
        }
        outbox.commit();
        if writer.publish() && *place == FramePlace::Ring {
            // The reader has gone to sleep on the socket. A SWITCH in the ring leads to the socket,
            // and a SWITCH in the socket wakes the reader and leads back to the ring.
            writer.write(&SWITCH);
            writer.publish();
            outbox.push_switch();
        }
        Ok(())
    }

    fn read_aside(&mut self, bytes: &mut [u8]) -> Result<RingRead> {
        let Some(reader) = &mut self.reader else {
            return Ok(RingRead::Asleep);
        };
        Ok(match reader.read(bytes)? {
            0 if reader.awake => RingRead::Awake,
            0 => RingRead::Asleep,
            len => RingRead::Bytes(len),
        })
    }
}

/// Whether a message is a REGION of memory on a GPU.
fn leads_to_gpu(message: &[u8]) -> bool {
    match message.split_first_chunk() {
        Some(([REGION_KIND, _, _], handle)) => matches!(GpuHandle::decode(handle), Ok(Some(_))),
        _ => false,
    }
}

fn stray() -> Error {
    Error::protocol("the peer sent a descriptor that belongs to no REGION or RING message")
}
