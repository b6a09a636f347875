//! What is asked of a Flight server beside whole tables: deadlines, lists, and parts of a table.

use std::path::Path;

use tonic::Status;

use crate::certificates::Authority;
use crate::fake_flight::*;
use crate::support::*;

/// Promise of `--deadline`: it ends a call to a Flight server as it ends a stream of libdipc, with a
/// text that names the option and the time that was given.
#[test]
fn a_deadline_ends_a_call() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_in(&folder, "table.arrow");
    write_arrow(Path::new(&path), &table(10));
    let hanging = || {
        FakeFlight::start(Answers {
            info: info(vec![endpoint("table", &[])]),
            messages: messages(&table(10)).into_iter().map(Ok).collect(),
            hangs: true,
            ..Answers::default()
        })
    };
    let fake = hanging();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let libdipc = format!("tcp://{}", silent.local_addr().unwrap());
    for args in [
        &["get", &fake.uri, "table"][..],
        &["get", &fake.uri, "table", "--parts"],
        &["put", &fake.uri, "table", &path],
        &["get", &libdipc, "table"],
        &["put", &libdipc, "table", &path],
    ] {
        let told = failure(1, &[args, &["--deadline", "300ms"]].concat());
        assert!(
            told.contains("deadline of 300ms") && told.contains("--deadline"),
            "{args:?}: {told}"
        );
        assert!(!told.contains("--timeout"), "{told}");
    }
}

/// Promise of `ls` and `describe`: they ask Flight servers too.
#[test]
fn tables_of_a_flight_server_are_listed_and_described() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_in(&folder, "table.parquet");
    write_parquet(Path::new(&path), &table(3000));
    let at = address();
    let server = Server::start_flight(&["--listen", &at, &path, NATION]);
    let listed = json(&["ls", &server.uri, "--json"]);
    let tickets: Vec<_> = (listed.as_array().unwrap().iter())
        .map(|row| row["ticket"].as_str().unwrap())
        .collect();
    assert_eq!(tickets, ["nation", "table"]);
    let listed = json(&["ls", &server.uri, "ta", "--json"]);
    assert_eq!(listed.as_array().unwrap().len(), 1);
    assert_eq!(listed[0]["rows"], 3000);

    let shown = json(&["describe", &server.uri, "table", "--json"]);
    assert_eq!(shown["rows"], 3000);
    let columns = shown["columns"].as_array().unwrap();
    assert_eq!(columns.len(), table(1).num_columns());
    let at_libdipc = shown["endpoints"][0]["uris"][0].as_str().unwrap();
    assert!(at_libdipc.starts_with(&at), "{at_libdipc}");
    let by_command = json(&["describe", &server.uri, "table", "--command", "--json"]);
    assert_eq!(by_command["columns"], shown["columns"]);

    let told = failure(1, &["describe", &server.uri, "tables"]);
    assert!(told.contains("tables"), "{told}");
    let told = failure(2, &["describe", &at, "table", "--command"]);
    assert!(told.contains("for Flight servers"), "{told}");
}

/// Promise of `--where`, `--columns`, `--offset` and `--limit`: they select where a Flight server
/// leads to libdipc. `DoGet` gives whole tables, so there only columns are left out, at the client.
#[test]
fn parts_of_a_table_come_from_libdipc() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_in(&folder, "table.arrow");
    write_arrow(Path::new(&path), &table(3000));
    let at = address();
    let server = Server::start_flight(&["--listen", &at, &path]);
    let get = |uri: &str, more: &[&str]| json(&[&["get", uri, "table", "--json"], more].concat());
    let some = ["--where", "-number < -2000", "--columns", "word,number"];
    let report = get(&server.uri, &some);
    assert_eq!(report["rows"], 999);
    assert_eq!(report["taken"][0]["by"], "libdipc");
    let rows = ["--offset", "10", "--limit", "20"];
    assert_eq!(get(&server.uri, &rows)["rows"], 20);

    let alone = Server::start_flight(&[&path]);
    let told = failure(1, &[&["get", &alone.uri, "table"], &some[..]].concat());
    assert!(told.contains("DoGet gives whole tables"), "{told}");

    // Two endpoints of one table, of which one server leaves out the columns.
    let first = path_in(&folder, "first.arrow");
    write_arrow(Path::new(&first), &table(3000).slice(0, 1200));
    let libdipc = Server::start(&[&first]);
    let rest = messages(&table(3000).slice(1200, 1800));
    let fake = FakeFlight::start(Answers {
        info: info(vec![
            endpoint("first", &[&libdipc.uri]),
            endpoint("rest", &[]),
        ]),
        messages: rest.into_iter().map(Ok::<_, Status>).collect(),
        ..Answers::default()
    });
    let columns = ["--columns", "word,number"];
    let report = get(&fake.uri, &[&columns[..], &["--verify", &path]].concat());
    assert_eq!(report["verified"]["equal"], true);
    let told = failure(1, &["get", &fake.uri, "table", "--limit", "1"]);
    assert!(told.contains("2 endpoints"), "{told}");
}

/// A call in plain text to a server of TLS is told so.
#[test]
fn a_server_of_tls_is_told() {
    let authority = Authority::new();
    let (certificate, key) = authority.issue("127.0.0.1");
    let files = ["--tls-cert", certificate.to_str().unwrap()];
    let key = ["--tls-key", key.to_str().unwrap()];
    let server = Server::start_flight(&[&files[..], &key, &[NATION]].concat());
    let plain = server.uri.replacen("grpc+tls", "grpc", 1);
    for args in [&["get", &plain, "nation"][..], &["ls", &plain]] {
        let told = failure(1, args);
        assert!(told.contains("grpc+tls://"), "{told}");
    }
}
