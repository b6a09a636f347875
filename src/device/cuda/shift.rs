//! Bitmaps that do not begin at a byte, moved on the device by one kernel (rule A2).

use std::sync::Arc;

use crate::device::cuda::context::Device;
use crate::device::cuda::event::Event;
use crate::device::cuda::kernels::BitTask;
use crate::device::cuda::memory::{DeviceMemory, Purpose};
use crate::device::cuda::pinned::PinnedMemory;
use crate::device::cuda::stream::Stream;
use crate::error::{Error, Result};

/// Where each bitmap begins among the results (rule A2).
const ALIGNMENT: usize = 64;

/// The bitmaps that are to be moved.
#[derive(Debug, Default)]
pub struct Shifts {
    /// Address, first bit, bits and place among the results.
    tasks: Vec<(u64, usize, usize, usize)>,
    len: usize,
}

impl Shifts {
    /// Asks for `len` bits, from bit `first` of the byte at `address` on, where `first` is less
    /// than 8. Gives where they will begin in the results, as an offset in bytes.
    pub fn add(&mut self, address: u64, first: usize, len: usize) -> usize {
        let start = self.len;
        self.len = (start + len.div_ceil(8)).next_multiple_of(ALIGNMENT);
        if len > 0 {
            self.tasks.push((address, first, len, start));
        }
        start
    }

    /// Whether nothing was asked for.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Starts moving them on `stream`, into one piece of memory.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`; what the driver says; as [`Device::enter`].
    ///
    /// # Safety
    ///
    /// Everything asked for is readable on the stream's device, and not written to, until the
    /// stream has done it.
    pub unsafe fn run(&self, stream: &Arc<Stream>) -> Result<Shifted> {
        let device: &Arc<Device> = stream.device();
        let memory = DeviceMemory::new(device, self.len, Purpose::Own)?;
        let mut tasks = PinnedMemory::new(device, self.tasks.len() * size_of::<BitTask>())?;
        let mut longest = 0;
        {
            // SAFETY: nothing was given to the device yet.
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
        // SAFETY: the tasks were written there; the caller promises their sources, and their
        // targets are places in the memory. `shifted` holds both until the stream is done.
        unsafe { stream.shift_bits(at, count, longest) }?;
        event.record(stream)?;
        shifted.done = Some(event);
        Ok(shifted)
    }
}

/// Moved bitmaps, under way or there.
#[derive(Debug)]
pub struct Shifted {
    /// Behind the work; `None` where that failed.
    done: Option<Event>,
    stream: Arc<Stream>,
    memory: DeviceMemory,
    /// The kernel reads them.
    tasks: PinnedMemory,
}

impl Shifted {
    /// Where the results begin, on the device; they are there when the stream has done what it was
    /// given.
    pub fn address(&self) -> u64 {
        self.memory.address()
    }

    /// Bytes of the results.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Never.
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }
}

impl Drop for Shifted {
    fn drop(&mut self) {
        // The memory goes to others next. Not later work is waited for, which may be behind another
        // producer's. An error means that the device does nothing more.
        let _: Result<(), Error> = match &self.done {
            Some(done) => done.synchronize().or_else(|_| self.stream.synchronize()),
            None => self.stream.synchronize(),
        };
    }
}
