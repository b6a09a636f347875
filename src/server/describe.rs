//! Descriptions and lists of the server's own tickets (rule Q6).

use std::sync::Arc;

use super::core::ServerCore;
use super::tickets::{Entry, Own, Tickets};
use crate::arrow::Encoder;
use crate::arrow::description::{Description, Endpoint};
use crate::driver::callbacks::Deferred;
use crate::driver::end::StreamLink;
use crate::driver::produce::Published;
use crate::error::{Error, Result};
use crate::proto::{self, Verb};

impl ServerCore {
    /// What answers a request: the table of a ticket, a table that this call makes, or the host.
    ///
    /// An answer of the server's own shows what the client may get, as the host decides.
    pub(super) fn entry(&self, link: &StreamLink, request: &proto::Request) -> Result<Entry> {
        let ticket = &request.ticket;
        self.tickets.ensure_middleware(request)?;
        if let Some(middleware) = self.tickets.middleware(request) {
            return Ok(middleware);
        }
        match request.verb {
            Verb::Get => self.tickets.find(ticket),
            Verb::Describe => match self.tickets.own(ticket) {
                Some(_) if !self.may_see(link, request, ticket) => Err(Tickets::unknown(ticket)),
                Some(own) => {
                    let answer = || self.answer(&describe(ticket, &own)?);
                    own.answer.get_or_try_init(answer).cloned()
                }
                None => (self.tickets.handler()).ok_or_else(|| Tickets::unknown(ticket)),
            },
            Verb::List => {
                let mut own = self.tickets.beginning_with(ticket);
                own.retain(|(ticket, _)| self.may_see(link, request, ticket));
                match self.tickets.handler() {
                    // Only the host knows which of its tickets begin with the prefix.
                    Some(handler) if own.is_empty() => Ok(handler),
                    _ => self.answer(&list(&own)),
                }
            }
            Verb::Put | Verb::Exchange => self.tickets.taker(),
            verb => Err(Error::unsupported(format!(
                "this server does not know {}: it gives, takes, exchanges, describes and lists tables",
                verb.name()
            ))),
        }
    }

    fn answer(&self, description: &Description) -> Result<Entry> {
        let (schema, batch) = description.table()?;
        let encoder = Encoder::new(&schema, self.encode_options())?;
        let table = Published::new(schema, vec![batch], encoder).map_err(|(error, _)| error)?;
        Ok(Entry::Published(Arc::new(Deferred::new(
            table,
            self.callbacks()?,
        ))))
    }
}

/// Describes one of the server's own tickets. For a provider's table there is only what the host
/// has said.
fn describe(ticket: &[u8], own: &Own) -> Result<Description> {
    let mut description = match (&own.description, &own.entry) {
        (Some(description), _) => Description::clone(description),
        (None, Entry::Published(table)) => table.describe()?,
        (None, Entry::Provider(_) | Entry::Pull) => Description::default(),
    };
    if description.endpoints.is_empty() {
        description.endpoints.push(itself(ticket, &description));
    }
    Ok(description)
}

/// The endpoint of a ticket that is served here.
fn itself(ticket: &[u8], description: &Description) -> Endpoint {
    Endpoint {
        descriptor: ticket.to_vec(),
        uris: Vec::new(),
        rows: description.rows,
        bytes: description.bytes,
    }
}

/// A row for each ticket. A table that is not valid has no totals.
fn list(tickets: &[(Vec<u8>, Own)]) -> Description {
    let endpoints = tickets.iter().map(|(ticket, own)| {
        let description = describe(ticket, own).unwrap_or_default();
        itself(ticket, &description)
    });
    Description {
        endpoints: endpoints.collect(),
        ..Description::default()
    }
}
