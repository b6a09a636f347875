//! Workers that fail in the middle of a query.

use std::time::{Duration, Instant};

use crate::cluster::{self, WorkerProcess, urls};
use crate::{Tables, options, text};

/// Lasts for a while on every worker, of which each reads from each.
const LONG: &str = "SELECT k, sum(nap(id)) AS s FROM facts GROUP BY k ORDER BY k";

/// The time within which a query must end: several times those of `options`.
const PATIENCE: Duration = Duration::from_secs(30);

/// Sends a signal to one of four workers in the middle of a query.
async fn survives(places: &str, signal: &str) {
    let tables = Tables::new().await;
    let mut workers = cluster::start(4, places);
    let on = tables.on(urls(&workers), options()).await;
    // Many batches, and so a long query.
    for batch_size in [
        "datafusion.execution.batch_size",
        "distributed.shuffle_batch_size",
    ] {
        let sql = format!("SET {batch_size} = 256");
        on.sql(&sql).await.unwrap().collect().await.unwrap();
    }
    let query = tokio::spawn(async move { text(&on, LONG).await });
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!query.is_finished(), "the query is too short for this test");
    let lost = workers.remove(2);
    lost.signal(signal);
    let at = Instant::now();
    let ended = tokio::time::timeout(PATIENCE, query).await;
    let error = ended
        .expect("the query hangs")
        .unwrap()
        .unwrap_err()
        .to_string();
    assert!(error.contains(lost.url.as_str()), "{error}");
    println!("{signal} over {places}: {error}, after {:?}", at.elapsed());

    // The others go on.
    let on = tables.on(urls(&workers), options()).await;
    let sql = LONG.replace("nap(id)", "id");
    let alone = tables.alone().await;
    let next = tokio::time::timeout(PATIENCE, text(&on, &sql)).await;
    assert_eq!(next.unwrap().unwrap(), text(&alone, &sql).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_killed_over_shared_memory() {
    survives("shm", "-KILL").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_killed_over_tcp() {
    survives("tcp", "-KILL").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_stopped_over_shared_memory() {
    survives("shm", "-STOP").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_stopped_over_tcp() {
    survives("tcp", "-STOP").await;
}

/// Promise of the crate: a query with a worker that does not answer from the first ends, and names
/// it.
#[tokio::test(flavor = "multi_thread")]
async fn workers_that_do_not_answer_are_named() {
    let tables = Tables::new().await;
    let workers = cluster::start(3, "shm");
    let sql = LONG.replace("nap(id)", "id");
    let error = async || {
        let on = tables.on(urls(&workers), options()).await;
        let ended = tokio::time::timeout(PATIENCE, text(&on, &sql)).await;
        ended.expect("the query hangs").unwrap_err().to_string()
    };
    let lost = &workers[1];
    lost.signal("-STOP");
    let stopped = error().await;
    assert!(stopped.contains(lost.url.as_str()), "{stopped}");
    lost.signal("-KILL");
    let killed = error().await;
    assert!(killed.contains(lost.url.as_str()), "{killed}");
}

/// Promise of the crate: a worker that was started again is found at its new addresses.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_started_again() {
    let tables = Tables::new().await;
    let mut workers = cluster::start(2, "shm");
    let on = tables.on(urls(&workers), options()).await;
    let sql = LONG.replace("nap(id)", "id");
    let before = text(&on, &sql).await.unwrap();
    let old = workers.remove(1);
    let plans = old.url.authority().to_owned();
    drop(old);
    let new = WorkerProcess::start_at(&plans, "tcp", None);
    assert_eq!(new.url.authority(), plans);
    assert_eq!(text(&on, &sql).await.unwrap(), before);
}

/// Promise of the crate: the error of a plan keeps its text and names the worker.
#[tokio::test(flavor = "multi_thread")]
async fn errors_of_plans_keep_their_text() {
    let tables = Tables::new().await;
    let workers = cluster::start(2, "shm");
    let on = tables.on(urls(&workers), options()).await;
    let sql = "SELECT k, sum(1 / (id - 777)) AS s FROM facts GROUP BY k";
    let error = text(&on, sql).await.unwrap_err().to_string();
    assert!(error.to_lowercase().contains("divide by zero"), "{error}");
    assert!(
        workers.iter().any(|it| error.contains(it.url.as_str())),
        "{error}"
    );
}
