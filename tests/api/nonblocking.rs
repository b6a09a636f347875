//! Requests that a task waits for, under tokio and under an executor of no runtime.

use std::future::Future;
use std::time::Duration;

use arrow::array::RecordBatch;
use dipc::{AsyncReader, Client, GetOptions, PutOptions, Status};
use futures::TryStreamExt as _;

use crate::serving::Serving;
use crate::{schema, table};

/// Runs a task under tokio with one thread, and under an executor that knows no reactor.
fn under_each<F: Future<Output = ()>>(task: impl Fn(String) -> F) {
    for server in Serving::all() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(task(server.uri.clone()));
        futures::executor::block_on(task(server.uri.clone()));
    }
}

async fn all(reader: AsyncReader) -> Vec<RecordBatch> {
    reader.try_collect().await.unwrap()
}

/// Promise of `Client::get_async`: the same batches, and the same errors.
#[test]
fn tables_arrive_in_tasks() {
    under_each(|uri| async move {
        let client = Client::new().unwrap();
        let reader = client.get_async(&uri, "published").await.unwrap();
        assert_eq!(reader.schema(), schema());
        assert_eq!(all(reader).await, table(3));
        assert_eq!(
            all(client.get_async(&uri, "stream").await.unwrap())
                .await
                .len(),
            4
        );
        let error = client
            .get_async(&uri, "nothing")
            .await
            .map(drop)
            .unwrap_err();
        assert_eq!(error.status(), Status::NotFound);
        let broken = client.get_async(&uri, "broken").await.unwrap();
        let error = broken.try_collect::<Vec<_>>().await.unwrap_err();
        assert_eq!(error.status(), Status::Io);
    });
}

/// Promise of `AsyncReader`: a task that waits gives its thread to others, and one thread reads
/// many streams.
#[test]
fn one_thread_reads_many_streams() {
    under_each(|uri| async move {
        let client = Client::new().unwrap();
        let read = |_| async {
            let reader = client.get_async(&uri, "stream").await?;
            reader
                .try_fold(0, |rows, batch| async move { Ok(rows + batch.num_rows()) })
                .await
        };
        let rows = futures::future::try_join_all((0..20).map(read))
            .await
            .unwrap();
        assert_eq!(rows, [40; 20]);
    });
}

/// Promise of `Client::put_async` and `exchange_async`.
#[test]
fn tables_go_out_of_tasks() {
    under_each(|uri| async move {
        let client = Client::new().unwrap();
        let options = PutOptions::new();
        let mut put = client
            .put_async(&uri, "tasks", &schema(), &options)
            .await
            .unwrap();
        for batch in table(40) {
            put.push(batch).await.unwrap();
        }
        assert_eq!(put.finish().await.unwrap(), 40);
        assert_eq!(
            put.next_result().await.unwrap(),
            Some((1, b"the first".to_vec()))
        );
        assert_eq!(
            all(client.get_async(&uri, "tasks").await.unwrap()).await,
            table(40)
        );

        let both = (&options, &GetOptions::new());
        let exchanged = client.exchange_async(&uri, "twice", &schema(), both).await;
        let (mut put, reader) = exchanged.unwrap();
        let send = async {
            for batch in table(40) {
                put.push(batch).await?;
            }
            put.finish().await
        };
        let (sent, got) = futures::future::join(send, all(reader)).await;
        sent.unwrap();
        assert_eq!(got.len(), 80);
        assert_eq!(got[79], table(40)[39]);
    });
}

/// Promise of `describe_async` and `list_async`.
#[test]
fn tables_are_described_to_tasks() {
    under_each(|uri| async move {
        let (client, options) = (Client::new().unwrap(), GetOptions::new());
        let description = client.describe_async(&uri, "published", &options).await;
        assert_eq!(description.unwrap().total_rows(), Some(3000));
        let tables = client.list_async(&uri, "pub", &options).await.unwrap();
        assert_eq!(tables.len(), 1);
        assert_eq!(tables[0].total_rows(), Some(3000));
    });
}

/// Promise of the module: the drop of a task ends its stream, and the server goes on.
#[test]
fn a_dropped_task_ends_its_stream() {
    let server = Serving::start("tcp://127.0.0.1:0");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let client = Client::new().unwrap();
        for _ in 0..80 {
            let mut reader = client.get_async(&server.uri, "endless").await.unwrap();
            let take = async { while reader.try_next().await.unwrap().is_some() {} };
            let late = tokio::time::timeout(Duration::from_millis(2), take).await;
            assert!(late.is_err());
        }
        let reader = client.get_async(&server.uri, "published").await.unwrap();
        assert_eq!(all(reader).await, table(3));
    });
}
