//! A little memory in huge pages, for bodies that another process has the system copy out of this one.
//!
//! Whoever reads another process's memory by the system (`process_vm_readv`, which UCX's cma calls) has each page
//! of it pinned, which takes longer than copying it where pages are of 4 KiB: 10 GB/s on a machine that reads 20 to 30
//! out of huge pages. So it pays to copy a body into these first, at the producer's processor, while the
//! consumer's reads the one before.
//!
//! All connections of the process share it, and what finds no room is sent from where it lies: it is never waited for, and
//! what a consumer leaves unread takes no more.

use std::fs;
use std::ptr::NonNull;

use once_cell::sync::Lazy;
use parking_lot::Mutex;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

use crate::device::blocks::Blocks;
use crate::fork::Generation;

/// All of it: no more than second and third caches hold, so that what was just copied is read from there.
const POOL_BYTES: usize = 64 << 20;
/// The longest block: one is written while another is read.
pub const MOST_BYTES: usize = POOL_BYTES / 2;
/// The size of a huge page. Where it is another one the pages are small, and all is well.
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Says in brackets whether the system gives huge pages to all who take memory.
const SETTING: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// Made for the first block, and kept until the process ends. `None`: the system gave no memory.
static POOL: Lazy<Option<Pool>> = Lazy::new(Pool::new);

struct Pool {
    data: NonNull<u8>,
    blocks: Mutex<Blocks>,
    generation: Generation,
}

// SAFETY: the memory belongs to the process, and only who owns a block touches its part.
unsafe impl Send for Pool {}
// SAFETY: as above; which parts are whose stands behind the lock.
unsafe impl Sync for Pool {}

impl Pool {
    fn new() -> Option<Self> {
        // SAFETY: a new private mapping at an address that the system chooses touches nobody's.
        let mapped = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                POOL_BYTES + HUGE_PAGE_BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        let mapped = mapped.ok()?.cast::<u8>();
        // What is before the first huge page, and behind the last, is never touched, and takes no memory.
        let begin = mapped.wrapping_add(mapped.align_offset(HUGE_PAGE_BYTES));
        // SAFETY: these bytes are of the mapping made above, which has room for them behind its first huge page's beginning;
        // the advice changes no contents.
        let _ = unsafe { madvise(begin.cast(), POOL_BYTES, Advice::LinuxHugepage) };
        Some(Self {
            data: NonNull::new(begin)?,
            blocks: Mutex::new(Blocks::new(POOL_BYTES as u64)),
            generation: Generation::now(),
        })
    }
}

/// Whether memory of others mostly has small pages, so that a copy into huge ones pays.
pub fn pays() -> bool {
    static GIVEN_TO_ALL: Lazy<bool> =
        Lazy::new(|| fs::read_to_string(SETTING).is_ok_and(|text| is_given_to_all(&text)));
    !*GIVEN_TO_ALL
}

fn is_given_to_all(setting: &str) -> bool {
    setting.contains("[always]")
}

/// Memory in huge pages, where the system has them; readable, writable and aligned to 64 bytes. What it holds is not
/// defined, but initialised.
#[derive(Debug)]
pub struct Block {
    data: NonNull<u8>,
    offset: u64,
}

// SAFETY: a block owns its memory alone; nothing about it belongs to a thread.
unsafe impl Send for Block {}

impl Block {
    /// A block of `len` bytes, if there is room for it now.
    pub fn take(len: usize) -> Option<Self> {
        if len > MOST_BYTES {
            return None;
        }
        let pool = POOL.as_ref()?;
        if !pool.generation.is_same_process() {
            return None;
        }
        let offset = pool.blocks.lock().alloc(len as u64)?;
        // SAFETY: a block lies within the pool, and this one is nobody else's.
        let data = unsafe { pool.data.add(usize::try_from(offset).ok()?) };
        Some(Self { data, offset })
    }

    /// The first byte.
    pub fn data(&self) -> NonNull<u8> {
        self.data
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // A forked child has no thread to release a lock that was held at the fork.
        if let Some(pool) = POOL.as_ref()
            && pool.generation.is_same_process()
        {
            pool.blocks.lock().free(self.offset);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks are apart from each other and whole, and one that comes back is given out again; what finds
    /// no room is told so.
    #[test]
    fn blocks_are_apart_and_bounded() {
        assert!(Block::take(MOST_BYTES + 1).is_none());
        let mut blocks = Vec::new();
        while let Some(block) = Block::take(1 << 20) {
            // SAFETY: the block has so many bytes.
            unsafe {
                block
                    .data()
                    .write_bytes(u8::try_from(blocks.len()).unwrap(), 1 << 20)
            };
            blocks.push(block);
            assert!(blocks.len() <= POOL_BYTES >> 20);
        }
        for (index, block) in blocks.iter().enumerate() {
            assert_eq!(block.data().as_ptr() as usize % 64, 0);
            // SAFETY: as above, and written.
            let bytes = unsafe { std::slice::from_raw_parts(block.data().as_ptr(), 1 << 20) };
            assert!(bytes.iter().all(|byte| usize::from(*byte) == index));
        }
        assert!(blocks.pop().is_some());
        assert!(Block::take(1 << 20).is_some());
    }

    /// Linux shows the setting that holds in brackets.
    #[test]
    fn the_setting_that_holds_is_found() {
        assert!(is_given_to_all("[always] madvise never\n"));
        assert!(!is_given_to_all("always [madvise] never\n"));
        assert!(!is_given_to_all(""));
    }
}
