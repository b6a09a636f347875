use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, BooleanArray, Date32Array, Date64Array, Decimal128Array,
    DurationSecondArray, Float32Array, Int32Array, RecordBatch, StringArray, StructArray,
    Time32SecondArray, TimestampMillisecondArray, TimestampSecondArray, UInt64Array,
};
use arrow::datatypes::{DataType, Field};
use dipc::Filter;

use super::*;

/// Four rows of columns of many types.
fn table() -> RecordBatch {
    let days = Date32Array::from(vec![Some(19_000), Some(19_001), None, Some(19_003)]);
    let times = [1_700_000_000_000, 1_700_000_000_500, 1_700_000_001_000, 0];
    let inner = Field::new("n", DataType::Int32, true);
    let inner = (
        Arc::new(inner),
        Arc::new(Int32Array::from(vec![7, 8, 9, 10])) as ArrayRef,
    );
    let price = Decimal128Array::from(vec![100, 250, 275, 10_000]);
    let columns: [(&str, ArrayRef); 9] = [
        (
            "x",
            Arc::new(Int32Array::from(vec![Some(1), Some(2), None, Some(4)])),
        ),
        (
            "name",
            Arc::new(StringArray::from(vec!["ab", "a_", "it's", "B"])),
        ),
        ("f", Arc::new(Float32Array::from(vec![0.1, 0.5, -1.5, 1e9]))),
        (
            "flag",
            Arc::new(BooleanArray::from(vec![
                Some(true),
                Some(false),
                None,
                Some(true),
            ])),
        ),
        ("day", Arc::new(days)),
        (
            "at",
            Arc::new(TimestampMillisecondArray::from(times.to_vec()).with_timezone("+01:00")),
        ),
        (
            "price",
            Arc::new(price.with_precision_and_scale(9, 2).unwrap()),
        ),
        (
            "Odd name",
            Arc::new(UInt64Array::from(vec![u64::MAX, 1, 2, 3])),
        ),
        ("s", Arc::new(StructArray::from(vec![inner]))),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

/// The rows that pass, by their numbers.
fn rows(condition: &str) -> Result<Vec<usize>> {
    let table = table();
    let message = Condition::parse(condition)?.message(&table.schema())?;
    let passed = Filter::parse(&message, &table.schema())?.evaluate(&table)?;
    let rows = (0..table.num_rows()).filter(|&row| passed.value(row) && passed.is_valid(row));
    Ok(rows.collect())
}

/// Promise of `--where`: each form means what it means in SQL, and literals take the column's type.
#[test]
fn conditions_mean_what_sql_says() {
    let cases: [(&str, &[usize]); 31] = [
        ("x > 1", &[1, 3]),
        ("x <> 2 AND x <= 4", &[0, 3]),
        ("x = 1 OR x = 4 OR x = 99", &[0, 3]),
        ("NOT (x > 1)", &[0]),
        ("x IS NULL", &[2]),
        ("x IS NOT NULL", &[0, 1, 3]),
        ("x IN (1, 4)", &[0, 3]),
        ("x NOT IN (1, 4)", &[1]),
        ("x BETWEEN 2 AND 4", &[1, 3]),
        ("x NOT BETWEEN 2 AND 4", &[0]),
        ("x > 1.5", &[1, 3]),
        ("x * 2 + 1 = 5", &[1]),
        ("x % 2 = 0", &[1, 3]),
        ("-x < -1.5", &[1, 3]),
        ("x / 2 >= 2", &[3]),
        ("x IS DISTINCT FROM 1", &[1, 2, 3]),
        ("x = '4'", &[3]),
        ("name LIKE 'a%'", &[0, 1]),
        ("name LIKE 'a\\_'", &[1]),
        ("name ILIKE 'b'", &[3]),
        ("name NOT LIKE 'a%'", &[2, 3]),
        ("name = 'it''s'", &[2]),
        ("f = 0.1", &[0]),
        ("f > 1e8", &[3]),
        ("flag", &[0, 3]),
        ("flag = FALSE", &[1]),
        ("day >= DATE '2022-01-08' AND day < '2022-01-10'", &[0, 1]),
        ("at = TIMESTAMP '2023-11-14 22:13:20.5'", &[1]),
        ("at > '2023-11-14T23:13:20.5+01:00'", &[2]),
        ("price > 2.5 AND price < 100", &[2]),
        ("\"Odd name\" = 18446744073709551615 OR s.n = 10", &[0, 3]),
    ];
    for (condition, expected) in cases {
        let found = rows(condition).unwrap_or_else(|error| panic!("{condition}: {error:#}"));
        assert_eq!(found, expected, "{condition}");
    }
}

/// Promise of `--where`: a long chain is one call, however many levels SQL gives it.
#[test]
fn chains_are_flat() {
    let chain = (0..300).map(|n| format!("x = {n}")).collect::<Vec<_>>();
    assert_eq!(rows(&chain.join(" OR ")).unwrap(), [0, 1, 3]);
}

/// Promise of `--where`: the text of an error says what cannot be there, or is not.
#[test]
fn what_cannot_be_is_named() {
    for (condition, text) in [
        ("lower(name) = 'b'", "functions"),
        ("x IN (SELECT 1)", "sub-queries"),
        ("CAST(x AS TEXT) = '1'", "casts"),
        ("CASE WHEN x = 1 THEN TRUE END", "CASE"),
        ("day > DATE '2022-01-08' + INTERVAL '1' DAY", "intervals"),
        ("name || 'b' = 'bb'", "cannot have this"),
        ("name LIKE 'a!_' ESCAPE '!'", "ESCAPE"),
        ("x > 1 ORDER BY x", "ORDER"),
        ("x >", "Expected"),
        ("X > 1", "\"X\"; there are \"x\""),
        ("s.out = 1", "\"out\""),
        ("x.y = 1", "without fields"),
        ("x = 'four'", "'four' is no value of type Int32"),
        ("day = DATE '2022-13-01'", "2022-13-01"),
        ("x = 1 AND NULL", "NULL"),
        ("x + 1", "not booleans"),
        ("name > 3", "in the type of its column"),
        ("x = 123456789012345678901234567890123456789.5", "38 digits"),
    ] {
        let error = match rows(condition) {
            Ok(rows) => panic!("{condition}: {rows:?}"),
            Err(error) => format!("{error:#}"),
        };
        assert!(error.contains(text), "{condition}: {error}");
    }
}

/// Promise of `--where`: a text has all its digits in a comparison, also those that its column's
/// type lacks; what no type keeps is refused.
#[test]
fn texts_keep_their_digits() {
    let days = Date32Array::from(vec![0, 1, 2]);
    let times = [0, 1, 2].map(Some).to_vec();
    let decimals = Decimal128Array::from(vec![10_000, 10_001, 20_000]);
    let columns: [(&str, ArrayRef); 7] = [
        ("d", Arc::new(days)),
        (
            "d64",
            Arc::new(Date64Array::from(vec![0, 86_400_000, 172_800_000])),
        ),
        ("t", Arc::new(TimestampSecondArray::from(times.clone()))),
        (
            "z",
            Arc::new(TimestampSecondArray::from(times).with_timezone("UTC")),
        ),
        ("m", Arc::new(Time32SecondArray::from(vec![0, 1, 2]))),
        (
            "p",
            Arc::new(decimals.with_precision_and_scale(21, 2).unwrap()),
        ),
        (
            "f",
            Arc::new(Float32Array::from(vec![16_777_216.0, 16_777_218.0, 0.1])),
        ),
    ];
    let table = RecordBatch::try_from_iter(columns).unwrap();
    let rows = |condition: &str| -> Result<Vec<usize>> {
        let message = Condition::parse(condition)?.message(&table.schema())?;
        let passed = Filter::parse(&message, &table.schema())?.evaluate(&table)?;
        Ok((0..3)
            .filter(|&row| passed.is_valid(row) && passed.value(row))
            .collect())
    };
    let cases: [(&str, &[usize]); 29] = [
        ("d < '1970-01-01 00:00:01'", &[0]),
        ("d < TIMESTAMP '1970-01-01 00:00:01'", &[0]),
        ("d = '1970-01-01 23:59:59'", &[]),
        ("d = '1970-01-02'", &[1]),
        ("d = '1970-01-02 12:00'", &[]),
        ("d IN ('1970-01-02 00:00', '1970-01-03T12:00')", &[1]),
        ("t < TIMESTAMP '1970-01-01 00:01'", &[0, 1, 2]),
        ("d = '1970-01-02 00:00:00'", &[1]),
        ("d IN ('1970-01-01 00:00:00.000000001', '1970-01-03')", &[2]),
        (
            "d BETWEEN '1970-01-01 00:00:00.1' AND '1970-01-02 00:00:00.1'",
            &[1],
        ),
        ("d < '+12000-01-01'", &[0, 1, 2]),
        ("d64 < '1970-01-01 00:00:00.0001'", &[0]),
        ("t < '1970-01-01 00:00:00.5'", &[0]),
        ("t = '1970-01-01 00:00:00.5'", &[]),
        ("t = '1970-01-01 00:00:01.000'", &[1]),
        ("t >= '1970-01-01 00:00:01.000000001'", &[2]),
        (
            "t NOT IN ('1970-01-01 00:00:00.9', '1970-01-01 00:00:02')",
            &[0, 1],
        ),
        ("z < '1970-01-01 01:00:00.5+01:00'", &[0]),
        ("z = '1970-01-01 00:00:00.5'", &[]),
        ("m < '00:00:00.5'", &[0]),
        ("m < TIME '00:00:00.5'", &[0]),
        ("m = '00:00:01.000000001'", &[]),
        ("m = '00:00:01'", &[1]),
        ("p < '100.001'", &[0]),
        ("p = '100.001'", &[]),
        ("p = '100.010'", &[1]),
        ("p IN ('100.001', '200')", &[2]),
        ("f < '16777217'", &[0, 2]),
        ("f = '0.1'", &[2]),
    ];
    for (condition, expected) in cases {
        let found = rows(condition).unwrap_or_else(|error| panic!("{condition}: {error:#}"));
        assert_eq!(found, expected, "{condition}");
    }
    for (condition, text) in [
        ("d = DATE '1970-01-01 00:00:01'", "no value of type Date32"),
        ("t < '1970-01-01 00:00:00.0000000001'", "at most 9 digits"),
        ("m < TIME '00:00:00.0000000001'", "at most 9 digits"),
        ("p < '1e2'", "without an exponent"),
        ("d = 'tomorrow'", "'tomorrow' is no value of type Date32"),
        ("d = '1970-02-30'", "no value of type Date32"),
        ("p < 'ten'", "'ten' is no value of type Decimal128"),
        (
            "t < '9000-01-01 00:00:00.0000001'",
            "no value of type Timestamp",
        ),
    ] {
        let error = format!("{:#}", rows(condition).unwrap_err());
        assert!(error.contains(text), "{condition}: {error}");
    }
}

/// Promise of `--where`: a literal beside durations is refused with what can be asked, and no advice
/// that a condition cannot follow.
#[test]
fn durations_have_no_literals() {
    let lengths: ArrayRef = Arc::new(DurationSecondArray::from(vec![Some(1), None]));
    let columns = [("a", lengths.clone()), ("b", lengths)];
    let table =
        RecordBatch::try_from_iter_with_nullable(columns.map(|(name, of)| (name, of, true)));
    let schema = table.unwrap().schema();
    let message = |condition: &str| Condition::parse(condition).unwrap().message(&schema);
    for condition in [
        "a > 5",
        "a = '5s'",
        "a IN ('1', '2')",
        "a > TIME '00:00:05'",
    ] {
        let error = format!("{:#}", message(condition).unwrap_err());
        assert!(
            error.contains("no form for durations"),
            "{condition}: {error}"
        );
    }
    for condition in ["a = b", "a IS NULL"] {
        message(condition).unwrap();
    }
}
