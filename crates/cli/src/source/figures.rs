//! The size of a table, where its file tells it without the values.

use anyhow::Result;
use arrow::ipc;
use dipc::Error;
use dipc::proto::{Header, HeaderKind, verifier_options};

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
        self.is_compressed |= header.compressed();
        let bytes = header.bytes();
        let message = ipc::root_as_message_with_opts(&verifier_options(bytes.len()), bytes);
        let message = message.map_err(|error| Error::invalid_data(error.to_string()))?;
        if let Some(batch) = message.header_as_record_batch() {
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
