//! Rule Q7: the host decides about each request, before anything is done for it.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use arrow::array::{AsArray as _, RecordBatch};
use dipc::cancel::Cancel;
use dipc::client::{GetOptions, PutOptions};
use dipc::error::{Error, Result, Status};
use dipc::proto::Verb;
use dipc::server::{
    Authorizer, HostProvider, ServerHandle, ServerOptions, ServerRequest, SharedAuthorizer,
};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::common::{batch, counting, export, export_schema, read_all, schema, stream_of};
use crate::{SHM, SUBJECTS, Subject, client, eventually, serve, server};

const HOST: i32 = 1;

pub(crate) struct Deciding<F>(pub(crate) F);

impl<F: Fn(&ServerRequest) -> Result<()> + Send + Sync + 'static> Authorizer for Deciding<F> {
    fn authorize(&self, request: &ServerRequest) -> Result<()> {
        (self.0)(request)
    }
}

/// A server whose host decides by `decide`.
fn deciding(
    subject: Subject,
    decide: impl Fn(&ServerRequest) -> Result<()> + Send + Sync + 'static,
) -> (ServerHandle, String) {
    let options = ServerOptions {
        max_streams: 4,
        max_providers: Some(4),
        authorizer: Some(SharedAuthorizer(Arc::new(Deciding(decide)))),
        ..ServerOptions::default()
    };
    server(subject, options)
}

/// Gives and takes tables, and keeps who asked.
struct Handler(mpsc::Sender<(Verb, Option<String>)>);

impl HostProvider for Handler {
    fn open(&self, request: &ServerRequest) -> Result<dipc::arrow::OwnedDeviceStream> {
        let _ = self.0.send((request.verb(), request.principal()));
        if request.verb() == Verb::Exchange {
            read_all(&mut request.source()?)?;
        }
        Ok(stream_of(schema(), std::iter::once(Ok(batch(0, 3)))))
    }

    fn take(&self, request: &ServerRequest) -> Result<()> {
        let _ = self.0.send((request.verb(), request.principal()));
        read_all(&mut request.source()?).map(drop)
    }
}

/// What a client hears that gets, describes and puts a ticket.
fn ask(subject: Subject, uri: &str, ticket: &[u8], token: &str) -> [Result<()>; 3] {
    let client = client();
    let mut get_options = subject.options();
    get_options.headers.add("token", token).unwrap();
    let mut put_options = PutOptions {
        connections: subject.connections,
        ..PutOptions::default()
    };
    put_options.headers.add("token", token).unwrap();
    let described = (&export_schema(&schema()), HOST);
    let got = client.get(&[uri], ticket, &get_options, None);
    let got = got.and_then(|mut stream| read_all(&mut stream).map(drop));
    let shown = client.describe(&[uri], ticket, &get_options, None);
    let put = || {
        let mut put = client.put(&[uri], ticket, described, &put_options, None)?;
        put.push(export(&batch(0, 10)), None, None)
            .map_err(|(error, _)| error)?;
        put.finish(None).map(drop)
    };
    [got, shown.map(drop), put()]
}

/// Each request is decided by itself, on connections that are kept: with verb, ticket, headers and
/// peer, and with a name for the client that handlers see. A refusal has the host's status and
/// text.
#[test]
fn each_request_is_decided() {
    for subject in SUBJECTS {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        let (server, uri) = deciding(subject, move |request| {
            let token = request.headers().get("token").unwrap_or_default().to_vec();
            seen.lock()
                .push((request.verb(), request.ticket().to_vec(), token.clone()));
            assert_eq!(request.origin().scheme, subject.scheme);
            match &*token {
                b"good" => {
                    request.set_principal("alice");
                    Ok(())
                }
                b"slow" => {
                    request.fail(Status::Busy.code(), "come again");
                    Ok(())
                }
                _ => Err(Error::new(Status::Permission, "who are you?")),
            }
        });
        let (sender, handled) = mpsc::channel();
        let handler = server.set_handler(Box::new(Handler(sender)));
        handler.map_err(|(error, _)| error).unwrap();
        for _ in 0..2 {
            for outcome in ask(subject, &uri, b"a", "bad") {
                let error = outcome.unwrap_err();
                assert_eq!(error.status(), Status::Permission, "{error}");
                assert!(error.text().contains("who are you?"), "{error}");
            }
            for outcome in ask(subject, &uri, b"a", "slow") {
                let error = outcome.unwrap_err();
                assert_eq!(error.status(), Status::Busy, "{error}");
                assert!(error.text().contains("come again"), "{error}");
            }
            let [got, _, put] = ask(subject, &uri, b"b", "good");
            got.unwrap();
            put.unwrap();
        }
        let handled: Vec<_> = handled.try_iter().collect();
        let alice = || Some("alice".to_owned());
        let round = [Verb::Get, Verb::Describe, Verb::Put].map(|verb| (verb, alice()));
        assert_eq!(handled, [round.clone(), round].concat(), "{subject:?}");
        let asked = asked.lock();
        assert_eq!(asked.len(), 18, "{subject:?}");
        assert_eq!(asked[8], (Verb::Put, b"b".to_vec(), b"good".to_vec()));
    }
}

/// Rule Q3: the schema of a put or an exchange comes while the host still decides. It is kept if
/// the host allows the request, and a refusal is told all the same.
#[test]
fn a_schema_waits_for_the_decision() {
    for subject in SUBJECTS {
        let (server, uri) = deciding(subject, |request| {
            // Longer than the holder of a connection may be away from it.
            thread::sleep(Duration::from_millis(50));
            match request.headers().get("token") {
                Some(b"good") => Ok(()),
                _ => Err(Error::new(Status::Permission, "who are you?")),
            }
        });
        let (sender, handled) = mpsc::channel();
        let handler = server.set_handler(Box::new(Handler(sender)));
        handler.map_err(|(error, _)| error).unwrap();
        for token in ["good", "bad", "good"] {
            let [_, _, put] = ask(subject, &uri, b"a", token);
            let exchanged = exchange(subject, &uri, token);
            for outcome in [put, exchanged] {
                match token {
                    "good" => outcome.unwrap(),
                    _ => assert!(outcome.unwrap_err().text().contains("who are you?")),
                }
            }
        }
        let taken = handled.try_iter().filter(|(verb, _)| verb.has_source());
        assert_eq!(taken.count(), 4, "{subject:?}");
    }
}

/// Tells how much time a request has left.
struct TimeLeft(mpsc::Sender<Duration>);

impl HostProvider for TimeLeft {
    fn open(&self, request: &ServerRequest) -> Result<dipc::arrow::OwnedDeviceStream> {
        self.0.send(request.time_left().unwrap()).unwrap();
        Ok(stream_of(schema(), std::iter::once(Ok(batch(0, 3)))))
    }

    fn take(&self, request: &ServerRequest) -> Result<()> {
        self.0.send(request.time_left().unwrap()).unwrap();
        read_all(&mut request.source()?).map(drop)
    }
}

/// Rule Q1: the deadline is of the whole request, and runs on while the host decides.
#[test]
fn a_deadline_runs_on_during_the_decision() {
    for subject in SUBJECTS {
        let (sender, left) = mpsc::channel();
        let deciding_left = sender.clone();
        let (server, uri) = deciding(subject, move |request| {
            // A deadline that began anew would show.
            thread::sleep(Duration::from_millis(50));
            deciding_left.send(request.time_left().unwrap()).unwrap();
            Ok(())
        });
        let handler = server.set_handler(Box::new(TimeLeft(sender)));
        handler.map_err(|(error, _)| error).unwrap();
        let options = GetOptions {
            deadline: Some(Duration::from_secs(60)),
            ..subject.options()
        };
        let mut stream = client().get(&[&uri], b"a", &options, None).unwrap();
        read_all(&mut stream).unwrap();
        let (deciding, serving) = (left.recv().unwrap(), left.recv().unwrap());
        assert!(
            serving <= deciding,
            "{subject:?}: {serving:?}, {deciding:?}"
        );
    }
}

/// A client that cancels and goes while the host still decides leaves no stream behind, whatever
/// the host decides.
#[test]
fn a_cancel_before_the_decision_leaves_nothing() {
    for (subject, verb) in SUBJECTS
        .into_iter()
        .flat_map(|subject| [Verb::Put, Verb::Exchange].map(|verb| (subject, verb)))
    {
        for verdict in ["good", "bad"] {
            let (begun, deciding_now) = mpsc::channel();
            let (leaves, left) = mpsc::channel();
            let left = Mutex::new(left);
            let (server, uri) = deciding(subject, move |request| {
                if request.ticket() == b"slow" {
                    begun.send(()).unwrap();
                    eventually("the cancel is heard", || request.is_cancelled());
                    left.lock().recv().unwrap();
                }
                match request.headers().get("token") {
                    Some(b"good") => Ok(()),
                    _ => Err(Error::new(Status::Permission, "who are you?")),
                }
            });
            let (sender, handled) = mpsc::channel();
            let handler = server.set_handler(Box::new(Handler(sender)));
            handler.map_err(|(error, _)| error).unwrap();
            let client = client();
            let mut options = PutOptions {
                connections: subject.connections,
                ..PutOptions::default()
            };
            options.headers.add("token", verdict).unwrap();
            let schema = export_schema(&schema());
            let cancel = Cancel::new().unwrap();
            thread::scope(|scope| {
                let cancel = &cancel;
                scope.spawn(move || {
                    deciding_now.recv_timeout(Duration::from_secs(20)).unwrap();
                    cancel.cancel();
                });
                let (uris, described) = ([uri.as_str()], (&schema, HOST));
                let answers = subject.options();
                let outcome = match verb {
                    Verb::Put => client
                        .put(&uris, b"slow", described, &options, Some(cancel))
                        .map(drop),
                    _ => client
                        .exchange(
                            &uris,
                            b"slow",
                            described,
                            (&options, &answers),
                            Some(cancel),
                        )
                        .map(drop),
                };
                assert_eq!(outcome.unwrap_err().status(), Status::Cancelled);
            });
            drop(client);
            leaves.send(()).unwrap();
            if verdict == "good" {
                handled.recv_timeout(Duration::from_secs(20)).unwrap();
            }
            eventually("no connection is left", || server.stats().connections == 0);
            let client = crate::client();
            options.headers = dipc::proto::Headers::default();
            options.headers.add("token", "good").unwrap();
            let mut put = client
                .put(&[&uri], b"next", (&schema, HOST), &options, None)
                .unwrap();
            put.push(export(&batch(0, 10)), None, None)
                .map_err(|(error, _)| error)
                .unwrap();
            put.finish(None).unwrap();
            drop(put);
            eventually("no stream is left", || server.stats().streams_active == 0);
        }
    }
}

fn exchange(subject: Subject, uri: &str, token: &str) -> Result<()> {
    let mut options = PutOptions {
        connections: subject.connections,
        ..PutOptions::default()
    };
    options.headers.add("token", token).unwrap();
    let described = (&export_schema(&schema()), HOST);
    let both = (&options, &subject.options());
    let (mut put, mut stream) = client().exchange(&[uri], b"a", described, both, None)?;
    put.push(export(&batch(0, 10)), None, None)
        .map_err(|(error, _)| error)?;
    put.finish(None)?;
    read_all(&mut stream).map(drop)
}

fn listed(subject: Subject, uri: &str) -> Vec<Vec<u8>> {
    let mut stream = client()
        .list(&[uri], b"", &subject.options(), None)
        .unwrap();
    let tickets = |batch: &RecordBatch| {
        let column = batch.column(0).as_binary::<i32>().clone();
        column
            .iter()
            .flatten()
            .map(<[u8]>::to_vec)
            .collect::<Vec<_>>()
    };
    read_all(&mut stream)
        .unwrap()
        .iter()
        .flat_map(tickets)
        .collect()
}

/// list and describe show a peer only what it may get.
#[test]
fn only_what_a_peer_may_get_is_shown() {
    for subject in SUBJECTS {
        let (server, uri) = deciding(subject, |request| {
            match request.verb() == Verb::Get && request.ticket().starts_with(b"secret") {
                true => Err(Error::new(Status::Permission, "not for you")),
                false => Ok(()),
            }
        });
        for ticket in ["open", "secret", "secret plans", "table"] {
            serve(&server, ticket, counting(1, 1));
        }
        assert_eq!(listed(subject, &uri), [b"open".to_vec(), b"table".to_vec()]);
        let describe = |ticket: &[u8]| {
            let options = subject.options();
            client().describe(&[&uri], ticket, &options, None).map(drop)
        };
        describe(b"open").unwrap();
        let error = describe(b"secret").unwrap_err();
        assert_eq!(error.status(), Status::NotFound, "{error}");
        assert!(!error.text().contains("not for you"), "{error}");
    }
}

/// A host that takes its time holds up nobody else, its client can leave, and past a bound of
/// questions the answer is busy at once.
#[test]
fn a_slow_decision_holds_up_nobody() {
    for subject in SUBJECTS {
        let (go, wait) = mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        let thinking = Arc::new(AtomicUsize::new(0));
        let begun = Arc::clone(&thinking);
        let (server, uri) = deciding(subject, move |request| {
            if request.ticket() == b"slow" {
                begun.fetch_add(1, Relaxed);
                let _ = wait.lock().recv();
            }
            Ok(())
        });
        serve(&server, "slow", counting(1, 1));
        serve(&server, "t", counting(1, 1));
        let get = |ticket: &'static [u8], cancel: Option<&Cancel>| {
            let options = GetOptions {
                connect_timeout: Duration::from_secs(60),
                ..subject.options()
            };
            let mut stream = client().get(&[&uri], ticket, &options, cancel)?;
            read_all(&mut stream).map(|batches| batches.len())
        };
        let cancel = Cancel::new().unwrap();
        thread::scope(|scope| {
            let slow = scope.spawn(|| get(b"slow", None));
            eventually("the host thinks", || thinking.load(Relaxed) == 1);
            assert_eq!(get(b"t", None).unwrap(), 1);
            let left = scope.spawn(|| get(b"slow", Some(&cancel)));
            eventually("a second question waits", || {
                server.stats().connections >= 2
            });
            cancel.cancel();
            assert_eq!(
                left.join().unwrap().unwrap_err().status(),
                Status::Cancelled
            );
            let more: Vec<_> = (0..6).map(|_| scope.spawn(|| get(b"slow", None))).collect();
            eventually("some are refused", || {
                more.iter().filter(|it| it.is_finished()).count() >= 2
            });
            drop(go);
            assert_eq!(slow.join().unwrap().unwrap(), 1);
            for one in more {
                if let Err(error) = one.join().unwrap() {
                    assert_eq!(error.status(), Status::Busy, "{error}");
                }
            }
        });
    }
}

/// A host that never comes back from a decision does not keep a server from being dropped.
#[test]
fn a_server_ends_while_its_host_decides() {
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let thinking = Arc::new(AtomicUsize::new(0));
    let begun = Arc::clone(&thinking);
    let (server, uri) = deciding(SHM, move |_| {
        begun.fetch_add(1, Relaxed);
        let _ = wait.lock().recv();
        Ok(())
    });
    serve(&server, "t", counting(1, 1));
    thread::scope(|scope| {
        let asking = scope.spawn(|| {
            client()
                .get(&[&uri], b"t", &GetOptions::default(), None)
                .map(drop)
        });
        eventually("the host thinks", || thinking.load(Relaxed) == 1);
        let _ = server.stop(Duration::ZERO);
        asking.join().unwrap().unwrap_err();
        drop(go);
    });
    drop(server);
}

/// A host that no library can call takes each request twice: first to decide about it, then to
/// answer it. Dropping the first refuses it, and a stop refuses those that wait.
#[test]
fn a_host_decides_in_the_pull_form() {
    for subject in SUBJECTS {
        let options = ServerOptions {
            authorizes_by_pull: true,
            ..ServerOptions::default()
        };
        let (server, uri) = server(subject, options);
        server.serve_pull(b"pulled").unwrap();
        serve(&server, "t", counting(1, 1));
        serve(&server, "secret", counting(1, 1));
        let next = || server.next_request(None, None).unwrap().unwrap();
        let get = |ticket: &'static [u8]| {
            let mut stream = client().get(&[&uri], ticket, &subject.options(), None)?;
            read_all(&mut stream).map(|batches| batches.len())
        };
        thread::scope(|scope| {
            let getting = scope.spawn(|| get(b"pulled"));
            let question = next();
            assert!(question.is_undecided());
            assert_eq!(
                (question.verb(), question.ticket()),
                (Verb::Get, &b"pulled"[..])
            );
            question.set_principal("alice");
            question.allow().unwrap();
            assert!(!question.is_undecided());
            assert_eq!(
                question.allow().unwrap_err().status(),
                Status::InvalidArgument
            );
            drop(question);
            let request = next();
            assert!(!request.is_undecided());
            assert_eq!(request.principal().as_deref(), Some("alice"));
            request.start(&export_schema(&schema()), HOST).unwrap();
            request.finish(None).unwrap();
            assert_eq!(getting.join().unwrap().unwrap(), 0);
            drop(request);

            // Tickets that the host does not serve itself are decided about too.
            let getting = scope.spawn(|| get(b"t"));
            next().allow().unwrap();
            assert_eq!(getting.join().unwrap().unwrap(), 1);

            let getting = scope.spawn(|| get(b"t"));
            next().fail(Status::Busy.code(), "come again");
            let error = getting.join().unwrap().unwrap_err();
            assert_eq!(error.status(), Status::Busy);
            assert!(error.text().contains("come again"), "{error}");

            let getting = scope.spawn(|| get(b"t"));
            drop(next());
            let error = getting.join().unwrap().unwrap_err();
            assert_eq!(error.status(), Status::Permission);

            let listing = scope.spawn(|| listed(subject, &uri));
            while !listing.is_finished() {
                let at_most = Some(Duration::from_millis(20));
                if let Some(question) = server.next_request(at_most, None).unwrap()
                    && question.ticket() != b"secret"
                {
                    question.allow().unwrap();
                }
            }
            let shown = listing.join().unwrap();
            assert_eq!(shown, [b"pulled".to_vec(), b"t".to_vec()]);

            let getting = scope.spawn(|| get(b"t"));
            eventually("a question waits", || {
                let mut fds = [PollFd::from_borrowed_fd(server.request_fd(), PollFlags::IN)];
                poll(&mut fds, Some(&Timespec::default())).unwrap() == 1
            });
            server.stop(Duration::ZERO).unwrap();
            let error = getting.join().unwrap().unwrap_err();
            assert_eq!(error.status(), Status::Stopped, "{error}");
        });
    }
}
