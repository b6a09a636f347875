//! A packed body in a GPU's memory, for transports that send and receive it there.

use std::sync::Arc;

use crate::device::BufferRef;
use crate::device::cuda::context::Device;
use crate::device::cuda::memory::{DeviceMemory, Purpose};
use crate::device::cuda::stream::Stream;
use crate::error::{Error, Result};

/// Memory of a GPU that holds one packed body (rule D3), or is to be filled with one.
///
/// As [`DeviceMemory`], it is dropped when nothing that was started uses it any more.
#[derive(Debug)]
pub struct GpuBody {
    memory: DeviceMemory,
    /// The memory may be longer.
    len: usize,
}

impl GpuBody {
    /// Memory for a body of `len` bytes, to be filled whole before anybody reads it.
    ///
    /// # Errors
    ///
    /// As [`DeviceMemory::new`].
    pub fn to_fill(device: &Arc<Device>, len: usize) -> Result<Self> {
        let memory = DeviceMemory::new(device, len, Purpose::Own)?;
        Ok(Self { memory, len })
    }

    /// Copies `parts`, each with its offset in the body, into memory of the stream's device, with
    /// zeros between them and behind the last, to `len` bytes. It is behind what the stream was
    /// given before, and waits on this thread until it is done: the parts may go then.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` where parts overlap, are not in order or end behind `len`; `OutOfMemory`;
    /// what went wrong with the copies, or earlier on the device.
    ///
    /// # Safety
    ///
    /// The parts are readable on the stream's device, and stay as they are until this returns.
    pub unsafe fn gather(
        stream: &Arc<Stream>,
        len: usize,
        parts: impl IntoIterator<Item = (usize, BufferRef)>,
    ) -> Result<Self> {
        let body = Self::to_fill(stream.device(), len)?;
        // SAFETY: the caller promises the parts; the memory is new to this body and lives until
        // nothing writes there any more, for which the next call waits.
        let enqueued = unsafe { enqueue(stream, body.address(), len, parts) };
        let settled = stream.settle();
        enqueued.and(settled)?;
        Ok(body)
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        self.memory.device()
    }

    /// The first byte, for the device; aligned to 256 bytes or more.
    pub fn address(&self) -> u64 {
        self.memory.address()
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The run of `len` bytes at `offset`, as a device address; `None` where the body ends before.
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

/// Copies the parts to their places in `len` bytes at `target`, and fills what is between.
///
/// # Safety
///
/// As [`GpuBody::gather`]; the memory at `target` is nobody else's. Both stay until the stream has
/// done what it was given.
unsafe fn enqueue(
    stream: &Stream,
    target: u64,
    len: usize,
    parts: impl IntoIterator<Item = (usize, BufferRef)>,
) -> Result<()> {
    let wrong = || Error::invalid_argument("the buffers of a body lie outside of it");
    let mut at = 0;
    let pad = |from: usize, to: usize| {
        // SAFETY: the caller promises the memory; these bytes of it are no part's.
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
        // SAFETY: the caller promises the part and the target, which has room up to `end`.
        unsafe { stream.copy(target + offset as u64, source, part.len) }?;
        at = end;
    }
    pad(at, len)
}
