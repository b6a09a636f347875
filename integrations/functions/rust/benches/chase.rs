//! Functions that go on elsewhere, beside clients that get what they need of each step.
//!
//!     cargo bench -p libdipc-functions --bench chase
//!
//! A chase over two servers follows each pointer at the server where it lies; the client gets one row
//! for each step. A breadth-first search over four servers visits the parts that have vertices of a
//! level; the client gets, for each visit, the rows from the first such vertex to the last.
//!
//! Each server has a process of its own. Its pointers lead to the other server of the two. Both ways
//! in turns, over shm and tcp; the median of each counts, for one step or visit.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a benchmark ends where it cannot go on"
)]

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, AsArray as _, Int64Array, ListArray, RecordBatch};
use arrow::datatypes::Int64Type;
use dipc::{Client, GetOptions, Server};
use dipc_functions::{Message, Module, Policy, enable};

/// Places of a part.
const PLACES: i64 = 1000;
const STEPS: i64 = 48;
const ROUNDS: usize = 51;

/// A place of the other part.
fn next(place: i64) -> i64 {
    (1 - place / PLACES % 2) * PLACES + place * 7 % PLACES
}

/// Vertices of the graph, of which each of four parts has `PLACES`.
const VERTICES: i64 = 4 * PLACES;
const SOURCE: i64 = 1;
const FACTORS: [i64; 6] = [7, 31, 69_069, 1_103_515_245, 2_654_435_761, 3];

/// Where the edges of a vertex lead.
fn edges(vertex: i64) -> impl Iterator<Item = i64> {
    let to =
        move |(index, factor): (usize, i64)| vertex * factor + vertex * vertex % 97 + index as i64;
    (FACTORS.into_iter().enumerate()).map(move |pair| to(pair) % VERTICES)
}

/// The server's process: one part.
fn serve(place: &str, part: i64) {
    let server = Server::builder().trusted_network(true).build().unwrap();
    let places = part * PLACES..(part + 1) * PLACES;
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(places.map(next)));
    let batch = RecordBatch::try_from_iter([("next", column)]).unwrap();
    (server.publish("next", &batch.schema(), [batch.clone()])).unwrap();
    let lists = (part * PLACES..(part + 1) * PLACES).map(|vertex| Some(edges(vertex).map(Some)));
    let column: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists));
    let batch = RecordBatch::try_from_iter([("to", column)]).unwrap();
    (server.publish("edges", &batch.schema(), [batch.clone()])).unwrap();
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
fn chase_by_gets(client: &Client, uris: &[String]) -> i64 {
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
fn chase_by_function(client: &Client, uris: &[String], module: &Module) -> i64 {
    let (first, second) = (&uris[0], &uris[1]);
    let text = format!("1\n{STEPS}\n0\n0\n0 {first} next\n{PLACES} {second} next\n");
    let message = Message::new(module, "chase", text.as_bytes());
    let mut reader = message.get(client, first, "next").unwrap();
    let batch = reader.next_batch().unwrap().unwrap();
    assert!(reader.next_batch().unwrap().is_none());
    batch.column(0).as_primitive::<Int64Type>().value(0)
}

fn index(vertex: i64) -> usize {
    usize::try_from(vertex).unwrap()
}

/// The vertices of each level, by one get for each visit of a part, and the number of visits.
fn search_by_gets(client: &Client, uris: &[String]) -> (Vec<i64>, i64) {
    let (mut counts, mut visits) = (Vec::new(), 0);
    let (mut reached, mut front) = (BTreeSet::from([SOURCE]), BTreeSet::from([SOURCE]));
    while !front.is_empty() {
        let mut next = BTreeSet::new();
        for (uri, first) in uris.iter().zip((0..).step_by(index(PLACES))) {
            let here: Vec<i64> = front.range(first..first + PLACES).copied().collect();
            let (Some(low), Some(high)) = (here.first(), here.last()) else {
                continue;
            };
            visits += 1;
            let row = |vertex: i64| u64::try_from(vertex - first).unwrap();
            let options = GetOptions::new().rows(row(*low)..=row(*high));
            let mut reader = client.get_with(uri, "edges", &options).unwrap();
            let batch = reader.next_batch().unwrap().unwrap();
            assert!(reader.next_batch().unwrap().is_none());
            let lists = batch.column(0).as_list::<i32>();
            for vertex in &here {
                let to = lists.value(index(vertex - low));
                let to = to.as_primitive::<Int64Type>().values();
                next.extend(to.iter().filter(|to| reached.insert(**to)));
            }
        }
        front = next;
        counts.push(i64::try_from(front.len()).unwrap());
    }
    counts.pop();
    (counts, visits)
}

/// The same counts, by one call of the function.
fn search_by_function(client: &Client, uris: &[String], module: &Module) -> Vec<i64> {
    let lines = uris.iter().zip((0..).step_by(index(PLACES)));
    let lines: String = lines
        .map(|(uri, first)| format!("{first} {uri} edges\n"))
        .collect();
    let text = format!("0 {VERTICES}\n{lines}\n");
    let none = vec![0; index(VERTICES) / 8];
    let mut from = none.clone();
    from[index(SOURCE) / 8] |= 1 << (SOURCE % 8);
    let arguments = [text.as_bytes(), &from, &from, &none].concat();
    let message = Message::new(module, "bfs", &arguments);
    let reader = message.get(client, &uris[0], "edges").unwrap();
    let batches = reader.map(|batch| batch.unwrap().column(1).to_owned());
    batches
        .flat_map(|column| column.as_primitive::<Int64Type>().values().to_vec())
        .collect()
}

/// Microseconds of a step, of so many.
fn median(mut times: Vec<Duration>, steps: i64) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e6 / steps as f64
}

/// Does the same in both ways in turns, and says how long a step of each takes.
fn compare<T: PartialEq + std::fmt::Debug>(
    name: &str,
    steps: i64,
    gets: impl Fn() -> T,
    function: impl Fn() -> T,
) {
    let end = gets();
    let mut times = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        assert_eq!(gets(), end);
        times.0.push(begin.elapsed());
        let begin = Instant::now();
        assert_eq!(function(), end);
        times.1.push(begin.elapsed());
    }
    let (gets, function) = (median(times.0, steps), median(times.1, steps));
    let ratio = function / gets;
    println!("{name}: a get {gets:.1} us, a hop {function:.1} us, ratio {ratio:.2}");
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
    let module = |name| Module::read(format!("{folder}/{name}.wasm")).unwrap();
    let (chase, bfs) = (module("chase"), module("bfs"));
    for scheme in ["shm", "tcp"] {
        let (mut children, uris): (Vec<_>, Vec<_>) = (0..4).map(|part| start(scheme, part)).unzip();
        let client = Client::new().unwrap();
        compare(
            &format!("{scheme} chase"),
            STEPS,
            || chase_by_gets(&client, &uris),
            || chase_by_function(&client, &uris, &chase),
        );
        let visits = search_by_gets(&client, &uris).1;
        compare(
            &format!("{scheme} search"),
            visits,
            || search_by_gets(&client, &uris).0,
            || search_by_function(&client, &uris, &bfs),
        );
        for child in &mut children {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
    }
}
