use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, DictionaryArray, FixedSizeBinaryArray, FixedSizeListArray,
    Int32Array, Int64Array, NullArray, RecordBatch, RecordBatchOptions, RunArray, StringArray,
    StructArray, new_empty_array,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};

use crate::error::{Error, Status};
use crate::filter::build::{FilterBuilder, FilterExpression};
use crate::filter::rows::{MOST_FREE_ROWS, ensure_bounded};
use crate::filter::{Filter, ROWS_AT_ONCE};

/// A batch of the one column `c`.
fn of(column: ArrayRef) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable([("c", column, true)]).unwrap()
}

/// `c IS NULL`; without columns, TRUE.
fn is_null(schema: &SchemaRef) -> Filter {
    let mut builder = FilterBuilder::new(schema);
    let root = match schema.fields().is_empty() {
        true => FilterExpression::literal(&BooleanArray::from(vec![true])).unwrap(),
        false => {
            let column = builder.column(&["c".to_owned()]).unwrap().0;
            builder.call("is_null", vec![column])
        }
    };
    Filter::parse(&builder.finish(root), schema).unwrap()
}

fn equals(schema: &SchemaRef, text: &str) -> Filter {
    let mut builder = FilterBuilder::new(schema);
    let column = builder.column(&["c".to_owned()]).unwrap().0;
    let text = FilterExpression::literal(&StringArray::from(vec![text])).unwrap();
    let root = builder.call("equal", vec![column, text]);
    Filter::parse(&builder.finish(root), schema).unwrap()
}

fn runs(ends: Vec<i64>, values: &dyn Array) -> ArrayRef {
    Arc::new(RunArray::<Int64Type>::try_new(&Int64Array::from(ends), values).unwrap())
}

/// A batch of each kind whose rows take no memory.
fn free(rows: usize) -> Vec<RecordBatch> {
    let end = i64::try_from(rows).unwrap();
    let item = Arc::new(Field::new("item", DataType::Int8, true));
    let empty = new_empty_array(&DataType::Int8);
    let lists = FixedSizeListArray::try_new_with_length(item, 0, empty, None, rows).unwrap();
    let bytes = FixedSizeBinaryArray::try_new_with_len(0, Buffer::from(&[]), None, rows).unwrap();
    let nulls: ArrayRef = Arc::new(NullArray::new(rows));
    let inner = Arc::new(Field::new("n", DataType::Null, true));
    let columns: [ArrayRef; 7] = [
        nulls.clone(),
        runs(vec![end], &StringArray::from(vec!["x"])),
        runs(vec![1, end], &StringArray::from(vec![None, Some("x")])),
        Arc::new(lists),
        Arc::new(bytes),
        Arc::new(StructArray::new_empty_fields(rows, None)),
        Arc::new(StructArray::from(vec![(inner, nulls)])),
    ];
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let none = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options);
    columns.into_iter().map(of).chain([none.unwrap()]).collect()
}

/// Promise of `ensure_bounded`: too many rows that take no memory are refused, whatever their kind;
/// a smaller number is filtered.
#[test]
fn rows_without_memory_are_bounded() {
    for rows in [MOST_FREE_ROWS + 1, 1 << 40, 1 << 62] {
        for batch in free(rows) {
            let error = is_null(batch.schema_ref()).apply(&batch).unwrap_err();
            assert_eq!(error.status(), Status::Unsupported);
            assert!(error.text().contains(&rows.to_string()), "{error}");
        }
    }
    let rows = 3 * ROWS_AT_ONCE + 5;
    let passed = free(rows).into_iter().map(|batch| {
        let kept = is_null(batch.schema_ref()).apply(&batch).unwrap();
        assert_eq!(kept.schema(), batch.schema());
        kept.num_rows()
    });
    assert_eq!(passed.collect::<Vec<_>>(), [rows, 0, 1, 0, 0, 0, 0, rows]);
}

/// Promise of `ensure_bounded`: a column with memory bounds its batch, of any length.
#[test]
fn a_column_with_memory_bounds_its_batch() {
    let rows = MOST_FREE_ROWS + 1;
    let flags: ArrayRef = Arc::new(BooleanArray::new(BooleanBuffer::new_unset(rows), None));
    let all = runs(
        vec![i64::try_from(rows).unwrap()],
        &StringArray::from(vec!["x"]),
    );
    ensure_bounded(&of(all.clone())).unwrap_err();
    let columns = [("c", all), ("flag", flags)];
    ensure_bounded(&RecordBatch::try_from_iter(columns).unwrap()).unwrap();
}

/// Promise of the module: dictionaries and runs, also inside each other, give the rows of their
/// values, for a whole batch and for a part of it.
#[test]
fn encodings_have_the_rows_of_their_values() {
    let words = StringArray::from(vec![Some("x"), None, Some("y")]);
    let rows = 2 * ROWS_AT_ONCE;
    let keys =
        |len: usize| (0..len).map(|row| (row % 7 > 0).then(|| i32::try_from(row % 3).unwrap()));
    let ends = |runs: i64| {
        (1..=runs)
            .map(|run| run * (rows as i64) / runs)
            .collect::<Vec<_>>()
    };
    let dictionary = |values: ArrayRef, len| {
        let keys = keys(len).collect::<Int32Array>();
        Arc::new(DictionaryArray::new(keys, values)) as ArrayRef
    };
    let of_words = runs(ends(3), &words);
    let three = runs(vec![1, 2, 3], &words);
    let columns = [
        of_words,
        dictionary(Arc::new(words.clone()), rows),
        dictionary(three, rows),
        runs(ends(50), &dictionary(Arc::new(words.clone()), 50)),
    ];
    let is_x = |row: usize| words.is_valid(row).then(|| words.value(row) == "x");
    let key = |key: Option<i32>| key.and_then(|key| is_x(key as usize));
    let run = |runs: usize, row: usize| (1..=runs).position(|run| row < run * rows / runs).unwrap();
    let expected: [&dyn Fn(usize) -> Option<bool>; 4] = [
        &|row| is_x(run(3, row)),
        &|row| key(keys(rows).nth(row).unwrap()),
        &|row| key(keys(rows).nth(row).unwrap()),
        &|row| key(keys(50).nth(run(50, row)).unwrap()),
    ];
    for (column, expected) in columns.into_iter().zip(expected) {
        let batch = of(column);
        let filter = equals(batch.schema_ref(), "x");
        for (start, len) in [(0, rows), (ROWS_AT_ONCE - 3, 9), (rows - 1, 1)] {
            let passed = filter.evaluate(&batch.slice(start, len)).unwrap();
            for row in (0..len).step_by(101) {
                let found = passed.is_valid(row).then(|| passed.value(row));
                assert_eq!(found, expected(start + row), "{row} from {start}");
            }
        }
    }
}

/// Promise of the module: nulls of structs are those of the encoded fields in them.
#[test]
fn nulls_of_structs_are_those_of_encoded_fields() {
    let rows = 2 * ROWS_AT_ONCE;
    let words = runs(vec![rows as i64], &StringArray::from(vec!["x"]));
    let fields = vec![Field::new("c", words.data_type().clone(), true)].into();
    let nulls: NullBuffer = (0..rows).map(|row| row % 5 > 0).collect();
    let column = StructArray::new(fields, vec![words], Some(nulls));
    let batch =
        RecordBatch::try_from_iter_with_nullable([("s", Arc::new(column) as ArrayRef, true)]);
    let batch = batch.unwrap();
    let schema = batch.schema();
    let mut builder = FilterBuilder::new(&schema);
    let column = builder.column(&["s".to_owned(), "c".to_owned()]).unwrap().0;
    let root = builder.call("is_null", vec![column]);
    let filter = Filter::parse(&builder.finish(root), &schema).unwrap();
    let kept = filter.apply(&batch).unwrap();
    assert_eq!(kept.num_rows(), rows.div_ceil(5));
}

/// Promise of `apply_to`: work ends with the first error of `check`, which is asked between parts
/// of the rows and between columns.
#[test]
fn work_ends_with_its_check() {
    let rows = 100 * ROWS_AT_ONCE;
    let batch = of(runs(
        vec![1, rows as i64],
        &StringArray::from(vec!["x", "y"]),
    ));
    let filter = equals(batch.schema_ref(), "x");
    for last in [1, 50, 101] {
        let mut asked = 0;
        let mut check = || {
            asked += 1;
            match asked < last {
                true => Ok(()),
                false => Err(Error::cancelled("enough")),
            }
        };
        let error = filter.apply_to(&batch, None, &mut check).unwrap_err();
        assert_eq!(error.status(), Status::Cancelled);
        assert_eq!(asked, last);
    }
}
