//! The columns and rows that a get asks for (rule Q12); `docs/wire.md` has the exact bytes.

use std::collections::HashSet;

use crate::error::Error;
use crate::proto::wire::Fields;
use crate::proto::{ProtocolError, Verb};

/// Most columns that a selection names.
pub const MOST_COLUMNS: usize = 4096;

/// Limit for a selection, in bytes on the wire.
pub const MAX_SELECTION_BYTES: usize = 64 << 10;

/// Bytes of a part besides its content: its number and its length.
const PART: usize = 5;

/// Bytes of a name besides its text: the length.
const NAME: usize = 2;

/// The number of the part that names columns.
const COLUMNS: u8 = 1;

/// The number of the part that limits rows.
const ROWS: u8 = 2;

/// The number of the part that filters rows.
const FILTER: u8 = 3;

/// Length of the content of [`ROWS`].
const ROWS_BYTES: usize = 16;

/// On the wire: all rows up to the end.
const ALL: u64 = u64::MAX;

/// The columns and rows that a client wants of a table. The default is the whole table.
///
/// The filter comes first, and sees all columns. Then the range counts the rows that have passed.
/// The columns are taken last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    columns: Option<Vec<String>>,
    first_row: u64,
    rows: Option<u64>,
    filter: Option<Vec<u8>>,
    /// The number of a part that this build does not know.
    unknown: Option<u8>,
}

impl Selection {
    /// The whole table.
    pub const fn new() -> Self {
        Self {
            columns: None,
            first_row: 0,
            rows: None,
            filter: None,
            unknown: None,
        }
    }

    /// Names the columns, in the order of the result. Without any name the result has rows and no
    /// columns.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: a name comes twice, there are more than [`MOST_COLUMNS`] names, or the
    /// names together have more than [`MAX_SELECTION_BYTES`]. Then nothing has changed.
    pub fn set_columns<N: Into<String>>(
        &mut self,
        names: impl IntoIterator<Item = N>,
    ) -> Result<(), Error> {
        let selected = Self {
            columns: Some(names.into_iter().map(Into::into).collect()),
            ..self.clone()
        };
        selected.ensure_well_formed()?;
        *self = selected;
        Ok(())
    }

    /// Limits the result to `rows` rows, or to all rows for `None`, from row `first_row` on,
    /// counting from 0. A table that ends earlier gives fewer rows.
    pub fn set_rows(&mut self, first_row: u64, rows: Option<u64>) {
        self.first_row = first_row;
        self.rows = rows.filter(|rows| *rows != ALL);
    }

    /// Asks only for the rows that pass an extended expression of Substrait, given as bytes of
    /// protobuf. The server that has the table reads these bytes.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: no bytes, or more than [`MAX_SELECTION_BYTES`]. Nothing has changed then.
    pub fn set_filter(&mut self, message: impl Into<Vec<u8>>) -> Result<(), Error> {
        let selected = Self {
            filter: Some(message.into()),
            ..self.clone()
        };
        selected.ensure_well_formed()?;
        *self = selected;
        Ok(())
    }

    /// The extended expression of Substrait that rows must pass; `None`: all rows.
    pub fn filter(&self) -> Option<&[u8]> {
        self.filter.as_deref()
    }

    /// The names of the columns, in the order that the result has them; `None`: all columns.
    pub fn columns(&self) -> Option<&[String]> {
        self.columns.as_deref()
    }

    /// The first row that is wanted, counting from 0.
    pub fn first_row(&self) -> u64 {
        self.first_row
    }

    /// How many rows are wanted, if the table has so many; `None`: all rows up to the end.
    pub fn rows(&self) -> Option<u64> {
        self.rows
    }

    /// Whether only some rows are wanted.
    pub fn limits_rows(&self) -> bool {
        self.first_row > 0 || self.rows.is_some()
    }

    /// Whether the whole table is wanted.
    pub fn is_all(&self) -> bool {
        self.columns.is_none()
            && !self.limits_rows()
            && self.filter.is_none()
            && self.unknown.is_none()
    }

    /// Refuses a selection that cannot go with the verb, or that is malformed (rule Q12).
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for another verb than get, and as [`set_columns`](Self::set_columns);
    /// `Unsupported` for a part that this build does not know.
    pub(crate) fn ensure_fits(&self, verb: Verb) -> Result<(), Error> {
        if self.is_all() {
            return Ok(());
        }
        if verb != Verb::Get {
            return Err(Error::invalid_argument(format!(
                "{} with a selection of columns or rows: only a get has one",
                verb.name()
            )));
        }
        if let Some(number) = self.unknown {
            return Err(Error::unsupported(format!(
                "this server does not know part {number} of the selection: upgrade it"
            )));
        }
        self.ensure_well_formed()
    }

    fn ensure_well_formed(&self) -> Result<(), Error> {
        let names = self.columns.as_deref().unwrap_or_default();
        let len = self.encoded_len();
        if names.len() > MOST_COLUMNS || len > MAX_SELECTION_BYTES {
            let filter = self.filter.as_ref().map_or(0, Vec::len);
            return Err(Error::invalid_argument(format!(
                "the selection has {} columns and {len} bytes, {filter} of them its filter: at \
                 most {MOST_COLUMNS} columns and {MAX_SELECTION_BYTES} bytes fit; select at the \
                 client, or write the filter shorter",
                names.len()
            )));
        }
        if self.filter.as_ref().is_some_and(Vec::is_empty) {
            return Err(Error::invalid_argument("a filter without bytes"));
        }
        let mut seen = HashSet::with_capacity(names.len());
        match names.iter().find(|name| !seen.insert(name.as_str())) {
            None => Ok(()),
            Some(twice) => Err(Error::invalid_argument(format!(
                "the column {twice:?} is asked for twice"
            ))),
        }
    }

    /// Bytes on the wire; 0 for the whole table.
    pub(crate) fn encoded_len(&self) -> usize {
        let columns = self.columns.as_ref().map_or(0, |names| {
            let lens = names.iter().map(|name| name.len().saturating_add(NAME));
            lens.fold(PART, usize::saturating_add)
        });
        let rows = if self.limits_rows() {
            PART.saturating_add(ROWS_BYTES)
        } else {
            0
        };
        let filter = self
            .filter
            .as_ref()
            .map_or(0, |it| it.len().saturating_add(PART));
        columns.saturating_add(rows).saturating_add(filter)
    }

    /// Appends the parts to a request. `ensure_fits` has limited them.
    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        if let Some(names) = &self.columns {
            let lens = names.iter().map(|name| name.len().saturating_add(NAME));
            begin_part(bytes, COLUMNS, lens.fold(0, usize::saturating_add));
            for name in names {
                let len = u16::try_from(name.len()).unwrap_or(u16::MAX);
                bytes.extend_from_slice(&len.to_le_bytes());
                bytes.extend_from_slice(name.as_bytes());
            }
        }
        if self.limits_rows() {
            begin_part(bytes, ROWS, ROWS_BYTES);
            bytes.extend_from_slice(&self.first_row.to_le_bytes());
            bytes.extend_from_slice(&self.rows.unwrap_or(ALL).to_le_bytes());
        }
        if let Some(filter) = &self.filter {
            begin_part(bytes, FILTER, filter.len());
            bytes.extend_from_slice(filter);
        }
    }

    /// Reads the parts that fill `bytes`. Remembers a part of a later version, which
    /// [`ensure_fits`](Self::ensure_fits) refuses.
    ///
    /// # Errors
    ///
    /// Rule Q12: too many bytes or names, a part that is malformed, comes twice or out of order.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, ProtocolError> {
        if bytes.len() > MAX_SELECTION_BYTES {
            return Err(broken!(
                "Q12",
                "selection of {} bytes; the limit is {MAX_SELECTION_BYTES}",
                bytes.len()
            ));
        }
        let mut selection = Self::new();
        let (mut rest, mut last) = (bytes, 0);
        while !rest.is_empty() {
            let malformed = || broken!("Q12", "a selection is malformed: see docs/wire.md");
            let (number, content, after) = part(rest).ok_or_else(malformed)?;
            if number <= last {
                return Err(broken!(
                    "Q12",
                    "part {number} of a selection comes after part {last}"
                ));
            }
            (rest, last) = (after, number);
            match number {
                COLUMNS => selection.columns = Some(names(content).ok_or_else(malformed)?),
                ROWS => {
                    let (first_row, rows) = row_range(content).ok_or_else(malformed)?;
                    selection.set_rows(first_row, Some(rows));
                }
                FILTER => selection.filter = Some(content.to_vec()),
                _ => selection.unknown = selection.unknown.or(Some(number)),
            }
        }
        Ok(selection)
    }
}

fn begin_part(bytes: &mut Vec<u8>, number: u8, len: usize) {
    bytes.push(number);
    bytes.extend_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
}

/// The first part of `bytes`: its number and its content. Then the bytes after the part.
fn part(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let mut fields = Fields::new(bytes);
    let number = fields.take()?;
    let len = usize::try_from(fields.take::<u32>()?).ok()?;
    let (content, rest) = fields.rest().split_at_checked(len)?;
    Some((number, content, rest))
}

/// The names that fill `bytes`, at most [`MOST_COLUMNS`].
fn names(bytes: &[u8]) -> Option<Vec<String>> {
    let mut names = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let mut fields = Fields::new(rest);
        let len = usize::from(fields.take::<u16>()?);
        let (name, after) = fields.rest().split_at_checked(len)?;
        if names.len() == MOST_COLUMNS {
            return None;
        }
        names.push(str::from_utf8(name).ok()?.to_owned());
        rest = after;
    }
    Some(names)
}

/// The first row and the number of rows.
fn row_range(bytes: &[u8]) -> Option<(u64, u64)> {
    let mut fields = Fields::new(bytes);
    let range = (fields.take()?, fields.take()?);
    fields.end()?;
    Some(range)
}

#[cfg(test)]
#[path = "tests/selection.rs"]
mod tests;
