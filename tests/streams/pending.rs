//! Requests of a client that waits in an event loop: many at once, whatever their servers do.

use std::net::TcpListener;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use dipc::arrow::description::Description;
use dipc::cancel::Cancel;
use dipc::client::{Answer, Client, GetOptions, Pending, PutOptions};
use dipc::error::{Result, Status};
use dipc::proto::Verb;
use dipc::server::{ServerHandle, ServerOptions, ServerRequest};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::common::{batch, export, export_schema, read_all, schema};
use crate::{SUBJECTS, Subject, assert_same, client, eventually, server};

const HOST: i32 = 1;

fn count(subject: Subject) -> usize {
    match subject.scheme {
        // Each connection of UCX costs some MiB.
        "ucx" => 12,
        _ => 100,
    }
}

fn verb(number: usize) -> Verb {
    [Verb::Get, Verb::Describe, Verb::Put, Verb::Exchange][number % 4]
}

/// Asks without a wait.
fn ask(
    client: &Client,
    uri: &str,
    subject: Subject,
    number: usize,
    cancel: Option<&Cancel>,
    deadline: Option<Duration>,
) -> Pending {
    let ticket = number.to_string();
    let get = GetOptions {
        deadline,
        ..subject.options()
    };
    let put = PutOptions {
        deadline,
        connections: subject.options().connections,
        ..PutOptions::default()
    };
    let described = (&export_schema(&schema()), HOST);
    let pending = match verb(number) {
        Verb::Put => client.start_put(&[uri], ticket.as_bytes(), described, (&put, None), cancel),
        Verb::Exchange => {
            let options = (&put, Some(&get));
            client.start_put(&[uri], ticket.as_bytes(), described, options, cancel)
        }
        verb => client.start(verb, &[uri], ticket.as_bytes(), &get, cancel),
    };
    pending.unwrap()
}

/// Waits for the answer.
fn answer(pending: &Pending) -> Result<Answer> {
    let fd = pending.fd().unwrap();
    let mut polled = [PollFd::new(&fd, PollFlags::IN)];
    let most = Timespec {
        tv_sec: 20,
        tv_nsec: 0,
    };
    assert_eq!(poll(&mut polled, Some(&most)).unwrap(), 1, "no answer");
    let answer = pending.try_answer(|_| true)?;
    Ok(answer.expect("the descriptor tells of an answer"))
}

/// The next requests of the pull form.
fn collect(server: &ServerHandle, count: usize) -> Vec<ServerRequest> {
    let next = || server.next_request(Some(Duration::from_secs(20)), None);
    (0..count).map(|_| next().unwrap().unwrap()).collect()
}

/// Answers as the verb asks.
fn give(request: &ServerRequest) {
    let number: i64 = std::str::from_utf8(request.ticket())
        .unwrap()
        .parse()
        .unwrap();
    let answer = match request.verb() {
        Verb::Describe => {
            let description = Description {
                rows: Some(number.unsigned_abs()),
                ..Description::default()
            };
            Some(description.table().unwrap())
        }
        Verb::Put => None,
        _ => Some((export_schema(&schema()), export(&batch(number, 10)))),
    };
    if let Verb::Put | Verb::Exchange = request.verb() {
        let taken = read_all(&mut request.source().unwrap()).unwrap();
        assert_same(&taken, &[batch(number, 5)]);
    }
    if let Some((schema, array)) = answer {
        request.start(&schema, HOST).unwrap();
        let pushed = request.push(array, None, None);
        pushed.map_err(|(error, _)| error).unwrap();
    }
    request.finish(None).unwrap();
}

/// Uses the answer to request `number`.
fn take(answer: Answer, number: usize) {
    let first = i64::try_from(number).unwrap();
    match (answer, verb(number)) {
        (Answer::Stream(mut stream), Verb::Get) => {
            assert_same(&read_all(&mut *stream).unwrap(), &[batch(first, 10)]);
        }
        (Answer::Description(description, _), Verb::Describe) => {
            assert_eq!(description.rows, Some(number as u64));
        }
        (Answer::Put(mut put, answers), Verb::Put | Verb::Exchange) => {
            let pushed = put.push(export(&batch(first, 5)), None, None);
            pushed.map_err(|(error, _)| error).unwrap();
            if let Some(mut answers) = answers {
                // The end is told; the server may need time to say its own.
                let _ = put.finish(Some(Duration::ZERO));
                assert_same(&read_all(&mut *answers).unwrap(), &[batch(first, 10)]);
            }
            assert_eq!(put.finish(None).unwrap(), 1);
        }
        _ => panic!("request {number} has an answer of another kind"),
    }
}

/// Promise of `dipc_client_start`: requests wait for their servers, not for each other. A server
/// has a hundred before it answers the first one, and answers them in any order.
#[test]
fn many_requests_wait_at_once() {
    for subject in SUBJECTS {
        let options = ServerOptions {
            max_streams: 200,
            ..ServerOptions::default()
        };
        let (server, uri) = server(subject, options);
        server.set_handler_pull().unwrap();
        let client = client();
        let count = count(subject);
        let ask = |number| ask(&client, &uri, subject, number, None, None);
        for round in 0..2 {
            let all: Vec<_> = (0..count).map(ask).collect();
            let requests = collect(&server, count);
            for pending in &all {
                assert!(pending.try_answer(|_| true).unwrap().is_none(), "{round}");
            }
            let hosts: Vec<_> = (requests.into_iter().rev())
                .map(|request| thread::spawn(move || give(&request)))
                .collect();
            for (number, pending) in all.iter().enumerate() {
                take(answer(pending).unwrap(), number);
            }
            hosts.into_iter().for_each(|host| host.join().unwrap());
        }
        eventually("no stream is left", || server.stats().streams_active == 0);
    }
}

/// Promise of `dipc_client_start`: a token, the deadline, a refusal and the end of the server each
/// end a request that waits; so does its drop.
#[test]
fn a_request_that_waits_can_end() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        server.set_handler_pull().unwrap();
        let client = client();
        for number in 0..4 {
            let what = format!("{:?} over {}", verb(number), subject.scheme);
            let token = Cancel::new().unwrap();
            let pending = ask(&client, &uri, subject, number, Some(&token), None);
            let request = collect(&server, 1);
            token.cancel();
            let error = answer(&pending).map(drop).unwrap_err();
            assert_eq!(error.status(), Status::Cancelled, "{what}");
            drop(request);

            // On a busy machine a request may not reach the server before its deadline.
            let reached = [1, 4, 16].map(Duration::from_secs).into_iter();
            let mut reached = reached.filter_map(|soon| {
                let pending = ask(&client, &uri, subject, number, None, Some(soon));
                let request = server.next_request(Some(soon), None).unwrap()?;
                Some((pending, request))
            });
            let (pending, request) = reached.next().expect("no request came");
            let error = answer(&pending).map(drop).unwrap_err();
            assert_eq!(error.status(), Status::Timeout, "{what}: {error}");
            drop(request);

            let pending = ask(&client, &uri, subject, number, None, None);
            let request = collect(&server, 1);
            request[0].fail(Status::Permission.code(), "not today");
            let error = answer(&pending).map(drop).unwrap_err();
            assert_eq!(error.status(), Status::Permission, "{what}: {error}");
            assert!(error.text().contains("not today"), "{what}: {error}");

            let pending = ask(&client, &uri, subject, number, None, None);
            let request = collect(&server, 1);
            drop(pending);
            eventually(&what, || request[0].is_cancelled());
        }
        let all: Vec<_> = (0..4)
            .map(|number| ask(&client, &uri, subject, number, None, None))
            .collect();
        let requests = collect(&server, 4);
        let server = Arc::new(server);
        let stopped = {
            let server = Arc::clone(&server);
            thread::spawn(move || drop(server.stop(Duration::ZERO)))
        };
        for pending in &all {
            assert!(answer(pending).is_err());
        }
        drop(requests);
        stopped.join().unwrap();
    }
}

/// Promise of `dipc_client_start`: servers that accept a connection and then say nothing hold up no
/// request for another server. Each request ends with its own time-out.
#[test]
fn silent_servers_hold_up_no_other() {
    const EACH: usize = 20;
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let client = client();
    let options = |connect_timeout| GetOptions {
        checksums: true,
        connect_timeout,
        ..GetOptions::default()
    };
    // They are silent in the handshake, and to the question for checksums.
    let silent = ["tls", "tcp"].map(|scheme| format!("{scheme}://{address}?dipc=1"));
    let start = |uri: &str, timeout| {
        let pending = client.start(Verb::Get, &[uri], b"t", &options(timeout), None);
        pending.unwrap()
    };
    let waiting: Vec<_> = (silent.iter())
        .flat_map(|uri| (0..EACH).map(|_| start(uri, Duration::from_secs(600))))
        .collect();
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        server.set_handler_pull().unwrap();
        for number in 0..4 {
            let pending = ask(&client, &uri, subject, number, None, None);
            thread::scope(|scope| {
                scope.spawn(|| give(&collect(&server, 1)[0]));
                take(answer(&pending).unwrap(), number);
            });
        }
    }
    for uri in &silent {
        let error = answer(&start(uri, Duration::from_millis(50))).map(drop);
        assert_eq!(error.unwrap_err().status(), Status::Timeout, "{uri}");
    }
    for pending in &waiting {
        assert!(pending.try_answer(|_| true).unwrap().is_none());
    }
}

/// Promise of `dipc_client_free`: requests outlive their client, also those that wait for the
/// connection that another one opens.
#[test]
fn requests_outlive_their_client() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("tcp://{}?dipc=1", listener.local_addr().unwrap());
    let client = client();
    let options = GetOptions::default();
    let start = |uri: &str| client.start(Verb::Get, &[uri], b"0", &options, None);
    let all: Vec<_> = (0..10).map(|_| start(&uri).unwrap()).collect();
    // The thread has looked at the others when it has looked at this one.
    let nobody = start("shm:@dipc-nobody-listens-here").unwrap();
    assert_eq!(answer(&nobody).err().unwrap().status(), Status::Unreachable);
    drop(client);
    let server = ServerHandle::new(ServerOptions::default()).unwrap();
    server.set_handler_pull().unwrap();
    server.listen_fd("tcp", listener.as_fd()).unwrap();
    collect(&server, all.len()).iter().for_each(give);
    for pending in all {
        take(answer(&pending).unwrap(), 0);
    }
}
