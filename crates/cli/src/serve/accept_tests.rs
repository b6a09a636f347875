//! Tests of the names of taken tables.

use std::cell::Cell;

use arrow::array::{ArrayRef, NullArray};
use dipc::server::ServerOptions;

use super::*;
use crate::lengths::MAX_VALUES;

/// Promise of `--accept`: a name is that of a file within the directory, or it is refused.
#[test]
fn names_are_names_of_files() {
    let named = |name: &str| ticket_of(name.as_bytes()).unwrap();
    for (name, ticket, ending) in [
        ("sales", "sales", None),
        ("sales.arrow", "sales", Some(Ending::Arrow)),
        ("a.b.arrows", "a.b", Some(Ending::Arrows)),
        ("year=2026.parquet", "year=2026", Some(Ending::Parquet)),
        ("t.csv", "t.csv", None),
        ("a..b", "a..b", None),
        ("日本", "日本", None),
        ("parquet", "parquet", None),
    ] {
        assert_eq!(named(name), (ticket.to_owned(), ending), "{name}");
    }
    let long = "x".repeat(201);
    for bad in [
        "",
        ".",
        "..",
        ".x",
        "a/b",
        "/a",
        "../a",
        "a/../b",
        "a\0b",
        "a\nb",
        ".arrow",
        "..arrow",
        long.as_str(),
    ] {
        let error = ticket_of(bad.as_bytes()).unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument, "{bad:?}");
    }
    assert!(ticket_of(b"\xff").is_err());
    assert!(ticket_of("x".repeat(200).as_bytes()).is_ok());
}

/// Promise of `--accept`: the writer of a table asks between parts of a batch whether its client is
/// still there, and leaves nothing if not; a batch of more rows without memory than filters take is
/// refused at once.
#[test]
fn a_writer_ends_with_its_client() {
    let folder = tempfile::tempdir().unwrap();
    let server = Arc::new(Server::new(ServerOptions::default()).unwrap());
    let rules = Rules {
        ending: Ending::Parquet,
        replaces: false,
        reading: Reading::default(),
    };
    let into = Folder::open(folder.path()).unwrap();
    let accepting = Accepting::new(into, rules, &server, Tables::default());
    let nulls = |rows| {
        let column: ArrayRef = Arc::new(NullArray::new(rows));
        RecordBatch::try_from_iter_with_nullable([("c", column, true)]).unwrap()
    };
    let schema = nulls(1).schema();
    for last in 1..4 {
        let mut incoming = accepting.begin(b"t", &schema).unwrap();
        let asked = Cell::new(0);
        let check = || {
            asked.set(asked.get() + 1);
            match asked.get() < last {
                true => Ok(()),
                false => Err(Error::cancelled("gone")),
            }
        };
        let error = incoming.write(&nulls(MAX_VALUES), &check).unwrap_err();
        assert_eq!(error.status(), Status::Cancelled, "{error}");
        assert_eq!(asked.get(), last);
    }
    let mut incoming = accepting.begin(b"t", &schema).unwrap();
    let error = incoming
        .write(&nulls(MAX_VALUES + 1), &|| Ok(()))
        .unwrap_err();
    assert!(error.text().contains(".arrows"), "{error}");
    drop(incoming);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
