use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    Array, AsArray, BooleanArray, Decimal128Array, DictionaryArray, Float64Array, Int32Array,
    Int64Array, ListArray, RecordBatchOptions, StringArray, StringViewArray, UInt32Array,
};
use arrow::compute::concat_batches;
use arrow::datatypes::{Int32Type, Int64Type, Schema};
use fastrand::Rng;

use super::super::range::sample;
use super::*;
use crate::error::Status;

/// A batch with a column `row` of numbers from `first` on and columns of many kinds.
fn batch(random: &mut Rng, first: i64, rows: usize) -> RecordBatch {
    let mut random = || (random.u32(0..4) > 0).then(|| random.i32(0..50));
    let values: Vec<_> = (0..rows).map(|_| random()).collect();
    let words = values
        .iter()
        .map(|of| of.map(|n| format!("word {n} {}", "x".repeat(20))));
    let words: Vec<_> = words.collect();
    let words: Vec<_> = words.iter().map(Option::as_deref).collect();
    let lists = values.iter().map(|of| of.map(|n| vec![Some(n), None]));
    let floats = values.iter().map(|of| of.map(|n| f64::from(n - 25) / 2.0));
    let wide = values.iter().map(|of| of.map(i128::from));
    let columns: [(&str, ArrayRef); 9] = [
        (
            "row",
            Arc::new(Int64Array::from_iter_values((first..).take(rows))),
        ),
        ("n", Arc::new(Int32Array::from(values.clone()))),
        ("d", Arc::new(Decimal128Array::from_iter(wide))),
        ("f", Arc::new(Float64Array::from_iter(floats))),
        (
            "b",
            Arc::new(BooleanArray::from_iter(
                values.iter().map(|of| of.map(|n| n > 9)),
            )),
        ),
        ("t", Arc::new(StringArray::from(words.clone()))),
        ("v", Arc::new(StringViewArray::from(words.clone()))),
        (
            "c",
            Arc::new(DictionaryArray::<Int32Type>::from_iter(words)),
        ),
        (
            "l",
            Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists)),
        ),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, of)| (name, of, true))).unwrap()
}

fn hash_of(keys: &[&str]) -> Partitioning {
    let keys = keys.iter().map(|key| (*key).to_owned());
    Partitioning::Hash {
        keys: keys.collect(),
    }
}

fn key(column: &str) -> SortKey {
    SortKey {
        column: column.to_owned(),
        descending: false,
        nulls_first: false,
    }
}

/// The numbers of the rows of each batch, which must be ascending.
fn numbers(of: &RecordBatch) -> Vec<i64> {
    let numbers = of.column(0).as_primitive::<Int64Type>().values().to_vec();
    assert!(numbers.is_sorted(), "rows keep their order");
    numbers
}

/// Promise: every row goes to one rank, with all its values, and rows keep their order, in batches
/// with and without slices, of one block and of many, for one rank and for a thousand.
#[test]
fn every_row_arrives_once_in_order() {
    let mut random = Rng::with_seed(7);
    for rows in [0, 1, 100, 10_000] {
        let whole = batch(&mut random, 0, rows + 3);
        for of in [whole.slice(0, rows), whole.slice(3, rows)] {
            for ranks in [1, 2, 7, 1000] {
                let partitioning = hash_of(&["row", "t"]);
                let mut by = Partitioner::new(&partitioning, &of.schema(), ranks, None).unwrap();
                let cut = by.cut(&of).unwrap();
                assert!(cut.is_sorted_by(|one, other| one.0 < other.0));
                assert!(
                    cut.iter()
                        .all(|(rank, part)| *rank < ranks && part.num_rows() > 0)
                );
                let mut arrived: Vec<i64> = Vec::new();
                for (_, part) in &cut {
                    let numbers = numbers(part);
                    let first = of.column(0).as_primitive::<Int64Type>().value(0);
                    let rows = numbers.iter().map(|n| u32::try_from(n - first).unwrap());
                    let rows = UInt32Array::from_iter_values(rows);
                    let expected = arrow::compute::take_record_batch(&of, &rows).unwrap();
                    assert_eq!(part, &expected);
                    for column in part.columns() {
                        column.to_data().validate_full().unwrap();
                    }
                    arrived.extend(numbers);
                }
                arrived.sort_unstable();
                let sent = of.column(0).as_primitive::<Int64Type>();
                assert_eq!(arrived, sent.values().to_vec(), "{rows} {ranks}");
            }
        }
    }
}

/// Promise: equal keys go to one rank, in whatever form they come and however the batches are cut.
#[test]
fn equal_keys_go_to_one_rank() {
    let mut random = Rng::with_seed(8);
    let batches: Vec<_> = (0..5).map(|n| batch(&mut random, n * 100, 100)).collect();
    let mut rank_of: HashMap<Option<String>, u32> = HashMap::new();
    for keys in ["t", "v", "c"] {
        let schema = batches[0].schema();
        let mut by = Partitioner::new(&hash_of(&[keys]), &schema, 16, None).unwrap();
        for batch in &batches {
            for (rank, part) in by.cut(batch).unwrap() {
                for key in part.column(5).as_string::<i32>() {
                    let known = *rank_of.entry(key.map(str::to_owned)).or_insert(rank);
                    assert_eq!(known, rank, "{key:?} by {keys}");
                }
            }
        }
    }
}

/// Promise: -0.0 goes where 0.0 goes, and every NaN to one rank, by hash and by range.
#[test]
fn floats_that_are_equal_go_to_one_rank() {
    let other_nan = f64::from_bits(0xfff8_0000_0000_0001);
    let values = [0.0, 1.0, -0.0, f64::NAN, -1.0, other_nan, f64::INFINITY];
    let column: ArrayRef = Arc::new(Float64Array::from(values.to_vec()));
    let batch = RecordBatch::try_from_iter([("f", column)]).unwrap();
    let keys = vec![key("f")];
    let splitters = Splitters::choose(std::slice::from_ref(&batch), &keys, 50).unwrap();
    let ranges = splitters.destinations(&batch).unwrap();
    let hashes = hash::hash_rows(batch.columns()).unwrap();
    assert_eq!((hashes[0], hashes[3]), (hashes[2], hashes[5]));
    assert_eq!((ranges[0], ranges[3]), (ranges[2], ranges[5]));
    // NaN comes after infinity.
    assert!(
        ranges[4] < ranges[0] && ranges[0] < ranges[1] && ranges[6] < ranges[3],
        "{ranges:?}"
    );
}

/// Promise: rows that already lie together for each rank are slices of the batch, without a copy.
#[test]
fn partitioned_input_is_not_copied() {
    let of = batch(&mut Rng::with_seed(9), 0, 10);
    let cut = cut::cut(&of, &[5, 5, 5, 0, 0, 0, 0, 9, 9, 9], 10).unwrap();
    let expected = [
        (0, of.slice(3, 4)),
        (5, of.slice(0, 3)),
        (9, of.slice(7, 3)),
    ];
    assert_eq!(cut, expected);
    for ((_, cut), (_, slice)) in cut.iter().zip(&expected) {
        let pointer = |batch: &RecordBatch| {
            let values = batch.column(0).as_primitive::<Int64Type>().values();
            values.as_ptr()
        };
        assert_eq!(pointer(cut), pointer(slice));
    }
}

/// Promise: dictionaries are shared, and a rank gets the bytes of its own views only.
#[test]
fn dictionaries_are_shared_and_views_are_not() {
    let of = batch(&mut Rng::with_seed(10), 0, 100);
    let to: Vec<u32> = (0..100).map(|row| row % 2).collect();
    let used = |batch: &RecordBatch| -> usize {
        let buffers = batch.column(6).as_string_view().data_buffers();
        buffers.iter().map(|buffer| buffer.len()).sum()
    };
    for (_, part) in cut::cut(&of, &to, 2).unwrap() {
        let words = |batch: &RecordBatch| batch.column(7).as_any_dictionary().values().clone();
        assert!(Arc::ptr_eq(&words(&part), &words(&of)));
        assert!(used(&part) < used(&of));
    }
}

/// Promise: a batch without columns keeps its number of rows; wrong destinations are an error.
#[test]
fn rows_without_columns_are_cut() {
    let options = RecordBatchOptions::new().with_row_count(Some(4));
    let none = Arc::new(Schema::empty());
    let of = RecordBatch::try_new_with_options(none, Vec::new(), &options).unwrap();
    let cut = |to: &[u32]| cut::cut(&of, to, 2);
    let rows: Vec<_> = cut(&[1, 0, 1, 1]).unwrap();
    let rows: Vec<_> = rows
        .iter()
        .map(|(rank, part)| (*rank, part.num_rows()))
        .collect();
    assert_eq!(rows, [(0, 1), (1, 3)]);
    assert_eq!(
        cut(&[0, 0, 0]).unwrap_err().status(),
        Status::InvalidArgument
    );
    assert_eq!(
        cut(&[0, 0, 2, 1]).unwrap_err().status(),
        Status::InvalidArgument
    );
}

/// Promise: a destination that is null, negative or not a rank is an error with its row and value.
#[test]
fn wrong_destinations_name_row_and_value() {
    let columns: [(ArrayRef, &str); 3] = [
        (
            Arc::new(Int64Array::from(vec![Some(0), None])),
            "null in row 1",
        ),
        (Arc::new(Int32Array::from(vec![0, 1, -7])), "-7 in row 2"),
        (Arc::new(UInt32Array::from(vec![4])), "4 in row 0"),
    ];
    for (column, wanted) in columns {
        let batch = RecordBatch::try_from_iter([("to", column)]).unwrap();
        let by = Partitioning::Destinations {
            column: "to".to_owned(),
        };
        let mut by = Partitioner::new(&by, &batch.schema(), 4, None).unwrap();
        let error = by.cut(&batch).unwrap_err();
        assert_eq!(error.status(), Status::InvalidData);
        assert!(error.text().contains(wanted), "{error}");
        assert!(error.text().contains("4 ranks"), "{error}");
    }
    let to: ArrayRef = Arc::new(UInt32Array::from(vec![1, 0, 1]));
    assert_eq!(destination::destinations("to", &to, 2).unwrap(), [1, 0, 1]);
}

/// Promise: by range, the keys of each rank come before those of the next, equal keys go to one
/// rank, and distinct keys spread evenly.
#[test]
fn ranges_are_in_order() {
    let mut random = Rng::with_seed(11);
    let batches: Vec<_> = (0..4).map(|n| batch(&mut random, n * 3000, 3000)).collect();
    let schema = batches[0].schema();
    for (column, descending) in [("row", false), ("row", true), ("c", false), ("n", true)] {
        let keys = vec![SortKey {
            descending,
            nulls_first: descending,
            ..key(column)
        }];
        let samples = batches.iter().zip(0..);
        let samples = samples.map(|(batch, seed)| sample(batch, &keys, 500, seed).unwrap());
        let mut samples: Vec<_> = samples.collect();
        assert!(samples.iter().all(|sample| sample.num_rows() == 500));
        let splitters = Splitters::choose(&samples, &keys, 5).unwrap();
        samples.reverse();
        let again = Splitters::choose(&samples, &keys, 5).unwrap();
        for batch in &batches {
            let (one, other) = (splitters.destinations(batch), again.destinations(batch));
            assert_eq!(one.unwrap(), other.unwrap());
        }

        let by = Partitioning::Range { keys };
        let mut by = Partitioner::new(&by, &schema, 5, Some(splitters)).unwrap();
        let mut parts = vec![Vec::new(); 5];
        for batch in &batches {
            for (rank, part) in by.cut(batch).unwrap() {
                parts[rank as usize].push(part);
            }
        }
        let options = arrow::compute::SortOptions::new(descending, descending);
        let mut all = Vec::new();
        for parts in &parts {
            let part = concat_batches(&schema, parts).unwrap();
            if column == "row" {
                assert!(
                    (1800..3000).contains(&part.num_rows()),
                    "{}",
                    part.num_rows()
                );
            }
            let keys = part.column_by_name(column).unwrap();
            let keys = match keys.data_type() {
                DataType::Dictionary(_, of) => arrow::compute::cast(keys, of).unwrap(),
                _ => keys.clone(),
            };
            all.push(arrow::compute::sort(&keys, Some(options)).unwrap());
        }
        let all: Vec<_> = all.iter().map(|keys| &**keys).collect();
        let all = arrow::compute::concat(&all).unwrap();
        let sorted = arrow::compute::sort(&all, Some(options)).unwrap();
        assert_eq!(&all, &sorted, "{column}");
    }
}

/// Promise: without samples, or with empty ones, all rows go to rank 0.
#[test]
fn no_samples_send_all_rows_to_the_first() {
    let of = batch(&mut Rng::with_seed(12), 0, 10);
    let keys = vec![key("t"), key("row")];
    let empty = sample(&of.slice(0, 0), &keys, 10, 1).unwrap();
    for samples in [vec![], vec![empty.clone(), empty]] {
        let splitters = Splitters::choose(&samples, &keys, 3).unwrap();
        assert_eq!(splitters.destinations(&of).unwrap(), [0; 10]);
    }
}

/// Promise: by rows, ranks take turns across batches, and batches are slices.
#[test]
fn rows_go_to_ranks_in_turn() {
    let mut random = Rng::with_seed(13);
    let schema = batch(&mut random, 0, 0).schema();
    let mut by = Partitioner::new(&Partitioning::Rows { chunk: 3 }, &schema, 2, None).unwrap();
    let mut arrived = Vec::new();
    let mut first = 0;
    for rows in [2, 0, 9, 1] {
        for (rank, part) in by.cut(&batch(&mut random, first, rows)).unwrap() {
            arrived.extend(numbers(&part).into_iter().map(|row| (row, rank)));
        }
        first += i64::try_from(rows).unwrap();
    }
    let ranks = [0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1];
    assert_eq!(arrived, (0..).zip(ranks).collect::<Vec<_>>());
}

/// Promise: a partitioner that cannot work is an error that names the column, the others that there
/// are, and the call.
#[test]
fn partitioners_that_cannot_work_are_refused() {
    let of = batch(&mut Rng::with_seed(14), 0, 10);
    let (schema, keys) = (of.schema(), vec![key("n")]);
    let splitters = Splitters::choose(&[], &keys, 2).unwrap();
    let range = Partitioning::Range { keys };
    let by_float = Partitioning::Destinations {
        column: "f".to_owned(),
    };
    let no_range = Partitioning::Range { keys: Vec::new() };
    let cases = [
        (
            hash_of(&["t", "x"]),
            2,
            None,
            "no column \"x\": the columns are \"row\", \"n\"",
        ),
        (hash_of(&[]), 2, None, "no keys"),
        (hash_of(&["t"]), 0, None, "no ranks"),
        (hash_of(&["t"]), 2, Some(splitters.clone()), "splitters"),
        (range.clone(), 2, None, "no splitters"),
        (range, 3, Some(splitters), "other keys or another number"),
        (no_range, 2, None, "no keys"),
        (by_float, 2, None, "Float64"),
        (
            Partitioning::Rows { chunk: 0 },
            2,
            None,
            "a chunk has no rows",
        ),
    ];
    for (by, ranks, splitters, wanted) in cases {
        let error = Partitioner::new(&by, &schema, ranks, splitters).unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument);
        assert!(error.text().contains(wanted), "{error}");
        assert!(error.text().starts_with(&by.describe()), "{error}");
    }
    let mut by = Partitioner::new(&hash_of(&["t"]), &schema, 2, None).unwrap();
    let other = of.project(&[0, 5]).unwrap();
    // As for the batches of every stream.
    let error = by.cut(&other).unwrap_err();
    assert_eq!(error.status(), Status::InvalidData);
    assert!(
        error.text().contains("does not have the columns"),
        "{error}"
    );
}

/// Promise: the words of a partitioning tell all of it.
#[test]
fn partitionings_have_words() {
    assert_eq!(hash_of(&["a", "b"]).describe(), r#"by hash of "a", "b""#);
    let keys = vec![
        SortKey {
            descending: true,
            ..key("a")
        },
        key("b"),
    ];
    assert_eq!(
        Partitioning::Range { keys }.describe(),
        r#"by range of "a" (descending, nulls last), "b" (ascending, nulls last)"#
    );
}
