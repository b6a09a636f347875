//! The lines that announce the server's addresses.

use std::os::fd::AsFd as _;

use anyhow::{Context as _, Result};
use dipc::{Role, Server};
use serde_json::json;

use super::args::Args;
use super::remote;
use crate::listening::listen;
use crate::output;
use crate::service::GivenSocket;

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
    Ok(if args.json {
        let tickets = server.tickets();
        let tickets = tickets.iter().map(|ticket| String::from_utf8_lossy(ticket));
        output::json(&json!({
            "ready": uri,
            "metadata": metadata,
            "data": data,
            "tickets": tickets.collect::<Vec<_>>(),
        }))?
    } else if args.roles {
        format!("ready {uri}\nmetadata {metadata}\ndata {data}")
    } else {
        format!("ready {uri}")
    })
}

/// The line of an address of another `kind`.
pub(super) fn address_line(kind: &str, at: &str, args: &Args) -> Result<String> {
    match args.json {
        true => output::json(&json!({ kind: at })),
        false => Ok(format!("{kind} {at}")),
    }
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

pub(super) fn tell(text: &str) -> Result<()> {
    match output::print(text) {
        // A closed stdout is no error: clients may know the address anyway.
        Err(error) if error.is::<output::Closed>() => Ok(()),
        outcome => outcome,
    }
}
