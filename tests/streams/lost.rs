//! Clients that disconnect before the provider of their stream returns.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use dipc::cancel::Cancel;
use dipc::client::{Client, GetOptions};
use dipc::error::{Error, Status};
use dipc::proto::{self as asks, Uri};
use dipc::server::{ServerHandle, ServerOptions, ServerRequest};
use dipc::transport::{self, LinkOptions, Outgoing, Payload};
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::common::{
    FnProvider, batch, counting, export, export_schema, read_all, schema, stream_of,
};
use crate::{SHM, SUBJECTS, Subject, client, eventually, serve, server};

/// A gate for providers, independent of their clients.
#[derive(Default)]
struct Gate {
    state: Mutex<(usize, bool)>,
    changed: Condvar,
}

impl Gate {
    fn wait(&self) {
        let mut state = self.state.lock();
        state.0 += 1;
        self.changed.wait_while(&mut state, |state| !state.1);
        state.0 -= 1;
    }

    fn waiting(&self) -> usize {
        self.state.lock().0
    }

    fn open(&self) {
        self.state.lock().1 = true;
        self.changed.notify_all();
    }
}

/// Opens the gate even if the test fails, because a server waits for its threads.
struct Opens(Arc<Gate>);

impl Drop for Opens {
    fn drop(&mut self) {
        self.0.open();
    }
}

fn options(max_streams: usize, max_providers: usize) -> ServerOptions {
    ServerOptions {
        max_streams,
        max_providers: Some(max_providers),
        ..ServerOptions::default()
    }
}

/// A server with providers that do not return: "opening" in the call, "reading" after one batch.
fn stuck(subject: Subject, options: ServerOptions) -> (ServerHandle, String, Opens) {
    let (server, uri) = server(subject, options);
    let gate = Arc::<Gate>::default();
    let opening = Arc::clone(&gate);
    let opening = FnProvider(move |_: &ServerRequest| {
        opening.wait();
        Err(Error::cancelled("late"))
    });
    let reading = Arc::clone(&gate);
    let reading = FnProvider(move |_: &ServerRequest| {
        let gate = Arc::clone(&reading);
        let batches = (0..2).map(move |index| {
            if index > 0 {
                gate.wait();
            }
            Ok(batch(index, 10))
        });
        Ok(stream_of(schema(), batches))
    });
    serve(&server, "opening", Box::new(opening));
    serve(&server, "reading", Box::new(reading));
    (server, uri, Opens(gate))
}

/// Asks for `ticket`, and disconnects when the provider is stuck.
fn ask_and_go(client: Client, subject: Subject, uri: &str, ticket: &str, gate: &Gate) {
    let before = gate.waiting();
    let cancel = Cancel::new().unwrap();
    thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let options = subject.options();
            let stream = client.get(&[uri], ticket.as_bytes(), &options, Some(&cancel));
            stream.and_then(|mut stream| read_all(&mut stream))
        });
        eventually("the provider is stuck", || gate.waiting() > before);
        cancel.cancel();
        let error = asking.join().unwrap().unwrap_err();
        assert_eq!(error.status(), Status::Cancelled, "{error}");
    });
}

/// `max_streams`: the place of a stream is free when its client has gone, even if its provider has
/// not returned; and `max_providers` limits such providers.
#[test]
fn a_stuck_provider_holds_no_place() {
    for subject in SUBJECTS {
        for ticket in ["opening", "reading"] {
            let (server, uri, opens) = stuck(subject, options(1, 4));
            serve(&server, "good", counting(3, 10));
            let table = vec![export(&batch(0, 10))];
            let published = server.publish(b"table", export_schema(&schema()), table);
            published.map_err(|(error, _)| error).unwrap();
            for stuck in 0..4 {
                ask_and_go(client(), subject, &uri, ticket, &opens.0);
                eventually("the place is free", || server.stats().streams_active == 0);
                assert_eq!(opens.0.waiting(), stuck + 1);
                let get = |ticket: &[u8]| {
                    let client = client();
                    let mut stream = client.get(&[&uri], ticket, &subject.options(), None)?;
                    read_all(&mut stream)
                };
                assert_eq!(get(b"table").unwrap().len(), 1);
                if stuck < 3 {
                    assert_eq!(get(b"good").unwrap().len(), 3);
                    continue;
                }
                for ticket in [&b"good"[..], b"opening"] {
                    let error = get(ticket).unwrap_err();
                    assert_eq!(error.status(), Status::Busy, "{error}");
                    assert!(error.text().contains("max_providers"), "{error}");
                }
            }
            opens.0.open();
            eventually("providers may be called again", || {
                let client = client();
                let good = client.get(&[&uri], b"good", &subject.options(), None);
                good.is_ok_and(|mut stream| read_all(&mut stream).unwrap().len() == 3)
            });
        }
    }
}

/// The same for a silent client whose connection is cut.
#[test]
fn a_connection_that_is_cut_frees_the_place() {
    for subject in SUBJECTS {
        let (server, uri, opens) = stuck(subject, options(1, 3));
        let uri = Uri::parse(&uri).unwrap();
        let transport = transport::by_scheme(subject.scheme).unwrap();
        for (stuck, ticket) in [&b"opening"[..], b"reading"].into_iter().enumerate() {
            let mut connection = transport.connect(&uri, &LinkOptions::default()).unwrap();
            let request = asks::Request::new(ticket, GetOptions::default().window);
            let message = Outgoing::Tagged {
                tag: uri.tags.dipc_want,
                payload: Payload::Bytes(request.encode().into()),
            };
            connection.send(message).unwrap();
            eventually("the provider is stuck", || {
                connection.flush().unwrap();
                opens.0.waiting() > stuck
            });
            assert_eq!(server.stats().streams_active, 1);
            drop(connection);
            eventually("the place is free", || server.stats().streams_active == 0);
            eventually("the connection is gone", || server.stats().connections == 0);
        }
        assert_eq!(opens.0.waiting(), 2);
    }
}

/// By default `max_streams` and 64 more providers may run, so that a few stuck providers block no
/// client.
#[test]
fn stuck_providers_are_bounded_by_default() {
    let (server, uri, opens) = stuck(
        SHM,
        ServerOptions {
            max_streams: 2,
            ..ServerOptions::default()
        },
    );
    for _ in 0..66 {
        ask_and_go(client(), SHM, &uri, "opening", &opens.0);
        eventually("the place is free", || server.stats().streams_active == 0);
    }
    let client = client();
    let error = client.get(&[&uri], b"opening", &SHM.options(), None);
    assert_eq!(error.map(drop).unwrap_err().status(), Status::Busy);
}

/// The pull form: requests are limited like calls of providers, including those that the host has
/// not taken.
#[test]
fn requests_of_clients_that_have_gone_are_bounded() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, options(1, 2));
        server.serve_pull(b"t").unwrap();
        for _ in 0..2 {
            let cancel = Cancel::new().unwrap();
            let (client, options) = (client(), subject.options());
            thread::scope(|scope| {
                let get = || client.get(&[&uri], b"t", &options, Some(&cancel)).map(drop);
                let asking = scope.spawn(get);
                eventually("it is asked for", || server.stats().streams_active == 1);
                cancel.cancel();
                asking.join().unwrap().unwrap_err();
                eventually("the place is free", || server.stats().streams_active == 0);
            });
        }
        let (client, options) = (client(), subject.options());
        let get = || client.get(&[&uri], b"t", &options, None).map(drop);
        assert_eq!(get().unwrap_err().status(), Status::Busy);
        for _ in 0..2 {
            assert!(next(&server).is_cancelled());
        }
        thread::scope(|scope| {
            let asking = scope.spawn(get);
            next(&server).fail(-7, "one after all");
            assert!(asking.join().unwrap().is_err());
        });
    }
}

fn next(server: &ServerHandle) -> ServerRequest {
    let request = server.next_request(Some(Duration::from_secs(10)), None);
    request.unwrap().unwrap()
}

/// Waits until `fd` is readable, for ten seconds at most.
fn wait_for(fd: BorrowedFd<'_>) -> bool {
    let time = Timespec::try_from(Duration::from_secs(10)).unwrap();
    poll(
        &mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)],
        Some(&time),
    )
    .unwrap()
        == 1
}

/// `Request::cancel_fd`: the descriptor wakes a waiting provider when its client has gone. It stays
/// readable, and a descriptor requested late is readable at once.
#[test]
fn a_provider_can_wait_for_its_client_to_go() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let gate = Arc::<Gate>::default();
        gate.open();
        let (told, heard) = std::sync::mpsc::channel();
        let waiting = FnProvider(move |request: &ServerRequest| {
            let fd = request.cancel_fd()?;
            let now = Timespec::default();
            let early = poll(
                &mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)],
                Some(&now),
            );
            told.send(early.unwrap() == 1).unwrap();
            told.send(wait_for(fd) && request.is_cancelled()).unwrap();
            told.send(wait_for(request.cancel_fd()?)).unwrap();
            Err(Error::cancelled("the client has gone"))
        });
        serve(&server, "t", Box::new(waiting));
        let client = client();
        let cancel = Cancel::new().unwrap();
        let options = subject.options();
        thread::scope(|scope| {
            let asking = scope.spawn(|| {
                client
                    .get(&[&uri], b"t", &options, Some(&cancel))
                    .map(drop)
                    .unwrap_err()
            });
            assert!(!heard.recv().unwrap(), "{subject:?}: the client is there");
            cancel.cancel();
            asking.join().unwrap();
            assert!(heard.recv().unwrap(), "{subject:?}");
            assert!(heard.recv().unwrap(), "{subject:?}");
        });
    }
}

/// The same for a request of the pull form, if the client had gone before the host asked for the
/// descriptor.
#[test]
fn a_descriptor_that_is_asked_for_late_is_readable() {
    let (server, uri) = server(SHM, ServerOptions::default());
    server.serve_pull(b"t").unwrap();
    let client = client();
    let cancel = Cancel::new().unwrap();
    let options = SHM.options();
    thread::scope(|scope| {
        let get = || client.get(&[&uri], b"t", &options, Some(&cancel)).map(drop);
        let asking = scope.spawn(get);
        let request = next(&server);
        cancel.cancel();
        asking.join().unwrap().unwrap_err();
        eventually("the request is cancelled", || request.is_cancelled());
        assert!(wait_for(request.cancel_fd().unwrap()));
    });
}

/// design.md, "Failure is per stream": clients that leave at any moment of a published table, whose
/// bodies are copied, leave no stream behind.
#[test]
fn clients_that_leave_a_published_table_leave_no_stream() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let table: Vec<_> = (0..6)
            .map(|number| export(&batch(number, 50_000)))
            .collect();
        let published = server.publish(b"t", export_schema(&schema()), table);
        published.map_err(|(error, _)| error).unwrap();
        let client = client();
        for round in 0..200 {
            let options = GetOptions {
                deadline: Some(Duration::from_micros(1 + round * 7919 % 5000)),
                ..subject.options()
            };
            match client.get(&[&uri], b"t", &options, None) {
                Ok(stream) => drop(stream),
                Err(error) => assert_eq!(error.status(), Status::Timeout, "{error}"),
            }
        }
        eventually("no stream is left", || server.stats().streams_active == 0);
    }
}
