//! Columns that the schema declares without nulls.

use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, DictionaryArray, FixedSizeListArray, Int64Array, Int64Builder, ListArray,
    MapBuilder, NullArray, StringBuilder, StructArray,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field, Int8Type, Int64Type, Schema};

use super::super::*;
use super::support::{batch_of, encoder, export, named};

/// The field, declared without nulls, together with all fields inside it.
fn full(field: &Field) -> Field {
    let item = |field: &Arc<Field>| Arc::new(full(field));
    let kind = match field.data_type() {
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(item).collect()),
        DataType::List(of) => DataType::List(item(of)),
        DataType::FixedSizeList(of, size) => DataType::FixedSizeList(item(of), *size),
        DataType::Map(entries, sorted) => DataType::Map(item(entries), *sorted),
        other => other.clone(),
    };
    Field::new(field.name(), kind, false)
}

fn encode(column: ArrayRef) -> Result<EncodedMessages> {
    let batch = batch_of(vec![
        named("first", Arc::new(Int64Array::from(vec![1; column.len()]))),
        named("c", column),
    ]);
    let fields: Vec<_> = batch
        .schema()
        .fields()
        .iter()
        .map(|field| full(field))
        .collect();
    encoder(&Schema::new(fields), EncodeOptions::default()).encode(export(&batch), None)
}

fn pair(valid: Option<Vec<bool>>, values: Vec<Option<i64>>) -> ArrayRef {
    let values: ArrayRef = Arc::new(Int64Array::from(values));
    let fields = vec![Field::new("x", DataType::Int64, true)];
    Arc::new(StructArray::new(
        fields.into(),
        vec![values],
        valid.map(NullBuffer::from),
    ))
}

fn lists<const N: usize>(rows: [Option<Vec<Option<i64>>>; N]) -> ArrayRef {
    Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(rows))
}

/// Promise of a schema: a column that it declares without nulls has none. The text has the path.
#[test]
fn nulls_in_a_column_declared_without_are_refused() {
    let indices: DictionaryArray<Int8Type> = vec![Some("a"), None].into_iter().collect();
    let list = lists([Some(vec![Some(1)]), None]);
    let mut map = MapBuilder::new(None, StringBuilder::new(), Int64Builder::new());
    map.keys().append_value("k");
    map.values().append_null();
    map.append(true).unwrap();
    let columns: [(ArrayRef, &str); 8] = [
        (
            Arc::new(Int64Array::from(vec![Some(1), None])),
            "field `c`: 1 values are null",
        ),
        (Arc::new(indices), "field `c`"),
        (list, "field `c`"),
        (
            lists([Some(vec![Some(1)]), Some(vec![None])]),
            "field `c.item`: 1 values are null",
        ),
        (
            Arc::new(FixedSizeListArray::from_iter_primitive::<Int64Type, _, _>(
                [Some([Some(1), None])],
                2,
            )),
            "field `c.item`: 1 values are null",
        ),
        (
            Arc::new(map.finish()),
            "field `c.entries.value`: 1 values are null",
        ),
        (
            pair(None, vec![None, None]),
            "field `c.x`: 2 values are null",
        ),
        (
            pair(Some(vec![true, false]), vec![Some(1), Some(2)]),
            "field `c`: 1 values",
        ),
    ];
    for (column, text) in columns {
        let error = encode(column).unwrap_err();
        assert_eq!(error.status(), crate::error::Status::InvalidData);
        assert!(error.text().contains(text), "{error}");
    }
}

/// Columns without nulls are sent, even as slices of columns with nulls. Columns of the type Null
/// are sent too, although they have only nulls.
#[test]
fn columns_without_nulls_are_sent() {
    let numbers = Int64Array::from(vec![None, Some(1), Some(2)]);
    encode(Arc::new(numbers.slice(1, 2))).unwrap();
    encode(Arc::new(NullArray::new(3))).unwrap();
    encode(pair(None, vec![Some(1), Some(2)])).unwrap();
    // A slice of lists may be sent with items of lists outside the slice.
    let rows = lists([Some(vec![None]), Some(vec![Some(1)]), Some(vec![None])]);
    encode(rows.slice(1, 1)).unwrap();
}
