//! Frames on their way out: gathered writes that never block.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use crate::device::BufferRef;
use crate::error::{Error, Result};
use crate::transport::stream::frame::{
    Class, HEADER_BYTES, MAX_CONTROL_BYTES, MAX_METADATA_BYTES, SWITCH, encode_header,
};
use crate::transport::{Outgoing, Payload, sends_host_memory_only};

/// Most runs of memory in one system call (`UIO_MAXIOV`).
const MAX_RUNS: usize = 1024;
/// Bytes of the prefix of a metadata message (rule M2).
const PREFIX_BYTES: usize = 5;

/// Frames queued for one socket.
#[derive(Default)]
pub struct Outbox {
    /// Frames whose place is the socket.
    frames: VecDeque<OutFrame>,
    /// Frames behind those, whose place is not chosen yet.
    fresh: VecDeque<OutFrame>,
    queued: u64,
    /// Bytes of whole frames whose memory is theirs.
    held: u64,
}

/// One frame.
pub struct OutFrame {
    /// Header, then the prefix of a metadata message.
    head: [u8; HEADER_BYTES + PREFIX_BYTES],
    head_len: usize,
    payload: Payload,
    /// Goes with the first byte.
    fd: Option<Arc<OwnedFd>>,
    /// The run to write next, 0 being the head, and the bytes of it already written.
    run: usize,
    written: usize,
}

impl OutFrame {
    /// The frame of a message, and its length.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: the message is longer than any may be; `Unsupported`: it lies in a GPU's memory.
    pub fn new(message: Outgoing) -> Result<(Self, u64)> {
        let (class, tag, payload, fd, prefix) = match message {
            Outgoing::Metadata { prefix, header } => (
                Class::Untagged,
                0,
                header.map_or_else(|| Payload::Bytes(Vec::new()), Payload::Shared),
                None,
                Some(prefix),
            ),
            Outgoing::Tagged { tag, payload } => (Class::Tagged, tag, payload, None, None),
            Outgoing::Control { bytes, fd } => (Class::Control, 0, Payload::Bytes(bytes), fd, None),
            Outgoing::GpuBody { .. } => return Err(sends_host_memory_only()),
        };
        let too_long = || Error::invalid_argument("a message is longer than any memory");
        let prefix = prefix.as_ref().map_or(&[][..], |prefix| prefix);
        let length = payload
            .checked_len()
            .and_then(|len| u64::try_from(len.checked_add(prefix.len())?).ok())
            .ok_or_else(too_long)?;
        let most = match class {
            Class::Untagged => MAX_METADATA_BYTES,
            Class::Control => MAX_CONTROL_BYTES,
            Class::Switch => 0,
            Class::Tagged => u64::MAX - 64,
        };
        if length > most {
            return Err(Error::invalid_argument(format!(
                "a {class:?} message of {length} bytes cannot be sent; the limit is {most}"
            )));
        }
        let mut head = [0; HEADER_BYTES + PREFIX_BYTES];
        head[..HEADER_BYTES].copy_from_slice(&encode_header(length, tag, class));
        let head_len = HEADER_BYTES + prefix.len();
        head[HEADER_BYTES..head_len].copy_from_slice(prefix);
        let whole = length + HEADER_BYTES as u64;
        Ok((
            Self {
                head,
                head_len,
                payload,
                fd,
                run: 0,
                written: 0,
            },
            whole,
        ))
    }

    /// Bytes of memory that is the frame's own.
    fn held(&self) -> u64 {
        match &self.payload {
            Payload::Bytes(bytes) => bytes.len() as u64,
            // Often it is the frame's alone.
            Payload::Shared(bytes) => bytes.len() as u64,
            Payload::Gather { .. } => 0,
        }
    }

    /// The frame after which the next one is in the other place.
    fn switch() -> Self {
        let mut head = [0; HEADER_BYTES + PREFIX_BYTES];
        head[..HEADER_BYTES].copy_from_slice(&SWITCH);
        Self {
            head,
            head_len: HEADER_BYTES,
            payload: Payload::Bytes(Vec::new()),
            fd: None,
            run: 0,
            written: 0,
        }
    }

    /// Whether a descriptor goes with it.
    pub fn brings_descriptor(&self) -> bool {
        self.fd.is_some()
    }

    /// Its bytes, in runs.
    pub fn runs(&self) -> impl Iterator<Item = &[u8]> {
        (0..=self.parts()).map(|index| self.run(index))
    }

    /// The runs after the head.
    fn parts(&self) -> usize {
        match &self.payload {
            Payload::Bytes(_) | Payload::Shared(_) => 1,
            Payload::Gather { parts, .. } => parts.len(),
        }
    }

    fn run(&self, index: usize) -> &[u8] {
        let Some(part) = index.checked_sub(1) else {
            return &self.head[..self.head_len];
        };
        match &self.payload {
            Payload::Bytes(bytes) => bytes,
            Payload::Shared(bytes) => bytes,
            // SAFETY: `Payload::Gather` holds the owner of its runs beside them, so they are alive
            // while `self` is; a body handed over to be sent is not written to, as Arrow's C data
            // interface asks of a producer ("immutable") and `Lease` of regions.
            Payload::Gather { parts, .. } => unsafe {
                parts
                    .get(part)
                    .copied()
                    .unwrap_or(BufferRef::EMPTY)
                    .as_slice()
            },
        }
    }

    /// Adds the runs not yet written to `runs`, up to its limit. Returns whether all fitted.
    fn gather<'a>(&'a self, runs: &mut Vec<IoSlice<'a>>) -> bool {
        let mut skip = self.written;
        for index in self.run..=self.parts() {
            let rest = &self.run(index)[skip..];
            skip = 0;
            if rest.is_empty() {
                continue;
            }
            if runs.len() == MAX_RUNS {
                return false;
            }
            runs.push(IoSlice::new(rest));
        }
        true
    }

    /// Counts off up to `len` bytes as written. Returns those left over when the frame is whole.
    fn advance(&mut self, mut len: usize) -> Option<usize> {
        while self.run <= self.parts() {
            let left = self.run(self.run).len() - self.written;
            if len < left {
                self.written += len;
                return None;
            }
            len -= left;
            self.run += 1;
            self.written = 0;
        }
        Some(len)
    }
}

impl Outbox {
    /// Queues a message.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` when it is longer than the peer would take; nothing was queued.
    pub fn push(&mut self, message: Outgoing) -> Result<()> {
        let (frame, len) = OutFrame::new(message)?;
        self.held = self.held.saturating_add(frame.held());
        self.fresh.push_back(frame);
        self.queued = self.queued.saturating_add(len);
        Ok(())
    }

    /// Bytes queued and not yet written.
    pub fn queued_bytes(&self) -> u64 {
        self.queued
    }

    /// How many of these lie in memory of the frames' own; a frame that is half written counts whole.
    pub fn held_bytes(&self) -> u64 {
        self.held
    }

    /// Whether the socket has taken all that is to go there.
    pub fn is_flushed(&self) -> bool {
        self.frames.is_empty()
    }

    /// The first frame whose place is not chosen.
    pub fn fresh(&self) -> Option<&OutFrame> {
        self.fresh.front()
    }

    /// Takes that frame, which has left another way.
    pub fn pop_fresh(&mut self) -> Option<OutFrame> {
        let frame = self.fresh.pop_front()?;
        let len = frame.runs().map(<[u8]>::len).sum::<usize>();
        self.count_off(len);
        self.held = self.held.saturating_sub(frame.held());
        Some(frame)
    }

    /// All frames go to the socket.
    pub fn commit(&mut self) {
        if self.frames.is_empty() {
            std::mem::swap(&mut self.frames, &mut self.fresh);
        } else {
            self.frames.append(&mut self.fresh);
        }
    }

    /// Adds a SWITCH to what goes to the socket.
    pub fn push_switch(&mut self) {
        self.frames.push_back(OutFrame::switch());
        self.queued = self.queued.saturating_add(HEADER_BYTES as u64);
    }

    /// Drops everything queued.
    pub fn clear(&mut self) {
        self.frames.clear();
        self.fresh.clear();
        (self.queued, self.held) = (0, 0);
    }

    fn count_off(&mut self, len: usize) {
        let len = u64::try_from(len).unwrap_or(u64::MAX);
        self.queued = self.queued.saturating_sub(len);
    }

    /// Writes until all that goes to the socket is written, or it is full. Returns whether all is
    /// written.
    ///
    /// # Errors
    ///
    /// As the system says it.
    pub fn flush(&mut self, socket: &OwnedFd) -> Result<bool, Errno> {
        while !self.frames.is_empty() {
            let sent = match self.write_once(socket) {
                Ok(sent) => sent,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Ok(false),
                Err(errno) => return Err(errno),
            };
            self.advance(sent);
        }
        // A queue goes round through all the memory that it has, and where there are many connections none of
        // that stays in a cache.
        self.frames = VecDeque::new();
        Ok(true)
    }

    fn write_once(&self, socket: &OwnedFd) -> Result<usize, Errno> {
        // A head and a payload for most frames.
        let mut runs = Vec::with_capacity((2 * self.frames.len()).min(MAX_RUNS));
        let mut fd: Option<BorrowedFd<'_>> = None;
        for (index, frame) in self.frames.iter().enumerate() {
            // A descriptor goes with the first byte of a system call, so its frame has one of its
            // own: the receiver cannot tell which of several it would belong to.
            if frame.fd.is_some() && index > 0 {
                break;
            }
            let whole = frame.gather(&mut runs);
            fd = frame.fd.as_ref().map(|fd| fd.as_fd());
            if !whole || fd.is_some() {
                break;
            }
        }
        let fds = fd.as_slice();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(Errno::NOBUFS);
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        rustix::net::sendmsg(socket, &runs, &mut control, flags)
    }

    fn advance(&mut self, mut sent: usize) {
        self.count_off(sent);
        while let Some(frame) = self.frames.front_mut() {
            if sent > 0 {
                // It left with the first byte.
                frame.fd = None;
            }
            match frame.advance(sent) {
                Some(left) => sent = left,
                None => return,
            }
            let held = frame.held();
            self.held = self.held.saturating_sub(held);
            self.frames.pop_front();
            if sent == 0 {
                return;
            }
        }
    }
}
