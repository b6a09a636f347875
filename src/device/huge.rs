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
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use once_cell::sync::Lazy;
use parking_lot::Mutex;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

use crate::device::blocks::Blocks;
use crate::fork::Generation;

/// All of it. Of most bodies only a few MiB are used, the same again and again, which stay in a cache.
const POOL_BYTES: usize = 64 << 20;
/// The longest block: one is written while another is read.
pub const MOST_BYTES: usize = POOL_BYTES / 2;
/// The size of a huge page. Where it is another one the pages are small, and all is well.
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Says in brackets whether the system gives huge pages to all who take memory.
const SETTING: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// The last is the one that blocks are taken from, made for the first of them, and a new one where so much of it is lost. All
/// stay until the process ends, as blocks of them may be out.
static POOLS: Mutex<Vec<&'static Pool>> = Mutex::new(Vec::new());

struct Pool {
    data: NonNull<u8>,
    generation: Generation,
    state: Mutex<State>,
}

struct State {
    blocks: Blocks,
    /// Bytes that are never given out again.
    lost: usize,
}

// SAFETY: the memory belongs to the process, and only who owns a block touches its part.
unsafe impl Send for Pool {}
// SAFETY: as above; which parts are whose stands behind the lock.
unsafe impl Sync for Pool {}

impl Pool {
    /// The one to take from now; `None`: the system gives no memory, or this is a forked child, where a lock may have been held at
    /// the fork.
    fn current() -> Option<&'static Self> {
        let mut pools = POOLS.try_lock()?;
        let is_worn = |pool: &&Self| pool.is_here() && pool.state.lock().lost > POOL_BYTES / 2;
        if pools.last().is_none_or(is_worn) {
            pools.push(Box::leak(Box::new(Self::new()?)));
        }
        pools.last().copied().filter(|pool| pool.is_here())
    }

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
        // A forked child, which never touches it, would have the system split the huge pages.
        for advice in [Advice::LinuxHugepage, Advice::LinuxDontFork] {
            // SAFETY: these bytes are of the mapping made above, which has room for them behind the beginning of its first huge
            // page; nothing points to them yet.
            let _ = unsafe { madvise(begin.cast(), POOL_BYTES, advice) };
        }
        Some(Self {
            data: NonNull::new(begin)?,
            generation: Generation::now(),
            state: Mutex::new(State {
                blocks: Blocks::new(POOL_BYTES as u64),
                lost: 0,
            }),
        })
    }

    fn is_here(&self) -> bool {
        self.generation.is_same_process()
    }
}

/// Whether memory of others mostly has small pages. A copy pays then, a little also where the system has no huge pages for it:
/// two processors share the work.
pub fn pays() -> bool {
    static GIVEN_TO_ALL: Lazy<bool> =
        Lazy::new(|| fs::read_to_string(SETTING).is_ok_and(|text| is_given_to_all(&text)));
    !*GIVEN_TO_ALL
}

fn is_given_to_all(setting: &str) -> bool {
    setting.contains("[always]")
}

/// Memory in huge pages, where the system has them; readable, writable and of whole pages. What it holds is not
/// defined, but initialised.
pub struct Block {
    pool: &'static Pool,
    data: NonNull<u8>,
    offset: u64,
    /// Whole pages.
    len: usize,
}

// SAFETY: a block owns its memory alone; nothing about it belongs to a thread.
unsafe impl Send for Block {}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Block({} bytes at {:p})", self.len, self.data)
    }
}

impl Block {
    /// A block of at least `len` bytes, if there is room for it now.
    pub fn take(len: usize) -> Option<Self> {
        if len > MOST_BYTES {
            return None;
        }
        // So that each can be made unreadable by itself.
        let len = len.next_multiple_of(rustix::param::page_size());
        let pool = Pool::current()?;
        let offset = pool.state.lock().blocks.alloc(len as u64)?;
        // SAFETY: a block lies within the pool, and this one is nobody else's.
        let data = unsafe { pool.data.add(usize::try_from(offset).ok()?) };
        Some(Self {
            pool,
            data,
            offset,
            len,
        })
    }

    /// The first byte.
    pub fn data(&self) -> NonNull<u8> {
        self.data
    }

    /// Never used again: another process may still read it, and is to fail then instead of reading something else.
    pub fn abandon(self) {
        let this = ManuallyDrop::new(self);
        if !this.pool.is_here() {
            return;
        }
        // SAFETY: whole pages, which are this block's alone and which nobody of this process uses any more: it is gone. What
        // replaces them takes no memory. By libc, whose calls UCX watches: it forgets what it knows of the addresses.
        let replaced = unsafe {
            libc::mmap(
                this.data.as_ptr().cast(),
                this.len,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        if replaced == libc::MAP_FAILED {
            tracing::debug!("a body that a client may still read stays readable");
        }
        this.pool.state.lock().lost += this.len;
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // A forked child has no thread to release a lock that was held at the fork.
        if self.pool.is_here() {
            self.pool.state.lock().blocks.free(self.offset);
        }
    }
}

#[cfg(test)]
pub mod testing {
    //! What tests of the pool share.

    use super::{Mutex, NonNull};

    /// Held by a test that takes blocks.
    pub static ALONE: Mutex<()> = Mutex::new(());

    /// Whether the system could copy the byte for another process.
    pub fn reads(data: NonNull<u8>) -> bool {
        let mut byte = 0_u8;
        let to = libc::iovec {
            iov_base: (&raw mut byte).cast(),
            iov_len: 1,
        };
        let from = libc::iovec {
            iov_base: data.as_ptr().cast(),
            iov_len: 1,
        };
        let me = i32::try_from(std::process::id()).unwrap();
        // SAFETY: one byte is written, to `byte`; whether the other can be read is the system's to say.
        let read = unsafe { libc::process_vm_readv(me, &raw const to, 1, &raw const from, 1, 0) };
        read == 1
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{ALONE, reads};
    use super::*;

    /// Blocks are apart from each other and whole, and one that comes back is given out again; what finds
    /// no room is told so, and one that is abandoned cannot be read any more.
    #[test]
    fn blocks_are_apart_and_bounded() {
        let _alone = ALONE.lock();
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
        let block = Block::take(1 << 20).unwrap();
        let (pool, data) = (block.pool, block.data());
        assert!(reads(data));
        block.abandon();
        assert!(!reads(data));
        assert!(Block::take(1 << 20).is_none());
        // Another one is made before much is lost.
        for block in blocks.drain(..).take(POOL_BYTES >> 21) {
            block.abandon();
        }
        let block = Block::take(1 << 20).unwrap();
        assert!(!std::ptr::eq(block.pool, pool));
    }

    /// Linux shows the setting that holds in brackets.
    #[test]
    fn the_setting_that_holds_is_found() {
        assert!(is_given_to_all("[always] madvise never\n"));
        assert!(!is_given_to_all("always [madvise] never\n"));
        assert!(!is_given_to_all(""));
    }
}
