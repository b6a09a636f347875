//! `dipc serve`: serves tables of files and of the TPC-H generator.

mod announce;
mod args;
mod files;
mod offering;
mod reload;
mod remote;
mod stop;
mod validity;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc;

use anyhow::{Context as _, Result, bail};
use dipc::{BodyPolicy, Description, Server, Target};

use announce::{address_line, flight_locations, listen_everywhere, tell};
pub use args::Args;
use args::{Body, Remote};
use files::{named_files, tables_of};
use offering::offer;
use reload::reload_at_hangups;
use stop::stop;

use crate::accept::{Accepting, Folder, Rules, Taker};
use crate::access::Access;
use crate::flight::{Certificates, FlightServer, Gate};
use crate::metrics::MetricsServer;
use crate::parse::UsageError;
use crate::signals::Hangups;
use crate::source::{Reading, Source};
use crate::tables::Tables;
use crate::{listening, service, signals};

/// Runs `dipc serve`.
pub fn run(args: &Args) -> Result<ExitCode> {
    if args.device == Target::AsSent {
        let text = "tables are served from the host or from a GPU: --device host, --device cuda:N";
        return Err(UsageError(text.to_owned()).into());
    }
    // This comes before there are threads: the driver of a device may start some.
    let (manager, given) = service::take()?;
    args.device.ensure_available()?;
    if args.accept.is_some() && args.device != Target::Host {
        let text = "taken tables are served from their files: leave out --device";
        return Err(UsageError(text.to_owned()).into());
    }
    let manager = Arc::new(manager);
    if args.listen.is_empty() && args.flight.is_none() && given.is_empty() {
        let text = "nowhere to listen: name an address with --listen or --flight";
        return Err(UsageError(text.to_owned()).into());
    }
    listening::ensure_distinct(&args.listen, args.flight.as_deref())?;
    listening::ensure_uris(&args.redirect)?;
    // This comes first, so that the signal does not end the process. If there are no files to read
    // again, SIGHUP still ends the server, unless a service manager sends it.
    let reads_again = args.tls.tls_cert.is_some() || args.access.token_file.is_some();
    let reads_again = reads_again || manager.is_there();
    let hangups = Hangups::new(reads_again)?;
    let folder = args.accept.as_deref().map(Folder::open).transpose()?;
    let tickets = tickets(args, folder.as_ref().map(Folder::path))?;
    // The handler comes first, so that a signal finds it.
    let (stop_sender, stops) = mpsc::channel();
    let again = stop_sender.clone();
    signals::watch(
        move || {
            let _ = stop_sender.send(());
        },
        move || {
            let _ = again.send(());
        },
    )?;
    let access = Access::new(&args.access)?.map(Arc::new);
    let server = server(args, access.as_ref())?;
    let certificates = match &args.flight {
        Some(_) => Certificates::new(&args.tls)?,
        None => None,
    };
    if let Some(certificate) = &args.tls.tls_cert {
        validity::warn_of(certificate);
    }
    let flight = args
        .flight
        .as_ref()
        .map(|address| listening::bind(address, "Flight", remote::of_flight(args)))
        .transpose()?;
    let metrics = (args.metrics.as_ref())
        .map(|address| listening::bind(address, "metrics", remote::of_metrics(args)))
        .transpose()?;
    // Tickets first: a client that finds the address also finds the tickets.
    let tables = Tables::default();
    let mut room = args.max_memory;
    for (ticket, source) in tickets {
        let table = offer(&server, &ticket, source, args, &mut room)?;
        if flight.is_some() {
            tables.insert(ticket, table);
        }
        if stops.try_recv().is_ok() {
            return Ok(ExitCode::SUCCESS);
        }
    }
    let accepting = folder.map(|folder| {
        let rules = Rules {
            ending: args.accept_as,
            replaces: args.replace,
            reading: args.reading(),
        };
        Accepting::new(folder, rules, &server, tables.clone())
    });
    if let Some(accepting) = &accepting {
        server.handler(Taker(Arc::clone(accepting)))?;
    }
    let reread = (access.clone(), certificates.clone());
    reload_at_hangups(hangups, args, &server, reread, &manager)?;
    // `ready` is printed only after all addresses listen.
    let mut lines = listen_everywhere(&server, args, given)?;
    let flight = flight
        .map(|listener| {
            let uris = flight_locations(&server, args.roles);
            let most = args.max_streams.get();
            let gate = Gate {
                tls: certificates,
                max_connections: args.max_connections.map(NonZeroUsize::get),
                access,
            };
            FlightServer::start(listener, (tables, uris), most, accepting, gate).map(Arc::new)
        })
        .transpose()?;
    if let Some(flight) = &flight {
        if args.tls.tls_cert.is_none() {
            remote::warn_if_open(&flight.uri());
        }
        lines.push(address_line("flight", &flight.uri(), args)?);
    }
    let metrics = metrics
        .map(|listener| MetricsServer::start(listener, &server, flight.as_ref()))
        .transpose()?;
    if let Some(metrics) = &metrics {
        remote::warn_if_open(&metrics.url());
        lines.push(address_line("metrics", &metrics.url(), args)?);
    }
    listening::ensure_descriptors()?;
    for line in lines {
        tell(&line)?;
    }
    manager.ready(&format!("tables: {}", server.tickets().len()));
    // An error would mean that the signal thread has ended, which never happens.
    let _ = stops.recv();
    stop(&server, flight, stops, args, &manager)
}

/// The server of the arguments, without addresses and tables.
fn server(args: &Args, access: Option<&Arc<Access>>) -> Result<Server> {
    let mut server = (args.tls.server())
        .max_streams(args.max_streams.get())
        .max_bytes(args.max_memory)
        .body(match args.body {
            Body::Auto => BodyPolicy::Auto,
            Body::Packed => BodyPolicy::Packed,
            Body::Lent => BodyPolicy::Lent,
        })
        .spin(args.spin)
        // Who is admitted may connect.
        .any_user(args.any_user || !args.access.allow_uid.is_empty())
        .allow_remote(args.allow_remote.contains(&Remote::Tcp))
        .trusted_network(args.trusted_network);
    if let Some(count) = args.max_providers {
        server = server.max_providers(count.get());
    }
    if let Some(count) = args.max_connections {
        server = server.max_connections(count.get());
    }
    if let Some(limit) = args.max_message {
        server = server.put_message_limit(limit);
    }
    if let Some(access) = access {
        let access = Arc::clone(access);
        server = server.authorizer(move |request| access.authorize(request));
    }
    for (name, value) in &args.settings {
        server = server.setting(name, value)?;
    }
    Ok(server.build()?)
}

/// The source of each ticket. Every source is opened once, so that a file that cannot be read or
/// sent is an error now, not at a client's request.
fn tickets(args: &Args, folder: Option<&Path>) -> Result<BTreeMap<Vec<u8>, Source>> {
    let files = args.files.iter().flat_map(|arg| match named_files(arg) {
        Ok(files) => files.into_iter().map(Ok).collect(),
        Err(error) => vec![Err(error)],
    });
    let tables = args.tpch.iter().map(|table| {
        let source = Source::Tpch {
            table: *table,
            scale: args.scale,
        };
        Ok((table.name().as_bytes().to_vec(), source))
    });
    let taken = folder.map(tables_of).transpose()?.unwrap_or_default();
    let taken = taken.into_iter().map(Ok);
    let mut tickets = BTreeMap::new();
    for named in files.chain(taken).chain(tables) {
        let (ticket, source) = named?;
        match tickets.entry(ticket) {
            Entry::Vacant(entry) => {
                ensure_sendable(&source, args.reading())?;
                entry.insert(source);
            }
            Entry::Occupied(entry) if *entry.get() == source => bail!("{source} is given twice"),
            Entry::Occupied(entry) => bail!(
                "{} and {source} would both be the ticket {:?}; name one of them: NAME={source}",
                entry.get(),
                String::from_utf8_lossy(entry.key()),
            ),
        }
    }
    if tickets.is_empty() && folder.is_none() {
        let text =
            "nothing to serve: name a FILE, a table with --tpch, or a directory with --accept"
                .to_owned();
        return Err(UsageError(text).into());
    }
    Ok(tickets)
}

/// Checks a source as far as possible without reading its batches.
fn ensure_sendable(source: &Source, reading: Reading) -> Result<()> {
    let schema = source.reader(reading)?.schema();
    source.ensure_whole()?;
    (Description::new().schema(&schema)).with_context(|| format!("cannot serve {source}"))?;
    Ok(())
}
