//! Tests of the names of taken tables.

use super::*;

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
