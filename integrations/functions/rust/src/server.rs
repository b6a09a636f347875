use std::sync::Arc;

use arrow::array::{AsArray as _, RecordBatch};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use dipc::{Batches, Client, Error, Provider, Reader, Request, Result, Server, Status};
use dipc_sandbox::Running;
use dipc_sandbox::service::{ARGUMENTS, Answer, Ask, Call, HEADER, HOPS, Hash, SIGNATURE, hops};
use dipc_sandbox::service::{Policy, Service};

use crate::chain::{Chain, Ending, Place};
use crate::files::Arenas;
use crate::refusal::{failed, refused};

/// Lets clients of `server` run functions, as the policy says. It is the server's middleware.
///
/// A client that goes or cancels ends its function, also in the middle of a step, and the requests to
/// other servers where its call has gone on.
///
/// # Errors
///
/// `Unsupported`: this machine cannot run a sandbox. `Io`: a folder of the policy cannot be used.
/// `Stopped`.
pub fn enable(server: &Server, policy: Policy) -> Result<()> {
    // A chain that comes back to a server holds a connection for each visit.
    let idle = usize::try_from(policy.limits.hops).unwrap_or(usize::MAX);
    let peers = Client::builder().max_idle(idle.max(8)).build()?;
    enable_with(server, policy, peers)
}

/// [`enable`], with a client of the host's for the servers where functions go on
/// ([`Policy::allow_peer`]): one with the certificates that they ask for, for example.
///
/// These servers see this one as their client. Of a request's headers none is passed on, and so no
/// `authorization`.
///
/// # Errors
///
/// As [`enable`].
pub fn enable_with(server: &Server, mut policy: Policy, peers: Client) -> Result<()> {
    (policy.sandbox.files).get_or_insert_with(|| Arc::new(Arenas));
    let service = Service::new(policy).map_err(failed)?;
    server.middleware(HEADER, Functions(Arc::new(Place { service, peers })))
}

struct Functions(Arc<Place>);

impl Provider for Functions {
    fn get(&self, request: &Request<'_>) -> Result<Batches> {
        match ask(request)? {
            Ask::Call(call) => {
                // Without the module the table's provider has nothing to do.
                self.ensure_here(&call, request)?;
                let table = request.forward_get()?;
                self.answer(call, request, table)
            }
            Ask::Alone(call) => {
                let ending = Ending::of(request, &self.0)?;
                let running = self.start(&call, request, None, &ending)?;
                let answer = Answer::new(running, std::iter::empty());
                Ok(self.chain(answer, call, request, ending))
            }
            Ask::Module(_) => Err(malformed("a module is sent by a put")),
        }
    }

    fn accept(&self, request: &Request<'_>) -> Result<()> {
        let principal = request.principal();
        let principal = principal.as_deref();
        match ask(request)? {
            Ask::Call(call) => self
                .0
                .service
                .ensure_may_call(&call, principal)
                .map_err(refused),
            Ask::Alone(_) => Err(malformed("a function without a table is called by a get")),
            Ask::Module(hash) => {
                let signature = request.headers().get(SIGNATURE);
                (self.0.service.ensure_may_send(&hash, signature, principal)).map_err(refused)?;
                match self.0.service.has(&hash).map_err(refused)? {
                    true => Err(Error::new(
                        Status::AlreadyExists,
                        format!("the module {hash} is here"),
                    )),
                    false => Ok(()),
                }
            }
        }
    }

    fn put(&self, request: &Request<'_>, table: Reader) -> Result<()> {
        match ask(request)? {
            Ask::Call(call) => request.forward_put(self.answer(call, request, table)?),
            Ask::Alone(_) => Err(malformed("a function without a table is called by a get")),
            Ask::Module(hash) => self.keep(&hash, table),
        }
    }

    fn exchange(&self, request: &Request<'_>, table: Reader) -> Result<Batches> {
        match ask(request)? {
            Ask::Call(call) => self.answer(call, request, table),
            _ => Err(malformed("an exchange calls a function on its table")),
        }
    }
}

impl Functions {
    fn start(
        &self,
        call: &Call,
        request: &Request<'_>,
        table: Option<&Reader>,
        ending: &Ending,
    ) -> Result<Running> {
        let principal = request.principal();
        let schema = table.map(Reader::schema);
        let (principal, schema) = (principal.as_deref(), schema.as_ref());
        let started = (self.0.service).start(call, principal, schema, &ending.function);
        let mut running = started.map_err(refused)?;
        if let Some(left) = hops(request.headers().get(HOPS)).map_err(refused)? {
            running.limit_hops(left);
        }
        Ok(running)
    }

    fn answer(&self, call: Call, request: &Request<'_>, table: Reader) -> Result<Batches> {
        let ending = Ending::of(request, &self.0)?;
        let running = self.start(&call, request, Some(&table), &ending)?;
        Ok(self.chain(Answer::new(running, table), call, request, ending))
    }

    fn chain<T>(
        &self,
        answer: Answer<T>,
        call: Call,
        request: &Request<'_>,
        ending: Ending,
    ) -> Batches
    where
        T: Iterator<Item = Result<RecordBatch, ArrowError>> + Send + 'static,
    {
        let chain = Chain::new(
            answer,
            Arc::clone(&self.0),
            call,
            request.time_left(),
            ending,
        );
        Batches::new(chain.schema(), chain)
    }

    fn ensure_here(&self, call: &Call, request: &Request<'_>) -> Result<()> {
        let principal = request.principal();
        let here = self.0.service.ensure_may_call(call, principal.as_deref());
        here.map_err(refused)
    }

    fn keep(&self, hash: &Hash, mut table: Reader) -> Result<()> {
        let mut wasm = Vec::new();
        let most = self.0.service.policy().sandbox.module_bytes;
        while let Some(batch) = table.next_batch()? {
            let parts = (batch.columns().first())
                .filter(|column| *column.data_type() == DataType::Binary)
                .ok_or_else(|| malformed("the table of a module has one column of binary"))?;
            for part in parts.as_binary::<i32>().iter().flatten() {
                if wasm.len() + part.len() > most {
                    let text = format!("the module has more than {most} bytes");
                    return Err(Error::new(Status::OutOfResources, text));
                }
                wasm.extend_from_slice(part);
            }
        }
        self.0.service.keep(hash, &wasm).map_err(refused)
    }
}

fn ask(request: &Request<'_>) -> Result<Ask> {
    let headers = request.headers();
    let value = headers.get(HEADER).unwrap_or_default();
    Ask::parse(value, headers.get(ARGUMENTS)).map_err(refused)
}

fn malformed(text: &str) -> Error {
    Error::new(Status::InvalidArgument, text)
}
