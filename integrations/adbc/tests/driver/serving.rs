//! The server's process.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use dipc::{
    Arena, Batches, Description, Endpoint, Error, Provider, Reader, Request, Result, Server, Status,
};

use crate::{batch, many, schema, table, texts};

/// Set for the server's process: where it listens.
const PLACE: &str = "DIPC_TEST_ADBC_PLACE";
/// Set for a server with certificates: the folder that has them.
const CERTIFICATES: &str = "DIPC_TEST_ADBC_CERTIFICATES";

/// Set for a server whose tables in parts are also there.
const ELSEWHERE: &str = "DIPC_TEST_ADBC_ELSEWHERE";

/// A server in another process. It ends with this value.
pub struct Serving {
    child: Child,
    pub uri: String,
    /// The harness of the process writes more at its end.
    _output: BufReader<ChildStdout>,
}

impl Serving {
    pub fn start() -> Self {
        Self::run(&place(), &[])
    }

    /// One for each transport that needs no other option.
    pub fn all() -> [Self; 2] {
        [Self::start(), Self::run("tcp://127.0.0.1:0", &[])]
    }

    /// One of whose tables in parts another has the second.
    pub fn beside(other: &Self) -> Self {
        Self::run(&place(), &[(ELSEWHERE, OsStr::new(&other.uri))])
    }

    /// One that asks for certificates and a token.
    pub fn guarded(certificates: &Path) -> Self {
        let place = "tls://localhost:0";
        Self::run(place, &[(CERTIFICATES, certificates.as_os_str())])
    }

    fn run(place: &str, environment: &[(&str, &OsStr)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.envs(environment.iter().copied());
        let mut child = command
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

fn place() -> String {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("shm:@dipc-adbc-{}-{number}", std::process::id())
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

/// Keeps the tables that clients put, and follows the modes of ingestion.
#[derive(Default)]
struct Store(Mutex<BTreeMap<Vec<u8>, Vec<RecordBatch>>>);

impl Store {
    fn table(&self, ticket: &[u8]) -> Result<Vec<RecordBatch>> {
        let tables = self.0.lock().unwrap();
        let table = tables.get(ticket).cloned();
        table.ok_or_else(|| Error::new(Status::NotFound, "nobody has put this table"))
    }
}

impl Provider for Store {
    fn get(&self, request: &Request<'_>) -> Result<Batches> {
        let table = self.table(request.ticket())?;
        Ok(Batches::of(table[0].schema(), table))
    }

    fn put(&self, request: &Request<'_>, mut table: Reader) -> Result<()> {
        let mut batches = Vec::new();
        while let Some(batch) = table.next_batch()? {
            batches.push(batch);
        }
        let mut tables = self.0.lock().unwrap();
        let mode = request.headers().get("adbc.ingest.mode");
        match mode.unwrap_or_default() {
            b"create" if tables.contains_key(request.ticket()) => {
                return Err(Error::new(Status::AlreadyExists, "it is there"));
            }
            b"append" if !tables.contains_key(request.ticket()) => {
                return Err(Error::new(
                    Status::NotFound,
                    "there is nothing to append to",
                ));
            }
            b"create" | b"replace" => drop(tables.remove(request.ticket())),
            b"append" | b"create_append" => {}
            _ => return Err(Error::invalid_argument("no mode")),
        }
        (tables.entry(request.ticket().to_vec()).or_default()).append(&mut batches);
        Ok(())
    }

    fn describe(&self, request: &Request<'_>) -> Result<Description> {
        let table = self.table(request.ticket())?;
        let rows = table.iter().map(|batch| batch.num_rows() as u64).sum();
        Description::new().rows(rows).schema(&table[0].schema())
    }

    fn list(&self, request: &Request<'_>) -> Result<Vec<Endpoint>> {
        let tables = self.0.lock().unwrap();
        let names = tables
            .keys()
            .filter(|name| name.starts_with(request.ticket()));
        Ok(names.map(Endpoint::new).collect())
    }
}

fn server() -> Server {
    let Some(folder) = std::env::var_os(CERTIFICATES).map(PathBuf::from) else {
        return Server::new().unwrap();
    };
    Server::builder()
        .tls(folder.join("server.pem"), folder.join("server.key"))
        .tls_client_ca(folder.join("ca.pem"))
        .authorizer(|request| match request.headers().get("authorization") {
            Some(b"Bearer 1234") => Ok(()),
            _ => Err(Error::new(
                Status::Permission,
                "a token is missing or wrong",
            )),
        })
        .build()
        .unwrap()
}

/// The server's process itself: until its input ends.
#[test]
#[ignore = "a server for other tests, in a process of its own"]
fn serves() {
    let Ok(place) = std::env::var(PLACE) else {
        return;
    };
    let server = server();
    let arena = Arena::host().unwrap();
    let lent = (table(3).iter())
        .map(|batch| arena.copy_batch(batch).unwrap())
        .collect::<Vec<_>>();
    server.publish("numbers", &schema(), lent).unwrap();
    server.publish(b"\xff", &schema(), table(1)).unwrap();
    let wide = many(4200, false);
    server.publish("many", &wide.schema(), [wide]).unwrap();
    server
        .serve("made", |_: &Request<'_>| {
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
        .serve("endless", |_: &Request<'_>| {
            let batches = (0..).map(|n| Ok::<_, ArrowError>(batch(n, 1000)));
            Ok(Batches::new(schema(), batches))
        })
        .unwrap();
    server
        .serve("silent", |request: &Request<'_>| {
            while !request.is_cancelled() {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            Err(Error::cancelled("nobody waits any more"))
        })
        .unwrap();
    server
        .serve("headers", |request: &Request<'_>| {
            let pairs = request.headers().iter();
            let pairs = pairs.map(|(key, value)| format!("{key}={}", value.escape_ascii()));
            let all = texts(pairs);
            Ok(Batches::of(all.schema(), [all]))
        })
        .unwrap();
    server.handler(Store::default()).unwrap();
    // Tables in parts, of which another server has the second.
    let elsewhere = std::env::var(ELSEWHERE).unwrap_or_default();
    let second = |ticket| {
        Endpoint::new(ticket)
            .uri("shm:@dipc-adbc-nobody")
            .uri(&elsewhere)
    };
    server.publish("parts", &schema(), table(1)).unwrap();
    let parts = Description::new().schema(&schema()).unwrap().ordered(true);
    let parts = parts
        .endpoint(Endpoint::new("numbers"))
        .endpoint(second("made"));
    server.set_description("parts", parts).unwrap();
    let parts = Description::new().endpoint(Endpoint::new("headers"));
    let parts = parts.endpoint(second("headers"));
    server.set_description("headers", parts).unwrap();
    println!("at={}", server.listen(&place).unwrap());
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}
