//! A hash of a table's content.
//!
//! It covers the names and types of the columns, the order of the rows, every value and every null.
//! It does not depend on what a reader may choose freely: where batches end, offsets and slices,
//! what lies under a null, dictionary or run-end encoding (values are hashed decoded), the width of
//! offsets, and views (a string is a string). Metadata and nullability are left out. Floating-point
//! values are hashed by their bits, so -0 and 0 differ.
//!
//! Each node of a column's type has streams of its own for nulls, lengths and values, so that whole
//! buffers can be fed at once and the result is still that of value after value.

use std::fmt::Write as _;

use anyhow::{Result, bail};
use arrow::array::{
    Array, ArrayRef, AsArray as _, BooleanArray, FixedSizeListArray, GenericListArray,
    GenericListViewArray, OffsetSizeTrait, StructArray, UInt64Array, UnionArray,
};
use arrow::compute::{cast, filter, take};
use arrow::datatypes::{DataType, Field, Schema, UnionMode};
use arrow::record_batch::RecordBatch;
use xxhash_rust::xxh3::Xxh3;

/// The hash of a table, fed batch by batch.
pub struct Checksum {
    columns: Vec<Node>,
    rows: u64,
}

impl Checksum {
    /// Begins with a table of these columns.
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

    /// Adds rows.
    pub fn update(&mut self, batch: &RecordBatch) -> Result<()> {
        self.rows += batch.num_rows() as u64;
        for (node, column) in self.columns.iter_mut().zip(batch.columns()) {
            node.update(column)?;
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

/// The hash of one column, or of one level of a nested one.
struct Node {
    /// Name and type, as far as they count.
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

    fn update(&mut self, array: &ArrayRef) -> Result<()> {
        // Encodings first: what is null is known only of the values they stand for.
        match array.data_type() {
            DataType::Dictionary(_, values) => {
                let dictionary = array.as_any_dictionary();
                let decoded = take(dictionary.values(), dictionary.keys(), None)?;
                debug_assert_eq!(decoded.data_type(), values.as_ref());
                return self.update(&decoded);
            }
            DataType::RunEndEncoded(_, values) => {
                return self.update(&cast(array, values.data_type())?);
            }
            _ => {}
        }
        let first = self.rows;
        self.rows += array.len() as u64;
        // An array of type null is null in every row; the number of rows says it all.
        if let (false, Some(nulls)) = (array.data_type().is_null(), array.nulls())
            && nulls.null_count() > 0
        {
            for (row, valid) in (first..).zip(nulls.iter()) {
                if !valid {
                    self.nulls.update(&row.to_le_bytes());
                }
            }
            let valid = BooleanArray::new(nulls.inner().clone(), None);
            return self.update_values(&filter(array, &valid)?);
        }
        self.update_values(array)
    }

    /// Adds values none of which is null.
    fn update_values(&mut self, array: &ArrayRef) -> Result<()> {
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
            DataType::FixedSizeBinary(_) => {
                for value in array.as_fixed_size_binary().iter().flatten() {
                    self.values.update(value);
                }
            }
            DataType::List(_) => self.update_list(array.as_list::<i32>())?,
            DataType::LargeList(_) => self.update_list(array.as_list::<i64>())?,
            DataType::ListView(_) => self.update_list_view(array.as_list_view::<i32>())?,
            DataType::LargeListView(_) => self.update_list_view(array.as_list_view::<i64>())?,
            DataType::Map(_, _) => {
                let map = array.as_map();
                self.update_lengths(map.offsets().lengths());
                let entries: ArrayRef = std::sync::Arc::new(map.entries().clone());
                let (start, end) = ends(map.offsets());
                self.child(0)?.update(&entries.slice(start, end - start))?;
            }
            DataType::FixedSizeList(_, _) => self.update_fixed_list(array.as_fixed_size_list())?,
            DataType::Struct(_) => self.update_struct(array.as_struct())?,
            DataType::Union(_, _) => self.update_union(array.as_union())?,
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

    fn update_list<O: OffsetSizeTrait>(&mut self, list: &GenericListArray<O>) -> Result<()> {
        self.update_lengths(list.offsets().lengths());
        // Without nulls the lists lie one behind the other.
        let (start, end) = ends(list.offsets());
        self.child(0)?
            .update(&list.values().slice(start, end - start))
    }

    fn update_list_view<O: OffsetSizeTrait>(
        &mut self,
        list: &GenericListViewArray<O>,
    ) -> Result<()> {
        let mut indices: Vec<u64> = Vec::new();
        for (offset, size) in list.offsets().iter().zip(list.sizes().iter()) {
            let (offset, size) = (offset.as_usize() as u64, size.as_usize() as u64);
            self.lengths.update(&size.to_le_bytes());
            indices.extend(offset..offset + size);
        }
        let values = take(list.values(), &UInt64Array::from(indices), None)?;
        self.child(0)?.update(&values)
    }

    fn update_fixed_list(&mut self, list: &FixedSizeListArray) -> Result<()> {
        let size = list.value_length().unsigned_abs() as usize;
        // The values of a sliced array are sliced with it.
        let values = list.values().slice(0, list.len() * size);
        self.child(0)?.update(&values)
    }

    fn update_struct(&mut self, array: &StructArray) -> Result<()> {
        for (index, column) in array.columns().iter().enumerate() {
            self.child(index)?.update(column)?;
        }
        Ok(())
    }

    fn update_union(&mut self, array: &UnionArray) -> Result<()> {
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
                .update(&take(array.child(id), &indices, None)?)?;
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

/// First and last of a list's offsets.
fn ends<O: OffsetSizeTrait>(offsets: &arrow::buffer::OffsetBuffer<O>) -> (usize, usize) {
    match (offsets.iter().next(), offsets.iter().next_back()) {
        (Some(first), Some(last)) => (first.as_usize(), last.as_usize()),
        _ => (0, 0),
    }
}

/// Writes the type into `label`, as far as the hash tells types apart, and gives the nodes below it.
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
            // Readers name entries, keys and values as they like.
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
