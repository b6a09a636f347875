//! The session of a coordinator: its workers, and its tables.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use datafusion::common::DataFusionError;
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use datafusion_distributed::{
    CompressionType, DistributedExt as _, SessionStateBuilderExt as _, WorkerResolver,
};
use dipc::{Client, ClientBuilder};
use dipc_datafusion::{ChannelOptions, DipcChannelResolver, DipcServer, DipcTables};
use url::Url;

use crate::tpch;

/// Options of a session.
#[derive(clap::Args, Clone, Default)]
// Each command that has these has a group of the same name itself.
#[group(skip)]
pub struct Args {
    /// URLs of the workers, with a comma between two; without them this process works alone
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    pub workers: Vec<Url>,

    /// Registers a file or folder of Parquet, which the workers must find under the same path
    #[arg(long, value_name = "NAME=PATH")]
    pub table: Vec<String>,

    /// Registers all tables of a server of libdipc, as a catalog: NAME.public.TICKET
    #[arg(long, value_name = "NAME=URI")]
    pub server: Vec<String>,

    /// Registers the tables of TPC-H at a scale factor, for example 0.1
    #[arg(long, value_name = "SCALE", value_parser = tpch::parse_scale)]
    pub tpch: Option<f64>,

    /// Where the tables of TPC-H are written as Parquet, once; the workers must find them there
    #[arg(long, value_name = "FOLDER", default_value = "tpch")]
    pub tpch_dir: PathBuf,

    /// Partitions of each task (default: one for each core)
    #[arg(long, value_name = "N")]
    pub partitions: Option<usize>,

    /// Bytes of files for each partition of a scan: less spreads small tables over more workers
    #[arg(long, value_name = "N")]
    pub scan_bytes: Option<usize>,

    /// The ways to workers, the best first, with a comma between two; grpc is the engine's own
    /// (default: shm,tls,tcp,ucx)
    #[arg(long, value_name = "SCHEME", value_delimiter = ',')]
    pub way: Vec<String>,

    /// The authorities of the workers' certificates, as a PEM file (default: the system's)
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,

    /// Compresses what travels over grpc [default: lz4]
    #[arg(long, value_name = "CODEC")]
    pub grpc_compression: Option<Compression>,
}

/// How the engine's own channel compresses.
#[derive(clap::ValueEnum, Clone, Copy)]
pub enum Compression {
    /// Not at all
    None,
    /// LZ4 frames
    Lz4,
    /// Zstandard
    Zstd,
}

impl Compression {
    /// Its name in the engine's settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    fn codec(self) -> Option<CompressionType> {
        match self {
            Self::None => None,
            Self::Lz4 => Some(CompressionType::LZ4_FRAME),
            Self::Zstd => Some(CompressionType::ZSTD),
        }
    }
}

/// The workers of the command line.
struct Workers(Vec<Url>);

impl WorkerResolver for Workers {
    fn get_urls(&self) -> Result<Vec<Url>, DataFusionError> {
        Ok(self.0.clone())
    }
}

/// A session with its tables.
pub async fn open(args: &Args) -> Result<SessionContext> {
    let context = session(args)?;
    register(&context, args).await?;
    Ok(context)
}

/// A client that knows these authorities of certificates.
fn client(authorities: Option<&Path>) -> ClientBuilder {
    let client = Client::builder().max_idle(64);
    match authorities {
        Some(file) => client.tls_ca(file),
        None => client,
    }
}

/// How to reach workers: the ways, and the authorities of certificates.
pub fn channels(ways: &[String], authorities: Option<&Path>) -> DipcChannelResolver {
    let options = ChannelOptions::new().client(client(authorities));
    DipcChannelResolver::new(match ways {
        [] => options,
        ways => options.ways(ways),
    })
}

/// How workers read tables of servers of libdipc.
pub fn tables(authorities: Option<&Path>) -> Result<DipcTables> {
    Ok(DipcTables::with_client(client(authorities).build()?))
}

/// A session without tables.
pub fn session(args: &Args) -> Result<SessionContext> {
    let mut config = SessionConfig::new();
    if let Some(partitions) = args.partitions {
        config = config.with_target_partitions(partitions);
    }
    if args.workers.is_empty() {
        return Ok(SessionContext::new_with_config(config));
    }
    let mut state = SessionStateBuilder::new()
        .with_default_features()
        .with_config(config)
        .with_distributed_planner()
        .with_distributed_worker_resolver(Workers(args.workers.clone()))
        .with_distributed_channel_resolver(channels(&args.way, args.tls_ca.as_deref()))
        .with_distributed_broadcast_joins(true)?;
    if let Some(bytes) = args.scan_bytes {
        state = state.with_distributed_file_scan_config_bytes_per_partition(bytes)?;
    }
    if let Some(compression) = args.grpc_compression {
        state = state.with_distributed_compression(compression.codec())?;
    }
    let state = tables(args.tls_ca.as_deref())?.register(state);
    Ok(SessionContext::from(state.build()))
}

async fn register(context: &SessionContext, args: &Args) -> Result<()> {
    for server in &args.server {
        let Some((name, uri)) = server.split_once('=') else {
            bail!("--server is NAME=URI, not {server:?}");
        };
        let client = client(args.tls_ca.as_deref()).build()?;
        DipcServer::with_client(client, uri).register_catalog(context, name);
    }
    let mut tables = Vec::new();
    for table in &args.table {
        let Some((name, path)) = table.split_once('=') else {
            bail!("--table is NAME=PATH, not {table:?}");
        };
        tables.push((name.to_owned(), PathBuf::from(path)));
    }
    if let Some(scale) = args.tpch {
        let folder = args.tpch_dir.clone();
        tables.extend(tokio::task::spawn_blocking(move || tpch::tables(scale, &folder)).await??);
    }
    for (name, path) in tables {
        // The workers have folders of their own that they run in.
        let path = std::path::absolute(&path)?;
        let text = path.to_str().context("the path of a table is no UTF-8")?;
        let options = ParquetReadOptions::default();
        let registered = context.register_parquet(&name, text, options).await;
        registered.with_context(|| format!("cannot read the table {name} at {text}"))?;
    }
    Ok(())
}
