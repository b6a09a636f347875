//! The check that a peer's file in memory has all its pages.
//!
//! A missing page reads as zeros, and the read allocates the page on the account of the reader's
//! cgroup. The file's block count does not prove that all pages exist, because blocks past the end
//! count too. The seals against growing and writing keep the pages: nobody can punch holes or
//! allocate blocks past the end.

use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::SeekFrom;

use crate::error::{Error, Result};

/// The file system type of files in memory, as the kernel numbers it.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Checks that a file of `len` bytes has all its pages. `what` begins the text of the error.
///
/// # Errors
///
/// `Protocol` if pages are missing, or the file system cannot report holes.
pub fn ensure_whole(fd: impl AsFd, len: u64, what: &str) -> Result<()> {
    let fd = fd.as_fd();
    let failed = |errno| Error::os(format_args!("cannot examine {what}"), errno);
    let system = rustix::fs::fstatfs(fd).map_err(failed)?;
    // hugetlbfs does not report holes.
    if u64::try_from(system.f_type).ok() != Some(TMPFS_MAGIC) {
        return Err(Error::protocol(format!(
            "{what} is a file in memory of another kind than memfd_create makes without MFD_HUGETLB"
        )));
    }
    let hole = rustix::fs::seek(fd, SeekFrom::Hole(0)).map_err(failed)?;
    // The hole may be pages that were allocated and never touched.
    if hole >= len || allocated(fd, len).is_some_and(|allocated| allocated >= len) {
        return Ok(());
    }
    Err(Error::protocol(format!(
        "{what} is sparse: there is nothing at byte {hole} of {len}"
    )))
}

/// The same number on every architecture but Alpha, which lacks the call.
const SYS_CACHESTAT: libc::c_long = 451;

/// The argument and the result of cachestat(2).
#[repr(C)]
struct Range {
    offset: u64,
    len: u64,
}

#[repr(C)]
#[derive(Default)]
struct Pages {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Bytes of the first `len` bytes whose pages are in memory or swapped out. `None` if the kernel
/// lacks the call (before Linux 6.5).
fn allocated(fd: impl AsFd, len: u64) -> Option<u64> {
    let range = Range { offset: 0, len };
    let mut pages = Pages::default();
    // SAFETY: `range` is readable and `pages` writable, both with the layout of the system call,
    // which changes nothing else.
    let result = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            fd.as_fd().as_raw_fd(),
            &raw const range,
            &raw mut pages,
            0,
        )
    };
    if result != 0 {
        return None;
    }
    let page = u64::try_from(rustix::param::page_size()).ok()?;
    pages.cached.checked_add(pages.evicted)?.checked_mul(page)
}
