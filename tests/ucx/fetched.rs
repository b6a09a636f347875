//! Bodies that stay with the server until its client has fetched them.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::buffer::{Buffer, ScalarBuffer};
use dipc::arrow::stream::ArrayReader as _;
use dipc::client::GetOptions;
use dipc::device::BufferRef;
use dipc::proto::{BodyKind, ExpectedBody, body_tag};
use dipc::server::ServerRequest;
use dipc::transport::{Incoming, Outgoing, Payload};

use crate::common::{FnProvider, import, stream_of};
use crate::pair::Pair;
use crate::{eventually, pair, serve, works};

const BATCHES: i64 = 120;
/// The producer waits now and then.
const WAITS_EVERY: i64 = 40;

/// Values that are counted while they live.
struct Counted {
    values: Vec<i64>,
    alive: Arc<AtomicUsize>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A batch of one column and one buffer.
fn counted(first: i64, rows: usize, alive: &Arc<AtomicUsize>) -> RecordBatch {
    alive.fetch_add(1, Ordering::SeqCst);
    let owner = Arc::new(Counted {
        values: (first..).take(rows).collect(),
        alive: Arc::clone(alive),
    });
    let data = NonNull::from(owner.values.as_slice()).cast();
    // SAFETY: the owner keeps as many bytes where they are, and nobody writes to them.
    let buffer = unsafe { Buffer::from_custom_allocation(data, rows * 8, owner) };
    let column = Int64Array::new(ScalarBuffer::new(buffer, 0, rows), None);
    RecordBatch::try_from_iter([("n", Arc::new(column) as ArrayRef)]).unwrap()
}

/// "Driver", who reads: bodies come whole and in order, and their memory comes back to a producer
/// that waits for it in its own call, whoever reads the connection then: over what a client fetches
/// by itself and over tcp, where the server writes, spinning or not.
#[test]
fn what_was_fetched_comes_back_to_a_producer_that_waits() {
    if !works() {
        return;
    }
    let by_memory = [("ucx.TLS", "posix,cma,tcp"), ("ucx.error_handling", "none")];
    let over_tcp = [("ucx.TLS", "tcp"), ("ucx.error_handling", "peer")];
    for settings in [by_memory, over_tcp] {
        for spin in [Duration::ZERO, Duration::from_millis(50)] {
            for rows in [8 << 10, 128 << 10] {
                pass(&settings, spin, rows);
            }
        }
    }
}

fn pass(settings: &[(&str, &str)], spin: Duration, rows: usize) {
    let (server, client) = pair(settings, spin);
    let uri = server.listen("ucx://127.0.0.1:0").unwrap();
    let alive = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&alive);
    let schema = counted(0, 1, &alive).schema();
    let provider = FnProvider(move |_: &ServerRequest| {
        let alive = Arc::clone(&counter);
        let batches = (0..BATCHES).map(move |index| {
            if index % WAITS_EVERY == 0 {
                eventually("what was fetched is back", || {
                    alive.load(Ordering::SeqCst) == 0
                });
            }
            Ok(counted(index * rows as i64, rows, &alive))
        });
        Ok(stream_of(Arc::clone(&schema), batches))
    });
    serve(&server, "t", Box::new(provider));
    let options = GetOptions {
        spin,
        ..GetOptions::default()
    };
    let mut stream = client.get(&[&uri], b"t", &options, None).unwrap();
    let schema = stream.schema().unwrap();
    for index in 0..BATCHES {
        let array = stream.next().unwrap().unwrap();
        let batch = import(array, &schema);
        let first = index * rows as i64;
        let values: Vec<i64> = (first..).take(rows).collect();
        let column: ArrayRef = Arc::new(Int64Array::from(values));
        assert_eq!(batch.column(0), &column, "batch {index}");
    }
    assert!(stream.next().unwrap().is_none());
    eventually("all is back", || alive.load(Ordering::SeqCst) == 0);
}

/// Memory of a producer that uses it again as soon as it is given back.
struct Reused(Arc<Vec<AtomicU8>>);

impl Drop for Reused {
    fn drop(&mut self) {
        self.0
            .iter()
            .for_each(|byte| byte.store(9, Ordering::Relaxed));
    }
}

/// Rule F4: a body that was announced when its server cut the connection stays as it is while its
/// client may fetch it by itself; then, or when the client leaves, it is given back.
#[test]
fn what_a_cut_client_may_fetch_is_not_used_again() {
    if !works() {
        return;
    }
    let by_memory = [("ucx.TLS", "posix,cma,tcp"), ("ucx.error_handling", "none")];
    for settings in [&[][..], &by_memory] {
        for fetches in [true, false] {
            let mut pair = Pair::with(settings, "");
            let memory: Vec<_> = (0..2 << 20).map(|_| AtomicU8::new(1)).collect();
            let memory = Arc::new(memory);
            announce(&mut pair, &memory);
            // With UCX's defaults it may have left over tcp by then.
            let is_fetched = !settings.is_empty();
            pair.server.close(None);
            let closed = Instant::now();
            let is_reused = || memory[0].load(Ordering::Relaxed) == 9;
            while closed.elapsed() < Duration::from_millis(300) && !is_reused() {
                thread::sleep(Duration::from_millis(1));
            }
            assert!(!(is_fetched && is_reused()), "{settings:?}");
            if fetches && is_fetched {
                pair.client
                    .post_body(0, ExpectedBody::new(1, memory.len() as u64, 32));
                let body = loop {
                    match pair.client.receive_any().unwrap() {
                        Some(Incoming::Body { memory, .. }) => break memory,
                        Some(other) => panic!("{other:?}"),
                        None => assert!(closed.elapsed() < Duration::from_secs(30), "no body"),
                    }
                };
                assert!(body.as_slice().iter().all(|byte| *byte == 1));
            }
            drop(pair.client);
            eventually("it is given back", || Arc::strong_count(&memory) == 1);
        }
    }
}

/// Sends `memory` as the body of message 1, of which the client hears and which it does not want
/// yet.
fn announce(pair: &mut Pair, memory: &Arc<Vec<AtomicU8>>) {
    let owner = Box::new(Reused(Arc::clone(memory)));
    // SAFETY: as many bytes, which the caller keeps; only the other end reads them.
    let bytes = unsafe { std::slice::from_raw_parts(memory.as_ptr().cast(), memory.len()) };
    let (parts, tag) = (vec![BufferRef::of(bytes)], body_tag(1, BodyKind::Packed));
    let payload = Payload::Gather { parts, owner };
    pair.server.send(Outgoing::Tagged { tag, payload }).unwrap();
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(50) {
        assert!(pair.turn().unwrap().is_none());
    }
}
