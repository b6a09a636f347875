//! Promises of the crate to those who write functions, without a server.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "a failure ends the test"
)]

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dipc_guest::arrow_array::builder::{Int64Builder, ListBuilder};
use dipc_guest::arrow_array::types::Int32Type;
use dipc_guest::arrow_array::{
    ArrayRef, BooleanArray, DictionaryArray, Float64Array, Int64Array, NullArray, RecordBatch,
    RecordBatchOptions, StringArray, StringViewArray, StructArray,
};
use dipc_guest::arrow_schema::{DataType, Field, Schema, SchemaRef};
use dipc_guest::testing::{self, Given};
use dipc_guest::{Function, Out, Output, Result, copy_batch};

#[path = "modules/faults.rs"]
mod faults;
use faults::{Copies, Keeps, Panics, Short};

/// Gives out what it gets.
struct Echo;

impl Function for Echo {
    fn init(_: &[u8], input: Option<&Schema>) -> Result<(Self, Output)> {
        Ok((Echo, Output::table(input.ok_or("no table")?.clone())))
    }

    fn process(&mut self, batch: &RecordBatch, out: &mut Out) -> Result<()> {
        out.emit(batch)
    }
}

fn many_types() -> RecordBatch {
    let mut lists = ListBuilder::new(Int64Builder::new());
    lists.append_value([Some(1), None]);
    lists.append_null();
    lists.append_value([Some(2); 3]);
    lists.append_value([]);
    let keys: DictionaryArray<Int32Type> = [Some("a"), None, Some("b"), Some("a")]
        .into_iter()
        .collect();
    let long = "longer than what fits into a view";
    let numbers = Arc::new(Int64Array::from(vec![Some(1), None, Some(3), Some(4)])) as ArrayRef;
    let pair = StructArray::from(vec![(
        Arc::new(Field::new("n", DataType::Int64, true)),
        numbers.clone(),
    )]);
    let columns: [(&str, ArrayRef); 9] = [
        ("numbers", numbers),
        (
            "floats",
            Arc::new(Float64Array::from(vec![0.5, 1.5, 2.5, 3.5])),
        ),
        (
            "flags",
            Arc::new(BooleanArray::from(vec![
                Some(true),
                None,
                Some(false),
                None,
            ])),
        ),
        (
            "texts",
            Arc::new(StringArray::from(vec![
                Some("x"),
                None,
                Some(""),
                Some(long),
            ])),
        ),
        (
            "views",
            Arc::new(StringViewArray::from(vec![
                Some("x"),
                None,
                Some(long),
                Some(long),
            ])),
        ),
        ("keys", Arc::new(keys)),
        ("lists", Arc::new(lists.finish())),
        ("pairs", Arc::new(pair)),
        ("nothing", Arc::new(NullArray::new(4))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)))
        .unwrap()
}

fn through<F: Function>(schema: &SchemaRef, batches: &[RecordBatch]) -> Vec<RecordBatch> {
    testing::call::<F>(b"", Some((schema, batches)))
        .unwrap()
        .batches
}

#[test]
fn batches_come_and_go_as_they_are() {
    let whole = many_types();
    let batches = [
        whole.clone(),
        whole.slice(1, 2),
        whole.slice(3, 1),
        whole.slice(4, 0),
    ];
    assert_eq!(through::<Echo>(whole.schema_ref(), &batches), batches);
    assert_eq!(through::<Echo>(whole.schema_ref(), &[]), []);
}

#[test]
fn a_batch_of_other_types_is_refused() {
    let column: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let batch = RecordBatch::try_from_iter([("c", column)]).unwrap();
    let texts = Schema::new(vec![Field::new("c", DataType::Utf8, true)]);
    let refused = testing::call::<Echo>(b"", Some((&SchemaRef::new(texts), &[batch])));
    assert_eq!(
        refused.unwrap_err(),
        "a batch has other types than the table"
    );
}

#[test]
fn a_schema_keeps_its_metadata() {
    let of = |key: &str| HashMap::from([(key.to_string(), "value".to_string())]);
    let field = Field::new("n", DataType::Int64, false).with_metadata(of("field"));
    let schema = Arc::new(Schema::new_with_metadata(vec![field], of("table")));
    let column = Arc::new(Int64Array::from(vec![1]));
    let batch = RecordBatch::try_new(schema.clone(), vec![column]).unwrap();
    assert_eq!(through::<Echo>(&schema, &[batch])[0].schema(), schema);
}

#[test]
fn a_table_without_columns_keeps_its_rows() {
    let schema = Arc::new(Schema::empty());
    let options = RecordBatchOptions::new().with_row_count(Some(7));
    let batch = RecordBatch::try_new_with_options(schema.clone(), vec![], &options).unwrap();
    assert_eq!(through::<Echo>(&schema, &[batch])[0].num_rows(), 7);
}

#[test]
fn copies_outlive_the_batch() {
    let whole = many_types();
    let batches = [whole.slice(1, 3), whole.clone(), whole.slice(0, 0)];
    assert_eq!(through::<Copies>(whole.schema_ref(), &batches), batches);
}

#[test]
fn a_copy_shares_no_buffer() {
    let batch = many_types();
    let copy = copy_batch(&batch).unwrap();
    let addresses = |batch: &RecordBatch| {
        let mut found = Vec::new();
        let mut todo: Vec<_> = batch
            .columns()
            .iter()
            .map(|column| column.to_data())
            .collect();
        while let Some(data) = todo.pop() {
            found.extend(data.buffers().iter().map(|buffer| buffer.as_ptr()));
            found.extend(data.nulls().map(|nulls| nulls.buffer().as_ptr()));
            todo.extend(data.child_data().iter().cloned());
        }
        found
    };
    let (of_batch, of_copy) = (addresses(&batch), addresses(&copy));
    assert_eq!(of_batch.len(), of_copy.len());
    // An empty buffer has no memory.
    assert!(
        of_batch
            .iter()
            .all(|address| !of_copy.contains(address) || (*address as usize) <= 128)
    );
}

#[test]
fn a_function_that_keeps_lent_memory_ends() {
    let batch = many_types();
    let input = Some((batch.schema_ref(), &[batch.clone(), batch.clone()][..]));
    let failure = testing::call::<Keeps>(b"", input).unwrap_err();
    assert!(failure.contains("it must keep a copy"), "{failure}");
}

/// Keeps its input, and looks at it in its destructor.
struct Last(Option<RecordBatch>);

static DROPPED: AtomicUsize = AtomicUsize::new(0);

impl Function for Last {
    fn init(_: &[u8], _: Option<&Schema>) -> Result<(Self, Output)> {
        Ok((Last(None), Output::Bytes))
    }

    fn process(&mut self, batch: &RecordBatch, _: &mut Out) -> Result<()> {
        self.0 = Some(batch.clone());
        Err("no".into())
    }
}

impl Drop for Last {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn no_code_runs_over_lent_memory_that_is_gone() {
    let batch = many_types();
    let input = Some((batch.schema_ref(), std::slice::from_ref(&batch)));
    assert!(testing::call::<Last>(b"", input).is_err());
    assert_eq!(DROPPED.load(Ordering::Relaxed), 0);
    testing::call::<Last>(b"", None).unwrap();
    assert_eq!(DROPPED.load(Ordering::Relaxed), 1);
}

#[test]
fn output_that_does_not_fit_its_schema_fails() {
    let batch = many_types();
    let input = Some((batch.schema_ref(), std::slice::from_ref(&batch)));
    let failure = testing::call::<Short>(b"", input).unwrap_err();
    assert!(
        failure.contains("number of columns(8) must match number of fields(9)"),
        "{failure}"
    );
}

#[test]
#[should_panic(expected = "a batch of 4 rows is too much")]
fn a_panic_goes_on() {
    let batch = many_types();
    let _ = testing::call::<Panics>(
        b"",
        Some((batch.schema_ref(), std::slice::from_ref(&batch))),
    );
}

/// Gives out bytes.
struct Bytes;

impl Function for Bytes {
    fn init(arguments: &[u8], _: Option<&Schema>) -> Result<(Self, Output)> {
        match arguments {
            b"" => Ok((Bytes, Output::Bytes)),
            _ => Err(Outer.into()),
        }
    }

    fn finish(&mut self, out: &mut Out) -> Result<()> {
        out.emit_bytes(b"one")?;
        out.emit_bytes(b"")
    }
}

#[derive(Debug)]
struct Outer;

impl fmt::Display for Outer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("arguments are not taken")
    }
}

impl Error for Outer {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&fmt::Error)
    }
}

#[test]
fn values_are_bytes() {
    let values = vec![b"one".to_vec(), vec![]];
    let batches = vec![];
    assert_eq!(
        testing::call::<Bytes>(b"", None).unwrap(),
        Given {
            batches,
            values,
            forward: None
        }
    );
}

/// Goes on elsewhere.
struct Goes;

impl Function for Goes {
    fn init(_: &[u8], _: Option<&Schema>) -> Result<(Self, Output)> {
        Ok((Goes, Output::Bytes))
    }

    fn finish(&mut self, out: &mut Out) -> Result<()> {
        Ok(out.forward("shm:@b", b"table", b"state")?)
    }
}

/// Promise of `Out::forward`, for tests of a function.
#[test]
fn a_test_sees_where_a_call_goes_on() {
    let given = testing::call::<Goes>(b"", None).unwrap();
    let forward = ("shm:@b".into(), b"table".to_vec(), b"state".to_vec());
    assert_eq!(given.forward, Some(forward));
}

#[test]
fn a_failure_has_the_texts_of_its_sources() {
    let failure = testing::call::<Bytes>(b"x", None).unwrap_err();
    assert_eq!(failure, format!("arguments are not taken: {}", fmt::Error));
}

#[test]
fn a_function_without_process_takes_no_table() {
    let batch = many_types();
    let input = Some((batch.schema_ref(), std::slice::from_ref(&batch)));
    assert_eq!(
        testing::call::<Bytes>(b"", input).unwrap_err(),
        "the function takes no table"
    );
}
