//! Workers of the command that shuffle over TLS, as between machines.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use tempfile::TempDir;

use crate::Tables;

const COMMAND: &str = env!("CARGO_BIN_EXE_dipc-sql");

/// A worker, until its drop.
struct Worker {
    child: Child,
    url: String,
    _output: BufReader<ChildStdout>,
}

impl Worker {
    fn start(folder: &Path) -> Self {
        let mut child = Command::new(COMMAND)
            .args(["worker", "--listen", "127.0.0.1:0"])
            .args(["--dipc", "tls://127.0.0.1:0", "--tls-cert"])
            .arg(folder.join("cert.pem"))
            .arg("--tls-key")
            .arg(folder.join("key.pem"))
            .arg("--tls-ca")
            .arg(folder.join("cert.pem"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut lines = output.by_ref().lines();
        let url = lines.find_map(|line| Some(line.unwrap().split_once("plans at ")?.1.to_owned()));
        Self {
            url: url.expect("the worker's URL"),
            child,
            _output: output,
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Makes a certificate for this machine, which is its own authority.
fn certificate(folder: &Path) {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(folder.join("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
}

/// Promise of the command: partitions travel over TLS, to clients that know the authority.
#[tokio::test(flavor = "multi_thread")]
async fn shuffles_over_tls() {
    let tables = Tables::new().await;
    let (own, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    certificate(own.path());
    certificate(other.path());
    let workers: Vec<_> = (0..3).map(|_| Worker::start(own.path())).collect();
    let urls: Vec<_> = workers.iter().map(|worker| &*worker.url).collect();
    let urls = urls.join(",");
    let query = |arguments: &[&str], authority: &Path| -> Output {
        Command::new(COMMAND)
            .args(["query", "--partitions", "4", "--scan-bytes", "1", "--table"])
            .arg(format!("facts={}", tables.folder().join("facts").display()))
            .arg("SELECT k, count(*) AS n, min(t) AS t FROM facts GROUP BY k ORDER BY k")
            .arg("--tls-ca")
            .arg(authority.join("cert.pem"))
            .args(arguments)
            .output()
            .unwrap()
    };
    let alone = query(&[], own.path());
    let on = query(&["--workers", &urls], own.path());
    let error = String::from_utf8_lossy(&on.stderr);
    assert!(alone.status.success() && on.status.success(), "{error}");
    assert_eq!(on.stdout, alone.stdout);
    let explained = query(&["--workers", &urls, "--explain"], own.path());
    let explained = String::from_utf8(explained.stdout).unwrap();
    assert!(explained.contains("; tls "), "{explained}");

    let refused = query(&["--workers", &urls], other.path());
    let error = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(error.contains("certificate"), "{error}");
    assert!(workers.iter().any(|it| error.contains(&it.url)), "{error}");
}
