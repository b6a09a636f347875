//! `dipc-sql worker`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use dipc_datafusion::{ChannelOptions, DipcChannelResolver, DipcWorker, worker_server};
use tokio::signal::unix::{SignalKind, signal};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

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

    /// Listens over tcp also where other machines connect, without encryption
    #[arg(long)]
    allow_remote: bool,

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
    let mut server = worker_server().allow_remote(args.allow_remote);
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

    let mut options = ChannelOptions::new();
    if let Some(file) = args.tls_ca {
        options = options.client(dipc::Client::builder().max_idle(64).tls_ca(file));
    }
    let worker = DipcChannelResolver::new(options).worker();
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
