//! Tests of [`super`]: formats by content, and files that cannot be served.

use std::io::Write as _;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, StringArray};
use arrow::ipc::MetadataVersion;
use arrow::ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use arrow::record_batch::RecordBatch;
use parquet::arrow::ArrowWriter;

use super::*;

pub fn batch(rows: i32) -> RecordBatch {
    let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(0..rows));
    let words: ArrayRef = Arc::new(StringArray::from_iter_values(
        (0..rows).map(|i| i.to_string()),
    ));
    RecordBatch::try_from_iter([("number", numbers), ("word", words)]).unwrap()
}

pub fn parquet(batch: &RecordBatch) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
    bytes
}

pub fn arrow_file(batch: &RecordBatch) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = FileWriter::try_new(&mut bytes, &batch.schema()).unwrap();
    writer.write(batch).unwrap();
    writer.finish().unwrap();
    drop(writer);
    bytes
}

pub fn arrow_stream(batch: &RecordBatch, legacy: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    let version = if legacy {
        MetadataVersion::V4
    } else {
        MetadataVersion::V5
    };
    let options = IpcWriteOptions::try_new(8, legacy, version).unwrap();
    let mut writer =
        StreamWriter::try_new_with_options(&mut bytes, &batch.schema(), options).unwrap();
    writer.write(batch).unwrap();
    writer.finish().unwrap();
    drop(writer);
    bytes
}

/// A file whose name ending does not fit its content.
pub fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::Builder::new().suffix(".csv").tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

pub fn read(path: &Path, batch_rows: Option<usize>) -> Result<Vec<RecordBatch>> {
    let reader = Source::File(path.to_path_buf()).reader(Reading {
        batch_rows,
        ..Reading::default()
    })?;
    Ok(reader.batches()?)
}

pub fn failure(bytes: &[u8]) -> String {
    format!("{:#}", read(file(bytes).path(), None).unwrap_err())
}

/// Promise of `serve`: the content gives a file's format, not the name.
#[test]
fn formats_are_told_by_content() {
    let table = batch(1000);
    for bytes in [
        parquet(&table),
        arrow_file(&table),
        arrow_stream(&table, false),
        arrow_stream(&table, true),
    ] {
        assert_eq!(
            read(file(&bytes).path(), None).unwrap(),
            std::slice::from_ref(&table)
        );
    }
}

/// Promise of `--batch-rows`: no batch is larger, and no row is lost.
#[test]
fn batches_are_cut_to_the_rows_wanted() {
    let table = batch(1000);
    for bytes in [
        parquet(&table),
        arrow_file(&table),
        arrow_stream(&table, false),
    ] {
        let batches = read(file(&bytes).path(), Some(300)).unwrap();
        let rows: Vec<_> = batches.iter().map(RecordBatch::num_rows).collect();
        assert_eq!(rows, [300, 300, 300, 100]);
        assert_eq!(
            arrow::compute::concat_batches(&table.schema(), &batches).unwrap(),
            table
        );
    }
}

/// Files that cannot be served are refused with their name and a reason.
#[test]
fn other_files_are_refused_by_name() {
    assert!(failure(b"").contains("empty"));
    assert!(failure(b"a,b\n1,2\n").contains("text (CSV or JSON?)"));
    assert!(failure("naïve,ünï\n".repeat(99).as_bytes()).contains("text (CSV or JSON?)"));
    assert!(failure(b"\x1f\x8b\x08\x00").contains("compressed as a whole"));
    assert!(failure(b"PAREncrypted").contains("encrypted"));
    assert!(failure(b"FEA1....").contains("Feather version 1"));
    assert!(failure(b"\x00\x01\x02\x03\x04\x05\x06\x07").contains("no format known here"));
    assert!(failure(b"ARROW1").contains("begins as an Arrow file"));
    assert!(failure(b"PAR1").contains("begins as a Parquet file"));
    assert!(failure(b"\xff\xff\xff\xff\x00\x00\x00\x00").contains("begins as an Arrow stream"));

    let missing = read(Path::new("/nonexistent/table"), None).unwrap_err();
    assert!(format!("{missing:#}").contains("cannot open /nonexistent/table"));
    let directory = read(Path::new("/tmp"), None).unwrap_err();
    assert!(directory.to_string().contains("is a directory"));
    let device = read(Path::new("/dev/null"), None).unwrap_err();
    assert!(device.to_string().contains("not a regular file"));
}

/// A file cut anywhere, or with a byte changed, gives batches or an error, never a panic.
#[test]
fn damaged_files_end_in_errors() {
    calm::install();
    let table = batch(20);
    for bytes in [
        parquet(&table),
        arrow_file(&table),
        arrow_stream(&table, false),
    ] {
        let mut refused = 0;
        for cut in 1..bytes.len() {
            refused += usize::from(read(file(&bytes[..cut]).path(), None).is_err());
        }
        // A stream cut between two messages is a shorter stream; all other cuts are errors.
        assert!(
            refused + 24 > bytes.len() - 1,
            "{refused} of {}",
            bytes.len()
        );
        for at in (0..bytes.len()).step_by(3) {
            let mut changed = bytes.clone();
            changed[at] ^= 0xff;
            let _ = read(file(&changed).path(), None);
        }
    }
}

/// Promise of `--verify`: `tpch:TABLE:SCALE` names a generated table, anything else a file.
#[test]
fn sources_are_read_from_their_text() {
    assert_eq!(
        Source::parse("tpch:nation:0.5").unwrap(),
        Source::Tpch {
            table: Table::Nation,
            scale: 0.5
        }
    );
    assert_eq!(
        Source::parse("tpch:region").unwrap(),
        Source::Tpch {
            table: Table::Region,
            scale: 1.0
        }
    );
    assert_eq!(
        Source::parse("./tpch:region").unwrap(),
        Source::File("./tpch:region".into())
    );
    assert!(
        Source::parse("tpch:nations")
            .unwrap_err()
            .to_string()
            .contains("lineitem")
    );
    assert!(
        Source::parse("tpch:nation:x")
            .unwrap_err()
            .to_string()
            .contains("above 0")
    );
}
