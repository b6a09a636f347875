//! Filters of a get (rule Q12).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use arrow::array::{ArrayRef, AsArray as _, Int64Array, NullArray, RecordBatch, StringArray};
use arrow::compute::{concat_batches, is_null};
use arrow::datatypes::Int64Type;
use dipc::FilterBuilder;
use dipc::arena::{Arena, ArenaOptions};
use dipc::cancel::Cancel;
use dipc::client::GetOptions;
use dipc::device::DeviceKind;
use dipc::error::{Result, Status};
use dipc::filter::rows::MOST_FREE_ROWS;
use dipc::proto::{Credit, Selection};
use dipc::server::{ServerOptions, ServerRequest};
use dipc::transport::BodyPolicy;

use crate::common::{
    FnProvider, batch, export, export_schema, in_arena, read_all, schema, stream_of,
};
use crate::selecting::{FORMS, ROWS, every_form, publish, table};
use crate::{SHM, SUBJECTS, client, eventually, serve, server};

// Messages of pyarrow's `Expression.to_substrait`, for the schema of these tests.

/// `n >= 250`
const FROM_250: &[u8] =
    b"\x0aZ\x12Xhttps://github.com/substrait-io/substrait/blob/main/extensions/functions_compa\
    rison.yaml\x12\x07\x1a\x05\x1a\x03gte\x1a+\x0a\x1d\x1a\x1b\x1a\x04\x0a\x02\x10\x01\x22\
    \x0a\x1a\x08\x12\x06\x0a\x02\x12\0\x22\0\x22\x07\x1a\x05\x0a\x038\xfa\x01\x1a\x0aexpress\
    ion\x22\x17\x0a\x01n\x0a\x04text\x12\x0c\x0a\x04:\x02\x10\x01\x0a\x04b\x02\x10\x01:\x10\
    \x10,*\x0cAcero 26.0.1";

/// `n / 0 > 1`
const BY_ZERO: &[u8] =
    b"\x0aZ\x12Xhttps://github.com/substrait-io/substrait/blob/main/extensions/functions_arith\
    metic.yaml\x0a\x5c\x08\x01\x12Xhttps://github.com/substrait-io/substrait/blob/main/exten\
    sions/functions_comparison.yaml\x0a\x5c\x08\x02\x12Xhttps://github.com/substrait-io/subs\
    trait/blob/main/extensions/functions_arithmetic.yaml\x12\x0c\x1a\x0a\x08\x02\x1a\x06divi\
    de\x12\x0a\x1a\x08\x08\x01\x10\x01\x1a\x02gt\x1aT\x0aF\x1aD\x08\x01\x1a\x04\x0a\x02\x10\
    \x01\x222\x1a0\x1a.\x1a\x04:\x02\x10\x01\x22\x0a\x1a\x08\x12\x06\x0a\x02\x12\0\x22\0\x22\
    \x06\x1a\x04\x0a\x028\0*\x12\x0a\x08overflow\x12\x06SILENT\x22\x06\x1a\x04\x0a\x028\x01\
    \x1a\x0aexpression\x22\x17\x0a\x01n\x0a\x04text\x12\x0c\x0a\x04:\x02\x10\x01\x0a\x04b\
    \x02\x10\x01:\x10\x10,*\x0cAcero 26.0.1";

/// `text.is_null()`
const NO_TEXT: &[u8] =
    b"\x0aZ\x12Xhttps://github.com/substrait-io/substrait/blob/main/extensions/functions_compa\
    rison.yaml\x12\x0b\x1a\x09\x1a\x07is_null\x1a$\x0a\x16\x1a\x14\x1a\x04\x0a\x02\x10\x02\
    \x22\x0c\x1a\x0a\x12\x08\x0a\x04\x12\x02\x08\x01\x22\0\x1a\x0aexpression\x22\x17\x0a\x01\
    n\x0a\x04text\x12\x0c\x0a\x04:\x02\x10\x01\x0a\x04b\x02\x10\x01:\x10\x10,*\x0cAcero 26.0\
    .1";

fn filter(message: &[u8]) -> Selection {
    let mut selection = Selection::new();
    selection.set_filter(message).unwrap();
    selection
}

fn numbers(batches: &[RecordBatch], column: usize) -> Vec<i64> {
    let of = |batch: &RecordBatch| {
        let column = batch.column(column).as_primitive::<Int64Type>();
        column.values().to_vec()
    };
    batches.iter().flat_map(of).collect()
}

/// Rule Q12: published tables, providers and hosts that push give the rows alone that pass, over
/// every transport. A batch without such rows is not sent.
#[test]
fn every_form_of_a_table_is_filtered() {
    for subject in SUBJECTS {
        let (server, uri, pushing) = every_form(subject);
        let client = client();
        for form in FORMS {
            let get = |selection: Selection| {
                let options = GetOptions {
                    selection,
                    ..subject.options()
                };
                let mut stream = client.get(&[&uri], form, &options, None).unwrap();
                read_all(&mut stream).unwrap()
            };
            let from_250 = get(filter(FROM_250));
            assert_eq!(numbers(&from_250, 0), (250..400).collect::<Vec<_>>());
            assert_eq!(from_250.len(), 2, "whole batches without such rows");

            let whole = concat_batches(&schema(), &table()).unwrap();
            let expected = is_null(whole.column(1)).unwrap().true_count();
            let no_text = concat_batches(&schema(), &get(filter(NO_TEXT))).unwrap();
            assert_eq!(no_text.num_rows(), expected);
            assert_eq!(no_text.column(1).null_count(), expected);
        }
        drop(client);
        server.stop(Duration::from_secs(5)).unwrap();
        pushing.join().unwrap();
    }
}

/// Rule Q12: the filter comes first and sees columns that are not asked for, then the range counts
/// the rows that have passed, then the columns are taken.
#[test]
fn the_filter_comes_before_range_and_columns() {
    for subject in SUBJECTS {
        let (_server, uri, _pushing) = every_form(subject);
        for form in FORMS {
            let mut selection = filter(NO_TEXT);
            selection.set_rows(2, Some(30));
            selection.set_columns(["n"]).unwrap();
            let options = GetOptions {
                selection,
                ..subject.options()
            };
            let mut stream = client().get(&[&uri], form, &options, None).unwrap();
            let read = read_all(&mut stream).unwrap();
            assert!(read.iter().all(|batch| batch.num_columns() == 1));
            // Each seventh row has no text.
            let expected: Vec<_> = (0..400).filter(|n| n % 7 == 0).skip(2).take(30).collect();
            assert_eq!(numbers(&read, 0), expected);
        }
    }
}

/// Rule Q12: what a filter cannot be, or cannot do, fails the get with a text that says why, whoever
/// gives the table. The server goes on.
#[test]
fn filters_that_do_not_fit_are_refused() {
    let patched = |from: &[u8], to: &[u8]| {
        let mut message = FROM_250.to_vec();
        let at = message.windows(from.len()).position(|it| it == from);
        message.splice(at.unwrap()..at.unwrap() + from.len(), to.iter().copied());
        message
    };
    let cases: [(Vec<u8>, Status, &str); 4] = [
        (patched(b"gte", b"ggg"), Status::Unsupported, "ggg"),
        (
            patched(b"\x01n\x0a", b"\x01m\x0a"),
            Status::InvalidArgument,
            "m",
        ),
        (b"no message".to_vec(), Status::InvalidArgument, "filter"),
        (BY_ZERO.to_vec(), Status::InvalidArgument, "zero"),
    ];
    for subject in SUBJECTS {
        let (_server, uri, _pushing) = every_form(subject);
        let client = client();
        for form in FORMS {
            for (message, status, text) in &cases {
                let options = GetOptions {
                    selection: filter(message),
                    ..subject.options()
                };
                let got = client.get(&[&uri], form, &options, None);
                let error = got
                    .and_then(|mut stream| read_all(&mut stream))
                    .unwrap_err();
                assert_eq!(error.status(), *status, "{error}");
                assert!(error.text().contains(text), "{error}");
            }
            let mut stream = client.get(&[&uri], form, &subject.options(), None).unwrap();
            assert_eq!(numbers(&read_all(&mut stream).unwrap(), 0).len(), 4 * ROWS);
        }
    }
}

/// Promise of filters: batches of which all rows pass stay lent where the producer has them.
#[test]
fn batches_that_pass_whole_stay_lent() {
    const MANY: usize = 1 << 20;
    let arena = Arena::new(DeviceKind::CPU, ArenaOptions::default()).unwrap();
    let numbers = Int64Array::from_iter_values(1_000..1_000 + MANY as i64);
    let texts = StringArray::from_iter_values((0..MANY).map(|row| format!("row {row}")));
    let whole = RecordBatch::try_new(schema(), vec![Arc::new(numbers), Arc::new(texts)]).unwrap();
    let whole = in_arena(&arena, &whole);
    let (server, uri) = server(SHM, ServerOptions::default());
    publish(&server, "published", std::slice::from_ref(&whole));
    let options = GetOptions {
        selection: filter(FROM_250),
        ..SHM.options()
    };
    let mut stream = client().get(&[&uri], b"published", &options, None).unwrap();
    assert_eq!(read_all(&mut stream).unwrap(), [whole]);
    let stats = stream.stats();
    assert_eq!((stats.bytes_copied, stats.bytes_received), (0, 0));
    assert_eq!(server.stats().bytes_copied, 0);
}

/// Promise of `Request::take_selection`: a host that reads the filter applies it by itself, and the
/// library does not.
#[test]
fn the_host_may_filter_by_itself() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let own = move |request: &ServerRequest| -> Result<_> {
            assert_eq!(request.selection().filter(), Some(FROM_250));
            request.select_by_host()?;
            Ok(stream_of(schema(), [Ok(batch(7, 3))].into_iter()))
        };
        serve(&server, "own", Box::new(FnProvider(own)));
        let options = GetOptions {
            selection: filter(FROM_250),
            ..subject.options()
        };
        let mut stream = client().get(&[&uri], b"own", &options, None).unwrap();
        assert_eq!(read_all(&mut stream).unwrap(), [batch(7, 3)]);
    }
}

/// Promise of the figures: batches of which a filter or a range leaves rows out are read whole.
/// Batches that a range skips are read too, and none behind its end, whoever gives the table.
#[test]
fn rows_are_counted_as_read_and_as_sent() {
    let mut range = Selection::new();
    range.set_rows(150, Some(120));
    for subject in SUBJECTS {
        let (server, uri, _pushing) = every_form(subject);
        let client = client();
        for form in FORMS {
            let label = std::str::from_utf8(form).unwrap();
            let (mut read, mut sent) = (0, 0);
            for (selection, more_read, more_sent) in [
                (Selection::new(), 400, 400),
                (filter(FROM_250), 400, 150),
                (range.clone(), 300, 120),
            ] {
                let options = GetOptions {
                    selection,
                    ..subject.options()
                };
                let mut stream = client.get(&[&uri], form, &options, None).unwrap();
                read_all(&mut stream).unwrap();
                (read, sent) = (read + more_read, sent + more_sent);
                let sums = server.label_stats(label).unwrap();
                assert_eq!((sums.rows_read, sums.rows), (read, sent), "{label}");
            }
        }
        let sums = server.stats().streams;
        assert_eq!((sums.rows_read, sums.rows), (3 * 1100, 3 * 670));
    }
}

/// Promise of the pull form: what the host does wrong is not told as the fault of a client that
/// filters. Its stream goes on where the host pushes behind the end, and comes whole.
#[test]
fn a_push_behind_the_end_is_not_the_clients_fault() {
    const LARGE: usize = 20_000;
    let soon = Some(Duration::from_secs(10));
    for subject in SUBJECTS {
        // Lent bodies would take no room.
        let options = ServerOptions {
            body: BodyPolicy::Packed,
            ..ServerOptions::default()
        };
        let (server, uri) = server(subject, options);
        server.serve_pull(b"t").unwrap();
        let options = GetOptions {
            selection: filter(FROM_250),
            window: Credit {
                batches: 8,
                // Room for one batch, and a part of another one.
                bytes: 512 << 10,
            },
            ..subject.options()
        };
        let client = client();
        let (mut stream, request) = thread::scope(|scope| {
            let begun = scope.spawn(|| {
                let request = server.next_request(soon, None).unwrap().unwrap();
                request.start(&export_schema(&schema()), 1).unwrap();
                request
            });
            let stream = client.get(&[&uri], b"t", &options, None).unwrap();
            (stream, begun.join().unwrap())
        });
        let push = |first| {
            let pushed = request.push(export(&batch(first, LARGE)), None, Some(Duration::ZERO));
            pushed.map_err(|(error, _)| error.status())
        };
        let mut first = 250;
        while push(first).is_ok() {
            first += LARGE as i64;
        }
        // The end waits behind a batch for which the client has no room.
        let ended = request.finish(Some(Duration::ZERO)).unwrap_err();
        assert_eq!(ended.status(), Status::Timeout);
        assert_eq!(push(first), Err(Status::InvalidArgument));
        let read = thread::scope(|scope| {
            let reading = scope.spawn(|| read_all(&mut stream));
            let finished = request.finish(soon);
            (reading.join().unwrap(), finished)
        });
        assert_eq!(
            numbers(&read.0.unwrap(), 0),
            (250..first).collect::<Vec<_>>()
        );
        read.1.unwrap();
    }
}

/// Notes its drop.
struct Ends(Arc<AtomicBool>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Promise of filters: a filter at work on a batch ends with its client.
#[test]
fn a_filter_at_work_ends_with_its_client() {
    let column: ArrayRef = Arc::new(NullArray::new(MOST_FREE_ROWS));
    let batch = RecordBatch::try_from_iter_with_nullable([("n", column, true)]).unwrap();
    let schema = batch.schema();
    let mut builder = FilterBuilder::new(&schema);
    let column = builder.column(&["n".to_owned()]).unwrap().0;
    let tests = (0..500).map(|_| builder.call("is_null", vec![column.clone()]));
    let tests: Vec<_> = tests.collect();
    let root = builder.call("or", tests);
    let message = builder.finish(root);
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let flags = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let [begun, ended] = flags.clone();
        let batch = batch.clone();
        let provider = FnProvider(move |_: &ServerRequest| {
            let (begun, batch, ends) = (begun.clone(), batch.clone(), Ends(ended.clone()));
            let schema = batch.schema();
            let batches = std::iter::once_with(move || {
                begun.store(true, Ordering::SeqCst);
                Ok(batch)
            });
            // The stream has it until its end.
            let batches = batches.inspect(move |_| _ = &ends);
            Ok(stream_of(schema, batches))
        });
        serve(&server, "t", Box::new(provider));
        let client = client();
        let cancel = Cancel::new().unwrap();
        let [begun, ended] = flags;
        thread::scope(|scope| {
            let asking = scope.spawn(|| {
                let options = GetOptions {
                    selection: filter(&message),
                    ..subject.options()
                };
                let stream = client.get(&[&uri], b"t", &options, Some(&cancel));
                stream.and_then(|mut stream| read_all(&mut stream))
            });
            eventually("the filter has its batch", || begun.load(Ordering::SeqCst));
            cancel.cancel();
            let error = asking.join().unwrap().unwrap_err();
            assert_eq!(error.status(), Status::Cancelled, "{error}");
        });
        eventually("the filter has ended", || ended.load(Ordering::SeqCst));
    }
}
