//! The log of streams, by level (`dipc_log_set`).

use std::sync::Arc;
use std::time::Duration;

use dipc::arrow::OwnedDeviceStream;
use dipc::client::{GetOptions, PutOptions};
use dipc::error::{Error, Result, Status};
use dipc::log::{self, LogRecord, Sink};
use dipc::proto::Credit;
use dipc::server::{HostProvider, ServerOptions, ServerRequest};
use parking_lot::Mutex;
use tracing::Level;

use crate::common::child::{assert_in_child, in_child};
use crate::common::{FnProvider, batch, broken, counting, export, export_schema, read_all, schema};
use crate::{SHM, client, eventually, serve, server};

/// A sink, in a process without other tests.
#[derive(Debug, Clone, Default)]
struct Kept(Arc<Mutex<Vec<LogRecord>>>);

impl Sink for Kept {
    fn log(&self, entry: &LogRecord) {
        self.0.lock().push(entry.clone());
    }
}

impl Kept {
    /// The number of lines of the level with all of these words.
    fn count(&self, level: Level, words: &[&str]) -> usize {
        let has = |entry: &&LogRecord| words.iter().all(|word| entry.text.contains(word));
        let entries = self.0.lock();
        let of_level = entries.iter().filter(|entry| entry.level == level);
        of_level.filter(has).count()
    }

    fn comes(&self, level: Level, words: &[&str]) {
        eventually(&format!("{level}: {words:?}"), || {
            self.count(level, words) > 0
        });
    }
}

/// `dipc.h`: INFO has each stream's begin and end, at both sides; WARN has failed providers and
/// refusals by a busy server; DEBUG has other refusals; TRACE has each message.
#[test]
fn each_level_has_what_it_promises() {
    in_child("logged::child_logs");
}

#[test]
#[ignore = "run by each_level_has_what_it_promises"]
fn child_logs() {
    assert_in_child();
    let kept = Kept::default();
    log::set(Level::TRACE, Some(kept.clone()))
        .map_err(|(error, _)| error)
        .unwrap();
    // At least one: warnings that a peer can cause are limited.
    for subject in [SHM] {
        kept.0.lock().clear();
        let options = ServerOptions {
            max_streams: 1,
            ..ServerOptions::default()
        };
        let (server, uri) = server(subject, options);
        serve(&server, "provided\n", counting(3, 10));
        let table = vec![export(&batch(0, 10)), export(&batch(1, 10))];
        let published = server.publish(b"published", export_schema(&schema()), table);
        published.map_err(|(error, _)| error).unwrap();
        let failing = FnProvider(|request: &ServerRequest| {
            request.fail(-17, "the disk is on fire");
            Err(broken("and gave no text"))
        });
        serve(&server, "failing", Box::new(failing));
        server.serve_pull(b"pulled").unwrap();
        let client = client();
        let get = |ticket: &str| {
            let mut stream = client.get(&[&uri], ticket.as_bytes(), &subject.options(), None)?;
            read_all(&mut stream)
        };
        assert_eq!(get("provided\n").unwrap().len(), 3);
        kept.comes(Level::DEBUG, &["connected to shm:@"]);
        kept.comes(Level::DEBUG, &["serves the stream", "level Structure"]);
        for way in ["to", "from"] {
            kept.comes(Level::INFO, &["of `provided\\n`", way, "begins"]);
            let ended = [
                "of `provided\\n`",
                way,
                "DIPC_OK after 3 batches, 30 rows, ",
            ];
            kept.comes(Level::INFO, &ended);
        }
        assert_eq!(get("published").unwrap().len(), 2);
        kept.comes(Level::DEBUG, &["is used again"]);
        for way in ["to", "from"] {
            let ended = ["of `published`", way, "DIPC_OK after 2 batches, 20 rows, "];
            kept.comes(Level::INFO, &ended);
        }
        let error = get("failing").unwrap_err();
        assert_eq!(error.status(), Status::Io);
        assert_eq!(error.text(), "the server: the disk is on fire");
        assert_eq!(error.cause().unwrap().text(), "the disk is on fire");
        let told = ["`failing`", "DIPC_ERR_IO", "the disk is on fire"];
        kept.comes(Level::WARN, &told);
        kept.comes(Level::INFO, &told);
        assert_eq!(kept.count(Level::WARN, &["no text"]), 0);
        // The pull form: the host fails the stream or drops it.
        for fails in [true, false] {
            std::thread::scope(|scope| {
                let asking = scope.spawn(|| get("pulled"));
                let request = server.next_request(Some(Duration::from_secs(10)), None);
                let request = request.unwrap().unwrap();
                if fails {
                    request.fail(-7, "out of words");
                }
                drop(request);
                asking.join().unwrap().unwrap_err();
            });
        }
        kept.comes(Level::WARN, &["`pulled`", "out of words"]);
        kept.comes(Level::WARN, &["`pulled`", "ended without finishing"]);
        get("nowhere").unwrap_err();
        kept.comes(
            Level::INFO,
            &["`nowhere`", "is refused", "DIPC_ERR_NOT_FOUND"],
        );
        serve(&server, "held", counting(1000, 1000));
        let held = client.get(&[&uri], b"held", &GetOptions::default(), None);
        let held = held.unwrap();
        for _ in 0..50 {
            assert_eq!(get("published").unwrap_err().status(), Status::Busy);
        }
        drop(held);
        // A stream that its client left is not the provider's failure.
        let left = ["of `held`", "to", "has ended: DIPC_ERR_CANCELLED"];
        kept.comes(Level::INFO, &left);
        assert_eq!(
            kept.count(Level::WARN, &["of `held`", "provider failed"]),
            0
        );
        for message in ["header 0: Schema, ", "header 1: RecordBatch, ", "request, "] {
            kept.comes(Level::TRACE, &["to ", message]);
            kept.comes(Level::TRACE, &["from ", message]);
        }
        kept.comes(Level::TRACE, &["from ", "control message STREAM, "]);
        kept.comes(Level::TRACE, &["from ", "control message ERROR 0, "]);
        drop((client, server));
        kept.comes(
            Level::DEBUG,
            &["the connection to", "ends: nothing needs it"],
        );
    }
    // A warning for some refusals by a busy server, not for each.
    let busy = kept.count(Level::WARN, &["`published`", "DIPC_ERR_BUSY", "max"]);
    assert!(busy <= 20, "{busy}");
}

/// `dipc.h`, WARN: what a handler answers by a status, and a selection that does not fit its table,
/// are no warnings, whatever the form of serving; faults of a handler are, also those of a put.
#[test]
fn answers_are_no_warnings() {
    in_child("logged::child_answers");
}

#[test]
#[ignore = "run by answers_are_no_warnings"]
fn child_answers() {
    assert_in_child();
    let kept = Kept::default();
    log::set(Level::INFO, Some(kept.clone()))
        .map_err(|(error, _)| error)
        .unwrap();
    let (server, uri) = server(SHM, ServerOptions::default());
    let answers = [
        Status::NotFound,
        Status::Permission,
        Status::Busy,
        Status::AlreadyExists,
        Status::InvalidArgument,
        Status::Unsupported,
    ];
    let said = move |request: &ServerRequest| {
        let ticket = String::from_utf8_lossy(request.ticket()).into_owned();
        let named = answers.iter().find(|it| it.symbol() == ticket);
        match ticket.as_str() {
            "panics" => panic!("the handler panics on purpose"),
            _ => Err::<(), _>(Error::new(*named.unwrap_or(&Status::Provider), "so it is")),
        }
    };
    server
        .set_handler(Box::new(Both(said)))
        .map_err(|(error, _)| error)
        .unwrap();
    serve(&server, "provided", counting(3, 10));
    server.serve_pull(b"pulled").unwrap();
    let client = client();
    let get = |ticket: &str, options: &GetOptions| {
        let mut stream = client.get(&[&uri], ticket.as_bytes(), options, None)?;
        read_all(&mut stream)
    };
    let put = |ticket: &str| {
        let described = (&export_schema(&schema()), 1);
        let options = PutOptions::default();
        client
            .put(&[&uri], ticket.as_bytes(), described, &options, None)
            .and_then(|mut put| put.finish(None))
    };
    for answer in answers {
        for _ in 0..10 {
            let error = get(answer.symbol(), &GetOptions::default()).unwrap_err();
            assert_eq!(error.status(), answer);
            assert_eq!(put(answer.symbol()).unwrap_err().status(), answer);
        }
        kept.comes(Level::INFO, &[answer.symbol(), " to ", "so it is"]);
        kept.comes(Level::INFO, &["a request for", answer.symbol(), "so it is"]);
    }
    // A filter whose message is none, and a column that is not there.
    let mut filtered = GetOptions::default();
    filtered.selection.set_filter(b"\xff").unwrap();
    let mut selected = GetOptions::default();
    selected.selection.set_columns(["nowhere"]).unwrap();
    for options in [&filtered, &selected] {
        get("provided", options).unwrap_err();
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| get("pulled", options));
            let request = server.next_request(Some(Duration::from_secs(60)), None);
            let request = request.unwrap().unwrap();
            let error = request.start(&export_schema(&schema()), 1).unwrap_err();
            // As hosts do.
            request.fail(error.status().code(), error.text());
            asking.join().unwrap().unwrap_err();
        });
    }
    kept.comes(Level::INFO, &["`pulled`", "has ended", "nowhere"]);
    // Behind everything above: lines come in their order.
    for ticket in ["broken", "panics"] {
        get(ticket, &GetOptions::default()).unwrap_err();
        kept.comes(Level::WARN, &[ticket, " to ", "its provider failed"]);
        put(ticket).unwrap_err();
        kept.comes(Level::WARN, &["a put of", ticket, "its provider failed"]);
    }
    assert_eq!(kept.count(Level::WARN, &[]), 4, "{kept:?}");
}

/// A handler of gets and puts.
struct Both<F>(F);

impl<F: Fn(&ServerRequest) -> Result<()> + Send + Sync + 'static> HostProvider for Both<F> {
    fn open(&self, request: &ServerRequest) -> Result<OwnedDeviceStream> {
        (self.0)(request).and_then(|()| Err(Error::unsupported("it never succeeds")))
    }

    fn take(&self, request: &ServerRequest) -> Result<()> {
        (self.0)(request)
    }
}

/// `dipc.h`, INFO: the line of a stream that ends early counts the sent batches, without the batch
/// that waited for credit.
#[test]
fn what_was_not_sent_is_not_counted() {
    in_child("logged::child_counts");
}

#[test]
#[ignore = "run by what_was_not_sent_is_not_counted"]
fn child_counts() {
    assert_in_child();
    let kept = Kept::default();
    log::set(Level::INFO, Some(kept.clone()))
        .map_err(|(error, _)| error)
        .unwrap();
    let (server, uri) = server(SHM, ServerOptions::default());
    server.serve_pull(b"pulled").unwrap();
    let table = vec![export(&batch(0, 10)), export(&batch(1, 10))];
    let published = server.publish(b"published", export_schema(&schema()), table);
    published.map_err(|(error, _)| error).unwrap();
    let client = client();
    let mut whole = client
        .get(&[&uri], b"published", &GetOptions::default(), None)
        .unwrap();
    assert_eq!(read_all(&mut whole).unwrap().len(), 2);
    let stats = whole.stats();
    let body_len = (stats.bytes_lent + stats.bytes_received) / 2;
    let patience = Some(Duration::from_secs(60));
    // The second batch is pulled, and does not fit.
    let options = GetOptions {
        window: Credit {
            batches: 8,
            bytes: body_len + 1,
        },
        ..GetOptions::default()
    };
    let get = |ticket: &[u8]| client.get(&[&uri], ticket, &options, None).unwrap();
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| get(b"pulled"));
        let request = server.next_request(patience, None);
        let request = request.unwrap().unwrap();
        request.start(&export_schema(&schema()), 1).unwrap();
        let stream = asking.join().unwrap();
        for number in 0..2 {
            let pushed = request.push(export(&batch(number, 10)), None, patience);
            pushed.map_err(|(error, _)| error).unwrap();
        }
        drop(stream);
        eventually("the client has gone", || request.is_cancelled());
    });
    drop(get(b"published"));
    for ticket in ["`pulled`", "`published`"] {
        let ended = [ticket, " to ", "after 1 batch, 10 rows, "];
        kept.comes(Level::INFO, &ended);
    }
}

/// Refusals by a busy server are logged.
#[test]
fn refusals_for_want_of_room_are_warnings() {
    in_child("logged::child_is_busy");
}

#[test]
#[ignore = "run by refusals_for_want_of_room_are_warnings"]
fn child_is_busy() {
    assert_in_child();
    let kept = Kept::default();
    log::set(Level::WARN, Some(kept.clone()))
        .map_err(|(error, _)| error)
        .unwrap();
    let options = ServerOptions {
        max_streams: 1,
        ..ServerOptions::default()
    };
    let (server, uri) = server(SHM, options);
    serve(&server, "t", counting(1000, 1000));
    let client = client();
    let get = || client.get(&[&uri], b"t", &GetOptions::default(), None);
    let held = get().unwrap();
    for _ in 0..1000 {
        assert_eq!(get().map(drop).unwrap_err().status(), Status::Busy);
    }
    drop(held);
    kept.comes(
        Level::WARN,
        &["of pid ", "`t`", "is refused: DIPC_ERR_BUSY"],
    );
    let lines = kept.count(Level::WARN, &["DIPC_ERR_BUSY"]);
    assert!(lines <= 100, "{lines} lines of a peer's making");
}
