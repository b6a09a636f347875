//! shm beyond the common promises of transports: hostile peers, socket files, and the limits of a
//! process.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "in tests a panic is how a failure shows"
)]

mod addresses;
#[path = "../common/asleep.rs"]
mod asleep;
#[path = "../common/child.rs"]
mod child;
mod hostile;
mod idle;
mod kernels;
mod limits;
mod ring;

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dipc::error::{Error, Result};
use dipc::proto::Uri;
use dipc::transport::{self, Connection, Incoming, LinkOptions, Listener, Transport};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

fn shm() -> &'static dyn Transport {
    transport::by_scheme("shm").unwrap()
}

/// An abstract name that no other test uses.
fn name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("dipc-shm-{}-{number}", std::process::id())
}

fn listen(address: &str) -> Result<Box<dyn Listener>> {
    shm().listen(
        &Uri::parse(&format!("shm:{address}")).unwrap(),
        &LinkOptions::default(),
    )
}

fn connect(address: &str) -> Result<Box<dyn Connection>> {
    shm().connect(
        &Uri::parse(&format!("shm:{address}")).unwrap(),
        &LinkOptions::default(),
    )
}

/// A connection, and a bare socket as its peer.
fn bare_peer() -> (Box<dyn Connection>, UnixStream) {
    let name = name();
    let mut listener = listen(&format!("@{name}")).unwrap();
    let peer = UnixStream::connect_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let connection = listener.accept().unwrap().expect("a connection");
    (connection, peer)
}

/// The connection of a client that has begun a stream, and a bare socket as its server.
fn bare_server() -> (Box<dyn Connection>, UnixStream) {
    let name = name();
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let listener = UnixListener::bind_addr(&address).unwrap();
    let mut connection = connect(&format!("@{name}")).unwrap();
    connection.begin_stream(0, 0);
    let (peer, _) = listener.accept().unwrap();
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

/// A REGION message (rule E3).
fn region_frame(id: u16, len: u64) -> Vec<u8> {
    let handle = len.to_le_bytes().to_vec();
    frame(2, 0, &dipc::proto::Control::Region { id, handle }.encode())
}

/// Sends bytes with descriptors, in one system call.
fn send_with(peer: &UnixStream, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
    assert_eq!(try_send_with(peer, bytes, fds), Ok(bytes.len()));
}

fn try_send_with(
    peer: &UnixStream,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
) -> rustix::io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
    rustix::net::sendmsg(
        peer,
        &[IoSlice::new(bytes)],
        &mut control,
        SendFlags::NOSIGNAL,
    )
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

/// Waits for a condition that another thread causes; fails after ten seconds.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "not within ten seconds: {what}"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits up to ten seconds.
fn readable(fd: &impl AsFd) -> bool {
    let timeout = Timespec {
        tv_sec: 10,
        tv_nsec: 0,
    };
    let mut polled = [PollFd::new(fd, PollFlags::IN)];
    poll(&mut polled, Some(&timeout)).unwrap() > 0
}

/// Whether it is readable now.
fn ready(fd: &impl AsFd) -> bool {
    let mut polled = [PollFd::new(fd, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec::default())).unwrap() > 0
}

/// Descriptors that this process has open on the same file as `fd`.
fn open_copies(fd: &OwnedFd) -> usize {
    let of = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
    let wanted = of(rustix::fs::fstat(fd).unwrap());
    let entries = std::fs::read_dir("/proc/self/fd").unwrap();
    entries
        .filter_map(|entry| rustix::fs::stat(entry.ok()?.path()).ok())
        .filter(|stat| of(*stat) == wanted)
        .count()
}
