use arrow::array::AsArray as _;
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use dipc::{Batches, Error, Provider, Reader, Request, Result, Server, Status};
use dipc_sandbox::service::{
    ARGUMENTS, Answer, Ask, Call, Ended, HEADER, Hash, Refusal, SIGNATURE,
};
use dipc_sandbox::service::{Policy, Service};
use dipc_sandbox::{Error as Failure, Running};

/// Lets clients of `server` run functions, as the policy says. It is the server's middleware.
///
/// # Errors
///
/// `Unsupported`: this machine cannot run a sandbox. `Io`: a folder of the policy cannot be used.
/// `Stopped`.
pub fn enable(server: &Server, policy: Policy) -> Result<()> {
    let service = Service::new(policy).map_err(failed)?;
    server.middleware(HEADER, Functions(service))
}

struct Functions(Service);

impl Provider for Functions {
    fn get(&self, request: &Request<'_>) -> Result<Batches> {
        match ask(request)? {
            Ask::Call(call) => {
                // Without the module the table's provider has nothing to do.
                self.ensure_here(&call, request)?;
                let table = request.forward_get()?;
                self.answer(&call, request, table)
            }
            Ask::Alone(call) => {
                let running = self.start(&call, request, None)?;
                Ok(batches(Answer::new(running, std::iter::empty())))
            }
            Ask::Module(_) => Err(malformed("a module is sent by a put")),
        }
    }

    fn accept(&self, request: &Request<'_>) -> Result<()> {
        let principal = request.principal();
        let principal = principal.as_deref();
        match ask(request)? {
            Ask::Call(call) => self.0.ensure_may_call(&call, principal).map_err(refused),
            Ask::Alone(_) => Err(malformed("a function without a table is called by a get")),
            Ask::Module(hash) => {
                let signature = request.headers().get(SIGNATURE);
                (self.0.ensure_may_send(&hash, signature, principal)).map_err(refused)?;
                match self.0.has(&hash).map_err(refused)? {
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
            Ask::Call(call) => request.forward_put(self.answer(&call, request, table)?),
            Ask::Alone(_) => Err(malformed("a function without a table is called by a get")),
            Ask::Module(hash) => self.keep(&hash, table),
        }
    }

    fn exchange(&self, request: &Request<'_>, table: Reader) -> Result<Batches> {
        match ask(request)? {
            Ask::Call(call) => self.answer(&call, request, table),
            _ => Err(malformed("an exchange calls a function on its table")),
        }
    }
}

impl Functions {
    fn start(&self, call: &Call, request: &Request<'_>, table: Option<&Reader>) -> Result<Running> {
        let principal = request.principal();
        let schema = table.map(Reader::schema);
        (self.0.start(call, principal.as_deref(), schema.as_ref())).map_err(refused)
    }

    fn answer(&self, call: &Call, request: &Request<'_>, table: Reader) -> Result<Batches> {
        let running = self.start(call, request, Some(&table))?;
        Ok(batches(Answer::new(running, table)))
    }

    fn ensure_here(&self, call: &Call, request: &Request<'_>) -> Result<()> {
        let principal = request.principal();
        let here = self.0.ensure_may_call(call, principal.as_deref());
        here.map_err(refused)
    }

    fn keep(&self, hash: &Hash, mut table: Reader) -> Result<()> {
        let mut wasm = Vec::new();
        let most = self.0.policy().sandbox.module_bytes;
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
        self.0.keep(hash, &wasm).map_err(refused)
    }
}

fn ask(request: &Request<'_>) -> Result<Ask> {
    let headers = request.headers();
    let value = headers.get(HEADER).unwrap_or_default();
    Ask::parse(value, headers.get(ARGUMENTS)).map_err(refused)
}

/// The batches of an answer. An error keeps its status.
fn batches<T>(answer: Answer<T>) -> Batches
where
    T: Iterator<Item = Result<arrow::array::RecordBatch, ArrowError>> + Send + 'static,
{
    let schema = answer.schema();
    let batches = answer.map(|batch| {
        batch.map_err(|ended| match ended {
            Ended::Table(error) => error,
            Ended::Function(error) => ArrowError::from(failed(error)),
        })
    });
    Batches::new(schema, batches)
}

fn malformed(text: &str) -> Error {
    Error::new(Status::InvalidArgument, text)
}

fn refused(refusal: Refusal) -> Error {
    let status = match refusal {
        Refusal::Missing(_) => Status::NotFound,
        Refusal::Forbidden(_) => Status::Permission,
        Refusal::Failed(failure) => return failed(failure),
        _ => Status::InvalidArgument,
    };
    Error::new(status, refusal.to_string())
}

fn failed(failure: Failure) -> Error {
    let status = match failure {
        Failure::Module(_) => Status::InvalidData,
        Failure::Limit { .. } => Status::OutOfResources,
        Failure::Input(_) | Failure::Host(_) => Status::Unsupported,
        Failure::Cancelled => Status::Cancelled,
        Failure::Folder { .. } => Status::Io,
        _ => Status::Provider,
    };
    Error::new(status, failure.to_string())
}
