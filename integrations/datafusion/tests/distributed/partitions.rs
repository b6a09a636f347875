//! The partitions of one task, read by hand.

use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::Result;
use datafusion::physical_expr::Partitioning;
use datafusion::physical_expr::expressions::col;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion_distributed::{
    ChannelResolver as _, ExecuteTaskRequest, MaybeEncoded, ProducerHead, SetPlanRequest, TaskKey,
    WorkerChannel,
};
use dipc::{Client, Status};
use dipc_datafusion::DipcChannelResolver;
use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use http::HeaderMap;
use uuid::Uuid;

use crate::cluster::{self, WorkerProcess};
use crate::{ROWS, Tables, options};

type Stream = BoxStream<'static, Result<RecordBatch>>;

async fn rows(stream: Stream) -> usize {
    let count = stream.try_fold(0, |rows, batch| async move { Ok(rows + batch.num_rows()) });
    let counted = tokio::time::timeout(Duration::from_secs(60), count).await;
    counted.expect("the partition hangs").unwrap()
}

/// Has a worker repartition `facts`, and opens the partitions. Calls `test` with them.
async fn with_partitions(
    worker: &WorkerProcess,
    count: usize,
    test: impl AsyncFnOnce(Vec<Stream>),
) {
    let tables = Tables::new().await;
    let context = tables.alone().await;
    let scan = context.sql("SELECT id, k, t FROM facts").await.unwrap();
    let plan = scan.create_physical_plan().await.unwrap();
    let key = col("id", &plan.schema()).unwrap();
    let session = tables.on(vec![worker.url.clone()], options()).await;
    let task_context = session.task_ctx();
    let resolver = DipcChannelResolver::new(options());
    let channel = resolver.get_worker_client_for_url(&worker.url).await;
    let mut channel: Box<dyn WorkerChannel> = channel.unwrap();
    let task_key = TaskKey {
        query_id: Uuid::from_u128(count as u128),
        stage_id: 1,
        task_number: 0,
    };
    let set_plan = SetPlanRequest {
        task_key,
        task_count: 1,
        plan: MaybeEncoded::Decoded(plan),
        work_unit_feed_declarations: Vec::new(),
        target_worker_url: worker.url.clone(),
        query_start_time_ns: 1,
    };
    let metrics = ExecutionPlanMetricsSet::new;
    let messages = channel
        .coordinator_channel(
            HeaderMap::new(),
            set_plan,
            futures::stream::pending().boxed(),
            metrics(),
            &task_context,
        )
        .await
        .unwrap();
    let partitioning = Partitioning::Hash(vec![key], count);
    let request = ExecuteTaskRequest {
        task_key,
        target_partition_start: 0,
        target_partition_end: count,
        producer_head: ProducerHead::RepartitionExec {
            partitioning: MaybeEncoded::Decoded(partitioning),
        },
    };
    let streams = channel.execute_task(HeaderMap::new(), request, metrics(), &task_context);
    test(streams.await.unwrap()).await;
    drop(messages);
}

/// Promise of the crate: a partition that nobody reads holds up no other, and a dropped one ends
/// that one alone.
#[tokio::test(flavor = "multi_thread")]
async fn an_unread_partition_holds_up_no_other() {
    for place in ["shm", "tcp"] {
        let worker = WorkerProcess::start(place, None);
        with_partitions(&worker, 2, async |streams| {
            let [unread, read] = <[Stream; 2]>::try_from(streams).ok().unwrap();
            let second = rows(read).await;
            assert!(second > ROWS / 3, "{second} rows");
            assert_eq!(rows(unread).await + second, ROWS);
        })
        .await;
        with_partitions(&worker, 3, async |streams| {
            let [dropped, first, second] = <[Stream; 3]>::try_from(streams).ok().unwrap();
            drop(dropped);
            let (first, second) = futures::future::join(rows(first), rows(second)).await;
            assert!(
                first > ROWS / 4 && second > ROWS / 4,
                "{first} and {second} rows"
            );
        })
        .await;
    }
}

/// Promise of the worker: what is no request for a partition is refused, and the worker goes on.
#[tokio::test(flavor = "multi_thread")]
async fn hostile_requests_are_refused() {
    let workers = cluster::start(1, "shm tcp");
    let client = Arc::new(Client::new().unwrap());
    for uri in &workers[0].uris {
        for (descriptor, status) in [
            (&b""[..], Status::InvalidArgument),
            (b"\x01", Status::InvalidArgument),
            (b"\x01\xff\xff\xff\xff", Status::InvalidArgument),
            (b"lineitem", Status::Unsupported),
        ] {
            let got = client.get_async(uri, descriptor).await;
            assert_eq!(
                got.map(drop).unwrap_err().status(),
                status,
                "{descriptor:?}"
            );
        }
        let described = client.describe(uri, "lineitem");
        assert_eq!(described.unwrap_err().status(), Status::Unsupported);
    }
    with_partitions(&workers[0], 1, async |mut streams| {
        assert_eq!(rows(streams.remove(0)).await, ROWS);
    })
    .await;
}
