//! Arrays out of a guest's memory: each is cut to the rows that it gives, copied, and checked
//! whole by Arrow's crates.

use std::sync::Arc;

use arrow::array::{ArrayData, ArrayRef, RecordBatch, RecordBatchOptions, make_array};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow::datatypes::{DataType, SchemaRef};

use super::kind::{Kind, children};
use super::read::{Memory, count_at, i64_at, u32_at};
use super::{ARRAY_BYTES, DEPTH};
use crate::{Error, Result};

/// Bytes of the host's memory that an array or a buffer takes beside its values, about.
const OVERHEAD: u64 = 256;

/// What reading a batch may cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// Rows that may follow.
    pub(crate) rows: u64,
    /// Bytes of the host's memory that may follow.
    pub(crate) bytes: u64,
}

/// Why a batch was not read.
#[derive(Debug)]
pub(crate) enum Refused {
    /// It has too many rows.
    Rows,
    /// It takes too many bytes.
    Bytes,
    /// It is wrong.
    Wrong(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Wrong(error)
    }
}

type Read<T> = std::result::Result<T, Refused>;

/// Reads the struct array at `pointer` as a batch of `schema`, whose types were checked.
/// The budget falls by what the batch costs.
pub(crate) fn batch(
    memory: Memory<'_>,
    pointer: u32,
    schema: &SchemaRef,
    budget: &mut Budget,
) -> Read<RecordBatch> {
    let raw = Raw::read(memory, pointer)?;
    budget.rows = budget.rows.checked_sub(raw.length).ok_or(Refused::Rows)?;
    let mut reader = Reader { memory, budget };
    reader.spend(OVERHEAD, raw.length)?;
    let fields = schema.fields();
    raw.expect(Kind::Struct, fields.len())?;
    if reader
        .validity(&raw, raw.offset, raw.length)?
        .is_some_and(|nulls| nulls.null_count() > 0)
    {
        return Err(wrong("a batch with rows that are NULL as a whole").into());
    }
    let mut columns: Vec<ArrayRef> = Vec::new();
    for (index, field) in fields.iter().enumerate() {
        let child = memory.pointer(raw.children, index)?;
        let rows = Some((raw.offset, raw.length));
        columns.push(make_array(reader.array(
            child,
            field.data_type(),
            rows,
            1,
        )?));
    }
    let options = RecordBatchOptions::new().with_row_count(Some(size(raw.length)?));
    let batch = RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options);
    batch.map_err(|error| wrong(error).into())
}

/// An ArrowArray as the guest wrote it, with counts that are none below zero.
struct Raw {
    length: u64,
    offset: u64,
    n_buffers: u64,
    n_children: u64,
    buffers: u32,
    children: u32,
    dictionary: u32,
    has_nulls: bool,
}

impl Raw {
    fn read(memory: Memory<'_>, pointer: u32) -> Result<Self> {
        let raw = memory.bytes(pointer, ARRAY_BYTES as u64)?;
        let array = Self {
            length: count_at(raw, 0, "length")?,
            offset: count_at(raw, 16, "offset")?,
            n_buffers: count_at(raw, 24, "n_buffers")?,
            n_children: count_at(raw, 32, "n_children")?,
            buffers: u32_at(raw, 40),
            children: u32_at(raw, 44),
            dictionary: u32_at(raw, 48),
            has_nulls: i64_at(raw, 8) > 0,
        };
        // -1: the guest did not count.
        let null_count = i64_at(raw, 8);
        if null_count < -1 || u64::try_from(null_count).is_ok_and(|count| count > array.length) {
            return Err(wrong(format!(
                "null_count {null_count} of {} rows",
                array.length
            )));
        }
        Ok(array)
    }

    fn expect(&self, kind: Kind, children: usize) -> Result<()> {
        let least = kind.buffers() as u64;
        // Views have any number of data.
        let fits = match kind {
            Kind::View => self.n_buffers >= least,
            _ => self.n_buffers == least,
        };
        if !fits || self.n_children != children as u64 {
            let Self {
                n_buffers,
                n_children,
                ..
            } = self;
            return Err(wrong(format!(
                "{n_buffers} buffers and {n_children} children, not {least} and {children}"
            )));
        }
        let dictionary = matches!(
            kind,
            Kind::Fixed {
                dictionary: true,
                ..
            }
        );
        if dictionary != (self.dictionary != 0) {
            return Err(wrong(
                "a dictionary that the schema does not have, or the contrary",
            ));
        }
        Ok(())
    }
}

struct Reader<'m, 'b> {
    memory: Memory<'m>,
    budget: &'b mut Budget,
}

impl Reader<'_, '_> {
    /// Reads `length` rows from the row `start` on of the array at `pointer`, all rows without
    /// `rows`. The result has no offset, or one within its first byte of bits.
    fn array(
        &mut self,
        pointer: u32,
        data_type: &DataType,
        rows: Option<(u64, u64)>,
        depth: usize,
    ) -> Read<ArrayData> {
        if depth > DEPTH + 1 {
            return Err(wrong("arrays of too many levels").into());
        }
        let kind = Kind::of(data_type).ok_or_else(|| wrong(data_type))?;
        let raw = Raw::read(self.memory, pointer)?;
        let types = children(data_type);
        raw.expect(kind, types.len())?;
        let (start, length) = rows.unwrap_or((0, raw.length));
        if start.checked_add(length).is_none_or(|end| end > raw.length) {
            return Err(wrong(format!("rows {start} and {length} on, of {}", raw.length)).into());
        }
        let begin = raw
            .offset
            .checked_add(start)
            .ok_or_else(|| wrong("a huge offset"))?;
        // What lies in no buffer counts too, so that no few bytes stand for endless rows.
        self.spend(OVERHEAD, length)?;
        let nulls = if kind.has_validity() {
            self.validity(&raw, begin, length)?
        } else {
            None
        };
        let array = Source {
            raw,
            kind,
            begin,
            length,
            depth,
        };
        let parts = self.values(&array, data_type, &types)?;
        ArrayData::builder(data_type.clone())
            .len(size(length)?)
            .offset(size(parts.offset)?)
            .nulls(nulls)
            .buffers(parts.buffers)
            .child_data(parts.children)
            .build()
            .map_err(|error| wrong(error).into())
    }

    fn values(&mut self, array: &Source, data_type: &DataType, types: &[&DataType]) -> Read<Parts> {
        let mut parts = Parts::default();
        let Source { begin, length, .. } = *array;
        match array.kind {
            Kind::Null => {}
            Kind::Bits => {
                parts.offset = begin % 8;
                parts
                    .buffers
                    .push(self.bits(array.buffer(self.memory, 1)?, begin, length)?);
            }
            Kind::Fixed { width, dictionary } => {
                parts.buffers.push(self.fixed(array, 1, width)?);
                if let (true, DataType::Dictionary(_, values)) = (dictionary, data_type) {
                    let pointer = array.raw.dictionary;
                    parts
                        .children
                        .push(self.array(pointer, values, None, array.depth + 1)?);
                }
            }
            Kind::Variable { width } => {
                let (offsets, first, bytes) = self.offsets(array, width)?;
                let pointer = moved(array.buffer(self.memory, 2)?, first, bytes)?;
                parts.buffers = vec![offsets, self.copy(pointer, bytes)?];
            }
            Kind::View => parts.buffers = self.views(array)?,
            Kind::List { width } => {
                let (offsets, first, values) = self.offsets(array, width)?;
                parts.buffers.push(offsets);
                parts.children = self.children(array, types, Some((first, values)))?;
            }
            Kind::ListView { width } => {
                parts.buffers = vec![self.fixed(array, 1, width)?, self.fixed(array, 2, width)?];
                parts.children = self.children(array, types, None)?;
            }
            Kind::FixedList { size } => {
                let rows = times(begin, size).zip(times(length, size));
                let rows = rows.ok_or_else(|| wrong("a list of too many values"))?;
                parts.children = self.children(array, types, Some(rows))?;
            }
            Kind::Struct => parts.children = self.children(array, types, Some((begin, length)))?,
            Kind::Union { dense } => {
                parts.buffers.push(self.fixed(array, 0, 1)?);
                if dense {
                    parts.buffers.push(self.fixed(array, 1, 4)?);
                }
                let rows = (!dense).then_some((begin, length));
                parts.children = self.children(array, types, rows)?;
            }
            // The ends count from the first row of the whole.
            Kind::Runs => {
                parts.offset = if length == 0 { 0 } else { begin };
                parts.children = self.children(array, types, None)?;
            }
        }
        Ok(parts)
    }

    fn children(
        &mut self,
        array: &Source,
        types: &[&DataType],
        rows: Option<(u64, u64)>,
    ) -> Read<Vec<ArrayData>> {
        let mut children = Vec::new();
        for (index, data_type) in types.iter().enumerate() {
            let pointer = self.memory.pointer(array.raw.children, index)?;
            children.push(self.array(pointer, data_type, rows, array.depth + 1)?);
        }
        Ok(children)
    }

    /// Which rows are not NULL; `None` if all are.
    fn validity(&mut self, raw: &Raw, begin: u64, length: u64) -> Read<Option<NullBuffer>> {
        let pointer = u32_at(self.memory.bytes(raw.buffers, 4)?, 0);
        if pointer == 0 {
            return match raw.has_nulls {
                true => Err(wrong("NULLs without a bitmap").into()),
                false => Ok(None),
            };
        }
        if length == 0 {
            return Ok(None);
        }
        let bits = self.bits(pointer, begin, length)?;
        let bits = BooleanBuffer::new(bits, size(begin % 8)?, size(length)?);
        Ok(Some(NullBuffer::new(bits)))
    }

    /// The bytes with `length` bits from the bit `begin` on.
    fn bits(&mut self, pointer: u32, begin: u64, length: u64) -> Read<Buffer> {
        let end = begin
            .checked_add(length)
            .ok_or_else(|| wrong("a huge offset"))?;
        let bytes = if length == 0 {
            0
        } else {
            end.div_ceil(8) - begin / 8
        };
        self.copy(moved(pointer, begin / 8, bytes)?, bytes)
    }

    /// The rows' values of `width` bytes.
    fn fixed(&mut self, array: &Source, index: usize, width: usize) -> Read<Buffer> {
        let pointer = array.buffer(self.memory, index)?;
        let places = times(array.begin, width).zip(times(array.length, width));
        let (from, bytes) = places.ok_or_else(|| wrong("a buffer of too many bytes"))?;
        self.copy(moved(pointer, from, bytes)?, bytes)
    }

    /// The rows' offsets, which then begin with 0; where the values begin, and how many they are.
    fn offsets(&mut self, array: &Source, width: usize) -> Read<(Buffer, u64, u64)> {
        let pointer = array.buffer(self.memory, 1)?;
        if array.length == 0 {
            return Ok((Buffer::from(vec![0; width]), 0, 0));
        }
        let huge = || wrong("a buffer of too many bytes");
        let from = times(array.begin, width).ok_or_else(huge)?;
        let count = array.length.checked_add(1).ok_or_else(huge)?;
        let bytes = times(count, width).ok_or_else(huge)?;
        let pointer = moved(pointer, from, bytes)?;
        let raw = self.memory.bytes(pointer, bytes)?;
        self.spend(bytes, 0)?;
        // Offsets that ascend fit again when the first is taken from them; others are refused.
        let (buffer, first, last) = match width {
            4 => ascending(
                raw,
                |word| i64::from(i32::from_le_bytes(word)),
                |n| i32::try_from(n).unwrap_or(0),
            ),
            _ => ascending(raw, i64::from_le_bytes, |n| n),
        }
        .ok_or_else(|| wrong("offsets that do not ascend"))?;
        Ok((buffer, first, last - first))
    }

    fn views(&mut self, array: &Source) -> Read<Vec<Buffer>> {
        let mut buffers = vec![self.fixed(array, 1, 16)?];
        let data = array.raw.n_buffers - 3;
        let sizes = array.buffer(self.memory, size(array.raw.n_buffers)? - 1)?;
        let sizes = self
            .memory
            .bytes(sizes, data.checked_mul(8).ok_or_else(|| wrong("views"))?)?;
        for (index, bytes) in sizes.chunks_exact(8).enumerate() {
            let bytes = count_at(bytes, 0, "size of a view's data")?;
            self.spend(OVERHEAD, 0)?;
            buffers.push(self.copy(array.buffer(self.memory, index + 2)?, bytes)?);
        }
        Ok(buffers)
    }

    /// Copies bytes of the guest, to an address that fits any type.
    fn copy(&mut self, pointer: u32, length: u64) -> Read<Buffer> {
        let bytes = self.memory.bytes(pointer, length)?;
        self.spend(length, 0)?;
        Ok(Buffer::from(bytes))
    }

    /// Takes bytes, and a bit for each row, from the budget.
    fn spend(&mut self, bytes: u64, rows: u64) -> Read<()> {
        let cost = bytes.saturating_add(rows.div_ceil(8));
        self.budget.bytes = self.budget.bytes.checked_sub(cost).ok_or(Refused::Bytes)?;
        Ok(())
    }
}

/// The rows of an array that are read.
struct Source {
    raw: Raw,
    kind: Kind,
    /// The first row, counted from the buffers' begin.
    begin: u64,
    length: u64,
    depth: usize,
}

impl Source {
    /// The pointer to a buffer, which may be NULL if nothing lies there. `expect` has counted.
    fn buffer(&self, memory: Memory<'_>, index: usize) -> Result<u32> {
        let pointers = memory.bytes(self.raw.buffers, (index as u64 + 1).saturating_mul(4))?;
        Ok(u32_at(pointers, index * 4))
    }
}

/// What an array is made of.
#[derive(Default)]
struct Parts {
    offset: u64,
    buffers: Vec<Buffer>,
    children: Vec<ArrayData>,
}

/// Offsets less the first of them, this first one, and the last; `None` if one is below its
/// forerunner or zero.
fn ascending<const WIDTH: usize, T: arrow::datatypes::ArrowNativeType>(
    raw: &[u8],
    wide: impl Fn([u8; WIDTH]) -> i64,
    narrow: impl Fn(i64) -> T,
) -> Option<(Buffer, u64, u64)> {
    let (words, _) = raw.as_chunks::<WIDTH>();
    let first = wide(*words.first()?);
    let mut last = first;
    let mut sound = first >= 0;
    let offsets = words.iter().map(|word| {
        let offset = wide(*word);
        sound &= offset >= last;
        last = offset;
        narrow(offset.wrapping_sub(first))
    });
    let buffer = Buffer::from_vec(offsets.collect::<Vec<T>>());
    let ends = u64::try_from(first).ok().zip(u64::try_from(last).ok());
    ends.filter(|_| sound)
        .map(|(first, last)| (buffer, first, last))
}

/// A pointer moved by so many bytes. The place matters only if bytes are read there.
fn moved(pointer: u32, by: u64, bytes: u64) -> Result<u32> {
    if bytes == 0 {
        return Ok(0);
    }
    let place = u64::from(pointer)
        .checked_add(by)
        .and_then(|place| u32::try_from(place).ok());
    match place {
        Some(place) if pointer != 0 => Ok(place),
        _ => Err(wrong(format!("{bytes} bytes at {pointer:#x} and {by} on"))),
    }
}

fn times(count: u64, width: usize) -> Option<u64> {
    count.checked_mul(width as u64)
}

fn size(count: u64) -> Result<usize> {
    usize::try_from(count).map_err(|_| wrong("more rows than the host can count"))
}

fn wrong(what: impl std::fmt::Display) -> Error {
    Error::Data(what.to_string())
}
