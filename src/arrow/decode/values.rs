//! Level `full` of rule A8: every value that consumers use to find other values is checked.
//!
//! Where the peer could still write to the memory, what is checked is copied first and the array
//! points to the copy: a check of what may change afterwards says nothing.

use crate::arrow::decode::budget::Budget;
use crate::arrow::decode::build::offset_width;
use crate::arrow::decode::columns::{Buffer, Columns, Node, Plain, private_copy};
use crate::arrow::decode::field::{Field, Layout, Type};
use crate::arrow::decode::views::{Texts, VIEW, check_view};
use crate::device::BufferRef;
use crate::error::{Error, Result};

/// Checks the values of a batch or dictionary, whose root is node 0. Returns the bytes copied.
/// Dictionaries of columns have been checked when they came.
pub(super) fn check(columns: &mut Columns, field: &Field, budget: &Budget<'_>) -> Result<u64> {
    let mut checker = Checker {
        columns,
        budget,
        copied: 0,
    };
    checker.values(field, 0)?;
    Ok(checker.copied)
}

/// An index of a dictionary.
trait Index: Plain + Ord + TryInto<i64> {
    /// Whether all of them are in `0..values`. `false` also where unsigned ones are, and are too large for a signed number.
    fn are_surely_below(indices: &[Self], values: i64) -> bool;
}

macro_rules! index {
    ($($number:ty as $signed:ty)*) => {$(
        impl Index for $number {
            fn are_surely_below(indices: &[Self], values: i64) -> bool {
                let last = <$signed>::try_from(values - 1).unwrap_or(<$signed>::MAX);
                // One sign for all, of indices that are negative and of what each lacks to the last value: three instructions
                // of the oldest vectors, which have no least and most of these. Without a way out of the loop, so that the
                // compiler takes many at a time.
                let sign = indices.iter().fold(0, |any, index| {
                    let index = <$signed>::from_ne_bytes(index.to_ne_bytes());
                    any | index | last.wrapping_sub(index)
                });
                sign >= 0
            }
        }
    )*};
}
index!(i8 as i8 i16 as i16 i32 as i32 i64 as i64 u8 as i8 u16 as i16 u32 as i32 u64 as i64);

struct Checker<'a> {
    columns: &'a mut Columns,
    budget: &'a Budget<'a>,
    copied: u64,
}

impl Checker<'_> {
    fn column(&mut self, field: &Field, id: usize) -> Result<()> {
        match field.dictionary {
            Some(encoding) => self.indices(id, encoding.bits, encoding.signed),
            None => self.values(field, id),
        }
        .map_err(|error| error.context(format_args!("column {:?}", field.name)))
    }

    fn values(&mut self, field: &Field, id: usize) -> Result<()> {
        let node = self.columns.nodes[id];
        if field.layout.has_validity() {
            self.validity(&node)?;
        }
        for (index, child) in field.children.iter().enumerate() {
            let child_id = self.columns.children_of(&node)[index];
            self.column(child, child_id)?;
        }
        match field.layout {
            Layout::Bytes { large: false, utf8 } => self.strings::<i32>(&node, utf8),
            Layout::Bytes { large: true, utf8 } => self.strings::<i64>(&node, utf8),
            Layout::Views { utf8 } => self.views(&node, utf8),
            Layout::List { large: false } => self.lists::<i32>(&node),
            Layout::List { large: true } => self.lists::<i64>(&node),
            Layout::ListView { large: false } => self.list_views::<i32>(&node),
            Layout::ListView { large: true } => self.list_views::<i64>(&node),
            Layout::Union { dense } => self.union(field, &node, dense),
            Layout::RunEnds => match field.children.first().map(|ends| &ends.ty) {
                Some(Type::Int { bits: 16, .. }) => self.run_ends::<i16>(&node),
                Some(Type::Int { bits: 32, .. }) => self.run_ends::<i32>(&node),
                _ => self.run_ends::<i64>(&node),
            },
            Layout::Null
            | Layout::Bits
            | Layout::Fixed { .. }
            | Layout::FixedList { .. }
            | Layout::Struct => Ok(()),
        }
    }

    /// Makes the first `need` bytes of a buffer ours alone.
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
            // Building has refused nulls without a bitmap.
            return Ok(());
        }
        let len = node.len()?;
        self.make_private(place, len.div_ceil(8))?;
        let valid = count_ones(self.columns.bytes(place)?, len);
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

    /// The bitmap of a node, once [`validity`](Self::validity) has made it private.
    fn bitmap(&self, node: &Node) -> Result<Bitmap<'_>> {
        Ok(Bitmap(self.columns.bytes(node.buffer(0))?))
    }

    fn indices(&mut self, id: usize, bits: u8, signed: bool) -> Result<()> {
        let node = self.columns.nodes[id];
        self.validity(&node)?;
        self.make_private(node.buffer(1), usize::MAX)?;
        let values = node
            .dictionary
            .map_or(0, |dictionary| self.columns.nodes[dictionary].length);
        match (bits, signed) {
            (8, true) => self.indices_of::<i8>(&node, values),
            (8, false) => self.indices_of::<u8>(&node, values),
            (16, true) => self.indices_of::<i16>(&node, values),
            (16, false) => self.indices_of::<u16>(&node, values),
            (32, true) => self.indices_of::<i32>(&node, values),
            (32, false) => self.indices_of::<u32>(&node, values),
            (_, true) => self.indices_of::<i64>(&node, values),
            (_, false) => self.indices_of::<u64>(&node, values),
        }
    }

    /// Indices of null values may be anything, as the format says.
    fn indices_of<T: Index>(&self, node: &Node, values: i64) -> Result<()> {
        let valid = self.bitmap(node)?;
        let indices = self.columns.slice::<T>(node.buffer(1), node.len()?)?;
        if T::are_surely_below(indices, values) {
            return Ok(());
        }
        let is_inside = |index: T| {
            let index = index.try_into();
            index.is_ok_and(|index| (0..values).contains(&index))
        };
        // Without a way out of the loop, so that the compiler takes many at a time.
        let Some(first) = indices.first().copied() else {
            return Ok(());
        };
        let ends = |(least, most): (T, T), index: &T| (least.min(*index), most.max(*index));
        let (least, most) = indices.iter().fold((first, first), ends);
        if is_inside(least) && is_inside(most) {
            return Ok(());
        }
        for (row, index) in indices.iter().enumerate() {
            if !is_inside(*index) && valid.get(row) {
                return Err(Error::invalid_data(format!(
                    "row {row} refers to a value that its dictionary of {values} does not have"
                )));
            }
        }
        Ok(())
    }

    /// Offsets in order, the last one not past `limit`. Those of an empty array may be missing.
    fn offsets<T: Plain + Into<i64>>(&self, place: usize, node: &Node, limit: i64) -> Result<&[T]> {
        if self.columns.buffers[place].at.len == 0 {
            return Ok(&[]);
        }
        let offsets = self.columns.slice::<T>(place, node.len()? + 1)?;
        // Without a way out of the loop, so that the compiler takes many at a time.
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

    fn strings<T: Plain + Into<i64>>(&mut self, node: &Node, utf8: bool) -> Result<()> {
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
        // They are private, so what was seen of them holds.
        let offsets = match self.columns.buffers[offsets].at.len {
            0 => &[],
            _ => self.columns.slice::<T>(offsets, node.len()? + 1)?,
        };
        let place = |offset: Option<&T>| {
            offset.map_or(0, |offset| {
                usize::try_from((*offset).into()).unwrap_or(usize::MAX)
            })
        };
        let (first, last) = (place(offsets.first()), place(offsets.last()));
        let bytes = self
            .columns
            .bytes(data)?
            .get(first..last)
            .unwrap_or_default();
        if bytes.is_ascii() {
            return Ok(());
        }
        let text = utf8_of(bytes)?;
        // Values under nulls are checked too: consumers may slice before they look at the bitmap.
        let splits = |offset: &T| !text.is_char_boundary(place(Some(offset)) - first);
        match offsets.iter().position(splits) {
            Some(row) => Err(Error::invalid_data(format!(
                "row {row} begins inside a character"
            ))),
            None => Ok(()),
        }
    }

    fn lists<T: Plain + Into<i64>>(&mut self, node: &Node) -> Result<()> {
        let need = node.len()?.saturating_add(1).saturating_mul(size_of::<T>());
        self.make_private(node.buffer(1), need)?;
        self.offsets::<T>(node.buffer(1), node, self.columns.child(node, 0).length)
            .map(|_| ())
    }

    fn list_views<T: Plain + Into<i64>>(&mut self, node: &Node) -> Result<()> {
        let need = node.len()?.saturating_mul(size_of::<T>());
        self.make_private(node.buffer(1), need)?;
        self.make_private(node.buffer(2), need)?;
        let limit = self.columns.child(node, 0).length;
        let offsets = self.columns.slice::<T>(node.buffer(1), node.len()?)?;
        let sizes = self.columns.slice::<T>(node.buffer(2), node.len()?)?;
        for (row, (offset, size)) in offsets.iter().zip(sizes).enumerate() {
            let (offset, size): (i64, i64) = ((*offset).into(), (*size).into());
            // Null rows too: the format asks for valid ranges there.
            let inside = offset >= 0
                && size >= 0
                && offset.checked_add(size).is_some_and(|end| end <= limit);
            if !inside {
                return Err(Error::invalid_data(format!(
                    "row {row} has {size} values from {offset} on, its child has {limit}"
                )));
            }
        }
        Ok(())
    }

    fn union(&mut self, field: &Field, node: &Node, dense: bool) -> Result<()> {
        let Type::Union { ids, .. } = &field.ty else {
            return Ok(());
        };
        // For each type id, the length of its child.
        let mut lengths = [None; 128];
        for (index, id) in ids.iter().enumerate() {
            if let Some(length) = usize::try_from(*id).ok().and_then(|id| lengths.get_mut(id)) {
                *length = Some(self.columns.child(node, index).length);
            }
        }
        let len = node.len()?;
        self.make_private(node.buffer(0), len)?;
        if dense {
            self.make_private(node.buffer(1), len.saturating_mul(offset_width(false)))?;
        }
        let types = self.columns.slice::<i8>(node.buffer(0), len)?;
        let offsets = if dense {
            self.columns.slice::<i32>(node.buffer(1), len)?
        } else {
            &[]
        };
        for (row, id) in types.iter().enumerate() {
            let length = usize::try_from(*id).ok().and_then(|id| *lengths.get(id)?);
            let Some(length) = length else {
                return Err(Error::invalid_data(format!(
                    "row {row} has the unknown type id {id}"
                )));
            };
            if let Some(offset) = offsets.get(row)
                && !(0..length).contains(&i64::from(*offset))
            {
                return Err(Error::invalid_data(format!(
                    "row {row} is value {offset} of a child that has {length}"
                )));
            }
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
        // Again, because the memory may have changed since building looked at the last one.
        if before < node.length {
            return Err(Error::invalid_data(format!(
                "the last run ends at {before}, before the array's length {}",
                node.length
            )));
        }
        Ok(())
    }

    fn views(&mut self, node: &Node, utf8: bool) -> Result<()> {
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
        let valid = self.bitmap(node)?;
        let texts = if utf8 {
            Texts::of(views, &data)
        } else {
            Texts::Any
        };
        let mut unusable = Vec::new();
        for (row, view) in views.as_chunks::<VIEW>().0.iter().enumerate() {
            match check_view(view, &data, &texts) {
                Ok(()) => {}
                // Null rows may hold anything, but consumers that work on all rows at once would
                // follow it: such rows become empty strings.
                Err(_) if !valid.get(row) => unusable.push(row),
                Err(error) => return Err(error.context(format_args!("row {row}"))),
            }
        }
        if unusable.is_empty() {
            return Ok(());
        }
        let mut cleared = private_copy(BufferRef::of(views))?;
        let (rows, _) = cleared.as_mut_slice().as_chunks_mut::<VIEW>();
        for row in unusable {
            rows[row] = [0; VIEW];
        }
        self.copied = self.copied.saturating_add(cleared.len() as u64);
        self.columns.buffers[node.buffer(1)] = self.columns.keep(cleared);
        Ok(())
    }
}

pub(super) fn utf8_of(bytes: &[u8]) -> Result<&str> {
    simdutf8::compat::from_utf8(bytes)
        .map_err(|error| Error::invalid_data(format!("a string is not UTF-8: {error}")))
}

/// A validity bitmap; an empty one says that everything is valid.
struct Bitmap<'a>(&'a [u8]);

impl Bitmap<'_> {
    fn get(&self, row: usize) -> bool {
        self.0.is_empty()
            || self
                .0
                .get(row / 8)
                .is_some_and(|byte| byte >> (row % 8) & 1 == 1)
    }
}

/// Set bits among the first `len`, as far as there are bytes.
pub(super) fn count_ones(bytes: &[u8], len: usize) -> usize {
    let whole = bytes.len().min(len / 8);
    let (words, rest) = bytes[..whole].as_chunks::<8>();
    let ones = |word: u64| word.count_ones() as usize;
    let mut sum: usize = words
        .iter()
        .map(|word| ones(u64::from_ne_bytes(*word)))
        .sum();
    sum += rest
        .iter()
        .map(|byte| ones(u64::from(*byte)))
        .sum::<usize>();
    if let (Some(last), 1..) = (bytes.get(whole), len % 8) {
        sum += ones(u64::from(*last & ((1u8 << (len % 8)) - 1)));
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::Index;

    /// Rule A8, level full: an index outside of its dictionary is not passed over, among others or alone.
    #[test]
    fn no_index_outside_is_surely_below() {
        for values in 0..=300 {
            for index in i8::MIN..=i8::MAX {
                let inside = (0..values).contains(&i64::from(index));
                assert_eq!(
                    i8::are_surely_below(&[index], values),
                    inside,
                    "{index} of {values}"
                );
                let among = [vec![0; 33], vec![index], vec![0; 7]].concat();
                assert_eq!(i8::are_surely_below(&among, values), inside && values > 0);
            }
            for index in u8::MIN..=u8::MAX {
                let inside = i64::from(index) < values;
                let surely = inside && index < 128;
                assert_eq!(
                    u8::are_surely_below(&[index], values),
                    surely,
                    "{index} of {values}"
                );
            }
        }
        assert!(i64::are_surely_below(&[0, i64::MAX - 1], i64::MAX));
        assert!(!i64::are_surely_below(&[0, i64::MIN], i64::MAX));
        assert!(!u64::are_surely_below(&[u64::MAX], i64::MAX));
        assert!(u32::are_surely_below(&[], 0));
    }
}
