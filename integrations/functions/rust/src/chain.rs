//! Calls that go on at other servers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use dipc::{
    Cancel, Client, Error, GetOptions, Headers, PutOptions, Reader, Request, Result, Status,
};
use dipc_sandbox::service::{Answer, Call, HOPS, Service, arose_at};
use dipc_sandbox::{Canceller, Forward};

use crate::refusal::{ended, refused};
use crate::{Message, Module};

/// A server's modules, and its client for the servers where calls go on.
pub(crate) struct Place {
    pub(crate) service: Service,
    pub(crate) peers: Client,
}

/// What ends a call when its client goes or cancels.
pub(crate) struct Ending {
    pub(crate) function: Canceller,
    /// Of the request to another server; `None` where calls stay here.
    elsewhere: Option<Cancel>,
}

impl Ending {
    pub(crate) fn of(request: &Request<'_>, place: &Place) -> Result<Self> {
        let has_peers = place.service.policy().has_peers();
        let elsewhere = has_peers.then(Cancel::new).transpose()?;
        let function = Canceller::new();
        let (signals, token) = (function.clone(), elsewhere.clone());
        request.when_cancelled(move || {
            signals.cancel();
            if let Some(token) = token {
                token.cancel();
            }
        });
        Ok(Self {
            function,
            elsewhere,
        })
    }
}

/// The output of a call: of its function here, and then of the server where it goes on.
pub(crate) struct Chain<T> {
    stage: Stage<T>,
    schema: SchemaRef,
    place: Arc<Place>,
    call: Call,
    deadline: Option<Instant>,
    ending: Ending,
}

enum Stage<T> {
    Here(Box<Answer<T>>),
    /// With the server's URI. What the function held here is free.
    There(Box<Reader>, String),
    Over,
}

impl<T> Chain<T>
where
    T: Iterator<Item = Result<RecordBatch, ArrowError>>,
{
    pub(crate) fn new(
        answer: Answer<T>,
        place: Arc<Place>,
        call: Call,
        time_left: Option<Duration>,
        ending: Ending,
    ) -> Self {
        Self {
            schema: answer.schema(),
            stage: Stage::Here(Box::new(answer)),
            place,
            call,
            deadline: time_left.and_then(|left| Instant::now().checked_add(left)),
            ending,
        }
    }

    pub(crate) fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn go_on(&self, forward: &Forward, hops: u32) -> Result<Reader> {
        let Forward {
            uri,
            descriptor,
            state,
        } = forward;
        let Place { service, peers } = &*self.place;
        service.policy().ensure_peer(uri).map_err(refused)?;
        let hash = self.call.module;
        let module = Module::known(hash, service.wasm(&hash).map_err(refused)?);
        let mut headers = Headers::new();
        headers.add(HOPS, hops.saturating_sub(1).to_string())?;
        let stall = service.policy().limits.stall;
        let mut options = GetOptions::new().stall_timeout(stall);
        let mut sending = PutOptions::new().stall_timeout(stall);
        if let Some(deadline) = self.deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            (options, sending) = (options.deadline(left), sending.deadline(left));
        }
        if let Some(token) = &self.ending.elsewhere {
            (options, sending) = (options.cancel(token), sending.cancel(token));
        }
        let message = Message::new(&module, &self.call.function, state);
        let message = message.headers(headers).sending_module_by(sending);
        let reader = match descriptor.is_empty() {
            true => message.run_with(peers, uri, &options),
            false => message.get_with(peers, uri, descriptor, &options),
        };
        let reader = reader.map_err(|error| named(error, uri))?;
        if reader.schema() != self.schema {
            let text = "the output has another schema than before".to_owned();
            return Err(named(Error::new(Status::InvalidData, text), uri));
        }
        Ok(reader)
    }

    /// A batch, if there is one at this stage.
    fn step(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        let answer = match &mut self.stage {
            Stage::Here(answer) => answer,
            Stage::There(reader, uri) => {
                return Ok(reader.next_batch().map_err(|error| named(error, uri))?);
            }
            Stage::Over => return Ok(None),
        };
        if let Some(batch) = answer.next() {
            return batch.map(Some).map_err(ended);
        }
        let Some((forward, hops)) = answer.take_forward() else {
            return Ok(None);
        };
        self.stage = Stage::Over;
        let reader = self.go_on(&forward, hops)?;
        self.stage = Stage::There(Box::new(reader), forward.uri);
        self.step()
    }
}

impl<T> Iterator for Chain<T>
where
    T: Iterator<Item = Result<RecordBatch, ArrowError>>,
{
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.step();
        let is_over = match &next {
            Ok(Some(_)) => false,
            // The function's memory is given back behind the stream's end.
            Ok(None) => !matches!(self.stage, Stage::Here(_)),
            Err(_) => true,
        };
        if is_over {
            self.stage = Stage::Over;
        }
        next.transpose()
    }
}

/// The error of a server where a call went on.
fn named(error: Error, uri: &str) -> Error {
    Error::new(error.status(), arose_at(uri, error.text()))
}
