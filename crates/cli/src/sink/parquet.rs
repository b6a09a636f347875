//! Writes Parquet, with Snappy, and with [logical types](crate::source::coarse) that other readers
//! know.

use std::fs::File;
use std::io::BufWriter;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use arrow::datatypes::{Fields, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use crate::rebuild::rebuilt;
use crate::source::coarse::{arrow_schema, exactly, stored_field};

/// Writes one table.
pub struct ParquetWriter {
    inner: ArrowWriter<BufWriter<File>>,
    /// The columns as they are written.
    stored: SchemaRef,
}

impl ParquetWriter {
    /// Begins a file for columns that [`Narrow`](super::types::Narrow) has checked.
    pub fn new(output: BufWriter<File>, schema: &Schema) -> Result<Self> {
        let fields = schema.fields().iter().map(|field| stored_field(field));
        let stored = SchemaRef::new(Schema::new(fields.collect::<Fields>()));
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_key_value_metadata(Some(vec![arrow_schema(schema)]))
            .build();
        let options = ArrowWriterOptions::new()
            .with_properties(properties)
            .with_skip_arrow_metadata(true);
        let inner = ArrowWriter::try_new_with_options(output, Arc::clone(&stored), options)?;
        Ok(Self { inner, stored })
    }

    /// Writes rows.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let columns = batch.columns().iter().zip(self.stored.fields());
        let columns = columns
            .map(|(column, field)| {
                exactly(column, field.data_type()).with_context(|| {
                    format!(
                        "column {:?} has a value that Parquet cannot hold: write .arrow or \
                         .arrows, which can",
                        field.name()
                    )
                })
            })
            .collect::<Result<_>>()?;
        let batch = rebuilt(Arc::clone(&self.stored), columns, batch)?;
        Ok(self.inner.write(&batch)?)
    }

    /// Bytes of the file so far, with those that are still to be written.
    pub fn bytes(&self) -> u64 {
        let written = self.inner.bytes_written();
        let bytes = written.saturating_add(self.inner.in_progress_size());
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// Completes the file.
    pub fn close(self) -> Result<BufWriter<File>> {
        Ok(self.inner.into_inner()?)
    }
}
