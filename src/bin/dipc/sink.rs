//! Writes a fetched table to a file. The file appears whole under its name, or not at all.

use std::fs::{self, Permissions};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use arrow::datatypes::Schema;
use arrow::ipc::writer::{FileWriter, StreamWriter};
use arrow::record_batch::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use tempfile::{NamedTempFile, TempPath};

use crate::lengths::{ensure_writable, pieces};

/// A path, whose ending names the format: `.arrow`, `.arrows` or `.parquet`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    path: PathBuf,
    format: OutputFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutputFormat {
    File,
    Stream,
    Parquet,
}

impl Target {
    /// Reads the ending of `path`.
    pub fn parse(path: &str) -> Result<Self> {
        let path = PathBuf::from(path);
        let format = match path.extension().and_then(|ending| ending.to_str()) {
            Some("arrow") => OutputFormat::File,
            Some("arrows") => OutputFormat::Stream,
            Some("parquet") => OutputFormat::Parquet,
            _ => bail!(
                "{} ends in none of .arrow (Arrow file), .arrows (Arrow stream) and .parquet",
                path.display()
            ),
        };
        Ok(Self { path, format })
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.path.display())
    }
}

type Output = BufWriter<fs::File>;

enum Writer {
    File(Box<FileWriter<Output>>),
    Stream(Box<StreamWriter<Output>>),
    Parquet(Box<ArrowWriter<Output>>),
}

/// A file being written. Until [`Sink::finish`] it has a temporary name in the same folder.
/// Dropping it removes it.
pub struct Sink {
    writer: Writer,
    temporary: TempPath,
    path: PathBuf,
}

impl Sink {
    /// Begins to write a table with these columns.
    pub fn create(target: &Target, schema: &Schema) -> Result<Self> {
        let path = final_path(&target.path)?;
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let file = tempfile::Builder::new()
            .prefix(".dipc-")
            // The usual mode of new files; the umask applies.
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(folder)
            .with_context(|| format!("cannot write in {}", folder.display()))?;
        let (file, temporary) = NamedTempFile::into_parts(file);
        let output = BufWriter::with_capacity(1 << 20, file);
        let writer = open(target.format, output, schema)
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self {
            writer,
            temporary,
            path,
        })
    }

    /// Writes rows. Calls `check` regularly; its error stops the work.
    pub fn write(
        &mut self,
        batch: &RecordBatch,
        check: &dyn Fn() -> dipc::error::Result<()>,
    ) -> Result<()> {
        match &mut self.writer {
            Writer::File(writer) => writer.write(batch).map_err(|error| {
                if error.to_string().contains("Dictionary replacement") {
                    anyhow::anyhow!(
                        "{error}; an Arrow file cannot replace a dictionary, an Arrow stream \
                         (.arrows) can"
                    )
                } else {
                    anyhow::Error::from(error)
                }
            }),
            Writer::Stream(writer) => writer.write(batch).map_err(anyhow::Error::from),
            // Parquet writes every value out, so endless columns are refused.
            Writer::Parquet(writer) => ensure_writable(batch).and_then(|()| {
                for piece in pieces(batch) {
                    writer.write(&piece)?;
                    check()?;
                }
                Ok(())
            }),
        }
        .with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// Completes the file and gives it its name.
    pub fn finish(self) -> Result<()> {
        let doing = || format!("cannot write {}", self.path.display());
        let file = close(self.writer).with_context(doing)?;
        // The bytes reach the disk before the name appears, even if the machine fails.
        file.sync_all().with_context(doing)?;
        self.temporary
            .persist(&self.path)
            .map_err(|error| error.error)
            .with_context(doing)
    }
}

fn open(format: OutputFormat, output: Output, schema: &Schema) -> Result<Writer> {
    Ok(match format {
        OutputFormat::File => Writer::File(Box::new(FileWriter::try_new(output, schema)?)),
        OutputFormat::Stream => Writer::Stream(Box::new(StreamWriter::try_new(output, schema)?)),
        OutputFormat::Parquet => {
            let properties = WriterProperties::builder()
                .set_compression(Compression::SNAPPY)
                .build();
            let schema = std::sync::Arc::new(schema.clone());
            Writer::Parquet(Box::new(ArrowWriter::try_new(
                output,
                schema,
                Some(properties),
            )?))
        }
    })
}

fn close(writer: Writer) -> Result<fs::File> {
    let mut output = match writer {
        Writer::File(mut writer) => {
            writer.finish()?;
            writer.into_inner()?
        }
        Writer::Stream(mut writer) => {
            writer.finish()?;
            writer.into_inner()?
        }
        Writer::Parquet(writer) => writer.into_inner()?,
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
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int32Array, StringViewArray};

    use super::*;
    use crate::source::{Reading, Source};

    fn batch() -> RecordBatch {
        let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(0..10));
        let words: ArrayRef = Arc::new(StringViewArray::from(vec![Some("w"); 10]));
        RecordBatch::try_from_iter_with_nullable([("number", numbers, true), ("word", words, true)])
            .unwrap()
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
            let batches = reader.collect::<Result<Vec<_>, _>>().unwrap();
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
            Target::parse("t.csv")
                .unwrap_err()
                .to_string()
                .contains(".parquet")
        );
        assert!(Target::parse("arrow").is_err());
        let missing = write(Path::new("/nonexistent/t.arrow")).unwrap_err();
        assert!(format!("{missing:#}").contains("cannot write in /nonexistent"));
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
