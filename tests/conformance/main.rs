//! The promises of every transport, in one suite. A new transport must pass it.
//!
//! Each test runs over every [`Subject`]. Only `Subject` names the differences of transports, such
//! as a bounded queue or regions.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "in tests a panic is how a failure shows"
)]

#[path = "../common/certificates.rs"]
mod certificates;
mod ending;
mod lending;
mod messages;

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use certificates::Authority;
use dipc::error::{Result, Status};
use dipc::proto::Uri;
use dipc::transport::{
    self, AccessOptions, ConnectOptions, Connection, Incoming, LinkOptions, Listener, Outgoing,
    Settings, TlsFiles, TlsOptions,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// A transport under test.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject {
    pub(crate) scheme: &'static str,
    /// Sockets for one connection.
    pub(crate) connections: u16,
    /// If the peer does not read, sent bytes stay queued.
    pub(crate) bounded: bool,
    /// Lends memory.
    pub(crate) lends: bool,
    /// Lends regions, and memory of arenas without a copy.
    pub(crate) regions: bool,
    /// The client reads lent memory through the transport. Copies are lent only with the policy to
    /// lend always.
    pub(crate) pulls: bool,
    /// Checks bodies against posted lengths (rule D8). Large bodies wait until they are posted.
    pub(crate) posts: bool,
    /// Keeps the order of messages, also of bodies.
    pub(crate) ordered: bool,
    /// Knows the user of the peer.
    pub(crate) knows_users: bool,
    /// A client is connected only after the server's program, not the system, has accepted it.
    pub(crate) whoever_accepts: bool,
    /// A client accepts tagged messages without a posted receive.
    pub(crate) unposted: bool,
    /// Enough messages have come for a ring, which the client reads before it sleeps.
    pub(crate) looks: bool,
    /// `LinkOptions::settings`.
    pub(crate) settings: &'static [(&'static str, &'static str)],
}

/// Every transport that works on this machine.
pub(crate) struct Subjects;
pub(crate) const SUBJECTS: Subjects = Subjects;

impl IntoIterator for Subjects {
    type Item = Subject;
    type IntoIter = std::vec::IntoIter<Subject>;

    fn into_iter(self) -> Self::IntoIter {
        let mut works = Vec::new();
        for subject in ALL {
            match transport::by_scheme(subject.scheme).unwrap().available() {
                Ok(()) => works.push(subject),
                Err(error) => eprintln!("skipped for {}: {error}", subject.scheme),
            }
        }
        works.into_iter()
    }
}

const ALL: [Subject; 8] = [
    Subject {
        scheme: "mem",
        bounded: false,
        regions: false,
        posts: false,
        ..SHM
    },
    SHM,
    Subject { looks: true, ..SHM },
    TCP,
    Subject {
        connections: 3,
        ordered: false,
        ..TCP
    },
    Subject {
        scheme: "tls",
        whoever_accepts: true,
        ..TCP
    },
    UCX,
    Subject {
        settings: &[("ucx.TLS", "tcp")],
        ..UCX
    },
];

const SHM: Subject = Subject {
    scheme: "shm",
    connections: 1,
    bounded: true,
    lends: true,
    regions: true,
    pulls: false,
    posts: true,
    ordered: true,
    knows_users: true,
    whoever_accepts: false,
    unposted: true,
    looks: false,
    settings: &[],
};

const TCP: Subject = Subject {
    scheme: "tcp",
    lends: false,
    regions: false,
    knows_users: false,
    ..SHM
};

const UCX: Subject = Subject {
    scheme: "ucx",
    lends: true,
    regions: true,
    pulls: true,
    ordered: false,
    whoever_accepts: true,
    unposted: false,
    ..TCP
};

type Connections = Vec<Box<dyn Connection>>;

/// Both ends of a connection, and the listener that made it.
pub(crate) struct Pair {
    /// Kept, so that it continues to listen.
    pub(crate) _listener: Box<dyn Listener>,
    pub(crate) server: Box<dyn Connection>,
    pub(crate) client: Box<dyn Connection>,
}

impl Pair {
    /// Sends messages of an unknown kind until the client asks for a ring and gets it; then the
    /// client looks.
    fn begin_to_look(&mut self) {
        for _ in 0..64 {
            let bytes = vec![200];
            self.server
                .send(Outgoing::Control { bytes, fd: None })
                .unwrap();
            assert!(next(self.client.as_mut()).is_ok());
        }
        self.client.flush().unwrap();
        assert!(self.server.receive_any().unwrap().is_none());
        self.server.flush().unwrap();
        assert!(self.client.receive_any().unwrap().is_none());
        self.client.wake();
    }
}

impl Subject {
    /// A URI that no other test uses.
    pub(crate) fn uri(self) -> Uri {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let pid = std::process::id();
        let text = match self.scheme {
            // Every address that begins with 127 belongs to this machine. The port is outside the
            // system's range for clients.
            scheme @ ("tcp" | "tls") => {
                let [.., high, low] = pid.to_be_bytes();
                format!("{scheme}://127.{high}.{low}.1:{}", 10_000 + number)
            }
            // UCX needs the address of an interface.
            "ucx" => format!(
                "ucx://127.0.0.1:{}",
                10_000 + pid % 300 * 70 + u32::from(number)
            ),
            scheme => format!("{scheme}:@dipc-conformance-{pid}-{number}"),
        };
        Uri::parse(&text).unwrap()
    }

    pub(crate) fn listen(self, uri: &Uri, options: &LinkOptions) -> Result<Box<dyn Listener>> {
        transport::by_scheme(self.scheme)?.listen(uri, &self.options(options))
    }

    /// The options of a test, with the needs of this transport.
    fn options(self, options: &LinkOptions) -> LinkOptions {
        let mut settings = Settings::default();
        for (name, value) in self.settings {
            settings.set(name, value).unwrap();
        }
        LinkOptions {
            connect: ConnectOptions {
                connections: self.connections,
                ..options.connect.clone()
            },
            access: AccessOptions {
                trusted_network: true,
                ..options.access
            },
            settings,
            tls: self.tls(),
            ..options.clone()
        }
    }

    /// The certificates of both sides, where the transport has any.
    fn tls(self) -> Arc<TlsOptions> {
        static FILES: OnceLock<(Authority, TlsFiles)> = OnceLock::new();
        let (_, files) = FILES.get_or_init(|| {
            let authority = Authority::new();
            let files = TlsFiles {
                identity: Some(authority.issue("localhost")),
                ca: Some(authority.ca()),
                server_name: Some("localhost".to_owned()),
            };
            (authority, files)
        });
        TlsOptions::default().with(|given| *given = files.clone())
    }

    pub(crate) fn connect(self, uri: &Uri, options: &LinkOptions) -> Result<Box<dyn Connection>> {
        transport::by_scheme(self.scheme)?.connect(uri, &self.options(options))
    }

    /// Connects `count` clients, one after the other, and accepts them.
    pub(crate) fn join(
        self,
        listener: &mut dyn Listener,
        uri: &Uri,
        options: &LinkOptions,
        count: usize,
    ) -> (Connections, Connections) {
        let connect = || {
            let clients = (0..count).map(|_| self.connect(uri, options).unwrap());
            clients.collect::<Vec<_>>()
        };
        let mut servers = Vec::new();
        if !self.whoever_accepts {
            let clients = connect();
            assert!(
                wait(&listener.fd(), PollFlags::IN),
                "a connection makes the listener readable"
            );
            while let Some(server) = self.accept(listener) {
                servers.push(server);
            }
            return (clients, servers);
        }
        let clients = thread::scope(|scope| {
            let clients = scope.spawn(connect);
            let start = Instant::now();
            while servers.len() < count || !clients.is_finished() {
                // Like a driver, which watches the listener and its connections.
                if ready_within(&listener.fd(), PollFlags::IN, 1) {
                    servers.extend(self.accept(listener));
                }
                for server in &mut servers {
                    assert!(server.receive_any().unwrap().is_none());
                }
                assert!(
                    start.elapsed() < Duration::from_secs(30),
                    "a connection makes the listener readable"
                );
            }
            clients.join().unwrap()
        });
        (clients, servers)
    }

    /// The next connection, if any. Its sockets are read like by a driver: of several sockets, the
    /// first message of each names their group.
    pub(crate) fn accept(self, listener: &mut dyn Listener) -> Option<Box<dyn Connection>> {
        if self.connections == 1 {
            return listener.accept().unwrap();
        }
        for _ in 0..self.connections {
            let mut part = listener.accept().unwrap()?;
            let error = next(part.as_mut()).unwrap_err();
            assert_eq!(error.status(), Status::Disconnected, "{error}");
        }
        assert!(wait(&listener.fd(), PollFlags::IN));
        Some(listener.accept().unwrap().expect("the whole"))
    }

    pub(crate) fn pair_with(self, options: &LinkOptions) -> Pair {
        let uri = self.uri();
        let mut listener = self.listen(&uri, options).unwrap();
        let (clients, servers) = self.join(listener.as_mut(), &uri, options, 1);
        let ([client], [server]) = (
            <[_; 1]>::try_from(clients).ok().unwrap(),
            <[_; 1]>::try_from(servers).ok().expect("the connection"),
        );
        let mut pair = Pair {
            _listener: listener,
            server,
            client,
        };
        // Without order the two must know of which stream bodies are wanted.
        if !pair.client.identity().profile.is_ordered {
            pair.client.begin_stream(0, 0);
            pair.server.begin_stream(0, 0);
        }
        if self.looks {
            pair.begin_to_look();
        }
        pair
    }

    pub(crate) fn pair(self) -> Pair {
        self.pair_with(&LinkOptions::default())
    }
}

/// Waits up to ten seconds for `fd`.
pub(crate) fn wait(fd: &impl AsFd, flags: PollFlags) -> bool {
    ready_within(fd, flags, 10_000)
}

/// Whether `fd` is ready, or becomes ready within `ms`.
pub(crate) fn ready_within(fd: &impl AsFd, flags: PollFlags, ms: i64) -> bool {
    let timeout = Timespec {
        tv_sec: ms / 1000,
        tv_nsec: ms % 1000 * 1_000_000,
    };
    let mut polled = [PollFd::new(fd, flags)];
    poll(&mut polled, Some(&timeout)).unwrap() > 0
}

/// The next message; waits for it like the driver.
pub(crate) fn next(connection: &mut dyn Connection) -> Result<Incoming> {
    let start = Instant::now();
    loop {
        if let Some(message) = connection.receive_any()? {
            return Ok(message);
        }
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "no message within ten seconds"
        );
        if !connection.doze() {
            wait(&connection.identity().readiness.clone().fd, PollFlags::IN);
        }
        if let Some(message) = connection.receive_any()? {
            return Ok(message);
        }
        connection.wake();
    }
}

/// Makes the server send its first control message; a client's messages may wait for it.
pub(crate) fn speak_first(server: &mut dyn Connection, client: &mut dyn Connection) {
    let (bytes, fd) = (vec![0xFF], None);
    server.send(Outgoing::Control { bytes, fd }).unwrap();
    let message = next(client).unwrap();
    assert!(matches!(message, Incoming::Control { .. }), "{message:?}");
}

/// Sends `messages` and receives the same number, writing and reading in turn.
pub(crate) fn carry(
    from: &mut dyn Connection,
    to: &mut dyn Connection,
    messages: Vec<Outgoing>,
) -> Vec<Incoming> {
    let count = messages.len();
    for message in messages {
        from.send(message).unwrap();
    }
    let mut arrived = Vec::new();
    let start = Instant::now();
    while arrived.len() < count {
        from.flush().unwrap();
        while let Some(message) = to.receive_any().unwrap() {
            arrived.push(message);
        }
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "{} of {count}",
            arrived.len()
        );
    }
    // What has arrived may still count as leaving, until the transport looks again.
    while !from.flush().unwrap() {
        assert!(start.elapsed() < Duration::from_secs(60), "a flush ends");
        thread::yield_now();
    }
    assert_eq!(from.traffic().queued, 0);
    arrived
}

/// Bytes that depend on their offset, so that a shift shows.
pub(crate) fn pattern(len: usize, seed: u8) -> Vec<u8> {
    // The period is a prime, so it matches no size of a block or page.
    let period: Vec<u8> = (0..4099usize)
        .map(|at| (at.wrapping_mul(31) >> 3).to_le_bytes()[0] ^ seed)
        .collect();
    let mut bytes = period.repeat(len / period.len() + 1);
    bytes.truncate(len);
    bytes
}
