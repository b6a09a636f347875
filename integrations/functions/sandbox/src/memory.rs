//! Pages of files in the linear memories of modules.
//!
//! wasmtime maps the memory of an instance on demand, never moves it, changes the protection of pages
//! beyond its size alone, and unmaps it as a whole. So pages within its size can be replaced. This is
//! how its pinned version works, and no promise of its interface: look again for another version, and
//! before memories are pooled.

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::mm::{MapFlags, ProtFlags};

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
    // SAFETY: `pages` are whole pages of a memory that can be read and written, and nobody else has
    // them.
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
