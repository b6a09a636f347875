//! Events. Work on one stream waits for work on another stream by an event: in this process, in the
//! producer, in the consumer, or in another process.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::sys::CUevent;

use crate::device::cuda::context::Device;
use crate::device::cuda::functions::{HANDLE_BYTES, IpcHandle};
use crate::device::cuda::stream::{Stream, log_drop_error, ready};
use crate::error::Result;

/// `CU_EVENT_BLOCKING_SYNC`: a waiting thread sleeps.
const BLOCKING_SYNC: u32 = 1;
/// `CU_EVENT_DISABLE_TIMING`: recording is cheaper, and `INTERPROCESS` requires it.
const DISABLE_TIMING: u32 = 2;
/// `CU_EVENT_INTERPROCESS`
const INTERPROCESS: u32 = 4;

/// A point in a stream's work.
#[derive(Debug)]
pub struct Event {
    device: Arc<Device>,
    raw: CUevent,
}

// SAFETY: the driver's functions take the handle `raw` on any thread, under the context of
// `device`, which every method enters.
unsafe impl Send for Event {}
// SAFETY: several threads may call the driver's functions with this handle at once, under the
// context of `device`, which every method enters.
unsafe impl Sync for Event {}

impl Event {
    /// True for an event of this device; false after a reset, which makes a new `Device`.
    pub fn is_of(&self, device: &Arc<Device>) -> bool {
        Arc::ptr_eq(&self.device, device)
    }

    /// A new event of `device`. It counts as happened until it is recorded.
    ///
    /// # Errors
    ///
    /// The driver's error; as [`Device::enter`].
    pub fn new(device: &Arc<Device>) -> Result<Self> {
        Self::with_flags(device, BLOCKING_SYNC | DISABLE_TIMING)
    }

    /// A new event that other processes on this machine can wait for.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn for_processes(device: &Arc<Device>) -> Result<Self> {
        Self::with_flags(device, BLOCKING_SYNC | DISABLE_TIMING | INTERPROCESS)
    }

    fn with_flags(device: &Arc<Device>, flags: u32) -> Result<Self> {
        let _current = device.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` is writable, and the device's context is current.
        unsafe { device.driver.cuEventCreate(&raw mut raw, flags) }?;
        Ok(Self {
            device: Arc::clone(device),
            raw,
        })
    }

    /// Opens the handle of an event that another process made
    /// [`for_processes`](Self::for_processes). After the end of that process its recorded work
    /// counts as done.
    ///
    /// # Errors
    ///
    /// `InvalidData` if the driver does not know the handle: its process is gone, or is this
    /// process.
    pub fn open(device: &Arc<Device>, handle: &[u8; HANDLE_BYTES]) -> Result<Self> {
        let _current = device.enter()?;
        let mut raw = std::ptr::null_mut();
        let handle = IpcHandle(*handle);
        // SAFETY: `raw` is writable and the device's context is current. The driver checks the
        // handle.
        unsafe { device.driver.cuIpcOpenEventHandle(&raw mut raw, handle) }
            .map_err(|failure| failure.to_open("event", device.ordinal()))?;
        Ok(Self {
            device: Arc::clone(device),
            raw,
        })
    }

    /// The handle for another process. The event must be made
    /// [`for_processes`](Self::for_processes), and live as long as the other process uses it.
    ///
    /// # Errors
    ///
    /// The driver's error; as [`Device::enter`].
    pub fn handle(&self) -> Result<[u8; HANDLE_BYTES]> {
        let _current = self.device.enter()?;
        let mut handle = IpcHandle([0; HANDLE_BYTES]);
        // SAFETY: `handle` is writable; this value owns the event, which is live.
        unsafe {
            self.device
                .driver
                .cuIpcGetEventHandle(&raw mut handle, self.raw)
        }?;
        Ok(handle.0)
    }

    /// The driver's handle, which lives as long as the event.
    pub fn raw(&self) -> CUevent {
        self.raw
    }

    /// Makes the event stand for all work enqueued so far on `stream`, a stream of its device.
    ///
    /// # Errors
    ///
    /// The driver's error; as [`Device::enter`].
    pub fn record(&self, stream: &Stream) -> Result<()> {
        let _current = self.device.enter()?;
        // SAFETY: both handles are live, and the driver checks that they belong together.
        Ok(unsafe { self.device.driver.cuEventRecord(self.raw, stream.raw()) }?)
    }

    /// True if the event has happened.
    ///
    /// # Errors
    ///
    /// An error of the work before the event, or of earlier work on the device.
    pub fn is_ready(&self) -> Result<bool> {
        let _current = self.device.enter()?;
        // SAFETY: this value owns the event, which is live.
        ready(unsafe { self.device.driver.cuEventQuery(self.raw) })
    }

    /// Waits on this thread until the event has happened. The thread sleeps.
    ///
    /// # Errors
    ///
    /// As [`is_ready`](Self::is_ready).
    pub fn synchronize(&self) -> Result<()> {
        let _current = self.device.enter()?;
        // SAFETY: this value owns the event, which is live.
        Ok(unsafe { self.device.driver.cuEventSynchronize(self.raw) }?)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let outcome = self.device.enter_to_drop().and_then(|_current| {
            // SAFETY: this value owns the event and ends here. The driver keeps the event's state
            // for the streams that wait for it.
            Ok(unsafe { self.device.driver.cuEventDestroy_v2(self.raw) }?)
        });
        log_drop_error(outcome, "a CUDA event");
    }
}

/// The `sync_event` of an array of this process: an [`Event`] on the heap, so that the address of
/// its handle is stable. The array's private data owns it, and the array's release drops it.
#[derive(Debug)]
pub struct SyncEvent(Arc<Event>);

impl SyncEvent {
    /// An event after all work enqueued so far on `stream`.
    ///
    /// # Errors
    ///
    /// As [`Event::new`] and [`Event::record`].
    pub fn record(stream: &Stream) -> Result<Self> {
        let event = Arc::new(Event::new(stream.device())?);
        event.record(stream)?;
        Ok(Self(event))
    }

    /// The value for `ArrowDeviceArray.sync_event`, valid until this value is dropped.
    pub fn pointer(&self) -> *mut c_void {
        (&raw const self.0.raw).cast_mut().cast()
    }

    /// The event.
    pub fn event(&self) -> &Arc<Event> {
        &self.0
    }
}
