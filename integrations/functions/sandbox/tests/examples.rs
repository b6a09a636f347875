//! The example modules, against the results of arrow-rs. `tools/build-functions.sh DIR` builds them,
//! and `DIPC_FUNCTIONS_MODULES` names the folder; without it nothing is tested.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "a failure ends the test"
)]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use arrow::array::builder::{Int64Builder, ListBuilder};
use arrow::array::cast::AsArray;
use arrow::array::types::{Float64Type, Int32Type, Int64Type};
use arrow::array::{
    Array, ArrayRef, BooleanArray, Datum, DictionaryArray, Float64Array, Int64Array, RecordBatch,
    StringArray, StructArray,
};
use arrow::compute::kernels::cmp::gt;
use arrow::compute::{concat_batches, filter_record_batch, sum};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use dipc_sandbox::{Error, Limits, Module, Options, Result, Sandbox};

static SANDBOX: LazyLock<Sandbox> = LazyLock::new(|| Sandbox::new(Options::default()).unwrap());

/// A module, if there are any. It is compiled once.
fn module(name: &str) -> Option<Module> {
    static COMPILED: Mutex<BTreeMap<String, Module>> = Mutex::new(BTreeMap::new());
    let Some(folder) = std::env::var_os("DIPC_FUNCTIONS_MODULES") else {
        println!("skipped: DIPC_FUNCTIONS_MODULES is not set (tools/build-functions.sh)");
        return None;
    };
    let path = PathBuf::from(folder).join(name).with_extension("wasm");
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    let module = compiled
        .entry(name.into())
        .or_insert_with(|| SANDBOX.compile(&bytes).unwrap());
    Some(module.clone())
}

/// A call on a table: all that it puts out.
fn call(
    module: &Module,
    function: &str,
    arguments: &str,
    schema: &SchemaRef,
    batches: &[RecordBatch],
) -> Result<Vec<RecordBatch>> {
    let limits = Limits::default();
    let mut running = module.start(function, arguments.as_bytes(), Some(schema), &limits)?;
    let mut outputs = Vec::new();
    for batch in batches {
        outputs.extend(running.process(batch)?);
    }
    outputs.extend(running.finish()?);
    Ok(outputs)
}

/// A call without a table.
fn alone(module: &Module, function: &str, arguments: &str) -> Result<Vec<RecordBatch>> {
    module
        .start(function, arguments.as_bytes(), None, &Limits::default())?
        .finish()
}

/// The text of a function's own failure.
fn failure<T: std::fmt::Debug>(result: Result<T>) -> String {
    match result {
        Err(Error::Function(text)) => text,
        other => panic!("{other:?}"),
    }
}

/// 1,000 rows of some types, most columns with nulls.
fn table() -> RecordBatch {
    let number = |row: i64| (row % 7 != 0).then_some(row * 37 % 101 - 50);
    let numbers: Int64Array = (0..1000).map(number).collect();
    let prices: Float64Array = (0..1000)
        .map(|row| (row % 5 != 0).then_some(f64::from(row % 83) / 4.0 - 7.0))
        .collect();
    let text = |row: i32| (row % 3 != 0).then(|| "text".repeat(row as usize % 6));
    let mut lists = ListBuilder::new(Int64Builder::new());
    for row in 0..1000 {
        lists.append_option((row % 4 != 0).then(|| (0..row % 3).map(Some)));
    }
    let keys: DictionaryArray<Int32Type> = (0..1000)
        .map(|row| (row % 9 != 0).then_some(["a", "b", "c"][row % 3]))
        .collect();
    let inner = Field::new("inner", DataType::Int64, true);
    let pairs = StructArray::from(vec![(
        Arc::new(inner),
        Arc::new(numbers.clone()) as ArrayRef,
    )]);
    let columns: [(&str, ArrayRef); 7] = [
        ("number", Arc::new(numbers)),
        ("price", Arc::new(prices)),
        (
            "flag",
            Arc::new(
                (0..1000)
                    .map(|row| Some(row % 2 == 0))
                    .collect::<BooleanArray>(),
            ),
        ),
        (
            "text",
            Arc::new((0..1000).map(text).collect::<StringArray>()),
        ),
        ("list", Arc::new(lists.finish())),
        ("key", Arc::new(keys)),
        ("pair", Arc::new(pairs)),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)))
        .unwrap()
}

/// The table in pieces that begin within bytes of bitmaps, one of them empty.
fn pieces() -> Vec<RecordBatch> {
    let table = table();
    let cuts = [0, 3, 300, 300, 301, 900, 1000];
    cuts.windows(2)
        .map(|cut| table.slice(cut[0], cut[1] - cut[0]))
        .collect()
}

#[test]
fn filter_keeps_the_rows_that_arrow_keeps() {
    let Some(module) = module("filter") else {
        return;
    };
    let batches = pieces();
    let bounds: [(&str, usize, Box<dyn Datum>); 4] = [
        ("number>10", 0, Box::new(Int64Array::new_scalar(10))),
        ("number>1000", 0, Box::new(Int64Array::new_scalar(1000))),
        ("price>0.25", 1, Box::new(Float64Array::new_scalar(0.25))),
        (
            "price>-inf",
            1,
            Box::new(Float64Array::new_scalar(f64::NEG_INFINITY)),
        ),
    ];
    for (arguments, column, bound) in bounds {
        let kept = call(&module, "keep", arguments, &batches[0].schema(), &batches).unwrap();
        let expected: Vec<_> = (batches.iter())
            .map(|batch| filter_record_batch(batch, &gt(batch.column(column), &*bound).unwrap()))
            .collect::<std::result::Result<_, _>>()
            .unwrap();
        assert_eq!(kept, expected, "{arguments}");
    }
}

#[test]
fn filter_says_what_is_wrong_with_its_arguments() {
    let Some(module) = module("filter") else {
        return;
    };
    let schema = table().schema();
    let text = |arguments| failure(call(&module, "keep", arguments, &schema, &[]));
    assert_eq!(text("number"), "the arguments are COLUMN>NUMBER");
    assert_eq!(text("text>1"), "column text is Utf8: not int64 or float64");
    assert_eq!(text("number>x"), "invalid digit found in string");
    assert!(
        text("other>1").contains("Unable to get field named \"other\""),
        "{}",
        text("other>1")
    );
    assert_eq!(
        failure(alone(&module, "keep", "number>1")),
        "keep needs a table"
    );
    assert_eq!(
        failure(call(&module, "drop", "", &schema, &[])),
        "the module has no function \"drop\"; it has keep"
    );
}

#[test]
fn sums_are_those_of_arrow() {
    let (Some(rust), Some(c)) = (module("sum"), module("c-sum")) else {
        return;
    };
    let (table, batches) = (table(), pieces());
    let schema = table.schema();
    let numbers = table.column(0).as_primitive::<Int64Type>();
    let of_c = call(&c, "sum", "number", &schema, &batches).unwrap();
    assert_eq!(of_c.len(), 1);
    assert_eq!(
        of_c[0]
            .column(0)
            .as_primitive::<Int64Type>()
            .iter()
            .collect::<Vec<_>>(),
        [sum(numbers)]
    );
    let of_rust = call(&rust, "sum", "number", &schema, &batches).unwrap();
    assert_eq!(
        of_rust[0].column_by_name("total").unwrap(),
        of_c[0].column(0)
    );
    let count = |batch: &RecordBatch| batch.column(1).as_primitive::<Int64Type>().value(0);
    assert_eq!(
        count(&of_rust[0]),
        (numbers.len() - numbers.null_count()) as i64
    );

    // Quarters, which add up without rounding.
    let prices = table.column(1).as_primitive::<Float64Type>();
    let of_rust = call(&rust, "sum", "price", &schema, &batches).unwrap();
    assert_eq!(
        Some(of_rust[0].column(0).as_primitive::<Float64Type>().value(0)),
        sum(prices)
    );
}

#[test]
fn the_sum_of_nothing_is_null() {
    let (Some(rust), Some(c)) = (module("sum"), module("c-sum")) else {
        return;
    };
    let column: ArrayRef = Arc::new(Int64Array::from(vec![None; 70]));
    let nulls = RecordBatch::try_from_iter([("number", column)]).unwrap();
    for module in [rust, c] {
        for batches in [
            &[][..],
            &[nulls.slice(0, 0)],
            &[nulls.clone(), nulls.slice(9, 40)],
        ] {
            let row = &call(&module, "sum", "number", &nulls.schema(), batches).unwrap()[0];
            assert_eq!(row.num_rows(), 1);
            assert!(row.column(0).is_null(0));
        }
    }
}

#[test]
fn failures_in_c_have_their_texts() {
    let Some(module) = module("c-sum") else {
        return;
    };
    let schema = table().schema();
    let text = |function, arguments| failure(call(&module, function, arguments, &schema, &[]));
    assert_eq!(text("mean", ""), "the module has the function sum alone");
    assert_eq!(text("sum", "other"), "the table has no such column");
    assert_eq!(text("sum", "price"), "the column is not int64");
    assert_eq!(
        failure(alone(&module, "sum", "number")),
        "sum needs a table"
    );
    let column: ArrayRef = Arc::new(Int64Array::from(vec![i64::MIN, -1]));
    let batch = RecordBatch::try_from_iter([("number", column)]).unwrap();
    let result = call(&module, "sum", "number", &batch.schema(), &[batch]);
    assert_eq!(failure(result), "the sum is too large for int64");
}

#[test]
fn functions_without_a_table_give_bytes_and_batches() {
    let (Some(words), Some(numbers)) = (module("words"), module("numbers")) else {
        return;
    };
    let bytes = alone(&words, "reverse", "añb").unwrap();
    let values: Vec<_> = bytes[0].column(0).as_binary::<i32>().iter().collect();
    assert_eq!(values, [Some("bña".as_bytes())]);

    let counted = &alone(&words, "words", "to be or not to be").unwrap()[0];
    let found: Vec<_> = (counted.column(0).as_string::<i32>().iter().flatten())
        .zip(
            counted
                .column(1)
                .as_primitive::<Int64Type>()
                .values()
                .iter()
                .copied(),
        )
        .collect();
    assert_eq!(found, [("be", 2), ("not", 1), ("or", 1), ("to", 2)]);
    assert_eq!(alone(&words, "words", " ").unwrap()[0].num_rows(), 0);

    let range = alone(&numbers, "range", "10000").unwrap();
    assert_eq!(range.len(), 3);
    let range = concat_batches(&range[0].schema(), &range).unwrap();
    let values = range.column(0).as_primitive::<Int64Type>();
    assert_eq!(values.values()[..], (0..10_000).collect::<Vec<i64>>());
    assert_eq!(
        failure(alone(&numbers, "range", "ten")),
        "invalid digit found in string"
    );
    let table = table();
    let refused = call(&numbers, "range", "10", &table.schema(), &[table]);
    assert_eq!(failure(refused), "the function takes no table");
}

#[test]
fn a_function_stops_when_no_more_rows_are_needed() {
    let Some(module) = module("numbers") else {
        return;
    };
    let count = i64::MAX.to_string();
    let mut running = module
        .start("range", count.as_bytes(), None, &Limits::default())
        .unwrap();
    running.canceller().no_more();
    assert_eq!(running.finish().unwrap().len(), 1);
}

#[test]
fn a_panic_gives_its_text() {
    let Some(module) = module("faults") else {
        return;
    };
    let table = table();
    let text = failure(call(
        &module,
        "panics",
        "",
        &table.schema(),
        std::slice::from_ref(&table),
    ));
    assert!(text.starts_with("panic at "), "{text}");
    assert!(
        text.contains("faults.rs:") && text.ends_with(": a batch of 1000 rows is too much"),
        "{text}"
    );
}

#[test]
fn a_function_that_keeps_lent_memory_fails() {
    let Some(module) = module("faults") else {
        return;
    };
    let table = table();
    let text = failure(call(
        &module,
        "keeps",
        "",
        &table.schema(),
        std::slice::from_ref(&table),
    ));
    assert!(text.contains("it must keep a copy"), "{text}");
    let text = failure(call(
        &module,
        "short",
        "",
        &table.schema(),
        std::slice::from_ref(&table),
    ));
    assert!(
        text.contains("number of columns(6) must match number of fields(7)"),
        "{text}"
    );
}

#[test]
fn copies_outlive_their_batch() {
    let Some(module) = module("faults") else {
        return;
    };
    let batches = pieces();
    assert_eq!(
        call(&module, "copies", "", &batches[0].schema(), &batches).unwrap(),
        batches
    );
}

/// 200 batches of 1 MiB go through 8 MiB of memory.
#[test]
fn memory_is_used_again() {
    let (Some(filter), Some(c)) = (module("filter"), module("c-sum")) else {
        return;
    };
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1 << 17));
    let batch = RecordBatch::try_from_iter([("number", column)]).unwrap();
    for (module, function, arguments) in [(filter, "keep", "number>1"), (c, "sum", "number")] {
        let limits = Limits {
            memory_bytes: 8 << 20,
            ..Limits::default()
        };
        let schema = batch.schema();
        let mut running = module
            .start(function, arguments.as_bytes(), Some(&schema), &limits)
            .unwrap();
        for _ in 0..200 {
            running.process(&batch).unwrap();
        }
        running.finish().unwrap();
    }
}

#[test]
fn a_table_without_rows_or_columns_goes_through() {
    let Some(module) = module("faults") else {
        return;
    };
    let schema: SchemaRef = Arc::new(Schema::empty());
    assert_eq!(call(&module, "copies", "", &schema, &[]).unwrap(), []);
    let table = table();
    assert_eq!(
        call(&module, "copies", "", &table.schema(), &[table.slice(0, 0)])
            .unwrap()
            .len(),
        1
    );
}
