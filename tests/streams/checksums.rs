//! Checksums of messages (rule E8).

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use arrow::array::RecordBatch;
use dipc::arrow::OwnedDeviceStream;
use dipc::client::{GetOptions, Put, PutOptions};
use dipc::error::{Result, Status};
use dipc::proto::{Role, Verb};
use dipc::server::{HostProvider, ServerOptions, ServerRequest};

use crate::common::{FnProvider, batch, export, export_schema, read_all, schema, stream_of};
use crate::{SUBJECTS, Subject, assert_same, client, eventually, serve, server, server_of};

const TCP: Subject = Subject {
    scheme: "tcp",
    connections: 1,
    lends: false,
};

fn checked(subject: Subject) -> GetOptions {
    GetOptions {
        checksums: true,
        ..subject.options()
    }
}

fn table() -> Vec<RecordBatch> {
    (0..5).map(|index| batch(index * 100, 100)).collect()
}

/// Answers a get with the table, an exchange with what comes, and takes that table only.
struct Answering;

impl HostProvider for Answering {
    fn open(&self, request: &ServerRequest) -> Result<OwnedDeviceStream> {
        let batches = match request.verb() {
            Verb::Exchange => read_all(&mut request.source()?)?,
            _ => table(),
        };
        Ok(stream_of(schema(), batches.into_iter().map(Ok)))
    }

    fn take(&self, request: &ServerRequest) -> Result<()> {
        assert_same(&read_all(&mut request.source()?)?, &table());
        Ok(())
    }
}

fn push_table(put: &mut Put) {
    for batch in table() {
        let pushed = put.push(export(&batch), None, None);
        pushed.map_err(|(error, _)| error).unwrap();
    }
}

/// Rule E8: each verb works with checksums over each transport. A connection serves only streams
/// of its kind again, and nothing is lent where a checksum would not see it.
#[test]
fn every_verb_has_checksums() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let handler = server.set_handler(Box::new(Answering));
        handler.map_err(|(error, _)| error).unwrap();
        let client = client();
        let options = checked(subject);
        let made = || client.stats().connections_made;
        for _ in 0..2 {
            let mut stream = client.get(&[&uri], b"t", &options, None).unwrap();
            assert_same(&read_all(&mut stream).unwrap(), &table());
        }
        assert_eq!(made(), 1, "{}", subject.scheme);
        let mut stream = client.get(&[&uri], b"t", &subject.options(), None).unwrap();
        assert_same(&read_all(&mut stream).unwrap(), &table());
        drop(stream);
        assert_eq!(made(), 2, "{}", subject.scheme);

        let own = PutOptions {
            checksums: true,
            connections: subject.connections,
            ..PutOptions::default()
        };
        let described = (&export_schema(&schema()), 1);
        let uris = [uri.as_str()];
        let mut put = client.put(&uris, b"x", described, &own, None).unwrap();
        push_table(&mut put);
        assert_eq!(put.finish(None).unwrap(), 5);
        drop(put);
        let (mut put, mut answers) = client
            .exchange(&uris, b"x", described, (&own, &options), None)
            .unwrap();
        push_table(&mut put);
        let reader = thread::spawn(move || read_all(&mut answers));
        assert_eq!(put.finish(None).unwrap(), 5);
        assert_same(&reader.join().unwrap().unwrap(), &table());
        drop(put);
        drop(client.list(&uris, b"", &options, None).unwrap());
        drop(client);
        eventually("no stream is active", || server.stats().streams_active == 0);
    }
}

/// Rule E8: a server without the extension is not asked, and a server that does not answer is not
/// waited for for ever.
#[test]
fn other_servers_have_none() {
    let (_server, uri) = server_of(TCP, Role::Both, Box::new(Answering));
    let baseline = uri.replace("dipc=1&", "");
    let client = client();
    let asked = client.get(&[&baseline], b"t", &checked(TCP), None);
    let error = asked.map(drop).unwrap_err();
    assert_eq!(error.status(), Status::Unsupported);
    assert!(error.text().contains("no checksums"), "{error}");

    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let query = uri.split_once('?').unwrap().1;
    let options = GetOptions {
        connect_timeout: Duration::from_millis(50),
        ..checked(TCP)
    };
    let uri = format!("tcp://127.0.0.1:{port}?{query}");
    let asked = client.get(&[&uri], b"t", &options, None);
    let error = asked.map(drop).unwrap_err();
    assert_eq!(error.status(), Status::Timeout);
    assert!(error.text().contains("checksums"), "{error}");
}

/// A change that a relay makes to one bit of one connection.
#[derive(Debug, Clone, Copy)]
struct Flip {
    /// Of the bytes that the server sends, not the client.
    is_answer: bool,
    bit: usize,
}

fn copy(mut from: TcpStream, mut to: TcpStream, flip: Option<usize>) {
    let (mut buffer, mut done) = (vec![0; 1 << 16], 0);
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        let bytes = &mut buffer[..read];
        let at = flip.and_then(|bit| (bit / 8).checked_sub(done));
        if let (Some(bit), Some(byte)) = (flip, at.and_then(|at| bytes.get_mut(at))) {
            *byte ^= 1 << (bit % 8);
        }
        if to.write_all(bytes).is_err() {
            break;
        }
        done += read;
    }
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}

/// The port of a relay to `port`, which changes one bit of its only connection.
fn relay(port: u16, flip: Flip) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let client = listener.accept().unwrap().0;
        let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (to_client, from_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        let answers = flip.is_answer.then_some(flip.bit);
        let requests = (!flip.is_answer).then_some(flip.bit);
        let back = thread::spawn(move || copy(from_server, to_client, answers));
        copy(client, server, requests);
        back.join().unwrap();
    });
    own
}

/// Fetches the table while one bit changes. Returns whether it came, and came changed.
fn fetch(port: u16, query: &str, checksums: bool, flip: Flip) -> Option<bool> {
    let uri = format!("tcp://127.0.0.1:{}?{query}", relay(port, flip));
    let options = GetOptions {
        checksums,
        connect_timeout: Duration::from_millis(300),
        stall_timeout: Some(Duration::from_millis(300)),
        ..TCP.options()
    };
    let mut stream = client().get(&[&uri], b"t", &options, None).ok()?;
    let received = read_all(&mut stream).ok()?;
    Some(received != table())
}

/// Rule E8: whichever bit changes on the way, no table comes that is not the server's. Without
/// checksums some do.
#[test]
fn no_changed_table_is_taken() {
    let (server, uri) = server(TCP, ServerOptions::default());
    serve(&server, "t", Box::new(Answering));
    let other = |_: &ServerRequest| Ok(stream_of(schema(), [Ok(batch(7, 1))].into_iter()));
    serve(&server, "T", Box::new(FnProvider(other)));
    let (address, query) = uri.split_once('?').unwrap();
    let port: u16 = address.rsplit_once(':').unwrap().1.parse().unwrap();
    for checksums in [true, false] {
        let trial = |number: usize| {
            let is_answer = !number.is_multiple_of(4);
            // Spread over the bytes of a connection of this table.
            let bytes = if is_answer { 9_000 } else { 200 };
            let bit = number.wrapping_mul(0x9E37_79B9) % (bytes * 8);
            fetch(port, query, checksums, Flip { is_answer, bit })
        };
        let outcomes: Vec<_> = thread::scope(|scope| {
            let workers: Vec<_> = (0..8)
                .map(|worker| {
                    scope
                        .spawn(move || (0..60).map(|it| trial(it * 8 + worker)).collect::<Vec<_>>())
                })
                .collect();
            workers
                .into_iter()
                .flat_map(|it| it.join().unwrap())
                .collect()
        });
        let changed = outcomes.iter().filter(|it| **it == Some(true)).count();
        let refused = outcomes.iter().filter(|it| it.is_none()).count();
        println!(
            "checksums {checksums}: {changed} changed, {refused} refused of {}",
            outcomes.len()
        );
        assert!(refused > 0);
        assert_eq!(changed == 0, checksums);
    }
}
