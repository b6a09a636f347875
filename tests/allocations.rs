//! Counts heap allocations. To build or to read a header takes at most four, for any number of
//! columns. A lent batch at its consumer, and a provider's batch at its server, have limits too.
//!
//! A program of its own, because the allocator counts for the whole program.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "in tests a panic is how a failure shows"
)]

#[path = "common/mod.rs"]
mod arrays;
#[path = "../benches/common/mod.rs"]
mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use common::{Arrived, Kind, Produced, table};
use dipc::arena::{Arena, ArenaOptions};
use dipc::arrow::stream::{ArrayReader, export_device_stream};
use dipc::arrow::{EncodeOptions, Encoder, OwnedDeviceArray, OwnedDeviceStream, OwnedSchema};
use dipc::client::{Client, ClientOptions, GetOptions};
use dipc::device::DeviceKind;
use dipc::error::Result;
use dipc::server::{HostProvider, ServerHandle, ServerOptions, ServerRequest};

/// Counts what each thread allocates.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

fn one_more() {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

// SAFETY: the system's allocator does the work; counting uses no heap memory, because the counter
// needs no initialisation and no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        one_more();
        // SAFETY: the caller promises what is asked.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        one_more();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        one_more();
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const COLUMNS: [usize; 3] = [1, 10, 1000];
/// Messages before the count, during which lists grow to their final size.
const WARM: usize = 2;

fn allocations(work: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

#[test]
fn building_a_header_takes_four_allocations() {
    for kind in Kind::ALL {
        for columns in COLUMNS {
            let produced = Produced::new(&table(kind, columns));
            let mut encoder = Encoder::new(&produced.schema, EncodeOptions::default()).unwrap();
            let mut encode = || {
                // SAFETY: the encoder, which may hold the array, is dropped before `produced`.
                let array = unsafe { produced.again() };
                drop(encoder.encode(array, None).unwrap());
            };
            (0..WARM).for_each(|_| encode());
            let count = allocations(encode);
            assert!(count <= 4, "{columns} of {kind:?}: {count} allocations");
        }
    }
}

#[test]
fn reading_a_header_takes_four_allocations() {
    for kind in Kind::ALL {
        for columns in COLUMNS {
            let produced = Produced::new(&table(kind, columns));
            let mut arrived = Arrived::new(&produced);
            (0..WARM).for_each(|_| drop(arrived.read()));
            let count = allocations(|| drop(arrived.read()));
            assert!(count <= 4, "{columns} of {kind:?}: {count} allocations");
        }
    }
}

/// A lent batch has only a description: its buffers, their owner and the C structs, which are three
/// allocations. A longer list takes one more, and a very long list grows. The message that returns
/// several batches takes about one more for each.
#[test]
fn a_lent_batch_takes_its_consumer_few_allocations() {
    const BATCHES: usize = 400;
    for (columns, most) in COLUMNS.into_iter().zip([5, 6, 7]) {
        let arena = Arena::new(DeviceKind::CPU, ArenaOptions::default()).unwrap();
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1000));
        let named = (0..columns).map(|column_of| (format!("c{column_of}"), Arc::clone(&column)));
        let made = RecordBatch::try_from_iter(named).unwrap();
        let batch = arrays::in_arena(&arena, &made);
        let schema = arrays::export_schema(&batch.schema());
        let batches = (0..BATCHES).map(|_| arrays::export(&batch)).collect();
        let server = ServerHandle::new(ServerOptions::default()).unwrap();
        let process = std::process::id();
        let uri = server.listen(&format!("shm:@dipc-allocations-{process}-{columns}"));
        assert!(server.publish(b"t", schema, batches).is_ok());
        let client = Client::new(ClientOptions::default()).unwrap();
        let options = GetOptions::default();
        let mut stream = client.get(&[&uri.unwrap()], b"t", &options, None).unwrap();
        // The consumer does not sleep. Before a sleep it would return each batch by itself.
        let mut take_half = || {
            let mut left = BATCHES / 2;
            while left > 0 {
                let here = stream.batches_here().min(left);
                (0..here).for_each(|_| drop(stream.next().unwrap().unwrap()));
                left -= here;
                std::thread::yield_now();
            }
        };
        take_half();
        let count = allocations(take_half);
        assert_eq!(
            stream.stats().bytes_copied + stream.stats().bytes_received,
            0
        );
        assert!(
            count <= most * BATCHES / 2,
            "{columns} columns: {count} allocations"
        );
    }
}

/// A table whose arrays exist before the stream pulls them.
struct Ready {
    batch: RecordBatch,
    /// The allocations of the calling thread between the first and the last quarter of the batches.
    allocations: Arc<AtomicUsize>,
}

impl Ready {
    const BATCHES: usize = 800;
    const COUNTED: usize = Self::BATCHES / 2;
}

impl HostProvider for Ready {
    fn open(&self, _: &ServerRequest) -> Result<OwnedDeviceStream> {
        Ok(export_device_stream(Box::new(ReadyReader {
            schema: self.batch.clone(),
            arrays: (0..Self::BATCHES)
                .map(|_| arrays::export(&self.batch))
                .collect(),
            start: 0,
            allocations: Arc::clone(&self.allocations),
        })))
    }
}

struct ReadyReader {
    schema: RecordBatch,
    arrays: Vec<OwnedDeviceArray>,
    start: usize,
    allocations: Arc<AtomicUsize>,
}

impl ArrayReader for ReadyReader {
    fn schema(&mut self) -> Result<OwnedSchema> {
        Ok(arrays::export_schema(&self.schema.schema()))
    }

    fn next(&mut self) -> Result<Option<OwnedDeviceArray>> {
        let left = self.arrays.len();
        if left == Ready::BATCHES - Ready::BATCHES / 4 {
            self.start = ALLOCATIONS.get();
        }
        if left == Ready::BATCHES / 4 {
            let count = ALLOCATIONS.get() - self.start;
            self.allocations.store(count, Ordering::Relaxed);
        }
        Ok(self.arrays.pop())
    }

    fn device_type(&self) -> i32 {
        DeviceKind::CPU.0
    }
}

/// A server keeps the array of a provider's batch, one allocation, and a run of frames. Ten columns
/// have longer lists of buffers, two allocations. A body that is neither lent nor small needs a
/// description and an owner too. Batches that come back one by one, as on a busy machine, take up to
/// two for each message.
#[test]
fn a_providers_batch_takes_its_server_few_allocations() {
    for (scheme, in_arena, columns, rows, most) in [
        ("shm", true, 1, 1000, 5),
        ("shm", true, 10, 1000, 9),
        ("shm", false, 1, 1000, 6),
        ("tcp", false, 1, 8, 5),
        ("tcp", false, 1, 1000, 6),
    ] {
        let arena = Arena::new(DeviceKind::CPU, ArenaOptions::default()).unwrap();
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
        let named = (0..columns).map(|column_of| (format!("c{column_of}"), Arc::clone(&column)));
        let made = RecordBatch::try_from_iter(named).unwrap();
        let allocations = Arc::new(AtomicUsize::new(0));
        let provider = Ready {
            batch: if in_arena {
                arrays::in_arena(&arena, &made)
            } else {
                made
            },
            allocations: Arc::clone(&allocations),
        };
        let server = ServerHandle::new(ServerOptions::default()).unwrap();
        let process = std::process::id();
        let uri = server.listen(&match scheme {
            "shm" => format!("shm:@dipc-provider-{process}-{columns}-{in_arena}"),
            _ => "tcp://127.0.0.1:0".to_owned(),
        });
        assert!(server.serve(b"t", Box::new(provider)).is_ok());
        let client = Client::new(ClientOptions::default()).unwrap();
        let options = GetOptions::default();
        let mut stream = client.get(&[&uri.unwrap()], b"t", &options, None).unwrap();
        let mut batches = 0;
        while stream.next().unwrap().is_some() {
            batches += 1;
        }
        assert_eq!(batches, Ready::BATCHES);
        let count = allocations.load(Ordering::Relaxed);
        assert!(
            count > 0 && count <= most * Ready::COUNTED,
            "{columns} columns over {scheme}, in an arena: {in_arena}: {count} allocations"
        );
    }
}
