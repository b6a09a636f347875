//! The batches of one part, on their way in.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::error::Result;
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder};
use dipc::crossing::arrow_59::{CrossedStream, stream};
use dipc::{Endpoint, Error, GetOptions, Status};
use futures::Stream;

use super::provider::Table;

/// What the parts of one partition are read for.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) table: Arc<Table>,
    /// Columns of the table that are wanted; `None`: all.
    pub(super) projection: Option<Vec<usize>>,
    /// Most rows of a part that are wanted.
    pub(super) fetch: Option<usize>,
    /// The schema of the batches that come out.
    pub(super) schema: SchemaRef,
    pub(super) figures: Figures,
}

/// Bytes of bodies, by the way they came.
#[derive(Debug)]
pub(super) struct Figures {
    lent: Count,
    copied: Count,
    received: Count,
}

/// The batches of one part. A drop before the end cancels its stream.
pub(super) struct PartStream {
    batches: CrossedStream,
    /// The server has left out what nobody wants.
    is_selected: bool,
    reading: Arc<Reading>,
}

impl Reading {
    /// Asks for the columns and rows of a part that somebody wants. A server that knows no
    /// selections sends all of the part, and [`PartStream`] leaves out what nobody wants.
    pub(super) async fn open(self: Arc<Self>, part: Endpoint) -> Result<PartStream> {
        let server = &self.table.server;
        let get = async |options: &GetOptions| {
            let asked = (server.client).get_part_async(&server.uris, &part, options);
            asked.await.and_then(stream)
        };
        let asked = match self.selecting()? {
            None => (get(&server.get).await, false),
            Some(options) => match get(&options).await {
                Err(error) if error.status() == Status::Unsupported => {
                    (get(&server.get).await, false)
                }
                asked => (asked, true),
            },
        };
        let (batches, is_selected) = (asked.0.map_err(|error| self.table.error(error))?, asked.1);
        let expected = if is_selected {
            &self.schema
        } else {
            &self.table.schema
        };
        // The columns are taken by their places.
        if !same_columns(&batches.schema(), expected) {
            let ticket = String::from_utf8_lossy(part.ticket());
            return Err(self.table.error(Error::invalid_data(format!(
                "its part {ticket} has other columns than the table: register the table again"
            ))));
        }
        Ok(PartStream {
            batches,
            is_selected,
            reading: self,
        })
    }

    /// The options of a get of columns and rows; `None` where the whole part is wanted, or a column
    /// cannot be asked for by its name.
    fn selecting(&self) -> Result<Option<GetOptions>> {
        let columns = self.table.schema.fields();
        let is_named_once = |name: &str| columns.iter().filter(|it| it.name() == name).count() == 1;
        let names: Vec<_> = self
            .schema
            .fields()
            .iter()
            .map(|it| it.name().as_str())
            .collect();
        if (self.projection.is_none() && self.fetch.is_none())
            || !names.iter().all(|name| is_named_once(name))
        {
            return Ok(None);
        }
        let mut options = self.table.server.get.clone();
        if self.projection.is_some() {
            let named = options.columns(names);
            options = named.map_err(|error| self.table.error(error))?;
        }
        if let Some(rows) = self.fetch {
            options = options.rows(..rows as u64);
        }
        Ok(Some(options))
    }

    fn wanted(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let columns = match &self.projection {
            None => batch.columns().to_vec(),
            Some(places) => (places.iter())
                .map(|place| Arc::clone(batch.column(*place)))
                .collect(),
        };
        self.named(batch, columns)
    }

    /// The columns with the schema that the plan has promised.
    fn named(&self, batch: &RecordBatch, columns: Vec<ArrayRef>) -> Result<RecordBatch> {
        // A count of rows needs no column.
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let schema = Arc::clone(&self.schema);
        Ok(RecordBatch::try_new_with_options(
            schema, columns, &options,
        )?)
    }
}

impl Figures {
    pub(super) fn new(metrics: &ExecutionPlanMetricsSet, partition: usize) -> Self {
        let counter = |name| MetricBuilder::new(metrics).counter(name, partition);
        Self {
            lent: counter("bytes_lent"),
            copied: counter("bytes_copied"),
            received: counter("bytes_received"),
        }
    }
}

impl Stream for PartStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = ready!(Pin::new(&mut self.batches).poll_next(context));
        let reading = &self.reading;
        Poll::Ready(next.map(|batch| match batch {
            Ok(batch) if self.is_selected => reading.named(&batch, batch.columns().to_vec()),
            Ok(batch) => reading.wanted(&batch),
            Err(error) => Err(reading.table.error(error)),
        }))
    }
}

impl Drop for PartStream {
    fn drop(&mut self) {
        let (stats, figures) = (self.batches.reader().stats(), &self.reading.figures);
        for (figure, bytes) in [
            (&figures.lent, stats.bytes_lent),
            (&figures.copied, stats.bytes_copied),
            (&figures.received, stats.bytes_received),
        ] {
            figure.add(usize::try_from(bytes).unwrap_or(usize::MAX));
        }
    }
}

/// Whether both have the same columns. Metadata may differ.
pub(super) fn same_columns(one: &Schema, other: &Schema) -> bool {
    let mut pairs = one.fields().iter().zip(other.fields());
    one.fields().len() == other.fields().len()
        && pairs.all(|(one, other)| {
            one.name() == other.name()
                && one.data_type() == other.data_type()
                && one.is_nullable() == other.is_nullable()
        })
}
