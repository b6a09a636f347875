//! Copies of bodies between memories of the host.
//!
//! Another process reads the copied body. Streaming stores bypass the caches and save the memory
//! bus a read of each written line. Stores to four pages in turn keep more lines under way. The
//! processor, and whether both processes share a cache, decide if streaming is faster than
//! `memcpy`. A virtual machine can move between the two cases (`docs/performance.md`), so this
//! module times both methods and uses the faster.

mod choice;

use std::time::Instant;

use choice::{Choice, CopyMethod};

/// Only bodies of at least this many bytes are timed and streamed. For a smaller body the two reads
/// of the clock would take long, compared with the copy.
const STREAM_BYTES: u64 = 32 << 10;

/// One choice for each power of two of the body size, from [`STREAM_BYTES`] on; the last choice is
/// for all larger bodies.
static CHOICES: [Choice; 11] = [const { Choice::new() }; 11];

/// The copy of one body, buffer by buffer. The copy is complete when this value is dropped;
/// announce it to other threads and processes only then.
#[derive(Debug)]
pub struct BodyCopy {
    method: CopyMethod,
    /// The choice, the body's bytes and the start of the copy, for timing.
    timed: Option<(&'static Choice, u64, Instant)>,
}

impl BodyCopy {
    /// Begins the copy of a body of `len` bytes that another process will read.
    pub fn new(len: u64) -> Self {
        let steps = (len / STREAM_BYTES).checked_ilog2();
        let choice = steps.map(|steps| &CHOICES[(steps as usize).min(CHOICES.len() - 1)]);
        Self {
            method: choice.map_or(CopyMethod::Cached, Choice::next),
            timed: choice.map(|choice| (choice, len, Instant::now())),
        }
    }

    /// Copies a buffer of the body.
    ///
    /// # Safety
    ///
    /// As for [`std::ptr::copy_nonoverlapping`]: `source` is readable and `target` writable for
    /// `len` bytes, nobody else writes to either, and they do not overlap. The caller announces the
    /// bytes at `target` only after this copy is dropped.
    pub unsafe fn add(&mut self, source: *const u8, target: *mut u8, len: usize) {
        match self.method {
            // SAFETY: the caller promises the same, and `drop` has the fence.
            CopyMethod::Streaming => unsafe { stream(source, target, len) },
            // SAFETY: the caller promises the same.
            CopyMethod::Cached => unsafe { std::ptr::copy_nonoverlapping(source, target, len) },
        }
    }
}

impl Drop for BodyCopy {
    fn drop(&mut self) {
        if self.method == CopyMethod::Streaming {
            fence();
        }
        if let Some((choice, len, start)) = self.timed {
            choice.note(self.method, start.elapsed(), len);
        }
    }
}

/// Copies with streaming stores. Readers see the bytes if they see a write after a [`fence`].
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
    // SAFETY: the rest of the caller's memory: `done` is at most `len`.
    unsafe { std::ptr::copy_nonoverlapping(source, target, len - done) };
}

/// Orders streaming stores before all later stores. Nothing else does, not even the release of a
/// lock.
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

    /// Bytes of a cache line.
    const LINE: usize = 64;
    /// Bytes of a page, the limit of the processor's prefetch.
    const PAGE: usize = 4096;
    /// Pages written in turn.
    const PAGES: usize = 4;

    /// Copies the front part that consists of whole lines, and returns its length.
    ///
    /// # Safety
    ///
    /// As for [`stream`](super::stream).
    pub(super) unsafe fn stream(source: *const u8, target: *mut u8, len: usize) -> usize {
        // Streaming stores need whole, aligned lines.
        let front = target.align_offset(LINE);
        if front > len {
            return 0;
        }
        // SAFETY: `front` is at most `len`, as checked above.
        unsafe { std::ptr::copy_nonoverlapping(source, target, front) };
        let mut done = front;
        while done + LINE <= len {
            let pages = ((len - done) / PAGE).min(PAGES);
            // The last lines do not fill a page.
            let lines = if pages == 0 {
                (len - done) / LINE
            } else {
                PAGE / LINE
            };
            let pages = pages.max(1);
            for line in 0..lines {
                for page in 0..pages {
                    let at = done + page * PAGE + line * LINE;
                    // SAFETY: the line ends within `pages * lines` lines behind `done`, which end
                    // at or before `len`. `done` is at the start of a line of the target.
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
    /// `source` is readable and `target` writable for a line, and `target` is aligned to a line.
    #[inline(always)]
    unsafe fn line_at(source: *const u8, target: *mut u8) {
        let source = source.cast::<__m128i>();
        let target = target.cast::<__m128i>();
        for part in 0..LINE / size_of::<__m128i>() {
            // SAFETY: a part of the caller's line; the load needs no alignment.
            let bytes = unsafe { _mm_loadu_si128(source.wrapping_add(part)) };
            // SAFETY: a part of the caller's line, which is writable and aligned, so each part is
            // aligned to its size. The fence for the streaming stores follows when the `BodyCopy`
            // is dropped.
            unsafe { _mm_stream_si128(target.wrapping_add(part), bytes) };
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// All bytes are copied, and no others are written, at any alignment and length.
        #[test]
        fn every_byte_arrives(
            len in 0usize..100_000,
            from in 0usize..200,
            to in 0usize..200,
        ) {
            let source: Vec<u8> = (0..=250u8).cycle().take(from + len).collect();
            let mut target = vec![0xAA; to + len + 100];
            let mut copy = BodyCopy {
                method: CopyMethod::Streaming,
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
