//! Modules in WebAssembly's text, and their calls.
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use dipc_sandbox::{Error, Limits, Module, Options, Outputs, Result, Sandbox};

/// A module whose allocator has room for one block, and whose parts can be replaced.
pub struct Wat {
    /// Pages of memory at first.
    pub pages: u32,
    /// More imports, globals, functions and data.
    pub fields: String,
    pub alloc: String,
    pub init: String,
    pub process: String,
    pub finish: String,
}

/// `dipc_init` that gives the input's schema as the output's.
pub const SAME_SCHEMA: &str =
    "(memory.copy (local.get $output) (local.get $input) (i32.const 48)) (i32.const 0)";
/// `dipc_process` that puts out its input.
pub const SAME_ROWS: &str = "(drop (call $emit (local.get $array))) (i32.const 0)";
/// Leaves the output's schema empty: the output is bytes.
pub const BYTES: &str = "(i32.const 0)";

impl Default for Wat {
    fn default() -> Self {
        Self {
            pages: 2,
            fields: String::new(),
            // One block lives at a time, from the second page on.
            alloc: "
                (local.set $end (i32.add (i32.const 65536) (local.get $length)))
                (if (i32.gt_u (local.get $end) (i32.mul (memory.size) (i32.const 65536)))
                    (then (if (i32.eq (i32.const -1) (memory.grow (i32.sub
                        (i32.div_u (i32.add (local.get $end) (i32.const 65535)) (i32.const 65536))
                        (memory.size))))
                        (then (return (i32.const 0))))))
                (i32.const 65536)"
                .into(),
            init: SAME_SCHEMA.into(),
            process: SAME_ROWS.into(),
            finish: "(i32.const 0)".into(),
        }
    }
}

impl Wat {
    pub fn text(&self) -> String {
        let Self {
            pages,
            fields,
            alloc,
            init,
            process,
            finish,
        } = self;
        format!(
            r#"(module
            (import "dipc" "emit" (func $emit (param i32) (result i32)))
            (import "dipc" "emit_bytes" (func $emit_bytes (param i32 i32) (result i32)))
            (import "dipc" "fail" (func $fail (param i32 i32)))
            (import "dipc" "forward" (func $forward (param i32 i32 i32 i32 i32 i32) (result i32)))
            (memory (export "memory") {pages})
            {fields}
            (func (export "dipc_abi_version") (result i32) (i32.const 1))
            (func (export "dipc_alloc") (param $length i32) (param $alignment i32) (result i32)
                (local $end i32)
                {alloc})
            (func (export "dipc_free") (param i32 i32 i32))
            (func (export "dipc_init")
                (param $name i32) (param $name_length i32)
                (param $arguments i32) (param $arguments_length i32)
                (param $input i32) (param $output i32) (result i32)
                {init})
            (func (export "dipc_process") (param $array i32) (result i32) {process})
            (func (export "dipc_finish") (result i32) {finish}))"#
        )
    }

    pub fn bytes(&self) -> Vec<u8> {
        wat::parse_str(self.text()).expect("a module")
    }

    pub fn module(&self) -> Module {
        sandbox()
            .compile(&self.bytes())
            .expect("a module that is taken")
    }
}

pub fn sandbox() -> Sandbox {
    Sandbox::new(Options::default()).expect("a sandbox")
}

pub fn numbers(values: Vec<i64>) -> RecordBatch {
    let column: ArrayRef = Arc::new(Int64Array::from(values));
    RecordBatch::try_from_iter([("number", column)]).expect("a batch")
}

/// Runs a function on one batch, to its end.
pub fn call(module: &Module, batch: &RecordBatch, limits: &Limits) -> Result<Outputs> {
    let mut running = module.start("f", b"", Some(&batch.schema()), limits)?;
    let mut outputs = running.process(batch)?;
    outputs.extend(running.finish()?);
    Ok(outputs)
}

/// The error of such a call; the same sandbox then runs another call well.
pub fn error(wat: &Wat, limits: &Limits) -> Error {
    let sandbox = sandbox();
    let batch = numbers(vec![1, 2, 3]);
    let module = sandbox
        .compile(&wat.bytes())
        .expect("a module that is taken");
    let error = call(&module, &batch, limits).expect_err("an error");
    let next = sandbox
        .compile(&Wat::default().bytes())
        .expect("a module that is taken");
    assert_eq!(
        call(&next, &batch, &Limits::default()).expect("the next call"),
        [batch]
    );
    error
}
