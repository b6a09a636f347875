//! Many small values of device memory, fetched at once: one kernel writes them into one pinned
//! buffer, and one event says when they are there.

use std::sync::Arc;

use crate::device::cuda::context::Device;
use crate::device::cuda::event::Event;
use crate::device::cuda::kernels::{BitTask, SmallRead};
use crate::device::cuda::memory::{DeviceMemory, Purpose};
use crate::device::cuda::pinned::PinnedMemory;
use crate::device::cuda::stream::Stream;
use crate::error::{Error, Result};

/// Longer reads are copies of their own; a thread copies the others byte by byte.
const SMALL: usize = 64;
/// Results are aligned to this, so that numbers are.
const ALIGNMENT: usize = 8;

/// What is to be fetched.
#[derive(Debug, Default)]
pub struct Reads {
    /// Address, length and place among the results.
    reads: Vec<(u64, usize, usize)>,
    /// Address of the first byte, first bit, bits and place among the results.
    counts: Vec<(u64, usize, usize, usize)>,
    /// Bytes of the results.
    len: usize,
}

/// One of the results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GatherSlot {
    start: usize,
    len: usize,
}

impl Reads {
    /// Asks for `len` bytes at `address`.
    pub fn bytes(&mut self, address: u64, len: usize) -> GatherSlot {
        let start = self.place(len);
        if len > 0 {
            self.reads.push((address, len, start));
        }
        GatherSlot { start, len }
    }

    /// Asks how many of `len` bits are 1, from bit `first` of the byte at `address` on, where
    /// `first` is less than 8. The result is a number of 8 bytes.
    pub fn ones(&mut self, address: u64, first: usize, len: usize) -> GatherSlot {
        let start = self.place(8);
        self.counts.push((address, first, len, start));
        GatherSlot { start, len: 8 }
    }

    fn place(&mut self, len: usize) -> usize {
        let start = self.len;
        self.len = (start + len).next_multiple_of(ALIGNMENT);
        start
    }

    /// Whether nothing was asked for.
    pub fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.counts.is_empty()
    }

    /// Starts fetching on `stream`, behind what it was given before, the producer's event among it.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`; what the driver says; as [`Device::enter`]. What goes wrong later comes out
    /// of [`Fetched::wait`].
    ///
    /// # Safety
    ///
    /// Everything asked for is readable on the stream's device, and not written to, until the
    /// result is waited for or dropped.
    pub unsafe fn fetch(&self, stream: &Arc<Stream>) -> Result<Fetched> {
        let device = stream.device();
        let event = Event::new(device)?;
        let (reads, counts) = (self.reads.len() + self.counts.len(), self.counts.len());
        // The results, the reads, the counts.
        let reads_at = self.len;
        let counts_at = reads_at + reads * size_of::<SmallRead>();
        let total = counts_at + counts * size_of::<BitTask>();
        let mut pinned = PinnedMemory::new(device, total)?;
        let sums = (counts > 0)
            .then(|| DeviceMemory::new(device, 8 * counts, Purpose::Own))
            .transpose()?;
        let base = pinned.address();
        let sums_at = sums.as_ref().map_or(0, DeviceMemory::address);
        let mut small = Vec::with_capacity(reads);
        let mut large = Vec::new();
        for &(source, len, start) in &self.reads {
            let read = SmallRead {
                source,
                target: base + start as u64,
                len: len as u64,
            };
            if len > SMALL {
                large.push(read);
            } else {
                small.push(read);
            }
        }
        let mut tasks = Vec::with_capacity(counts);
        let mut longest = 0;
        for (index, &(source, first, len, start)) in self.counts.iter().enumerate() {
            let sum = sums_at + 8 * index as u64;
            tasks.push(BitTask {
                source,
                target: sum,
                first: first as u64,
                len: len as u64,
            });
            small.push(SmallRead {
                source: sum,
                target: base + start as u64,
                len: 8,
            });
            longest = longest.max(len);
        }
        {
            // SAFETY: nothing was given to the device yet.
            let bytes = unsafe { pinned.as_mut_slice() };
            write(&mut bytes[reads_at..], &small, |read| {
                [read.source, read.target, read.len]
            });
            write(&mut bytes[counts_at..], &tasks, |task| {
                [task.source, task.target, task.first, task.len]
            });
        }
        // From here on the memory belongs to the device too: whatever fails, dropping `fetched`
        // waits for what was started.
        let fetched = Fetched {
            stream: Arc::clone(stream),
            event,
            pinned,
            _sums: sums,
            len: self.len,
            done: false,
        };
        if !tasks.is_empty() {
            // SAFETY: the sums are ours, and live until the work is done.
            unsafe { stream.fill(sums_at, 0, 8 * counts) }?;
            let at = base + counts_at as u64;
            // SAFETY: the tasks were written there; the caller promises their sources, and their
            // targets are the sums.
            unsafe { stream.count_bits(at, counts, longest) }?;
        }
        for read in &large {
            let len = usize::try_from(read.len).unwrap_or(0);
            // SAFETY: the caller promises the source; the target is a place among the results.
            unsafe { stream.copy(read.target, read.source, len) }?;
        }
        // SAFETY: the reads were written there; the caller promises their sources, the sums are
        // filled by what comes before, and the targets are places among the results.
        unsafe { stream.gather(base + reads_at as u64, small.len()) }?;
        fetched.event.record(stream)?;
        Ok(fetched)
    }
}

fn write<T, const N: usize>(target: &mut [u8], items: &[T], words: impl Fn(&T) -> [u64; N]) {
    let words = items.iter().flat_map(words);
    for (target, word) in target.chunks_exact_mut(8).zip(words) {
        target.copy_from_slice(&word.to_ne_bytes());
    }
}

/// What was asked for, under way or there.
#[derive(Debug)]
pub struct Fetched {
    stream: Arc<Stream>,
    event: Event,
    pinned: PinnedMemory,
    /// Held, not used: kernels write there.
    _sums: Option<DeviceMemory>,
    len: usize,
    /// Nothing of it is under way any more.
    done: bool,
}

impl Fetched {
    /// Waits, on this thread, and gives the results.
    ///
    /// # Errors
    ///
    /// What went wrong with the work; as [`Device::enter`].
    pub fn wait(mut self) -> Result<Results> {
        self.event.synchronize()?;
        self.done = true;
        // SAFETY: the event is behind all work that uses the memory, and has happened.
        let bytes = unsafe { self.pinned.as_slice() };
        let bytes = bytes.get(..self.len).unwrap_or_default().to_vec();
        Ok(Results { bytes })
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        self.stream.device()
    }
}

impl Drop for Fetched {
    fn drop(&mut self) {
        if !self.done {
            // The memory goes to others next. An error means that the device does nothing more.
            let _: Result<(), Error> = self.stream.synchronize();
        }
    }
}

/// What was asked for, on the host.
#[derive(Debug)]
pub struct Results {
    bytes: Vec<u8>,
}

impl Results {
    /// The bytes of a slot, which is of the [`Reads`] that these are the results of.
    pub fn bytes(&self, slot: GatherSlot) -> &[u8] {
        let end = slot.start + slot.len;
        self.bytes.get(slot.start..end).unwrap_or_default()
    }

    /// The number in a slot of 8 bytes.
    pub fn number(&self, slot: GatherSlot) -> u64 {
        self.bytes(slot).try_into().map_or(0, u64::from_ne_bytes)
    }
}
