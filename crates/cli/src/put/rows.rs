//! The rows of several files, one after the other, as one table.

use anyhow::{Context as _, Result, bail};
use arrow::datatypes::SchemaRef;
use dipc::arrow::columns::difference;

use crate::get::narrow;
use crate::get::progress::Totals;
use crate::source::{Reader, Reading, Source, stdin_reader};

/// The rows of one table.
pub struct Rows {
    pub reader: Reader,
    /// What is known of the size.
    pub totals: Totals,
}

impl Rows {
    /// Opens every file. Their columns must be the same.
    pub fn open(files: &[String], columns: Option<&str>, reading: Reading) -> Result<Self> {
        let mut rest = Vec::new();
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
            rest.push(reader);
        }
        let (schema, _) = first.context("no file is given")?;
        let totals = Totals {
            rows: total,
            bytes: None,
        };
        Ok(Self {
            reader: Reader::new(schema, rest.into_iter().flatten()),
            totals,
        })
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
