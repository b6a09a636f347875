//! tcp beyond the common promises of transports: admission, failures to connect, hostile peers, and
//! several sockets for one connection.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "in tests a panic is how a failure shows"
)]

#[path = "../common/mod.rs"]
mod common;
mod hostile;
mod joined;
mod reaching;
mod tls;

use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use dipc::error::{Error, Result};
use dipc::proto::Uri;
use dipc::transport::{self, Connection, Incoming, LinkOptions, Listener, Transport};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

fn tcp() -> &'static dyn Transport {
    transport::by_scheme("tcp").unwrap()
}

fn listen(uri: &str, options: &LinkOptions) -> Result<Box<dyn Listener>> {
    tcp().listen(&Uri::parse(uri).unwrap(), options)
}

fn connect(uri: &str, options: &LinkOptions) -> Result<Box<dyn Connection>> {
    tcp().connect(&Uri::parse(uri).unwrap(), options)
}

/// `host:port` of a listener.
fn target(listener: &dyn Listener) -> String {
    listener.address().trim_start_matches("tcp://").to_owned()
}

/// A connection, and a bare socket as its peer.
fn bare_peer() -> (Box<dyn Connection>, TcpStream) {
    let mut listener = listen("tcp://127.0.0.1:0", &LinkOptions::default()).unwrap();
    let peer = TcpStream::connect(target(listener.as_ref())).unwrap();
    assert!(readable(&listener.fd()));
    let connection = listener.accept().unwrap().expect("a connection");
    (connection, peer)
}

/// A hand-made frame of `docs/protocol.md`, "Our transports".
fn frame(class: u8, tag: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(&tag.to_le_bytes());
    bytes.extend_from_slice(&[class, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend_from_slice(payload);
    bytes
}

/// The next message; waits for it like the driver.
fn next(connection: &mut dyn Connection) -> Result<Incoming> {
    let start = Instant::now();
    loop {
        if let Some(message) = connection.receive_any()? {
            return Ok(message);
        }
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "no message within ten seconds"
        );
        readable(&connection.identity().readiness.clone().fd);
    }
}

/// Messages up to the error, and the error.
fn until_error(connection: &mut dyn Connection) -> (Vec<Incoming>, Error) {
    let mut messages = Vec::new();
    loop {
        match next(connection) {
            Ok(message) => messages.push(message),
            Err(error) => return (messages, error),
        }
    }
}

/// Waits up to ten seconds.
fn readable(fd: &impl AsFd) -> bool {
    readable_within(fd, 10)
}

fn readable_within(fd: &impl AsFd, seconds: i64) -> bool {
    let timeout = Timespec {
        tv_sec: seconds,
        tv_nsec: 0,
    };
    let mut polled = [PollFd::new(fd, PollFlags::IN)];
    poll(&mut polled, Some(&timeout)).unwrap() > 0
}
