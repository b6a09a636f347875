//! Layouts whose rows point anywhere into the children: list views and dense unions. A slice sends
//! only the values that its rows use.

use std::ops::Range;

use super::checks::{signed, too_large};
use super::column::Column;
use super::fault::Checked;
use super::numbers::{all, rewrite};
use super::plan::{Plan, UNUSED, count, is_wasteful};

/// A list view's offsets are read if its child has more values than this for each row, since a row
/// costs as much time as a few values.
const LEAST_VALUES_PER_ROW: usize = 32;
/// The same for a dense union, where each row has one value.
const LEAST_MEMBERS_PER_ROW: usize = 4;

impl Plan {
    /// Adds a list view whose offsets and sizes have `width` bytes each.
    pub(super) fn list_views(
        &mut self,
        column: &Column<'_>,
        start: usize,
        rows: usize,
        width: usize,
    ) -> Checked<()> {
        self.buffers
            .push(column.values(1, "offsets", start, rows, width)?);
        let offsets = self.buffers.len() - 1;
        self.buffers
            .push(column.values(2, "sizes", start, rows, width)?);
        if !may_be_narrowed(column, rows, LEAST_VALUES_PER_ROW)? {
            return self.whole_children(column);
        }
        let sizes = column.elements(2, "sizes", start, rows, width)?;
        let old = column.elements(1, "offsets", start, rows, width)?;
        self.narrow_rows(column, offsets, old, width, |row| {
            let size = signed(sizes.get(row * width..(row + 1) * width)?);
            Some((0, usize::try_from(size).ok()?))
        })
    }

    /// Adds a dense union.
    pub(super) fn dense_union(
        &mut self,
        column: &Column<'_>,
        start: usize,
        rows: usize,
    ) -> Checked<()> {
        const WIDTH: usize = 4;
        self.buffers
            .push(column.values(0, "type ids", start, rows, 1)?);
        self.buffers
            .push(column.values(1, "offsets", start, rows, WIDTH)?);
        let offsets = self.buffers.len() - 1;
        if !may_be_narrowed(column, rows, LEAST_MEMBERS_PER_ROW)? {
            return self.whole_children(column);
        }
        let ids = column.bytes(0, "type ids", start, rows)?;
        let children = column.union_children();
        let old = column.elements(1, "offsets", start, rows, WIDTH)?;
        self.narrow_rows(column, offsets, old, WIDTH, |row| {
            Some((children[usize::from(*ids.get(row)?)]?, 1))
        })
    }

    fn whole_children(&mut self, column: &Column<'_>) -> Checked<()> {
        lengths(column)
            .enumerate()
            .try_for_each(|(index, len)| self.child(column, index, 0, len?))
    }

    /// Adds only the used parts of the children, with new offsets at `at`, if the unused parts are
    /// longer. `points` returns the child of a row and the number of its values, which begin at the
    /// row's offset in `old`. If a row points outside of a child, all stays unchanged, and a reader
    /// finds the fault.
    #[inline(never)]
    fn narrow_rows(
        &mut self,
        column: &Column<'_>,
        at: usize,
        old: &[u8],
        width: usize,
        points: impl Fn(usize) -> Option<(usize, usize)>,
    ) -> Checked<()> {
        let whole = lengths(column).collect::<Checked<Vec<usize>>>()?;
        let total: usize = whole.iter().sum();
        let parts = used_ranges(&whole, old, width, &points).filter(|parts| {
            let own: usize = parts.iter().map(ExactSizeIterator::len).sum();
            is_wasteful(total - own, total)
        });
        let Some(parts) = parts else {
            return self.whole_children(column);
        };
        let starts = parts.iter().map(|part| count(part.start));
        let starts = starts.collect::<Checked<Vec<i64>>>()?;
        self.buffers[at] = self.scratch.fill(old.len(), |target| {
            rewrite(target, old, width, |row, offset| match points(row) {
                Some((child, 1..)) => offset - starts[child],
                _ => 0, // A row without values may point anywhere.
            });
        })?;
        let mut parts = parts.iter().enumerate();
        parts.try_for_each(|(index, part)| self.child(column, index, part.start, part.len()))
    }
}

/// The number of values of each child.
fn lengths(column: &Column<'_>) -> impl Iterator<Item = Checked<usize>> {
    (0..column.fields().len()).map(|index| Ok(column.child(index)?.len))
}

/// True if the children may have many more values than `rows` rows need. False on a GPU, where the
/// processor does not read the offsets.
fn may_be_narrowed(column: &Column<'_>, rows: usize, least_per_row: usize) -> Checked<bool> {
    let total = lengths(column).try_fold(0, |sum: usize, len| {
        sum.checked_add(len?).ok_or_else(too_large)
    })?;
    Ok(is_wasteful(total, total) && total / least_per_row > rows && column.memory().is_host())
}

/// The range of each child that rows point at. `whole` has the children's lengths. `None` if a row
/// points outside of its child.
fn used_ranges(
    whole: &[usize],
    offsets: &[u8],
    width: usize,
    points: impl Fn(usize) -> Option<(usize, usize)>,
) -> Option<Vec<Range<usize>>> {
    let mut parts = vec![UNUSED; whole.len()];
    all(offsets, width, |row, offset| {
        let (child, len) = points(row)?;
        if len > 0 {
            let start = usize::try_from(offset).ok()?;
            let end = start.checked_add(len).filter(|end| *end <= whole[child])?;
            let part = &mut parts[child];
            *part = part.start.min(start)..part.end.max(end);
        }
        Some(())
    })?;
    let or_none = |part: Range<usize>| if part.is_empty() { 0..0 } else { part };
    Some(parts.into_iter().map(or_none).collect())
}
