//! Rows that take no memory: a message of a few bytes may claim any number of them.

use arrow::array::RecordBatch;
use arrow::datatypes::DataType;

use crate::error::{Error, Result};

/// Most rows of a batch in which no column has memory for each row.
pub const MOST_FREE_ROWS: usize = 64 << 20;

/// Whether each row of a column takes memory, apart from the bitmap of nulls.
pub fn has_rows_in_memory(of: &DataType) -> bool {
    match of {
        DataType::Null
        | DataType::RunEndEncoded(_, _)
        | DataType::FixedSizeBinary(0)
        | DataType::FixedSizeList(_, 0) => false,
        DataType::FixedSizeList(item, _) => has_rows_in_memory(item.data_type()),
        DataType::Struct(fields) => fields
            .iter()
            .any(|field| has_rows_in_memory(field.data_type())),
        _ => true,
    }
}

/// Limits the work for rows that take no memory.
///
/// # Errors
///
/// `Unsupported`: the batch has more than [`MOST_FREE_ROWS`] rows, and no column has memory for
/// each row.
pub fn ensure_bounded(batch: &RecordBatch) -> Result<()> {
    let rows = batch.num_rows();
    let fields = batch.schema_ref().fields();
    if rows <= MOST_FREE_ROWS
        || fields
            .iter()
            .any(|field| has_rows_in_memory(field.data_type()))
    {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "a batch has {rows} rows that take no memory (nulls, runs, values without bytes), more than \
         the {MOST_FREE_ROWS} that filters go through: ask for the table without a filter, or have \
         smaller batches served"
    )))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{Field, Fields};

    use super::*;

    /// Rule: each kind of column without memory is known, alone and within others.
    #[test]
    fn columns_without_memory_are_known() {
        let field = |of: DataType| Arc::new(Field::new("item", of, true));
        let runs = DataType::RunEndEncoded(field(DataType::Int64), field(DataType::Utf8));
        let kinds = [
            DataType::Null,
            runs,
            DataType::FixedSizeBinary(0),
            DataType::FixedSizeList(field(DataType::Int8), 0),
            DataType::Struct(Fields::empty()),
        ];
        for free in kinds {
            assert!(!has_rows_in_memory(&free), "{free}");
            let list = DataType::FixedSizeList(field(free.clone()), 2);
            assert!(!has_rows_in_memory(&list), "{list}");
            let alone = DataType::Struct(vec![field(free.clone()), field(list)].into());
            assert!(!has_rows_in_memory(&alone), "{alone}");
            let beside = vec![field(free.clone()), field(DataType::Boolean)];
            assert!(has_rows_in_memory(&DataType::Struct(beside.into())));
            let keys = DataType::Dictionary(Box::new(DataType::Int8), Box::new(free));
            assert!(has_rows_in_memory(&keys), "{keys}");
        }
    }
}
