//! Bulk ingestion: a put of the bound record batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use adbc_core::error::{Error, Result, Status};
use adbc_core::options::{IngestMode, OptionStatement, OptionValue};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatchReader;
use dipc::{Batches, Cancel};

use crate::error::{OrAdbc as _, guarded, invalid, invalid_state, not_found, not_implemented};
use crate::session::Session;
use crate::values::{bytes_of, flag, text};

/// The header of a put that tells the server's host what to do if the table exists already.
const MODE: &str = "adbc.ingest.mode";

/// Where bound data goes.
#[derive(Default)]
pub(crate) struct Target {
    /// The name of the table, from which the ticket is made.
    pub(crate) table: Option<String>,
    mode: Option<IngestMode>,
}

impl Target {
    /// Sets an option of ingestion.
    pub(crate) fn set(&mut self, option: &OptionStatement, value: OptionValue) -> Result<()> {
        let name = option.as_ref();
        let value = bytes_of(value)?;
        match option {
            OptionStatement::TargetTable => match text(name, &value)? {
                "" => return Err(invalid(format!("{name} is empty: name the table"))),
                table => self.table = Some(table.to_owned()),
            },
            OptionStatement::IngestMode => self.mode = Some(text(name, &value)?.parse()?),
            OptionStatement::Temporary if flag(name, &value)? => {
                return Err(not_implemented("libdipc has no temporary tables"));
            }
            OptionStatement::TargetCatalog | OptionStatement::TargetDbSchema
                if !value.is_empty() =>
            {
                let text = format!("{name}: a server of libdipc has no catalogs and no schemas");
                return Err(not_implemented(text));
            }
            _ => {}
        }
        Ok(())
    }

    /// What an option of ingestion was set to.
    pub(crate) fn get(&self, option: &OptionStatement) -> Result<String> {
        let value = match option {
            OptionStatement::TargetTable => self.table.clone(),
            OptionStatement::IngestMode => Some(self.mode().into()),
            OptionStatement::Temporary => Some("false".to_owned()),
            _ => None,
        };
        value.ok_or_else(|| not_found(format!("the option {:?} is not set", option.as_ref())))
    }

    fn mode(&self) -> IngestMode {
        // The default that ADBC defines.
        self.mode.unwrap_or(IngestMode::Create)
    }

    /// Sends the data to the server as the table, and waits until its host has taken all. Gives the
    /// rows.
    ///
    /// # Errors
    ///
    /// `NotImplemented`: the server's host does not follow the mode. `AlreadyExists`: there is such
    /// a table. The errors of a put.
    pub(crate) fn ingest(
        &self,
        table: &str,
        data: Box<dyn RecordBatchReader + Send>,
        (session, token): (&Session, &Arc<Cancel>),
    ) -> Result<i64> {
        if session.is_read_only {
            return Err(invalid_state(
                "the connection is read-only: it puts no tables",
            ));
        }
        let mode = self.mode();
        let word = word_of(mode);
        if !session.settings.ingest_modes()?.contains(&word) {
            return Err(not_implemented(format!(
                "nothing says that the server follows the mode {word:?} of ingestion; if it does, \
                 add it to the option dipc.ingest.modes"
            )));
        }
        // The server may replace tables.
        if mode == IngestMode::Create && session.describe(table.as_bytes(), token)?.is_some() {
            let text = format!("the server has a table {table:?}");
            return Err(Error::with_message_and_status(text, Status::AlreadyExists));
        }
        let rows = Arc::new(AtomicI64::new(0));
        let data = Counted {
            data,
            rows: Arc::clone(&rows),
        };
        let options = session.settings.put_options()?.cancel(token);
        let options = options.header(MODE, word).or_adbc()?;
        let batches = Batches::from_reader(data);
        let client = &session.client;
        guarded(|| client.put_with(&session.uri, table, batches, &options)).or_adbc()?;
        Ok(rows.load(Ordering::Relaxed))
    }
}

fn word_of(mode: IngestMode) -> &'static str {
    match mode {
        IngestMode::Create => "create",
        IngestMode::Append => "append",
        IngestMode::Replace => "replace",
        IngestMode::CreateAppend => "create_append",
    }
}

/// Record batches on their way out, and how many rows they had.
struct Counted {
    data: Box<dyn RecordBatchReader + Send>,
    rows: Arc<AtomicI64>,
}

impl Iterator for Counted {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.data.next()?;
        if let Ok(batch) = &next {
            let rows = i64::try_from(batch.num_rows()).unwrap_or(i64::MAX);
            self.rows.fetch_add(rows, Ordering::Relaxed);
        }
        Some(next)
    }
}

impl RecordBatchReader for Counted {
    fn schema(&self) -> SchemaRef {
        self.data.schema()
    }
}
