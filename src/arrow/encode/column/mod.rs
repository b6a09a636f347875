//! A producer's array with its field. Only this file follows the pointers of the C structs.
//!
//! Two facts cannot be checked, so the producer is trusted: `buffers` and `children` have as many
//! entries as the struct says, and a buffer is as long as type, offset, length and last offset
//! require. All else is checked.

mod validity;

use super::bits::{BitRange, Bits};
use super::checks::{check_buffers, signed, size, too_large, unsigned};
use super::fault::{Checked, Fault};
use super::memory::ProducerMemory;
use crate::arrow::abi::ArrowArray;
use crate::arrow::format::{Field, Layout, Type};
use crate::device::BufferRef;

/// An array and its field's data. A value has passed the checks of [`Column::new`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Column<'a> {
    pub(super) layout: Layout,
    /// The fields of the children.
    fields: &'a [Field],
    /// For a union, the type ids of the children.
    ids: &'a [i8],
    array: &'a ArrowArray,
    /// The number of rows before the array's first row.
    offset: usize,
    /// The number of rows.
    pub(super) len: usize,
    /// The number of buffers before the layout's first buffer: 1 for the NULL bitmap that old
    /// exporters of unions pass.
    skipped: usize,
    memory: ProducerMemory<'a>,
}

/// The index of the validity bitmap.
const VALIDITY: usize = 0;

impl<'a> Column<'a> {
    /// The array of a field; for a dictionary-encoded field, the indices.
    ///
    /// # Safety
    ///
    /// `array` is released or follows the C data interface as this module's documentation requires,
    /// with memory on the device of `memory`. Nobody writes or releases it during `'a`.
    #[inline(always)]
    pub(super) unsafe fn of_field(
        field: &'a Field,
        array: &'a ArrowArray,
        memory: ProducerMemory<'a>,
    ) -> Checked<Self> {
        let encoded = field.dictionary.is_some();
        if !encoded {
            // SAFETY: the caller promises an array as `of_field` requires it, unchanged during
            // `'a`.
            return unsafe { Self::of_values(field, array, memory) };
        }
        // SAFETY: the caller promises an array as `of_field` requires it, unchanged during `'a`.
        unsafe { Self::new(field.layout(), &[], &[], encoded, array, memory) }
    }

    /// The array of a record batch: a struct of `fields`.
    ///
    /// # Safety
    ///
    /// As [`of_field`](Self::of_field).
    pub(super) unsafe fn of_batch(
        fields: &'a [Field],
        array: &'a ArrowArray,
        memory: ProducerMemory<'a>,
    ) -> Checked<Self> {
        // SAFETY: the caller promises an array as `of_field` requires it, unchanged during `'a`.
        unsafe { Self::new(Layout::Struct, fields, &[], false, array, memory) }
    }

    /// An array of the field's type; for a dictionary-encoded field, the dictionary.
    ///
    /// # Safety
    ///
    /// As [`of_field`](Self::of_field).
    #[inline(always)]
    pub(super) unsafe fn of_values(
        field: &'a Field,
        array: &'a ArrowArray,
        memory: ProducerMemory<'a>,
    ) -> Checked<Self> {
        let ids = match &field.ty {
            Type::Union { ids, .. } => ids.as_slice(),
            _ => &[],
        };
        // SAFETY: the caller promises an array as `of_field` requires it, unchanged during `'a`.
        unsafe {
            Self::new(
                field.ty.layout(),
                &field.children,
                ids,
                false,
                array,
                memory,
            )
        }
    }

    // Inlined: the result is large, and this function runs for each column of each batch.
    /// # Safety
    ///
    /// As [`of_field`](Self::of_field).
    #[inline(always)]
    unsafe fn new(
        layout: Layout,
        fields: &'a [Field],
        ids: &'a [i8],
        encoded: bool,
        array: &'a ArrowArray,
        memory: ProducerMemory<'a>,
    ) -> Checked<Self> {
        if array.release.is_none() {
            return Err(Fault::invalid("the array has been released already"));
        }
        let len = size("length", array.length)?;
        let offset = size("offset", array.offset)?;
        if array.length.checked_add(array.offset).is_none() {
            return Err(Fault::invalid(format!(
                "offset {offset} and length {len} are more than a 64-bit number holds"
            )));
        }
        if array.null_count < -1 || array.null_count > array.length {
            return Err(Fault::invalid(format!(
                "the null count is {} in an array of length {len}",
                array.null_count
            )));
        }
        let skipped = check_buffers(layout, array)?;
        if array.n_children != i64::try_from(fields.len()).unwrap_or(i64::MAX) {
            return Err(Fault::invalid(format!(
                "the array has {} children, but the schema has {}",
                array.n_children,
                fields.len()
            )));
        }
        if !fields.is_empty() && array.children.is_null() {
            return Err(Fault::invalid("the list of children is NULL"));
        }
        match (encoded, array.dictionary.is_null()) {
            (true, true) => return Err(Fault::invalid("the dictionary is NULL")),
            (false, false) => {
                return Err(Fault::invalid(
                    "the array has a dictionary, but its schema has none",
                ));
            }
            _ => {}
        }
        Ok(Self {
            layout,
            fields,
            ids,
            array,
            offset,
            len,
            skipped,
            memory,
        })
    }

    /// The fields of the children.
    pub(super) fn fields(&self) -> &'a [Field] {
        self.fields
    }

    /// The child at `index`, which is less than the number of [`fields`](Self::fields).
    #[inline(always)]
    pub(super) fn child(&self, index: usize) -> Checked<Self> {
        let field = &self.fields[index];
        let in_child = |fault: Box<Fault>| fault.inside(self.child_name(index));
        // SAFETY: `new` checked that the array has one child for each field, in a list that is not
        // NULL. The producer is trusted that the list has as many entries.
        let slot = unsafe { self.array.children.add(index) };
        // SAFETY: the slot is an entry of the list, as for the address above.
        let child = unsafe { slot.read() };
        // SAFETY: a child that is not NULL is an array that lives as long as its parent.
        let Some(child) = (unsafe { child.as_ref() }) else {
            return Err(in_child(Fault::invalid("the pointer to the array is NULL")));
        };
        // SAFETY: children follow the C data interface and lie on the device of their parent.
        match unsafe { Self::of_field(field, child, self.memory) } {
            Ok(child) => Ok(child),
            Err(fault) => Err(in_child(fault)),
        }
    }

    /// The index of the union's child with type id `id`.
    pub(super) fn union_child(&self, id: u8) -> Checked<usize> {
        self.ids
            .iter()
            .position(|known| u8::try_from(*known) == Ok(id))
            .ok_or_else(|| Fault::invalid(format!("the union has no child with type id {id}")))
    }

    /// The index of the child for each type id.
    pub(super) fn union_children(&self) -> [Option<usize>; 256] {
        let mut children = [None; 256];
        for (index, id) in self.ids.iter().enumerate().rev() {
            if let Some(child) = usize::try_from(*id)
                .ok()
                .and_then(|id| children.get_mut(id))
            {
                *child = Some(index);
            }
        }
        children
    }

    /// The name of the child at `index`, for error texts.
    pub(super) fn child_name(&self, index: usize) -> &'a str {
        match self.fields[index].name.as_str() {
            "" => "(no name)",
            name => name,
        }
    }

    /// The dictionary's values. `self` is the array of the dictionary-encoded `field`.
    pub(super) fn dictionary(&self, field: &'a Field) -> Checked<Self> {
        // SAFETY: a dictionary that is not NULL is an array that lives as long as its parent.
        let values = unsafe { self.array.dictionary.as_ref() }
            .ok_or_else(|| Fault::invalid("the dictionary is NULL"))?;
        // SAFETY: it follows the C data interface and lies on the device of its parent.
        unsafe { Self::of_values(field, values, self.memory) }
            .map_err(|fault| fault.inside("(dictionary)"))
    }

    /// The access to its memory.
    pub(super) fn memory(&self) -> ProducerMemory<'a> {
        self.memory
    }

    /// The C struct, valid while its owner lives.
    pub(super) fn array(&self) -> *const ArrowArray {
        self.array
    }

    /// The position in the buffers of row `first`; checks that `rows` rows follow.
    #[inline]
    pub(super) fn start(&self, first: usize, rows: usize) -> Checked<usize> {
        match first.checked_add(rows) {
            Some(end) if end <= self.len => Ok(self.offset + first),
            _ => Err(Fault::invalid(format!(
                "the array has {} rows and its parent uses {rows} from row {first} on",
                self.len
            ))),
        }
    }

    /// The buffer at `index`, which is less than `n_buffers`.
    #[inline]
    fn pointer(&self, index: usize) -> *const u8 {
        // SAFETY: `new` checked that the array has the layout's buffers, in a list that is not
        // NULL. The producer is trusted that the list has as many entries.
        let slot = unsafe { self.array.buffers.add(self.skipped + index) };
        // SAFETY: the slot is an entry of the list, as for the address above.
        unsafe { slot.read() }.cast()
    }

    /// `len` bytes of the buffer at `index`, from `skip` on. `name` is for error texts.
    #[inline]
    pub(super) fn buffer(
        &self,
        index: usize,
        name: &str,
        skip: usize,
        len: usize,
    ) -> Checked<BufferRef> {
        if len == 0 {
            return Ok(BufferRef::EMPTY);
        }
        // No object in memory is longer than `isize::MAX`. A longer length is false, and would make
        // the pointer below overflow.
        if skip
            .checked_add(len)
            .is_none_or(|end| isize::try_from(end).is_err())
        {
            return Err(too_large());
        }
        let data = self.pointer(index);
        if data.is_null() {
            return Err(Fault::invalid(format!("the {name} buffer is NULL")));
        }
        // SAFETY: the producer is trusted that the buffer is as long as type, offset, length and
        // last offset require. The requested range is within that, and shorter than isize::MAX.
        let data = unsafe { data.add(skip) };
        Ok(BufferRef { data, len })
    }

    /// `rows` values of `width` bytes in the buffer at `index`, from `start` on.
    #[inline]
    pub(super) fn values(
        &self,
        index: usize,
        name: &str,
        start: usize,
        rows: usize,
        width: usize,
    ) -> Checked<BufferRef> {
        let skip = start.checked_mul(width).ok_or_else(too_large)?;
        self.buffer(
            index,
            name,
            skip,
            rows.checked_mul(width).ok_or_else(too_large)?,
        )
    }

    /// Reads the values that [`values`](Self::values) finds.
    #[inline]
    pub(super) fn elements(
        &self,
        index: usize,
        name: &str,
        start: usize,
        rows: usize,
        width: usize,
    ) -> Checked<&'a [u8]> {
        let values = self.values(index, name, start, rows, width)?;
        // SAFETY: the array lives and does not change during 'a, by the contract of `of_field`.
        unsafe { self.memory.read(values) }
    }

    /// Reads `len` bytes of the buffer at `index`, from `skip` on.
    #[inline(always)]
    pub(super) fn bytes(
        &self,
        index: usize,
        name: &str,
        skip: usize,
        len: usize,
    ) -> Checked<&'a [u8]> {
        let buffer = self.buffer(index, name, skip, len)?;
        // SAFETY: the array lives and does not change during 'a, by the contract of `of_field`.
        unsafe { self.memory.read(buffer) }
    }

    /// Reads `rows` bits of the bitmap at `index`, from `start` on.
    pub(super) fn bits(
        &self,
        index: usize,
        name: &str,
        start: usize,
        rows: usize,
    ) -> Checked<Bits<'a>> {
        self.read_bits(self.bit_range(index, name, start, rows)?)
    }

    fn read_bits(&self, range: BitRange) -> Checked<Bits<'a>> {
        // SAFETY: the array lives and does not change during 'a, by the contract of `of_field`.
        let bytes = unsafe { self.memory.read(range.buffer) }?;
        Ok(Bits::new(bytes, range.first, range.len))
    }

    /// The address of [`bits`](Self::bits), without a read.
    pub(super) fn bit_range(
        &self,
        index: usize,
        name: &str,
        start: usize,
        rows: usize,
    ) -> Checked<BitRange> {
        if rows == 0 {
            return Ok(BitRange::EMPTY);
        }
        let first = start % 8;
        let len = first.checked_add(rows).ok_or_else(too_large)?.div_ceil(8);
        let buffer = self.buffer(index, name, start / 8, len)?;
        Ok(BitRange {
            buffer,
            first,
            len: rows,
        })
    }

    /// The offset (or size, or run end) at `position` of the buffer at `index`. `width` is 2, 4 or
    /// 8. A negative number is an error.
    #[inline(always)]
    pub(super) fn offset_at(
        &self,
        index: usize,
        name: &str,
        position: usize,
        width: usize,
    ) -> Checked<usize> {
        let skip = position.checked_mul(width).ok_or_else(too_large)?;
        unsigned(
            signed(self.bytes(index, name, skip, width)?),
            name,
            position,
        )
    }

    /// The first and the last offset of `rows` rows from `start` on.
    #[inline]
    pub(super) fn offset_range(
        &self,
        start: usize,
        rows: usize,
        width: usize,
    ) -> Checked<(usize, usize)> {
        let first = self.offset_at(1, "offsets", start, width)?;
        let last = self.offset_at(1, "offsets", start + rows, width)?;
        if first > last {
            return Err(Fault::invalid(format!(
                "the offsets decrease, from {first} at position {start} to {last} at position {}",
                start + rows
            )));
        }
        Ok((first, last))
    }

    /// The last offset of the whole array, which is the end of its data.
    pub(super) fn extent(&self, width: usize) -> Checked<usize> {
        self.offset_at(1, "offsets", self.offset + self.len, width)
    }

    /// The lengths of the variadic buffers of a view layout. One read gets all of them, because on
    /// a GPU each read costs a round trip.
    #[inline]
    pub(super) fn variadic(&self) -> Checked<impl ExactSizeIterator<Item = Checked<usize>> + 'a> {
        const NAME: &str = "variadic lengths";
        let buffers = usize::try_from(self.array.n_buffers).unwrap_or(0);
        let len = buffers
            .saturating_sub(3)
            .checked_mul(8)
            .ok_or_else(too_large)?;
        let lengths = self.bytes(buffers.saturating_sub(1), NAME, 0, len)?;
        let (lengths, _) = lengths.as_chunks();
        let numbers = lengths.iter().enumerate();
        Ok(numbers.map(|(at, length)| unsigned(i64::from_ne_bytes(*length), NAME, at)))
    }

    /// True if both arrays use the same memory, with all children. Their values are then equal
    /// without a comparison (rule A3). Both must be alive.
    pub(super) fn same_memory(&self, other: &Self) -> Checked<bool> {
        let (a, b) = (self.array, other.array);
        if self.skipped != other.skipped {
            return Ok(false);
        }
        let numbers = |array: &ArrowArray| {
            (
                array.length,
                array.offset,
                array.null_count,
                array.n_buffers,
                array.n_children,
            )
        };
        if numbers(a) != numbers(b) {
            return Ok(false);
        }
        let mut buffers = match self.layout {
            // A buffer of these layouts has no meaning.
            Layout::Null | Layout::RunEndEncoded => 0,
            _ => usize::try_from(a.n_buffers).unwrap_or(0) - self.skipped,
        };
        if matches!(self.layout, Layout::View { .. }) {
            // Producers make a new list of lengths for each export.
            buffers -= 1;
            // Both have as many lengths, because they have as many buffers.
            let (ours, theirs) = (self.variadic(), other.variadic());
            for (ours, theirs) in ours?.zip(theirs?) {
                if ours? != theirs? {
                    return Ok(false);
                }
            }
        }
        if (0..buffers).any(|index| self.pointer(index) != other.pointer(index)) {
            return Ok(false);
        }
        for (index, field) in self.fields.iter().enumerate() {
            let (ours, theirs) = (self.child(index)?, other.child(index)?);
            if !ours.same_memory(&theirs)? {
                return Ok(false);
            }
            if field.dictionary.is_some()
                && !ours
                    .dictionary(field)?
                    .same_memory(&theirs.dictionary(field)?)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
