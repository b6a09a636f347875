//! The tables of `DoPut` and `DoExchange`: taken into the directory of `--accept`.

use std::sync::Arc;
use std::time::Duration;

use arrow_flight::{FlightData, PutResult};
use dipc::{Error, Status as DipcStatus, Verb};
use tokio::runtime::Handle;
use tokio::time::Instant;
use tonic::{Code, Status, Streaming};

use crate::accept::Accepting;
use crate::flight::audit::{Audit, Visitor};
use crate::flight::decode::FlightDecoder;
use crate::flight::names::ticket_of;

/// How long a client may take to say what it sends. Meanwhile the call counts as a stream.
const PATIENCE: Duration = Duration::from_secs(30);

/// Takes the table of a `DoPut`; blocks. The result is the table's ticket here. `gone`: whether the
/// client has left.
///
/// # Errors
///
/// A damaged message, a refusal, or the end of the client before that of the table.
pub fn take(
    accepting: &Arc<Accepting>,
    mut messages: Streaming<FlightData>,
    runtime: &Handle,
    visitor: &Visitor,
    gone: &dyn Fn() -> bool,
) -> Result<PutResult, Status> {
    let (name, first) = begin(&mut messages, runtime)?;
    let audit = visitor.admit("DoPut", Verb::Put, &name)?;
    let first = first.ok_or_else(|| Status::invalid_argument("the call has no schema"));
    let ticket = first
        .and_then(|first| receive(accepting, &name, &first, messages, (runtime, &audit, gone)));
    audit.end(&ticket);
    let ticket = ticket?;
    Ok(PutResult {
        app_metadata: ticket.into_bytes().into(),
    })
}

/// Takes the table of a `DoExchange`, if the client sends one; blocks. The result is the ticket of
/// the answer: that of the table that was taken, or otherwise that of the descriptor. The answer
/// belongs to the audit, too.
///
/// # Errors
///
/// As [`take`]; without `accepting` a refusal of every table.
pub fn exchange(
    accepting: Option<&Arc<Accepting>>,
    mut messages: Streaming<FlightData>,
    runtime: &Handle,
    visitor: &Visitor,
    gone: &dyn Fn() -> bool,
) -> Result<(Vec<u8>, Audit), Status> {
    let (name, first) = begin(&mut messages, runtime)?;
    // Without a table the call is like DoGet.
    let verb = if first.is_some() {
        Verb::Exchange
    } else {
        Verb::Get
    };
    let audit = visitor.admit("DoExchange", verb, &name)?;
    let taken = match (first, accepting) {
        (None, _) => Ok(name),
        (Some(first), Some(accepting)) => {
            receive(accepting, &name, &first, messages, (runtime, &audit, gone))
                .map(String::into_bytes)
        }
        (Some(_), None) => Err(Status::unimplemented(
            "this server takes no tables (dipc serve --accept does): end the sending behind the \
             descriptor, and DoExchange gives a table as DoGet does",
        )),
    };
    match taken {
        Ok(ticket) => Ok((ticket, audit)),
        Err(status) => {
            audit.end(&Err::<(), _>(status.clone()));
            Err(status)
        }
    }
}

/// Reads the name of a table, and the message of its schema; `None`: the client sends no table.
fn begin(
    messages: &mut Streaming<FlightData>,
    runtime: &Handle,
) -> Result<(Vec<u8>, Option<FlightData>), Status> {
    let mut name = None;
    let by = Instant::now() + PATIENCE;
    let first = loop {
        let next = async { tokio::time::timeout_at(by, messages.message()).await };
        let next = runtime.block_on(next).map_err(|_| {
            Status::deadline_exceeded(format!("no table and no end has come within {PATIENCE:?}"))
        })?;
        let Some(message) = next? else {
            break None;
        };
        if let Some(descriptor) = &message.flight_descriptor {
            let named = ticket_of(descriptor)?;
            // Arrow C++ repeats it with the schema.
            if name.as_ref().is_some_and(|before| *before != named) {
                return Err(Status::invalid_argument("the call has two descriptors"));
            }
            name = Some(named);
        }
        if !message.data_header.is_empty() {
            break Some(message);
        }
    };
    let name = name.ok_or_else(|| Status::invalid_argument("the call has no descriptor"))?;
    Ok((name, first))
}

/// Takes a table whose schema `first` has. The result is its ticket here.
fn receive(
    accepting: &Arc<Accepting>,
    name: &[u8],
    first: &FlightData,
    mut messages: Streaming<FlightData>,
    (runtime, audit, gone): (&Handle, &Audit, &dyn Fn() -> bool),
) -> Result<String, Status> {
    let missing = || Status::invalid_argument("the call has no schema");
    let decoder = FlightDecoder::new(first, accepting.message_limit()).map_err(refusal)?;
    let mut decoder = decoder.ok_or_else(missing)?;
    let mut incoming = accepting.begin(name, &decoder.schema()).map_err(refusal)?;
    let check = || match gone() {
        true => Err(Error::cancelled("the client has gone")),
        false => Ok(()),
    };
    // The call ends well only if its client has ended it.
    while let Some(message) = runtime.block_on(messages.message())? {
        audit.carried(message.data_body.len() as u64);
        if let Some(batch) = decoder.take(&message).map_err(refusal)? {
            incoming.write(&batch, &check).map_err(refusal)?;
        }
    }
    let ticket = incoming.ticket().to_owned();
    incoming.finish().map_err(refusal)?;
    Ok(ticket)
}

fn refusal(error: Error) -> Status {
    let code = match error.status() {
        // The fault is in the client's table.
        DipcStatus::InvalidArgument | DipcStatus::InvalidData | DipcStatus::Protocol => {
            Code::InvalidArgument
        }
        status => code_of(status),
    };
    Status::new(code, error.text())
}

/// The code of gRPC for an error of this side.
pub(super) fn code_of(status: DipcStatus) -> Code {
    match status {
        DipcStatus::NotFound => Code::NotFound,
        DipcStatus::AlreadyExists => Code::AlreadyExists,
        DipcStatus::Unsupported => Code::Unimplemented,
        DipcStatus::Permission => Code::PermissionDenied,
        DipcStatus::OutOfMemory | DipcStatus::OutOfResources | DipcStatus::Busy => {
            Code::ResourceExhausted
        }
        DipcStatus::Timeout => Code::DeadlineExceeded,
        DipcStatus::Cancelled => Code::Cancelled,
        DipcStatus::Stopped => Code::Unavailable,
        _ => Code::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise of flight.md: a refusal has the code that says whose fault it is.
    #[test]
    fn refusals_have_fitting_codes() {
        for (error, code) in [
            (
                Error::unsupported("a replaced dictionary"),
                Code::Unimplemented,
            ),
            (Error::invalid_data("damaged"), Code::InvalidArgument),
            (Error::out_of_memory("large"), Code::ResourceExhausted),
            (
                Error::new(DipcStatus::Permission, "no"),
                Code::PermissionDenied,
            ),
            (Error::new(DipcStatus::Io, "a full disk"), Code::Internal),
        ] {
            assert_eq!(refusal(error.clone()).code(), code, "{error}");
        }
    }
}
