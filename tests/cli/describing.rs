//! What a server has, without fetching it.

use std::path::Path;

use crate::support::*;

/// Promise of `ls` and `describe`: the tables of a server with their rows, bytes and columns, as
/// text and as JSON. Of a generated table the columns are known, and no totals.
#[test]
fn tables_are_listed_and_described() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_in(&folder, "file.parquet");
    write_parquet(Path::new(&path), &table(3000));
    let server = Server::start(&[&path, "--tpch", "nation"]);
    let listed = text(&run(&["ls", &server.uri]).stdout);
    let lines: Vec<Vec<&str>> = (listed.lines())
        .map(|line| line.split_whitespace().collect())
        .collect();
    let expected: [&[&str]; 3] = [
        &["ticket", "rows", "bytes"],
        &["file", "3,000", "?"],
        &["nation", "?", "?"],
    ];
    assert_eq!(lines, expected, "{listed}");
    let listed = json(&["ls", &server.uri, "fi", "--json"]);
    assert_eq!(listed[0]["ticket"], "file");
    assert_eq!(listed[0]["rows"], 3000);
    assert_eq!(listed.as_array().unwrap().len(), 1);

    let shown = text(&run(&["describe", &server.uri, "nation"]).stdout);
    assert!(
        shown.starts_with("nation: an unknown number of rows"),
        "{shown}"
    );
    assert!(
        shown.contains("\n  n_nationkey  Int64, not null"),
        "{shown}"
    );
    let shown = json(&["describe", &server.uri, "file", "--json"]);
    assert_eq!(shown["rows"], 3000);
    assert_eq!(
        shown["columns"].as_array().unwrap().len(),
        table(1).num_columns()
    );

    let arena = Server::start(&[&path, "--arena", "--batch-rows", "1000"]);
    let shown = json(&["describe", &arena.uri, "file", "--json"]);
    assert_eq!(
        (&shown["rows"], &shown["batches"]),
        (&3000.into(), &3.into())
    );
    assert!(shown["bytes"].as_u64().unwrap() > 3000);
    let shown = text(&run(&["describe", &arena.uri, "file"]).stdout);
    assert!(
        shown.starts_with("file: 3,000 rows in 3 batches, "),
        "{shown}"
    );
}

/// Promise of `ls` and `describe`: an unknown ticket, a server that is not there and a Flight URI
/// are errors that name the cause.
#[test]
fn errors_name_the_cause() {
    let server = Server::start(&["--tpch", "nation"]);
    let told = failure(1, &["describe", &server.uri, "nations"]);
    assert!(
        told.contains("no ticket") && told.contains("nations"),
        "{told}"
    );
    let told = failure(1, &["ls", &address()]);
    assert!(told.contains("no server"), "{told}");
    let told = failure(2, &["ls", "grpc://127.0.0.1:1"]);
    assert!(told.contains("Flight"), "{told}");
    failure(2, &["describe", &server.uri]);
}
