//! `dipc put`, and `dipc serve --accept`, which takes the tables.

use std::fs::{self, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::ipc::writer::StreamWriter;
use dipc::arrow::stream::ArrayReader as _;
use dipc::arrow::{batch_from_c, batch_to_c, schema_from_c, schema_to_c};
use dipc::client::{Client, ClientOptions, GetOptions, PutOptions};
use dipc::device::DeviceKind;

use crate::outputs::terminal;
use crate::support::*;

/// A server that takes tables into `folder`.
pub fn accept(folder: &Path, more: &[&str]) -> Server {
    let folder = folder.to_str().unwrap();
    Server::start(&[&["--accept", folder], more].concat())
}

/// Files of a few rows, which every user may read.
pub struct SmallFiles {
    _folder: tempfile::TempDir,
    pub one: String,
    pub two: String,
    pub three: String,
    pub four: String,
    pub own: String,
}

pub fn small_files() -> SmallFiles {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let file = |name: &str, rows| {
        let path = path_in(&folder, name);
        write_arrow(Path::new(&path), &table(rows));
        path
    };
    SmallFiles {
        one: file("one.arrow", 1),
        two: file("two.arrow", 2),
        three: file("three.arrow", 30_000),
        four: file("four.arrow", 40_000),
        own: file("own.arrow", 5),
        _folder: folder,
    }
}

/// Puts the files, and gives the report.
fn put(uri: &str, name: &str, files: &[&str]) -> serde_json::Value {
    json(&[&["put", uri, name, "--json"], files].concat())
}

/// Asserts that the table of the server is that of the file.
pub fn assert_equal(uri: &str, ticket: &str, file: &str) {
    let report = json(&["get", uri, ticket, "--json", "--verify", file]);
    assert_eq!(report["verified"]["equal"], true, "{ticket}: {report}");
}

/// The names in a folder, sorted.
pub fn files(folder: &Path) -> Vec<String> {
    let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    let mut files: Vec<_> = names(folder).iter().map(name).collect();
    files.sort();
    files
}

/// A put of an Arrow stream on stdin, as another process writes one.
pub fn put_stdin(uri: &str, name: &str) -> Child {
    let mut command = dipc();
    command.args(["put", uri, name, "-"]);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.stderr(Stdio::piped()).spawn().unwrap()
}

/// Promise of `serve --accept`: the tables of Arrow's integration tests come out as they went in,
/// from the server that took them and from the next one in the same directory. A format that lacks
/// a type refuses the table.
#[test]
fn golden_streams_are_taken_equal() {
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
    let streams: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    for format in ["arrow", "arrows", "parquet"] {
        let folder = tempfile::tempdir().unwrap();
        let server = accept(folder.path(), &["--accept-as", format]);
        let mut taken = Vec::new();
        for path in &streams {
            let ticket = path.file_stem().unwrap().to_str().unwrap();
            let path = path.to_str().unwrap();
            let output = run(&["put", &server.uri, ticket, path]);
            if output.status.success() {
                assert_equal(&server.uri, ticket, path);
                taken.push((ticket, path));
            } else {
                let told = text(&output.stderr);
                let is_refused = [
                    "Parquet cannot hold column",
                    "a value that Parquet cannot hold",
                ]
                .iter()
                .any(|why| told.contains(why));
                assert!(format == "parquet" && is_refused, "{told}");
            }
        }
        assert_eq!(files(folder.path()).len(), taken.len());
        assert!(taken.len() + 3 >= streams.len(), "{format}: {taken:?}");
        assert!(server.stop().0.success());
        let server = accept(folder.path(), &[]);
        for (ticket, path) in taken {
            assert_equal(&server.uri, ticket, path);
        }
    }
}

/// Promise of `put`: files of every format, over every transport; the server's file has the format
/// of the name's ending, and the ticket has none.
#[test]
fn files_of_every_format_are_sent() {
    let sources = tempfile::tempdir().unwrap();
    let batch = table(5000);
    let write = |name: &str, write: fn(&Path, &RecordBatch)| {
        let path = path_in(&sources, name);
        write(Path::new(&path), &batch);
        path
    };
    let paths = [
        write("a.parquet", write_parquet),
        write("b.arrow", write_arrow),
        write("c.arrows", write_stream),
    ];
    let mut addresses = vec![("shm", address()), ("tcp", "tcp://127.0.0.1:0".to_owned())];
    if ucx_libraries().contains(&PathBuf::from("libucp.so.0")) {
        addresses.push(("ucx", "ucx://127.0.0.1:0".to_owned()));
    }
    for (scheme, at) in addresses {
        let folder = tempfile::tempdir().unwrap();
        let into = [
            "--trusted-network",
            "--accept",
            folder.path().to_str().unwrap(),
        ];
        let server = Server::start_as(dipc(), scheme, &at, &into);
        for path in &paths {
            let name = Path::new(path).file_name().unwrap().to_str().unwrap();
            let report = put(&server.uri, name, &[path]);
            let ticket = &name[..1];
            assert_eq!(
                (&report["rows"], &report["ticket"]),
                (&5000.into(), &ticket.into())
            );
            assert_equal(&server.uri, ticket, path);
        }
        assert_eq!(files(folder.path()), ["a.parquet", "b.arrow", "c.arrows"]);
        // The tables of several files, of which two columns go.
        let many: Vec<_> = paths.iter().map(String::as_str).collect();
        let report = put(
            &server.uri,
            "all",
            &[&many[..], &["--columns", "word,number"]].concat(),
        );
        assert_eq!(report["rows"], 15_000);
        let head = run(&["get", &server.uri, "all", "--head", "1"]);
        let shown = text(&head.stdout);
        assert!(shown.contains("| word | number |"), "{shown}");
        // Without rows, too.
        let empty = path_in(&sources, "empty.arrows");
        write_stream(Path::new(&empty), &batch.slice(0, 0));
        put(&server.uri, "empty", &[&empty]);
        assert_equal(&server.uri, "empty", &empty);
        let listed = json(&["ls", &server.uri, "--json"]);
        assert_eq!(listed.as_array().unwrap().len(), 5);
        assert_eq!(listed[0]["rows"], 5000);
    }
}

/// Promise of `put` on a terminal: the progress of `get`.
#[test]
fn progress_is_shown_on_a_terminal() {
    let sources = tempfile::tempdir().unwrap();
    let path = path_in(&sources, "t.parquet");
    write_parquet(Path::new(&path), &table(3000));
    let folder = tempfile::tempdir().unwrap();
    let server = accept(folder.path(), &[]);
    for (name, args) in [("a", &["--batch-rows", "1000"][..]), ("b", &["--json"])] {
        let (held, mut shown) = terminal();
        let mut command = dipc();
        command.args(["put", &server.uri, name, &path]).args(args);
        let mut child = command.stdout(Stdio::null()).stderr(held).spawn().unwrap();
        drop(command);
        let mut bytes = Vec::new();
        // Reading fails when the program has ended.
        let _ = shown.read_to_end(&mut bytes);
        assert!(wait(&mut child).success());
        let shown = text(&bytes);
        match name {
            "a" => assert!(shown.contains("3,000 of 3,000 rows, "), "{shown:?}"),
            _ => assert_eq!(shown, ""),
        }
    }
}

/// Promise of `put`: files of other columns, and files that cannot be read, leave nothing at the
/// server.
#[test]
fn bad_sources_leave_nothing() {
    let sources = tempfile::tempdir().unwrap();
    let path = path_in(&sources, "t.arrows");
    write_stream(Path::new(&path), &table(50_000));
    let other = path_in(&sources, "other.arrows");
    write_stream(Path::new(&other), &table(3).project(&[1, 0]).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let server = accept(folder.path(), &[]);
    let told = failure(1, &["put", &server.uri, "t", &path, &other]);
    assert!(told.contains("does not continue the table"), "{told}");
    let cut = path_in(&sources, "cut.arrows");
    let bytes = fs::read(&path).unwrap();
    fs::write(&cut, &bytes[..bytes.len() - 5000]).unwrap();
    let told = failure(1, &["put", &server.uri, "t", &path, &cut]);
    assert!(
        told.contains("cut.arrows") && told.contains("cut off"),
        "{told}"
    );
    // A pipe that ends where a batch ends is no whole table either.
    for end in [bytes.len() - 5000, bytes.len() - 8] {
        let mut client = put_stdin(&server.uri, "t");
        client
            .stdin
            .take()
            .unwrap()
            .write_all(&bytes[..end])
            .unwrap();
        let output = client.wait_with_output().unwrap();
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains("stdin") && told.contains("cut off"), "{told}");
    }
    let mut client = put_stdin(&server.uri, "t");
    client
        .stdin
        .take()
        .unwrap()
        .write_all(b"a,b\n1,2\n")
        .unwrap();
    let told = text(&client.wait_with_output().unwrap().stderr);
    assert!(told.contains("no Arrow stream"), "{told}");
    until("nothing is there", || files(folder.path()).is_empty());
    let mut client = put_stdin(&server.uri, "t");
    client.stdin.take().unwrap().write_all(&bytes).unwrap();
    assert!(client.wait_with_output().unwrap().status.success());
    assert_equal(&server.uri, "t", &path);
}

/// Promise of `serve --accept`: no name leads out of the directory, or to a hidden file.
#[test]
fn hostile_names_are_refused() {
    let small = small_files();
    let outer = tempfile::tempdir().unwrap();
    let folder = outer.path().join("inner");
    fs::create_dir(&folder).unwrap();
    std::os::unix::fs::symlink(outer.path(), folder.join("link")).unwrap();
    std::os::unix::fs::symlink(outer.path().join("x"), folder.join("out.arrow")).unwrap();
    let server = accept(&folder, &["--replace"]);
    let long = "x".repeat(201);
    let absolute = path_in(&outer, "t");
    for name in [
        "",
        ".",
        "..",
        ".hidden",
        "../t",
        "a/../../t",
        "link/t",
        "a\nb",
        "\u{1b}[31m",
        &long,
        &absolute,
    ] {
        let told = failure(1, &["put", &server.uri, name, &small.one]);
        assert!(told.contains("is no name for a table"), "{told}");
    }
    let told = failure(1, &["put", &server.uri, "out", &small.one]);
    assert!(told.contains("no regular file"), "{told}");
    assert_eq!(files(&folder), ["link", "out.arrow"]);
    assert_eq!(files(outer.path()), ["inner"]);
    put(&server.uri, &"x".repeat(200), &[&small.one]);
    put(&server.uri, "日本 = ..", &[&small.one]);
    assert_equal(&server.uri, "日本 = ..", &small.one);
}

/// Promise of `serve --accept`: an existing table stays, unless `--replace` allows its replacement,
/// which keeps the file's format. Tables from outside the directory always stay.
#[test]
fn tables_stay_unless_they_may_be_replaced() {
    let small = small_files();
    let folder = tempfile::tempdir().unwrap();
    let server = accept(folder.path(), &[&small.own]);
    put(&server.uri, "t.parquet", &[&small.one]);
    for name in ["t", "t.parquet", "t.arrow"] {
        let told = failure(1, &["put", &server.uri, name, &small.two]);
        assert!(told.contains("--replace"), "{told}");
    }
    assert_equal(&server.uri, "t", &small.one);
    // A deleted file leaves its name.
    std::fs::remove_file(folder.path().join("t.parquet")).unwrap();
    put(&server.uri, "t.arrow", &[&small.two]);
    assert_equal(&server.uri, "t", &small.two);
    std::fs::remove_file(folder.path().join("t.arrow")).unwrap();
    put(&server.uri, "t.parquet", &[&small.one]);
    assert!(server.stop().0.success());
    let server = accept(folder.path(), &[&small.own, "--replace"]);
    let told = failure(1, &["put", &server.uri, "t.arrow", &small.two]);
    assert!(told.contains("t.parquet"), "{told}");
    for file in [&small.two, &small.three] {
        put(&server.uri, "t", &[file]);
        assert_equal(&server.uri, "t", file);
    }
    let told = failure(1, &["put", &server.uri, "own", &small.one]);
    assert!(told.contains("from outside the directory"), "{told}");
    assert_eq!(files(folder.path()), ["t.parquet"]);
    // One server for each directory.
    let path = folder.path().to_str().unwrap();
    let told = failure(1, &["serve", "--listen", &address(), "--accept", path]);
    assert!(told.contains("another server"), "{told}");
}

/// A server without `--accept` takes nothing.
#[test]
fn other_servers_take_nothing() {
    let small = small_files();
    let server = Server::start(&[&small.own]);
    let told = failure(1, &["put", &server.uri, "t", &small.two]);
    assert!(told.contains("takes no tables"), "{told}");
    let told = failure(1, &["put", &address(), "t", &small.two]);
    assert!(told.contains("no server listens at"), "{told}");
    assert!(failure(2, &["put", &server.uri, "t"]).contains("FILE"));
    assert!(failure(2, &["put", &server.uri, "t", "-", "-"]).contains("once"));
}

/// Of several clients that put one name at once, one is taken; with `--replace` the last of them.
/// No table is a mixture.
#[test]
fn one_of_several_puts_is_taken() {
    let small = small_files();
    let tables = [&small.one, &small.two, &small.three, &small.four];
    for replace in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let more: &[&str] = if replace { &["--replace"] } else { &[] };
        let server = accept(folder.path(), more);
        let mut clients = Vec::new();
        for table in tables.iter().cycle().take(8) {
            let mut command = dipc();
            command.args(["put", &server.uri, "t", table]);
            let command = command.stdout(Stdio::null()).stderr(Stdio::piped());
            clients.push((table, command.spawn().unwrap()));
        }
        let mut taken = Vec::new();
        for (table, client) in clients {
            let output = client.wait_with_output().unwrap();
            let told = text(&output.stderr);
            match output.status.success() {
                true => taken.push(*table),
                false => assert!(!replace && told.contains("there is a table"), "{told}"),
            }
        }
        assert_eq!(taken.len(), if replace { 8 } else { 1 });
        let equal = |table: &&String| {
            let output = run(&["get", &server.uri, "t", "--verify", table]);
            output.status.success()
        };
        assert!(taken.iter().any(equal), "{taken:?}");
        assert_eq!(files(folder.path()), ["t.arrow"]);
    }
}

/// Writes the first batches of a stream to the client's stdin, and gives the writer.
pub fn begin_stream(client: &mut Child, batches: usize) -> StreamWriter<std::process::ChildStdin> {
    let batch = table(1000);
    let stdin = client.stdin.take().unwrap();
    let mut writer = StreamWriter::try_new(stdin, &batch.schema()).unwrap();
    for _ in 0..batches {
        writer.write(&batch).unwrap();
    }
    writer
}

/// Promise of `serve --accept`: the answer to an exchange is the table as it is served thereafter,
/// in the format of its file.
#[test]
fn an_exchange_gives_the_table_back() {
    let folder = tempfile::tempdir().unwrap();
    let server = accept(folder.path(), &[]);
    let client = Client::new(ClientOptions::default()).unwrap();
    let batch = table(5000);
    let schema = schema_to_c(&batch.schema()).unwrap();
    let options = (&PutOptions::default(), &GetOptions::default());
    let described = (&schema, DeviceKind::CPU.0);
    let exchange = client.exchange(&[&server.uri], b"t.parquet", described, options, None);
    let (mut put, mut answer) = exchange.unwrap();
    for rows in [(0, 2000), (2000, 3000)] {
        let part = batch_to_c(batch.slice(rows.0, rows.1));
        let pushed = put.push(part, None, None);
        pushed.map_err(|(error, _)| error).unwrap();
    }
    // The end is told before the answer begins, and waited for behind it.
    let _ = put.finish(Some(Duration::ZERO));
    let schema = Arc::new(schema_from_c(&answer.schema().unwrap()).unwrap());
    let mut parts = Vec::new();
    while let Some(array) = answer.next().unwrap() {
        // SAFETY: the stream has checked the array against its schema.
        parts.push(unsafe { batch_from_c(array, &schema) }.unwrap());
    }
    put.finish(None).unwrap();
    assert_eq!(put.headers().get("ticket"), Some(&b"t"[..]));
    assert_eq!(concat_batches(&batch.schema(), &parts).unwrap(), batch);
    assert_eq!(files(folder.path()), ["t.parquet"]);
    // The same name again is refused.
    let again = client.exchange(&[&server.uri], b"t", described, options, None);
    let error = again.map(drop).unwrap_err();
    assert!(error.text().contains("there is a table"), "{error}");
}
