//! The server of these tests, in a process of its own.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::record_batch::RecordBatchReader as _;
use dipc::crossing::arrow_59::{batch_in, batches, reader, schema_in};
use dipc::{
    Batches, Description, Endpoint, Error, Provider, Reader, Request, Result, Server, Status,
};

use crate::filters::types;
use crate::many::many;
use crate::wide::wide;

/// Set in the environment of the server's process.
const IN_CHILD: &str = "DIPC_TEST_SERVES";

/// A server that ends with this value.
pub struct Serving {
    child: Child,
    /// Of shm and of tcp.
    pub uris: [String; 2],
    /// The harness of the process writes more after a minute, and ends if nobody could read it.
    _output: BufReader<ChildStdout>,
}

impl Serving {
    pub fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "server::serve", "--ignored", "--nocapture"])
            .env(IN_CHILD, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let ready = output
            .by_ref()
            .lines()
            .map(Result::<_, std::io::Error>::unwrap);
        let ready = ready.filter_map(|line| line.split_once("ready ").map(|it| it.1.to_owned()));
        let uris: Vec<_> = ready.take(2).collect();
        let uris = uris.try_into().expect("the server ended early");
        Self {
            child,
            uris,
            _output: output,
        }
    }

    /// Ends the server as `kill -9` does.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.kill();
    }
}

/// 1000 rows in four batches: `id` from 0 on, `price` of ten times as much.
pub fn prices() -> Vec<RecordBatch> {
    let batch = |first: i64| {
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(first..first + 250));
        let prices: ArrayRef = Arc::new(Int64Array::from_iter_values(
            (first..first + 250).map(|id| id * 10),
        ));
        RecordBatch::try_from_iter([("id", ids), ("price", prices)]).unwrap()
    };
    [0, 250, 500, 750].map(batch).into()
}

/// A row for each third `id`.
fn names() -> RecordBatch {
    let ids: Vec<i64> = (0..1000).step_by(3).collect();
    let names: ArrayRef = Arc::new(StringArray::from_iter_values(
        ids.iter().map(|id| format!("name {id}")),
    ));
    RecordBatch::try_from_iter([
        ("id", Arc::new(Int64Array::from(ids)) as ArrayRef),
        ("name", names),
    ])
    .unwrap()
}

fn numbers(values: Vec<i64>) -> RecordBatch {
    let column: ArrayRef = Arc::new(Int64Array::from(values));
    RecordBatch::try_from_iter([("n", column)]).unwrap()
}

/// Serves the table, in the place of an earlier one.
fn publish(server: &Server, ticket: &[u8], table: &[RecordBatch]) -> Result<()> {
    let schema = Arc::new(schema_in(&table[0].schema())?);
    let batches = table.iter().map(|batch| batch_in(batch.clone(), &schema));
    let batches: Vec<_> = batches.collect::<Result<_>>()?;
    server.replace(ticket, &schema, batches)
}

/// Counts the streams that have ended.
struct Counted(Arc<AtomicI64>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Publishes what it is given, after what was there.
struct Store {
    server: Server,
    tables: Mutex<HashMap<Vec<u8>, Vec<RecordBatch>>>,
}

impl Provider for Store {
    fn get(&self, _: &Request<'_>) -> Result<Batches> {
        Err(Error::new(Status::NotFound, "nobody has put it"))
    }

    fn put(&self, request: &Request<'_>, table: Reader) -> Result<()> {
        let table = reader(table)?;
        let schema = table.schema();
        let came: Result<Vec<_>, _> = table.collect();
        let came = came.map_err(|error| Error::new(Status::Provider, error.to_string()))?;
        let mut tables = self.tables.lock().unwrap();
        let all = tables.entry(request.ticket().to_vec()).or_default();
        if all.first().is_some_and(|first| first.schema() != schema) {
            all.clear();
        }
        all.extend(came);
        match all.is_empty() {
            true => Ok(()),
            false => publish(&self.server, request.ticket(), all),
        }
    }
}

#[test]
#[ignore = "run by the other tests, as their server"]
fn serve() {
    assert!(
        std::env::var_os(IN_CHILD).is_some(),
        "run by the other tests only"
    );
    let server = Server::new().unwrap();
    let name = format!("shm:@dipc-datafusion-{}", std::process::id());
    let shm = server.listen(&name).unwrap();
    let tcp = server.listen("tcp://127.0.0.1:0").unwrap();

    publish(&server, b"prices", &prices()).unwrap();
    publish(&server, b"lists/names", &[names()]).unwrap();
    publish(&server, b"wide", &[wide()]).unwrap();
    publish(&server, b"types", &[types()]).unwrap();
    publish(&server, b"many", &[many()]).unwrap();
    parts(&server, &tcp);
    endless(&server);
    let said = |request: &Request<'_>| {
        let told = request
            .headers()
            .get("k")
            .map(|it| String::from_utf8_lossy(it).into_owned());
        let told: ArrayRef = Arc::new(StringArray::from(vec![told]));
        let batch = RecordBatch::try_from_iter([("k", told)]).unwrap();
        batches(&batch.schema(), [batch])
    };
    server.serve("header", said).unwrap();
    let store = Store {
        server: server.clone(),
        tables: Mutex::default(),
    };
    server.handler(store).unwrap();

    println!("\nready {shm}\nready {tcp}");
    // Until the tests end.
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

/// Tables of four parts of 100 rows: "parts", "ordered", and "elsewhere", whose first server is
/// none.
fn parts(server: &Server, tcp: &str) {
    for (number, first) in [0, 100, 200, 300].into_iter().enumerate() {
        let part = numbers((first..first + 100).collect());
        publish(server, format!("parts/{number}").as_bytes(), &[part]).unwrap();
    }
    let schema = Arc::new(schema_in(&numbers(vec![]).schema()).unwrap());
    let described = |endpoint: &dyn Fn(Endpoint) -> Endpoint| {
        let description = Description::new().schema(&schema).unwrap();
        (0..4).fold(description, |description, number| {
            let part = Endpoint::new(format!("parts/{number}"));
            description.endpoint(endpoint(part))
        })
    };
    let here = |part: Endpoint| part.rows(100);
    let elsewhere = |part: Endpoint| part.uri("shm:@dipc-datafusion-nobody").uri(tcp);
    for (ticket, description) in [
        ("parts", described(&here)),
        ("ordered", described(&here).ordered(true)),
        ("elsewhere", described(&elsewhere)),
    ] {
        let provider = |_: &Request<'_>| Err(Error::invalid_argument("it is in parts"));
        server.serve(ticket, provider).unwrap();
        server.set_description(ticket, description).unwrap();
    }
}

/// "endless": 1000 rows each millisecond; "begun" and "ended": how many of its streams have.
fn endless(server: &Server) {
    let (begun, ended) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicI64::new(0)));
    let (begins, counter) = (Arc::clone(&begun), Arc::clone(&ended));
    let endless = move |_: &Request<'_>| {
        begins.fetch_add(1, Ordering::SeqCst);
        let counted = Counted(Arc::clone(&counter));
        let all = (0..).step_by(1000).map(move |first| {
            let _ = &counted;
            std::thread::sleep(Duration::from_millis(1));
            numbers((first..first + 1000).collect())
        });
        batches(&numbers(vec![]).schema(), all)
    };
    server.serve("endless", endless).unwrap();
    for (ticket, count) in [("begun", begun), ("ended", ended)] {
        let count = move |_: &Request<'_>| {
            let batch = numbers(vec![count.load(Ordering::SeqCst)]);
            batches(&batch.schema(), [batch])
        };
        server.serve(ticket, count).unwrap();
    }
}
