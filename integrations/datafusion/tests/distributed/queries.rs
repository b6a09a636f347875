//! Results of distributed queries.

use http::{HeaderMap, HeaderValue};

use crate::cluster::{self, WorkerProcess, urls};
use crate::{Tables, metric, options, text, text_and_plan};

/// Queries of shuffles, broadcasts and plain stages.
const QUERIES: [&str; 8] = [
    "SELECT k, count(*) AS n, sum(price) AS s, min(t) AS low, max(t) AS high \
     FROM facts GROUP BY k ORDER BY k",
    "SELECT name, count(*) AS n, sum(f.id) AS s FROM facts f JOIN names USING (k) \
     GROUP BY name ORDER BY name",
    "SELECT a.t, count(*) AS n FROM facts a JOIN facts b ON a.id = b.id WHERE b.k < 9 \
     GROUP BY a.t ORDER BY a.t NULLS FIRST",
    "SELECT count(*) FROM facts WHERE k > 50",
    "SELECT id, t FROM facts WHERE k = 13 ORDER BY id DESC LIMIT 500",
    "SELECT count(DISTINCT t) AS n FROM facts WHERE id > 100000",
    // Batches without columns.
    "SELECT count(*) AS n FROM facts f, names n WHERE f.k < 3 AND n.k < 50",
    // Dictionaries and nested types.
    "SELECT id, arrow_cast(t, 'Dictionary(Int32, Utf8)') AS d, make_array(id, k) AS l, \
     named_struct('a', id, 'b', t) AS s, arrow_cast(id, 'Decimal128(20, 3)') AS n \
     FROM facts WHERE id % 1000 < 5 ORDER BY id",
];

/// Runs all queries on four workers. Gives the bytes that were lent and those that were received.
async fn same_results(places: &str, ways: &[&str], scheme: &str) -> (usize, usize) {
    let tables = Tables::new().await;
    let workers = cluster::start(4, places);
    let options = options().ways(ways.iter().copied());
    let (alone, on) = (
        tables.alone().await,
        tables.on(urls(&workers), options).await,
    );
    let (mut lent, mut received) = (0, 0);
    for sql in QUERIES {
        let (got, plan) = text_and_plan(&on, sql).await;
        assert_eq!(got, text(&alone, sql).await.unwrap(), "{sql}");
        assert!(
            metric(&plan, &format!("dipc_streams_{scheme}")) > 0,
            "{sql}"
        );
        lent += metric(&plan, "dipc_bytes_lent");
        received += metric(&plan, "dipc_bytes_received");
        assert_eq!(
            metric(&plan, "bytes_transferred"),
            metric(&plan, "dipc_bytes_lent") + metric(&plan, "dipc_bytes_received"),
        );
    }
    (lent, received)
}

/// Promise of the crate: between processes of one machine the shuffles lie in shared memory.
#[tokio::test(flavor = "multi_thread")]
async fn shuffles_over_shared_memory() {
    let (lent, _) = same_results("shm tcp", &["shm", "tcp"], "shm").await;
    assert!(lent > 1 << 18, "{lent} bytes were lent");
}

/// Promise of the crate: where memory is not shared, the bytes come through connections.
#[tokio::test(flavor = "multi_thread")]
async fn shuffles_over_tcp() {
    let (lent, received) = same_results("tcp", &["shm", "tcp"], "tcp").await;
    assert_eq!(lent, 0);
    assert!(received > 1 << 18, "{received} bytes were received");
}

/// Promise of the crate: also where the engine sizes stages while it runs.
#[tokio::test(flavor = "multi_thread")]
async fn stages_are_sized_while_they_run() {
    let tables = Tables::new().await;
    let workers = cluster::start(3, "shm tcp");
    let on = tables.on(urls(&workers), options()).await;
    let alone = tables.alone().await;
    for (name, value) in [
        ("dynamic_task_count", "true"),
        ("dynamic_bytes_per_partition", "1000"),
    ] {
        let sql = format!("SET distributed.{name} = {value}");
        on.sql(&sql).await.unwrap().collect().await.unwrap();
    }
    for sql in QUERIES {
        let (got, plan) = text_and_plan(&on, sql).await;
        assert_eq!(got, text(&alone, sql).await.unwrap(), "{sql}");
        assert!(metric(&plan, "dipc_streams_shm") > 0, "{sql}");
    }
}

/// Promise of the crate: queries that wait for the same workers do not wait for one another.
#[tokio::test(flavor = "multi_thread")]
async fn many_queries_run_at_once() {
    let tables = Tables::new().await;
    let workers = cluster::start(3, "shm tcp");
    let on = tables.on(urls(&workers), options()).await;
    let alone = tables.alone().await;
    let mut expected = Vec::new();
    for sql in QUERIES {
        expected.push(text(&alone, sql).await.unwrap());
    }
    let queries = (0..24).map(|number| text(&on, QUERIES[number % QUERIES.len()]));
    for (number, got) in futures::future::join_all(queries).await.iter().enumerate() {
        assert_eq!(got.as_ref().unwrap(), &expected[number % QUERIES.len()]);
    }
}

/// Promise of the crate: batches that are larger than what a partition may send ahead go through.
#[tokio::test(flavor = "multi_thread")]
async fn large_batches_pass_small_windows() {
    let sql = "SELECT a.k, sum(length(b.w)) AS n FROM facts a \
               JOIN (SELECT id, repeat(coalesce(t, 'none'), 300) AS w FROM facts) b \
               ON a.id = b.id GROUP BY a.k ORDER BY a.k";
    let tables = Tables::new().await;
    let workers = cluster::start(2, "shm tcp");
    let on = tables.on(urls(&workers), options()).await;
    let least = "SET distributed.worker_connection_buffer_budget_bytes = 1";
    on.sql(least).await.unwrap().collect().await.unwrap();
    let (got, plan) = text_and_plan(&on, sql).await;
    let alone = tables.alone().await;
    assert_eq!(got, text(&alone, sql).await.unwrap());
    let bytes = metric(&plan, "bytes_transferred");
    assert!(bytes > 100 << 20, "{bytes} bytes");
}

/// Promise of `ChannelOptions::ways`: what is not named is not used, and an error says what there
/// is.
#[tokio::test(flavor = "multi_thread")]
async fn only_the_named_ways_are_used() {
    let tables = Tables::new().await;
    let workers = cluster::start(2, "shm tcp");
    let with = async |way: &str| {
        let on = tables.on(urls(&workers), options().ways([way])).await;
        text(&on, QUERIES[3]).await
    };
    let alone = tables.alone().await;
    assert_eq!(
        with("tcp").await.unwrap(),
        text(&alone, QUERIES[3]).await.unwrap()
    );
    let error = with("tls").await.unwrap_err().to_string();
    let named = |worker: &&WorkerProcess| error.contains(worker.url.as_str());
    let named = workers.iter().find(named).expect("the worker");
    assert!(error.contains(&named.uris[1]), "{error}");
}

/// Promise of `DipcChannelResolver`: workers without libdipc are reached over gRPC.
#[tokio::test(flavor = "multi_thread")]
async fn workers_without_libdipc_take_part() {
    let tables = Tables::new().await;
    let workers = cluster::start(2, "");
    let on = tables.on(urls(&workers), options()).await;
    let (got, plan) = text_and_plan(&on, QUERIES[0]).await;
    let alone = tables.alone().await;
    assert_eq!(got, text(&alone, QUERIES[0]).await.unwrap());
    assert!(metric(&plan, "bytes_transferred") > 0);
    assert_eq!(metric(&plan, "dipc_bytes_lent"), 0);
}

/// Promise of the crate: headers of the session reach the worker's authorizer, through other
/// workers too, and a refusal names the worker.
#[tokio::test(flavor = "multi_thread")]
async fn headers_reach_the_workers() {
    let tables = Tables::new().await;
    let start = |_| WorkerProcess::start("shm tcp", Some("secret"));
    let workers: Vec<_> = (0..3).map(start).collect();
    let headers = |token| {
        let mut headers = HeaderMap::new();
        headers.insert("x-token", HeaderValue::from_static(token));
        // libdipc carries no such key.
        headers.insert("x-odd!", HeaderValue::from_static("1"));
        headers
    };
    let with = async |token| {
        let workers = urls(&workers);
        let on = tables
            .with_headers(workers, options(), headers(token))
            .await;
        text(&on, QUERIES[0]).await
    };
    let alone = tables.alone().await;
    assert_eq!(
        with("secret").await.unwrap(),
        text(&alone, QUERIES[0]).await.unwrap()
    );
    let error = with("wrong").await.unwrap_err().to_string();
    assert!(error.contains("the token is wrong"), "{error}");
    assert!(
        workers.iter().any(|it| error.contains(it.url.as_str())),
        "{error}"
    );
}
