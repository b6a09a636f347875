//! Comparison of two arrays by value, to find out if a newly made dictionary is unchanged or has
//! grown (rule A3).

use super::bits::Bits;
use super::column::Column;
use super::fault::{Checked, Fault};
use super::plan::{CopyRuns, VIEW};
use crate::arrow::format::{Layout, offset_width};

/// Compares `rows` rows of two arrays of the same field by value. The value behind a null is
/// ignored. For dictionary-encoded children it compares the indices; the caller has compared the
/// dictionaries.
pub(super) fn equal(
    a: &Column<'_>,
    a_first: usize,
    b: &Column<'_>,
    b_first: usize,
    rows: usize,
) -> Checked<bool> {
    let (a_start, b_start) = (a.start(a_first, rows)?, b.start(b_first, rows)?);
    let (a_valid, b_valid) = (a.validity(a_start, rows)?, b.validity(b_start, rows)?);
    if a_valid.is_none() && b_valid.is_none() {
        return equal_values(a, a_start, b, b_start, rows);
    }
    let valid = |bits: &Option<Bits<'_>>, row| bits.as_ref().is_none_or(|bits| bits.get(row));
    let mut row = 0;
    while row < rows {
        let first = row;
        while row < rows && valid(&a_valid, row) && valid(&b_valid, row) {
            row += 1;
        }
        if !equal_values(a, a_start + first, b, b_start + first, row - first)? {
            return Ok(false);
        }
        if row < rows {
            if valid(&a_valid, row) != valid(&b_valid, row) {
                return Ok(false);
            }
            row += 1;
        }
    }
    Ok(true)
}

/// As [`equal`], for rows without nulls. `a_start` and `b_start` are positions in the buffers.
fn equal_values(
    a: &Column<'_>,
    a_start: usize,
    b: &Column<'_>,
    b_start: usize,
    rows: usize,
) -> Checked<bool> {
    if rows == 0 {
        return Ok(true);
    }
    match a.layout {
        Layout::Null => Ok(true),
        Layout::Boolean => {
            let ours = a.bits(1, "values", a_start, rows)?;
            Ok(ours.words().eq(b.bits(1, "values", b_start, rows)?.words()))
        }
        Layout::Fixed { width, .. } => {
            let ours = a.elements(1, "values", a_start, rows, width)?;
            Ok(ours == b.elements(1, "values", b_start, rows, width)?)
        }
        Layout::Binary { large, .. } => {
            let (a, b) = (Strings::of(a, large)?, Strings::of(b, large)?);
            all(rows, |row| {
                Ok(a.get(a_start + row)? == b.get(b_start + row)?)
            })
        }
        Layout::View { .. } => {
            let (a, b) = (Views::of(a)?, Views::of(b)?);
            all(rows, |row| {
                Ok(a.get(a_start + row)? == b.get(b_start + row)?)
            })
        }
        Layout::List { large } => {
            let width = offset_width(large);
            let (a_child, b_child) = (a.child(0)?, b.child(0)?);
            all(rows, |row| {
                let (a_first, a_end) = a.offset_range(a_start + row, 1, width)?;
                let (b_first, b_end) = b.offset_range(b_start + row, 1, width)?;
                let len = a_end - a_first;
                Ok(len == b_end - b_first && equal(&a_child, a_first, &b_child, b_first, len)?)
            })
        }
        Layout::ListView { large } => {
            let width = offset_width(large);
            let (a_child, b_child) = (a.child(0)?, b.child(0)?);
            all(rows, |row| {
                let a_len = a.offset_at(2, "sizes", a_start + row, width)?;
                let b_len = b.offset_at(2, "sizes", b_start + row, width)?;
                let a_first = a.offset_at(1, "offsets", a_start + row, width)?;
                let b_first = b.offset_at(1, "offsets", b_start + row, width)?;
                Ok(a_len == b_len && equal(&a_child, a_first, &b_child, b_first, a_len)?)
            })
        }
        Layout::FixedSizeList { size } => {
            let at = |start: usize| start.checked_mul(size).ok_or_else(super::checks::too_large);
            equal(
                &a.child(0)?,
                at(a_start)?,
                &b.child(0)?,
                at(b_start)?,
                at(rows)?,
            )
        }
        Layout::Struct => all(a.fields().len(), |index| {
            equal(&a.child(index)?, a_start, &b.child(index)?, b_start, rows)
        }),
        Layout::Union { dense } => equal_unions(a, a_start, b, b_start, rows, dense),
        Layout::RunEndEncoded => equal_runs(a, a_start, b, b_start, rows),
    }
}

fn equal_unions(
    a: &Column<'_>,
    a_start: usize,
    b: &Column<'_>,
    b_start: usize,
    rows: usize,
    dense: bool,
) -> Checked<bool> {
    let ids = a.bytes(0, "values", a_start, rows)?;
    if ids != b.bytes(0, "values", b_start, rows)? {
        return Ok(false);
    }
    all(rows, |row| {
        let index = a.union_child(ids[row])?;
        let place = |column: &Column<'_>, start: usize| match dense {
            true => column.offset_at(1, "offsets", start + row, 4),
            false => Ok(start + row),
        };
        let (a_first, b_first) = (place(a, a_start)?, place(b, b_start)?);
        equal(&a.child(index)?, a_first, &b.child(index)?, b_first, 1)
    })
}

/// Row by row, since equal values can be in different runs.
fn equal_runs(
    a: &Column<'_>,
    a_start: usize,
    b: &Column<'_>,
    b_start: usize,
    rows: usize,
) -> Checked<bool> {
    let (a_values, b_values) = (a.child(1)?, b.child(1)?);
    all(rows, |row| {
        let a_run = CopyRuns::of(a, a_start + row, 1)?.first;
        let b_run = CopyRuns::of(b, b_start + row, 1)?.first;
        equal(&a_values, a_run, &b_values, b_run, 1)
    })
}

/// True if `test` is true for every number below `count`.
fn all(count: usize, mut test: impl FnMut(usize) -> Checked<bool>) -> Checked<bool> {
    for index in 0..count {
        if !test(index)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The values of a column with offsets.
struct Strings<'a> {
    column: Column<'a>,
    width: usize,
    /// The end of the data.
    extent: usize,
}

impl<'a> Strings<'a> {
    fn of(column: &Column<'a>, large: bool) -> Checked<Self> {
        let width = offset_width(large);
        Ok(Self {
            column: *column,
            width,
            extent: column.extent(width)?,
        })
    }

    fn get(&self, row: usize) -> Checked<&'a [u8]> {
        let (first, end) = self.column.offset_range(row, 1, self.width)?;
        if end > self.extent {
            return Err(Fault::invalid(format!(
                "the offsets decrease, from {end} after row {row} to {} at the end",
                self.extent
            )));
        }
        self.column.bytes(2, "data", first, end - first)
    }
}

/// The values of a column with views.
struct Views<'a> {
    column: Column<'a>,
    lengths: Vec<usize>,
}

impl<'a> Views<'a> {
    fn of(column: &Column<'a>) -> Checked<Self> {
        Ok(Self {
            column: *column,
            lengths: column.variadic()?.collect::<Checked<_>>()?,
        })
    }

    fn get(&self, row: usize) -> Checked<&'a [u8]> {
        let view = self.column.elements(1, "values", row, 1, VIEW)?;
        let number = |at: usize| {
            let bytes = view.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            usize::try_from(bytes.map_or(-1, i32::from_ne_bytes)).ok()
        };
        let fault = || Fault::invalid(format!("the view of row {row} points outside its buffers"));
        let len = number(0).ok_or_else(fault)?;
        if len <= 12 {
            return view.get(4..4 + len).ok_or_else(fault);
        }
        let (index, offset) = (number(8).ok_or_else(fault)?, number(12).ok_or_else(fault)?);
        let room = self.lengths.get(index).ok_or_else(fault)?;
        if offset.checked_add(len).is_none_or(|end| end > *room) {
            return Err(fault());
        }
        self.column.bytes(index + 2, "variadic", offset, len)
    }
}
