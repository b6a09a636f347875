//! What `get` does with a table: stdout, CSV, some columns, progress.

use std::ffi::CStr;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Child, Stdio};

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::ipc::reader::StreamReader;
use rustix::process::Signal;

use crate::support::*;

/// The rows of an Arrow stream.
fn rows_of(stream: &[u8]) -> RecordBatch {
    let reader = StreamReader::try_new(stream, None).unwrap();
    let schema = reader.schema();
    let batches: Vec<_> = reader.map(Result::unwrap).collect();
    concat_batches(&schema, &batches).unwrap()
}

fn stderr_of(mut child: Child) -> String {
    let mut told = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut told)
        .unwrap();
    told
}

/// Promise of `--output -`: stdout is an Arrow stream and nothing else; the report, its JSON and the
/// first rows go to stderr.
#[test]
fn a_table_goes_to_stdout() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_in(&folder, "t.arrow");
    write_arrow(Path::new(&path), &table(3000));
    let server = Server::start(&[&path, "--batch-rows", "700"]);
    let get = ["get", &server.uri, "t", "--output", "-"];
    let output = run(&[&get[..], &["--head", "1"]].concat());
    assert!(output.status.success());
    assert_eq!(rows_of(&output.stdout), table(3000));
    let told = text(&output.stderr);
    assert!(told.contains("\nt: 3,000 rows in 5 batches,"), "{told}");
    assert!(told.contains("\nwritten to stdout"), "{told}");
    assert!(told.contains("| number |"), "{told}");

    let output = run(&[&get[..], &["--json", "--checksum"]].concat());
    assert_eq!(rows_of(&output.stdout).num_rows(), 3000);
    let report: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(
        (&report["rows"], &report["output"]),
        (&3000.into(), &"stdout".into())
    );
    assert!(report["checksum"].is_string());
    failure(1, &["get", &server.uri, "none", "--output", "-"]);
}

/// Promise of `--output -`: a reader that goes ends the command quietly. A comparison is made all
/// the same.
#[test]
fn a_reader_of_stdout_may_go() {
    let server = Server::start(&["--tpch", "orders", "--scale", "0.02"]);
    let start = |more: &[&str]| {
        let mut command = dipc();
        command
            .args(["get", &server.uri, "orders", "--output", "-"])
            .args(more);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // More than a pipe holds is to come.
        let mut first = [0; 100];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        child
    };
    let mut child = start(&[]);
    assert_eq!(wait(&mut child).code(), Some(0));
    assert_eq!(stderr_of(child), "");
    for (scale, code, said) in [("0.02", 0, "\nequal to "), ("0.01", 1, "\nNOT equal to ")] {
        let mut child = start(&["--verify", &format!("tpch:orders:{scale}")]);
        assert_eq!(wait(&mut child).code(), Some(code));
        let told = stderr_of(child);
        assert!(
            told.contains(said) && !told.contains("written to"),
            "{told}"
        );
    }
}

/// Promise of `get`: SIGINT ends it, also while it waits for a reader of stdout that does not read.
#[test]
fn an_interrupt_ends_the_wait_for_a_reader() {
    let server = Server::start(&["--tpch", "orders", "--scale", "0.02"]);
    let mut command = dipc();
    command.args(["get", &server.uri, "orders", "--output", "-"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut unread = child.stdout.take().unwrap();
    unread.read_exact(&mut [0; 100]).unwrap();
    signal(&child, Signal::INT);
    let told = interrupted(child, Signal::INT);
    assert!(told.starts_with("dipc: interrupted before"), "{told}");
}

/// Promise of `--columns`: these columns in this order, in all that is done with the table.
#[test]
fn columns_are_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_in(&folder, "t.arrow");
    write_arrow(Path::new(&path), &table(30));
    let wanted = table(30).project(&[5, 0]).unwrap();
    let narrow = path_in(&folder, "narrow.arrow");
    write_arrow(Path::new(&narrow), &wanted);
    let server = Server::start(&[&path]);
    let get = ["get", &server.uri, "t", "--columns", "kind,number"];
    let output = run(&[&get[..], &["--output", "-"]].concat());
    assert_eq!(rows_of(&output.stdout), wanted);
    let shown = text(&run(&[&get[..], &["--head", "1"]].concat()).stdout);
    assert!(shown.contains("| kind | number |"), "{shown}");
    for against in [&path, &narrow] {
        let report = json(&[&get[..], &["--json", "--verify", against]].concat());
        assert_eq!(report["verified"]["equal"], true);
    }
    let server = Server::start(&[&narrow]);
    let hash =
        |args: &[&str]| json(&[args, &["--json", "--checksum"]].concat())["checksum"].clone();
    assert_eq!(hash(&get), hash(&["get", &server.uri, "narrow"]));
    let told = failure(1, &["get", &server.uri, "narrow", "--columns", "word"]);
    assert!(
        told.contains("\"word\"; the table has kind, number"),
        "{told}"
    );
}

/// Promise of `--columns`, `--offset` and `--limit`: the server sends these rows and columns alone.
#[test]
fn rows_are_chosen_and_others_are_not_sent() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_in(&folder, "t.arrow");
    write_arrow(Path::new(&path), &table(3000));
    let server = Server::start(&[&path, "--batch-rows", "700"]);
    let get = |args: &[&str]| {
        let get = ["get", &server.uri, "t", "--output", "-"];
        rows_of(&run(&[&get[..], args].concat()).stdout)
    };
    assert_eq!(
        get(&["--offset", "650", "--limit", "100"]),
        table(3000).slice(650, 100)
    );
    assert_eq!(get(&["--offset", "2990"]), table(3000).slice(2990, 10));
    assert_eq!(get(&["--limit", "0"]).num_rows(), 0);
    let some = get(&["--columns", "number", "--limit", "7"]);
    assert_eq!(some, table(3000).project(&[0]).unwrap().slice(0, 7));

    let tcp = Server::start_as(dipc(), "tcp:", "tcp://127.0.0.1:0", &[&path]);
    let received = |args: &[&str]| {
        let get = ["get", &tcp.uri, "t", "--json"];
        json(&[&get[..], args].concat())["bytes_received"]
            .as_u64()
            .unwrap()
    };
    let whole = received(&[]);
    assert!(received(&["--columns", "number"]) < whole / 2);
    assert!(received(&["--offset", "1000", "--limit", "100"]) < whole / 10);
    for wrong in [["--limit", "1", "--parts"], ["--offset", "1", "--parts"]] {
        failure(2, &[&["get", &tcp.uri, "t"][..], &wrong].concat());
    }
}

/// Promise of `--columns`: where the server cannot select a column, for its name has a comma, the
/// command does.
#[test]
fn columns_with_commas_in_their_names_are_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_in(&folder, "t.arrow");
    let columns = table(30).columns().to_vec();
    let names = (0..columns.len()).map(|number| format!("{number},{number}"));
    let odd = RecordBatch::try_from_iter_with_nullable(
        names
            .zip(columns)
            .map(|(name, column)| (name, column, true)),
    );
    write_arrow(Path::new(&path), &odd.unwrap());
    let server = Server::start(&[&path]);
    let get = ["get", &server.uri, "t", "--output", "-", "--columns", "1,1"];
    let rows = rows_of(&run(&get).stdout);
    assert_eq!(rows.schema().field(0).name(), "1,1");
    assert_eq!((rows.num_columns(), rows.num_rows()), (1, 30));
}

/// Promise of `--output FILE.csv`: a line of names, and a line for each row.
#[test]
fn a_table_is_written_as_csv() {
    let folder = tempfile::tempdir().unwrap();
    let out = path_in(&folder, "nation.csv");
    let server = Server::start(&["--tpch", "nation", "--batch-rows", "10"]);
    let get = [
        "get",
        &server.uri,
        "nation",
        "--output",
        &out,
        "--columns",
        "n_nationkey,n_name",
    ];
    assert!(run(&get).status.success());
    let lines = std::fs::read_to_string(&out).unwrap();
    assert!(
        lines.starts_with("n_nationkey,n_name\n0,ALGERIA\n1,ARGENTINA\n"),
        "{lines}"
    );
    assert_eq!(lines.lines().count(), 26);
}

/// A terminal: the end that a program has, and the end that shows it. No process that another test
/// starts gets them.
pub fn terminal() -> (File, File) {
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: no memory is involved.
    let shown = unsafe { libc::posix_openpt(flags) };
    assert!(shown >= 0);
    // SAFETY: the call has made this descriptor, and nobody else has it.
    let shown = unsafe { File::from_raw_fd(shown) };
    let size = libc::winsize {
        ws_row: 24,
        ws_col: 100,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let mut name = [0_u8; 64];
    let fd = shown.as_raw_fd();
    // SAFETY: no memory is involved.
    assert_eq!(unsafe { libc::unlockpt(fd) }, 0);
    // SAFETY: the call reads `size`.
    let sized = unsafe { libc::ioctl(fd, libc::TIOCSWINSZ, &raw const size) };
    // SAFETY: the call writes at most the length of `name`.
    let named = unsafe { libc::ptsname_r(fd, name.as_mut_ptr().cast(), name.len()) };
    assert_eq!((sized, named), (0, 0));
    let name = CStr::from_bytes_until_nul(&name).unwrap().to_str().unwrap();
    let mut options = File::options();
    let options = options.read(true).write(true).custom_flags(libc::O_NOCTTY);
    (options.open(name).unwrap(), shown)
}

/// Promise of `get` on a terminal: a bar with what has come and what is to come, where the server
/// knows the rows; the rows alone where it does not. The line is removed at the end.
#[test]
fn progress_is_shown_on_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_in(&folder, "t.parquet");
    write_parquet(Path::new(&path), &table(3000));
    let known = Server::start(&[&path, "--arena", "--batch-rows", "1000"]);
    let unknown = Server::start(&["--tpch", "nation"]);
    let shown_for = |server: &Server, args: &[&str]| {
        let (held, mut shown) = terminal();
        let mut command = dipc();
        command.args(["get", &server.uri]).args(args);
        let mut child = command.stdout(Stdio::null()).stderr(held).spawn().unwrap();
        drop(command);
        let mut bytes = Vec::new();
        // Reading fails when the program has ended.
        let _ = shown.read_to_end(&mut bytes);
        assert!(wait(&mut child).success());
        text(&bytes)
    };
    let shown = shown_for(&known, &["t"]);
    assert!(shown.contains("0 of 3,000 rows, 0 B"), "{shown:?}");
    assert!(shown.contains("3,000 of 3,000 rows, "), "{shown:?}");
    assert!(
        shown.contains("100%") && shown.ends_with("\u{1b}[2K"),
        "{shown:?}"
    );
    let shown = shown_for(&unknown, &["nation"]);
    assert!(
        shown.contains(" 25 rows, ") && !shown.contains('%'),
        "{shown:?}"
    );
    assert_eq!(shown_for(&known, &["t", "--json"]), "");
    assert_eq!(shown_for(&known, &["t", "--head", "1"]), "");
}

/// Promise of `--output -`: an Arrow stream is not written to a terminal.
#[test]
fn a_terminal_gets_no_arrow_stream() {
    let (held, _shown) = terminal();
    let mut command = dipc();
    command.args(["get", &address(), "t", "--output", "-"]);
    let child = command.stdout(held).stderr(Stdio::piped()).spawn().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("give --output - a pipe or a file"));
}
