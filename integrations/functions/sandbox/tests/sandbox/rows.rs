//! Rows that cost no bytes: a batch may claim any number of them.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, FixedSizeBinaryArray, FixedSizeListArray, Int64Array,
    LargeListArray, NullArray, RecordBatch, RecordBatchOptions, RunArray, StringArray, StructArray,
    new_empty_array,
};
use arrow::buffer::{BooleanBuffer, Buffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use dipc_sandbox::{Error, Limits};

use crate::support::{Wat, call};

/// As documented.
const MOST: usize = 1 << 26;

fn item(of: &dyn Array) -> Arc<Field> {
    Arc::new(Field::new("item", of.data_type().clone(), true))
}

fn alone(column: ArrayRef) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable([("c", column, true)]).unwrap()
}

fn runs(rows: usize) -> RunArray<Int64Type> {
    let ends = Int64Array::from(vec![i64::try_from(rows).unwrap()]);
    RunArray::try_new(&ends, &StringArray::from(vec!["x"])).unwrap()
}

/// A batch of each kind whose rows take no memory, and its name.
fn free(rows: usize) -> Vec<(&'static str, RecordBatch)> {
    let nulls: ArrayRef = Arc::new(NullArray::new(rows));
    let values = new_empty_array(&DataType::Int8);
    let lists = FixedSizeListArray::try_new_with_length(item(&values), 0, values, None, rows);
    let bytes = FixedSizeBinaryArray::try_new_with_len(0, Buffer::from(&[]), None, rows).unwrap();
    let inner: ArrayRef = Arc::new(runs(rows));
    let structs = StructArray::from(vec![
        (item(&nulls), nulls.clone()),
        (item(&inner), inner.clone()),
    ]);
    let columns: [(&str, ArrayRef); 6] = [
        ("nulls", nulls),
        ("runs", inner),
        ("lists", Arc::new(lists.unwrap())),
        ("bytes", Arc::new(bytes)),
        ("empty", Arc::new(StructArray::new_empty_fields(rows, None))),
        ("structs", Arc::new(structs)),
    ];
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let none = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options);
    let columns = columns.map(|(name, column)| (name, alone(column)));
    columns
        .into_iter()
        .chain([("none", none.unwrap())])
        .collect()
}

#[test]
fn rows_that_take_no_memory_are_bounded() {
    let module = Wat::default().module();
    for (kind, batch) in free(MOST) {
        let outputs = call(&module, &batch, &Limits::default()).unwrap();
        assert_eq!(outputs[0].num_rows(), MOST, "{kind}");
    }
    for rows in [MOST + 1, 1 << 32, (1 << 32) + 5, 1 << 40, 1 << 62] {
        for (kind, batch) in free(rows) {
            let refused = call(&module, &batch, &Limits::default());
            let Err(Error::Input(text)) = refused else {
                panic!("{rows} {kind}: {refused:?}");
            };
            assert!(text.contains(&rows.to_string()), "{kind}: {text}");
        }
    }
}

#[test]
fn a_batch_of_too_many_rows_is_refused_and_the_call_goes_on() {
    let few = alone(Arc::new(NullArray::new(3)));
    let many = alone(Arc::new(NullArray::new(1 << 40)));
    let module = Wat::default().module();
    let mut running = module
        .start("f", b"", Some(&few.schema()), &Limits::default())
        .unwrap();
    assert!(matches!(running.process(&many), Err(Error::Input(_))));
    assert_eq!(running.process(&few).unwrap(), [few]);
}

#[test]
fn values_of_a_list_that_take_no_memory_are_bounded() {
    let module = Wat::default().module();
    for (values, is_taken) in [(MOST, true), (MOST + 1, false), (1 << 40, false)] {
        let nulls = NullArray::new(values);
        let offsets = OffsetBuffer::new(vec![0, i64::try_from(values).unwrap()].into());
        let list = LargeListArray::new(item(&nulls), offsets, Arc::new(nulls), None);
        let called = call(&module, &alone(Arc::new(list)), &Limits::default());
        match is_taken {
            true => assert_eq!(called.unwrap()[0].num_rows(), 1),
            false => assert!(matches!(called, Err(Error::Input(_))), "{values}"),
        }
    }
}

#[test]
fn rows_that_have_come_are_as_many_as_have_come() {
    let rows = MOST + 8;
    let bits = BooleanArray::new(BooleanBuffer::new_set(rows), None);
    let columns: [(&str, ArrayRef); 2] = [
        ("bits", Arc::new(bits)),
        ("nulls", Arc::new(NullArray::new(rows))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let outputs = call(&Wat::default().module(), &batch, &Limits::default()).unwrap();
    assert_eq!(outputs[0].num_rows(), rows);
}

/// The ends of runs stay as they are, so that a slice has an offset.
#[test]
fn a_slice_of_runs_begins_where_modules_can_count() {
    let module = Wat::default().module();
    let all = runs(1 << 40);
    let near = alone(Arc::new(all.slice(1 << 27, 3)));
    let outputs = call(&module, &near, &Limits::default()).unwrap();
    assert_eq!(outputs, [near]);
    let far = alone(Arc::new(all.slice((1 << 32) - 2, 3)));
    let refused = call(&module, &far, &Limits::default());
    assert!(matches!(refused, Err(Error::Input(_))), "{refused:?}");
}
