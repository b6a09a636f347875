//! `dipc put grpc://host:port NAME`: sends a table to a Flight server by `DoPut`.

use std::ops::ControlFlow;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use arrow_flight::FlightData;
use dipc::{Cancel, Error, PutStats, Result};
use tokio::sync::mpsc;

use crate::flight::caller::{Call, Caller, Peer, Times};
use crate::flight::encode::FlightEncoder;
use crate::flight::names::descriptor;
use crate::trust::ClientTrust;

/// Messages ahead of the connection.
const AHEAD: usize = 4;

/// A table on its way to a Flight server. Dropping it before [`finish`](Self::finish) cancels the
/// call, so that the server does not take a part for the whole.
pub struct FlightPut {
    peer: Peer,
    encoder: FlightEncoder,
    /// `None` is the end of the table.
    messages: mpsc::Sender<Option<FlightData>>,
    /// `None` after its end.
    call: Option<Call>,
    stats: PutStats,
}

impl FlightPut {
    /// Begins to send a table of this schema. The server's refusal may come later.
    ///
    /// # Errors
    ///
    /// `Unreachable` and the like.
    pub fn open(
        uri: &str,
        (name, is_command): (&str, bool),
        schema: &SchemaRef,
        (times, trust): (Times, &ClientTrust),
        cancel: &Cancel,
    ) -> Result<Self> {
        let mut encoder = FlightEncoder::new(schema);
        let caller = Caller::new(cancel, times, trust)?;
        let peer = Peer::connect(&caller, uri)?;
        let (messages, receiver) = mpsc::channel(AHEAD);
        let mut first = encoder.schema();
        first.flight_descriptor = Some(descriptor(name, is_command));
        let mut put = Self {
            call: Some(peer.do_put(receiver)),
            peer,
            encoder,
            messages,
            stats: PutStats::default(),
        };
        put.send(Some(first))?;
        Ok(put)
    }

    /// Sends a batch with its custom metadata; waits for a slow server.
    ///
    /// # Errors
    ///
    /// The server's error; `Timeout`, `Cancelled`.
    pub fn push(&mut self, batch: &RecordBatch, metadata: &[(String, String)]) -> Result<()> {
        let mut outcome = Ok(());
        let (peer, messages, stats) = (&self.peer, &self.messages, &mut self.stats);
        let flow = self.encoder.encode(batch, metadata, &mut |message| {
            let len = message.data_body.len() as u64;
            outcome = peer.send(messages, Some(message));
            if outcome.is_err() {
                return ControlFlow::Break(());
            }
            // gRPC sends contiguous memory.
            stats.bytes_copied += len;
            stats.bytes_sent += len;
            ControlFlow::Continue(())
        })?;
        if flow.is_break() {
            return Err(self.explain(outcome));
        }
        self.stats.batches += 1;
        Ok(())
    }

    /// Ends the table, and waits for the server's last answer. Gives the metadata of its last
    /// result, if that is text.
    ///
    /// # Errors
    ///
    /// The server's error; `Timeout`, `Cancelled`.
    pub fn finish(&mut self) -> Result<Option<String>> {
        self.send(None)?;
        let Some(call) = &mut self.call else {
            return Ok(None);
        };
        let last = self.peer.outcome(call)?;
        self.call = None;
        let said = last.map(|result| String::from_utf8(result.app_metadata.to_vec()));
        Ok(said
            .and_then(std::result::Result::ok)
            .filter(|said| !said.is_empty()))
    }

    /// Figures up to now.
    pub fn stats(&self) -> PutStats {
        self.stats
    }

    fn send(&mut self, message: Option<FlightData>) -> Result<()> {
        let sent = self.peer.send(&self.messages, message);
        match sent {
            Ok(()) => Ok(()),
            error => Err(self.explain(error)),
        }
    }

    /// Why the server takes no more: its own error, if it has ended the call.
    fn explain(&mut self, sent: Result<()>) -> Error {
        let error = sent.err().unwrap_or_else(|| Error::cancelled("stopped"));
        if error.status() != dipc::Status::Disconnected {
            return error;
        }
        let said = self
            .call
            .take()
            .map(|mut call| self.peer.outcome(&mut call));
        match said {
            Some(Err(refusal)) => refusal,
            _ => error,
        }
    }
}

impl Drop for FlightPut {
    fn drop(&mut self) {
        if let Some(call) = &self.call {
            call.abort();
        }
    }
}
