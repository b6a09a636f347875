//! Many streams on one connection (section S).

use std::collections::{BTreeSet, VecDeque};
use std::future::poll_fn;
use std::net::TcpListener;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use dipc::arrow::stream::ArrayReader as _;
use dipc::cancel::Cancel;
use dipc::client::{
    Answer, Client, ClientOptions, GetOptions, NextBatch, Pending, Put, PutOptions, Stream,
};
use dipc::error::{Error, Status};
use dipc::proto::{
    Credit, ExpectedBody, FEATURE_RETURN, FEATURE_STREAMS, Header, Prefix, PrefixKind, Request,
    Tags, Verb,
};
use dipc::server::{ServerHandle, ServerOptions, ServerRequest, SharedAuthorizer};
use dipc::transport::{Incoming, Outgoing, Payload};
use futures::executor::block_on;
use futures::future::join_all;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::authorizing::Deciding;
use crate::common::child::{assert_in_child, in_child};
use crate::common::{
    FnProvider, FnTaker, batch, counting, export, export_schema, import, read_all, schema,
    stream_of,
};
use crate::hostile_puts::Raw;
use crate::{SUBJECTS, Subject, eventually, serve, server};

const SOON: Duration = Duration::from_secs(20);

/// The transports whose streams share connections.
fn subjects() -> impl Iterator<Item = Subject> {
    SUBJECTS.into_iter().filter(|it| it.connections == 1)
}

fn many(most: u32) -> ServerOptions {
    ServerOptions {
        max_streams: 2000,
        max_streams_per_connection: Some(most),
        ..ServerOptions::default()
    }
}

fn client(connections: usize) -> Client {
    let options = ClientOptions {
        connections: Some(connections),
        ..ClientOptions::default()
    };
    Client::new(options).unwrap()
}

fn ask(client: &Client, uri: &str, ticket: &[u8], options: &GetOptions) -> Pending {
    (client.start(Verb::Get, &[uri], ticket, options, None)).unwrap()
}

/// Waits until a descriptor is readable.
fn wait_for(fd: BorrowedFd<'_>) {
    let time = Timespec::try_from(SOON).unwrap();
    let mut polled = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let ready = poll(&mut polled, Some(&time)).unwrap();
    assert!(ready > 0, "nothing came in time");
}

/// Waits for the answer.
fn stream(pending: &Pending) -> Result<Stream, Error> {
    loop {
        match pending.try_answer(|_| true)? {
            Some(Answer::Stream(stream)) => return Ok(*stream),
            Some(_) => panic!("an answer of another kind"),
            None => {
                wait_for(pending.fd().unwrap());
            }
        }
    }
}

fn collect(server: &ServerHandle, count: usize) -> Vec<ServerRequest> {
    let next = |_| server.next_request(Some(SOON), None).unwrap().unwrap();
    (0..count).map(next).collect()
}

fn begin(request: &ServerRequest) {
    request.start(&export_schema(&schema()), 1).unwrap();
}

fn push(request: &ServerRequest, number: i64) -> Result<(), Error> {
    let pushed = request.push(export(&batch(number, 10)), None, Some(SOON));
    pushed.map_err(|(error, _)| error)
}

/// Rules S1 to S3, S6: streams that nobody waits for alone share one connection, from the first one
/// on, and its memory. Each gets its own table, from a provider and from a published one, and the
/// connection is idle afterwards.
#[test]
fn streams_share_a_connection() {
    for subject in subjects() {
        let (server, uri) = server(subject, many(1000));
        serve(&server, "t", counting(20, 1_000));
        let batches: Vec<_> = (0..20).map(|at| batch(at * 100, 100)).collect();
        let arrays = batches.iter().map(export).collect();
        let published = server.publish(b"p", export_schema(&schema()), arrays);
        published.map_err(|(error, _)| error).unwrap();
        let client = client(8);
        for _ in 0..2 {
            let options = subject.options();
            let ticket = |at| if at % 2 == 0 { b"t" } else { b"p" };
            let asked: Vec<_> = (0..100)
                .map(|at| ask(&client, &uri, ticket(at), &options))
                .collect();
            let streams = asked.iter().map(|pending| stream(pending).unwrap());
            for (at, mut stream) in streams.enumerate() {
                let read = read_all(&mut stream).unwrap();
                match at % 2 {
                    0 => assert_eq!(read, all_of(20, 1_000)),
                    _ => assert_eq!(read, batches),
                }
            }
        }
        assert_eq!(client.stats().connections_made, 1, "{}", subject.scheme);
        assert_eq!(server.stats().streams_served, 200);
        eventually("no stream is left", || server.stats().streams_active == 0);
        assert_eq!(server.stats().lent_outstanding, 0);
    }
}

/// What [`counting`] gives.
fn all_of(count: i64, rows: usize) -> Vec<arrow::array::RecordBatch> {
    let mut stream = dipc_stream(count, rows);
    read_all(&mut stream).unwrap()
}

fn dipc_stream(count: i64, rows: usize) -> impl dipc::arrow::stream::ArrayReader {
    let batches = (0..count).map(move |at| Ok(batch(at * rows as i64, rows)));
    dipc::arrow::stream::DeviceStreamReader::new(stream_of(schema(), batches))
}

/// `ClientOptions::connections`: streams that threads wait for have connections of their own, up to
/// the last one, which the others share.
#[test]
fn threads_share_past_the_limit() {
    for subject in subjects() {
        let (server, uri) = server(subject, many(1000));
        server.serve_pull(b"t").unwrap();
        let client = client(3);
        thread::scope(|scope| {
            let readers: Vec<_> = (0..10)
                .map(|_| {
                    scope.spawn(|| {
                        let asked = client.get(&[&uri], b"t", &subject.options(), None);
                        read_all(&mut asked.unwrap()).unwrap()
                    })
                })
                .collect();
            let requests = collect(&server, 10);
            assert_eq!(client.stats().connections_made, 3, "{}", subject.scheme);
            for (at, request) in requests.iter().enumerate() {
                begin(request);
                push(request, at as i64).unwrap();
                request.finish(Some(SOON)).unwrap();
            }
            let read = readers.into_iter().map(|it| it.join().unwrap());
            let firsts = read.map(|batches| format!("{:?}", batches[0].column(0)));
            assert_eq!(firsts.collect::<BTreeSet<_>>().len(), 10);
        });
    }
}

/// A server that takes one stream at a time, and one that is asked to, get a connection for each.
#[test]
fn a_server_may_take_one_stream_at_a_time() {
    for subject in subjects() {
        let (server, uri) = server(subject, many(1));
        server.serve_pull(b"t").unwrap();
        let client = client(2);
        let asked: Vec<_> = (0..5)
            .map(|_| ask(&client, &uri, b"t", &subject.options()))
            .collect();
        for request in collect(&server, 5) {
            begin(&request);
            push(&request, 7).unwrap();
            request.finish(Some(SOON)).unwrap();
        }
        for pending in &asked {
            let read = read_all(&mut stream(pending).unwrap()).unwrap();
            assert_eq!(read, [batch(7, 10)]);
        }
        assert_eq!(client.stats().connections_made, 5, "{}", subject.scheme);
    }
}

/// Rule S4: past the limit of a connection the client opens the next, past its own limit it is
/// busy, and a request with a deadline waits until a stream ends.
#[test]
fn a_full_connection_is_waited_for() {
    for subject in subjects() {
        let (server, uri) = server(subject, many(2));
        server.serve_pull(b"t").unwrap();
        let client = client(2);
        let options = subject.options();
        let asked: Vec<_> = (0..4).map(|_| ask(&client, &uri, b"t", &options)).collect();
        let mut requests = collect(&server, 4);
        assert_eq!(client.stats().connections_made, 2, "{}", subject.scheme);
        let error = stream(&ask(&client, &uri, b"t", &options)).err().unwrap();
        assert_eq!(error.status(), Status::Busy, "{error}");
        assert!(
            error.text().contains("max_streams_per_connection"),
            "{error}"
        );
        let patient = GetOptions {
            deadline: Some(SOON),
            ..options
        };
        let waiting = ask(&client, &uri, b"t", &patient);
        let ended = requests.remove(0);
        begin(&ended);
        ended.finish(Some(SOON)).unwrap();
        drop(ended);
        // The client's place is free once its consumer has the end.
        let mut over = BTreeSet::new();
        while over.is_empty() {
            for (at, pending) in asked.iter().enumerate() {
                if let Ok(Some(Answer::Stream(mut ended))) = pending.try_answer(|_| true) {
                    assert!(read_all(&mut *ended).unwrap().is_empty());
                    over.insert(at);
                }
            }
            thread::yield_now();
        }
        requests.extend(collect(&server, 1));
        for request in &requests {
            begin(request);
            request.finish(Some(SOON)).unwrap();
        }
        assert!(read_all(&mut stream(&waiting).unwrap()).unwrap().is_empty());
        assert_eq!(client.stats().connections_made, 2);
    }
}

/// Rule S7, design.md, "Failure is per stream": streams that are refused, failed, left, never read
/// and cancelled leave the others of their connection right.
#[test]
fn one_of_many_may_fail() {
    for subject in subjects() {
        let (server, uri) = server(subject, many(1000));
        server.serve_pull(b"t").unwrap();
        let client = client(8);
        let options = GetOptions {
            window: Credit {
                batches: 4,
                bytes: 1 << 20,
            },
            ..subject.options()
        };
        let tokens: Vec<_> = (0..60).map(|_| Cancel::new().unwrap()).collect();
        let asked: Vec<_> = (tokens.iter())
            .map(|token| client.start(Verb::Get, &[&uri], b"t", &options, Some(token)))
            .map(Result::unwrap)
            .collect();
        let requests = collect(&server, 60);
        let refused = requests.iter().step_by(6);
        refused.for_each(|request| request.fail(Status::NotFound.code(), "not here"));
        let begun = requests.iter().enumerate().filter(|(at, _)| at % 6 > 0);
        begun.for_each(|(_, request)| begin(request));
        let (mut streams, mut refused) = (Vec::new(), 0);
        // The server may get the requests in another order.
        for (pending, token) in asked.iter().zip(&tokens) {
            match stream(pending) {
                Ok(stream) => streams.push((stream, token)),
                Err(error) => {
                    assert_eq!(error.status(), Status::NotFound, "{error}");
                    refused += 1;
                }
            }
        }
        assert_eq!(refused, 10, "{}", subject.scheme);
        // One fails, one is left by its consumer, one is not read until its token ends it, and two
        // come whole.
        let never_read: Vec<_> = streams.drain(..10).collect();
        streams.truncate(40);
        drop(streams.drain(..10));
        let begun: Vec<_> = (requests.iter().enumerate())
            .filter(|(at, _)| at % 6 > 0)
            .map(|(_, request)| request)
            .collect();
        thread::scope(|scope| {
            for (at, request) in begun.into_iter().enumerate() {
                scope.spawn(move || {
                    for number in 0..20 {
                        // Those that nobody reads have no room until they are cancelled.
                        let pushed = request.push(export(&batch(number, 10)), None, Some(SOON));
                        if pushed.is_err() || (number == 10 && at % 5 == 0) {
                            request.fail(Status::Provider.code(), "it is enough");
                            return;
                        }
                    }
                    let _ = request.finish(Some(SOON));
                });
            }
            let mut whole = 0;
            for (mut stream, _) in streams.drain(..) {
                match read_all(&mut stream) {
                    Ok(batches) => {
                        let expected: Vec<_> = (0..20).map(|at| batch(at, 10)).collect();
                        assert_eq!(batches, expected);
                        whole += 1;
                    }
                    Err(error) => assert!(error.text().contains("it is enough"), "{error}"),
                }
            }
            assert!((20..30).contains(&whole), "{whole} of 30 have come whole");
            // Their tokens end those that nobody has read.
            for (mut stream, token) in never_read {
                token.cancel();
                let error = read_all(&mut stream).unwrap_err();
                assert!(error.text().contains("cancelled"), "{error}");
            }
        });
        drop(requests);
        assert_eq!(client.stats().connections_made, 1);
        eventually("no stream is left", || server.stats().streams_active == 0);
        // The connection serves on.
        let pending = ask(&client, &uri, b"t", &options);
        let request = collect(&server, 1).remove(0);
        begin(&request);
        request.finish(Some(SOON)).unwrap();
        assert!(read_all(&mut stream(&pending).unwrap()).unwrap().is_empty());
        assert_eq!(client.stats().connections_made, 1);
    }
}

/// Rule S8: streams that run go on while their server stops, and the stop waits for them, and no
/// longer.
#[test]
fn running_streams_outlast_a_stop() {
    for subject in subjects() {
        let (server, uri) = server(subject, many(1000));
        server.serve_pull(b"t").unwrap();
        let client = client(8);
        let options = subject.options();
        let asked: Vec<_> = (0..20)
            .map(|_| ask(&client, &uri, b"t", &options))
            .collect();
        let requests = collect(&server, 20);
        for request in &requests {
            begin(request);
            push(request, 0).unwrap();
        }
        let mut streams: Vec<_> = asked.iter().map(|it| stream(it).unwrap()).collect();
        thread::scope(|scope| {
            let stopping = scope.spawn(|| server.stop(SOON));
            let sending = scope.spawn(move || {
                // One ends after the other, the first of the connection among the first.
                let mut requests = VecDeque::from(requests);
                while let Some(request) = requests.pop_front() {
                    for number in 1..=5 {
                        requests.iter().for_each(|it| push(it, number).unwrap());
                    }
                    request.finish(Some(SOON)).unwrap();
                }
            });
            let read = |mut stream: Stream| scope.spawn(move || read_all(&mut stream).unwrap());
            let reading: Vec<_> = streams.drain(..).map(read).collect();
            let lengths = reading.into_iter().map(|it| it.join().unwrap().len());
            let lengths: BTreeSet<_> = lengths.collect();
            assert_eq!(lengths, (0..20).map(|at| 1 + 5 * at).collect());
            sending.join().unwrap();
            stopping.join().unwrap().unwrap();
        });
        assert_eq!(client.stats().connections_made, 1, "{}", subject.scheme);
    }
}

/// Rule S7: the end of the connection ends each of its streams with one status and text.
#[test]
fn a_cut_connection_ends_each_stream() {
    for subject in subjects() {
        let (server, uri) = server(subject, many(1000));
        server.serve_pull(b"t").unwrap();
        let client = client(8);
        let options = subject.options();
        let asked: Vec<_> = (0..100)
            .map(|_| ask(&client, &uri, b"t", &options))
            .collect();
        let requests = collect(&server, 100);
        for request in &requests {
            begin(request);
            push(request, 1).unwrap();
        }
        let mut streams: Vec<_> = asked.iter().map(|it| stream(it).unwrap()).collect();
        // Its hosts have not returned.
        let stopping = server.stop(Duration::ZERO).unwrap_err();
        assert_eq!(stopping.status(), Status::Timeout, "{stopping}");
        let mut texts = BTreeSet::new();
        for stream in &mut streams {
            let error = read_all(stream).unwrap_err();
            texts.insert(format!("{:?}: {}", error.status(), error.text()));
        }
        assert_eq!(texts.len(), 1, "{texts:?}");
    }
}

/// Rule S10: one thread of the host reads a thousand streams of one connection, which another
/// thread of the host serves. `DIPC_STREAMS` sets the number (`tools/test-slow.sh connections`).
#[test]
fn no_stream_needs_a_thread() {
    /// Requests that wait at once: each has descriptors until its answer.
    const ASKED: usize = 500;
    let count = std::env::var("DIPC_STREAMS").map_or(1000, |text| text.parse().unwrap());
    for subject in subjects() {
        let options = ServerOptions {
            max_streams: count * 2,
            ..ServerOptions::default()
        };
        let (server, uri) = server(subject, options);
        server.serve_pull(b"t").unwrap();
        let client = client(8);
        let options = subject.options();
        let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
        let before = threads();
        let (mut requests, mut streams) = (Vec::new(), Vec::new());
        while streams.len() < count {
            let asked: Vec<_> = (0..ASKED.min(count - streams.len()))
                .map(|_| ask(&client, &uri, b"t", &options))
                .collect();
            let begun = collect(&server, asked.len());
            begun.iter().for_each(begin);
            requests.extend(begun);
            streams.extend(asked.iter().map(|it| stream(it).unwrap()));
        }
        for round in 0..3 {
            for request in &requests {
                push(request, round).unwrap();
            }
            for stream in &mut streams {
                while matches!(stream.try_next().unwrap(), NextBatch::NotYet) {
                    wait_for(stream.fd().unwrap());
                }
            }
        }
        // Other tests have threads as well.
        assert!(threads() < before + count / 2, "{} threads", threads());
        for request in &requests {
            request.finish(Some(SOON)).unwrap();
        }
        for stream in &mut streams {
            assert!(read_all(stream).unwrap().is_empty());
        }
        assert_eq!(client.stats().connections_made, 1, "{}", subject.scheme);
    }
}

/// Promise of `dipc_client_options_set_max_idle`: where no connection is kept, none is shared.
#[test]
fn connections_that_are_not_kept_are_not_shared() {
    for subject in subjects() {
        let (server, uri) = server(subject, many(1000));
        serve(&server, "t", counting(2, 10));
        let options = ClientOptions {
            max_idle: 0,
            connections: Some(8),
            ..ClientOptions::default()
        };
        let client = Client::new(options).unwrap();
        for _ in 0..3 {
            let pending = ask(&client, &uri, b"t", &subject.options());
            assert_eq!(read_all(&mut stream(&pending).unwrap()).unwrap().len(), 2);
        }
        assert_eq!(client.stats().connections_made, 3, "{}", subject.scheme);
    }
}

/// A provider that thinks for longer than the client waits for a first word is waited for: the
/// client hears that its request was read.
#[test]
fn slow_providers_are_waited_for() {
    for subject in subjects() {
        let (server, uri) = server(subject, many(1000));
        let think = |_: &ServerRequest| {
            thread::sleep(Duration::from_millis(600));
            Ok(stream_of(schema(), std::iter::once(Ok(batch(1, 10)))))
        };
        serve(&server, "t", Box::new(FnProvider(think)));
        let client = Arc::new(client(8));
        // To connect may take longer.
        let first = ask(&client, &uri, b"t", &subject.options());
        read_all(&mut stream(&first).unwrap()).unwrap();
        let options = GetOptions {
            connect_timeout: Duration::from_millis(300),
            ..subject.options()
        };
        let asked: Vec<_> = (0..8).map(|_| ask(&client, &uri, b"t", &options)).collect();
        for pending in &asked {
            let read = read_all(&mut stream(pending).unwrap()).unwrap();
            assert_eq!(read, [batch(1, 10)]);
        }
    }
}

/// Rule S9: the host decides about each stream of a connection.
#[test]
fn the_host_decides_about_each_stream() {
    for subject in subjects() {
        let (told, asked_about) = mpsc::channel();
        let decide = move |request: &ServerRequest| {
            told.send(request.ticket().to_vec()).unwrap();
            match request.ticket() {
                b"t" => Ok(()),
                _ => Err(Error::new(Status::Permission, "not this one")),
            }
        };
        let options = ServerOptions {
            authorizer: Some(SharedAuthorizer(Arc::new(Deciding(decide)))),
            ..many(1000)
        };
        let (server, uri) = server(subject, options);
        serve(&server, "t", counting(2, 10));
        serve(&server, "u", counting(2, 10));
        let client = client(8);
        let tickets = [b"t", b"u"].into_iter().cycle().take(20);
        let asked: Vec<_> = tickets
            .map(|ticket| ask(&client, &uri, ticket, &subject.options()))
            .collect();
        for (at, pending) in asked.iter().enumerate() {
            match stream(pending) {
                Ok(mut stream) => {
                    assert_eq!((at % 2, read_all(&mut stream).unwrap().len()), (0, 2))
                }
                Err(error) => assert_eq!((at % 2, error.status()), (1, Status::Permission)),
            }
        }
        assert_eq!(asked_about.try_iter().count(), 20);
        assert_eq!(client.stats().connections_made, 1, "{}", subject.scheme);
    }
}

/// Promise of `Pending::poll_answer` and `Stream::wake`: tasks on a shared connection, also while
/// one of them opens the connection, are woken, and take no descriptor.
#[test]
fn tasks_need_no_descriptor() {
    in_child("sharing::child_has_tasks");
}

#[test]
#[ignore = "run by tasks_need_no_descriptor"]
fn child_has_tasks() {
    assert_in_child();
    for subject in subjects() {
        let (server, uri) = server(subject, many(1000));
        server.serve_pull(b"t").unwrap();
        let client = client(1);
        let options = subject.options();
        let serve = |count: usize| {
            for request in collect(&server, count) {
                begin(&request);
                push(&request, 7).unwrap();
                request.finish(Some(SOON)).unwrap();
            }
        };
        let rows = |pending: Pending| async move {
            let answer = poll_fn(|context| pending.poll_answer(context)).await;
            let Ok(Answer::Stream(mut stream)) = answer else {
                panic!("an answer of another kind");
            };
            let mut rows = 0;
            loop {
                let next = poll_fn(|context| {
                    assert!(stream.wake(context.waker()), "a descriptor tells");
                    match stream.try_next() {
                        Ok(NextBatch::NotYet) => Poll::Pending,
                        found => Poll::Ready(found.unwrap()),
                    }
                });
                match next.await {
                    NextBatch::Batch(array) => rows += array.raw().array.length,
                    NextBatch::End | NextBatch::NotYet => return rows,
                }
            }
        };
        let ask = || ask(&client, &uri, b"t", &options);
        let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        // The first request of the first round opens the connection.
        for _ in 0..2 {
            let before = descriptors();
            let asked: Vec<_> = (0..100).map(|_| ask()).collect();
            assert!(descriptors() < before + 20, "{}", descriptors() - before);
            thread::scope(|scope| {
                scope.spawn(|| serve(100));
                let all = block_on(join_all(asked.into_iter().map(rows)));
                assert_eq!(all, [10; 100]);
            });
            assert_eq!(client.stats().connections_made, 1, "{subject:?}");
        }
    }
}

/// Rule S5: a small stream comes in the middle of a large one, which has all the credit there is.
#[test]
fn streams_take_turns() {
    let subject = subjects().find(|it| it.scheme == "tcp").unwrap();
    let (server, uri) = server(subject, many(1000));
    let large: Vec<_> = (0..64).map(|at| batch(at, 1 << 17)).collect();
    for (ticket, batches) in [(b"l", &large[..]), (b"s", &[batch(0, 10)])] {
        let arrays = batches.iter().map(export).collect();
        let published = server.publish(ticket, export_schema(&schema()), arrays);
        published.map_err(|(error, _)| error).unwrap();
    }
    let mut raw = Raw::connect(subject, &uri);
    let credit = Credit {
        batches: u64::MAX,
        bytes: u64::MAX,
    };
    for (number, ticket) in [(0, b"l"), (1, b"s")] {
        let request = Request {
            number,
            stream_id: number.into(),
            features: FEATURE_STREAMS | FEATURE_RETURN,
            ..Request::new(*ticket, credit)
        };
        let tagged = Outgoing::Tagged {
            tag: Tags::DEFAULT.dipc_want,
            payload: Payload::Bytes(request.encode().into()),
        };
        raw.connection.queue(number, tagged).unwrap();
        while !raw.connection.flush().unwrap() {}
        // STREAMS comes before anything else.
        while number == 0 && raw.connection.receive_any().unwrap().is_none() {}
    }
    let mut large_bytes = 0;
    loop {
        let Some((number, message)) = raw.connection.receive().unwrap() else {
            thread::yield_now();
            continue;
        };
        if number == 0 {
            large_bytes += message.body_len();
        }
        let Incoming::Metadata(bytes) = message else {
            continue;
        };
        let (prefix, header) = Prefix::split(&bytes).unwrap();
        if prefix.kind == PrefixKind::EndOfStream {
            assert_eq!(number, 1, "the large stream came first");
            break;
        }
        let body_len = Header::parse(header).unwrap().body_len();
        if body_len > 0 {
            let expected = ExpectedBody::new(prefix.seq, body_len, 0);
            raw.connection.post_body(number, expected);
        }
    }
    assert!(large_bytes < 32 << 20, "{large_bytes} bytes came before");
}

/// A server that takes tables of 20 batches, and gives the tables of exchanges back.
fn take_tables(server: &ServerHandle) {
    let taker = FnTaker(|request: &ServerRequest| {
        let mut source = request.source()?;
        match read_all(&mut source)?.len() {
            20 => Ok(()),
            count => Err(Error::new(Status::Provider, format!("{count} batches"))),
        }
    });
    let handler = server.set_handler(Box::new(taker));
    handler.map_err(|(error, _)| error).unwrap();
}

/// Rules S1 to S3 and E3 of puts: tables that clients send share a connection, and its memory, and
/// each comes whole; also on a connection whose first stream came from the server.
#[test]
fn tables_of_clients_share_a_connection() {
    for subject in subjects() {
        let (server, uri) = server(subject, many(1000));
        serve(&server, "t", counting(20, 1_000));
        take_tables(&server);
        let client = client(8);
        if subject.scheme != "mem" {
            let asked = ask(&client, &uri, b"t", &subject.options());
            read_all(&mut stream(&asked).unwrap()).unwrap();
        }
        let described = (&export_schema(&schema()), 1);
        for _ in 0..2 {
            let start = |_| {
                let options = (&PutOptions::default(), None);
                client.start_put(&[&uri], b"d", described, options, None)
            };
            let asked: Vec<_> = (0..40).map(start).map(Result::unwrap).collect();
            let mut puts: Vec<_> = asked.iter().map(|pending| put(pending).0).collect();
            for number in 0..20 {
                for put in &mut puts {
                    let pushed = put.push(export(&batch(number, 1000)), None, Some(SOON));
                    pushed.map_err(|(error, _)| error).unwrap();
                }
            }
            let (left, whole) = puts.split_at_mut(10);
            left.iter_mut().for_each(|put| put.fail(-1, "no more"));
            for put in whole {
                assert_eq!(put.finish(Some(SOON)).unwrap(), 20);
            }
        }
        assert_eq!(client.stats().connections_made, 1, "{}", subject.scheme);
        eventually("no stream is left", || server.stats().streams_active == 0);
    }
}

/// The put, and the server's stream of an exchange.
fn put(pending: &Pending) -> (Put, Option<Stream>) {
    loop {
        match pending.try_answer(|_| true).unwrap() {
            Some(Answer::Put(put, stream)) => return (*put, stream.map(|it| *it)),
            Some(_) => panic!("an answer of another kind"),
            None => {
                wait_for(pending.fd().unwrap());
            }
        }
    }
}

/// Rule Q5 on a shared connection: exchanges go both ways at once, beside gets.
#[test]
fn exchanges_share_a_connection() {
    for subject in subjects() {
        let (server, uri) = server(subject, many(1000));
        serve(&server, "t", counting(20, 100));
        let echo = FnProvider(|request: &ServerRequest| {
            let mut source = request.source()?;
            let arrays = std::iter::from_fn(move || source.next().transpose());
            let batches = arrays.map(|it| it.map(|it| import(it, &export_schema(&schema()))));
            Ok(stream_of(schema(), batches))
        });
        let handler = server.set_handler(Box::new(echo));
        handler.map_err(|(error, _)| error).unwrap();
        let options = subject.options();
        // Either may open the connection.
        for is_first in [true, false] {
            let client = client(1);
            let get = || stream(&ask(&client, &uri, b"t", &options)).unwrap();
            let first = is_first.then(get);
            let described = (&export_schema(&schema()), 1);
            let start = |_| {
                let options = (&PutOptions::default(), Some(&options));
                client.start_put(&[&uri], b"x", described, options, None)
            };
            let asked: Vec<_> = (0..10).map(start).map(Result::unwrap).collect();
            let mut both: Vec<_> = asked.iter().map(put).collect();
            let mut get = first.unwrap_or_else(get);
            for number in 0..20 {
                for (put, answers) in &mut both {
                    let pushed = put.push(export(&batch(number, 100)), None, Some(SOON));
                    pushed.map_err(|(error, _)| error).unwrap();
                    let array = answers.as_mut().unwrap().next().unwrap().unwrap();
                    assert_eq!(import(array, &export_schema(&schema())), batch(number, 100));
                }
            }
            for (mut put, answers) in both {
                put.finish(Some(SOON)).unwrap();
                assert!(answers.unwrap().next().unwrap().is_none());
            }
            assert_eq!(read_all(&mut get).unwrap().len(), 20);
            assert_eq!(client.stats().connections_made, 1, "{}", subject.scheme);
            eventually("no stream is left", || server.stats().streams_active == 0);
        }
    }
}

/// Rule S10, `Cancel`: a burst of any size waits for the connection that its first stream opens, to
/// a server that is silent, and one token ends it.
#[test]
fn a_burst_of_any_size_waits_for_its_connection() {
    const BURST: usize = 600;
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, raised).unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let tcp = subjects().find(|it| it.scheme == "tcp").unwrap();
    let (_server, known) = server(tcp, many(1000));
    let port = |uri: &str| uri.split([':', '?']).nth(2).unwrap().to_owned();
    let address = silent.local_addr().unwrap();
    let uri = known.replace(&port(&known), &address.port().to_string());
    let (client, token) = (client(1), Cancel::new().unwrap());
    let described = (&export_schema(&schema()), 1);
    let options = (&PutOptions::default(), None);
    let start = |_| client.start_put(&[&uri], b"x", described, options, Some(&token));
    let asked: Vec<_> = (0..BURST).map(start).map(Result::unwrap).collect();
    token.cancel();
    for pending in &asked {
        let error = stream(pending).err().unwrap();
        assert_eq!(error.status(), Status::Cancelled, "{error}");
    }
}

/// Rules E8, S2: checksums cover the numbers of the streams that share a connection.
#[test]
fn streams_with_checksums_share_a_connection() {
    for subject in subjects() {
        let (server, uri) = server(subject, many(1000));
        serve(&server, "t", counting(20, 1_000));
        let client = client(8);
        let options = GetOptions {
            checksums: true,
            ..subject.options()
        };
        let asked: Vec<_> = (0..50)
            .map(|_| ask(&client, &uri, b"t", &options))
            .collect();
        for pending in &asked {
            let read = read_all(&mut stream(pending).unwrap()).unwrap();
            assert_eq!(read, all_of(20, 1_000));
        }
        assert_eq!(client.stats().connections_made, 1, "{}", subject.scheme);
    }
}

/// Rule Q8 on a shared connection: a table that nobody sends makes room for others, and its host
/// waits no more. The connection and its other streams go on.
#[test]
fn a_table_that_nobody_sends_makes_room() {
    for subject in subjects() {
        let options = ServerOptions {
            max_streams: 2,
            credit_timeout: Some(Duration::from_millis(50)),
            ..many(1000)
        };
        let (server, uri) = server(subject, options);
        server.serve_pull(b"p").unwrap();
        serve(&server, "t", counting(2, 10));
        let (told, outcome) = mpsc::channel();
        let taker = FnTaker(move |request: &ServerRequest| {
            let read = request
                .source()
                .and_then(|mut source| read_all(&mut source));
            told.send(read.is_err()).unwrap();
            read.map(drop)
        });
        let handler = server.set_handler(Box::new(taker));
        handler.map_err(|(error, _)| error).unwrap();
        let client = client(8);
        let options = subject.options();
        let pulled = ask(&client, &uri, b"p", &options);
        let request = collect(&server, 1).remove(0);
        begin(&request);
        let mut pulled = stream(&pulled).unwrap();
        let described = (&export_schema(&schema()), 1);
        let put_options = (&PutOptions::default(), None);
        let asked = client.start_put(&[&uri], b"d", described, put_options, None);
        let (silent, _) = put(&asked.unwrap());
        let patient = GetOptions {
            deadline: Some(SOON),
            ..options
        };
        let read = read_all(&mut stream(&ask(&client, &uri, b"t", &patient)).unwrap());
        assert_eq!(read.unwrap().len(), 2);
        assert!(outcome.recv_timeout(SOON).unwrap(), "the host's read fails");
        push(&request, 3).unwrap();
        request.finish(Some(SOON)).unwrap();
        assert_eq!(read_all(&mut pulled).unwrap(), [batch(3, 10)]);
        assert_eq!(client.stats().connections_made, 1, "{}", subject.scheme);
        drop(silent);
    }
}
