//! Writes a fetched table to a file or to stdout. A file appears whole under its name, or not at
//! all.

mod durations;
mod parquet;
mod types;

use std::fmt;
use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use arrow::csv;
use arrow::datatypes::Schema;
use arrow::ipc::writer::{FileWriter, StreamWriter};
use arrow::record_batch::RecordBatch;
use dipc::Error;
use tempfile::{NamedTempFile, TempPath};

use crate::growth::Growth;
use crate::lengths::{ensure_writable, pieces};
use crate::soundness::ensure_sound;
use crate::{calm, display, output};

use durations::ensure_written;
use parquet::ParquetWriter;
use types::Narrow;

/// A path, whose ending names the format: `.arrow`, `.arrows`, `.parquet` or `.csv`; or `-`, an
/// Arrow stream on stdout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    path: PathBuf,
    format: OutputFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutputFormat {
    Stdout,
    File,
    Stream,
    Parquet,
    Csv,
}

impl OutputFormat {
    /// Checks the types of the columns; Arrow's own formats have all.
    fn ensure_holds(self, schema: &Schema) -> dipc::Result<()> {
        match self {
            Self::Stdout | Self::File | Self::Stream => Ok(()),
            Self::Parquet => Narrow::Parquet.ensure_holds(schema),
            Self::Csv => Narrow::Csv.ensure_holds(schema),
        }
    }
}

impl Target {
    /// Reads the ending of `path`.
    pub fn parse(path: &str) -> Result<Self> {
        if path == "-" {
            let (path, format) = (PathBuf::from(path), OutputFormat::Stdout);
            return Ok(Self { path, format });
        }
        Self::file(PathBuf::from(path))
    }

    /// A file, by the ending of `path`.
    pub fn file(path: PathBuf) -> Result<Self> {
        let format = match path.extension().and_then(|ending| ending.to_str()) {
            Some("arrow") => OutputFormat::File,
            Some("arrows") => OutputFormat::Stream,
            Some("parquet") => OutputFormat::Parquet,
            Some("csv") => OutputFormat::Csv,
            _ => bail!(
                "{} ends in none of .arrow (Arrow file), .arrows (Arrow stream), .parquet and .csv",
                path.display()
            ),
        };
        Ok(Self { path, format })
    }

    /// Whether the table goes to stdout.
    pub fn is_stdout(&self) -> bool {
        self.format == OutputFormat::Stdout
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_stdout() {
            true => write!(f, "stdout"),
            false => write!(f, "{}", self.path.display()),
        }
    }
}

type Output = BufWriter<File>;

enum Writer {
    File(Box<FileWriter<Output>>),
    Stream(Box<StreamWriter<Output>>),
    Parquet(Box<ParquetWriter>),
    Csv(Box<csv::Writer<Output>>),
}

/// Where the bytes go.
enum Place {
    Stdout,
    /// A file with a temporary name in the same folder.
    File {
        temporary: TempPath,
        /// Its name in the end.
        path: PathBuf,
        /// Whether it may take the place of another file.
        replaces: bool,
    },
}

impl Place {
    /// Explains an error of a write.
    fn refused(&self, error: anyhow::Error) -> anyhow::Error {
        match self {
            Self::Stdout => output::refused(error),
            Self::File { path, .. } => {
                plain(error).context(format!("cannot write {}", path.display()))
            }
        }
    }
}

/// What the libraries of formats put before the system's error text.
const PREFIXES: [&str; 3] = ["External: ", "Io error: ", "Csv error: "];

/// An error of a write, with only the system's text.
fn plain(error: anyhow::Error) -> anyhow::Error {
    let text = output::whole(&error);
    let plain = PREFIXES.iter().find_map(|prefix| text.strip_prefix(prefix));
    match (plain, output::io_kind(&error)) {
        (None, _) => error,
        (Some(plain), Some(kind)) => io::Error::new(kind, plain).into(),
        (Some(plain), None) => anyhow::Error::msg(plain.to_owned()),
    }
}

/// A table being written. Dropping it before [`Sink::finish`] removes the file.
pub struct Sink {
    writer: Writer,
    place: Place,
    growth: Growth,
}

impl Sink {
    /// Begins to write a table with these columns, if the format can hold them.
    pub fn create(target: &Target, schema: &Schema) -> Result<Self> {
        target.format.ensure_holds(schema)?;
        let (file, place) = if target.is_stdout() {
            // Not the standard library's stdout, which looks for line ends.
            let file = io::stdout().as_fd().try_clone_to_owned();
            (
                file.context("cannot write to stdout")?.into(),
                Place::Stdout,
            )
        } else {
            let path = final_path(&target.path)?;
            let (file, temporary) = temporary_beside(&path, TEMPORARY)?;
            let place = Place::File {
                temporary,
                path,
                replaces: true,
            };
            (file, place)
        };
        Self::open(target.format, file, place, schema)
    }

    /// The same for a file whose temporary name begins with `prefix`. Follows no link, and takes
    /// the place of another file only if `replaces`.
    pub fn create_beside(
        target: Target,
        schema: &Schema,
        prefix: &str,
        replaces: bool,
    ) -> Result<Self> {
        target.format.ensure_holds(schema)?;
        let (file, temporary) = temporary_beside(&target.path, prefix)?;
        let place = Place::File {
            temporary,
            path: target.path,
            replaces,
        };
        Self::open(target.format, file, place, schema)
    }

    fn open(format: OutputFormat, file: File, place: Place, schema: &Schema) -> Result<Self> {
        let output = BufWriter::with_capacity(1 << 20, file);
        let writer = open(format, output, schema).map_err(|error| place.refused(error))?;
        Ok(Self {
            writer,
            place,
            growth: Growth::default(),
        })
    }

    /// The bound of a Parquet file. Files of other formats grow only with the data that is written.
    pub fn growth(&mut self) -> &mut Growth {
        &mut self.growth
    }

    /// Writes rows. Calls `check` regularly; its error stops the work.
    ///
    /// Fails with [`output::Closed`] if the reader of stdout has gone.
    pub fn write(
        &mut self,
        batch: &RecordBatch,
        check: &dyn Fn() -> dipc::Result<()>,
    ) -> Result<()> {
        match &mut self.writer {
            Writer::File(writer) => writer.write(batch).map_err(|error| {
                if error.to_string().contains("Dictionary replacement") {
                    Error::unsupported(format!(
                        "{error}; an Arrow file cannot replace a dictionary, an Arrow stream \
                         (.arrows) can"
                    ))
                    .into()
                } else {
                    anyhow::Error::from(error)
                }
            }),
            Writer::Stream(writer) => writer.write(batch).map_err(anyhow::Error::from),
            Writer::Parquet(writer) => write_pieces(batch, check, |piece| {
                writer.write(piece)?;
                self.growth.ensure(writer.bytes())
            }),
            Writer::Csv(writer) => write_pieces(batch, check, |piece| write_csv(writer, piece)),
        }
        .map_err(|error| self.place.refused(error))
    }

    /// Whether [`write`](Self::write) checks every value, as writers do that follow them.
    pub fn is_checking(&self) -> bool {
        matches!(self.writer, Writer::Parquet(_) | Writer::Csv(_))
    }

    /// Completes the table; a file gets its name.
    ///
    /// Fails like [`Sink::write`].
    pub fn finish(self) -> Result<()> {
        self.finish_if(|_| Ok(()))
    }

    /// The same, if `check` of the whole file under its temporary name succeeds.
    pub fn finish_if(self, check: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        let file = close(self.writer).map_err(|error| self.place.refused(error))?;
        let Place::File {
            temporary,
            path,
            replaces,
        } = self.place
        else {
            return Ok(());
        };
        let doing = || format!("cannot write {}", path.display());
        // The bytes reach the disk before the name appears, even if the machine fails.
        file.sync_all().with_context(doing)?;
        check(&temporary)?;
        let named = match replaces {
            true => temporary.persist(&path),
            false => temporary.persist_noclobber(&path),
        };
        named.map_err(|error| error.error).with_context(doing)
    }
}

/// This format writes every value out, which is impossible for endless columns.
fn write_pieces(
    batch: &RecordBatch,
    check: &dyn Fn() -> dipc::Result<()>,
    mut write: impl FnMut(&RecordBatch) -> Result<()>,
) -> Result<()> {
    ensure_writable(batch)?;
    for piece in pieces(batch) {
        ensure_sound(&piece)?;
        write(&piece)?;
        check()?;
    }
    Ok(())
}

/// Writes rows as text. A value may make Arrow's formatter panic.
fn write_csv(writer: &mut csv::Writer<Output>, batch: &RecordBatch) -> Result<()> {
    ensure_written(batch)?;
    let batch = display::with_known_zones(batch);
    calm::catch(|| writer.write(&batch)).map_err(anyhow::Error::msg)??;
    Ok(())
}

/// The beginning of temporary names.
const TEMPORARY: &str = ".dipc-";

/// Makes a file with a temporary name in the folder of `path`.
fn temporary_beside(path: &Path, prefix: &str) -> Result<(File, TempPath)> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let file = tempfile::Builder::new()
        .prefix(prefix)
        // The usual mode of new files; the umask applies.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder)
        .map_err(|error| {
            let doing = format!("cannot write in {}", folder.display());
            match error.kind() {
                io::ErrorKind::NotFound => {
                    anyhow!("{doing}: there is no such directory; make it first")
                }
                // The error has the whole path, too.
                kind => anyhow::Error::from(io::Error::from(kind)).context(doing),
            }
        })?;
    Ok(NamedTempFile::into_parts(file))
}

fn open(format: OutputFormat, output: Output, schema: &Schema) -> Result<Writer> {
    Ok(match format {
        OutputFormat::File => Writer::File(Box::new(FileWriter::try_new(output, schema)?)),
        OutputFormat::Stream | OutputFormat::Stdout => {
            Writer::Stream(Box::new(StreamWriter::try_new(output, schema)?))
        }
        OutputFormat::Parquet => Writer::Parquet(Box::new(ParquetWriter::new(output, schema)?)),
        OutputFormat::Csv => {
            let mut writer = csv::Writer::new(output);
            // The names of the columns, also of a table without batches.
            write_csv(
                &mut writer,
                &RecordBatch::new_empty(Arc::new(schema.clone())),
            )?;
            Writer::Csv(Box::new(writer))
        }
    })
}

fn close(writer: Writer) -> Result<File> {
    let mut output = match writer {
        Writer::File(mut writer) => {
            writer.finish()?;
            writer.into_inner()?
        }
        Writer::Stream(mut writer) => {
            writer.finish()?;
            writer.into_inner()?
        }
        Writer::Parquet(writer) => writer.close()?,
        Writer::Csv(writer) => writer.into_inner(),
    };
    output.flush()?;
    output
        .into_inner()
        .map_err(|error| anyhow::Error::from(error.into_error()))
}

/// The final path: symbolic links are followed, so that they stay. A path that is no regular file,
/// such as /dev/null, is never replaced.
fn final_path(path: &Path) -> Result<PathBuf> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => {
            fs::canonicalize(path).with_context(|| format!("cannot write {}", path.display()))
        }
        Ok(_) => bail!(
            "cannot write {}: it is there and is not a regular file",
            path.display()
        ),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(path.to_path_buf()),
        Err(error) => Err(error).with_context(|| format!("cannot write {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use arrow::array::{ArrayRef, Int32Array, ListArray, StringViewArray, TimestampSecondArray};
    use arrow::datatypes::Int32Type;

    use super::*;
    use crate::source::{Reading, Source};

    fn batch() -> RecordBatch {
        let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(0..10));
        let words: ArrayRef = Arc::new(StringViewArray::from(vec![Some("w"); 10]));
        RecordBatch::try_from_iter_with_nullable([("number", numbers, true), ("word", words, true)])
            .unwrap()
    }

    /// Promise of `--output`: CSV has a line of names and a line for each row, also of a table
    /// without rows; a null is an empty field; times of every zone are in UTC. Values within values
    /// are refused with a remedy.
    #[test]
    fn csv_has_a_line_for_each_row() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        let target = Target::parse(path.to_str().unwrap()).unwrap();
        let write = |batch: &RecordBatch| {
            let mut sink = Sink::create(&target, &batch.schema())?;
            sink.write(batch, &|| Ok(()))?;
            sink.finish()?;
            Ok(fs::read_to_string(&path)?)
        };
        let words = StringViewArray::from(vec![Some("a,\"b\""), None]);
        let times = TimestampSecondArray::from(vec![0, 1]).with_timezone("Mars/X");
        let columns: [(&str, ArrayRef); 2] = [("w", Arc::new(words)), ("t", Arc::new(times))];
        let batch = RecordBatch::try_from_iter_with_nullable(
            columns.map(|(name, column)| (name, column, true)),
        );
        let batch = batch.unwrap();
        let written: Result<String> = write(&batch);
        assert_eq!(
            written.unwrap(),
            "w,t\n\"a,\"\"b\"\"\",1970-01-01T00:00:00Z\n,1970-01-01T00:00:01Z\n"
        );
        assert_eq!(write(&batch.slice(0, 0)).unwrap(), "w,t\n");
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1)])]);
        let nested = RecordBatch::try_from_iter([("l", Arc::new(lists) as ArrayRef)]).unwrap();
        let refused = format!("{:#}", write(&nested).unwrap_err());
        assert!(
            refused.contains("\"l\"") && refused.contains("--columns"),
            "{refused}"
        );
        let far = TimestampSecondArray::from(vec![i64::MAX]);
        let far = RecordBatch::try_from_iter([("t", Arc::new(far) as ArrayRef)]).unwrap();
        assert!(write(&far).is_err());
        assert_eq!(names(folder.path()).len(), 1);
    }

    fn write(path: &Path) -> Result<()> {
        let target = Target::parse(path.to_str().unwrap())?;
        let mut sink = Sink::create(&target, &batch().schema())?;
        sink.write(&batch().slice(0, 4), &|| Ok(()))?;
        sink.write(&batch().slice(4, 6), &|| Ok(()))?;
        sink.finish()
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    /// Promise of `--output`: a table written in each format reads back equal, and replaces an old
    /// file, through a link.
    #[test]
    fn every_format_reads_back() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["t.arrow", "t.arrows", "t.parquet"] {
            let path = folder.path().join(name);
            write(&path).unwrap();
            let link = folder.path().join(format!("link-{name}"));
            symlink(&path, &link).unwrap();
            write(&link).unwrap();
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
            let reader = Source::File(path).reader(Reading::default()).unwrap();
            let schema = reader.schema();
            let batches = reader.batches().unwrap();
            let back = arrow::compute::concat_batches(&schema, &batches).unwrap();
            assert_eq!(back.columns(), batch().columns(), "{name}");
        }
        assert_eq!(names(folder.path()).len(), 6);
    }

    /// Promise of `--output`: an unfinished file is removed.
    #[test]
    fn an_unfinished_file_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let target = Target::parse(folder.path().join("t.arrow").to_str().unwrap()).unwrap();
        let mut sink = Sink::create(&target, &batch().schema()).unwrap();
        sink.write(&batch(), &|| Ok(())).unwrap();
        assert_eq!(names(folder.path()).len(), 1);
        drop(sink);
        assert_eq!(names(folder.path()), [""; 0]);
    }

    /// Targets that cannot be written are refused with a reason, before anything is fetched.
    #[test]
    fn bad_targets_are_refused() {
        assert!(
            Target::parse("t.txt")
                .unwrap_err()
                .to_string()
                .contains(".parquet")
        );
        assert!(Target::parse("arrow").is_err());
        let missing = write(Path::new("/nonexistent/t.arrow")).unwrap_err();
        assert!(format!("{missing:#}").contains("/nonexistent: there is no such directory"));
        let folder = tempfile::tempdir().unwrap();
        let taken = folder.path().join("t.arrow");
        fs::create_dir(&taken).unwrap();
        assert!(
            write(&taken)
                .unwrap_err()
                .to_string()
                .contains("not a regular file")
        );
    }
}
