//! Views: of the buffers that they point into, a slice sends what is its own.

use super::checks::too_large;
use super::column::Column;
use super::fault::Checked;
use super::plan::{Plan, VIEW, count, is_wasteful};
use crate::device::BufferRef;

/// Strings up to this length stand in their views.
const INLINE: u32 = 12;

/// Rows with more variadic bytes each are looked at: that costs an eighth of reading such long
/// strings at most, and a small slice of short ones has more.
const LOOK_FROM: usize = 128;

/// Where the number of the buffer and the offset stand in a view, behind the length.
const BUFFER: usize = 2;
const OFFSET: usize = 3;

/// The four numbers of a view. Negative ones become such as no buffer has.
#[inline(always)]
fn numbers(view: &[u8; VIEW]) -> [u32; 4] {
    let (numbers, _) = view.as_chunks::<4>();
    [0, 1, BUFFER, OFFSET].map(|at| u32::from_ne_bytes(numbers[at]))
}

/// Whether a string of this length lies in a buffer. A negative length is nobody's, and the row is
/// left alone.
#[inline(always)]
fn is_long(len: u32) -> bool {
    (INLINE + 1..1 << 31).contains(&len)
}

/// What is used of a variadic buffer.
#[derive(Clone, Copy)]
struct ViewPart {
    start: usize,
    end: usize,
}

impl ViewPart {
    const NONE: Self = Self {
        start: usize::MAX,
        end: 0,
    };

    fn len(self) -> usize {
        self.end.saturating_sub(self.start)
    }
}

/// What `views` point at in each buffer, of which there are `whole` bytes; `None` where one points
/// outside.
///
/// Short and long strings come in any order: a branch on which it is would be guessed wrong for
/// each second row. Strings of one buffer mostly follow each other.
fn pointed_at(
    views: &[[u8; VIEW]],
    whole: &[usize],
    is_valid: impl Fn(usize) -> bool,
) -> Option<Vec<ViewPart>> {
    let mut parts = vec![ViewPart::NONE; whole.len()];
    let (mut at, mut part) = (0, *parts.first()?);
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
            part = *parts.get(at)?;
        }
        let start = numbers[OFFSET] as usize;
        let end = start.saturating_add(numbers[0] as usize);
        part.start = part.start.min(if is_long { start } else { usize::MAX });
        part.end = part.end.max(if is_long { end } else { 0 });
    }
    parts[at] = part;
    // An offset that is negative ends behind all that a view can point at.
    let fits = |(part, whole): (&ViewPart, &usize)| part.end <= (*whole).min(1 << 31);
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
        if total / LOOK_FROM > rows && rows > 0 && column.memory().is_host() {
            self.narrow(column, start, rows, views, total)?;
        }
        Ok(())
    }

    /// Leaves out what lies before and after all that the rows point at in each variadic buffer, of
    /// which there are `total` bytes, where that is so much that it counts. The views, in the
    /// buffer at `views`, are then written anew. Views that point outside stay as they are, for a
    /// reader to find.
    #[inline(never)]
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
        let is_valid = |row: usize| validity.as_ref().is_none_or(|bits| bits.get(row));
        let buffers = &mut self.buffers[views + 1..];
        let whole: Vec<usize> = buffers.iter().map(|buffer| buffer.len).collect();
        let Some(parts) = pointed_at(old, &whole, is_valid) else {
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
                    // SAFETY: the part ends within the buffer, as seen above.
                    data: unsafe { buffer.data.add(part.start) },
                    len,
                },
            };
        }
        self.buffers[views] = self.scratch.fill(len, |target| {
            let (target, _) = target.as_chunks_mut::<VIEW>();
            // No more than any offset, which has four bytes; where there is none, nothing is taken
            // off.
            let start = |part: &ViewPart| u32::try_from(part.start).unwrap_or_default();
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
