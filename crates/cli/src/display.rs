//! Text of a peer or a file, made safe for a terminal.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::io;
use std::sync::Arc;

use arrow::array::{Array, ArrayData, ArrayRef, StringArray, make_array, timezone::Tz};
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use arrow::error::ArrowError;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use arrow::util::pretty::pretty_format_batches;

use crate::calm;

/// Longest text of a cell, because one value can be a list of any length.
const MAX_CELL: usize = 1 << 16;

/// Widest column of a list, in characters. A longer text stands out of its column.
const MAX_WIDTH: usize = 100;

/// Longest line of the log, because peers can cause long texts.
const MAX_LINE: usize = 4096;

/// Whether a character could change how a terminal shows other characters: control characters,
/// characters that change the direction of text, and line ends.
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text with these characters written as `\n` or `\u{1b}`.
pub fn escape(text: &str) -> Cow<'_, str> {
    escape_but(text, |_| false)
}

/// Like [`escape`], but keeps line ends.
pub fn escape_lines(text: &str) -> Cow<'_, str> {
    escape_but(text, |c| c == '\n')
}

fn escape_but(text: &str, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    let harmful = |c: char| steers(c) && !stays(c);
    if !text.contains(harmful) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if harmful(c) {
            escaped.extend(c.escape_default());
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

/// JSON with these characters escaped. Only its strings can contain them.
pub fn escape_json(json: &str) -> Cow<'_, str> {
    if !json.contains(steers) {
        return Cow::Borrowed(json);
    }
    let mut escaped = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if steers(c) {
            // All these characters lie in the basic plane.
            let _ = write!(escaped, "\\u{:04x}", u32::from(c));
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

/// Writes log lines, escaped and cut after 4 KiB. Each write holds one whole line.
pub struct Escaped<W>(pub W);

impl<W: io::Write> io::Write for Escaped<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let (text, end) = match text.strip_suffix('\n') {
            Some(text) => (text, "\n"),
            None => (&*text, ""),
        };
        let text = escape(text);
        let shown = &text[..text.floor_char_boundary(MAX_LINE)];
        let cut = if shown.len() < text.len() { "…" } else { "" };
        self.0.write_all(format!("{shown}{cut}{end}").as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// The width of a list's column that has these texts, for `format!`, which refuses large widths.
pub fn width<'a>(texts: impl Iterator<Item = &'a str>) -> usize {
    let widths = texts.map(|text| text.chars().count());
    widths.max().unwrap_or(0).min(MAX_WIDTH)
}

/// Rows as a table. No value makes it fail: a reason stands in place of a value that cannot be
/// shown.
pub fn table(schema: &Schema, batches: &[RecordBatch]) -> Result<String, ArrowError> {
    let fields: Vec<_> = schema
        .fields()
        .iter()
        .map(|field| Field::new(escape(field.name()), DataType::Utf8, false))
        .collect();
    let schema = Arc::new(Schema::new(fields));
    let mut shown = vec![RecordBatch::new_empty(Arc::clone(&schema))];
    for batch in batches {
        let cells = |column: &ArrayRef| -> ArrayRef {
            let texts = Texts::new(column, "null");
            let rows = 0..column.len();
            Arc::new(StringArray::from_iter_values(
                rows.map(|row| escape(&texts.text(row, MAX_CELL)).into_owned()),
            ))
        };
        let columns = batch.columns().iter().map(cells).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        shown.push(RecordBatch::try_new_with_options(
            Arc::clone(&schema),
            columns,
            &options,
        )?);
    }
    Ok(pretty_format_batches(&shown)?.to_string())
}

/// The values of an array as texts.
pub struct Texts {
    array: ArrayRef,
    /// The text for nulls.
    null: &'static str,
}

impl Texts {
    /// Texts of an array. Times in a named zone are shown in UTC.
    pub fn new(array: &ArrayRef, null: &'static str) -> Self {
        let array = with_known_zone(array);
        Self { array, null }
    }

    /// One value, cut after `most` bytes, not escaped.
    pub fn text(&self, row: usize, most: usize) -> String {
        let cannot = |cause: &dyn fmt::Display| format!("(cannot be shown: {cause})");
        let shown = calm::catch(|| {
            let options = FormatOptions::default()
                .with_null(self.null)
                .with_display_error(true);
            let formatter = match ArrayFormatter::try_new(self.array.as_ref(), &options) {
                Ok(formatter) => formatter,
                Err(error) => return cannot(&error),
            };
            let mut text = Cut {
                text: String::new(),
                most,
            };
            match write!(text, "{}", formatter.value(row)) {
                Ok(()) => text.text,
                Err(fmt::Error) => text.text + "…",
            }
        });
        shown.unwrap_or_else(|panic| cannot(&panic))
    }
}

/// A text of limited length.
struct Cut {
    text: String,
    most: usize,
}

impl fmt::Write for Cut {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.most.saturating_sub(self.text.len());
        let end = text.floor_char_boundary(room);
        self.text.push_str(&text[..end]);
        if end < text.len() {
            Err(fmt::Error)
        } else {
            Ok(())
        }
    }
}

/// The rows with UTC in place of zones that need a time zone database.
pub fn with_known_zones(batch: &RecordBatch) -> RecordBatch {
    let columns: Vec<_> = batch.columns().iter().map(with_known_zone).collect();
    let fields = batch.schema_ref().fields().iter().zip(&columns);
    let fields = fields.map(|(field, column)| {
        let field = field.as_ref().clone();
        field.with_data_type(column.data_type().clone())
    });
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(schema, columns, &options).unwrap_or_else(|_| batch.clone())
}

fn with_known_zone(array: &ArrayRef) -> ArrayRef {
    let known = calm::catch(|| in_known_zones(array.to_data()).map(make_array));
    match known {
        Ok(Ok(known)) => known,
        _ => Arc::clone(array),
    }
}

/// The same values, at any depth with UTC in place of zones that need a time zone database.
fn in_known_zones(data: ArrayData) -> Result<ArrayData, ArrowError> {
    let Some(data_type) = known_zones(data.data_type()) else {
        return Ok(data);
    };
    let children = data.child_data().iter().cloned();
    let children = children.map(in_known_zones).collect::<Result<_, _>>()?;
    data.into_builder()
        .data_type(data_type)
        .child_data(children)
        .build()
}

/// The type with these zones replaced; `None` without such zones.
fn known_zones(data_type: &DataType) -> Option<DataType> {
    let field = |field: &FieldRef| -> Option<FieldRef> {
        let known = known_zones(field.data_type())?;
        Some(Arc::new(field.as_ref().clone().with_data_type(known)))
    };
    Some(match data_type {
        DataType::Timestamp(unit, Some(zone)) if zone.parse::<Tz>().is_err() => {
            DataType::Timestamp(*unit, Some("+00:00".into()))
        }
        DataType::List(item) => DataType::List(field(item)?),
        DataType::LargeList(item) => DataType::LargeList(field(item)?),
        DataType::ListView(item) => DataType::ListView(field(item)?),
        DataType::LargeListView(item) => DataType::LargeListView(field(item)?),
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(field(item)?, *size),
        DataType::Map(entries, sorted) => DataType::Map(field(entries)?, *sorted),
        DataType::RunEndEncoded(ends, values) => {
            DataType::RunEndEncoded(Arc::clone(ends), field(values)?)
        }
        DataType::Dictionary(keys, values) => {
            DataType::Dictionary(keys.clone(), Box::new(known_zones(values)?))
        }
        DataType::Struct(fields) => {
            let known: Vec<_> = fields.iter().map(field).collect();
            if known.iter().all(Option::is_none) {
                return None;
            }
            let old = fields.iter().cloned();
            let fields = known.into_iter().zip(old);
            DataType::Struct(fields.map(|(new, old)| new.unwrap_or(old)).collect())
        }
        DataType::Union(fields, mode) => {
            let known: Vec<_> = fields.iter().map(|(_, child)| field(child)).collect();
            if known.iter().all(Option::is_none) {
                return None;
            }
            let old = fields.iter();
            let fields = known.into_iter().zip(old);
            let fields =
                fields.map(|(new, (id, old))| (id, new.unwrap_or_else(|| Arc::clone(old))));
            DataType::Union(fields.collect(), *mode)
        }
        _ => return None,
    })
}

#[cfg(test)]
#[path = "display_tests.rs"]
mod tests;
