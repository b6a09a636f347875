//! The answer to `DoPut`: takes a table into the directory of `--accept`.

use std::sync::Arc;

use arrow_flight::{FlightData, PutResult};
use dipc::arrow::decode::DecodeOptions;
use dipc::arrow::{batch_from_c, schema_from_c};
use dipc::error::{Error, Status as DipcStatus};
use tokio::runtime::Handle;
use tonic::{Status, Streaming};

use crate::flight::decode::FlightDecoder;
use crate::flight::service::ticket_of;
use crate::serve::Accepting;

/// Takes the table of a call; blocks. The result is the table's name here.
///
/// # Errors
///
/// A damaged message, a refusal, or the end of the client before that of the table.
pub fn take(
    accepting: &Arc<Accepting>,
    mut messages: Streaming<FlightData>,
    runtime: &Handle,
) -> Result<PutResult, Status> {
    let mut next = || runtime.block_on(messages.message());
    let missing = || Status::invalid_argument("the call has no descriptor and schema");
    let options = DecodeOptions::of_peer(false, None, accepting.message_limit());
    let mut name = None;
    let mut decoder = loop {
        let message = next()?.ok_or_else(missing)?;
        if let Some(descriptor) = &message.flight_descriptor {
            name = Some(ticket_of(descriptor)?);
        }
        if let Some(decoder) = FlightDecoder::new(&message, options).map_err(refusal)? {
            break decoder;
        }
    };
    let name = name.ok_or_else(missing)?;
    let schema = Arc::new(schema_from_c(&decoder.schema()).map_err(refusal)?);
    let mut incoming = accepting.begin(&name, &schema).map_err(refusal)?;
    // The call ends well only by its client's word.
    while let Some(message) = next()? {
        if let Some(array) = decoder.take(&message).map_err(refusal)? {
            // SAFETY: the decoder has checked the array, at level full, against its schema, which
            // is `schema` (rule A8).
            let batch = unsafe { batch_from_c(array, &schema) }.map_err(refusal)?;
            incoming.write(&batch).map_err(refusal)?;
        }
    }
    let ticket = incoming.ticket().to_owned();
    incoming.finish().map_err(refusal)?;
    Ok(PutResult {
        app_metadata: ticket.into_bytes().into(),
    })
}

fn refusal(error: Error) -> Status {
    let text = error.text().to_owned();
    match error.status() {
        DipcStatus::InvalidArgument | DipcStatus::InvalidData | DipcStatus::Protocol => {
            Status::invalid_argument(text)
        }
        DipcStatus::AlreadyExists => Status::already_exists(text),
        DipcStatus::Unsupported => Status::unimplemented(text),
        DipcStatus::OutOfMemory => Status::resource_exhausted(text),
        _ => Status::internal(text),
    }
}
