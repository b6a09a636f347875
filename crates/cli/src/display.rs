//! Text of a peer or a file, made safe for a terminal.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::io;
use std::sync::Arc;

use arrow::array::{Array, ArrayData, ArrayRef, make_array, timezone::Tz};
use arrow::datatypes::{DataType, Schema};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use comfy_table::presets::ASCII_FULL_CONDENSED;
use comfy_table::{LineStyle, Table};

use crate::calm;
use crate::rebuild::{rebuilt, with_children};

/// Longest text of a cell, because one value can be a list of any length.
const MAX_CELL: usize = 1 << 16;

/// Widest column of a list, in characters. A longer text overflows its column.
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

/// Rows as a table. A reason stands in place of a value that cannot be shown.
pub fn table(schema: &Schema, batches: &[RecordBatch]) -> String {
    let mut table = Table::new();
    table.load_style(ASCII_FULL_CONDENSED.header_separator(LineStyle::new('+', '-', '+', '+')));
    table.set_header(schema.fields().iter().map(|field| escape(field.name())));
    for batch in batches {
        let columns = batch.columns().iter();
        let columns: Vec<_> = columns.map(|column| Texts::new(column, "null")).collect();
        for row in 0..batch.num_rows() {
            let cells = columns.iter().map(|texts| texts.text(row, MAX_CELL));
            table.add_row(cells.map(|text| escape(&text).into_owned()));
        }
    }
    table.to_string()
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
    rebuilt(schema, columns, batch).unwrap_or_else(|_| batch.clone())
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
    let data_type = known_zones(data.data_type());
    if data_type == *data.data_type() {
        return Ok(data);
    }
    let children = data.child_data().iter().cloned();
    let children = children.map(in_known_zones).collect::<Result<_, _>>()?;
    data.into_builder()
        .data_type(data_type)
        .child_data(children)
        .build()
}

/// The type with these zones replaced.
fn known_zones(ty: &DataType) -> DataType {
    match ty {
        DataType::Timestamp(unit, Some(zone)) if zone.parse::<Tz>().is_err() => {
            DataType::Timestamp(*unit, Some("+00:00".into()))
        }
        ty => with_children(ty, |field| {
            let known = known_zones(field.data_type());
            field.clone().with_data_type(known)
        }),
    }
}

#[cfg(test)]
#[path = "display_tests.rs"]
mod tests;
