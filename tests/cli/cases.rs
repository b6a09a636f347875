//! Files of earlier bugs (`tests/cases`), and the files of Arrow's integration tests, through
//! `serve` and `get --verify`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::support::*;

/// The name of a file of `tests/cases`, and a part of its error.
const REFUSED: [(&str, &str); 11] = [
    ("bigendian-int32-1.arrows", "big-endian"),
    ("feather-0.17-lz4.feather", "as Arrow 0.17 did"),
    ("lz4-claims-1TiB.arrows", "1099511627776 bytes"),
    ("deep400.parquet", "fields nest deeper than"),
    ("deep1500.parquet", "fields nest deeper than"),
    ("schema_v6.arrow", "metadata version V6"),
    ("repeated_no_annotation.parquet", "0 rows"),
    (
        "no_rows_anywhere_in_the_footer.parquet",
        "no rows by the footer",
    ),
    ("no_rows_but_values.parquet", "600 values"),
    ("cut-1-byte-behind-a-batch.arrows", "cut off"),
    (
        "rle-dict-uncompressed-corrupt-checksum.parquet",
        "checksum mismatch",
    ),
];

fn case(name: &str) -> String {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("tests/cases");
    folder.join(name).to_str().unwrap().to_owned()
}

/// Every file of the folder is tested.
#[test]
fn no_case_is_left_out() {
    let mut named: Vec<_> = REFUSED.map(|(name, _)| PathBuf::from(case(name))).to_vec();
    named.push(case("README.md").into());
    named.sort();
    let mut there = names(Path::new(&case("")));
    there.sort();
    assert_eq!(named, there);
}

/// Promise of `serve`: a file that cannot be read whole is refused with a reason and ends no process:
/// at the server's start with its name, later with its ticket.
#[test]
fn cases_are_refused_by_serve() {
    let folder = tempfile::tempdir().unwrap();
    let good = path_in(&folder, "good.arrows");
    write_stream(Path::new(&good), &table(3));
    for (name, said) in REFUSED {
        let path = case(name);
        let at = address();
        let mut child = dipc()
            .args(["serve", "--listen", &at, &format!("bad={path}"), &good])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        until("it serves or has ended", || {
            child.try_wait().unwrap().is_some() || run(&["get", &at, "good"]).status.success()
        });
        let (told, name) = if child.try_wait().unwrap().is_none() {
            let told = failure(1, &["get", &at, "bad"]);
            // The server still works.
            assert!(run(&["get", &at, "good"]).status.success(), "{name}");
            signal(&child, rustix::process::Signal::TERM);
            child.wait_with_output().unwrap();
            (told, "the table \"bad\"")
        } else {
            let output = child.wait_with_output().unwrap();
            assert_eq!(output.status.code(), Some(1), "{name}");
            (text(&output.stderr), name)
        };
        assert!(told.contains(said) && told.contains(name), "{told}");
    }
}

/// Promise of `--verify`: no table is equal to a file that cannot be read whole.
#[test]
fn cases_are_refused_by_verify() {
    let folder = tempfile::tempdir().unwrap();
    let good = path_in(&folder, "good.arrows");
    // The batches of the cut file before the cut.
    let columns: [(&str, arrow::array::ArrayRef); 2] = [
        (
            "a",
            std::sync::Arc::new(arrow::array::Int64Array::from(vec![1, 2, 3])),
        ),
        (
            "s",
            std::sync::Arc::new(arrow::array::StringArray::from(vec!["x", "yy", "zzz"])),
        ),
    ];
    let table = arrow::array::RecordBatch::try_from_iter_with_nullable(
        columns.map(|(name, column)| (name, column, true)),
    );
    write_stream(Path::new(&good), &table.unwrap());
    let server = Server::start(&[&good]);
    for (name, said) in REFUSED {
        let output = run(&["get", &server.uri, "good", "--verify", &case(name)]);
        assert_eq!(output.status.code(), Some(1), "{name}");
        // Different columns are a difference; the batches after them are not read.
        if !text(&output.stdout).contains("columns differ") {
            let told = text(&output.stderr);
            assert!(told.contains(said) && told.contains(name), "{told}");
        }
    }
}

/// The streams of Arrow's integration tests are served and equal their files.
#[test]
fn golden_streams_are_served_equal() {
    let root = std::env::var_os("DIPC_GOLDEN").map_or_else(
        || Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("../shared/golden"),
        PathBuf::from,
    );
    let Ok(entries) = fs::read_dir(root.join("streams")) else {
        println!(
            "skipped: there is no {}; DIPC_GOLDEN names another",
            root.display()
        );
        return;
    };
    let paths: Vec<_> = entries
        .map(|entry| entry.unwrap().path().to_str().unwrap().to_owned())
        .collect();
    let files: Vec<_> = paths.iter().map(String::as_str).collect();
    let server = Server::start(&files);
    for path in files {
        let ticket = Path::new(path).file_stem().unwrap().to_str().unwrap();
        let report = json(&["get", &server.uri, ticket, "--json", "--verify", path]);
        assert_eq!(report["verified"]["equal"], true, "{path}");
    }
}

/// The most memory that a process had, in bytes.
fn peak(child: &std::process::Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number: String = line.unwrap().chars().filter(char::is_ascii_digit).collect();
    number.parse::<u64>().unwrap() << 10
}

/// Promise of `--max-message`: a small Parquet file of packed or repeated values takes no more
/// memory than the limit, in a server and in `get --verify`.
#[test]
fn small_parquet_files_take_no_memory() {
    use parquet::arrow::ArrowWriter;
    use parquet::basic::{Compression, ZstdLevel};
    use parquet::file::properties::WriterProperties;

    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, texts: arrow::array::StringArray, is_dictionary| {
        let texts: arrow::array::ArrayRef = std::sync::Arc::new(texts);
        let table = arrow::array::RecordBatch::try_from_iter([("t", texts)]).unwrap();
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_dictionary_enabled(is_dictionary)
            .build();
        let path = path_in(&folder, name);
        let file = fs::File::create(&path).unwrap();
        let mut writer = ArrowWriter::try_new(file, table.schema(), Some(properties)).unwrap();
        writer.write(&table).unwrap();
        writer.close().unwrap();
        assert!(fs::metadata(&path).unwrap().len() < 100_000);
        path
    };
    // One value of many bytes, and one value many times.
    let long = "x".repeat(128 << 20);
    let packed = write("packed.parquet", [Some(long)].into_iter().collect(), false);
    let value = "y".repeat(50_000);
    let values = std::iter::repeat_n(Some(value), 6_000).collect();
    let repeated = write("repeated.parquet", values, true);
    for limit in ["16M", "2M"] {
        // Nothing is lent, so the window's batches do not count.
        let bounds = ["--max-message", limit, "--max-memory", "0"];
        let server = Server::start(&[&bounds[..], &[&packed, &repeated]].concat());
        let told = failure(1, &["get", &server.uri, "packed"]);
        let said = told.contains("the table \"packed\"") && told.contains("raise --max-message");
        assert!(said, "{told}");
        let report = json(&["get", &server.uri, "repeated", "--json", "--checksum"]);
        assert_eq!(report["rows"], 6_000);
        let peak = peak(&server.child);
        assert!(peak < 100 << 20, "{limit}: {peak}");
    }
    let server = Server::start(&[
        "--max-memory",
        "1G",
        "--max-message",
        "4G",
        &packed,
        &repeated,
    ]);
    for ticket in ["packed", "repeated"] {
        let report = json(&["get", &server.uri, ticket, "--json"]);
        assert!(report["rows"].as_u64().unwrap() > 0);
    }
    let verify = ["--verify", &packed, "--max-message", "2G"];
    let equal = json(&[&["get", &server.uri, "packed", "--json"], &verify[..]].concat());
    assert_eq!(equal["verified"]["equal"], true);
}
