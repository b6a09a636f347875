//! Values that are checked before a writer follows them.

use arrow::array::Array as _;
use arrow::record_batch::RecordBatch;
use dipc::{Error, Result};

/// Checks all values of the batch: those that come from a process of the same user are unchecked, and
/// the writers of Parquet and CSV follow offsets and views as they are.
///
/// # Errors
///
/// `InvalidData`, with the column.
pub fn ensure_sound(batch: &RecordBatch) -> Result<()> {
    for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        column.to_data().validate_full().map_err(|error| {
            Error::invalid_data(format!(
                "the column {} is no Arrow data: {error}",
                field.name()
            ))
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, StringViewArray};
    use arrow::buffer::Buffer;

    use crate::sink::{Sink, Target};

    use super::*;

    /// Promise of the module: an invalid view ends the file with an error text, and does not end
    /// the process.
    #[test]
    fn wild_views_reach_no_writer() {
        let wild = vec![20 | 1 << 64 | 500 << 96];
        // SAFETY: nothing reads the value before it is checked.
        let column = unsafe {
            StringViewArray::new_unchecked(wild.into(), [Buffer::from([b'a'; 40])].into(), None)
        };
        let batch = RecordBatch::try_from_iter([("text", Arc::new(column) as ArrayRef)]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        for name in ["t.parquet", "t.csv"] {
            let path = folder.path().join(name);
            let target = Target::parse(path.to_str().unwrap()).unwrap();
            let mut sink = Sink::create(&target, &batch.schema()).unwrap();
            let error = sink.write(&batch, &|| Ok(())).unwrap_err();
            assert!(format!("{error:#}").contains("the column text is no Arrow data"));
            drop(sink);
            assert!(!path.exists());
        }
    }
}
