//! A packed body in GPU memory, for transports that send and receive it there.

use std::sync::Arc;

use crate::device::BufferRef;
use crate::device::cuda::context::Device;
use crate::device::cuda::memory::{DeviceMemory, Purpose};
use crate::device::cuda::stream::Stream;
use crate::error::{Error, Result};

/// GPU memory for one packed body (rule D3).
///
/// As for [`DeviceMemory`], no started work may use the memory when this value is dropped.
#[derive(Debug)]
pub struct GpuBody {
    memory: DeviceMemory,
    /// The memory may be longer.
    len: usize,
}

impl GpuBody {
    /// Memory for a body of `len` bytes. The caller writes all of it before anybody reads it.
    ///
    /// # Errors
    ///
    /// As [`DeviceMemory::new`].
    pub fn to_fill(device: &Arc<Device>, len: usize) -> Result<Self> {
        let memory = DeviceMemory::new(device, len, Purpose::Own)?;
        Ok(Self { memory, len })
    }

    /// Copies `parts`, each with its offset in the body, into new memory of the stream's device.
    /// Fills the gaps and the end with zeros, up to `len` bytes. The copy follows the earlier work
    /// of the stream, and this thread waits for it: the caller may free the parts afterwards.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if parts overlap, are out of order or end after `len`; `OutOfMemory`; an
    /// error of the copies or of earlier work on the device.
    ///
    /// # Safety
    ///
    /// The parts are readable on the stream's device and do not change until this call returns.
    pub unsafe fn gather(
        stream: &Arc<Stream>,
        len: usize,
        parts: impl IntoIterator<Item = (usize, BufferRef)>,
    ) -> Result<Self> {
        let body = Self::to_fill(stream.device(), len)?;
        // SAFETY: the caller promises the parts. The memory belongs to this body and lives until
        // `settle` has waited for the work.
        let enqueued = unsafe { enqueue(stream, body.address(), len, parts) };
        let settled = stream.settle();
        enqueued.and(settled)?;
        Ok(body)
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        self.memory.device()
    }

    /// The device address of the first byte, aligned to 256 bytes or more.
    pub fn address(&self) -> u64 {
        self.memory.address()
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The device addresses of `len` bytes at `offset`; `None` if the body is shorter.
    pub fn slice(&self, offset: u64, len: u64) -> Option<BufferRef> {
        let end = offset.checked_add(len)?;
        (end <= self.len as u64).then_some(())?;
        let address = usize::try_from(self.address().checked_add(offset)?).ok()?;
        Some(BufferRef {
            data: std::ptr::without_provenance(address),
            len: usize::try_from(len).ok()?,
        })
    }
}

/// Copies the parts to their offsets in `len` bytes at `target`, and zeroes the gaps.
///
/// # Safety
///
/// As [`GpuBody::gather`]; nobody else uses the memory at `target`. Both live until the stream's
/// work is done.
unsafe fn enqueue(
    stream: &Stream,
    target: u64,
    len: usize,
    parts: impl IntoIterator<Item = (usize, BufferRef)>,
) -> Result<()> {
    let wrong = || Error::invalid_argument("the buffers of a body lie outside of it");
    let mut at = 0;
    let pad = |from: usize, to: usize| {
        // SAFETY: the caller promises the memory; no part covers these bytes.
        unsafe { stream.fill(target + from as u64, 0, to - from) }
    };
    for (offset, part) in parts {
        if part.len == 0 {
            continue;
        }
        let end = offset.checked_add(part.len).filter(|end| *end <= len);
        let end = end.filter(|_| offset >= at).ok_or_else(wrong)?;
        pad(at, offset)?;
        let source = part.data.addr() as u64;
        // SAFETY: the caller promises the part, and a target with room up to `end`.
        unsafe { stream.copy(target + offset as u64, source, part.len) }?;
        at = end;
    }
    pad(at, len)
}
