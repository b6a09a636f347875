//! Servers and clients as processes, and files to serve.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arrow::array::{
    ArrayRef, DictionaryArray, Float64Array, Int32Array, ListArray, RecordBatch, StringArray,
    StringViewArray,
};
use arrow::datatypes::{Int8Type, Int32Type};
use arrow::ipc::writer::{FileWriter, StreamWriter};
use parquet::arrow::ArrowWriter;
use rustix::process::{Pid, Signal, kill_process};

/// Time limit for each wait; then the test fails.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The tables `nation` and `region` of TPC-H, as files. A server that generates them makes a pool of
/// texts of 300 MB first.
pub const NATION: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/cli/tables/nation.arrows"
);
/// See [`NATION`].
pub const REGION: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/cli/tables/region.arrows"
);

/// The command, ready for arguments.
pub fn dipc() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dipc"));
    command.stdin(Stdio::null());
    command
}

/// Runs the command to its end.
pub fn run(args: &[&str]) -> Output {
    dipc().args(args).output().unwrap()
}

/// Runs the command, which must succeed, and reads its JSON.
pub fn json(args: &[&str]) -> serde_json::Value {
    let output = run(args);
    assert!(
        output.status.success(),
        "{args:?}: {}: {}",
        output.status,
        text(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Runs the command, which must fail with `code` and one line; gives the line.
pub fn failure(code: i32, args: &[&str]) -> String {
    let output = run(args);
    let line = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {line}");
    if code == 1 {
        assert_eq!(line.trim_end().lines().count(), 1, "{line}");
        assert!(line.starts_with("dipc: "), "{line}");
        assert_said_once(&line);
    }
    line
}

/// Asserts that no part of an error's text is repeated: context is added only if the text lacks it.
pub fn assert_said_once(line: &str) {
    let parts: Vec<_> = line.trim_end().split(": ").collect();
    for (index, part) in parts.iter().enumerate() {
        let twice = part.contains(' ') && parts[index + 1..].iter().any(|one| one.contains(part));
        assert!(!twice, "twice `{part}`: {line}");
    }
}

/// Every UCX of the machine: Debian's, and PyPI's if `tools/setup.sh test` has installed it. Prints
/// a line if there is none.
pub fn ucx_libraries() -> Vec<PathBuf> {
    let venv = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(".tools/venv/lib");
    let pythons = fs::read_dir(venv).into_iter().flatten().flatten();
    let wheels = pythons.map(|python| python.path().join("site-packages/libucx/lib/libucp.so.0"));
    let found: Vec<_> = std::iter::once(PathBuf::from("libucp.so.0"))
        .chain(wheels.filter(|library| library.exists()))
        .filter(|library| has_ucx(library))
        .collect();
    if found.is_empty() {
        println!("skipped: ucx, which dipc info says is not available");
    }
    found
}

fn has_ucx(library: &Path) -> bool {
    let mut command = dipc();
    command.env("DIPC_UCX_LIBRARY", library);
    let output = command.args(["info", "--json"]).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let transports = report["transports"].as_array().unwrap();
    let available = |one: &serde_json::Value| one["name"] == "ucx" && one["available"] == true;
    transports.iter().any(available)
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// An abstract address that no other test has.
pub fn address() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("shm:@dipc-cli-{}-{number}", std::process::id())
}

pub fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// Some user that this process is not.
pub const OTHER_USER: u32 = 54_321;

/// Connects as another user, if this process may.
pub fn connect_as_another(address: &SocketAddr) -> Option<UnixStream> {
    let connect = || {
        // The system call changes only this thread's user; the C library's function changes all
        // threads.
        let unchanged = libc::c_long::from(-1);
        let other = libc::c_long::from(OTHER_USER);
        // SAFETY: sets the effective uid of the calling thread; no memory is involved.
        let set = unsafe { libc::syscall(libc::SYS_setresuid, unchanged, other, unchanged) };
        if set != 0 {
            eprintln!("skipped: this process cannot be another user");
            return None;
        }
        Some(UnixStream::connect_addr(address).unwrap())
    };
    // The thread ends as the other user.
    std::thread::scope(|scope| scope.spawn(connect).join().unwrap())
}

/// What a command says that a signal ends. Its exit status is that of shells: 128 and the signal.
pub fn interrupted(child: Child, signal: Signal) -> String {
    let output = child.wait_with_output().unwrap();
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(128 + signal.as_raw()), "{told}");
    assert!(told.starts_with("dipc: interrupted"), "{told}");
    told
}

/// Waits for the process to end by itself.
pub fn wait(child: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(Instant::now() < deadline, "the process did not end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until `condition` holds.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A server process, killed when dropped.
pub struct Server {
    pub child: Child,
    pub uri: String,
    stdout: BufReader<ChildStdout>,
}

impl Server {
    /// Serves at a new address.
    pub fn start(args: &[&str]) -> Self {
        Self::start_at(&address(), args)
    }

    /// Serves at `address`, and waits until it is ready.
    pub fn start_at(address: &str, args: &[&str]) -> Self {
        Self::start_as(dipc(), address, address, args)
    }

    /// The same with `command`; the printed address begins with `begins`.
    pub fn start_as(mut command: Command, begins: &str, address: &str, args: &[&str]) -> Self {
        let mut child = command
            .args(["serve", "--listen", address])
            .args(args)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        // Made before the first answer of the process, so that a bad answer also kills it.
        let uri = String::new();
        let mut server = Self { child, uri, stdout };
        let line = server.line();
        server.uri = match line.strip_prefix("ready ") {
            Some(uri) => uri.to_owned(),
            None => serde_json::from_str::<serde_json::Value>(&line).unwrap()["ready"]
                .as_str()
                .unwrap()
                .to_owned(),
        };
        assert!(server.uri.starts_with(begins), "{line}");
        server
    }

    /// Serves Flight clients at a new port, with `args`; its URI is Flight's.
    pub fn start_flight(args: &[&str]) -> Self {
        Self::start_flight_as(dipc(), args)
    }

    /// The same with `command`.
    pub fn start_flight_as(mut command: Command, args: &[&str]) -> Self {
        let mut child = command
            .args(["serve", "--flight", "127.0.0.1:0"])
            .args(args)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let uri = String::new();
        let mut server = Self { child, uri, stdout };
        loop {
            let mut line = String::new();
            let read = server.stdout.read_line(&mut line).unwrap();
            assert!(read > 0, "it is not ready");
            let json = serde_json::from_str::<serde_json::Value>(&line).ok();
            let told = json.as_ref().and_then(|json| json["flight"].as_str());
            if let Some(uri) = told.or_else(|| line.trim_end().strip_prefix("flight ")) {
                assert!(uri.contains("://127.0.0.1:"), "{line}");
                uri.clone_into(&mut server.uri);
                return server;
            }
        }
    }

    /// The next line of its output.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Stops the server by SIGTERM; gives its status and the rest of its output.
    pub fn stop(mut self) -> (ExitStatus, String) {
        signal(&self.child, Signal::TERM);
        let status = wait(&mut self.child);
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        (status, rest)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A table with a few types of columns.
pub fn table(rows: i32) -> RecordBatch {
    let words: Vec<_> = (0..rows)
        .map(|row| (row % 7 > 0).then(|| format!("a rather long word, the {row}th")))
        .collect();
    let words = || words.iter().map(|word| word.as_deref());
    let lists = (0..rows).map(|row| (row % 5 > 0).then(|| vec![Some(row), None]));
    let kinds = ["even", "odd"].into_iter().cycle().take(rows as usize);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("number", Arc::new(Int32Array::from_iter_values(0..rows))),
        (
            "float",
            Arc::new(Float64Array::from_iter_values(
                (0..rows).map(|row| f64::from(row) / 7.0),
            )),
        ),
        ("word", Arc::new(words().collect::<StringArray>())),
        ("view", Arc::new(words().collect::<StringViewArray>())),
        (
            "list",
            Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists)),
        ),
        (
            "kind",
            Arc::new(kinds.collect::<DictionaryArray<Int8Type>>()),
        ),
    ];
    RecordBatch::try_from_iter_with_nullable(
        columns
            .into_iter()
            .map(|(name, column)| (name, column, true)),
    )
    .unwrap()
}

pub fn write_parquet(path: &Path, batch: &RecordBatch) {
    let mut writer =
        ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), None).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

pub fn write_arrow(path: &Path, batch: &RecordBatch) {
    let mut writer = FileWriter::try_new(File::create(path).unwrap(), &batch.schema()).unwrap();
    writer.write(batch).unwrap();
    writer.finish().unwrap();
}

pub fn write_stream(path: &Path, batch: &RecordBatch) {
    let mut writer = StreamWriter::try_new(File::create(path).unwrap(), &batch.schema()).unwrap();
    writer.write(batch).unwrap();
    writer.finish().unwrap();
}

/// A path in `folder`, as text.
pub fn path_in(folder: &tempfile::TempDir, name: &str) -> String {
    folder.path().join(name).to_str().unwrap().to_owned()
}

/// The files of a folder.
pub fn names(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect()
}
