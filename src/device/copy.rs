//! Copies of bodies between memories of the host.
//!
//! Another process reads a body that is copied to be lent. Stores that bypass the caches
//! spare the memory bus a read of each line that is written, and stores to four pages in turns keep
//! more lines under way. Whether that is faster than `memcpy` depends on the processor, and on
//! whether the two processors share a cache. A virtual machine can be moved between the two cases
//! (`docs/performance.md`), so both ways are timed and the faster one is used.

mod choice;

use std::time::Instant;

use choice::{Choice, CopyMethod};

/// Bodies of at least this many bytes may be streamed. To copy a smaller one takes little beside
/// what is done for a body otherwise, and to read the clock twice would take long beside the copy.
const STREAM_BYTES: u64 = 32 << 10;

/// What is known of bodies of each power of two, from [`STREAM_BYTES`] on; the last is for all that
/// are larger.
static CHOICES: [Choice; 11] = [const { Choice::new() }; 11];

/// The copy of one body, buffer by buffer. It is whole, and another thread or process may be told
/// of it, once this is dropped.
#[derive(Debug)]
pub struct BodyCopy {
    way: CopyMethod,
    /// Bytes, and since when, of a body whose way is chosen.
    timed: Option<(&'static Choice, u64, Instant)>,
}

impl BodyCopy {
    /// Begins with a body of which `len` bytes are to be copied, that another process is to read.
    pub fn new(len: u64) -> Self {
        let steps = (len / STREAM_BYTES).checked_ilog2();
        let choice = steps.map(|steps| &CHOICES[(steps as usize).min(CHOICES.len() - 1)]);
        Self {
            way: choice.map_or(CopyMethod::Cached, Choice::next),
            timed: choice.map(|choice| (choice, len, Instant::now())),
        }
    }

    /// Copies a buffer of the body.
    ///
    /// # Safety
    ///
    /// As for [`std::ptr::copy_nonoverlapping`]: `source` is readable and `target` writable for
    /// `len` bytes, nobody else writes to either, and they do not overlap. Nobody is told of the
    /// bytes at `target` before this copy is dropped.
    pub unsafe fn add(&mut self, source: *const u8, target: *mut u8, len: usize) {
        match self.way {
            // SAFETY: the caller promises the same, and `drop` has the fence.
            CopyMethod::Streaming => unsafe { stream(source, target, len) },
            // SAFETY: the caller promises the same.
            CopyMethod::Cached => unsafe { std::ptr::copy_nonoverlapping(source, target, len) },
        }
    }
}

impl Drop for BodyCopy {
    fn drop(&mut self) {
        if self.way == CopyMethod::Streaming {
            fence();
        }
        if let Some((choice, len, start)) = self.timed {
            choice.note(self.way, start.elapsed(), len);
        }
    }
}

/// Copies past the caches. Others see the bytes once they see what is written after a [`fence`].
///
/// # Safety
///
/// As for [`std::ptr::copy_nonoverlapping`].
unsafe fn stream(source: *const u8, target: *mut u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the caller promises the same.
    let done = unsafe { x86_64::stream(source, target, len) };
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let done = 0;
    let (source, target) = (source.wrapping_add(done), target.wrapping_add(done));
    // SAFETY: what is left of the caller's memory: `done` is at most `len`.
    unsafe { std::ptr::copy_nonoverlapping(source, target, len - done) };
}

/// Orders streaming stores before all that is written next: nothing else does, not even the release
/// of a lock.
fn fence() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every processor of this architecture has the instruction.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86_64 {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};

    /// Bytes of a line of the caches.
    const LINE: usize = 64;
    /// Bytes of a page: where the processor's read-ahead ends.
    const PAGE: usize = 4096;
    /// Pages written by turns. Two and eight were slower.
    const PAGES: usize = 4;

    /// Copies a front part of `len` bytes, whose length it returns: all but what fills no line.
    ///
    /// # Safety
    ///
    /// As for [`stream`](super::stream).
    pub(super) unsafe fn stream(source: *const u8, target: *mut u8, len: usize) -> usize {
        // Streaming stores go to whole, aligned lines.
        let front = target.align_offset(LINE);
        if front > len {
            return 0;
        }
        // SAFETY: `front` is at most `len`, seen above.
        unsafe { std::ptr::copy_nonoverlapping(source, target, front) };
        let mut done = front;
        while done + LINE <= len {
            let pages = ((len - done) / PAGE).min(PAGES);
            // The last lines fill no page.
            let lines = if pages == 0 {
                (len - done) / LINE
            } else {
                PAGE / LINE
            };
            let pages = pages.max(1);
            for line in 0..lines {
                for page in 0..pages {
                    let at = done + page * PAGE + line * LINE;
                    // SAFETY: the line ends at or before the end of these pages or lines, and that
                    // at or before `len`; what is `done` ends at a line of the target.
                    unsafe { line_at(source.wrapping_add(at), target.wrapping_add(at)) };
                }
            }
            done += pages * lines * LINE;
        }
        done
    }

    /// Copies one line.
    ///
    /// # Safety
    ///
    /// `source` is readable and `target` writable for a line, and `target` is aligned to one.
    #[inline(always)]
    unsafe fn line_at(source: *const u8, target: *mut u8) {
        let source = source.cast::<__m128i>();
        let target = target.cast::<__m128i>();
        for part in 0..LINE / size_of::<__m128i>() {
            // SAFETY: a part of the caller's line; the load asks for no alignment.
            let bytes = unsafe { _mm_loadu_si128(source.wrapping_add(part)) };
            // SAFETY: as above; parts of an aligned line are aligned to their size. The fence that
            // such a store asks for follows when the copy of the body is dropped.
            unsafe { _mm_stream_si128(target.wrapping_add(part), bytes) };
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Every byte arrives, and none is written before or behind, at any alignment and length.
        #[test]
        fn every_byte_arrives(
            len in 0usize..100_000,
            from in 0usize..200,
            to in 0usize..200,
        ) {
            let source: Vec<u8> = (0..=250u8).cycle().take(from + len).collect();
            let mut target = vec![0xAA; to + len + 100];
            let mut copy = BodyCopy {
                way: CopyMethod::Streaming,
                timed: None,
            };
            // SAFETY: both vectors have room for `len` bytes behind these offsets.
            unsafe { copy.add(source[from..].as_ptr(), target[to..].as_mut_ptr(), len) };
            drop(copy);
            prop_assert!(target[..to].iter().all(|byte| *byte == 0xAA));
            prop_assert_eq!(&target[to..to + len], &source[from..]);
            prop_assert!(target[to + len..].iter().all(|byte| *byte == 0xAA));
        }
    }
}
