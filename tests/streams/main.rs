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
use dipc::client::{Client, ClientOptions};
use dipc::server::{Server, ServerOptions};

pub(crate) const SCHEMES: [&str; 2] = ["mem", "shm"];

/// An address that no other test uses.
pub(crate) fn address(scheme: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{scheme}:@dipc-streams-{}-{number}", std::process::id())
}

pub(crate) fn server(scheme: &str, options: ServerOptions) -> (Server, String) {
    let server = Server::new(options).unwrap();
    let uri = server.listen(&address(scheme)).unwrap();
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
