use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float32Array, Int32Array,
    RecordBatch, StringArray, StructArray, TimestampMillisecondArray, UInt64Array,
};
use arrow::datatypes::{DataType, Field};
use dipc::filter::Filter;

use super::*;

/// Four rows of columns of many types.
fn table() -> RecordBatch {
    let days = Date32Array::from(vec![Some(19_000), Some(19_001), None, Some(19_003)]);
    let times = [1_700_000_000_000, 1_700_000_000_500, 1_700_000_001_000, 0];
    let inner = Field::new("in", DataType::Int32, true);
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
    let cases: [(&str, &[usize]); 30] = [
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
        ("price > 2.5 AND price < 100", &[2]),
        ("\"Odd name\" = 18446744073709551615 OR s.in = 10", &[0, 3]),
    ];
    for (condition, expected) in cases {
        let found = rows(condition).unwrap_or_else(|error| panic!("{condition}: {error:#}"));
        assert_eq!(found, expected, "{condition}");
    }
}

/// Promise of `--where`: a long chain is one call, however many levels SQL gives it.
#[test]
fn chains_are_flat() {
    let chain = (0..500).map(|n| format!("x = {n}")).collect::<Vec<_>>();
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
        ("name > 3", "cast"),
        ("x = 123456789012345678901234567890123456789.5", "38 digits"),
    ] {
        let error = match rows(condition) {
            Ok(rows) => panic!("{condition}: {rows:?}"),
            Err(error) => format!("{error:#}"),
        };
        assert!(error.contains(text), "{condition}: {error}");
    }
}
