//! Peers that die.

use std::ptr::NonNull;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::buffer::{Buffer, ScalarBuffer};
use dipc::arrow::stream::ArrayReader;
use dipc::client::GetOptions;
use dipc::error::Status;
use dipc::server::{ServerHandle, ServerRequest};

use crate::common::sample::rounds;
use crate::common::{FnProvider, counting, stream_of};
use crate::messages::body;
use crate::pair::{Pair, metadata};
use crate::{Other, client, eventually, pair, role, serve, serving, takes_one, until_told, works};

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
        return takes_one(&role, &client());
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

/// A client that stops reading, and does not end, holds up the end of a server for seconds at most:
/// what it may still read stays, and the server does not wait for that.
#[test]
fn a_stopped_client_does_not_hold_up_the_end() {
    if let Some(role) = role() {
        return takes_one(&role, &client());
    }
    if !works() {
        return;
    }
    // What is large waits to be fetched, what is small lies in a queue that is full.
    for rows in [512 << 10, 100_000, 100] {
        let (server, uri) = serving();
        serve(&server, "t", counting(1 << 40, rows));
        let mut other = Other::start(
            "ending::a_stopped_client_does_not_hold_up_the_end",
            "client",
            &uri,
        );
        other.line("got=");
        other.stop();
        ends(server);
        other.kill();
    }
}

/// The same where nobody notices what becomes of a peer: UCX keeps what the client might still
/// fetch, and the server's end waits neither for that nor for the arrays in it.
#[test]
fn what_a_stopped_client_might_fetch_does_not_hold_up_the_end() {
    let by_memory = [("ucx.TLS", "posix,cma,tcp"), ("ucx.error_handling", "none")];
    if let Some(role) = role() {
        return takes_one(&role, &pair(&by_memory, Duration::ZERO).1);
    }
    if !works() {
        return;
    }
    // Bodies that are copied first, and such as are fetched from where they are.
    for rows in [100_000, 2 << 20] {
        let (server, _) = pair(&by_memory, Duration::ZERO);
        let uri = server.listen("ucx://127.0.0.1:0").unwrap();
        serve(&server, "t", counting(1 << 40, rows));
        let mut other = Other::start(
            "ending::what_a_stopped_client_might_fetch_does_not_hold_up_the_end",
            "client",
            &uri,
        );
        other.line("got=");
        other.stop();
        ends(server);
        other.kill();
    }
}

/// A client that leaves a stream whose bodies it is fetching does not end the server: what it still
/// answers is not looked up at an endpoint that UCX has forgotten.
#[test]
fn clients_that_leave_while_they_fetch_do_no_harm() {
    let by_memory = [("ucx.TLS", "posix,cma,tcp"), ("ucx.error_handling", "none")];
    if let Some(role) = role() {
        assert_eq!(role.name, "server");
        let (server, _) = pair(&by_memory, Duration::ZERO);
        // Headers that the client fetches, too.
        let columns = (0..3000).map(|n| {
            let column: ArrayRef = Arc::new(Int64Array::from(vec![n; 5]));
            (format!("c{n}"), column)
        });
        let wide = RecordBatch::try_from_iter(columns).unwrap();
        let provider = FnProvider(move |_: &ServerRequest| {
            let batches = std::iter::repeat(wide.clone()).map(Ok);
            Ok(stream_of(wide.schema(), batches))
        });
        serve(&server, "t", Box::new(provider));
        println!("uri={}", server.listen("ucx://127.0.0.1:0").unwrap());
        return until_told();
    }
    if !works() {
        return;
    }
    let mut other = Other::start(
        "ending::clients_that_leave_while_they_fetch_do_no_harm",
        "server",
        "-",
    );
    let uri = other.line("uri=");
    for round in 0..rounds(100) {
        let (_, client) = pair(&by_memory, Duration::ZERO);
        let mut stream = client
            .get(&[&uri], b"t", &GetOptions::default(), None)
            .unwrap();
        for _ in 0..round % 20 {
            stream.next().unwrap().expect("a batch");
        }
        // Some leave before their stream, which then goes on for a moment.
        if round % 2 == 0 {
            drop(client);
        }
    }
}

/// Drops the server, which must not take long.
fn ends(server: ServerHandle) {
    let (ended, end) = mpsc::channel();
    thread::spawn(move || {
        drop(server);
        ended.send(()).unwrap();
    });
    end.recv_timeout(Duration::from_secs(30))
        .expect("the server's end is not held up");
}

/// A client that leaves a stream in its middle gives back what was on its way: nothing stays with
/// UCX.
#[test]
fn a_stream_that_is_left_gives_all_back() {
    if let Some(role) = role() {
        assert_eq!(role.name, "client");
        let client = client();
        let uris = [role.argument.as_str()];
        let mut stream = client
            .get(&uris, b"t", &GetOptions::default(), None)
            .unwrap();
        for _ in 0..20 {
            stream.next().unwrap().expect("a batch");
        }
        drop((stream, client));
        println!("left=");
        return until_told();
    }
    if !works() {
        return;
    }
    let memory = Arc::new(vec![7i64; 512 << 10]);
    let provided = Arc::clone(&memory);
    let (server, uri) = serving();
    let provider = FnProvider(move |_: &ServerRequest| {
        let memory = Arc::clone(&provided);
        let batches = std::iter::repeat_with(move || Ok(batch_in(&memory)));
        Ok(stream_of(batch_in(&provided).schema(), batches))
    });
    serve(&server, "t", Box::new(provider));
    for _ in 0..5 {
        let mut other = Other::start(
            "ending::a_stream_that_is_left_gives_all_back",
            "client",
            &uri,
        );
        other.line("left=");
        // The test's own and the provider's are left.
        eventually("all is given back", || Arc::strong_count(&memory) == 2);
    }
}

/// A batch whose values lie in `memory`.
fn batch_in(memory: &Arc<Vec<i64>>) -> RecordBatch {
    let start = NonNull::from(memory.as_slice()).cast();
    let bytes = size_of_val(memory.as_slice());
    // SAFETY: readable as long as the last owner that the buffer is given lives.
    let buffer = unsafe { Buffer::from_custom_allocation(start, bytes, Arc::clone(memory) as _) };
    let values: ArrayRef = Arc::new(Int64Array::new(ScalarBuffer::from(buffer), None));
    RecordBatch::try_from_iter([("values", values)]).unwrap()
}

/// `Connection::finish`, asked for again and again: a peer that reads nothing does not keep the
/// connection from being closed, whether it had connected to the end or not.
#[test]
fn an_end_that_nobody_reads_can_be_closed() {
    if !works() {
        return;
    }
    for is_connected in [false, true] {
        let mut pair = Pair::new();
        pair.server.send(metadata(0)).unwrap();
        while is_connected && !pair.server.finish() {
            pair.turn().unwrap();
        }
        pair.server.send(body(1, 30_000)).unwrap();
        for _ in 0..100 {
            pair.server.finish();
        }
        drop(pair.server);
        // A server's end waits for those of connections.
        drop(serving());
    }
}
