use std::sync::Arc;

use arrow::array::{
    BinaryArray, BinaryViewArray, Date32Array, Decimal128Array, Decimal256Array, DictionaryArray,
    FixedSizeBinaryArray, Float16Array, Float32Array, Float64Array, Int8Array, Int16Array,
    Int32Array, Int64Array, IntervalDayTimeArray, IntervalMonthDayNanoArray, LargeBinaryArray,
    LargeListArray, LargeStringArray, ListArray, ListViewArray, MapBuilder, NullArray, StringArray,
    StringBuilder, StringViewArray, UInt64Array,
};
use arrow::array::{FixedSizeListArray, Int32Builder, make_array};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{
    Field, Fields, Int8Type, IntervalDayTime, IntervalMonthDayNano, UnionFields, i256,
};

use super::*;

fn array(of: impl Array + 'static) -> ArrayRef {
    Arc::new(of)
}

fn half(bits: u16) -> ArrayRef {
    let value = <Float16Type as ArrowPrimitiveType>::Native::from_bits(bits);
    array(Float16Array::from(vec![value]))
}

fn text(value: &str) -> ArrayRef {
    array(StringArray::from(vec![value]))
}

fn field(of: &ArrayRef) -> Arc<Field> {
    Arc::new(Field::new("item", of.data_type().clone(), true))
}

fn pair(first: ArrayRef, second: ArrayRef) -> ArrayRef {
    let fields = [("a", first), ("b", second)];
    let columns = fields.map(|(name, of)| {
        let field = Field::new(name, of.data_type().clone(), true);
        (Arc::new(field), of)
    });
    array(StructArray::from(columns.to_vec()))
}

fn list(items: ArrayRef, lengths: &[usize]) -> ArrayRef {
    let offsets = OffsetBuffer::from_lengths(lengths.iter().copied());
    array(ListArray::new(field(&items), offsets, items, None))
}

fn hashes(of: &ArrayRef) -> Vec<u64> {
    hash_rows(std::slice::from_ref(of)).unwrap()
}

/// Promise: hashes are those that `docs/communicator-hash.md` lists, on every machine.
#[test]
fn hashes_are_those_of_the_specification() {
    let inner = array(ListArray::from_iter_primitive::<Int64Type, _, _>([
        Some(vec![Some(1)]),
        Some(vec![]),
        None,
    ]));
    let mut map = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
    map.keys().append_value("a");
    map.values().append_value(1);
    map.append(true).unwrap();
    let map = map.finish();
    let sevens = array(Int32Array::from(vec![7]));
    let fields = UnionFields::try_new([5], [Field::new("n", DataType::Int32, true)]).unwrap();
    let ids = ScalarBuffer::from(vec![5_i8]);
    let union = UnionArray::try_new(fields, ids, None, vec![sevens]).unwrap();

    let vectors = [
        ("null", 0x9ae1_6a3b_2f90_404f, array(NullArray::new(1))),
        (
            "bool false",
            0xc44b_dff4_074e_ecdb,
            array(BooleanArray::from(vec![false])),
        ),
        (
            "bool true",
            0xe12e_f9d2_eb86_ceeb,
            array(BooleanArray::from(vec![true])),
        ),
        (
            "int8 -1",
            0xd6bc_ec3c_6b29_d72e,
            array(Int8Array::from(vec![-1])),
        ),
        (
            "int16 -2",
            0x00e7_cbba_5da9_e337,
            array(Int16Array::from(vec![-2])),
        ),
        (
            "int32 1",
            0xdb02_334e_96d6_5708,
            array(Int32Array::from(vec![1])),
        ),
        (
            "int64 1",
            0x2fbc_5935_64db_792e,
            array(Int64Array::from(vec![1])),
        ),
        (
            "uint64 max",
            0x5111_c7e4_7d78_4413,
            array(UInt64Array::from(vec![u64::MAX])),
        ),
        ("float16 1.5", 0x6ed1_d86c_2a9c_c4c1, half(0x3e00)),
        (
            "float32 -1.5",
            0x8574_8848_0345_af55,
            array(Float32Array::from(vec![-1.5])),
        ),
        (
            "float64 1.5",
            0x2561_a488_9ff6_3458,
            array(Float64Array::from(vec![1.5])),
        ),
        ("float16 zero", 0x3325_230e_1f28_5505, half(0x8000)),
        (
            "float32 zero",
            0x48b2_c926_16fc_193d,
            array(Float32Array::from(vec![-0.0])),
        ),
        (
            "float64 zero",
            0xc77b_3abb_6f87_acd9,
            array(Float64Array::from(vec![-0.0])),
        ),
        ("float16 nan", 0x052d_a029_008c_b5e6, half(0xfc01)),
        (
            "float32 nan",
            0x4168_a78e_f3f0_5bd3,
            array(Float32Array::from(vec![f32::from_bits(0xffc0_0001)])),
        ),
        (
            "float64 nan",
            0x0aa6_1dcf_a381_c167,
            array(Float64Array::from(vec![-f64::NAN])),
        ),
        (
            "decimal128 -12345",
            0x6353_bd61_6cea_2af6,
            array(Decimal128Array::from(vec![-12345])),
        ),
        (
            "decimal256 -12345",
            0xe162_22ee_edaa_c682,
            array(Decimal256Array::from(vec![i256::from(-12345_i64)])),
        ),
        (
            "date32 19000",
            0x8dda_d64b_f5e7_5aa6,
            array(Date32Array::from(vec![19000])),
        ),
        (
            "interval 1 day -2 ms",
            0x24d9_0365_8672_aaf1,
            array(IntervalDayTimeArray::from(vec![IntervalDayTime::new(
                1, -2,
            )])),
        ),
        (
            "interval 1 month 2 days -3 ns",
            0xd46a_0627_bd31_0220,
            array(IntervalMonthDayNanoArray::from(vec![
                IntervalMonthDayNano::new(1, 2, -3),
            ])),
        ),
        ("utf8 empty", 0x2d06_8005_38d3_94c2, text("")),
        ("utf8 naïve", 0xcccc_bc10_c227_7808, text("naïve")),
        (
            "utf8 of 300 x",
            0xa5d1_b460_7dc8_3554,
            text(&"x".repeat(300)),
        ),
        (
            "binary 00 ff",
            0xa99b_043a_346c_8bf3,
            array(BinaryArray::from(vec![&b"\x00\xff"[..]])),
        ),
        (
            "struct {int64 1, null}",
            0xfcbe_5dcb_2ae2_4e30,
            pair(array(Int64Array::from(vec![1])), array(NullArray::new(1))),
        ),
        (
            "list empty",
            0xc77b_3abb_6f87_acd9,
            list(array(Int64Array::from(Vec::<i64>::new())), &[0]),
        ),
        (
            "list [int64 1, null, 2]",
            0x6bf6_9e80_dd63_e693,
            list(array(Int64Array::from(vec![Some(1), None, Some(2)])), &[3]),
        ),
        (
            "list [[1], [], null]",
            0x8d10_b914_6952_c75b,
            list(inner, &[3]),
        ),
        ("map {a: int32 1}", 0x153f_7f89_e377_69b9, array(map)),
        ("union 5: int32 7", 0xffa8_8746_7804_607e, array(union)),
    ];
    for (value, expected, of) in vectors {
        assert_eq!(hashes(&of), [expected], "{value}");
    }

    let rows = [
        (
            "row (int64 1, utf8 a)",
            0x2767_9146_3151_9aaa,
            [array(Int64Array::from(vec![1])), text("a")],
        ),
        (
            "row (null, null)",
            0x3d35_0ccd_5392_c29b,
            [
                array(NullArray::new(1)),
                array(Int64Array::from(vec![None])),
            ],
        ),
    ];
    for (value, expected, columns) in rows {
        assert_eq!(hash_rows(&columns).unwrap(), [expected], "{value}");
    }
}

/// Promise: bytes and texts hash alike in all forms, and nulls alike in all types.
#[test]
fn forms_of_bytes_hash_alike() {
    let values = [
        Some("a"),
        None,
        Some("a value too long for a view"),
        Some(""),
    ];
    let bytes = values.map(|value| value.map(str::as_bytes));
    let plain = hashes(&array(StringArray::from(values.to_vec())));
    assert_eq!(plain[1], NULL);
    let forms = [
        array(LargeStringArray::from(values.to_vec())),
        array(StringViewArray::from(values.to_vec())),
        array(BinaryArray::from(bytes.to_vec())),
        array(LargeBinaryArray::from(bytes.to_vec())),
        array(BinaryViewArray::from(bytes.to_vec())),
        array(DictionaryArray::<Int8Type>::from_iter(values)),
    ];
    for form in forms {
        assert_eq!(hashes(&form), plain, "{}", form.data_type());
    }
    let fixed = FixedSizeBinaryArray::try_from_iter([*b"abc", *b"xyz"].iter()).unwrap();
    let texts = hashes(&array(StringArray::from(vec!["abc", "xyz"])));
    assert_eq!(hashes(&array(fixed)), texts);
}

/// Promise: a dictionary and runs hash as the values that they stand for, nulls of both kinds and
/// short slices of long ones included.
#[test]
fn encodings_hash_as_their_values() {
    let values = array(Int64Array::from(vec![
        Some(7),
        None,
        Some(9),
        Some(-1),
        Some(5),
        Some(4),
    ]));
    let keys = Int16Array::from(vec![Some(2), None, Some(1), Some(0), Some(2)]);
    let dictionary = array(DictionaryArray::new(keys, values.clone()));
    let plain = array(Int64Array::from(vec![
        Some(9),
        None,
        None,
        Some(7),
        Some(9),
    ]));
    assert_eq!(hashes(&dictionary), hashes(&plain));
    for (first, rows) in [(0, 1), (1, 2), (3, 2), (5, 0)] {
        assert_eq!(
            hashes(&dictionary.slice(first, rows)),
            hashes(&plain.slice(first, rows)),
            "{first} {rows}"
        );
    }
    let none = DictionaryArray::<Int16Type>::from_iter([None::<&str>, None]);
    assert_eq!(hashes(&array(none)), [NULL, NULL]);

    let ends = Int32Array::from(vec![2, 3, 6]);
    let items = Int64Array::from(vec![Some(1), None, Some(3)]);
    let runs = array(RunArray::try_new(&ends, &items).unwrap());
    let ones = [Some(1), Some(1), None, Some(3), Some(3), Some(3)];
    let plain = array(Int64Array::from(ones.to_vec()));
    for first in 0..=6 {
        for rows in 0..=6 - first {
            let (runs, plain) = (runs.slice(first, rows), plain.slice(first, rows));
            assert_eq!(hashes(&runs), hashes(&plain), "{first} {rows}");
        }
    }
}

/// Promise: all kinds of lists hash alike; slices and the children of nulls change nothing.
#[test]
fn lists_hash_alike_and_slices_are_honoured() {
    let rows = [
        Some(vec![Some(1), None]),
        None,
        Some(vec![Some(-5), Some(9)]),
        Some(vec![Some(3), Some(4)]),
    ];
    let plain = ListArray::from_iter_primitive::<Int64Type, _, _>(rows.clone());
    let large = LargeListArray::from_iter_primitive::<Int64Type, _, _>(rows.clone());
    let fixed = FixedSizeListArray::from_iter_primitive::<Int64Type, _, _>(rows.clone(), 2);
    let items = array(Int64Array::from(vec![
        Some(3),
        Some(4),
        Some(1),
        None,
        Some(-5),
        Some(9),
    ]));
    let view = ListViewArray::new(
        field(&items),
        ScalarBuffer::from(vec![2, 0, 4, 0]),
        ScalarBuffer::from(vec![2, 1, 2, 2]),
        items,
        plain.nulls().cloned(),
    );
    let plain = array(plain);
    let expected = hashes(&plain);
    for form in [array(large), array(fixed), array(view)] {
        assert_eq!(hashes(&form), expected, "{}", form.data_type());
        for first in 0..4 {
            let slice = hashes(&form.slice(first, 4 - first));
            assert_eq!(
                slice,
                expected[first..],
                "{} from {first}",
                form.data_type()
            );
        }
    }
    let structs = pair(plain.clone(), plain.clone());
    assert_eq!(hashes(&structs.slice(2, 2)), hashes(&structs)[2..]);
    assert_eq!(
        hashes(&structs),
        hash_rows(&[plain.clone(), plain]).unwrap()
    );
}

/// Promise: a slice of a union hashes as the same rows of the whole, dense or sparse.
#[test]
fn slices_of_unions_are_honoured() {
    let ids = ScalarBuffer::from(vec![0_i8, 5, 0, 5, 0]);
    let fields = [
        Field::new("n", DataType::Int32, true),
        Field::new("t", DataType::Utf8, true),
    ];
    let fields = UnionFields::try_new([0, 5], fields).unwrap();
    let dense = UnionArray::try_new(
        fields.clone(),
        ids.clone(),
        Some(ScalarBuffer::from(vec![0, 0, 1, 1, 2])),
        vec![
            array(Int32Array::from(vec![Some(1), None, Some(3)])),
            array(StringArray::from(vec!["a", "b"])),
        ],
    );
    let sparse = UnionArray::try_new(
        fields,
        ids,
        None,
        vec![
            array(Int32Array::from(vec![Some(1), None, None, None, Some(3)])),
            array(StringArray::from(vec!["", "a", "", "b", ""])),
        ],
    );
    let (dense, sparse) = (array(dense.unwrap()), array(sparse.unwrap()));
    let expected = hashes(&dense);
    for of in [dense, sparse] {
        for first in 0..5 {
            assert_eq!(hashes(&of.slice(first, 5 - first)), expected[first..]);
        }
    }
}

/// Promise: every type of Arrow has a hash, of no rows as well.
#[test]
fn every_type_has_a_hash() {
    use arrow::datatypes::{IntervalUnit, TimeUnit};
    let item = Arc::new(Field::new("item", DataType::Decimal32(5, 2), true));
    let types = [
        DataType::Time32(TimeUnit::Second),
        DataType::Time64(TimeUnit::Nanosecond),
        DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        DataType::Duration(TimeUnit::Millisecond),
        DataType::Interval(IntervalUnit::YearMonth),
        DataType::Date64,
        DataType::Decimal64(5, 2),
        DataType::FixedSizeBinary(0),
        DataType::FixedSizeList(item.clone(), 0),
        DataType::LargeListView(item.clone()),
        DataType::Struct(vec![item].into()),
        DataType::Struct(Fields::empty()),
    ];
    for of in types {
        for rows in [0, 3] {
            let nulls = arrow::array::new_null_array(&of, rows);
            assert_eq!(hashes(&nulls), vec![NULL; rows], "{of}");
        }
        let data = arrow::array::ArrayData::new_empty(&of);
        assert_eq!(hashes(&make_array(data)), Vec::<u64>::new(), "{of}");
    }
}

/// Promise: columns of different lengths are an error; no columns have no hashes.
#[test]
fn columns_differ_in_length() {
    let columns = [text("a"), array(NullArray::new(2))];
    let error = hash_rows(&columns).unwrap_err();
    assert_eq!(error.status(), crate::error::Status::InvalidArgument);
    assert_eq!(hash_rows(&[]).unwrap(), Vec::<u64>::new());
}

/// Promise: a rank is less than the number of ranks, and consecutive keys spread evenly: no rank
/// gets a fifth more or less than its share.
#[test]
fn consecutive_keys_spread_evenly() {
    assert_eq!(rank_of(u64::MAX, u32::MAX), u32::MAX - 1);
    assert_eq!(rank_of(u64::MAX, 1), 0);
    assert_eq!(rank_of(u64::MAX, 0), 0);
    let keys = Int64Array::from_iter_values(0..100_000);
    let texts = StringArray::from_iter_values((0..100_000).map(|n| format!("customer-{n}")));
    let (keys, texts) = (array(keys), array(texts));
    let columns = [
        vec![keys.clone()],
        vec![texts.clone()],
        vec![keys.clone(), keys],
        vec![texts],
    ];
    for columns in columns {
        for ranks in [2_u32, 3, 16] {
            let mut rows = vec![0_u32; ranks as usize];
            for hash in hash_rows(&columns).unwrap() {
                rows[rank_of(hash, ranks) as usize] += 1;
            }
            let share = 100_000 / ranks;
            let bounds = share - share / 5..=share + share / 5;
            assert!(rows.iter().all(|rows| bounds.contains(rows)), "{rows:?}");
        }
    }
}
