//! Frames on their way out: gathered writes that never block.

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
    Class, HEADER_BYTES, MAX_CONTROL_BYTES, MAX_METADATA_BYTES, SWITCH, encode_header,
};
use crate::transport::{COPIED_BYTES, Outgoing, Payload, Queued, sends_host_memory_only};

/// Most runs of memory in one system call (`UIO_MAXIOV`).
const MAX_RUNS: usize = 1024;
/// Bytes of the prefix of a metadata message (rule M2).
const PREFIX_BYTES: usize = 5;
/// Bytes of memory for the first small frames.
const FIRST_BYTES: usize = 256;
/// Memory for more bytes or frames than this is not kept: where there are many connections none of
/// it stays in a cache.
const MOST_KEPT_BYTES: usize = 4096;
const MOST_KEPT_FRAMES: usize = 8;
/// Bytes after which no more frames are put into one run. The ring takes a run whole or not at all.
const MAX_RUN_BYTES: usize = 8 * 1024;

/// Frames queued for one socket.
///
/// Small ones lie one after the other in few runs of memory: a gathered write of 128 batches had
/// 384 runs.
#[derive(Default)]
pub struct Outbox {
    /// Frames whose place is the socket.
    frames: VecDeque<OutFrame>,
    /// Frames behind those, whose place is not chosen yet.
    fresh: VecDeque<OutFrame>,
    queued: u64,
    /// Bytes of whole frames whose memory is theirs.
    held: u64,
    /// Memory of small frames that have left, for the next ones.
    spare: Vec<u8>,
}

/// Runs of memory for one system call.
type Runs<'a> = SmallVec<[IoSlice<'a>; 8]>;

/// A message, taken apart.
struct Parts {
    class: Class,
    tag: u64,
    prefix: Option<[u8; PREFIX_BYTES]>,
    payload: Payload,
    fd: Option<Arc<OwnedFd>>,
    /// Bytes of prefix and payload.
    length: u64,
}

impl Parts {
    fn new(message: Outgoing) -> Result<Self> {
        let (class, tag, payload, fd, prefix) = match message {
            Outgoing::Metadata { prefix, header } => (
                Class::Untagged,
                0,
                header.map_or_else(|| Payload::Bytes(Bytes::new()), Payload::Shared),
                None,
                Some(prefix),
            ),
            Outgoing::Tagged { tag, payload } => (Class::Tagged, tag, payload, None, None),
            Outgoing::Control { bytes, fd } => {
                (Class::Control, 0, Payload::Bytes(bytes.into()), fd, None)
            }
            Outgoing::GpuBody { .. } => return Err(sends_host_memory_only()),
        };
        let prefix_len = prefix.map_or(0, |prefix| prefix.len());
        let length = payload
            .checked_len()
            .and_then(|len| u64::try_from(len.checked_add(prefix_len)?).ok())
            .ok_or_else(|| Error::invalid_argument("a message is longer than any memory"))?;
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
        Ok(Self {
            class,
            tag,
            prefix,
            payload,
            fd,
            length,
        })
    }

    fn header(&self) -> [u8; HEADER_BYTES] {
        encode_header(self.length, self.tag, self.class)
    }

    /// The payload, where it is small enough to be copied. A body is sent from where it lies: who
    /// owns it is told when it has left, and not before.
    fn copied(&self) -> Option<&[u8]> {
        let bytes: &[u8] = match &self.payload {
            _ if self.fd.is_some() => return None,
            Payload::Bytes(bytes) => bytes,
            Payload::Shared(bytes) => bytes,
            Payload::Gather { .. } => return None,
        };
        (bytes.len() <= COPIED_BYTES).then_some(bytes)
    }
}

/// One frame, or several small ones in one run of memory.
pub struct OutFrame {
    head: Head,
    /// Behind the head; of several frames, nothing.
    payload: Payload,
    /// Goes with the first byte.
    fd: Option<Arc<OwnedFd>>,
    /// The run to write next, 0 being the head, and the bytes of it already written.
    run: usize,
    written: usize,
}

/// What a frame begins with.
enum Head {
    /// Its header, then the prefix of a metadata message; and how many bytes that is.
    One([u8; HEADER_BYTES + PREFIX_BYTES], usize),
    /// Several small frames, whole.
    Several(Vec<u8>),
}

impl OutFrame {
    /// The frame of a message.
    fn of(message: Parts) -> Self {
        let mut head = [0; HEADER_BYTES + PREFIX_BYTES];
        head[..HEADER_BYTES].copy_from_slice(&message.header());
        let prefix = message.prefix.as_ref().map_or(&[][..], |prefix| prefix);
        let head_len = HEADER_BYTES + prefix.len();
        head[HEADER_BYTES..head_len].copy_from_slice(prefix);
        Self {
            head: Head::One(head, head_len),
            payload: message.payload,
            fd: message.fd,
            run: 0,
            written: 0,
        }
    }

    /// Frames to come, one after the other, in this memory.
    fn several(mut memory: Vec<u8>) -> Self {
        memory.reserve(FIRST_BYTES);
        Self {
            head: Head::Several(memory),
            payload: Payload::Bytes(Bytes::new()),
            fd: None,
            run: 0,
            written: 0,
        }
    }

    /// Whether another frame of `len` bytes, with its head, can be added behind it.
    fn takes(&self, len: usize) -> bool {
        let rest = MAX_RUN_BYTES.saturating_sub(len);
        matches!(&self.head, Head::Several(bytes) if bytes.len() <= rest)
    }

    /// Bytes of memory that is the frame's own.
    fn held(&self) -> u64 {
        let small = match &self.head {
            Head::One(..) => 0,
            Head::Several(bytes) => bytes.len(),
        };
        let payload = match &self.payload {
            Payload::Bytes(bytes) => bytes.len(),
            // Often it is the frame's alone.
            Payload::Shared(bytes) => bytes.len(),
            Payload::Gather { .. } => 0,
        };
        (small + payload) as u64
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
            return match &self.head {
                Head::One(head, len) => &head[..*len],
                Head::Several(bytes) => bytes,
            };
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
    /// `InvalidArgument` when it is longer than the peer would take, `Unsupported` when it lies in
    /// a GPU's memory; nothing was queued.
    pub fn push(&mut self, message: Outgoing) -> Result<()> {
        let message = Parts::new(message)?;
        let whole = message.length.saturating_add(HEADER_BYTES as u64);
        self.queued = self.queued.saturating_add(whole);
        let held = if let Some(payload) = message.copied() {
            let prefix = message.prefix.as_ref().map_or(&[][..], |prefix| prefix);
            let parts = [&message.header(), prefix, payload];
            append(&mut self.fresh, &mut self.spare, parts);
            whole
        } else {
            let frame = OutFrame::of(message);
            let held = frame.held();
            self.fresh.push_back(frame);
            held
        };
        self.held = self.held.saturating_add(held);
        Ok(())
    }

    /// What is queued and not yet written. A frame that is half written is held whole.
    pub fn queued(&self) -> Queued {
        Queued {
            bytes: self.queued,
            held: self.held,
        }
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
        append(&mut self.frames, &mut self.spare, [&SWITCH, &[], &[]]);
        self.queued = self.queued.saturating_add(HEADER_BYTES as u64);
        self.held = self.held.saturating_add(HEADER_BYTES as u64);
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
    pub fn flush(&mut self, socket: BorrowedFd<'_>) -> Result<bool, Errno> {
        while !self.frames.is_empty() {
            let sent = match self.write_once(socket) {
                Ok(sent) => sent,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Ok(false),
                Err(errno) => return Err(errno),
            };
            self.advance(sent);
        }
        // A queue goes round through all the memory that it has.
        if self.frames.capacity() > MOST_KEPT_FRAMES {
            self.frames = VecDeque::new();
        }
        Ok(true)
    }

    /// Uses the memory of a frame that has left again.
    pub fn use_again(&mut self, frame: OutFrame) {
        if let Head::Several(mut bytes) = frame.head
            && bytes.capacity() <= MOST_KEPT_BYTES
        {
            bytes.clear();
            self.spare = bytes;
        }
    }

    fn write_once(&self, socket: BorrowedFd<'_>) -> Result<usize, Errno> {
        // A head and a payload for most frames.
        let mut runs = Runs::with_capacity((2 * self.frames.len()).min(MAX_RUNS));
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
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        if let ([run], None) = (runs.as_slice(), fd) {
            // The kernel has a message header less to read: 0.1 us of 0.8.
            return rustix::net::send(socket, run, flags);
        }
        let fds = fd.as_slice();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(Errno::NOBUFS);
        }
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
            if let Some(frame) = self.frames.pop_front() {
                self.use_again(frame);
            }
            if sent == 0 {
                return;
            }
        }
    }
}

/// Adds a frame, in parts, behind the small ones at the end of `frames`.
fn append(frames: &mut VecDeque<OutFrame>, spare: &mut Vec<u8>, parts: [&[u8]; 3]) {
    let len = parts.iter().map(|part| part.len()).sum();
    if !frames.back().is_some_and(|last| last.takes(len)) {
        frames.push_back(OutFrame::several(std::mem::take(spare)));
    }
    if let Some(OutFrame {
        head: Head::Several(bytes),
        ..
    }) = frames.back_mut()
    {
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
    }
}

#[cfg(test)]
#[path = "outbox_tests.rs"]
mod tests;
