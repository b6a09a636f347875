//! Reads of arrays on a GPU.
//!
//! The encoder needs a few numbers that lie on the device: last offsets, lengths of variadic
//! buffers, run ends, null counts. [`foresee`](super::foresee) requests most of them, and one fetch
//! ([`Reads`]) gets the data of all requests. If the encoder lacks data, it requests the data, and
//! starts again after the next fetch. Most batches need one fetch. If the last offset of a list is
//! not the length of its child, the child needs one more fetch. If a dictionary does not lie in the
//! memory of the one that was sent before, both are fetched whole and compared.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::bits::BitRange;
use super::fault::{Checked, Fault};
use crate::device::BufferRef;
use crate::device::gpu::{Gpu, GpuStream, Pointer, Reads};
use crate::error::Result;

/// The fetched data of one array on a device.
#[derive(Debug)]
pub(super) struct Remote {
    device: Arc<Gpu>,
    /// Fetched bytes, by address.
    bytes: BTreeMap<usize, Vec<u8>>,
    /// The number of 1 bits of a range: address, first bit, number of bits.
    ones: HashMap<(usize, usize, usize), usize>,
    requests: RefCell<Requests>,
}

/// The requests for the next fetch.
#[derive(Debug, Default)]
struct Requests {
    bytes: Vec<BufferRef>,
    bits: Vec<BitRange>,
    /// Allocations that the driver has confirmed.
    pointers: Vec<Pointer>,
}

impl Remote {
    /// An array on `device` without fetched data.
    pub(super) fn new(device: Arc<Gpu>) -> Self {
        Self {
            device,
            bytes: BTreeMap::new(),
            ones: HashMap::new(),
            requests: RefCell::default(),
        }
    }

    // Cold: this code stays outside of the code for host memory.
    /// The fetched bytes of a buffer. If they are missing, requests them and fails.
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
        self.requests.borrow_mut().bytes.push(buffer);
        Err(Fault::invalid("it is not fetched yet"))
    }

    /// The number of 0 bits of a range. If it is missing, requests it and fails.
    pub(super) fn zeros(&self, range: BitRange) -> Checked<usize> {
        if range.len == 0 {
            return Ok(0);
        }
        let key = (range.buffer.data as usize, range.first, range.len);
        if let Some(ones) = self.ones.get(&key) {
            return Ok(range.len - ones);
        }
        self.check(range.buffer)?;
        self.requests.borrow_mut().bits.push(range);
        Err(Fault::invalid("it is not counted yet"))
    }

    /// Checks that the buffer lies in memory of the device. A kernel that reads an invalid address
    /// would end all work of this process on the device.
    pub(super) fn check(&self, buffer: BufferRef) -> Checked<()> {
        let address = buffer.data as u64;
        let mut requests = self.requests.borrow_mut();
        if !(requests.pointers.iter()).any(|pointer| pointer.contains(address, buffer.len)) {
            let pointer = Pointer::for_kernels(&self.device, address, buffer.len)?;
            requests.pointers.push(pointer);
        }
        Ok(())
    }

    /// True if there are requests.
    pub(super) fn is_waiting(&self) -> bool {
        let requests = self.requests.borrow();
        !requests.bytes.is_empty() || !requests.bits.is_empty()
    }

    /// Fetches the requested data on `stream`, and waits for it.
    ///
    /// # Safety
    ///
    /// The array lives, and nobody writes to it once the stream's earlier work is done.
    pub(super) unsafe fn fetch(&mut self, stream: &Arc<GpuStream>) -> Result<()> {
        let requests = self.requests.get_mut();
        let mut reads = Reads::default();
        let bytes: Vec<_> = (requests.bytes.drain(..))
            .map(|buffer| (buffer, reads.bytes(buffer.data as u64, buffer.len)))
            .collect();
        let bits: Vec<_> = (requests.bits.drain(..))
            .map(|range| {
                let address = range.buffer.data as u64;
                (range, reads.ones(address, range.first, range.len))
            })
            .collect();
        // SAFETY: `check` found every buffer in an allocation of the device. The caller promises
        // that it lives and does not change.
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
