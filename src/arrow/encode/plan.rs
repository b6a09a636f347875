//! The nodes and buffers of a record batch: the layout of rule A2, which depends on the array only.

use std::ops::Range;

use super::bits::{BitRange, Bits};
use super::checks::too_large;
use super::column::Column;
use super::fault::{Checked, Fault};
use super::numbers::rewrite;
use super::pair::Pair;
use super::scratch::Scratch;
use crate::arrow::format::{Layout, offset_width};
use crate::device::BufferRef;
use crate::device::gpu::Shifts;

/// The body of one message, in the order of the IPC format.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// One for each field, depth first.
    pub(super) nodes: Vec<Pair>,
    /// The nodes of lists whose children are sent with values that no row of the list uses.
    pub(super) with_unused: Vec<usize>,
    /// The buffers, with empty ones.
    pub(super) buffers: Vec<BufferRef>,
    /// The number of variadic buffers of each view field.
    pub(super) variadic: Vec<i64>,
    /// Memory for buffers that the encoder writes.
    pub(super) scratch: Scratch,
    /// Bitmaps that a GPU aligns. For each, `shifted` has its buffer's index and its offset.
    pub(super) shifts: Shifts,
    pub(super) shifted: Vec<(usize, usize)>,
}

/// Up to this many unused bytes, or values of a list, before a slice's own are sent too, so that
/// the slice needs no new offsets.
const MOST_UNUSED: usize = 4096;

/// The offsets of an array without rows.
pub(super) static ZERO_OFFSET: u64 = 0;

impl Plan {
    /// Removes all content, and keeps the memory of the lists.
    pub(super) fn clear(&mut self) {
        self.nodes.clear();
        self.with_unused.clear();
        self.buffers.clear();
        self.variadic.clear();
        self.scratch = Scratch::default();
        if !self.shifts.is_empty() {
            self.shifts = Shifts::default();
            self.shifted.clear();
        }
    }

    /// Adds `rows` rows of a column, from `first` on (rule A7).
    pub(super) fn add(&mut self, column: &Column<'_>, first: usize, rows: usize) -> Checked<()> {
        let start = column.start(first, rows)?;
        if column.has_no_nulls() {
            self.nodes.push(Pair(rows as u64, 0));
            // Rule A2: a null count of 0 means no bitmap.
            self.buffers.push(BufferRef::EMPTY);
        } else {
            let nulls = column.null_count(start, rows)?;
            self.nodes.push(Pair(rows as u64, nulls as u64));
            if column.layout.has_validity() {
                let bitmap = match column.validity_range(start, rows)? {
                    Some(range) if nulls > 0 => self.bitmap(column, range)?,
                    _ => BufferRef::EMPTY,
                };
                self.buffers.push(bitmap);
            }
        }
        match column.layout {
            Layout::Null => Ok(()),
            Layout::Boolean => {
                let range = column.bit_range(1, "values", start, rows)?;
                let bitmap = self.bitmap(column, range)?;
                self.buffers.push(bitmap);
                Ok(())
            }
            Layout::Fixed { width, .. } => {
                self.buffers
                    .push(column.values(1, "values", start, rows, width)?);
                Ok(())
            }
            Layout::Binary { large, .. } => self.binary(column, start, rows, offset_width(large)),
            Layout::View { .. } => self.views(column, start, rows),
            Layout::List { large } => self.list(column, start, rows, offset_width(large)),
            Layout::ListView { large } => self.list_views(column, start, rows, offset_width(large)),
            Layout::FixedSizeList { size } => {
                let first = start.checked_mul(size).ok_or_else(too_large)?;
                let rows = rows.checked_mul(size).ok_or_else(too_large)?;
                self.child(column, 0, first, rows)
            }
            Layout::Struct => self.children(column, start, rows),
            Layout::Union { dense: true } => self.dense_union(column, start, rows),
            Layout::Union { dense: false } => {
                self.buffers
                    .push(column.values(0, "type ids", start, rows, 1)?);
                self.children(column, start, rows)
            }
            Layout::RunEndEncoded => self.runs(column, start, rows),
        }
    }

    #[inline]
    pub(super) fn child(
        &mut self,
        column: &Column<'_>,
        index: usize,
        first: usize,
        rows: usize,
    ) -> Checked<()> {
        let child = column.child(index)?;
        self.add(&child, first, rows)
            .map_err(|fault| fault.inside(column.child_name(index)))
    }

    /// Adds the same rows of every child.
    pub(super) fn children(
        &mut self,
        column: &Column<'_>,
        start: usize,
        rows: usize,
    ) -> Checked<()> {
        (0..column.fields().len()).try_for_each(|index| self.child(column, index, start, rows))
    }

    /// Rule A2: a bitmap begins at bit 0. Copies the bitmap if it does not. The caller must push
    /// the result as the next buffer.
    fn bitmap(&mut self, column: &Column<'_>, range: BitRange) -> Checked<BufferRef> {
        if range.first == 0 {
            return Ok(range.buffer);
        }
        let len = range.len.div_ceil(8);
        if let Some(remote) = column.memory().as_remote() {
            // The device aligns the bitmap, with the others of the batch.
            remote.check(range.buffer)?;
            let at = self
                .shifts
                .add(range.buffer.data as u64, range.first, range.len);
            self.shifted.push((self.buffers.len(), at));
            let data = range.buffer.data;
            return Ok(BufferRef { data, len });
        }
        // SAFETY: the buffer is a part of the column's memory.
        let bytes = unsafe { column.memory().read(range.buffer) }?;
        let bits = Bits::new(bytes, range.first, range.len);
        let copy = self.scratch.fill(len, |target| {
            let (words, rest) = target.as_chunks_mut::<8>();
            let mut bits = bits.words();
            // Bit 0 is the lowest bit of the first byte, on every processor.
            for (target, word) in words.iter_mut().zip(&mut bits) {
                *target = word.to_le_bytes();
            }
            let last = bits.next().unwrap_or_default().to_le_bytes();
            rest.copy_from_slice(&last[..rest.len()]);
        })?;
        Ok(copy)
    }

    /// Adds the offsets unchanged, and returns the first and the last. A producer may omit the
    /// offsets of an array without rows, but readers require one.
    fn offsets(
        &mut self,
        column: &Column<'_>,
        start: usize,
        rows: usize,
        width: usize,
    ) -> Checked<(usize, usize)> {
        if rows == 0 {
            let data = (&raw const ZERO_OFFSET).cast();
            self.buffers.push(BufferRef { data, len: width });
            return Ok((0, 0));
        }
        let count = rows.checked_add(1).ok_or_else(too_large)?;
        self.buffers
            .push(column.values(1, "offsets", start, count, width)?);
        column.offset_range(start, rows, width)
    }

    /// Replaces the offsets that were added last by offsets that start at 0. `low` is the first of
    /// the old offsets.
    #[inline(never)]
    fn move_offsets(
        &mut self,
        column: &Column<'_>,
        start: usize,
        rows: usize,
        width: usize,
        low: usize,
    ) -> Checked<()> {
        let old = column.bytes(1, "offsets", start * width, (rows + 1) * width)?;
        let low = count(low)?;
        let moved = self.scratch.fill(old.len(), |target| {
            rewrite(target, old, width, |_, offset| offset.wrapping_sub(low));
        })?;
        self.buffers.pop();
        self.buffers.push(moved);
        Ok(())
    }

    fn binary(
        &mut self,
        column: &Column<'_>,
        start: usize,
        rows: usize,
        width: usize,
    ) -> Checked<()> {
        let (low, high) = self.offsets(column, start, rows, width)?;
        let data = if moves_offsets(column, low, high) {
            self.move_offsets(column, start, rows, width, low)?;
            column.buffer(2, "data", low, high - low)?
        } else {
            // Rule A2: the offsets do not start at 0, so the body contains the bytes from 0 on.
            column.buffer(2, "data", 0, high)?
        };
        self.buffers.push(data);
        Ok(())
    }

    /// Adds the rows of a dictionary from `first` on, as a delta. Byte strings get offsets that
    /// start at 0, because a delta with all earlier bytes would save nothing.
    pub(super) fn add_tail(&mut self, column: &Column<'_>, first: usize) -> Checked<()> {
        let rows = column.len - first;
        let Layout::Binary { large, .. } = column.layout else {
            return self.add(column, first, rows);
        };
        let width = offset_width(large);
        let start = column.start(first, rows)?;
        self.add(column, first, rows)?;
        if rows == 0 {
            return Ok(());
        }
        let (low, high) = column.offset_range(start, rows, width)?;
        if moves_offsets(column, low, high) {
            return Ok(()); // The offsets start at 0 already.
        }
        let data = column.buffer(2, "data", low, high - low)?;
        self.buffers.pop();
        self.move_offsets(column, start, rows, width, low)?;
        self.buffers.push(data);
        Ok(())
    }

    fn list(
        &mut self,
        column: &Column<'_>,
        start: usize,
        rows: usize,
        width: usize,
    ) -> Checked<()> {
        let (low, high) = self.offsets(column, start, rows, width)?;
        if moves_offsets(column, low, high) {
            self.move_offsets(column, start, rows, width, low)?;
            return self.child(column, 0, low, high - low);
        }
        if low > 0 {
            self.with_unused.push(self.nodes.len() - 1);
        }
        self.child(column, 0, 0, high)
    }

    /// Adds the runs that the rows touch, with run ends that count from the first row.
    fn runs(&mut self, column: &Column<'_>, start: usize, rows: usize) -> Checked<()> {
        let CopyRuns {
            first,
            count: runs,
            exact,
            width,
        } = CopyRuns::of(column, start, rows)?;
        let name = column.child_name(0);
        if start == 0 && exact {
            self.child(column, 0, first, runs)?;
        } else {
            let ends = column.child(0)?;
            let rewritten = self.run_ends(&ends, first, runs, width, start, rows);
            let rewritten = rewritten.map_err(|fault| fault.inside(name))?;
            self.nodes.push(Pair(runs as u64, 0));
            self.buffers.extend([BufferRef::EMPTY, rewritten]);
        }
        self.child(column, 1, first, runs)
    }

    fn run_ends(
        &mut self,
        ends: &Column<'_>,
        first: usize,
        runs: usize,
        width: usize,
        start: usize,
        rows: usize,
    ) -> Checked<BufferRef> {
        let old = ends.elements(1, "values", ends.start(first, runs)?, runs, width)?;
        let (start, rows) = (count(start)?, count(rows)?);
        let mut before = 0;
        let mut fault = None;
        let copy = self.scratch.fill(old.len(), |target| {
            rewrite(target, old, width, |_, end| {
                let end = end.saturating_sub(start).min(rows);
                if end <= before {
                    fault = Some(Fault::invalid("the run ends do not increase"));
                }
                before = end;
                // The end is positive and not above the old end, so its low bytes are enough.
                end
            });
        })?;
        fault.map_or(Ok(copy), Err)
    }
}

/// Bytes of a view.
pub(super) const VIEW: usize = 16;

/// The runs that some rows touch.
pub(super) struct CopyRuns {
    /// The index of the first run.
    pub(super) first: usize,
    /// The number of runs.
    pub(super) count: usize,
    /// True if the last run ends with the last row.
    pub(super) exact: bool,
    /// Bytes of a run end.
    pub(super) width: usize,
}

impl CopyRuns {
    /// The runs of `rows` rows from `start` on. `column` is run-end encoded.
    pub(super) fn of(column: &Column<'_>, start: usize, rows: usize) -> Checked<Self> {
        let name = column.child_name(0);
        let inside = |fault: Box<Fault>| fault.inside(name);
        let ends = column.child(0)?;
        let Layout::Fixed { width, .. } = ends.layout else {
            return Err(inside(Fault::invalid("run ends must be integers")));
        };
        if ends
            .null_count(ends.start(0, ends.len)?, ends.len)
            .map_err(inside)?
            > 0
        {
            return Err(inside(Fault::invalid("run ends must not be null")));
        }
        if rows == 0 {
            return Ok(Self {
                first: 0,
                count: 0,
                exact: true,
                width,
            });
        }
        let end = start.checked_add(rows).ok_or_else(too_large)?;
        let base = ends.start(0, ends.len)?;
        let at = |run: usize| {
            ends.offset_at(1, "values", base + run, width)
                .map_err(inside)
        };
        // The number of runs that end at or before `row`; run ends increase.
        let before = |row: usize| -> Checked<usize> {
            let (mut low, mut high) = (0, ends.len);
            while low < high {
                let middle = low + (high - low) / 2;
                if at(middle)? <= row {
                    low = middle + 1
                } else {
                    high = middle
                }
            }
            Ok(low)
        };
        let (first, last) = (before(start)?, before(end - 1)?);
        if last >= ends.len {
            return Err(inside(Fault::invalid(format!(
                "the last run ends before row {end}, which the array has"
            ))));
        }
        if last < first {
            return Err(inside(Fault::invalid("the run ends do not increase")));
        }
        Ok(Self {
            first,
            count: last - first + 1,
            exact: at(last)? == end,
            width,
        })
    }
}

/// True if a slice with offsets from `low` to `high` gets new offsets. On a GPU it keeps its
/// offsets, because the processor does not write there.
#[inline]
fn moves_offsets(column: &Column<'_>, low: usize, high: usize) -> bool {
    is_wasteful(low, high) && column.memory().is_host()
}

/// True if the unused part of 0 to `low` is longer than the used part from `low` to `high`, and
/// longer than `MOST_UNUSED`. Offsets or views are then written anew, a few bytes for each row.
#[inline]
pub(super) fn is_wasteful(low: usize, high: usize) -> bool {
    low > (high - low).max(MOST_UNUSED)
}

/// The used range of a buffer or child that no row uses; it grows with the rows that do.
pub(super) const UNUSED: Range<usize> = Range {
    start: usize::MAX,
    end: 0,
};

/// A count in the IPC format.
pub(super) fn count(value: usize) -> Checked<i64> {
    i64::try_from(value).map_err(|_| too_large())
}
