//! Frames on their way out, written by gathered writes that never block.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use smallvec::SmallVec;

use crate::device::BufferRef;
use crate::error::{Error, Result};
use crate::proto::Bytes;
use crate::transport::stream::header::{
    FrameClass, HEADER_BYTES, MAX_CONTROL_BYTES, MAX_METADATA_BYTES, SWITCH, encode_header,
};
use crate::transport::{COPIED_BYTES, Outgoing, Payload, Traffic, sends_host_memory_only};

/// Most runs of memory in one system call (`UIO_MAXIOV`).
const MAX_RUNS: usize = 1024;
/// Once a run has this many bytes, no more frames are added to it. The ring takes a run whole or
/// not at all.
const MAX_RUN_BYTES: usize = 8 * 1024;
/// The first memory of a run: it has room for the messages of a small batch.
const FIRST_RUN_BYTES: usize = 512;
/// If a queue had more frames than this, it frees its memory when it is empty, because there are
/// many connections.
const MOST_KEPT_FRAMES: usize = 8;

/// Frames queued for one socket. Small ones lie one after the other in few runs of memory.
#[derive(Default)]
pub struct Outbox {
    /// Frames that go to the socket.
    frames: VecDeque<OutFrame>,
    /// Frames after those, for which the socket or another way is not chosen yet.
    fresh: VecDeque<OutFrame>,
    queued: u64,
    /// Bytes of complete frames that lie in the frames' own memory.
    held: u64,
}

/// Runs of memory for one system call.
type Runs<'a> = SmallVec<[IoSlice<'a>; 8]>;

/// One frame, or several frames of which only the last may have a payload of its own.
pub struct OutFrame {
    /// Small frames, complete; or all bytes of one frame before its payload.
    head: Vec<u8>,
    payload: Payload,
    /// A descriptor that is sent with the first byte.
    fd: Option<Arc<OwnedFd>>,
    /// The run to write next (0 is the head), and how many of its bytes are written already.
    run: usize,
    written: usize,
}

impl Default for OutFrame {
    fn default() -> Self {
        Self {
            head: Vec::new(),
            payload: Payload::Bytes(Bytes::new()),
            fd: None,
            run: 0,
            written: 0,
        }
    }
}

impl OutFrame {
    /// Whether `len` bytes of another frame can be added.
    fn takes(&self, len: usize) -> bool {
        let is_small = matches!(&self.payload, Payload::Bytes(bytes) if bytes.is_empty());
        is_small && self.fd.is_none() && self.head.len().saturating_add(len) <= MAX_RUN_BYTES
    }

    /// Bytes of memory that belongs to the frame.
    fn held(&self) -> u64 {
        self.head.len() as u64 + own_bytes(&self.payload)
    }

    /// Whether a descriptor is sent with the frame.
    pub fn brings_descriptor(&self) -> bool {
        self.fd.is_some()
    }

    /// The bytes of the frame, in runs.
    pub fn runs(&self) -> impl Iterator<Item = &[u8]> {
        (0..=self.parts()).map(|index| self.run(index))
    }

    /// The number of runs after the head.
    fn parts(&self) -> usize {
        match &self.payload {
            Payload::Bytes(_) | Payload::Shared(_) => 1,
            Payload::Gather { parts, .. } => parts.len(),
        }
    }

    fn run(&self, index: usize) -> &[u8] {
        let Some(part) = index.checked_sub(1) else {
            return &self.head;
        };
        match &self.payload {
            Payload::Bytes(bytes) => bytes,
            Payload::Shared(bytes) => bytes,
            // SAFETY: `Payload::Gather` holds the owner of its runs beside them, so they are alive
            // while `self` is. Nobody writes to a body that was handed over to be sent, as Arrow's
            // C data interface asks of a producer ("immutable") and `Lease` of regions.
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
    fn gather<'a>(&'a self, runs: &mut Runs<'a>) -> bool {
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

    /// Notes up to `len` bytes as written. If that completes the frame, returns the bytes left
    /// over.
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
    /// Queues a message of the stream `number`.
    /// Errors: `InvalidArgument` if it is longer than the peer would take, `Unsupported` if it lies
    /// in a GPU's memory; nothing was queued.
    pub fn push(&mut self, number: u32, message: Outgoing) -> Result<()> {
        let (class, tag, payload, fd, prefix) = match message {
            Outgoing::Metadata { prefix, header } => {
                let header = header.map_or_else(|| Payload::Bytes(Bytes::new()), Payload::Shared);
                (FrameClass::Untagged, 0, header, None, Some(prefix))
            }
            Outgoing::Tagged { tag, payload } => (FrameClass::Tagged, tag, payload, None, None),
            Outgoing::Control { bytes, fd } => (
                FrameClass::Control,
                0,
                Payload::Bytes(bytes.into()),
                fd,
                None,
            ),
            Outgoing::GpuBody { .. } => return Err(sends_host_memory_only()),
        };
        let prefix = prefix.as_ref().map_or(&[][..], |prefix| prefix);
        let length = payload
            .checked_len()
            .and_then(|len| u64::try_from(len.checked_add(prefix.len())?).ok())
            .ok_or_else(|| Error::invalid_argument("a message is longer than any memory"))?;
        let most = match class {
            FrameClass::Untagged => MAX_METADATA_BYTES,
            FrameClass::Control => MAX_CONTROL_BYTES,
            FrameClass::Switch => 0,
            FrameClass::Tagged => u64::MAX - 64,
        };
        if length > most {
            return Err(Error::invalid_argument(format!(
                "a {class:?} message of {length} bytes cannot be sent; the limit is {most}"
            )));
        }
        // A body is sent from where it lies. Its owner is dropped when the body has left, not
        // before.
        let copied: Option<&[u8]> = match &payload {
            _ if fd.is_some() => None,
            Payload::Bytes(bytes) => Some(bytes),
            Payload::Shared(bytes) => Some(bytes),
            Payload::Gather { .. } => None,
        };
        let copied = copied.filter(|bytes| bytes.len() <= COPIED_BYTES);
        let header = encode_header(number, length, tag, class);
        let parts = [&header, prefix, copied.unwrap_or_default()];
        let frame = append(&mut self.fresh, fd, parts);
        let mut held = parts.iter().map(|part| part.len()).sum::<usize>() as u64;
        if copied.is_none() {
            held += own_bytes(&payload);
            frame.payload = payload;
        }
        self.held = self.held.saturating_add(held);
        self.queued = (self.queued).saturating_add(length.saturating_add(HEADER_BYTES as u64));
        Ok(())
    }

    /// The bytes that are queued and not yet written. A frame that is written in part counts whole
    /// for `held`.
    pub fn traffic(&self) -> Traffic {
        Traffic {
            queued: self.queued,
            held: self.held,
            received: 0,
        }
    }

    /// Whether the socket has taken everything that goes there.
    pub fn is_flushed(&self) -> bool {
        self.frames.is_empty()
    }

    /// The first frame whose way is not chosen.
    pub fn fresh(&self) -> Option<&OutFrame> {
        self.fresh.front()
    }

    /// Takes that frame, which was sent in another way.
    pub fn pop_fresh(&mut self) {
        if let Some(frame) = self.fresh.pop_front() {
            self.count_off(frame.runs().map(<[u8]>::len).sum());
            self.held = self.held.saturating_sub(frame.held());
        }
    }

    /// Gives all frames to the socket.
    pub fn commit(&mut self) {
        if self.frames.is_empty() {
            std::mem::swap(&mut self.frames, &mut self.fresh);
        } else {
            self.frames.append(&mut self.fresh);
        }
    }

    /// Adds a SWITCH to the frames for the socket.
    pub fn push_switch(&mut self) {
        append(&mut self.frames, None, [&SWITCH, &[], &[]]);
        self.queued = self.queued.saturating_add(HEADER_BYTES as u64);
        self.held = self.held.saturating_add(HEADER_BYTES as u64);
    }

    /// Drops all queued frames.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    fn count_off(&mut self, len: usize) {
        let len = u64::try_from(len).unwrap_or(u64::MAX);
        self.queued = self.queued.saturating_sub(len);
    }

    /// Calls `write` with the bytes for the socket, and a descriptor that is sent with the first
    /// byte, until all is written or `write` returns `AGAIN`. `write` returns how many bytes it
    /// wrote. Returns whether all is written.
    pub fn flush(
        &mut self,
        mut write: impl FnMut(&[IoSlice<'_>], Option<BorrowedFd<'_>>) -> Result<usize, Errno>,
    ) -> Result<bool, Errno> {
        while !self.frames.is_empty() {
            let taken = {
                let (runs, fd) = self.next_runs();
                write(&runs, fd)
            };
            let sent = match taken {
                Ok(sent) => sent,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Ok(false),
                Err(errno) => return Err(errno),
            };
            self.advance(sent);
        }
        if self.frames.capacity() > MOST_KEPT_FRAMES {
            self.frames = VecDeque::new();
        }
        Ok(true)
    }

    /// The bytes of the next system call.
    fn next_runs(&self) -> (Runs<'_>, Option<BorrowedFd<'_>>) {
        let mut runs = Runs::new();
        let mut fd: Option<BorrowedFd<'_>> = None;
        for (index, frame) in self.frames.iter().enumerate() {
            // A descriptor is sent with the first byte of a system call, so its frame gets a call
            // of its own. Otherwise the receiver could not tell which frame it belongs to.
            if frame.fd.is_some() && index > 0 {
                break;
            }
            let whole = frame.gather(&mut runs);
            fd = frame.fd.as_ref().map(|fd| fd.as_fd());
            if !whole || fd.is_some() {
                break;
            }
        }
        (runs, fd)
    }

    fn advance(&mut self, mut sent: usize) {
        self.count_off(sent);
        while let Some(frame) = self.frames.front_mut() {
            if sent > 0 {
                // The descriptor was sent with the first byte.
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

/// Writes runs of memory, and a descriptor with the first byte, without blocking.
pub fn send(
    socket: BorrowedFd<'_>,
    runs: &[IoSlice<'_>],
    fd: Option<BorrowedFd<'_>>,
) -> Result<usize, Errno> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let fds = fd.as_slice();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::NOBUFS);
    }
    rustix::net::sendmsg(socket, runs, &mut control, flags)
}

/// Bytes of memory that belongs to a payload.
fn own_bytes(payload: &Payload) -> u64 {
    let bytes = match payload {
        Payload::Bytes(bytes) => bytes.len(),
        // Usually only this frame has these bytes.
        Payload::Shared(bytes) => bytes.len(),
        Payload::Gather { .. } => 0,
    };
    bytes as u64
}

/// Adds a frame, given in parts. It goes into the last entry of `frames` if that has room and the
/// frame has no descriptor; otherwise it becomes a new entry. Returns the entry.
fn append<'a>(
    frames: &'a mut VecDeque<OutFrame>,
    fd: Option<Arc<OwnedFd>>,
    parts: [&[u8]; 3],
) -> &'a mut OutFrame {
    let len = parts.iter().map(|part| part.len()).sum();
    if fd.is_some() || !frames.back().is_some_and(|last| last.takes(len)) {
        frames.push_back(OutFrame {
            head: Vec::with_capacity(len.max(FIRST_RUN_BYTES)),
            ..OutFrame::default()
        });
    }
    let last = frames.len() - 1;
    let frame = &mut frames[last];
    frame.fd = fd;
    parts
        .iter()
        .for_each(|part| frame.head.extend_from_slice(part));
    frame
}

#[cfg(test)]
#[path = "outbox_tests.rs"]
mod tests;
