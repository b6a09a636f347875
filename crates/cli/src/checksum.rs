//! A hash of a table's content.
//!
//! The hash covers the names and types of the columns, the order of the rows, every value and every
//! null. It ignores everything that a reader may choose: batch boundaries, offsets and slices,
//! values under a null, dictionary or run-end encoding (values are hashed decoded), the width of
//! offsets, and views (a string is a string). It also ignores metadata and nullability.
//! Floating-point values are hashed by their bits, so -0 and 0 differ.
//!
//! Each node of a column's type hashes nulls, lengths and values as separate streams. So whole
//! buffers are hashed at once, with the same result as value by value.

use std::fmt::Write as _;
use std::sync::Arc;

use anyhow::{Result, bail};
use arrow::array::{
    Array, ArrayRef, AsArray as _, BooleanArray, FixedSizeListArray, GenericListArray,
    GenericListViewArray, OffsetSizeTrait, StructArray, UInt64Array, UnionArray,
};
use arrow::compute::{cast, filter, take};
use arrow::datatypes::{DataType, Field, Schema, UnionMode};
use arrow::record_batch::RecordBatch;
use xxhash_rust::xxh3::Xxh3;

use crate::lengths::{MAX_VALUES, PART_BYTES, PIECE, run_values, widest};

/// An error stops the work.
type Check<'a> = &'a dyn Fn() -> dipc::Result<()>;

/// The hash of a table, computed batch by batch.
pub struct Checksum {
    columns: Vec<Node>,
    rows: u64,
}

impl Checksum {
    /// Begins the hash of a table with these columns.
    pub fn new(schema: &Schema) -> Self {
        Self {
            columns: schema
                .fields()
                .iter()
                .map(|field| Node::new(field))
                .collect(),
            rows: 0,
        }
    }

    /// Adds rows. Calls `check` regularly; its error stops the work.
    pub fn update(&mut self, batch: &RecordBatch, check: Check<'_>) -> Result<()> {
        self.rows = self.rows.wrapping_add(batch.num_rows() as u64);
        for (node, column) in self.columns.iter_mut().zip(batch.columns()) {
            node.update(column, check)?;
        }
        Ok(())
    }

    /// The hash, as `xxh3-128:` and 32 hexadecimal digits.
    pub fn finish(&self) -> String {
        let mut hasher = Xxh3::new();
        hasher.update(&self.rows.to_le_bytes());
        for column in &self.columns {
            hasher.update(&column.finish().to_le_bytes());
        }
        format!("xxh3-128:{:032x}", hasher.digest128())
    }
}

/// The hash of one column, or of one level of a nested column.
struct Node {
    /// The hashed parts of name and type.
    label: String,
    rows: u64,
    /// The numbers of the rows that are null.
    nulls: Xxh3,
    /// Lengths of strings and lists.
    lengths: Xxh3,
    /// Bytes of the values that are not null.
    values: Xxh3,
    children: Vec<Node>,
}

impl Node {
    fn new(field: &Field) -> Self {
        let mut label = format!("{:?} ", field.name());
        let children = describe(field.data_type(), &mut label);
        Self {
            label,
            rows: 0,
            nulls: Xxh3::new(),
            lengths: Xxh3::new(),
            values: Xxh3::new(),
            children,
        }
    }

    fn finish(&self) -> u128 {
        let mut hasher = Xxh3::new();
        hasher.update(&(self.label.len() as u64).to_le_bytes());
        hasher.update(self.label.as_bytes());
        hasher.update(&self.rows.to_le_bytes());
        for stream in [&self.nulls, &self.lengths, &self.values] {
            hasher.update(&stream.digest128().to_le_bytes());
        }
        for child in &self.children {
            hasher.update(&child.finish().to_le_bytes());
        }
        hasher.digest128()
    }

    fn update(&mut self, array: &ArrayRef, check: Check<'_>) -> Result<()> {
        // Encodings first: only the decoded values show which rows are null. An array is decoded in
        // parts, because its decoded form can be many times larger.
        match array.data_type() {
            DataType::Dictionary(_, values) => {
                let dictionary = array.as_any_dictionary();
                for (start, rows) in parts(array.len(), widest(dictionary.values())) {
                    let keys = dictionary.keys().slice(start, rows);
                    let decoded = take(dictionary.values(), &keys, None)?;
                    debug_assert_eq!(decoded.data_type(), values.as_ref());
                    self.update(&decoded, check)?;
                    check()?;
                }
                return Ok(());
            }
            DataType::RunEndEncoded(_, values) => {
                if array.len() > MAX_VALUES {
                    bail!(
                        "a batch has runs of {} values together, more than the {MAX_VALUES} that a \
                         checksum goes through",
                        array.len()
                    );
                }
                let values = values.data_type();
                for (start, rows) in parts(array.len(), widest(&run_values(array))) {
                    self.update(&cast(&array.slice(start, rows), values)?, check)?;
                    check()?;
                }
                return Ok(());
            }
            _ => {}
        }
        let first = self.rows;
        self.rows = self.rows.wrapping_add(array.len() as u64);
        // An array of type null is null in every row: the number of rows is enough.
        if let (false, Some(nulls)) = (array.data_type().is_null(), array.nulls())
            && nulls.null_count() > 0
        {
            for (row, valid) in (first..).zip(nulls.iter()) {
                if !valid {
                    self.nulls.update(&row.to_le_bytes());
                }
            }
            let valid = BooleanArray::new(nulls.inner().clone(), None);
            return self.update_values(&filter(array, &valid)?, check);
        }
        self.update_values(array, check)
    }

    /// Adds values without nulls.
    fn update_values(&mut self, array: &ArrayRef, check: Check<'_>) -> Result<()> {
        match array.data_type() {
            DataType::Null => {}
            DataType::Boolean => {
                let bytes: Vec<u8> = array.as_boolean().values().iter().map(u8::from).collect();
                self.values.update(&bytes);
            }
            DataType::Utf8 => self.update_bytes(array.as_string::<i32>().iter()),
            DataType::LargeUtf8 => self.update_bytes(array.as_string::<i64>().iter()),
            DataType::Utf8View => self.update_bytes(array.as_string_view().iter()),
            DataType::Binary => self.update_bytes(array.as_binary::<i32>().iter()),
            DataType::LargeBinary => self.update_bytes(array.as_binary::<i64>().iter()),
            DataType::BinaryView => self.update_bytes(array.as_binary_view().iter()),
            // Values of width 0 have no bytes to hash.
            DataType::FixedSizeBinary(0) => {}
            DataType::FixedSizeBinary(_) => {
                for value in array.as_fixed_size_binary().iter().flatten() {
                    self.values.update(value);
                }
            }
            DataType::List(_) => self.update_list(array.as_list::<i32>(), check)?,
            DataType::LargeList(_) => self.update_list(array.as_list::<i64>(), check)?,
            DataType::ListView(_) => self.update_list_view(array.as_list_view::<i32>(), check)?,
            DataType::LargeListView(_) => {
                self.update_list_view(array.as_list_view::<i64>(), check)?
            }
            DataType::Map(_, _) => {
                let map = array.as_map();
                self.update_lengths(map.offsets().lengths());
                let entries: ArrayRef = Arc::new(map.entries().clone());
                let (start, end) = ends(map.offsets());
                self.child(0)?
                    .update(&entries.slice(start, end - start), check)?;
            }
            DataType::FixedSizeList(_, _) => {
                self.update_fixed_list(array.as_fixed_size_list(), check)?
            }
            DataType::Struct(_) => self.update_struct(array.as_struct(), check)?,
            DataType::Union(_, _) => self.update_union(array.as_union(), check)?,
            data_type => match data_type.primitive_width() {
                Some(width) => {
                    let data = array.to_data();
                    let start = data.offset() * width;
                    let bytes = data.buffers().first().map_or(&[][..], |b| b.as_slice());
                    let Some(bytes) = bytes.get(start..start + data.len() * width) else {
                        bail!("a column of type {data_type} is shorter than its length");
                    };
                    self.values.update(bytes);
                }
                None => bail!("a column of type {data_type} has no checksum"),
            },
        }
        Ok(())
    }

    fn update_bytes<'a, T: AsRef<[u8]> + ?Sized + 'a>(
        &mut self,
        values: impl Iterator<Item = Option<&'a T>>,
    ) {
        for value in values.flatten() {
            let value = value.as_ref();
            self.lengths.update(&(value.len() as u64).to_le_bytes());
            self.values.update(value);
        }
    }

    fn update_lengths(&mut self, lengths: impl Iterator<Item = usize>) {
        for length in lengths {
            self.lengths.update(&(length as u64).to_le_bytes());
        }
    }

    fn update_list<O: OffsetSizeTrait>(
        &mut self,
        list: &GenericListArray<O>,
        check: Check<'_>,
    ) -> Result<()> {
        self.update_lengths(list.offsets().lengths());
        // Without nulls the lists are contiguous.
        let (start, end) = ends(list.offsets());
        self.child(0)?
            .update(&list.values().slice(start, end - start), check)
    }

    fn update_list_view<O: OffsetSizeTrait>(
        &mut self,
        list: &GenericListViewArray<O>,
        check: Check<'_>,
    ) -> Result<()> {
        // All views may show the same values; each shown value counts.
        let sizes = list.sizes().iter().map(|size| size.as_usize());
        let total = sizes.fold(0, usize::saturating_add);
        if total > list.values().len().max(MAX_VALUES) {
            bail!(
                "list views show {total} values, more than the {MAX_VALUES} that a checksum goes \
                 through"
            );
        }
        let mut indices: Vec<u64> = Vec::new();
        for (offset, size) in list.offsets().iter().zip(list.sizes().iter()) {
            let (start, len) = (offset.as_usize(), size.as_usize());
            self.lengths.update(&(len as u64).to_le_bytes());
            if indices.len() + len > PIECE {
                self.update_taken(list.values(), &mut indices, check)?;
            }
            if len > PIECE {
                let values = list.values().slice(start, len);
                self.child(0)?.update(&values, check)?;
            } else {
                indices.extend(start as u64..(start + len) as u64);
            }
        }
        self.update_taken(list.values(), &mut indices, check)
    }

    /// Adds the values of a list at these places, in order.
    fn update_taken(
        &mut self,
        values: &ArrayRef,
        indices: &mut Vec<u64>,
        check: Check<'_>,
    ) -> Result<()> {
        let indices = std::mem::take(indices);
        if indices.is_empty() {
            return Ok(());
        }
        let taken = take(values, &UInt64Array::from(indices), None)?;
        self.child(0)?.update(&taken, check)?;
        Ok(check()?)
    }

    fn update_fixed_list(&mut self, list: &FixedSizeListArray, check: Check<'_>) -> Result<()> {
        let size = list.value_length().unsigned_abs() as usize;
        // The values of a sliced array are sliced with it.
        let values = list.values().slice(0, list.len() * size);
        self.child(0)?.update(&values, check)
    }

    fn update_struct(&mut self, array: &StructArray, check: Check<'_>) -> Result<()> {
        for (index, column) in array.columns().iter().enumerate() {
            self.child(index)?.update(column, check)?;
        }
        Ok(())
    }

    fn update_union(&mut self, array: &UnionArray, check: Check<'_>) -> Result<()> {
        let DataType::Union(fields, mode) = array.data_type() else {
            bail!("not a union");
        };
        let ids = array.type_ids();
        let bytes: Vec<u8> = ids.iter().map(|id| id.to_le_bytes()[0]).collect();
        self.values.update(&bytes);
        for (index, (id, _)) in fields.iter().enumerate() {
            let rows = ids.iter().enumerate().filter(|(_, row_id)| **row_id == id);
            let indices: UInt64Array = match mode {
                UnionMode::Sparse => rows.map(|(row, _)| row as u64).collect::<Vec<_>>().into(),
                UnionMode::Dense => rows
                    .map(|(row, _)| array.value_offset(row) as u64)
                    .collect::<Vec<_>>()
                    .into(),
            };
            self.child(index)?
                .update(&take(array.child(id), &indices, None)?, check)?;
        }
        Ok(())
    }

    fn child(&mut self, index: usize) -> Result<&mut Node> {
        match self.children.get_mut(index) {
            Some(child) => Ok(child),
            None => bail!("column {} has changed its type between batches", self.label),
        }
    }
}

/// The parts for decoding `len` rows of at most `width` bytes: first row and number of rows of each
/// part.
fn parts(len: usize, width: usize) -> impl Iterator<Item = (usize, usize)> {
    let rows = (PART_BYTES / width.max(1)).clamp(1, PIECE);
    (0..len)
        .step_by(rows)
        .map(move |start| (start, rows.min(len - start)))
}

/// First and last of a list's offsets.
fn ends<O: OffsetSizeTrait>(offsets: &arrow::buffer::OffsetBuffer<O>) -> (usize, usize) {
    match (offsets.iter().next(), offsets.iter().next_back()) {
        (Some(first), Some(last)) => (first.as_usize(), last.as_usize()),
        _ => (0, 0),
    }
}

/// Writes the hashed part of the type into `label`, and gives the nodes below the type.
fn describe(data_type: &DataType, label: &mut String) -> Vec<Node> {
    let mut named = |name: &str, children: Vec<Node>| {
        label.push_str(name);
        children
    };
    // The name of a list's item field is the reader's choice ("item", "element").
    let item = |field: &Field| vec![Node::new(&field.clone().with_name("item"))];
    match data_type {
        DataType::Dictionary(_, values) => describe(values, label),
        DataType::RunEndEncoded(_, values) => describe(values.data_type(), label),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => named("utf8", Vec::new()),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
            named("binary", Vec::new())
        }
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field) => named("list", item(field)),
        DataType::FixedSizeList(field, size) => named(&format!("list of {size}"), item(field)),
        DataType::Map(entries, _) => match entries.data_type() {
            // Readers choose the names of entries, keys and values.
            DataType::Struct(fields) => {
                let renamed: Vec<Field> = fields
                    .iter()
                    .zip(["key", "value"])
                    .map(|(field, name)| field.as_ref().clone().with_name(name))
                    .collect();
                let entries = Field::new("entries", DataType::Struct(renamed.into()), false);
                named("map", vec![Node::new(&entries)])
            }
            _ => named("map", item(entries)),
        },
        DataType::Struct(fields) => named(
            "struct",
            fields.iter().map(|field| Node::new(field)).collect(),
        ),
        DataType::Union(fields, _) => {
            label.push_str("union");
            fields
                .iter()
                .map(|(id, field)| {
                    let _ = write!(label, " {id}");
                    Node::new(field)
                })
                .collect()
        }
        other => named(&other.to_string(), Vec::new()),
    }
}

#[cfg(test)]
#[path = "checksum_tests.rs"]
mod tests;
