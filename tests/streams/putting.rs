//! Streams that clients send (rules Q2 to Q4, Q10).

use std::os::fd::OwnedFd;
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;

use arrow::array::RecordBatch;
use dipc::arena::{Arena, ArenaOptions};
use dipc::arrow::stream::ArrayReader as _;
use dipc::cancel::Cancel;
use dipc::client::{Client, Put, PutOptions};
use dipc::device::DeviceKind;
use dipc::error::{Error, Result, Status};
use dipc::proto::{Headers, Verb};
use dipc::server::{ServerHandle, ServerOptions, ServerRequest};
use dipc::transport::BodyPolicy;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::common::asleep::{this_thread, until_asleep};
use crate::common::child::{assert_in_child, in_child};
use crate::common::{FnTaker, batch, export, export_schema, in_arena, read_all, schema, stream_of};
use crate::{SUBJECTS, Subject, assert_same, client, eventually, server};

pub(crate) const HOST: i32 = 1;

pub(crate) fn take_by(
    server: &ServerHandle,
    take: impl Fn(&ServerRequest) -> Result<()> + Send + Sync + 'static,
) {
    let handler = server.set_handler(Box::new(FnTaker(take)));
    handler.map_err(|(error, _)| error).unwrap();
}

/// Begins to send a table of [`schema`].
fn put(client: &Client, uri: &str, subject: Subject) -> Result<Put> {
    let described = (&export_schema(&schema()), HOST);
    client.put(&[uri], b"a table", described, &options(subject), None)
}

pub(crate) fn options(subject: Subject) -> PutOptions {
    PutOptions {
        connections: subject.options().connections,
        ..PutOptions::default()
    }
}

pub(crate) fn push(put: &mut Put, batch: &RecordBatch) -> Result<()> {
    put.push(export(batch), None, None)
        .map_err(|(error, _)| error)
}

/// Rule U5: a bare address is enough to put a table, also where the client first waits for a sign
/// that the server is libdipc's; and the host may take its time before it asks for the table.
#[test]
fn a_table_crosses_to_a_bare_address() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let ((asks, asked), (go, waits)) = (mpsc::channel(), mpsc::channel());
        let waits = Mutex::new(waits);
        take_by(&server, move |request| {
            asks.send(()).unwrap();
            let told = waits.lock().unwrap().recv_timeout(Duration::from_secs(60));
            told.map_err(|_| Error::timeout("no word of the test"))?;
            let batches = read_all(&mut request.source()?)?;
            assert_same(&batches, &[batch(0, 10)]);
            Ok(())
        });
        let bare = uri.split('?').next().unwrap();
        let client = client();
        for _ in 0..2 {
            let sending = thread::scope(|scope| {
                let sending = scope.spawn(|| put(&client, bare, subject));
                asked.recv_timeout(Duration::from_secs(60)).unwrap();
                go.send(()).unwrap();
                sending.join().unwrap()
            });
            let mut put = sending.unwrap();
            push(&mut put, &batch(0, 10)).unwrap();
            assert_eq!(put.finish(None).unwrap(), 1, "{}", subject.scheme);
        }
    }
}

/// Rules Q2 to Q4: a table crosses to the server's host, value for value, with headers both ways,
/// and the client hears how many batches the host has taken. The connection then serves a get or
/// the next put.
#[test]
fn a_table_crosses_to_the_server() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let (sender, taken) = mpsc::channel();
        take_by(&server, move |request| {
            assert_eq!(
                (request.verb(), request.ticket()),
                (Verb::Put, &b"a table"[..])
            );
            assert_eq!(request.headers().get("key"), Some(&b"value"[..]));
            let mut answer = Headers::new();
            answer.add("taken-by", *b"a test")?;
            request.add_headers(&answer)?;
            let batches = read_all(&mut request.source()?)?;
            sender
                .send(batches)
                .map_err(|_| Error::cancelled("no test"))
        });
        let client = client();
        let mut headers = Headers::new();
        headers.add("key", *b"value").unwrap();
        for count in [3, 0, 40] {
            let batches: Vec<_> = (0..count).map(|index| batch(index * 1000, 1000)).collect();
            let options = PutOptions {
                headers: headers.clone(),
                ..options(subject)
            };
            let described = (&export_schema(&schema()), HOST);
            let mut put = client
                .put(&[&uri], b"a table", described, &options, None)
                .unwrap();
            for batch in &batches {
                push(&mut put, batch).unwrap();
            }
            assert_eq!(
                put.finish(None).unwrap(),
                batches.len() as u64,
                "{}",
                subject.scheme
            );
            assert_same(&taken.recv().unwrap(), &batches);
            assert_eq!(put.headers().get("taken-by"), Some(&b"a test"[..]));
        }
        assert_eq!(client.stats().connections_made, 1, "{}", subject.scheme);
    }
}

/// Rule Q2: a refusal is known before the first batch, with the status and the text of the host, and
/// the connection serves the next stream, where it keeps the order of messages.
#[test]
fn a_refusal_comes_before_the_first_batch() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let client = client();
        let nobody = put(&client, &uri, subject).map(drop).unwrap_err();
        assert_eq!(nobody.status(), Status::Unsupported, "{}", subject.scheme);
        assert!(nobody.text().contains("no handler"), "{nobody}");
        take_by(&server, |request| {
            let schema = request.source_schema()?;
            let names = crate::common::names(&schema);
            Err(Error::new(Status::Permission, format!("not {names:?}")))
        });
        let refused = put(&client, &uri, subject).map(drop).unwrap_err();
        assert_eq!(refused.status(), Status::Permission, "{}", subject.scheme);
        assert!(refused.text().contains("not ["), "{refused}");
        take_by(&server, |request| {
            read_all(&mut request.source()?).map(drop)
        });
        let mut taken = put(&client, &uri, subject).unwrap();
        push(&mut taken, &batch(0, 10)).unwrap();
        assert_eq!(taken.finish(None).unwrap(), 1);
    }
}

/// Rules Q4, Q10: a host that does not take the whole table fails it, however it does so, the client
/// learns the reason, and other streams of the server go on.
#[test]
fn a_host_that_leaves_a_table_fails_it() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        take_by(&server, |request| match request.headers().get("do") {
            Some(b"nothing") => Ok(()),
            Some(b"half") => request.source()?.next().map(drop),
            Some(b"fail") => {
                request.source()?.next()?;
                Err(Error::new(Status::InvalidData, "a bad row"))
            }
            Some(b"late") => {
                read_all(&mut request.source()?)?;
                Err(Error::new(Status::InvalidData, "the disk is full"))
            }
            Some(b"twice") => {
                read_all(&mut request.source()?)?;
                request.source().map(drop)
            }
            _ => read_all(&mut request.source()?).map(drop),
        });
        let client = client();
        let cases = [
            ("nothing", Status::Provider, "did not take the table"),
            ("half", Status::Provider, "left the table before its end"),
            ("fail", Status::InvalidData, "a bad row"),
            ("late", Status::InvalidData, "the disk is full"),
            ("twice", Status::InvalidArgument, "was taken before"),
        ];
        for (what, status, text) in cases {
            let mut headers = Headers::new();
            headers.add("do", what).unwrap();
            let options = PutOptions {
                headers,
                ..options(subject)
            };
            let described = (&export_schema(&schema()), HOST);
            let sent = client
                .put(&[&uri], b"a table", described, &options, None)
                .and_then(|mut put| {
                    for index in 0..100 {
                        push(&mut put, &batch(index, 1000))?;
                    }
                    put.finish(None)
                });
            let error = sent.unwrap_err();
            assert_eq!(
                error.status(),
                status,
                "{}: {what}: {error}",
                subject.scheme
            );
            assert!(
                error.text().contains(text),
                "{}: {what}: {error}",
                subject.scheme
            );
            let mut next = put(&client, &uri, subject).unwrap();
            push(&mut next, &batch(0, 10)).unwrap();
            assert_eq!(
                next.finish(None).unwrap(),
                1,
                "{}: behind {what}",
                subject.scheme
            );
        }
        // Rule Q10: a connection without order is not used behind a failure.
        if subject.scheme != "ucx" && subject.options().connections == 1 {
            assert_eq!(client.stats().connections_made, 1, "{}", subject.scheme);
        }
        eventually("no stream is active", || server.stats().streams_active == 0);
    }
}

/// Rule Q10: a table that its client leaves, or fails with a reason, never comes to its end at the
/// server.
#[test]
fn a_cut_table_is_never_finished() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let (sender, outcome) = mpsc::channel();
        take_by(&server, move |request| {
            let read = read_all(&mut request.source()?);
            let _ = sender.send(read.as_ref().map(Vec::len).map_err(Error::clone));
            read.map(drop)
        });
        let client = client();
        let mut failed = put(&client, &uri, subject).unwrap();
        push(&mut failed, &batch(0, 10)).unwrap();
        failed.fail(Status::InvalidData.code(), "row 7 is bad");
        let error = outcome.recv().unwrap().unwrap_err();
        assert_eq!(
            error.status(),
            Status::InvalidData,
            "{}: {error}",
            subject.scheme
        );
        assert!(error.text().contains("row 7 is bad"), "{error}");
        let again = push(&mut failed, &batch(0, 10)).unwrap_err();
        assert!(again.text().contains("row 7 is bad"), "{again}");
        let mut left = put(&client, &uri, subject).unwrap();
        push(&mut left, &batch(0, 10)).unwrap();
        drop(left);
        let error = outcome.recv().unwrap().unwrap_err();
        assert!(
            error.text().contains("left the table"),
            "{}: {error}",
            subject.scheme
        );
        let mut whole = put(&client, &uri, subject).unwrap();
        push(&mut whole, &batch(0, 10)).unwrap();
        assert_eq!(whole.finish(None).unwrap(), 1);
        assert_eq!(outcome.recv().unwrap().unwrap(), 1);
    }
}

/// Rule Q4: the host's results come in order, while the table still goes on, and before the end.
#[test]
fn results_say_what_is_safe() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        take_by(&server, |request| {
            let mut source = request.source()?;
            for count in 1..=5 {
                source.next()?;
                request.say_result(count, format!("part {count}").as_bytes())?;
            }
            let too_long = request.say_result(5, &[0; 40_000]).unwrap_err();
            assert_eq!(too_long.status(), Status::InvalidArgument);
            read_all(&mut source).map(drop)
        });
        let client = client();
        let mut put = put(&client, &uri, subject).unwrap();
        for count in 1..=5 {
            push(&mut put, &batch(0, 10)).unwrap();
            let result = put.next_result(None).unwrap().unwrap();
            assert_eq!(result.batches, count);
            assert_eq!(result.bytes, format!("part {count}").into_bytes());
        }
        let none = put.next_result(Some(Duration::ZERO)).unwrap_err();
        assert_eq!(none.status(), Status::Timeout, "{none}");
        assert_eq!(put.finish(None).unwrap(), 5, "{}", subject.scheme);
        assert_eq!(put.next_result(None).unwrap(), None);
    }
}

/// Rule Q4: what the server's host has said is safe is known also once the table has ended, well or
/// not.
#[test]
fn results_outlive_the_table() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        take_by(&server, |request| {
            let batches = read_all(&mut request.source()?)?;
            request.say_result(batches.len() as u64, b"all")?;
            match batches[0].num_rows() {
                10 => Ok(()),
                _ => Err(Error::new(Status::InvalidData, "a bad row")),
            }
        });
        let client = client();
        for rows in [10, 11] {
            let mut put = put(&client, &uri, subject).unwrap();
            push(&mut put, &batch(0, rows)).unwrap();
            push(&mut put, &batch(10, 10)).unwrap();
            let outcome = put.finish(None).map_err(|error| error.status());
            assert_eq!(outcome.is_ok(), rows == 10, "{}", subject.scheme);
            let result = put.next_result(Some(Duration::ZERO)).unwrap().unwrap();
            assert_eq!((result.batches, &result.bytes[..]), (2, &b"all"[..]));
            let after = put.next_result(None).map_err(|error| error.status());
            assert_eq!(after, outcome.map(|_| None));
        }
    }
}

/// Rules F2, F6 the other way round: over shared memory a table in an arena is not copied. Its blocks
/// come back when the server's host has released the batches, and a host that keeps them reads them
/// also once the client has gone.
#[test]
fn lent_batches_come_back_or_stay_with_the_server() {
    for subject in SUBJECTS.into_iter().filter(|it| it.scheme == "shm") {
        let (server, uri) = server(subject, ServerOptions::default());
        let (sender, taken) = mpsc::channel();
        take_by(&server, move |request| {
            let mut source = request.source()?;
            while let Some(array) = source.next()? {
                sender
                    .send(array)
                    .map_err(|_| Error::cancelled("no test"))?;
            }
            Ok(())
        });
        let arena = Arena::new(DeviceKind::CPU, ArenaOptions::default()).unwrap();
        let client = client();
        let mut put = put(&client, &uri, subject).unwrap();
        let batches: Vec<_> = (0..4).map(|index| batch(index * 5000, 5000)).collect();
        for batch in &batches {
            push(&mut put, &in_arena(&arena, batch)).unwrap();
        }
        assert_eq!(put.finish(None).unwrap(), 4);
        let stats = put.stats();
        assert_eq!(
            (stats.batches, stats.bytes_copied, stats.bytes_sent),
            (4, 0, 0)
        );
        assert!(
            stats.bytes_lent > 100_000 && stats.lent_outstanding > 0,
            "{stats:?}"
        );
        let first = taken.recv().unwrap();
        assert_same(
            &[crate::common::import(first, &export_schema(&schema()))],
            &batches[..1],
        );
        let kept: Vec<_> = taken.try_iter().collect();
        assert_eq!(kept.len(), 3);
        eventually("the first batch is back", || {
            put.stats().lent_outstanding < stats.lent_outstanding
        });
        assert!(put.stats().lent_outstanding > 0);
        drop(put);
        drop(client);
        let schema = export_schema(&schema());
        let kept: Vec<_> = (kept.into_iter())
            .map(|array| crate::common::import(array, &schema))
            .collect();
        assert_same(&kept, &batches[1..]);
    }
}

/// A client that asks for it lends small bodies, too: of an arena where they lie, others as copies.
#[test]
fn small_bodies_are_lent_where_the_client_asks_for_it() {
    for subject in SUBJECTS.into_iter().filter(|it| it.scheme == "shm") {
        let (server, uri) = server(subject, ServerOptions::default());
        take_by(&server, |request| {
            assert_same(&read_all(&mut request.source()?)?, &[batch(0, 10)]);
            Ok(())
        });
        let arena = Arena::new(DeviceKind::CPU, ArenaOptions::default()).unwrap();
        let client = client();
        let arrays = || {
            [
                export(&batch(0, 10)),
                export(&in_arena(&arena, &batch(0, 10))),
            ]
        };
        for (body, lends) in [
            (BodyPolicy::Lent, true),
            (BodyPolicy::Auto, false),
            (BodyPolicy::Packed, false),
        ] {
            for (array, in_place) in arrays().into_iter().zip([false, true]) {
                let options = PutOptions {
                    body,
                    ..options(subject)
                };
                let described = (&export_schema(&schema()), HOST);
                let mut put = client
                    .put(&[&uri], b"x", described, &options, None)
                    .unwrap();
                put.push(array, None, None).map_err(|it| it.0).unwrap();
                assert_eq!(put.finish(None).unwrap(), 1);
                let stats = put.stats();
                assert_eq!(stats.bytes_sent == 0, lends, "{body:?}: {stats:?}");
                assert_eq!(stats.bytes_lent > 0, lends && in_place, "{stats:?}");
            }
        }
    }
}

/// `Client::put_stream`: the batches of a source are sent while the host waits for results or for
/// the end; an error of the source fails the table at both ends.
#[test]
fn a_source_is_sent_while_the_host_waits() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let (sender, outcome) = mpsc::channel();
        take_by(&server, move |request| {
            let mut source = request.source()?;
            let mut count = 0;
            loop {
                match source.next() {
                    Ok(Some(_)) => count += 1,
                    Ok(None) => break,
                    Err(error) => {
                        let _ = sender.send(error.text().to_owned());
                        return Err(error);
                    }
                }
                request.say_result(count, b"")?;
            }
            Ok(())
        });
        let client = client();
        let options = options(subject);
        let source = stream_of(schema(), (0..50).map(|index| Ok(batch(index, 100))));
        let mut put = client
            .put_stream(&[&uri], b"t", source, &options, None)
            .map_err(|(error, _)| error)
            .unwrap();
        let mut results = 0;
        while let Some(result) = put.next_result(None).unwrap() {
            results += 1;
            assert_eq!(result.batches, results);
        }
        assert_eq!(
            (results, put.finish(None).unwrap()),
            (50, 50),
            "{}",
            subject.scheme
        );
        let broken = [Ok(batch(0, 10)), Err(crate::common::broken("a disk fails"))];
        let source = stream_of(schema(), broken.into_iter());
        let mut put = client
            .put_stream(&[&uri], b"t", source, &options, None)
            .map_err(|(error, _)| error)
            .unwrap();
        let error = put.finish(None).unwrap_err();
        assert!(
            error.text().contains("a disk fails"),
            "{}: {error}",
            subject.scheme
        );
        assert!(outcome.recv().unwrap().contains("a disk fails"));
    }
}

/// Rule Q11: a deadline ends a table at both ends, whatever the host does, and a server that takes
/// nothing is waited for no longer than the stall timeout.
#[test]
fn time_ends_a_table() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let (sender, outcome) = mpsc::channel();
        take_by(&server, move |request| {
            let mut source = request.source()?;
            while !request.is_cancelled() && request.time_left() != Some(Duration::ZERO) {
                std::thread::sleep(Duration::from_millis(2));
                if request.time_left().is_none() && request.headers().get("read").is_some() {
                    break;
                }
            }
            let read = read_all(&mut source).map(drop);
            let _ = sender.send(read.clone());
            read
        });
        let client = client();
        for (deadline, stall, text) in [
            (
                Some(Duration::from_millis(1000)),
                None,
                "within its deadline",
            ),
            (None, Some(Duration::from_millis(100)), "taken nothing"),
        ] {
            let options = PutOptions {
                deadline,
                stall_timeout: stall,
                ..options(subject)
            };
            let described = (&export_schema(&schema()), HOST);
            let mut put = client
                .put(&[&uri], b"t", described, &options, None)
                .unwrap();
            let error = loop {
                if let Err(error) = push(&mut put, &batch(0, 10)) {
                    break error;
                }
            };
            assert_eq!(
                error.status(),
                Status::Timeout,
                "{}: {error}",
                subject.scheme
            );
            assert!(error.text().contains(text), "{}: {error}", subject.scheme);
            drop(put);
            outcome.recv().unwrap().unwrap_err();
        }
    }
}

/// Promise: the descriptor of a put also tells of its cancel token and of its limits of time, which
/// end calls that do not wait.
#[test]
fn a_descriptor_tells_what_ends_a_put() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let (sender, over) = mpsc::channel();
        let over = std::sync::Mutex::new(over);
        take_by(&server, move |request| {
            let _source = request.source()?;
            // Until the test is over.
            let _ = over.lock().map(|over| over.recv());
            Err(Error::cancelled("the test is over"))
        });
        let client = client();
        let described = export_schema(&schema());
        let limit = Some(Duration::from_millis(200));
        let base = options(subject);
        let stalls = PutOptions {
            stall_timeout: limit,
            ..base.clone()
        };
        let is_due = PutOptions {
            deadline: Some(Duration::from_secs(1)),
            ..base.clone()
        };
        for (options, status, text) in [
            (base, Status::Cancelled, "cancel"),
            (stalls, Status::Timeout, "has taken nothing"),
            (is_due, Status::Timeout, "deadline"),
        ] {
            let cancel = Cancel::new().unwrap();
            let described = (&described, HOST);
            let mut put = client
                .put(&[&uri], b"t", described, &options, Some(&cancel))
                .unwrap();
            let fd = put.fd().unwrap().try_clone_to_owned().unwrap();
            let error = loop {
                match put.next_result(Some(Duration::ZERO)) {
                    Err(error) if error.status() == Status::Timeout && !put.is_over() => {}
                    other => break other.unwrap_err(),
                }
                if status == Status::Cancelled {
                    cancel.cancel();
                }
                assert!(is_readable_in_time(&fd), "{}: {text}", subject.scheme);
            };
            assert_eq!(error.status(), status, "{}: {error}", subject.scheme);
            assert!(error.text().contains(text), "{}: {error}", subject.scheme);
            assert_eq!(put.finish(None).unwrap_err().text(), error.text());
            sender.send(()).unwrap();
        }
    }
}

fn is_readable_in_time(fd: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(fd, PollFlags::IN)];
    let patience = Timespec {
        tv_sec: 30,
        tv_nsec: 0,
    };
    poll(&mut polled, Some(&patience)).unwrap() > 0
}

/// The pull form: a failure on one thread ends the wait for the schema on another, also if the
/// client never sends it.
#[test]
fn a_failure_ends_the_wait_for_a_schema() {
    let subject = SUBJECTS.into_iter().next().unwrap();
    let (server, uri) = server(subject, ServerOptions::default());
    server.set_handler_pull().unwrap();
    let uri = dipc::proto::Uri::parse(&uri).unwrap();
    let transport = dipc::transport::by_scheme(subject.scheme).unwrap();
    let mut silent = transport.connect(&uri, &Default::default()).unwrap();
    let credit = dipc::proto::Credit {
        batches: 1,
        bytes: 1,
    };
    let request = dipc::proto::Request {
        verb: Verb::Put,
        source: Some(dipc::proto::StreamInfo {
            version: dipc::proto::VERSION,
            features: 0,
            device_type: HOST,
            device_id: -1,
            body_kinds: 1,
        }),
        ..dipc::proto::Request::new(*b"t", credit)
    };
    let tag = dipc::proto::Tags::DEFAULT.dipc_want;
    let payload = dipc::transport::Payload::Bytes(request.encode().into());
    silent
        .send(dipc::transport::Outgoing::Tagged { tag, payload })
        .unwrap();
    let request = server.next_request(None, None).unwrap().unwrap();
    std::thread::scope(|scope| {
        let (begins, begun) = mpsc::channel();
        let asked = &request;
        let waiting = scope.spawn(move || {
            begins.send(this_thread()).unwrap();
            asked.source_schema().map(drop)
        });
        until_asleep(begun.recv().unwrap());
        request.fail(Status::Busy.code(), "not now");
        waiting.join().unwrap().unwrap_err();
    });
    drop(request);
    eventually("no stream is active", || server.stats().streams_active == 0);
}

/// A host that fails a table and keeps its stream keeps the connection: the client's next request
/// goes over another one.
#[test]
fn a_host_that_keeps_a_stream_holds_nobody_up() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let (sender, kept) = mpsc::channel();
        take_by(&server, move |request| {
            let _ = sender.send(request.source()?);
            Err(Error::new(Status::Busy, "not now"))
        });
        let client = client();
        for _ in 0..2 {
            let error = put(&client, &uri, subject)
                .and_then(|mut put| put.finish(None))
                .unwrap_err();
            assert_eq!(error.status(), Status::Busy, "{}: {error}", subject.scheme);
        }
        drop(kept);
        eventually("no stream is active", || server.stats().streams_active == 0);
    }
}

/// A server that ends while the rest of a table comes that its host has left keeps nothing of the
/// connection.
#[test]
fn a_server_that_ends_keeps_no_table_that_was_left() {
    in_child("putting::child_ends_servers");
}

#[test]
#[ignore = "run by a_server_that_ends_keeps_no_table_that_was_left"]
fn child_ends_servers() {
    assert_in_child();
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    for subject in SUBJECTS {
        if !["shm", "tcp"].contains(&subject.scheme) {
            continue;
        }
        let mut before = 0;
        for round in 0..120 {
            let (server, uri) = server(subject, ServerOptions::default());
            let (sender, left) = mpsc::channel();
            take_by(&server, move |request| {
                let mut source = request.source()?;
                source.next()?;
                drop(source);
                let _ = sender.send(());
                Err(Error::cancelled("enough"))
            });
            let client = client();
            let mut put = put(&client, &uri, subject).unwrap();
            push(&mut put, &batch(0, 1000)).unwrap();
            left.recv().unwrap();
            drop(server);
            drop((put, client));
            if round == 20 {
                before = open();
            }
        }
        eventually("all is closed", || open() <= before + 5);
    }
}
