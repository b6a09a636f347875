//! Batched reads of many small values of device memory: one kernel writes them into one pinned
//! buffer, and one event reports the end.

use std::sync::Arc;

use crate::device::cuda::context::Device;
use crate::device::cuda::event::Event;
use crate::device::cuda::kernels::{BitTask, SmallRead};
use crate::device::cuda::memory::{DeviceMemory, Purpose};
use crate::device::cuda::pinned::PinnedMemory;
use crate::device::cuda::stream::Stream;
use crate::error::{Error, Result};

/// Longer reads are copies of their own. For a shorter read, one GPU thread copies all bytes.
const SMALL: usize = 64;
/// The alignment of results, for numbers.
const ALIGNMENT: usize = 8;

/// The values to read.
#[derive(Debug, Default)]
pub struct Reads {
    /// Address, length and offset in the results.
    reads: Vec<(u64, usize, usize)>,
    /// Address of the first byte, first bit, number of bits, and offset in the results.
    counts: Vec<(u64, usize, usize, usize)>,
    /// Bytes of the results.
    len: usize,
}

/// The position of one result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GatherSlot {
    start: usize,
    len: usize,
}

impl Reads {
    /// Adds a read of `len` bytes at `address`.
    pub fn bytes(&mut self, address: u64, len: usize) -> GatherSlot {
        let start = self.place(len);
        if len > 0 {
            self.reads.push((address, len, start));
        }
        GatherSlot { start, len }
    }

    /// Adds a count of the 1 bits in `len` bits, from bit `first` of the byte at `address` on.
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

    /// True if no reads were added.
    pub fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.counts.is_empty()
    }

    /// Starts the reads on `stream`, after its earlier work, which includes the producer's event.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`; the driver's error; as [`Device::enter`]. [`Fetched::wait`] reports errors of
    /// the reads themselves.
    ///
    /// # Safety
    ///
    /// The memory of all reads is readable on the stream's device, and nobody writes to it, until
    /// the result is waited for or dropped.
    pub unsafe fn fetch(&self, stream: &Arc<Stream>) -> Result<Fetched> {
        let device = stream.device();
        let event = Event::new(device)?;
        let (reads, counts) = (self.reads.len() + self.counts.len(), self.counts.len());
        // The layout of the pinned buffer: results, reads, counts.
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
            // SAFETY: no work was enqueued yet.
            let bytes = unsafe { pinned.as_mut_slice() };
            write(&mut bytes[reads_at..], &small, |read| {
                [read.source, read.target, read.len]
            });
            write(&mut bytes[counts_at..], &tasks, |task| {
                [task.source, task.target, task.first, task.len]
            });
        }
        // From here on the device may use the memory. The drop of `fetched` waits for started work,
        // also after an error.
        let fetched = Fetched {
            stream: Arc::clone(stream),
            event,
            pinned,
            _sums: sums,
            len: self.len,
            done: false,
        };
        if !tasks.is_empty() {
            // SAFETY: `fetched` owns the sums, which live until the work is done.
            unsafe { stream.fill(sums_at, 0, 8 * counts) }?;
            let at = base + counts_at as u64;
            // SAFETY: the tasks were written at `at`. The caller promises their sources, and the
            // targets are the sums.
            unsafe { stream.count_bits(at, counts, longest) }?;
        }
        for read in &large {
            let len = usize::try_from(read.len).unwrap_or(0);
            // SAFETY: the caller promises the source; the target is a range of the results.
            unsafe { stream.copy(read.target, read.source, len) }?;
        }
        // SAFETY: the reads were written at this address. The caller promises their sources,
        // earlier work fills the sums, and the targets are ranges of the results.
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

/// The reads, under way or done.
#[derive(Debug)]
pub struct Fetched {
    stream: Arc<Stream>,
    event: Event,
    pinned: PinnedMemory,
    /// Held because kernels write to it.
    _sums: Option<DeviceMemory>,
    len: usize,
    /// True if no work is under way.
    done: bool,
}

impl Fetched {
    /// Waits on this thread and returns the results.
    ///
    /// # Errors
    ///
    /// An error of the work; as [`Device::enter`].
    pub fn wait(mut self) -> Result<Results> {
        self.event.synchronize()?;
        self.done = true;
        // SAFETY: all work that uses the memory is before the event, which has happened.
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
            // The memory is recycled next. After an error the device does no more work.
            let _: Result<(), Error> = self.stream.synchronize();
        }
    }
}

/// The results, on the host.
#[derive(Debug)]
pub struct Results {
    bytes: Vec<u8>,
}

impl Results {
    /// The bytes of a slot of the same [`Reads`].
    pub fn bytes(&self, slot: GatherSlot) -> &[u8] {
        let end = slot.start + slot.len;
        self.bytes.get(slot.start..end).unwrap_or_default()
    }

    /// The number in a slot of 8 bytes.
    pub fn number(&self, slot: GatherSlot) -> u64 {
        self.bytes(slot).try_into().map_or(0, u64::from_ne_bytes)
    }
}
