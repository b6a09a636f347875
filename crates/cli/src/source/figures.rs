//! The size of a table, where its file tells it without the values.

use anyhow::Result;
use arrow::datatypes::SchemaRef;
use dipc::ipc::{Header, HeaderKind};
use dipc::{Description, Error};

/// What is known of a table before it is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Its rows.
    pub rows: Option<u64>,
    /// The bytes of its bodies.
    pub bytes: Option<u64>,
    /// Its batches.
    pub batches: Option<u64>,
}

impl Figures {
    /// The answer to clients that ask for a table of these columns.
    pub fn describe(self, schema: &SchemaRef) -> Result<Description, Error> {
        let mut description = Description::new().schema(schema)?;
        if let Some(rows) = self.rows {
            description = description.rows(rows);
        }
        if let Some(bytes) = self.bytes {
            description = description.bytes(bytes);
        }
        if let Some(batches) = self.batches {
            description = description.batches(batches);
        }
        Ok(description)
    }
}

/// Counts the messages of an Arrow file or stream.
#[derive(Debug, Default)]
pub struct Counted {
    rows: u64,
    bytes: u64,
    batches: u64,
    is_compressed: bool,
}

impl Counted {
    /// Counts a message. Larger batches than `most` rows are cut when they are read.
    ///
    /// # Errors
    ///
    /// `InvalidData` for bytes that are no message.
    pub fn add(&mut self, header: &Header, most: Option<usize>) -> Result<(), Error> {
        if header.kind() == HeaderKind::Schema {
            return Ok(());
        }
        self.bytes = self.bytes.saturating_add(header.body_len());
        self.is_compressed |= header.is_compressed();
        if let Some(batch) = header.message()?.header_as_record_batch() {
            let rows = u64::try_from(batch.length())
                .map_err(|_| Error::invalid_data("a batch has a negative number of rows"))?;
            let most = most.map_or(u64::MAX, |most| most as u64);
            self.rows = self.rows.saturating_add(rows);
            self.batches = self
                .batches
                .saturating_add(rows.div_ceil(most.max(1)).max(1));
        }
        Ok(())
    }

    /// The figures. Bodies are sent unpacked, so the bytes of packed ones say nothing.
    pub fn figures(&self) -> Figures {
        Figures {
            rows: Some(self.rows),
            bytes: (!self.is_compressed).then_some(self.bytes),
            batches: Some(self.batches),
        }
    }
}
