//! The source of a table: a file, whose content shows its format, or the TPC-H generator.
//!
//! Each stream opens the source anew, so that many clients can read it at once, each at its own
//! pace.

pub mod coarse;
mod expansion;
mod figures;
mod file;
mod footer;
mod messages;
mod pages;
mod reader;
mod room;
mod row_groups;
mod stream;
mod thrift;
pub mod tpch;

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::iter;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use arrow::error::ArrowError;
use dipc::Description;

use crate::calm;
use file::FileReader;
use reader::DEFAULT_BATCH_ROWS;
use row_groups::ParquetReader;
use stream::StreamReader;
use tpch::Table;

pub use figures::Figures;
pub use reader::{Metadata, Reader, Reading, batches};

/// Endings of the files of a directory that are served.
pub const ENDINGS: [&str; 4] = ["parquet", "arrow", "arrows", "feather"];

/// The format of a file, by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Apache Parquet.
    Parquet,
    /// The Arrow IPC file format.
    ArrowFile,
    /// The Arrow IPC streaming format.
    ArrowStream,
}

/// A table that can be read any number of times.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// A file, opened anew each time.
    File(PathBuf),
    /// A TPC-H table, generated anew each time.
    Tpch {
        /// The table.
        table: Table,
        /// The scale factor.
        scale: f64,
    },
}

impl Source {
    /// Reads `tpch:TABLE[:SCALE]` as a generated table, and any other text as the path of a file.
    /// Write `./tpch:…` for a file with such a name.
    pub fn parse(spec: &str) -> Result<Self> {
        let Some(rest) = spec.strip_prefix("tpch:") else {
            return Ok(Self::File(PathBuf::from(spec)));
        };
        let (name, scale) = rest.split_once(':').unwrap_or((rest, "1"));
        let table = <Table as clap::ValueEnum>::from_str(name, false).map_err(|_| {
            anyhow!(
                "{name:?} is not a TPC-H table; the tables are {}",
                table_names()
            )
        })?;
        Ok(Self::Tpch {
            table,
            scale: tpch::parse_scale(scale)?,
        })
    }

    /// Opens the table.
    pub fn reader(&self, reading: Reading) -> Result<Reader> {
        self.reader_as(&self.to_string(), reading)
    }

    /// Opens the table. Errors, also those of the reader, call it `name` in place of its path.
    pub fn reader_as(&self, name: &str, reading: Reading) -> Result<Reader> {
        match self {
            Self::Tpch { table, scale } => {
                let rows = reading.batch_rows.unwrap_or(DEFAULT_BATCH_ROWS);
                Ok(table.reader(*scale, rows))
            }
            Self::File(path) => open_file(path, name, reading),
        }
    }

    /// What is known of the table before it is read.
    pub fn describe(&self, reading: Reading) -> Result<Description> {
        let figures = self.figures(reading)?;
        let schema = self.reader(reading)?.schema();
        Ok(figures.describe(&schema)?)
    }

    /// The size, if the file tells it without its values.
    pub fn figures(&self, reading: Reading) -> Result<Figures> {
        let Some((mut file, len, format)) = self.opened()? else {
            return Ok(Figures::default());
        };
        match format {
            Format::Parquet => Ok(Figures {
                rows: Some(row_groups::rows(&mut file, len)?),
                ..Figures::default()
            }),
            Format::ArrowFile => {
                file::figures(file, len, reading.batch_rows).with_context(|| self.to_string())
            }
            Format::ArrowStream => {
                stream::figures(file, len, reading.batch_rows).with_context(|| self.to_string())
            }
        }
    }

    /// Checks the messages of an Arrow stream up to its end. Other files have a footer, so for them
    /// opening is enough.
    pub fn ensure_whole(&self) -> Result<()> {
        if let Some((file, len, Format::ArrowStream)) = self.opened()? {
            stream::figures(file, len, None).with_context(|| self.to_string())?;
        }
        Ok(())
    }

    /// The file, its length and its format; `None`: it is generated.
    fn opened(&self) -> Result<Option<(File, u64, Format)>> {
        let Self::File(path) = self else {
            return Ok(None);
        };
        let mut file = File::open(path).with_context(|| format!("cannot open {self}"))?;
        let len = file.metadata()?.len();
        let format = detect(&mut file, len)?;
        Ok(Some((file, len, format)))
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Tpch { table, scale } => write!(f, "tpch:{table}:{scale}"),
        }
    }
}

fn table_names() -> String {
    let names: Vec<_> = <Table as clap::ValueEnum>::value_variants()
        .iter()
        .map(|table| table.name())
        .collect();
    names.join(", ")
}

fn open_file(path: &Path, name: &str, reading: Reading) -> Result<Reader> {
    let metadata = fs::metadata(path).with_context(|| format!("cannot open {name}"))?;
    if metadata.is_dir() {
        bail!("{name} is a directory; name the files in it one by one");
    }
    if !metadata.is_file() {
        // Every stream reads from the start, and a pipe can be read only once.
        bail!("{name} is not a regular file; write its content to a file first");
    }
    let mut file = File::open(path).with_context(|| format!("cannot open {name}"))?;
    // Another file may have taken the name meanwhile.
    let len = file.metadata()?.len();
    let format = detect(&mut file, len).with_context(|| name.to_owned())?;
    let damaged = || format!("{name} begins as {} but cannot be read", format.describe());
    // The readers of Arrow's crates panic on some damaged files instead of failing.
    let inner = calm::catch(|| open_as(file, len, format, reading))
        .map_err(|text| anyhow!(text))
        .and_then(|opened| opened)
        .with_context(damaged)?;
    Ok(guarded(name.to_owned(), inner, reading))
}

/// An Arrow stream on stdin.
pub fn stdin_reader(reading: Reading) -> Result<Reader> {
    const NAME: &str = "stdin";
    let stdin = std::io::stdin().as_fd().try_clone_to_owned();
    let file = File::from(stdin.context("cannot read stdin")?);
    let inner = StreamReader::open_pipe(file, reading.message_limit).context(NAME)?;
    Ok(guarded(NAME.to_owned(), inner, reading))
}

fn open_as(file: File, len: u64, format: Format, reading: Reading) -> Result<Reader> {
    match format {
        Format::Parquet => ParquetReader::open(file, len, reading),
        Format::ArrowFile => Ok(FileReader::open(file, len, reading.message_limit)?),
        Format::ArrowStream => Ok(StreamReader::open(file, len, reading.message_limit)?),
    }
}

impl Format {
    fn describe(self) -> &'static str {
        match self {
            Self::Parquet => "a Parquet file",
            Self::ArrowFile => "an Arrow file",
            Self::ArrowStream => "an Arrow stream",
        }
    }
}

/// The largest schema message accepted in a stream from before Arrow 0.15, which begins with only
/// its length.
const MAX_LEGACY_SCHEMA: u64 = 16 << 20;

/// Finds the format by the first bytes, and leaves the file at its start.
fn detect(file: &mut File, len: u64) -> Result<Format> {
    const TAKEN: &str = "dipc serves Parquet, Arrow file and Arrow stream files";
    let mut head = Vec::with_capacity(512);
    file.take(512).read_to_end(&mut head)?;
    file.seek(SeekFrom::Start(0))?;
    if head.is_empty() {
        bail!("the file is empty; {TAKEN}");
    }
    let word = |at: usize| -> Option<u32> {
        head.get(at..at + 4)
            .and_then(|bytes| bytes.try_into().ok())
            .map(u32::from_le_bytes)
    };
    match head.as_slice() {
        [b'P', b'A', b'R', b'1', ..] => return Ok(Format::Parquet),
        [b'P', b'A', b'R', b'E', ..] => {
            bail!("encrypted Parquet cannot be read; decrypt the file first")
        }
        [b'A', b'R', b'R', b'O', b'W', b'1', ..] => return Ok(Format::ArrowFile),
        [0xff, 0xff, 0xff, 0xff, ..] => return Ok(Format::ArrowStream),
        [b'F', b'E', b'A', b'1', ..] => {
            bail!("this is Feather version 1, which is not Arrow IPC; write it anew as version 2")
        }
        [b'O', b'R', b'C', ..] => bail!("this is an ORC file; {TAKEN}"),
        [0x1f, 0x8b, ..] | [0x28, 0xb5, 0x2f, 0xfd, ..] | [b'P', b'K', 3, 4, ..] => {
            bail!("the file is compressed as a whole; unpack it first")
        }
        _ => {}
    }
    let text = match std::str::from_utf8(&head) {
        Ok(text) => Some(text),
        // The 512 bytes may end inside a character.
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&head[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    };
    let is_text = |text: &str| {
        text.chars()
            .all(|c| !c.is_control() || matches!(c, '\n' | '\r' | '\t' | '\u{c}'))
    };
    if text.is_some_and(is_text) {
        bail!("this is text (CSV or JSON?), which has no types; {TAKEN}: convert it first");
    }
    // A stream without the continuation marker: the length of the schema message, then a
    // flatbuffer, which starts with the offset of its root table.
    if let (Some(message), Some(root)) = (word(0), word(4)) {
        let message = u64::from(message);
        if (8..=MAX_LEGACY_SCHEMA).contains(&message)
            && message <= len
            && message % 4 == 0
            && u64::from(root) < message
        {
            return Ok(Format::ArrowStream);
        }
    }
    bail!("the first bytes are of no format known here; {TAKEN}")
}

/// The same table, read with care. Its name, which need not be its path, precedes every error.
/// Panics of the reader become errors, and larger batches than wanted are sliced.
fn guarded(name: String, inner: Reader, reading: Reading) -> Reader {
    let schema = inner.schema();
    let mut inner = Some(inner);
    let mut next = move || {
        let cause = match calm::catch(|| inner.as_mut()?.next()) {
            Ok(Some(Err(ArrowError::ExternalError(cause)))) => cause.to_string(),
            Ok(Some(Err(error))) => error.to_string(),
            Ok(Some(Ok(batch))) => return Some(Ok(batch)),
            Ok(None) => return None,
            Err(panic) => panic,
        };
        // A damaged reader is not used again.
        inner = None;
        Some(Err(ArrowError::ExternalError(
            format!("{name}: {cause}").into(),
        )))
    };
    let most = reading.batch_rows.unwrap_or(usize::MAX);
    let mut rest = None;
    let batches = iter::from_fn(move || {
        let (batch, metadata) = match rest.take().map_or_else(&mut next, |rest| Some(Ok(rest)))? {
            Ok(batch) => batch,
            failed => return Some(failed),
        };
        let left = batch.num_rows().saturating_sub(most);
        if left == 0 {
            return Some(Ok((batch, metadata)));
        }
        rest = Some((batch.slice(most, left), metadata.clone()));
        Some(Ok((batch.slice(0, most), metadata)))
    });
    Reader::new(schema, batches)
}

#[cfg(test)]
mod arrow_tests;
#[cfg(test)]
mod bomb_tests;
#[cfg(test)]
mod parquet_tests;
#[cfg(test)]
mod tests;
