//! How streams end, by their consumer or server, and the return of lent memory.

use crate::common;
use crate::common::asleep::{this_thread, until_asleep};
use crate::common::{FnProvider, batch, counting, import, read_all, stream_of};
use crate::{SHM, SUBJECTS, assert_same, client, eventually, serve, server, server_of};
use dipc::arrow::stream::ArrayReader;
use dipc::cancel::Cancel;
use dipc::client::{Client, ClientOptions, GetOptions};
use dipc::error::Status;
use dipc::proto::{Credit, Role};
use dipc::server::{ServerOptions, ServerRequest};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

/// Rules D7, F2, F6: arrays stay valid after stream, client and connection handles are gone, and
/// give their memory back when released, on any thread.
#[test]
fn arrays_outlive_their_stream_and_client() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        serve(&server, "t", counting(10, 5_000));
        let client = client();
        let mut stream = client.get(&[&uri], b"t", &subject.options(), None).unwrap();
        let received = read_all(&mut stream).unwrap();
        drop(stream);
        drop(client);
        assert_eq!(server.stats().lent_outstanding > 0, subject.lends);
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

/// A token cancels a `get` that waits for its schema, and a stream that waits for a batch.
#[test]
fn a_token_cancels_waiting_calls() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let (let_go, gate) = mpsc::channel::<()>();
        let (blocks, blocked) = mpsc::channel::<()>();
        let gate = parking_lot::Mutex::new(gate);
        let block = Arc::new(move || {
            let _ = blocks.send(());
            let _ = gate.lock().recv();
        });
        let waits = Arc::clone(&block);
        let opening = FnProvider(move |_: &ServerRequest| {
            waits();
            Err(common::broken("opened too late"))
        });
        serve(&server, "opening", Box::new(opening));
        let reading = FnProvider(move |_: &ServerRequest| {
            let waits = Arc::clone(&block);
            let batches = (0..2).map(move |index| {
                if index == 1 {
                    waits();
                }
                Ok(batch(index, 10))
            });
            Ok(stream_of(common::schema(), batches))
        });
        serve(&server, "reading", Box::new(reading));
        let client = client();
        for ticket in ["opening", "reading"] {
            let cancel = Cancel::new().unwrap();
            let options = subject.options();
            let outcome = thread::scope(|scope| {
                let (begins, begun) = mpsc::channel();
                let (client, cancel) = (&client, &cancel);
                let (uris, options) = ([uri.as_str()], &options);
                let getting = scope.spawn(move || {
                    begins.send(this_thread()).unwrap();
                    client
                        .get(&uris, ticket.as_bytes(), options, Some(cancel))
                        .and_then(|mut stream| read_all(&mut stream))
                });
                // Not before the provider's call: the release is for this call.
                let _ = blocked.recv_timeout(Duration::from_secs(10));
                until_asleep(begun.recv().unwrap());
                cancel.cancel();
                getting.join().unwrap()
            });
            assert_eq!(outcome.unwrap_err().status(), Status::Cancelled);
            let_go.send(()).unwrap();
        }
        drop(let_go);
        eventually("both streams have ended", || {
            server.stats().streams_active == 0
        });
    }
}

/// `dipc_cancel_trigger`: every later call ends, even if it would not wait.
#[test]
fn a_token_ends_a_stream_whose_batches_are_here() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        serve(&server, "t", counting(5, 10));
        let client = client();
        let cancel = Cancel::new().unwrap();
        let options = subject.options();
        let mut stream = client.get(&[&uri], b"t", &options, Some(&cancel)).unwrap();
        eventually("all has been sent", || server.stats().streams_active == 0);
        assert!(stream.next().unwrap().is_some());
        cancel.cancel();
        for _ in 0..2 {
            let error = stream.next().map(drop).unwrap_err();
            assert_eq!(error.status(), Status::Cancelled, "{error}");
        }
        // A completed stream has nothing to cancel.
        let cancel = Cancel::new().unwrap();
        let mut stream = client.get(&[&uri], b"t", &options, Some(&cancel)).unwrap();
        assert_eq!(read_all(&mut stream).unwrap().len(), 5);
        cancel.cancel();
        assert!(stream.next().unwrap().is_none());
    }
}

/// A half-read stream is cancelled at the server; lent memory comes back, and the connection serves
/// the next stream.
#[test]
fn an_abandoned_stream_is_cancelled() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        serve(&server, "t", counting(1_000_000, 1_000));
        serve(&server, "next", counting(2, 10));
        let client = client();
        let mut stream = client.get(&[&uri], b"t", &subject.options(), None).unwrap();
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
            client.stats().connections_idle == subject.kept_after_cancel()
        });
        let mut stream = client
            .get(&[&uri], b"next", &subject.options(), None)
            .unwrap();
        assert_eq!(read_all(&mut stream).unwrap().len(), 2);
        let made = 2 - subject.kept_after_cancel();
        assert_eq!(client.stats().connections_made, made);
    }
}

/// A stall timeout ends a stream of a silent server, even if its consumer never sleeps.
#[test]
fn a_stalled_stream_times_out() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        server.serve_pull(b"t").unwrap();
        for spin in [Duration::ZERO, Duration::MAX] {
            let options = GetOptions {
                stall_timeout: Some(Duration::from_millis(50)),
                spin,
                ..subject.options()
            };
            let error = client()
                .get(&[&uri], b"t", &options, None)
                .map(drop)
                .unwrap_err();
            assert_eq!(error.status(), Status::Timeout, "{error}");
        }
    }
}

/// A stop drains: running streams complete within the deadline, new streams are refused.
#[test]
fn a_stop_drains_first() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        serve(&server, "t", counting(200, 100));
        let client = client();
        let mut stream = client.get(&[&uri], b"t", &subject.options(), None).unwrap();
        thread::scope(|scope| {
            let stopping = scope.spawn(|| server.stop(Duration::from_secs(10)));
            eventually("no listener is left", || {
                let fresh = Client::new(ClientOptions::default()).unwrap();
                fresh.get(&[&uri], b"t", &subject.options(), None).is_err()
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

/// With enough time, a stop lets the last data reach a slow client that still sends messages.
#[test]
fn a_stop_leaves_a_slow_client_its_last_bytes() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        serve(
            &server,
            "t",
            counting(40, 25_000 * usize::from(subject.connections)),
        );
        let options = GetOptions {
            // At the end more data is in flight than the client's system buffers, and credit
            // arrives meanwhile.
            window: Credit {
                batches: 30,
                bytes: 256 << 20,
            },
            ..subject.options()
        };
        let mut stream = client().get(&[&uri], b"t", &options, None).unwrap();
        thread::scope(|scope| {
            let stopping = scope.spawn(|| server.stop(Duration::from_secs(60)));
            let mut batches = 0;
            while let Some(batch) = stream.next().unwrap() {
                drop(batch);
                batches += 1;
                thread::sleep(Duration::from_millis(5));
            }
            assert_eq!(batches, 40, "{subject:?}");
            stopping.join().unwrap().unwrap();
        });
    }
}

/// With enough time, a stop lets a client read the rest of a completely sent stream.
#[test]
fn a_stop_leaves_a_client_what_it_has_not_read() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        serve(&server, "t", counting(4, 10));
        let client = client();
        let mut stream = client.get(&[&uri], b"t", &subject.options(), None).unwrap();
        eventually("the server has said everything", || {
            server.stats().streams_active == 0
        });
        thread::scope(|scope| {
            let stopping = scope.spawn(|| server.stop(Duration::from_secs(60)));
            // A stop that does not wait for the client would have ended by then.
            thread::sleep(Duration::from_millis(200));
            let batches = read_all(&mut stream).unwrap();
            assert_eq!(batches.len(), 4, "{subject:?}");
            stopping.join().unwrap().unwrap();
        });
    }
}

/// A stop waits neither for idle connections nor for clients that have gone.
#[test]
fn a_stop_does_not_wait_for_idle_clients() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        serve(&server, "t", counting(4, 10));
        let (kept, gone) = (client(), client());
        for client in [&kept, &gone] {
            let mut stream = client.get(&[&uri], b"t", &subject.options(), None).unwrap();
            assert_eq!(read_all(&mut stream).unwrap().len(), 4);
        }
        drop(gone);
        server.stop(Duration::MAX).unwrap();
        assert_eq!(server.stats().connections, 0, "{subject:?}");
        drop(kept);
    }
}

/// After its deadline a stop cuts: the client gets an error that says so, and its arrays stay valid
/// and unchanged.
#[test]
fn a_stop_past_its_deadline_cuts() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        serve(&server, "t", counting(1_000_000, 1_000));
        let mut stream = client()
            .get(&[&uri], b"t", &subject.options(), None)
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

/// Rule F2: memory lent for batches that the consumer did not take comes back, even if the end of
/// the stream had arrived before the consumer left.
#[test]
fn a_small_stream_left_half_read_gives_everything_back() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        serve(&server, "t", counting(8, 5_000));
        let client = client();
        let mut stream = client.get(&[&uri], b"t", &subject.options(), None).unwrap();
        eventually("the server has said everything", || {
            server.stats().streams_active == 0
        });
        drop(stream.next().unwrap().unwrap());
        drop(stream);
        eventually("everything lent is back", || {
            server.stats().lent_outstanding == 0
        });
        if subject.kept_after_cancel() == 0 {
            // The connection is kept if the whole stream had arrived, which the server's end does
            // not show.
            continue;
        }
        eventually("the connection is kept", || {
            client.stats().connections_idle == 1
        });
    }
}

/// A stream that timed out drops its connection, and so frees the server's thread.
#[test]
fn a_stalled_stream_is_cut() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        server.serve_pull(b"t").unwrap();
        let options = GetOptions {
            stall_timeout: Some(Duration::from_millis(20)),
            ..subject.options()
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

/// A server of bodies only has completed its stream when the consumer has all batches, not after
/// all releases.
#[test]
fn a_data_server_does_not_wait_for_releases() {
    for subject in SUBJECTS {
        let (metadata_server, metadata) = server_of(subject, Role::Metadata, counting(10, 2_000));
        let (data_server, data) = server_of(subject, Role::Data, counting(10, 2_000));
        let client = client();
        let mut stream = client
            .get(&[&metadata, &data], b"t", &subject.options(), None)
            .unwrap();
        let kept = read_all(&mut stream).unwrap();
        drop(stream);
        for server in [&metadata_server, &data_server] {
            eventually("both servers are done", || {
                server.stats().streams_active == 0
            });
        }
        assert_eq!(data_server.stats().lent_outstanding > 0, subject.lends);
        drop(kept);
        eventually("everything lent is back", || {
            data_server.stats().lent_outstanding == 0
        });
    }
}

/// The same if the consumer has taken every batch and does not read the end: the credit for the
/// last batch is the last message to the server.
#[test]
fn a_data_server_is_done_with_the_last_batch() {
    // A wide window, so that only the last message grants credit for the last batches.
    const BATCHES: i64 = 40;
    for subject in SUBJECTS {
        let (metadata_server, metadata) =
            server_of(subject, Role::Metadata, counting(BATCHES, 2_000));
        let (data_server, data) = server_of(subject, Role::Data, counting(BATCHES, 2_000));
        let client = client();
        let options = GetOptions {
            window: Credit {
                batches: 100,
                ..GetOptions::default().window
            },
            ..subject.options()
        };
        let mut stream = client
            .get(&[&metadata, &data], b"t", &options, None)
            .unwrap();
        let taken: Vec<_> = (0..BATCHES)
            .map(|_| stream.next().unwrap().unwrap())
            .collect();
        drop(stream);
        for server in [&metadata_server, &data_server] {
            eventually("both servers are done", || {
                server.stats().streams_active == 0
            });
        }
        drop(taken);
    }
}

/// Rule F6: arrays of a stream on two connections keep their connection open, even if the stream is
/// left half-read, and return their memory over it.
#[test]
fn arrays_of_an_abandoned_stream_on_two_connections_go_back() {
    for subject in SUBJECTS {
        let (metadata_server, metadata) =
            server_of(subject, Role::Metadata, counting(1_000_000, 2_000));
        let (data_server, data) = server_of(subject, Role::Data, counting(1_000_000, 2_000));
        let client = client();
        let mut stream = client
            .get(&[&metadata, &data], b"t", &subject.options(), None)
            .unwrap();
        let kept = stream.next().unwrap().unwrap();
        drop(stream);
        for server in [&metadata_server, &data_server] {
            eventually("the server has given up", || {
                server.stats().streams_active == 0
            });
        }
        // By then the client has handled all messages in flight.
        thread::sleep(Duration::from_millis(200));
        let stats = data_server.stats();
        assert_eq!(stats.lent_outstanding > 0, subject.lends);
        assert!(stats.connections == 1 || !subject.lends);
        drop(kept);
        eventually("everything lent is back", || {
            data_server.stats().lent_outstanding == 0
        });
    }
}

/// Rule F4: copies for a disconnected client go back to the system after the client has unmapped
/// them.
#[test]
fn regions_of_a_cut_client_are_given_back() {
    let (server, uri) = server(SHM, ServerOptions::default());
    serve(&server, "t", counting(1_000_000, 20_000));
    let client = client();
    let mut stream = client
        .get(&[&uri], b"t", &GetOptions::default(), None)
        .unwrap();
    let schema = stream.schema().unwrap();
    let kept = import(stream.next().unwrap().unwrap(), &schema);
    assert!(server.stats().region_bytes > 0);
    server.stop(Duration::ZERO).unwrap();
    assert!(server.stats().region_bytes > 0, "the client has them still");
    assert_eq!(kept.columns(), batch(0, 20_000).columns());
    drop((kept, stream));
    eventually("the copies are gone", || server.stats().region_bytes == 0);
}

/// `ClientOptions::max_idle`: after a burst of streams a client keeps so many connections, and the
/// server drops the others.
#[test]
fn a_burst_leaves_few_connections() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        serve(&server, "t", counting(3, 100));
        for max_idle in [3, 0] {
            let options = ClientOptions {
                max_idle,
                ..ClientOptions::default()
            };
            let client = Client::new(options).unwrap();
            let get = || client.get(&[&uri], b"t", &subject.options(), None).unwrap();
            let mut streams: Vec<_> = (0..7).map(|_| get()).collect();
            let kept: Vec<_> = streams
                .iter_mut()
                .map(|stream| read_all(stream).unwrap())
                .collect();
            drop(streams);
            assert!(client.stats().connections_idle <= max_idle as u64);
            // Arrays keep their connection.
            let expected: Vec<_> = (0..3).map(|index| batch(index * 100, 100)).collect();
            for received in &kept {
                assert_same(received, &expected);
            }
            drop(kept);
            eventually("the others have ended", || {
                server.stats().connections <= max_idle as u64
            });
            drop(client);
        }
    }
}

/// `ClientOptions::idle_timeout`: an idle connection ends at both sides, and the next stream uses a
/// new connection.
#[test]
fn idle_connections_end() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        serve(&server, "t", counting(3, 100));
        let options = ClientOptions {
            idle_timeout: Duration::from_millis(150),
            ..ClientOptions::default()
        };
        let client = Client::new(options).unwrap();
        for made in 1..=2 {
            let mut stream = client.get(&[&uri], b"t", &subject.options(), None).unwrap();
            assert_eq!(read_all(&mut stream).unwrap().len(), 3);
            drop(stream);
            assert_eq!(client.stats().connections_made, made, "{subject:?}");
            eventually("the connection has ended", || {
                server.stats().connections == 0 && client.stats().connections_idle == 0
            });
        }
    }
}
