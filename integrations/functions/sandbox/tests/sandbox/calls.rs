//! Calls that go well.

use crate::support::{BYTES, Wat, call, numbers};
use dipc_sandbox::{Error, Limits};

#[test]
fn a_function_that_puts_out_its_input_gives_the_same_batch() {
    let module = Wat::default().module();
    let batch = numbers((0..100_000).collect());
    let outputs = call(&module, &batch, &Limits::default()).expect("the batch");
    assert_eq!(outputs, [batch]);
}

#[test]
fn bytes_come_as_one_column() {
    let wat = Wat {
        fields: r#"(data (i32.const 16) "ab")"#.into(),
        init: BYTES.into(),
        process: "(drop (call $emit_bytes (i32.const 16) (i32.const 2)))
                  (drop (call $emit_bytes (i32.const 0) (i32.const 0)))
                  (i32.const 0)"
            .into(),
        ..Wat::default()
    };
    let batch = numbers(vec![1]);
    let mut running = wat
        .module()
        .start("f", b"", Some(&batch.schema()), &Limits::default())
        .expect("a function");
    assert_eq!(running.schema().fields().len(), 1);
    let outputs = running.process(&batch).expect("bytes");
    assert_eq!(outputs.len(), 1);
    assert_eq!(outputs[0].schema(), running.schema());
    use arrow::array::AsArray;
    let values: Vec<_> = outputs[0]
        .column(0)
        .as_binary::<i32>()
        .iter()
        .flatten()
        .collect();
    assert_eq!(values, [&b"ab"[..], b""]);
    assert!(running.finish().expect("the end").is_empty());
    assert!(matches!(running.finish(), Err(Error::Over)));
}

#[test]
fn name_and_arguments_reach_the_function() {
    let wat = Wat {
        init: "(call $fail (local.get $name) (i32.add
                   (i32.sub (local.get $arguments) (local.get $name))
                   (local.get $arguments_length)))
               (i32.const 1)"
            .into(),
        ..Wat::default()
    };
    let failed = wat
        .module()
        .start("sum", b"arguments", None, &Limits::default());
    let Err(Error::Function(text)) = failed else {
        panic!("{failed:?}")
    };
    assert!(text.starts_with("sum"), "{text}");
    assert!(text.ends_with("arguments"), "{text}");
}

#[test]
fn a_call_without_a_table_only_ends() {
    let wat = Wat {
        init: "(if (local.get $input) (then (unreachable))) (i32.const 0)".into(),
        finish: "(drop (call $emit_bytes (i32.const 0) (i32.const 0))) (i32.const 0)".into(),
        ..Wat::default()
    };
    let mut running = wat
        .module()
        .start("f", b"", None, &Limits::default())
        .expect("a function");
    assert!(matches!(
        running.process(&numbers(vec![1])),
        Err(Error::Input(_))
    ));
    assert_eq!(running.finish().expect("a value")[0].num_rows(), 1);
}

#[test]
fn a_function_learns_that_nobody_needs_more() {
    let wat = Wat {
        process: "(call $emit (local.get $array))".into(),
        ..Wat::default()
    };
    let batch = numbers(vec![1]);
    let mut running = wat
        .module()
        .start("f", b"", Some(&batch.schema()), &Limits::default())
        .expect("a function");
    assert_eq!(running.process(&batch).expect("rows").len(), 1);
    running.canceller().no_more();
    // This function returns what it was told, which counts as a failure.
    assert!(matches!(running.process(&batch), Err(Error::Function(_))));
}

#[test]
fn a_batch_of_another_schema_is_refused_and_the_call_goes_on() {
    use arrow::array::{ArrayRef, Int32Array, RecordBatch};
    let batch = numbers(vec![1]);
    let mut running = Wat::default()
        .module()
        .start("f", b"", Some(&batch.schema()), &Limits::default())
        .expect("a function");
    let column: ArrayRef = std::sync::Arc::new(Int32Array::from(vec![1]));
    let other = RecordBatch::try_from_iter([("number", column)]).expect("a batch");
    assert!(matches!(running.process(&other), Err(Error::Input(_))));
    assert_eq!(running.process(&batch).expect("the batch"), [batch]);
}
