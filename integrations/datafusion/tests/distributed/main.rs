//! Queries of datafusion-distributed on worker processes that shuffle over libdipc.

#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in tests a panic is how a failure shows"
)]

mod cluster;
mod failures;
mod partitions;
mod queries;
mod served;
#[cfg(feature = "cli")]
mod tls;

use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::common::cast::as_int64_array;
use datafusion::common::{Result, resources_err};
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::{ColumnarValue, ScalarUDF, Volatility, create_udf};
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use datafusion_distributed::{
    DistributedExt as _, DistributedMetricsFormat, NetworkBoundaryExt as _,
    SessionStateBuilderExt as _, WorkerResolver, rewrite_distributed_plan_with_metrics,
};
use dipc_datafusion::{ChannelOptions, DipcChannelResolver, DipcTables};
use http::HeaderMap;
use tempfile::TempDir;
use url::Url;

/// Rows of the table `facts`.
const ROWS: usize = 200_000;

/// Options that find out soon that a worker has stopped, and keep no connection for long.
fn options() -> ChannelOptions {
    let client = dipc::Client::builder().max_idle(64);
    ChannelOptions::new()
        .client(client.idle_timeout(Duration::from_secs(1)))
        .silence(Duration::from_secs(1))
        .answer_timeout(Duration::from_secs(3))
}

/// The tables `facts` and `names` as files of Parquet, which end with this value.
struct Tables(TempDir);

impl Tables {
    async fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let context = SessionContext::new();
        for part in 0..4 {
            let (first, last) = (part * ROWS / 4, (part + 1) * ROWS / 4 - 1);
            let path = folder.path().join(format!("facts/{part}.parquet"));
            let facts = format!(
                "COPY (SELECT value AS id, value % 97 AS k, value * 0.5 AS price, \
                 CASE WHEN value % 5 = 0 THEN NULL ELSE concat('text ', value % 1000) END AS t \
                 FROM generate_series({first}, {last})) TO '{}' STORED AS PARQUET",
                path.display()
            );
            context.sql(&facts).await.unwrap().collect().await.unwrap();
        }
        let path = folder.path().join("names/0.parquet");
        let names = format!(
            "COPY (SELECT value AS k, concat('name ', value) AS name FROM generate_series(0, 90)) \
             TO '{}' STORED AS PARQUET",
            path.display()
        );
        context.sql(&names).await.unwrap().collect().await.unwrap();
        Self(folder)
    }

    #[cfg(feature = "cli")]
    fn folder(&self) -> &std::path::Path {
        self.0.path()
    }

    async fn register(&self, context: SessionContext) -> SessionContext {
        for name in ["facts", "names"] {
            let path = self.0.path().join(name);
            let options = ParquetReadOptions::default();
            let path = path.to_str().unwrap();
            (context.register_parquet(name, path, options).await).unwrap();
        }
        context
    }

    /// A session of this process alone.
    async fn alone(&self) -> SessionContext {
        let config = SessionConfig::new().with_target_partitions(4);
        let context = SessionContext::new_with_config(config);
        context.register_udf(nap());
        context.register_udf(exhaust());
        self.register(context).await
    }

    /// A session whose queries run on workers.
    async fn on(&self, workers: Vec<Url>, options: ChannelOptions) -> SessionContext {
        self.with_headers(workers, options, HeaderMap::new()).await
    }

    async fn with_headers(
        &self,
        workers: Vec<Url>,
        options: ChannelOptions,
        headers: HeaderMap,
    ) -> SessionContext {
        let config = SessionConfig::new().with_target_partitions(4);
        let state = SessionStateBuilder::new()
            .with_default_features()
            .with_config(config)
            .with_distributed_planner()
            .with_distributed_worker_resolver(Workers(workers))
            .with_distributed_channel_resolver(DipcChannelResolver::new(options))
            .with_distributed_file_scan_config_bytes_per_partition(1)
            .unwrap()
            .with_distributed_passthrough_headers(headers)
            .unwrap();
        let state = DipcTables::new().unwrap().register(state);
        let context = SessionContext::from(state.build());
        context.register_udf(nap());
        context.register_udf(exhaust());
        self.register(context).await
    }
}

struct Workers(Vec<Url>);

impl WorkerResolver for Workers {
    fn get_urls(&self) -> Result<Vec<Url>> {
        Ok(self.0.clone())
    }
}

/// A function that gives its argument after a while, for queries that last.
fn nap() -> ScalarUDF {
    let nap = |arguments: &[ColumnarValue]| {
        if let ColumnarValue::Array(array) = &arguments[0] {
            as_int64_array(array)?;
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(arguments[0].clone())
    };
    let number = datafusion::arrow::datatypes::DataType::Int64;
    create_udf(
        "nap",
        vec![number.clone()],
        number,
        Volatility::Volatile,
        Arc::new(nap),
    )
}

/// A function that fails as a plan does whose memory pool is full.
fn exhaust() -> ScalarUDF {
    let exhaust = |_: &[ColumnarValue]| resources_err!("no more memory");
    let number = datafusion::arrow::datatypes::DataType::Int64;
    create_udf(
        "exhaust",
        vec![number.clone()],
        number,
        Volatility::Volatile,
        Arc::new(exhaust),
    )
}

/// The result of a query, as text.
async fn text(context: &SessionContext, sql: &str) -> Result<String> {
    let batches = context.sql(sql).await?.collect().await?;
    Ok(pretty_format_batches(&batches)?.to_string())
}

/// The result of a query, and its plan behind it.
async fn text_and_plan(context: &SessionContext, sql: &str) -> (String, Arc<dyn ExecutionPlan>) {
    let frame = context.sql(sql).await.unwrap();
    let plan = frame.create_physical_plan().await.unwrap();
    let batches = collect(Arc::clone(&plan), context.task_ctx())
        .await
        .unwrap();
    let format = DistributedMetricsFormat::Aggregated;
    let plan = rewrite_distributed_plan_with_metrics(plan, format).await;
    let text = pretty_format_batches(&batches).unwrap().to_string();
    (text, plan.unwrap())
}

/// The sum of a metric over all nodes that read from workers.
fn metric(plan: &Arc<dyn ExecutionPlan>, name: &str) -> usize {
    let own = plan.metrics().filter(|_| plan.is_network_boundary());
    let own = own.iter().flat_map(|metrics| metrics.iter());
    let own = own.filter(|metric| metric.value().name() == name);
    let below = plan.children().into_iter().map(|child| metric(child, name));
    own.map(|metric| metric.value().as_usize()).sum::<usize>() + below.sum::<usize>()
}
