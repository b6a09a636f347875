//! Streams: work of this process in order, parallel to the work of other streams. Copies and fills
//! do not wait for the work that they start.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::sys::{CUevent, CUstream};
use once_cell::sync::OnceCell;

use crate::device::cuda::context::Device;
use crate::device::cuda::event::Event;
use crate::device::cuda::failure::{Failure, code};
use crate::error::{Error, Result};

/// `CU_STREAM_NON_BLOCKING`: work of the host program on the default stream and work on this stream
/// do not wait for each other.
const NON_BLOCKING: u32 = 1;

/// A stream executes its work in order.
#[derive(Debug)]
pub struct Stream {
    device: Arc<Device>,
    raw: CUstream,
    /// The event of [`settle`](Stream::settle).
    done: OnceCell<Event>,
}

// SAFETY: the driver's functions take the handle `raw` on any thread, under the context of
// `device`, which every method enters.
unsafe impl Send for Stream {}
// SAFETY: several threads may call the driver's functions with this handle at once, under the
// context of `device`, which every method enters.
unsafe impl Sync for Stream {}

impl Stream {
    /// A new stream of `device`.
    ///
    /// # Errors
    ///
    /// The driver's error; as [`Device::enter`].
    pub fn new(device: &Arc<Device>) -> Result<Self> {
        let _current = device.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` is writable, and the device's context is current.
        unsafe { device.driver.cuStreamCreate(&raw mut raw, NON_BLOCKING) }?;
        Ok(Self {
            device: Arc::clone(device),
            raw,
            done: OnceCell::new(),
        })
    }

    /// The device of the stream.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The driver's handle, which lives as long as the stream.
    pub fn raw(&self) -> CUstream {
        self.raw
    }

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
        let _current = self.device.enter()?;
        let driver = self.device.driver;
        // SAFETY: the caller promises the memory, and the stream is live.
        Ok(unsafe { driver.cuMemcpyAsync(target, source, len, self.raw) }?)
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
        let _current = self.device.enter()?;
        let driver = self.device.driver;
        // SAFETY: the caller promises the memory. Contexts of devices are never released, and the
        // stream is live.
        Ok(unsafe {
            driver.cuMemcpyPeerAsync(target, to.context, source, from.context, len, self.raw)
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
        let _current = self.device.enter()?;
        let driver = self.device.driver;
        // SAFETY: the caller promises the memory, and the stream is live.
        Ok(unsafe { driver.cuMemsetD8Async(target, byte, len, self.raw) }?)
    }

    /// Makes later work of the stream wait for `event`; the caller does not wait. The event may be
    /// of another device, and may be dropped afterwards.
    ///
    /// # Errors
    ///
    /// The driver's error; as [`Device::enter`].
    pub fn wait(&self, event: &Event) -> Result<()> {
        // SAFETY: the borrowed event is live, and comes from the driver.
        unsafe { self.wait_raw(event.raw()) }
    }

    /// [`wait`](Self::wait) for the `sync_event` of an `ArrowDeviceArray`. It is NULL if the memory
    /// is ready, and else a pointer to the event (Arrow: `cudaEvent_t*`).
    ///
    /// # Errors
    ///
    /// `InvalidData` if the driver does not know the event, or its context was destroyed; as
    /// [`wait`](Self::wait).
    ///
    /// # Safety
    ///
    /// `sync_event` is NULL or points to an event that is live during the call. The C device data
    /// interface guarantees that for an array that is not released.
    pub unsafe fn wait_for_producer(&self, sync_event: *const c_void) -> Result<()> {
        if sync_event.is_null() {
            return Ok(());
        }
        // SAFETY: the caller promises that `sync_event` points to the handle of an event.
        let event = unsafe { sync_event.cast::<CUevent>().read_unaligned() };
        if event.is_null() {
            return Ok(());
        }
        // SAFETY: the caller promises a live event.
        let waiting = unsafe { self.wait_raw(event) };
        waiting.map_err(|error| error.context("the producer's sync_event cannot be waited for"))
    }

    /// # Safety
    ///
    /// `event` is a live event of the driver.
    unsafe fn wait_raw(&self, event: CUevent) -> Result<()> {
        let _current = self.device.enter()?;
        // SAFETY: this value owns the live stream; the caller promises a live event.
        Ok(unsafe { self.device.driver.cuStreamWaitEvent(self.raw, event, 0) }?)
    }

    /// Waits on this thread until all work of this stream is done. Other streams go on.
    ///
    /// # Errors
    ///
    /// An error of the work, or of earlier work on the device.
    pub fn synchronize(&self) -> Result<()> {
        let _current = self.device.enter()?;
        // SAFETY: this value owns the live stream.
        Ok(unsafe { self.device.driver.cuStreamSynchronize(self.raw) }?)
    }

    /// Sleeps until all work of this stream is done. Afterwards others may use the work's memory,
    /// even if this call returns an error.
    ///
    /// # Errors
    ///
    /// An error of the work, or of earlier work on the device.
    pub fn settle(&self) -> Result<()> {
        let asleep = || -> Result<()> {
            let done = self.done.get_or_try_init(|| Event::new(&self.device))?;
            done.record(self)?;
            done.synchronize()
        };
        // Any call may report an earlier error, but the memory is free only at the end of the work.
        // A device that fails every time does no more work.
        asleep()
            .or_else(|_| self.synchronize())
            .or_else(|_| self.synchronize())
    }

    /// True if all work of the stream is done.
    ///
    /// # Errors
    ///
    /// As [`synchronize`](Self::synchronize).
    pub fn is_idle(&self) -> Result<bool> {
        let _current = self.device.enter()?;
        // SAFETY: this value owns the live stream.
        ready(unsafe { self.device.driver.cuStreamQuery(self.raw) })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let outcome = self.device.enter_to_drop().and_then(|_current| {
            // SAFETY: this value owns the stream and ends here. The driver finishes the stream's
            // work, and the owners of the work's memory hold it until then.
            Ok(unsafe { self.device.driver.cuStreamDestroy_v2(self.raw) }?)
        });
        log_drop_error(outcome, "a CUDA stream");
    }
}

/// Converts the result of a query: done, not done, or an error.
pub(super) fn ready(outcome: Result<(), Failure>) -> Result<bool> {
    match outcome {
        Ok(()) => Ok(true),
        Err(Failure {
            code: code::NOT_READY,
            ..
        }) => Ok(false),
        Err(failure) => Err(failure.into()),
    }
}

/// Logs an error in a drop. Any call of the driver may report an error of earlier work, and nothing
/// is left to free in a context that is gone.
pub(super) fn log_drop_error(outcome: Result<(), impl Into<Error>>, what: &str) {
    if let Err(error) = outcome.map_err(Into::into) {
        tracing::debug!("giving back {what}: {error}");
    }
}
