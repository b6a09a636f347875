//! The rows of several files, one after the other, as one table.

use anyhow::{Context as _, Result, bail};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};

use crate::get::narrow;
use crate::get::progress::Totals;
use crate::rebuild::with_children;
use crate::source::{Reader, Reading, Source, stdin_reader};
use crate::verify::compare_columns;

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
                    if !continues(schema, &reader.schema())
                        && let Some(why) = compare_columns(schema, &reader.schema())
                    {
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

/// Whether rows of the columns `next` can follow those of `first`. Inner fields of which a type has
/// just one, such as the values of a list, may have other names, and each column may have nulls or
/// not.
fn continues(first: &Schema, next: &Schema) -> bool {
    fn bare(ty: &DataType, names: bool) -> DataType {
        let names = names && matches!(ty, DataType::Struct(_) | DataType::Union(_, _));
        with_children(ty, |field| {
            let name = if names { field.name() } else { "" };
            let is_map = matches!(ty, DataType::Map(_, _));
            Field::new(name, bare(field.data_type(), !is_map), true)
        })
    }
    let columns = |schema: &Schema| -> Vec<_> {
        let fields = schema.fields().iter();
        let column = |it: &FieldRef| (it.name().clone(), bare(it.data_type(), true));
        fields.map(column).collect()
    };
    columns(first) == columns(next)
}

/// A file and, if the file says it, the number of its rows.
fn open(file: &str, reading: Reading) -> Result<(Reader, Option<u64>)> {
    if file == "-" {
        return Ok((stdin_reader(reading)?, None));
    }
    let source = Source::parse(file)?;
    Ok((source.reader(reading)?, source.figures(reading)?.rows))
}
