//! Batches and types with other parts.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use arrow::error::ArrowError;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};

/// The rows of `batch` with other columns, which may be none.
pub fn rebuilt(
    schema: Arc<Schema>,
    columns: Vec<ArrayRef>,
    batch: &RecordBatch,
) -> Result<RecordBatch, ArrowError> {
    let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(schema, columns, &rows)
}

/// The type with other fields inside, one level deep. The values of a dictionary count as a field.
pub fn with_children(ty: &DataType, change: impl Fn(&Field) -> Field) -> DataType {
    let field = |field: &FieldRef| Arc::new(change(field));
    match ty {
        DataType::List(item) => DataType::List(field(item)),
        DataType::LargeList(item) => DataType::LargeList(field(item)),
        DataType::ListView(item) => DataType::ListView(field(item)),
        DataType::LargeListView(item) => DataType::LargeListView(field(item)),
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(field(item), *size),
        DataType::Map(entries, sorted) => DataType::Map(field(entries), *sorted),
        DataType::RunEndEncoded(ends, values) => {
            DataType::RunEndEncoded(Arc::clone(ends), field(values))
        }
        DataType::Dictionary(keys, values) => {
            let values = change(&Field::new("", values.as_ref().clone(), true));
            DataType::Dictionary(keys.clone(), Box::new(values.data_type().clone()))
        }
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(field).collect()),
        DataType::Union(fields, mode) => {
            let fields = fields.iter().map(|(id, child)| (id, field(child)));
            DataType::Union(fields.collect(), *mode)
        }
        other => other.clone(),
    }
}
