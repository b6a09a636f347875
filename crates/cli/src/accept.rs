//! `--accept`: takes tables from clients into a directory, and serves them.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use dipc::{
    Batches, Description, Error, Headers, Provider, Request, Result, Server, Status, WeakServer,
};
use parking_lot::Mutex;
use tracing::{info, warn};

use crate::calm;
use crate::columns::are_same;
use crate::lines::Lines;
use crate::output::{io_kind, whole};
use crate::served::{Served, SourceProvider};
use crate::sink::{Sink, Target};
use crate::soundness::ensure_sound;
use crate::source::{ENDINGS, Figures, Reading, Source, batches};
use crate::tables::{Table, Tables};

/// The beginning of the names of files that are being written.
const TEMPORARY: &str = ".dipc-put-";

/// Most bytes of a name. With an ending it is a name for every file system.
const MOST_NAME: usize = 200;

/// Bounds these log lines, because clients can cause any number.
static LINES: Lines = Lines::new();

/// The header that tells a client under which name its table is served.
pub const TICKET_HEADER: &str = "ticket";

/// The format of a table whose name has no ending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Ending {
    /// Arrow file.
    Arrow,
    /// Arrow stream.
    Arrows,
    /// Parquet.
    Parquet,
}

impl Ending {
    const ALL: [Self; 3] = [Self::Arrow, Self::Arrows, Self::Parquet];

    fn text(self) -> &'static str {
        match self {
            Self::Arrow => "arrow",
            Self::Arrows => "arrows",
            Self::Parquet => "parquet",
        }
    }
}

/// The directory, which this process alone fills.
pub struct Folder {
    path: PathBuf,
    /// Locked until the drop, or until the process ends, even if it is killed.
    handle: File,
}

impl Folder {
    /// Locks the directory, and removes the files that a killed server did not complete.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let name = path.display();
        let doing = || format!("cannot take tables into {name}");
        let handle = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                anyhow::bail!("{}: there is no such directory; make it first", doing())
            }
            handle => handle.with_context(doing)?,
        };
        if !handle.metadata().with_context(doing)?.is_dir() {
            anyhow::bail!("{}: it is not a directory", doing());
        }
        match handle.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                anyhow::bail!("{}: another server takes tables into it", doing())
            }
            Err(fs::TryLockError::Error(error)) => return Err(error).with_context(doing),
        }
        for entry in fs::read_dir(path).with_context(doing)? {
            let entry = entry.with_context(doing)?;
            let left = entry
                .file_name()
                .as_encoded_bytes()
                .starts_with(TEMPORARY.as_bytes());
            if left && entry.file_type().with_context(doing)?.is_file() {
                info!(file = %entry.path().display(), "removed: it is not whole");
                fs::remove_file(entry.path()).with_context(doing)?;
            }
        }
        // The test file shows that the folder can be written before the first client comes.
        let trial = tempfile::Builder::new().prefix(TEMPORARY).tempfile_in(path);
        trial.with_context(doing)?;
        // An absolute path: errors for clients have it removed from their texts, and a relative
        // path, such as `.`, could not be found there.
        let path = fs::canonicalize(path).with_context(doing)?;
        Ok(Self { path, handle })
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The files of a table.
    fn files_of(&self, ticket: &str) -> Vec<PathBuf> {
        let paths = ENDINGS.map(|ending| self.path.join(format!("{ticket}.{ending}")));
        // A link to nowhere also occupies the name.
        let there = |path: &PathBuf| fs::symlink_metadata(path).is_ok();
        paths.into_iter().filter(there).collect()
    }
}

/// How tables are taken.
#[derive(Clone, Copy)]
pub struct Rules {
    /// The format of a table whose name has no ending.
    pub ending: Ending,
    /// Whether a table may take the place of another.
    pub replaces: bool,
    /// How the tables are read afterwards.
    pub reading: Reading,
}

/// Takes tables into a directory.
pub struct Accepting {
    folder: Folder,
    rules: Rules,
    server: WeakServer,
    tables: Tables,
    /// Only one table at a time gets its name.
    naming: Mutex<()>,
}

impl Accepting {
    /// Tables are served by `server`, and by Flight as `tables`.
    pub fn new(folder: Folder, rules: Rules, server: &Server, tables: Tables) -> Arc<Self> {
        Arc::new(Self {
            folder,
            rules,
            server: server.downgrade(),
            tables,
            naming: Mutex::new(()),
        })
    }

    /// Most memory of a message in addition to its body, if the command line sets it.
    pub fn message_limit(&self) -> Option<u64> {
        self.rules.reading.message_limit
    }

    /// Begins to write a table of this name.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a name that is not one of a file, `AlreadyExists`, `Unsupported` for
    /// columns that the format lacks, `Provider` for an error of the system.
    pub fn begin(self: &Arc<Self>, name: &[u8], schema: &SchemaRef) -> Result<Incoming> {
        let (ticket, ending) = ticket_of(name)?;
        let path = self.path_for(&ticket, ending)?;
        let failed = |error| self.failed(&path, &error);
        let target = Target::file(path.clone()).map_err(failed)?;
        let sink = || Sink::create_beside(target, schema, TEMPORARY, self.rules.replaces);
        // Any other panic of a writer.
        let mut sink = calm::catch(sink)
            .map_err(|_| changed(&path))?
            .map_err(failed)?;
        sink.growth().bound();
        Ok(Incoming {
            accepting: Arc::clone(self),
            ticket,
            ending,
            path,
            sink,
            schema: SchemaRef::clone(schema),
            rows: 0,
        })
    }

    /// The file for a table, if it may be written.
    fn path_for(&self, ticket: &str, ending: Option<Ending>) -> Result<PathBuf> {
        let refused = |text| Err(Error::new(Status::AlreadyExists, text));
        let own = self.folder.files_of(ticket);
        let ending_text = ending.unwrap_or(self.rules.ending).text();
        let path = self.folder.path.join(format!("{ticket}.{ending_text}"));
        match own.as_slice() {
            [] => self.forget_deleted(ticket),
            [..] if !self.rules.replaces => {
                return refused(format!(
                    "there is a table {ticket:?}, and this server replaces none (dipc serve \
                     --replace does)"
                ));
            }
            // Two files of one table would stop the next start of the server.
            [file] if ending.is_none() || *file == path => return ensure_regular(file),
            [file, ..] => {
                return refused(format!(
                    "the table {ticket:?} is in {}: give its name without an ending, and it is \
                     replaced in its format",
                    file.file_name().unwrap_or_default().display()
                ));
            }
        }
        let served = self.server.upgrade().map(|server| server.tickets());
        if served.is_some_and(|served| served.iter().any(|one| one == ticket.as_bytes())) {
            return refused(format!(
                "{ticket:?} is served from outside the directory for tables, where it stays"
            ));
        }
        Ok(path)
    }

    /// Serves a table of the directory no longer, whose file somebody has deleted.
    fn forget_deleted(&self, ticket: &str) {
        let Some(Table::Source { source, .. }) = self.tables.find(ticket.as_bytes()) else {
            return;
        };
        let is_of_folder = |file: &Path| file.parent() == Some(&self.folder.path);
        if !source.file().is_some_and(is_of_folder) {
            return;
        }
        self.tables.remove(ticket.as_bytes());
        let server = self.server.upgrade();
        if let Some(Err(error)) = server.map(|server| server.withdraw(ticket.as_bytes())) {
            warn!(ticket, reason = %error, "its file is gone, and it is still served");
        }
    }

    /// The error of a file for its client, without paths of the server. An error that is no refusal
    /// is logged.
    fn failed(&self, path: &Path, error: &anyhow::Error) -> Error {
        if let Some(error) = error.downcast_ref::<Error>() {
            return error.clone();
        }
        let text = whole(error);
        let status = match io_kind(error) {
            Some(io::ErrorKind::AlreadyExists) => Status::AlreadyExists,
            _ => {
                LINES.say(|more| warn!(file = %path.display(), reason = text, "not taken{more}"));
                Status::Provider
            }
        };
        let folder = self.folder.path.display().to_string();
        let text = text.replace(&format!("{folder}/"), "");
        Error::new(status, text.replace(&folder, "the directory for tables"))
    }

    /// Serves a table that is whole.
    fn serve(&self, ticket: &str, path: PathBuf, description: Description) {
        let source = Served::new(ticket.as_bytes(), Source::File(path), self.rules.reading);
        let provider = SourceProvider {
            source: source.clone(),
            is_fixed: !self.rules.replaces,
        };
        self.tables.insert(
            ticket.as_bytes().to_vec(),
            Table::Source {
                source,
                rows: description.total_rows(),
            },
        );
        let Some(server) = self.server.upgrade() else {
            return;
        };
        let described = match server.serve(ticket, provider) {
            // The provider of the old table stays, and reads the new file.
            Err(error) if error.status() == Status::AlreadyExists => Ok(()),
            outcome => outcome,
        }
        .and_then(|()| server.set_description(ticket, description));
        if let Err(error) = described {
            // The next start of the server finds the file.
            warn!(ticket, reason = %error, "taken, but not served");
        }
    }
}

/// A table that is being written. Dropped unfinished, it leaves nothing.
pub struct Incoming {
    accepting: Arc<Accepting>,
    ticket: String,
    ending: Option<Ending>,
    path: PathBuf,
    sink: Sink,
    schema: SchemaRef,
    rows: u64,
}

impl Incoming {
    /// The name under which the table will be served.
    pub fn ticket(&self) -> &str {
        &self.ticket
    }

    /// Writes rows. Calls `check` regularly; its error stops the work.
    ///
    /// # Errors
    ///
    /// `Provider`: what the system or the format refuses. `Unsupported`: the file would be many
    /// times larger than what has come.
    pub fn write(&mut self, batch: &RecordBatch, check: &dyn Fn() -> Result<()>) -> Result<()> {
        check()?;
        let sink = &mut self.sink;
        sink.growth().came(batch.get_array_memory_size() as u64);
        let write = || {
            if !sink.is_checking() {
                ensure_sound(batch)?;
            }
            sink.write(batch, check)
        };
        calm::catch(write)
            .map_err(Error::invalid_data)?
            .map_err(|error| self.accepting.failed(&self.path, &error))?;
        self.rows += batch.num_rows() as u64;
        Ok(())
    }

    /// Gives the file its name, and serves the table.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write); `AlreadyExists` if another client was faster.
    pub fn finish(self) -> Result<()> {
        let accepting = self.accepting;
        let reading = accepting.rules.reading;
        let _naming = accepting.naming.lock();
        if accepting.path_for(&self.ticket, self.ending)? != self.path {
            let text = "another table has got the name meanwhile";
            return Err(Error::new(Status::AlreadyExists, text));
        }
        let mut described = None;
        // A file that cannot be read would stop the next start of the server.
        let readable = |path: &Path| {
            let source = Source::File(path.to_path_buf());
            let reader = source.reader(reading).context("it does not read back")?;
            if !are_same(&reader.schema(), &self.schema) {
                return Err(changed(&self.path).into());
            }
            let figures = Figures {
                rows: Some(self.rows),
                ..source.figures(reading)?
            };
            described = Some(figures.describe(&self.schema)?);
            Ok(())
        };
        let sink = self.sink;
        calm::catch(|| sink.finish_if(readable))
            .map_err(Error::invalid_data)?
            .map_err(|error| accepting.failed(&self.path, &error))?;
        // The file has its name already, so an error here is no failure of the table: not every
        // file system can do this.
        if let Err(error) = accepting.folder.handle.sync_all() {
            warn!(reason = %error, "the name may not outlive a failure of the machine");
        }
        info!(ticket = self.ticket, rows = self.rows, "taken");
        accepting.serve(&self.ticket, self.path, described.unwrap_or_default());
        Ok(())
    }
}

/// The table's name, and the format that its ending names.
fn ticket_of(name: &[u8]) -> Result<(String, Option<Ending>)> {
    let refused = |why: &str| {
        let name = String::from_utf8_lossy(name);
        let name: String = name.chars().take(MOST_NAME).collect();
        Error::invalid_argument(format!("{name:?} is no name for a table here: {why}"))
    };
    let text = std::str::from_utf8(name).map_err(|_| refused("it is not UTF-8"))?;
    let ending = Ending::ALL.into_iter().find_map(|ending| {
        let stem = text.strip_suffix(ending.text())?.strip_suffix('.')?;
        Some((stem, ending))
    });
    let (ticket, ending) = match ending {
        Some((stem, ending)) => (stem, Some(ending)),
        None => (text, None),
    };
    let why = if ticket.is_empty() {
        "it is empty"
    } else if ticket.starts_with('.') {
        "it begins with a dot"
    } else if ticket.contains('/') {
        "it has a slash"
    } else if ticket.contains(char::is_control) {
        "it has a control character"
    } else if ticket.len() > MOST_NAME {
        "it is longer than 200 bytes"
    } else {
        return Ok((ticket.to_owned(), ending));
    };
    Err(refused(why))
}

/// A link or a directory is not replaced.
fn ensure_regular(path: &Path) -> Result<PathBuf> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.is_file() => Err(Error::new(
            Status::AlreadyExists,
            format!(
                "{} is no regular file",
                path.file_name().unwrap_or_default().display()
            ),
        )),
        _ => Ok(path.to_path_buf()),
    }
}

/// Not every format has every type of Arrow.
fn changed(path: &Path) -> Error {
    Error::unsupported(format!(
        "{} cannot hold the types of these columns: give the table a name that ends in .arrow or \
         .arrows",
        path.file_name().unwrap_or_default().display()
    ))
}

/// Ends the work for a client that has gone, or whose time is over.
fn ensure_wanted(request: &Request<'_>) -> Result<()> {
    if request.is_cancelled() {
        return Err(Error::cancelled("the client has gone, or has cancelled"));
    }
    match request.time_left() {
        Some(left) if left.is_zero() => Err(Error::timeout(
            "the table was not written within the client's deadline",
        )),
        _ => Ok(()),
    }
}

/// Takes the tables of libdipc's clients. The answer to an exchange is the table as it is served
/// from then on.
pub struct Taker(pub Arc<Accepting>);

impl Taker {
    /// Takes the table of a request. The result is its ticket here.
    fn receive(&self, request: &Request<'_>) -> Result<String> {
        let mut incoming = (self.0).begin(request.ticket(), &request.table_schema()?)?;
        let ticket = incoming.ticket().to_owned();
        let mut answer = Headers::new();
        answer.add(TICKET_HEADER, ticket.as_str())?;
        request.add_headers(&answer)?;
        let mut table = request.take_table()?;
        while let Some(batch) = table.next_batch()? {
            incoming.write(&batch, &|| ensure_wanted(request))?;
        }
        incoming.finish()?;
        Ok(ticket)
    }
}

impl Provider for Taker {
    fn get(&self, request: &Request<'_>) -> Result<Batches> {
        Err(unknown(request))
    }

    fn take_put(&self, request: &Request<'_>) -> Result<()> {
        self.receive(request).map(drop)
    }

    fn take_exchange(&self, request: &Request<'_>) -> Result<Batches> {
        let ticket = self.receive(request)?;
        let table = self.0.tables.find(ticket.as_bytes());
        let gone = || Error::new(Status::NotFound, "the table has gone meanwhile");
        let reader = table.ok_or_else(gone)?.reader();
        reader
            .map(batches)
            .map_err(|error| Error::new(Status::Provider, whole(&error)))
    }

    fn describe(&self, request: &Request<'_>) -> Result<Description> {
        Err(unknown(request))
    }
}

/// The server asks its handler only about tickets that it does not serve itself.
fn unknown(request: &Request<'_>) -> Error {
    let ticket = String::from_utf8_lossy(request.ticket());
    let text = format!("the server has no ticket {ticket:?}");
    Error::new(Status::NotFound, text)
}

#[cfg(test)]
#[path = "accept_tests.rs"]
mod tests;
