//! Tests of taken tables: their names, and what is refused.

use std::cell::Cell;

use arrow::array::{Array as _, ArrayRef, ListArray, NullArray};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};

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
    let server = Server::new().unwrap();
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

/// Promise of `--accept`: a directory that cannot be written is refused at the start.
#[test]
fn a_directory_that_cannot_be_written_is_refused() {
    // Also the root user cannot write there.
    let told = format!("{:#}", Folder::open(Path::new("/proc")).err().unwrap());
    assert!(told.starts_with("cannot take tables into /proc"), "{told}");
    let folder = tempfile::tempdir().unwrap();
    Folder::open(folder.path()).unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Promise of `--accept`: what is taken can be read. Senders of the same user are not checked when
/// their memory is mapped, so every format is checked before it is written.
#[test]
fn unsound_batches_are_refused_in_every_format() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::new().unwrap();
    let rules = Rules {
        ending: Ending::Arrow,
        replaces: false,
        reading: Reading::default(),
    };
    let open = Folder::open(folder.path()).unwrap();
    let accepting = Accepting::new(open, rules, &server, Tables::default());
    let offsets = ScalarBuffer::from(vec![0, 1 << 20]);
    // SAFETY: nothing reads the values before they are checked.
    let offsets = unsafe { OffsetBuffer::new_unchecked(offsets) };
    let values = ListArray::from_iter_primitive::<arrow::datatypes::Int32Type, _, _>([Some([])]);
    let data = values.into_data().into_builder();
    let data = data.buffers(vec![offsets.into_inner().into_inner()]);
    // SAFETY: as above.
    let column: ArrayRef = arrow::array::make_array(unsafe { data.build_unchecked() });
    let batch = RecordBatch::try_from_iter([("l", column)]).unwrap();
    for name in ["t.arrow", "t.arrows", "t.parquet"] {
        let mut incoming = accepting.begin(name.as_bytes(), &batch.schema()).unwrap();
        let error = incoming.write(&batch, &|| Ok(())).unwrap_err();
        assert_eq!(error.status(), Status::InvalidData, "{name}");
        assert!(error.text().contains("column l"), "{}", error.text());
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
