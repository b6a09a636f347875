//! A host that limits the size of files is met by an error, or another way, and never by a signal
//! (SIGXFSZ).

use std::process::Command;

use dipc::transport;

use crate::support::*;

const TABLE: [&str; 4] = ["--tpch", "lineitem", "--scale", "0.01"];

/// The command in a shell that limits its files to `blocks`, of 512 or 1,024 bytes each.
fn limited(blocks: u32) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", r#"ulimit -f "$0"; exec "$@""#])
        .arg(blocks.to_string())
        .arg(env!("CARGO_BIN_EXE_dipc"));
    command
}

fn serve(blocks: u32, args: &[&str]) -> Server {
    let address = address();
    let args = [&TABLE[..], args].concat();
    Server::start_as(limited(blocks), &address, &address, &args)
}

/// A server lends what its files have room for, and sends the rest.
#[test]
fn a_server_with_small_files_serves() {
    for (blocks, args) in [
        (1000, &[][..]),
        (100, &[]),
        (1, &["--log", "debug"]),
        (20_000, &["--arena", "--batch-rows", "1000"]),
    ] {
        let server = serve(blocks, args);
        for _ in 0..2 {
            let output = run(&["get", &server.uri, "lineitem"]);
            assert!(
                output.status.success(),
                "{blocks}: {}",
                text(&output.stderr)
            );
        }
    }
}

/// What needs a larger file ends in one line that says so.
#[test]
fn a_file_past_the_limit_is_said() {
    let server = Server::start(&TABLE);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let address = address();
    let arena = ["serve", "--listen", &address, "--arena"];
    let (arrow, parquet) = (path("t.arrow"), path("t.parquet"));
    for args in [
        &["get", &server.uri, "lineitem", "--output", &arrow][..],
        &["get", &server.uri, "lineitem", "--output", &parquet],
        &[&arena[..], &TABLE[..]].concat(),
    ] {
        let output = limited(100).args(args).output().unwrap();
        let line = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {line}");
        assert_eq!(line.trim_end().lines().count(), 1, "{line}");
        assert!(line.contains("ulimit -f"), "{line}");
    }
}

/// UCX puts its shared memory into files; it does without where those are small.
#[test]
fn a_ucx_client_with_small_files_fetches() {
    if let Err(error) = transport::by_scheme("ucx").and_then(|transport| transport.available()) {
        println!("skipped: {error}");
        return;
    }
    let args = [&TABLE[..], &["--trusted-network"]].concat();
    let begins = "ucx://127.0.0.1:";
    let server = Server::start_as(limited(100), begins, "ucx://127.0.0.1:0", &args);
    let output = limited(100)
        .args(["get", &server.uri, "lineitem"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}
