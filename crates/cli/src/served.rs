//! Tables as clients know them: by their tickets. The files stay the operator's.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use dipc::{Batches, Error, Provider, Request, Status};
use tracing::warn;

use crate::lines::Lines;
use crate::output::whole;
use crate::source::{Reader, Reading, Source, batches};

/// Most characters of a ticket in an error.
const TICKET_CHARS: usize = 200;

/// A source that is read for clients. Its errors name the ticket; the log has the file with the
/// cause.
#[derive(Debug, Clone)]
pub struct Served {
    /// What errors call the table.
    name: Arc<str>,
    source: Source,
    reading: Reading,
    /// Bounds the log lines that clients cause. Each table has its own bound, so that no table
    /// hides the fault of another.
    lines: Arc<Lines>,
}

impl Served {
    /// The table of a ticket.
    pub fn new(ticket: &[u8], source: Source, reading: Reading) -> Self {
        let ticket: String = (String::from_utf8_lossy(ticket).chars())
            .take(TICKET_CHARS)
            .collect();
        Self {
            name: format!("the table {ticket:?}").into(),
            source,
            reading,
            lines: Arc::default(),
        }
    }

    /// The file that it is read from, if it is one.
    pub fn file(&self) -> Option<&Path> {
        match &self.source {
            Source::File(path) => Some(path),
            Source::Tpch { .. } => None,
        }
    }

    /// Reads the table from its start.
    ///
    /// # Errors
    ///
    /// Those of the file, now and while it is read, without its path.
    pub fn reader(&self) -> Result<Reader> {
        let inner = self.source.reader_as(&self.name, self.reading);
        let inner = inner.inspect_err(|error| self.warn(&whole(error)))?;
        let (served, schema) = (self.clone(), inner.schema());
        let batches =
            inner.map(move |next| next.inspect_err(|error| served.warn(&error.to_string())));
        Ok(Reader::new(schema, batches))
    }

    fn warn(&self, reason: &str) {
        let file = &self.source;
        (self.lines).say(|more| warn!(%file, reason, "a table cannot be read{more}"));
    }
}

/// A provider that opens its source anew for each stream.
pub struct SourceProvider {
    pub source: Served,
    /// Whether the source stays as it is.
    pub is_fixed: bool,
}

impl Provider for SourceProvider {
    fn get(&self, _: &Request<'_>) -> dipc::Result<Batches> {
        let reader = self.source.reader();
        let reader = reader.map_err(|error| Error::new(Status::Provider, whole(&error)))?;
        Ok(batches(reader))
    }

    /// Files must not change while they are served, except by `--replace`.
    fn is_deterministic(&self) -> bool {
        self.is_fixed
    }
}
