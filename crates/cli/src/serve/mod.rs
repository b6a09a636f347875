//! `dipc serve`: serves tables of files and of the TPC-H generator.

mod accept;
mod access;
mod announce;
mod files;
mod offering;
mod reload;
mod remote;
mod stop;
mod validity;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use dipc::arrow::{EncodeOptions, Encoder, schema_to_c};
use dipc::device::Target;
use dipc::server::{ServerHandle, ServerOptions, SharedAuthorizer};
use dipc::transport::BodyPolicy;

pub use accept::{Accepting, TICKET_HEADER};
use accept::{Ending, Folder, Rules, Taker};
use access::AccessArgs;
pub use access::{Access, Asker};
use announce::{
    flight_announcement, flight_locations, listen_everywhere, metrics_announcement, tell,
};
use files::{named_files, tables_of};
use offering::offer;
use reload::reload_at_hangups;
use stop::stop;

use crate::flight::{FlightServer, Gate, Tables};
use crate::metrics::MetricsServer;
use crate::parse::{self, UsageError};
use crate::serve::remote::Remote;
use crate::signals::Hangups;
use crate::source::{Reading, Source, tpch};
use crate::trust::ServerTls;
use crate::{listening, service, signals};

/// Arguments of `dipc serve`.
#[derive(clap::Args)]
pub struct Args {
    /// Where to listen: shm:@NAME (abstract), shm:/PATH, tcp://HOST:PORT, tls://HOST:PORT (with
    /// --tls-cert and --tls-key) or ucx://HOST:PORT (port 0: any); may be given several times.
    /// Sockets of a service manager (LISTEN_FDS) are served too
    #[arg(long, value_name = "URI")]
    listen: Vec<String>,

    /// Answer Arrow Flight clients here: they get the addresses of --listen, or the tables by DoGet
    /// (port 0: any)
    #[arg(long, value_name = "HOST:PORT")]
    flight: Option<String>,

    /// Give the server's figures by HTTP at http://HOST:PORT/metrics, for Prometheus and `dipc top`
    /// (port 0: any). Beyond this machine only with --allow-remote: nothing is encrypted
    #[arg(long, value_name = "HOST:PORT")]
    metrics: Option<String>,

    /// Parquet, Arrow file or Arrow stream files; the ticket of each is NAME, or the file's name
    /// without its ending. Of a directory, each file in it that ends in .parquet, .arrow, .arrows
    /// or .feather. A quoted pattern ('data/**/*.parquet') stands for the files that match it
    #[arg(value_name = "[NAME=]FILE")]
    files: Vec<OsString>,

    /// Serve the tables of this directory, and take tables that clients put (`dipc put`) into it. A
    /// table is served as soon as it is whole
    #[arg(long, value_name = "DIR", conflicts_with = "arena")]
    accept: Option<PathBuf>,

    /// The format of taken tables whose names do not end in .arrow (Arrow file), .arrows (Arrow
    /// stream) or .parquet
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "arrow",
        requires = "accept"
    )]
    accept_as: Ending,

    /// Let clients replace tables of the directory of --accept
    #[arg(long, requires = "accept")]
    replace: bool,

    /// Serve a generated TPC-H table; may be given several times
    #[arg(long, value_name = "TABLE")]
    tpch: Vec<tpch::Table>,

    /// Scale factor of the TPC-H tables: 1 is about six million rows of lineitem
    #[arg(long, value_name = "F", default_value = "1", value_parser = tpch::parse_scale)]
    scale: f64,

    /// Read every table into lendable memory before serving; lent bodies are then not copied. The
    /// tables must fit. Small bodies, and bodies for other machines, are still sent
    #[arg(long)]
    arena: bool,

    /// Device to serve the tables from: host, or cuda:N, a GPU (`dipc info` lists them). Tables are
    /// copied to a GPU before serving, and must fit; with --arena into lendable memory of the GPU
    #[arg(long, value_name = "WHERE", default_value = "host")]
    device: Target,

    /// Most rows of a batch; a batch of a Parquet file has fewer if it would exceed --max-message
    #[arg(long, value_name = "N", value_parser = crate::parse::count)]
    batch_rows: Option<NonZeroUsize>,

    /// Most streams served at once. An eighth, 64 at most, is only for your own processes, by shm
    #[arg(long, value_name = "N", default_value = "64", value_parser = crate::parse::count)]
    max_streams: NonZeroUsize,

    /// Most streams for which tables are read at once, including streams whose clients have gone
    /// [default: 64 more than --max-streams]
    #[arg(long, value_name = "N", value_parser = crate::parse::count)]
    max_providers: Option<NonZeroUsize>,

    /// Most connections of all clients, and as many of Flight's [default: as many as take half of
    /// the limit on open files, of which one over shm takes two; for Flight an eighth]
    #[arg(long, value_name = "N", value_parser = crate::parse::count)]
    max_connections: Option<NonZeroUsize>,

    /// Most memory for lent copies, such as 512M (0: no lending, bodies are sent as bytes); with
    /// --arena as much again for all tables together
    #[arg(long, value_name = "BYTES", default_value = "16G", value_parser = crate::parse::bytes)]
    max_memory: u64,

    /// Most memory that one message of an Arrow file may take beside its body (unpacked, copied, or
    /// as dictionaries of the file), or a batch of a Parquet file beside its bytes in the file; a
    /// table that needs more is refused [default: 512M; at least 64K]
    #[arg(long, value_name = "BYTES", value_parser = crate::parse::message)]
    max_message: Option<u64>,

    /// Admit clients of every user, not only of your own
    #[arg(long)]
    any_user: bool,

    #[command(flatten)]
    tls: ServerTls,

    #[command(flatten)]
    access: AccessArgs,

    /// Let other machines connect without encryption: by tcp and Flight and for metrics, or for
    /// what is named
    #[arg(
        long,
        value_name = "WHAT,...",
        value_enum,
        value_delimiter = ',',
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "tcp,flight,metrics"
    )]
    allow_remote: Vec<Remote>,

    /// Trust every process that can connect; ucx needs this, because its peers can read and write
    /// this process's memory
    #[arg(long)]
    trusted_network: bool,

    /// How bodies travel: lent if that is faster, always as bytes, or lent whenever possible. Over
    /// ucx only the last one lends, by RDMA, which has run on no adapter yet
    #[arg(long, value_name = "HOW", default_value = "auto")]
    body: Body,

    /// Print two more URIs for each address, for clients that fetch metadata and bodies from two.
    /// With --flight, Flight clients get those of ucx addresses first
    #[arg(long)]
    roles: bool,

    /// How long to spin for requests before sleeping (0: not at all); spinning uses a whole core
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = crate::parse::duration)]
    spin: Duration,

    /// Set an option of one transport, such as ucx.TLS=tcp; may be given several times
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = crate::parse::setting)]
    settings: Vec<(String, String)>,

    /// How long running streams may continue after the first SIGINT or SIGTERM (0: they end at
    /// once, as with a second signal)
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = crate::parse::duration)]
    drain: Duration,

    /// A server to which clients that ask meanwhile are sent; may be given several times, best
    /// first
    #[arg(long, value_name = "URI")]
    redirect: Vec<String>,

    /// Print JSON, one object on each line
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Body {
    Auto,
    Packed,
    Lent,
}

/// Runs `dipc serve`.
pub fn run(args: &Args) -> Result<ExitCode> {
    if args.device == Target::AsSent {
        let text = "tables are served from the host or from a GPU: --device host, --device cuda:N";
        return Err(UsageError(text.to_owned()).into());
    }
    args.device.ensure_available()?;
    if args.accept.is_some() && args.device != Target::Host {
        let text = "taken tables are served from their files: leave out --device";
        return Err(UsageError(text.to_owned()).into());
    }
    // Before there are threads.
    let (manager, given) = service::take()?;
    let manager = Arc::new(manager);
    if args.listen.is_empty() && args.flight.is_none() && given.is_empty() {
        let text = "nowhere to listen: name an address with --listen or --flight";
        return Err(UsageError(text.to_owned()).into());
    }
    listening::ensure_distinct(&args.listen, args.flight.as_deref())?;
    listening::ensure_uris(&args.redirect)?;
    // First, so that a signal ends nothing. Without files to read again it ends the server, unless
    // a service manager sends it.
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
    let mut options = ServerOptions {
        max_streams: args.max_streams.get(),
        max_providers: args.max_providers.map(NonZeroUsize::get),
        max_connections: args.max_connections.map(NonZeroUsize::get),
        max_bytes: args.max_memory,
        body: match args.body {
            Body::Auto => BodyPolicy::Auto,
            Body::Packed => BodyPolicy::Packed,
            Body::Lent => BodyPolicy::Lent,
        },
        spin: args.spin,
        ..ServerOptions::default()
    };
    options.take.message_limit = args.max_message;
    let access = Access::new(&args.access)?.map(Arc::new);
    if let Some(access) = &access {
        options.authorizer = Some(SharedAuthorizer(Arc::clone(access) as _));
    }
    // Who is admitted may connect.
    options.link.access.any_user = args.any_user || !args.access.allow_uid.is_empty();
    options.link.access.allow_remote = args.allow_remote.contains(&Remote::Tcp);
    options.link.tls = args.tls.options();
    options.link.access.trusted_network = args.trusted_network;
    options.link.settings = parse::settings(&args.settings)?;
    let server = Arc::new(ServerHandle::new(options)?);
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
            reading: reading(args),
        };
        Accepting::new(folder, rules, &server, tables.clone())
    });
    if let Some(accepting) = &accepting {
        let taker = Box::new(Taker(Arc::clone(accepting)));
        server.set_handler(taker).map_err(|(error, _)| error)?;
    }
    reload_at_hangups(hangups, args, &server, access.clone(), &manager)?;
    // `ready` is printed only after all addresses listen.
    let mut lines = listen_everywhere(&server, args, given)?;
    let flight = flight
        .map(|listener| {
            let uris = flight_locations(&server, args.roles);
            let most = args.max_streams.get();
            let gate = Gate {
                tls: args.tls.tls_cert.as_ref().map(|_| server.tls()),
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
        lines.push(flight_announcement(flight, args)?);
    }
    let metrics = metrics
        .map(|listener| MetricsServer::start(listener, &server, flight.as_ref()))
        .transpose()?;
    if let Some(metrics) = &metrics {
        remote::warn_if_open(&metrics.url());
        lines.push(metrics_announcement(metrics, args)?);
    }
    listening::ensure_descriptors()?;
    for line in lines {
        tell(&line)?;
    }
    manager.ready(&format!("tables: {}", server.tickets().len()));
    // An error would mean that the signal thread has ended, which never happens.
    let _ = stops.recv();
    stop(server, flight, stops, args, &manager)
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
                ensure_sendable(&source, reading(args))?;
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

/// Options for reading the sources.
fn reading(args: &Args) -> Reading {
    Reading {
        batch_rows: args.batch_rows.map(NonZeroUsize::get),
        message_limit: args.max_message,
    }
}

/// Checks a source as far as possible without reading its batches.
fn ensure_sendable(source: &Source, reading: Reading) -> Result<()> {
    let schema = source.reader(reading)?.schema();
    source.ensure_whole()?;
    schema_to_c(&schema)
        .and_then(|schema| Encoder::new(&schema, EncodeOptions::default()))
        .with_context(|| format!("cannot serve {source}"))?;
    Ok(())
}
