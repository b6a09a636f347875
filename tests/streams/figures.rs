//! Figures of servers: what is counted, where, and when (docs/guide/figures.md).

use std::time::Duration;

use dipc::client::{GetOptions, PutOptions};
use dipc::error::{Error, Status};
use dipc::log::{self, LogRecord, Sink};
use dipc::proto::Headers;
use dipc::server::{self, HANDLER, LIST, MOST_LABELS, OTHER, ServerOptions, ServerRequest};
use parking_lot::Mutex;
use std::sync::Arc;
use tracing::Level;

use crate::common::child::{assert_in_child, in_child};
use crate::common::{
    FnProvider, FnTaker, batch, counting, export, export_schema, read_all, schema, stream_of,
};
use crate::{SHM, SUBJECTS, client, eventually, serve, server};

const BUSY: usize = 14;
const NOT_FOUND: usize = 5;
const PROVIDER: usize = 19;
const GET: usize = 1;
const PUT: usize = 2;
const LISTS: usize = 5;

/// Waits until the server has noted the end of so many requests.
fn wait_ended(server: &dipc::server::ServerHandle, requests: u64) {
    eventually("the requests have ended", || {
        let sums = server.stats().streams;
        sums.finished + sums.failed.iter().sum::<u64>() == requests
    });
}

/// Promise: each way of serving counts batches, rows, bytes and times under the ticket, and the
/// sums of the labels are those of the server.
#[test]
fn streams_are_counted_under_their_tickets() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        serve(&server, "provided", counting(3, 10));
        let table = vec![export(&batch(0, 10)), export(&batch(1, 10))];
        let published = server.publish(b"published", export_schema(&schema()), table);
        published.map_err(|(error, _)| error).unwrap();
        let client = client();
        let mut carried = 0;
        for ticket in ["provided", "published", "published"] {
            let options = subject.options();
            let mut stream = client
                .get(&[&uri], ticket.as_bytes(), &options, None)
                .unwrap();
            read_all(&mut stream).unwrap();
            let stats = stream.stats();
            carried += stats.bytes_lent + stats.bytes_received;
        }
        client
            .get(&[&uri], b"nowhere", &subject.options(), None)
            .map(drop)
            .unwrap_err();
        wait_ended(&server, 3);
        let provided = server.label_stats("provided").unwrap();
        let published = server.label_stats("published").unwrap();
        assert_eq!(
            (provided.batches, provided.rows, provided.finished),
            (3, 30, 1)
        );
        assert_eq!(
            (published.batches, published.rows, published.finished),
            (4, 40, 2)
        );
        assert_eq!((provided.requests[GET], published.requests[GET]), (1, 2));
        // The first batch of each stream.
        assert_eq!(
            (provided.hand_over.count, published.hand_over.count),
            (1, 2)
        );
        assert_eq!(
            (provided.first_batch.count, published.first_batch.count),
            (1, 2)
        );
        assert!(provided.first_batch.sum >= provided.hand_over.sum);
        let stats = server.stats();
        assert_eq!(stats.streams.request_bytes.count, 3);
        assert_eq!(stats.streams.request_bytes.sum, carried);
        assert_eq!((stats.batches, stats.streams.rows), (7, 70));
        assert_eq!(
            (stats.refused[NOT_FOUND], stats.refused.iter().sum::<u64>()),
            (1, 1)
        );
        assert_eq!(
            stats.connections_opened - stats.connections_closed,
            stats.connections
        );
        // A ticket that nobody serves makes no label.
        let error = server.label_stats("nowhere").unwrap_err();
        assert_eq!(error.status(), Status::NotFound);
        drop(client);
        eventually("the connections are over", || {
            let stats = server.stats();
            stats.connections_opened == stats.connections_closed && stats.connections == 0
        });
    }
}

/// Promise: one batch in 64 is timed, of both kinds of streams, and each one is counted.
#[test]
fn some_batches_are_timed() {
    let (server, uri) = server(SHM, ServerOptions::default());
    serve(&server, "provided", counting(130, 10));
    let table = (0..130).map(|index| export(&batch(index, 10))).collect();
    let published = server.publish(b"published", export_schema(&schema()), table);
    published.map_err(|(error, _)| error).unwrap();
    let client = client();
    for (number, ticket) in (1..).zip(["provided", "published"]) {
        let stream = client.get(&[&uri], ticket.as_bytes(), &SHM.options(), None);
        assert_eq!(read_all(&mut stream.unwrap()).unwrap().len(), 130);
        wait_ended(&server, number);
        let sums = server.label_stats(ticket).unwrap();
        assert_eq!((sums.batches, sums.hand_over.count), (130, 3), "{ticket}");
        assert_eq!(sums.first_batch.count, 1, "{ticket}");
    }
}

/// Promise: what a handler serves has one label, whatever the clients ask for, unless the host
/// names another one before the stream begins.
#[test]
fn strangers_make_no_labels() {
    let (server, uri) = server(SHM, ServerOptions::default());
    let handler = FnProvider(|request: &ServerRequest| {
        if request.ticket().starts_with(b"paid") {
            request.set_label("paid")?;
        }
        let long = request.set_label(&"x".repeat(129)).unwrap_err();
        assert_eq!(long.status(), Status::InvalidArgument);
        if request.ticket() == b"bad" {
            return Err(Error::new(Status::Provider, "no such thing"));
        }
        Ok(stream_of(schema(), [Ok(batch(0, 10))].into_iter()))
    });
    let set = server.set_handler(Box::new(handler));
    set.map_err(|(error, _)| error).unwrap();
    let client = client();
    for ticket in ["a", "b", "c", "bad", "paid 1", "paid 2"] {
        if let Ok(mut stream) = client.get(&[&uri], ticket.as_bytes(), &SHM.options(), None) {
            read_all(&mut stream).unwrap();
        }
    }
    wait_ended(&server, 6);
    let handler = server.label_stats(HANDLER).unwrap();
    assert_eq!(
        (handler.finished, handler.failed[PROVIDER], handler.batches),
        (3, 1, 3)
    );
    assert_eq!(server.label_stats("paid").unwrap().finished, 2);
    for ticket in ["a", "bad", "paid 1", OTHER] {
        let sums = server
            .label_stats(ticket)
            .map(|sums| sums.requests[GET])
            .unwrap_or(0);
        assert_eq!(sums, 0, "{ticket}");
    }
    let text = server.stats_text();
    assert!(
        text.contains("dipc_batches_sent_total{ticket=\"(handler)\"} 3\n"),
        "{text}"
    );
    assert!(
        text.contains("dipc_requests_total{ticket=\"paid\",verb=\"get\"} 2\n"),
        "{text}"
    );
}

/// Promise: the pull form's host names the label too, until the stream has begun.
#[test]
fn a_label_stays_once_the_stream_has_begun() {
    let (server, uri) = server(SHM, ServerOptions::default());
    server.set_handler_pull().unwrap();
    let client = client();
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut stream = client
                .get(&[&uri], b"pulled", &SHM.options(), None)
                .unwrap();
            read_all(&mut stream).unwrap().len()
        });
        let request = server.next_request(Some(Duration::from_secs(60)), None);
        let request = request.unwrap().unwrap();
        request.set_label("pulls").unwrap();
        request.start(&export_schema(&schema()), 1).unwrap();
        let error = request.set_label("late").unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument);
        let pushed = request.push(export(&batch(0, 10)), None, None);
        pushed.map_err(|(error, _)| error).unwrap();
        request.finish(None).unwrap();
        assert_eq!(asking.join().unwrap(), 1);
    });
    assert_eq!(server.label_stats("pulls").unwrap().finished, 1);
    server.label_stats("late").unwrap_err();
}

/// Promise: a table that a client sends is counted as it comes, and its request when it is
/// answered, also where the host fails it.
#[test]
fn tables_of_clients_are_counted() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let taker = FnTaker(|request: &ServerRequest| {
            read_all(&mut request.source()?)?;
            match request.ticket() {
                b"bad" => Err(Error::new(Status::Busy, "not today")),
                _ => Ok(()),
            }
        });
        let set = server.set_handler(Box::new(taker));
        set.map_err(|(error, _)| error).unwrap();
        let client = client();
        for descriptor in ["good", "bad"] {
            let schema = export_schema(&schema());
            let options = PutOptions {
                connections: subject.connections,
                ..PutOptions::default()
            };
            let put = client.put(&[&uri], descriptor.as_bytes(), (&schema, 1), &options, None);
            let mut put = put.unwrap();
            for index in 0..3 {
                let pushed = put.push(export(&batch(index, 1000)), None, None);
                pushed.map_err(|(error, _)| error).unwrap();
            }
            assert_eq!(put.finish(None).is_ok(), descriptor == "good");
        }
        wait_ended(&server, 2);
        let sums = server.label_stats(HANDLER).unwrap();
        assert_eq!((sums.batches_received, sums.rows_received), (6, 6000));
        assert_eq!(
            (sums.requests[PUT], sums.finished, sums.failed[BUSY]),
            (2, 1, 1)
        );
        assert_eq!((sums.batches, sums.first_batch.count), (0, 0));
        assert!(sums.bytes_received > 6 * 8000, "{}", sums.bytes_received);
        assert_eq!(sums.request_bytes.sum, sums.bytes_received);
    }
}

/// Promise: lists of the server's own have a label; a failed stream is counted by its status, and
/// so is a refusal by a busy server.
#[test]
fn failures_are_counted_by_status() {
    let options = ServerOptions {
        max_streams: 1,
        ..ServerOptions::default()
    };
    let (server, uri) = server(SHM, options);
    serve(&server, "held", counting(1000, 1000));
    let client = client();
    let mut list = client
        .list(&[&uri], b"", &GetOptions::default(), None)
        .unwrap();
    read_all(&mut list).unwrap();
    wait_ended(&server, 1);
    assert_eq!(server.label_stats(LIST).unwrap().requests[LISTS], 1);
    let held = client.get(&[&uri], b"held", &GetOptions::default(), None);
    let held = held.unwrap();
    for _ in 0..3 {
        let refused = client.get(&[&uri], b"held", &GetOptions::default(), None);
        assert_eq!(refused.map(drop).unwrap_err().status(), Status::Busy);
    }
    assert_eq!(server.stats().refused[BUSY], 3);
    drop(held);
    wait_ended(&server, 2);
    let sums = server.label_stats("held").unwrap();
    let cancelled = usize::try_from(Status::Cancelled.code().unsigned_abs()).unwrap();
    assert_eq!((sums.finished, sums.failed[cancelled]), (0, 1));
}

/// Promise: a server has a bounded number of labels; what exceeds it is counted together.
#[test]
fn further_tickets_share_a_label() {
    let (server, uri) = server(SHM, ServerOptions::default());
    let client = client();
    let tickets = MOST_LABELS + 5;
    for number in 0..tickets {
        let ticket = format!("t{number}");
        let table = server.publish(ticket.as_bytes(), export_schema(&schema()), vec![]);
        table.map_err(|(error, _)| error).unwrap();
        let mut stream = client
            .get(&[&uri], ticket.as_bytes(), &SHM.options(), None)
            .unwrap();
        read_all(&mut stream).unwrap();
        server.withdraw(ticket.as_bytes()).unwrap();
    }
    wait_ended(&server, tickets as u64);
    assert_eq!(server.label_stats(OTHER).unwrap().finished, 5);
    assert_eq!(server.stats().streams.finished, tickets as u64);
}

/// Promise: the process has the figures of all its servers, also of those that are gone.
#[test]
fn a_process_keeps_the_figures_of_its_servers() {
    in_child("figures::child_sums");
}

#[test]
#[ignore = "run by a_process_keeps_the_figures_of_its_servers"]
fn child_sums() {
    assert_in_child();
    let client = client();
    let get_from = || {
        let (server, uri) = server(SHM, ServerOptions::default());
        serve(&server, "t", counting(3, 10));
        let mut stream = client.get(&[&uri], b"t", &SHM.options(), None).unwrap();
        read_all(&mut stream).unwrap();
        wait_ended(&server, 1);
        server
    };
    let first = get_from();
    let second = get_from();
    assert_eq!(server::process_stats().streams.rows, 60);
    drop(first);
    let sums = server::process_stats();
    assert_eq!((sums.streams.rows, sums.streams.finished), (60, 2));
    assert_eq!(sums.connections, second.stats().connections);
    drop(second);
    assert_eq!(server::process_stats().streams.rows, 60);
}

/// A sink, in a process without other tests.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<LogRecord>>>);

impl Sink for Kept {
    fn log(&self, entry: &LogRecord) {
        self.0.lock().push(entry.clone());
    }
}

/// Promise: INFO has one line of the target `dipc::audit` for each request that has ended or was
/// refused: who, what, how much, how long; with the trace that the client has named.
#[test]
fn each_request_has_a_line_for_an_audit() {
    in_child("figures::child_audits");
}

#[test]
#[ignore = "run by each_request_has_a_line_for_an_audit"]
fn child_audits() {
    assert_in_child();
    let kept = Kept::default();
    log::set(Level::INFO, Some(kept.clone()))
        .map_err(|(error, _)| error)
        .unwrap();
    let (server, uri) = server(SHM, ServerOptions::default());
    serve(&server, "t", counting(3, 10));
    let taker = FnTaker(|request: &ServerRequest| {
        tracing::info!(target: "dipc::test", "the handler");
        read_all(&mut request.source()?).map(drop)
    });
    let set = server.set_handler(Box::new(taker));
    set.map_err(|(error, _)| error).unwrap();
    let client = client();
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let mut headers = Headers::new();
    headers.add("traceparent", trace).unwrap();
    let options = GetOptions {
        headers: headers.clone(),
        ..GetOptions::default()
    };
    let mut stream = client.get(&[&uri], b"t", &options, None).unwrap();
    read_all(&mut stream).unwrap();
    let options = PutOptions {
        headers,
        ..PutOptions::default()
    };
    let described = (&export_schema(&schema()), 1);
    let mut put = client
        .put(&[&uri], b"sent", described, &options, None)
        .unwrap();
    put.push(export(&batch(0, 10)), None, None)
        .map_err(|(error, _)| error)
        .unwrap();
    put.finish(None).unwrap();
    server.clear_handler().unwrap();
    // A header that is no trace is left out: it is the client's.
    let mut headers = Headers::new();
    headers.add("traceparent", "x".repeat(55)).unwrap();
    let options = GetOptions {
        headers,
        ..GetOptions::default()
    };
    client
        .get(&[&uri], b"nowhere", &options, None)
        .map(drop)
        .unwrap_err();
    let uid = format!("uid={}", rustix::process::getuid().as_raw());
    let trace = format!("traceparent={trace}");
    for (words, is_traced) in [
        (
            ["`t`", "has ended: DIPC_OK", "verb=get", " batches=3 bytes="],
            true,
        ),
        (
            [
                "`sent`",
                "has ended: DIPC_OK",
                "verb=put",
                " batches=1 bytes=",
            ],
            true,
        ),
        (
            [
                "`nowhere`",
                "is refused: DIPC_ERR_NOT_FOUND",
                "verb=get",
                "time_ns=",
            ],
            false,
        ),
    ] {
        let is_it = |it: &LogRecord| {
            it.target == "dipc::audit" && words.iter().all(|word| it.text.contains(word))
        };
        eventually(&format!("{words:?}"), || kept.0.lock().iter().any(is_it));
        let lines = kept.0.lock();
        let lines: Vec<_> = lines.iter().filter(|it| is_it(it)).collect();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].text.contains(&uid), "{lines:?}");
        assert_eq!(lines[0].text.contains(&trace), is_traced, "{lines:?}");
        assert!(!lines[0].text.contains("xxxx"), "{lines:?}");
    }
    // What the host logs while it serves a stream is in the spans of the request.
    let lines = kept.0.lock();
    let of_handler = lines.iter().find(|it| it.target == "dipc::test").unwrap();
    assert!(of_handler.text.contains(&trace), "{of_handler:?}");
    assert!(of_handler.text.ends_with(": put)"), "{of_handler:?}");
}
