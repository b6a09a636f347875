//! The public golden streams, read by arrow-rs, encoded, and read again.

use std::path::PathBuf;

use arrow::ipc::reader::StreamReader;

use super::support::cross;

/// Every golden stream arrives equal.
#[test]
fn golden_streams_cross() {
    let root = std::env::var_os("DIPC_GOLDEN").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/golden"),
        PathBuf::from,
    );
    let streams = root.join("streams");
    let Ok(files) = std::fs::read_dir(&streams) else {
        println!(
            "skipped: {} is not there; set DIPC_GOLDEN",
            streams.display()
        );
        return;
    };
    let mut count = 0;
    for file in files {
        let path = file.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        let reader = match StreamReader::try_new(bytes.as_slice(), None) {
            Ok(reader) => reader,
            Err(error) => panic!("arrow-rs cannot read {}: {error}", path.display()),
        };
        let schema = reader.schema();
        let batches: Vec<_> = reader.map(|batch| batch.unwrap()).collect();
        println!("{}: {} batches", path.display(), batches.len());
        cross(&schema, &batches);
        // Also sliced, if a batch has several rows.
        let slices: Vec<_> = batches
            .iter()
            .filter(|batch| batch.num_rows() > 1)
            .map(|batch| batch.slice(1, batch.num_rows() - 1))
            .collect();
        cross(&schema, &slices);
        count += 1;
    }
    assert!(count > 0, "{} is empty", streams.display());
}
