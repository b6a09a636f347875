//! Flight as the control plane: `serve --flight` and `get grpc://…`, with each other and with a
//! server that gives any answer.

use std::path::Path;

use arrow::array::{ArrayRef, Int32Array, RecordBatch};
use arrow_flight::{FlightData, FlightInfo, SchemaAsIpc};
use tonic::Status;

use crate::fake_flight::*;
use crate::support::*;

/// The report of a `get` that must succeed.
fn get(uri: &str, more: &[&str]) -> serde_json::Value {
    json(&[&["get", uri, "table", "--json"], more].concat())
}

fn by(report: &serde_json::Value) -> Vec<&str> {
    let taken = report["taken"].as_array().unwrap();
    taken
        .iter()
        .map(|way| way["by"].as_str().unwrap())
        .collect()
}

fn said(messages: Vec<FlightData>) -> Messages {
    messages.into_iter().map(Ok).collect()
}

/// Whether ucx works here; prints the reason if not.
fn has_ucx() -> bool {
    let transports = json(&["info", "--json"]);
    let transports = transports["transports"].as_array().unwrap();
    let has_ucx = transports
        .iter()
        .any(|one| one["name"] == "ucx" && one["available"] == true);
    if !has_ucx {
        println!("skipped: ucx, which dipc info says is not available");
    }
    has_ucx
}

/// Promise of `get grpc://`: the client asks by Flight and fetches by libdipc, at the server's
/// address.
#[test]
fn flight_tells_where_and_libdipc_fetches() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_in(&folder, "table.parquet");
    write_parquet(Path::new(&path), &table(5000));
    let at = address();
    for arena in [&["--arena"][..], &[]] {
        let server = Server::start_flight(&[&["--listen", &at, &path, "--json"], arena].concat());
        let report = get(&server.uri, &["--verify", &path]);
        assert_eq!(report["verified"]["equal"], true);
        assert_eq!(by(&report), ["libdipc"]);
        let from = report["taken"][0]["from"][0].as_str().unwrap();
        assert!(from.starts_with(&at), "{from}");
        assert!(report["bytes_lent"].as_u64().unwrap() > 0);
        let (status, rest) = server.stop();
        assert!(status.success());
        let stopped: serde_json::Value = serde_json::from_str(&rest).unwrap();
        assert_eq!(stopped["stopped"]["streams"], 1);
        assert_eq!(stopped["stopped"]["flight"]["streams"], 0);
    }
}

/// Promise of `get grpc://`: the same over tcp and ucx, at the server's port. The first of several
/// addresses is used. A Flight server's ucx address is used only on request.
#[test]
fn the_table_comes_over_tcp_and_ucx_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_in(&folder, "table.parquet");
    write_parquet(Path::new(&path), &table(5000));
    let (tcp, ucx) = ("tcp://127.0.0.1:0", "ucx://127.0.0.1:0");
    let verified = |server: &Server, more: &[&str]| {
        let report = get(&server.uri, &[&["--verify", &path], more].concat());
        assert_eq!(report["verified"]["equal"], true);
        assert_eq!(report["rows"], 5000);
        report
    };
    let from = |report: &serde_json::Value| {
        let from = report["taken"][0]["from"].as_array().unwrap();
        assert_eq!(from.len(), 1);
        from[0].as_str().unwrap().to_owned()
    };

    let server = Server::start_flight(&["--listen", tcp, &path]);
    let report = verified(&server, &[]);
    assert_eq!(by(&report), ["libdipc"]);
    assert!(from(&report).starts_with("tcp://127.0.0.1:"));
    assert!(report["bytes_received"].as_u64().unwrap() > 0);
    assert!(server.stop().0.success());

    if !has_ucx() {
        return;
    }
    let server = Server::start_flight(&["--listen", ucx, "--trusted-network", &path]);
    let report = verified(&server, &["--trusted-network"]);
    assert_eq!(by(&report), ["libdipc"]);
    assert!(from(&report).starts_with("ucx://127.0.0.1:"));
    assert_eq!(by(&verified(&server, &[])), ["DoGet"]);
    assert!(server.stop().0.success());

    let listen = ["--listen", ucx, "--listen", tcp, "--trusted-network", &path];
    let server = Server::start_flight(&listen);
    for (more, scheme) in [(&["--trusted-network"][..], "ucx:"), (&[], "tcp:")] {
        let report = verified(&server, more);
        assert_eq!(by(&report), ["libdipc"]);
        assert!(from(&report).starts_with(scheme));
    }
    assert!(server.stop().0.success());
}

/// Rule R4: with `--roles` the first two locations are metadata and data of a ucx address, as the
/// reference peer's client needs. A libdipc client uses them as one way, on two connections.
#[test]
fn roles_are_told_by_flight_first() {
    if !has_ucx() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = path_in(&folder, "table.parquet");
    write_parquet(Path::new(&path), &table(5000));
    let listen = [
        "--listen",
        "tcp://127.0.0.1:0",
        "--listen",
        "ucx://127.0.0.1:0",
    ];
    let server =
        Server::start_flight(&[&listen[..], &["--trusted-network", "--roles", &path]].concat());
    let report = get(&server.uri, &["--verify", &path, "--trusted-network"]);
    assert_eq!(report["verified"]["equal"], true);
    let from = report["taken"][0]["from"].as_array().unwrap();
    let from: Vec<_> = from.iter().map(|uri| uri.as_str().unwrap()).collect();
    assert_eq!(from.len(), 2);
    for (uri, role) in from.iter().zip(["metadata", "data"]) {
        assert!(uri.starts_with("ucx://127.0.0.1:"), "{uri}");
        assert!(uri.contains(&format!("dipc_role={role}")), "{uri}");
    }
    // A client that does not trust the network uses the same location as without roles.
    let report = get(&server.uri, &["--verify", &path]);
    let from = report["taken"][0]["from"][0].as_str().unwrap();
    assert!(from.starts_with("tcp://127.0.0.1:"), "{from}");
    assert!(server.stop().0.success());
}

/// Promise of `serve --flight`: a client without libdipc gets an equal table by `DoGet`, from files
/// of every format, in batches larger than a message, and from an arena.
#[test]
fn do_get_gives_the_same_table() {
    let folder = tempfile::tempdir().unwrap();
    let batch = table(40_000);
    type Write = fn(&Path, &RecordBatch);
    let cases: [(&str, Write, &[&str]); 3] = [
        ("table.parquet", write_parquet, &["--batch-rows", "3000"]),
        ("table.arrow", write_arrow, &["--arena"]),
        ("table.arrows", write_stream, &[]),
    ];
    for (name, write, options) in cases {
        let path = path_in(&folder, name);
        write(Path::new(&path), &batch);
        let server = Server::start_flight(&[&[path.as_str(), "--json"], options].concat());
        let report = get(&server.uri, &["--verify", &path]);
        assert_eq!(report["rows"], 40_000);
        assert_eq!(report["verified"]["equal"], true);
        assert_eq!(by(&report), ["DoGet"]);
        assert_eq!(report["bytes_lent"], 0);
        let (_, rest) = server.stop();
        let stopped: serde_json::Value = serde_json::from_str(&rest).unwrap();
        assert_eq!(stopped["stopped"]["flight"]["streams"], 1);
        assert_eq!(
            stopped["stopped"]["flight"]["bytes_sent"],
            report["bytes_received"]
        );
    }
}

/// Promise of `get grpc://`: the first location that works is used; each earlier location is
/// skipped with a reason in the log.
#[test]
fn the_first_location_that_works_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_in(&folder, "table.arrow");
    write_arrow(Path::new(&path), &table(100));
    let server = Server::start(&[&path]);
    let nobody = address();
    let fake = FakeFlight::start(Answers {
        info: info(vec![endpoint(
            "table",
            &[
                "https://127.0.0.1/table",
                &nobody,
                "grpc://127.0.0.1:1",
                "shm:@half?dipc_role=metadata",
                &server.uri,
                "arrow-flight-reuse-connection://?",
            ],
        )]),
        ..Answers::default()
    });
    let output = run(&["get", &fake.uri, "table", "--verify", &path]);
    let (told, log) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{log}");
    assert!(
        told.contains(&format!("fetched by libdipc from {}", server.uri)),
        "{told}"
    );
    for skipped in [
        "https:",
        &nobody,
        "grpc://127.0.0.1:1",
        "metadata stream only",
    ] {
        let line = log.lines().find(|line| line.contains(skipped));
        assert!(line.is_some_and(|line| line.contains("skipped")), "{log}");
    }
    assert_eq!(log.lines().count(), 4, "{log}");
}

/// `DoGet` is used if the server names no location or the reuse-connection location, or if no
/// earlier location works.
#[test]
fn do_get_is_the_way_where_nothing_else_works() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_in(&folder, "table.arrow");
    write_arrow(Path::new(&path), &table(100));
    let other = FakeFlight::start(Answers {
        messages: said(messages(&table(100))),
        ..Answers::default()
    });
    for locations in [
        &[][..],
        &["arrow-flight-reuse-connection://?"],
        &["shm:@dipc-cli-nobody", "arrow-flight-reuse-connection://?"],
        &["ucx://127.0.0.1:1", &other.uri],
    ] {
        let fake = FakeFlight::start(Answers {
            info: info(vec![endpoint("table", locations)]),
            messages: said(messages(&table(100))),
            ..Answers::default()
        });
        let report = get(&fake.uri, &["--verify", &path]);
        assert_eq!(report["verified"]["equal"], true, "{locations:?}");
        assert_eq!(by(&report), ["DoGet"]);
        let expected = if locations.contains(&other.uri.as_str()) {
            &other.uri
        } else {
            &fake.uri
        };
        assert_eq!(report["taken"][0]["from"][0], expected.as_str());
    }
}

/// Rules U3 and R4: a metadata URI and a data URI in one endpoint, in either order, are one way to
/// fetch.
#[test]
fn two_uris_of_one_table_are_one_way() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_in(&folder, "table.arrow");
    write_arrow(Path::new(&path), &table(100));
    let mut server = Server::start(&[&path, "--roles"]);
    let mut role = || server.line().split_once(' ').unwrap().1.to_owned();
    let (metadata, data) = (role(), role());
    for pair in [[&metadata, &data], [&data, &metadata]] {
        let fake = FakeFlight::start(Answers {
            info: info(vec![endpoint("table", &pair.map(String::as_str))]),
            ..Answers::default()
        });
        let report = get(&fake.uri, &["--verify", &path]);
        assert_eq!(report["verified"]["equal"], true);
        assert_eq!(
            report["taken"][0]["from"],
            serde_json::json!([pair[0], pair[1]])
        );
    }
}

/// Promise of `get grpc://`: several endpoints are one table, in their order, each fetched by its
/// own way.
#[test]
fn several_endpoints_are_one_table() {
    let folder = tempfile::tempdir().unwrap();
    let whole = table(300);
    let (path, first) = (
        path_in(&folder, "whole.arrow"),
        path_in(&folder, "first.arrow"),
    );
    write_arrow(Path::new(&path), &whole);
    write_arrow(Path::new(&first), &whole.slice(0, 120));
    let server = Server::start(&[&first]);
    let endpoints = vec![endpoint("first", &[&server.uri]), endpoint("rest", &[])];
    let fake = FakeFlight::start(Answers {
        info: info(endpoints.clone()),
        messages: said(messages(&whole.slice(120, 180))),
        ..Answers::default()
    });
    let report = get(&fake.uri, &["--verify", &path]);
    assert_eq!(report["verified"]["equal"], true);
    assert_eq!(by(&report), ["libdipc", "DoGet"]);
    assert_eq!(
        (&report["rows"], &report["batches"]),
        (&300.into(), &2.into())
    );

    let number: ArrayRef = std::sync::Arc::new(Int32Array::from(vec![1]));
    let other = RecordBatch::try_from_iter([("other", number)]).unwrap();
    let fake = FakeFlight::start(Answers {
        info: info(endpoints),
        messages: said(messages(&other)),
        ..Answers::default()
    });
    let told = failure(1, &["get", &fake.uri, "table"]);
    assert!(told.contains("different columns"), "{told}");
}

/// A table without endpoints has the server's columns and no rows; without columns it is an error.
#[test]
fn a_table_without_endpoints_has_no_rows() {
    let batch = table(0);
    let options = arrow::ipc::writer::IpcWriteOptions::default();
    let schema =
        arrow_flight::SchemaResult::try_from(SchemaAsIpc::new(batch.schema_ref(), &options));
    let fake = FakeFlight::start(Answers {
        info: FlightInfo {
            schema: schema.unwrap().schema,
            ..FlightInfo::default()
        },
        ..Answers::default()
    });
    let output = run(&["get", &fake.uri, "table", "--head", "1"]);
    let told = text(&output.stdout);
    assert!(output.status.success());
    assert!(
        told.contains("| number ") && told.contains("0 rows"),
        "{told}"
    );

    let fake = FakeFlight::start(Answers::default());
    let told = failure(1, &["get", &fake.uri, "table"]);
    assert!(told.contains("neither endpoints nor a schema"), "{told}");
}

/// Promise of `--command`: the name is a command; without the option the error names the option.
#[test]
fn commands_are_asked_for_as_commands() {
    let fake = FakeFlight::start(Answers {
        info: info(vec![endpoint("table", &[])]),
        command_only: true,
        messages: said(messages(&table(10))),
        ..Answers::default()
    });
    let told = failure(1, &["get", &fake.uri, "table"]);
    assert!(told.contains("--command"), "{told}");
    assert_eq!(get(&fake.uri, &["--command"])["rows"], 10);
    let server = Server::start_flight(&[NATION]);
    assert_eq!(
        json(&["get", &server.uri, "nation", "--json", "--command"])["rows"],
        25
    );
}

/// An unknown table is an error that names it; the server goes on.
#[test]
fn an_unknown_table_is_an_error() {
    let server = Server::start_flight(&[NATION]);
    let told = failure(1, &["get", &server.uri, "nations"]);
    assert!(told.contains("no table \"nations\""), "{told}");
    assert!(run(&["get", &server.uri, "nation"]).status.success());
}

/// A libdipc server without Flight's ticket is skipped like a missing server. If no location works,
/// the error is that of the last location.
#[test]
fn the_last_reason_is_told_where_nothing_works() {
    let server = Server::start(&[NATION]);
    let fake = FakeFlight::start(Answers {
        info: info(vec![endpoint("table", &["https://a/b", &server.uri])]),
        ..Answers::default()
    });
    let output = run(&["get", &fake.uri, "table"]);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    let last = told.lines().last().unwrap();
    assert!(
        last.contains("none of the 2 locations") && last.contains("table"),
        "{told}"
    );
}

/// Rule A8: no data of a Flight server is trusted; invalid data is an error of one line, and leaves
/// no partial file.
#[test]
fn damaged_streams_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let sound = messages(&table(50));
    let last = sound.len() - 1;
    let changed = |index: usize, change: &dyn Fn(&mut FlightData)| {
        let mut messages = sound.clone();
        change(&mut messages[index]);
        said(messages)
    };
    let garbage = |message: &mut FlightData| message.data_header = vec![0x5a; 200].into();
    let cases: Vec<(Messages, &str)> = vec![
        (Vec::new(), "before its schema"),
        (said(sound[1..].to_vec()), "schema"),
        (changed(0, &garbage), "DoGet at"),
        (changed(last, &garbage), ""),
        (
            changed(last, &|message| {
                message.data_body = message.data_body.slice(..message.data_body.len() - 1);
            }),
            "header says",
        ),
        (
            changed(last, &|message| {
                message.data_body = vec![0xff; message.data_body.len()].into();
            }),
            "",
        ),
        (
            changed(last, &|message| *message = sound[0].clone()),
            "second schema",
        ),
        // The batch's dictionary is missing.
        (
            said(vec![sound[0].clone(), sound[last].clone()]),
            "dictionary",
        ),
        (
            vec![
                Ok(sound[0].clone()),
                Err(Status::internal("the disk is gone")),
            ],
            "the disk is gone",
        ),
    ];
    let out = path_in(&folder, "out.arrows");
    for (messages, expected) in cases {
        let fake = FakeFlight::start(Answers {
            info: info(vec![endpoint("table", &[])]),
            messages,
            ..Answers::default()
        });
        let told = failure(1, &["get", &fake.uri, "table", "--output", &out]);
        assert!(told.contains(expected), "{expected}: {told}");
        assert!(names(folder.path()).is_empty(), "{told}");
    }
}

/// Metadata of the application, alone or before the schema, does not disturb the table.
#[test]
fn metadata_of_the_application_is_passed_over() {
    let note = FlightData {
        app_metadata: b"note".to_vec().into(),
        ..FlightData::default()
    };
    let mut all = vec![note.clone()];
    for message in messages(&table(10)) {
        all.extend([message, note.clone()]);
    }
    let fake = FakeFlight::start(Answers {
        info: info(vec![endpoint("table", &[])]),
        messages: said(all),
        ..Answers::default()
    });
    assert_eq!(get(&fake.uri, &[])["rows"], 10);
}
