//! Memory of this host that another process can read: sealed memfds.
//!
//! [`Region`] is the owner's side, with the blocks; [`MappedRegion`] is the receiver's mapping. The
//! receiver can trust the mapping because of the seals: the file cannot shrink (no SIGBUS), and no
//! later mapping of it is writable.

use std::ops::Deref;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, FileType, SealFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::device::BufferRef;
pub use crate::device::lendable::Freed;
use crate::device::lendable::Lendable;
use crate::device::memfd::{FileCharge, Memfd, Process, ensure_whole};
use crate::error::{Error, Result, Status};

/// Linux's number on every processor; the crate libc has it for glibc alone.
const MADV_COLLAPSE: libc::c_int = 25;

/// Most bytes of a region: an address on the wire has 48 bits for the offset.
pub const MAX_REGION_BYTES: u64 = 1 << 48;

/// The seals that a receiver requires.
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::FUTURE_WRITE);

/// The size of a huge page. On a system with another size, regions have small pages.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Huge pages are requested in steps of this many bytes. After a step that takes longer than the
/// patience, no more are requested.
const COLLAPSE_STEP: usize = 16 << 20;
const COLLAPSE_PATIENCE: Duration = Duration::from_millis(100);

/// Pages are allocated in steps of this many bytes, so that a signal repeats one step only.
const ALLOCATE_STEP: u64 = 16 << 20;

/// A mapping that is unmapped when dropped.
#[derive(Debug)]
struct Mapping {
    data: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: the type reads and writes nothing. Its users access the memory through raw pointers, and
// must keep writers and readers apart.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of the file; `len` is whole pages. A mapping of at least a huge page begins
    /// at a multiple of a huge page, so that the page table can have huge pages.
    fn new(fd: &OwnedFd, len: usize, prot: ProtFlags) -> Result<Self> {
        let failed = |errno| Error::os(format_args!("cannot map a region of {len} bytes"), errno);
        if len < HUGE_PAGE_BYTES {
            // SAFETY: without an address hint the kernel picks an unmapped address.
            let mapped = unsafe { mmap(std::ptr::null_mut(), len, prot, MapFlags::SHARED, fd, 0) };
            return Self::at(mapped.map_err(failed)?.cast(), len);
        }
        let reserved = len.checked_add(HUGE_PAGE_BYTES).ok_or(Errno::NOMEM);
        let reserved = reserved.map_err(failed)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: as above.
        let range =
            unsafe { mmap_anonymous(std::ptr::null_mut(), reserved, ProtFlags::empty(), flags) };
        // From here on, the drop of `range` unmaps the reservation after an error.
        let range = Self::at(range.map_err(failed)?.cast(), reserved)?;
        let front = range.data.as_ptr().align_offset(HUGE_PAGE_BYTES);
        let begin = range.data.as_ptr().wrapping_add(front);
        // SAFETY: `front` is less than a huge page, so the `len` bytes lie within the range. Nobody
        // else knows the range, so its pages may be replaced.
        unsafe {
            mmap(
                begin.cast(),
                len,
                prot,
                MapFlags::SHARED | MapFlags::FIXED,
                fd,
                0,
            )
        }
        .map_err(failed)?;
        let back = reserved - front - len;
        let whole = std::mem::ManuallyDrop::new(range);
        for (start, len) in [
            (whole.data.as_ptr(), front),
            (begin.wrapping_add(len), back),
        ] {
            if len > 0 {
                // SAFETY: this part of the range lies before or behind the file's pages, and nobody
                // knows it.
                let _ = unsafe { munmap(start.cast(), len) };
            }
        }
        Self::at(begin, len)
    }

    /// Takes ownership of a mapping.
    fn at(mapped: *mut u8, len: usize) -> Result<Self> {
        let data = NonNull::new(mapped)
            .ok_or_else(|| Error::new(Status::Io, "the system mapped a region at address 0"))?;
        Ok(Self { data, len })
    }

    /// Requests huge pages. The system merges small pages of the file and adds missing ones, but
    /// skips a huge page without any small page. If the system has no huge pages, the pages stay
    /// small.
    fn collapse(&self) {
        let whole = self.len - self.len % HUGE_PAGE_BYTES;
        for at in (0..whole).step_by(COLLAPSE_STEP) {
            let start = Instant::now();
            let len = COLLAPSE_STEP.min(whole - at);
            let step = self.data.as_ptr().wrapping_add(at);
            // SAFETY: the range is a part of this mapping; the advice changes no contents.
            let result = unsafe { libc::madvise(step.cast(), len, MADV_COLLAPSE) };
            // On fragmented memory the system has to compact first. That is worth the time of one
            // step, not of a whole large region.
            if result != 0 || start.elapsed() > COLLAPSE_PATIENCE {
                return;
            }
        }
    }

    /// Maps the same file again at the same address and fills the page table at once. Later faults,
    /// one for each page, would cost more.
    fn populate(self, fd: &OwnedFd, prot: ProtFlags) -> Result<Self, Errno> {
        let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::POPULATE;
        // SAFETY: `self` owns the mapping, and nobody points into it yet, so it may be replaced.
        unsafe { mmap(self.data.as_ptr().cast(), self.len, prot, flags, fd, 0) }?;
        Ok(self)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `data` and `len` are a whole mapping, unmapped only here. All users of the memory
        // hold the owner of this value, so there are none left. `munmap` of libc, because UCX hooks
        // it to drop its cache entries for the addresses.
        let unmapped = unsafe { libc::munmap(self.data.as_ptr().cast(), self.len) };
        debug_assert_eq!(unmapped, 0, "a whole mapping can always be unmapped");
    }
}

/// A region of this process: lendable memory and its blocks.
#[derive(Debug)]
pub struct Region {
    mapping: Mapping,
    file: Memfd,
    blocks: Lendable,
}

impl Region {
    /// Makes a region of at least `len` bytes (whole pages), with all pages allocated.
    /// `/proc/PID/maps` shows `name` as `memfd:name`.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` if the system has too little memory; `OutOfResources` if the process has no
    /// file descriptor left or the file is over the limit of file sizes; `InvalidArgument` if `len`
    /// is 0 or above [`MAX_REGION_BYTES`].
    pub fn create(len: u64, name: &str) -> Result<Self> {
        let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
        let rounded = len
            .checked_next_multiple_of(page)
            .filter(|n| *n <= MAX_REGION_BYTES);
        let (len, map_len) = match rounded.map(|n| (n, usize::try_from(n))) {
            Some((n @ 1.., Ok(map_len))) => (n, map_len),
            _ => {
                return Err(Error::invalid_argument(format!(
                    "a region cannot have {len} bytes: the limit is {MAX_REGION_BYTES}"
                )));
            }
        };
        ensure_available(len)?;
        let doing = || format!("cannot make a region of {len} bytes");
        let file = Memfd::create(name, len).map_err(|error| error.context(doing()))?;
        let fd = file.fd();
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let mapping = Mapping::new(fd, map_len, prot)?;
        if allocate_first_pages(fd, len).map_err(|e| Error::os(doing(), e))? {
            mapping.collapse();
        }
        // Allocates the pages that `collapse` did not.
        allocate(fd, len).map_err(|e| Error::os(doing(), e))?;
        let mapping = mapping
            .populate(fd, prot)
            .map_err(|e| Error::os(doing(), e))?;
        // After mapping: FUTURE_WRITE permits the existing writable mapping.
        rustix::fs::fcntl_add_seals(fd, SEALS | SealFlags::SEAL)
            .map_err(|errno| Error::os("cannot seal a region", errno))?;
        Ok(Self {
            file,
            mapping,
            blocks: Lendable::new(len),
        })
    }

    /// The file descriptor for the peers' mappings.
    pub fn fd(&self) -> &Arc<OwnedFd> {
        self.file.fd()
    }

    /// The same descriptor, for a peer. `process` is the peer's, if known.
    pub(crate) fn give(&self, process: Option<&Process>) -> Arc<OwnedFd> {
        self.file.give(process)
    }

    /// Attaches `charge`, which is dropped when no process has the memory.
    pub(crate) fn charge(&self, charge: FileCharge) {
        self.file.charge(charge);
    }

    /// The first byte.
    pub fn base(&self) -> NonNull<u8> {
        self.mapping.data
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.mapping.len
    }

    /// Always false: a region has at least one page.
    pub fn is_empty(&self) -> bool {
        self.mapping.len == 0
    }

    /// The offset of `len` bytes at `data`, if all of them lie in the region.
    pub fn offset_of(&self, data: *const u8, len: usize) -> Option<u64> {
        let offset = (data as usize).checked_sub(self.base().as_ptr() as usize)?;
        let fits = offset
            .checked_add(len)
            .is_some_and(|end| end <= self.mapping.len);
        fits.then(|| u64::try_from(offset).ok()).flatten()
    }
}

/// The allocator of the region's blocks.
impl Deref for Region {
    type Target = Lendable;

    fn deref(&self) -> &Lendable {
        &self.blocks
    }
}

/// Refuses a length that the machine clearly cannot allocate. The kernel would kill a process
/// rather than fail the allocation.
fn ensure_available(len: u64) -> Result<()> {
    let Ok(text) = std::fs::read_to_string("/proc/meminfo") else {
        return Ok(());
    };
    let available = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|rest| rest.trim().strip_suffix("kB"))
        .and_then(|number| number.trim().parse::<u64>().ok())
        .and_then(|kib| kib.checked_mul(1024));
    match available {
        Some(available) if len > available => Err(Error::out_of_memory(format!(
            "a region of {len} bytes does not fit: the machine has {available} bytes available"
        ))),
        _ => Ok(()),
    }
}

/// Allocates the first page of each huge page. Returns false if the file is shorter than a huge
/// page.
///
/// By default a memfd has huge pages only if the administrator enabled them. But the system makes a
/// huge page from small pages on request ([`Mapping::collapse`]), and zeroes the missing pages
/// without a copy. Huge pages are faster to allocate, and cause fewer page faults for a reader.
fn allocate_first_pages(fd: &OwnedFd, len: u64) -> Result<bool, Errno> {
    let huge = HUGE_PAGE_BYTES as u64;
    for index in 0..len / huge {
        retry_on_intr(|| rustix::fs::fallocate(fd, FallocateFlags::empty(), index * huge, 1))?;
    }
    Ok(len >= huge)
}

fn allocate(fd: &OwnedFd, len: u64) -> Result<(), Errno> {
    let mut done = 0;
    while done < len {
        let step = ALLOCATE_STEP.min(len - done);
        retry_on_intr(|| rustix::fs::fallocate(fd, FallocateFlags::empty(), done, step))?;
        done += step;
    }
    Ok(())
}

/// A region of a peer, mapped read-only.
#[derive(Debug)]
pub struct MappedRegion {
    mapping: Mapping,
}

impl MappedRegion {
    /// The first byte.
    pub fn base(&self) -> NonNull<u8> {
        self.mapping.data
    }

    /// Maps the region of `fd` and closes `fd`. The owner announced `len`, in bytes.
    ///
    /// # Errors
    ///
    /// `Protocol` if `fd` is not a memfd with the required seals, has another size, or lacks pages;
    /// `OutOfMemory` if the system cannot map it.
    pub fn map(fd: OwnedFd, len: u64) -> Result<Self> {
        let stat = rustix::fs::fstat(&fd)
            .map_err(|errno| Error::os("cannot examine the peer's region", errno))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Error::protocol("the peer's region is not a file in memory"));
        }
        check_seals(fd.as_fd())?;
        // Read after the check of the seals, which keep the size and the pages from changing.
        let stat = rustix::fs::fstat(&fd)
            .map_err(|errno| Error::os("cannot examine the peer's region", errno))?;
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        if size != len || size == 0 || size > MAX_REGION_BYTES {
            return Err(Error::protocol(format!(
                "the peer announced a region of {len} bytes and sent one of {size}"
            )));
        }
        ensure_whole(&fd, size, "the peer's region")?;
        let map_len = usize::try_from(size)
            .map_err(|_| Error::protocol("the peer's region is larger than the address space"))?;
        let mapping = Mapping::new(&fd, map_len, ProtFlags::READ)?;
        Ok(Self { mapping })
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.mapping.len
    }

    /// Always false: [`map`](Self::map) refuses an empty region.
    pub fn is_empty(&self) -> bool {
        self.mapping.len == 0
    }

    /// `len` bytes at `offset`, if all of them lie in the region.
    pub fn slice(&self, offset: u64, len: u64) -> Option<BufferRef> {
        let offset = usize::try_from(offset).ok()?;
        let len = usize::try_from(len).ok()?;
        let end = offset.checked_add(len)?;
        if end > self.mapping.len {
            return None;
        }
        Some(BufferRef {
            data: self.mapping.data.as_ptr().cast_const().wrapping_add(offset),
            len,
        })
    }
}

fn check_seals(fd: std::os::fd::BorrowedFd<'_>) -> Result<()> {
    let seals = match rustix::fs::fcntl_get_seals(fd) {
        Ok(seals) => seals,
        Err(Errno::INVAL) => {
            return Err(Error::protocol(
                "the peer's region is a file that cannot be sealed",
            ));
        }
        Err(errno) => {
            return Err(Error::os(
                "cannot read the seals of the peer's region",
                errno,
            ));
        }
    };
    let missing = SEALS.difference(seals);
    // WRITE implies FUTURE_WRITE.
    let missing = if seals.contains(SealFlags::WRITE) {
        missing.difference(SealFlags::FUTURE_WRITE)
    } else {
        missing
    };
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = missing.iter_names().map(|(name, _)| name).collect();
    Err(Error::protocol(format!(
        "the peer's region lacks the seals {}",
        names.join(", ")
    )))
}

#[cfg(test)]
#[path = "region_tests.rs"]
mod tests;
