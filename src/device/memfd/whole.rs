//! Whether a peer's file in memory has all its pages.
//!
//! A page that is missing reads as zeros and is allocated by the reader, whose cgroup pays for it.
//! The number of the file's blocks does not tell: those past its end count as well. Once the file
//! is sealed against growing and writing none goes missing any more: holes cannot be punched into
//! it, nor blocks allocated past its end.

use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::SeekFrom;

use crate::error::{Error, Result};

/// The kind of file system that files in memory are of, as the kernel numbers it.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Checks that every page of a file of `len` bytes is there. `what` begins the text of the error.
///
/// # Errors
///
/// `Protocol`: some are not, or it cannot be told.
pub fn ensure_whole(fd: impl AsFd, len: u64, what: &str) -> Result<()> {
    let fd = fd.as_fd();
    let failed = |errno| Error::os(format_args!("cannot examine {what}"), errno);
    let system = rustix::fs::fstatfs(fd).map_err(failed)?;
    // Files of huge pages from the system's pool do not tell of their holes.
    if u64::try_from(system.f_type).ok() != Some(TMPFS_MAGIC) {
        return Err(Error::protocol(format!(
            "{what} is a file in memory of another kind than memfd_create makes without MFD_HUGETLB"
        )));
    }
    let hole = rustix::fs::seek(fd, SeekFrom::Hole(0)).map_err(failed)?;
    // Pages that were allocated and never touched count as a hole there.
    if hole >= len || allocated(fd, len).is_some_and(|allocated| allocated >= len) {
        return Ok(());
    }
    Err(Error::protocol(format!(
        "{what} is sparse: there is nothing at byte {hole} of {len}"
    )))
}

/// The same on every architecture but Alpha's, which has no such number.
const SYS_CACHESTAT: libc::c_long = 451;

/// What the kernel is asked of its cache by, and says of it (cachestat(2)).
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

/// Bytes of the pages, of the first `len` bytes, that are in memory or swapped out; `None`: the
/// kernel does not tell (before Linux 6.5).
fn allocated(fd: impl AsFd, len: u64) -> Option<u64> {
    let range = Range { offset: 0, len };
    let mut pages = Pages::default();
    // SAFETY: `range` is readable and `pages` writable, both laid out as the system call has them;
    // it changes nothing else.
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
