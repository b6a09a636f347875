//! Arrays on a GPU: what the encoder reads of them is fetched, and what it writes goes there.
//!
//! Encoding a batch needs a few numbers that lie on the device: last offsets, lengths of variadic
//! buffers, run ends, null counts. Before the first try, all that [`foresee`](super::foresee) asks
//! for is fetched at once ([`Reads`]); a try that finds something missing
//! asks for that, and comes again. Most batches take one round; a list whose last offset is not
//! its child's length takes one more for the child, and a dictionary that was made anew is fetched
//! whole to be compared.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::bits::BitRange;
use super::fault::{Checked, Fault};
use crate::device::BufferRef;
use crate::device::gpu::{Gpu, GpuStream, Pointer, Reads};
use crate::error::Result;

/// What is known of one array on a device.
#[derive(Debug)]
pub(super) struct Remote {
    device: Arc<Gpu>,
    /// Bytes that were fetched, by address.
    bytes: BTreeMap<usize, Vec<u8>>,
    /// How many bits of a range are 1: address, first bit, number of bits.
    ones: HashMap<(usize, usize, usize), usize>,
    asked: RefCell<Asked>,
}

/// What is to be fetched next.
#[derive(Debug, Default)]
struct Asked {
    bytes: Vec<BufferRef>,
    bits: Vec<BitRange>,
    /// Allocations that the driver has told of.
    pointers: Vec<Pointer>,
}

impl Remote {
    /// An array on `device` of which nothing is known.
    pub(super) fn new(device: Arc<Gpu>) -> Self {
        Self {
            device,
            bytes: BTreeMap::new(),
            ones: HashMap::new(),
            asked: RefCell::default(),
        }
    }

    // Cold: it stays out of the code that reads memory on the host.
    /// The bytes of a buffer, if they were fetched; else they are asked for.
    #[cold]
    pub(super) fn read(&self, buffer: BufferRef) -> Checked<&[u8]> {
        if buffer.len == 0 {
            return Ok(&[]);
        }
        let at = buffer.data as usize;
        let before = self.bytes.range(..=at).next_back();
        if let Some((start, bytes)) = before
            && let Some(found) = bytes
                .get(at - start..)
                .and_then(|rest| rest.get(..buffer.len))
        {
            return Ok(found);
        }
        self.check(buffer)?;
        self.asked.borrow_mut().bytes.push(buffer);
        Err(Fault::invalid("it is not fetched yet"))
    }

    /// How many of the bits are 0, if they were counted; else that is asked for.
    pub(super) fn zeros(&self, range: BitRange) -> Checked<usize> {
        if range.len == 0 {
            return Ok(0);
        }
        let key = (range.buffer.data as usize, range.first, range.len);
        if let Some(ones) = self.ones.get(&key) {
            return Ok(range.len - ones);
        }
        self.check(range.buffer)?;
        self.asked.borrow_mut().bits.push(range);
        Err(Fault::invalid("it is not counted yet"))
    }

    /// Makes sure that the buffer is what the producer says: a kernel that reads what is not there
    /// would end all work of this process on the device.
    pub(super) fn check(&self, buffer: BufferRef) -> Checked<()> {
        let address = buffer.data as u64;
        let mut asked = self.asked.borrow_mut();
        if !(asked.pointers.iter()).any(|pointer| pointer.contains(address, buffer.len)) {
            let pointer = Pointer::for_kernels(&self.device, address, buffer.len)?;
            asked.pointers.push(pointer);
        }
        Ok(())
    }

    /// Whether something was asked for.
    pub(super) fn is_waiting(&self) -> bool {
        let asked = self.asked.borrow();
        !asked.bytes.is_empty() || !asked.bits.is_empty()
    }

    /// Fetches what was asked for, on `stream`, and waits for it.
    ///
    /// # Safety
    ///
    /// The array lives, and nobody writes to it: the stream waits for whoever has.
    pub(super) unsafe fn fetch(&mut self, stream: &Arc<GpuStream>) -> Result<()> {
        let asked = self.asked.get_mut();
        let mut reads = Reads::default();
        let bytes: Vec<_> = (asked.bytes.drain(..))
            .map(|buffer| (buffer, reads.bytes(buffer.data as u64, buffer.len)))
            .collect();
        let bits: Vec<_> = (asked.bits.drain(..))
            .map(|range| {
                let address = range.buffer.data as u64;
                (range, reads.ones(address, range.first, range.len))
            })
            .collect();
        // SAFETY: every buffer was found in an allocation of the device (`check`); the caller
        // promises that it lives and stays as it is.
        let results = unsafe { reads.fetch(stream) }?.wait()?;
        for (buffer, slot) in bytes {
            let known = self.bytes.entry(buffer.data as usize).or_default();
            if known.len() < buffer.len {
                *known = results.bytes(slot).to_vec();
            }
        }
        for (range, slot) in bits {
            let key = (range.buffer.data as usize, range.first, range.len);
            let ones = usize::try_from(results.number(slot)).unwrap_or(usize::MAX);
            self.ones.insert(key, ones.min(range.len));
        }
        Ok(())
    }
}
