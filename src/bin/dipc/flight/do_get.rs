//! A table fetched by Flight's `DoGet`.
//!
//! The messages are those of Arrow IPC, so libdipc's decoder reads them. It trusts no data of a
//! server. The reader of the `arrow` crate panics on some damaged messages.

use arrow_flight::{FlightData, Ticket};
use dipc::arrow::decode::{DecodeOptions, Decoder, ReceivedBody};
use dipc::arrow::stream::ArrayReader;
use dipc::arrow::{OwnedDeviceArray, OwnedSchema};
use dipc::client::StreamStats;
use dipc::device::{DeviceKind, HostBuffer};
use dipc::error::{Error, Result};
use dipc::proto::{Header, HeaderKind};
use tonic::Streaming;

use crate::flight::caller::Peer;
use crate::get::Counted;

/// A running `DoGet`. Dropping it before its end cancels the call.
pub struct DoGet {
    peer: Peer,
    /// `None` after its end or an error.
    messages: Option<Streaming<FlightData>>,
    decoder: Decoder,
    stats: StreamStats,
    error: Option<Error>,
}

impl DoGet {
    /// Asks for a ticket, and waits for the schema.
    ///
    /// # Errors
    ///
    /// The server's error; `Protocol` and `InvalidData` for invalid messages.
    pub fn open(peer: &Peer, ticket: Ticket, options: DecodeOptions) -> Result<Self> {
        let mut messages = peer.do_get(ticket)?;
        let here = |error: Error| error.context(format_args!("DoGet at {}", peer.uri()));
        let first = loop {
            match peer.next(&mut messages)? {
                // A message with metadata of the application only may come, even before the schema.
                Some(message) if message.data_header.is_empty() => {}
                Some(message) => break Header::parse(&message.data_header).map_err(Error::from),
                None => break Err(Error::protocol("the stream ended before its schema came")),
            }
        };
        let decoder = first
            .and_then(|header| Decoder::new(&header, options))
            .map_err(here)?;
        Ok(Self {
            peer: peer.clone(),
            messages: Some(messages),
            decoder,
            stats: StreamStats::default(),
            error: None,
        })
    }

    /// Reads messages up to the next batch.
    fn advance(&mut self) -> Result<Option<OwnedDeviceArray>> {
        while let Some(messages) = &mut self.messages {
            let Some(message) = self.peer.next(messages)? else {
                self.messages = None;
                break;
            };
            let array = self
                .take(&message)
                .map_err(|error| error.context(format_args!("DoGet at {}", self.peer.uri())))?;
            if array.is_some() {
                return Ok(array);
            }
        }
        Ok(None)
    }

    /// Decodes a message. Gives its batch, if it has one.
    fn take(&mut self, message: &FlightData) -> Result<Option<OwnedDeviceArray>> {
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

impl ArrayReader for DoGet {
    fn schema(&mut self) -> Result<OwnedSchema> {
        Ok(self.decoder.schema())
    }

    fn next(&mut self) -> Result<Option<OwnedDeviceArray>> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        self.advance().inspect_err(|error| {
            self.error = Some(error.clone());
            self.messages = None;
        })
    }

    fn device_type(&self) -> i32 {
        DeviceKind::CPU.0
    }
}

impl Counted for DoGet {
    fn stats(&self) -> StreamStats {
        self.stats
    }
}
