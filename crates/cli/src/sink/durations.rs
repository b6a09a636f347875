//! Durations as text, which Arrow's formatter writes as `<invalid>` where it cannot count them.

use std::sync::Arc;

use anyhow::{Result, bail};
use arrow::array::{Array as _, ArrayRef, AsArray as _};
use arrow::compute::cast;
use arrow::datatypes::{DataType, DurationMillisecondType, DurationSecondType, TimeUnit};
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
    let unpacked = || -> Result<ArrayRef> {
        Ok(match values == column.data_type() {
            true => Arc::clone(column),
            false => cast(column, values)?,
        })
    };
    Ok(match values {
        DataType::Duration(TimeUnit::Second) => {
            let column = unpacked()?;
            let mut all = column.as_primitive::<DurationSecondType>().iter().flatten();
            let far = all.find(|value| try_duration_s_to_duration(*value).is_none());
            far.map(|value| format!("{value} s"))
        }
        DataType::Duration(TimeUnit::Millisecond) => {
            let column = unpacked()?;
            let mut all = (column.as_primitive::<DurationMillisecondType>())
                .iter()
                .flatten();
            let far = all.find(|value| try_duration_ms_to_duration(*value).is_none());
            far.map(|value| format!("{value} ms"))
        }
        _ => None,
    })
}
