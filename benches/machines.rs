//! What the protocol itself costs for each batch: a step of the receiver and of the sender, and the
//! coding of what they exchange.
//!
//! A step of the receiver is a header, an address list, and the message taken; one of the sender a
//! batch sent and its addresses returned. `batches` runs many steps on one stream: its time for
//! each does not grow with their number.
//!
//! `cargo bench -p libdipc --bench machines -- --quick`

#![allow(
    clippy::unwrap_used,
    missing_docs,
    reason = "in benchmarks a panic is how a failure shows"
)]

mod common;

use std::hint::black_box;

use common::machines::{ReceiverStep, SenderStep};
use common::{Arrived, Kind, Produced, table};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use dipc::proto::{
    AddressList, BodyKind, Control, Credit, Prefix, PrefixKind, Span, body_tag, decode_frees,
    encode_frees, parse_body_tag,
};

const COLUMNS: [usize; 5] = [1, 10, 100, 1000, 10_000];

fn steps(criterion: &mut Criterion) {
    for columns in COLUMNS {
        let produced = Produced::new(&table(Kind::Int64, columns));
        let arrived = Arrived::new(&produced);
        let mut receiver = ReceiverStep::new(&arrived);
        let mut sender = SenderStep::new(&arrived);
        let mut group = criterion.benchmark_group("step");
        group.throughput(Throughput::Elements(columns as u64));
        group.bench_function(BenchmarkId::new("receiver", columns), |bencher| {
            bencher.iter(|| black_box(receiver.run()));
        });
        group.bench_function(BenchmarkId::new("sender", columns), |bencher| {
            bencher.iter(|| sender.run());
        });
    }
}

fn batches(criterion: &mut Criterion) {
    let produced = Produced::new(&table(Kind::Int64, 1));
    let arrived = Arrived::new(&produced);
    let mut group = criterion.benchmark_group("batches");
    group.sample_size(10);
    for batches in [1_000_u64, 1_000_000] {
        group.throughput(Throughput::Elements(batches));
        group.bench_function(BenchmarkId::new("both", batches), |bencher| {
            bencher.iter(|| {
                let mut sender = SenderStep::new(&arrived);
                let mut receiver = ReceiverStep::new(&arrived);
                for _ in 0..batches {
                    sender.run();
                    black_box(receiver.run());
                }
            });
        });
    }
}

fn coding(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("coding");
    for count in [10_u64, 1000] {
        let spans: Vec<Span> = (1..=count)
            .map(|at| Span {
                address: at << 20,
                length: 128,
            })
            .collect();
        let list = AddressList::new(spans).unwrap();
        group.throughput(Throughput::Elements(count));
        group.bench_function(BenchmarkId::new("address list", count), |bencher| {
            bencher.iter(|| AddressList::decode(&list.encode()).unwrap());
        });
        let addresses: Vec<u64> = list.addresses().collect();
        group.bench_function(BenchmarkId::new("free list", count), |bencher| {
            bencher.iter(|| decode_frees(&encode_frees(&addresses)).unwrap());
        });
    }
    group.throughput(Throughput::Elements(1));
    group.bench_function("prefix and tag", |bencher| {
        bencher.iter(|| {
            let prefix = Prefix {
                kind: PrefixKind::Metadata,
                seq: black_box(7),
            };
            Prefix::split(&black_box(prefix.encode())).unwrap();
            parse_body_tag(black_box(body_tag(prefix.seq, BodyKind::List))).unwrap()
        });
    });
    let credit = Control::Credit {
        stream: 1,
        credit: Credit {
            batches: 16,
            bytes: 1 << 28,
        },
    };
    group.bench_function("credit", |bencher| {
        bencher.iter(|| Control::decode(&black_box(&credit).encode()).unwrap());
    });
}

criterion_group!(benches, steps, batches, coding);
criterion_main!(benches);
