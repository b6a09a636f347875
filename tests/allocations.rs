//! How often a message's header takes memory from the heap: at most four times, however many columns
//! it has, on its way out and on its way in (the goals of the library's speed).
//!
//! Alone in its program, since the allocator counts for all of it.

#[path = "../benches/common/mod.rs"]
mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::{Arrived, Kind, Produced, table};
use dipc::arrow::{EncodeOptions, Encoder};

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
