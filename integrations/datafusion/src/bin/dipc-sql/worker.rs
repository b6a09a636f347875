//! `dipc-sql worker`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use datafusion_distributed::Worker;
use dipc_datafusion::{DipcWorker, worker_server};
use tokio::signal::unix::{SignalKind, signal};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use crate::session::{channels, tables};

/// How long running streams may take to end after a signal.
const GRACE: Duration = Duration::from_secs(1);

/// Options of `dipc-sql worker`.
#[derive(clap::Args)]
pub struct Args {
    /// Where coordinators send plans, over gRPC: the address in the worker's URL. Port 0: a free
    /// port
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7000")]
    listen: SocketAddr,

    /// Where other workers and coordinators get partitions, over libdipc; may be given several
    /// times (default: shm:@dipc-sql-PORT and tcp://HOST:0)
    #[arg(long, value_name = "URI")]
    dipc: Vec<String>,

    /// The ways to other workers, the best first, with a comma between two; grpc is the engine's own
    /// (default: shm,tls,tcp,ucx)
    #[arg(long, value_name = "SCHEME", value_delimiter = ',')]
    way: Vec<String>,

    /// Listens over tcp also where other machines connect, without encryption
    #[arg(long)]
    allow_remote: bool,

    /// Listens over ucx: every process that can reach it may read and write this one's memory
    #[arg(long)]
    trusted_network: bool,

    /// The worker's certificates for tls, as a PEM file
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// The private key for tls, as a PEM file
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// The authorities of other workers' certificates, as a PEM file (default: the system's)
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
}

/// Works until a signal.
pub async fn run(args: Args) -> Result<()> {
    let incoming = TcpIncoming::bind(args.listen)
        .with_context(|| format!("cannot listen at {}", args.listen))?;
    let address = incoming.local_addr()?;
    let mut server = worker_server()
        .allow_remote(args.allow_remote)
        .trusted_network(args.trusted_network);
    if let (Some(certificates), Some(key)) = (args.tls_cert, args.tls_key) {
        server = server.tls(certificates, key);
    }
    let server = server.build()?;
    let mut places = args.dipc;
    if places.is_empty() {
        let tcp = SocketAddr::new(address.ip(), 0);
        places = vec![
            format!("shm:@dipc-sql-{}", address.port()),
            format!("tcp://{tcp}"),
        ];
    }
    for place in &places {
        let uri = server.listen(place);
        let uri = uri.with_context(|| format!("cannot listen at {place}"))?;
        println!("partitions at {uri}");
    }

    let authorities = args.tls_ca.as_deref();
    let (channels, tables) = (channels(&args.way, authorities), tables(authorities)?);
    let worker = Worker::from_session_builder(move |query| {
        let state = tables.register(channels.session(query));
        async move { Ok(state.build()) }
    });
    let shuffles = DipcWorker::start(worker.clone(), server)?;
    println!("plans at http://{address}");
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let ended = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    let serving = Server::builder()
        .add_service(worker.into_worker_server())
        .add_service(shuffles.locations())
        .serve_with_incoming(incoming);
    tokio::select! {
        served = serving => served.context("the gRPC server has ended")?,
        () = ended => {}
    }
    // Streams that are cut tell their clients.
    let stopped = tokio::task::spawn_blocking(move || shuffles.stop(GRACE));
    Ok(stopped.await??)
}
