//! Reading the producer's memory, wherever it is.

use super::bits::{BitRange, Bits};
use super::fault::Checked;
use super::remote::Remote;
use crate::device::BufferRef;

/// How the values of buffers are read. What the encoder reads is small (offsets at the ends,
/// bitmaps that must be counted or moved, run ends), apart from dictionaries that must be compared.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProducerMemory<'a> {
    /// What has been fetched of the array, where the processor does not see its memory.
    remote: Option<&'a Remote>,
}

impl<'a> ProducerMemory<'a> {
    /// Memory that the processor reads.
    pub(super) const HOST: Self = Self { remote: None };

    /// Memory of which only what has been fetched can be read.
    pub(super) fn remote(remote: &'a Remote) -> Self {
        Self {
            remote: Some(remote),
        }
    }

    /// What has been fetched, where the processor does not see the memory.
    pub(super) fn as_remote(self) -> Option<&'a Remote> {
        self.remote
    }

    /// Whether the processor reads it.
    #[inline]
    pub(super) fn is_host(self) -> bool {
        self.remote.is_none()
    }

    /// Whether something is to be fetched first.
    pub(super) fn is_waiting(self) -> bool {
        self.remote.is_some_and(Remote::is_waiting)
    }

    // Inlined: on the host this is a test of a pointer, for each number that is read.
    /// # Errors
    ///
    /// Of memory that the processor does not see: it is to be fetched first.
    ///
    /// # Safety
    ///
    /// The buffer lies in the memory that this was made for, lives for `'a`, and nobody writes to
    /// it.
    #[inline(always)]
    pub(super) unsafe fn read(self, buffer: BufferRef) -> Checked<&'a [u8]> {
        match self.remote {
            // SAFETY: this was made for memory that the processor reads; the caller promises the
            // rest.
            None => Ok(unsafe { buffer.as_slice() }),
            Some(remote) => remote.read(buffer),
        }
    }

    /// How many of the bits are 0.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    ///
    /// # Safety
    ///
    /// As [`read`](Self::read).
    pub(super) unsafe fn zeros(self, range: BitRange) -> Checked<usize> {
        if let Some(remote) = self.remote {
            return remote.zeros(range);
        }
        // SAFETY: the caller promises the same.
        let bytes = unsafe { self.read(range.buffer) }?;
        Ok(Bits::new(bytes, range.first, range.len).zeros())
    }
}
