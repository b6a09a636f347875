//! The batches of one part, on their way in.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder};
use dipc::crossing::arrow_59::{CrossedStream, stream};
use dipc::{Endpoint, Error, GetOptions, Status};
use futures::Stream;

use super::filter::passed;
use super::wanted::{Table, Wanted};

/// What the parts of one partition are read for.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) table: Arc<Table>,
    pub(super) wanted: Wanted,
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
    /// The work that the server has left to this side.
    predicate: Option<Arc<dyn PhysicalExpr>>,
    /// Places of the wanted columns in the batches that come.
    places: Vec<usize>,
    reading: Arc<Reading>,
}

/// A way to ask for a part.
struct Way {
    options: GetOptions,
    /// Places in the table of the columns that come.
    columns: Vec<usize>,
    /// Whether the filter is left to this side.
    filters_here: bool,
}

impl Reading {
    /// Asks for the wanted columns and rows of a part. [`PartStream`] leaves out what a server
    /// cannot leave out.
    pub(super) async fn open(self: Arc<Self>, part: Endpoint) -> Result<PartStream> {
        let here = |error| self.table.error(error);
        let server = &self.table.server;
        let mut ways = self.ways().map_err(here)?.into_iter().peekable();
        while let Some(way) = ways.next() {
            let asked = (server.client).get_part_async(&server.uris, &part, &way.options);
            match asked.await.and_then(stream) {
                Err(error) if error.status() == Status::Unsupported && ways.peek().is_some() => {}
                batches => {
                    let batches = batches.map_err(here)?;
                    return self.part(&part, &way, batches);
                }
            }
        }
        internal_err!("no way to ask for a part")
    }

    /// The ways to ask, the best first. Servers of earlier releases, and servers that are not
    /// libdipc, know no filters, or no selections at all. Every server knows the last way, which
    /// always fits into a request.
    fn ways(&self) -> dipc::Result<Vec<Way>> {
        let mut ways = Vec::with_capacity(3);
        let Wanted {
            projection,
            filter,
            fetch,
        } = &self.wanted;
        if let Some(filter) = filter
            && let Some(message) = &filter.message
        {
            let filtered = self.selecting(!filter.is_whole).and_then(|way| {
                let options = way.options.filter(message.clone())?;
                Ok(Way { options, ..way })
            });
            ways.extend(if_it_fits(filtered)?);
        }
        if projection.is_some() || fetch.is_some() {
            ways.extend(if_it_fits(self.selecting(filter.is_some()))?);
        }
        ways.push(Way {
            options: self.table.server.get.clone(),
            columns: (0..self.table.schema.fields().len()).collect(),
            filters_here: filter.is_some(),
        });
        Ok(ways)
    }

    /// A get of the columns and rows that are wanted. With a filter on this side, rows are counted
    /// after it.
    fn selecting(&self, filters_here: bool) -> dipc::Result<Way> {
        let table = self.table.schema.fields();
        let mut options = self.table.server.get.clone();
        let mut columns =
            (self.wanted.projection.clone()).unwrap_or_else(|| (0..table.len()).collect());
        if filters_here && let Some(filter) = &self.wanted.filter {
            columns.extend(filter.columns());
            let mut known = HashSet::new();
            columns.retain(|place| known.insert(*place));
        }
        let names: Vec<_> = (columns.iter())
            .map(|place| table[*place].name().as_str())
            .collect();
        let is_only = |name: &str| table.iter().filter(|it| it.name() == name).count() == 1;
        if self.wanted.projection.is_none() || !names.iter().all(|name| is_only(name)) {
            columns = (0..table.len()).collect();
        } else {
            options = options.columns(names)?;
        }
        if !filters_here && let Some(rows) = self.wanted.fetch {
            options = options.rows(..rows as u64);
        }
        Ok(Way {
            options,
            columns,
            filters_here,
        })
    }

    fn part(
        self: Arc<Self>,
        part: &Endpoint,
        way: &Way,
        batches: CrossedStream,
    ) -> Result<PartStream> {
        let came = self.table.schema.project(&way.columns)?;
        // The columns are taken by their places.
        if !same_columns(&batches.schema(), &came) {
            let ticket = String::from_utf8_lossy(part.ticket());
            return Err(self.table.error(Error::invalid_data(format!(
                "its part {ticket} has other columns than the table: register the table again"
            ))));
        }
        let filter = self.wanted.filter.as_ref().filter(|_| way.filters_here);
        let places = match &self.wanted.projection {
            None => (0..way.columns.len()).collect(),
            Some(wanted) => (wanted.iter())
                .filter_map(|place| way.columns.iter().position(|it| it == place))
                .collect(),
        };
        Ok(PartStream {
            batches,
            predicate: filter.map(|filter| filter.over(&came)).transpose()?,
            places,
            reading: self,
        })
    }
}

impl PartStream {
    /// The wanted rows and columns, with the schema that the plan has promised.
    fn wanted(&self, batch: RecordBatch) -> Result<RecordBatch> {
        let batch = match &self.predicate {
            None => batch,
            Some(predicate) => passed(predicate, &batch)?,
        };
        let columns = self
            .places
            .iter()
            .map(|place| Arc::clone(batch.column(*place)));
        // A count of rows needs no column.
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let schema = Arc::clone(&self.reading.schema);
        Ok(RecordBatch::try_new_with_options(
            schema,
            columns.collect(),
            &options,
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
        Poll::Ready(next.map(|batch| match batch {
            Ok(batch) => self.wanted(batch),
            Err(error) => Err(self.reading.table.error(error)),
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

/// `None` for a way whose columns or filter are more than a request can hold.
fn if_it_fits(way: dipc::Result<Way>) -> dipc::Result<Option<Way>> {
    match way {
        Err(error) if error.status() == Status::InvalidArgument => Ok(None),
        way => way.map(Some),
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
