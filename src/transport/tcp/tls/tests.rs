use std::io::{IoSliceMut, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{ExtendedKeyUsagePurpose, KeyPair};
use rustix::io::Errno;
use rustls::HandshakeKind;

use super::certificates::Authority;
use super::handshake::Handshake;
use super::records::Records;
use super::testing::{End, configs, shake};
use crate::error::{Result, Status};
use crate::proto::Bytes;
use crate::transport::stream::{Outbox, Wire};
use crate::transport::{Outgoing, Payload, TlsFiles, TlsOptions};

/// Two ends of a socket.
fn sockets() -> (Arc<OwnedFd>, Arc<OwnedFd>) {
    let (here, there) = UnixStream::pair().unwrap();
    here.set_nonblocking(true).unwrap();
    there.set_nonblocking(true).unwrap();
    (Arc::new(here.into()), Arc::new(there.into()))
}

struct Pair {
    client: End,
    server: End,
    at_client: Arc<OwnedFd>,
    at_server: Arc<OwnedFd>,
}

/// A client that calls the server `localhost`.
fn meet(client: &TlsFiles, server: &TlsFiles) -> (Result<Pair>, Result<()>) {
    let (client, server) = configs(client, server);
    let (at_client, at_server) = sockets();
    let server = Handshake::answer(server, Arc::clone(&at_server)).unwrap();
    let client = Handshake::ask(client, "localhost", Arc::clone(&at_client)).unwrap();
    match shake(client, server) {
        (Ok(client), Ok(server)) => {
            let pair = Pair {
                client,
                server,
                at_client,
                at_server,
            };
            (Ok(pair), Ok(()))
        }
        (client, server) => {
            // A client that the server refuses learns of it by its first look.
            let client = client.and_then(|(mut records, _)| {
                let mut bytes = [0; 1];
                let read = records.read(at_client.as_fd(), &mut [IoSliceMut::new(&mut bytes)]);
                Err(records.explain(read.unwrap_err()).unwrap())
            });
            (client, server.map(drop))
        }
    }
}

/// The files of a server called `name`.
fn server(authority: &Authority, name: &str) -> TlsFiles {
    of(authority.issue(name))
}

fn of(identity: (PathBuf, PathBuf)) -> TlsFiles {
    TlsFiles {
        identity: Some(identity),
        ..TlsFiles::default()
    }
}

/// The files of a client that trusts an authority.
fn client(authority: &Authority) -> TlsFiles {
    TlsFiles {
        ca: Some(authority.ca()),
        ..TlsFiles::default()
    }
}

fn pair() -> Pair {
    let authority = Authority::new();
    let pair = meet(&client(&authority), &server(&authority, "localhost")).0;
    pair.unwrap()
}

impl Pair {
    /// Has the client send `bytes`, and the server read them in reads of `room` bytes.
    fn carry(&mut self, bytes: &[u8], room: usize) -> Result<Vec<u8>, Errno> {
        let mut outbox = Outbox::default();
        let payload = Payload::Bytes(Bytes::from_slice(bytes));
        outbox
            .push(0, Outgoing::Tagged { tag: 7, payload })
            .unwrap();
        outbox.commit();
        let mut came = Vec::new();
        let mut to = vec![0; room];
        loop {
            let all = self.client.0.write(self.at_client.as_fd(), &mut outbox)?;
            match self.read(&mut to) {
                Ok(0) => return Ok(came),
                Ok(len) => came.extend_from_slice(&to[..len]),
                Err(Errno::AGAIN) if all => return Ok(came.split_off(24)),
                Err(Errno::AGAIN) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    fn read(&mut self, to: &mut [u8]) -> Result<usize, Errno> {
        let runs = &mut [IoSliceMut::new(to)];
        self.server.0.read(self.at_server.as_fd(), runs)
    }

    fn failure(&self, errno: Errno) -> String {
        self.server.0.explain(errno).unwrap().text().to_owned()
    }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| ((at * 31) >> 3).to_le_bytes()[0])
        .collect()
}

/// Rule Q9: whatever the sizes of messages and of reads, the bytes come as they were sent.
#[test]
fn bytes_come_as_they_were_sent() {
    let mut pair = pair();
    for len in [0, 1, 4000, 16_384, 16_385, 70_000, 1 << 20] {
        for room in [1000, 16_384, 100_000] {
            let sent = bytes(len);
            assert!(pair.carry(&sent, room).unwrap() == sent, "{len} {room}");
        }
    }
    assert_eq!(pair.client.0.unsent(), 0);
}

/// Both sides go on with the next key where one of them asks for it.
#[test]
fn keys_are_renewed() {
    let mut pair = pair();
    for len in [10, 100_000, 10] {
        pair.client.0.renew_keys();
        let sent = bytes(len);
        assert!(pair.carry(&sent, 5000).unwrap() == sent, "{len}");
    }
}

/// Rule Q9: a changed bit is noticed, and nothing of the record is taken.
#[test]
fn a_changed_bit_is_noticed() {
    for at in [5, 20, 60] {
        let mut pair = pair();
        let mut outbox = Outbox::default();
        let payload = Payload::Bytes(Bytes::from_slice(&bytes(100)));
        outbox
            .push(0, Outgoing::Tagged { tag: 7, payload })
            .unwrap();
        outbox.commit();
        let (through, end) = UnixStream::pair().unwrap();
        pair.client.0.write(through.as_fd(), &mut outbox).unwrap();
        let mut sealed = [0; 500];
        let len = rustix::io::read(&end, &mut sealed).unwrap();
        sealed[at] ^= 1;
        rustix::io::write(&pair.at_client, &sealed[..len]).unwrap();
        let errno = pair.read(&mut [0; 500]).unwrap_err();
        let told = pair.failure(errno);
        assert!(told.contains("client"), "{told}");
    }
}

/// A peer is told of the end; one that is cut off is not.
#[test]
fn the_end_is_told() {
    let mut pair = pair();
    pair.client.0.end(pair.at_client.as_fd());
    assert_eq!(pair.read(&mut [0; 10]), Ok(0));
}

/// What is no record of TLS at all is refused, with the cause.
#[test]
fn garbage_is_refused() {
    let mut pair = pair();
    rustix::io::write(&pair.at_client, b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let errno = pair.read(&mut [0; 10]).unwrap_err();
    let told = pair.failure(errno);
    assert!(told.contains("does not speak TLS"), "{told}");
}

/// Each side tells why it does not trust the other, and the other hears of it.
#[test]
fn whoever_is_not_trusted_is_told_why() {
    let (authority, other) = (Authority::new(), Authority::new());
    let client_files = client(&authority);
    let expired = of(authority.issue_with("localhost", |params| {
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    }));
    let early = of(authority.issue_with("localhost", |params| {
        params.not_before = rcgen::date_time_ymd(4000, 1, 1);
    }));
    let for_clients = of(authority.issue_with("localhost", |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    }));
    let of_another_kind = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let namesake = Authority::with_key(of_another_kind);
    for (files, told) in [
        (expired, "has expired"),
        (early, "not valid yet"),
        (for_clients, "another purpose"),
        (
            server(&authority, "elsewhere"),
            "is for elsewhere, not for localhost",
        ),
        (
            server(&other, "localhost"),
            "an authority that is not trusted here",
        ),
        (
            server(&namesake, "localhost"),
            "an authority that is not trusted here",
        ),
    ] {
        let (at_client, at_server) = meet(&client_files, &files);
        let error = at_client.map(drop).unwrap_err();
        assert_eq!(error.status(), Status::Permission, "{error}");
        assert!(error.text().contains(told), "{error}");
        let error = at_server.unwrap_err();
        assert!(error.text().contains("this side's certificate"), "{error}");
    }
    let mut asking = server(&authority, "localhost");
    asking.ca = Some(authority.ca());
    let (at_client, at_server) = meet(&client_files, &asking);
    let error = at_client.map(drop).unwrap_err();
    assert!(
        error.text().contains("asks for this side's certificate"),
        "{error}"
    );
    let error = at_server.unwrap_err();
    assert!(error.text().contains("showed no certificate"), "{error}");
    let stranger = TlsFiles {
        identity: Some(other.issue("mallory")),
        ..client_files.clone()
    };
    let (at_client, at_server) = meet(&stranger, &asking);
    let error = at_client.map(drop).unwrap_err();
    assert!(error.text().contains("this side's certificate"), "{error}");
    let error = at_server.unwrap_err();
    assert!(
        error
            .text()
            .contains("an authority that is not trusted here"),
        "{error}"
    );
    let known = TlsFiles {
        identity: Some(authority.issue("alice")),
        ..client_files
    };
    let pair = meet(&known, &asking).0.unwrap();
    let certificate = pair.server.1.unwrap();
    assert_eq!(certificate.subject, "CN=alice");
    assert_eq!(certificate.names, ["DNS:alice"]);
    assert_eq!(certificate.fingerprint.len(), 64);
}

/// A client resumes its sessions; after new certificates are read none is resumed.
#[test]
fn sessions_are_resumed_until_certificates_change() {
    let authority = Authority::new();
    let servers = TlsOptions::default().with(|files| {
        *files = server(&authority, "localhost");
        files.ca = Some(authority.ca());
    });
    let clients = TlsOptions::default().with(|files| {
        *files = client(&authority);
        files.identity = Some(authority.issue("alice"));
    });
    let meet = || {
        let (at_client, at_server) = sockets();
        let answer = Handshake::answer(servers.server().unwrap(), Arc::clone(&at_server)).unwrap();
        let asking = Handshake::ask(
            clients.client().unwrap(),
            "localhost",
            Arc::clone(&at_client),
        );
        let (mut asking, mut answer) = (asking.unwrap(), answer);
        while asking.turn().unwrap() != super::handshake::HandshakeProgress::Done {
            answer.turn().unwrap();
        }
        while answer.turn().unwrap() != super::handshake::HandshakeProgress::Done {}
        let kind = asking.kind();
        // Also of a session that is resumed the client is known.
        let (_records, certificate) = answer.finish("client").unwrap();
        assert_eq!(certificate.unwrap().subject, "CN=alice");
        let (mut records, _): (Records, _) = asking.finish("server").unwrap();
        // Tickets come with the first bytes.
        let read = records.read(at_client.as_fd(), &mut [IoSliceMut::new(&mut [0])]);
        assert_eq!(read, Err(Errno::AGAIN));
        kind
    };
    assert_eq!(meet(), Some(HandshakeKind::Full));
    assert_eq!(meet(), Some(HandshakeKind::Resumed));
    servers.reload().unwrap();
    assert_eq!(meet(), Some(HandshakeKind::Full));
    assert_eq!(meet(), Some(HandshakeKind::Resumed));
    // Files that are of no use change nothing.
    let (certificate, _) = servers.files().identity.clone().unwrap();
    let mut file = std::fs::File::create(certificate).unwrap();
    file.write_all(b"nothing").unwrap();
    assert!(servers.reload().is_err());
    assert_eq!(meet(), Some(HandshakeKind::Resumed));
}
