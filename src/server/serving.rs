//! What a server serves: its tickets, and what answers for all other tickets.

use std::sync::Arc;

use super::handle::ServerHandle;
use super::host::HostProvider;
use super::tickets::{Entry, Middleware, provided};
use crate::arrow::description::Description;
use crate::arrow::{Encoder, OwnedDeviceArray, OwnedSchema};
use crate::driver::callbacks::Deferred;
use crate::driver::produce::{Published, TableParts};
use crate::error::{Error, Result};
use crate::proto::Headers;

impl ServerHandle {
    /// Serves `ticket` by calling `provider` for each stream.
    ///
    /// # Errors
    ///
    /// The provider is given back with `AlreadyExists` if the ticket is served already,
    /// `InvalidArgument` if it is longer than [`MAX_TICKET_BYTES`](crate::proto::MAX_TICKET_BYTES),
    /// or `Stopped`.
    pub fn serve(
        &self,
        ticket: &[u8],
        provider: Box<dyn HostProvider>,
    ) -> Result<(), (Error, Box<dyn HostProvider>)> {
        self.core.add(ticket, false, provider, provided)
    }

    /// Serves every ticket that has no table or provider of its own by calling `provider`, until
    /// another handler replaces it. [`ServerRequest::ticket`] and [`ServerRequest::headers`] show
    /// what the client wants.
    ///
    /// # Errors
    ///
    /// `Stopped`, with the provider given back.
    pub fn set_handler(
        &self,
        provider: Box<dyn HostProvider>,
    ) -> Result<(), (Error, Box<dyn HostProvider>)> {
        match self.core.callbacks() {
            Ok(callbacks) => {
                let handler = provided(provider, callbacks);
                self.core.tickets.set_handler(Some(handler));
                Ok(())
            }
            Err(error) => Err((error, provider)),
        }
    }

    /// Serves every ticket that has no table or provider of its own in the pull form.
    ///
    /// # Errors
    ///
    /// `Stopped`.
    pub fn set_handler_pull(&self) -> Result<()> {
        self.core.ensure_running()?;
        self.core.tickets.set_handler(Some(Entry::Pull));
        Ok(())
    }

    /// Serves only tickets that have a table or provider of their own.
    ///
    /// # Errors
    ///
    /// `Stopped`.
    pub fn clear_handler(&self) -> Result<()> {
        self.core.ensure_running()?;
        self.core.tickets.set_handler(None);
        Ok(())
    }

    /// Serves `ticket` in the pull form: [`next_request`](Self::next_request) gives its requests.
    ///
    /// # Errors
    ///
    /// As [`serve`](Self::serve).
    pub fn serve_pull(&self, ticket: &[u8]) -> Result<()> {
        self.core
            .add(ticket, false, (), |(), _| Entry::Pull)
            .map_err(|(error, ())| error)
    }

    /// Publishes a table that clients can fetch any number of times. The arrays are released after
    /// the ticket was withdrawn and its last stream has ended.
    ///
    /// # Errors
    ///
    /// As [`serve`](Self::serve), and `InvalidData` for a table that cannot be sent, `OutOfMemory`,
    /// or what the driver of a GPU says. The table is given back.
    pub fn publish(
        &self,
        ticket: &[u8],
        schema: OwnedSchema,
        batches: Vec<OwnedDeviceArray>,
    ) -> Result<(), (Error, TableParts)> {
        self.put_table(ticket, false, schema, batches)
    }

    /// [`publish`](Self::publish), replacing what `ticket` stands for, if anything. The ticket is
    /// known at every moment. Streams under way go on with the earlier table.
    ///
    /// # Errors
    ///
    /// As [`publish`](Self::publish), except `AlreadyExists`.
    pub fn replace(
        &self,
        ticket: &[u8],
        schema: OwnedSchema,
        batches: Vec<OwnedDeviceArray>,
    ) -> Result<(), (Error, TableParts)> {
        self.put_table(ticket, true, schema, batches)
    }

    fn put_table(
        &self,
        ticket: &[u8],
        replaces: bool,
        schema: OwnedSchema,
        batches: Vec<OwnedDeviceArray>,
    ) -> Result<(), (Error, TableParts)> {
        let options = self.core.encode_options();
        // The producer gets the errors of its table now. Otherwise each client would get them.
        let encoder = match Encoder::new(&schema, options) {
            Ok(encoder) => encoder,
            Err(error) => return Err((error, (schema, batches))),
        };
        let table = Published::new(schema, batches, encoder)?;
        self.core
            .add(ticket, replaces, table, |table, callbacks| {
                Entry::Published(Arc::new(Deferred::new(table, callbacks)))
            })
            .map_err(|(error, table)| (error, table.into_parts()))
    }

    /// Sets the answer to clients that ask what a ticket stands for. The server itself knows only
    /// published tables. A description without endpoints gets one: the ticket, at this server. A
    /// new table in the ticket's place removes the description.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Stopped`.
    pub fn set_description(&self, ticket: &[u8], description: Description) -> Result<()> {
        self.core.ensure_running()?;
        self.core.tickets.set_description(ticket, description)
    }

    /// Stops serving `ticket`. Running streams go on.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn withdraw(&self, ticket: &[u8]) -> Result<()> {
        self.core.generation.ensure_same_process()?;
        self.core.tickets.withdraw(ticket).map(drop)
    }

    /// The tickets served now, in byte order.
    pub fn tickets(&self) -> Vec<Vec<u8>> {
        self.core.tickets.names()
    }

    /// From now on `middleware` answers every get, put and exchange that has the header `header`,
    /// in place of the ticket. It may pass a request on ([`ServerRequest::forward`]). A middleware
    /// set before is replaced.
    ///
    /// # Errors
    ///
    /// With the provider given back: `InvalidArgument` for a key that cannot be a header's,
    /// `Stopped`.
    pub fn set_middleware(
        &self,
        header: &str,
        middleware: Box<dyn HostProvider>,
    ) -> Result<(), (Error, Box<dyn HostProvider>)> {
        let ready = (self.core.callbacks())
            .and_then(|callbacks| Headers::new().add(header, []).map(|()| callbacks));
        match ready {
            Ok(callbacks) => {
                let header = header.to_owned();
                let entry = provided(middleware, callbacks);
                let tickets = &self.core.tickets;
                drop(tickets.set_middleware(Some(Middleware { header, entry })));
                Ok(())
            }
            Err(error) => Err((error, middleware)),
        }
    }

    /// From now on requests are answered by their tickets only.
    ///
    /// # Errors
    ///
    /// `Stopped`.
    pub fn clear_middleware(&self) -> Result<()> {
        self.core.ensure_running()?;
        drop(self.core.tickets.set_middleware(None));
        Ok(())
    }
}
