//! Streams of ours: work in order, beside everybody else's.

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use cudarc::driver::sys::{CUevent, CUstream};
use once_cell::sync::OnceCell;

use crate::device::cuda::context::Device;
use crate::device::cuda::driver::{Failure, code};
use crate::device::cuda::event::Event;
use crate::error::{Error, Result};

/// `CU_STREAM_NON_BLOCKING`: the host's work on the default stream and ours do not wait for each
/// other.
const NON_BLOCKING: u32 = 1;

/// A stream: the pieces of work given to it are done one after the other.
pub struct Stream {
    device: Arc<Device>,
    raw: CUstream,
    /// What [`settle`](Stream::settle) waits for.
    done: OnceCell<Event>,
}

// SAFETY: `raw` is a handle that the driver's functions take on any thread, under the context of
// `device`, which every method enters.
unsafe impl Send for Stream {}
// SAFETY: as above; the driver's functions may be called by several threads at once.
unsafe impl Sync for Stream {}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({:?}, {:?})", self.device, self.raw)
    }
}

impl Stream {
    /// A new stream of `device`.
    ///
    /// # Errors
    ///
    /// What the driver says; as [`Device::enter`].
    pub fn new(device: &Arc<Device>) -> Result<Self> {
        let _current = device.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` is writable, and the device's context is current.
        unsafe { device.driver().cuStreamCreate(&raw mut raw, NON_BLOCKING) }?;
        Ok(Self {
            device: Arc::clone(device),
            raw,
            done: OnceCell::new(),
        })
    }

    /// The device that it belongs to.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The driver's handle, which lives as long as the stream.
    pub fn raw(&self) -> CUstream {
        self.raw
    }

    /// Lets what is given to the stream from now on wait until `event` has happened. The caller
    /// does not wait. The event may be of another device, and may be dropped afterwards.
    ///
    /// # Errors
    ///
    /// What the driver says; as [`Device::enter`].
    pub fn wait(&self, event: &Event) -> Result<()> {
        // SAFETY: the event lives as long as the borrow, and is the driver's.
        unsafe { self.wait_raw(event.raw()) }
    }

    /// [`wait`](Self::wait) for the `sync_event` of an `ArrowDeviceArray`, which is NULL where the
    /// memory is ready, and otherwise a pointer to the event (Arrow: `cudaEvent_t*`).
    ///
    /// # Errors
    ///
    /// `InvalidData` where the driver does not know the event: its context was destroyed, or it is
    /// none; as [`wait`](Self::wait).
    ///
    /// # Safety
    ///
    /// `sync_event` is NULL or points to an event that lives during the call, as the C device data
    /// interface has it for an array that is not released.
    pub unsafe fn wait_for_producer(&self, sync_event: *const c_void) -> Result<()> {
        if sync_event.is_null() {
            return Ok(());
        }
        // SAFETY: the caller promises that it points to an event's handle.
        let event = unsafe { sync_event.cast::<CUevent>().read_unaligned() };
        if event.is_null() {
            return Ok(());
        }
        // SAFETY: the caller promises that the event lives.
        let waiting = unsafe { self.wait_raw(event) };
        waiting.map_err(|error| error.context("the producer's sync_event cannot be waited for"))
    }

    /// # Safety
    ///
    /// `event` is a live event of the driver's.
    unsafe fn wait_raw(&self, event: CUevent) -> Result<()> {
        let _current = self.device.enter()?;
        // SAFETY: the stream is ours and live, the caller promises that the event is live.
        Ok(unsafe { self.device.driver().cuStreamWaitEvent(self.raw, event, 0) }?)
    }

    /// Waits, on this thread, until everything given to this stream is done; other streams go on.
    ///
    /// # Errors
    ///
    /// What went wrong with the work, or earlier on the device.
    pub fn synchronize(&self) -> Result<()> {
        let _current = self.device.enter()?;
        // SAFETY: the stream is ours and live.
        Ok(unsafe { self.device.driver().cuStreamSynchronize(self.raw) }?)
    }

    /// Waits, asleep, until everything given to this stream is done: afterwards memory that it used
    /// may be used by others, whatever this returns.
    ///
    /// # Errors
    ///
    /// What went wrong with the work, or earlier on the device.
    pub fn settle(&self) -> Result<()> {
        let asleep = || -> Result<()> {
            let done = self.done.get_or_try_init(|| Event::new(&self.device))?;
            done.record(self)?;
            done.synchronize()
        };
        // Any call may tell what went wrong before; only the work's own end counts here. A device
        // that fails twice does nothing more.
        asleep()
            .or_else(|_| self.synchronize())
            .or_else(|_| self.synchronize())
    }

    /// Whether everything given to the stream is done.
    ///
    /// # Errors
    ///
    /// As [`synchronize`](Self::synchronize).
    pub fn is_idle(&self) -> Result<bool> {
        let _current = self.device.enter()?;
        // SAFETY: the stream is ours and live.
        ready(unsafe { self.device.driver().cuStreamQuery(self.raw) })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let gone = self.device.enter_to_drop().and_then(|_current| {
            // SAFETY: the stream is ours, and this is its end. The driver finishes what was given
            // to it, whose memory its owners hold for that long.
            Ok(unsafe { self.device.driver().cuStreamDestroy_v2(self.raw) }?)
        });
        left(gone, "a CUDA stream");
    }
}

/// The answer of a query: done, not yet, or an error.
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

/// What a drop does with an error: the driver tells those of earlier work in any call, and of a
/// context that is gone there is nothing left to give back.
pub(super) fn left(outcome: Result<(), Error>, what: &str) {
    if let Err(error) = outcome {
        tracing::debug!("giving back {what}: {error}");
    }
}
