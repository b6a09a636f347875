//! Columns and rows of a get (rule Q12).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use arrow::array::{Int64Array, RecordBatch, StringArray};
use arrow::compute::concat_batches;
use arrow::datatypes::Schema;
use dipc::arena::{Arena, ArenaOptions};
use dipc::arrow::description::{Description, Endpoint};
use dipc::arrow::stream::ArrayReader as _;
use dipc::client::{Answer, GetOptions, PutOptions};
use dipc::device::DeviceKind;
use dipc::error::{Error, Result, Status};
use dipc::proto::{Role, Selection, Verb};
use dipc::server::{Authorizer, ServerHandle, ServerOptions, ServerRequest, SharedAuthorizer};
use parking_lot::Mutex;

use crate::common::{
    FnProvider, batch, export, export_schema, in_arena, names, read_all, schema, stream_of,
};
use crate::{SHM, SUBJECTS, Subject, client, eventually, serve, server};

pub const ROWS: usize = 100;

pub fn table() -> Vec<RecordBatch> {
    (0..4)
        .map(|index| batch(index * ROWS as i64, ROWS))
        .collect()
}

fn selection(columns: Option<&[&str]>, first_row: u64, rows: Option<u64>) -> Selection {
    let mut selection = Selection::new();
    if let Some(names) = columns {
        selection.set_columns(names.iter().copied()).unwrap();
    }
    selection.set_rows(first_row, rows);
    selection
}

fn options(subject: Subject, selection: &Selection) -> GetOptions {
    GetOptions {
        selection: selection.clone(),
        ..subject.options()
    }
}

/// The same of `table` by arrow-rs.
fn expected(selection: &Selection) -> RecordBatch {
    let whole = concat_batches(&schema(), &table()).unwrap();
    let first = usize::try_from(selection.first_row())
        .unwrap()
        .min(whole.num_rows());
    let left = whole.num_rows() - first;
    let rows = selection
        .rows()
        .map_or(left, |rows| left.min(usize::try_from(rows).unwrap()));
    let sliced = whole.slice(first, rows);
    let Some(names) = selection.columns() else {
        return sliced;
    };
    let index = |name: &String| whole.schema().index_of(name).unwrap();
    sliced
        .project(&names.iter().map(index).collect::<Vec<_>>())
        .unwrap()
}

/// Selections that end, begin or lie anywhere.
fn selections() -> Vec<Selection> {
    vec![
        selection(Some(&["text"]), 0, None),
        selection(Some(&["text", "n"]), 150, Some(120)),
        selection(None, 100, Some(100)),
        selection(None, 399, None),
        selection(Some(&["n"]), 0, Some(0)),
        selection(Some(&["n"]), 4_000, Some(1)),
        selection(Some(&[]), 50, Some(200)),
    ]
}

pub fn publish(server: &ServerHandle, ticket: &str, batches: &[RecordBatch]) {
    let exported = batches.iter().map(export).collect();
    let published = server.publish(ticket.as_bytes(), export_schema(&schema()), exported);
    published.map_err(|(error, _)| error).unwrap();
}

/// Pushes the whole table, as a host that knows nothing of selections.
fn push_all(request: &ServerRequest) -> Result<()> {
    request.start(&export_schema(&schema()), 1)?;
    for batch in table() {
        request
            .push(export(&batch), None, None)
            .map_err(|(error, _)| error)?;
    }
    request.finish(None)
}

/// A server with the table in each form: published, of a provider, pushed.
pub fn every_form(subject: Subject) -> (Arc<ServerHandle>, String, thread::JoinHandle<()>) {
    let (server, uri) = server(subject, ServerOptions::default());
    publish(&server, "published", &table());
    let provided = |_: &ServerRequest| Ok(stream_of(schema(), table().into_iter().map(Ok)));
    serve(&server, "provided", Box::new(FnProvider(provided)));
    server.serve_pull(b"pushed").unwrap();
    let server = Arc::new(server);
    let pushing = Arc::clone(&server);
    let thread = thread::spawn(move || {
        while let Ok(Some(request)) = pushing.next_request(None, None) {
            // The client's part of a failure is what the tests look at.
            let _ = push_all(&request);
            drop(request);
            pushing.drain_releases();
        }
    });
    (server, uri, thread)
}

pub const FORMS: [&[u8]; 3] = [b"published", b"provided", b"pushed"];

/// Rule Q12: published tables, providers and hosts that push give the selected rows and columns
/// alone, over every transport.
#[test]
fn every_form_of_a_table_is_selected_of() {
    for subject in SUBJECTS {
        let (server, uri, pushing) = every_form(subject);
        let client = client();
        for selection in selections() {
            let expected = expected(&selection);
            for form in FORMS {
                let options = options(subject, &selection);
                let mut stream = client.get(&[&uri], form, &options, None).unwrap();
                let columns = names(&stream.schema().unwrap());
                let batches = read_all(&mut stream).unwrap();
                let wanted: Vec<_> = expected
                    .schema()
                    .fields()
                    .iter()
                    .map(|it| it.name().clone())
                    .collect();
                assert_eq!(columns, wanted);
                let read = concat_batches(&expected.schema(), &batches).unwrap();
                assert_eq!(read, expected, "{selection:?} of {form:?}");
                assert!(batches.iter().all(|batch| batch.num_rows() > 0));
            }
        }
        assert_eq!(
            client.stats().connections_made,
            1,
            "connections are used again"
        );
        drop(client);
        server.stop(Duration::from_secs(5)).unwrap();
        pushing.join().unwrap();
    }
}

/// Rule Q12: a column that is not there, or is there twice, fails the get with a text that says
/// what is there; whoever gives the table, and also where a host that pushes goes on.
#[test]
fn columns_that_are_not_there_are_named() {
    for subject in SUBJECTS {
        let (server, uri, pushing) = every_form(subject);
        for form in FORMS {
            let options = options(subject, &selection(Some(&["n", "N"]), 0, None));
            let refused = client().get(&[&uri], form, &options, None);
            let error = refused.map(drop).unwrap_err();
            assert_eq!(error.status(), Status::InvalidArgument, "{form:?}: {error}");
            assert!(
                error
                    .text()
                    .contains("\"N\"; the table has \"n\", \"text\""),
                "{error}"
            );
        }
        server.stop(Duration::from_secs(5)).unwrap();
        pushing.join().unwrap();
    }
}

/// Rule Q12: a provider is asked for no more batches than the range needs, and its stream is
/// released, although it never ends.
#[test]
fn a_provider_ends_with_the_range() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let pulled = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&pulled);
        let endless = move |_: &ServerRequest| {
            let pulled = Arc::clone(&counter);
            let batches = (0..).map(move |index| {
                pulled.fetch_add(1, Ordering::SeqCst);
                Ok(batch(index * ROWS as i64, ROWS))
            });
            Ok(stream_of(schema(), batches))
        };
        serve(&server, "t", Box::new(FnProvider(endless)));
        let options = options(subject, &selection(None, 250, Some(200)));
        let mut stream = client().get(&[&uri], b"t", &options, None).unwrap();
        let batches = read_all(&mut stream).unwrap();
        let rows: Vec<_> = batches.iter().map(RecordBatch::num_rows).collect();
        assert_eq!(rows, [50, 100, 50]);
        assert_eq!(pulled.load(Ordering::SeqCst), 5);
        eventually("the stream is released", || Arc::strong_count(&pulled) == 2);
    }
}

/// Rule Q12: a client that goes while rows before its range are skipped ends the provider's stream.
#[test]
fn a_client_that_goes_ends_the_skipping() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let endless = |_: &ServerRequest| Ok(stream_of(schema(), (0..).map(|n| Ok(batch(n, 10)))));
        serve(&server, "t", Box::new(FnProvider(endless)));
        let options = options(subject, &selection(None, u64::MAX, None));
        let stream = client().get(&[&uri], b"t", &options, None).unwrap();
        assert_eq!(server.stats().streams_active, 1);
        drop(stream);
        eventually("the stream has ended", || {
            server.stats().streams_active == 0
        });
    }
}

/// Rule Q12: memory of an arena is lent where it lies, and only the part that is wanted; nothing is
/// copied at either end.
#[test]
fn a_selection_of_lent_memory_is_lent() {
    const MANY: usize = 1 << 20;
    let arena = Arena::new(DeviceKind::CPU, ArenaOptions::default()).unwrap();
    let numbers = Int64Array::from_iter_values(0..MANY as i64);
    let texts = StringArray::from_iter_values((0..MANY).map(|row| format!("row {row}")));
    let whole = RecordBatch::try_new(schema(), vec![Arc::new(numbers), Arc::new(texts)]).unwrap();
    let whole = in_arena(&arena, &whole);
    let (server, uri) = server(SHM, ServerOptions::default());
    publish(&server, "published", std::slice::from_ref(&whole));
    let given = whole.clone();
    let provided =
        move |_: &ServerRequest| Ok(stream_of(schema(), [Ok(given.clone())].into_iter()));
    serve(&server, "provided", Box::new(FnProvider(provided)));
    for form in [&b"published"[..], b"provided"] {
        let before = server.stats();
        let options = options(SHM, &selection(Some(&["n"]), 1_000, Some(65_536)));
        let mut stream = client().get(&[&uri], form, &options, None).unwrap();
        let batches = read_all(&mut stream).unwrap();
        assert_eq!(batches[0].column(0), &whole.column(0).slice(1_000, 65_536));
        let here = stream.stats();
        let wanted = 65_536 * 8;
        assert_eq!(
            (here.bytes_lent, here.bytes_copied, here.bytes_received),
            (wanted, 0, 0)
        );
        let there = server.stats();
        assert_eq!(there.bytes_lent - before.bytes_lent, wanted);
        assert_eq!(
            (there.bytes_copied, there.bytes_sent),
            (before.bytes_copied, before.bytes_sent)
        );
    }
}

/// Rule Q12: over a network, the bytes of other columns and rows are not sent.
#[test]
fn what_is_not_wanted_is_not_sent() {
    for subject in SUBJECTS {
        if subject.lends {
            continue;
        }
        let (server, uri, pushing) = every_form(subject);
        for form in FORMS {
            let options = options(subject, &selection(Some(&["n"]), 90, Some(20)));
            let mut stream = client().get(&[&uri], form, &options, None).unwrap();
            read_all(&mut stream).unwrap();
            let received = stream.stats().bytes_received;
            // Two batches of ten numbers each, padded to 64 bytes (rule A2).
            assert_eq!(received, 2 * 128, "{subject:?}");
        }
        server.stop(Duration::from_secs(5)).unwrap();
        pushing.join().unwrap();
    }
}

/// Rule Q12: the host sees the selection, in the authorizer too, and may select by itself, but only
/// before its stream begins.
#[test]
fn the_host_may_select_by_itself() {
    type Seen = Arc<Mutex<Vec<Selection>>>;
    struct Notes(Seen);
    impl Authorizer for Notes {
        fn authorize(&self, request: &ServerRequest) -> Result<()> {
            self.0.lock().push(request.selection().clone());
            Ok(())
        }
    }
    for subject in SUBJECTS {
        let seen = Seen::default();
        let (server, uri) = server(
            subject,
            ServerOptions {
                authorizer: Some(SharedAuthorizer(Arc::new(Notes(Arc::clone(&seen))))),
                ..ServerOptions::default()
            },
        );
        let own = Arc::new(batch(7, 3).project(&[1]).unwrap());
        let given = Arc::clone(&own);
        let selecting = move |request: &ServerRequest| {
            request.select_by_host()?;
            let given = given.as_ref().clone();
            Ok(stream_of(given.schema(), [Ok(given)].into_iter()))
        };
        serve(&server, "own", Box::new(FnProvider(selecting)));
        server.serve_pull(b"pulled").unwrap();
        let wanted = selection(Some(&["text"]), 7, Some(3));
        let client = client();
        let options = options(subject, &wanted);
        let mut stream = client.get(&[&uri], b"own", &options, None).unwrap();
        assert_eq!(read_all(&mut stream).unwrap(), [own.as_ref().clone()]);
        assert_eq!(*seen.lock(), std::slice::from_ref(&wanted));

        let asked = thread::scope(|scope| {
            let reading = scope.spawn(|| {
                let mut stream = client.get(&[&uri], b"pulled", &options, None)?;
                read_all(&mut stream)
            });
            let request = server.next_request(None, None).unwrap().unwrap();
            assert_eq!(*request.selection(), wanted);
            request.select_by_host().unwrap();
            let schema = own.schema();
            request.start(&export_schema(&schema), 1).unwrap();
            request
                .push(export(&own), None, None)
                .map_err(|it| it.0)
                .unwrap();
            request.select_by_host().unwrap();
            assert!(!request.is_complete(), "the library counts no rows");
            request.finish(None).unwrap();
            reading.join().unwrap()
        });
        assert_eq!(asked.unwrap(), [own.as_ref().clone()]);
    }
}

/// Promise of `dipc_request_is_complete`: a host that pushes learns that the client has its range,
/// and later batches are released. The client has the end without the host's last word.
#[test]
fn a_host_that_pushes_learns_of_the_end_of_the_range() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        server.serve_pull(b"t").unwrap();
        let options = options(subject, &selection(Some(&["n"]), 10, Some(5)));
        let client = client();
        thread::scope(|scope| {
            let reading = scope.spawn(|| {
                let mut stream = client.get(&[&uri], b"t", &options, None)?;
                read_all(&mut stream)
            });
            let request = server.next_request(None, None).unwrap().unwrap();
            request.start(&export_schema(&schema()), 1).unwrap();
            let error = request.select_by_host().unwrap_err();
            assert_eq!(error.status(), Status::InvalidArgument);
            assert!(!request.is_complete());
            let first = batch(0, 20);
            request
                .push(export(&first), None, None)
                .map_err(|it| it.0)
                .unwrap();
            assert!(request.is_complete());
            let read = reading.join().unwrap().unwrap();
            assert_eq!(read[0].column(0), &first.column(0).slice(10, 5));
            // The connection carries the next stream, although the host has not finished this one.
            let listed = client
                .list(&[&uri], b"", &GetOptions::default(), None)
                .unwrap();
            drop(listed);
            let later = batch(20, 20);
            let column = Arc::downgrade(later.column(0));
            request
                .push(export(&later), None, None)
                .map_err(|it| it.0)
                .unwrap();
            drop(later);
            eventually("the batch is released", || {
                server.drain_releases();
                column.strong_count() == 0
            });
            request.finish(None).unwrap();
        });
    }
}

/// Rule Q12: the parts of a stream on two connections agree, as the parts of every stream do.
#[test]
fn two_connections_carry_one_selection() {
    for subject in SUBJECTS {
        let (server, _, pushing) = every_form(subject);
        let [metadata, data] =
            [Role::Metadata, Role::Data].map(|role| server.location(role).unwrap());
        let wanted = selection(Some(&["text"]), 150, Some(120));
        let expected = expected(&wanted);
        for form in FORMS {
            let options = options(subject, &wanted);
            let uris = [metadata.as_str(), &data];
            let mut stream = client().get(&uris, form, &options, None).unwrap();
            let read = concat_batches(&expected.schema(), &read_all(&mut stream).unwrap());
            assert_eq!(read.unwrap(), expected);
        }
        server.stop(Duration::from_secs(5)).unwrap();
        pushing.join().unwrap();
    }
}

/// Rule Q12: only a get has a selection. A table in parts has one of columns, which each part
/// gives; a range of its rows is refused.
#[test]
fn a_selection_goes_with_a_get() {
    let (server, uri) = server(SHM, ServerOptions::default());
    publish(&server, "t", &table());
    let client = client();
    let wanted = options(SHM, &selection(Some(&["n"]), 0, None));
    let put = PutOptions::default();
    let (c_schema, t) = (export_schema(&schema()), &b"t"[..]);
    let uris = [uri.as_str()];
    let refused: Vec<Result<()>> = vec![
        client.describe(&uris, t, &wanted, None).map(drop),
        client.list(&uris, t, &wanted, None).map(drop),
        client
            .exchange(&uris, t, (&c_schema, 1), (&put, &wanted), None)
            .map(drop),
        client
            .get_parts(&uris, t, &options(SHM, &selection(None, 1, None)), None)
            .map(drop),
    ];
    for outcome in refused {
        let error = outcome.unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument, "{error}");
    }
    let endpoint = Endpoint {
        descriptor: t.to_vec(),
        ..Endpoint::default()
    };
    let description = Description {
        endpoints: vec![endpoint.clone(), endpoint.clone()],
        ..Description::default()
    };
    server.set_description(t, description).unwrap();
    let mut parts = client.get_parts(&uris, t, &wanted, None).unwrap();
    let read = read_all(&mut parts).unwrap();
    assert_eq!(
        read.iter().map(RecordBatch::num_rows).sum::<usize>(),
        8 * ROWS
    );
    assert!(read.iter().all(|batch| batch.num_columns() == 1));
    let range = options(SHM, &selection(None, 1, Some(2)));
    let mut part = client.get_part(&uris, &endpoint, &range, None).unwrap();
    assert_eq!(read_all(&mut part).unwrap(), [batch(0, ROWS).slice(1, 2)]);
}

/// Rule Q12: a get that does not wait has a selection too.
#[test]
fn a_get_without_a_wait_selects() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        publish(&server, "t", &table());
        let wanted = options(subject, &selection(Some(&["n"]), 150, Some(10)));
        let client = client();
        let pending = client
            .start(Verb::Get, &[&uri], b"t", &wanted, None)
            .unwrap();
        let answer = loop {
            match pending.try_answer(|_| true).unwrap() {
                Some(answer) => break answer,
                None => thread::sleep(Duration::from_millis(1)),
            }
        };
        let Answer::Stream(mut stream) = answer else {
            panic!("another answer")
        };
        let read = read_all(&mut *stream).unwrap();
        assert_eq!(read[0].column(0), batch(150, 10).column(0));
    }
}

/// Rules Q12 and A5: a stream without batches has the selected schema.
#[test]
fn a_table_without_rows_has_the_selected_columns() {
    let (server, uri) = server(SHM, ServerOptions::default());
    publish(&server, "t", &[]);
    let wanted = options(SHM, &selection(Some(&["text"]), 3, Some(4)));
    let mut stream = client().get(&[&uri], b"t", &wanted, None).unwrap();
    assert_eq!(names(&stream.schema().unwrap()), ["text"]);
    assert!(read_all(&mut stream).unwrap().is_empty());
    let broken = |_: &ServerRequest| -> Result<_> {
        let failing = [
            Ok(batch(0, 10)),
            Err(Error::new(Status::Io, "the disk is gone")),
        ];
        Ok(stream_of(
            Arc::new(Schema::clone(&schema())),
            failing.into_iter(),
        ))
    };
    serve(&server, "broken", Box::new(FnProvider(broken)));
    // An error behind the range does not concern the client.
    let wanted = options(SHM, &selection(None, 2, Some(8)));
    let mut stream = client().get(&[&uri], b"broken", &wanted, None).unwrap();
    assert_eq!(read_all(&mut stream).unwrap(), [batch(2, 8)]);
}
