//! A chase over two servers that follows each pointer at the server where it lies, beside a client
//! that gets one row for each step.
//!
//!     cargo bench -p libdipc-functions --bench chase
//!
//! Each server has a process of its own, and a part of a column of pointers, each of which leads to
//! the other part. Both ways in turns, over shm and tcp; the median of each counts, for one step.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a benchmark ends where it cannot go on"
)]

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, AsArray as _, Int64Array, RecordBatch};
use arrow::datatypes::Int64Type;
use dipc::{Client, GetOptions, Server};
use dipc_functions::{Message, Module, Policy, enable};

/// Places of a part.
const PLACES: i64 = 1000;
const STEPS: i64 = 48;
const ROUNDS: usize = 51;

/// A place of the other part.
fn next(place: i64) -> i64 {
    (1 - place / PLACES) * PLACES + place * 7 % PLACES
}

/// The server's process: one part.
fn serve(place: &str, part: i64) {
    let server = Server::builder().trusted_network(true).build().unwrap();
    let places = part * PLACES..(part + 1) * PLACES;
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(places.map(next)));
    let batch = RecordBatch::try_from_iter([("next", column)]).unwrap();
    (server.publish("next", &batch.schema(), [batch.clone()])).unwrap();
    let policy = Policy::new().allow_any_module();
    let policy = policy.allow_peer("shm:@dipc-chase-*");
    enable(&server, policy.allow_peer("tcp://127.0.0.1:*")).unwrap();
    println!("at={}", server.listen(place).unwrap());
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

fn start(scheme: &str, part: i64) -> (Child, String) {
    let place = match scheme {
        "shm" => format!("shm:@dipc-chase-{}-{part}", std::process::id()),
        _ => format!("{scheme}://127.0.0.1:0"),
    };
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["serve", &place, &part.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines.next().expect("a URI").unwrap();
    (child, line.trim_start_matches("at=").to_owned())
}

/// Where the chase ends, by one get for each step.
fn by_gets(client: &Client, uris: &[String; 2]) -> i64 {
    let mut place = 1;
    for _ in 0..STEPS {
        let (part, row) = (place / PLACES, u64::try_from(place % PLACES).unwrap());
        let options = GetOptions::new().rows(row..row + 1);
        let uri = &uris[usize::from(part == 1)];
        let mut reader = client.get_with(uri, "next", &options).unwrap();
        let batch = reader.next_batch().unwrap().unwrap();
        assert!(reader.next_batch().unwrap().is_none());
        place = batch.column(0).as_primitive::<Int64Type>().value(0);
    }
    place
}

/// The same, by one call of the function.
fn by_function(client: &Client, uris: &[String; 2], module: &Module) -> i64 {
    let [first, second] = uris;
    let text = format!("1\n{STEPS}\n0\n0\n0 {first} next\n{PLACES} {second} next\n");
    let message = Message::new(module, "chase", text.as_bytes());
    let mut reader = message.get(client, first, "next").unwrap();
    let batch = reader.next_batch().unwrap().unwrap();
    assert!(reader.next_batch().unwrap().is_none());
    batch.column(0).as_primitive::<Int64Type>().value(0)
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e6 / STEPS as f64
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, serving, place, part] = &arguments[..]
        && serving == "serve"
    {
        return serve(place, part.parse().unwrap());
    }
    let folder = std::env::var("DIPC_FUNCTIONS_MODULES")
        .expect("DIPC_FUNCTIONS_MODULES names the folder of tools/build-functions.sh");
    let module = Module::read(format!("{folder}/chase.wasm")).unwrap();
    for scheme in ["shm", "tcp"] {
        let (mut children, uris): (Vec<_>, Vec<_>) = (0..2).map(|part| start(scheme, part)).unzip();
        let uris: [String; 2] = uris.try_into().unwrap();
        let client = Client::new().unwrap();
        let end = by_gets(&client, &uris);
        let (mut gets, mut function) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let begin = Instant::now();
            assert_eq!(by_gets(&client, &uris), end);
            gets.push(begin.elapsed());
            let begin = Instant::now();
            assert_eq!(by_function(&client, &uris, &module), end);
            function.push(begin.elapsed());
        }
        let (gets, function) = (median(gets), median(function));
        let ratio = function / gets;
        println!("{scheme}: a get {gets:.1} us, a hop {function:.1} us, ratio {ratio:.2}");
        for child in &mut children {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
    }
}
