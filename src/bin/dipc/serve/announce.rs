//! The lines that announce the server's addresses.

use anyhow::Result;
use dipc::proto::Role;
use dipc::server::Server;
use serde::Serialize;

use crate::flight::FlightServer;
use crate::output;
use crate::serve::Args;

#[derive(Serialize)]
struct ReadyLine<'a> {
    ready: &'a str,
    metadata: String,
    data: String,
    tickets: Vec<String>,
}

pub(super) fn announcement(uri: &str, server: &Server, args: &Args) -> Result<String> {
    // The last location is that of the newest listener.
    let location = |role| server.locations(role).pop().unwrap_or_default();
    let (metadata, data) = (location(Role::Metadata), location(Role::Data));
    let tickets = server.tickets();
    let tickets = tickets
        .iter()
        .map(|ticket| String::from_utf8_lossy(ticket).into_owned());
    Ok(if args.json {
        output::json(&ReadyLine {
            ready: uri,
            metadata,
            data,
            tickets: tickets.collect(),
        })?
    } else if args.roles {
        format!("ready {uri}\nmetadata {metadata}\ndata {data}")
    } else {
        format!("ready {uri}")
    })
}

#[derive(Serialize)]
struct FlightReady {
    flight: String,
}

pub(super) fn flight_announcement(flight: &FlightServer, args: &Args) -> Result<String> {
    let flight = flight.uri();
    Ok(if args.json {
        output::json(&FlightReady { flight })?
    } else {
        format!("flight {flight}")
    })
}

pub(super) fn tell(text: &str) -> Result<()> {
    match output::print(text) {
        // A closed stdout is no error: clients may know the address anyway.
        Err(error) if error.is::<output::Closed>() => Ok(()),
        outcome => outcome,
    }
}
