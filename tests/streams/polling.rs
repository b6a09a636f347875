//! Consumers with an event loop: a descriptor to sleep on, and calls that do not wait.

use std::collections::HashMap;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::time::Duration;

use arrow::array::RecordBatch;
use dipc::arrow::batch_from_c;
use dipc::cancel::Cancel;
use dipc::client::{GetOptions, NextBatch, Stream};
use dipc::error::{Error, Status};
use dipc::server::{ServerHandle, ServerOptions, ServerRequest};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::common::{batch, counting, export, export_schema, schema};
use crate::{SUBJECTS, client, serve, server};

/// Whether the descriptor is readable, or becomes so within `time`.
fn is_readable(fd: BorrowedFd<'_>, time: Duration) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec::try_from(time).unwrap())).unwrap() > 0
}

const SOON: Duration = Duration::from_secs(10);

/// What the stream has now.
fn try_batch(stream: &mut Stream) -> Result<Option<Option<RecordBatch>>, Error> {
    Ok(match stream.try_next()? {
        // SAFETY: the stream checks its arrays against its schema.
        NextBatch::Batch(array) => Some(Some(unsafe { batch_from_c(array, &schema()) }?)),
        NextBatch::End => Some(None),
        NextBatch::NotYet => None,
    })
}

/// What comes next, slept for on the descriptor.
fn next(stream: &mut Stream) -> Result<Option<RecordBatch>, Error> {
    loop {
        if let Some(found) = try_batch(stream)? {
            return Ok(found);
        }
        assert!(
            is_readable(stream.fd().unwrap(), SOON),
            "nothing came in time"
        );
    }
}

fn request(server: &ServerHandle) -> ServerRequest {
    let request = server.next_request(Some(SOON), None).unwrap().unwrap();
    request.start(&export_schema(&schema()), 1).unwrap();
    request
}

fn push(request: &ServerRequest, number: i64) {
    let pushed = request.push(export(&batch(number, 10)), None, Some(SOON));
    pushed.map_err(|(error, _)| error).unwrap();
}

/// One epoll instance serves many streams of one thread, and each comes whole and in order.
#[test]
fn one_thread_reads_many_streams() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        serve(&server, "t", counting(40, 100));
        let client = client();
        let epoll = epoll::create(CreateFlags::CLOEXEC).unwrap();
        let mut streams = HashMap::new();
        for _ in 0..20 {
            let mut stream = client.get(&[&uri], b"t", &subject.options(), None).unwrap();
            let fd = stream.fd().unwrap();
            let key = u64::try_from(fd.as_raw_fd()).unwrap();
            epoll::add(&epoll, fd, EventData::new_u64(key), EventFlags::IN).unwrap();
            streams.insert(key, (stream, 0));
        }
        while !streams.is_empty() {
            let mut events = Vec::with_capacity(8);
            let time = Timespec::try_from(SOON).unwrap();
            let buffer = rustix::buffer::spare_capacity(&mut events);
            let ready = epoll::wait(&epoll, buffer, Some(&time)).unwrap();
            assert!(ready > 0, "{}: nothing came in time", subject.scheme);
            for event in events {
                let key = event.data.u64();
                let (stream, rows) = streams.get_mut(&key).unwrap();
                while let Some(found) = try_batch(stream).unwrap() {
                    match found {
                        Some(batch) => *rows += batch.num_rows(),
                        None => {
                            assert_eq!(*rows, 4000, "{}", subject.scheme);
                            streams.remove(&key);
                            break;
                        }
                    }
                }
            }
        }
    }
}

/// The descriptor is silent while nothing has come, tells of each batch and of the end, and stays
/// readable behind the end. The connection then serves another stream.
#[test]
fn the_descriptor_tells_of_what_comes() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        server.serve_pull(b"t").unwrap();
        let client = client();
        let asked = std::thread::scope(|scope| {
            let request = scope.spawn(|| request(&server));
            let stream = client.get(&[&uri], b"t", &subject.options(), None).unwrap();
            (stream, request.join().unwrap())
        });
        let (mut stream, request) = asked;
        assert!(
            is_readable(stream.fd().unwrap(), Duration::ZERO),
            "at first"
        );
        for number in 0..3 {
            while try_batch(&mut stream).unwrap().is_some() {}
            let silence = Duration::from_millis(20);
            let has_come = is_readable(stream.fd().unwrap(), silence);
            // UCX may have work of its own once; it is silent then.
            assert!(!has_come || subject.scheme == "ucx", "{}", subject.scheme);
            push(&request, number);
            let found = next(&mut stream).unwrap().unwrap();
            assert_eq!(found, batch(number, 10), "{}", subject.scheme);
        }
        request.finish(Some(SOON)).unwrap();
        assert!(next(&mut stream).unwrap().is_none());
        assert!(
            is_readable(stream.fd().unwrap(), Duration::ZERO),
            "behind the end"
        );
        assert!(matches!(stream.try_next(), Ok(NextBatch::End)));
        drop(request);
        serve(&server, "other", counting(3, 10));
        let mut other = client
            .get(&[&uri], b"other", &subject.options(), None)
            .unwrap();
        let mut rows = 0;
        while let Some(batch) = next(&mut other).unwrap() {
            rows += batch.num_rows();
        }
        assert_eq!(rows, 30);
    }
}

/// The descriptor tells of failures: the server's, a deadline, a token, and the server's end.
#[test]
fn the_descriptor_tells_of_failures() {
    for subject in SUBJECTS {
        for (way, expected) in [
            ("fails", Status::Provider),
            ("deadline", Status::Timeout),
            ("token", Status::Cancelled),
            ("stops", Status::Stopped),
        ] {
            let (server, uri) = server(subject, ServerOptions::default());
            server.serve_pull(b"t").unwrap();
            let client = client();
            let cancel = Cancel::new().unwrap();
            let options = GetOptions {
                deadline: (way == "deadline").then_some(Duration::from_millis(300)),
                ..subject.options()
            };
            let (mut stream, request) = std::thread::scope(|scope| {
                let request = scope.spawn(|| request(&server));
                let stream = client.get(&[&uri], b"t", &options, Some(&cancel)).unwrap();
                (stream, request.join().unwrap())
            });
            stream.fd().unwrap();
            while try_batch(&mut stream).unwrap().is_some() {}
            match way {
                "fails" => request.fail(Status::Provider.code(), "out of paper"),
                "token" => cancel.cancel(),
                "stops" => drop(server.stop(Duration::ZERO)),
                _ => {}
            }
            let error = next(&mut stream).unwrap_err();
            // A server that stops cuts what has not ended.
            let is_cut = way == "stops" && error.status() == Status::Disconnected;
            assert!(
                is_cut || error.status() == expected,
                "{} {way}: {error}",
                subject.scheme
            );
            assert!(is_readable(stream.fd().unwrap(), Duration::ZERO));
            assert_eq!(stream.try_next().unwrap_err(), error);
        }
    }
}

/// A stream that a host of the pull form sends in its event loop.
struct Sent {
    request: ServerRequest,
    next: i64,
}

/// Sends what can be sent now. Returns whether the stream goes on.
fn send_on(sent: &mut Sent, batches: i64) -> Result<bool, Error> {
    while sent.next < batches {
        let array = export(&batch(sent.next, 10));
        match sent.request.push(array, None, Some(Duration::ZERO)) {
            Ok(()) => sent.next += 1,
            Err((error, _)) if error.status() == Status::Timeout => return Ok(true),
            Err((error, _)) => return Err(error),
        }
    }
    match sent.request.finish(Some(Duration::ZERO)) {
        Ok(()) => Ok(false),
        Err(error) if error.status() == Status::Timeout => Ok(true),
        Err(error) => Err(error),
    }
}

fn add(epoll: &impl std::os::fd::AsFd, fd: i32) {
    // SAFETY: the descriptor is open: its owner lives.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let key = u64::try_from(fd.as_raw_fd()).unwrap();
    epoll::add(epoll, fd, EventData::new_u64(key), EventFlags::IN).unwrap();
}

/// A host of the pull form serves many streams at once with one thread and no waits: slow clients
/// and clients that leave hold up nobody.
#[test]
fn one_thread_sends_many_streams() {
    const BATCHES: i64 = 60;
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        server.serve_pull(b"t").unwrap();
        let streams = 24;
        std::thread::scope(|scope| {
            for number in 0..streams {
                let (uri, options) = (&uri, subject.options());
                scope.spawn(move || {
                    let client = client();
                    let mut stream = client.get(&[uri], b"t", &options, None).unwrap();
                    let mut rows = 0;
                    while let Some(batch) = next(&mut stream).unwrap() {
                        rows += batch.num_rows();
                        if number % 4 == 0 {
                            std::thread::sleep(Duration::from_millis(1));
                        } else if number % 4 == 1 && rows > 100 {
                            return;
                        }
                    }
                    assert_eq!(rows, 600);
                });
            }
            let epoll = epoll::create(CreateFlags::CLOEXEC).unwrap();
            add(&epoll, server.request_fd().as_raw_fd());
            let mut open = HashMap::new();
            let (mut begun, mut ended) = (0, 0);
            while ended < streams {
                let mut events = Vec::with_capacity(8);
                let time = Timespec::try_from(SOON).unwrap();
                let buffer = rustix::buffer::spare_capacity(&mut events);
                let ready = epoll::wait(&epoll, buffer, Some(&time)).unwrap();
                assert!(ready > 0, "{}: nothing came in time", subject.scheme);
                while let Some(request) = server.next_request(Some(Duration::ZERO), None).unwrap() {
                    request.start(&export_schema(&schema()), 1).unwrap();
                    let fd = request.fd().unwrap();
                    add(&epoll, fd);
                    open.insert(u64::try_from(fd).unwrap(), Sent { request, next: 0 });
                    begun += 1;
                }
                for event in events {
                    let key = event.data.u64();
                    let Some(sent) = open.get_mut(&key) else {
                        continue;
                    };
                    // A client that has left is an error of its stream alone.
                    if !matches!(send_on(sent, BATCHES), Ok(true)) {
                        open.remove(&key);
                        ended += 1;
                    }
                }
                server.drain_releases();
            }
            assert_eq!((begun, open.len()), (streams, 0));
        });
    }
}
