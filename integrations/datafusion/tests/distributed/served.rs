//! Tables of libdipc in queries on workers.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch};
use dipc::crossing::arrow_59::{batch_in, schema_in};
use dipc::{Description, Endpoint, Error, Request, Server, Status};
use dipc_datafusion::DipcServer;

use crate::cluster::{self, urls};
use crate::{Tables, metric, options, text, text_and_plan};

/// Rows of each part.
const ROWS: i64 = 1000;

/// The processes that have asked for a part.
type Readers = Arc<Mutex<BTreeSet<i32>>>;

/// Serves the table `numbers`, in parts.
fn serve(parts: i64, is_ordered: bool) -> (Server, String, Readers) {
    serve_to(parts, is_ordered, |_| Ok(()))
}

/// The same, to requests that `decide` lets pass.
fn serve_to(
    parts: i64,
    is_ordered: bool,
    decide: impl Fn(&Request<'_>) -> dipc::Result<()> + Send + Sync + 'static,
) -> (Server, String, Readers) {
    static SERVERS: AtomicUsize = AtomicUsize::new(0);
    let number = SERVERS.fetch_add(1, Ordering::Relaxed);
    let readers = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = Arc::clone(&readers);
    let note = move |request: &Request<'_>| {
        if request.ticket().starts_with(b"numbers/") {
            seen.lock()
                .unwrap()
                .extend(request.process().map(|it| it.pid));
        }
        decide(request)
    };
    let server = Server::builder().authorizer(note).build().unwrap();
    let name = format!("shm:@dipc-served-{}-{number}", std::process::id());
    let uri = server.listen(&name).unwrap();
    let numbers = |first: i64| {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(first..first + ROWS));
        RecordBatch::try_from_iter([("id", column)]).unwrap()
    };
    let schema = Arc::new(schema_in(&numbers(0).schema()).unwrap());
    let mut description = Description::new()
        .schema(&schema)
        .unwrap()
        .ordered(is_ordered);
    for part in 0..parts {
        let batch = batch_in(numbers(part * ROWS), &schema).unwrap();
        let ticket = format!("numbers/{part}");
        server.publish(&ticket, &schema, [batch]).unwrap();
        description = description.endpoint(Endpoint::new(ticket));
    }
    let in_parts = |_: &Request<'_>| Err(Error::invalid_argument("it is in parts"));
    server.serve("numbers", in_parts).unwrap();
    server.set_description("numbers", description).unwrap();
    (server, uri, readers)
}

/// Promise of `DipcTables`: workers read the table, each row once, whatever the number of parts and
/// of workers, and beside tables of other kinds.
#[tokio::test(flavor = "multi_thread")]
async fn workers_read_tables() {
    let tables = Tables::new().await;
    let workers = cluster::start(3, "shm");
    for (parts, is_ordered) in [(1, false), (2, false), (7, false), (7, true)] {
        let (_server, uri, _) = serve(parts, is_ordered);
        let (alone, on) = (
            tables.alone().await,
            tables.on(urls(&workers), options()).await,
        );
        for context in [&alone, &on] {
            let server = DipcServer::new(&uri).unwrap();
            server
                .register(context, "numbers", "numbers")
                .await
                .unwrap();
        }
        let queries = [
            "SELECT id % 10 AS k, count(*) AS n, sum(id) AS s FROM numbers GROUP BY k ORDER BY k",
            "SELECT n.name, count(*) AS c FROM numbers m JOIN names n ON m.id % 97 = n.k \
             GROUP BY n.name ORDER BY n.name",
            "SELECT f.k, count(*) AS c FROM facts f JOIN numbers m ON f.id = m.id \
             GROUP BY f.k ORDER BY f.k",
            "SELECT count(*) FROM (SELECT id FROM numbers UNION ALL SELECT id FROM facts)",
        ];
        for sql in queries {
            let (got, _) = text_and_plan(&on, sql).await;
            assert_eq!(
                got,
                text(&alone, sql).await.unwrap(),
                "{parts} parts: {sql}"
            );
        }
    }
}

/// Promise of `DipcTables`: the parts of a table are spread over the workers.
#[tokio::test(flavor = "multi_thread")]
async fn workers_share_the_parts() {
    let tables = Tables::new().await;
    let workers = cluster::start(3, "shm");
    let (_server, uri, readers) = serve(6, false);
    let on = tables.on(urls(&workers), options()).await;
    let numbers = DipcServer::new(&uri).unwrap();
    numbers.register(&on, "numbers", "numbers").await.unwrap();
    let sql = "SELECT id % 10 AS k, count(*) AS n FROM numbers GROUP BY k";
    let (_, plan) = text_and_plan(&on, sql).await;
    assert!(metric(&plan, "dipc_streams_shm") > 0);
    let readers = readers.lock().unwrap();
    assert_eq!(readers.len(), workers.len(), "{readers:?}");
    assert!(!readers.contains(&i32::try_from(std::process::id()).unwrap()));
}

/// Promise of `DipcTables`: servers evaluate the filters of workers; of one that knows none, the
/// workers do.
#[tokio::test(flavor = "multi_thread")]
async fn workers_ask_for_filtered_tables() {
    let tables = Tables::new().await;
    let workers = cluster::start(2, "shm");
    for is_known in [true, false] {
        let filtered = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&filtered);
        let (_server, uri, readers) = serve_to(4, false, move |request| {
            if request.selection().filter().is_none() {
                return Ok(());
            }
            seen.fetch_add(1, Ordering::Relaxed);
            match is_known {
                true => Ok(()),
                false => Err(Error::new(Status::Unsupported, "what may this be?")),
            }
        });
        let on = tables.on(urls(&workers), options()).await;
        let numbers = DipcServer::new(&uri).unwrap();
        numbers.register(&on, "numbers", "numbers").await.unwrap();
        let sql = "SELECT id % 10 AS k, count(*) AS n, sum(id) AS s FROM numbers \
                   WHERE id BETWEEN 990 AND 1009 OR id IN (1, 2500, 3999, 4000) \
                   GROUP BY k ORDER BY k LIMIT 2";
        let (got, _) = text_and_plan(&on, sql).await;
        // 990, 1000, 2500; 1, 991, 1001.
        for line in ["| 0 | 3 | 4490 |", "| 1 | 3 | 1993 |"] {
            assert!(got.contains(line), "{got}");
        }
        assert_eq!(readers.lock().unwrap().len(), workers.len());
        assert_eq!(filtered.load(Ordering::Relaxed), 4);
    }
}

/// Promise of the command: `--server` names a server's tables, and workers read them.
#[cfg(feature = "cli")]
#[tokio::test(flavor = "multi_thread")]
async fn the_command_reads_tables_of_servers() {
    let workers = cluster::start(2, "shm");
    let (_server, uri, readers) = serve(4, false);
    let urls: Vec<_> = workers.iter().map(|it| it.url.to_string()).collect();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_dipc-sql"))
        .args(["query", "--workers", &urls.join(","), "--server"])
        .arg(format!("lake={uri}"))
        .arg("SELECT id % 2 AS k, count(*) AS n FROM lake.public.numbers GROUP BY k ORDER BY k")
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.matches("| 2000 |").count(), 2, "{text}");
    assert_eq!(readers.lock().unwrap().len(), 2);
}
