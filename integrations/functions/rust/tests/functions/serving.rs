//! The server's process.

use std::collections::HashMap;
use std::fs::DirEntry;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int64Array, ListArray, RecordBatch};
use arrow::datatypes::{Int64Type, SchemaRef};
use arrow::error::ArrowError;
use dipc::{Arena, Batches, Error, Provider, Reader, Request, Result, Server, Status};
use dipc_functions::{Limits, Policy, enable};
use ed25519_dalek::SigningKey;

use crate::{LARGE, batch_of, module, schema, table};

/// Set for the server's process: where it listens, and what it allows.
const PLACE: &str = "DIPC_TEST_FUNCTIONS_PLACE";
const POLICY: &str = "DIPC_TEST_FUNCTIONS_POLICY";

/// A server in another process. It ends with this value.
pub struct Serving {
    child: Child,
    pub uri: String,
    was_killed: bool,
    /// The harness of the process writes more at its end.
    output: BufReader<ChildStdout>,
}

impl Serving {
    /// One server for each transport, with this policy.
    pub fn all(policy: &'static str) -> impl Iterator<Item = Self> {
        ["shm", "tcp"]
            .into_iter()
            .map(|scheme| Self::start(scheme, policy))
    }

    pub fn start(scheme: &str, policy: &str) -> Self {
        Self::within(scheme, policy, None)
    }

    /// With this much address space, in KiB.
    pub fn within(scheme: &str, policy: &str, memory: Option<u32>) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let place = match scheme {
            "shm" => format!("shm:@dipc-functions-{}-{number}", std::process::id()),
            _ => format!("{scheme}://127.0.0.1:0"),
        };
        let memory = memory.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string());
        let mut child = Command::new("sh")
            .args(["-c", r#"ulimit -v "$0"; exec "$@""#, &memory])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "serving::serves", "--ignored", "--nocapture"])
            .env(PLACE, place)
            .env(POLICY, policy)
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
            was_killed: false,
            output,
        }
    }
}

impl Serving {
    /// Kills the process.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.was_killed = true;
    }

    /// Waits until the process says that its table `watched` is asked for (`asked`), or dropped
    /// (`left`).
    pub fn hear(&mut self, word: &str) {
        let mut lines = self.output.by_ref().lines();
        let heard = lines.find(|line| line.as_ref().unwrap() == word);
        assert!(heard.is_some(), "the server's process never says {word}");
    }

    /// Waits until a thread of the process has computed for longer than anything but an endless
    /// function does: in processor time, so that a busy machine does not matter.
    pub fn computes(&self) {
        /// A tenth of a second.
        const TICKS: u64 = 10;
        let before = self.ticks();
        let until = Instant::now() + Duration::from_secs(60);
        let more = |(thread, now): (String, u64)| now >= before.get(&thread).unwrap_or(&0) + TICKS;
        while !self.ticks().into_iter().any(more) {
            assert!(Instant::now() < until, "no function runs");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What each thread of the process has computed, in ticks of the system.
    fn ticks(&self) -> HashMap<String, u64> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let of = |thread: std::io::Result<DirEntry>| {
            let thread = thread.ok()?;
            let stat = std::fs::read_to_string(thread.path().join("stat")).ok()?;
            // The name may have spaces.
            let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
            let field = |index: usize| fields.get(index)?.parse::<u64>().ok();
            let name = thread.file_name().into_string().ok()?;
            Some((name, field(11)? + field(12)?))
        };
        threads.filter_map(of).collect()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let status = self.child.wait().unwrap();
        if !self.was_killed && !std::thread::panicking() {
            assert!(status.success(), "the server's process: {status}");
        }
    }
}

/// The key whose signatures the policy `signed` takes.
pub fn key() -> SigningKey {
    SigningKey::from_bytes(&[42; 32])
}

fn policy(name: &str) -> Policy {
    let mut policy = Policy::new();
    // Each module is compiled once for all servers of these tests.
    policy.sandbox.code_folder = Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("code"));
    match name {
        "any" => policy = policy.allow_any_module(),
        "filter" => policy = policy.allow_module(module("filter").hash()),
        "signed" => policy = policy.allow_key(key().verifying_key().as_bytes()).unwrap(),
        "named" => policy = policy.allow_any_module().allow_principal("ann"),
        "tight" => {
            policy = policy.allow_any_module();
            policy.limits = Limits {
                fuel: 200_000_000,
                time: Duration::from_secs(5),
                memory_bytes: 4 << 20,
                output_rows: 5_000,
                output_bytes: 1 << 20,
                ..Limits::default()
            };
            policy.sandbox.module_bytes = 1 << 20;
        }
        "nothing" => {}
        name if name.starts_with("part-") || name.starts_with("stalls-") => {
            policy = policy.allow_any_module();
            for peer in ["shm:@dipc-functions-*", "tcp://127.0.0.1:*"] {
                policy = policy.allow_peer(peer);
            }
            policy.limits.hops = 60;
            if name.starts_with("stalls-") {
                policy.limits.stall = Duration::from_secs(3);
            }
        }
        name if name.starts_with("alone-") => policy = policy.allow_any_module(),
        other => panic!("{other} is no policy of these tests"),
    }
    policy
}

/// Places of one part of the chase.
pub const PLACES: i64 = 1000;

/// The next place of a place, of four parts.
pub fn next(place: i64) -> i64 {
    (place * 7 + 1003) % (4 * PLACES)
}

/// Where the edges of a vertex of the search lead, of four parts.
pub fn edges(vertex: i64) -> [i64; 6] {
    let pairs = [
        (7, 1_003),
        (2_654_435_761, 5),
        (1_103_515_245, 12_345),
        (69_069, 1),
        (31 + vertex, 17),
        (3 * vertex, 77),
    ];
    pairs.map(|(factor, more)| (vertex * factor + more) % (4 * PLACES))
}

/// Part of the table of the search.
fn edges_of(part: i64) -> RecordBatch {
    let vertices = part * PLACES..(part + 1) * PLACES;
    let lists = vertices.map(|vertex| Some(edges(vertex).map(Some)));
    let column: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists));
    RecordBatch::try_from_iter([("to", column)]).unwrap()
}

/// Part of the table of the chase.
fn part(part: i64) -> RecordBatch {
    let places = part * PLACES..(part + 1) * PLACES;
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(places.map(next)));
    RecordBatch::try_from_iter([("next", column)]).unwrap()
}

/// A table that says when it is dropped.
struct Watched(std::vec::IntoIter<RecordBatch>);

impl Iterator for Watched {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(Ok)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        println!("left");
    }
}

/// Keeps the last table that a client has put as `stored`, and has `provided` and `watched`.
struct Host(Mutex<(SchemaRef, Vec<RecordBatch>)>);

impl Provider for Host {
    fn get(&self, request: &Request<'_>) -> Result<Batches> {
        match request.ticket() {
            b"provided" => Ok(Batches::of(schema(), table(3))),
            b"watched" => {
                println!("asked");
                Ok(Batches::new(schema(), Watched(table(3).into_iter())))
            }
            b"stored" => {
                let (schema, batches) = self.0.lock().unwrap().clone();
                Ok(Batches::of(schema, batches))
            }
            _ => Err(Error::new(Status::NotFound, "no such table here")),
        }
    }

    fn put(&self, request: &Request<'_>, mut table: Reader) -> Result<()> {
        let is_watched = request.ticket() == b"watched";
        if is_watched {
            println!("asked");
        }
        let batches: Result<Vec<_>> =
            std::iter::from_fn(|| table.next_batch().transpose()).collect();
        if is_watched {
            println!("left");
        }
        *self.0.lock().unwrap() = (table.schema(), batches?);
        Ok(())
    }
}

/// The server's process: until its input ends.
#[test]
#[ignore = "the process of the server, which tests start"]
fn serves() {
    let place = std::env::var(PLACE).expect("a test starts this process");
    let name = std::env::var(POLICY).unwrap();
    let server = Server::builder()
        .trusted_network(true)
        .authorizer(|request: &Request<'_>| {
            if let Some(name) = request.headers().get("name") {
                request.set_principal(&String::from_utf8_lossy(name));
            }
            Ok(())
        })
        .build()
        .unwrap();
    server.publish("published", &schema(), table(3)).unwrap();
    let large = batch_of(0, LARGE);
    let arena = Arena::host().unwrap();
    let lent = arena.copy_batch(&large).unwrap();
    (server.publish(
        "large",
        &schema(),
        [lent.clone(), lent.slice(8, lent.num_rows() - 8)],
    ))
    .unwrap();
    if let Some((_, number)) = name.split_once('-') {
        let number = number.parse().unwrap();
        for (ticket, batch) in [("next", part(number)), ("edges", edges_of(number))] {
            let ticket = format!("{ticket}-{number}");
            (server.publish(ticket, &batch.schema(), [batch.clone()])).unwrap();
        }
    }
    server
        .handler(Host(Mutex::new((schema(), Vec::new()))))
        .unwrap();
    if name != "off" {
        enable(&server, policy(&name)).unwrap();
    }
    println!("at={}", server.listen(&place).unwrap());
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    server.stop(Duration::from_secs(10)).unwrap();
}
