//! Requests that no server can serve, byte by byte: the client is told why where it can be, no host
//! sees them, and other streams go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use dipc::client::{GetOptions, PutOptions};
use dipc::error::{Error, Result, Status};
use dipc::proto::{
    Control, Headers, MAX_REQUEST_HEADERS, MAX_TICKET_BYTES, Request, Tags, Uri, Verb,
};
use dipc::server::ServerOptions;
use dipc::transport::{self, AccessOptions, Connection, Incoming, LinkOptions, Outgoing};

use crate::common::{FnTaker, counting, export_schema, read_all, schema};
use crate::hostile_puts::Raw;
use crate::{SUBJECTS, Subject, client, eventually, serve, server};

fn headers(key: &str, len: usize) -> Headers {
    let mut headers = Headers::new();
    headers.add(key, vec![0; len]).unwrap();
    headers
}

/// A request's bytes, the text of the server's refusal, if it tells one, and what is wrong.
type Wrong = (&'static str, Vec<u8>, Option<&'static str>);

fn wrongs() -> Vec<Wrong> {
    let honest = Raw::request;
    let with = |change: &dyn Fn(&mut Request)| {
        let mut request = honest();
        change(&mut request);
        request.encode()
    };
    let mut bad_key = with(&|it| it.headers = headers("qqqq", 1));
    let at = bad_key.windows(4).position(|key| key == b"qqqq").unwrap();
    bad_key[at] = b'Q';
    let mut half = honest().encode();
    half.truncate(half.len() / 2);
    vec![
        (
            "an unknown verb",
            with(&|it| it.verb = Verb::Unknown(77)),
            Some("the verb with number 77: upgrade it"),
        ),
        (
            "a version of the future",
            with(&|it| {
                it.verb = Verb::Get;
                (it.min_version, it.max_version) = (9, 9);
            }),
            Some("versions 1 to 3 of the extension, the client 9 to 9: upgrade the server"),
        ),
        ("a put without a table", with(&|it| it.source = None), None),
        (
            "a descriptor that is too long",
            with(&|it| it.ticket = vec![0; MAX_TICKET_BYTES + 1]),
            None,
        ),
        (
            "65 KiB of headers",
            with(&|it| it.headers = headers("k", MAX_REQUEST_HEADERS + 1024)),
            None,
        ),
        ("a header with a bad key", bad_key, None),
        ("half a request", half, None),
        ("no request", Vec::new(), None),
    ]
}

/// Rules Q1, E1: a request that is wrong reaches no host. One of a later version is told so, and
/// its connection serves the next request; the others end their connection. A stream beside them
/// goes on.
#[test]
fn a_request_that_is_wrong_reaches_no_host() {
    for subject in SUBJECTS {
        // Over several sockets a client is a group, which only the transport makes.
        if subject.options().connections > 1 {
            continue;
        }
        let (server, uri) = server(subject, ServerOptions::default());
        serve(&server, "counting", counting(200, 1000));
        let seen = Arc::new(AtomicUsize::new(0));
        let taken = Arc::clone(&seen);
        let handler = server.set_handler(Box::new(FnTaker(
            move |request: &dipc::server::ServerRequest| {
                taken.fetch_add(1, Ordering::SeqCst);
                read_all(&mut request.source()?).map(drop)
            },
        )));
        handler.map_err(|(error, _)| error).unwrap();
        let honest = client();
        let mut beside = honest
            .get(&[&uri], b"counting", &subject.options(), None)
            .unwrap();
        for (what, bytes, told) in wrongs() {
            let what = format!("{}: {what}", subject.scheme);
            let mut raw = Raw::connect(subject, &uri);
            raw.tagged(Tags::DEFAULT.dipc_want, bytes);
            let answer = raw.is_answered();
            assert_eq!(seen.swap(0, Ordering::SeqCst), 0, "{what}");
            match told {
                Some(part) => {
                    let (status, text) = answer.unwrap_or_else(|| panic!("{what}: no text"));
                    assert_eq!(status, Status::Unsupported.code(), "{what}: {text}");
                    assert!(text.contains(part), "{what}: {text}");
                    raw.starts();
                    drop(raw);
                    eventually("the host takes the next one", || {
                        seen.swap(0, Ordering::SeqCst) == 1
                    });
                }
                None => {
                    // Nothing is taken for a request any more.
                    raw.asks_for(&Raw::request());
                    eventually("the connection ends", || {
                        let _ = raw.connection.flush();
                        raw.connection.receive_any().is_err()
                    });
                    assert_eq!(seen.load(Ordering::SeqCst), 0, "{what}");
                }
            }
            let next = dipc::arrow::stream::ArrayReader::next(&mut beside);
            assert!(next.unwrap().is_some(), "{what}");
        }
        assert_eq!(
            read_all(&mut beside).unwrap().len(),
            200 - wrongs().len(),
            "{}",
            subject.scheme
        );
        eventually("no stream is active", || server.stats().streams_active == 0);
    }
}

/// What a server of version 1 says to a request of version 2.
const OLD: &str = "this server speaks versions 1 to 1 of the extension, the client 2 to 2: upgrade \
                   the server";

/// The lowest version of the request that `ask` makes at a server of version 1, and what `ask`
/// gets.
fn ask_an_old_server(
    subject: Subject,
    ask: impl FnOnce(&str) -> Result<()> + Send,
) -> (u16, Error) {
    let transport = transport::by_scheme(subject.scheme).unwrap();
    let options = LinkOptions {
        access: AccessOptions {
            trusted_network: true,
            ..AccessOptions::default()
        },
        ..LinkOptions::default()
    };
    let uri = Uri::parse(&subject.address()).unwrap();
    let mut listener = transport.listen(&uri, &options).unwrap();
    let address = listener.address();
    thread::scope(|scope| {
        let asking = scope.spawn(|| ask(&address));
        let mut connections: Vec<Box<dyn Connection>> = Vec::new();
        let mut lowest = None;
        eventually("the client has its answer", || {
            connections.extend(listener.accept().unwrap());
            for connection in &mut connections {
                let _ = connection.flush();
                let Ok(Some(Incoming::Tagged { tag, bytes })) = connection.receive_any() else {
                    continue;
                };
                assert_eq!(tag, Tags::DEFAULT.dipc_want);
                lowest = Some(Request::decode(&bytes).unwrap().min_version);
                let refusal = Control::Error {
                    status: Status::Unsupported.code(),
                    seq: 0,
                    text: OLD.to_owned(),
                    headers: Headers::new(),
                };
                let (bytes, fd) = (refusal.encode(), None);
                connection.send(Outgoing::Control { bytes, fd }).unwrap();
            }
            asking.is_finished()
        });
        (lowest.unwrap(), asking.join().unwrap().unwrap_err())
    })
}

/// Rules E1, Q1: a server of version 1 refuses what it does not know by the request's lowest
/// version; the client's caller gets the server's words, which name the remedy.
#[test]
fn an_old_server_says_what_to_upgrade() {
    for subject in SUBJECTS {
        if subject.options().connections > 1 {
            continue;
        }
        let (plain, of_put) = (GetOptions::default(), PutOptions::default());
        let with_headers = GetOptions {
            headers: headers("k", 1),
            ..plain.clone()
        };
        let schema = export_schema(&schema());
        let described = (&schema, 1);
        let outcomes = [
            ask_an_old_server(subject, |uri| {
                let put = client().put(&[uri], b"t", described, &of_put, None);
                put.map(drop)
            }),
            ask_an_old_server(subject, |uri| {
                let both = (&of_put, &plain);
                let exchange = client().exchange(&[uri], b"t", described, both, None);
                exchange.map(drop)
            }),
            ask_an_old_server(subject, |uri| {
                client().describe(&[uri], b"t", &plain, None).map(drop)
            }),
            ask_an_old_server(subject, |uri| {
                client().list(&[uri], b"t", &plain, None).map(drop)
            }),
            ask_an_old_server(subject, |uri| {
                client().get(&[uri], b"t", &with_headers, None).map(drop)
            }),
        ];
        for (lowest, error) in outcomes {
            assert_eq!(lowest, 2, "{}", subject.scheme);
            assert_eq!(error.status(), Status::Unsupported, "{}", subject.scheme);
            assert!(error.text().contains(OLD), "{}: {error}", subject.scheme);
        }
        // An old server knows a plain get.
        let get = |uri: &str| client().get(&[uri], b"t", &plain, None).map(drop);
        assert_eq!(ask_an_old_server(subject, get).0, 1, "{}", subject.scheme);
    }
}
