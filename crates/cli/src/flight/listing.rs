//! `dipc ls grpc://…` and `dipc describe grpc://…`: the tables of a Flight server.

use arrow::datatypes::SchemaRef;
use arrow_flight::flight_descriptor::DescriptorType;
use arrow_flight::{FlightDescriptor, FlightInfo};
use dipc::{Cancel, Result};

use crate::flight::caller::{Caller, Peer, Times};
use crate::flight::fetch::{ask, schema_of};
use crate::flight::locations::REUSE_CONNECTION;
use crate::trust::ClientTrust;

/// What a Flight server says of a table.
pub struct Listed {
    /// The path, with `/` between its parts, or the command.
    pub name: String,
    /// The number of rows, if the server knows.
    pub rows: Option<u64>,
    /// The number of bytes, if the server knows.
    pub bytes: Option<u64>,
    /// The schema, if the server tells it.
    pub schema: Option<SchemaRef>,
    /// Tickets, each with the locations that it goes to; none: the server itself.
    pub endpoints: Vec<(String, Vec<String>)>,
    /// Whether the order of the endpoints is that of the table.
    pub is_ordered: bool,
}

/// The Flight server that is asked.
pub struct Listing(Peer);

impl Listing {
    /// Connects to the server at `uri`.
    ///
    /// # Errors
    ///
    /// `Unreachable` and the like.
    pub fn of(uri: &str, times: Times, trust: &ClientTrust, cancel: &Cancel) -> Result<Self> {
        let caller = Caller::new(cancel, times, trust)?;
        Ok(Self(Peer::connect(&caller, uri)?))
    }

    /// The tables whose names begin with `prefix`. Servers read criteria as they like, so those that
    /// leave nothing out are right too.
    ///
    /// # Errors
    ///
    /// Those of the server.
    pub fn list(&self, prefix: &str) -> Result<Vec<Listed>> {
        let infos = self.0.list(prefix.as_bytes())?;
        let listed = infos.iter().map(Listed::of);
        Ok(listed.filter(|it| it.name.starts_with(prefix)).collect())
    }

    /// A table, by its name as a path of one part or as a command.
    ///
    /// # Errors
    ///
    /// Those of the server.
    pub fn describe(&self, name: &str, is_command: bool) -> Result<Listed> {
        Ok(Listed::of(&ask(&self.0, name, is_command)?))
    }
}

impl Listed {
    fn of(info: &FlightInfo) -> Self {
        let endpoints = info.endpoint.iter().map(|endpoint| {
            let ticket = endpoint.ticket.as_ref().map_or(&[][..], |it| &it.ticket);
            let locations = endpoint
                .location
                .iter()
                .map(|location| location.uri.clone());
            let elsewhere = locations.filter(|uri| uri != REUSE_CONNECTION);
            let ticket = String::from_utf8_lossy(ticket).into_owned();
            (ticket, elsewhere.collect())
        });
        Self {
            name: info
                .flight_descriptor
                .as_ref()
                .map_or_else(String::new, name_of),
            // -1 where the server does not know.
            rows: u64::try_from(info.total_records).ok(),
            bytes: u64::try_from(info.total_bytes).ok(),
            schema: schema_of(info, None).ok(),
            endpoints: endpoints.collect(),
            is_ordered: info.ordered,
        }
    }
}

fn name_of(descriptor: &FlightDescriptor) -> String {
    match DescriptorType::try_from(descriptor.r#type) {
        Ok(DescriptorType::Path) => descriptor.path.join("/"),
        _ => String::from_utf8_lossy(&descriptor.cmd).into_owned(),
    }
}
