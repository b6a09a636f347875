//! A ring of bytes in shared memory, beside the socket. Messages of one end, the writer, reach the
//! other end, the reader, without a system call while the reader looks for them.
//!
//! **Who has one.** Each direction has a ring of its own. A client asks for the ring of the
//! server's messages once enough of those have come, and for the ring of its own messages once it
//! has sent enough (RING and CLIENT_RING, `docs/wire.md`). The server makes both, which are sealed
//! memfds, and sends their descriptors.
//!
//! **Order.** The frames are those of the socket. A SWITCH says that the next frame is in the other
//! place. So there is one order, and each frame is whole in one place. The writer uses the ring
//! while the reader is awake, and the socket otherwise: while the reader sleeps, for frames that
//! bring a descriptor, and for frames that do not fit. A byte on the socket wakes a sleeping
//! reader.
//!
//! **No wake-up is lost.** Before it sleeps, the reader clears `awake` and then looks at the ring
//! once more. The writer moves `written` and then looks at `awake`. A full fence stands between the
//! two steps on both sides, so that one of them sees the other: the reader finds the frame, or the
//! writer wakes it by a SWITCH there and back. `ring_model.rs` has loom try [`Positions`] in every
//! order of the steps.
//!
//! **Trust.** A position is read once and then checked. Each side relies on its own copy of the
//! position that it moves. Bytes are copied out before they are looked at. The memfd cannot shrink.

use std::os::fd::OwnedFd;

use rustix::fs::{FallocateFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::device::memfd::{Memfd, ensure_whole};
use crate::device::region::{Mapping, examine};
use crate::error::{Error, Result};
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// Bytes of frames that the ring holds: enough for the messages of a window of small batches.
pub const CAPACITY: usize = 64 << 10;
/// The offset of these bytes: after the head, on a page of their own.
const DATA_OFFSET: usize = 4096;
/// Bytes of the whole file.
pub const FILE_BYTES: usize = DATA_OFFSET + CAPACITY;

/// The seals that the client requires. Writing is not sealed, because both ends write to the head.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// A cache line of its own, so that the two sides do not write to the same line.
#[repr(C, align(64))]
#[derive(Debug, Default)]
struct CacheLine<T>(T);

/// The head of the ring.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Positions {
    /// Bytes put into the ring since the start; written by the writer.
    written: CacheLine<AtomicU64>,
    /// Bytes taken out of it since the start; written by the reader.
    read: CacheLine<AtomicU64>,
    /// Whether the reader looks at the ring (not 0) or sleeps on the socket; written by the reader.
    awake: CacheLine<AtomicU32>,
}

impl Positions {
    /// Writer: all bytes before `written` may be read.
    fn publish(&self, written: u64) {
        // Release: the bytes are there before their position.
        self.written.0.store(written, Ordering::Release);
    }

    /// Writer: whether it is worth while to use the ring.
    fn is_awake(&self) -> bool {
        // Relaxed: this is only a hint. Code that needs the truth calls `must_be_woken`.
        self.awake.0.load(Ordering::Relaxed) != 0
    }

    /// Writer, after [`publish`](Self::publish): whether the reader may have gone to sleep without
    /// seeing what was published.
    fn must_be_woken(&self) -> bool {
        // SeqCst, together with the fence of `doze`: at least one side sees the store of the other.
        fence(Ordering::SeqCst);
        !self.is_awake()
    }

    /// Writer: how many bytes the reader has taken.
    fn taken(&self) -> u64 {
        // Acquire: the reader has read the bytes before this side writes over them.
        self.read.0.load(Ordering::Acquire)
    }

    /// Reader: from now on it looks at the ring.
    fn wake(&self) {
        // Relaxed: no bytes depend on it, and a writer that sees it late uses the socket.
        self.awake.0.store(1, Ordering::Relaxed);
    }

    /// Reader: it is about to sleep. Returns whether there are bytes after `read`, so that it must
    /// not sleep.
    fn doze(&self, read: u64) -> bool {
        self.awake.0.store(0, Ordering::Relaxed);
        // SeqCst, with the fence of `must_be_woken`.
        fence(Ordering::SeqCst);
        self.written() != read
    }

    /// Reader: how many bytes were written.
    fn written(&self) -> u64 {
        // Acquire: the bytes before this position are there.
        self.written.0.load(Ordering::Acquire)
    }

    /// Reader: all bytes before `read` may be overwritten.
    fn give_back(&self, read: u64) {
        // Release: the bytes were read before they may be written over.
        self.read.0.store(read, Ordering::Release);
    }
}

/// The memory of a ring, mapped. Its bytes are accessed by atomics, or copied by the only owner of
/// a `RingWriter` or a `RingReader`.
#[derive(Debug)]
pub struct RingMapping {
    mapping: Mapping,
    /// At a server: the file that the client maps.
    file: Option<Memfd>,
}

impl RingMapping {
    /// Makes a ring; called at a server.
    pub fn make() -> Result<Self> {
        let doing = "cannot make a ring for a connection";
        let failed = |errno| Error::os(doing, errno);
        let file =
            Memfd::create("dipc-ring", FILE_BYTES as u64).map_err(|error| error.context(doing))?;
        let fd = file.fd();
        // Every page is allocated from the start, so neither side can run out of memory there.
        rustix::fs::fallocate(fd, FallocateFlags::empty(), 0, FILE_BYTES as u64).map_err(failed)?;
        rustix::fs::fcntl_add_seals(fd, SEALS | SealFlags::SEAL).map_err(failed)?;
        Ok(Self {
            mapping: map(fd)?,
            file: Some(file),
        })
    }

    /// Maps the ring that the server has made; called at a client.
    /// Errors: `Protocol` if it is not a memfd of the size of a ring that can neither shrink nor
    /// grow, with all its pages allocated; `OutOfMemory` if it cannot be mapped.
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
        // lines, and lives as long as `self`. All values of the bytes are valid for the atomics,
        // and both processes access these bytes only through atomics.
        unsafe { self.mapping.data.cast::<Positions>().as_ref() }
    }

    /// The address of the byte at `position`, and the number of bytes from there to the ring's end.
    fn place(&self, position: u64) -> (*mut u8, usize) {
        let at = usize::try_from(position % CAPACITY as u64).unwrap_or(0);
        let data = self.mapping.data.as_ptr().wrapping_add(DATA_OFFSET + at);
        (data, CAPACITY - at)
    }

    /// Copies `bytes`, at most [`CAPACITY`], into the ring from `position` on.
    fn copy_in(&self, position: u64, bytes: &[u8]) {
        let (data, left) = self.place(position);
        let (front, back) = bytes.split_at(bytes.len().min(left));
        // SAFETY: `front` fits before the end of the mapping. The mapping is no memory of Rust's,
        // so the two do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(front.as_ptr(), data, front.len()) };
        let (begin, _) = self.place(0);
        // SAFETY: `back` is not longer than `bytes`, which callers keep within `CAPACITY`, so it
        // fits into the ring from `begin` on. The mapping is no memory of Rust's, so the two do not
        // overlap.
        unsafe { std::ptr::copy_nonoverlapping(back.as_ptr(), begin, back.len()) };
    }

    /// Copies bytes from the ring, from `position` on, to `bytes`, at most [`CAPACITY`].
    fn copy_out(&self, position: u64, bytes: &mut [u8]) {
        let (data, left) = self.place(position);
        let (front, back) = bytes.split_at_mut(bytes.len().min(left));
        let (begin, _) = self.place(0);
        for (from, to) in [(data, front), (begin, back)] {
            // SAFETY: `front` ends at or before the end of the mapping, and `back` ends before the
            // place where `front` began. If the other process writes at the same time, the copy may
            // show it; the copy is checked, like everything that a peer sends.
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
    /// The reader's position when the writer last read it.
    taken: u64,
}

impl RingWriter {
    /// For a ring into which nothing was written.
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

    /// Whether there is room for `len` more bytes.
    /// Errors: `Protocol` if the peer has written an impossible position into the ring's head.
    pub fn has_room(&mut self, len: usize) -> Result<bool> {
        if self.room() < len {
            let taken = self.memory.positions().taken();
            // The position must not go back, nor pass the bytes that were written.
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

    /// Adds bytes, for which there is [room](Self::has_room). The reader does not see them until
    /// [`publish`](Self::publish).
    pub fn write(&mut self, bytes: &[u8]) {
        debug_assert!(bytes.len() <= self.room(), "the caller has asked for room");
        self.memory.copy_in(self.written, bytes);
        self.written = self.written.wrapping_add(bytes.len() as u64);
    }

    /// Shows the reader what was written. Returns whether the reader has to be woken.
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
    /// Its own copy of [`Positions::awake`].
    pub awake: bool,
}

impl RingReader {
    /// For a ring from which nothing was read.
    pub fn new(memory: RingMapping) -> Self {
        Self {
            memory,
            read: 0,
            awake: false,
        }
    }

    /// Copies the bytes in the ring to `bytes`, as many as fit. Returns how many were copied.
    /// Errors: `Protocol` if the peer has written an impossible position into the ring's head.
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

    /// Announces that this side looks at the ring from now on.
    pub fn wake(&mut self) {
        if !std::mem::replace(&mut self.awake, true) {
            self.memory.positions().wake();
        }
    }

    /// Announces that this side is about to sleep on the socket. Returns whether something in the
    /// ring must be read first.
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
