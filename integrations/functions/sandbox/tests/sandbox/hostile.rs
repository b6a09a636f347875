//! Modules that use too much, trap or break the interface. Each ends its own call with the right
//! error, and `error` runs another call after it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use dipc_sandbox::{Bound, Canceller, Error, Limits, Options, Sandbox};

use crate::support::{BYTES, SAME_ROWS, SAME_SCHEMA, Wat, call, error, numbers, sandbox};

fn bound(error: &Error) -> Bound {
    match error {
        Error::Limit { bound, .. } => *bound,
        other => panic!("{other:?}"),
    }
}

fn process(process: &str) -> Wat {
    Wat {
        process: process.into(),
        ..Wat::default()
    }
}

const LOOP: &str = "(loop $on (br $on)) (unreachable)";

/// Every place of a module that runs code.
fn places(code: &str) -> Vec<Wat> {
    let code = || code.to_owned();
    vec![
        Wat {
            fields: format!("(func $start {}) (start $start)", code()),
            ..Wat::default()
        },
        Wat {
            alloc: code(),
            ..Wat::default()
        },
        Wat {
            init: code(),
            ..Wat::default()
        },
        Wat {
            process: code(),
            ..Wat::default()
        },
        Wat {
            finish: code(),
            ..Wat::default()
        },
    ]
}

#[test]
fn endless_loops_end_when_the_fuel_is_used() {
    let limits = Limits {
        fuel: 1_000_000,
        ..Limits::default()
    };
    for wat in places(LOOP) {
        assert_eq!(bound(&error(&wat, &limits)), Bound::Fuel);
    }
}

#[test]
fn endless_loops_end_when_the_time_is_over() {
    let time = Duration::from_millis(100);
    let limits = Limits {
        fuel: u64::MAX,
        time,
        ..Limits::default()
    };
    for wat in places(LOOP) {
        let begin = Instant::now();
        assert_eq!(bound(&error(&wat, &limits)), Bound::Time);
        assert!(begin.elapsed() >= time);
        // Loose, for machines with much else to do.
        assert!(
            begin.elapsed() < Duration::from_secs(20),
            "{:?}",
            begin.elapsed()
        );
    }
}

#[test]
fn time_counts_over_all_batches_of_a_call() {
    let spin = "(local $n i64)
        (loop $on (local.set $n (i64.add (local.get $n) (i64.const 1)))
            (br_if $on (i64.lt_u (local.get $n) (i64.const 3000000))))
        (i32.const 0)";
    let limits = Limits {
        time: Duration::from_secs(1),
        ..Limits::default()
    };
    let batch = numbers(vec![1]);
    let module = process(spin).module();
    let mut running = module
        .start("f", b"", Some(&batch.schema()), &limits)
        .unwrap();
    let failed = (0..5_000).find_map(|_| running.process(&batch).err());
    assert_eq!(bound(&failed.expect("an end")), Bound::Time);
    assert!(matches!(running.process(&batch), Err(Error::Over)));
}

#[test]
fn a_call_is_cancelled_from_another_thread() {
    // More than a call that never runs long asks.
    const ASKED: usize = 50;
    let batch = numbers(vec![1]);
    let module = process(LOOP).module();
    let limits = Limits {
        fuel: u64::MAX,
        ..Limits::default()
    };
    let asked = Arc::new(AtomicUsize::new(0));
    let asks = Arc::clone(&asked);
    let canceller = Canceller::when(move || {
        asks.fetch_add(1, Ordering::Relaxed);
        false
    });
    let mut running = module
        .start_with("f", b"", Some(&batch.schema()), &limits, &canceller)
        .unwrap();
    std::thread::spawn(move || {
        while asked.load(Ordering::Relaxed) < ASKED {
            std::thread::yield_now();
        }
        canceller.cancel();
    });
    assert!(matches!(running.process(&batch), Err(Error::Cancelled)));
}

#[test]
fn memory_is_bounded() {
    let limits = Limits {
        memory_bytes: 4 << 20,
        ..Limits::default()
    };
    let grow = "(loop $on (br_if $on (i32.ne (i32.const -1) (memory.grow (i32.const 1)))))
        (unreachable)";
    for wat in places(grow) {
        assert_eq!(bound(&error(&wat, &limits)), Bound::Memory);
    }
    let declared = Wat {
        pages: 1000,
        ..Wat::default()
    };
    assert_eq!(bound(&error(&declared, &limits)), Bound::Memory);
    let table = Wat {
        fields: "(table 100000000 funcref)".into(),
        ..Wat::default()
    };
    assert_eq!(bound(&error(&table, &limits)), Bound::Memory);
    let grows = "(drop (table.grow (ref.null func) (i32.const 100000000))) (unreachable)";
    let table = Wat {
        fields: "(table 1 funcref)".into(),
        ..process(grows)
    };
    assert_eq!(bound(&error(&table, &limits)), Bound::Memory);
}

#[test]
fn a_module_that_gets_no_more_memory_may_do_with_less() {
    let limits = Limits {
        memory_bytes: 4 << 20,
        ..Limits::default()
    };
    let grow = "(loop $on (br_if $on (i32.ne (i32.const -1) (memory.grow (i32.const 1)))))";
    let module = process(&format!("{grow} {SAME_ROWS}")).module();
    let batch = numbers(vec![1]);
    assert_eq!(call(&module, &batch, &limits).unwrap(), [batch]);
}

#[test]
fn input_that_the_module_has_no_room_for_is_a_matter_of_memory() {
    let limits = Limits {
        memory_bytes: 1 << 20,
        ..Limits::default()
    };
    let batch = numbers(vec![1; 1 << 20]);
    let failed = call(&Wat::default().module(), &batch, &limits).unwrap_err();
    assert_eq!(bound(&failed), Bound::Memory);
}

#[test]
fn output_is_bounded_in_rows_and_bytes() {
    let endless = "(loop $on (drop (call $emit (local.get $array))) (br $on)) (unreachable)";
    let rows = Limits {
        output_rows: 1000,
        ..Limits::default()
    };
    assert_eq!(bound(&error(&process(endless), &rows)), Bound::OutputRows);
    let bytes = Limits {
        output_bytes: 100_000,
        ..Limits::default()
    };
    assert_eq!(bound(&error(&process(endless), &bytes)), Bound::OutputBytes);
    let step = Limits {
        step_bytes: 100_000,
        ..Limits::default()
    };
    assert_eq!(bound(&error(&process(endless), &step)), Bound::StepBytes);
    // Batches without rows take memory too.
    let empty = format!("(i64.store (local.get $array) (i64.const 0)) {endless}");
    assert_eq!(bound(&error(&process(&empty), &step)), Bound::StepBytes);

    let endless = "(loop $on (drop (call $emit_bytes (i32.const 16) (i32.const 1000))) (br $on))
        (unreachable)";
    let wat = Wat {
        init: BYTES.into(),
        ..process(endless)
    };
    assert_eq!(bound(&error(&wat, &rows)), Bound::OutputRows);
    assert_eq!(bound(&error(&wat, &bytes)), Bound::OutputBytes);
    assert_eq!(bound(&error(&wat, &step)), Bound::StepBytes);
}

#[test]
fn output_of_single_steps_is_bounded_anew() {
    let limits = Limits {
        step_bytes: 10_000,
        ..Limits::default()
    };
    let batch = numbers(vec![1; 500]);
    let module = Wat::default().module();
    let mut running = module
        .start("f", b"", Some(&batch.schema()), &limits)
        .unwrap();
    for _ in 0..10 {
        assert_eq!(running.process(&batch).unwrap().len(), 1);
    }
}

#[test]
fn traps_end_the_call() {
    let recurse = Wat {
        fields: "(func $down (result i32) (i32.add (call $down) (i32.const 1)))".into(),
        ..process("(call $down)")
    };
    let indirect = Wat {
        fields: "(table 1 funcref) (type $none (func))".into(),
        ..process("(call_indirect (type $none) (i32.const 0)) (i32.const 0)")
    };
    let wats = [
        process("(unreachable)"),
        process("(i32.div_s (i32.const 1) (i32.const 0))"),
        process("(i32.div_s (i32.const 0x80000000) (i32.const -1))"),
        process("(i32.trunc_f64_s (f64.const nan))"),
        process("(i32.load (i32.const -4))"),
        process("(memory.fill (i32.const 0) (i32.const 0) (i32.const -1)) (i32.const 0)"),
        recurse,
        indirect,
    ];
    for wat in wats {
        let error = error(&wat, &Limits::default());
        assert!(matches!(error, Error::Trap(_)), "{error:?}");
    }
    for wat in places("(unreachable)") {
        let error = error(&wat, &Limits::default());
        assert!(matches!(error, Error::Trap(_)), "{error:?}");
    }
}

#[test]
fn failures_come_with_the_functions_text() {
    let wat = Wat {
        fields: r#"(data (i32.const 16) "no\1b[31m\ff")"#.into(),
        ..process("(call $fail (i32.const 16) (i32.const 8)) (i32.const 7)")
    };
    let Error::Function(text) = error(&wat, &Limits::default()) else {
        panic!()
    };
    assert_eq!(text, "no\u{fffd}[31m\u{fffd}");
    let Error::Function(text) = error(&process("(i32.const 7)"), &Limits::default()) else {
        panic!()
    };
    assert!(text.contains('7'), "{text}");
}

#[test]
fn calls_of_the_host_are_checked() {
    let wrong = [
        // Texts and bytes outside the memory.
        process("(call $fail (i32.const -8) (i32.const 100)) (i32.const 1)"),
        process("(call $fail (i32.const 16) (i32.const -1)) (i32.const 1)"),
        Wat {
            init: BYTES.into(),
            ..process("(call $emit_bytes (i32.const -8) (i32.const 100))")
        },
        Wat {
            init: BYTES.into(),
            ..process("(call $emit_bytes (i32.const 0) (i32.const 100))")
        },
        // Output of the other kind.
        process("(call $emit_bytes (i32.const 16) (i32.const 1))"),
        Wat {
            init: BYTES.into(),
            ..process(SAME_ROWS)
        },
        // Output when there can be none.
        Wat {
            init: format!("(drop (call $emit (local.get $input))) {SAME_SCHEMA}"),
            ..Wat::default()
        },
        Wat {
            alloc: format!(
                "(drop (call $emit (i32.const 65536))) {}",
                Wat::default().alloc
            ),
            ..Wat::default()
        },
        Wat {
            fields: "(func $start (drop (call $emit (i32.const 16)))) (start $start)".into(),
            ..Wat::default()
        },
        // Memory that is none.
        Wat {
            alloc: "(i32.const -64)".into(),
            ..Wat::default()
        },
        Wat {
            alloc: "(i32.const 65537)".into(),
            ..Wat::default()
        },
    ];
    for wat in wrong {
        let error = error(&wat, &Limits::default());
        assert!(matches!(error, Error::Data(_)), "{error:?}");
    }
    // A later call of dipc_alloc, in which it was the function's turn already.
    let wat = Wat {
        fields: "(global $calls (mut i32) (i32.const 0))".into(),
        alloc: format!(
            "(global.set $calls (i32.add (global.get $calls) (i32.const 1)))
             (if (i32.eq (global.get $calls) (i32.const 3))
                 (then (drop (call $emit (i32.const 65536)))))
             {}",
            Wat::default().alloc
        ),
        ..Wat::default()
    };
    let batch = numbers(vec![1]);
    let module = wat.module();
    let mut running = module
        .start("f", b"", Some(&batch.schema()), &Limits::default())
        .unwrap();
    assert_eq!(running.process(&batch).unwrap().len(), 1);
    assert!(matches!(running.process(&batch), Err(Error::Data(_))));
    let none = Wat {
        alloc: "(i32.const 0)".into(),
        ..Wat::default()
    };
    assert!(matches!(
        error(&none, &Limits::default()),
        Error::Function(_)
    ));
}

#[test]
fn modules_that_are_none_are_refused_by_name() {
    let sandbox = sandbox();
    let refused = |text: &str, name: &str| {
        let error = sandbox.compile(&wat::parse_str(text).unwrap()).unwrap_err();
        let Error::Module(text) = &error else {
            panic!("{error:?}")
        };
        assert!(text.contains(name), "{text}");
    };
    let whole = Wat::default().text();
    for name in [
        "memory",
        "dipc_abi_version",
        "dipc_alloc",
        "dipc_free",
        "dipc_init",
        "dipc_process",
        "dipc_finish",
    ] {
        let lacking = whole.replace(&format!("(export \"{name}\")"), "");
        refused(&lacking, name);
    }
    let import = |import: &str| whole.replacen("(module", &format!("(module {import}"), 1);
    refused(
        &import(r#"(import "wasi_snapshot_preview1" "fd_write" (func (param i32)))"#),
        "wasi_snapshot_preview1.fd_write",
    );
    refused(&import(r#"(import "dipc" "open" (func))"#), "dipc.open");
    refused(
        &import(r#"(import "dipc" "fail" (func (param i64 i32)))"#),
        "dipc.fail",
    );
    refused(
        &import(r#"(import "dipc" "emit" (global i32))"#),
        "dipc.emit",
    );
    refused(
        &whole.replace("(export \"memory\") 2", "(export \"memory\") i64 2"),
        "",
    );
    refused(
        &whole
            .replace(
                "(param $array i32) (result i32)",
                "(param $array i64) (result i32)",
            )
            .replace("(local.get $array)", "(i32.wrap_i64 (local.get $array))"),
        "dipc_process",
    );
    refused("(module)", "memory");
    for bytes in [&b""[..], b"\0asm", b"(module)", b"\0asm\x01\0\0\0\xff"] {
        assert!(matches!(sandbox.compile(bytes), Err(Error::Module(_))));
    }
    let version = whole.replace("(result i32) (i32.const 1))", "(result i32) (i32.const 2))");
    let module = sandbox.compile(&wat::parse_str(version).unwrap()).unwrap();
    let started = module.start("f", b"", None, &Limits::default());
    assert!(matches!(started, Err(Error::Module(_))), "{started:?}");
}

#[test]
fn a_module_has_one_memory_and_no_threads() {
    let sandbox = sandbox();
    for field in ["(memory 1)", "(memory 1 1 shared)", "(memory i64 1)"] {
        let wat = Wat {
            fields: field.into(),
            ..Wat::default()
        };
        assert!(
            matches!(sandbox.compile(&wat.bytes()), Err(Error::Module(_))),
            "{field}"
        );
    }
}

#[test]
fn a_module_that_is_too_large_is_not_compiled() {
    let bytes = Wat::default().bytes();
    let small = |module_bytes| {
        let options = Options {
            module_bytes,
            ..Options::default()
        };
        Sandbox::new(options).unwrap().compile(&bytes)
    };
    assert!(small(bytes.len()).is_ok());
    assert_eq!(
        bound(&small(bytes.len() - 1).unwrap_err()),
        Bound::ModuleBytes
    );
}
