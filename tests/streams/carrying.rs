//! Served tables arrive whole, in order and equal.

use crate::common;
use crate::common::{FnProvider, batch, counting, export, export_schema, read_all, stream_of};
use crate::{SUBJECTS, assert_same, client, eventually, serve, server, server_of};
use dipc::arrow::Compression;
use dipc::arrow::stream::ArrayReader;
use dipc::client::GetOptions;
use dipc::error::Status;
use dipc::proto::{Credit, Role};
use dipc::server::{ServerOptions, ServerRequest};
use dipc::transport::BodyPolicy;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Rules M1, M4, M5, D1: a table arrives whole and in order, lent (kind 1) and packed (kind 0).
#[test]
fn a_table_arrives_equal_in_both_kinds() {
    for subject in SUBJECTS {
        for body in [BodyPolicy::Auto, BodyPolicy::Packed] {
            let (server, uri) = server(
                subject,
                ServerOptions {
                    body,
                    ..Default::default()
                },
            );
            serve(&server, "t", counting(20, 10_000));
            let client = client();
            let mut stream = client.get(&[&uri], b"t", &subject.options(), None).unwrap();
            let received = read_all(&mut stream).unwrap();
            let expected: Vec<_> = (0..20).map(|index| batch(index * 10_000, 10_000)).collect();
            assert_same(&received, &expected);
            let stats = stream.stats();
            assert_eq!(stats.rows, 200_000);
            match body {
                BodyPolicy::Auto | BodyPolicy::Lent if subject.lends => {
                    assert!(stats.bytes_lent > 0 && stats.bytes_received == 0)
                }
                _ => assert!(stats.bytes_lent == 0 && stats.bytes_received > 0),
            }
        }
    }
}

/// Rule M3: numbers wrap at 2^32 in the middle of a stream.
#[test]
fn sequence_numbers_wrap() {
    for subject in SUBJECTS {
        let first_seq = u32::MAX - 5;
        let (server, uri) = server(
            subject,
            ServerOptions {
                first_seq,
                ..Default::default()
            },
        );
        serve(&server, "t", counting(20, 100));
        let options = GetOptions {
            first_seq,
            ..subject.options()
        };
        let mut stream = client().get(&[&uri], b"t", &options, None).unwrap();
        assert_eq!(read_all(&mut stream).unwrap().len(), 20);
    }
}

/// Rules U3, E6: metadata and bodies over two connections share one call of the provider.
#[test]
fn two_connections_share_one_provider_call() {
    for subject in SUBJECTS {
        for body in [BodyPolicy::Auto, BodyPolicy::Packed] {
            let (server, _) = server(
                subject,
                ServerOptions {
                    body,
                    ..Default::default()
                },
            );
            let calls = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&calls);
            let provider = FnProvider(move |_: &ServerRequest| {
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
            // The order of the URIs does not matter if they name their roles.
            for uris in [[&*metadata, &*data], [&*data, &*metadata]] {
                let mut stream = client.get(&uris, b"t", &subject.options(), None).unwrap();
                assert_same(&read_all(&mut stream).unwrap(), &expected);
            }
            assert_eq!(calls.load(Ordering::SeqCst), 2);
        }
    }
}

/// Rule E6, R4: a metadata server and a data server that share nothing but the table.
#[test]
fn a_metadata_server_and_a_data_server() {
    for subject in SUBJECTS {
        let (metadata_server, metadata) = server_of(subject, Role::Metadata, counting(40, 500));
        let (data_server, data) = server_of(subject, Role::Data, counting(40, 500));
        let mut stream = client()
            .get(&[&metadata, &data], b"t", &subject.options(), None)
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

/// Rule E1: with a URI without the extension the client is a baseline peer, and is served.
#[test]
fn a_baseline_client_is_served_packed_bodies() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        serve(&server, "t", counting(30, 2_000));
        let baseline = uri
            .replace("dipc=1", "")
            .replace("&&", "&")
            .replace("?&", "?");
        assert!(!baseline.contains("dipc=1"), "{baseline}");
        let mut stream = client()
            .get(&[&baseline], b"t", &subject.options(), None)
            .unwrap();
        let expected: Vec<_> = (0..30).map(|index| batch(index * 2_000, 2_000)).collect();
        assert_same(&read_all(&mut stream).unwrap(), &expected);
        assert_eq!(stream.stats().bytes_lent, 0);
    }
}

/// Rule E4: one connection serves stream after stream, and free lists belong to the connection.
#[test]
fn connections_are_used_again() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        serve(&server, "t", counting(3, 3_000));
        let client = client();
        let mut kept = Vec::new();
        for _ in 0..20 {
            let mut stream = client.get(&[&uri], b"t", &subject.options(), None).unwrap();
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

/// Many streams at once from one server, one connection each.
#[test]
fn many_streams_at_once() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        serve(&server, "t", counting(20, 1_000));
        let client = client();
        thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    let mut stream = client.get(&[&uri], b"t", &subject.options(), None).unwrap();
                    assert_eq!(read_all(&mut stream).unwrap().len(), 20);
                });
            }
        });
        assert_eq!(server.stats().streams_served, 16);
    }
}

/// A published table is fetched by many clients at once, and released when it is withdrawn.
#[test]
fn a_published_table_is_fetched_many_times() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let batches: Vec<_> = (0..10).map(|index| batch(index * 300, 300)).collect();
        let exported = batches.iter().map(export).collect();
        let published = server.publish(b"t", export_schema(&common::schema()), exported);
        published.map_err(|(error, _)| error).unwrap();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let client = client();
                    for _ in 0..3 {
                        let mut stream =
                            client.get(&[&uri], b"t", &subject.options(), None).unwrap();
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

/// Rule E4: the next stream of a connection begins even while the previous stream's producer is
/// still ending.
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
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let provider = FnProvider(|_: &ServerRequest| {
            let batches = SlowRelease((0..40).map(|index| Ok(batch(index, 10))));
            Ok(stream_of(common::schema(), batches))
        });
        serve(&server, "t", Box::new(provider));
        let options = GetOptions {
            window: Credit {
                batches: 2,
                bytes: 1 << 30,
            },
            ..subject.options()
        };
        let client = client();
        for _ in 0..5 {
            let mut stream = client.get(&[&uri], b"t", &options, None).unwrap();
            assert_eq!(read_all(&mut stream).unwrap().len(), 40);
        }
        assert_eq!(client.stats().connections_made, 1);
    }
}

/// Rule U2: a server with its own `want_data` lends too.
#[test]
fn a_listener_with_tags_of_its_own_lends() {
    for subject in SUBJECTS {
        let (server, _) = server(subject, ServerOptions::default());
        let uri = format!("{}?want_data=4611686018427387909", subject.address());
        let uri = server.listen(&uri).unwrap();
        serve(&server, "t", counting(3, 5_000));
        let mut stream = client()
            .get(&[&uri], b"t", &subject.options(), None)
            .unwrap();
        assert_eq!(read_all(&mut stream).unwrap().len(), 3);
        assert_eq!(stream.stats().bytes_lent > 0, subject.lends);
    }
}

/// The memory of a message has a limit, which an option sets; the default is large enough.
#[test]
fn a_message_has_a_limit() {
    for subject in SUBJECTS {
        let options = ServerOptions {
            compression: Some(Compression::Zstd),
            ..Default::default()
        };
        let (server, uri) = server(subject, options);
        serve(&server, "t", counting(1, 200_000));
        let client = client();
        let limited = GetOptions {
            message_limit: Some(100_000),
            ..subject.options()
        };
        let mut stream = client.get(&[&uri], b"t", &limited, None).unwrap();
        let error = stream.next().unwrap_err();
        assert_eq!(error.status(), Status::OutOfMemory, "{error}");
        assert!(error.text().contains("--max-message"), "{error}");
        let mut stream = client.get(&[&uri], b"t", &subject.options(), None).unwrap();
        assert_same(&read_all(&mut stream).unwrap(), &[batch(0, 200_000)]);
    }
}
