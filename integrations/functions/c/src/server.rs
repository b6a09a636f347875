//! The middleware that runs functions.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{AsArray as _, RecordBatch};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use dipc_sandbox::service::{
    ARGUMENTS, Answer, Ask, Call, HEADER, HOPS, Hash, SIGNATURE, Service, hops,
};
use dipc_sandbox::{Canceller, Running};

use crate::arguments::{invalid, shared};
use crate::calls::{Request, key};
use crate::chain::{Chain, Place};
use crate::error::{Failure, Result, call, caught, guard};
use crate::files::Arenas;
use crate::policy::dipc_functions_policy;
use crate::stream::{Listener, Stream, Table, export};
use crate::sys::*;

/// Lets clients of a server run functions, as a policy says. It is the server's middleware
/// (dipc_server_set_middleware()); another one that is set replaces it, and turns functions off.
///
/// A function reads tables in host memory: the published ones, and those of the server's providers
/// and handler. It runs on the thread of the request, and ends in the middle of a step when the client
/// goes or cancels.
///
/// Where the policy has peers (dipc_functions_policy_allow_peer()), a function may go on there. The
/// server asks them by a client with the default options, and none of the request's headers is
/// passed on.
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
        let place = Place::new(Service::new(policy)?)?;
        let userdata = Box::into_raw(Box::new(Arc::new(place)));
        let (data, header) = (userdata.cast(), key(HEADER));
        // SAFETY: the caller promises `server` is NULL or live. Both functions take the userdata, a
        // place, which any thread may use.
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
const _: () = is_shared::<Arc<Place>>();

unsafe extern "C" fn finalize(userdata: *mut c_void) {
    let _ = caught(|| {
        // SAFETY: dipc_functions_enable() made it by `Box::into_raw`; libdipc calls once.
        drop(unsafe { Box::from_raw(userdata.cast::<Arc<Place>>()) });
        Ok(())
    });
}

unsafe extern "C" fn provide(
    userdata: *mut c_void,
    request: *mut dipc_request,
    out: *mut ArrowDeviceArrayStream,
) -> i32 {
    // SAFETY: dipc_functions_enable() put a place there, which lives until the finalizer has run.
    let place = unsafe { &*userdata.cast::<Arc<Place>>() };
    // SAFETY: the request is valid until the stream is released, or until this call returns where it
    // gives none.
    let request = unsafe { Request::new(request) };
    match caught(|| answer(place, request)) {
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

fn answer(place: &Arc<Place>, request: Request) -> Result<Option<Stream>> {
    let asked = Asked::read(place, request)?;
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
    place: &'a Arc<Place>,
    request: Request,
    ask: Ask,
    /// That the call has left, if it comes from another server.
    hops: Option<u32>,
    signature: Option<Vec<u8>>,
    principal: Option<String>,
}

impl<'a> Asked<'a> {
    fn read(place: &'a Arc<Place>, request: Request) -> Result<Self> {
        let headers = request.headers()?;
        let value = headers.get(HEADER)?.unwrap_or_default();
        let arguments = headers.get(ARGUMENTS)?;
        Ok(Self {
            place,
            request,
            hops: hops(headers.get(HOPS)?.as_deref())?,
            ask: Ask::parse(&value, arguments.as_deref())?,
            signature: headers.get(SIGNATURE)?,
            principal: request.principal()?,
        })
    }

    fn service(&self) -> &Service {
        &self.place.service
    }

    /// The batches of an answer, here and where the call goes on, as a stream.
    fn chain<T>(&self, answer: Answer<T>, call: &Call, listener: Listener) -> Stream
    where
        T: Iterator<Item = Result<RecordBatch, ArrowError>> + Send + 'static,
    {
        // The stream ends before its request does.
        let chain = Chain::new(answer, Arc::clone(self.place), call.clone(), self.request);
        export(chain.schema(), chain, listener)
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
                let answer = Answer::new(running, std::iter::empty());
                Ok(self.chain(answer, call, listener))
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
        let principal = self.principal.as_deref();
        Ok(self.service().ensure_may_call(call, principal)?)
    }

    /// Refuses a module that may not come, or is here.
    fn ensure_may_send(&self, hash: &Hash) -> Result<()> {
        let (signature, principal) = (self.signature.as_deref(), self.principal.as_deref());
        self.service().ensure_may_send(hash, signature, principal)?;
        match self.service().has(hash)? {
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
        let started = self
            .service()
            .start(call, principal, schema.as_ref(), &canceller);
        let mut running = started?;
        if let Some(left) = self.hops {
            running.limit_hops(left);
        }
        Ok(running)
    }

    fn answer(&self, call: &Call, table: Table, listener: Listener) -> Result<Stream> {
        let running = self.start(call, Some(&table))?;
        Ok(self.chain(Answer::new(running, table), call, listener))
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
        let most = self.service().policy().sandbox.module_bytes;
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
        Ok(self.service().keep(hash, &wasm)?)
    }
}
