//! Views: a slice sends only the parts of the variadic buffers that its rows use.

use std::ops::Range;

use super::column::Column;
use super::fault::Checked;
use super::plan::{Plan, UNUSED, VIEW, count, is_wasteful};
use crate::device::BufferRef;

/// Strings up to this length are stored in their views.
const INLINE: u32 = 12;

/// Views are read if there are more variadic bytes than this for each row. The views are then at
/// most an eighth of the strings.
const LEAST_BYTES_PER_ROW: usize = 128;

/// The positions of the buffer number and the offset in a view, after the length and a prefix.
const BUFFER: usize = 2;
const OFFSET: usize = 3;

/// The four numbers of a view. A negative number becomes too large for any buffer.
#[inline(always)]
fn numbers(view: &[u8; VIEW]) -> [u32; 4] {
    let (numbers, _) = view.as_chunks::<4>();
    [0, 1, BUFFER, OFFSET].map(|at| u32::from_ne_bytes(numbers[at]))
}

/// True if a string of this length lies in a buffer. False for a negative length, whose row stays
/// unchanged.
#[inline(always)]
fn is_long(len: u32) -> bool {
    (INLINE + 1..1 << 31).contains(&len)
}

/// The used part of each buffer. `whole` has the buffers' lengths. `None` if a view points outside
/// of its buffer.
///
/// Short and long strings come in any order, so the loop avoids a branch on the length, which the
/// processor would often predict wrongly. Successive strings are mostly in one buffer.
fn used_ranges(
    views: &[[u8; VIEW]],
    whole: &[usize],
    is_valid: impl Fn(usize) -> bool,
) -> Option<Vec<Range<usize>>> {
    let mut parts = vec![UNUSED; whole.len()];
    let (mut at, mut part) = (0, parts.first()?.clone());
    for (row, view) in views.iter().enumerate() {
        let numbers = numbers(view);
        let is_long = is_long(numbers[0]) & is_valid(row);
        let buffer = if is_long {
            numbers[BUFFER] as usize
        } else {
            at
        };
        if buffer != at {
            parts[at] = part;
            at = buffer;
            part = parts.get(at)?.clone();
        }
        let start = numbers[OFFSET] as usize;
        let end = start.saturating_add(numbers[0] as usize);
        part.start = part.start.min(if is_long { start } else { usize::MAX });
        part.end = part.end.max(if is_long { end } else { 0 });
    }
    parts[at] = part;
    // The end of a negative offset is above the limit of offsets.
    let fits = |(part, whole): (&Range<usize>, &usize)| part.end <= (*whole).min(1 << 31);
    parts.iter().zip(whole).all(fits).then_some(parts)
}

impl Plan {
    #[inline]
    pub(super) fn views(&mut self, column: &Column<'_>, start: usize, rows: usize) -> Checked<()> {
        self.buffers
            .push(column.values(1, "views", start, rows, VIEW)?);
        let views = self.buffers.len() - 1;
        let lengths = column.variadic()?;
        self.variadic.push(count(lengths.len())?);
        let mut total: usize = 0;
        for (index, len) in lengths.enumerate() {
            let len = len?;
            total = total.saturating_add(len);
            self.buffers
                .push(column.buffer(index + 2, "variadic", 0, len)?);
        }
        if total / LEAST_BYTES_PER_ROW > rows && rows > 0 && column.memory().is_host() {
            self.narrow(column, start, rows, views, total)?;
        }
        Ok(())
    }

    /// Sends only the used parts of the variadic buffers, which have `total` bytes, if the unused
    /// parts are long enough. The views, in the buffer at `views`, are then written anew. If a view
    /// points outside, all stays unchanged, and a reader finds the fault.
    #[inline(never)]
    fn narrow(
        &mut self,
        column: &Column<'_>,
        start: usize,
        rows: usize,
        views: usize,
        total: usize,
    ) -> Checked<()> {
        let (old, _) = column.elements(1, "views", start, rows, VIEW)?.as_chunks();
        let validity = column.validity(start, rows)?;
        // The view of a null has no defined content.
        let is_valid = |row: usize| validity.as_ref().is_none_or(|bits| bits.get(row));
        let buffers = &mut self.buffers[views + 1..];
        let whole: Vec<usize> = buffers.iter().map(|buffer| buffer.len).collect();
        let Some(parts) = used_ranges(old, &whole, is_valid) else {
            return Ok(());
        };
        let own: usize = parts.iter().map(|part| part.len()).sum();
        if !is_wasteful(total - own, total) {
            return Ok(());
        }
        for (buffer, part) in buffers.iter_mut().zip(&parts) {
            *buffer = match part.len() {
                0 => BufferRef::EMPTY,
                len => BufferRef {
                    // SAFETY: the part ends within the buffer, as `used_ranges` has checked.
                    data: unsafe { buffer.data.add(part.start) },
                    len,
                },
            };
        }
        self.buffers[views] = self.scratch.fill(old.len() * VIEW, |target| {
            let (target, _) = target.as_chunks_mut::<VIEW>();
            // At most the offsets' maximum of four bytes. For an unused buffer the start does not
            // matter.
            let start = |part: &Range<usize>| u32::try_from(part.start).unwrap_or_default();
            let starts: Vec<u32> = parts.iter().map(start).collect();
            for (row, (target, old)) in target.iter_mut().zip(old).enumerate() {
                let numbers = numbers(old);
                let start = starts.get(numbers[BUFFER] as usize).copied().unwrap_or(0);
                let before = if is_long(numbers[0]) { start } else { 0 };
                let offset = numbers[OFFSET].wrapping_sub(before);
                *target = *old;
                target[OFFSET * 4..].copy_from_slice(&offset.to_ne_bytes());
                if !is_valid(row) {
                    *target = [0; VIEW];
                }
            }
        })?;
        Ok(())
    }
}
