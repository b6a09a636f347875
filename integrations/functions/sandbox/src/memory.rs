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
    // SAFETY: the callers pass whole pages (`whole_pages`) of a linear memory that can be read and
    // written; by the `&mut` nobody else has them.
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

/// Copies a file's bytes from `offset` on into pages of a linear memory, by the system: if a failed
/// [`map`] has left no memory there, this fails too, and is no fault of an access.
pub(crate) fn copy(pages: &mut [u8], file: BorrowedFd<'_>, offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < pages.len() {
        match rustix::io::pread(file, &mut pages[done..], offset + done as u64) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => done += read,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Replaces pages of a linear memory by zeros.
pub(crate) fn clear(pages: &mut [u8]) -> io::Result<()> {
    let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
    // SAFETY: the callers pass whole pages (`whole_pages`) of a linear memory that can be read and
    // written; by the `&mut` nobody else has them.
    unsafe { rustix::mm::mmap_anonymous(pages.as_mut_ptr().cast(), pages.len(), ACCESS, flags) }?;
    Ok(())
}

const ACCESS: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::process::Command;

    use super::*;

    const PAGE: usize = 4096;
    const FLAGS: MapFlags = MapFlags::PRIVATE.union(MapFlags::NORESERVE);

    fn pages(bytes: usize) -> *mut std::ffi::c_void {
        // SAFETY: the system chooses the address.
        unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, ACCESS, FLAGS) }.unwrap()
    }

    /// Uses up the mappings of the process: each second page gets other rights.
    fn crowd() {
        let bytes = 4_000_000 * PAGE;
        let crowd = pages(bytes);
        let none = rustix::mm::MprotectFlags::empty();
        let is_full = (0..bytes).step_by(2 * PAGE).any(|at| {
            // SAFETY: the page is one of `crowd`, which nobody reads.
            unsafe { rustix::mm::mprotect(crowd.wrapping_byte_add(at), PAGE, none) }.is_err()
        });
        assert!(is_full);
    }

    /// Pages of a file that the system does not map any more are copied. In a process of its own.
    #[test]
    fn pages_are_copied_where_there_are_no_more_mappings() {
        const OWN: &str = "DIPC_CROWDED";
        if std::env::var_os(OWN).is_none() {
            let mut own = Command::new(std::env::current_exe().unwrap());
            own.args(["pages_are_copied_where_there_are_no_more_mappings"]);
            let output = own.env(OWN, "1").output().unwrap();
            assert!(output.status.success(), "{output:?}");
            assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
            return;
        }
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &[7; 4 * PAGE]).unwrap();
        let guest = pages(16 * PAGE);
        // SAFETY: the pages are readable and writable to the end of the process.
        let guest = unsafe { std::slice::from_raw_parts_mut(guest.cast::<u8>(), 16 * PAGE) };
        let to = &mut guest[4 * PAGE..8 * PAGE];
        crowd();
        let error = map(to, file.as_fd(), 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        copy(to, file.as_fd(), 0).unwrap();
        assert!(to.iter().all(|byte| *byte == 7));
        let error = copy(to, file.as_fd(), PAGE as u64).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    }
}
