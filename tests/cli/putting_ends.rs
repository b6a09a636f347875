//! How tables end that are being put: signals, kill -9 on either side, a full disk, rights.

use std::fs::{self, Permissions};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use arrow::array::{ArrayRef, NullArray, RecordBatch};
use rustix::process::Signal;

use crate::putting::{accept, assert_equal, begin_stream, files, put_stdin, small_files};
use crate::support::*;

/// Promise of `serve --accept`: a client that is killed, or interrupted, in mid-table leaves
/// nothing, and the name is free.
#[test]
fn a_client_that_goes_leaves_nothing() {
    let small = small_files();
    let folder = tempfile::tempdir().unwrap();
    let server = accept(folder.path(), &[]);
    for sent in [Signal::KILL, Signal::INT, Signal::TERM] {
        let mut client = put_stdin(&server.uri, "t");
        let writer = begin_stream(&mut client, 3);
        until("the table is being written", || {
            !files(folder.path()).is_empty()
        });
        assert!(!run(&["get", &server.uri, "t"]).status.success());
        signal(&client, sent);
        match sent {
            Signal::KILL => drop(client.wait_with_output().unwrap()),
            _ => drop(interrupted(client, sent)),
        }
        until("nothing is left", || files(folder.path()).is_empty());
        drop(writer);
    }
    assert!(run(&["put", &server.uri, "t", &small.one]).status.success());
    assert_equal(&server.uri, "t", &small.one);
}

/// Promise of `serve --accept`: a client is told why its table is not taken, and not where the
/// server's folder is, also where the operator named that by `.`.
#[test]
fn a_folder_that_is_gone_is_told_without_its_path() {
    let small = small_files();
    let folder = tempfile::tempdir().unwrap();
    let at = address();
    let mut command = dipc();
    command.current_dir(folder.path());
    let server = Server::start_as(command, &at, &at, &["--accept", "."]);
    let path = folder.path().to_str().unwrap().to_owned();
    fs::remove_dir_all(folder.path()).unwrap();
    let told = failure(1, &["put", &server.uri, "t.arrow", &small.one]);
    assert!(!told.contains(&path), "{told}");
    let expected = "dipc: the server: cannot write in the directory for tables: there is no such \
                    directory; make it first";
    assert_eq!(told.trim_end(), expected);
}

/// The same for a table whose one batch is long work for the server: the work ends with its client,
/// and the client's place is free.
#[test]
fn work_on_a_batch_ends_with_its_client() {
    let sources = tempfile::tempdir().unwrap();
    let folder = tempfile::tempdir().unwrap();
    // Rows without bytes: all of them have come when the server begins to write.
    let column = |number: usize| (format!("c{number}"), Arc::new(NullArray::new(1 << 26)) as _);
    let batch = RecordBatch::try_from_iter_with_nullable(
        (0..16)
            .map(column)
            .map(|(name, column): (_, ArrayRef)| (name, column, true)),
    );
    let long = path_in(&sources, "long.arrows");
    write_stream(Path::new(&long), &batch.unwrap());
    let server = accept(folder.path(), &["--max-streams", "1"]);
    let mut client = dipc()
        .args(["put", &server.uri, "t.parquet", &long])
        .spawn()
        .unwrap();
    until("the table is being written", || {
        !files(folder.path()).is_empty()
    });
    let before = ticks(&server.child);
    until("the writer works", || ticks(&server.child) > before + 10);
    client.kill().unwrap();
    assert!(!wait(&mut client).success(), "the work was over already");
    until("nothing is left", || files(folder.path()).is_empty());
    let small = small_files();
    until("the place is free", || {
        run(&["put", &server.uri, "t", &small.one]).status.success()
    });
    assert_eq!(files(folder.path()), ["t.arrow"]);
    // Whole, the work takes many times as much.
    let used = ticks(&server.child) - before;
    assert!(used < 500, "{used} ticks");
}

/// Processor time that a process has used, in the system's ticks.
fn ticks(child: &Child) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    // The name may have spaces, and ends with the last parenthesis.
    let (_, fields) = stat.rsplit_once(')').unwrap();
    fields.split_whitespace().nth(11).unwrap().parse().unwrap()
}

/// The same for a client that reads files.
#[test]
fn an_interrupted_file_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let server = accept(folder.path(), &["--accept-as", "parquet"]);
    let mut command = dipc();
    command.args(["put", &server.uri, "t", "tpch:lineitem:10"]);
    let client = command
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    until("the table is being written", || {
        !files(folder.path()).is_empty()
    });
    signal(&client, Signal::INT);
    interrupted(client, Signal::INT);
    until("nothing is left", || files(folder.path()).is_empty());
}

/// Promise of `serve --accept`: of a server that is killed in mid-table no file has the table's
/// name, and the next server removes what is left. Whole tables stay.
#[test]
fn a_killed_server_leaves_whole_tables() {
    let small = small_files();
    let folder = tempfile::tempdir().unwrap();
    let mut server = accept(folder.path(), &[]);
    assert!(
        run(&["put", &server.uri, "whole", &small.one])
            .status
            .success()
    );
    let mut client = put_stdin(&server.uri, "half");
    let mut writer = begin_stream(&mut client, 3);
    until("the table is being written", || {
        files(folder.path()).len() == 2
    });
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    // The client finds out when it sends more.
    while writer.write(&table(1000)).is_ok() {}
    let output = client.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let left = files(folder.path());
    assert!(
        left[0].starts_with(".dipc-put-") && left[1] == "whole.arrow",
        "{left:?}"
    );
    // Other hidden files stay, also those of a `get` into the same directory.
    fs::write(folder.path().join(".dipc-other"), b"x").unwrap();
    let server = accept(folder.path(), &[]);
    assert_eq!(files(folder.path()), [".dipc-other", "whole.arrow"]);
    assert_equal(&server.uri, "whole", &small.one);
    assert!(
        run(&["put", &server.uri, "half", &small.two])
            .status
            .success()
    );
    assert_equal(&server.uri, "half", &small.two);
}

/// Promise of `serve`: a table under way has the time of `--drain`; then it fails, and leaves
/// nothing.
#[test]
fn a_stopped_server_fails_what_is_under_way() {
    let folder = tempfile::tempdir().unwrap();
    let server = accept(folder.path(), &["--drain", "100ms"]);
    let mut client = put_stdin(&server.uri, "t");
    let mut writer = begin_stream(&mut client, 3);
    until("the table is being written", || {
        !files(folder.path()).is_empty()
    });
    assert!(server.stop().0.success());
    while writer.write(&table(1000)).is_ok() {}
    let output = client.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let _next = accept(folder.path(), &[]);
    assert!(files(folder.path()).is_empty());
}

/// Promise of `serve --accept`: a full disk fails the table, tells the client, and leaves nothing.
/// The server's log names the file, the client does not learn where it is. A file size limit stands
/// for the disk.
#[test]
fn a_full_disk_takes_no_half_table() {
    let small = small_files();
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", r#"trap '' XFSZ; ulimit -f 64; exec "$@""#, "sh"]);
    command.arg(env!("CARGO_BIN_EXE_dipc"));
    let at = address();
    let into = ["--accept", folder.path().to_str().unwrap()];
    command.stderr(Stdio::piped());
    let mut server = Server::start_as(command, &at, &at, &into);
    for name in ["t.arrow", "t.arrows", "t.parquet"] {
        let told = failure(1, &["put", &server.uri, name, "tpch:lineitem:0.01"]);
        assert!(
            told.contains(name) && told.contains("File too large"),
            "{told}"
        );
        assert!(!told.contains(folder.path().to_str().unwrap()), "{told}");
        assert!(files(folder.path()).is_empty());
    }
    assert!(run(&["put", &server.uri, "t", &small.one]).status.success());
    let mut stderr = server.child.stderr.take().unwrap();
    assert!(server.stop().0.success());
    let mut log = String::new();
    stderr.read_to_string(&mut log).unwrap();
    for name in ["t.arrow", "t.arrows", "t.parquet"] {
        let path = folder.path().join(name);
        let path = path.to_str().unwrap();
        let is_told = |line: &str| {
            line.contains("WARN") && line.contains(path) && line.contains("File too large")
        };
        assert!(log.lines().any(is_told), "{log}");
    }
}

/// A server without the right to write, and clients of another user: refused with the reason.
#[test]
fn rights_are_those_of_the_server() {
    let small = small_files();
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let server = accept(folder.path(), &[]);
    let mut other = dipc();
    other.uid(OTHER_USER);
    let put = ["put", &server.uri, "t", &small.one, "--any-user"];
    let Ok(output) = other.args(put).output() else {
        eprintln!("skipped: the command does not run as another user");
        return;
    };
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("admits its own user alone"), "{told}");
    assert!(server.stop().0.success());
    let mut other = dipc();
    other.uid(OTHER_USER);
    let at = address();
    let into = ["--any-user", "--accept", folder.path().to_str().unwrap()];
    let output = other.args(["serve", "--listen", &at]).args(into).output();
    let output = output.unwrap();
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(
        told.contains("cannot take tables into") && told.contains("denied"),
        "{told}"
    );
    assert!(files(folder.path()).is_empty());
}
