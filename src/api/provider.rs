//! What a server's host answers to requests.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{Batches, Description, Endpoint, Reader, Request};
use crate::arrow::OwnedDeviceStream;
use crate::error::{Error, Result, Status, panic_text};
use crate::proto::Verb;
use crate::server;

/// Answers requests. Each call has a thread that serves only its stream, so it may block. The same
/// thread then reads the batches. The client gets the status and the text of an error. A panic
/// fails the stream at its client, and the server goes on.
///
/// A closure that takes a [`Request`] and returns [`Batches`] is a provider that answers gets.
pub trait Provider: Send + Sync + 'static {
    /// Gives the table that a client gets.
    ///
    /// # Errors
    ///
    /// Any: the client's get fails with it.
    fn get(&self, request: &Request<'_>) -> Result<Batches>;

    /// Decides about a table that a client puts or exchanges, before the client sends batches.
    ///
    /// # Errors
    ///
    /// Any: the client's request is refused with it.
    fn accept(&self, request: &Request<'_>) -> Result<()> {
        let _ = request;
        Ok(())
    }

    /// Takes the table that a client puts. Success tells the client that all of it was taken.
    ///
    /// # Errors
    ///
    /// Any: the client's put fails with it.
    fn put(&self, request: &Request<'_>, table: Reader) -> Result<()> {
        let _ = (request, table);
        Err(Error::unsupported("this server takes no tables"))
    }

    /// Answers the table that a client sends with another.
    ///
    /// # Errors
    ///
    /// Any: the client's exchange fails with it.
    fn exchange(&self, request: &Request<'_>, table: Reader) -> Result<Batches> {
        let _ = (request, table);
        Err(Error::unsupported("this server exchanges no tables"))
    }

    /// The whole of a put: [`accept`](Self::accept), then [`put`](Self::put) of the table.
    /// Implement it for a host that needs something from the decision for the reading, such as an
    /// open file: the host decides, then [takes the table](Request::take_table), and reads the
    /// table to its end.
    ///
    /// # Errors
    ///
    /// Any: the client's put fails with it.
    fn take_put(&self, request: &Request<'_>) -> Result<()> {
        self.accept(request)?;
        self.put(request, request.take_table()?)
    }

    /// The whole of an exchange, likewise: [`accept`](Self::accept), then
    /// [`exchange`](Self::exchange).
    ///
    /// # Errors
    ///
    /// Any: the client's exchange fails with it.
    fn take_exchange(&self, request: &Request<'_>) -> Result<Batches> {
        self.accept(request)?;
        self.exchange(request, request.take_table()?)
    }

    /// Describes a descriptor. Only a handler is asked: the server itself describes its own
    /// tickets.
    ///
    /// # Errors
    ///
    /// Any: the client's describe fails with it.
    fn describe(&self, request: &Request<'_>) -> Result<Description> {
        let _ = request;
        Err(Error::unsupported("this server describes no such tables"))
    }

    /// Lists the tables whose tickets begin with the request's ticket. Only a handler is asked, and
    /// only if no ticket of the server begins with it.
    ///
    /// # Errors
    ///
    /// Any: the client's list fails with it.
    fn list(&self, request: &Request<'_>) -> Result<Vec<Endpoint>> {
        let _ = request;
        Ok(Vec::new())
    }

    /// Whether all gets of one ticket give the same batches. Then clients that know nothing of
    /// libdipc can read metadata and bodies on two connections.
    fn is_deterministic(&self) -> bool {
        false
    }
}

impl<F> Provider for F
where
    F: Fn(&Request<'_>) -> Result<Batches> + Send + Sync + 'static,
{
    fn get(&self, request: &Request<'_>) -> Result<Batches> {
        self(request)
    }
}

/// A provider, as the core of the server calls it.
pub(super) struct Provided<P>(pub(super) P);

/// Calls the host. A panic is an error of its client alone: the server goes on.
pub(super) fn guarded<T>(call: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let text = panic_text(&*panic);
        Err(Error::new(
            Status::Provider,
            format!("the host panicked: {text}"),
        ))
    })
}

impl<P: Provider> server::HostProvider for Provided<P> {
    fn open(&self, request: &server::ServerRequest) -> Result<OwnedDeviceStream> {
        let request = Request(request);
        guarded(|| match request.verb() {
            Verb::Describe => self.0.describe(&request)?.inner.stream(),
            Verb::List => {
                let tables = self.0.list(&request)?;
                let list = tables
                    .into_iter()
                    .fold(Description::new(), Description::endpoint);
                list.inner.stream()
            }
            Verb::Exchange => self.0.take_exchange(&request).map(Batches::export),
            _ => self.0.get(&request).map(Batches::export),
        })
    }

    fn take(&self, request: &server::ServerRequest) -> Result<()> {
        guarded(|| self.0.take_put(&Request(request)))
    }

    fn is_deterministic(&self) -> bool {
        self.0.is_deterministic()
    }
}
