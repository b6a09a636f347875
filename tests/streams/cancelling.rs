//! Streams that clients send, once their token has been triggered.

use std::sync::mpsc;

use dipc::arrow::stream::ArrayReader as _;
use dipc::cancel::Cancel;
use dipc::client::Put;
use dipc::error::{Result, Status};
use dipc::server::{ServerHandle, ServerOptions};

use crate::common::{batch, export_schema, schema, stream_of};
use crate::putting::{HOST, options, push, take_by};
use crate::{SUBJECTS, client, server};

/// Tells how many batches the host has read of each table, and how the table ended.
fn count_batches(server: &ServerHandle) -> mpsc::Receiver<(u64, Result<()>)> {
    let (sender, taken) = mpsc::channel();
    take_by(server, move |request| {
        let mut source = request.source()?;
        let mut count = 0;
        let outcome = loop {
            match source.next() {
                Ok(Some(_)) => count += 1,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        let _ = sender.send((count, outcome.clone()));
        outcome
    });
    taken
}

/// `dipc_cancel_trigger`: every later call ends, even if it would not wait. Nothing of a table is
/// sent after it, not its end either: the server's host does not take the table as whole.
#[test]
fn nothing_is_sent_after_a_cancel() {
    type Later = fn(&mut Put) -> Result<()>;
    let later: [(&str, Later); 3] = [
        ("push", |put| push(put, &batch(0, 10))),
        ("finish", |put| put.finish(None).map(drop)),
        ("next_result", |put| put.next_result(None).map(drop)),
    ];
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let taken = count_batches(&server);
        let client = client();
        for (name, later) in later {
            let what = format!("{name}, {}", subject.scheme);
            let cancel = Cancel::new().unwrap();
            let described = (&export_schema(&schema()), HOST);
            let mut put = client
                .put(&[&uri], b"t", described, &options(subject), Some(&cancel))
                .unwrap();
            for index in 0..3 {
                push(&mut put, &batch(index, 10)).unwrap();
            }
            cancel.cancel();
            let error = later(&mut put).unwrap_err();
            assert_eq!(error.status(), Status::Cancelled, "{what}: {error}");
            assert!(put.is_over(), "{what}");
            assert_eq!(push(&mut put, &batch(0, 10)).unwrap_err(), error, "{what}");
            assert_eq!(put.finish(None).unwrap_err(), error, "{what}");
            let (count, outcome) = taken.recv().unwrap();
            assert!(count <= 3, "{what}: {count} batches");
            let status = outcome.unwrap_err().status();
            assert_eq!(status, Status::Cancelled, "{what}");
        }
    }
}

/// The same for a table whose batches a source gives: none is asked for after a cancel.
#[test]
fn no_source_is_asked_after_a_cancel() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let taken = count_batches(&server);
        let client = client();
        let cancel = Cancel::new().unwrap();
        let (token, (asked, seen)) = (cancel.clone(), mpsc::channel());
        let batches = (0..100).map(move |index| {
            let _ = asked.send(index);
            if index == 2 {
                token.cancel();
            }
            Ok(batch(index, 10))
        });
        let source = stream_of(schema(), batches);
        let mut put = client
            .put_stream(&[&uri], b"t", source, &options(subject), Some(&cancel))
            .map_err(|(error, _)| error)
            .unwrap();
        let error = put.finish(None).unwrap_err();
        assert_eq!(error.status(), Status::Cancelled, "{}", subject.scheme);
        drop(put);
        assert_eq!(
            seen.iter().collect::<Vec<_>>(),
            [0, 1, 2],
            "{}",
            subject.scheme
        );
        let (count, outcome) = taken.recv().unwrap();
        assert!(count <= 2, "{}: {count} batches", subject.scheme);
        let status = outcome.unwrap_err().status();
        assert_eq!(status, Status::Cancelled, "{}", subject.scheme);
    }
}
