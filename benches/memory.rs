//! Memory that can be lent, and tables in and out of Arrow's C structs.
//!
//! `cargo bench -p libdipc --bench memory -- --quick`

#![allow(
    clippy::unwrap_used,
    missing_docs,
    reason = "in benchmarks a panic is how a failure shows"
)]

mod common;

use std::hint::black_box;
use std::ptr::NonNull;

use common::{Arrived, Kind, Produced, table};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use dipc::arena::{Arena, ArenaOptions};
use dipc::arrow::{batch_from_c, batch_to_c, schema_to_c};
use dipc::device::DeviceKind;

/// Blocks taken and given back: alone, and among many that are in use.
fn arena(criterion: &mut Criterion) {
    let arena = Arena::new(DeviceKind::CPU, ArenaOptions::default()).unwrap();
    let mut group = criterion.benchmark_group("arena");
    for size in [64, 64 << 10, 8 << 20] {
        group.bench_function(BenchmarkId::new("alloc and dealloc", size), |bencher| {
            bencher.iter(|| give_back(&arena, arena.alloc(size).unwrap()));
        });
    }
    for live in [100, 10_000] {
        let blocks: Vec<_> = (0..live).map(|_| arena.alloc(256).unwrap()).collect();
        group.bench_function(BenchmarkId::new("beside blocks in use", live), |bencher| {
            bencher.iter(|| give_back(&arena, arena.alloc(256).unwrap()));
        });
        for block in blocks {
            give_back(&arena, block);
        }
    }
}

fn give_back(arena: &Arena, block: NonNull<u8>) {
    // SAFETY: the block is of this arena, and nobody uses it.
    unsafe { arena.dealloc(block) }.unwrap();
}

/// Of record batches of arrow-rs, by the library's own functions for Rust.
fn exchange(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("exchange");
    for columns in [1, 10, 100, 1000, 10_000] {
        group.throughput(Throughput::Elements(columns as u64));
        let table = table(Kind::Int64, columns);
        group.bench_function(BenchmarkId::new("export", columns), |bencher| {
            bencher.iter(|| batch_to_c(table.clone()));
        });
        group.bench_function(BenchmarkId::new("export and import", columns), |bencher| {
            let schema = table.schema();
            bencher.iter(|| {
                // SAFETY: the array was made of a table of this schema.
                unsafe { batch_from_c(batch_to_c(table.clone()), &schema) }.unwrap()
            });
        });
        group.bench_function(BenchmarkId::new("export schema", columns), |bencher| {
            bencher.iter(|| schema_to_c(&table.schema()).unwrap());
        });
        let produced = Produced::new(&table);
        let mut arrived = Arrived::new(&produced);
        let schema = table.schema();
        group.bench_function(BenchmarkId::new("receive and import", columns), |bencher| {
            bencher.iter(|| {
                let array = black_box(arrived.read()).array;
                // SAFETY: the decoder made the array for this schema.
                unsafe { batch_from_c(array, &schema) }.unwrap()
            });
        });
    }
}

criterion_group!(benches, arena, exchange);
criterion_main!(benches);
