//! Tests of the names of tickets.

use super::*;

fn named(arg: &str) -> (String, String) {
    let (ticket, source) = named_file(OsStr::new(arg)).unwrap();
    (String::from_utf8(ticket).unwrap(), source.to_string())
}

fn pair(ticket: &str, path: &str) -> (String, String) {
    (ticket.to_owned(), path.to_owned())
}

/// Promise of `serve`: a ticket has the name of its file without the ending, or the name before
/// `=`.
#[test]
fn tickets_are_named_after_files() {
    assert_eq!(
        named("/data/lineitem.parquet"),
        pair("lineitem", "/data/lineitem.parquet")
    );
    assert_eq!(named("a.b.arrow"), pair("a.b", "a.b.arrow"));
    assert_eq!(named("t=/data/x.parquet"), pair("t", "/data/x.parquet"));
    assert_eq!(
        named("./year=2026/x.parquet"),
        pair("x", "./year=2026/x.parquet")
    );
    assert!(
        named_file(OsStr::new("=x.parquet"))
            .unwrap_err()
            .is::<UsageError>()
    );
    assert!(named_file(OsStr::new("t=")).unwrap_err().is::<UsageError>());
    assert!(named_file(OsStr::new("/")).is_err());
}

/// A file with a = in its own name is served under that name.
#[test]
fn an_existing_file_is_taken_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("year=2026.arrow");
    std::fs::write(&path, b"").unwrap();
    let path = path.to_str().unwrap();
    assert_eq!(named(path), pair("year=2026", path));
    // A ticket may have slashes.
    assert_eq!(
        named(&format!("team/sales={path}")),
        pair("team/sales", path)
    );
}
