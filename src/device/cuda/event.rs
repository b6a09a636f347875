//! Events: what lets work on one stream wait for work on another, here, in the producer, in the
//! consumer, or in another process.

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use cudarc::driver::sys::{CUevent, CUipcEventHandle};

use crate::device::cuda::context::Device;
use crate::device::cuda::stream::{Stream, left, ready};
use crate::error::Result;

/// `CU_EVENT_BLOCKING_SYNC`: a thread that waits sleeps.
const BLOCKING_SYNC: u32 = 1;
/// `CU_EVENT_DISABLE_TIMING`: recording is cheaper, and what `INTERPROCESS` asks for.
const DISABLE_TIMING: u32 = 2;
/// `CU_EVENT_INTERPROCESS`
const INTERPROCESS: u32 = 4;

/// Bytes of the handle of an event or of memory that goes to another process.
pub const HANDLE_BYTES: usize = 64;

/// A point in a stream's work.
pub struct Event {
    device: Arc<Device>,
    raw: CUevent,
}

// SAFETY: `raw` is a handle that the driver's functions take on any thread, under the context of
// `device`, which every method enters.
unsafe impl Send for Event {}
// SAFETY: as above; the driver's functions may be called by several threads at once.
unsafe impl Sync for Event {}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({:?}, {:?})", self.device, self.raw)
    }
}

impl Event {
    /// Whether it is an event of this device, as it is now: a reset makes another one.
    pub fn is_of(&self, device: &Arc<Device>) -> bool {
        Arc::ptr_eq(&self.device, device)
    }

    /// An event of `device`, which counts as happened until it is recorded.
    ///
    /// # Errors
    ///
    /// What the driver says; as [`Device::enter`].
    pub fn new(device: &Arc<Device>) -> Result<Self> {
        Self::with_flags(device, BLOCKING_SYNC | DISABLE_TIMING)
    }

    /// An event that other processes on this machine can wait for.
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
        unsafe { device.driver().cuEventCreate(&raw mut raw, flags) }?;
        Ok(Self {
            device: Arc::clone(device),
            raw,
        })
    }

    /// The event behind a handle that another process made of one [`for
    /// processes`](Self::for_processes). When that process dies, what it recorded counts as
    /// happened.
    ///
    /// # Errors
    ///
    /// `InvalidData` where the driver does not know the handle: the process is gone, or is this
    /// one.
    pub fn open(device: &Arc<Device>, handle: &[u8; HANDLE_BYTES]) -> Result<Self> {
        let _current = device.enter()?;
        let mut raw = std::ptr::null_mut();
        let handle = CUipcEventHandle {
            reserved: handle.map(u8::cast_signed),
        };
        // SAFETY: `raw` is writable, the device's context is current, and the driver checks the
        // handle.
        unsafe { device.driver().cuIpcOpenEventHandle(&raw mut raw, handle) }
            .map_err(|failure| failure.to_open("event", device.ordinal()))?;
        Ok(Self {
            device: Arc::clone(device),
            raw,
        })
    }

    /// What another process opens it by; it must be one [`for processes`](Self::for_processes),
    /// and live for as long as the other uses it.
    ///
    /// # Errors
    ///
    /// What the driver says; as [`Device::enter`].
    pub fn handle(&self) -> Result<[u8; HANDLE_BYTES]> {
        let _current = self.device.enter()?;
        let mut handle = CUipcEventHandle {
            reserved: [0; HANDLE_BYTES],
        };
        // SAFETY: `handle` is writable and the event ours and live.
        unsafe {
            self.device
                .driver()
                .cuIpcGetEventHandle(&raw mut handle, self.raw)
        }?;
        Ok(handle.reserved.map(i8::cast_unsigned))
    }

    /// The driver's handle, which lives as long as the event.
    pub fn raw(&self) -> CUevent {
        self.raw
    }

    /// From now on it stands for everything given to `stream` so far, which is of its device.
    ///
    /// # Errors
    ///
    /// What the driver says; as [`Device::enter`].
    pub fn record(&self, stream: &Stream) -> Result<()> {
        let _current = self.device.enter()?;
        // SAFETY: both are live handles of the driver's, which checks that they belong together.
        Ok(unsafe { self.device.driver().cuEventRecord(self.raw, stream.raw()) }?)
    }

    /// Whether it has happened.
    ///
    /// # Errors
    ///
    /// What went wrong with the work before it, or earlier on the device.
    pub fn is_ready(&self) -> Result<bool> {
        let _current = self.device.enter()?;
        // SAFETY: the event is ours and live.
        ready(unsafe { self.device.driver().cuEventQuery(self.raw) })
    }

    /// Waits, on this thread, until it has happened. The thread sleeps.
    ///
    /// # Errors
    ///
    /// As [`is_ready`](Self::is_ready).
    pub fn synchronize(&self) -> Result<()> {
        let _current = self.device.enter()?;
        // SAFETY: the event is ours and live.
        Ok(unsafe { self.device.driver().cuEventSynchronize(self.raw) }?)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let gone = self.device.enter_to_drop().and_then(|_current| {
            // SAFETY: the event is ours, and this is its end. Streams that wait for it go on
            // waiting: the driver keeps what they need.
            Ok(unsafe { self.device.driver().cuEventDestroy_v2(self.raw) }?)
        });
        left(gone, "a CUDA event");
    }
}

/// The event that an array of ours carries as its `sync_event`: an [`Event`] and a place where its
/// handle lies, to which the pointer leads. It goes into the array's private data, and is dropped
/// with its release.
#[derive(Debug)]
pub struct SyncEvent {
    event: Arc<Event>,
    /// On the heap, where it stays when this is moved.
    handle: Box<EventSlot>,
}

#[derive(Debug)]
struct EventSlot(
    #[expect(dead_code, reason = "read through the pointer that is given out")] CUevent,
);

// SAFETY: it holds the handle of an event, which is `Send`.
unsafe impl Send for EventSlot {}
// SAFETY: as above; it is never written.
unsafe impl Sync for EventSlot {}

impl SyncEvent {
    /// An event behind everything given to `stream` so far.
    ///
    /// # Errors
    ///
    /// As [`Event::new`] and [`Event::record`].
    pub fn record(stream: &Stream) -> Result<Self> {
        let event = Arc::new(Event::new(stream.device())?);
        event.record(stream)?;
        let handle = Box::new(EventSlot(event.raw()));
        Ok(Self { event, handle })
    }

    /// What `ArrowDeviceArray.sync_event` is to be, valid as long as this is not dropped.
    pub fn pointer(&self) -> *mut c_void {
        (&raw const *self.handle).cast_mut().cast()
    }

    /// The event.
    pub fn event(&self) -> &Arc<Event> {
        &self.event
    }
}
