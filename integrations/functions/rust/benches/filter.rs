//! A filter that travels, beside the other ways to have some rows of a table.
//!
//!     cargo bench -p libdipc-functions --bench filter [-- MILLIONS [ROWS]]
//!
//! A server in a process of its own has a table of eight int64 columns in memory that it can lend:
//! 4 million rows in batches of 65,536, unless told otherwise. Ways: `everything` (the client gets the
//! table and filters by arrow-rs' kernel), `wasm` (the function `keep` at the server), `wasm, copied`
//! (the same, with all input copied and not mapped) and `native` (the same kernel at the server, as
//! middleware). All ways in turns; the best of each counts. Then the start of a function: the time to
//! the first batch of a one-row table, for a module that the server lacks, and for one that it has,
//! written in Rust and in C.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a benchmark ends where it cannot go on"
)]

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, AsArray as _, BooleanArray, Int64Array, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::Int64Type;
use dipc::{Arena, Batches, Client, GetOptions, Headers, Reader, Request, Server};
use dipc_functions::{HostFile, HostFiles, Message, Module, Policy, enable};

const BATCH: usize = 1 << 16;
const ROUNDS: usize = 5;
/// Values of the first column are below this, and equally frequent.
const VALUES: usize = 1000;

fn batch(first: usize, rows: usize) -> RecordBatch {
    let columns = (0..8).map(|column| {
        let value = |row: usize| match column {
            // A permutation of the rows of a batch, so that no run of rows passes.
            0 => (row.wrapping_mul(48_271) % 65_537 % VALUES) as i64,
            _ => (row * 8 + column) as i64,
        };
        let values: ArrayRef = Arc::new(Int64Array::from_iter_values(
            (first..first + rows).map(value),
        ));
        (format!("c{column}"), values)
    });
    RecordBatch::try_from_iter(columns).unwrap()
}

fn keep(batch: &RecordBatch, bound: i64) -> RecordBatch {
    let column = batch.column(0).as_primitive::<Int64Type>();
    let wanted = BooleanArray::from_unary(column, |value| value > bound);
    filter_record_batch(batch, &wanted).unwrap()
}

fn filtered(table: Reader, bound: i64) -> Batches {
    let schema = table.schema();
    Batches::new(
        schema,
        table.map(move |batch| batch.map(|batch| keep(&batch, bound))),
    )
}

fn module(name: &str) -> Module {
    let folder = std::env::var("DIPC_FUNCTIONS_MODULES")
        .expect("DIPC_FUNCTIONS_MODULES names the folder of tools/build-functions.sh");
    Module::read(format!("{folder}/{name}.wasm")).unwrap()
}

/// Knows no file.
#[derive(Debug)]
struct NoFiles;

impl HostFiles for NoFiles {
    fn find(&self, _bytes: &[u8]) -> Option<HostFile> {
        None
    }
}

/// The server's process: the table, and functions (`wasm`) or the native filter.
fn serve(place: &str, way: &str, rows: usize, of_batch: usize) {
    let server = Server::builder().trusted_network(true).build().unwrap();
    let arena = Arena::host().unwrap();
    let batches: Vec<_> = (0..rows.div_ceil(of_batch))
        .map(|index| {
            arena
                .copy_batch(&batch(index * of_batch, of_batch))
                .unwrap()
        })
        .collect();
    let schema = batches[0].schema();
    server
        .publish("one", &schema, [batches[0].slice(0, 1)])
        .unwrap();
    server.publish("table", &schema, batches).unwrap();
    match way {
        "wasm" => enable(&server, Policy::new().allow_any_module()).unwrap(),
        "copied" => {
            let mut policy = Policy::new().allow_any_module();
            policy.sandbox.files = Some(Arc::new(NoFiles));
            enable(&server, policy).unwrap();
        }
        _ => server
            .middleware("keep", |request: &Request<'_>| {
                let bound = request.headers().get("keep").unwrap_or_default();
                let bound = String::from_utf8_lossy(bound).parse().unwrap();
                Ok(filtered(request.forward_get()?, bound))
            })
            .unwrap(),
    }
    println!("at={}", server.listen(place).unwrap());
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

struct Serving {
    child: std::process::Child,
    uri: String,
}

impl Serving {
    fn start(scheme: &str, way: &str, rows: usize, of_batch: usize) -> Self {
        let place = match scheme {
            "shm" => format!("shm:@dipc-bench-functions-{way}-{}", std::process::id()),
            _ => format!("{scheme}://127.0.0.1:0"),
        };
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "serve",
                &place,
                way,
                &rows.to_string(),
                &of_batch.to_string(),
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let uri = line.trim().strip_prefix("at=").expect("a URI").to_owned();
        Self { child, uri }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Reads all; gives the rows and the bytes that came, lent ones too.
fn drain(mut reader: Reader, bound: Option<i64>) -> (usize, u64) {
    let mut rows = 0;
    while let Some(batch) = reader.next_batch().unwrap() {
        rows += match bound {
            Some(bound) => keep(&batch, bound).num_rows(),
            None => batch.num_rows(),
        };
    }
    let stats = reader.stats();
    (rows, stats.bytes_lent + stats.bytes_received)
}

fn timed<T>(run: impl FnOnce() -> T) -> (Duration, T) {
    let begun = Instant::now();
    let result = run();
    (begun.elapsed(), result)
}

fn rates(rows: usize, of_batch: usize) {
    println!(
        "| transport | rows that pass | way | million rows/s | MB moved | beside `everything` | beside `native` |"
    );
    println!("|---|---|---|---|---|---|---|");
    for scheme in ["shm", "tcp"] {
        let wasm = Serving::start(scheme, "wasm", rows, of_batch);
        let copied = Serving::start(scheme, "copied", rows, of_batch);
        let native = Serving::start(scheme, "native", rows, of_batch);
        let client = Client::new().unwrap();
        for (share, bound) in [("0.1 %", 998), ("10 %", 899), ("90 %", 99)] {
            let message = Message::new(&module("filter"), "keep", format!("c0>{bound}").as_bytes());
            let mut headers = Headers::new();
            headers.add("keep", bound.to_string()).unwrap();
            let options = GetOptions::new().headers(headers);
            let mut best = [(Duration::MAX, (0, 0)); 4];
            for _ in 0..ROUNDS {
                let ways: [&dyn Fn() -> (usize, u64); 4] = [
                    &|| drain(client.get(&native.uri, "table").unwrap(), Some(bound)),
                    &|| drain(message.get(&client, &wasm.uri, "table").unwrap(), None),
                    &|| drain(message.get(&client, &copied.uri, "table").unwrap(), None),
                    &|| {
                        drain(
                            client.get_with(&native.uri, "table", &options).unwrap(),
                            None,
                        )
                    },
                ];
                for (best, way) in best.iter_mut().zip(ways) {
                    *best = (*best).min(timed(way));
                }
            }
            let [everything, _, _, native] = best;
            assert!(best.iter().all(|(_, (rows, _))| *rows == everything.1.0));
            let names = ["everything", "wasm", "wasm, copied", "native"];
            for (name, (time, (_, bytes))) in names.iter().zip(best) {
                let beside = |other: Duration| other.as_secs_f64() / time.as_secs_f64();
                println!(
                    "| {scheme} | {share} | {name} | {:.1} | {:.1} | {:.2} | {:.2} |",
                    rows as f64 / time.as_secs_f64() / 1e6,
                    bytes as f64 / 1e6,
                    beside(everything.0),
                    beside(native.0),
                );
            }
        }
    }
}

fn starts() {
    println!("\n| transport | module | µs to the first result |");
    println!("|---|---|---|");
    for scheme in ["shm", "tcp"] {
        let client = Client::new().unwrap();
        let keep = Message::new(&module("filter"), "keep", b"c0>-1");
        let sum = Message::new(&module("c-sum"), "sum", b"c0");
        let server = Serving::start(scheme, "wasm", BATCH, BATCH);
        let native = Serving::start(scheme, "native", BATCH, BATCH);
        let mut headers = Headers::new();
        headers.add("keep", "-1").unwrap();
        let options = GetOptions::new().headers(headers);
        let by_middleware = || drain(client.get_with(&native.uri, "one", &options).unwrap(), None);
        let get =
            |message: &Message| drain(message.get(&client, &server.uri, "one").unwrap(), None);
        let plain = || drain(client.get(&server.uri, "one").unwrap(), None);
        plain();
        let cold = [&keep, &sum].map(|message| timed(|| get(message)).0);
        let typical = |run: &dyn Fn() -> (usize, u64)| {
            let mut times: Vec<_> = (0..501).map(|_| timed(run).0).collect();
            times.sort_unstable();
            times[times.len() / 2]
        };
        for (name, time) in [
            ("in Rust, sent and compiled", cold[0]),
            ("in C, sent and compiled", cold[1]),
            ("in Rust, kept (median)", typical(&|| get(&keep))),
            ("in C, kept (median)", typical(&|| get(&sum))),
            ("none: a native filter (median)", typical(&by_middleware)),
            ("none: a get of one row (median)", typical(&plain)),
        ] {
            println!("| {scheme} | {name} | {:.0} |", time.as_secs_f64() * 1e6);
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|it| it != "--bench")
        .collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", place, way, rows, of_batch] => {
            serve(place, way, rows.parse().unwrap(), of_batch.parse().unwrap())
        }
        [] => {
            rates(4 << 20, BATCH);
            starts();
        }
        [millions] => {
            rates(number(millions) << 20, BATCH);
            starts();
        }
        [millions, of_batch] => rates(number(millions) << 20, number(of_batch)),
        _ => panic!("usage: filter [MILLIONS [ROWS]]"),
    }
}

fn number(text: &str) -> usize {
    text.parse().expect("a number")
}
