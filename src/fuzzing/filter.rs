use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Decimal128Array, DictionaryArray, Float64Array, Int8Array, Int32Array,
    NullArray, RecordBatch, StringArray, StructArray, TimestampNanosecondArray, UInt64Array,
};
use arrow::datatypes::{Field, Int32Type};

use crate::error::Status;
use crate::filter::Filter;

/// Any message is refused, or parsed into a filter whose rows on a batch are those on its parts; no
/// message makes a kernel panic.
pub fn filter(data: &[u8]) {
    let batch = batch();
    let filter = match Filter::parse(data, &batch.schema()) {
        Ok(filter) => filter,
        Err(error) => {
            let status = error.status();
            assert!(matches!(status, Status::InvalidArgument | Status::Unsupported));
            return;
        }
    };
    assert!(filter.columns().iter().all(|&column| column < batch.num_columns()));
    let Ok(rows) = filter.evaluate(&batch) else {
        return;
    };
    assert_eq!(rows.len(), batch.num_rows());
    for row in 0..batch.num_rows() {
        assert_eq!(filter.evaluate(&batch.slice(row, 1)), Ok(rows.slice(row, 1)));
    }
    let kept = filter.apply(&batch).map(|kept| kept.num_rows());
    assert_eq!(kept, Ok(rows.iter().filter(|row| *row == Some(true)).count()));
}

/// A column of each kind, with its limits.
fn batch() -> RecordBatch {
    let int: ArrayRef = Arc::new(Int32Array::from(vec![Some(i32::MIN), None, Some(1), Some(0)]));
    let text: ArrayRef = Arc::new(StringArray::from(vec![Some("ab"), None, Some(""), Some("ü%")]));
    let field = |name, array: &ArrayRef| {
        Arc::new(Field::new(name, array.data_type().clone(), true))
    };
    let inner = vec![(field("i", &int), int.clone()), (field("s", &text), text.clone())];
    let dictionary: DictionaryArray<Int32Type> =
        [Some("a"), None, Some("b"), Some("a")].into_iter().collect();
    let decimals = [Some(i64::MAX.into()), None, Some(-1), Some(0)];
    let columns: [(&str, ArrayRef); 11] = [
        ("int", int),
        ("text", text),
        ("struct", Arc::new(StructArray::from(inner))),
        ("small", Arc::new(Int8Array::from(vec![i8::MIN, i8::MAX, 0, -1]))),
        ("large", Arc::new(UInt64Array::from(vec![u64::MAX, 0, 1, 2]))),
        ("float", Arc::new(Float64Array::from(vec![f64::NAN, -0.0, f64::INFINITY, 1.5]))),
        ("time", Arc::new(TimestampNanosecondArray::from(vec![i64::MIN, i64::MAX, 0, 1]))),
        ("decimal", Arc::new(Decimal128Array::from(decimals.to_vec()))),
        ("dictionary", Arc::new(dictionary)),
        ("none", Arc::new(NullArray::new(4))),
        ("truth", Arc::new(BooleanArray::from(vec![Some(true), None, Some(false), None]))),
    ];
    RecordBatch::try_from_iter(columns).unwrap_or_else(|_| unreachable!("all have four rows"))
}
