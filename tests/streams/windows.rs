//! Back-pressure (rule E5).

use crate::common;
use crate::common::{
    FnProvider, batch, counting, export, export_schema, import, read_all, stream_of,
};
use crate::{SHM, SUBJECTS, assert_same, client, eventually, serve, server};
use arrow::array::{ArrayRef, DictionaryArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Int32Type, Schema};
use dipc::arrow::stream::{ArrayReader, export_device_stream};
use dipc::arrow::{OwnedDeviceArray, OwnedSchema};
use dipc::client::GetOptions;
use dipc::error::{Result, Status};
use dipc::proto::Credit;
use dipc::server::{ServerOptions, ServerRequest};
use dipc::transport::BodyPolicy;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

/// Rule E5: a consumer that keeps every batch of a table larger than the window gets all of it.
#[test]
fn a_consumer_that_keeps_everything_is_not_starved() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        serve(&server, "t", counting(100, 20_000));
        let options = GetOptions {
            window: Credit {
                batches: 4,
                bytes: 1 << 20,
            },
            lent_limit: 8 << 20,
            ..subject.options()
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
            (stats.bytes_lent > 0) == subject.lends && stats.bytes_lent <= 9 << 20,
            "{stats:?}"
        );
        assert!(stats.bytes_received > 0, "{stats:?}");
    }
}

/// Rule E5: a consumer that never reads pauses the pull from the producer.
#[test]
fn a_consumer_that_never_reads_stops_the_producer() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let pulled = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&pulled);
        let provider = FnProvider(move |_: &ServerRequest| {
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
            ..subject.options()
        };
        let mut stream = client().get(&[&uri], b"t", &options, None).unwrap();
        eventually("the window is full", || pulled.load(Ordering::SeqCst) >= 8);
        thread::sleep(Duration::from_millis(100));
        assert_eq!(pulled.load(Ordering::SeqCst), 8);
        // The pull continues with the consumer.
        assert_eq!(read_all(&mut stream).unwrap().len(), 1000);
    }
}

/// Rule E5: bodies that wait for a slow consumer do not pause the producer before the window does:
/// the next body is made while one is written.
#[test]
fn a_body_that_is_being_written_does_not_stop_the_producer() {
    for subject in SUBJECTS {
        let options = ServerOptions {
            body: BodyPolicy::Packed,
            ..Default::default()
        };
        let (server, uri) = server(subject, options);
        let pulled = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&pulled);
        let provider = FnProvider(move |_: &ServerRequest| {
            let counted = Arc::clone(&counted);
            let batches = (0..20).map(move |index| {
                counted.fetch_add(1, Ordering::SeqCst);
                Ok(batch(index * 100_000, 100_000))
            });
            Ok(stream_of(common::schema(), batches))
        });
        serve(&server, "t", Box::new(provider));
        // Bodies of two megabytes: more than any socket takes at once.
        let options = GetOptions {
            window: Credit {
                batches: 10,
                bytes: 1 << 30,
            },
            ..subject.options()
        };
        let mut stream = client().get(&[&uri], b"t", &options, None).unwrap();
        eventually("the window is full", || pulled.load(Ordering::SeqCst) == 10);
        assert_eq!(read_all(&mut stream).unwrap().len(), 20);
    }
}

/// Rule E5: one batch of any size is admitted if nothing is outstanding.
#[test]
fn a_batch_larger_than_the_window_passes() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        serve(&server, "t", counting(5, 100_000));
        let options = GetOptions {
            window: Credit {
                batches: 2,
                bytes: 1000,
            },
            ..subject.options()
        };
        let mut stream = client().get(&[&uri], b"t", &options, None).unwrap();
        assert_eq!(read_all(&mut stream).unwrap().len(), 5);
    }
}

/// The pull form: a push without room in time gives the array back.
#[test]
fn a_push_without_room_times_out_and_keeps_the_array() {
    let (server, uri) = server(SHM, ServerOptions::default());
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

/// A cancel while the producer waits to finish is answered.
#[test]
fn a_finish_without_room_can_be_cancelled() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        serve(&server, "t", counting(6, 20_000));
        let options = GetOptions {
            // Four batches and a part of the fifth.
            window: Credit {
                batches: 100,
                bytes: 2_000_000,
            },
            ..subject.options()
        };
        let client = client();
        for _ in 0..3 {
            let stream = client.get(&[&uri], b"t", &options, None).unwrap();
            thread::sleep(Duration::from_millis(20));
            drop(stream);
            eventually("the connection is free", || {
                client.stats().connections_idle == subject.kept_after_cancel()
                    && server.stats().streams_active == 0
            });
        }
        let made = 3 - 2 * subject.kept_after_cancel();
        assert_eq!(client.stats().connections_made, made);
    }
}

/// Rule E5: dictionaries do not count in the window of batches. So a batch may need more
/// dictionaries than the window has batches, and each may be larger than the window of bytes.
#[test]
fn more_dictionaries_than_the_window_has_batches() {
    let columns = 20;
    let fields: Vec<_> = (0..columns)
        .map(|index| {
            let values = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
            Field::new(format!("c{index}"), values, true)
        })
        .collect();
    let schema = Arc::new(Schema::new(fields));
    let table = |number: usize| {
        let arrays = (0..columns).map(|column| {
            let words = (0..500).map(|row| format!("{number} {column} {}", row % 300));
            let words: Vec<_> = words.collect();
            let array: DictionaryArray<Int32Type> = words.iter().map(String::as_str).collect();
            Arc::new(array) as ArrayRef
        });
        RecordBatch::try_new(Arc::clone(&schema), arrays.collect()).unwrap()
    };
    let tables: Vec<_> = (0..4).map(table).collect();
    for subject in SUBJECTS {
        for bytes in [1000, 1 << 20] {
            let (server, uri) = server(subject, ServerOptions::default());
            let (served, fields) = (tables.clone(), Arc::clone(&schema));
            let provider = FnProvider(move |_: &ServerRequest| {
                let batches = served.clone().into_iter().map(Ok);
                Ok(stream_of(Arc::clone(&fields), batches))
            });
            serve(&server, "t", Box::new(provider));
            let options = GetOptions {
                window: Credit { batches: 2, bytes },
                ..subject.options()
            };
            let mut stream = client().get(&[&uri], b"t", &options, None).unwrap();
            assert_same(&read_all(&mut stream).unwrap(), &tables);
        }
    }
}

/// Existing batches, with pauses after certain batches until the consumer has all earlier ones.
struct Stopping {
    batches: std::vec::IntoIter<OwnedDeviceArray>,
    stops: Vec<usize>,
    given: usize,
    taken: mpsc::Receiver<usize>,
}

impl ArrayReader for Stopping {
    fn schema(&mut self) -> Result<OwnedSchema> {
        Ok(export_schema(&common::schema()))
    }

    fn next(&mut self) -> Result<Option<OwnedDeviceArray>> {
        if self.stops.contains(&self.given) {
            let ten = Duration::from_secs(10);
            while self.taken.recv_timeout(ten).map_err(|_| {
                common::broken("the consumer does not get what was made before a stop")
            })? < self.given
            {}
        }
        self.given += 1;
        Ok(self.batches.next())
    }

    fn device_type(&self) -> i32 {
        1
    }
}

/// Promise: each batch of a provider reaches the consumer, even if no further batch follows.
#[test]
fn a_provider_that_stops_keeps_nothing_back() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let batches: Vec<_> = (0..600).map(|index| batch(index, 1)).collect();
        let made = batches.clone();
        let (tell, taken) = mpsc::channel();
        let taken = Mutex::new(Some(taken));
        let provider = FnProvider(move |_: &ServerRequest| {
            // Pauses with a growing distance, from 8 to 39 batches.
            let stops = (8..40).scan(0, |at, few| {
                *at += few;
                Some(*at)
            });
            Ok(export_device_stream(Box::new(Stopping {
                batches: made.iter().map(export).collect::<Vec<_>>().into_iter(),
                stops: stops.collect(),
                given: 0,
                taken: taken.lock().unwrap().take().unwrap(),
            })))
        });
        serve(&server, "t", Box::new(provider));
        let mut stream = client()
            .get(&[&uri], b"t", &subject.options(), None)
            .unwrap();
        let (schema, mut received) = (stream.schema().unwrap(), Vec::new());
        while let Some(array) = stream.next().unwrap() {
            received.push(import(array, &schema));
            // After the last pause nobody listens.
            let _ = tell.send(received.len());
        }
        assert_same(&received, &batches);
    }
}
