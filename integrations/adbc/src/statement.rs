//! Statements: gets, and puts of bound data.

use adbc_core::error::{Error, Result};
use adbc_core::options::{OptionStatement, OptionValue};
use adbc_core::{CancelHandle, Optionable, PartitionedResult};
use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use arrow::record_batch::{RecordBatchIterator, RecordBatchReader};
use dipc::{Cancel, Description};

use crate::error::{from_arrow, invalid_state, not_found, not_implemented};
use crate::ingest::Target;
use crate::partition::Partition;
use crate::results::{ResultSet, none};
use crate::running::Running;
use crate::selection::{OF_STATEMENTS, Selection};
use crate::session::Session;
use crate::values::{bytes_of, flag, parsed, text};

/// A descriptor to get, or a table to put.
pub struct Statement {
    session: Session,
    running: Running,
    /// The text of the query, or the bytes of the plan: the descriptor.
    descriptor: Option<Vec<u8>>,
    selection: Selection,
    target: Target,
    bound: Option<Box<dyn RecordBatchReader + Send>>,
}

impl Statement {
    pub(crate) fn new(session: Session) -> Self {
        Self {
            session,
            running: Running::default(),
            descriptor: None,
            selection: Selection::default(),
            target: Target::default(),
            bound: None,
        }
    }

    /// What a statement without a target gets.
    ///
    /// # Errors
    ///
    /// `NotImplemented`: data is bound. It is gone then, so that the statement can be used again.
    fn descriptor(&mut self) -> Result<Vec<u8>> {
        let none = || {
            invalid_state(
                "the statement has no query: set the ticket as its SQL text, or bytes as its \
                 Substrait plan",
            )
        };
        let descriptor = self.descriptor.clone().ok_or_else(none)?;
        match self.bound.take() {
            None => Ok(descriptor),
            Some(_) => Err(not_implemented(
                "a query of libdipc has no parameters, so it takes no bound data: write the \
                 values into its text; or, to send the data as a table, set \
                 adbc.ingest.target_table",
            )),
        }
    }

    /// The rows that the server has taken, if the statement ingests data.
    fn ingested(&mut self) -> Result<Option<i64>> {
        let Some(table) = self.target.table.clone() else {
            return Ok(None);
        };
        let none = || invalid_state("nothing is bound: bind record batches before the ingestion");
        let data = self.bound.take().ok_or_else(none)?;
        let token = self.running.begin()?;
        let rows = self.target.ingest(&table, data, (&self.session, &token))?;
        Ok(Some(rows))
    }

    fn set_descriptor(&mut self, descriptor: &[u8]) {
        self.descriptor = Some(descriptor.to_vec());
        self.target = Target::default();
    }

    /// The server's description of the query, and the query's schema.
    fn described(
        &self,
        descriptor: &[u8],
        token: &Cancel,
    ) -> Result<(Option<Description>, Schema)> {
        let description = self.session.describe(descriptor, token)?;
        let schema = (self.session).schema(descriptor, description.as_ref(), token)?;
        Ok((description, schema.as_ref().clone()))
    }

    /// The result set of the query.
    fn query(&mut self) -> Result<ResultSet> {
        let descriptor = self.descriptor()?;
        let token = self.running.begin()?;
        self.session.get(&descriptor, &self.selection, token)
    }

    fn option(&self, option: &OptionStatement) -> Result<Vec<u8>> {
        match option {
            OptionStatement::IngestMode
            | OptionStatement::TargetTable
            | OptionStatement::TargetCatalog
            | OptionStatement::TargetDbSchema
            | OptionStatement::Temporary => Ok(self.target.get(option)?.into_bytes()),
            OptionStatement::Incremental => Ok(b"false".to_vec()),
            OptionStatement::Progress | OptionStatement::MaxProgress => {
                Err(not_found("libdipc tells no progress of queries"))
            }
            _ => {
                let name = option.as_ref();
                match OF_STATEMENTS.contains(&name) {
                    true => Ok(self.selection.get(name)?.to_vec()),
                    false => Ok(self.session.settings.get(name)?.to_vec()),
                }
            }
        }
    }
}

impl adbc_core::Statement for Statement {
    fn bind(&mut self, batch: RecordBatch) -> Result<()> {
        let schema = batch.schema();
        self.bind_stream(Box::new(RecordBatchIterator::new([Ok(batch)], schema)))
    }

    fn bind_stream(&mut self, reader: Box<dyn RecordBatchReader + Send>) -> Result<()> {
        self.bound = Some(reader);
        Ok(())
    }

    fn execute(&mut self) -> Result<ResultSet> {
        match self.ingested()? {
            Some(_) => Ok(none()),
            None => self.query(),
        }
    }

    fn execute_update(&mut self) -> Result<Option<i64>> {
        if let Some(rows) = self.ingested()? {
            return Ok(Some(rows));
        }
        // The server's host may do more than give the result set, so the result set is read to its
        // end.
        for batch in self.query()? {
            batch.map_err(from_arrow)?;
        }
        Ok(None)
    }

    fn execute_schema(&mut self) -> Result<Schema> {
        let descriptor = self.descriptor()?;
        let token = self.running.begin()?;
        let (_, schema) = self.described(&descriptor, &token)?;
        self.selection.schema(schema)
    }

    fn execute_partitions(&mut self) -> Result<PartitionedResult> {
        if !self.selection.is_all() {
            return Err(not_implemented(format!(
                "whoever reads a partition has all of it: execute the query, or lift {}",
                OF_STATEMENTS.join(", ")
            )));
        }
        let descriptor = self.descriptor()?;
        let token = self.running.begin()?;
        let (description, schema) = self.described(&descriptor, &token)?;
        let endpoints = description.map(|it| it.endpoints()).unwrap_or_default();
        let partition = |ticket: &[u8], uris: &[String]| {
            let partition = Partition {
                asked: self.session.uri.clone(),
                uris: uris.to_vec(),
                ticket: ticket.to_vec(),
            };
            partition.encode()
        };
        let partitions = match endpoints.as_slice() {
            [] => vec![partition(&descriptor, &[])],
            parts => (parts.iter())
                .map(|part| partition(part.ticket(), part.uris()))
                .collect(),
        };
        Ok(PartitionedResult {
            partitions,
            schema,
            rows_affected: -1,
        })
    }

    fn get_parameter_schema(&self) -> Result<Schema> {
        Err(no_parameters())
    }

    fn prepare(&mut self) -> Result<()> {
        // The server keeps nothing between requests, so there is nothing to prepare.
        self.descriptor().map(|_| ())
    }

    fn set_sql_query(&mut self, query: impl AsRef<str>) -> Result<()> {
        self.set_descriptor(query.as_ref().as_bytes());
        Ok(())
    }

    fn set_substrait_plan(&mut self, plan: impl AsRef<[u8]>) -> Result<()> {
        self.set_descriptor(plan.as_ref());
        Ok(())
    }

    fn get_cancel_handle(&self) -> Box<dyn CancelHandle> {
        Box::new(self.running.clone())
    }
}

impl Optionable for Statement {
    type Option = OptionStatement;

    fn set_option(&mut self, option: OptionStatement, value: OptionValue) -> Result<()> {
        let name = option.as_ref();
        match &option {
            OptionStatement::TargetTable => {
                self.target.set(&option, value)?;
                self.descriptor = None;
                Ok(())
            }
            OptionStatement::IngestMode
            | OptionStatement::TargetCatalog
            | OptionStatement::TargetDbSchema
            | OptionStatement::Temporary => self.target.set(&option, value),
            OptionStatement::Incremental => match flag(name, &bytes_of(value)?)? {
                false => Ok(()),
                true => Err(not_implemented("a description has all partitions at once")),
            },
            OptionStatement::Progress | OptionStatement::MaxProgress => {
                Err(not_implemented(format!("{name} can only be read")))
            }
            _ if OF_STATEMENTS.contains(&name) => self.selection.set(name, value),
            _ => self.session.settings.set(name, value),
        }
    }

    fn get_option_string(&self, option: OptionStatement) -> Result<String> {
        Ok(text(option.as_ref(), &self.option(&option)?)?.to_owned())
    }

    fn get_option_bytes(&self, option: OptionStatement) -> Result<Vec<u8>> {
        self.option(&option)
    }

    fn get_option_int(&self, option: OptionStatement) -> Result<i64> {
        parsed(option.as_ref(), &self.option(&option)?)
    }

    fn get_option_double(&self, option: OptionStatement) -> Result<f64> {
        parsed(option.as_ref(), &self.option(&option)?)
    }
}

fn no_parameters() -> Error {
    not_implemented("queries of libdipc have no parameters")
}
