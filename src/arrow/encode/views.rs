//! Views: of the buffers that they point into, a slice sends what is its own.

use std::ops::Range;

use super::column::{Column, too_large};
use super::fault::Checked;
use super::plan::{Plan, VIEW, count, is_wasteful};
use crate::device::BufferRef;

/// Strings up to this length stand in their views.
const INLINE: usize = 12;

/// Rows with more variadic bytes each are looked at: that costs an eighth of reading such long strings at most, and
/// a small slice of short ones has more.
const LOOK_FROM: usize = 128;

/// A part of the variadic buffer at `buffer` that a view points at.
struct Long {
    buffer: usize,
    start: usize,
    end: usize,
}

/// Where the number of the buffer and the offset stand in a view.
const BUFFER: usize = 8;
const OFFSET: usize = 12;

impl Long {
    /// `None`: the string stands in the view. Negative numbers become such as no buffer has.
    fn of(view: &[u8; VIEW]) -> Option<Self> {
        let number = |at: usize| {
            let (numbers, _) = view.as_chunks();
            usize::try_from(i32::from_ne_bytes(numbers[at / 4])).unwrap_or(usize::MAX)
        };
        let len = number(0);
        let start = number(OFFSET);
        (len > INLINE).then(|| Self {
            buffer: number(BUFFER),
            start,
            end: start.saturating_add(len),
        })
    }
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
        if total / LOOK_FROM > rows && rows > 0 && column.memory().is_host() {
            self.narrow(column, start, rows, views, total)?;
        }
        Ok(())
    }

    /// Leaves out what lies before and after all that the rows point at in each variadic buffer, of which
    /// there are `total` bytes, where that is so much that it counts. The views, in the buffer at `views`, are
    /// then written anew. Views that point outside stay as they are, for a reader to find.
    #[cold]
    fn narrow(
        &mut self,
        column: &Column<'_>,
        start: usize,
        rows: usize,
        views: usize,
        total: usize,
    ) -> Checked<()> {
        let skip = start.checked_mul(VIEW).ok_or_else(too_large)?;
        let len = rows.checked_mul(VIEW).ok_or_else(too_large)?;
        let (old, _) = column.bytes(1, "views", skip, len)?.as_chunks();
        let validity = column.validity(start, rows)?;
        // What a view of a null is nobody has to say.
        let long = |row: usize, view: &[u8; VIEW]| {
            let is_valid = validity.as_ref().is_none_or(|bits| bits.get(row));
            is_valid.then(|| Long::of(view)).flatten()
        };
        let buffers = &mut self.buffers[views + 1..];
        let none = Range {
            start: usize::MAX,
            end: 0,
        };
        let mut parts = vec![none; buffers.len()];
        for (row, view) in old.iter().enumerate() {
            let Some(long) = long(row, view) else {
                continue;
            };
            match parts.get_mut(long.buffer) {
                Some(part) if long.end <= buffers[long.buffer].len => {
                    part.start = part.start.min(long.start);
                    part.end = part.end.max(long.end);
                }
                _ => return Ok(()),
            }
        }
        let own: usize = parts.iter().map(ExactSizeIterator::len).sum();
        if !is_wasteful(total - own, total) {
            return Ok(());
        }
        for (buffer, part) in buffers.iter_mut().zip(&parts) {
            *buffer = match part.len() {
                0 => BufferRef::EMPTY,
                len => BufferRef {
                    // SAFETY: the part ends within the buffer, as seen above.
                    data: unsafe { buffer.data.add(part.start) },
                    len,
                },
            };
        }
        self.buffers[views] = self.scratch.fill(len, |target| {
            let (target, _) = target.as_chunks_mut::<VIEW>();
            for (row, (target, view)) in target.iter_mut().zip(old).enumerate() {
                *target = *view;
                if let Some(long) = long(row, view) {
                    // Not more than the offset that stood there, which has four bytes.
                    let offset = long.start - parts[long.buffer].start;
                    target[OFFSET..].copy_from_slice(&offset.to_le_bytes()[..4]);
                } else if Long::of(view).is_some() {
                    *target = [0; VIEW]; // Of a null.
                }
            }
        })?;
        Ok(())
    }
}
