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
    let server = Server::start(&[NATION]);
    let told = failure(1, &["describe", &server.uri, "nations"]);
    assert!(
        told.contains("no ticket") && told.contains("nations"),
        "{told}"
    );
    let told = failure(1, &["ls", &address()]);
    assert!(told.contains("no server"), "{told}");
    let told = failure(1, &["ls", "grpc://127.0.0.1:1"]);
    assert!(told.contains("Flight"), "{told}");
    failure(2, &["describe", &server.uri]);
}

/// Promise of `serve`: of a directory, the files with the endings of tables are served, and no
/// others; two of one name are an error.
#[test]
fn a_directory_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| path_in(&folder, name);
    write_parquet(Path::new(&file("a.parquet")), &table(30));
    write_arrow(Path::new(&file("b=1.arrow")), &table(40));
    std::fs::write(file("notes.txt"), "no table").unwrap();
    std::fs::create_dir(file("inner.parquet")).unwrap();
    let path = folder.path().to_str().unwrap();
    let server = Server::start(&[path]);
    let listed = json(&["ls", &server.uri, "--json"]);
    let tickets: Vec<_> = (listed.as_array().unwrap().iter())
        .map(|row| row["ticket"].as_str().unwrap())
        .collect();
    assert_eq!(tickets, ["a", "b=1"]);
    let shown = json(&["describe", &server.uri, "b=1", "--json"]);
    assert_eq!((&shown["rows"], &shown["batches"]), (&40.into(), &1.into()));
    let report = json(&[
        "get",
        &server.uri,
        "b=1",
        "--json",
        "--verify",
        &file("b=1.arrow"),
    ]);
    assert_eq!(report["verified"]["equal"], true);

    // A pattern that no shell has expanded.
    std::fs::create_dir(file("deep")).unwrap();
    write_parquet(Path::new(&file("deep/c.parquet")), &table(30));
    write_parquet(Path::new(&file(".hidden.parquet")), &table(30));
    for (pattern, found) in [("?.parquet", 1), ("**/[ac].par*", 2)] {
        let server = Server::start(&[&file(pattern)]);
        let listed = json(&["ls", &server.uri, "--json"]);
        assert_eq!(
            listed.as_array().unwrap().len(),
            found,
            "{pattern}: {listed}"
        );
    }
    // A directory that matches is served as one.
    let told = failure(1, &["serve", "--listen", &address(), &file("*.parquet")]);
    assert!(told.contains("inner.parquet is a directory"), "{told}");
    let told = failure(1, &["serve", "--listen", &address(), &file("*.orc")]);
    assert!(told.contains("no file matches"), "{told}");

    write_stream(Path::new(&file("a.arrows")), &table(3));
    let told = failure(1, &["serve", "--listen", &address(), path]);
    assert!(told.contains("would both be the ticket \"a\""), "{told}");
}
