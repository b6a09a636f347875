//! The rows of several files, one after the other, as one table.

use std::collections::VecDeque;

use anyhow::{Context as _, Result, bail};
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;

use crate::get::narrow;
use crate::get::progress::Totals;
use crate::source::{Reader, Reading, Source, stdin_reader};

/// The rows of one table.
pub struct Rows {
    schema: SchemaRef,
    rest: VecDeque<Reader>,
    total: Option<u64>,
}

impl Rows {
    /// Opens every file. Their columns must be the same.
    pub fn open(files: &[String], columns: Option<&str>, reading: Reading) -> Result<Self> {
        let mut rest = VecDeque::new();
        let mut total = Some(0);
        let mut first: Option<(SchemaRef, &str)> = None;
        for file in files {
            let (reader, rows) = open(file, reading)?;
            let reader = match columns {
                Some(names) => narrow(reader, names).with_context(|| file.clone())?,
                None => reader,
            };
            total = total.zip(rows).map(|(all, rows)| all + rows);
            match &first {
                None => first = Some((reader.schema(), file)),
                Some((schema, name)) => {
                    if let Some(why) = difference(schema, &reader.schema()) {
                        bail!("{file} does not continue the table of {name}: {why}");
                    }
                }
            }
            rest.push_back(reader);
        }
        let (schema, _) = first.context("no file is given")?;
        Ok(Self {
            schema,
            rest,
            total,
        })
    }

    /// The columns of the first file.
    pub fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }

    /// The custom metadata of the batch given last.
    pub fn metadata(&self) -> &[u8] {
        self.rest.front().map_or(&[], |reader| reader.metadata())
    }

    /// What is known of the size.
    pub fn totals(&self) -> Totals {
        Totals {
            rows: self.total,
            bytes: None,
        }
    }
}

impl Iterator for Rows {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.rest.front_mut()?.next() {
                Some(batch) => return Some(batch),
                None => self.rest.pop_front(),
            };
        }
    }
}

/// A file and, where the file says it, the number of its rows.
fn open(file: &str, reading: Reading) -> Result<(Reader, Option<u64>)> {
    if file == "-" {
        return Ok((stdin_reader(reading)?, None));
    }
    let source = Source::parse(file)?;
    Ok((source.reader(reading)?, source.figures(reading)?.rows))
}

/// Why rows of `next` do not fit into a table of `first`.
fn difference(first: &Schema, next: &Schema) -> Option<String> {
    let (firsts, nexts) = (first.fields(), next.fields());
    if firsts.len() != nexts.len() {
        return Some(format!(
            "it has {} columns, not {}",
            nexts.len(),
            firsts.len()
        ));
    }
    let mut pairs = firsts.iter().zip(nexts);
    let (first, next) = pairs.find(|(first, next)| {
        first.name() != next.name()
            || first.data_type() != next.data_type()
            || next.is_nullable() && !first.is_nullable()
    })?;
    let text = |field: &arrow::datatypes::Field| {
        let null = if field.is_nullable() {
            ""
        } else {
            ", not null"
        };
        format!("{:?} ({}{null})", field.name(), field.data_type())
    };
    Some(format!("it has {} for {}", text(next), text(first)))
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field};

    use super::*;

    /// Promise of `put`: several files are one table if their columns are the same. A column
    /// without nulls takes none of a later file.
    #[test]
    fn columns_must_continue() {
        let schema =
            |name: &str, kind, nullable| Schema::new(vec![Field::new(name, kind, nullable)]);
        let first = schema("a", DataType::Int32, true);
        assert_eq!(
            difference(&first, &schema("a", DataType::Int32, false)),
            None
        );
        for other in [
            schema("b", DataType::Int32, true),
            schema("a", DataType::Int64, true),
            Schema::empty(),
        ] {
            assert!(difference(&first, &other).is_some(), "{other}");
        }
        let full = schema("a", DataType::Int32, false);
        assert!(difference(&full, &first).unwrap().contains("not null"));
    }
}
