//! Streams between a server and a client over each transport: what the driver promises.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "in tests a panic is how a failure shows"
)]

mod carrying;
#[path = "../common/mod.rs"]
mod common;
mod ending;
mod serving;
mod windows;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use dipc::client::{Client, ClientOptions, GetOptions};
use dipc::server::{Server, ServerOptions};

/// A way to carry streams.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject {
    pub(crate) scheme: &'static str,
    /// Connections for one stream.
    pub(crate) connections: u16,
    /// Lends memory, where it is not told otherwise.
    pub(crate) lends: bool,
}

/// All of them.
pub(crate) const SUBJECTS: [Subject; 4] = [
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
];

pub(crate) const SHM: Subject = Subject {
    scheme: "shm",
    connections: 1,
    lends: true,
};

impl Subject {
    /// What a client asks with.
    pub(crate) fn options(self) -> GetOptions {
        GetOptions {
            connections: self.connections,
            ..GetOptions::default()
        }
    }

    /// An address that nobody listens at.
    pub(crate) fn nowhere(self) -> String {
        match self.scheme {
            // Not one that the system gives out.
            "tcp" => "tcp://127.0.0.1:1".into(),
            scheme => format!("{scheme}:@nobody-here"),
        }
    }

    /// An address to listen at that no other test uses.
    pub(crate) fn address(self) -> String {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        match self.scheme {
            "tcp" => "tcp://127.0.0.1:0".into(),
            scheme => format!("{scheme}:@dipc-streams-{}-{number}", std::process::id()),
        }
    }
}

pub(crate) fn server(subject: Subject, options: ServerOptions) -> (Server, String) {
    let server = Server::new(options).unwrap();
    let uri = server.listen(&subject.address()).unwrap();
    (server, uri)
}

pub(crate) fn client() -> Client {
    Client::new(ClientOptions::default()).unwrap()
}

/// Waits for something that another thread or the peer brings about; fails after ten seconds.
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

pub(crate) fn serve(server: &Server, ticket: &str, provider: Box<dyn dipc::server::Provider>) {
    server
        .serve(ticket.as_bytes(), provider)
        .map_err(|(error, _)| error)
        .unwrap();
}
