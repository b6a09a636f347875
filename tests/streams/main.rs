//! Streams between a server and a client over each transport: the promises of the driver.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "in tests a panic is how a failure shows"
)]

mod asking;
mod authorizing;
mod bounds;
mod cancelling;
mod carrying;
mod checksums;
#[path = "../common/mod.rs"]
mod common;
mod draining;
mod ending;
mod exchanging;
mod figures;
mod filtering;
mod given;
mod hostile_lending;
mod hostile_puts;
mod hostile_requests;
mod logged;
mod lost;
mod many;
mod parts;
mod pending;
mod polling;
mod putting;
mod requests;
mod selecting;
mod serving;
mod sharing;
mod threads;
mod windows;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use dipc::client::{Client, ClientOptions, GetOptions};
use dipc::proto::Role;
use dipc::server::{HostProvider, ServerHandle, ServerOptions};
use dipc::transport;
use parking_lot::{ReentrantMutex, ReentrantMutexGuard};

/// A configuration of transport and connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject {
    pub(crate) scheme: &'static str,
    /// Connections for one stream.
    pub(crate) connections: u16,
    /// Lends memory by default.
    pub(crate) lends: bool,
}

/// The configurations that work on this machine.
pub(crate) struct Subjects;
pub(crate) const SUBJECTS: Subjects = Subjects;

impl IntoIterator for Subjects {
    type Item = Subject;
    type IntoIter = Working;

    fn into_iter(self) -> Self::IntoIter {
        let mut works = Vec::new();
        for subject in ALL {
            match transport::by_scheme(subject.scheme).unwrap().available() {
                Ok(()) => works.push(subject),
                Err(error) => eprintln!("skipped for {}: {error}", subject.scheme),
            }
        }
        Working {
            subjects: works.into_iter(),
            ucx: None,
        }
    }
}

/// Over ucx only one test runs at a time. UCX before 1.18 can end a process in which a connection
/// ends while another begins with the same descriptor (docs/transports.md).
pub(crate) struct Working {
    subjects: std::vec::IntoIter<Subject>,
    ucx: Option<ReentrantMutexGuard<'static, ()>>,
}

impl Iterator for Working {
    type Item = Subject;

    fn next(&mut self) -> Option<Subject> {
        static UCX: ReentrantMutex<()> = ReentrantMutex::new(());
        let subject = self.subjects.next()?;
        self.ucx = (subject.scheme == "ucx").then(|| UCX.lock());
        Some(subject)
    }
}

const ALL: [Subject; 5] = [
    Subject {
        scheme: "mem",
        ..SHM
    },
    SHM,
    Subject {
        scheme: "tcp",
        lends: false,
        ..SHM
    },
    Subject {
        scheme: "tcp",
        lends: false,
        connections: 3,
    },
    Subject {
        scheme: "ucx",
        lends: false,
        ..SHM
    },
];

pub(crate) const SHM: Subject = Subject {
    scheme: "shm",
    connections: 1,
    lends: true,
};

impl Subject {
    /// The options of a client's stream.
    pub(crate) fn options(self) -> GetOptions {
        GetOptions {
            connections: self.connections,
            ..GetOptions::default()
        }
    }

    /// The number of connections kept after a cancelled stream. Without an order of messages the
    /// connection is not kept, because late messages could mix with those of the next stream.
    pub(crate) fn kept_after_cancel(self) -> u64 {
        u64::from(self.connections == 1 && self.scheme != "ucx")
    }

    /// An address without a listener.
    pub(crate) fn nowhere(self) -> String {
        match self.scheme {
            // Not a port of the system's range for clients.
            "tcp" | "ucx" => format!("{}://127.0.0.1:1", self.scheme),
            scheme => format!("{scheme}:@nobody-here"),
        }
    }

    /// A listening address that no other test uses.
    pub(crate) fn address(self) -> String {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        match self.scheme {
            "tcp" | "ucx" => format!("{}://127.0.0.1:0", self.scheme),
            scheme => format!("{scheme}:@dipc-streams-{}-{number}", std::process::id()),
        }
    }
}

pub(crate) fn server(subject: Subject, mut options: ServerOptions) -> (ServerHandle, String) {
    options.link.access.trusted_network = true;
    let server = ServerHandle::new(options).unwrap();
    let uri = server.listen(&subject.address()).unwrap();
    (server, uri)
}

/// A server of the ticket `t`, and its URI for one role.
pub(crate) fn server_of(
    subject: Subject,
    role: Role,
    provider: Box<dyn HostProvider>,
) -> (ServerHandle, String) {
    let (server, _) = server(subject, ServerOptions::default());
    serve(&server, "t", provider);
    let uri = server.location(role).unwrap();
    (server, uri)
}

pub(crate) fn client() -> Client {
    Client::new(ClientOptions::default()).unwrap()
}

/// Waits for a condition that another thread or the peer causes; fails after ten seconds.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "not within ten seconds: {what}"
        );
        thread::sleep(Duration::from_millis(2));
    }
}

pub(crate) fn assert_same(received: &[RecordBatch], expected: &[RecordBatch]) {
    assert_eq!(received.len(), expected.len());
    for (received, expected) in received.iter().zip(expected) {
        assert_eq!(received.columns(), expected.columns());
    }
}

pub(crate) fn serve(server: &ServerHandle, ticket: &str, provider: Box<dyn HostProvider>) {
    server
        .serve(ticket.as_bytes(), provider)
        .map_err(|(error, _)| error)
        .unwrap();
}
