//! Record batches of other versions of arrow.

use std::sync::Arc;

use arrow::array::Array as _;
use arrow_array_59::types::{Int32Type, Int64Type};
use arrow_array_59::{Array as _, ArrayRef, DictionaryArray, Int64Array, ListArray};
use arrow_array_59::{RecordBatch, RecordBatchReader as _, StringViewArray};
use dipc::crossing::arrow_59 as crossing;
use dipc::{Client, Status};
use futures::TryStreamExt as _;

use crate::serving::Serving;
use crate::{schema, table};

/// Columns of several layouts, with nulls.
fn theirs() -> RecordBatch {
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(3)]));
    let words: ArrayRef = Arc::new(StringViewArray::from(vec![
        "a",
        "longer than twelve bytes",
        "",
    ]));
    let keys: DictionaryArray<Int32Type> = ["x", "y", "x"].into_iter().collect();
    let lists = [Some(vec![Some(1), None]), None, Some(vec![])];
    let lists = ListArray::from_iter_primitive::<Int64Type, _, _>(lists);
    let keys: ArrayRef = Arc::new(keys);
    let lists: ArrayRef = Arc::new(lists);
    let columns = [("n", numbers), ("w", words), ("k", keys), ("l", lists)];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)))
        .unwrap()
}

/// Promise of `crossing`: batches cross in both directions, equal and with their own buffers.
#[test]
fn batches_cross_without_a_copy() {
    for batch in [theirs(), theirs().slice(1, 2)] {
        let schema = Arc::new(crossing::schema_in(&batch.schema()).unwrap());
        let inside = crossing::batch_in(batch.clone(), &schema).unwrap();
        let address = batch.column(0).to_data().buffers()[0].as_ptr();
        assert_eq!(inside.column(0).to_data().buffers()[0].as_ptr(), address);
        let back = crossing::batch_out(inside, &batch.schema()).unwrap();
        assert_eq!(back, batch);
        assert_eq!(back.column(0).to_data().buffers()[0].as_ptr(), address);
    }
}

/// Promise of `crossing`: a batch of other columns is refused, and not read as what it is not.
#[test]
fn batches_of_other_columns_do_not_cross() {
    let error = crossing::batch_in(theirs(), &schema()).unwrap_err();
    assert_eq!(error.status(), Status::InvalidData);
    let error = crossing::batch_out(table(1).remove(0), &theirs().schema()).unwrap_err();
    assert_eq!(error.status(), Status::InvalidData);
}

/// A program with arrow 59 puts its batches to a server and gets them back.
#[test]
fn a_program_with_another_arrow_puts_and_gets() {
    for server in Serving::all() {
        let client = Client::new().unwrap();
        let reader = client.get(&server.uri, "published").unwrap();
        let own = crossing::reader(reader).unwrap();
        let schema = own.schema();
        let got: Vec<_> = own.collect::<Result<_, _>>().unwrap();
        assert_eq!(got.len(), 3);
        let batches = crossing::batches(&schema, got.clone()).unwrap();
        assert_eq!(client.put(&server.uri, "crossed", batches).unwrap(), 3);
        let back = crossing::reader(client.get(&server.uri, "crossed").unwrap()).unwrap();
        let back: Vec<_> = back.collect::<Result<_, _>>().unwrap();
        assert_eq!(back, got);
    }
}

/// Promise of `crossing::stream`: a task of a program with arrow 59 reads the same batches, and the
/// same errors.
#[test]
fn a_task_with_another_arrow_gets() {
    for server in Serving::all() {
        futures::executor::block_on(async {
            let client = Client::new().unwrap();
            let reader = client.get(&server.uri, "published").unwrap();
            let expected: Result<Vec<_>, _> = crossing::reader(reader).unwrap().collect();
            let expected = expected.unwrap();
            let reader = client.get_async(&server.uri, "published").await.unwrap();
            let stream = crossing::stream(reader).unwrap();
            assert_eq!(stream.schema(), expected[0].schema());
            let got: Vec<_> = stream.try_collect().await.unwrap();
            assert_eq!(got, expected);
            let broken = client.get_async(&server.uri, "broken").await.unwrap();
            let broken = crossing::stream(broken).unwrap();
            let error = broken.try_collect::<Vec<_>>().await.unwrap_err();
            assert_eq!(error.status(), Status::Io);
        });
    }
}
