//! The server's process.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use dipc::{
    Arena, Batches, Description, Endpoint, Error, Provider, Reader, Request, Result, Server, Status,
};

use crate::{PLACES, batch, schema, table};

/// Set for the server's process: where it listens.
const PLACE: &str = "DIPC_TEST_API_PLACE";

/// A server in another process. It ends with this value.
pub struct Serving {
    child: Child,
    pub uri: String,
    /// The harness of the process writes more at its end.
    _output: BufReader<ChildStdout>,
}

impl Serving {
    /// One server for each transport.
    pub fn all() -> impl Iterator<Item = Self> {
        PLACES.into_iter().map(Self::start)
    }

    pub fn start(place: &str) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let place = match place.strip_suffix('-') {
            Some(name) => format!("{name}-{}-{number}", std::process::id()),
            None => place.to_owned(),
        };
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "serving::serves", "--ignored", "--nocapture"])
            .env(PLACE, place)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut lines = output.by_ref().lines();
        let uri = lines.find_map(|line| Some(line.unwrap().split_once("at=")?.1.to_owned()));
        Self {
            uri: uri.expect("a URI"),
            child,
            _output: output,
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let status = self.child.wait().unwrap();
        if !std::thread::panicking() {
            assert!(status.success(), "the server's process: {status}");
        }
    }
}

/// Keeps the tables that clients put, and answers from them.
#[derive(Default)]
struct Store(Arc<Mutex<BTreeMap<Vec<u8>, Vec<RecordBatch>>>>);

impl Provider for Store {
    fn get(&self, request: &Request<'_>) -> Result<Batches> {
        let tables = self.0.lock().unwrap();
        match tables.get(request.ticket()) {
            Some(table) => Ok(Batches::of(schema(), table.clone())),
            None => Err(Error::new(Status::NotFound, "nobody has put this table")),
        }
    }

    fn put(&self, request: &Request<'_>, mut table: Reader) -> Result<()> {
        let mut batches = Vec::new();
        while let Some(batch) = table.next_batch()? {
            batches.push(batch);
            if batches.len() == 1 {
                request.say_result(1, b"the first")?;
            }
        }
        self.0
            .lock()
            .unwrap()
            .insert(request.ticket().to_vec(), batches);
        Ok(())
    }

    fn exchange(&self, _: &Request<'_>, table: Reader) -> Result<Batches> {
        // Each batch comes back twice.
        let twice = table.flat_map(|batch| match batch {
            Ok(batch) => vec![Ok(batch.clone()), Ok(batch)],
            Err(error) => vec![Err(error)],
        });
        Ok(Batches::new(schema(), twice))
    }

    fn describe(&self, request: &Request<'_>) -> Result<Description> {
        let tables = self.0.lock().unwrap();
        let table = tables.get(request.ticket());
        let table = table.ok_or_else(|| Error::new(Status::NotFound, "no such table"))?;
        let rows = table.iter().map(|batch| batch.num_rows() as u64).sum();
        Description::new().rows(rows).schema(&schema())
    }

    fn list(&self, _: &Request<'_>) -> Result<Vec<Endpoint>> {
        let tables = self.0.lock().unwrap();
        Ok(tables.keys().map(Endpoint::new).collect())
    }
}

/// The server's process itself: until its input ends.
#[test]
#[ignore = "a server for other tests, in a process of its own"]
fn serves() {
    let Ok(place) = std::env::var(PLACE) else {
        return;
    };
    // The providers that panic need no backtraces.
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if panic.payload_as_str() != Some("a bug of the host") {
            usual(panic);
        }
    }));
    let server = Server::builder()
        .authorizer(|request| {
            let said = |key| request.headers().get(key).is_some();
            match said("x-refuse") || said("authorization") {
                true => Err(Error::new(Status::Permission, "the header says so")),
                false => Ok(()),
            }
        })
        .build()
        .unwrap();
    let arena = Arena::host().unwrap();
    let lent: Vec<_> = table(3)
        .iter()
        .map(|batch| arena.copy_batch(batch).unwrap())
        .collect();
    server.publish("published", &schema(), lent).unwrap();
    server
        .serve("iterator", |_: &Request<'_>| {
            let batches = (0..5).map(|n| Ok::<_, ArrowError>(batch(n, 10)));
            Ok(Batches::new(schema(), batches))
        })
        .unwrap();
    server
        .serve("broken", |_: &Request<'_>| {
            let batches = (0..).map(|n| match n {
                0..3 => Ok(batch(n, 10)),
                _ => Err(Error::new(Status::Io, "the disk is gone")),
            });
            Ok(Batches::new(schema(), batches))
        })
        .unwrap();
    server
        .serve("swapped columns", |_: &Request<'_>| {
            let swapped = batch(10, 10).project(&[1, 0]).unwrap();
            Ok(Batches::of(schema(), [batch(0, 10), swapped]))
        })
        .unwrap();
    server
        .serve("endless", |_: &Request<'_>| {
            let batches = (0..).map(|n| Ok::<_, ArrowError>(batch(n, 1000)));
            Ok(Batches::new(schema(), batches))
        })
        .unwrap();
    server
        .serve("panics", |_: &Request<'_>| panic!("a bug of the host"))
        .unwrap();
    server
        .serve("panics later", |_: &Request<'_>| {
            let batches = (0..).map(|n| match n {
                0 => Ok::<_, ArrowError>(batch(n, 10)),
                _ => panic!("a bug of the host"),
            });
            Ok(Batches::new(schema(), batches))
        })
        .unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let handle = runtime.handle().clone();
    server
        .serve("stream", move |_: &Request<'_>| {
            // A source that needs the runtime of tokio, with its timers.
            let _entered = handle.enter();
            let stream = futures::stream::unfold(0, |n| async move {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                (n < 4).then(|| (Ok::<_, ArrowError>(batch(n, 10)), n + 1))
            });
            Ok(Batches::from_stream(schema(), stream))
        })
        .unwrap();
    server.handler(Store::default()).unwrap();
    println!("at={}", server.listen(&place).unwrap());
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}
