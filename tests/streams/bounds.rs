//! Bounds on what clients may hold (rule Q8): past one the answer is busy, or the connection ends.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use dipc::arrow::stream::ArrayReader as _;
use dipc::cancel::Cancel;
use dipc::client::{GetOptions, Pending, Put, PutOptions, Stream};
use dipc::device::DeviceKind;
use dipc::error::{Error, Status};
use dipc::proto::{Credit, Verb};
use dipc::server::{ServerHandle, ServerOptions, ServerRequest};
use parking_lot::Mutex;

use crate::common::{FnTaker, batch, counting, export, export_schema, read_all, schema};
use crate::hostile_puts::Raw;
use crate::{SHM, SUBJECTS, Subject, client, eventually, serve, server};

/// A client that connects and asks for nothing, or for half of something, is closed in time; one
/// that has asked is kept for longer, then closed, and connects again by itself.
#[test]
fn quiet_connections_end() {
    for subject in SUBJECTS {
        // On a busy machine a client that asks takes its time, too.
        let options = ServerOptions {
            request_timeout: Some(Duration::from_secs(3)),
            idle_timeout: Some(Duration::from_millis(100)),
            ..ServerOptions::default()
        };
        let (server, uri) = server(subject, options);
        serve(&server, "t", counting(2, 10));
        let client = client();
        for _ in 0..3 {
            let mut stream = client.get(&[&uri], b"t", &subject.options(), None).unwrap();
            assert_eq!(read_all(&mut stream).unwrap().len(), 2);
            drop(stream);
            eventually("the idle connection ends", || {
                server.stats().connections == 0
            });
        }
        if subject.scheme != "tcp" {
            continue;
        }
        let options = ServerOptions {
            request_timeout: Some(Duration::from_millis(300)),
            ..ServerOptions::default()
        };
        let (_server, uri) = crate::server(subject, options);
        let target = uri.trim_start_matches("tcp://").split('?').next().unwrap();
        for begun in [&b""[..], &[1, 0, 0, 0, 0]] {
            let mut peer = TcpStream::connect(target).unwrap();
            peer.write_all(begun).unwrap();
            peer.set_read_timeout(Some(Duration::from_secs(20)))
                .unwrap();
            assert_eq!(peer.read(&mut [0]).unwrap(), 0);
        }
    }
}

/// Without a time for the first request, a connection without any is idle, and ends as one.
#[test]
fn a_connection_that_never_asks_is_idle() {
    let options = ServerOptions {
        request_timeout: None,
        idle_timeout: Some(Duration::from_millis(100)),
        ..ServerOptions::default()
    };
    let (server, _) = server(SHM, options);
    let tcp = server.listen("tcp://127.0.0.1:0").unwrap();
    let target = tcp.trim_start_matches("tcp://").split('?').next().unwrap();
    let mut peer = TcpStream::connect(target).unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    assert_eq!(peer.read(&mut [0]).unwrap(), 0);
}

/// Batches that a client keeps hold the connection that returns them.
#[test]
fn a_connection_with_lent_memory_stays() {
    let options = ServerOptions {
        idle_timeout: Some(Duration::from_millis(50)),
        request_timeout: Some(Duration::from_millis(100)),
        ..ServerOptions::default()
    };
    let (server, uri) = server(SHM, options);
    serve(&server, "t", counting(2, 10_000));
    let client = client();
    let mut stream = client.get(&[&uri], b"t", &SHM.options(), None).unwrap();
    let kept = read_all(&mut stream).unwrap();
    drop(stream);
    // Both times pass.
    std::thread::sleep(Duration::from_millis(400));
    let stats = server.stats();
    assert!(
        stats.connections == 1 && stats.lent_outstanding > 0,
        "{stats:?}"
    );
    drop(kept);
    eventually("the connection ends", || server.stats().connections == 0);
}

/// Rule Q8: a server has as many connections as it may. Further clients hear so, and those of the
/// server's own user still have places by shm that others do not get.
#[test]
fn a_full_server_says_so() {
    let options = ServerOptions {
        max_connections: Some(16),
        ..ServerOptions::default()
    };
    let (server, uri) = server(SHM, options);
    let tcp = server.listen("tcp://127.0.0.1:0").unwrap();
    serve(&server, "t", counting(2, 10));
    let get = |uri: &str| {
        let mut stream = client().get(&[uri], b"t", &SHM.options(), None)?;
        read_all(&mut stream).map(|batches| batches.len())
    };
    let target = tcp.trim_start_matches("tcp://").split('?').next().unwrap();
    let silent: Vec<_> = (0..14)
        .map(|_| TcpStream::connect(target).unwrap())
        .collect();
    eventually("the silent ones are connected", || {
        server.stats().connections == 14
    });
    // More of them are refused, and wait for an answer to nothing.
    let refused: Vec<_> = (0..40)
        .map(|_| TcpStream::connect(target).unwrap())
        .collect();
    for _ in 0..20 {
        let error = get(&tcp).unwrap_err();
        assert_busy(&error, "max_connections");
        assert_eq!(get(&uri).unwrap(), 2);
    }
    drop((silent, refused));
    eventually("there is a place again", || get(&tcp).is_ok());
}

/// Rule Q8: clients that ask and take nothing do not keep the places of others. Once somebody wants
/// a place, the stream that has waited longest for its client ends; one that is read goes on.
#[test]
fn streams_that_nobody_reads_make_room() {
    for subject in SUBJECTS {
        let options = ServerOptions {
            max_streams: 4,
            credit_timeout: Some(Duration::from_millis(100)),
            ..ServerOptions::default()
        };
        let (server, uri) = server(subject, options);
        serve(&server, "long", counting(10_000_000, 10));
        serve(&server, "short", counting(2, 10));
        let client = client();
        let narrow = GetOptions {
            window: Credit {
                batches: 1,
                ..subject.options().window
            },
            ..subject.options()
        };
        let get = |ticket: &[u8]| client.get(&[&uri], ticket, &narrow, None);
        let mut unread: Vec<_> = (0..3).map(|_| get(b"long").unwrap()).collect();
        let mut read = get(b"long").unwrap();
        let mut batches = 0;
        eventually("there is a place", || {
            for _ in 0..16 {
                assert!(read.next().unwrap().is_some());
                batches += 1;
            }
            match get(b"short") {
                Ok(mut stream) => read_all(&mut stream).unwrap().len() == 2,
                Err(error) => {
                    assert_busy(&error, "max_streams");
                    false
                }
            }
        });
        assert!(batches > 0 && read.next().unwrap().is_some());
        let failure = |it: &mut Stream| (0..4).find_map(|_| it.next().err());
        let ended: Vec<_> = unread.iter_mut().filter_map(failure).collect();
        assert!(!ended.is_empty());
        for error in ended {
            assert_eq!(error.status(), Status::Timeout, "{error}");
            assert!(error.text().contains("wait"), "{error}");
        }
    }
}

/// Rule Q8: so do tables whose clients send nothing while the host waits for them. A client whose
/// host takes its time keeps its place, and so does one that sends.
#[test]
fn tables_that_nobody_sends_make_room() {
    // Over mem a message to an end that is closed fails before what came from there is read.
    for subject in SUBJECTS.into_iter().filter(|it| it.scheme != "mem") {
        let options = ServerOptions {
            max_streams: 4,
            credit_timeout: Some(Duration::from_millis(200)),
            ..ServerOptions::default()
        };
        let (server, uri) = server(subject, options);
        let (go_on, slow) = mpsc::channel::<()>();
        let slow = Mutex::new(slow);
        let taker = FnTaker(move |request: &ServerRequest| {
            let mut source = request.source()?;
            if request.ticket() == b"slow" {
                assert!(source.next()?.is_some());
                slow.lock().recv().unwrap();
            }
            read_all(&mut source).map(drop)
        });
        let handler = server.set_handler(Box::new(taker));
        handler.map_err(|(error, _)| error).unwrap();
        let client = client();
        let put = |ticket: &[u8]| {
            let described = (&export_schema(&schema()), DeviceKind::CPU.0);
            let options = PutOptions {
                connections: subject.connections,
                ..PutOptions::default()
            };
            client.put(&[&uri], ticket, described, &options, None)
        };
        let push = |put: &mut Put| {
            let pushed = put.push(export(&batch(0, 10)), None, None);
            pushed.map_err(|(error, _)| error)
        };
        let mut of_slow_host = put(b"slow").unwrap();
        push(&mut of_slow_host).unwrap();
        let mut sent = put(b"sent").unwrap();
        let mut silent: Vec<_> = (0..2).map(|_| put(b"silent").unwrap()).collect();
        push(&mut silent[0]).unwrap();
        eventually("there is a place", || {
            push(&mut sent).unwrap();
            put(b"short").is_ok_and(|mut put| put.finish(None).is_ok())
        });
        let ended = silent
            .into_iter()
            .filter_map(|mut put| put.finish(None).err());
        let ended: Vec<_> = ended.collect();
        assert!(!ended.is_empty());
        for error in ended {
            assert_eq!(
                error.status(),
                Status::Timeout,
                "{} {error}",
                subject.scheme
            );
            assert!(error.text().contains("wait"), "{error}");
        }
        go_on.send(()).unwrap();
        of_slow_host.finish(None).unwrap();
        sent.finish(None).unwrap();
    }
}

/// Rule Q8: the same of clients that ask, and do not even say what they send.
#[test]
fn requests_to_put_alone_make_room() {
    for subject in SUBJECTS {
        let options = ServerOptions {
            max_streams: 4,
            credit_timeout: Some(Duration::from_millis(100)),
            ..ServerOptions::default()
        };
        let (server, uri) = server(subject, options);
        serve(&server, "t", counting(2, 10));
        let taker = FnTaker(|request: &ServerRequest| read_all(&mut request.source()?).map(drop));
        let handler = server.set_handler(Box::new(taker));
        handler.map_err(|(error, _)| error).unwrap();
        let _silent = [(); 4].map(|()| {
            let mut client = Raw::connect(subject, &uri);
            client.asks_for(&Raw::request());
            client
        });
        eventually("the places are taken", || {
            server.stats().streams_active == 4
        });
        let client = client();
        eventually("there is a place", || {
            client.get(&[&uri], b"t", &subject.options(), None).is_ok()
        });
    }
}

/// Passes on what a client sends, little by little. Gives its own port.
fn slow_relay(port: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut client = listener.accept().unwrap().0;
        let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (mut answers, mut back) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        thread::spawn(move || std::io::copy(&mut answers, &mut back));
        let (mut server, mut buffer) = (server, [0; 4096]);
        while let Ok(read @ 1..) = client.read(&mut buffer) {
            if server.write_all(&buffer[..read]).is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
    });
    own
}

/// Rule Q8: a client on a slow network is not one that sends nothing, however large its batches.
#[test]
fn a_table_that_comes_slowly_stays() {
    let tcp = Subject {
        scheme: "tcp",
        ..SHM
    };
    let options = ServerOptions {
        max_streams: 1,
        credit_timeout: Some(Duration::from_millis(200)),
        ..ServerOptions::default()
    };
    let (server, uri) = server(tcp, options);
    serve(&server, "t", counting(2, 10));
    let taker = FnTaker(|request: &ServerRequest| read_all(&mut request.source()?).map(drop));
    let handler = server.set_handler(Box::new(taker));
    handler.map_err(|(error, _)| error).unwrap();
    let (address, query) = uri.split_once('?').unwrap();
    let port = address.rsplit_once(':').unwrap().1.parse().unwrap();
    let slow = format!("tcp://127.0.0.1:{}?{query}", slow_relay(port));
    let client = client();
    let described = (&export_schema(&schema()), DeviceKind::CPU.0);
    let options = PutOptions::default();
    let mut put = client
        .put(&[&slow], b"x", described, &options, None)
        .unwrap();
    // Takes several times as long as a stream may wait.
    let pushed = put.push(export(&batch(0, 30_000)), None, None);
    pushed.map_err(|(error, _)| error).unwrap();
    thread::scope(|scope| {
        let finished = scope.spawn(move || put.finish(None));
        while !finished.is_finished() {
            let _ = client.get(&[&uri], b"t", &tcp.options(), None);
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(finished.join().unwrap().unwrap(), 1);
    });
}

/// Rule Q8: clients that ask without credit take an eighth of the places at most, however many they
/// are.
#[test]
fn requests_without_credit_have_few_places() {
    for subject in SUBJECTS {
        let options = ServerOptions {
            max_streams: 16,
            ..ServerOptions::default()
        };
        let (server, uri) = server(subject, options);
        serve(&server, "t", counting(100, 10));
        let client = client();
        let none = GetOptions {
            window: Credit {
                batches: 0,
                ..subject.options().window
            },
            ..subject.options()
        };
        let mut held = Vec::new();
        for _ in 0..2 {
            held.push(client.get(&[&uri], b"t", &none, None).unwrap());
        }
        for _ in 0..20 {
            let error = client
                .get(&[&uri], b"t", &none, None)
                .map(drop)
                .unwrap_err();
            assert_busy(&error, "credit");
            let mut stream = client.get(&[&uri], b"t", &subject.options(), None).unwrap();
            assert_eq!(read_all(&mut stream).unwrap().len(), 100);
        }
        drop(held);
        eventually("there is a place", || {
            client.get(&[&uri], b"t", &none, None).is_ok()
        });
    }
}

/// Rule Q8: a call with a deadline asks a busy server again until there is a place; one without
/// fails at once. For gets and for puts.
#[test]
fn a_call_with_a_deadline_waits_for_a_place() {
    for subject in SUBJECTS {
        let options = ServerOptions {
            max_streams: 1,
            ..ServerOptions::default()
        };
        let (server, uri) = server(subject, options);
        serve(&server, "t", counting(1_000_000, 10));
        let taker = FnTaker(|request: &ServerRequest| read_all(&mut request.source()?).map(|_| ()));
        (server
            .set_handler(Box::new(taker))
            .map_err(|(error, _)| error))
        .unwrap();
        let client = client();
        let get = |deadline: Option<Duration>| {
            let options = GetOptions {
                deadline,
                ..subject.options()
            };
            client.get(&[&uri], b"t", &options, None)
        };
        let put = |deadline: Option<Duration>| {
            let options = PutOptions {
                deadline,
                ..PutOptions::default()
            };
            let described = (&export_schema(&schema()), DeviceKind::CPU.0);
            let mut put = client.put(&[&uri], b"taken", described, &options, None)?;
            put.finish(None)
        };
        let held = get(None).unwrap();
        assert_busy(&get(None).map(drop).unwrap_err(), "max_streams");
        assert_busy(&put(None).unwrap_err(), "max_streams");
        let long = Some(Duration::from_secs(30));
        thread::scope(|scope| {
            let before = busy(&server);
            let waits = scope.spawn(|| put(long).unwrap());
            eventually("it is refused", || busy(&server) > before);
            drop(held);
            assert_eq!(waits.join().unwrap(), 0);
        });
        drop(get(long).unwrap());
    }
}

/// Rule Q8: requests that their hosts poll are made again, too, however many there are. Their
/// deadline and their token end the pauses.
#[test]
fn polled_requests_wait_for_a_place() {
    for subject in SUBJECTS {
        let options = ServerOptions {
            max_streams: 1,
            ..ServerOptions::default()
        };
        let (server, uri) = server(subject, options);
        serve(&server, "t", counting(1_000_000, 10));
        let client = client();
        let start = |deadline: Option<Duration>, cancel: Option<&Cancel>| {
            let options = GetOptions {
                deadline,
                ..subject.options()
            };
            client
                .start(Verb::Get, &[&uri], b"t", &options, cancel)
                .unwrap()
        };
        let answered = |pending: &Pending| match pending.try_answer(|_| true) {
            Ok(answer) => Ok(answer.is_some()),
            Err(error) => Err(error),
        };
        let refusal = |pending: Pending| {
            let mut refused = None;
            eventually("the request ends", || {
                refused = answered(&pending).err();
                refused.is_some()
            });
            refused.unwrap()
        };
        let held = client.get(&[&uri], b"t", &subject.options(), None).unwrap();
        assert_busy(&refusal(start(None, None)), "max_streams");
        let soon = start(Some(Duration::from_millis(150)), None);
        // The last try may be under way when the deadline comes.
        assert!([Status::Busy, Status::Timeout].contains(&refusal(soon).status()));
        let cancel = Cancel::new().unwrap();
        let cancelled = start(Some(Duration::from_secs(30)), Some(&cancel));
        // More than connect at a time.
        let mut waiting: Vec<_> = (0..10)
            .map(|_| start(Some(Duration::from_secs(30)), None))
            .collect();
        let before = busy(&server);
        eventually("they are refused more than once", || {
            assert!(waiting.iter().all(|it| !answered(it).unwrap()));
            busy(&server) > before + 2 * waiting.len() as u64
        });
        cancel.cancel();
        assert_eq!(refusal(cancelled).status(), Status::Cancelled);
        drop(held);
        // The deadline ends the test where one is not asked again.
        while !waiting.is_empty() {
            waiting.retain(|it| !answered(it).unwrap());
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Requests that the server has refused for want of room.
fn busy(server: &ServerHandle) -> u64 {
    server.stats().refused[Status::Busy.code().unsigned_abs() as usize]
}

/// The error names its option, and says when to ask again.
fn assert_busy(error: &Error, option: &str) {
    assert_eq!(error.status(), Status::Busy, "{error}");
    assert!(error.text().contains(option), "{error}");
    let retry_after = error.advice().and_then(|advice| advice.retry_after);
    assert_eq!(retry_after, Some(Duration::from_millis(100)), "{error}");
}
