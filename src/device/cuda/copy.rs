//! Copies and fills, on streams: none of these waits for what it starts.

use crate::device::cuda::context::Device;
use crate::device::cuda::stream::Stream;
use crate::error::Result;

impl Stream {
    /// Copies `len` bytes between any two places that the device reaches: its memory, another
    /// device's, the host's. From and to host memory that is not pinned the driver copies by way
    /// of memory of its own, and the call may wait for that.
    ///
    /// # Errors
    ///
    /// What the driver says; as [`Device::enter`]. What goes wrong later comes out of waiting.
    ///
    /// # Safety
    ///
    /// `source` is readable and `target` writable for `len` bytes until the stream has done it;
    /// nobody writes to the one or touches the other until then.
    pub unsafe fn copy(&self, target: u64, source: u64, len: usize) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let _current = self.device().enter()?;
        let driver = self.device().driver();
        // SAFETY: the caller promises the memory, and the stream is live.
        Ok(unsafe { driver.cuMemcpyAsync(target, source, len, self.raw()) }?)
    }

    /// [`copy`](Self::copy) between the memories of two devices, directly where they have a way to
    /// each other.
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
        let driver = self.device().driver();
        // SAFETY: the caller promises the memory; contexts of devices are never released, and the
        // stream is live.
        Ok(unsafe {
            driver.cuMemcpyPeerAsync(
                target,
                to.context(),
                source,
                from.context(),
                len,
                self.raw(),
            )
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
    /// `target` is writable for `len` bytes until the stream has done it, and nobody touches it
    /// until then.
    pub unsafe fn fill(&self, target: u64, byte: u8, len: usize) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let _current = self.device().enter()?;
        let driver = self.device().driver();
        // SAFETY: the caller promises the memory, and the stream is live.
        Ok(unsafe { driver.cuMemsetD8Async(target, byte, len, self.raw()) }?)
    }
}
