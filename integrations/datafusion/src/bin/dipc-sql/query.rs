//! `dipc-sql query`.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::common::DataFusionError;
use datafusion::execution::SessionStateBuilder;
use datafusion::physical_plan::{collect, displayable};
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use datafusion_distributed::{
    DistributedExec, DistributedExt as _, DistributedMetricsFormat, SessionStateBuilderExt as _,
    WorkerResolver, display_plan_ascii, rewrite_distributed_plan_with_metrics,
};
use dipc_datafusion::{ChannelOptions, DipcChannelResolver};
use url::Url;

use crate::{stages, tpch};

/// Options of `dipc-sql query`.
#[derive(clap::Args)]
pub struct Args {
    /// URLs of the workers, with a comma between two; without them this process works alone
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    workers: Vec<Url>,

    /// A query; several are run one after the other
    #[arg(value_name = "SQL")]
    queries: Vec<String>,

    /// Runs the queries of a file, with a semicolon between two, after the others
    #[arg(long, value_name = "FILE")]
    file: Vec<PathBuf>,

    /// Registers a file or folder of Parquet, which the workers must find under the same path
    #[arg(long, value_name = "NAME=PATH")]
    table: Vec<String>,

    /// Registers the tables of TPC-H at a scale factor, for example 0.1
    #[arg(long, value_name = "SCALE", value_parser = tpch::parse_scale)]
    tpch: Option<f64>,

    /// Where the tables of TPC-H are written as Parquet, once; the workers must find them there
    #[arg(long, value_name = "FOLDER", default_value = "tpch")]
    tpch_dir: PathBuf,

    /// Prints the plan with its metrics, and what each stage has sent by which way
    #[arg(long)]
    explain: bool,

    /// Partitions of each task (default: one for each core)
    #[arg(long, value_name = "N")]
    partitions: Option<usize>,

    /// Bytes of files for each partition of a scan: less spreads small tables over more workers
    #[arg(long, value_name = "N")]
    scan_bytes: Option<usize>,

    /// The ways to workers, the best first, with a comma between two (default: shm,tls,tcp,ucx)
    #[arg(long, value_name = "SCHEME", value_delimiter = ',')]
    way: Vec<String>,

    /// The authorities of the workers' certificates, as a PEM file (default: the system's)
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
}

/// The workers of the command line.
struct Workers(Vec<Url>);

impl WorkerResolver for Workers {
    fn get_urls(&self) -> Result<Vec<Url>, DataFusionError> {
        Ok(self.0.clone())
    }
}

/// Runs the queries.
pub async fn run(args: Args) -> Result<()> {
    let mut queries = args.queries.clone();
    for file in &args.file {
        let text = std::fs::read_to_string(file);
        queries.push(text.with_context(|| format!("cannot read {}", file.display()))?);
    }
    if queries.is_empty() {
        bail!("there is no query: give one, or --file");
    }
    let context = session(&args)?;
    register(&context, &args).await?;
    for statement in queries.iter().flat_map(|text| statements(text)) {
        run_one(&context, statement, args.explain).await?;
    }
    Ok(())
}

fn session(args: &Args) -> Result<SessionContext> {
    let mut config = SessionConfig::new();
    if let Some(partitions) = args.partitions {
        config = config.with_target_partitions(partitions);
    }
    if args.workers.is_empty() {
        return Ok(SessionContext::new_with_config(config));
    }
    let mut options = ChannelOptions::new();
    if !args.way.is_empty() {
        options = options.ways(&args.way);
    }
    if let Some(file) = &args.tls_ca {
        options = options.client(dipc::Client::builder().max_idle(64).tls_ca(file));
    }
    let mut state = SessionStateBuilder::new()
        .with_default_features()
        .with_config(config)
        .with_distributed_planner()
        .with_distributed_worker_resolver(Workers(args.workers.clone()))
        .with_distributed_channel_resolver(DipcChannelResolver::new(options))
        .with_distributed_broadcast_joins(true)?;
    if let Some(bytes) = args.scan_bytes {
        state = state.with_distributed_file_scan_config_bytes_per_partition(bytes)?;
    }
    Ok(SessionContext::from(state.build()))
}

async fn register(context: &SessionContext, args: &Args) -> Result<()> {
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

/// The statements of a text, without comments of whole lines.
fn statements(text: &str) -> Vec<String> {
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("--"));
    let text = lines.collect::<Vec<_>>().join("\n");
    let statements = text.split(';').map(str::trim).filter(|it| !it.is_empty());
    statements.map(str::to_owned).collect()
}

async fn run_one(context: &SessionContext, statement: String, explains: bool) -> Result<()> {
    let frame = context.sql(&statement).await?;
    let plan = frame.create_physical_plan().await?;
    let batches = collect(Arc::clone(&plan), context.task_ctx()).await?;
    if !plan.schema().fields().is_empty() {
        println!("{}", pretty_format_batches(&batches)?);
    }
    if !explains {
        return Ok(());
    }
    if plan.downcast_ref::<DistributedExec>().is_none() {
        println!("{}", displayable(&*plan).indent(false));
        return Ok(());
    }
    let format = DistributedMetricsFormat::Aggregated;
    let plan = rewrite_distributed_plan_with_metrics(plan, format).await?;
    println!("{}", display_plan_ascii(&*plan, true));
    println!("{}", stages::report(&plan));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise of `--file`: statements end with a semicolon, and comments are left out.
    #[test]
    fn files_hold_several_statements() {
        let text = "-- a; b\nSELECT 1;\n\n  -- c\nSELECT\n2\n;;\n";
        assert_eq!(statements(text), ["SELECT 1", "SELECT\n2"]);
        assert!(statements("-- nothing").is_empty());
    }
}
