//! The rows of several files, one after the other, as one table.

use std::collections::VecDeque;

use anyhow::{Context as _, Result, bail};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use dipc::arrow::columns::difference;

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
    pub fn metadata(&self) -> &[(String, String)] {
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
