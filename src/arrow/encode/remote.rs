//! Arrays on a GPU: what the encoder reads of them is fetched, and what it writes goes there.
//!
//! Encoding a batch needs a few numbers that lie on the device: last offsets, lengths of variadic
//! buffers, run ends, null counts. Before the first try all that can be foreseen is asked for and
//! fetched at once ([`gather`](crate::device::gpu::Reads)); a try that finds something missing
//! asks for that, and comes again. Most batches take one round; a list whose last offset is not
//! its child's length takes one more for the child, and a dictionary that was made anew is fetched
//! whole to be compared.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::column::Column;
use super::dictionaries::FoundDictionary;
use super::fault::{Checked, Fault};
use super::memory::BitRange;
use super::plan::{CopyRuns, VIEW, offset_width};
use crate::arrow::format::Layout;
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

/// Asks for what encoding the batch will read, as far as that can be foreseen.
pub(super) fn foresee(batch: &Column<'_>, found: &[FoundDictionary<'_>]) {
    rows(batch, 0, batch.len);
    for this in found {
        rows(&this.values, 0, this.values.len);
    }
}

/// Asks for what encoding some rows of a column will read. Reading is asking: what is already known
/// leads further, and what fails will fail again where it is told.
fn rows(column: &Column<'_>, first: usize, count: usize) {
    let Ok(start) = column.start(first, count) else {
        return;
    };
    let _ = column.null_count(start, count);
    let child = |index: usize, first: usize, count: usize| {
        if let Ok(child) = column.child(index) {
            rows(&child, first, count);
        }
    };
    let all = |index: usize| {
        if let Ok(child) = column.child(index) {
            rows(&child, 0, child.len);
        }
    };
    match column.layout {
        Layout::Null | Layout::Boolean | Layout::Fixed { .. } => {}
        Layout::Binary { large } => {
            ends(column, start, count, offset_width(large));
        }
        Layout::View => {
            let _ = column.variadic();
        }
        Layout::List { large } => match ends(column, start, count, offset_width(large)) {
            Some(last) => child(0, 0, last),
            // Mostly the last offset is the child's length.
            None => all(0),
        },
        Layout::ListView { .. } => all(0),
        Layout::FixedSizeList { size } => {
            if let (Some(first), Some(count)) = (start.checked_mul(size), count.checked_mul(size)) {
                child(0, first, count);
            }
        }
        Layout::Struct | Layout::Union { dense: false } => {
            (0..column.fields().len()).for_each(|index| child(index, start, count));
        }
        Layout::Union { dense: true } => (0..column.fields().len()).for_each(all),
        Layout::RunEndEncoded => {
            if let Ok(ends) = column.child(0) {
                values(&ends);
                rows(&ends, 0, ends.len);
            }
            match CopyRuns::of(column, start, count) {
                Ok(runs) => child(1, runs.first, runs.count),
                Err(_) => all(1),
            }
        }
    }
}

/// The first and the last offset of some rows; the last one where both are known.
fn ends(column: &Column<'_>, start: usize, count: usize, width: usize) -> Option<usize> {
    if count == 0 {
        return Some(0);
    }
    let first = column.offset_at(1, "offsets", start, width);
    let last = column.offset_at(1, "offsets", start.checked_add(count)?, width);
    first.and(last).ok()
}

/// All values of a column of fixed width.
fn values(column: &Column<'_>) {
    if let Layout::Fixed { width } = column.layout
        && let Ok(start) = column.start(0, column.len)
        && let (Some(skip), Some(len)) = (start.checked_mul(width), column.len.checked_mul(width))
    {
        let _ = column.bytes(1, "values", skip, len);
    }
}

/// Asks for everything that an array has, to be compared.
pub(super) fn whole(column: &Column<'_>) {
    let Ok(start) = column.start(0, column.len) else {
        return;
    };
    let len = column.len;
    let _ = column.validity(start, len);
    let part = |index: usize, count: usize, width: usize| {
        if let (Some(skip), Some(len)) = (start.checked_mul(width), count.checked_mul(width)) {
            let _ = column.bytes(index, "values", skip, len);
        }
    };
    match column.layout {
        Layout::Boolean => {
            let _ = column.bits(1, "values", start, len);
        }
        Layout::Fixed { .. } => values(column),
        Layout::Binary { large } if len > 0 => {
            part(1, len + 1, offset_width(large));
            if let Ok(extent) = column.extent(offset_width(large)) {
                let _ = column.bytes(2, "data", 0, extent);
            }
        }
        Layout::View => {
            part(1, len, VIEW);
            for (index, len) in column.variadic().into_iter().flatten().enumerate() {
                if let Ok(len) = len {
                    let _ = column.bytes(index + 2, "variadic", 0, len);
                }
            }
        }
        Layout::List { large } if len > 0 => part(1, len + 1, offset_width(large)),
        Layout::ListView { large } => {
            part(1, len, offset_width(large));
            part(2, len, offset_width(large));
        }
        Layout::Union { dense } => {
            part(0, len, 1);
            if dense {
                part(1, len, 4);
            }
        }
        _ => {}
    }
    for index in 0..column.fields().len() {
        if let Ok(child) = column.child(index) {
            whole(&child);
        }
    }
}
