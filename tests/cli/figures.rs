//! The figures of `dipc serve`: `--metrics`, `dipc top`, and `--log json`.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

use dipc::arrow::stream::ArrayReader as _;
use dipc::client::{Client, ClientOptions, GetOptions};
use dipc::proto::Headers;

use crate::support::*;

/// A server with figures, and where they are.
fn start(file: &str) -> (Server, String) {
    let mut server = Server::start(&["--metrics", "127.0.0.1:0", file]);
    let line = server.line();
    let url = line.strip_prefix("metrics ").unwrap().trim_end().to_owned();
    (server, url)
}

/// What the server answers to these bytes.
fn ask(url: &str, request: &str) -> String {
    let host = url
        .strip_prefix("http://")
        .unwrap()
        .split('/')
        .next()
        .unwrap();
    let mut socket = TcpStream::connect(host).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

fn get(url: &str) -> String {
    ask(url, "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n")
}

/// Waits until the figures have this line.
fn has_line(url: &str, line: &str) {
    until(line, || get(url).lines().any(|one| one == line));
}

/// `--metrics` gives the figures in Prometheus' format to whoever asks by GET, and nothing else to
/// nobody; clients that only connect hold up no other one.
#[test]
fn metrics_are_served() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_in(&folder, "table.arrow");
    write_arrow(Path::new(&path), &table(10));
    let (server, url) = start(&path);
    let address = url
        .trim_start_matches("http://")
        .trim_end_matches("/metrics");
    // More than there are places.
    let _silent = [(); 100].map(|()| TcpStream::connect(address).unwrap());
    let ready = ask(&url, "GET /ready HTTP/1.1\r\nHost: here\r\n\r\n");
    assert!(
        ready.starts_with("HTTP/1.1 200 ") && ready.ends_with("ready\n"),
        "{ready}"
    );
    assert!(get(&url).contains("\ndipc_ready 1\n"));
    for _ in 0..2 {
        assert!(run(&["get", &server.uri, "table"]).status.success());
    }
    assert!(!run(&["get", &server.uri, "nowhere"]).status.success());
    has_line(&url, "dipc_requests_finished_total{ticket=\"table\"} 2");
    let answer = get(&url);
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    for line in [
        "content-type: text/plain; version=0.0.4; charset=utf-8",
        "dipc_rows_sent_total{ticket=\"table\"} 20",
        "dipc_streams_limit 64",
        "dipc_requests_refused_total{status=\"DIPC_ERR_NOT_FOUND\"} 1",
        "dipc_batch_hand_over_seconds_count{ticket=\"table\"} 2",
    ] {
        assert!(answer.lines().any(|one| one == line), "{line}: {answer}");
    }
    for (request, status) in [
        ("GET / HTTP/1.1\r\nHost: here\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\nHost: here\r\n\r\n", "405"),
        ("nonsense\r\n\r\n", "400"),
    ] {
        let answer = ask(&url, request);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{answer}"
        );
    }
    assert!(server.stop().0.success());
}

/// Beyond this machine `--metrics` needs `--allow-remote`, as tcp does.
#[test]
fn metrics_are_for_this_machine() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_in(&folder, "table.arrow");
    write_arrow(Path::new(&path), &table(10));
    let listen = address();
    let told = failure(
        1,
        &[
            "serve",
            "--listen",
            &listen,
            "--metrics",
            "0.0.0.0:0",
            &path,
        ],
    );
    assert!(
        told.contains("cannot listen for metrics at 0.0.0.0:0"),
        "{told}"
    );
    assert!(told.contains("--allow-remote"), "{told}");
}

/// `dipc top --once` shows the figures of each ticket, as a table and as JSON.
#[test]
fn top_shows_each_ticket() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_in(&folder, "table.arrow");
    write_arrow(Path::new(&path), &table(10));
    let (server, url) = start(&path);
    for _ in 0..3 {
        assert!(run(&["get", &server.uri, "table"]).status.success());
    }
    has_line(&url, "dipc_requests_finished_total{ticket=\"table\"} 3");
    let figures = json(&["top", "--once", "--json", &url]);
    let ticket = &figures["tickets"]["table"];
    assert_eq!(
        (&ticket["requests"], &ticket["rows"]),
        (&3.0.into(), &30.0.into())
    );
    assert!(ticket["first_batch_seconds"]["p99"].as_f64().unwrap() > 0.0);
    // The host and port are enough.
    let host = url
        .trim_start_matches("http://")
        .trim_end_matches("/metrics");
    let shown = run(&["top", "--once", host]);
    assert!(shown.status.success());
    let shown = text(&shown.stdout);
    let row = shown
        .lines()
        .find(|line| line.starts_with("table "))
        .unwrap();
    let cells: Vec<_> = row.split_whitespace().collect();
    assert_eq!(cells[..4], ["table", "3", "3", "30"], "{shown}");
    assert!(server.stop().0.success());
    let told = failure(1, &["top", "--once", &url]);
    assert!(told.contains("cannot get http://"), "{told}");
    let told = failure(2, &["top", "--once", "shm:@name"]);
    assert!(told.contains("is no address of figures"), "{told}");
}

/// `--log json`: each line is an object with a time, a level, a target, a text and fields; a
/// request's lines have its span, and each request has one line for an audit.
#[test]
fn the_log_can_be_json() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_in(&folder, "table.arrow");
    write_arrow(Path::new(&path), &table(10));
    let log = path_in(&folder, "log");
    let mut command = dipc();
    command.args(["--log", "json"]);
    command.stderr(File::create(&log).unwrap());
    let address = address();
    let server = Server::start_as(command, &address, &address, &[&path]);
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let mut headers = Headers::new();
    headers.add("traceparent", trace).unwrap();
    let options = GetOptions {
        headers,
        ..GetOptions::default()
    };
    let client = Client::new(ClientOptions::default()).unwrap();
    let mut stream = client
        .get(&[&server.uri], b"table", &options, None)
        .unwrap();
    while stream.next().unwrap().is_some() {}
    let refused = run(&["get", &server.uri, "no \"where\"\n"]);
    assert!(!refused.status.success());
    server.stop();
    let log = fs::read_to_string(log).unwrap();
    let lines: Vec<serde_json::Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for line in &lines {
        for key in ["time", "level", "target", "text"] {
            assert!(line[key].is_string(), "{line}");
        }
        assert!(
            line["fields"].is_object() && line["spans"].is_array(),
            "{line}"
        );
    }
    let audited: Vec<_> = lines
        .iter()
        .filter(|line| line["target"] == "dipc::audit")
        .collect();
    let [done, refused] = audited.as_slice() else {
        panic!("{audited:?}");
    };
    assert_eq!(done["fields"]["status"], "DIPC_OK");
    assert_eq!(done["fields"]["batches"], 1);
    assert_eq!(done["fields"]["ticket"], "table");
    assert_eq!(done["fields"]["uid"], rustix::process::getuid().as_raw());
    assert_eq!(done["spans"][0]["traceparent"], trace);
    assert_eq!(refused["fields"]["status"], "DIPC_ERR_NOT_FOUND");
    assert_eq!(refused["spans"][0]["ticket"], "`no \\\"where\\\"\\n`");
    let told = failure(2, &["--log", "loud", "info"]);
    assert!(
        told.contains("off, error, warn, info, debug or trace"),
        "{told}"
    );
}

/// Each call of Flight has a line for an audit: of a table that was fetched, of one that was taken,
/// of what is not there, and of a refusal.
#[test]
fn calls_of_flight_are_audited() {
    let folder = tempfile::tempdir().unwrap();
    let file = path_in(&folder, "table.arrow");
    write_arrow(Path::new(&file), &table(10));
    let (taken, tokens) = (path_in(&folder, "taken"), path_in(&folder, "tokens"));
    fs::create_dir(&taken).unwrap();
    fs::write(&tokens, "ann s3cret get,put table new gone\n").unwrap();
    let token = path_in(&folder, "token");
    fs::write(&token, "s3cret").unwrap();
    let log = path_in(&folder, "log");
    let mut command = dipc();
    command.args(["--log", "json"]);
    command.stderr(File::create(&log).unwrap());
    let args = ["--accept", &taken, "--token-file", &tokens, &file];
    let server = Server::start_flight_as(command, &args);
    let ask = |args: &[&str], succeeds: bool| {
        let output = run(&[args, &["--token-file", &token]].concat());
        let told = text(&output.stderr);
        assert_eq!(output.status.success(), succeeds, "{args:?}: {told}");
    };
    ask(&["get", &server.uri, "table"], true);
    ask(&["put", &server.uri, "new", &file], true);
    ask(&["get", &server.uri, "gone"], false);
    ask(&["get", &server.uri, "other"], false);
    server.stop();
    let log = fs::read_to_string(log).unwrap();
    let line = |method: &str, ticket: &str| {
        let mut found = log.lines().filter_map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            let fields = &line["fields"];
            (line["target"] == "dipc::audit"
                && fields["method"] == method
                && fields["ticket"] == ticket)
                .then(|| fields.clone())
        });
        let one = found
            .next()
            .unwrap_or_else(|| panic!("{method} {ticket}: {log}"));
        assert!(found.next().is_none(), "{method} {ticket}: {log}");
        one
    };
    for (method, ticket, status) in [
        ("DoGet", "table", "DIPC_OK"),
        ("DoPut", "new", "DIPC_OK"),
        ("GetFlightInfo", "gone", "DIPC_ERR_NOT_FOUND"),
        ("GetFlightInfo", "other", "DIPC_ERR_PERMISSION"),
    ] {
        let fields = line(method, ticket);
        assert_eq!(fields["status"], status, "{fields}");
        let is_carried = fields["bytes"].as_u64().unwrap() > 0;
        assert_eq!(is_carried, method.starts_with("Do"), "{fields}");
        let is_known = fields["principal"] == "ann";
        assert_eq!(is_known, status != "DIPC_ERR_PERMISSION", "{fields}");
    }
}

/// `dipc top` goes on where the server does not answer for a while.
#[test]
fn top_asks_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_in(&folder, "table.arrow");
    write_arrow(Path::new(&path), &table(10));
    let (server, url) = start(&path);
    let [shown, told] = ["shown", "told"].map(|name| path_in(&folder, name));
    let mut command = dipc();
    let mut top = command
        .args(["top", "--json", "--interval", "50ms", &url])
        .stdout(File::create(&shown).unwrap())
        .stderr(File::create(&told).unwrap())
        .spawn()
        .unwrap();
    let has = |path: &str, text: &str| fs::read_to_string(path).unwrap().contains(text);
    until("figures are shown", || has(&shown, "{"));
    assert!(server.stop().0.success());
    until("it asks again", || has(&told, "asked again"));
    assert_eq!(top.try_wait().unwrap(), None);
    top.kill().unwrap();
    top.wait().unwrap();
}
