//! Streams between a server and a client over each transport: what the driver promises.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "in tests a panic is how a failure shows"
)]

mod common;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use common::{FnProvider, batch, counting, export, export_schema, import, read_all, stream_of};
use dipc::arrow::stream::ArrayReader;
use dipc::cancel::Cancel;
use dipc::client::{Client, ClientOptions, GetOptions};
use dipc::driver::produce::BodyPolicy;
use dipc::error::{Error, Status};
use dipc::proto::{Credit, Role};
use dipc::server::{Request, Server, ServerOptions};

const SCHEMES: [&str; 2] = ["mem", "shm"];

/// An address that no other test uses.
fn address(scheme: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{scheme}:@dipc-streams-{}-{number}", std::process::id())
}

fn server(scheme: &str, options: ServerOptions) -> (Server, String) {
    let server = Server::new(options).unwrap();
    let uri = server.listen(&address(scheme)).unwrap();
    (server, uri)
}

fn client() -> Client {
    Client::new(ClientOptions::default()).unwrap()
}

/// Waits for something that another thread or the peer brings about; fails after ten seconds.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "not within ten seconds: {what}"
        );
        thread::sleep(Duration::from_millis(2));
    }
}

fn assert_same(received: &[RecordBatch], expected: &[RecordBatch]) {
    assert_eq!(received.len(), expected.len());
    for (received, expected) in received.iter().zip(expected) {
        assert_eq!(received.columns(), expected.columns());
    }
}

fn serve(server: &Server, ticket: &str, provider: Box<dyn dipc::server::Provider>) {
    server
        .serve(ticket.as_bytes(), provider)
        .map_err(|(error, _)| error)
        .unwrap();
}

/// Rules M1, M4, M5, D1: a table arrives whole and in order, lent (kind 1) and packed (kind 0).
#[test]
fn a_table_arrives_equal_in_both_kinds() {
    for scheme in SCHEMES {
        for body in [BodyPolicy::Auto, BodyPolicy::Packed] {
            let (server, uri) = server(
                scheme,
                ServerOptions {
                    body,
                    ..Default::default()
                },
            );
            serve(&server, "t", counting(20, 10_000));
            let client = client();
            let mut stream = client
                .get(&[&uri], b"t", &GetOptions::default(), None)
                .unwrap();
            let received = read_all(&mut stream).unwrap();
            let expected: Vec<_> = (0..20).map(|index| batch(index * 10_000, 10_000)).collect();
            assert_same(&received, &expected);
            let stats = stream.stats();
            assert_eq!(stats.rows, 200_000);
            match body {
                BodyPolicy::Auto => assert!(stats.bytes_lent > 0 && stats.bytes_received == 0),
                BodyPolicy::Packed => assert!(stats.bytes_lent == 0 && stats.bytes_received > 0),
            }
        }
    }
}

/// Rule M3: numbers wrap at 2^32 in the middle of a stream.
#[test]
fn sequence_numbers_wrap() {
    for scheme in SCHEMES {
        let first_seq = u32::MAX - 5;
        let (server, uri) = server(
            scheme,
            ServerOptions {
                first_seq,
                ..Default::default()
            },
        );
        serve(&server, "t", counting(20, 100));
        let options = GetOptions {
            first_seq,
            ..Default::default()
        };
        let mut stream = client().get(&[&uri], b"t", &options, None).unwrap();
        assert_eq!(read_all(&mut stream).unwrap().len(), 20);
    }
}

/// Rules U3, E6: metadata and bodies over two connections share one call of the provider.
#[test]
fn two_connections_share_one_provider_call() {
    for scheme in SCHEMES {
        for body in [BodyPolicy::Auto, BodyPolicy::Packed] {
            let (server, _) = server(
                scheme,
                ServerOptions {
                    body,
                    ..Default::default()
                },
            );
            let calls = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&calls);
            let provider = FnProvider(move |_: &Request| {
                counted.fetch_add(1, Ordering::SeqCst);
                Ok(stream_of(
                    common::schema(),
                    (0..50).map(|index| Ok(batch(index * 900, 900))),
                ))
            });
            serve(&server, "t", Box::new(provider));
            let metadata = server.location(Role::Metadata).unwrap();
            let data = server.location(Role::Data).unwrap();
            let client = client();
            let expected: Vec<_> = (0..50).map(|index| batch(index * 900, 900)).collect();
            // The order of the URIs does not matter where they name their roles.
            for uris in [[&*metadata, &*data], [&*data, &*metadata]] {
                let mut stream = client
                    .get(&uris, b"t", &GetOptions::default(), None)
                    .unwrap();
                assert_same(&read_all(&mut stream).unwrap(), &expected);
            }
            assert_eq!(calls.load(Ordering::SeqCst), 2);
        }
    }
}

/// Rule E6, R4: a metadata server and a data server that share nothing but the table.
#[test]
fn a_metadata_server_and_a_data_server() {
    for scheme in SCHEMES {
        let (metadata_server, _) = server(scheme, ServerOptions::default());
        let (data_server, _) = server(scheme, ServerOptions::default());
        for server in [&metadata_server, &data_server] {
            serve(server, "t", counting(40, 500));
        }
        let metadata = metadata_server.location(Role::Metadata).unwrap();
        let data = data_server.location(Role::Data).unwrap();
        let mut stream = client()
            .get(&[&metadata, &data], b"t", &GetOptions::default(), None)
            .unwrap();
        let expected: Vec<_> = (0..40).map(|index| batch(index * 500, 500)).collect();
        assert_same(&read_all(&mut stream).unwrap(), &expected);
        drop(stream);
        for server in [&metadata_server, &data_server] {
            eventually("both servers are idle", || {
                server.stats().streams_active == 0
            });
        }
    }
}

/// Rule E1: to a URI without our extension the client is a baseline peer, and is served.
#[test]
fn a_baseline_client_is_served_packed_bodies() {
    for scheme in SCHEMES {
        let (server, uri) = server(scheme, ServerOptions::default());
        serve(&server, "t", counting(30, 2_000));
        let baseline = uri
            .replace("dipc=1", "")
            .replace("&&", "&")
            .replace("?&", "?");
        assert!(!baseline.contains("dipc=1"), "{baseline}");
        let mut stream = client()
            .get(&[&baseline], b"t", &GetOptions::default(), None)
            .unwrap();
        let expected: Vec<_> = (0..30).map(|index| batch(index * 2_000, 2_000)).collect();
        assert_same(&read_all(&mut stream).unwrap(), &expected);
        assert_eq!(stream.stats().bytes_lent, 0);
    }
}

/// Rule E5: a consumer that keeps every batch of a table larger than the window gets all of it.
#[test]
fn a_consumer_that_keeps_everything_is_not_starved() {
    for scheme in SCHEMES {
        let (server, uri) = server(scheme, ServerOptions::default());
        serve(&server, "t", counting(100, 20_000));
        let options = GetOptions {
            window: Credit {
                batches: 4,
                bytes: 1 << 20,
            },
            lent_limit: 8 << 20,
            ..Default::default()
        };
        let mut stream = client().get(&[&uri], b"t", &options, None).unwrap();
        let received = read_all(&mut stream).unwrap();
        assert_eq!(
            received.iter().map(RecordBatch::num_rows).sum::<usize>(),
            2_000_000
        );
        let stats = stream.stats();
        // Past the limit of lent memory bodies come as bytes (rule E5, "Back-pressure").
        assert!(
            stats.bytes_lent > 0 && stats.bytes_lent <= 9 << 20,
            "{stats:?}"
        );
        assert!(stats.bytes_received > 0, "{stats:?}");
    }
}

/// Rule E5: a consumer that never reads stops the producer being pulled.
#[test]
fn a_consumer_that_never_reads_stops_the_producer() {
    for scheme in SCHEMES {
        let (server, uri) = server(scheme, ServerOptions::default());
        let pulled = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&pulled);
        let provider = FnProvider(move |_: &Request| {
            let counted = Arc::clone(&counted);
            Ok(stream_of(
                common::schema(),
                (0..1000).map(move |index| {
                    counted.fetch_add(1, Ordering::SeqCst);
                    Ok(batch(index * 100, 100))
                }),
            ))
        });
        serve(&server, "t", Box::new(provider));
        let options = GetOptions {
            window: Credit {
                batches: 8,
                bytes: 1 << 30,
            },
            ..Default::default()
        };
        let mut stream = client().get(&[&uri], b"t", &options, None).unwrap();
        eventually("the window is full", || pulled.load(Ordering::SeqCst) >= 8);
        thread::sleep(Duration::from_millis(100));
        assert_eq!(pulled.load(Ordering::SeqCst), 8);
        // And it goes on when the consumer does.
        assert_eq!(read_all(&mut stream).unwrap().len(), 1000);
    }
}

/// Rule E5: one batch is admitted when nothing is outstanding, however large.
#[test]
fn a_batch_larger_than_the_window_passes() {
    for scheme in SCHEMES {
        let (server, uri) = server(scheme, ServerOptions::default());
        serve(&server, "t", counting(5, 100_000));
        let options = GetOptions {
            window: Credit {
                batches: 2,
                bytes: 1000,
            },
            ..Default::default()
        };
        let mut stream = client().get(&[&uri], b"t", &options, None).unwrap();
        assert_eq!(read_all(&mut stream).unwrap().len(), 5);
    }
}

/// Rules F2, F6: arrays stay valid after stream, client and connection handles are gone, and give
/// their memory back when released, on any thread.
#[test]
fn arrays_outlive_their_stream_and_client() {
    for scheme in SCHEMES {
        let (server, uri) = server(scheme, ServerOptions::default());
        serve(&server, "t", counting(10, 5_000));
        let client = client();
        let mut stream = client
            .get(&[&uri], b"t", &GetOptions::default(), None)
            .unwrap();
        let received = read_all(&mut stream).unwrap();
        drop(stream);
        drop(client);
        assert!(server.stats().lent_outstanding > 0);
        let expected: Vec<_> = (0..10).map(|index| batch(index * 5_000, 5_000)).collect();
        assert_same(&received, &expected);
        thread::spawn(move || drop(received)).join().unwrap();
        eventually("everything lent is back", || {
            server.stats().lent_outstanding == 0
        });
        eventually("the connection is closed", || {
            server.stats().connections == 0
        });
    }
}

/// Rule E4: one connection serves stream after stream, and frees belong to the connection.
#[test]
fn connections_are_used_again() {
    for scheme in SCHEMES {
        let (server, uri) = server(scheme, ServerOptions::default());
        serve(&server, "t", counting(3, 3_000));
        let client = client();
        let mut kept = Vec::new();
        for _ in 0..20 {
            let mut stream = client
                .get(&[&uri], b"t", &GetOptions::default(), None)
                .unwrap();
            kept.extend(read_all(&mut stream).unwrap());
        }
        assert_eq!(client.stats().connections_made, 1);
        assert_eq!(kept.len(), 60);
        for group in kept.chunks(3) {
            assert_same(
                group,
                &[batch(0, 3_000), batch(3_000, 3_000), batch(6_000, 3_000)],
            );
        }
    }
}

/// Point 5: many streams at once from one server, one connection each.
#[test]
fn many_streams_at_once() {
    for scheme in SCHEMES {
        let (server, uri) = server(scheme, ServerOptions::default());
        serve(&server, "t", counting(20, 1_000));
        let client = client();
        thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    let mut stream = client
                        .get(&[&uri], b"t", &GetOptions::default(), None)
                        .unwrap();
                    assert_eq!(read_all(&mut stream).unwrap().len(), 20);
                });
            }
        });
        assert_eq!(server.stats().streams_served, 16);
    }
}

/// One status for each way that a request can be refused.
#[test]
fn refusals_name_their_cause() {
    for scheme in SCHEMES {
        let (server, uri) = server(
            scheme,
            ServerOptions {
                max_streams: 1,
                ..Default::default()
            },
        );
        serve(&server, "t", counting(1000, 1000));
        let client = client();
        let options = GetOptions::default();
        let failed = |uris: &[&str], ticket: &[u8]| {
            client
                .get(uris, ticket, &options, None)
                .map(drop)
                .unwrap_err()
        };
        let error = failed(&[&uri], b"other");
        assert_eq!(error.status(), Status::NotFound, "{error}");
        assert!(error.text().contains("`other`"), "{error}");
        let stream = client.get(&[&uri], b"t", &options, None).unwrap();
        assert_eq!(failed(&[&uri], b"t").status(), Status::Busy);
        drop(stream);
        assert_eq!(
            failed(&[&format!("{scheme}:@nobody-here")], b"t").status(),
            Status::Unreachable
        );
        assert_eq!(
            failed(&["carrier-pigeon:@x"], b"t").status(),
            Status::Unsupported
        );
        assert_eq!(
            failed(&["no uri at all"], b"t").status(),
            Status::InvalidUri
        );
        assert_eq!(failed(&[], b"t").status(), Status::InvalidUri);
        let (error, _) = server.serve(b"t", counting(1, 1)).unwrap_err();
        assert_eq!(error.status(), Status::AlreadyExists);
        assert_eq!(
            server.withdraw(b"other").unwrap_err().status(),
            Status::NotFound
        );
    }
}

/// design.md, "Failure is per stream": a provider that fails ends its own stream with its words.
#[test]
fn a_failing_provider_ends_its_stream_only() {
    for scheme in SCHEMES {
        let (server, uri) = server(scheme, ServerOptions::default());
        serve(&server, "good", counting(5, 10));
        let refusing = FnProvider(|_: &Request| Err(common::broken("the disk is on fire")));
        serve(&server, "refusing", Box::new(refusing));
        let breaking = FnProvider(|_: &Request| {
            let batches = (0..5).map(|index| match index {
                3 => Err(common::broken("batch 3 is unreadable")),
                _ => Ok(batch(index, 10)),
            });
            Ok(stream_of(common::schema(), batches))
        });
        serve(&server, "breaking", Box::new(breaking));
        let worded = FnProvider(|request: &Request| {
            request.fail(-7777, "in my own words");
            Err(common::broken("not these"))
        });
        serve(&server, "worded", Box::new(worded));
        let panicking = FnProvider(|_: &Request| panic!("this provider panics on purpose"));
        serve(&server, "panicking", Box::new(panicking));
        let client = client();
        let options = GetOptions::default();
        let failed = |ticket: &[u8]| client.get(&[&uri], ticket, &options, None).map(drop);
        let error = failed(b"refusing").unwrap_err();
        assert_eq!(error.status(), Status::Provider);
        assert!(error.text().contains("the disk is on fire"), "{error}");
        let error = failed(b"worded").unwrap_err();
        assert_eq!(error.status(), Status::Provider);
        assert!(error.text().contains("in my own words"), "{error}");
        assert!(failed(b"panicking").is_err());
        let mut stream = client.get(&[&uri], b"breaking", &options, None).unwrap();
        for _ in 0..3 {
            assert!(stream.next().unwrap().is_some());
        }
        let error = stream.next().unwrap_err();
        assert!(error.text().contains("batch 3 is unreadable"), "{error}");
        // A stream that has failed goes on saying so.
        assert_eq!(stream.next().unwrap_err(), error);
        let mut stream = client.get(&[&uri], b"good", &options, None).unwrap();
        assert_eq!(read_all(&mut stream).unwrap().len(), 5);
        assert_eq!(client.stats().connections_made, 1);
    }
}

/// A broken array (here: a negative length) ends the stream, and is released.
#[test]
fn a_broken_array_ends_its_stream() {
    let (server, uri) = server("shm", ServerOptions::default());
    server.serve_pull(b"t").unwrap();
    let producer = thread::spawn(move || {
        let request = server
            .next_request(Some(Duration::from_secs(10)), None)
            .unwrap()
            .unwrap();
        request.start(&export_schema(&common::schema()), 1).unwrap();
        request
            .push(export(&batch(0, 10)), None, None)
            .map_err(|(error, _)| error)
            .unwrap();
        let mut broken = export(&batch(0, 10));
        // SAFETY: a number that makes no sense is checked by whoever reads it; pointers and
        // release stay.
        unsafe { broken.raw_mut() }.array.length = -1;
        let (error, array) = request.push(broken, None, None).unwrap_err();
        assert_eq!(error.status(), Status::InvalidData, "{error}");
        assert!(!array.is_released());
        request.fail(error.status().code(), error.text());
        server
    });
    let mut stream = client()
        .get(&[&uri], b"t", &GetOptions::default(), None)
        .unwrap();
    assert!(stream.next().unwrap().is_some());
    assert_eq!(stream.next().unwrap_err().status(), Status::InvalidData);
    producer.join().unwrap();
}

/// The pull form: the host's own thread pushes, and releases run only where it drains them.
#[test]
fn the_pull_form_serves_and_releases_on_the_hosts_thread() {
    for scheme in SCHEMES {
        let (server, uri) = server(scheme, ServerOptions::default());
        server.serve_pull(b"t").unwrap();
        let none = server
            .next_request(Some(Duration::from_millis(1)), None)
            .unwrap();
        assert!(none.is_none());
        let consumer = thread::spawn(move || {
            let mut stream = client()
                .get(&[&uri], b"t", &GetOptions::default(), None)
                .unwrap();
            read_all(&mut stream).unwrap()
        });
        let request = server.next_request(None, None).unwrap().unwrap();
        assert_eq!(request.ticket(), b"t");
        request.start(&export_schema(&common::schema()), 1).unwrap();
        for index in 0..100 {
            let array = export(&batch(index * 50, 50));
            request
                .push(array, None, None)
                .map_err(|(error, _)| error)
                .unwrap();
            server.drain_releases();
        }
        request.finish(None).unwrap();
        let received = consumer.join().unwrap();
        let expected: Vec<_> = (0..100).map(|index| batch(index * 50, 50)).collect();
        assert_same(&received, &expected);
    }
}

/// The pull form: a push that finds no room in time gives the array back.
#[test]
fn a_push_without_room_times_out_and_keeps_the_array() {
    let (server, uri) = server("shm", ServerOptions::default());
    server.serve_pull(b"t").unwrap();
    let options = GetOptions {
        window: Credit {
            batches: 2,
            bytes: 1 << 30,
        },
        ..Default::default()
    };
    let (ready, go) = mpsc::channel::<()>();
    let consumer = thread::spawn(move || {
        let mut stream = client().get(&[&uri], b"t", &options, None).unwrap();
        go.recv().unwrap();
        read_all(&mut stream).unwrap().len()
    });
    let request = server.next_request(None, None).unwrap().unwrap();
    request.start(&export_schema(&common::schema()), 1).unwrap();
    let wait = Some(Duration::from_millis(20));
    for _ in 0..2 {
        request
            .push(export(&batch(0, 5)), None, wait)
            .map_err(|(error, _)| error)
            .unwrap();
    }
    let (error, array) = request.push(export(&batch(0, 5)), None, wait).unwrap_err();
    assert_eq!(error.status(), Status::Timeout, "{error}");
    ready.send(()).unwrap();
    request
        .push(array, None, None)
        .map_err(|(error, _)| error)
        .unwrap();
    request.finish(None).unwrap();
    assert_eq!(consumer.join().unwrap(), 3);
}

/// A published table is fetched by many clients at once, and released when it is withdrawn.
#[test]
fn a_published_table_is_fetched_many_times() {
    for scheme in SCHEMES {
        let (server, uri) = server(scheme, ServerOptions::default());
        let batches: Vec<_> = (0..10).map(|index| batch(index * 300, 300)).collect();
        let exported = batches.iter().map(export).collect();
        let published = server.publish(b"t", export_schema(&common::schema()), exported);
        published.map_err(|(error, _)| error).unwrap();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let client = client();
                    for _ in 0..3 {
                        let mut stream = client
                            .get(&[&uri], b"t", &GetOptions::default(), None)
                            .unwrap();
                        assert_same(&read_all(&mut stream).unwrap(), &batches);
                    }
                });
            }
        });
        let column = Arc::downgrade(batches[0].column(0));
        drop(batches);
        server.withdraw(b"t").unwrap();
        eventually("the table is released", || column.strong_count() == 0);
    }
}

/// A provider may fetch from its own server, and may block.
#[test]
fn a_provider_may_fetch_from_its_own_server() {
    for scheme in SCHEMES {
        let (server, uri) = server(scheme, ServerOptions::default());
        serve(&server, "inner", counting(30, 100));
        let inner_uri = uri.clone();
        let provider = FnProvider(move |_: &Request| {
            let client = Client::new(ClientOptions::default())?;
            let stream = client.get(&[&inner_uri], b"inner", &GetOptions::default(), None)?;
            Ok(dipc::arrow::stream::export_device_stream(Box::new(stream)))
        });
        serve(&server, "outer", Box::new(provider));
        let mut stream = client()
            .get(&[&uri], b"outer", &GetOptions::default(), None)
            .unwrap();
        assert_eq!(read_all(&mut stream).unwrap().len(), 30);
    }
}

/// A token cancels a `get` that waits for its schema, and a stream that waits for a batch.
#[test]
fn a_token_cancels_waiting_calls() {
    for scheme in SCHEMES {
        let (server, uri) = server(scheme, ServerOptions::default());
        let (let_go, gate) = mpsc::channel::<()>();
        let gate = Arc::new(parking_lot::Mutex::new(gate));
        let blocked = Arc::clone(&gate);
        let opening = FnProvider(move |_: &Request| {
            let _ = blocked.lock().recv();
            Err(common::broken("opened too late"))
        });
        serve(&server, "opening", Box::new(opening));
        let blocked = Arc::clone(&gate);
        let reading = FnProvider(move |_: &Request| {
            let blocked = Arc::clone(&blocked);
            let batches = (0..2).map(move |index| {
                if index == 1 {
                    let _ = blocked.lock().recv();
                }
                Ok(batch(index, 10))
            });
            Ok(stream_of(common::schema(), batches))
        });
        serve(&server, "reading", Box::new(reading));
        let client = client();
        for ticket in ["opening", "reading"] {
            let cancel = Cancel::new().unwrap();
            let canceller = cancel.clone();
            let other = thread::spawn(move || {
                thread::sleep(Duration::from_millis(50));
                canceller.cancel();
            });
            let options = GetOptions::default();
            let outcome = client
                .get(&[&uri], ticket.as_bytes(), &options, Some(&cancel))
                .and_then(|mut stream| read_all(&mut stream));
            assert_eq!(outcome.unwrap_err().status(), Status::Cancelled);
            other.join().unwrap();
            let_go.send(()).unwrap();
        }
        drop(let_go);
        eventually("both streams have ended", || {
            server.stats().streams_active == 0
        });
    }
}

/// A stream abandoned half-read is cancelled at the server; what it lent comes back, and the
/// connection serves the next stream.
#[test]
fn an_abandoned_stream_is_cancelled() {
    for scheme in SCHEMES {
        let (server, uri) = server(scheme, ServerOptions::default());
        serve(&server, "t", counting(1_000_000, 1_000));
        serve(&server, "next", counting(2, 10));
        let client = client();
        let mut stream = client
            .get(&[&uri], b"t", &GetOptions::default(), None)
            .unwrap();
        let schema = stream.schema().unwrap();
        let first = import(stream.next().unwrap().unwrap(), &schema);
        drop(stream);
        eventually("the server has given up", || {
            server.stats().streams_active == 0
        });
        assert_eq!(first.columns(), batch(0, 1_000).columns());
        drop(first);
        eventually("everything lent is back", || {
            server.stats().lent_outstanding == 0
        });
        eventually("the connection is kept", || {
            client.stats().connections_idle == 1
        });
        let mut stream = client
            .get(&[&uri], b"next", &GetOptions::default(), None)
            .unwrap();
        assert_eq!(read_all(&mut stream).unwrap().len(), 2);
        assert_eq!(client.stats().connections_made, 1);
    }
}

/// A stall timeout ends a stream whose server says nothing.
#[test]
fn a_stalled_stream_times_out() {
    for scheme in SCHEMES {
        let (server, uri) = server(scheme, ServerOptions::default());
        server.serve_pull(b"t").unwrap();
        let options = GetOptions {
            stall_timeout: Some(Duration::from_millis(50)),
            ..Default::default()
        };
        let error = client()
            .get(&[&uri], b"t", &options, None)
            .map(drop)
            .unwrap_err();
        assert_eq!(error.status(), Status::Timeout, "{error}");
    }
}

/// A stop drains: streams under way end well within the deadline, new ones are refused.
#[test]
fn a_stop_drains_first() {
    for scheme in SCHEMES {
        let (server, uri) = server(scheme, ServerOptions::default());
        serve(&server, "t", counting(200, 100));
        let client = client();
        let mut stream = client
            .get(&[&uri], b"t", &GetOptions::default(), None)
            .unwrap();
        thread::scope(|scope| {
            let stopping = scope.spawn(|| server.stop(Duration::from_secs(10)));
            eventually("no listener is left", || {
                let fresh = Client::new(ClientOptions::default()).unwrap();
                fresh
                    .get(&[&uri], b"t", &GetOptions::default(), None)
                    .is_err()
            });
            assert_eq!(read_all(&mut stream).unwrap().len(), 200);
            stopping.join().unwrap().unwrap();
        });
        assert_eq!(server.stats().connections, 0);
        let error = server
            .serve(b"u", counting(1, 1))
            .map_err(|(error, _)| error)
            .unwrap_err();
        assert_eq!(error.status(), Status::Stopped);
    }
}

/// A stop past its deadline cuts: the client gets an error that says so, and arrays it holds stay
/// valid and unchanged.
#[test]
fn a_stop_past_its_deadline_cuts() {
    for scheme in SCHEMES {
        let (server, uri) = server(scheme, ServerOptions::default());
        serve(&server, "t", counting(1_000_000, 1_000));
        let mut stream = client()
            .get(&[&uri], b"t", &GetOptions::default(), None)
            .unwrap();
        let schema = stream.schema().unwrap();
        let first = import(stream.next().unwrap().unwrap(), &schema);
        server.stop(Duration::from_millis(20)).unwrap();
        let error = read_all(&mut stream).unwrap_err();
        assert!(
            matches!(error.status(), Status::Stopped | Status::Disconnected),
            "{error}"
        );
        assert_eq!(first.columns(), batch(0, 1_000).columns());
    }
}

/// design.md, "Threads": no callback of the host runs on an I/O thread.
#[test]
fn host_callbacks_never_run_on_an_io_thread() {
    struct Watched {
        seen: Arc<parking_lot::Mutex<HashSet<String>>>,
        batches: std::vec::IntoIter<RecordBatch>,
    }
    fn note(seen: &parking_lot::Mutex<HashSet<String>>) {
        seen.lock()
            .insert(thread::current().name().unwrap_or("?").to_owned());
    }
    impl Iterator for Watched {
        type Item = Result<RecordBatch, Error>;
        fn next(&mut self) -> Option<Self::Item> {
            note(&self.seen);
            self.batches.next().map(Ok)
        }
    }
    impl Drop for Watched {
        fn drop(&mut self) {
            note(&self.seen);
        }
    }
    let (server, uri) = server("shm", ServerOptions::default());
    let seen = Arc::new(parking_lot::Mutex::new(HashSet::new()));
    let notes = Arc::clone(&seen);
    let provider = FnProvider(move |_: &Request| {
        note(&notes);
        let batches: Vec<_> = (0..20).map(|index| batch(index, 2_000)).collect();
        let watched = Watched {
            seen: Arc::clone(&notes),
            batches: batches.into_iter(),
        };
        Ok(stream_of(common::schema(), watched))
    });
    serve(&server, "t", Box::new(provider));
    let mut stream = client()
        .get(&[&uri], b"t", &GetOptions::default(), None)
        .unwrap();
    read_all(&mut stream).unwrap();
    drop(server);
    let seen = seen.lock();
    assert!(!seen.is_empty());
    assert!(seen.iter().all(|name| !name.contains("-io")), "{seen:?}");
}

/// Rule E4: the next stream on a connection is woken although the one before it is still being put
/// away by its producer.
#[test]
fn the_next_stream_does_not_wait_for_the_end_of_the_one_before() {
    struct SlowRelease<I>(I);
    impl<I: Iterator> Iterator for SlowRelease<I> {
        type Item = I::Item;
        fn next(&mut self) -> Option<I::Item> {
            self.0.next()
        }
    }
    impl<I> Drop for SlowRelease<I> {
        fn drop(&mut self) {
            thread::sleep(Duration::from_millis(30));
        }
    }
    for scheme in SCHEMES {
        let (server, uri) = server(scheme, ServerOptions::default());
        let provider = FnProvider(|_: &Request| {
            let batches = SlowRelease((0..40).map(|index| Ok(batch(index, 10))));
            Ok(stream_of(common::schema(), batches))
        });
        serve(&server, "t", Box::new(provider));
        let options = GetOptions {
            window: Credit {
                batches: 2,
                bytes: 1 << 30,
            },
            ..Default::default()
        };
        let client = client();
        for _ in 0..5 {
            let mut stream = client.get(&[&uri], b"t", &options, None).unwrap();
            assert_eq!(read_all(&mut stream).unwrap().len(), 40);
        }
        assert_eq!(client.stats().connections_made, 1);
    }
}

/// A place among `max_streams` is free as soon as a client can know that its stream has ended.
#[test]
fn a_client_that_comes_back_at_once_is_served() {
    for scheme in SCHEMES {
        let options = ServerOptions {
            max_streams: 1,
            ..Default::default()
        };
        let (server, uri) = server(scheme, options);
        serve(&server, "t", counting(3, 10));
        let client = client();
        for _ in 0..200 {
            let mut stream = client
                .get(&[&uri], b"t", &GetOptions::default(), None)
                .unwrap();
            assert_eq!(read_all(&mut stream).unwrap().len(), 3);
        }
    }
}

/// Rule F2: what was lent for batches that nobody took comes back, also when the end of the stream
/// had arrived before the consumer left it.
#[test]
fn a_small_stream_left_half_read_gives_everything_back() {
    for scheme in SCHEMES {
        let (server, uri) = server(scheme, ServerOptions::default());
        serve(&server, "t", counting(8, 5_000));
        let client = client();
        let mut stream = client
            .get(&[&uri], b"t", &GetOptions::default(), None)
            .unwrap();
        eventually("the server has said everything", || {
            server.stats().streams_active == 0
        });
        drop(stream.next().unwrap().unwrap());
        drop(stream);
        eventually("everything lent is back", || {
            server.stats().lent_outstanding == 0
        });
        eventually("the connection is kept", || {
            client.stats().connections_idle == 1
        });
    }
}

/// A stream that timed out here lets go of its connection, and so of the server's thread.
#[test]
fn a_stalled_stream_is_cut() {
    for scheme in SCHEMES {
        let (server, uri) = server(scheme, ServerOptions::default());
        server.serve_pull(b"t").unwrap();
        let options = GetOptions {
            stall_timeout: Some(Duration::from_millis(20)),
            ..Default::default()
        };
        let client = client();
        let outcome = client.get(&[&uri], b"t", &options, None).map(drop);
        assert_eq!(outcome.unwrap_err().status(), Status::Timeout);
        let request = server.next_request(None, None).unwrap().unwrap();
        eventually("the request is of no use any more", || {
            request.is_cancelled()
        });
        eventually("the connection is closed", || {
            server.stats().connections == 0
        });
    }
}

/// A consumer that cancels while the producer waits for room to finish is answered.
#[test]
fn a_finish_without_room_can_be_cancelled() {
    for scheme in SCHEMES {
        let (server, uri) = server(scheme, ServerOptions::default());
        serve(&server, "t", counting(6, 20_000));
        let options = GetOptions {
            // Four batches and a part of the fifth.
            window: Credit {
                batches: 100,
                bytes: 2_000_000,
            },
            ..Default::default()
        };
        let client = client();
        for _ in 0..3 {
            let stream = client.get(&[&uri], b"t", &options, None).unwrap();
            thread::sleep(Duration::from_millis(20));
            drop(stream);
            eventually("the connection is kept", || {
                client.stats().connections_idle == 1
            });
        }
        assert_eq!(client.stats().connections_made, 1);
    }
}

/// Rule U2: a server that is told a `want_data` of its own lends all the same.
#[test]
fn a_listener_with_tags_of_its_own_lends() {
    for scheme in SCHEMES {
        let server = Server::new(ServerOptions::default()).unwrap();
        let uri = format!("{}?want_data=4611686018427387909", address(scheme));
        let uri = server.listen(&uri).unwrap();
        serve(&server, "t", counting(3, 5_000));
        let mut stream = client()
            .get(&[&uri], b"t", &GetOptions::default(), None)
            .unwrap();
        assert_eq!(read_all(&mut stream).unwrap().len(), 3);
        assert!(stream.stats().bytes_lent > 0);
    }
}

/// A server of the bodies alone is done when the consumer has everything, not when it has released
/// everything.
#[test]
fn a_data_server_does_not_wait_for_releases() {
    for scheme in SCHEMES {
        let (metadata_server, _) = server(scheme, ServerOptions::default());
        let (data_server, _) = server(scheme, ServerOptions::default());
        for server in [&metadata_server, &data_server] {
            serve(server, "t", counting(10, 2_000));
        }
        let metadata = metadata_server.location(Role::Metadata).unwrap();
        let data = data_server.location(Role::Data).unwrap();
        let client = client();
        let mut stream = client
            .get(&[&metadata, &data], b"t", &GetOptions::default(), None)
            .unwrap();
        let kept = read_all(&mut stream).unwrap();
        drop(stream);
        for server in [&metadata_server, &data_server] {
            eventually("both servers are done", || {
                server.stats().streams_active == 0
            });
        }
        assert!(data_server.stats().lent_outstanding > 0);
        drop(kept);
        eventually("everything lent is back", || {
            data_server.stats().lent_outstanding == 0
        });
    }
}

/// Rule F4: copies made for a client that is cut off are given back to the system.
#[test]
fn regions_of_a_cut_client_are_given_back() {
    let (server, uri) = server("shm", ServerOptions::default());
    serve(&server, "t", counting(1_000_000, 20_000));
    let client = client();
    let mut stream = client
        .get(&[&uri], b"t", &GetOptions::default(), None)
        .unwrap();
    let schema = stream.schema().unwrap();
    let kept = import(stream.next().unwrap().unwrap(), &schema);
    assert!(server.stats().region_bytes > 0);
    server.stop(Duration::ZERO).unwrap();
    assert_eq!(server.stats().region_bytes, 0);
    assert_eq!(kept.columns(), batch(0, 20_000).columns());
}
