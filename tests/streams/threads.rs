//! The threads of a server process. Counts are taken in a separate process, because other tests
//! have threads too.

use std::fmt;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use dipc::arena::{Arena, ArenaOptions};
use dipc::arrow::stream::ArrayReader;
use dipc::cancel::Cancel;
use dipc::client::GetOptions;
use dipc::device::DeviceKind;
use dipc::error::Status;
use dipc::proto::Credit;
use dipc::server::{ServerOptions, ServerRequest};
use dipc::transport::BodyPolicy;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::field::Field;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::common;
use crate::common::child::{assert_in_child, in_child};
use crate::common::{
    FnProvider, batch, counting, export, export_schema, import, in_arena, read_all, stream_of,
};
use crate::{SHM, SUBJECTS, Subject, assert_same, client, eventually, serve, server};

/// Batches of a table that takes more than a turn of the I/O thread, and more than a window.
const MANY: i64 = 600;

/// Threads of this process.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// Promise of docs/how-it-works.md: the I/O thread sends published tables, for any number of
/// streams.
#[test]
fn published_streams_have_no_thread_of_their_own() {
    in_child("threads::child_publishes");
}

#[test]
#[ignore = "run by published_streams_have_no_thread_of_their_own"]
fn child_publishes() {
    assert_in_child();
    let (server, uri) = server(SHM, ServerOptions::default());
    let exported = (0..MANY).map(|index| export(&batch(index, 1))).collect();
    let published = server.publish(b"t", export_schema(&common::schema()), exported);
    published.map_err(|(error, _)| error).unwrap();
    let client = client();
    let before = threads();
    let options = GetOptions::default();
    let mut streams: Vec<_> = (0..20)
        .map(|_| client.get(&[&uri], b"t", &options, None).unwrap())
        .collect();
    assert_eq!(server.stats().streams_active, 20);
    assert_eq!(threads(), before);
    for stream in &mut streams {
        assert_eq!(read_all(stream).unwrap().len() as i64, MANY);
    }
    assert_eq!(threads(), before);
}

/// Promise of docs/how-it-works.md: a published table with large bodies to copy has a thread for
/// its stream, so that the I/O thread can serve others. A table in an arena needs no thread.
#[test]
fn large_copies_are_not_the_io_threads() {
    if let Err(error) = dipc::transport::by_scheme("ucx").unwrap().available() {
        return eprintln!("skipped: {error}");
    }
    in_child("threads::child_lends_over_ucx");
}

#[test]
#[ignore = "run by large_copies_are_not_the_io_threads"]
fn child_lends_over_ucx() {
    assert_in_child();
    let ucx = Subject {
        scheme: "ucx",
        ..SHM
    };
    let options = ServerOptions {
        body: BodyPolicy::Lent,
        ..ServerOptions::default()
    };
    let (server, uri) = server(ucx, options);
    let client = client();
    let options = GetOptions {
        window: Credit {
            batches: 1,
            bytes: 1 << 20,
        },
        ..ucx.options()
    };
    let stream_threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names = tasks.filter_map(|task| std::fs::read(task.ok()?.path().join("comm")).ok());
        names.filter(|name| name == b"dipc-stream\n").count()
    };
    for (ticket, rows, threads) in [("small", 10, 0), ("large", 50_000, 1)] {
        let batches: Vec<_> = (0..4).map(|index| batch(index, rows)).collect();
        let schema = export_schema(&common::schema());
        let exported = batches.iter().map(export).collect();
        let published = server.publish(ticket.as_bytes(), schema, exported);
        published.map_err(|(error, _)| error).unwrap();
        let stream = client.get(&[&uri], ticket.as_bytes(), &options, None);
        assert_eq!(stream_threads(), threads, "{ticket}");
        assert_same(&read_all(&mut stream.unwrap()).unwrap(), &batches);
    }
}

/// Rule E5: a published table continues with credit, in turns, beside others; a stream that is left
/// in the middle frees its place.
#[test]
fn published_streams_go_on_with_credit() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let batches: Vec<_> = (0..MANY).map(|index| batch(index, 2)).collect();
        let exported = batches.iter().map(export).collect();
        let published = server.publish(b"t", export_schema(&common::schema()), exported);
        published.map_err(|(error, _)| error).unwrap();
        let client = client();
        for window in [1, 5, 1000] {
            let options = GetOptions {
                window: Credit {
                    batches: window,
                    bytes: 1 << 20,
                },
                ..subject.options()
            };
            let get = || client.get(&[&uri], b"t", &options, None).unwrap();
            let (mut left, mut read) = (get(), get());
            left.next().unwrap().unwrap();
            assert_same(&read_all(&mut read).unwrap(), &batches);
            drop(left);
            eventually("both streams are over", || {
                server.stats().streams_active == 0
            });
        }
        assert_eq!(server.stats().streams_served, 6);
    }
}

/// Without a thread for it a request is refused, and its place is free.
#[test]
fn a_stream_without_a_thread_is_refused() {
    in_child("threads::child_has_no_threads");
}

#[test]
#[ignore = "run by a_stream_without_a_thread_is_refused"]
fn child_has_no_threads() {
    assert_in_child();
    let options = ServerOptions {
        max_streams: 1,
        ..ServerOptions::default()
    };
    let (server, uri) = server(SHM, options);
    serve(&server, "t", counting(1, 1));
    let client = client();
    let get = || client.get(&[&uri], b"t", &GetOptions::default(), None);
    // Each existing thread has its own memory from now on.
    client
        .get(&[&uri], b"other", &GetOptions::default(), None)
        .map(drop)
        .unwrap_err();
    let memory = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = memory.split(' ').next().unwrap().parse().unwrap();
    let limits = getrlimit(Resource::As);
    // Less than a thread's stack.
    let current = Some(pages * rustix::param::page_size() as u64 + (2 << 20) - 1);
    let maximum = limits.maximum;
    setrlimit(Resource::As, Rlimit { current, maximum }).unwrap();
    // The system keeps the stacks of threads that have ended for others.
    let park = || thread::Builder::new().spawn(thread::park).ok();
    let parked: Vec<_> = std::iter::from_fn(park).collect();
    let refused = [get(), get()].map(|stream| stream.map(drop).unwrap_err());
    setrlimit(Resource::As, limits).unwrap();
    for thread in parked {
        thread.thread().unpark();
        thread.join().unwrap();
    }
    for error in refused {
        assert_eq!(error.status(), Status::OutOfResources, "{error}");
        assert!(error.text().contains("cannot start a thread"), "{error}");
    }
    // The client hears of it a moment before the stream is over.
    eventually("no stream is left", || server.stats().streams_active == 0);
    assert_eq!(read_all(&mut get().unwrap()).unwrap().len(), 1);
}

/// A provider that panics frees its place each time.
#[test]
fn panicking_providers_leave_no_stream_behind() {
    for subject in SUBJECTS {
        let options = ServerOptions {
            max_streams: 1,
            ..ServerOptions::default()
        };
        let (server, uri) = server(subject, options);
        let panicking = FnProvider(|_: &ServerRequest| panic!("this provider panics on purpose"));
        serve(&server, "panicking", Box::new(panicking));
        serve(&server, "t", counting(2, 1));
        let client = client();
        let get = |ticket: &str| client.get(&[&uri], ticket.as_bytes(), &subject.options(), None);
        for _ in 0..20 {
            let error = get("panicking").map(drop).unwrap_err();
            assert_eq!(error.status(), Status::Provider, "{error}");
            assert_eq!(read_all(&mut get("t").unwrap()).unwrap().len(), 2);
        }
        eventually("no stream is left", || server.stats().streams_active == 0);
        assert_eq!(server.stats().streams_served, 40);
    }
}

/// How often the thread with this name in this process has slept.
fn sleeps_of(name: &str) -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let statuses =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("status")).ok());
    let of = |status: &str, field: &str| {
        let mut lines = status.lines();
        let value = lines.find_map(|line| line.strip_prefix(field)).unwrap();
        value.trim().to_owned()
    };
    let mut named = statuses.filter(|status| of(status, "Name:") == name);
    let status = named.next().expect("a thread of that name");
    of(&status, "voluntary_ctxt_switches:").parse().unwrap()
}

/// The names of the threads that have read a request, from the log's line about each message.
#[derive(Default)]
struct Readers(Arc<Mutex<Vec<String>>>);

impl Subscriber for Readers {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut is_request = false;
        event.record(&mut |_: &Field, value: &dyn fmt::Debug| {
            let text = format!("{value:?}");
            is_request |= text.starts_with("from ") && text.contains(": request");
        });
        if is_request {
            let name = thread::current().name().unwrap_or_default().to_owned();
            self.0.lock().unwrap().push(name);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// `server/threads.rs`: the thread of a connection's last stream reads the next request; the I/O
/// thread does not wake.
#[test]
fn a_provider_stream_wakes_one_thread() {
    in_child("threads::child_provides");
}

#[test]
#[ignore = "run by a_provider_stream_wakes_one_thread"]
fn child_provides() {
    const IO: &str = "dipc-server-io";
    const TRIES: u64 = 20;
    /// In each try.
    const STREAMS: u64 = 20;
    assert_in_child();
    let readers = Readers::default();
    let read = Arc::clone(&readers.0);
    tracing::subscriber::set_global_default(readers).unwrap();
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        serve(&server, "t", counting(1, 1));
        let client = client();
        let stream = |served| {
            let mut stream = client.get(&[&uri], b"t", &subject.options(), None);
            // Credit that arrives while the thread still works would wake the I/O thread.
            eventually("it is over", || {
                let stats = server.stats();
                stats.streams_served == served && stats.streams_active == 0
            });
            assert_eq!(read_all(stream.as_mut().unwrap()).unwrap().len(), 1);
        };
        stream(1);
        // In each try: requests that the I/O thread has read, and its wake-ups.
        let tries = (0..TRIES).map(|index| {
            read.lock().unwrap().clear();
            let before = sleeps_of(IO);
            (2 + index * STREAMS..2 + (index + 1) * STREAMS).for_each(stream);
            let read = read.lock().unwrap();
            assert_eq!(read.len() as u64, STREAMS, "{}", subject.scheme);
            let by_io = read.iter().filter(|name| *name == IO).count();
            (by_io, sleeps_of(IO) - before)
        });
        // On a busy machine a thread's idle time may pass between two streams, and the I/O thread,
        // which may check each millisecond for a slow host, wakes more often than streams end.
        let tries: Vec<_> = tries.collect();
        let is_quiet = |&(by_io, woken): &(usize, u64)| by_io == 0 && woken < STREAMS;
        assert!(tries.iter().any(is_quiet), "{}: {tries:?}", subject.scheme);
    }
}

/// A connection of a stream's thread is served in each case: another stream for that thread, the
/// end of its idle time, the end of the client or the server.
#[test]
fn connections_are_served_whoever_looks_after_them() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        serve(&server, "t", counting(2, 1));
        let published = server.publish(
            b"p",
            export_schema(&common::schema()),
            vec![export(&batch(0, 1))],
        );
        published.map_err(|(error, _)| error).unwrap();
        let clients = [client(), client(), client()];
        let get = |index: usize, ticket: &str| {
            let options = subject.options();
            let stream = clients[index].get(&[&uri], ticket.as_bytes(), &options, None);
            read_all(&mut stream.unwrap()).unwrap().len()
        };
        for round in 0..30 {
            // Requests on its own connection, on another connection, and for a published table.
            assert_eq!(get(round % 3, "t"), 2);
            assert_eq!(get(round / 3 % 3, "t"), 2);
            assert_eq!(get(round % 3, "p"), 1);
            if round % 10 == 0 {
                thread::sleep(Duration::from_millis(20));
            }
        }
        // Longer than a thread waits.
        thread::sleep(Duration::from_millis(2500));
        assert_eq!(get(0, "t"), 2);
        assert_eq!(get(1, "p"), 1);
        drop(clients);
        eventually("the connections have ended", || {
            server.stats().connections == 0
        });
        let client = client();
        let stream = client.get(&[&uri], b"t", &subject.options(), None);
        read_all(&mut stream.unwrap()).unwrap();
        server.stop(Duration::from_secs(5)).unwrap();
    }
}

/// `dipc_client_get` returns after the schema: the schema waits for a first batch that comes at
/// once, but not for a slow batch.
#[test]
fn a_schema_does_not_wait_for_a_slow_batch() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let (go, told) = mpsc::channel::<()>();
        let told = Arc::new(Mutex::new(told));
        let provider = FnProvider(move |_: &ServerRequest| {
            let told = Arc::clone(&told);
            let batches = (0..2).map(move |index| {
                told.lock().unwrap().recv().unwrap();
                Ok(batch(index, 1))
            });
            Ok(stream_of(common::schema(), batches))
        });
        serve(&server, "t", Box::new(provider));
        let client = client();
        for _ in 0..3 {
            let stream = client.get(&[&uri], b"t", &subject.options(), None);
            go.send(()).unwrap();
            go.send(()).unwrap();
            assert_eq!(read_all(&mut stream.unwrap()).unwrap().len(), 2);
        }
    }
}

/// The thread of a fast producer reads its own connection. If the producer then waits inside its
/// call for lent memory, the memory still comes back.
#[test]
fn a_producer_may_wait_for_what_it_lent() {
    const AT_ONCE: i64 = 14;
    // Enough to be lent.
    const ROWS: usize = 2000;
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let arena = Arc::new(Arena::new(DeviceKind::CPU, ArenaOptions::default()).unwrap());
        let lent = Arc::clone(&arena);
        let provider = FnProvider(move |_: &ServerRequest| {
            let arena = Arc::clone(&lent);
            let batches = (0..).flat_map(move |round| {
                eventually("all is back", || arena.used_bytes() == 0);
                let numbers = round * AT_ONCE..(round + 1) * AT_ONCE;
                let made = numbers.map(|index| Ok(in_arena(&arena, &batch(index, ROWS))));
                made.collect::<Vec<_>>()
            });
            Ok(stream_of(common::schema(), batches))
        });
        serve(&server, "t", Box::new(provider));
        let client = client();
        let mut stream = client.get(&[&uri], b"t", &subject.options(), None).unwrap();
        let schema = stream.schema().unwrap();
        for index in 0..10 * AT_ONCE {
            if index % AT_ONCE == 0 {
                // The producer is ahead.
                thread::sleep(Duration::from_millis(1));
            }
            let array = stream.next().unwrap().unwrap();
            assert_same(&[import(array, &schema)], &[batch(index, ROWS)]);
        }
        // The wait also ends if the consumer goes.
        drop(stream);
        eventually("the stream is over", || server.stats().streams_active == 0);
        eventually("all is back", || arena.used_bytes() == 0);
    }
}

/// The thread of a connection's last stream reads the next request there. While it runs the host's
/// code, the I/O thread reads the client's messages.
#[test]
fn a_cancel_is_heard_while_the_host_is_busy() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        serve(&server, "quick", counting(1, 10));
        let (heard, hears) = mpsc::channel();
        let heard = Mutex::new(heard);
        let (begins, begun) = mpsc::channel();
        let begins = Mutex::new(begins);
        let busy = FnProvider(move |request: &ServerRequest| {
            begins.lock().unwrap().send(()).unwrap();
            let until = Instant::now() + Duration::from_secs(60);
            while !request.is_cancelled() && Instant::now() < until {
                thread::sleep(Duration::from_millis(1));
            }
            heard.lock().unwrap().send(request.is_cancelled()).unwrap();
            Err(common::broken("it is of no use any more"))
        });
        serve(&server, "busy", Box::new(busy));
        let client = client();
        let quick = client.get(&[&uri], b"quick", &subject.options(), None);
        assert_eq!(read_all(&mut quick.unwrap()).unwrap().len(), 1);
        let cancel = Cancel::new().unwrap();
        thread::scope(|scope| {
            let get = || client.get(&[&uri], b"busy", &subject.options(), Some(&cancel));
            let asked = scope.spawn(move || get().map(drop));
            begun.recv().unwrap();
            cancel.cancel();
            assert_eq!(
                asked.join().unwrap().unwrap_err().status(),
                Status::Cancelled
            );
        });
        assert!(hears.recv().unwrap());
    }
}
