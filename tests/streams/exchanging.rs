//! Streams in both directions on one connection (rule Q5).

use std::sync::mpsc;
use std::time::Duration;

use arrow::array::RecordBatch;
use dipc::arrow::OwnedDeviceStream;
use dipc::arrow::stream::ArrayReader as _;
use dipc::client::{Client, GetOptions, Put, PutOptions, Stream};
use dipc::error::{Error, Result, Status};
use dipc::proto::{Credit, Verb};
use dipc::server::{ServerHandle, ServerOptions, ServerRequest};

use crate::common::{
    FnProvider, batch, export, export_schema, import, read_all, schema, stream_of,
};
use crate::{SUBJECTS, Subject, assert_same, client, eventually, server};

const HOST: i32 = 1;

fn answer_by(
    server: &ServerHandle,
    answer: impl Fn(&ServerRequest) -> Result<OwnedDeviceStream> + Send + Sync + 'static,
) {
    let handler = server.set_handler(Box::new(FnProvider(answer)));
    handler.map_err(|(error, _)| error).unwrap();
}

fn exchange(client: &Client, uri: &str, subject: Subject) -> Result<(Put, Stream)> {
    let own = PutOptions {
        connections: subject.options().connections,
        ..PutOptions::default()
    };
    exchange_with(client, uri, &own, &subject.options())
}

fn exchange_with(
    client: &Client,
    uri: &str,
    own: &PutOptions,
    answers: &GetOptions,
) -> Result<(Put, Stream)> {
    let described = (&export_schema(&schema()), HOST);
    client.exchange(&[uri], b"x", described, (own, answers), None)
}

fn push(put: &mut Put, batch: &RecordBatch) -> Result<()> {
    put.push(export(batch), None, None)
        .map_err(|(error, _)| error)
}

fn next(stream: &mut Stream) -> Option<RecordBatch> {
    let array = stream.next().unwrap()?;
    Some(import(array, &export_schema(&schema())))
}

/// The batches of the client's stream, as they come.
fn incoming(mut source: Stream) -> impl Iterator<Item = Result<RecordBatch>> + Send {
    std::iter::from_fn(move || {
        let array = source.next().transpose()?;
        Some(array.map(|array| import(array, &export_schema(&schema()))))
    })
}

/// Rule Q5: a server that filters, one that answers each batch with two, and one that reads all
/// before it answers; the client sends and reads in turn. The connection serves the next exchange.
#[test]
fn a_server_answers_as_it_reads() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let client = client();
        let sent: Vec<_> = (0..20).map(|index| batch(index * 100, 100)).collect();
        for _ in 0..2 {
            answer_by(&server, |request| {
                assert_eq!(request.verb(), Verb::Exchange);
                let halves = incoming(request.source()?).map(|it| it.map(|it| it.slice(0, 50)));
                Ok(stream_of(schema(), halves))
            });
            let (mut put, mut answers) = exchange(&client, &uri, subject).unwrap();
            for batch in &sent {
                push(&mut put, batch).unwrap();
                assert_same(&[next(&mut answers).unwrap()], &[batch.slice(0, 50)]);
            }
            assert_eq!(put.finish(None).unwrap(), 20, "{}", subject.scheme);
            assert!(next(&mut answers).is_none());

            answer_by(&server, |request| {
                let twice = incoming(request.source()?).flat_map(|it| match it {
                    Ok(batch) => vec![Ok(batch.slice(0, 50)), Ok(batch.slice(50, 50))],
                    Err(error) => vec![Err(error)],
                });
                Ok(stream_of(schema(), twice))
            });
            let (mut put, mut answers) = exchange(&client, &uri, subject).unwrap();
            for batch in &sent {
                push(&mut put, batch).unwrap();
                for half in [batch.slice(0, 50), batch.slice(50, 50)] {
                    assert_same(&[next(&mut answers).unwrap()], &[half]);
                }
            }
            assert_eq!(put.finish(None).unwrap(), 20, "{}", subject.scheme);
            assert!(next(&mut answers).is_none());

            answer_by(&server, |request| {
                let all = read_all(&mut request.source()?)?;
                Ok(stream_of(schema(), all.into_iter().map(Ok)))
            });
            let (mut put, mut answers) = exchange(&client, &uri, subject).unwrap();
            for batch in &sent[..10] {
                push(&mut put, batch).unwrap();
            }
            // The server's own stream ends behind the client's, and is read on another thread.
            let reader = std::thread::spawn(move || read_all(&mut answers));
            assert_eq!(put.finish(None).unwrap(), 10, "{}", subject.scheme);
            assert_same(&reader.join().unwrap().unwrap(), &sent[..10]);
        }
        drop(client);
        eventually("no stream is active", || server.stats().streams_active == 0);
    }
}

/// The schema of an answer that is read to its end first; where the answer fails, its error.
#[test]
fn the_schema_of_an_answer_is_known_behind_its_end() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let client = client();
        answer_by(&server, |request| {
            Ok(stream_of(schema(), incoming(request.source()?)))
        });
        for count in [0, 1] {
            let (mut put, mut answers) = exchange(&client, &uri, subject).unwrap();
            for _ in 0..count {
                push(&mut put, &batch(0, 10)).unwrap();
            }
            put.finish(None).unwrap();
            while next(&mut answers).is_some() {}
            let found = answers.schema().unwrap();
            assert_eq!(found.raw().n_children, 2, "{}", subject.scheme);
        }

        answer_by(&server, |request| {
            drop(request.source()?);
            Err(Error::invalid_data("a torn tape"))
        });
        let (_put, mut answers) = exchange(&client, &uri, subject).unwrap();
        let failed = answers.next().unwrap_err();
        let error = answers.schema().unwrap_err();
        assert_eq!(error.text(), failed.text(), "{}", subject.scheme);
        assert!(error.text().contains("a torn tape"), "{error}");
    }
}

/// Rule Q5: the streams go on two threads of the client at once, in both directions, with windows
/// that are much smaller than the tables.
#[test]
fn both_directions_go_on_at_once() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        answer_by(&server, |request| {
            Ok(stream_of(schema(), incoming(request.source()?)))
        });
        let client = client();
        let answers = GetOptions {
            window: Credit {
                batches: 3,
                bytes: 1 << 20,
            },
            ..subject.options()
        };
        let own = PutOptions {
            connections: subject.options().connections,
            ..PutOptions::default()
        };
        let (mut put, mut answers) = exchange_with(&client, &uri, &own, &answers).unwrap();
        let sent: Vec<_> = (0..300).map(|index| batch(index * 100, 100)).collect();
        let reader = std::thread::spawn(move || read_all(&mut answers));
        for batch in &sent {
            push(&mut put, batch).unwrap();
        }
        assert_eq!(put.finish(None).unwrap(), 300, "{}", subject.scheme);
        assert_same(&reader.join().unwrap().unwrap(), &sent);
    }
}

/// Rule Q5: an error at either end, and a client that leaves, end both streams at both ends.
#[test]
fn an_end_of_either_side_ends_both() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let (sender, ended) = mpsc::channel();
        answer_by(&server, move |request| {
            let sender = sender.clone();
            let mut count = 0;
            let answers = incoming(request.source()?).map(move |it| {
                count += 1;
                match it {
                    Ok(batch) if count < 5 => Ok(batch),
                    Ok(_) => Err(crate::common::broken("the fifth is bad")),
                    Err(error) => {
                        let _ = sender.send(error.text().to_owned());
                        Err(crate::common::broken(error.text()))
                    }
                }
            });
            Ok(stream_of(schema(), answers))
        });
        let client = client();
        let (mut put, mut answers) = exchange(&client, &uri, subject).unwrap();
        let error = loop {
            if let Err(error) = push(&mut put, &batch(0, 10)) {
                break error;
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        assert!(
            error.text().contains("the fifth is bad"),
            "{}: {error}",
            subject.scheme
        );
        let error = read_all(&mut answers).unwrap_err();
        assert!(
            error.text().contains("the fifth is bad"),
            "{}: {error}",
            subject.scheme
        );

        // The client fails its own stream.
        let (mut put, mut answers) = exchange(&client, &uri, subject).unwrap();
        push(&mut put, &batch(0, 10)).unwrap();
        assert!(next(&mut answers).is_some());
        put.fail(Status::InvalidData.code(), "my disk fails");
        assert!(
            ended.recv().unwrap().contains("my disk fails"),
            "{}",
            subject.scheme
        );
        read_all(&mut answers).unwrap_err();

        // The client wants no more answers.
        let (mut put, answers) = exchange(&client, &uri, subject).unwrap();
        push(&mut put, &batch(0, 10)).unwrap();
        drop(answers);
        let error = loop {
            match push(&mut put, &batch(0, 10)) {
                Ok(()) => std::thread::sleep(Duration::from_millis(1)),
                Err(error) => break error,
            }
        };
        assert_ne!(
            error.status(),
            Status::Timeout,
            "{}: {error}",
            subject.scheme
        );
        drop(put);
        drop(client);
        eventually("no stream is active", || server.stats().streams_active == 0);
    }
}

/// Rule Q11: a client that never reads and a server that never reads wait for each other no longer
/// than the stall timeout.
#[test]
fn two_that_never_read_are_ended() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        answer_by(&server, |request| {
            let source = request.source()?;
            let endless = (0..).map(move |index| {
                let _unread = &source;
                Ok(batch(index, 100))
            });
            Ok(stream_of(schema(), endless))
        });
        let client = client();
        let own = PutOptions {
            connections: subject.options().connections,
            stall_timeout: Some(Duration::from_millis(200)),
            ..PutOptions::default()
        };
        let (mut put, answers) = exchange_with(&client, &uri, &own, &subject.options()).unwrap();
        let error = loop {
            if let Err(error) = push(&mut put, &batch(0, 10)) {
                break error;
            }
        };
        assert_eq!(
            error.status(),
            Status::Timeout,
            "{}: {error}",
            subject.scheme
        );
        drop((put, answers));
        eventually("the server's stream has ended", || {
            server.stats().streams_active == 0
        });
    }
}

/// A handler that only takes or only gives tables refuses an exchange, and the connection goes on.
#[test]
fn an_exchange_is_refused() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let client = client();
        let nobody = exchange(&client, &uri, subject).map(drop).unwrap_err();
        assert_eq!(
            nobody.status(),
            Status::Unsupported,
            "{}: {nobody}",
            subject.scheme
        );
        answer_by(&server, |_| Err(Error::new(Status::Permission, "not here")));
        let refused = exchange(&client, &uri, subject).map(drop).unwrap_err();
        assert_eq!(
            refused.status(),
            Status::Permission,
            "{}: {refused}",
            subject.scheme
        );
        // A server that does not take the client's stream.
        answer_by(&server, |_| Ok(stream_of(schema(), std::iter::empty())));
        let refused = exchange(&client, &uri, subject).map(drop).unwrap_err();
        assert!(
            refused.text().contains("did not take"),
            "{}: {refused}",
            subject.scheme
        );
        answer_by(&server, |request| {
            Ok(stream_of(schema(), incoming(request.source()?)))
        });
        let (mut put, mut answers) = exchange(&client, &uri, subject).unwrap();
        push(&mut put, &batch(0, 10)).unwrap();
        assert!(next(&mut answers).is_some());
        assert_eq!(put.finish(None).unwrap(), 1);
        assert!(next(&mut answers).is_none());
    }
}
