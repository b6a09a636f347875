//! A table fetched by Flight's `DoGet`.

use arrow_flight::{FlightData, Ticket};
use dipc::arrow::decode::DecodeOptions;
use dipc::arrow::stream::ArrayReader;
use dipc::arrow::{OwnedDeviceArray, OwnedSchema};
use dipc::{DeviceKind, Error, Result, StreamStats};
use tonic::Streaming;

use crate::fetched::Counted;
use crate::flight::caller::Peer;
use crate::flight::decode::FlightDecoder;

/// A running `DoGet`. Dropping it before its end cancels the call.
pub struct DoGet {
    peer: Peer,
    /// `None` after its end or an error.
    messages: Option<Streaming<FlightData>>,
    decoder: FlightDecoder,
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
        let decoder = loop {
            let Some(message) = peer.next(&mut messages)? else {
                let text = "the stream ended before its schema came";
                return Err(here(Error::protocol(text)));
            };
            if let Some(decoder) = FlightDecoder::new(&message, options).map_err(here)? {
                break decoder;
            }
        };
        Ok(Self {
            peer: peer.clone(),
            messages: Some(messages),
            decoder,
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
            let array = (self.decoder.take(&message))
                .map_err(|error| error.context(format_args!("DoGet at {}", self.peer.uri())))?;
            if array.is_some() {
                return Ok(array);
            }
        }
        Ok(None)
    }
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
        self.decoder.stats()
    }
}
