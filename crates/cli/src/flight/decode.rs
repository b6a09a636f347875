//! The messages of a table by Flight, decoded.
//!
//! They are those of Arrow IPC, so libdipc's decoder reads them. It trusts no data of a peer. The
//! reader of the `arrow` crate panics on some damaged messages.

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use arrow_flight::FlightData;
use dipc::ipc::{Body, Decoder, Header};
use dipc::{Result, StreamStats};

/// Decodes one table.
pub struct FlightDecoder {
    decoder: Decoder,
    stats: StreamStats,
}

impl FlightDecoder {
    /// Reads the schema of a table. `None`: the message has only metadata of the application, which
    /// may come even before the schema. `message_limit`: as of [`Decoder::new`].
    ///
    /// # Errors
    ///
    /// `Protocol` and `InvalidData` for invalid messages.
    pub fn new(message: &FlightData, message_limit: Option<u64>) -> Result<Option<Self>> {
        if message.data_header.is_empty() {
            return Ok(None);
        }
        let header = Header::parse(&message.data_header)?;
        Ok(Some(Self {
            decoder: Decoder::new(&header, message_limit)?,
            stats: StreamStats::default(),
        }))
    }

    /// The schema.
    pub fn schema(&self) -> SchemaRef {
        self.decoder.schema()
    }

    /// Figures up to now.
    pub fn stats(&self) -> StreamStats {
        let mut stats = self.stats;
        // gRPC's buffers are not aligned for Arrow, so each body was copied once.
        stats.bytes_copied = stats.bytes_received + self.decoder.bytes_copied();
        stats
    }

    /// Decodes a message. Gives its batch, if it has one.
    ///
    /// # Errors
    ///
    /// `Protocol` and `InvalidData` for invalid messages; `OutOfMemory`.
    pub fn take(&mut self, message: &FlightData) -> Result<Option<RecordBatch>> {
        if message.data_header.is_empty() {
            return Ok(None);
        }
        let header = Header::parse(&message.data_header)?;
        let body = Body::copy_of(&header, &message.data_body)?;
        self.stats.bytes_received += message.data_body.len() as u64;
        let Some((batch, _)) = self.decoder.decode(&header, &body)? else {
            return Ok(None);
        };
        self.stats.batches += 1;
        self.stats.rows = self.stats.rows.saturating_add(batch.num_rows() as u64);
        Ok(Some(batch))
    }
}
