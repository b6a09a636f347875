//! Kills of both ends of `dipc put` at random moments (rules Q4, Q10): a table is whole or is not
//! there.

use std::path::Path;
use std::process::{Child, Stdio};

use super::*;

const SOURCE: &str = "tpch:lineitem:0.05";

fn accept(scheme: &str, folder: &Path) -> Server {
    let (address, flags): (String, &[&str]) = match scheme {
        "shm" => (address(), &[]),
        "ucx" => ("ucx://127.0.0.1:0".into(), &["--trusted-network"]),
        _ => (format!("{scheme}://127.0.0.1:0"), &[]),
    };
    let begins = address.trim_end_matches('0');
    let accept = ["--accept", folder.to_str().unwrap(), "--replace"];
    Server::start_as(dipc(), begins, &address, &[&accept, flags].concat())
}

fn put(uri: &str, name: &str) -> Child {
    let args = ["put", uri, name, SOURCE, "--json", "--timeout", "30s"];
    dipc()
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Whether a put that was not killed has succeeded; else its text is one line.
fn has_succeeded(mut child: Child) -> bool {
    let status = wait(&mut child);
    let said = text(&child.wait_with_output().unwrap().stderr);
    match status.code() {
        Some(0) => true,
        Some(1) => {
            assert!(
                said.starts_with("dipc: ") && said.trim_end().lines().count() == 1,
                "{said}"
            );
            false
        }
        code => panic!(
            "the client ended with {code:?}, signal {:?}: {said}",
            status.signal()
        ),
    }
}

/// The time of a whole put, and the checksum of its table.
fn whole_put(server: &Server) -> (Duration, String) {
    let start = Instant::now();
    assert!(has_succeeded(put(&server.uri, "whole")));
    let time = start.elapsed();
    (time, checksum(&server.uri, "whole").unwrap())
}

/// The checksum of a table that is there.
fn checksum(uri: &str, name: &str) -> Option<String> {
    let output = run(&["get", uri, name, "--checksum", "--json"]);
    output.status.success().then(|| {
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        report["checksum"].as_str().unwrap().to_owned()
    })
}

/// A killed client leaves a whole table or none, and nothing else: no file, no descriptor.
#[test]
fn tables_of_killed_clients_are_whole_or_not_there() {
    let mut rng = rng();
    for scheme in schemes() {
        let folder = tempfile::tempdir().unwrap();
        let server = accept(scheme, folder.path());
        let (time, expected) = whole_put(&server);
        let before = settled(&server);
        let mut taken = 0;
        for round in 0..rounds() {
            let name = format!("t{round}");
            let mut client = put(&server.uri, &name);
            std::thread::sleep(moment(&mut rng, time));
            client.kill().unwrap();
            client.wait().unwrap();
            until("nothing is being written", || {
                let mut entries = fs::read_dir(folder.path()).unwrap();
                entries.all(|it| {
                    !it.unwrap()
                        .file_name()
                        .to_str()
                        .unwrap()
                        .contains(".dipc-put")
                })
            });
            if let Some(found) = checksum(&server.uri, &name) {
                assert_eq!(found, expected, "{scheme}: a wrong table is there");
                taken += 1;
            }
        }
        assert!(has_succeeded(put(&server.uri, "last")), "{scheme}");
        assert_eq!(checksum(&server.uri, "last"), Some(expected));
        until("the descriptors of killed clients are closed", || {
            descriptors(&server.child) <= before + 2 * (taken + 1)
        });
        let (status, _) = server.stop();
        assert!(status.success(), "{scheme}: {status}");
        println!(
            "{scheme}: {} clients killed, {taken} tables whole",
            rounds()
        );
    }
}

/// A killed server ends the puts of its clients; the next one has whole tables alone. A client that
/// was told of success finds its table.
#[test]
fn tables_of_killed_servers_are_whole_or_not_there() {
    let mut rng = rng();
    for scheme in schemes() {
        let folder = tempfile::tempdir().unwrap();
        let mut server = accept(scheme, folder.path());
        let (time, expected) = whole_put(&server);
        let mut taken = 0;
        for round in 0..rounds() {
            let name = format!("t{round}");
            let client = put(&server.uri, &name);
            std::thread::sleep(moment(&mut rng, time));
            server.child.kill().unwrap();
            server.child.wait().unwrap();
            let succeeded = has_succeeded(client);
            server = accept(scheme, folder.path());
            let found = checksum(&server.uri, &name);
            assert!(
                found.is_some() || !succeeded,
                "{scheme}: a taken table is lost"
            );
            if let Some(found) = found {
                assert_eq!(found, expected, "{scheme}: a wrong table is there");
                taken += 1;
            }
        }
        println!(
            "{scheme}: {} servers killed, {taken} tables whole",
            rounds()
        );
    }
}
