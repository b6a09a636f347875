//! The messages of a table by Flight, decoded.
//!
//! They are those of Arrow IPC, so libdipc's decoder reads them. It trusts no data of a peer. The
//! reader of the `arrow` crate panics on some damaged messages.

use arrow_flight::FlightData;
use dipc::arrow::decode::{DecodeOptions, Decoder, ReceivedBody};
use dipc::arrow::{OwnedDeviceArray, OwnedSchema};
use dipc::device::HostBuffer;
use dipc::proto::{Header, HeaderKind};
use dipc::{Error, Result, StreamStats};

/// Decodes one table.
pub struct FlightDecoder {
    decoder: Decoder,
    stats: StreamStats,
}

impl FlightDecoder {
    /// Reads the schema of a table. `None`: the message has only metadata of the application, which
    /// may come even before the schema.
    ///
    /// # Errors
    ///
    /// `Protocol` and `InvalidData` for invalid messages.
    pub fn new(message: &FlightData, options: DecodeOptions) -> Result<Option<Self>> {
        if message.data_header.is_empty() {
            return Ok(None);
        }
        let header = Header::parse(&message.data_header)?;
        Ok(Some(Self {
            decoder: Decoder::new(&header, options)?,
            stats: StreamStats::default(),
        }))
    }

    /// The schema.
    pub fn schema(&self) -> OwnedSchema {
        self.decoder.schema()
    }

    /// Figures up to now.
    pub fn stats(&self) -> StreamStats {
        self.stats
    }

    /// Decodes a message. Gives its batch, if it has one.
    ///
    /// # Errors
    ///
    /// `Protocol` and `InvalidData` for invalid messages; `OutOfMemory`.
    pub fn take(&mut self, message: &FlightData) -> Result<Option<OwnedDeviceArray>> {
        if message.data_header.is_empty() {
            return Ok(None);
        }
        let (header, body) = open_message(message)?;
        let len = message.data_body.len() as u64;
        self.stats.bytes_received += len;
        // gRPC's buffer is not aligned for Arrow, so the body was copied once.
        self.stats.bytes_copied += len;
        match header.kind() {
            HeaderKind::Schema => Err(Error::protocol("a second schema came in one stream")),
            HeaderKind::Dictionary => {
                self.stats.bytes_copied += self.decoder.add_dictionary(&header, &body)?;
                Ok(None)
            }
            HeaderKind::RecordBatch => {
                let batch = self.decoder.batch(&header, &body)?;
                self.stats.bytes_copied += batch.copied;
                self.stats.batches += 1;
                self.stats.rows = self.stats.rows.saturating_add(batch.rows);
                Ok(Some(batch.array))
            }
        }
    }
}

/// The header of a message, and its body in aligned memory.
fn open_message(message: &FlightData) -> Result<(Header, ReceivedBody)> {
    let header = Header::parse(&message.data_header)?;
    let mut memory = HostBuffer::new(message.data_body.len())?;
    memory.as_mut_slice().copy_from_slice(&message.data_body);
    let body = ReceivedBody::packed(&header, memory)?;
    Ok((header, body))
}
