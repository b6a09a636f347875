//! A table fetched by Flight's `DoGet`.

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use arrow_flight::{FlightData, Ticket};
use dipc::{DeviceArray, Error, Result, StreamStats};
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
    pub fn open(peer: &Peer, ticket: Ticket, message_limit: Option<u64>) -> Result<Self> {
        let mut messages = peer.do_get(ticket)?;
        let here = |error: Error| error.context(format_args!("DoGet at {}", peer.uri()));
        let decoder = loop {
            let Some(message) = peer.next(&mut messages)? else {
                let text = "the stream ended before its schema came";
                return Err(here(Error::protocol(text)));
            };
            if let Some(decoder) = FlightDecoder::new(&message, message_limit).map_err(here)? {
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
    fn advance(&mut self) -> Result<Option<RecordBatch>> {
        while let Some(messages) = &mut self.messages {
            let Some(message) = self.peer.next(messages)? else {
                self.messages = None;
                break;
            };
            let batch = (self.decoder.take(&message))
                .map_err(|error| error.context(format_args!("DoGet at {}", self.peer.uri())))?;
            if batch.is_some() {
                return Ok(batch);
            }
        }
        Ok(None)
    }
}

impl Counted for DoGet {
    fn schema(&self) -> SchemaRef {
        self.decoder.schema()
    }

    fn next(&mut self) -> Result<Option<DeviceArray>> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        let batch = self.advance().inspect_err(|error| {
            self.error = Some(error.clone());
            self.messages = None;
        });
        Ok(batch?.map(DeviceArray::from))
    }

    fn stats(&self) -> StreamStats {
        self.decoder.stats()
    }
}
