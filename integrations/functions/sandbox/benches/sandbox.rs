//! What a function costs beside its own work: `cargo bench -p libdipc-sandbox`. With
//! DIPC_FUNCTIONS_MODULES, the folder of tools/build-functions.sh, also what an example costs.

#![allow(clippy::expect_used, reason = "a bench that fails ends")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use dipc_sandbox::{Limits, Module, Options, Sandbox};

/// Puts out its input. It has a bump allocator that is reset by each free.
const SAME: &str = r#"(module
    (import "dipc" "emit" (func $emit (param i32) (result i32)))
    (memory (export "memory") 2)
    (func (export "dipc_abi_version") (result i32) (i32.const 1))
    (func (export "dipc_alloc") (param $length i32) (param i32) (result i32)
        (local $more i32)
        (local.set $more (i32.sub
            (i32.div_u (i32.add (local.get $length) (i32.const 131071)) (i32.const 65536))
            (memory.size)))
        (if (i32.gt_s (local.get $more) (i32.const 0))
            (then (drop (memory.grow (local.get $more)))))
        (i32.const 65536))
    (func (export "dipc_free") (param i32 i32 i32))
    (func (export "dipc_init") (param i32 i32 i32 i32) (param $input i32) (param $output i32)
        (result i32)
        (memory.copy (local.get $output) (local.get $input) (i32.const 48))
        (i32.const 0))
    (func (export "dipc_process") (param $array i32) (result i32)
        (call $emit (local.get $array)))
    (func (export "dipc_finish") (result i32) (i32.const 0)))"#;

/// The median of so many runs.
fn median(runs: usize, mut body: impl FnMut()) -> Duration {
    let mut times: Vec<_> = (0..runs)
        .map(|_| {
            let begin = Instant::now();
            body();
            begin.elapsed()
        })
        .collect();
    times.sort();
    times[runs / 2]
}

fn first_result(module: &Module, (function, arguments): (&str, &str), batch: &RecordBatch) {
    let limits = Limits::default();
    let schema = batch.schema();
    let mut running = module
        .start(function, arguments.as_bytes(), Some(&schema), &limits)
        .expect("a start");
    black_box(running.process(batch).expect("rows"));
}

fn pass_through(name: &str, module: &Module, column: ArrayRef) {
    let batch = RecordBatch::try_from_iter([("column", column)]).expect("a batch");
    let bytes: usize = batch.get_array_memory_size();
    let limits = Limits {
        memory_bytes: 1 << 30,
        output_bytes: u64::MAX,
        ..Limits::default()
    };
    let limits = Limits {
        step_bytes: 1 << 30,
        ..limits
    };
    let schema = batch.schema();
    let mut running = module
        .start("f", b"", Some(&schema), &limits)
        .expect("a start");
    let time = median(21, || {
        drop(black_box(running.process(&batch).expect("rows")))
    });
    // Once into the module, and once into memory that is new, as the output's is.
    let (from, mut guest) = (vec![1_u8; bytes], vec![0; bytes]);
    let copies = median(21, || {
        guest.copy_from_slice(black_box(&from));
        black_box(guest.to_vec());
    });
    let rate = bytes as f64 / time.as_secs_f64() / 1e9;
    println!(
        "{name}, {} KiB: {time:?} ({rate:.2} GB/s), copies alone {copies:?}",
        bytes / 1024
    );
}

fn main() {
    let wasm = wat::parse_str(SAME).expect("a module");
    let sandbox = Sandbox::new(Options::default()).expect("a sandbox");
    let column: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
    let small = RecordBatch::try_from_iter([("column", column)]).expect("a batch");

    let cold = median(21, || {
        first_result(
            &sandbox.compile(&wasm).expect("a module"),
            ("f", ""),
            &small,
        )
    });
    println!("first result of a new module: {cold:?}");
    let module = sandbox.compile(&wasm).expect("a module");
    println!(
        "first result of a kept one: {:?}",
        median(1001, || first_result(&module, ("f", ""), &small))
    );
    if let Some(folder) = std::env::var_os("DIPC_FUNCTIONS_MODULES") {
        let wasm = std::fs::read(std::path::Path::new(&folder).join("filter.wasm"));
        let module = sandbox
            .compile(&wasm.expect("filter.wasm"))
            .expect("a module");
        println!(
            "first result of the example `filter`, kept: {:?}",
            median(1001, || first_result(
                &module,
                ("keep", "column>-1"),
                &small
            ))
        );
    }

    for rows in [1 << 10, 1 << 16, 1 << 20, 8 << 20] {
        pass_through(
            "int64",
            &module,
            Arc::new(Int64Array::from_iter_values(0..rows)),
        );
    }
    let texts = (0..1 << 20).map(|row| format!("text {row}"));
    pass_through(
        "texts",
        &module,
        Arc::new(StringArray::from_iter_values(texts)),
    );
}
