//! Tests of [`super`].

use std::io::Write as _;

use arrow::array::{
    ArrayRef, BinaryArray, DictionaryArray, Int8Array, Int64Array, LargeListArray, ListArray,
    NullArray, RunArray, StringArray, StructArray, TimestampMicrosecondArray, TimestampSecondArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{Field, Int32Type};

use super::*;

fn shown(columns: Vec<(&str, ArrayRef)>) -> String {
    let batch = RecordBatch::try_from_iter_with_nullable(
        columns
            .into_iter()
            .map(|(name, column)| (name, column, true)),
    )
    .unwrap();
    table(&batch.schema(), &[batch])
}

/// Every control character, including C1, and every character for text direction is escaped; all
/// others stay.
#[test]
fn what_steers_a_terminal_is_written_out() {
    assert_eq!(escape("\u{1b}[31mred\u{7}"), "\\u{1b}[31mred\\u{7}");
    assert_eq!(escape("a\nb\tc\r"), "a\\nb\\tc\\r");
    assert_eq!(escape_lines("a\nb\tc"), "a\nb\\tc");
    assert_eq!(
        escape_json("\"\u{9b}1m\u{202e}\u{7f}\""),
        r#""\u009b1m\u202e\u007f""#
    );
    for c in (0..=0x1f)
        .chain(0x7f..=0x9f)
        .chain(0x202a..=0x202e)
        .chain(0x2066..=0x2069)
    {
        let text = char::from_u32(c).unwrap().to_string();
        assert!(escape(&text).starts_with('\\'), "{c:x}");
        let back: String =
            serde_json::from_str(&escape_json(&serde_json::to_string(&text).unwrap())).unwrap();
        assert_eq!(back, text);
    }
    for text in [
        "plain",
        "naïve ünï",
        "日本語",
        "שלום עולם",
        "नमस्ते",
        "👩‍👩‍👧",
        "a\u{a0}b",
    ] {
        assert_eq!(escape(text), text);
        assert_eq!(escape_json(text), text);
    }
}

/// Promise of `--head`: a null is no empty text.
#[test]
fn nulls_are_no_empty_texts() {
    let words: ArrayRef = Arc::new(StringArray::from(vec![None, Some("")]));
    let shown = shown(vec![("word", words)]);
    assert_eq!(shown.matches("null").count(), 1, "{shown}");
}

/// Every log event stays one line.
#[test]
fn log_lines_are_escaped() {
    let mut out = Vec::new();
    Escaped(&mut out)
        .write_all("a \u{1b}[2J\nINFO \u{202e}b\n".as_bytes())
        .unwrap();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "a \\u{1b}[2J\\nINFO \\u{202e}b\n"
    );
}

/// A peer's text makes a line of at most 4 KiB.
#[test]
fn log_lines_are_cut() {
    let mut out = Vec::new();
    let line = "\u{1b}".repeat(1 << 20) + "\n";
    Escaped(&mut out).write_all(line.as_bytes()).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.ends_with("…\n") && text.len() < 4200, "{}", text.len());
}

/// Promise of `--head`: names and values, also nested ones, do not control the terminal.
#[test]
fn names_and_values_are_escaped() {
    let words: ArrayRef = Arc::new(StringArray::from(vec![
        Some("\u{1b}]0;title\u{7}"),
        Some("two\nlines"),
        None,
        Some("日本"),
    ]));
    let lists = ListArray::new(
        Arc::new(Field::new("item", DataType::Utf8, true)),
        OffsetBuffer::from_lengths([1, 1, 1, 1]),
        Arc::clone(&words),
        None,
    );
    let structs = StructArray::from(vec![(
        Arc::new(Field::new("\u{9b}5m", DataType::Utf8, true)),
        Arc::clone(&words),
    )]);
    let text = shown(vec![
        ("n\u{1b}[5m\u{202e}", words),
        ("l", Arc::new(lists)),
        ("s", Arc::new(structs)),
        ("b", Arc::new(BinaryArray::from(vec![&b"\x1b"[..]; 4]))),
    ]);
    assert!(!text.contains(|c: char| steers(c) && c != '\n'), "{text:?}");
    for part in [
        "n\\u{1b}[5m\\u{202e}",
        "\\u{1b}]0;title\\u{7}",
        "two\\nlines",
        "\\u{9b}5m",
        "日本",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert_eq!(text.lines().count(), 8, "{text}");
}

/// Promise of `--head`: times of every zone are shown, at any depth; zones that need a time zone
/// database are shown in UTC.
#[test]
fn every_time_zone_is_shown() {
    for (zone, said) in [
        ("UTC", "2023-11-14T22:13:20Z"),
        ("Europe/Berlin", "2023-11-14T22:13:20Z"),
        ("Mars/X", "2023-11-14T22:13:20Z"),
        ("\u{1b}[31m", "2023-11-14T22:13:20Z"),
        ("+05:30", "2023-11-15T03:43:20+05:30"),
    ] {
        let times = || TimestampSecondArray::from(vec![Some(1_700_000_000)]).with_timezone(zone);
        let item = Field::new("item", times().data_type().clone(), true);
        let lists = ListArray::new(
            Arc::new(item.clone()),
            OffsetBuffer::from_lengths([1]),
            Arc::new(times()),
            None,
        );
        let structs = StructArray::from(vec![
            (Arc::new(item.clone()), Arc::new(times()) as ArrayRef),
            (
                Arc::new(Field::new("n", DataType::Int64, true)),
                Arc::new(Int64Array::from(vec![5])),
            ),
        ]);
        let keys = Int8Array::from(vec![0]);
        let ends = arrow::array::Int32Array::from(vec![1]);
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("t", Arc::new(times())),
            ("l", Arc::new(lists)),
            ("s", Arc::new(structs)),
            ("d", Arc::new(DictionaryArray::new(keys, Arc::new(times())))),
            (
                "r",
                Arc::new(RunArray::<Int32Type>::try_new(&ends, &times()).unwrap()),
            ),
        ];
        let text = shown(columns);
        assert_eq!(text.matches(said).count(), 5, "{zone:?}: {text}");
        assert!(!text.contains("ERROR"), "{zone:?}: {text}");
    }
}

/// Promise of `--head`: an error text replaces a value that cannot be shown, and the others are
/// shown.
#[test]
fn no_value_fails_the_table() {
    let times = TimestampMicrosecondArray::from(vec![i64::MAX, 0, i64::MIN]);
    let dates = arrow::array::Date64Array::from(vec![i64::MAX, 0, i64::MIN]);
    let times_of_day = arrow::array::Time64NanosecondArray::from(vec![i64::MAX, 0, i64::MIN]);
    let durations = arrow::array::DurationSecondArray::from(vec![i64::MAX, 0, i64::MIN]);
    let text = shown(vec![
        ("t", Arc::new(times.with_timezone("Mars/X"))),
        ("d", Arc::new(dates)),
        ("c", Arc::new(times_of_day)),
        ("e", Arc::new(durations)),
    ]);
    assert!(text.contains("1970-01-01T00:00:00Z"), "{text}");
    assert_eq!(text.lines().count(), 7, "{text}");
}

/// The text of a long list is cut.
#[test]
fn long_values_are_cut() {
    let rows = 1 << 40;
    let lists = LargeListArray::new(
        Arc::new(Field::new("item", DataType::Null, true)),
        OffsetBuffer::new(vec![0, rows].into()),
        Arc::new(NullArray::new(usize::try_from(rows).unwrap())),
        None,
    );
    let text = shown(vec![("l", Arc::new(lists))]);
    assert!(text.contains('…') && text.len() < 10 * MAX_CELL);
    let words: ArrayRef = Arc::new(StringArray::from(vec!["日".repeat(100)]));
    assert_eq!(Texts::new(&words, "").text(0, 7), "日日…");
}

/// A table without rows shows its column names, and a table without columns its rows.
#[test]
fn empty_tables_are_shown() {
    let schema = Schema::new(vec![Field::new("a", DataType::Int8, true)]);
    assert_eq!(table(&schema, &[]), "+---+\n| a |\n+---+\n+---+");
    table(&Schema::empty(), &[]);
}
