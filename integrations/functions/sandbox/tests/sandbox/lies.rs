//! Modules whose structs lie. Each changes the structs of its input, and puts them out.

use std::sync::Arc;

use arrow::array::*;
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Int32Type, Schema};

use dipc_sandbox::{Bound, Error, Limits};

use crate::support::{SAME_SCHEMA, Wat, call, numbers};

/// The struct of the only column.
const COLUMN: &str = "(i32.load (i32.load offset=44 (local.get $array)))";
/// The field of the only column.
const FIELD: &str = "(i32.load (i32.load offset=32 (local.get $input)))";

fn refused(wat: &Wat, batch: &RecordBatch) -> String {
    let failed = call(&wat.module(), batch, &Limits::default());
    let Err(Error::Data(text)) = failed else {
        panic!("{}: {failed:?}", wat.process)
    };
    text
}

/// What the host says of a batch that was changed so.
fn batch_lie(batch: &RecordBatch, lie: &str) -> String {
    let process = format!("{lie} (drop (call $emit (local.get $array))) (i32.const 0)");
    refused(
        &Wat {
            process,
            ..Wat::default()
        },
        batch,
    )
}

/// What the host says of a schema that was changed so.
fn schema_lie(batch: &RecordBatch, lie: &str) -> String {
    let init = format!("{lie} {SAME_SCHEMA}");
    refused(
        &Wat {
            init,
            ..Wat::default()
        },
        batch,
    )
}

fn one(array: impl Array + 'static) -> RecordBatch {
    let field = Field::new("column", array.data_type().clone(), true);
    RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![Arc::new(array)]).unwrap()
}

fn strings() -> RecordBatch {
    one(StringArray::from(vec!["one", "two", "three"]))
}

fn store32(place: &str, offset: u32, value: &str) -> String {
    format!("(i32.store offset={offset} {place} (i32.const {value}))")
}

fn store64(place: &str, offset: u32, value: &str) -> String {
    format!("(i64.store offset={offset} {place} (i64.const {value}))")
}

#[test]
fn counts_that_cannot_be() {
    let array = "(local.get $array)";
    let huge = [
        "-1",
        "0x7fffffffffffffff",
        "0x8000000000000000",
        "0x100000000",
        "1000000",
    ];
    for place in [array, COLUMN] {
        // length, offset, n_buffers, n_children
        for field in [0, 16, 24, 32] {
            for value in huge {
                let lie = store64(place, field, value);
                let process = format!("{lie} (drop (call $emit (local.get $array))) (i32.const 0)");
                let wat = Wat {
                    process,
                    ..Wat::default()
                };
                let failed = call(&wat.module(), &strings(), &Limits::default());
                // Rows that cannot be read are too many, too.
                let is = match &failed {
                    Err(Error::Data(_)) => true,
                    Err(Error::Limit {
                        bound: Bound::OutputRows | Bound::StepBytes,
                        ..
                    }) => field == 0 && place == array,
                    // More rows in the column than in the batch are no lie.
                    Ok(_) => field == 0 && place == COLUMN && !value.starts_with('-'),
                    Err(_) => false,
                };
                assert!(is, "{place} {field} {value}: {failed:?}");
            }
        }
        // Fewer rows in the column than in the batch.
        batch_lie(&strings(), &store64(COLUMN, 0, "2"));
        for value in ["-2", "4", "0x7fffffffffffffff"] {
            batch_lie(&strings(), &store64(place, 8, value));
        }
    }
}

#[test]
fn pointers_that_lead_nowhere() {
    for value in ["0", "-1", "-64", "0x7fffffff", "0x01000000"] {
        // buffers, children
        batch_lie(&strings(), &store32("(local.get $array)", 40, value));
        batch_lie(&strings(), &store32("(local.get $array)", 44, value));
        batch_lie(&strings(), &store32(COLUMN, 40, value));
        // The only child, and a column's offsets and values.
        let children = "(i32.load offset=44 (local.get $array))";
        batch_lie(&strings(), &store32(children, 0, value));
        let buffers = format!("(i32.load offset=40 {COLUMN})");
        batch_lie(&strings(), &store32(&buffers, 4, value));
        batch_lie(&strings(), &store32(&buffers, 8, value));
    }
    for value in ["-1", "0x7fffffff"] {
        let buffers = format!("(i32.load offset=40 {COLUMN})");
        batch_lie(&strings(), &store32(&buffers, 0, value));
        let process = format!("(call $emit (i32.const {value}))");
        refused(
            &Wat {
                process,
                ..Wat::default()
            },
            &strings(),
        );
    }
    batch_lie(&strings(), &store32(COLUMN, 48, "64"));
}

#[test]
fn offsets_that_do_not_ascend() {
    let offsets = format!("(i32.load offset=4 (i32.load offset=40 {COLUMN}))");
    for (index, value) in [(0, "-1"), (4, "7"), (4, "-1"), (12, "1000000"), (12, "0")] {
        batch_lie(&strings(), &store32(&offsets, index, value));
        let lists = vec![Some(vec![Some(1)]), None, Some(vec![Some(2), Some(3)])];
        let lists = one(ListArray::from_iter_primitive::<Int32Type, _, _>(lists));
        batch_lie(&lists, &store32(&offsets, index, value));
    }
}

#[test]
fn values_that_are_none_of_their_type() {
    let values = format!("(i32.load offset=8 (i32.load offset=40 {COLUMN}))");
    let text = batch_lie(&strings(), &store32(&values, 0, "-1"));
    assert!(text.to_lowercase().contains("utf"), "{text}");
    // A text that ends within a character.
    let split = one(StringArray::from(vec!["ä", "b"]));
    let offsets = format!("(i32.load offset=4 (i32.load offset=40 {COLUMN}))");
    batch_lie(&split, &store32(&offsets, 4, "1"));

    let first = format!("(i32.load offset=4 (i32.load offset=40 {COLUMN}))");
    let keys = Int32Array::from(vec![0, 1, 1]);
    let words: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    let dictionary = one(DictionaryArray::new(keys, Arc::clone(&words)));
    for value in ["2", "-1"] {
        batch_lie(&dictionary, &store32(&first, 4, value));
    }
    batch_lie(&dictionary, &store32(COLUMN, 48, "0"));

    let runs = RunArray::try_new(&Int32Array::from(vec![2, 3]), &*words).unwrap();
    let ends = format!("(i32.load (i32.load offset=44 {COLUMN}))");
    let ends = format!("(i32.load offset=4 (i32.load offset=40 {ends}))");
    for value in ["3", "0", "-1"] {
        batch_lie(&one(runs.clone()), &store32(&ends, 0, value));
    }
    let views = one(StringViewArray::from(vec![
        "a text that is far from short",
        "b",
    ]));
    for (at, value) in [(0, "-1"), (0, "1000"), (4, "0"), (8, "1"), (12, "1000")] {
        batch_lie(&views, &store32(&first, at, value));
    }
    let sizes = format!("(i32.load offset=12 (i32.load offset=40 {COLUMN}))");
    for value in ["-1", "0x7fffffffffffffff", "1", "0"] {
        batch_lie(&views, &store64(&sizes, 0, value));
    }
}

#[test]
fn nulls_where_none_may_be() {
    let column: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
    let batch = RecordBatch::try_from_iter([("number", column)]).unwrap();
    assert!(!batch.schema().field(0).is_nullable());
    // The values serve as a bitmap, whose first byte is 1.
    let buffers = format!("(i32.load offset=40 {COLUMN})");
    let lie = format!("(i32.store {buffers} (i32.load offset=4 {buffers}))");
    batch_lie(&batch, &lie);
    // NULLs without a bitmap, and rows that are NULL as a whole.
    batch_lie(&batch, &store64(COLUMN, 8, "1"));
    let own = "(i32.load offset=40 (local.get $array))";
    batch_lie(
        &batch,
        &format!("(i32.store {own} (i32.load offset=4 {buffers}))"),
    );
}

#[test]
fn circles_end() {
    let lists = vec![Some(vec![Some(1)]), Some(vec![])];
    let lists = one(ListArray::from_iter_primitive::<Int32Type, _, _>(lists));
    // A child that is its parent has the parent's buffers, which do not fit its type.
    let children = format!("(i32.load offset=44 {COLUMN})");
    batch_lie(&lists, &format!("(i32.store {children} {COLUMN})"));

    let children = format!("(i32.load offset=32 {FIELD})");
    let text = schema_lie(&lists, &format!("(i32.store {children} {FIELD})"));
    assert!(text.contains("levels"), "{text}");
    // A column that is the table, which has a column that is the table: two columns, so that the
    // number of fields would double at each level.
    let columns: [ArrayRef; 2] = [
        Arc::new(Int8Array::from(vec![1])),
        Arc::new(NullArray::new(1)),
    ];
    let [a, b] = columns;
    let two = RecordBatch::try_from_iter([("a", a), ("b", b)]).unwrap();
    let children = "(i32.load offset=32 (local.get $input))";
    let lie = format!(
        "(i32.store {children} (local.get $input))
         (i32.store offset=4 {children} (local.get $input))"
    );
    schema_lie(&two, &lie);

    let keys = Int32Array::from(vec![0, 1]);
    let words: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    let dictionary = one(DictionaryArray::new(keys, words));
    schema_lie(
        &dictionary,
        &format!("(i32.store offset=36 {FIELD} {FIELD})"),
    );
    batch_lie(
        &dictionary,
        &format!("(i32.store offset=48 {COLUMN} {COLUMN})"),
    );
}

#[test]
fn schemas_that_cannot_be() {
    let batch = numbers(vec![1]);
    for place in ["(local.get $input)", FIELD] {
        for value in ["-1", "1", "0x7fffffffffffffff", "0x100000000"] {
            if !(place == "(local.get $input)" && value == "1") {
                schema_lie(&batch, &store64(place, 24, value));
            }
        }
        // format, metadata
        for value in ["-1", "0x7fffffff"] {
            schema_lie(&batch, &store32(place, 0, value));
            schema_lie(&batch, &store32(place, 8, value));
        }
    }
    for value in ["0", "-1", "0x7fffffff"] {
        schema_lie(&batch, &store32("(local.get $input)", 32, value));
        schema_lie(
            &batch,
            &store32("(i32.load offset=32 (local.get $input))", 0, value),
        );
        schema_lie(
            &batch,
            &store32(FIELD, 36, value).replace("const 0)", "const 1)"),
        );
    }
    // A table that is a number, and formats that are none.
    let format = |place: &str, bytes: &str| store32(&format!("(i32.load {place})"), 0, bytes);
    schema_lie(&batch, &format("(local.get $input)", "0x6c"));
    for bytes in [
        "0x3f",
        "0x773a",
        "0x2d3a77",
        "0x312d3a77",
        "0xff",
        "0",
        "0x2b6c",
        "0x3a642b",
    ] {
        schema_lie(&batch, &format(FIELD, bytes));
    }
    // `d:0,0`, a decimal without digits.
    let decimal = one(Decimal128Array::from(vec![1])
        .with_precision_and_scale(7, 2)
        .unwrap());
    let digit = format!("(i32.store8 offset=2 (i32.load {FIELD}) (i32.const 0x30))");
    schema_lie(&decimal, &digit);
}

#[test]
fn metadata_that_lies() {
    let field = Field::new("column", DataType::Int64, true)
        .with_metadata([("key".to_owned(), "value".to_owned())]);
    let column: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let schema = Arc::new(Schema::new(vec![field]));
    let batch = RecordBatch::try_new(schema, vec![column]).unwrap();
    let metadata = format!("(i32.load offset=8 {FIELD})");
    // The number of pairs, the length of the key, and the key.
    for (at, value) in [
        (0, "-1"),
        (0, "0x7fffffff"),
        (4, "-1"),
        (4, "0x7fffffff"),
        (8, "0xff"),
    ] {
        schema_lie(&batch, &store32(&metadata, at, value));
    }
}

#[test]
fn a_batch_of_another_schema_than_that_of_the_output() {
    // `L` and `U`: unsigned numbers fit, texts do not.
    let batch = numbers(vec![1, 2]);
    let format = |byte: &str| format!("(i32.store8 (i32.load {FIELD}) (i32.const {byte}))");
    schema_lie(&batch, &format("0x55"));
    let init = format!("{} {SAME_SCHEMA}", format("0x4c"));
    let module = Wat {
        init,
        ..Wat::default()
    }
    .module();
    let outputs = call(&module, &batch, &Limits::default()).unwrap();
    assert_eq!(*outputs[0].column(0).data_type(), DataType::UInt64);
}

#[test]
fn few_bytes_do_not_stand_for_endless_output() {
    // A thousand columns that are all one buffer, and rows that lie in no buffer at all.
    let wide: Vec<_> = (0..1000)
        .map(|index| {
            (
                index.to_string(),
                Arc::new(Int8Array::from(vec![1])) as ArrayRef,
            )
        })
        .collect();
    let wide = RecordBatch::try_from_iter(wide).unwrap();
    let limits = Limits {
        step_bytes: 1 << 20,
        ..Limits::default()
    };
    let process = "(local $index i32)
        (i64.store (local.get $array) (i64.const 16384))
        (loop $on
            (i64.store (i32.load (i32.add (i32.load offset=44 (local.get $array))
                (i32.shl (local.get $index) (i32.const 2)))) (i64.const 16384))
            (local.set $index (i32.add (local.get $index) (i32.const 1)))
            (br_if $on (i32.lt_u (local.get $index) (i32.const 1000))))
        (drop (call $emit (local.get $array))) (i32.const 0)";
    let module = Wat {
        process: process.into(),
        ..Wat::default()
    }
    .module();
    let failed = call(&module, &wide, &limits);
    assert!(
        matches!(
            failed,
            Err(Error::Limit {
                bound: Bound::StepBytes,
                ..
            })
        ),
        "{failed:?}"
    );

    // One list of a great many rows without a value.
    let item = Arc::new(Field::new_list_field(DataType::Null, true));
    let nothing = Arc::new(NullArray::new(1));
    let list = one(ListArray::new(
        item,
        OffsetBuffer::from_lengths([1]),
        nothing,
        None,
    ));
    let rows = "(i32.store offset=4 (i32.load offset=4 (i32.load offset=40 COLUMN))
            (i32.const 0x40000000))
        (i64.store (i32.load (i32.load offset=44 COLUMN)) (i64.const 0x40000000))
        (i64.store offset=8 (i32.load (i32.load offset=44 COLUMN)) (i64.const -1))
        (drop (call $emit (local.get $array))) (i32.const 0)";
    let module = Wat {
        process: rows.replace("COLUMN", COLUMN),
        ..Wat::default()
    }
    .module();
    let failed = call(&module, &list, &limits);
    assert!(
        matches!(
            failed,
            Err(Error::Limit {
                bound: Bound::StepBytes,
                ..
            })
        ),
        "{failed:?}"
    );
}
