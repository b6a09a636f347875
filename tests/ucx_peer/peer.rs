//! Builds and runs the peer (`peer.h`).

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

/// A peer that hangs ends itself after this time, and its test fails.
const LIMIT_SECONDS: u32 = 120;

/// The peer's options for these tests.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Endpoints have error mode PEER.
    pub error_mode_peer: bool,
    /// Use only the features TAG, AM and WAKEUP.
    pub minimal: bool,
}

/// How a peer ended.
#[derive(Debug)]
pub enum Outcome {
    /// Success, with this standard output.
    Done(String),
    /// An error, with this standard error.
    Failed(String),
    /// Its own alarm.
    TimedOut,
}

/// The peer, built and run with one UCX.
#[derive(Debug)]
pub struct Peer {
    program: PathBuf,
    /// The folder of its libraries, if it is not a standard one.
    libraries: Option<OsString>,
}

/// A peer for each UCX of the machine: Debian's, and PyPI's in the environment of `tools/setup.sh
/// test`. The two cannot talk to each other. Prints a missing one.
pub fn peers() -> &'static [Peer] {
    static PEERS: OnceLock<Vec<Peer>> = OnceLock::new();
    PEERS.get_or_init(|| {
        let mut peers = Vec::new();
        if has_headers() {
            peers.push(Peer::build("debian", None));
        } else {
            eprintln!("skipped for Debian's UCX: no headers (apt install libucx-dev)");
        }
        match wheel() {
            Some(prefix) => peers.push(Peer::build("wheel", Some(&prefix))),
            None => {
                eprintln!("skipped for PyPI's UCX: libucx-cu12 is not in .tools (tools/setup.sh)");
            }
        }
        peers
    })
}

fn has_headers() -> bool {
    Command::new("pkg-config")
        .args(["--exists", "ucx"])
        .status()
        .is_ok_and(|found| found.success())
}

/// The folder of PyPI's UCX, with `include` and `lib`.
pub fn wheel() -> Option<PathBuf> {
    let venv = Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools/venv/lib");
    std::fs::read_dir(venv)
        .ok()?
        .flatten()
        .map(|python| python.path().join("site-packages/libucx"))
        .find(|prefix| prefix.join("include/ucp/api/ucp.h").exists())
}

impl Peer {
    fn build(name: &str, prefix: Option<&Path>) -> Self {
        // A different name for each process: several test programs may build at once.
        let program = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("peer-{name}-{}", std::process::id()));
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ucx_peer/build.sh");
        let built = Command::new(script)
            .arg(&program)
            .args(prefix)
            .output()
            .unwrap();
        assert!(
            built.status.success(),
            "{}",
            String::from_utf8_lossy(&built.stderr)
        );
        Self {
            program,
            libraries: prefix.map(|prefix| prefix.join("lib").into_os_string()),
        }
    }

    fn command(&self, options: Options, limit_seconds: u32) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args([
                "--error-mode",
                if options.error_mode_peer {
                    "peer"
                } else {
                    "none"
                },
            ])
            .args([
                "--features",
                if options.minimal { "minimal" } else { "all" },
            ])
            .args(["--timeout", &limit_seconds.to_string()])
            // UCX 1.13 prints an error to standard output for each connection that a client closes.
            // Nobody reads the pipe while a server runs, and a full pipe would block it.
            .env("UCX_LOG_LEVEL", "fatal")
            .envs(
                self.libraries
                    .as_ref()
                    .map(|libraries| ("LD_LIBRARY_PATH", libraries)),
            );
        command
    }

    /// Whether it runs with PyPI's UCX.
    pub fn is_from_wheel(&self) -> bool {
        self.libraries.is_some()
    }

    /// Gets a table from a server with these URIs (metadata, data).
    pub fn get(
        &self,
        options: Options,
        uris: &[String; 2],
        ticket: &str,
        output: &Path,
    ) -> Outcome {
        self.get_within(LIMIT_SECONDS, options, uris, ticket, output)
    }

    /// As [`get`](Self::get), with a limit.
    pub fn get_within(
        &self,
        limit_seconds: u32,
        options: Options,
        uris: &[String; 2],
        ticket: &str,
        output: &Path,
    ) -> Outcome {
        let mut command = self.command(options, limit_seconds);
        command.arg("get").args(uris).arg(ticket).arg(output);
        command.stdin(Stdio::null());
        Running::spawn(command).wait()
    }

    /// Starts a server, which may fail.
    pub fn serve(&self, options: Options, files: &[PathBuf]) -> Running {
        let mut command = self.command(options, LIMIT_SECONDS);
        command
            .args(["serve", "127.0.0.1", "0"])
            .args(files)
            .stdin(Stdio::piped());
        Running::spawn(command)
    }
}

/// A running peer. The drop kills it.
pub struct Running {
    child: Child,
    /// A server serves until this closes.
    input: Option<ChildStdin>,
}

impl Running {
    fn spawn(mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            input: child.stdin.take(),
            child,
        }
    }

    /// Lets a server end, and waits for the end.
    pub fn wait(mut self) -> Outcome {
        drop(self.input.take());
        let (mut printed, mut complained) = (String::new(), String::new());
        // A peer prints too little to fill a pipe, so the pipes can be read in turn.
        if let Some(mut output) = self.child.stdout.take() {
            output.read_to_string(&mut printed).unwrap();
        }
        if let Some(mut output) = self.child.stderr.take() {
            output.read_to_string(&mut complained).unwrap();
        }
        let status = self.child.wait().unwrap();
        if status.success() {
            Outcome::Done(printed)
        } else if status.signal() == Some(libc::SIGALRM) {
            Outcome::TimedOut
        } else {
            Outcome::Failed(format!("{complained}({status})"))
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Without effect on one that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A serving peer. The drop kills it.
pub struct Server {
    peer: &'static Peer,
    /// Holds the process.
    _running: Running,
    /// Stays open, so that output after the URIs does not end the server by SIGPIPE.
    _output: BufReader<ChildStdout>,
    uris: [String; 2],
}

impl Server {
    /// Starts a server, and waits until it listens.
    pub fn start(peer: &'static Peer, options: Options, files: &[PathBuf]) -> Self {
        let mut running = peer.serve(options, files);
        let mut output = BufReader::new(running.child.stdout.take().unwrap());
        let mut line = || {
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            line.trim_end().to_owned()
        };
        let uris = [line(), line()];
        if uris[1].is_empty() {
            panic!("the peer does not serve: {:?}", running.wait());
        }
        Self {
            peer,
            _running: running,
            _output: output,
            uris,
        }
    }

    /// The peer that serves.
    pub fn peer(&self) -> &'static Peer {
        self.peer
    }

    /// Its URIs: metadata, data.
    pub fn uris(&self) -> &[String; 2] {
        &self.uris
    }
}
