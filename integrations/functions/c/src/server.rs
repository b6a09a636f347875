//! The middleware that runs functions.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::AsArray as _;
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use dipc_sandbox::service::{
    ARGUMENTS, Answer, Ask, Call, Ended, HEADER, Hash, SIGNATURE, Service,
};
use dipc_sandbox::{Canceller, Running};

use crate::arguments::{invalid, shared};
use crate::calls::{Request, key};
use crate::error::{Failure, Result, Said, call, caught, guard};
use crate::files::Arenas;
use crate::policy::dipc_functions_policy;
use crate::stream::{Listener, Stream, Table, export};
use crate::sys::*;

/// Lets clients of a server run functions, as a policy says. It is the server's middleware
/// (dipc_server_set_middleware()), and is replaced by another one.
///
/// A function reads tables in host memory: the published ones, and those of the server's providers
/// and handler. It runs on the thread of the request, and ends in the middle of a step when the client
/// goes or cancels.
///
/// @param server  Server.
/// @param policy  Copied.
/// @param error   May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_UNSUPPORTED: this machine cannot run a sandbox.
///         DIPC_ERR_IO: a folder of the policy cannot be used. DIPC_ERR_STOPPED.
///
/// # Safety
///
/// `server` and `policy` are NULL or live; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_functions_enable(
    server: *const dipc_server,
    policy: *const dipc_functions_policy,
    error: *mut *mut dipc_error,
) -> dipc_status {
    let body = || {
        // SAFETY: the caller promises `policy` is NULL or live.
        let policy = unsafe { shared(policy, "policy") }?;
        let mut policy = policy.policy.clone();
        policy.sandbox.files = Some(Arc::new(Arenas));
        let service = Service::new(policy)?;
        let userdata = Box::into_raw(Box::new(service));
        let (data, header) = (userdata.cast(), key(HEADER));
        // SAFETY: the caller promises `server` is NULL or live. Both functions take the userdata, a
        // service, which any thread may use.
        let set = call(|error| unsafe {
            dipc_server_set_middleware(
                server,
                header.as_ptr(),
                Some(provide),
                data,
                Some(finalize),
                error,
            )
        });
        if set.is_err() {
            // SAFETY: libdipc calls the finalizer after a success alone.
            drop(unsafe { Box::from_raw(userdata) });
        }
        set
    };
    // SAFETY: the caller promises `error` is NULL or writable.
    unsafe { guard(error, body) }
}

/// Libdipc calls the middleware on several threads.
const fn is_shared<T: Send + Sync>() {}
const _: () = is_shared::<Service>();

unsafe extern "C" fn finalize(userdata: *mut c_void) {
    let _ = caught(|| {
        // SAFETY: dipc_functions_enable() made it by `Box::into_raw`; libdipc calls once.
        drop(unsafe { Box::from_raw(userdata.cast::<Service>()) });
        Ok(())
    });
}

unsafe extern "C" fn provide(
    userdata: *mut c_void,
    request: *mut dipc_request,
    out: *mut ArrowDeviceArrayStream,
) -> i32 {
    // SAFETY: dipc_functions_enable() put a service there, which lives until the finalizer has run.
    let service = unsafe { &*userdata.cast::<Service>() };
    // SAFETY: the request is valid until the stream is released, or until this call returns where it
    // gives none.
    let request = unsafe { Request::new(request) };
    match caught(|| answer(service, request)) {
        Ok(Some(stream)) => {
            // SAFETY: libdipc passes a place for a stream.
            unsafe { out.write(stream.into_raw()) };
            0
        }
        Ok(None) => 0,
        Err(failure) => {
            request.fail(&failure.said());
            1
        }
    }
}

fn answer(service: &Service, request: Request) -> Result<Option<Stream>> {
    let asked = Asked::read(service, request)?;
    match request.verb() {
        DIPC_VERB_GET => asked.get().map(Some),
        DIPC_VERB_PUT => asked.put().map(|()| None),
        DIPC_VERB_EXCHANGE => asked.exchange().map(Some),
        verb => Err(invalid(format!(
            "functions answer no request of verb {verb}"
        ))),
    }
}

/// A request for functions.
struct Asked<'a> {
    service: &'a Service,
    request: Request,
    ask: Ask,
    signature: Option<Vec<u8>>,
    principal: Option<String>,
}

impl<'a> Asked<'a> {
    fn read(service: &'a Service, request: Request) -> Result<Self> {
        let headers = request.headers()?;
        let value = headers.get(HEADER)?.unwrap_or_default();
        let arguments = headers.get(ARGUMENTS)?;
        Ok(Self {
            service,
            request,
            ask: Ask::parse(&value, arguments.as_deref())?,
            signature: headers.get(SIGNATURE)?,
            principal: request.principal()?,
        })
    }

    fn get(&self) -> Result<Stream> {
        let request = self.request;
        let listener: Listener = Box::new(move |said| request.fail(said));
        match &self.ask {
            Ask::Call(call) => {
                // Without the module the table's provider has nothing to do.
                self.ensure_may_call(call)?;
                let table = Table::new(request.forward_get()?)?;
                self.answer(call, table, listener)
            }
            Ask::Alone(call) => {
                let running = self.start(call, None)?;
                Ok(stream_of(
                    Answer::new(running, std::iter::empty()),
                    listener,
                ))
            }
            Ask::Module(_) => Err(invalid("a module is sent by a put")),
        }
    }

    fn put(&self) -> Result<()> {
        match &self.ask {
            Ask::Call(call) => {
                // Before the client sends its table, which it may have to send again.
                self.ensure_may_call(call)?;
                let table = Table::new(self.request.source()?)?;
                self.forward(call, table)
            }
            Ask::Alone(_) => Err(invalid("a function without a table is called by a get")),
            Ask::Module(hash) => {
                self.ensure_may_send(hash)?;
                self.keep(hash, Table::new(self.request.source()?)?)
            }
        }
    }

    fn exchange(&self) -> Result<Stream> {
        let Ask::Call(call) = &self.ask else {
            return Err(invalid("an exchange calls a function on its table"));
        };
        self.ensure_may_call(call)?;
        let request = self.request;
        let table = Table::new(request.source()?)?;
        self.answer(call, table, Box::new(move |said| request.fail(said)))
    }

    fn ensure_may_call(&self, call: &Call) -> Result<()> {
        Ok(self
            .service
            .ensure_may_call(call, self.principal.as_deref())?)
    }

    /// Refuses a module that may not come, or is here.
    fn ensure_may_send(&self, hash: &Hash) -> Result<()> {
        let (signature, principal) = (self.signature.as_deref(), self.principal.as_deref());
        self.service.ensure_may_send(hash, signature, principal)?;
        match self.service.has(hash)? {
            true => Err(Failure::new(
                DIPC_ERR_ALREADY_EXISTS,
                format!("the module {hash} is here"),
            )),
            false => Ok(()),
        }
    }

    fn start(&self, call: &Call, table: Option<&Table>) -> Result<Running> {
        let schema = table.map(Table::schema);
        let principal = self.principal.as_deref();
        let request = self.request;
        // The function ends before the request does.
        let canceller = Canceller::when(move || request.is_cancelled());
        let started = (self.service).start(call, principal, schema.as_ref(), &canceller);
        Ok(started?)
    }

    fn answer(&self, call: &Call, table: Table, listener: Listener) -> Result<Stream> {
        let running = self.start(call, Some(&table))?;
        Ok(stream_of(Answer::new(running, table), listener))
    }

    /// Sends the function's output on. What ends it is the put's failure, whatever the host that
    /// reads it says then.
    fn forward(&self, call: &Call, table: Table) -> Result<()> {
        let failed = Arc::new(Mutex::new(None));
        let heard = Arc::clone(&failed);
        let listener: Listener = Box::new(move |said| {
            *heard.lock().unwrap_or_else(PoisonError::into_inner) = Some(said.clone());
        });
        let taken = self
            .request
            .forward_put(self.answer(call, table, listener)?);
        let failed = failed.lock().unwrap_or_else(PoisonError::into_inner).take();
        match failed {
            Some(said) => Err(Failure::Here(said)),
            None => taken,
        }
    }

    fn keep(&self, hash: &Hash, mut table: Table) -> Result<()> {
        let mut wasm = Vec::new();
        let most = self.service.policy().sandbox.module_bytes;
        while let Some(batch) = table.next_batch()? {
            let parts = (batch.columns().first())
                .filter(|column| *column.data_type() == DataType::Binary)
                .ok_or_else(|| invalid("the table of a module has one column of binary"))?;
            for part in parts.as_binary::<i32>().iter().flatten() {
                if wasm.len() + part.len() > most {
                    let text = format!("the module has more than {most} bytes");
                    return Err(Failure::new(DIPC_ERR_OUT_OF_RESOURCES, text));
                }
                wasm.extend_from_slice(part);
            }
        }
        Ok(self.service.keep(hash, &wasm)?)
    }
}

/// The batches of an answer as a stream.
fn stream_of<T>(answer: Answer<T>, listener: Listener) -> Stream
where
    T: Iterator<Item = Result<arrow::array::RecordBatch, ArrowError>> + Send + 'static,
{
    let schema = answer.schema();
    let batches = answer.map(|batch| {
        batch.map_err(|ended| match ended {
            Ended::Function(failed) => Said::from(failed),
            Ended::Table(error) => of_table(&error),
        })
    });
    export(schema, batches, listener)
}

/// What a table said as it failed, on its way through an iterator of the `arrow` crate.
fn of_table(error: &ArrowError) -> Said {
    match error {
        ArrowError::ExternalError(source) => source.downcast_ref::<Said>().cloned(),
        _ => None,
    }
    .unwrap_or_else(|| Said::new(DIPC_ERR_PROVIDER, error.to_string()))
}
