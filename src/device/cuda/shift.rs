//! Aligns bitmaps whose first bit is inside a byte, by one kernel on the device (rule A2).

use std::sync::Arc;

use crate::device::cuda::context::Device;
use crate::device::cuda::event::Event;
use crate::device::cuda::kernels::BitTask;
use crate::device::cuda::memory::{DeviceMemory, Purpose};
use crate::device::cuda::pinned::PinnedMemory;
use crate::device::cuda::stream::Stream;
use crate::error::{Error, Result};

/// The alignment of each bitmap in the results (rule A2).
const ALIGNMENT: usize = 64;

/// The bitmaps to align.
#[derive(Debug, Default)]
pub struct Shifts {
    /// Address, first bit, number of bits and offset in the results.
    tasks: Vec<(u64, usize, usize, usize)>,
    len: usize,
}

impl Shifts {
    /// Adds `len` bits, from bit `first` of the byte at `address` on; `first` is less than 8.
    /// Returns the offset of the bits in the results, in bytes.
    pub fn add(&mut self, address: u64, first: usize, len: usize) -> usize {
        let start = self.len;
        self.len = (start + len.div_ceil(8)).next_multiple_of(ALIGNMENT);
        if len > 0 {
            self.tasks.push((address, first, len, start));
        }
        start
    }

    /// True if no bitmaps were added.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Starts the kernel on `stream`. The results are in one piece of memory.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`; the driver's error; as [`Device::enter`].
    ///
    /// # Safety
    ///
    /// The added bits are readable on the stream's device, and nobody writes them, until the
    /// stream's work is done.
    pub unsafe fn run(&self, stream: &Arc<Stream>) -> Result<Shifted> {
        let device: &Arc<Device> = stream.device();
        let memory = DeviceMemory::new(device, self.len, Purpose::Own)?;
        let mut tasks = PinnedMemory::new(device, self.tasks.len() * size_of::<BitTask>())?;
        let mut longest = 0;
        {
            // SAFETY: no work was enqueued yet.
            let bytes = unsafe { tasks.as_mut_slice() };
            let words = self.tasks.iter().flat_map(|&(source, first, len, start)| {
                longest = longest.max(len);
                let target = memory.address() + start as u64;
                [source, target, first as u64, len as u64]
            });
            for (target, word) in bytes.chunks_exact_mut(8).zip(words) {
                target.copy_from_slice(&word.to_ne_bytes());
            }
        }
        let mut shifted = Shifted {
            done: None,
            stream: Arc::clone(stream),
            memory,
            tasks,
        };
        let (at, count) = (shifted.tasks.address(), self.tasks.len());
        let event = Event::new(device)?;
        // SAFETY: the tasks were written at `at`. The caller promises their sources, and the
        // targets are ranges of the memory. `shifted` holds both until the work is done.
        unsafe { stream.shift_bits(at, count, longest) }?;
        event.record(stream)?;
        shifted.done = Some(event);
        Ok(shifted)
    }
}

/// Aligned bitmaps, under way or done.
#[derive(Debug)]
pub struct Shifted {
    /// The event after the work; `None` if the work failed to start.
    done: Option<Event>,
    stream: Arc<Stream>,
    memory: DeviceMemory,
    /// Held, because the kernel reads the tasks.
    tasks: PinnedMemory,
}

impl Shifted {
    /// The device address of the results, which are valid once the stream's work is done.
    pub fn address(&self) -> u64 {
        self.memory.address()
    }

    /// Bytes of the results.
    pub fn len(&self) -> usize {
        self.memory.len()
    }
}

impl Drop for Shifted {
    fn drop(&mut self) {
        // The memory is recycled next. Waits for the event and not for later work, which may wait
        // for another producer. After an error the device does no more work.
        let _: Result<(), Error> = match &self.done {
            Some(done) => done.synchronize().or_else(|_| self.stream.synchronize()),
            None => self.stream.synchronize(),
        };
    }
}
