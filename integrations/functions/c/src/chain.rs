//! Calls that go on at other servers.

use std::ffi::CString;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use dipc_sandbox::Forward;
use dipc_sandbox::service::{Answer, Call, Ended, HOPS, Service, arose_at};

use crate::arguments::invalid;
use crate::calls::{Headers, Owned, Request, Server, add, get_options, is, key, put_options};
use crate::error::{Failure, Result, Said, call};
use crate::message::dipc_function_message;
use crate::module::dipc_function_module;
use crate::stream::Table;
use crate::sys::*;

/// A server's modules, and its client for the servers where calls go on.
pub struct Place {
    pub service: Service,
    peers: Owned<dipc_client>,
}

// SAFETY: libdipc lets any thread use and free a client, several at once; a `Service` is Send and
// Sync by itself.
unsafe impl Send for Place {}
// SAFETY: libdipc lets any thread use and free a client, several at once; a `Service` is Send and
// Sync by itself.
unsafe impl Sync for Place {}

impl Place {
    pub fn new(service: Service) -> Result<Self> {
        // SAFETY: dipc_client_options_new() makes the handle that dipc_client_options_free() frees.
        let options = unsafe {
            Owned::new(
                |out, error| dipc_client_options_new(out, error),
                dipc_client_options_free,
            )
        }?;
        // A chain that comes back to a server holds a connection for each visit.
        let idle = usize::try_from(service.policy().limits.hops).unwrap_or(usize::MAX);
        // SAFETY: the options are live, and this function's own.
        call(|error| unsafe {
            dipc_client_options_set_max_idle(options.as_ptr(), idle.max(8), error)
        })?;
        // SAFETY: the options are live; dipc_client_new() makes the handle that dipc_client_free()
        // frees.
        let peers = unsafe {
            Owned::new(
                |out, error| dipc_client_new(options.as_ptr(), out, error),
                dipc_client_free,
            )
        }?;
        Ok(Self { service, peers })
    }
}

/// The output of a call: of its function here, and then of the server where it goes on.
pub struct Chain<T> {
    stage: Stage<T>,
    schema: SchemaRef,
    place: Arc<Place>,
    call: Call,
    request: Request,
}

enum Stage<T> {
    Here(Box<Answer<T>>),
    /// With the server's URI. What the function held here is free.
    There(Table, String),
    Over,
}

impl<T> Chain<T>
where
    T: Iterator<Item = Result<RecordBatch, ArrowError>>,
{
    /// The output for `request`, which lives for as long as the chain.
    pub fn new(answer: Answer<T>, place: Arc<Place>, call: Call, request: Request) -> Self {
        Self {
            schema: answer.schema(),
            stage: Stage::Here(Box::new(answer)),
            place,
            call,
            request,
        }
    }

    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// A batch, if there is one at this stage.
    fn step(&mut self) -> Result<Option<RecordBatch>> {
        let answer = match &mut self.stage {
            Stage::Here(answer) => answer,
            Stage::There(table, uri) => {
                let request = self.request;
                // SAFETY: the descriptor is the table's, which is live.
                let batch = table.next_batch_with(|fd| unsafe { request.wait(fd) });
                return batch.map_err(|failure| named(failure, uri));
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
        self.place.service.policy().ensure_peer(&forward.uri)?;
        let table = self.go_on(&forward, hops);
        let table = table.map_err(|failure| named(failure, &forward.uri))?;
        self.stage = Stage::There(table, forward.uri);
        self.step()
    }

    fn go_on(&self, forward: &Forward, hops: u32) -> Result<Table> {
        let module = self.call.module;
        let module = dipc_function_module::known(module, self.place.service.wasm(&module)?);
        let call = Call {
            arguments: forward.state.clone(),
            ..self.call.clone()
        };
        let message = dipc_function_message { module, call };
        // SAFETY: NULL is no headers.
        let headers = unsafe { Headers::copy_of(null()) }?;
        let left = hops.saturating_sub(1).to_string();
        // SAFETY: the headers are live, and this function's own.
        unsafe { add(headers.as_ptr(), &key(HOPS), left.as_bytes()) }?;
        let table = self.get(&message, forward, &headers)?;
        match table.schema() == self.schema {
            true => Ok(table),
            false => Err(Failure::new(
                DIPC_ERR_INVALID_DATA,
                "the output has another schema than before",
            )),
        }
    }

    /// Gets the table, and sends the module first where the server lacks it.
    fn get(
        &self,
        message: &dipc_function_message,
        forward: &Forward,
        headers: &Headers,
    ) -> Result<Table> {
        let uri = CString::new(forward.uri.as_str()).map_err(|_| invalid("a URI has a NUL"))?;
        let uris = [uri.as_ptr()];
        let server = Server {
            client: self.place.peers.as_ptr(),
            uris: uris.as_ptr(),
            n_uris: uris.len(),
            cancel: null(),
        };
        let descriptor = &forward.descriptor;
        // SAFETY: the headers are live.
        let asking = unsafe { message.asking(headers.as_ptr(), descriptor.is_empty()) }?;
        // SAFETY: NULL stands for new options.
        let options = unsafe { get_options(null_mut(), &asking) }?;
        let (deadline, stall) = (self.request.time_left_ns(), self.stall_ns());
        let pointer = options.as_ptr();
        // SAFETY: the options are live, and this function's own.
        call(|error| unsafe { dipc_get_options_set_deadline_ns(pointer, deadline, error) })?;
        // SAFETY: the options are live, and this function's own.
        call(|error| unsafe { dipc_get_options_set_stall_timeout_ns(pointer, stall, error) })?;
        // SAFETY: the options, the client of `self.place` and the strings of `uris` live until this
        // function returns.
        let get = || unsafe { server.get_for(self.request, descriptor, pointer) };
        let got = get();
        if !is(&got, DIPC_ERR_NOT_FOUND) {
            return Table::new(got?);
        }
        // SAFETY: the headers, the client of `self.place` and the strings of `uris` live until this
        // function returns.
        unsafe { self.send(message, server, headers) }?;
        Table::new(get()?)
    }

    /// # Safety
    ///
    /// The pointers of `server` are live.
    unsafe fn send(
        &self,
        message: &dipc_function_message,
        server: Server,
        headers: &Headers,
    ) -> Result<()> {
        // SAFETY: NULL stands for new options.
        let options = unsafe { put_options(null_mut(), headers) }?;
        let (deadline, stall) = (self.request.time_left_ns(), self.stall_ns());
        let pointer = options.as_ptr();
        // SAFETY: the options are live, and this function's own.
        call(|error| unsafe { dipc_put_options_set_deadline_ns(pointer, deadline, error) })?;
        // SAFETY: the options are live, and this function's own.
        call(|error| unsafe { dipc_put_options_set_stall_timeout_ns(pointer, stall, error) })?;
        // SAFETY: the caller promises live pointers in `server`; the options and the headers live
        // until the call returns.
        unsafe { message.module.send(server, pointer, headers.as_ptr()) }
    }

    fn stall_ns(&self) -> u64 {
        let stall = self.place.service.policy().limits.stall;
        u64::try_from(Duration::as_nanos(&stall)).unwrap_or(DIPC_FOREVER)
    }
}

impl<T> Iterator for Chain<T>
where
    T: Iterator<Item = Result<RecordBatch, ArrowError>>,
{
    type Item = Result<RecordBatch, Said>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.step();
        if !matches!(next, Ok(Some(_))) {
            self.stage = Stage::Over;
        }
        next.map_err(Failure::said).transpose()
    }
}

fn ended(ended: Ended) -> Failure {
    Failure::Here(match ended {
        Ended::Function(failed) => failed.into(),
        Ended::Table(error) => of_table(&error),
    })
}

/// What a table said as it failed, on its way through an iterator of the `arrow` crate.
fn of_table(error: &ArrowError) -> Said {
    match error {
        ArrowError::ExternalError(source) => source.downcast_ref::<Said>().cloned(),
        _ => None,
    }
    .unwrap_or_else(|| Said::new(DIPC_ERR_PROVIDER, error.to_string()))
}

/// The failure of a server where a call went on.
fn named(failure: Failure, uri: &str) -> Failure {
    let said = failure.said();
    Failure::new(said.code, arose_at(uri, &said.text))
}
