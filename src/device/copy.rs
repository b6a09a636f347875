//! Copies of large bodies between memories of the host.
//!
//! A body that is copied to be lent is read by another process, and the copy is larger than what a
//! core's caches hold. Stores that go past the caches spare the memory bus a read of every line that
//! is written, and writing four pages by turns keeps more lines on their way at once: on a 4th
//! generation Xeon 10.8 GB/s where the C library's `memcpy` makes 6.4. On an AMD EPYC it is the other way round, 15
//! and 20 to 25 (`docs/performance.md`). So both are timed, and the quicker one is taken.

mod choice;

use std::time::Instant;

use choice::{Choice, Way};

/// Bodies of at least this many bytes may be streamed; a smaller one is better left in the caches, where
/// the reader may find it.
const STREAM_BYTES: u64 = 256 << 10;
/// Copies of fewer bytes are not timed: it would take long beside them, and say little.
const TIMED_BYTES: usize = 64 << 10;

/// What is known of bodies of each power of two, from [`STREAM_BYTES`] on.
static CHOICES: [Choice; 8] = [const { Choice::new() }; 8];

/// Copies `len` bytes of a body of `body_len` to memory that another thread or process is to read.
/// A large body goes past the caches where the processor has a way to and that is quicker.
///
/// # Safety
///
/// As for [`std::ptr::copy_nonoverlapping`]: `source` is readable and `target` writable for `len`
/// bytes, nobody else writes to either, and they do not overlap.
pub unsafe fn copy_out(source: *const u8, target: *mut u8, len: usize, body_len: u64) {
    let Some(steps) = (body_len / STREAM_BYTES).checked_ilog2() else {
        // SAFETY: the caller promises the same.
        return unsafe { std::ptr::copy_nonoverlapping(source, target, len) };
    };
    let choice = &CHOICES[(steps as usize).min(CHOICES.len() - 1)];
    if len < TIMED_BYTES {
        // SAFETY: the caller promises the same.
        return unsafe { copy_by(choice.best(), source, target, len) };
    }
    let way = choice.next();
    let start = Instant::now();
    // SAFETY: the caller promises the same.
    unsafe { copy_by(way, source, target, len) };
    choice.note(way, start.elapsed(), len);
}

/// Copies in one of the two ways.
///
/// # Safety
///
/// As for [`copy_out`].
unsafe fn copy_by(way: Way, source: *const u8, target: *mut u8, len: usize) {
    match way {
        // SAFETY: the caller promises the same.
        Way::Streaming => unsafe { stream(source, target, len) },
        // SAFETY: the caller promises the same.
        Way::Cached => unsafe { std::ptr::copy_nonoverlapping(source, target, len) },
    }
}

/// Copies past the caches. Other threads and processes see the bytes once they see whatever is
/// written next, as after any other copy.
///
/// # Safety
///
/// As for [`copy_out`].
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

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86_64 {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};

    /// Bytes of a line of the caches.
    const LINE: usize = 64;
    /// Bytes of a page: where the processor's read-ahead ends.
    const PAGE: usize = 4096;
    /// Pages written by turns. Two and eight were slower.
    const PAGES: usize = 4;

    /// Copies a front part of `len` bytes, whose length it returns: all but what fills no group of
    /// pages.
    ///
    /// # Safety
    ///
    /// As for [`copy_out`](super::copy_out).
    pub(super) unsafe fn stream(source: *const u8, target: *mut u8, len: usize) -> usize {
        // Streaming stores go to whole, aligned lines.
        let front = target.align_offset(LINE);
        let Some(groups) = len.checked_sub(front).map(|rest| rest / (PAGES * PAGE)) else {
            return 0;
        };
        // SAFETY: `front` is at most `len`, seen above.
        unsafe { std::ptr::copy_nonoverlapping(source, target, front) };
        for group in 0..groups {
            for line in 0..PAGE / LINE {
                for page in 0..PAGES {
                    let at = front + (group * PAGES + page) * PAGE + line * LINE;
                    // SAFETY: the line ends at or before the end of this group, and that at or
                    // before `len`; with `front` added to it the target is aligned to a line.
                    unsafe { line_at(source.wrapping_add(at), target.wrapping_add(at)) };
                }
            }
        }
        // Streaming stores are ordered by nothing else, not even by the release of a lock.
        // SAFETY: every processor of this architecture has the instruction.
        unsafe { _mm_sfence() };
        front + groups * PAGES * PAGE
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
            // such a store asks for follows before `stream` returns.
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
            // SAFETY: both vectors have room for `len` bytes behind these offsets.
            unsafe { stream(source[from..].as_ptr(), target[to..].as_mut_ptr(), len) };
            prop_assert!(target[..to].iter().all(|byte| *byte == 0xAA));
            prop_assert_eq!(&target[to..to + len], &source[from..]);
            prop_assert!(target[to + len..].iter().all(|byte| *byte == 0xAA));
        }
    }
}
