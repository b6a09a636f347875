//! Peers that die.

use dipc::arrow::stream::ArrayReader;
use dipc::client::GetOptions;
use dipc::error::Status;

use crate::common::counting;
use crate::{Other, client, eventually, role, serve, serving, until_told, works};

/// A killed server ends the client's stream with a status.
#[test]
fn a_killed_server_is_noticed() {
    if let Some(role) = role() {
        assert_eq!(role.name, "server");
        let (server, uri) = serving();
        serve(&server, "t", counting(1 << 40, 100_000));
        println!("uri={uri}");
        return until_told();
    }
    if !works() {
        return;
    }
    // At several moments of the stream.
    for batches in [0, 1, 20] {
        let mut server = Other::start("ending::a_killed_server_is_noticed", "server", "-");
        let uri = server.line("uri=");
        let mut stream = client()
            .get(&[&uri], b"t", &GetOptions::default(), None)
            .unwrap();
        for _ in 0..batches {
            stream.next().unwrap().expect("a batch");
        }
        server.kill();
        let error = loop {
            match stream.next() {
                Ok(batch) => drop(batch.expect("no end")),
                Err(error) => break error,
            }
        };
        assert_eq!(error.status(), Status::Disconnected, "{error}");
    }
}

/// A killed client frees what it held at the server, whose other clients go on.
#[test]
fn a_killed_client_is_noticed() {
    if let Some(role) = role() {
        assert_eq!(role.name, "client");
        let client = client();
        let uris = [role.argument.as_str()];
        let mut stream = client
            .get(&uris, b"t", &GetOptions::default(), None)
            .unwrap();
        stream.next().unwrap().expect("a batch");
        println!("got=one");
        return until_told();
    }
    if !works() {
        return;
    }
    let (server, uri) = serving();
    serve(&server, "t", counting(1 << 40, 100_000));
    let client = client();
    let mut stream = client
        .get(&[&uri], b"t", &GetOptions::default(), None)
        .unwrap();
    for _ in 0..3 {
        let mut other = Other::start("ending::a_killed_client_is_noticed", "client", &uri);
        other.line("got=");
        eventually("both are served", || server.stats().streams_active == 2);
        other.kill();
        eventually("one is left", || server.stats().streams_active == 1);
        stream.next().unwrap().expect("a batch");
    }
}
