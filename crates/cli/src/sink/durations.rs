//! Durations as text, which Arrow's formatter writes as `<invalid>` if it cannot count them.

use anyhow::{Result, bail};
use arrow::array::{Array as _, ArrayRef, AsArray as _};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, TimeUnit};
use arrow::record_batch::RecordBatch;
use arrow::temporal_conversions::{try_duration_ms_to_duration, try_duration_s_to_duration};

/// Checks that every duration has a text.
pub fn ensure_written(batch: &RecordBatch) -> Result<()> {
    for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        if let Some(value) = far(column)? {
            bail!(
                "column {:?} has a duration of {value}, which CSV cannot hold: write .arrow, \
                 .arrows or .parquet",
                field.name()
            );
        }
    }
    Ok(())
}

/// The first duration that has no text.
fn far(column: &ArrayRef) -> Result<Option<String>> {
    let values = match column.data_type() {
        DataType::Dictionary(_, values) => values.as_ref(),
        DataType::RunEndEncoded(_, values) => values.data_type(),
        plain => plain,
    };
    let (unit, has_text): (_, fn(i64) -> bool) = match values {
        DataType::Duration(TimeUnit::Second) => {
            ("s", |value| try_duration_s_to_duration(value).is_some())
        }
        DataType::Duration(TimeUnit::Millisecond) => {
            ("ms", |value| try_duration_ms_to_duration(value).is_some())
        }
        _ => return Ok(None),
    };
    let numbers = cast(&cast(column, values)?, &DataType::Int64)?;
    let mut numbers = numbers.as_primitive::<Int64Type>().iter().flatten();
    let far = numbers.find(|value| !has_text(*value));
    Ok(far.map(|value| format!("{value} {unit}")))
}
