//! What a request carries beside its ticket, and what its answer carries (rule Q1).

use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use std::{io, thread};

use dipc::arrow::description::{Description, Endpoint};
use dipc::arrow::schema_from_c;
use dipc::arrow::stream::ArrayReader;
use dipc::client::GetOptions;
use dipc::error::{Error, Status};
use dipc::proto::{Headers, MAX_ANSWER_HEADERS, MAX_REQUEST_HEADERS, Role, Verb};
use dipc::server::{ServerOptions, ServerRequest};

use crate::common::{FnProvider, batch, export, export_schema, read_all, schema, stream_of};
use crate::{SUBJECTS, assert_same, client, eventually, serve, server};

fn headers(pairs: &[(&str, &[u8])]) -> Headers {
    let mut headers = Headers::new();
    for (key, value) in pairs {
        headers.add(key, *value).unwrap();
    }
    headers
}

/// Answers with the headers of the request and its ticket.
fn echo(request: &ServerRequest) -> dipc::error::Result<dipc::arrow::OwnedDeviceStream> {
    let mut answer = request.headers().clone();
    answer.add("ticket", request.ticket())?;
    request.add_headers(&answer)?;
    if request.ticket() == b"fails" {
        return Err(Error::new(Status::Provider, "no such partition"));
    }
    Ok(stream_of(schema(), [Ok(batch(0, 10))].into_iter()))
}

/// Rule Q1: headers of the greatest length cross both ways, over each transport, and each request
/// on a kept connection has its own.
#[test]
fn headers_cross_both_ways() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let handler = server.set_handler(Box::new(FnProvider(echo)));
        handler.map_err(|(error, _)| error).unwrap();
        let client = client();
        let long = vec![7; MAX_ANSWER_HEADERS - 200];
        for (round, value) in [&b"\0\xff"[..], b"", &long].into_iter().enumerate() {
            let ticket = format!("partition {round}");
            let options = GetOptions {
                headers: headers(&[("trace.id-1", value), ("b", b"2")]),
                ..subject.options()
            };
            let mut stream = client
                .get(&[&uri], ticket.as_bytes(), &options, None)
                .unwrap();
            for is_read in [false, true] {
                let answer = stream.headers();
                let pairs: Vec<_> = answer.iter().collect();
                let expected = [
                    ("trace.id-1", value),
                    ("b", b"2"),
                    ("ticket", ticket.as_bytes()),
                ];
                assert_eq!(pairs, expected, "{}, {is_read}", subject.scheme);
                if !is_read {
                    assert_same(&read_all(&mut stream).unwrap(), &[batch(0, 10)]);
                }
            }
        }
        let plain = client.get(&[&uri], b"t", &subject.options(), None);
        assert_eq!(plain.unwrap().headers().len(), 1, "{}", subject.scheme);
        let error = client
            .get(&[&uri], b"fails", &subject.options(), None)
            .map(drop)
            .unwrap_err();
        assert!(error.text().contains("no such partition"), "{error}");
    }
}

/// Rule Q1: headers that no request or answer can carry are refused where they are set.
#[test]
fn headers_past_their_limit_are_refused() {
    let subject = SUBJECTS.into_iter().next().unwrap();
    let (server, uri) = server(subject, ServerOptions::default());
    let handler = server.set_handler(Box::new(FnProvider(|request: &ServerRequest| {
        let error = request
            .add_headers(&headers(&[("k", &[0; MAX_ANSWER_HEADERS])]))
            .unwrap_err();
        Err(error)
    })));
    handler.map_err(|(error, _)| error).unwrap();
    let client = client();
    let error = client
        .get(&[&uri], b"t", &subject.options(), None)
        .map(drop)
        .unwrap_err();
    assert!(error.text().contains("the limit is 32768"), "{error}");
    let options = GetOptions {
        headers: headers(&[("k", &[0; MAX_REQUEST_HEADERS])]),
        ..subject.options()
    };
    let error = client
        .get(&[&uri], b"t", &options, None)
        .map(drop)
        .unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument);
    assert!(error.text().contains("the limit is 65536"), "{error}");
}

/// Rule Q1: a stream whose deadline passes fails at the client, and the server's host sees that the
/// client has gone; before, the host sees the time that is left.
#[test]
fn a_deadline_ends_a_stream_at_both_ends() {
    // Long enough for the request to reach the server on a busy machine.
    let deadline = Duration::from_secs(1);
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let ended = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&ended);
        let handler = server.set_handler(Box::new(FnProvider(move |request: &ServerRequest| {
            let left = request.time_left().unwrap();
            assert!(left <= deadline);
            while !request.is_cancelled() {
                std::thread::sleep(Duration::from_millis(1));
            }
            seen.fetch_add(1, Ordering::SeqCst);
            Err(Error::cancelled("the client has gone"))
        })));
        handler.map_err(|(error, _)| error).unwrap();
        let client = client();
        let options = GetOptions {
            deadline: Some(deadline),
            ..subject.options()
        };
        let error = client
            .get(&[&uri], b"t", &options, None)
            .map(drop)
            .unwrap_err();
        assert_eq!(
            error.status(),
            Status::Timeout,
            "{}: {error}",
            subject.scheme
        );
        eventually("the host sees it", || ended.load(Ordering::SeqCst) == 1);
    }
}

/// Rule Q1: a stream whose deadline passes fails also at a consumer that need not wait.
#[test]
fn a_deadline_ends_a_stream_that_never_waits() {
    let deadline = Duration::from_millis(500);
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let endless = FnProvider(|_: &ServerRequest| {
            let batches = (0..).map(|_| Ok(batch(0, 10)));
            Ok(stream_of(schema(), batches))
        });
        serve(&server, "t", Box::new(endless));
        let options = GetOptions {
            deadline: Some(deadline),
            ..subject.options()
        };
        let mut stream = client().get(&[&uri], b"t", &options, None).unwrap();
        eventually("a batch is here", || stream.batches_here() > 0);
        thread::sleep(deadline);
        let error = stream.next().map(drop).unwrap_err();
        assert_eq!(
            error.status(),
            Status::Timeout,
            "{}: {error}",
            subject.scheme
        );
    }
}

/// The first connection to the result reaches `server` once `go` says so.
fn late_way_to(server: String, go: mpsc::Receiver<()>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        go.recv().unwrap();
        let server = TcpStream::connect(server).unwrap();
        thread::scope(|scope| {
            for (from, to) in [(&client, &server), (&server, &client)] {
                scope.spawn(move || {
                    let (mut from, mut to) = (from, to);
                    let _ = io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Both);
                });
            }
        });
    });
    here
}

/// Rules Q1, E6: of two connections the metadata brings the answer's headers, also if the provider
/// was called for the other one.
#[test]
fn headers_come_with_the_metadata_that_comes_last() {
    let Some(subject) = SUBJECTS.into_iter().find(|it| it.scheme == "tcp") else {
        return;
    };
    let (server, _) = server(subject, ServerOptions::default());
    let (called, go) = mpsc::channel();
    let called = parking_lot::Mutex::new(called);
    let provider = FnProvider(move |request: &ServerRequest| {
        let opened = echo(request);
        let _ = called.lock().send(());
        opened
    });
    serve(&server, "t", Box::new(provider));
    let metadata = server.location(Role::Metadata).unwrap();
    let data = server.location(Role::Data).unwrap();
    let there = metadata.strip_prefix("tcp://").unwrap();
    let there = there.split_once('?').unwrap().0;
    let metadata = metadata.replace(there, &late_way_to(there.to_owned(), go));
    let mut stream = client()
        .get(&[&metadata, &data], b"t", &subject.options(), None)
        .unwrap();
    assert_eq!(stream.headers(), headers(&[("ticket", b"t")]));
    assert_same(&read_all(&mut stream).unwrap(), &[batch(0, 10)]);
}

/// Promise of [`dipc::server::ServerHandle::replace`]: there is no moment at which the ticket is
/// unknown, and a stream shows one version of the table.
#[test]
fn a_ticket_is_replaced_without_a_gap() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let replace = |version: i64| {
            let arrays = (0..3).map(|_| export(&batch(version, 5))).collect();
            let outcome = server.replace(b"t", export_schema(&schema()), arrays);
            outcome.map_err(|(error, _)| error).unwrap();
        };
        replace(0);
        let client = client();
        for version in 1..50 {
            let mut stream = client.get(&[&uri], b"t", &subject.options(), None).unwrap();
            replace(version);
            let received = read_all(&mut stream).unwrap();
            assert_same(&received, &vec![batch(version - 1, 5); 3]);
        }
    }
}

/// Rule Q7: `authorization` is not sent where others can read it, unless the caller insists; other
/// headers are.
#[test]
fn secrets_are_sent_where_nobody_reads_them() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let handler = server.set_handler(Box::new(FnProvider(echo)));
        handler.map_err(|(error, _)| error).unwrap();
        let client = client();
        for (key, send_secrets) in [
            ("authorization", false),
            ("authorization", true),
            ("traceparent", false),
        ] {
            let options = GetOptions {
                headers: headers(&[(key, b"Bearer 1")]),
                send_secrets,
                ..subject.options()
            };
            let asked = client.get(&[&uri], b"t", &options, None);
            if subject.scheme == "ucx" && key == "authorization" && !send_secrets {
                let error = asked.map(drop).unwrap_err();
                assert_eq!(error.status(), Status::Permission);
                assert!(error.text().contains("send_secrets"), "{error}");
            } else {
                let answer = asked.unwrap().headers();
                assert_eq!(
                    answer.get(key),
                    Some(&b"Bearer 1"[..]),
                    "{}",
                    subject.scheme
                );
            }
        }
    }
}

/// A request says who the client is: the process over shm, the address over tcp and ucx.
#[test]
fn a_request_says_who_asks() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let handler = server.set_handler(Box::new(FnProvider(move |request: &ServerRequest| {
            let origin = request.origin();
            assert_eq!(origin.scheme, subject.scheme);
            let pid = origin.process.map(|process| process.pid.unsigned_abs());
            let own = (subject.scheme == "shm").then(std::process::id);
            assert_eq!(pid, own);
            let is_here = origin.address.map(|address| address.ip().is_loopback());
            let has_address = ["tcp", "ucx"].contains(&subject.scheme);
            assert_eq!(is_here, has_address.then_some(true));
            Ok(stream_of(schema(), [Ok(batch(0, 10))].into_iter()))
        })));
        handler.map_err(|(error, _)| error).unwrap();
        let mut stream = client()
            .get(&[&uri], b"t", &subject.options(), None)
            .unwrap();
        assert_same(&read_all(&mut stream).unwrap(), &[batch(0, 10)]);
    }
}

/// Answers each verb but get; a get gives a table.
fn answer(request: &ServerRequest) -> dipc::error::Result<dipc::arrow::OwnedDeviceStream> {
    request.add_headers(&headers(&[("by", b"handler")]))?;
    let mut description = Description::default();
    let mut endpoint = |descriptor: &[u8], uris: &[&str]| {
        description.endpoints.push(Endpoint {
            descriptor: descriptor.to_vec(),
            uris: uris.iter().map(|&uri| uri.to_owned()).collect(),
            rows: Some(5),
            bytes: None,
        });
    };
    match request.verb() {
        Verb::Describe => {
            endpoint(b"part 1", &["shm:/there", "tcp://elsewhere:1"]);
            endpoint(b"part 2", &[]);
            description.rows = Some(10);
            description.set_schema(&export_schema(&schema()))?;
        }
        Verb::List => endpoint(request.ticket(), &[]),
        _ => return Ok(stream_of(schema(), [Ok(batch(0, 10))].into_iter())),
    }
    description.stream()
}

/// Rule Q6: the server describes and lists its own tickets; a published table has its schema and
/// totals, and a provider's is not known before it is asked for.
#[test]
fn a_server_describes_and_lists_its_tickets() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let batches = [batch(0, 10), batch(10, 5)];
        let arrays = batches.iter().map(export).collect();
        let published = server.publish(b"table/1", export_schema(&schema()), arrays);
        published.map_err(|(error, _)| error).unwrap();
        let provider = server.serve(b"table/2", Box::new(FnProvider(echo)));
        provider.map_err(|(error, _)| error).unwrap();
        server.serve_pull(b"other").unwrap();
        let client = client();
        let options = subject.options();

        let (table, _) = client
            .describe(&[&uri], b"table/1", &options, None)
            .unwrap();
        assert_eq!((table.rows, table.batches), (Some(15), Some(2)));
        assert!(table.bytes.is_some_and(|bytes| bytes > 15 * 8), "{table:?}");
        let theirs = schema_from_c(&table.schema().unwrap().unwrap()).unwrap();
        assert_eq!(theirs, *schema());
        let own = Endpoint {
            descriptor: b"table/1".to_vec(),
            uris: Vec::new(),
            rows: table.rows,
            bytes: table.bytes,
        };
        assert_eq!(
            table.endpoints,
            std::slice::from_ref(&own),
            "{}",
            subject.scheme
        );

        let (table, _) = client
            .describe(&[&uri], b"table/2", &options, None)
            .unwrap();
        let unknown = |ticket: &[u8]| Endpoint {
            descriptor: ticket.to_vec(),
            ..Endpoint::default()
        };
        assert_eq!(table.endpoints, [unknown(b"table/2")]);
        assert!(table.schema().unwrap().is_none() && table.rows.is_none());
        let error = client
            .describe(&[&uri], b"none", &options, None)
            .unwrap_err();
        assert_eq!(error.status(), Status::NotFound);

        for (prefix, expected) in [
            (&b"table/"[..], vec![own.clone(), unknown(b"table/2")]),
            (
                b"",
                vec![unknown(b"other"), own.clone(), unknown(b"table/2")],
            ),
            (b"z", vec![]),
        ] {
            let listed = client.list(&[&uri], prefix, &options, None).unwrap();
            let listed = Description::read(Box::new(listed)).unwrap();
            assert_eq!(listed.endpoints, expected, "{}", subject.scheme);
        }
    }
}

/// Rule Q6: what no ticket matches is described and listed by the handler; one that does not know
/// the verb is found out.
#[test]
fn a_handler_describes_and_lists_the_rest() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let handler = server.set_handler(Box::new(FnProvider(answer)));
        handler.map_err(|(error, _)| error).unwrap();
        let client = client();
        let options = subject.options();
        let (table, headers) = client.describe(&[&uri], b"query", &options, None).unwrap();
        assert_eq!(headers.get("by"), Some(&b"handler"[..]));
        assert_eq!((table.rows, table.bytes), (Some(10), None));
        assert_eq!(table.endpoints.len(), 2);
        assert_eq!(table.endpoints[0].uris, ["shm:/there", "tcp://elsewhere:1"]);
        let theirs = schema_from_c(&table.schema().unwrap().unwrap()).unwrap();
        assert_eq!(theirs, *schema());
        let listed = client.list(&[&uri], b"pre", &options, None).unwrap();
        let listed = Description::read(Box::new(listed)).unwrap();
        assert_eq!(listed.endpoints[0].descriptor, b"pre");

        let handler = server.set_handler(Box::new(FnProvider(echo)));
        handler.map_err(|(error, _)| error).unwrap();
        let error = client
            .describe(&[&uri], b"query", &options, None)
            .unwrap_err();
        assert_eq!(error.status(), Status::InvalidData);
        assert!(error.text().contains("may not know the verb"), "{error}");
        let mut stream = client.get(&[&uri], b"query", &options, None).unwrap();
        assert_same(&read_all(&mut stream).unwrap(), &[batch(0, 10)]);
    }
}

/// Rule Q6: a description of 10,000 endpoints crosses whole; one past the limit is refused, and the
/// server answers the next request.
#[test]
fn many_endpoints_are_described() {
    let many = |count: usize| {
        let endpoints = (0..count).map(|part| Endpoint {
            descriptor: part.to_string().into_bytes(),
            uris: vec![format!("tcp://host{part}:1")],
            rows: Some(part as u64),
            bytes: None,
        });
        Description {
            endpoints: endpoints.collect(),
            ..Description::default()
        }
    };
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let handler = server.set_handler(Box::new(FnProvider(move |request: &ServerRequest| {
            let count = std::str::from_utf8(request.ticket()).unwrap();
            many(count.parse().unwrap()).stream()
        })));
        handler.map_err(|(error, _)| error).unwrap();
        let client = client();
        let options = subject.options();
        let ask = |count: &str| client.describe(&[&uri], count.as_bytes(), &options, None);
        assert_eq!(ask("10000").unwrap().0, many(10_000), "{}", subject.scheme);
        let error = ask("65537").unwrap_err();
        assert_eq!(error.status(), Status::InvalidData, "{}", subject.scheme);
        assert!(error.text().contains("65536 endpoints"), "{error}");
        assert_eq!(ask("10000").unwrap().0, many(10_000), "{}", subject.scheme);
    }
}
