//! The rate of partitions between workers and their reader, without the rest of a query.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, ensure};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::execution::TaskContext;
use datafusion::physical_expr::Partitioning;
use datafusion::physical_expr::expressions::col;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_distributed::{
    ChannelResolver as _, ExecuteTaskRequest, MaybeEncoded, ProducerHead, SetPlanRequest, TaskKey,
    WorkerToCoordinatorMsg,
};
use dipc_datafusion::DipcChannelResolver;
use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::task::JoinSet;
use url::Url;
use uuid::Uuid;

use super::median;
use super::workers::Workers;
use crate::session::{self, Compression, channels, session};

/// The way with which the others are compared.
const PEER: &str = "grpc";
/// Partitions that one reader reads of each worker.
const PARTITIONS: usize = 8;

/// Options of `dipc-sql bench shuffle`.
#[derive(clap::Args)]
pub struct Args {
    /// Ways to compare with grpc, with a comma between two
    #[arg(
        long,
        value_name = "SCHEME",
        value_delimiter = ',',
        default_value = "shm,tcp"
    )]
    way: Vec<String>,

    /// Rows in all
    #[arg(long, value_name = "N", default_value = "1000000")]
    rows: usize,

    /// Rows of each batch that a worker has
    #[arg(long, value_name = "N", default_value = "1024")]
    batch_rows: usize,

    /// Workers and readers, as many of one as of the other, with a comma between two figures
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,8")]
    tasks: Vec<usize>,

    /// How many times each way is measured; the median counts
    #[arg(long, value_name = "N", default_value = "5")]
    rounds: usize,

    /// Compresses what travels over grpc
    #[arg(long, value_name = "CODEC", default_value = "none")]
    grpc_compression: Compression,
}

/// What a worker does for its partitions.
#[derive(Clone, Copy)]
enum Work {
    /// They lie ready in its memory.
    Ready,
    /// The worker spreads its rows by their hash.
    Hash,
}

/// Workers, and the plans for them.
struct Scenario {
    workers: Vec<Url>,
    /// A plan for each worker, encoded.
    plans: Vec<Vec<u8>>,
    head: ProducerHead,
    rows: usize,
    bytes: usize,
    context: Arc<TaskContext>,
    headers: HeaderMap,
}

/// Measures, and prints a line for each scenario.
pub async fn run(args: Args) -> Result<()> {
    let ways: Vec<&str> = args
        .way
        .iter()
        .map(|way| &**way)
        .filter(|way| *way != PEER)
        .collect();
    let mut names = String::from("| tasks | partitions | grpc MB/s |");
    let mut rule = String::from("|---|---|---:|");
    for way in &ways {
        names.push_str(&format!(" {way} MB/s | ratio |"));
        rule.push_str("---:|---:|");
    }
    println!("{names}\n{rule}");
    for tasks in &args.tasks {
        let workers = Workers::start(*tasks, "shm").await?;
        for (work, name) in [(Work::Ready, "ready"), (Work::Hash, "hashed")] {
            let scenario = Scenario::new(workers.urls(), work, &args).await?;
            let rates = scenario.compare(&ways, args.rounds).await?;
            let mut line = format!("| {tasks} → {tasks} | {name} | {:.0} |", rates[0]);
            for rate in &rates[1..] {
                line.push_str(&format!(" {rate:.0} | {:.2} |", rate / rates[0]));
            }
            println!("{line}");
        }
    }
    Ok(())
}

impl Scenario {
    async fn new(workers: Vec<Url>, work: Work, args: &Args) -> Result<Self> {
        let options = session::Args {
            workers: workers.clone(),
            ..Default::default()
        };
        let context = session(&options)?.task_ctx();
        let batches = batches(args.rows, args.batch_rows).await?;
        let bytes = batches.iter().map(size).sum();
        let readers = workers.len();
        let schema = batches.first().context("there are no rows")?.schema();
        let partitions = PARTITIONS * readers;
        let (head, in_worker) = match work {
            Work::Ready => (ProducerHead::None, partitions),
            Work::Hash => {
                let by = Partitioning::Hash(vec![col("id", &schema)?], partitions);
                let partitioning = MaybeEncoded::Decoded(by);
                (ProducerHead::RepartitionExec { partitioning }, 1)
            }
        };
        let plans = dealt(batches, readers).into_iter().map(|share| {
            let each = dealt(share, in_worker);
            let plan = MemorySourceConfig::try_new_exec(&each, Arc::clone(&schema), None)?;
            Ok(MaybeEncoded::Decoded(plan as Arc<dyn ExecutionPlan>).encode(&context)?)
        });
        let plans = plans.collect::<Result<_>>()?;
        let mut headers = HeaderMap::new();
        headers.insert(
            HeaderName::from_static("x-datafusion-distributed-config-distributed.compression"),
            HeaderValue::from_static(args.grpc_compression.name()),
        );
        Ok(Self {
            workers,
            plans,
            head,
            rows: args.rows,
            bytes,
            context,
            headers,
        })
    }

    /// The median rates of the peer and of all ways, in MB a second.
    async fn compare(&self, ways: &[&str], rounds: usize) -> Result<Vec<f64>> {
        let all = std::iter::once(&PEER).chain(ways);
        let all: Vec<_> = all
            .map(|way| channels(&[(*way).to_owned()], None))
            .collect();
        let mut rates = vec![Vec::new(); all.len()];
        // The first round makes connections.
        for round in 0..=rounds {
            for (resolver, rates) in all.iter().zip(&mut rates) {
                let seconds = self.measure(resolver).await?.as_secs_f64();
                #[expect(clippy::cast_precision_loss, reason = "a rate")]
                let rate = self.bytes as f64 / seconds / 1e6;
                if round > 0 {
                    rates.push(rate);
                }
            }
        }
        Ok(rates.into_iter().map(median).collect())
    }

    /// The time from the first request to the last batch. Each reader reads its partitions of all
    /// workers.
    async fn measure(&self, resolver: &DipcChannelResolver) -> Result<Duration> {
        let query = Uuid::new_v4();
        let mut coordinating = Vec::new();
        for worker in 0..self.workers.len() {
            coordinating.push(self.set_plan(resolver, query, worker).await?);
        }
        let begun = Instant::now();
        let mut reading = JoinSet::new();
        for reader in 0..self.workers.len() {
            for worker in 0..self.workers.len() {
                let request = ExecuteTaskRequest {
                    task_key: self.key(query, worker),
                    target_partition_start: reader * PARTITIONS,
                    target_partition_end: (reader + 1) * PARTITIONS,
                    producer_head: self.head.clone(),
                };
                let url = &self.workers[worker];
                let mut channel = resolver.get_worker_client_for_url(url).await?;
                let (headers, context) = (self.headers.clone(), Arc::clone(&self.context));
                reading.spawn(async move {
                    let metrics = ExecutionPlanMetricsSet::new();
                    let streams = channel.execute_task(headers, request, metrics, &context);
                    let each = streams.await?.into_iter().map(count);
                    Ok(futures::future::try_join_all(each)
                        .await?
                        .into_iter()
                        .sum::<usize>())
                });
            }
        }
        let counts = reading.join_all().await.into_iter();
        let rows = counts.sum::<datafusion::common::Result<usize>>()?;
        let taken = begun.elapsed();
        ensure!(rows == self.rows, "{rows} of {} rows have come", self.rows);
        Ok(taken)
    }

    /// Sends a worker its plan, which is valid as long as the stream.
    async fn set_plan(
        &self,
        resolver: &DipcChannelResolver,
        query: Uuid,
        worker: usize,
    ) -> Result<BoxStream<'static, datafusion::common::Result<WorkerToCoordinatorMsg>>> {
        let url = &self.workers[worker];
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        let request = SetPlanRequest {
            task_key: self.key(query, worker),
            task_count: self.workers.len(),
            plan: MaybeEncoded::Encoded(self.plans[worker].clone()),
            work_unit_feed_declarations: Vec::new(),
            target_worker_url: url.clone(),
            query_start_time_ns: usize::try_from(now.as_nanos())?,
        };
        let mut channel = resolver.get_worker_client_for_url(url).await?;
        let messages = channel.coordinator_channel(
            self.headers.clone(),
            request,
            stream::pending().boxed(),
            ExecutionPlanMetricsSet::new(),
            &self.context,
        );
        Ok(messages.await?)
    }

    fn key(&self, query_id: Uuid, task_number: usize) -> TaskKey {
        TaskKey {
            query_id,
            stage_id: 0,
            task_number,
        }
    }
}

/// The rows of a partition.
async fn count(
    stream: BoxStream<'static, datafusion::common::Result<RecordBatch>>,
) -> datafusion::common::Result<usize> {
    let add = |rows, batch: RecordBatch| async move { Ok(rows + batch.num_rows()) };
    stream.try_fold(0, add).await
}

/// The batches by turns in `count` shares.
fn dealt(batches: Vec<RecordBatch>, count: usize) -> Vec<Vec<RecordBatch>> {
    let mut shares = vec![Vec::new(); count];
    for (number, batch) in batches.into_iter().enumerate() {
        shares[number % count].push(batch);
    }
    shares
}

/// Bytes of the values, without the unused bytes of the buffers.
fn size(batch: &RecordBatch) -> usize {
    let columns = batch.columns().iter();
    let each = columns.map(|column| column.to_data().get_slice_memory_size().unwrap_or(0));
    each.sum()
}

/// Rows of numbers, texts, a dictionary and a list, with nulls.
async fn batches(rows: usize, batch_rows: usize) -> Result<Vec<RecordBatch>> {
    let config = SessionConfig::new()
        .with_batch_size(batch_rows)
        .with_target_partitions(1);
    let sql = format!(
        "SELECT value AS id, value * 0.5 AS metric, nullif(value % 3, 2) = 0 AS flag, \
         arrow_cast(nullif(concat('label ', value % 997), 'label 5'), 'Utf8') AS label, \
         arrow_cast(concat('category ', value % 10), 'Dictionary(Int32, Utf8)') AS category, \
         arrow_cast(value % 251, 'UInt8') AS raw, to_timestamp(value) AS ts, \
         arrow_cast(value % 10000, 'Int32') AS count, \
         arrow_cast(make_array(concat('tag ', value % 7), 'tag'), 'List(Utf8)') AS tags \
         FROM generate_series(1, {rows})"
    );
    let frame = SessionContext::new_with_config(config).sql(&sql).await?;
    Ok(frame.collect().await?)
}
