//! A table that comes by Flight's own `DoGet`.
//!
//! The messages are those of Arrow IPC, so libdipc's decoder reads them: it trusts nothing that a
//! server sends, where the reader of the `arrow` crate panics on some damaged messages.

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

/// A `DoGet` under way. Dropping it before its end cancels the call.
pub struct DoGet {
    peer: Peer,
    /// `None` once it has ended, well or not.
    messages: Option<Streaming<FlightData>>,
    decoder: Decoder,
    stats: StreamStats,
    error: Option<Error>,
}

impl DoGet {
    /// Asks for a ticket, and returns once the schema is there.
    ///
    /// # Errors
    ///
    /// What the server says; `Protocol` and `InvalidData` where what it sends is not sound.
    pub fn open(peer: &Peer, ticket: Ticket, options: DecodeOptions) -> Result<Self> {
        let mut messages = peer.do_get(ticket)?;
        let here = |error: Error| error.context(format_args!("DoGet at {}", peer.uri()));
        let first = loop {
            match peer.next(&mut messages)? {
                // Metadata of the application may come on its own, also before the schema.
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

    /// Takes messages until one is a batch.
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

    /// Takes a message; gives its batch, if it is one.
    fn take(&mut self, message: &FlightData) -> Result<Option<OwnedDeviceArray>> {
        if message.data_header.is_empty() {
            return Ok(None);
        }
        let (header, body) = open_message(message)?;
        let len = message.data_body.len() as u64;
        self.stats.bytes_received += len;
        // gRPC's buffer is not aligned as Arrow asks, so that the body has been moved once.
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
