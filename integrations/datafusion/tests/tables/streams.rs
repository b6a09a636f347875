//! Streams that end before their tables do.

use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::prelude::SessionContext;
use dipc::Status;
use dipc_datafusion::DipcServer;
use futures::StreamExt as _;
use tokio::time::{sleep, timeout};

use crate::server::Serving;
use crate::{bare, context, numbers, status};

/// More than any step of these tests takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A context with the table "endless", of which the server is asked nothing but for queries.
fn with_endless(uri: &str) -> SessionContext {
    let context = context(uri);
    let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
    let table = DipcServer::new(uri).unwrap();
    let table = table.table_with_schema("endless", schema);
    context.register_table("endless", Arc::new(table)).unwrap();
    context
}

/// How many streams of "endless" the server has seen begin, or end.
async fn seen(context: &SessionContext, what: &str) -> i64 {
    numbers(context, &format!("SELECT n FROM dipc.public.{what}")).await[0]
}

async fn wait_for(context: &SessionContext, what: &str, count: i64) {
    let all = async {
        while seen(context, what).await < count {
            sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = timeout(PATIENCE, all).await;
    waited.unwrap_or_else(|_| panic!("the server has not seen {count} streams {what}"));
}

/// Promise of `DipcTableProvider`: a query with a limit ends its stream at the server, before the
/// query itself is dropped.
#[tokio::test]
async fn limits_end_streams() {
    let server = Serving::start();
    for (uri, before) in server.uris.iter().zip([0, 1]) {
        let context = with_endless(uri);
        let query = "SELECT n FROM endless LIMIT 25";
        let query = context.sql(query).await.unwrap();
        let mut stream = query.execute_stream().await.unwrap();
        let mut rows = 0;
        while rows < 25 {
            rows += stream.next().await.unwrap().unwrap().num_rows();
        }
        assert_eq!(rows, 25);
        wait_for(&context, "ended", before + 1).await;
        assert!(stream.next().await.is_none());
    }
}

/// Promise of `DipcTableProvider`: the drop of a query ends its stream at the server, also where
/// another task waits for it.
#[tokio::test]
async fn drops_end_streams() {
    let server = Serving::start();
    for (uri, before) in server.uris.iter().zip([0, 2]) {
        let context = with_endless(uri);
        let query = context.sql("SELECT n + 1 FROM endless").await.unwrap();
        let mut stream = query.execute_stream().await.unwrap();
        assert!(stream.next().await.unwrap().unwrap().num_rows() > 0);
        assert_eq!(seen(&context, "ended").await, before);
        drop(stream);
        wait_for(&context, "ended", before + 1).await;

        let counting = context.sql("SELECT sum(n) FROM endless").await.unwrap();
        let task = tokio::spawn(counting.collect());
        wait_for(&context, "begun", before + 2).await;
        assert_eq!(seen(&context, "ended").await, before + 1);
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        wait_for(&context, "ended", before + 2).await;
    }
}

/// Promise of `DipcTableProvider`: the end of a server's process is an error of the query.
#[tokio::test]
async fn killed_servers_fail_queries() {
    for place in [0, 1] {
        let mut server = Serving::start();
        let uri = server.uris[place].clone();
        let context = context(&uri);
        let query = "SELECT n FROM dipc.public.endless";
        let mut stream = context
            .sql(query)
            .await
            .unwrap()
            .execute_stream()
            .await
            .unwrap();
        assert!(stream.next().await.unwrap().unwrap().num_rows() > 0);
        server.kill();
        let last = async {
            loop {
                match stream.next().await {
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return error,
                    None => panic!("the table seems to be complete"),
                }
            }
        };
        let error = timeout(PATIENCE, last).await.expect("the query hangs");
        assert_eq!(status(&error), Status::Disconnected);
        let text = error.to_string();
        assert!(
            text.contains(&format!("the table endless at {}: ", bare(&uri))),
            "{text}"
        );
    }
}

/// Bytes of bodies that the scan of a query has brought.
async fn brought(context: &SessionContext, query: &str) -> usize {
    let frame = context.sql(query).await.unwrap();
    let plan = frame.create_physical_plan().await.unwrap();
    let task = context.task_ctx();
    datafusion::physical_plan::collect(Arc::clone(&plan), task)
        .await
        .unwrap();
    let mut scan = plan;
    while let Some(input) = scan.children().first().map(|input| Arc::clone(input)) {
        scan = input;
    }
    assert_eq!(scan.name(), "DipcScanExec");
    let metrics = scan.metrics().unwrap();
    let sum = |name| metrics.sum_by_name(name).map_or(0, |sum| sum.as_usize());
    sum("bytes_lent") + sum("bytes_received")
}

/// Promise of `DipcTableProvider`: columns and rows that a query does not need, or drops, are not
/// sent.
#[tokio::test]
async fn only_wanted_columns_and_rows_are_sent() {
    let server = Serving::start();
    for uri in &server.uris {
        let context = context(uri);
        // 1000 rows of two columns of eight bytes each.
        for (query, least, most) in [
            ("SELECT * FROM dipc.public.prices", 16_000, 17_000),
            ("SELECT price FROM dipc.public.prices", 8_000, 9_000),
            ("SELECT price FROM dipc.public.prices LIMIT 10", 80, 200),
            (
                "SELECT price FROM dipc.public.prices WHERE id > 989",
                80,
                200,
            ),
        ] {
            let bytes = brought(&context, query).await;
            assert!((least..most).contains(&bytes), "{query}: {bytes} bytes");
        }
    }
}
