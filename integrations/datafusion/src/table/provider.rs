//! A table, for the planner.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{SchemaExt as _, not_impl_err, plan_err};
use datafusion::datasource::sink::DataSinkExec;
use datafusion::error::Result;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use dipc::crossing::arrow_59::schema_out;

use super::filter::{Filter, support};
use super::insert::DipcSink;
use super::reading::same_columns;
use super::scan::DipcScanExec;
use super::server::DipcServer;
use super::wanted::{Table, Wanted};

/// A ticket as a table of DataFusion.
///
/// Each scan asks the server anew what the ticket stands for: where its parts are, and how many
/// rows they have. So `SELECT count(*)` is answered by the planner if the server knows the rows.
/// The schema is the one that the table had when this was made; a scan fails, and says so, if the
/// table has other columns by now.
///
/// A table in parts has a partition for each part, and at most `target_partitions`. If the server
/// says that the order of the parts matters, they are read one after another, in one partition.
///
/// Columns that a query does not need, rows that its conditions drop, and rows past its `LIMIT` are
/// not sent, unless the server is of an earlier release. Conditions that the server cannot evaluate
/// stay on this side, and so do conditions that can fail for a row, such as a cast or a division by
/// a column. Comparisons of floats are evaluated on both sides, because only this side orders NaN.
///
/// `INSERT INTO` puts the rows to the ticket, as one stream. What becomes of them, and of the rows
/// that were there before, is up to the server's host. `INSERT OVERWRITE` is refused.
#[derive(Debug, Clone)]
pub struct DipcTableProvider {
    table: Arc<Table>,
}

impl DipcTableProvider {
    pub(super) fn new(server: DipcServer, ticket: &[u8], schema: SchemaRef) -> Self {
        let ticket = ticket.to_vec();
        Self {
            table: Arc::new(Table {
                server,
                ticket,
                schema,
            }),
        }
    }

    /// The ticket.
    pub fn ticket(&self) -> &[u8] {
        &self.table.ticket
    }

    /// The server.
    pub fn server(&self) -> &DipcServer {
        &self.table.server
    }
}

#[async_trait]
impl TableProvider for DipcTableProvider {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.table.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        let schema = &self.table.schema;
        Ok(filters.iter().map(|it| support(it, schema)).collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let table = &self.table;
        let asked = table.server.description(&table.ticket).await;
        let description = asked.map_err(|error| table.error(error))?;
        let described = (description.table_schema())
            .and_then(|schema| schema.map(|schema| schema_out(&schema)).transpose());
        if let Some(schema) = described.map_err(|error| table.error(error))?
            && !same_columns(&schema, &table.schema)
        {
            return plan_err!(
                "the table {} has other columns than when it was registered: register it again",
                table.name()
            );
        }
        let most = state.config().target_partitions();
        let wanted = Wanted {
            projection: projection.cloned(),
            filter: Filter::new(filters, &table.schema, state)?,
            fetch: limit,
        };
        let scan = DipcScanExec::new(table, &description, most, wanted)?;
        Ok(Arc::new(scan))
    }

    async fn insert_into(
        &self,
        _state: &dyn Session,
        input: Arc<dyn ExecutionPlan>,
        operation: InsertOp,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if operation != InsertOp::Append {
            return not_impl_err!(
                "{operation} of the table {}: a put cannot say that it replaces rows; use INSERT \
                 INTO, and let the server's host decide what becomes of the rows that are there",
                self.table.name()
            );
        }
        (self.table.schema).logically_equivalent_names_and_types(&input.schema())?;
        let sink = Arc::new(DipcSink::new(&self.table));
        Ok(Arc::new(DataSinkExec::new(input, sink, None)))
    }
}
