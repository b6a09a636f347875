//! Rule Q8: a server that drains tells its clients where else to ask.

use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use dipc::arrow::OwnedDeviceStream;
use dipc::arrow::description::{Description, Endpoint};
use dipc::client::{Answer, Client, GetOptions, Pending, PutOptions};
use dipc::error::{Result, Status};
use dipc::proto::{Role, Verb};
use dipc::server::{
    Authorizer, HostProvider, ServerHandle, ServerOptions, ServerRequest, SharedAuthorizer,
};
use parking_lot::Mutex;

use crate::common::{
    FnProvider, batch, counting, export, export_schema, read_all, schema, stream_of,
};
use crate::{SHM, SUBJECTS, Subject, client, eventually, serve, server};

const HOST: i32 = 1;

const TCP: Subject = Subject {
    scheme: "tcp",
    connections: 1,
    lends: false,
};

/// Takes tables, and gives two batches.
struct Taking;

impl HostProvider for Taking {
    fn open(&self, request: &ServerRequest) -> Result<OwnedDeviceStream> {
        if request.verb() == Verb::Exchange {
            read_all(&mut request.source()?)?;
        }
        let batches = [Ok(batch(0, 3)), Ok(batch(3, 3))];
        Ok(stream_of(schema(), batches.into_iter()))
    }

    fn take(&self, request: &ServerRequest) -> Result<()> {
        read_all(&mut request.source()?).map(drop)
    }
}

fn taking(subject: Subject) -> (ServerHandle, String) {
    let made = server(subject, ServerOptions::default());
    let handler = made.0.set_handler(Box::new(Taking));
    handler.map_err(|(error, _)| error).unwrap();
    made
}

fn get(client: &Client, uri: &str, options: &GetOptions) -> Result<usize> {
    let mut stream = client.get(&[uri], b"t", options, None)?;
    Ok(read_all(&mut stream)?.len())
}

fn put(client: &Client, uri: &str, subject: Subject) -> Result<u64> {
    let options = PutOptions {
        connections: subject.connections,
        ..PutOptions::default()
    };
    let described = (&export_schema(&schema()), HOST);
    let mut put = client.put(&[uri], b"t", described, &options, None)?;
    put.push(export(&batch(0, 10)), None, None)
        .map_err(|(error, _)| error)?;
    put.finish(None)
}

/// While a server drains, a stream under way goes on to its end, new requests on old and new
/// connections are refused as busy, and the server is not ready.
#[test]
fn streams_go_on_and_requests_do_not() {
    for subject in SUBJECTS {
        let (server, uri) = taking(subject);
        assert!(server.is_ready());
        let (go, waits) = mpsc::channel::<()>();
        let waits = Arc::new(Mutex::new(waits));
        let slow = move |_: &ServerRequest| {
            let waits = Arc::clone(&waits);
            let batches = (0..3).map(move |number| {
                if number > 0 {
                    waits.lock().recv().unwrap();
                }
                Ok(batch(number, 5))
            });
            Ok(stream_of(schema(), batches))
        };
        serve(&server, "slow", Box::new(FnProvider(slow)));
        let client = client();
        let mut slow = client
            .get(&[&uri], b"slow", &subject.options(), None)
            .unwrap();
        assert_eq!(get(&client, &uri, &subject.options()), Ok(2));

        server.drain(&[]).unwrap();
        assert!(!server.is_ready());
        let other = crate::client();
        for refused in [
            get(&client, &uri, &subject.options()).unwrap_err(),
            get(&other, &uri, &subject.options()).unwrap_err(),
            put(&client, &uri, subject).unwrap_err(),
            put(&other, &uri, subject).unwrap_err(),
        ] {
            assert_eq!(refused.status(), Status::Busy, "{refused}");
            assert!(refused.text().contains("drains"), "{refused}");
        }
        go.send(()).unwrap();
        go.send(()).unwrap();
        assert_eq!(read_all(&mut slow).unwrap().len(), 3);
        drop(slow);
        server.stop(Duration::from_secs(10)).unwrap();
        assert!(!server.is_ready());
        let error = server.drain(&[]).unwrap_err();
        assert_eq!(error.status(), Status::Stopped);
    }
}

/// Each verb, waited for or not, goes on to the server that the draining one names; so do the
/// connections that a client keeps.
#[test]
fn requests_go_where_the_server_says() {
    for subject in SUBJECTS {
        let (old, old_uri) = taking(subject);
        let (new, new_uri) = taking(subject);
        new.serve_pull(b"listed").unwrap();
        let options = GetOptions {
            trusted_network: true,
            ..subject.options()
        };
        let client = client();
        assert_eq!(get(&client, &old_uri, &options), Ok(2));
        old.drain(&[&subject.nowhere(), &new_uri]).unwrap();
        let before = old.stats().streams_served;

        assert_eq!(get(&client, &old_uri, &options), Ok(2));
        assert_eq!(put(&client, &old_uri, subject), Ok(1));
        let mut list = client.list(&[&old_uri], b"li", &options, None).unwrap();
        assert_eq!(read_all(&mut list).unwrap()[0].num_rows(), 1);
        let described = (&export_schema(&schema()), HOST);
        let both = (&PutOptions::default(), &options);
        let exchanged = client.exchange(&[&old_uri], b"t", described, both, None);
        let (mut put, mut answers) = exchanged.unwrap();
        put.push(export(&batch(0, 10)), None, None)
            .map_err(|(error, _)| error)
            .unwrap();
        let reads = thread::spawn(move || read_all(&mut answers).unwrap().len());
        assert_eq!(put.finish(None), Ok(1));
        assert_eq!(reads.join().unwrap(), 2);

        let pending = client.start(Verb::Get, &[&old_uri], b"t", &options, None);
        let Answer::Stream(mut stream) = answer(&pending.unwrap()) else {
            panic!("no stream")
        };
        assert_eq!(read_all(&mut *stream).unwrap().len(), 2);
        let own = PutOptions::default();
        let pending = client.start_put(&[&old_uri], b"t", described, (&own, None), None);
        let Answer::Put(mut put, None) = answer(&pending.unwrap()) else {
            panic!("no put")
        };
        assert_eq!(put.finish(None), Ok(0));
        assert_eq!(old.stats().streams_served, before);
        assert_eq!(new.stats().streams_served, 6);
    }
}

/// What a request without a wait has led to.
fn answer(pending: &Pending) -> Answer {
    let mut found = None;
    eventually("an answer", || {
        found = pending.try_answer(|_| true).unwrap();
        found.is_some()
    });
    found.unwrap()
}

/// Servers that name each other lead no client round and round.
#[test]
fn servers_that_name_each_other_end_the_request() {
    let servers: Vec<_> = (0..3).map(|_| taking(SHM)).collect();
    let uris: Vec<_> = servers.iter().map(|(_, uri)| uri.as_str()).collect();
    for (server, _) in &servers {
        server.drain(&uris).unwrap();
    }
    let client = client();
    let error = get(&client, uris[0], &SHM.options()).unwrap_err();
    assert_eq!(error.status(), Status::Busy, "{error}");
    assert_eq!(error.text().matches("; at ").count(), 2, "{error}");
    assert_eq!(client.stats().connections_made, 3);
    assert_eq!(
        put(&client, uris[0], SHM).unwrap_err().status(),
        Status::Busy
    );
}

/// A part whose first server drains comes from the second one that has it, or from where the first
/// one leads if there is no other.
#[test]
fn parts_go_to_the_other_servers_first() {
    let (drains, first) = taking(SHM);
    let (named, second) = taking(SHM);
    let (other, third) = taking(SHM);
    drains.drain(&[&second]).unwrap();
    let (describes, uri) = server(SHM, ServerOptions::default());
    for (ticket, uris) in [("two", vec![first.clone(), third]), ("one", vec![first])] {
        serve(&describes, ticket, counting(1, 1));
        let endpoint = Endpoint {
            descriptor: b"t".to_vec(),
            uris,
            ..Endpoint::default()
        };
        let description = Description {
            endpoints: vec![endpoint],
            ..Description::default()
        };
        let described = describes.set_description(ticket.as_bytes(), description);
        described.unwrap();
    }
    let client = client();
    for (ticket, at_named, at_other) in [("two", 0, 1), ("one", 1, 1)] {
        let parts = client.get_parts(&[&uri], ticket.as_bytes(), &SHM.options(), None);
        assert_eq!(read_all(&mut parts.unwrap()).unwrap().len(), 2);
        assert_eq!(named.stats().streams_served, at_named);
        assert_eq!(other.stats().streams_served, at_other);
    }
}

/// Keeps the tokens that requests bring.
struct Tokens(Mutex<Vec<Option<Vec<u8>>>>);

impl Authorizer for Tokens {
    fn authorize(&self, request: &ServerRequest) -> Result<()> {
        let token = request.headers().get("authorization");
        self.0.lock().push(token.map(<[u8]>::to_vec));
        Ok(())
    }
}

/// Rule Q7: a server that the caller has not named does not learn its token, unless the caller
/// insists. The host of a server that drains is not asked about what is refused anyway.
#[test]
fn tokens_are_not_led_astray() {
    let seen = Arc::new(Tokens(Mutex::default()));
    let options = || ServerOptions {
        authorizer: Some(SharedAuthorizer(Arc::clone(&seen) as _)),
        ..ServerOptions::default()
    };
    let ((old, old_uri), (new, new_uri)) = (server(SHM, options()), server(SHM, options()));
    serve(&new, "t", counting(2, 5));
    old.drain(&[&new_uri]).unwrap();
    let client = client();
    for send_secrets in [false, true] {
        let mut options = GetOptions {
            send_secrets,
            ..SHM.options()
        };
        options.headers.add("authorization", "Bearer x").unwrap();
        assert_eq!(get(&client, &old_uri, &options), Ok(2));
        let expected = send_secrets.then(|| b"Bearer x".to_vec());
        assert_eq!(std::mem::take(&mut *seen.0.lock()), [expected]);
    }
}

/// The second connection of a stream that has begun belongs to the stream (rule E6), also where it
/// comes late.
#[test]
fn a_stream_gets_its_second_connection() {
    let (old, _) = server(TCP, ServerOptions::default());
    let (begun, waits) = mpsc::channel();
    let begun = Mutex::new(begun);
    let provider = move |_: &ServerRequest| {
        begun.lock().send(()).unwrap();
        Ok(stream_of(schema(), [Ok(batch(0, 5))].into_iter()))
    };
    serve(&old, "t", Box::new(FnProvider(provider)));
    let [metadata, data] = [Role::Metadata, Role::Data].map(|role| old.location(role).unwrap());
    // The way of the bodies is longer.
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let (target, query) = data.trim_start_matches("tcp://").split_once('?').unwrap();
    let target = target.to_owned();
    let data = format!("tcp://{}?{query}", proxy.local_addr().unwrap());
    let reads = thread::spawn(move || {
        let mut stream = client().get(&[&metadata, &data], b"t", &TCP.options(), None)?;
        read_all(&mut stream)
    });
    waits.recv().unwrap();
    old.drain(&[]).unwrap();
    let (near, _) = proxy.accept().unwrap();
    let far = TcpStream::connect(target).unwrap();
    let (mut near_in, mut far_out) = (near.try_clone().unwrap(), far.try_clone().unwrap());
    thread::spawn(move || std::io::copy(&mut near_in, &mut far_out));
    thread::spawn(move || std::io::copy(&mut &far, &mut &near));
    assert_eq!(reads.join().unwrap().unwrap().len(), 1);
}

/// What a host says of other servers is checked.
#[test]
fn other_servers_are_named_by_uris() {
    let (server, _) = taking(SHM);
    let long = format!("shm:/{}", "a".repeat(1100));
    for (uris, status) in [
        (vec!["no uri"], Status::InvalidUri),
        (vec![long.as_str()], Status::InvalidArgument),
        (vec!["shm:@a"; 17], Status::InvalidArgument),
    ] {
        assert_eq!(server.drain(&uris).unwrap_err().status(), status);
    }
    assert!(server.is_ready());
    let unused = ServerHandle::new(ServerOptions::default()).unwrap();
    assert!(!unused.is_ready());
}
