//! Kills and cuts at random moments: no crash, no hang, no leak, no wrong value.
//!
//! `DIPC_KILLS` sets the number of kills for each transport and kind (default 3; `make test-slow`
//! does many more). `DIPC_SEED` repeats a run. A fetch must end with the table's known checksum, or
//! with an error of one line.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "in tests a panic is how a failure shows"
)]

#[path = "../common/mod.rs"]
mod common;
mod proxy;
mod putting;
mod sending;
#[path = "../cli/support.rs"]
#[allow(dead_code, reason = "shared with the tests of the command")]
mod support;
mod worker;

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use dipc::transport;
use fastrand::Rng;
use support::*;

const TABLE: [&str; 4] = ["--tpch", "lineitem", "--scale", "0.05"];

/// The transports that work here; prints the others.
fn schemes() -> Vec<&'static str> {
    let known = ["shm", "tcp", "ucx"].into_iter();
    known
        .filter(|scheme| {
            let works = transport::by_scheme(scheme).and_then(|transport| transport.available());
            if let Err(error) = &works {
                println!("{scheme} is left out: {error}");
            }
            works.is_ok()
        })
        .collect()
}

fn rounds() -> u32 {
    std::env::var("DIPC_KILLS").map_or(1, |text| text.parse().unwrap())
}

fn rng() -> Rng {
    let seed =
        std::env::var("DIPC_SEED").map_or_else(|_| fastrand::u64(..), |text| text.parse().unwrap());
    println!("DIPC_SEED={seed}");
    Rng::with_seed(seed)
}

fn serve(scheme: &str) -> Server {
    let (address, flags): (String, &[&str]) = match scheme {
        "shm" => (address(), &[]),
        "ucx" => ("ucx://127.0.0.1:0".into(), &["--trusted-network"]),
        _ => (format!("{scheme}://127.0.0.1:0"), &[]),
    };
    // The system chooses the port.
    let begins = address.trim_end_matches('0');
    Server::start_as(dipc(), begins, &address, &[&TABLE, flags].concat())
}

fn fetch(uri: &str) -> Child {
    let args = [
        "get",
        uri,
        "lineitem",
        "--checksum",
        "--json",
        "--timeout",
        "30s",
    ];
    dipc()
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The end of a fetch, which must be one of the promised ways.
enum End {
    Whole,
    Failed(String),
}

fn end_of(mut child: Child, checksum: &str) -> End {
    let status = wait(&mut child);
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stderr);
    match status.code() {
        Some(0) => {
            let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(report["checksum"], checksum, "a wrong value arrived");
            End::Whole
        }
        Some(1) => {
            assert!(
                said.starts_with("dipc: ") && said.trim_end().lines().count() == 1,
                "{said}"
            );
            End::Failed(said)
        }
        code => panic!(
            "the client ended with {code:?}, signal {:?}: {said}",
            status.signal()
        ),
    }
}

/// The time of a whole fetch, and its checksum.
fn whole(uri: &str) -> (Duration, String) {
    let start = Instant::now();
    let report = json(&["get", uri, "lineitem", "--checksum", "--json"]);
    (
        start.elapsed(),
        report["checksum"].as_str().unwrap().to_owned(),
    )
}

fn descriptors(child: &Child) -> usize {
    fs::read_dir(format!("/proc/{}/fd", child.id()))
        .unwrap()
        .count()
}

fn moment(rng: &mut Rng, whole: Duration) -> Duration {
    whole.mul_f64(rng.f64() * 1.2)
}

/// A killed client frees its memory and its descriptors at the server, and other clients do not
/// notice.
#[test]
fn killed_clients_leave_nothing_behind() {
    let mut rng = rng();
    for scheme in schemes() {
        let mut server = serve(scheme);
        let (time, checksum) = whole(&server.uri);
        let before = settled(&server);
        for round in 0..rounds() {
            let mut client = fetch(&server.uri);
            let other = (round % 4 == 0).then(|| fetch(&server.uri));
            std::thread::sleep(moment(&mut rng, time));
            client.kill().unwrap();
            client.wait().unwrap();
            if let Some(other) = other {
                assert!(
                    matches!(end_of(other, &checksum), End::Whole),
                    "{scheme}: another client"
                );
            }
            assert!(
                server.child.try_wait().unwrap().is_none(),
                "{scheme}: the server has ended"
            );
        }
        assert_eq!(whole(&server.uri).1, checksum);
        until("the descriptors of killed clients are closed", || {
            descriptors(&server.child) <= before
        });
        let (status, _) = server.stop();
        assert!(status.success(), "{scheme}: {status}");
        println!("{scheme}: {} clients killed", rounds());
    }
}

/// The server's descriptors after it has dropped its clients.
fn settled(server: &Server) -> usize {
    let mut last = descriptors(&server.child);
    until("the server is at rest", || {
        std::thread::sleep(Duration::from_millis(50));
        let now = descriptors(&server.child);
        std::mem::replace(&mut last, now) == now
    });
    last
}

/// A killed server ends its clients' streams with a status and a text, unless they were complete.
#[test]
fn killed_servers_end_their_clients_streams() {
    let mut rng = rng();
    for scheme in schemes() {
        let mut server = serve(scheme);
        let (time, checksum) = whole(&server.uri);
        let mut failed = 0;
        for _ in 0..rounds() {
            let client = fetch(&server.uri);
            std::thread::sleep(moment(&mut rng, time));
            server.child.kill().unwrap();
            server.child.wait().unwrap();
            if let End::Failed(why) = end_of(client, &checksum) {
                failed += 1;
                assert!(why.len() > "dipc: ".len() + 10, "{scheme}: {why}");
            }
            server = serve(scheme);
        }
        println!(
            "{scheme}: {} servers killed, {failed} fetches failed",
            rounds()
        );
    }
}

/// A cut of the connection at any byte, by an end or a reset, ends the stream with a status, unless
/// it was complete; the server serves the next client.
#[test]
fn cut_connections_give_no_wrong_value() {
    let mut rng = rng();
    if !schemes().contains(&"tcp") {
        println!("left out: there is no tcp");
        return;
    }
    let server = serve("tcp");
    let (_, checksum) = whole(&server.uri);
    let bytes = json(&["get", &server.uri, "lineitem", "--json"])["bytes"]
        .as_u64()
        .unwrap_or(50 << 20);
    let mut failed = 0;
    for _ in 0..rounds() {
        // Half of the cuts are near the start, where many kinds of messages are.
        let at = if rng.bool() {
            rng.u64(0..10_000)
        } else {
            rng.u64(0..bytes * 11 / 10)
        };
        let uri = proxy::cut_after(&server.uri, at, rng.bool());
        if let End::Failed(_) = end_of(fetch(&uri), &checksum) {
            failed += 1;
        }
    }
    assert_eq!(whole(&server.uri).1, checksum);
    println!("{} connections cut, {failed} fetches failed", rounds());
}
