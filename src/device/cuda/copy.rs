//! Copies and fills on streams. The functions do not wait for the work that they start.

use crate::device::cuda::context::Device;
use crate::device::cuda::stream::Stream;
use crate::error::Result;

impl Stream {
    /// Copies `len` bytes between any memories that the device reaches: its own, another device's,
    /// the host's. For host memory that is not pinned, the driver copies through its own memory,
    /// and the call may wait.
    ///
    /// # Errors
    ///
    /// The driver's error; as [`Device::enter`]. A later wait reports errors of the copy itself.
    ///
    /// # Safety
    ///
    /// `source` is readable and `target` writable for `len` bytes until the copy is done. Until
    /// then nobody writes to `source` or uses `target`.
    pub unsafe fn copy(&self, target: u64, source: u64, len: usize) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let _current = self.device().enter()?;
        let driver = self.device().driver;
        // SAFETY: the caller promises the memory, and the stream is live.
        Ok(unsafe { driver.cuMemcpyAsync(target, source, len, self.raw()) }?)
    }

    /// [`copy`](Self::copy) between the memories of two devices, directly if they are connected.
    ///
    /// # Errors
    ///
    /// As [`copy`](Self::copy).
    ///
    /// # Safety
    ///
    /// As [`copy`](Self::copy), with `target` on `to` and `source` on `from`.
    pub unsafe fn copy_between(
        &self,
        (to, target): (&Device, u64),
        (from, source): (&Device, u64),
        len: usize,
    ) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let _current = self.device().enter()?;
        let driver = self.device().driver;
        // SAFETY: the caller promises the memory. Contexts of devices are never released, and the
        // stream is live.
        Ok(unsafe {
            driver.cuMemcpyPeerAsync(target, to.context, source, from.context, len, self.raw())
        }?)
    }

    /// Writes `byte` to `len` bytes of the device's memory.
    ///
    /// # Errors
    ///
    /// As [`copy`](Self::copy).
    ///
    /// # Safety
    ///
    /// `target` is writable for `len` bytes until the fill is done, and nobody uses it until then.
    pub unsafe fn fill(&self, target: u64, byte: u8, len: usize) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let _current = self.device().enter()?;
        let driver = self.device().driver;
        // SAFETY: the caller promises the memory, and the stream is live.
        Ok(unsafe { driver.cuMemsetD8Async(target, byte, len, self.raw()) }?)
    }
}
