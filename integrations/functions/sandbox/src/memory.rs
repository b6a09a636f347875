//! Linear memories of modules: mappings of this crate, whose pages may become those of a file.

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use wasmtime::{LinearMemory, MemoryCreator, MemoryType};

/// Finds the files behind memory of the host, so that a module gets whole pages of its input
/// without a copy ([`Options::files`](crate::Options::files)).
pub trait HostFiles: fmt::Debug + Send + Sync {
    /// The file that has these bytes; `None` if no file is known to have them.
    ///
    /// Nobody writes them, here or in the file, and the file does not shrink, for as long as `bytes`
    /// is borrowed.
    fn find(&self, bytes: &[u8]) -> Option<HostFile>;
}

/// Where a file has some bytes.
pub struct HostFile {
    /// The file, which can be mapped for reading.
    pub file: Box<dyn AsFd>,
    /// The first byte, counted from the file's begin.
    pub offset: u64,
}

impl fmt::Debug for HostFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostFile")
            .field("file", &self.file.as_fd())
            .field("offset", &self.offset)
            .finish()
    }
}

/// The system's pages.
pub(crate) fn page_bytes() -> usize {
    rustix::param::page_size()
}

/// Makes the memories of a sandbox.
pub(crate) struct Creator;

/// A reservation with a guard behind it. Its first `size` bytes are the module's.
struct Linear {
    base: *mut u8,
    size: usize,
    capacity: usize,
    length: usize,
}

// SAFETY: a mapping belongs to the process, and this type reads and writes none of it.
unsafe impl Send for Linear {}
// SAFETY: as above.
unsafe impl Sync for Linear {}

// SAFETY: each memory is a mapping of its own, of zeros, as large as asked, and the guard behind it
// stays without access.
unsafe impl MemoryCreator for Creator {
    fn new_memory(
        &self,
        _type: MemoryType,
        minimum: usize,
        _maximum: Option<usize>,
        reserved: Option<usize>,
        guard: usize,
    ) -> Result<Box<dyn LinearMemory>, String> {
        let capacity = reserved.ok_or("a memory of 32 bits has a reservation")?;
        let length = capacity.checked_add(guard).ok_or("a reservation of all")?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the system chooses addresses that nobody has.
        let base = unsafe {
            rustix::mm::mmap_anonymous(ptr::null_mut(), length, ProtFlags::empty(), flags)
        };
        let base = base.map_err(|error| format!("{length} bytes of addresses: {error}"))?;
        let mut memory = Linear {
            base: base.cast(),
            size: 0,
            capacity,
            length,
        };
        memory.grow_to(minimum).map_err(|error| error.to_string())?;
        Ok(Box::new(memory))
    }
}

// SAFETY: the base never moves, and all bytes below the size can be read and written.
unsafe impl LinearMemory for Linear {
    fn byte_size(&self) -> usize {
        self.size
    }

    fn byte_capacity(&self) -> usize {
        self.capacity
    }

    fn grow_to(&mut self, size: usize) -> wasmtime::Result<()> {
        let more = (size.checked_sub(self.size))
            .filter(|_| size <= self.capacity)
            .ok_or_else(|| wasmtime::Error::msg("a memory beyond its reservation"))?;
        if more > 0 {
            let access = MprotectFlags::READ | MprotectFlags::WRITE;
            // SAFETY: the range lies within this mapping, and was without access.
            unsafe { rustix::mm::mprotect(self.base.add(self.size).cast(), more, access) }
                .map_err(io::Error::from)?;
        }
        self.size = size;
        Ok(())
    }

    fn as_ptr(&self) -> *mut u8 {
        self.base
    }
}

impl Drop for Linear {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and nobody has its addresses any more.
        let unmapped = unsafe { rustix::mm::munmap(self.base.cast(), self.length) };
        debug_assert!(unmapped.is_ok(), "a whole mapping can be unmapped");
    }
}

/// The whole pages among `length` bytes that lie at an address.
pub(crate) fn whole_pages(address: usize, length: usize) -> Range<usize> {
    let page = page_bytes();
    let begin = address.next_multiple_of(page) - address;
    let end = ((address + length) & !(page - 1)).saturating_sub(address);
    begin..end.max(begin)
}

/// Replaces pages of a linear memory by a file's, from `offset` on. What the module writes there is
/// its own.
pub(crate) fn map(pages: &mut [u8], file: BorrowedFd<'_>, offset: u64) -> io::Result<()> {
    let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
    // SAFETY: `pages` are whole pages of a `Linear`, which nobody else has.
    unsafe {
        rustix::mm::mmap(
            pages.as_mut_ptr().cast(),
            pages.len(),
            ACCESS,
            flags,
            file,
            offset,
        )
    }?;
    Ok(())
}

/// Replaces pages of a linear memory by zeros.
pub(crate) fn clear(pages: &mut [u8]) -> io::Result<()> {
    let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
    // SAFETY: as in `map`.
    unsafe { rustix::mm::mmap_anonymous(pages.as_mut_ptr().cast(), pages.len(), ACCESS, flags) }?;
    Ok(())
}

const ACCESS: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);
