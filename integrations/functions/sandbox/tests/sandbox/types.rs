//! Every type of Arrow through a module that puts out its very input.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::*;
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::*;

use crate::support::{Wat, call};
use dipc_sandbox::{Error, Limits};

/// The array whole, in slices, and empty, alone and as a column that may not be null.
fn round_trip(array: impl Array + 'static) {
    let array: ArrayRef = Arc::new(array);
    let name = array.data_type().to_string();
    let slices = [
        (0, array.len()),
        (1, array.len() - 1),
        (2, array.len() - 3),
        (0, 1),
        (array.len() - 1, 1),
        (1, 0),
        (0, 0),
    ];
    let field = Field::new("column", array.data_type().clone(), true);
    for (offset, length) in slices {
        same(
            &field,
            array.slice(offset, length),
            &format!("{name} {offset} {length}"),
        );
    }
    same(&field, new_empty_array(array.data_type()), &name);
    if array.logical_null_count() == 0 {
        same(&field.with_nullable(false), array, &name);
    }
}

fn same(field: &Field, array: ArrayRef, name: &str) {
    let schema = Arc::new(Schema::new(vec![field.clone()]));
    let batch = RecordBatch::try_new(schema, vec![array]).unwrap();
    thread_local! {
        static SAME: dipc_sandbox::Module = Wat::default().module();
    }
    let outputs = SAME.with(|module| call(module, &batch, &Limits::default()));
    let outputs = outputs.unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(outputs.len(), 1, "{name}");
    assert_eq!(outputs[0], batch, "{name}");
}

fn primitive<T: ArrowPrimitiveType>(values: [T::Native; 2]) {
    let [a, b] = values;
    round_trip(PrimitiveArray::<T>::from_iter_values([
        a, b, a, a, b, b, a, b, a, a,
    ]));
    round_trip(PrimitiveArray::<T>::from_iter([
        Some(a),
        None,
        Some(b),
        None,
        None,
        Some(a),
        Some(b),
        None,
        Some(a),
        Some(b),
    ]));
}

#[test]
fn numbers_and_times() {
    primitive::<Int8Type>([i8::MIN, 5]);
    primitive::<Int16Type>([i16::MIN, 5]);
    primitive::<Int32Type>([i32::MIN, 5]);
    primitive::<Int64Type>([i64::MIN, 5]);
    primitive::<UInt8Type>([u8::MAX, 5]);
    primitive::<UInt16Type>([u16::MAX, 5]);
    primitive::<UInt32Type>([u32::MAX, 5]);
    primitive::<UInt64Type>([u64::MAX, 5]);
    primitive::<Float32Type>([-0.5, 3.0]);
    primitive::<Float64Type>([-0.5, 3.0]);
    primitive::<Date32Type>([-1, 20_000]);
    primitive::<Date64Type>([0, 86_400_000]);
    primitive::<Time32SecondType>([1, 2]);
    primitive::<Time32MillisecondType>([1, 2]);
    primitive::<Time64MicrosecondType>([1, 2]);
    primitive::<Time64NanosecondType>([1, 2]);
    primitive::<TimestampSecondType>([1, -2]);
    primitive::<TimestampMillisecondType>([1, -2]);
    primitive::<TimestampMicrosecondType>([1, -2]);
    primitive::<TimestampNanosecondType>([1, -2]);
    primitive::<DurationSecondType>([1, 2]);
    primitive::<DurationMillisecondType>([1, 2]);
    primitive::<DurationMicrosecondType>([1, 2]);
    primitive::<DurationNanosecondType>([1, 2]);
    primitive::<IntervalYearMonthType>([1, 2]);
    primitive::<IntervalDayTimeType>([IntervalDayTime::new(1, 2), IntervalDayTime::new(3, 4)]);
    primitive::<IntervalMonthDayNanoType>([
        IntervalMonthDayNano::new(1, 2, 3),
        IntervalMonthDayNano::new(4, 5, 6),
    ]);
    primitive::<Decimal32Type>([1, -2]);
    primitive::<Decimal64Type>([1, -2]);
    primitive::<Decimal128Type>([1, -2]);
    primitive::<Decimal256Type>([i256::from_i128(1), i256::from_i128(-2)]);
    let zoned = TimestampMicrosecondArray::from(vec![1, 2, 3, 4, 5]);
    round_trip(zoned.with_timezone("America/New_York"));
    let scaled = Decimal128Array::from(vec![1, 2, 3, 4, 5]);
    round_trip(scaled.with_precision_and_scale(12, -3).unwrap());
    round_trip(
        PrimitiveArray::<Float16Type>::try_new(
            ScalarBuffer::new(vec![0_u8, 60, 0, 61, 0, 62, 0, 63].into(), 0, 4),
            None,
        )
        .unwrap(),
    );
}

#[test]
fn bits_and_nothing() {
    let bits: Vec<_> = (0..100)
        .map(|i| (i % 7 != 3).then_some(i % 3 == 0))
        .collect();
    round_trip(BooleanArray::from(bits));
    round_trip(BooleanArray::from(vec![true; 20]));
    round_trip(NullArray::new(9));
}

#[test]
fn texts_and_bytes() {
    let texts = [
        Some("a"),
        None,
        Some(""),
        Some("gänzlich längerer Text"),
        Some("ß"),
        Some("zz"),
    ];
    let bytes = texts.map(|text| text.map(str::as_bytes));
    round_trip(StringArray::from_iter(texts));
    round_trip(LargeStringArray::from_iter(texts));
    round_trip(StringViewArray::from_iter(texts));
    round_trip(BinaryArray::from_iter(bytes));
    round_trip(LargeBinaryArray::from_iter(bytes));
    round_trip(BinaryViewArray::from_iter(bytes));
    let fixed = [
        Some([1, 2, 3]),
        None,
        Some([4, 5, 6]),
        Some([7, 8, 9]),
        None,
    ];
    round_trip(FixedSizeBinaryArray::try_from_sparse_iter_with_size(fixed.into_iter(), 3).unwrap());
}

#[test]
fn views_into_several_buffers() {
    let mut views = StringViewBuilder::new().with_fixed_block_size(64);
    for index in 0..50 {
        views.append_value(format!("a text of more than twelve bytes, number {index}"));
    }
    round_trip(views.finish());
}

fn lists<O: OffsetSizeTrait>() -> GenericListArray<O> {
    let lists = [
        Some(vec![Some(1), None]),
        None,
        Some(vec![]),
        Some(vec![Some(2), Some(3), Some(4)]),
        Some(vec![Some(5)]),
    ];
    GenericListArray::<O>::from_iter_primitive::<Int32Type, _, _>(lists)
}

#[test]
fn lists_and_their_views() {
    round_trip(lists::<i32>());
    round_trip(lists::<i64>());
    let values: ArrayRef = Arc::new(StringArray::from(vec![
        Some("a"),
        None,
        Some("b"),
        Some("c"),
    ]));
    let item = Arc::new(Field::new_list_field(DataType::Utf8, true));
    let nulls = || Some(NullBuffer::from(vec![true, false, true, true, true]));
    round_trip(ListViewArray::new(
        Arc::clone(&item),
        vec![2, 0, 1, 0, 3].into(),
        vec![2, 0, 3, 4, 0].into(),
        Arc::clone(&values),
        nulls(),
    ));
    round_trip(LargeListViewArray::new(
        item,
        vec![2, 0, 1, 0, 3].into(),
        vec![2, 0, 3, 4, 0].into(),
        values,
        nulls(),
    ));
    let fixed = [
        Some(vec![Some(1), None]),
        None,
        Some(vec![Some(3), Some(4)]),
        None,
        None,
    ];
    round_trip(FixedSizeListArray::from_iter_primitive::<Int16Type, _, _>(
        fixed, 2,
    ));
    let none = Arc::new(Field::new_list_field(DataType::Int8, true));
    let empty = Arc::new(Int8Array::from(Vec::<i8>::new()));
    round_trip(FixedSizeListArray::try_new_with_length(none, 0, empty, nulls(), 5).unwrap());
    let nested = GenericListArray::<i32>::new(
        Arc::new(Field::new_list_field(
            lists::<i64>().data_type().clone(),
            true,
        )),
        OffsetBuffer::from_lengths([2, 0, 1, 2]),
        Arc::new(lists::<i64>()),
        None,
    );
    round_trip(nested);
}

#[test]
fn structs_and_maps() {
    let a: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None, Some(3), Some(4)]));
    let b: ArrayRef = Arc::new(lists::<i32>().slice(1, 4));
    let fields = Fields::from(vec![
        Field::new("a", DataType::Int32, true),
        Field::new("b", b.data_type().clone(), true),
    ]);
    let nulls = NullBuffer::from(vec![true, true, false, true]);
    round_trip(StructArray::new(fields, vec![a, b], Some(nulls)));
    round_trip(StructArray::new_empty_fields(
        4,
        Some(vec![true, false, true, true].into()),
    ));

    for sorted in [false, true] {
        let keys: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "c", "d"]));
        let values: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(3), None]));
        let entries = StructArray::from(vec![
            (Arc::new(Field::new("keys", DataType::Utf8, false)), keys),
            (
                Arc::new(Field::new("values", DataType::Int64, true)),
                values,
            ),
        ]);
        round_trip(MapArray::new(
            Arc::new(Field::new("entries", entries.data_type().clone(), false)),
            OffsetBuffer::from_lengths([1, 0, 2, 1]),
            entries,
            Some(vec![true, false, true, true].into()),
            sorted,
        ));
    }
}

#[test]
fn unions() {
    let fields = || {
        UnionFields::try_new(
            [3, 7],
            [
                Field::new("a", DataType::Int32, true),
                Field::new("b", DataType::Utf8, true),
            ],
        )
        .unwrap()
    };
    let ids = || ScalarBuffer::from(vec![3_i8, 7, 7, 3, 7]);
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![
        Some(1),
        None,
        Some(3),
        None,
        Some(5),
    ]));
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "c", "d", "e"]));
    let children = || vec![Arc::clone(&numbers), Arc::clone(&texts)];
    round_trip(UnionArray::try_new(fields(), ids(), None, children()).unwrap());
    let offsets = ScalarBuffer::from(vec![0, 0, 1, 1, 4]);
    round_trip(UnionArray::try_new(fields(), ids(), Some(offsets), children()).unwrap());
}

#[test]
fn dictionaries_and_runs() {
    fn keyed<K: ArrowDictionaryKeyType>(keys: PrimitiveArray<K>) {
        let values = Arc::new(StringArray::from(vec!["a", "bb", "ccc"]));
        round_trip(DictionaryArray::<K>::new(keys, values));
    }
    keyed(Int8Array::from(vec![
        Some(0),
        None,
        Some(2),
        Some(1),
        Some(0),
    ]));
    keyed(UInt8Array::from(vec![0, 1, 2, 1, 0]));
    keyed(Int16Array::from(vec![0, 1, 2, 1, 0]));
    keyed(UInt16Array::from(vec![0, 1, 2, 1, 0]));
    keyed(Int32Array::from(vec![0, 1, 2, 1, 0]));
    keyed(UInt32Array::from(vec![0, 1, 2, 1, 0]));
    keyed(Int64Array::from(vec![0, 1, 2, 1, 0]));
    keyed(UInt64Array::from(vec![0, 1, 2, 1, 0]));

    let values = StringArray::from(vec![Some("a"), None, Some("b")]);
    round_trip(RunArray::try_new(&Int16Array::from(vec![2, 3, 6]), &values).unwrap());
    round_trip(RunArray::try_new(&Int32Array::from(vec![2, 3, 6]), &values).unwrap());
    round_trip(RunArray::try_new(&Int64Array::from(vec![2, 3, 6]), &values).unwrap());
}

#[test]
fn metadata_of_extensions_and_of_the_schema() {
    let pairs = |key: &str| HashMap::from([(key.to_owned(), "ä value".to_owned())]);
    let field = Field::new("column", DataType::Int64, true);
    let field = field.with_metadata(pairs("ARROW:extension:name"));
    let schema = Schema::new(vec![field]).with_metadata(pairs("of the table"));
    let column: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let batch = RecordBatch::try_new(Arc::new(schema), vec![column]).unwrap();
    let module = Wat::default().module();
    assert_eq!(call(&module, &batch, &Limits::default()).unwrap(), [batch]);
}

#[test]
fn tables_without_columns_have_rows() {
    let options = RecordBatchOptions::new().with_row_count(Some(7));
    let schema = Arc::new(Schema::empty());
    let batch = RecordBatch::try_new_with_options(schema, vec![], &options).unwrap();
    let module = Wat::default().module();
    assert_eq!(
        call(&module, &batch, &Limits::default()).unwrap()[0].num_rows(),
        7
    );
}

#[test]
fn a_slice_takes_the_memory_of_its_rows_alone() {
    let text = "0123456789".repeat(100_000);
    let texts = || std::iter::repeat_n(text.as_str(), 100);
    let limits = Limits {
        memory_bytes: 3 << 20,
        ..Limits::default()
    };
    let module = Wat::default().module();
    let arrays: [ArrayRef; 3] = [
        Arc::new(StringArray::from_iter_values(texts())),
        Arc::new(StringViewArray::from_iter_values(texts())),
        Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(
            texts().map(|_| Some((0..10_000).map(Some))),
        )),
    ];
    for array in arrays {
        let batch = RecordBatch::try_from_iter([("column", array.slice(40, 2))]).unwrap();
        assert_eq!(call(&module, &batch, &limits).unwrap(), [batch]);
    }
}

/// Views of `text`s that point behind their buffer in the null rows, and where `everywhere` in all.
fn wild_views(everywhere: bool) -> StringViewArray {
    let wild = 20 | 1 << 64 | 500 << 96;
    let text = 20 | u128::from(u32::from_le_bytes(*b"text")) << 32;
    let views = vec![wild, if everywhere { wild } else { text }, wild];
    let bytes = Buffer::from(b"text that is far away and more of it that nobody uses".to_vec());
    let nulls = NullBuffer::from(vec![false, true, false]);
    // SAFETY: nothing here reads the views; the sandbox trusts none of them.
    unsafe { StringViewArray::new_unchecked(views.into(), [bytes].into(), Some(nulls)) }
}

#[test]
fn views_of_null_rows_may_be_anything() {
    for rows in [0..3, 1..3, 0..2] {
        let column: ArrayRef = Arc::new(wild_views(false).slice(rows.start, rows.len()));
        let batch = RecordBatch::try_from_iter_with_nullable([("views", column, true)]).unwrap();
        let outputs = call(&Wat::default().module(), &batch, &Limits::default()).unwrap();
        let texts = outputs[0].column(0).as_string_view().iter();
        let wanted = [None, Some("text that is far awa"), None];
        assert!(texts.eq(wanted[rows].iter().copied()));
    }
}

#[test]
fn wild_views_of_the_hosts_table_end_the_call() {
    let column: ArrayRef = Arc::new(wild_views(true).slice(1, 1));
    let batch = RecordBatch::try_from_iter_with_nullable([("views", column, true)]).unwrap();
    let error = call(&Wat::default().module(), &batch, &Limits::default()).unwrap_err();
    assert!(matches!(error, Error::Batch(_)), "{error}");
}

#[test]
fn offsets_behind_the_values_end_the_call() {
    let wild = OffsetBuffer::<i32>::new(vec![0, 9000].into());
    // SAFETY: nothing here reads the values.
    let column = unsafe { StringArray::new_unchecked(wild, Buffer::from([b'a'; 8]), None) };
    let batch = RecordBatch::try_from_iter([("texts", Arc::new(column) as ArrayRef)]).unwrap();
    let error = call(&Wat::default().module(), &batch, &Limits::default()).unwrap_err();
    assert!(matches!(error, Error::Batch(_)), "{error}");
}
