//! Batches on their way out: `INSERT INTO`.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::datasource::sink::DataSink;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType};
use dipc::crossing::arrow_59::Entrance;
use futures::StreamExt as _;

use super::wanted::Table;

/// Puts batches to a table.
#[derive(Debug)]
pub(super) struct DipcSink {
    table: Arc<Table>,
}

impl DipcSink {
    pub(super) fn new(table: &Arc<Table>) -> Self {
        Self {
            table: Arc::clone(table),
        }
    }

    /// The batch with the table's own schema: a query's schema may allow nulls in more columns.
    fn as_of_table(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let (schema, columns) = (Arc::clone(&self.table.schema), batch.columns().to_vec());
        Ok(RecordBatch::try_new_with_options(
            schema, columns, &options,
        )?)
    }
}

#[async_trait]
impl DataSink for DipcSink {
    fn schema(&self) -> &SchemaRef {
        &self.table.schema
    }

    async fn write_all(
        &self,
        mut batches: SendableRecordBatchStream,
        _context: &Arc<TaskContext>,
    ) -> Result<u64> {
        let (table, server) = (&self.table, &self.table.server);
        let here = |error| table.error(error);
        let entrance = Entrance::new(&table.schema).map_err(here)?;
        // A drop before `finish`, for example by a cancelled query, fails the put at its server.
        let asked = (server.client)
            .put_async(&server.uris, &table.ticket, entrance.schema(), &server.put)
            .await;
        let mut put = asked.map_err(here)?;
        let mut rows = 0;
        while let Some(batch) = batches.next().await {
            let batch = match batch.and_then(|batch| self.as_of_table(&batch)) {
                Ok(batch) => batch,
                Err(error) => {
                    put.fail(&error.to_string());
                    return Err(error);
                }
            };
            rows += batch.num_rows() as u64;
            let batch = entrance.batch(batch).map_err(here)?;
            put.push(batch).await.map_err(here)?;
        }
        put.finish().await.map_err(here)?;
        Ok(rows)
    }
}

impl DisplayAs for DipcSink {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DipcSink(table={})", self.table.name())
    }
}
