//! Rows that cost no bytes: a function's input of a few bytes may claim any number of them.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, FixedSizeBinaryArray, FixedSizeListArray, Int64Array, NullArray, RecordBatch,
    RecordBatchOptions, RunArray, StringArray, StructArray, new_empty_array,
};
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use dipc::{Batches, Client, GetOptions, PutOptions, Reader, Result, Status};
use dipc_functions::{Message, Module};

use crate::serving::Serving;
use crate::{above, batch, client, filter, numbers, schema};

/// Gives each batch as it is. One block lives at a time, in the second page.
fn same() -> Message {
    let text = r#"(module
        (import "dipc" "emit" (func $emit (param i32) (result i32)))
        (memory (export "memory") 2)
        (func (export "dipc_abi_version") (result i32) i32.const 1)
        (func (export "dipc_alloc") (param i32 i32) (result i32) i32.const 65536)
        (func (export "dipc_free") (param i32 i32 i32))
        (func (export "dipc_init") (param i32 i32 i32 i32 i32 i32) (result i32)
          (memory.copy (local.get 5) (local.get 4) (i32.const 48)) i32.const 0)
        (func (export "dipc_process") (param i32) (result i32)
          (drop (call $emit (local.get 0))) i32.const 0)
        (func (export "dipc_finish") (result i32) i32.const 0))"#;
    Message::new(&Module::new(wat::parse_str(text).unwrap()), "f", b"")
}

/// A batch of each kind whose rows take no memory, with its name.
fn free(rows: usize) -> Vec<(&'static str, RecordBatch)> {
    let item = |of: &ArrayRef| Arc::new(Field::new("item", of.data_type().clone(), true));
    let nulls: ArrayRef = Arc::new(NullArray::new(rows));
    let ends = Int64Array::from(vec![i64::try_from(rows).unwrap()]);
    let runs = RunArray::<Int64Type>::try_new(&ends, &StringArray::from(vec!["x"]));
    let runs: ArrayRef = Arc::new(runs.unwrap());
    let values = new_empty_array(&DataType::Int8);
    let lists = FixedSizeListArray::try_new_with_length(item(&values), 0, values, None, rows);
    let bytes = FixedSizeBinaryArray::try_new_with_len(0, Buffer::from(&[]), None, rows);
    let structs = StructArray::from(vec![
        (item(&nulls), nulls.clone()),
        (item(&runs), runs.clone()),
    ]);
    let columns: [(&str, ArrayRef); 6] = [
        ("nulls", nulls),
        ("runs", runs),
        ("lists", Arc::new(lists.unwrap())),
        ("bytes", Arc::new(bytes.unwrap())),
        ("empty", Arc::new(StructArray::new_empty_fields(rows, None))),
        ("structs", Arc::new(structs)),
    ];
    let batch = |(name, column)| {
        let batch = RecordBatch::try_from_iter_with_nullable([("c", column, true)]);
        (name, batch.unwrap())
    };
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let none = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options);
    let none = ("none", none.unwrap());
    columns.into_iter().map(batch).chain([none]).collect()
}

fn batches(mut reader: Reader) -> Result<Vec<RecordBatch>> {
    std::iter::from_fn(|| reader.next_batch().transpose()).collect()
}

/// What the function makes of a batch: of a table that the server has, of one that it gets, and of
/// an exchange.
fn ways(
    client: &Client,
    uri: &str,
    batch: &RecordBatch,
) -> [(&'static str, Result<Vec<RecordBatch>>); 3] {
    let (function, schema) = (same(), batch.schema());
    let stored = || client.get(uri, "stored").and_then(batches);
    let table = Batches::of(schema.clone(), [batch.clone()]);
    client.put(uri, "stored", table).unwrap();
    let got = function.get(client, uri, "stored").and_then(batches);
    // What was stored before would look the same.
    client
        .put(uri, "stored", Batches::of(schema.clone(), []))
        .unwrap();
    let put = function.put(client, uri, "stored", [batch.clone()], &schema);
    let put = put.and_then(|_| stored());
    let options = (&PutOptions::new(), &GetOptions::new());
    let exchange = || {
        let (mut put, mut answers) = function.exchange(client, uri, &schema, options)?;
        put.push(batch.clone())?;
        let answer = answers.next_batch()?;
        put.finish()?;
        Ok(answer.into_iter().collect())
    };
    [("get", got), ("put", put), ("exchange", exchange())]
}

/// Promise of `docs/security.md`: of rows that cost no bytes a function is given as many as
/// documented, also where the server has little memory; more end the request, and the calls of other
/// clients go on.
#[test]
fn rows_without_bytes_end_no_server() {
    for (scheme, memory) in [("shm", None), ("tcp", Some(16 << 20))] {
        let server = Serving::within(scheme, "any", memory);
        let (client, other) = (client(), client());
        let options = (&PutOptions::new(), &GetOptions::new());
        let beside = filter(0).exchange(&other, &server.uri, &schema(), options);
        let (mut put, mut answers) = beside.unwrap();
        let mut goes_on = || {
            put.push(batch(0)).unwrap();
            let answer = answers.next_batch().unwrap().unwrap();
            assert_eq!(numbers(&[answer]), above(0, 1));
        };
        for (kind, batch) in free(1 << 20) {
            for (way, answer) in ways(&client, &server.uri, &batch) {
                assert_eq!(
                    answer.unwrap(),
                    std::slice::from_ref(&batch),
                    "{kind}, {way}"
                );
            }
            goes_on();
        }
        for rows in [
            (64 << 20) + 1,
            (1 << 32) - 1,
            (1 << 32) + 5,
            1 << 40,
            1 << 62,
        ] {
            for (kind, batch) in free(rows) {
                for (way, answer) in ways(&client, &server.uri, &batch) {
                    let error = answer.unwrap_err();
                    let what = format!("{kind}, {rows}, {way}: {error}");
                    assert_eq!(error.status(), Status::Unsupported, "{what}");
                    assert!(error.text().contains(&rows.to_string()), "{what}");
                }
                goes_on();
            }
        }
    }
}
