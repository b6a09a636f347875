//! Workers that fail in the middle of a query.

use std::time::{Duration, Instant};

use datafusion::common::{DataFusionError, Result};
use dipc_datafusion::ChannelOptions;
use tokio::task::JoinHandle;

use crate::cluster::{self, WorkerProcess, urls};
use crate::{Tables, options, text};

/// Lasts for a while on every worker, of which each reads from each.
const LONG: &str = "SELECT k, sum(nap(id)) AS s FROM facts GROUP BY k ORDER BY k";

/// The time within which a query must end: several times those of `options`.
const PATIENCE: Duration = Duration::from_secs(30);

/// Begins the query.
async fn begin(
    tables: &Tables,
    workers: &[WorkerProcess],
    options: ChannelOptions,
) -> JoinHandle<Result<String>> {
    let on = tables.on(urls(workers), options).await;
    // Many batches, and so a long query.
    for batch_size in [
        "datafusion.execution.batch_size",
        "distributed.shuffle_batch_size",
    ] {
        let sql = format!("SET {batch_size} = 256");
        on.sql(&sql).await.unwrap().collect().await.unwrap();
    }
    tokio::spawn(async move { text(&on, LONG).await })
}

/// Sends a signal to one of four workers in the middle of a query.
async fn survives(places: &str, signal: &str) {
    let tables = Tables::new().await;
    let mut workers = cluster::start(4, places);
    let query = begin(&tables, &workers, options()).await;
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

/// How many queries lose a worker, one after the other.
fn losses() -> usize {
    let set = std::env::var("DIPC_LOST_WORKERS").ok();
    set.map_or(6, |number| number.parse().unwrap())
}

/// Promise of the crate: queries whose workers die leave nothing behind, neither here nor in the
/// workers that live.
#[tokio::test(flavor = "multi_thread")]
async fn lost_workers_leave_nothing() {
    let tables = Tables::new().await;
    let mut workers = cluster::start(4, "shm tcp");
    let of_workers = |workers: &[WorkerProcess]| -> Vec<usize> {
        workers[..3].iter().map(|it| descriptors(it.id())).collect()
    };
    let mut settled = (0, Vec::new());
    let count = losses();
    for number in 0..count {
        let way = if number % 2 == 0 { "shm" } else { "tcp" };
        let query = begin(&tables, &workers, options().ways([way])).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(!query.is_finished(), "the query is too short for this test");
        let lost = workers.pop().unwrap();
        lost.signal("-KILL");
        let ended = tokio::time::timeout(PATIENCE, query).await;
        let error = ended.expect("the query hangs").unwrap().unwrap_err();
        assert!(error.to_string().contains(lost.url.as_str()), "{error}");
        drop(lost);
        workers.extend(cluster::start(1, "shm tcp"));
        // By each way once, for what is kept and made once.
        if number == 1 {
            settled = (descriptors(std::process::id()), of_workers(&workers));
        }
    }
    println!("after the second query: {settled:?} descriptors");
    let until = Instant::now() + PATIENCE;
    loop {
        let now = (descriptors(std::process::id()), of_workers(&workers));
        let is_less = now.0 <= settled.0 + SLACK
            && (now.1.iter().zip(&settled.1)).all(|(now, then)| *now <= then + SLACK);
        if is_less {
            println!("after {count} queries: {now:?}");
            return;
        }
        assert!(
            Instant::now() < until,
            "{now:?} descriptors after {count} queries"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Descriptors that may come and go.
const SLACK: usize = 16;

/// The descriptors of a process: each stream has some.
fn descriptors(process: u32) -> usize {
    let folder = format!("/proc/{process}/fd");
    std::fs::read_dir(folder).unwrap().count()
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

/// Promise of the crate: a worker's plan that meets the limit of its memory is told as such.
#[tokio::test(flavor = "multi_thread")]
async fn plans_that_need_too_much_memory_say_so() {
    let tables = Tables::new().await;
    let workers = cluster::start(2, "shm");
    let on = tables.on(urls(&workers), options()).await;
    let sql = "SELECT k, sum(exhaust(id)) AS s FROM facts GROUP BY k";
    let error = text(&on, sql).await.unwrap_err();
    let root = error.find_root();
    assert!(
        matches!(root, DataFusionError::ResourcesExhausted(_)),
        "{error:?}"
    );
    let error = error.to_string();
    assert!(error.contains("no more memory"), "{error}");
    assert!(
        workers.iter().any(|it| error.contains(it.url.as_str())),
        "{error}"
    );
}
