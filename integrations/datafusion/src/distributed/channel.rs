//! Requests to one worker: partitions over libdipc, everything else over gRPC.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion_distributed::grpc::create_worker_client;
use datafusion_distributed::{
    CoordinatorToWorkerMsg, DistributedConfig, ExecuteTaskRequest, GetWorkerInfoRequest,
    GetWorkerInfoResponse, SetPlanRequest, WorkerChannel, WorkerToCoordinatorMsg,
};
use dipc::crossing::arrow_59::{CrossedStream, stream};
use dipc::{AsyncReader, GetOptions, Headers, StreamStats};
use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use http::HeaderMap;

use super::figures::Figures;
use super::partition::Asking;
use super::peer::Peer;

/// Batches that a worker may send of one partition before they are read.
const WINDOW_BATCHES: u64 = 16;
/// The smallest part of the budget that a partition gets, in bytes.
const LEAST_WINDOW: usize = 1 << 20;

/// A [`WorkerChannel`] to one worker.
pub(super) struct DipcChannel(pub(super) Arc<Peer>);

#[async_trait]
impl WorkerChannel for DipcChannel {
    async fn coordinator_channel(
        &mut self,
        headers: HeaderMap,
        set_plan_request: SetPlanRequest,
        c2w_stream: BoxStream<'static, CoordinatorToWorkerMsg>,
        metrics: ExecutionPlanMetricsSet,
        task_ctx: &Arc<TaskContext>,
    ) -> Result<BoxStream<'static, Result<WorkerToCoordinatorMsg>>> {
        let peer = Arc::clone(&self.0);
        let mut grpc = create_worker_client(peer.channel().await?);
        let call =
            grpc.coordinator_channel(headers, set_plan_request, c2w_stream, metrics, task_ctx);
        let messages = peer
            .watched(call)
            .await
            .map_err(|error| peer.context(error))?;
        Ok(watched(messages, peer))
    }

    async fn execute_task(
        &mut self,
        headers: HeaderMap,
        request: ExecuteTaskRequest,
        metrics: ExecutionPlanMetricsSet,
        task_ctx: &Arc<TaskContext>,
    ) -> Result<Vec<BoxStream<'static, Result<RecordBatch>>>> {
        let peer = &self.0;
        if !peer.has_libdipc().await? {
            let mut grpc = create_worker_client(peer.channel().await?);
            let call = grpc.execute_task(headers, request, metrics, task_ctx);
            let streams = call.await.map_err(|error| peer.context(error))?;
            let watch = |stream| watched(stream, Arc::clone(peer));
            return Ok(streams.into_iter().map(watch).collect());
        }
        let partitions = request.target_partition_start..request.target_partition_end;
        let config = DistributedConfig::from_config_options(task_ctx.session_config().options())?;
        let budget = config.worker_connection_buffer_budget_bytes / partitions.len().max(1);
        let options = get_options(peer, &headers, budget.max(LEAST_WINDOW) as u64);
        let figures = Figures::new(metrics);
        let mut asking = Asking::new(request, task_ctx)?;
        let opening = partitions.map(|partition| {
            let (descriptor, options, figures) =
                (asking.descriptor(partition), &options, figures.clone());
            async move {
                let (reader, scheme) = peer.watched(peer.open(&descriptor, options)).await?;
                figures.opened(&scheme);
                Partition::new(reader, Arc::clone(peer), figures)
            }
        });
        let opened = futures::future::try_join_all(opening).await?;
        Ok(opened.into_iter().map(Partition::into_stream).collect())
    }

    async fn get_worker_info(
        &mut self,
        request: GetWorkerInfoRequest,
    ) -> Result<GetWorkerInfoResponse> {
        let peer = &self.0;
        let mut grpc = create_worker_client(peer.channel().await?);
        let info = peer.watched(grpc.get_worker_info(request)).await;
        info.map_err(|error| peer.context(error))
    }
}

fn get_options(peer: &Peer, headers: &HeaderMap, window: u64) -> GetOptions {
    let options = GetOptions::new()
        .connect_timeout(peer.options.connect_timeout)
        .window(WINDOW_BATCHES, window)
        .send_secrets(peer.options.send_secrets)
        .headers(headers_of(headers));
    match peer.options.stall_timeout {
        Some(limit) => options.stall_timeout(limit),
        None => options,
    }
}

/// The headers that libdipc can carry: HTTP allows more characters in a key.
fn headers_of(headers: &HeaderMap) -> Headers {
    let mut legal = Headers::new();
    for (key, value) in headers {
        let _ = legal.add(key.as_str(), value.as_bytes());
    }
    legal
}

/// The stream of a worker's gRPC channel, while the worker lives. Errors name the worker.
fn watched<T: Send + 'static>(
    stream: BoxStream<'static, Result<T>>,
    peer: Arc<Peer>,
) -> BoxStream<'static, Result<T>> {
    let next = |(mut stream, peer): (BoxStream<'static, Result<T>>, Arc<Peer>)| async move {
        let next = async { stream.try_next().await.map_err(|error| peer.context(error)) };
        let item = peer.watched(next).await?;
        Ok(item.map(|item| (item, (stream, peer))))
    };
    futures::stream::try_unfold((stream, peer), next).boxed()
}

/// A partition on its way in.
struct Partition {
    batches: CrossedStream,
    peer: Arc<Peer>,
    figures: Figures,
    counted: StreamStats,
}

impl Partition {
    fn new(reader: AsyncReader, peer: Arc<Peer>, figures: Figures) -> Result<Self> {
        Ok(Self {
            batches: stream(reader).map_err(|error| peer.error(error))?,
            counted: StreamStats::default(),
            peer,
            figures,
        })
    }

    fn into_stream(self) -> BoxStream<'static, Result<RecordBatch>> {
        let next = |mut this: Self| async move {
            let batch = this.next().await?;
            Ok(batch.map(|batch| (batch, this)))
        };
        futures::stream::try_unfold(self, next).boxed()
    }

    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let (batches, peer) = (&mut self.batches, &self.peer);
        let next = async { batches.try_next().await.map_err(|error| peer.error(error)) };
        let batch = peer.watched(next).await;
        let stats = self.batches.reader().stats();
        self.figures.add(&self.counted, &stats);
        self.counted = stats;
        batch
    }
}
