//! Filters of a scan that the server evaluates.

mod compare;
mod translate;
mod types;

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::catalog::Session;
use datafusion::common::DFSchema;
use datafusion::common::cast::as_boolean_array;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_expr::utils::{collect_columns, reassign_expr_columns};
use datafusion::physical_expr::{PhysicalExpr, conjunction};

use self::translate::Translator;

/// Most bytes of a message.
const MOST_BYTES: usize = 64 << 10;

/// Which rows of a table a scan gives.
#[derive(Debug, Clone)]
pub(crate) struct Filter {
    /// For a server: an extended expression of Substrait. Every row that passes the filter also
    /// passes this message.
    pub(crate) message: Option<Vec<u8>>,
    /// Other rows pass the message only if DataFusion evaluates the filter again.
    pub(crate) is_whole: bool,
    /// The filter for this side, over the table's columns. It is used with servers that know no
    /// filters.
    pub(crate) predicate: Arc<dyn PhysicalExpr>,
}

/// Whether the server can evaluate a filter of a table.
pub(super) fn support(filter: &Expr, schema: &Schema) -> TableProviderFilterPushDown {
    let message = || {
        let mut translator = Translator::new(schema)?;
        let term = translator.condition(filter, 0)?;
        Some((term.is_wider, translator.builder.finish(term.expression)))
    };
    match message() {
        Some((is_wider, message)) if message.len() <= MOST_BYTES => match is_wider {
            true => TableProviderFilterPushDown::Inexact,
            false => TableProviderFilterPushDown::Exact,
        },
        _ => TableProviderFilterPushDown::Unsupported,
    }
}

impl Filter {
    /// All of `filters` as one; `None` if there are none.
    pub(super) fn new(
        filters: &[Expr],
        schema: &Schema,
        session: &dyn Session,
    ) -> Result<Option<Self>> {
        if filters.is_empty() {
            return Ok(None);
        }
        let columns = DFSchema::try_from(schema.clone())?;
        let predicates = filters.iter().map(|filter| {
            let filter = filter.clone();
            session.create_physical_expr(filter, &columns)
        });
        let predicate = conjunction(predicates.collect::<Result<Vec<_>>>()?);
        // Each filter fits into a message, but all of them together may not.
        let whole = joined(filters, schema);
        let is_whole = whole.is_some();
        let message = whole.or_else(|| {
            let mut shorter = (1..filters.len()).rev();
            shorter.find_map(|count| joined(&filters[..count], schema))
        });
        Ok(Some(Self {
            message,
            is_whole,
            predicate,
        }))
    }

    /// Places of the table's columns that the predicate reads.
    pub(super) fn columns(&self) -> impl Iterator<Item = usize> {
        let columns = collect_columns(&self.predicate);
        columns.into_iter().map(|column| column.index())
    }

    /// The predicate for batches with other columns, among which are those that it reads.
    pub(super) fn over(&self, schema: &Schema) -> Result<Arc<dyn PhysicalExpr>> {
        reassign_expr_columns(Arc::clone(&self.predicate), schema)
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.predicate.fmt(f)
    }
}

/// The rows of `batch` that pass `predicate`.
pub(super) fn passed(
    predicate: &Arc<dyn PhysicalExpr>,
    batch: &RecordBatch,
) -> Result<RecordBatch> {
    let rows = predicate.evaluate(batch)?.into_array(batch.num_rows())?;
    Ok(filter_record_batch(batch, as_boolean_array(&rows)?)?)
}

/// The message for all of `filters`; `None` if there is no message, or if it is too large for a
/// server.
fn joined(filters: &[Expr], schema: &Schema) -> Option<Vec<u8>> {
    let mut translator = Translator::new(schema)?;
    let terms = filters.iter().map(|it| translator.condition(it, 1));
    let mut terms = terms.collect::<Option<Vec<_>>>()?;
    let all = match terms.len() {
        1 => terms.pop()?,
        _ => translator.call("and", terms, DataType::Boolean)?,
    };
    let message = translator.builder.finish(all.expression);
    (message.len() <= MOST_BYTES).then_some(message)
}
