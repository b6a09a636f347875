//! Reads of the producer's memory, on the host or on a GPU.

use super::bits::{BitRange, Bits};
use super::fault::Checked;
use super::remote::Remote;
use crate::device::BufferRef;

/// The access to values of buffers. The encoder reads little: first and last offsets, run ends,
/// bitmaps to count or move. Only dictionaries to compare are read as a whole.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProducerMemory<'a> {
    /// The fetched parts of the array, if the processor cannot read its memory.
    remote: Option<&'a Remote>,
}

impl<'a> ProducerMemory<'a> {
    /// Memory that the processor reads.
    pub(super) const HOST: Self = Self { remote: None };

    /// Memory of which only the fetched parts can be read.
    pub(super) fn remote(remote: &'a Remote) -> Self {
        Self {
            remote: Some(remote),
        }
    }

    /// The fetched parts, if the processor cannot read the memory.
    pub(super) fn as_remote(self) -> Option<&'a Remote> {
        self.remote
    }

    /// True if the processor reads the memory.
    #[inline]
    pub(super) fn is_host(self) -> bool {
        self.remote.is_none()
    }

    /// True if requested parts are not fetched yet.
    pub(super) fn is_waiting(self) -> bool {
        self.remote.is_some_and(Remote::is_waiting)
    }

    // Inlined: on the host this is a test of a pointer for each number.
    /// # Errors
    ///
    /// On a GPU: the buffer is not fetched yet, and is now requested.
    ///
    /// # Safety
    ///
    /// The buffer lies in the memory of this value and lives for `'a`, and nobody writes to it.
    #[inline(always)]
    pub(super) unsafe fn read(self, buffer: BufferRef) -> Checked<&'a [u8]> {
        match self.remote {
            // SAFETY: this value is for memory that the processor reads; the caller promises the
            // rest.
            None => Ok(unsafe { buffer.as_slice() }),
            Some(remote) => remote.read(buffer),
        }
    }

    /// The number of 0 bits.
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
