//! How often a message's header takes memory from the heap: at most four times, however many columns
//! it has, on its way out and on its way in (the goals of the library's speed). Likewise a batch at its consumer.
//!
//! Alone in its program, since the allocator counts for all of it.

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

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use common::{Arrived, Kind, Produced, table};
use dipc::arena::{Arena, ArenaOptions};
use dipc::arrow::stream::ArrayReader;
use dipc::arrow::{EncodeOptions, Encoder};
use dipc::client::{Client, ClientOptions, GetOptions};
use dipc::device::DeviceKind;
use dipc::server::{Server, ServerOptions};

/// Counts what each thread allocates.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

fn one_more() {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

// SAFETY: the system's allocator does the work; counting touches no memory of the heap, for the
// counter needs neither a start nor an end.
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
/// Messages before the count, in which lists grow to the size that they keep.
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

/// Of a batch that lies in an arena there is only where it lies: its buffers, what gives them back and the C structs, three
/// allocations. A longer list is one more as it comes, and a very long one grows. What the server is told for several
/// together is another one in the mean.
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
        let server = Server::new(ServerOptions::default()).unwrap();
        let process = std::process::id();
        let uri = server.listen(&format!("shm:@dipc-allocations-{process}-{columns}"));
        assert!(server.publish(b"t", schema, batches).is_ok());
        let client = Client::new(ClientOptions::default()).unwrap();
        let options = GetOptions::default();
        let mut stream = client.get(&[&uri.unwrap()], b"t", &options, None).unwrap();
        // It does not sleep, before which the server is told of each batch by itself where that is the slower one.
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
