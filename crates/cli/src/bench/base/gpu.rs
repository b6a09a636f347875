//! The benchmark's own work on a GPU, by CUDA's driver alone: it copies, and it reads batches.
//!
//! Memory and events of a GPU are never freed; streams and pinned memory are.

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use cudarc::driver::result::{self, ctx, device, primary_ctx, stream};
use cudarc::driver::sys::{self, CUcontext, CUevent, CUevent_wait_flags, CUstream};
use dipc::{DeviceArray, DeviceKind, Target};

/// `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`, as libdipc's own pinned memory.
const PORTABLE_MAPPED: u32 = 1 | 2;
/// `CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING`: a waiting thread sleeps.
const ASLEEP: u32 = 1 | 2;

/// A GPU, and the benchmark's stream on it.
#[derive(Clone)]
pub struct Gpu(Arc<Stream>);

struct Stream {
    ordinal: i32,
    context: CUcontext,
    raw: CUstream,
}

// SAFETY: any thread may use the driver's handles, with the context, which each method enters.
unsafe impl Send for Stream {}
// SAFETY: as above, also several threads at once.
unsafe impl Sync for Stream {}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: this value owns the stream, whose work was waited for. An error is one of earlier
        // work, which has been reported.
        let _ = unsafe { stream::destroy(self.raw) };
    }
}

impl Gpu {
    /// The GPU of a device; `None`: the host.
    pub fn of(place: Target) -> Result<Option<Self>> {
        match place {
            Target::Host | Target::AsSent => Ok(None),
            Target::Cuda(ordinal) => {
                // It loads the driver, or says why there is none.
                place.ensure_available()?;
                Self::new(ordinal).map(Some)
            }
        }
    }

    /// The driver is loaded.
    fn new(ordinal: i32) -> Result<Self> {
        let device = device::get(ordinal)?;
        // SAFETY: the device is the driver's.
        let context = unsafe { primary_ctx::retain(device) }?;
        // SAFETY: the context was retained, and is kept for the life of the process.
        unsafe { ctx::set_current(context) }?;
        let raw = stream::create(stream::StreamKind::NonBlocking)?;
        Ok(Self(Arc::new(Stream {
            ordinal,
            context,
            raw,
        })))
    }

    /// Makes the GPU's context the current one of this thread.
    fn enter(&self) -> Result<()> {
        // SAFETY: the context was retained, and is kept for the life of the process.
        Ok(unsafe { ctx::set_current(self.0.context) }?)
    }

    /// Waits for the work of the stream.
    pub fn synchronize(&self) -> Result<()> {
        self.enter()?;
        // SAFETY: this value keeps the stream.
        Ok(unsafe { stream::synchronize(self.0.raw) }?)
    }

    /// Copies `len` bytes on the stream: on the GPU, on the host, or between them.
    ///
    /// # Safety
    ///
    /// There are so many bytes at both addresses, which nobody else writes, until the stream is
    /// done.
    pub unsafe fn copy(&self, target: u64, source: u64, len: usize) -> Result<()> {
        self.enter()?;
        // SAFETY: this value keeps the stream, and the caller promises the memory.
        let copied = unsafe { sys::cuMemcpyAsync(target, source, len, self.0.raw) };
        Ok(copied.result()?)
    }

    /// Writes `numbers` to the GPU's memory at `target`, and waits for the copy.
    ///
    /// # Safety
    ///
    /// `target` has room for them, and nobody else uses it meanwhile.
    pub unsafe fn write(&self, target: u64, numbers: &[u64]) -> Result<()> {
        let source = numbers.as_ptr().addr() as u64;
        // SAFETY: the caller promises room at `target` that nobody else uses; the source is
        // borrowed until the stream is done, for which the next call waits, whatever this one says.
        let copied = unsafe { self.copy(target, source, size_of_val(numbers)) };
        self.synchronize()?;
        copied
    }

    /// The address of `len` new bytes of the GPU's memory, each of them 1. They are never freed.
    pub fn allocate(&self, len: usize) -> Result<u64> {
        self.enter()?;
        // SAFETY: plain memory may be uninitialised, and nobody has read it yet.
        let address = unsafe { result::malloc_sync(len) }?;
        // SAFETY: the memory is ours, and this value keeps the stream.
        unsafe { result::memset_d8_async(address, 1, len, self.0.raw) }?;
        self.synchronize()?;
        Ok(address)
    }

    /// A new event, which counts as happened. It is never freed.
    pub fn event(&self) -> Result<Event> {
        self.enter()?;
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is writable, and a context is current.
        unsafe { sys::cuEventCreate(&raw mut raw, ASLEEP) }.result()?;
        Ok(Event(raw))
    }

    /// Makes `event` happen when all work of the stream up to now is done.
    pub fn record(&self, event: &Event) -> Result<()> {
        self.enter()?;
        // SAFETY: the event is live, as all are, and this value keeps the stream.
        Ok(unsafe { result::event::record(event.0, self.0.raw) }?)
    }
}

/// A point in the work of a stream.
pub struct Event(CUevent);

impl Event {
    /// Waits for it.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the event is live, as all are.
        Ok(unsafe { result::event::synchronize(self.0) }?)
    }
}

/// Pinned memory of the host, initialised.
pub struct PinnedMemory {
    data: NonNull<u8>,
    len: usize,
}

// SAFETY: it is plain memory, which goes with this value.
unsafe impl Send for PinnedMemory {}

impl PinnedMemory {
    pub fn new(gpu: &Gpu, len: usize) -> Result<Self> {
        gpu.enter()?;
        // SAFETY: the memory is written below.
        let data = unsafe { result::malloc_host(len.max(1), PORTABLE_MAPPED) }?;
        let data = NonNull::new(data.cast::<u8>()).context("pinned memory at address 0")?;
        // SAFETY: the driver has given `len` bytes, which nobody else has.
        unsafe { data.as_ptr().write_bytes(0, len) };
        Ok(Self { data, len })
    }

    pub fn address(&self) -> u64 {
        self.data.addr().get() as u64
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        // SAFETY: `new` allocated it, and copies to it were waited for.
        let _ = unsafe { result::free_host(self.data.as_ptr().cast::<c_void>()) };
    }
}

/// Reads arrays of one GPU.
pub struct GpuReader {
    gpu: Gpu,
    /// Pinned memory for the values, reused.
    pinned: Option<PinnedMemory>,
}

impl GpuReader {
    /// Reads arrays of the GPU that `array` is on; `None`: on the host.
    pub fn of(array: &DeviceArray) -> Result<Option<Self>> {
        match array.device() {
            DeviceKind::CPU => Ok(None),
            DeviceKind::CUDA => Ok(Some(Self {
                gpu: Gpu::new(i32::try_from(array.device_id())?)?,
                pinned: None,
            })),
            other => bail!("arrays came on Arrow device type {}", other.0),
        }
    }

    /// Makes this reader's stream wait for the array. The caller does not wait.
    pub fn follow(&self, array: &DeviceArray) -> Result<()> {
        if array.device_id() != i64::from(self.gpu.0.ordinal) {
            bail!("one stream's arrays came on two GPUs");
        }
        let Some(event) = NonNull::new(array.as_c().sync_event.cast::<CUevent>()) else {
            return Ok(());
        };
        // SAFETY: the array is not released, being borrowed, and has the handle of an event (Arrow:
        // `cudaEvent_t*`).
        let event = unsafe { event.read_unaligned() };
        if event.is_null() {
            return Ok(());
        }
        self.gpu.enter()?;
        let flags = CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: the event lives as long as the array, and `gpu` keeps the stream.
        Ok(unsafe { stream::wait_event(self.gpu.0.raw, event, flags) }?)
    }

    /// Waits for all followed arrays.
    pub fn finish(&self) -> Result<()> {
        self.gpu.synchronize()
    }

    /// Copies ranges of the GPU's memory, each an address and a length, into one contiguous buffer.
    ///
    /// # Safety
    ///
    /// The ranges are readable on the GPU after the followed arrays, and nobody writes to them.
    pub unsafe fn fetch(&mut self, runs: &[(u64, usize)]) -> Result<&[u64]> {
        let len = runs.iter().map(|(_, len)| len).sum::<usize>();
        let pinned = self.pinned.take().filter(|pinned| pinned.len >= len);
        let pinned = match pinned {
            Some(pinned) => pinned,
            None => PinnedMemory::new(&self.gpu, len)?,
        };
        let mut target = pinned.address();
        let mut copied = Ok(());
        for (source, len) in runs {
            // SAFETY: the caller promises readable sources that nobody writes to; the target has
            // room for all, and is not used before the stream is done, which is waited for below.
            copied = copied.and_then(|()| unsafe { self.gpu.copy(target, *source, *len) });
            target += *len as u64;
        }
        self.gpu.synchronize()?;
        copied?;
        let pinned = self.pinned.insert(pinned);
        // SAFETY: the memory has `len` bytes, which were written, and is aligned to pages. All
        // copies to it are complete.
        Ok(unsafe { slice::from_raw_parts(pinned.data.as_ptr().cast(), len / 8) })
    }
}
