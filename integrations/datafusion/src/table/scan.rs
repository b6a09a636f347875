//! The plan that reads a table.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Statistics, internal_err, project_schema};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::coop::make_cooperative;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::limit::LimitStream;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
    ReplaceChildrenOptions, StatisticsArgs,
};
use dipc::{Description, Endpoint};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::reading::{Figures, Reading};
use super::server::parts_of;
use super::statistics::Totals;
use super::wanted::{Table, Wanted};

/// Parts of one partition that are asked for at once: the one that is read, and the next, whose
/// server can fill its window meanwhile.
const ASKED_AT_ONCE: usize = 2;

/// Reads a table, or some columns and rows of it.
///
/// Its metrics are those of any scan, and the bytes of bodies that were lent, copied and received.
#[derive(Debug, Clone)]
pub struct DipcScanExec {
    table: Arc<Table>,
    /// The parts of each partition, in the order in which they are read.
    partitions: Vec<Vec<Endpoint>>,
    /// Whether the order of the parts matters.
    is_ordered: bool,
    totals: Totals,
    wanted: Wanted,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl DipcScanExec {
    /// A scan in at most `most` partitions.
    pub(super) fn new(
        table: &Arc<Table>,
        description: &Description,
        most: usize,
        wanted: Wanted,
    ) -> Result<Self> {
        let parts = parts_of(description, &table.ticket);
        let is_ordered = description.is_ordered();
        let most = match is_ordered {
            true => 1,
            false => most.clamp(1, parts.len()),
        };
        let partitions = grouped(parts, most);
        let totals = Totals::new(description, &partitions);
        Self::of(table, partitions, is_ordered, totals, wanted)
    }

    /// A scan of these parts, without further knowledge of the table.
    pub(crate) fn of_parts(
        table: &Arc<Table>,
        partitions: Vec<Vec<Endpoint>>,
        wanted: Wanted,
    ) -> Result<Self> {
        let totals = Totals::new(&Description::new(), &partitions);
        Self::of(table, partitions, false, totals, wanted)
    }

    fn of(
        table: &Arc<Table>,
        partitions: Vec<Vec<Endpoint>>,
        is_ordered: bool,
        totals: Totals,
        wanted: Wanted,
    ) -> Result<Self> {
        let schema = project_schema(&table.schema, wanted.projection.as_ref())?;
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(partitions.len()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(Self {
            table: Arc::clone(table),
            totals,
            partitions,
            is_ordered,
            wanted,
            properties: Arc::new(properties.with_scheduling_type(SchedulingType::Cooperative)),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    /// Most processes that can share the scan: one for each part, or one if the parts' order
    /// matters.
    pub(crate) fn most_shares(&self) -> usize {
        match self.is_ordered {
            true => 1,
            false => self.partitions.iter().map(Vec::len).sum(),
        }
    }

    /// Several scans, each with a share of the parts. All have the same number of partitions, of
    /// which some may be empty.
    pub(crate) fn shares(&self, count: usize) -> Result<Vec<Self>> {
        let parts: Vec<_> = self.partitions.concat();
        let most = parts
            .len()
            .div_ceil(count.max(1))
            .min(self.partitions.len());
        let share = |parts| {
            let partitions = grouped(parts, most);
            Self::of_parts(&self.table, partitions, self.wanted.clone())
        };
        grouped(parts, count).into_iter().map(share).collect()
    }

    pub(crate) fn table(&self) -> &Arc<Table> {
        &self.table
    }

    pub(crate) fn partitions(&self) -> &[Vec<Endpoint>] {
        &self.partitions
    }

    pub(crate) fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    fn output(&self) -> SchemaRef {
        Arc::clone(self.properties.equivalence_properties().schema())
    }
}

impl ExecutionPlan for DipcScanExec {
    fn name(&self) -> &str {
        "DipcScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        match &self.wanted.filter {
            Some(filter) => visit(&filter.predicate),
            None => Ok(TreeNodeRecursion::Continue),
        }
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match children.is_empty() {
            true => Ok(self),
            false => internal_err!("DipcScanExec has no inputs, and was given some"),
        }
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match children.is_empty() {
            true => Ok(self),
            false => internal_err!("DipcScanExec has no inputs, and was given some"),
        }
    }

    fn execute(
        &self,
        partition: usize,
        _context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let Some(parts) = self.partitions.get(partition).cloned() else {
            return internal_err!("DipcScanExec has no partition {partition}");
        };
        let reading = Arc::new(Reading {
            table: Arc::clone(&self.table),
            wanted: self.wanted.clone(),
            schema: self.output(),
            figures: Figures::new(&self.metrics, partition),
        });
        let batches = stream::iter(parts)
            .map(move |part| Arc::clone(&reading).open(part))
            .buffered(ASKED_AT_ONCE)
            .try_flatten();
        let batches = Box::pin(RecordBatchStreamAdapter::new(self.output(), batches));
        // Drops its input, and so cancels the part, as soon as it has enough rows.
        Ok(Box::pin(LimitStream::new(
            make_cooperative(batches),
            0,
            self.wanted.fetch,
            BaselineMetrics::new(&self.metrics, partition),
        )))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let Wanted {
            projection,
            filter,
            fetch,
        } = &self.wanted;
        let is_whole = projection.is_none();
        let statistics =
            (self.totals).statistics(args.partition(), *fetch, is_whole, &self.output());
        Ok(Arc::new(match filter {
            None => statistics,
            Some(_) => statistics.to_inexact(),
        }))
    }

    fn fetch(&self) -> Option<usize> {
        self.wanted.fetch
    }

    fn with_fetch(&self, fetch: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        let wanted = Wanted {
            fetch,
            ..self.wanted.clone()
        };
        Some(Arc::new(Self {
            wanted,
            metrics: ExecutionPlanMetricsSet::new(),
            ..self.clone()
        }))
    }
}

impl DisplayAs for DipcScanExec {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = self.table.name();
        let parts = self.partitions.iter().map(Vec::len).sum::<usize>();
        if matches!(kind, DisplayFormatType::TreeRender) {
            writeln!(f, "table={table}")?;
            writeln!(f, "parts={parts}")?;
            if let Some(filter) = &self.wanted.filter {
                writeln!(f, "filter={filter}")?;
            }
            return match self.wanted.fetch {
                Some(fetch) => writeln!(f, "fetch={fetch}"),
                None => Ok(()),
            };
        }
        let partitions = self.partitions.len();
        write!(
            f,
            "DipcScanExec: table={table}, parts={parts}, partitions={partitions}"
        )?;
        if self.wanted.projection.is_some() {
            let output = self.output();
            let names = output.fields().iter().map(|it| it.name().as_str());
            write!(f, ", projection=[{}]", names.collect::<Vec<_>>().join(", "))?;
        }
        if let Some(filter) = &self.wanted.filter {
            write!(f, ", filter={filter}")?;
        }
        match self.wanted.fetch {
            Some(fetch) => write!(f, ", fetch={fetch}"),
            None => Ok(()),
        }
    }
}

/// The parts in `most` groups of neighbours, as even as can be.
fn grouped(parts: Vec<Endpoint>, most: usize) -> Vec<Vec<Endpoint>> {
    let count = parts.len();
    let mut groups = vec![Vec::new(); most];
    for (number, part) in parts.into_iter().enumerate() {
        groups[number * most / count].push(part);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise of `DipcTableProvider`: all parts are read once, and no partition idles.
    #[test]
    fn parts_are_spread_evenly() {
        for (count, most) in [(1, 1), (5, 2), (7, 7), (100, 16)] {
            let parts: Vec<_> = (0..count)
                .map(|n: u32| Endpoint::new(n.to_le_bytes()))
                .collect();
            let groups = grouped(parts.clone(), most);
            assert_eq!(groups.concat(), parts);
            let sizes = groups.iter().map(Vec::len);
            let (least, largest) = (sizes.clone().min().unwrap(), sizes.max().unwrap());
            assert!(least > 0 && largest - least <= 1, "{count} parts in {most}");
        }
    }
}
