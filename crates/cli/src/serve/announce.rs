//! The lines that announce the server's addresses.

use std::os::fd::AsFd as _;

use anyhow::{Context as _, Result};
use dipc::{Role, Server};
use serde::Serialize;

use super::args::Args;
use super::remote;
use crate::flight::FlightServer;
use crate::listening::listen;
use crate::metrics::MetricsServer;
use crate::output;
use crate::service::GivenSocket;

#[derive(Serialize)]
struct ReadyLine<'a> {
    ready: &'a str,
    metadata: String,
    data: String,
    tickets: Vec<String>,
}

/// Listens at the addresses of `--listen`, and by the sockets of a service manager; gives the lines
/// that announce them.
pub(super) fn listen_everywhere(
    server: &Server,
    args: &Args,
    given: Vec<GivenSocket>,
) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for uri in &args.listen {
        let bound = listen(server, uri)?;
        lines.push(announcement(&bound, server, args)?);
    }
    for given in given {
        let scheme = given.scheme(args.tls.tls_cert.is_some())?;
        let bound = server
            .listen_fd(scheme, given.socket.as_fd())
            .with_context(|| given.shown())?;
        lines.push(announcement(&bound, server, args)?);
    }
    Ok(lines)
}

fn announcement(uri: &str, server: &Server, args: &Args) -> Result<String> {
    if uri.starts_with("tcp://") {
        remote::warn_if_open(uri);
    }
    // The last location is that of the newest listener.
    let location = |role| server.uris_of(role).pop().unwrap_or_default();
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

/// The locations for Flight clients. The reference peer's client takes the first two, and needs
/// metadata and data there (rule R4).
pub(super) fn flight_locations(server: &Server, roles: bool) -> Vec<String> {
    let both = server.uris_of(Role::Both);
    if !roles {
        return both;
    }
    let data = server.uris_of(Role::Data);
    let pairs = server.uris_of(Role::Metadata).into_iter().zip(data);
    pairs
        .filter(|(metadata, _)| metadata.starts_with("ucx:"))
        .flat_map(|(metadata, data)| [metadata, data])
        .chain(both)
        .collect()
}

#[derive(Serialize)]
struct MetricsReady {
    metrics: String,
}

pub(super) fn metrics_announcement(metrics: &MetricsServer, args: &Args) -> Result<String> {
    let metrics = metrics.url();
    Ok(if args.json {
        output::json(&MetricsReady { metrics })?
    } else {
        format!("metrics {metrics}")
    })
}

pub(super) fn tell(text: &str) -> Result<()> {
    match output::print(text) {
        // A closed stdout is no error: clients may know the address anyway.
        Err(error) if error.is::<output::Closed>() => Ok(()),
        outcome => outcome,
    }
}
