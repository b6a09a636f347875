//! A ring of bytes in shared memory, beside the socket: messages of one end, the writer, reach the
//! other, the reader, without a system call while the reader looks for them.
//!
//! **Who has one.** Each direction has a ring of its own. A client asks for the ring of the server's
//! messages once enough of those have come, and for the ring of its own once it has sent enough
//! (RING and CLIENT_RING, `docs/wire.md`). The server makes both, sealed memfds, and sends their
//! descriptors.
//!
//! **Order.** The frames are those of the socket. A SWITCH says that the next frame is in the other
//! place; so there is one order, and each frame is in one place whole. The writer uses the ring
//! while the reader is awake, and the socket for all else: while the reader sleeps, for frames that
//! bring a descriptor, for frames that do not fit. A byte on the socket wakes a sleeping reader.
//!
//! **No wake-up is lost.** Before it sleeps, the reader clears `awake` and then looks at the ring
//! once more. The writer moves `written` and then looks at `awake`. A full fence stands between the
//! two steps on both sides, so that one of them sees the other: the reader finds the frame, or the
//! writer wakes it by a SWITCH there and back. `ring_model.rs` has loom try [`Positions`] in every
//! order of the steps.
//!
//! **Trust.** A position is read once and then checked. Each side goes by its own copy of the
//! position that it moves. Bytes are copied out before they are looked at. The memfd cannot shrink.

use std::os::fd::OwnedFd;

use rustix::fs::{FallocateFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::device::memfd::{Memfd, ensure_whole};
use crate::device::region::{Mapping, examine};
use crate::error::{Error, Result};
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// Bytes of frames that the ring holds: the messages of a window of small batches.
pub const CAPACITY: usize = 64 << 10;
/// Where they begin: behind the head, on a page of their own.
const DATA_OFFSET: usize = 4096;
/// Bytes of the whole file.
pub const FILE_BYTES: usize = DATA_OFFSET + CAPACITY;

/// The seals that the client insists on. (Both ends write to a ring, so that writing is not sealed.)
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// A line of the caches: what one side writes is not on that which the other writes.
#[repr(C, align(64))]
#[derive(Debug, Default)]
struct CacheLine<T>(T);

/// The head of the ring.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Positions {
    /// Bytes put into the ring since the start; the writer's.
    written: CacheLine<AtomicU64>,
    /// Bytes taken out of it; the reader's.
    read: CacheLine<AtomicU64>,
    /// Whether the reader looks at the ring (not 0) or sleeps on the socket; the reader's.
    awake: CacheLine<AtomicU32>,
}

impl Positions {
    /// Writer: all before `written` may be read.
    fn publish(&self, written: u64) {
        // Release: the bytes are there before their position.
        self.written.0.store(written, Ordering::Release);
    }

    /// Writer: whether it is worth while to use the ring.
    fn is_awake(&self) -> bool {
        // Relaxed: a hint. What depends on its truth asks `must_be_woken`.
        self.awake.0.load(Ordering::Relaxed) != 0
    }

    /// Writer, after [`publish`](Self::publish): whether the reader may have gone to sleep without
    /// having seen that.
    fn must_be_woken(&self) -> bool {
        // SeqCst, with the fence of `doze`: not both sides miss the other's store.
        fence(Ordering::SeqCst);
        !self.is_awake()
    }

    /// Writer: bytes that the reader has taken.
    fn taken(&self) -> u64 {
        // Acquire: the reader has read the bytes before this side writes over them.
        self.read.0.load(Ordering::Acquire)
    }

    /// Reader: it looks at the ring from now on.
    fn wake(&self) {
        // Relaxed: no bytes depend on it, and a writer that sees it late uses the socket.
        self.awake.0.store(1, Ordering::Relaxed);
    }

    /// Reader: it is about to sleep. Returns whether there is something behind `read`, so that it
    /// must not.
    fn doze(&self, read: u64) -> bool {
        self.awake.0.store(0, Ordering::Relaxed);
        // SeqCst, with the fence of `must_be_woken`.
        fence(Ordering::SeqCst);
        self.written() != read
    }

    /// Reader: bytes that there have been.
    fn written(&self) -> u64 {
        // Acquire: the bytes before this position are there.
        self.written.0.load(Ordering::Acquire)
    }

    /// Reader: all before `read` may be written again.
    fn give_back(&self, read: u64) {
        // Release: the bytes were read before they may be written over.
        self.read.0.store(read, Ordering::Release);
    }
}

/// The memory of a ring, mapped. Its bytes are reached by atomics, or copied by the one owner of a
/// `RingWriter` or a `RingReader`.
#[derive(Debug)]
pub struct RingMapping {
    mapping: Mapping,
    /// At a server: the file that the client maps.
    file: Option<Memfd>,
}

impl RingMapping {
    /// Makes a ring, at a server.
    pub fn make() -> Result<Self> {
        let doing = "cannot make a ring for a connection";
        let failed = |errno| Error::os(doing, errno);
        let file =
            Memfd::create("dipc-ring", FILE_BYTES as u64).map_err(|error| error.context(doing))?;
        let fd = file.fd();
        // Every page is there from the start: neither side can run out of memory in it.
        rustix::fs::fallocate(fd, FallocateFlags::empty(), 0, FILE_BYTES as u64).map_err(failed)?;
        rustix::fs::fcntl_add_seals(fd, SEALS | SealFlags::SEAL).map_err(failed)?;
        Ok(Self {
            mapping: map(fd)?,
            file: Some(file),
        })
    }

    /// Maps the ring that the server has made, at a client.
    /// Errors: `Protocol` when it is not a memfd of the size of a ring that can neither shrink nor
    /// grow, with all its pages there; `OutOfMemory` when it cannot be mapped.
    pub fn of_server(fd: &OwnedFd) -> Result<Self> {
        examine(fd, FILE_BYTES as u64, SEALS, "ring")?;
        ensure_whole(fd, FILE_BYTES as u64, "the peer's ring")?;
        Ok(Self {
            mapping: map(fd)?,
            file: None,
        })
    }

    /// At a server: the file that the client maps.
    pub fn file(&self) -> Option<&Memfd> {
        self.file.as_ref()
    }

    fn positions(&self) -> &Positions {
        // SAFETY: the mapping is longer than the head, begins on a page and so is aligned to its
        // lines, and lives as long as `self`. Every value of the bytes is one of the atomics', by
        // which alone either process touches them.
        unsafe { self.mapping.data.cast::<Positions>().as_ref() }
    }

    /// Where the byte at `position` is, and how many there are up to the ring's end.
    fn place(&self, position: u64) -> (*mut u8, usize) {
        let at = usize::try_from(position % CAPACITY as u64).unwrap_or(0);
        let data = self.mapping.data.as_ptr().wrapping_add(DATA_OFFSET + at);
        (data, CAPACITY - at)
    }

    /// Copies `bytes`, at most [`CAPACITY`], to `position` and on.
    fn copy_in(&self, position: u64, bytes: &[u8]) {
        let (data, left) = self.place(position);
        let (front, back) = bytes.split_at(bytes.len().min(left));
        // SAFETY: `front` is not longer than what is left up to the end of the mapping, which is no
        // memory of Rust's, so that the two do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(front.as_ptr(), data, front.len()) };
        let (begin, _) = self.place(0);
        // SAFETY: `back` is not longer than `bytes`, which callers keep within `CAPACITY`, so it
        // fits into the ring from `begin` on. The mapping is no memory of Rust's, so that the two
        // do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(back.as_ptr(), begin, back.len()) };
    }

    /// Copies bytes, at most [`CAPACITY`], from `position` on to `bytes`.
    fn copy_out(&self, position: u64, bytes: &mut [u8]) {
        let (data, left) = self.place(position);
        let (front, back) = bytes.split_at_mut(bytes.len().min(left));
        let (begin, _) = self.place(0);
        for (from, to) in [(data, front), (begin, back)] {
            // SAFETY: `front` ends at the end of the mapping at most, and `back` before where it
            // began. What the other process writes meanwhile may show in the copy, which is checked
            // as everything that a peer sends.
            unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) };
        }
    }
}

/// Maps the file of a ring.
fn map(fd: &OwnedFd) -> Result<Mapping> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::SHARED | MapFlags::POPULATE;
    Mapping::new(fd, FILE_BYTES, access, flags)
}

/// The writer's end of a ring.
#[derive(Debug)]
pub struct RingWriter {
    memory: RingMapping,
    written: u64,
    /// The reader's position at the last look.
    taken: u64,
}

impl RingWriter {
    /// Of a ring into which nothing was written.
    pub fn new(memory: RingMapping) -> Self {
        Self {
            memory,
            written: 0,
            taken: 0,
        }
    }

    /// Whether the reader looks at the ring.
    pub fn is_awake(&self) -> bool {
        self.memory.positions().is_awake()
    }

    /// Whether there is room for `len` bytes more.
    /// Errors: `Protocol`: the peer has written nonsense into the ring's head.
    pub fn has_room(&mut self, len: usize) -> Result<bool> {
        if self.room() < len {
            let taken = self.memory.positions().taken();
            // The position must not go back, nor pass what was written.
            if taken.wrapping_sub(self.taken) > self.written.wrapping_sub(self.taken) {
                return Err(Error::protocol(
                    "the peer has moved its position in the ring to where nothing was written",
                ));
            }
            self.taken = taken;
        }
        Ok(self.room() >= len)
    }

    fn room(&self) -> usize {
        let waiting = self.written.wrapping_sub(self.taken);
        CAPACITY.saturating_sub(usize::try_from(waiting).unwrap_or(CAPACITY))
    }

    /// Adds bytes, for which there is [room](Self::has_room). The reader does not see them before
    /// [`publish`](Self::publish).
    pub fn write(&mut self, bytes: &[u8]) {
        debug_assert!(bytes.len() <= self.room(), "the caller has asked for room");
        self.memory.copy_in(self.written, bytes);
        self.written = self.written.wrapping_add(bytes.len() as u64);
    }

    /// Shows the reader what was written. Returns whether it has to be woken.
    pub fn publish(&self) -> bool {
        let positions = self.memory.positions();
        positions.publish(self.written);
        positions.must_be_woken()
    }
}

/// The reader's end of a ring.
#[derive(Debug)]
pub struct RingReader {
    memory: RingMapping,
    read: u64,
    /// As [`Positions::awake`] says.
    pub awake: bool,
}

impl RingReader {
    /// Of a ring from which nothing was read.
    pub fn new(memory: RingMapping) -> Self {
        Self {
            memory,
            read: 0,
            awake: false,
        }
    }

    /// Copies what there is, up to its length, to `bytes`. Returns how many bytes those are.
    /// Errors: `Protocol`: the peer has written nonsense into the ring's head.
    pub fn read(&mut self, bytes: &mut [u8]) -> Result<usize> {
        let positions = self.memory.positions();
        let waiting = positions.written().wrapping_sub(self.read);
        let len = usize::try_from(waiting).ok().filter(|len| *len <= CAPACITY);
        let len = len.ok_or_else(|| {
            Error::protocol(format!(
                "the peer says that {waiting} bytes are in a ring that holds {CAPACITY}"
            ))
        })?;
        let len = len.min(bytes.len());
        if len > 0 {
            self.memory.copy_out(self.read, &mut bytes[..len]);
            self.read = self.read.wrapping_add(len as u64);
            positions.give_back(self.read);
        }
        Ok(len)
    }

    /// Says that this side looks at the ring from now on.
    pub fn wake(&mut self) {
        if !std::mem::replace(&mut self.awake, true) {
            self.memory.positions().wake();
        }
    }

    /// Says that this side is about to sleep on the socket. Returns whether there is something in
    /// the ring to be read first.
    pub fn doze(&mut self) -> bool {
        self.awake = false;
        self.memory.positions().doze(self.read)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
#[path = "ring_tests.rs"]
mod tests;

#[cfg(test)]
#[cfg(loom)]
#[path = "ring_model.rs"]
mod model;
