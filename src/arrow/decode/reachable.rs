//! The reachable values of a child: a non-null, reachable row of the parent refers to them. Other
//! values may be invalid.

use std::cell::OnceCell;
use std::ops::Range;

use crate::arrow::decode::budget::DecodeBudget;
use crate::arrow::decode::children::run_end;
use crate::arrow::decode::columns::{Columns, Node};
use crate::arrow::decode::counted::CountedList;
use crate::arrow::decode::field::DecodedField;
use crate::arrow::decode::plain::Plain;
use crate::arrow::format::{Layout, Type};
use crate::error::Result;

/// The path from the root to a child of an array. All data on the path was checked before, and is
/// private.
pub(super) struct Ancestors<'a> {
    /// `None` if the array is the root.
    pub(super) parent: Option<&'a Ancestors<'a>>,
    /// The array that the child belongs to.
    pub(super) field: &'a DecodedField,
    pub(super) id: usize,
    /// The index of the child.
    pub(super) child: usize,
    /// The reachable ranges of the child, in order and not empty, if its parent refers to values in
    /// any order.
    ranges: OnceCell<Vec<Range<usize>>>,
    budget: &'a DecodeBudget<'a>,
}

impl<'a> Ancestors<'a> {
    pub(super) fn new(
        parent: Option<&'a Ancestors<'a>>,
        field: &'a DecodedField,
        id: usize,
        child: usize,
        budget: &'a DecodeBudget<'a>,
    ) -> Self {
        Self {
            parent,
            field,
            id,
            child,
            ranges: OnceCell::new(),
            budget,
        }
    }

    /// True if one of these values of the child is reachable.
    pub(super) fn is_reachable(&self, columns: &Columns, rows: Range<usize>) -> Result<bool> {
        if rows.is_empty() {
            return Ok(false);
        }
        let node = &columns.nodes[self.id];
        match self.field.layout {
            Layout::FixedSizeList { size: 0 } => Ok(false),
            Layout::FixedSizeList { size } => {
                self.any_row(columns, node, rows.start / size..rows.end.div_ceil(size))
            }
            Layout::List { large: false } => self.any_list::<i32>(columns, node, rows),
            Layout::List { large: true } => self.any_list::<i64>(columns, node, rows),
            Layout::ListView { large: false } => {
                self.any_in_ranges(rows, || self.list_views::<i32>(columns, node))
            }
            Layout::ListView { large: true } => {
                self.any_in_ranges(rows, || self.list_views::<i64>(columns, node))
            }
            Layout::Union { dense: true } => {
                self.any_in_ranges(rows, || self.union_values(columns, node))
            }
            Layout::Union { dense: false } => {
                let types = columns.slice::<i8>(node.buffer(0), node.len()?)?;
                for row in rows {
                    if types.get(row) == self.type_id().as_ref()
                        && self.any_row(columns, node, row..row + 1)?
                    {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Layout::RunEndEncoded if self.child == 1 => {
                let ends = columns.child(node, 0);
                let end = |run: Option<usize>| {
                    let end = run.map_or(Ok(0), |run| run_end(columns, self.field, ends, run));
                    end.map(|end| usize::try_from(end).unwrap_or(0))
                };
                let rows = end(rows.start.checked_sub(1))?..end(rows.end.checked_sub(1))?;
                self.any_row(columns, node, rows)
            }
            // Every run end is read.
            Layout::RunEndEncoded => Ok(true),
            _ => self.any_row(columns, node, rows),
        }
    }

    /// True if one of these rows of the array is reachable and not null.
    fn any_row(&self, columns: &Columns, node: &Node, rows: Range<usize>) -> Result<bool> {
        let rows = rows.start..rows.end.min(node.len()?);
        let bitmap = match self.field.layout.has_validity() {
            true => columns.bytes(node.buffer(0))?,
            false => &[],
        };
        let reachable = |rows| match self.parent {
            Some(parent) => parent.is_reachable(columns, rows),
            None => Ok(true),
        };
        if bitmap.is_empty() {
            return Ok(!rows.is_empty() && reachable(rows)?);
        }
        let mut row = rows.start;
        while row < rows.end {
            let byte = bitmap.get(row / 8).copied().unwrap_or(0) >> (row % 8);
            if byte == 0 {
                row = (row / 8 + 1) * 8;
            } else if byte & 1 == 1 && reachable(row..row + 1)? {
                return Ok(true);
            } else {
                row += 1;
            }
        }
        Ok(false)
    }

    fn any_list<T: Plain + Into<i64>>(
        &self,
        columns: &Columns,
        node: &Node,
        rows: Range<usize>,
    ) -> Result<bool> {
        let place = node.buffer(1);
        if columns.buffers[place].at.len == 0 {
            return Ok(false);
        }
        let offsets = columns.slice::<T>(place, node.len()?.saturating_add(1))?;
        let before = |limit: usize| {
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            offsets.partition_point(|offset| (*offset).into() < limit)
        };
        // From the last list that begins at or before the first of the values, to the last list
        // that begins before the end of the values.
        let first = before(rows.start.saturating_add(1)).saturating_sub(1);
        for list in first..before(rows.end) {
            let ends = offsets.get(list).zip(offsets.get(list + 1));
            let holds = ends.is_some_and(|(start, end)| {
                let range = span((*start).into(), (*end).into());
                range.start.max(rows.start) < range.end.min(rows.end)
            });
            if holds && self.any_row(columns, node, list..list + 1)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn any_in_ranges(
        &self,
        rows: Range<usize>,
        find: impl FnOnce() -> Result<Vec<Range<usize>>>,
    ) -> Result<bool> {
        let ranges = match self.ranges.get() {
            Some(ranges) => ranges,
            None => {
                let found = find()?;
                self.ranges.get_or_init(|| found)
            }
        };
        let at = ranges.partition_point(|range| range.end <= rows.start);
        Ok(ranges.get(at).is_some_and(|range| range.start < rows.end))
    }

    fn list_views<T: Plain + Into<i64>>(
        &self,
        columns: &Columns,
        node: &Node,
    ) -> Result<Vec<Range<usize>>> {
        let len = node.len()?;
        let offsets = columns.slice::<T>(node.buffer(1), len)?;
        let sizes = columns.slice::<T>(node.buffer(2), len)?;
        let mut ranges = CountedList::new(self.budget);
        for (row, (offset, size)) in offsets.iter().zip(sizes).enumerate() {
            let (offset, size): (i64, i64) = ((*offset).into(), (*size).into());
            let range = span(offset, offset.saturating_add(size));
            if !range.is_empty() && self.any_row(columns, node, row..row + 1)? {
                ranges.add(range)?;
            }
        }
        Ok(joined(ranges.rows))
    }

    /// The reachable values of this child of a dense union.
    fn union_values(&self, columns: &Columns, node: &Node) -> Result<Vec<Range<usize>>> {
        let len = node.len()?;
        let types = columns.slice::<i8>(node.buffer(0), len)?;
        let offsets = columns.slice::<i32>(node.buffer(1), len)?;
        let mut ranges = CountedList::new(self.budget);
        for (row, (id, offset)) in types.iter().zip(offsets).enumerate() {
            if Some(*id) == self.type_id() && self.any_row(columns, node, row..row + 1)? {
                let offset = i64::from(*offset);
                ranges.add(span(offset, offset.saturating_add(1)))?;
            }
        }
        Ok(joined(ranges.rows))
    }

    /// The type id of the child of a union.
    fn type_id(&self) -> Option<i8> {
        match &self.field.ty {
            Type::Union { ids, .. } => ids.get(self.child).copied(),
            _ => None,
        }
    }
}

fn span(start: i64, end: i64) -> Range<usize> {
    let place = |number: i64| usize::try_from(number).unwrap_or(0);
    place(start)..place(end)
}

/// The ranges in order; ranges that touch are merged.
fn joined(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, last| {
        let touch = next.start <= last.end;
        if touch {
            last.end = last.end.max(next.end);
        }
        touch
    });
    ranges
}
