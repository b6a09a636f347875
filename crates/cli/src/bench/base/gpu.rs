//! The benchmark's own work on a GPU: it writes batches, and reads them back.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use dipc::DeviceKind;
use dipc::arrow::OwnedDeviceArray;
use dipc::device::Target;
use dipc::device::cuda::{Device, PinnedMemory, Stream};

/// A GPU, and the benchmark's stream on it.
#[derive(Clone)]
pub struct Gpu {
    pub stream: Arc<Stream>,
}

impl Gpu {
    /// The GPU of a device; `None`: the host.
    pub fn of(place: Target) -> Result<Option<Self>> {
        match place {
            Target::Host | Target::AsSent => Ok(None),
            Target::Cuda(ordinal) => Self::new(ordinal.into()).map(Some),
        }
    }

    fn new(id: i64) -> Result<Self> {
        let device = Device::get(id)?;
        let stream = Arc::new(Stream::new(&device)?);
        Ok(Self { stream })
    }

    pub fn device(&self) -> &Arc<Device> {
        self.stream.device()
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
        let copied = unsafe { self.stream.copy(target, source, size_of_val(numbers)) };
        self.stream.synchronize()?;
        Ok(copied?)
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
    pub fn of(array: &OwnedDeviceArray) -> Result<Option<Self>> {
        let array = array.raw();
        match DeviceKind(array.device_type) {
            DeviceKind::CPU => Ok(None),
            DeviceKind::CUDA => Ok(Some(Self {
                gpu: Gpu::new(array.device_id)?,
                pinned: None,
            })),
            other => bail!("arrays came on Arrow device type {}", other.0),
        }
    }

    /// Makes this reader's stream wait for the array. The caller does not wait.
    pub fn follow(&self, array: &OwnedDeviceArray) -> Result<()> {
        let array = array.raw();
        if array.device_id != i64::from(self.gpu.device().ordinal()) {
            bail!("one stream's arrays came on two GPUs");
        }
        // SAFETY: the array is not released, being borrowed, and its event lives as long.
        Ok(unsafe { self.gpu.stream.wait_for_producer(array.sync_event) }?)
    }

    /// Waits for all followed arrays.
    pub fn finish(&self) -> Result<()> {
        Ok(self.gpu.stream.synchronize()?)
    }

    /// Copies ranges of the GPU's memory, each an address and a length, into one contiguous buffer.
    ///
    /// # Safety
    ///
    /// The ranges are readable on the GPU after the followed arrays, and nobody writes to them.
    pub unsafe fn fetch(&mut self, runs: &[(u64, usize)]) -> Result<&[u64]> {
        let len = runs.iter().map(|(_, len)| len).sum::<usize>();
        let pinned = self.pinned.take().filter(|pinned| pinned.len() >= len);
        let pinned = match pinned {
            Some(pinned) => pinned,
            None => PinnedMemory::new(self.gpu.device(), len)?,
        };
        let mut target = pinned.address();
        let mut copied = Ok(());
        for (source, len) in runs {
            // SAFETY: the caller promises readable sources that nobody writes to; the target has
            // room for all, and is not used before the stream is done, which is waited for below.
            copied = copied.and_then(|()| unsafe { self.gpu.stream.copy(target, *source, *len) });
            target += *len as u64;
        }
        self.gpu.stream.synchronize()?;
        copied?;
        let pinned = self.pinned.insert(pinned);
        // SAFETY: all copies to the buffer are complete.
        let bytes = unsafe { pinned.as_slice() };
        // SAFETY: all bytes are numbers; pinned memory is aligned to pages.
        let (before, numbers, _) = unsafe { bytes.align_to::<u64>() };
        let numbers = before.is_empty().then(|| numbers.get(..len / 8)).flatten();
        numbers.context("pinned memory is not aligned")
    }
}
