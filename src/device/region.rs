//! Memory of this host that another process can be given to read: sealed memfds.
//!
//! [`Region`] is the owner's side, with the blocks in it; [`MappedRegion`] is what a receiver maps.
//! The seals are what lets the receiver trust the mapping: it can neither shrink (no SIGBUS) nor be
//! written through any mapping made later.

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

/// Regions are smaller than this: an address on the wire has 48 bits for the offset.
pub const MAX_REGION_BYTES: u64 = 1 << 48;

/// The seals that a receiver insists on.
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::FUTURE_WRITE);

/// The size of a huge page. Where it is another one, regions have small pages.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Huge pages are asked for in steps of this size, until one takes longer than the patience: a few
/// times what it takes where memory is in pieces, and ten times what small pages do.
const COLLAPSE_STEP: usize = 16 << 20;
const COLLAPSE_PATIENCE: Duration = Duration::from_millis(100);

/// Pages are allocated in steps of this size, so that a signal repeats one step and not the whole.
const ALLOCATE_STEP: u64 = 16 << 20;

/// A mapping, unmapped on drop.
#[derive(Debug)]
struct Mapping {
    data: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: the type itself reads and writes nothing; those who do, do it through raw pointers and
// carry the duty to keep writers and readers apart.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes, whole pages, of the file; from the size of a huge page on at a multiple of
    /// that, so that the page table can have huge pages in it.
    fn new(fd: &OwnedFd, len: usize, prot: ProtFlags) -> Result<Self> {
        let failed = |errno| Error::os(format_args!("cannot map a region of {len} bytes"), errno);
        if len < HUGE_PAGE_BYTES {
            // SAFETY: no address is asked for, so the kernel picks one where nothing is mapped.
            let mapped = unsafe { mmap(std::ptr::null_mut(), len, prot, MapFlags::SHARED, fd, 0) };
            return Self::at(mapped.map_err(failed)?.cast(), len);
        }
        let reserved = len.checked_add(HUGE_PAGE_BYTES).ok_or(Errno::NOMEM);
        let reserved = reserved.map_err(failed)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: as above.
        let range =
            unsafe { mmap_anonymous(std::ptr::null_mut(), reserved, ProtFlags::empty(), flags) };
        // From here on its drop unmaps what has been mapped.
        let range = Self::at(range.map_err(failed)?.cast(), reserved)?;
        let front = range.data.as_ptr().align_offset(HUGE_PAGE_BYTES);
        let begin = range.data.as_ptr().wrapping_add(front);
        // SAFETY: `front` is less than a huge page, so these are `len` bytes within the range,
        // which nobody else knows of: its pages may be replaced.
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
                // SAFETY: the part of the range before the file's pages or behind them, of which
                // nobody knows.
                let _ = unsafe { munmap(start.cast(), len) };
            }
        }
        Self::at(begin, len)
    }

    /// Takes over what was mapped.
    fn at(mapped: *mut u8, len: usize) -> Result<Self> {
        let data = NonNull::new(mapped)
            .ok_or_else(|| Error::new(Status::Io, "the system mapped a region at address 0"))?;
        Ok(Self { data, len })
    }

    /// Asks for huge pages in place of what the file has, and for those that it has not; where
    /// there is no page at all in the room of one, nothing is done. Where the system gives none,
    /// the pages stay as they are.
    fn collapse(&self) {
        let whole = self.len - self.len % HUGE_PAGE_BYTES;
        for at in (0..whole).step_by(COLLAPSE_STEP) {
            let start = Instant::now();
            let len = COLLAPSE_STEP.min(whole - at);
            let step = self.data.as_ptr().wrapping_add(at);
            // SAFETY: a part of the mapping, which is ours; the advice changes no contents.
            let result = unsafe { libc::madvise(step.cast(), len, libc::MADV_COLLAPSE) };
            // Memory in pieces is put together first. What that costs once is worth it for a step,
            // not for a large region.
            if result != 0 || start.elapsed() > COLLAPSE_PATIENCE {
                return;
            }
        }
    }

    /// Maps the same file again in the same place, and enters its pages in the page table: that is
    /// cheaper now than by one fault each.
    fn populate(self, fd: &OwnedFd, prot: ProtFlags) -> Result<Self, Errno> {
        let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::POPULATE;
        // SAFETY: the mapping is ours, and nobody points into it yet: it may be replaced.
        unsafe { mmap(self.data.as_ptr().cast(), self.len, prot, flags, fd, 0) }?;
        Ok(self)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `data` and `len` are a whole mapping made by `new`, unmapped only here; whoever
        // points into it holds the owner of this value, so nobody does any more.
        // By libc, whose calls UCX watches: it forgets what it knows of the addresses.
        let unmapped = unsafe { libc::munmap(self.data.as_ptr().cast(), self.len) };
        debug_assert_eq!(unmapped, 0, "a whole mapping can always be unmapped");
    }
}

/// A region of this process: memory to lend, with the blocks that are in use.
#[derive(Debug)]
pub struct Region {
    mapping: Mapping,
    file: Memfd,
    blocks: Lendable,
}

impl Region {
    /// Makes a region of at least `len` bytes (whole pages), all of them allocated. `name` shows
    /// in `/proc/PID/maps`, as `memfd:name`.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` when the system has not the memory, `OutOfResources` when the process has no
    /// file descriptor left or may have no file so large, `InvalidArgument` when `len` is 0 or past
    /// [`MAX_REGION_BYTES`].
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
        // Whatever came of that, from here on every page is there.
        allocate(fd, len).map_err(|e| Error::os(doing(), e))?;
        let mapping = mapping
            .populate(fd, prot)
            .map_err(|e| Error::os(doing(), e))?;
        // After mapping: FUTURE_WRITE spares the writable mapping that exists.
        rustix::fs::fcntl_add_seals(fd, SEALS | SealFlags::SEAL)
            .map_err(|errno| Error::os("cannot seal a region", errno))?;
        Ok(Self {
            file,
            mapping,
            blocks: Lendable::new(len),
        })
    }

    /// The descriptor that a peer maps it by.
    pub fn fd(&self) -> &Arc<OwnedFd> {
        self.file.fd()
    }

    /// The same for a peer, of the end of whose process the system tells, where it can.
    pub(crate) fn give(&self, process: Option<&Process>) -> Arc<OwnedFd> {
        self.file.give(process)
    }

    /// Has the region count: `charge` is dropped once nobody has its memory any more.
    pub(crate) fn charge(&self, charge: FileCharge) {
        self.file.charge(charge);
    }

    /// First byte.
    pub fn base(&self) -> NonNull<u8> {
        self.mapping.data
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.mapping.len
    }

    /// Never: a region has at least one page.
    pub fn is_empty(&self) -> bool {
        self.mapping.len == 0
    }

    /// Where `len` bytes at `data` lie in the region, if they lie in it whole.
    pub fn offset_of(&self, data: *const u8, len: usize) -> Option<u64> {
        let offset = (data as usize).checked_sub(self.base().as_ptr() as usize)?;
        let fits = offset
            .checked_add(len)
            .is_some_and(|end| end <= self.mapping.len);
        fits.then(|| u64::try_from(offset).ok()).flatten()
    }
}

/// Its blocks: who uses which bytes.
impl Deref for Region {
    type Target = Lendable;

    fn deref(&self) -> &Lendable {
        &self.blocks
    }
}

/// The kernel kills a process rather than fail an allocation that cannot be met, so a length that
/// the machine plainly has not is refused first.
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

/// Allocates the first page in the room of each huge page, if there is room for one.
///
/// A memfd has huge pages by default only where the administrator says so, but the system makes one
/// of small ones when it is asked to ([`Mapping::collapse`]), and the pages that are missing then
/// are zeroed once and not copied: a region is there in a fifth of the time, and a reader has one
/// fault where it would have 512.
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

/// A region of a peer, mapped to be read.
#[derive(Debug)]
pub struct MappedRegion {
    mapping: Mapping,
}

impl MappedRegion {
    /// First byte.
    pub fn base(&self) -> NonNull<u8> {
        self.mapping.data
    }

    /// Maps the region behind `fd`, which its owner says has `len` bytes, and closes `fd`.
    ///
    /// # Errors
    ///
    /// `Protocol` when it is not a memfd sealed against shrinking, growing and writing, has
    /// another size, or has not all its pages; `OutOfMemory` when it cannot be mapped.
    pub fn map(fd: OwnedFd, len: u64) -> Result<Self> {
        let stat = rustix::fs::fstat(&fd)
            .map_err(|errno| Error::os("cannot examine the peer's region", errno))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Error::protocol("the peer's region is not a file in memory"));
        }
        check_seals(fd.as_fd())?;
        // Read after the seals were seen: from then on the size cannot change, and no page goes
        // missing.
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

    /// Never: [`map`](Self::map) refuses an empty region.
    pub fn is_empty(&self) -> bool {
        self.mapping.len == 0
    }

    /// `len` bytes at `offset`, if they lie in the region whole.
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
    // WRITE says more than FUTURE_WRITE.
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
