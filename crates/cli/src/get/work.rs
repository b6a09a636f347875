//! The work on the rows: show, write, hash and compare them.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use dipc::Cancel;

use super::args::Args;
use crate::checksum::Checksum;
use crate::columns::Columns;
use crate::report::{Report, Verified};
use crate::sink::Sink;
use crate::source::Reader;
use crate::verify::Verify;
use crate::{display, output};

/// The work on the rows.
pub struct Work {
    columns: Option<Columns>,
    head: Vec<RecordBatch>,
    /// Rows of the head that have not come yet.
    head_rows: usize,
    /// Whether only the rows of the head are wanted.
    stops_early: bool,
    schema: SchemaRef,
    sink: Option<Sink>,
    checksum: Option<Checksum>,
    verify: Option<(String, Verify)>,
}

impl Work {
    /// Begins the work on a table with these columns. `expected` is the table to compare with.
    pub fn new(
        args: &Args,
        schema: &SchemaRef,
        expected: Option<(String, Reader)>,
    ) -> Result<Self> {
        let columns = (args.columns.as_ref())
            .map(|names| Columns::find(names, schema))
            .transpose()?;
        let (schema, expected) = match (&args.columns, &columns) {
            (Some(names), Some(columns)) => {
                let expected = expected.map(|(name, reader)| {
                    let reader = narrow(reader, names).context("the table to compare with")?;
                    anyhow::Ok((name, reader))
                });
                (&columns.of_schema(schema)?, expected.transpose()?)
            }
            _ => (schema, expected),
        };
        Ok(Self {
            columns,
            head: Vec::new(),
            head_rows: args.head.map_or(Ok(0), usize::try_from)?,
            stops_early: args.wants_head_alone(),
            schema: Arc::clone(schema),
            sink: args
                .output
                .as_ref()
                .map(|target| Sink::create(target, schema))
                .transpose()?,
            checksum: args.checksum.then(|| Checksum::new(schema)),
            verify: expected.map(|(name, reader)| (name, Verify::new(schema, reader))),
        })
    }

    /// Works on the next rows.
    pub fn take(&mut self, batch: &RecordBatch, cancel: &Cancel) -> Result<()> {
        let kept;
        let batch = match &self.columns {
            Some(columns) => {
                kept = columns.of_batch(batch)?;
                &kept
            }
            None => batch,
        };
        let rows = self.head_rows.min(batch.num_rows());
        if rows > 0 {
            self.head.push(batch.slice(0, rows));
            self.head_rows -= rows;
        }
        if let Some((_, verify)) = &mut self.verify {
            verify.update(batch)?;
        }
        // The work on the rows can be slower than the fetch, so it checks for signals too.
        let check = || cancel.check();
        if let Some(sink) = &mut self.sink
            && let Err(error) = sink.write(batch, &check)
        {
            self.sink = None;
            self.ensure_useful(error)?;
        }
        if let Some(checksum) = &mut self.checksum {
            checksum.update(batch, &check)?;
        }
        Ok(check()?)
    }

    /// The rows cannot be written any more. If only the reader of stdout has gone, a hash or a
    /// comparison is still of use.
    fn ensure_useful(&self, error: anyhow::Error) -> Result<()> {
        match error.is::<output::Closed>() && (self.checksum.is_some() || self.verify.is_some()) {
            true => Ok(()),
            false => Err(error),
        }
    }

    /// Whether no further batch is of use.
    pub fn is_done(&self) -> bool {
        self.stops_early && self.head_rows == 0
    }

    /// Completes the work; gives the first rows as a text.
    pub fn finish(mut self, args: &Args, report: &mut Report) -> Result<String> {
        if let (Some(sink), Some(target)) = (self.sink.take(), &args.output) {
            match sink.finish() {
                Ok(()) => report.output = Some(target.to_string()),
                Err(error) => self.ensure_useful(error)?,
            }
        }
        report.checksum = self.checksum.map(|checksum| checksum.finish());
        if let Some((against, verify)) = self.verify {
            let difference = verify.finish()?;
            report.verified = Some(Verified {
                against,
                equal: difference.is_none(),
                difference,
            });
        }
        if args.head.is_none() {
            return Ok(String::new());
        }
        Ok(display::table(&self.schema, &self.head) + "\n")
    }
}

/// The table with the columns `names` alone.
pub fn narrow(reader: Reader, names: &str) -> Result<Reader> {
    let columns = Columns::find(names, &reader.schema())?;
    let schema = columns.of_schema(&reader.schema())?;
    let batches = reader.map(move |next| {
        let (batch, metadata) = next?;
        Ok::<_, ArrowError>((columns.of_batch(&batch)?, metadata))
    });
    Ok(Reader::new(schema, batches))
}
