//! Rule Q9: TLS below the frames, between a client and a server, and with peers that are not ours.

use std::io::{Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use dipc::client::{Client, ClientOptions, GetOptions};
use dipc::error::Status;
use dipc::server::{ServerHandle, ServerOptions, ServerRequest};
use dipc::transport::{PeerCertificate, TlsFiles, TlsOptions};
use parking_lot::Mutex;

use crate::common::certificates::Authority;
use crate::common::{FnProvider, batch, counting, read_all, schema, stream_of};
use crate::frame;

fn options(files: TlsFiles) -> Arc<TlsOptions> {
    TlsOptions::default().with(|given| *given = files)
}

/// A server with a certificate for 127.0.0.1, which asks for none. Serves ten batches as `t`.
fn serve(authority: &Authority, change: impl FnOnce(&mut TlsFiles)) -> (ServerHandle, String) {
    serve_with(ServerOptions::default(), authority, change)
}

fn serve_with(
    mut server_options: ServerOptions,
    authority: &Authority,
    change: impl FnOnce(&mut TlsFiles),
) -> (ServerHandle, String) {
    let mut files = TlsFiles {
        identity: Some(authority.issue("127.0.0.1")),
        ..TlsFiles::default()
    };
    change(&mut files);
    server_options.link.tls = options(files);
    let server = ServerHandle::new(server_options).unwrap();
    server
        .serve(b"t", counting(10, 1000))
        .map_err(|(error, _)| error)
        .unwrap();
    let uri = server.listen("tls://127.0.0.1:0").unwrap();
    (server, uri)
}

fn client(authority: &Authority, change: impl FnOnce(&mut TlsFiles)) -> Client {
    let mut files = TlsFiles {
        ca: Some(authority.ca()),
        ..TlsFiles::default()
    };
    change(&mut files);
    Client::new(ClientOptions {
        tls: options(files),
        ..ClientOptions::default()
    })
    .unwrap()
}

/// How many batches of `t` come.
fn fetch(client: &Client, uri: &str, connections: u16) -> dipc::error::Result<usize> {
    let get_options = GetOptions {
        connections,
        ..GetOptions::default()
    };
    let mut stream = client.get(&[uri], b"t", &get_options, None)?;
    Ok(read_all(&mut stream)?.len())
}

/// Forwards connections to the server of a URI, and keeps what passed, in both directions.
fn recorded(uri: &str) -> (String, Arc<Mutex<Vec<u8>>>) {
    let (scheme, rest) = uri.split_once("://").unwrap();
    let (server, query) = rest.split_once('?').unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (server, passed) = (server.to_owned(), Arc::<Mutex<Vec<u8>>>::default());
    let record = Arc::clone(&passed);
    thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            let server = TcpStream::connect(&server).unwrap();
            for (mut from, mut to) in [
                (client.try_clone().unwrap(), server.try_clone().unwrap()),
                (server, client),
            ] {
                let record = Arc::clone(&record);
                thread::spawn(move || {
                    let mut bytes = [0; 65_536];
                    while let Ok(len @ 1..) = from.read(&mut bytes) {
                        record.lock().extend_from_slice(&bytes[..len]);
                        if to.write_all(&bytes[..len]).is_err() {
                            break;
                        }
                    }
                    let _ = to.shutdown(std::net::Shutdown::Write);
                });
            }
        }
    });
    (format!("{scheme}://{address}?{query}"), passed)
}

fn has(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Nothing of a ticket, a header, a schema or a value passes a network that is not encrypted; over
/// tcp, all of them do.
#[test]
fn nothing_can_be_read_on_the_way() {
    let authority = Authority::new();
    let (server, uri) = serve(&authority, |_| {});
    let plain = server.listen("tcp://127.0.0.1:0").unwrap();
    server
        .serve(b"the-ticket", counting(3, 100))
        .map_err(|(error, _)| error)
        .unwrap();
    let client = client(&authority, |_| {});
    for (uri, is_plain) in [(plain, true), (uri, false)] {
        let (uri, passed) = recorded(&uri);
        let mut get_options = GetOptions::default();
        get_options
            .headers
            .add("a-header", &b"its value"[..])
            .unwrap();
        let mut stream = client
            .get(&[&uri], b"the-ticket", &get_options, None)
            .unwrap();
        assert_eq!(read_all(&mut stream).unwrap().len(), 3);
        let passed = passed.lock();
        assert!(passed.len() > 5000, "{}", passed.len());
        for part in ["the-ticket", "a-header", "its value", "text", "row 15"] {
            assert_eq!(has(&passed, part.as_bytes()), is_plain, "{part} {uri}");
        }
    }
}

/// One socket or several, which are one connection of one peer.
#[test]
fn tables_arrive_over_several_sockets() {
    let authority = Authority::new();
    let (_server, uri) = serve(&authority, |files| files.ca = Some(authority.ca()));
    let client = client(&authority, |files| {
        files.identity = Some(authority.issue("alice"))
    });
    for connections in [1, 3, 1, 8] {
        assert_eq!(fetch(&client, &uri, connections).unwrap(), 10);
    }
}

/// The host learns for whom the client's certificate is.
#[test]
fn the_host_sees_the_certificate() {
    let authority = Authority::new();
    let (server, uri) = serve(&authority, |files| files.ca = Some(authority.ca()));
    let (seen, came) = mpsc::channel::<(Option<Arc<PeerCertificate>>, &'static str)>();
    let provider = FnProvider(move |request: &ServerRequest| {
        let origin = request.origin();
        seen.send((origin.certificate.clone(), origin.scheme))
            .unwrap();
        Ok(stream_of(schema(), std::iter::once(Ok(batch(0, 1)))))
    });
    server
        .serve(b"who", Box::new(provider))
        .map_err(|(error, _)| error)
        .unwrap();
    let alice = client(&authority, |files| {
        files.identity = Some(authority.issue("alice"))
    });
    let mut stream = alice
        .get(&[&uri], b"who", &GetOptions::default(), None)
        .unwrap();
    read_all(&mut stream).unwrap();
    let (certificate, scheme) = came.recv().unwrap();
    let certificate = certificate.expect("a certificate");
    assert_eq!((scheme, &*certificate.subject), ("tls", "CN=alice"));
    assert_eq!(certificate.names, ["DNS:alice"]);
}

/// A listener that other machines can reach needs TLS or the caller's word; one with TLS needs its
/// files.
#[test]
fn what_a_listener_needs() {
    let authority = Authority::new();
    let (server, _) = serve(&authority, |_| {});
    server.listen("tls://0.0.0.0:0").unwrap();
    let error = server.listen("tcp://0.0.0.0:0").unwrap_err();
    assert_eq!(error.status(), Status::Permission, "{error}");
    assert!(error.text().contains("tls://"), "{error}");
    let bare = ServerHandle::new(ServerOptions::default()).unwrap();
    let error = bare.listen("tls://127.0.0.1:0").unwrap_err();
    assert!(error.text().contains("--tls-cert"), "{error}");
    let (certificate, key) = authority.issue("127.0.0.1");
    let (other, _) = authority.issue("127.0.0.1");
    let missing = authority.ca().with_file_name("missing");
    for (identity, status, told) in [
        ((missing.clone(), key.clone()), Status::NotFound, "missing"),
        ((certificate.clone(), missing), Status::NotFound, "missing"),
        (
            (key.clone(), key.clone()),
            Status::InvalidArgument,
            "no PEM of certificates",
        ),
        (
            (certificate.clone(), certificate),
            Status::InvalidArgument,
            "a private key",
        ),
        (
            (other, key),
            Status::InvalidArgument,
            "is not that of the certificate",
        ),
    ] {
        let mut server_options = ServerOptions::default();
        server_options.link.tls = options(TlsFiles {
            identity: Some(identity),
            ..TlsFiles::default()
        });
        let server = ServerHandle::new(server_options).unwrap();
        let error = server.listen("tls://127.0.0.1:0").unwrap_err();
        assert_eq!(error.status(), status, "{error}");
        assert!(error.text().contains(told), "{error}");
    }
}

/// A server goes on with new certificates without a restart: a client that trusted the old
/// authority alone is refused, and one that was removed from the server's authorities is, too.
#[test]
fn certificates_are_read_again() {
    let (old, new) = (Authority::new(), Authority::new());
    let identity = old.issue("127.0.0.1");
    let ca = old.ca().with_file_name("clients.pem");
    std::fs::copy(old.ca(), &ca).unwrap();
    let (server, uri) = serve(&old, |files| {
        files.identity = Some(identity.clone());
        files.ca = Some(ca.clone());
    });
    let of_old = |authority: &Authority| {
        client(authority, |files| files.identity = Some(old.issue("alice")))
    };
    let kept = of_old(&old);
    let mut open = kept
        .get(&[&uri], b"t", &GetOptions::default(), None)
        .unwrap();
    assert_eq!(fetch(&of_old(&old), &uri, 1).unwrap(), 10);
    let fresh = new.issue("127.0.0.1");
    std::fs::copy(fresh.0, &identity.0).unwrap();
    std::fs::copy(fresh.1, &identity.1).unwrap();
    server.reload_tls().unwrap();
    // A connection of before goes on.
    assert_eq!(read_all(&mut open).unwrap().len(), 10);
    let error = fetch(&of_old(&old), &uri, 1).unwrap_err();
    assert!(error.text().contains("not trusted here"), "{error}");
    assert_eq!(fetch(&of_old(&new), &uri, 1).unwrap(), 10);
    std::fs::copy(new.ca(), &ca).unwrap();
    server.reload_tls().unwrap();
    let error = fetch(&of_old(&new), &uri, 1).unwrap_err();
    assert_eq!(error.status(), Status::Permission, "{error}");
    assert!(error.text().contains("this side's certificate"), "{error}");
}

/// Peers that connect and say nothing, or begin a handshake and stop, hold up nobody.
#[test]
fn half_a_handshake_holds_up_nobody() {
    let authority = Authority::new();
    let (server, uri) = serve(&authority, |_| {});
    let target = uri.trim_start_matches("tls://").split('?').next().unwrap();
    let stuck: Vec<_> = (0..600)
        .map(|n| {
            let mut peer = TcpStream::connect(target).unwrap();
            let begun: &[u8] = if n % 2 == 0 {
                b""
            } else {
                b"\x16\x03\x01\x02\x00\x01\x00"
            };
            peer.write_all(begun).unwrap();
            peer
        })
        .collect();
    let client = client(&authority, |_| {});
    assert_eq!(fetch(&client, &uri, 1).unwrap(), 10);
    // None of them is a connection of the server's.
    assert!(server.stats().connections <= 1, "{:?}", server.stats());
    drop(stuck);
}

/// Rule Q8: a handshake, and the sockets of one connection, have a time. Then they are closed.
#[test]
fn handshakes_and_groups_have_a_time() {
    let authority = Authority::new();
    let mut options = ServerOptions::default();
    options.link.receiving.handshake_timeout = Duration::from_millis(100);
    let (server, tls) = serve_with(options, &authority, |_| ());
    let tcp = server.listen("tcp://127.0.0.1:0").unwrap();
    // A JOIN of the first of two sockets (docs/wire.md).
    let mut join = vec![8; 1];
    join.extend_from_slice(&[5; 16]);
    join.extend_from_slice(&[0, 0, 2, 0]);
    for (uri, begun) in [(&tls, vec![22, 3, 1]), (&tcp, frame(2, 0, &join))] {
        let target = uri.split("://").nth(1).unwrap();
        let mut peer = TcpStream::connect(target.split('?').next().unwrap()).unwrap();
        peer.write_all(&begun).unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(8))).unwrap();
        let ended = peer.read(&mut [0]);
        assert!(
            ended.as_ref().map_or_else(
                |error| error.kind() == std::io::ErrorKind::ConnectionReset,
                |read| *read == 0
            ),
            "{uri}: {ended:?}"
        );
    }
    assert_eq!(fetch(&client(&authority, |_| ()), &tls, 2).unwrap(), 10);
}

/// What is no TLS, at either side, ends with a text that says so.
#[test]
fn a_peer_without_tls_is_told_apart() {
    let authority = Authority::new();
    let (server, uri) = serve(&authority, |_| {});
    let plain = server.listen("tcp://127.0.0.1:0").unwrap();
    let client = client(&authority, |_| {});
    let error = fetch(&client, &plain.replacen("tcp", "tls", 1), 1).unwrap_err();
    assert_eq!(error.status(), Status::Disconnected, "{error}");
    assert!(error.text().contains("does it speak TLS"), "{error}");
    let error = fetch(&client, &uri.replacen("tls", "tcp", 1), 1).unwrap_err();
    assert_eq!(error.status(), Status::Disconnected, "{error}");
    assert!(error.text().contains("begins with tls://"), "{error}");
}

/// `openssl s_client`, which is not ours, connects to the server of `uri`; `input` goes to it.
/// `None`: this machine has no openssl.
fn s_client(uri: &str, authority: &Authority, more: &[&str], input: &[u8]) -> Option<Vec<u8>> {
    let target = uri.trim_start_matches("tls://").split('?').next().unwrap();
    let mut command = Command::new("openssl");
    command.args([
        "s_client",
        "-connect",
        target,
        "-quiet",
        "-verify_return_error",
    ]);
    command.arg("-CAfile").arg(authority.ca()).args(more);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            eprintln!("skipped: openssl: {error}");
            return None;
        }
    };
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input).unwrap();
    // The first bytes of an answer, or the end.
    let mut stdout = child.stdout.take().unwrap();
    let (sender, came) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = vec![0; 4096];
        let len = stdout.read(&mut bytes).unwrap_or(0);
        bytes.truncate(len);
        let _ = sender.send(bytes);
    });
    let answer = came.recv_timeout(Duration::from_secs(10)).unwrap();
    drop(stdin);
    let _ = child.kill();
    child.wait().unwrap();
    Some(answer)
}

/// A client of TLS that is not ours speaks the frames of docs/wire.md. Without our protocol, or by
/// an older TLS, it gets no answer.
#[test]
fn openssl_speaks_to_a_server() {
    let authority = Authority::new();
    let (server, uri) = serve(&authority, |_| {});
    let want = uri.split("want_data=").nth(1).unwrap();
    let want = want.split('&').next().unwrap().parse().unwrap();
    let request = frame(1, want, b"t");
    let ours = ["-alpn", "dipc/1"];
    let Some(answer) = s_client(&uri, &authority, &ours, &request) else {
        return;
    };
    // A metadata frame, which has the schema.
    assert!(answer.len() > 24 && answer[16] == 0 && has(&answer, b"text"));
    for refused in [&[][..], &["-alpn", "h2"], &["-alpn", "dipc/1", "-tls1_2"]] {
        let answer = s_client(&uri, &authority, refused, &request).unwrap();
        assert!(answer.is_empty(), "{refused:?}: {answer:?}");
    }
    assert_eq!(server.stats().streams_served, 1);
}
