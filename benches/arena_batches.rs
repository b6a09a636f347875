//! What a batch in lendable memory costs, for batches of different sizes.
//!
//! One process serves record batches of one int64 column that lie in a `dipc_arena`; this one
//! fetches them over shared memory and releases each at once, untouched. Nothing is copied, so the
//! cost per batch should not grow with the batch. Prints microseconds per batch, and each size's
//! ratio to the first, medians of five rounds that take turns.
//!
//! `cargo bench --bench arena_batches`; `-- --batches N` sets how many batches a round has.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "in tests a panic is how a failure shows"
)]

use std::io::BufRead;
use std::process::{Command, Stdio};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{Int64Array, RecordBatch};
use arrow::buffer::{Buffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, Schema};
use dipc::arena::{Arena, ArenaOptions};
use dipc::arrow::stream::ArrayReader;
use dipc::client::{Client, ClientOptions, GetOptions};
use dipc::device::DeviceKind;
use dipc::server::{Request, Server, ServerOptions};

#[path = "../tests/common/mod.rs"]
mod common;

const SIZES: [usize; 4] = [64 << 10, 128 << 10, 2 << 20, 32 << 20];
const ROUNDS: usize = 5;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments
        .get(1)
        .is_some_and(|argument| argument == "--serve")
    {
        return serve(&arguments[2]);
    }
    let batches = arguments
        .iter()
        .position(|argument| argument == "--batches")
        .and_then(|at| arguments.get(at + 1)?.parse().ok())
        .unwrap_or(20_000);
    let address = format!("shm:@dipc-bench-{}", std::process::id());
    let mut child = Command::new(std::env::current_exe().expect("the path of this program"))
        .args(["--serve", &address])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a serving process");
    let mut ready = String::new();
    std::io::BufReader::new(child.stdout.take().expect("its output"))
        .read_line(&mut ready)
        .expect("its first line");
    let client = Client::new(ClientOptions::default()).expect("a client");
    let mut micros = vec![Vec::new(); SIZES.len()];
    for _ in 0..ROUNDS {
        for (size, micros) in SIZES.iter().zip(&mut micros) {
            micros.push(round(&client, ready.trim(), *size, batches));
        }
    }
    drop(child.stdin.take());
    child.wait().expect("the serving process to end");
    let medians: Vec<f64> = micros.iter_mut().map(|figures| median(figures)).collect();
    println!(
        "{:>12} {:>14} {:>14} {:>8}",
        "batch bytes", "us per batch", "batches/s", "ratio"
    );
    for (size, median) in SIZES.iter().zip(&medians) {
        println!(
            "{size:>12} {median:>14.3} {:>14.0} {:>8.2}",
            1e6 / median,
            median / medians[0]
        );
    }
}

fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Microseconds per batch of one stream.
fn round(client: &Client, uri: &str, size: usize, batches: usize) -> f64 {
    let ticket = format!("{size}:{batches}");
    let options = GetOptions::default();
    let mut stream = client
        .get(&[uri], ticket.as_bytes(), &options, None)
        .expect("a stream");
    let start = Instant::now();
    let mut received = 0;
    while let Some(array) = stream.next().expect("a batch") {
        assert_eq!(array.raw().array.length as usize, size / 8);
        received += 1;
    }
    let elapsed = start.elapsed();
    assert_eq!(received, batches);
    assert_eq!(stream.stats().bytes_received, 0, "a batch was not lent");
    elapsed.as_secs_f64() * 1e6 / batches as f64
}

fn serve(address: &str) {
    let server = Server::new(ServerOptions::default()).expect("a server");
    for size in SIZES {
        let table = Arc::new(arena_batch(size));
        // The ticket says how many batches; one provider serves each count that is asked for.
        for batches in [100, 1_000, 5_000, 20_000, 100_000, 400_000] {
            let table = Arc::clone(&table);
            let provider = common::FnProvider(move |_: &Request| {
                let table = Arc::clone(&table);
                let rows = (0..batches).map(move |_| Ok(RecordBatch::clone(&table)));
                Ok(common::stream_of(schema(), rows))
            });
            let ticket = format!("{size}:{batches}");
            server
                .serve(ticket.as_bytes(), Box::new(provider))
                .map_err(|(error, _)| error)
                .expect("a ticket");
        }
    }
    println!("{}", server.listen(address).expect("a listener"));
    // Until the parent closes our input.
    let mut line = String::new();
    let _ = std::io::stdin().read_line(&mut line);
    let _ = server.stop(Duration::from_secs(5));
}

fn schema() -> Arc<Schema> {
    Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]))
}

/// A batch of one column of `size` bytes in lendable memory.
fn arena_batch(size: usize) -> RecordBatch {
    struct Block {
        arena: Arena,
        data: NonNull<u8>,
    }
    // SAFETY: the block is plain memory; the arena that owns it is thread-safe.
    unsafe impl Send for Block {}
    // SAFETY: as above; nothing writes to it once it is filled.
    unsafe impl Sync for Block {}
    impl std::panic::RefUnwindSafe for Block {}
    impl Drop for Block {
        fn drop(&mut self) {
            // SAFETY: the array that used the block is gone.
            unsafe { self.arena.dealloc(self.data) }.expect("a block of this arena");
        }
    }
    let options = ArenaOptions {
        region_bytes: 64 << 20,
        ..ArenaOptions::default()
    };
    let arena = Arena::new(DeviceKind::CPU, options).expect("an arena");
    let data = arena.alloc(size).expect("a block");
    // SAFETY: the block is `size` bytes that nobody else knows of.
    unsafe { std::slice::from_raw_parts_mut(data.as_ptr().cast::<i64>(), size / 8) }
        .iter_mut()
        .zip(0..)
        .for_each(|(slot, value)| *slot = value);
    let owner = Arc::new(Block { arena, data });
    // SAFETY: the block is readable for `size` bytes as long as `owner` lives.
    let buffer = unsafe { Buffer::from_custom_allocation(data, size, owner) };
    let column = Int64Array::new(ScalarBuffer::from(buffer), None);
    RecordBatch::try_new(schema(), vec![Arc::new(column)]).expect("a table")
}
