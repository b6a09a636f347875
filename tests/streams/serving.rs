//! Providers, the pull form, and refusals.

use crate::common;
use crate::common::{FnProvider, batch, counting, export, export_schema, read_all, stream_of};
use crate::{SHM, SUBJECTS, assert_same, client, eventually, serve, server};
use arrow::array::{ArrayRef, DictionaryArray, Int32Array, RecordBatch, StringArray};
use arrow::datatypes::Int32Type;
use dipc::arrow::stream::ArrayReader;
use dipc::client::{Client, ClientOptions, GetOptions};
use dipc::error::{Error, Status};
use dipc::proto::{Credit, Headers, MAX_TICKET_BYTES};
use dipc::server::{ServerOptions, ServerRequest};
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

/// One status for each kind of refusal.
#[test]
fn refusals_name_their_cause() {
    for subject in SUBJECTS {
        let (server, uri) = server(
            subject,
            ServerOptions {
                max_streams: 1,
                ..Default::default()
            },
        );
        serve(&server, "t", counting(1000, 1000));
        let client = client();
        let options = subject.options();
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
            failed(&[&subject.nowhere()], b"t").status(),
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

/// `dipc.h`: the longest ticket is served, and a longer one is refused at both ends before anything
/// is sent.
#[test]
fn a_ticket_that_no_request_can_carry_is_refused() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let longest = vec![b'x'; MAX_TICKET_BYTES];
        let longer = vec![b'x'; MAX_TICKET_BYTES + 1];
        let served = server.serve(&longest, counting(1, 1));
        served.map_err(|(error, _)| error).unwrap();
        let client = client();
        let get = |ticket: &[u8]| client.get(&[&uri], ticket, &subject.options(), None);
        assert_eq!(read_all(&mut get(&longest).unwrap()).unwrap().len(), 1);
        let refused = [
            get(&longer).map(drop).unwrap_err(),
            server.serve(&longer, counting(1, 1)).unwrap_err().0,
            server.serve_pull(&longer).unwrap_err(),
        ];
        for error in refused {
            assert_eq!(error.status(), Status::InvalidArgument, "{error}");
            assert!(error.text().contains("the limit is 1040384"), "{error}");
        }
        // The connection was not used, and is kept for the next stream.
        assert_eq!(read_all(&mut get(&longest).unwrap()).unwrap().len(), 1);
        assert_eq!(client.stats().connections_made, 1);
    }
}

/// Promise: a provider that fails ends only its own stream, with its text.
#[test]
fn a_failing_provider_ends_its_stream_only() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        serve(&server, "good", counting(5, 10));
        let refusing = FnProvider(|_: &ServerRequest| Err(common::broken("the disk is on fire")));
        serve(&server, "refusing", Box::new(refusing));
        let breaking = FnProvider(|_: &ServerRequest| {
            let batches = (0..5).map(|index| match index {
                3 => Err(common::broken("batch 3 is unreadable")),
                _ => Ok(batch(index, 10)),
            });
            Ok(stream_of(common::schema(), batches))
        });
        serve(&server, "breaking", Box::new(breaking));
        let worded = FnProvider(|request: &ServerRequest| {
            request.fail(-7777, "in my own words");
            Err(common::broken("not these"))
        });
        serve(&server, "worded", Box::new(worded));
        let panicking = FnProvider(|_: &ServerRequest| panic!("this provider panics on purpose"));
        serve(&server, "panicking", Box::new(panicking));
        let client = client();
        let options = subject.options();
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
        // A failed stream repeats its error.
        assert_eq!(stream.next().unwrap_err(), error);
        let mut stream = client.get(&[&uri], b"good", &options, None).unwrap();
        assert_eq!(read_all(&mut stream).unwrap().len(), 5);
        assert_eq!(client.stats().connections_made, 1);
    }
}

/// Promise: the client gets the provider's status, if it makes sense from a peer, and its text; the
/// connection carries the next stream (rule E4). The provider is called once.
#[test]
fn a_providers_status_says_nothing_of_the_connection() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let calls = Arc::new(AtomicUsize::new(0));
        for status in Status::ALL {
            let fails = move || Error::new(*status, "the provider's own words");
            let counted = Arc::clone(&calls);
            let at_once = FnProvider(move |_: &ServerRequest| {
                counted.fetch_add(1, Ordering::SeqCst);
                Err(fails())
            });
            let later = FnProvider(move |request: &ServerRequest| {
                // A stream fails with an errno; this gives the text for it.
                request.fail(status.code(), fails().text());
                let batches = [Ok(batch(0, 1)), Err(fails())];
                Ok(stream_of(common::schema(), batches.into_iter()))
            });
            serve(&server, &format!("at once {status:?}"), Box::new(at_once));
            serve(&server, &format!("later {status:?}"), Box::new(later));
        }
        let client = client();
        let get = |ticket: String| {
            let mut stream = client.get(&[&uri], ticket.as_bytes(), &subject.options(), None)?;
            read_all(&mut stream)
        };
        for status in Status::ALL {
            for ticket in ["at once", "later"] {
                let error = get(format!("{ticket} {status:?}")).unwrap_err();
                // A status about pointers, handles or the process itself is named in the text, but
                // becomes another status.
                let known = status.is_for_peers();
                let expected = if known { *status } else { Status::Provider };
                assert_eq!(error.status(), expected, "{ticket}: {error}");
                assert!(error.text().contains("own words"), "{ticket}: {error}");
                assert!(known || error.text().contains(status.symbol()), "{error}");
            }
        }
        assert_eq!(calls.load(Ordering::SeqCst), Status::ALL.len());
        assert_eq!(client.stats().connections_made, 1);
    }
}

/// An invalid array (here: a negative length) ends the stream, and is released.
#[test]
fn a_broken_array_ends_its_stream() {
    let (server, uri) = server(SHM, ServerOptions::default());
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
        // SAFETY: every reader checks the wrong number; pointers and release stay valid.
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

/// The pull form: the host's own thread pushes, and releases run only in its drain call.
#[test]
fn the_pull_form_serves_and_releases_on_the_hosts_thread() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        server.serve_pull(b"t").unwrap();
        let none = server
            .next_request(Some(Duration::from_millis(1)), None)
            .unwrap();
        assert!(none.is_none());
        let consumer = thread::spawn(move || {
            let mut stream = client()
                .get(&[&uri], b"t", &subject.options(), None)
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

/// The next request on a connection comes while the host still has the last one, which it has
/// finished or failed: the client waits for nobody. Promise of `dipc_request_add_headers`: a stream
/// that is over takes none, not even for its successor.
#[test]
fn a_request_that_is_over_holds_up_nobody() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        server.serve_pull(b"t").unwrap();
        let consumer = thread::spawn(move || {
            let (client, options) = (client(), subject.options());
            let read = |_| {
                let mut stream = client.get(&[&uri], b"t", &options, None)?;
                read_all(&mut stream).map(|batches| batches.len())
            };
            (0..3).map(read).collect::<Vec<_>>()
        });
        let mut over = Vec::new();
        for fails in [false, true, false] {
            let request = server.next_request(Some(Duration::from_secs(10)), None);
            let request = request.unwrap().expect("the last request holds it up");
            request.start(&export_schema(&common::schema()), 1).unwrap();
            if fails {
                request.fail(-1000, "enough");
                let error = request.finish(None).unwrap_err();
                assert_eq!(error.status(), Status::InvalidArgument);
            } else {
                request.finish(None).unwrap();
                request.finish(None).unwrap();
            }
            over.push(request);
        }
        let read = consumer.join().unwrap();
        assert_eq!(read[0].as_ref().ok(), Some(&0), "{}", subject.scheme);
        assert_eq!(read[1].as_ref().unwrap_err().status(), Status::Provider);
        assert_eq!(read[2].as_ref().ok(), Some(&0), "{}", subject.scheme);
        for request in &over {
            assert!(!request.is_cancelled());
            let error = request.add_headers(&Headers::new()).unwrap_err();
            assert_eq!(error.status(), Status::InvalidArgument);
        }
    }
}

/// `dipc.h`: any thread may call any function on a request. A call that waits for the client does
/// not block other calls, and failing the request ends it.
#[test]
fn a_request_can_be_failed_while_a_push_waits() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        server.serve_pull(b"t").unwrap();
        let options = GetOptions {
            window: Credit {
                batches: 1,
                bytes: 1 << 20,
            },
            ..subject.options()
        };
        let (let_go, gate) = mpsc::channel::<()>();
        let consumer = thread::spawn(move || {
            let mut stream = client().get(&[&uri], b"t", &options, None).unwrap();
            gate.recv().unwrap();
            read_all(&mut stream).unwrap_err()
        });
        let request = server.next_request(None, None).unwrap().unwrap();
        request.start(&export_schema(&common::schema()), 1).unwrap();
        let push = |timeout| {
            let pushed = request.push(export(&batch(0, 1)), None, timeout);
            pushed.map_err(|(error, _)| error.status())
        };
        // As many batches as the window admits; the client takes none.
        while push(Some(Duration::from_millis(100))).is_ok() {}
        thread::scope(|scope| {
            let waiting = scope.spawn(|| push(None));
            let is_waiting = || {
                let pushed =
                    request.push(export(&batch(0, 1)), None, Some(Duration::from_millis(1)));
                let (error, _) = pushed.unwrap_err();
                assert_eq!(error.status(), Status::Timeout);
                error.text().contains("another call")
            };
            eventually("the push waits", is_waiting);
            let finished = request.finish(Some(Duration::from_millis(1)));
            assert_eq!(finished.unwrap_err().status(), Status::Timeout);
            request.fail(-1000, "enough");
            assert_eq!(waiting.join().unwrap(), Err(Status::Cancelled));
        });
        let_go.send(()).unwrap();
        let ended = consumer.join().unwrap();
        assert_eq!(ended.status(), Status::Provider);
        assert!(ended.text().contains("enough"), "{ended}");
    }
}

/// A provider may fetch from its own server, and may block.
#[test]
fn a_provider_may_fetch_from_its_own_server() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        serve(&server, "inner", counting(30, 100));
        let inner_uri = uri.clone();
        let provider = FnProvider(move |_: &ServerRequest| {
            let client = Client::new(ClientOptions::default())?;
            let stream = client.get(&[&inner_uri], b"inner", &subject.options(), None)?;
            Ok(dipc::arrow::stream::export_device_stream(Box::new(stream)))
        });
        serve(&server, "outer", Box::new(provider));
        let mut stream = client()
            .get(&[&uri], b"outer", &subject.options(), None)
            .unwrap();
        assert_eq!(read_all(&mut stream).unwrap().len(), 30);
    }
}

/// Promise of `dipc.h`: no callback of the host runs on an I/O thread.
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
    let (server, uri) = server(SHM, ServerOptions::default());
    let seen = Arc::new(parking_lot::Mutex::new(HashSet::new()));
    let notes = Arc::clone(&seen);
    let provider = FnProvider(move |_: &ServerRequest| {
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

/// A place among `max_streams` is free as soon as a client can know that its stream has ended.
#[test]
fn a_client_that_comes_back_at_once_is_served() {
    for subject in SUBJECTS {
        let options = ServerOptions {
            max_streams: 1,
            ..Default::default()
        };
        let (server, uri) = server(subject, options);
        serve(&server, "t", counting(3, 10));
        let client = client();
        for _ in 0..200 {
            let mut stream = client.get(&[&uri], b"t", &subject.options(), None).unwrap();
            assert_eq!(read_all(&mut stream).unwrap().len(), 3);
        }
    }
}

/// A batch with a dictionary large enough to be lent.
fn words(name: &str, word: &str) -> RecordBatch {
    let values = StringArray::from_iter_values((0..5000).map(|number| format!("{word} {number}")));
    let keys = Int32Array::from_iter_values((0..5000).rev());
    let column: ArrayRef = Arc::new(DictionaryArray::<Int32Type>::new(keys, Arc::new(values)));
    RecordBatch::try_from_iter([(name, column)]).unwrap()
}

/// `End::end_receiving`: earlier streams on a connection do not change a stream, and their lent memory
/// is not kept.
#[test]
fn a_stream_is_what_it_would_be_on_a_new_connection() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let tables = [("a", "w", "one"), ("b", "w", "two"), ("c", "other", "one")];
        for (ticket, name, word) in tables {
            let batch = words(name, word);
            let array = vec![export(&batch)];
            server
                .publish(ticket.as_bytes(), export_schema(&batch.schema()), array)
                .map_err(|(error, _)| error)
                .unwrap();
        }
        let client = client();
        for at in [0, 0, 1, 2, 2, 0, 1] {
            let (ticket, name, word) = tables[at];
            let ticket = ticket.as_bytes();
            let mut stream = client
                .get(&[&uri], ticket, &subject.options(), None)
                .unwrap();
            let schema = stream.schema().unwrap();
            assert!(read_all(&mut stream).unwrap() == [words(name, word)]);
            // The schema stays after the stream has left its connection.
            assert_eq!(common::names(&schema), [name]);
            assert_eq!(common::names(&stream.schema().unwrap()), [name]);
            eventually("what was lent is back", || {
                server.stats().lent_outstanding == 0
            });
        }
        assert_eq!(client.stats().connections_made, 1);
    }
}

/// `GetOptions::connect_timeout`: the longest possible time is no error.
#[test]
fn connecting_may_take_for_ever() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        serve(&server, "t", counting(2, 10));
        for connect_timeout in [Duration::MAX, Duration::from_nanos(u64::MAX)] {
            let options = GetOptions {
                connect_timeout,
                ..subject.options()
            };
            let client = client();
            let mut stream = client.get(&[&uri], b"t", &options, None).unwrap();
            assert_eq!(read_all(&mut stream).unwrap().len(), 2);
            let nowhere = client.get(&[&subject.nowhere()], b"t", &options, None);
            let error = nowhere.map(drop).unwrap_err();
            assert_eq!(error.status(), Status::Unreachable, "{error}");
        }
    }
}

/// A provider's next stream reuses the encoder only for the same schema; its dictionaries are
/// always sent again.
#[test]
fn each_stream_of_a_provider_has_its_own_schema() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let codes = || -> ArrayRef {
            let codes: DictionaryArray<Int32Type> = ["b", "a", "b"].into_iter().collect();
            Arc::new(codes)
        };
        let numbers = || -> ArrayRef { Arc::new(Int32Array::from(vec![1, 2, 3])) };
        let named = move |name: &str, column| RecordBatch::try_from_iter([(name, column)]).unwrap();
        let table = move |index: usize| match index % 4 {
            0 | 1 => named("codes", codes()),
            2 => named("numbers", numbers()),
            _ => named("other", numbers()),
        };
        let calls = AtomicUsize::new(0);
        let provider = FnProvider(move |_: &ServerRequest| {
            let batch = table(calls.fetch_add(1, Ordering::SeqCst));
            Ok(stream_of(
                batch.schema(),
                [Ok(batch.clone()), Ok(batch)].into_iter(),
            ))
        });
        serve(&server, "t", Box::new(provider));
        let client = client();
        for index in 0..8 {
            let mut stream = client.get(&[&uri], b"t", &subject.options(), None).unwrap();
            assert_same(
                &read_all(&mut stream).unwrap(),
                &[table(index), table(index)],
            );
        }
    }
}

/// Publishing fails for a batch that cannot be sent (here: a negative length). It gives the table
/// back, and leaves no ticket.
#[test]
fn a_broken_table_is_not_published() {
    let (server, uri) = server(SHM, ServerOptions::default());
    let mut batches = vec![export(&batch(0, 10)), export(&batch(10, 10))];
    // SAFETY: every reader checks the wrong number; pointers and release stay valid.
    unsafe { batches[1].raw_mut() }.array.length = -1;
    let refused = server.publish(b"t", export_schema(&common::schema()), batches);
    let (error, (schema, batches)) = refused.unwrap_err();
    assert_eq!(error.status(), Status::InvalidData, "{error}");
    assert!(!schema.is_released() && batches.len() == 2);
    assert!(batches.iter().all(|batch| !batch.is_released()));
    let asked = client().get(&[&uri], b"t", &GetOptions::default(), None);
    assert_eq!(asked.map(drop).unwrap_err().status(), Status::NotFound);
}

/// Publishing fails for a schema that cannot be sent: strings of the IPC format are UTF-8.
#[test]
fn a_schema_that_is_not_utf8_is_not_published() {
    let (server, uri) = server(SHM, ServerOptions::default());
    let pairs = |key: &[u8], value: &[u8]| {
        let mut bytes = 1_i32.to_ne_bytes().to_vec();
        for text in [key, value] {
            bytes.extend(i32::try_from(text.len()).unwrap().to_ne_bytes());
            bytes.extend(text);
        }
        bytes
    };
    let cases = [
        (
            pairs(b"k", b"\xff\xfe"),
            "the metadata value of \"k\" is not UTF-8",
        ),
        (pairs(b"\xff", b"v"), "metadata key 0 is not UTF-8"),
    ];
    for (metadata, told) in &cases {
        let mut schema = export_schema(&common::schema());
        // SAFETY: the struct still follows the C data interface: the metadata outlives it, and its
        // release frees what its private data names.
        let raw = unsafe { schema.raw_mut() };
        raw.metadata = metadata.as_ptr().cast();
        let refused = server.publish(b"t", schema, vec![export(&batch(0, 1))]);
        let (error, (_, batches)) = refused.unwrap_err();
        assert_eq!(error.status(), Status::InvalidData, "{error}");
        assert!(error.text().contains(told), "{error}");
        assert!(!batches[0].is_released());
        let asked = client().get(&[&uri], b"t", &GetOptions::default(), None);
        assert_eq!(asked.map(drop).unwrap_err().status(), Status::NotFound);
    }
}
