//! Compares two tables value by value; batch boundaries do not count.
//!
//! Columns must agree in name, order and type. Values are equal if their bits are, so a NaN equals
//! itself and -0 differs from 0. Values under a null do not count. In a dictionary a null index
//! equals the index of a null. Metadata is not compared, because file formats differ in what they
//! keep.

use std::fmt;

use anyhow::{Context as _, Result};
use arrow::array::{Array, ArrayData, ArrayRef, make_array};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use serde::Serialize;

use crate::display::{Texts, escape};
use crate::lengths::has_long;
use crate::source::Reader;

/// The first thing in which two tables differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Difference {
    /// The columns differ.
    Columns {
        /// The received columns.
        received: String,
        /// The expected columns.
        expected: String,
    },
    /// A value differs.
    Value {
        /// The column's name.
        column: String,
        /// The row, from 0.
        row: u64,
        /// The received value.
        received: String,
        /// The expected value.
        expected: String,
    },
    /// One table has more rows; all rows of the shorter table are equal.
    Rows {
        /// Rows received; a lower bound if the table had more.
        received: u64,
        /// Rows expected; a lower bound if the table had more.
        expected: u64,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Columns { received, expected } => {
                write!(
                    f,
                    "columns differ: received {}, expected {}",
                    escape(received),
                    escape(expected)
                )
            }
            Self::Value {
                column,
                row,
                received,
                expected,
            } => write!(
                f,
                "column {column:?}, row {row}: received {received}, expected {expected}"
            ),
            Self::Rows { received, expected } if received > expected => {
                write!(f, "more rows than the {expected} expected were received")
            }
            Self::Rows { received, .. } => {
                write!(f, "only {received} rows were received, more were expected")
            }
        }
    }
}

/// Compares a table that comes batch by batch with another.
pub struct Verify {
    expected: Reader,
    /// Rows of the last expected batch not yet compared.
    rest: Option<RecordBatch>,
    rows: u64,
    difference: Option<Difference>,
}

impl Verify {
    /// Begins to compare a table with columns `received` with `expected`.
    pub fn new(received: &Schema, expected: Reader) -> Self {
        let difference = compare_columns(received, &expected.schema());
        Self {
            expected,
            rest: None,
            rows: 0,
            difference,
        }
    }

    /// Compares the next rows. After the first difference it does nothing.
    ///
    /// An error comes from reading the expected table.
    pub fn update(&mut self, batch: &RecordBatch) -> Result<()> {
        let mut received = batch.clone();
        while self.difference.is_none() && received.num_rows() > 0 {
            let Some(expected) = self.next_expected()? else {
                let received = self.rows.saturating_add(received.num_rows() as u64);
                self.difference = Some(Difference::Rows {
                    received,
                    expected: self.rows,
                });
                return Ok(());
            };
            let rows = received.num_rows().min(expected.num_rows());
            self.difference = compare(
                &received.slice(0, rows),
                &expected.slice(0, rows),
                self.rows,
            );
            self.rows = self.rows.saturating_add(rows as u64);
            received = received.slice(rows, received.num_rows() - rows);
            self.rest = Some(expected.slice(rows, expected.num_rows() - rows));
        }
        Ok(())
    }

    /// The table has ended: the first difference, if there is one.
    pub fn finish(mut self) -> Result<Option<Difference>> {
        if self.difference.is_none()
            && let Some(rest) = self.next_expected()?
        {
            let expected = self.rows.saturating_add(rest.num_rows() as u64);
            self.difference = Some(Difference::Rows {
                received: self.rows,
                expected,
            });
        }
        Ok(self.difference)
    }

    /// The next expected rows, at least one.
    fn next_expected(&mut self) -> Result<Option<RecordBatch>> {
        if let Some(rest) = self.rest.take().filter(|rest| rest.num_rows() > 0) {
            return Ok(Some(rest));
        }
        for next in self.expected.by_ref() {
            let (batch, _) = next.context("cannot read the table to compare with")?;
            if batch.num_rows() > 0 {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }
}

/// The first difference of the columns.
pub fn compare_columns(received: &Schema, expected: &SchemaRef) -> Option<Difference> {
    let columns = |schema: &Schema| -> Vec<String> {
        let fields = schema.fields().iter();
        fields
            .map(|field| format!("{:?}: {}", field.name(), field.data_type()))
            .collect()
    };
    let (received, expected) = (columns(received), columns(expected));
    if received == expected {
        return None;
    }
    // A list of all columns of a wide table would hide the one that differs.
    let first = received.iter().zip(&expected).position(|(r, e)| r != e);
    let at = first.unwrap_or_else(|| received.len().min(expected.len()));
    let show = |columns: &[String]| {
        columns.get(at).map_or_else(
            || format!("{} columns", columns.len()),
            |column| format!("{column} as column {at} of {}", columns.len()),
        )
    };
    Some(Difference::Columns {
        received: show(&received),
        expected: show(&expected),
    })
}

/// Compares batches of the same length and the same types.
fn compare(received: &RecordBatch, expected: &RecordBatch, first_row: u64) -> Option<Difference> {
    // The reported difference is in the first different row, and there in the first different
    // column.
    let (row, index) = received
        .columns()
        .iter()
        .zip(expected.columns())
        .enumerate()
        .filter_map(|(index, (r, e))| first_difference(r, e).map(|row| (row, index)))
        .min()?;
    let show = |batch: &RecordBatch| show_value(batch.column(index), row);
    let (mut received_text, mut expected_text) = (show(received), show(expected));
    if received_text == expected_text {
        // For example NaNs with different payloads.
        received_text.push_str(" with other bits");
        expected_text.push_str(" as in the file");
    }
    Some(Difference::Value {
        column: received.schema().field(index).name().clone(),
        row: first_row.saturating_add(row as u64),
        received: received_text,
        expected: expected_text,
    })
}

/// The first row in which two arrays of one length differ, found by halving.
fn first_difference(received: &ArrayRef, expected: &ArrayRef) -> Option<usize> {
    let (mut received, mut expected) = (received.to_data(), expected.to_data());
    if received == expected {
        return None;
    }
    received = with_null_indices(received);
    expected = with_null_indices(expected);
    let equal = |start: usize, len: usize| received.slice(start, len) == expected.slice(start, len);
    if equal(0, received.len()) {
        return None;
    }
    let (mut start, mut len) = (0, received.len());
    while len > 1 {
        let half = len / 2;
        if equal(start, half) {
            start += half;
            len -= half;
        } else {
            len = half;
        }
    }
    Some(start)
}

/// Makes the index of every null of a dictionary null, at any depth. Arrow's comparison
/// distinguishes a null index from the index of a null.
fn with_null_indices(data: ArrayData) -> ArrayData {
    let old = data.child_data();
    let children: Vec<_> = old.iter().cloned().map(with_null_indices).collect();
    let is_dictionary = matches!(data.data_type(), DataType::Dictionary(_, _));
    if !is_dictionary && children.iter().zip(old).all(|(new, old)| new.ptr_eq(old)) {
        return data;
    }
    let nulls = if is_dictionary && !has_long(&data) {
        make_array(data.clone()).logical_nulls()
    } else {
        data.nulls().cloned()
    };
    let changed = data.clone().into_builder();
    // Arrow refuses nulls in a field that is not nullable: such an array stays unchanged.
    let changed = changed.nulls(nulls).child_data(children).build();
    changed.unwrap_or(data)
}

/// Longest text of a value in a message.
const MAX_SHOWN: usize = 200;

fn show_value(array: &ArrayRef, row: usize) -> String {
    if !has_long(&array.to_data()) && array.slice(row, 1).logical_null_count() > 0 {
        return "null".to_owned();
    }
    // A character has 4 bytes at most.
    let text = Texts::new(&array.slice(row, 1), "null").text(0, 4 * (MAX_SHOWN + 1));
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

#[cfg(test)]
#[path = "verify_tests.rs"]
mod tests;
