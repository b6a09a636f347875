//! Level `full` of rule A8: checks all values that lead consumers to other values. Values under a
//! null, of the array or of an array above it, may be invalid. If consumers could follow them
//! nevertheless, they are replaced by harmless values.
//!
//! Memory that the peer can still write to is copied before the check, and the array points to the
//! copy.

mod indices;

use crate::arrow::decode::bits::{self, Bitmap};
use crate::arrow::decode::budget::DecodeBudget;
use crate::arrow::decode::choices::Choices;
use crate::arrow::decode::columns::{Buffer, Columns, Node, private_copy};
use crate::arrow::decode::counted::CountedList;
use crate::arrow::decode::field::DecodedField;
use crate::arrow::decode::plain::Plain;
use crate::arrow::decode::reachable::Ancestors;
use crate::arrow::decode::views::{Texts, VIEW, check_view, utf8_of};
use crate::arrow::format::{Layout, Type, offset_width};
use crate::device::{BufferRef, HostBuffer};
use crate::error::{Error, Result};

/// Checks the values of a batch or dictionary; node 0 is the root. Returns the copied bytes.
/// Dictionaries of columns were checked on arrival.
pub(super) fn check(
    columns: &mut Columns,
    field: &DecodedField,
    budget: &DecodeBudget<'_>,
) -> Result<u64> {
    let mut checker = Checker {
        columns,
        budget,
        copied: 0,
    };
    checker.values(field, 0, None)?;
    Ok(checker.copied)
}

struct Checker<'a> {
    columns: &'a mut Columns,
    budget: &'a DecodeBudget<'a>,
    copied: u64,
}

impl Checker<'_> {
    fn column(&mut self, field: &DecodedField, id: usize, ancestors: &Ancestors<'_>) -> Result<()> {
        match field.dictionary {
            Some(encoding) => self.indices(id, encoding.bits, encoding.signed, ancestors),
            None => self.values(field, id, Some(ancestors)),
        }
        .and_then(|()| self.declared_nulls(field, id, ancestors))
        .map_err(|error| error.context(format_args!("column {:?}", field.name)))
    }

    /// Refuses a reachable null in a column that the schema declares without nulls. The column's
    /// bitmap must be checked before.
    fn declared_nulls(
        &self,
        field: &DecodedField,
        id: usize,
        ancestors: &Ancestors<'_>,
    ) -> Result<()> {
        let has_bitmap = field.dictionary.is_some() || field.layout.has_validity();
        if field.nullable || !has_bitmap {
            return Ok(());
        }
        let node = self.columns.nodes[id];
        if self.columns.buffers[node.buffer(0)].at.len == 0 {
            return Ok(());
        }
        let bitmap = self.bitmap(&node)?;
        for row in 0..node.len()? {
            if !bitmap.get(row) && self.is_reachable(Some(ancestors), row)? {
                return Err(Error::invalid_data(format!(
                    "row {row} is null, and the schema declares the column without nulls"
                )));
            }
        }
        Ok(())
    }

    fn values(
        &mut self,
        field: &DecodedField,
        id: usize,
        ancestors: Option<&Ancestors<'_>>,
    ) -> Result<()> {
        let node = self.columns.nodes[id];
        if field.layout.has_validity() {
            self.validity(&node)?;
        }
        match field.layout {
            Layout::Binary { large: false, utf8 } => self.strings::<i32>(&node, utf8, ancestors),
            Layout::Binary { large: true, utf8 } => self.strings::<i64>(&node, utf8, ancestors),
            Layout::View { utf8 } => self.views(&node, utf8, ancestors),
            Layout::List { large: false } => self.lists::<i32>(&node),
            Layout::List { large: true } => self.lists::<i64>(&node),
            Layout::ListView { large: false } => self.list_views::<i32>(&node, ancestors),
            Layout::ListView { large: true } => self.list_views::<i64>(&node, ancestors),
            Layout::Union { dense } => self.union(field, &node, dense, ancestors),
            Layout::RunEndEncoded => match field.children.first().map(|ends| &ends.ty) {
                Some(Type::Int { bits: 16, .. }) => self.run_ends::<i16>(&node),
                Some(Type::Int { bits: 32, .. }) => self.run_ends::<i32>(&node),
                _ => self.run_ends::<i64>(&node),
            },
            Layout::Null
            | Layout::Fixed { .. }
            | Layout::Boolean
            | Layout::FixedSizeList { .. }
            | Layout::Struct => Ok(()),
        }?;
        // Children come after their parent, because the parent's values decide which values of the
        // children are reachable.
        for (index, child) in field.children.iter().enumerate() {
            let child_id = self.columns.children_of(&node)[index];
            self.column(
                child,
                child_id,
                &Ancestors::new(ancestors, field, id, index, self.budget),
            )?;
        }
        Ok(())
    }

    /// True if a row is reachable and not null.
    fn is_reachable_value(
        &self,
        node: &Node,
        ancestors: Option<&Ancestors<'_>>,
        row: usize,
    ) -> Result<bool> {
        Ok(self.bitmap(node)?.get(row) && self.is_reachable(ancestors, row)?)
    }

    /// True if a row is reachable.
    fn is_reachable(&self, ancestors: Option<&Ancestors<'_>>, row: usize) -> Result<bool> {
        ancestors.map_or(Ok(true), |ancestors| {
            ancestors.is_reachable(self.columns, row..row + 1)
        })
    }

    /// Replaces a buffer by a changed copy of its first `len` bytes.
    fn change(
        &mut self,
        buffer: usize,
        len: usize,
        change: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let bytes = self.columns.slice::<u8>(buffer, len)?;
        self.budget.take(len as u64)?;
        let mut changed = private_copy(BufferRef::of(bytes))?;
        change(changed.as_mut_slice())?;
        self.copied = self.copied.saturating_add(len as u64);
        self.columns.buffers[buffer] = self.columns.keep(changed);
        Ok(())
    }

    /// Zeroes the values of some rows in a buffer with `width` bytes for each value.
    fn clear(&mut self, node: &Node, buffer: usize, width: usize, rows: &[usize]) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let len = node.len()?.saturating_mul(width);
        self.change(node.buffer(buffer), len, |values| {
            for row in rows {
                let start = row.saturating_mul(width);
                if let Some(value) = values.get_mut(start..start.saturating_add(width)) {
                    value.fill(0);
                }
            }
            Ok(())
        })
    }

    /// Replaces shared memory by a private copy of its first `need` bytes.
    fn make_private(&mut self, buffer: usize, need: usize) -> Result<()> {
        let Buffer { at, private } = self.columns.buffers[buffer];
        if private || at.len == 0 {
            return Ok(());
        }
        let len = at.len.min(need);
        self.budget.take(len as u64)?;
        let memory = private_copy(BufferRef { data: at.data, len })?;
        self.copied = self.copied.saturating_add(memory.len() as u64);
        self.columns.buffers[buffer] = self.columns.keep(memory);
        Ok(())
    }

    fn validity(&mut self, node: &Node) -> Result<()> {
        let place = node.buffer(0);
        if self.columns.buffers[place].at.len == 0 {
            // The build has refused nulls without a bitmap.
            return Ok(());
        }
        let len = node.len()?;
        self.make_private(place, len.div_ceil(8))?;
        let valid = bits::count_ones(self.columns.bytes(place)?, len);
        if node.null_count != i64::try_from(len - valid).unwrap_or(i64::MAX) {
            return Err(Error::invalid_data(format!(
                "the header counts {} nulls, the bitmap {}",
                node.null_count,
                len - valid
            )));
        }
        if node.null_count == 0 {
            self.columns.buffers[place] = Buffer::ABSENT;
        }
        Ok(())
    }

    /// The bitmap of a node; [`validity`](Self::validity) has made it private.
    fn bitmap(&self, node: &Node) -> Result<Bitmap<'_>> {
        Ok(Bitmap(self.columns.bytes(node.buffer(0))?))
    }

    /// The offsets, checked: in order, and at most `limit`. An empty array may have none.
    fn offsets<T: Plain + Into<i64>>(&self, place: usize, node: &Node, limit: i64) -> Result<&[T]> {
        if self.columns.buffers[place].at.len == 0 {
            return Ok(&[]);
        }
        let offsets = self.columns.slice::<T>(place, node.len()? + 1)?;
        // The loop has no exit, so that the compiler can vectorise it.
        let ends = offsets.first().zip(offsets.last());
        let inside =
            ends.is_none_or(|(first, last)| (*first).into() >= 0 && (*last).into() <= limit);
        let falls = |pair: &[T; 2]| pair[1].into() < pair[0].into();
        if inside
            && !offsets
                .array_windows()
                .fold(false, |any, pair| any | falls(pair))
        {
            return Ok(offsets);
        }
        let mut before = 0i64;
        for (row, offset) in offsets.iter().enumerate() {
            let offset: i64 = (*offset).into();
            if offset < before || offset > limit {
                return Err(Error::invalid_data(format!(
                    "offset {offset} of row {row} is not between {before} and {limit}"
                )));
            }
            before = offset;
        }
        Ok(offsets)
    }

    fn strings<T: Plain + Into<i64>>(
        &mut self,
        node: &Node,
        utf8: bool,
        ancestors: Option<&Ancestors<'_>>,
    ) -> Result<()> {
        let offsets = node.buffer(1);
        let data = node.buffer(2);
        self.make_private(
            offsets,
            (node.len()?.saturating_add(1)).saturating_mul(size_of::<T>()),
        )?;
        let limit = i64::try_from(self.columns.buffers[data].at.len).unwrap_or(i64::MAX);
        self.offsets::<T>(offsets, node, limit)?;
        if !utf8 {
            return Ok(());
        }
        self.make_private(data, usize::MAX)?;
        // The offsets are private, so the checks above still hold.
        let offsets = match self.columns.buffers[offsets].at.len {
            0 => return Ok(()),
            _ => self.columns.slice::<T>(offsets, node.len()? + 1)?,
        };
        let place = |offset: T| usize::try_from(offset.into()).unwrap_or(usize::MAX);
        let range = |row: usize| {
            let ends = offsets.get(row).zip(offsets.get(row + 1));
            ends.map_or(0..0, |(start, end)| place(*start)..place(*end))
        };
        let bytes = self.columns.bytes(data)?;
        let ends = offsets.first().zip(offsets.last());
        let (first, last) = ends.map_or((0, 0), |(first, last)| (place(*first), place(*last)));
        let all = bytes.get(first..last).unwrap_or_default();
        if all.is_ascii() {
            return Ok(());
        }
        let text = utf8_of(all);
        let splits = |text: &str| {
            let begins = |offset: &T| text.is_char_boundary(place(*offset) - first);
            !offsets.iter().all(begins)
        };
        if text.as_ref().is_ok_and(|text| !splits(text)) {
            return Ok(());
        }
        // Row by row, because invalid text may lie under nulls.
        let mut wrong = CountedList::new(self.budget);
        for row in 0..node.len()? {
            let value = bytes.get(range(row)).unwrap_or_default();
            let Err(error) = utf8_of(value) else {
                continue;
            };
            if self.is_reachable_value(node, ancestors, row)? {
                return Err(match text {
                    Ok(_) => {
                        Error::invalid_data(format!("row {row} begins or ends inside a character"))
                    }
                    Err(_) => error.context(format_args!("row {row}")),
                });
            }
            wrong.add(range(row))?;
        }
        // Consumers may slice before they read the bitmap, so text under nulls becomes valid too.
        self.change(data, last, |bytes| {
            for range in wrong.rows {
                if let Some(value) = bytes.get_mut(range) {
                    value.fill(0);
                }
            }
            Ok(())
        })
    }

    fn lists<T: Plain + Into<i64>>(&mut self, node: &Node) -> Result<()> {
        let need = node.len()?.saturating_add(1).saturating_mul(size_of::<T>());
        self.make_private(node.buffer(1), need)?;
        self.offsets::<T>(node.buffer(1), node, self.columns.child(node, 0).length)
            .map(|_| ())
    }

    fn list_views<T: Plain + Into<i64>>(
        &mut self,
        node: &Node,
        ancestors: Option<&Ancestors<'_>>,
    ) -> Result<()> {
        let need = node.len()?.saturating_mul(size_of::<T>());
        self.make_private(node.buffer(1), need)?;
        self.make_private(node.buffer(2), need)?;
        let limit = self.columns.child(node, 0).length;
        let offsets = self.columns.slice::<T>(node.buffer(1), node.len()?)?;
        let sizes = self.columns.slice::<T>(node.buffer(2), node.len()?)?;
        let mut unusable = CountedList::new(self.budget);
        for (row, (offset, size)) in offsets.iter().zip(sizes).enumerate() {
            let (offset, size): (i64, i64) = ((*offset).into(), (*size).into());
            let inside = offset >= 0
                && size >= 0
                && offset.checked_add(size).is_some_and(|end| end <= limit);
            if !inside && self.is_reachable_value(node, ancestors, row)? {
                return Err(Error::invalid_data(format!(
                    "row {row} has {size} values from {offset} on, its child has {limit}"
                )));
            }
            if !inside {
                // The format requires a valid range of the child under nulls too.
                unusable.add(row)?;
            }
        }
        let unusable = unusable.rows;
        self.clear(node, 1, size_of::<T>(), &unusable)?;
        self.clear(node, 2, size_of::<T>(), &unusable)
    }

    fn union(
        &mut self,
        field: &DecodedField,
        node: &Node,
        dense: bool,
        ancestors: Option<&Ancestors<'_>>,
    ) -> Result<()> {
        let Type::Union { ids, .. } = &field.ty else {
            return Ok(());
        };
        let len = node.len()?;
        self.make_private(node.buffer(0), len)?;
        if dense {
            self.make_private(node.buffer(1), len.saturating_mul(offset_width(false)))?;
        }
        let children: Vec<(i8, i64)> = (ids.iter().enumerate())
            .map(|(index, id)| (*id, self.columns.child(node, index).length))
            .collect();
        let types = self.columns.slice::<i8>(node.buffer(0), len)?;
        let offsets = match dense {
            true => Some(self.columns.slice::<i32>(node.buffer(1), len)?),
            false => None,
        };
        let mut choices = Choices::new(&children);
        if choices.check_all(types, offsets).is_ok() {
            return Ok(());
        }
        // A second pass: unreachable rows get valid values.
        let mut choices = Choices::new(&children);
        self.budget.take((len as u64).saturating_mul(5))?;
        let bytes = self.columns.slice::<u8>(node.buffer(0), len)?;
        let mut new_types = private_copy(BufferRef::of(bytes))?;
        let mut new_offsets = HostBuffer::new(if dense { len.saturating_mul(4) } else { 0 })?;
        let places = new_offsets.as_mut_slice().as_chunks_mut::<4>().0;
        for (row, id) in types.iter().enumerate() {
            let offset = offsets.and_then(|offsets| offsets.get(row).copied());
            let (id, offset) = if self.is_reachable(ancestors, row)? {
                choices.check(row, *id, offset)?;
                (*id, offset)
            } else {
                choices.substitute(row, *id, dense)?
            };
            if let Some(place) = new_types.as_mut_slice().get_mut(row) {
                *place = id.cast_unsigned();
            }
            if let Some(place) = places.get_mut(row) {
                *place = offset.unwrap_or(0).to_ne_bytes();
            }
        }
        self.copied = self.copied.saturating_add(new_types.len() as u64);
        self.columns.buffers[node.buffer(0)] = self.columns.keep(new_types);
        if dense {
            self.copied = self.copied.saturating_add(new_offsets.len() as u64);
            self.columns.buffers[node.buffer(1)] = self.columns.keep(new_offsets);
        }
        Ok(())
    }

    fn run_ends<T: Plain + Into<i64>>(&mut self, node: &Node) -> Result<()> {
        let ends = *self.columns.child(node, 0);
        self.make_private(ends.buffer(1), ends.len()?.saturating_mul(size_of::<T>()))?;
        let mut before = 0i64;
        for (run, end) in self
            .columns
            .slice::<T>(ends.buffer(1), ends.len()?)?
            .iter()
            .enumerate()
        {
            let end: i64 = (*end).into();
            if end <= before {
                return Err(Error::invalid_data(format!(
                    "run {run} ends at {end}, not after the one before it at {before}"
                )));
            }
            before = end;
        }
        // Checked again, because the memory may have changed since the build.
        if before < node.length {
            return Err(Error::invalid_data(format!(
                "the last run ends at {before}, before the array's length {}",
                node.length
            )));
        }
        Ok(())
    }

    fn views(&mut self, node: &Node, utf8: bool, ancestors: Option<&Ancestors<'_>>) -> Result<()> {
        let len = node.len()?;
        for index in 1..node.n_buffers - 1 {
            let need = if index == 1 {
                len.saturating_mul(VIEW)
            } else {
                usize::MAX
            };
            self.make_private(node.buffer(index), need)?;
        }
        let data: Vec<&[u8]> = (2..node.n_buffers - 1)
            .map(|index| self.columns.bytes(node.buffer(index)))
            .collect::<Result<_>>()?;
        let views = self
            .columns
            .slice::<u8>(node.buffer(1), len.saturating_mul(VIEW))?;
        let texts = if utf8 {
            Texts::of(views, &data, self.budget)?
        } else {
            Texts::Any
        };
        let mut unusable = CountedList::new(self.budget);
        for (row, view) in views.as_chunks::<VIEW>().0.iter().enumerate() {
            let Err(error) = check_view(view, &data, &texts) else {
                continue;
            };
            if self.is_reachable_value(node, ancestors, row)? {
                return Err(error.context(format_args!("row {row}")));
            }
            // Consumers may process all rows at once, so the view becomes an empty string.
            unusable.add(row)?;
        }
        let unusable = unusable.rows;
        self.clear(node, 1, VIEW, &unusable)
    }
}
