//! Memory of this host that another process can read: sealed memfds.
//!
//! [`Region`] is the owner's side, with the blocks; [`MappedRegion`] is the receiver's mapping. The
//! receiver can trust the mapping because of the seals: the file cannot shrink (no SIGBUS), and no
//! later mapping of it is writable.

use std::collections::HashMap;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, FileType, SealFlags, Stat};
use rustix::io::{Errno, retry_on_intr};
use rustix::mm::{MapFlags, ProtFlags, mmap};

use crate::device::BufferRef;
pub use crate::device::lendable::Freed;
use crate::device::lendable::Lendable;
use crate::device::memfd::{FileCharge, Memfd, Process, ensure_whole};
use crate::device::offset_within;
use crate::error::{Error, Result, Status};
use crate::fork::PerProcess;

/// Most bytes of a region: an address on the wire has 48 bits for the offset.
pub const MAX_REGION_BYTES: u64 = 1 << 48;

/// The seals that a receiver requires.
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::FUTURE_WRITE);

/// Pages are allocated in steps of this many bytes, so that after a signal only one step is
/// repeated.
const ALLOCATE_STEP: u64 = 16 << 20;

/// A mapping that is unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    pub(crate) data: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: the type reads and writes nothing. Its users access the memory through raw pointers, and
// must keep writers and readers apart.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of the file; `len` is whole pages.
    pub(crate) fn new(fd: &OwnedFd, len: usize, prot: ProtFlags, flags: MapFlags) -> Result<Self> {
        // SAFETY: without an address hint the kernel picks an unmapped address.
        let mapped = unsafe { mmap(std::ptr::null_mut(), len, prot, flags, fd, 0) };
        let mapped = mapped.map_err(|errno| {
            Error::os(format_args!("cannot map a region of {len} bytes"), errno)
        })?;
        let data = NonNull::new(mapped.cast())
            .ok_or_else(|| Error::new(Status::Io, "the system mapped a region at address 0"))?;
        Ok(Self { data, len })
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
        allocate(fd, len).map_err(|e| Error::os(doing(), e))?;
        // The page table is filled at once. Later faults, one for each page, would cost more.
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        let mapping = Mapping::new(fd, map_len, prot, flags)?;
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

    /// The offset of `len` bytes at `data`, if all of them lie in the region.
    pub fn offset_of(&self, data: *const u8, len: usize) -> Option<u64> {
        let base = self.base().as_ptr() as u64;
        offset_within((base, self.len()), data as u64, len)
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

fn allocate(fd: &OwnedFd, len: u64) -> Result<(), Errno> {
    let mut done = 0;
    while done < len {
        let step = ALLOCATE_STEP.min(len - done);
        retry_on_intr(|| rustix::fs::fallocate(fd, FallocateFlags::empty(), done, step))?;
        done += step;
    }
    Ok(())
}

/// Identifies a file among those that are open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct FileId {
    device: u64,
    inode: u64,
}

/// Peers' regions that this process has mapped. While a file is mapped, its number cannot be given
/// to another file.
static MAPPED: PerProcess<Mutex<HashMap<FileId, Weak<Mapping>>>> = PerProcess::new(Mutex::default);

/// A region of a peer, mapped read-only. All connections of a process to one peer share a mapping.
#[derive(Debug)]
pub struct MappedRegion {
    mapping: Arc<Mapping>,
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
        let stat = examine(&fd, len, SEALS, "region")?;
        let id = FileId {
            device: stat.st_dev,
            inode: stat.st_ino,
        };
        let mut mapped = MAPPED.get().lock();
        if let Some(mapping) = mapped.get(&id).and_then(Weak::upgrade) {
            return Ok(Self { mapping });
        }
        ensure_whole(&fd, len, "the peer's region")?;
        let map_len = usize::try_from(len)
            .map_err(|_| Error::protocol("the peer's region is larger than the address space"))?;
        let mapping = Mapping::new(&fd, map_len, ProtFlags::READ, MapFlags::SHARED)?;
        let mapping = Arc::new(mapping);
        mapped.retain(|_, mapping| mapping.strong_count() > 0);
        mapped.insert(id, Arc::downgrade(&mapping));
        Ok(Self { mapping })
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.mapping.len
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

/// Checks that the peer's `fd` is a memfd of `len` bytes with `required` seals. `what` names it.
///
/// # Errors
///
/// `Protocol` if it is not.
pub(crate) fn examine(fd: &OwnedFd, len: u64, required: SealFlags, what: &str) -> Result<Stat> {
    let failed = |errno| Error::os(format_args!("cannot examine the peer's {what}"), errno);
    let stat = rustix::fs::fstat(fd).map_err(failed)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        let text = format!("the peer's {what} is not a file in memory");
        return Err(Error::protocol(text));
    }
    ensure_sealed(fd, required, what)?;
    // Read after the check of the seals, because only sealed files keep their size and pages.
    let stat = rustix::fs::fstat(fd).map_err(failed)?;
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    if size != len || size == 0 || size > MAX_REGION_BYTES {
        return Err(Error::protocol(format!(
            "the peer announced a {what} of {len} bytes and sent one of {size}"
        )));
    }
    Ok(stat)
}

fn ensure_sealed(fd: &OwnedFd, required: SealFlags, what: &str) -> Result<()> {
    let seals = rustix::fs::fcntl_get_seals(fd).map_err(|errno| match errno {
        Errno::INVAL => {
            Error::protocol(format!("the peer's {what} is a file that cannot be sealed"))
        }
        _ => Error::os(
            format_args!("cannot read the seals of the peer's {what}"),
            errno,
        ),
    })?;
    let missing = required.difference(seals);
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
        "the peer's {what} lacks the seals {}",
        names.join(", ")
    )))
}

#[cfg(test)]
#[path = "region_tests.rs"]
mod tests;
