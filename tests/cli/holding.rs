//! Clients that keep lent memory and pretend to return it: the server's memory stays within
//! `--max-memory`.

use std::collections::HashMap;
use std::io::{IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Instant;

use dipc::proto::{Credit, Prefix, PrefixKind, Request, Uri};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

use crate::sample::rounds;
use crate::support::*;

const LIMIT: u64 = 8 << 20;

fn serve(scale: &str) -> Server {
    let table = ["--tpch", "lineitem", "--scale", scale];
    let limits = ["--batch-rows", "5000", "--max-memory", "8M"];
    Server::start(&[&table[..], &limits[..]].concat())
}

/// Asks for the table like a client, and reads all of it. Gives the connection and the received
/// descriptors.
fn take(uri: &str) -> (UnixStream, Vec<OwnedFd>) {
    let uri = Uri::parse(uri).unwrap();
    let name = uri.address.strip_prefix('@').unwrap();
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let mut socket = UnixStream::connect_addr(&address).unwrap();
    let no_limit = Credit {
        batches: u64::MAX,
        bytes: u64::MAX,
    };
    let request = Request::new(b"lineitem".to_vec(), no_limit).encode();
    let mut frame = (request.len() as u64).to_le_bytes().to_vec();
    frame.extend_from_slice(&uri.tags.dipc_want.to_le_bytes());
    frame.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
    frame.extend_from_slice(&request);
    socket.write_all(&frame).unwrap();
    let mut descriptors = Vec::new();
    let mut bytes = Vec::new();
    while !ends(&mut bytes) {
        let mut part = vec![0; 1 << 20];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let runs = &mut [IoSliceMut::new(&mut part)];
        let got =
            rustix::net::recvmsg(&socket, runs, &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
        assert_ne!(got.bytes, 0, "the server hung up");
        bytes.extend_from_slice(&part[..got.bytes]);
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
    }
    (socket, descriptors)
}

/// Removes whole frames from the front. Returns whether one of them ended the stream.
fn ends(bytes: &mut Vec<u8>) -> bool {
    let mut begin = 0;
    let mut ended = false;
    while let Some(head) = bytes.get(begin..begin + 24) {
        let len = usize::from_le_bytes(head[..8].try_into().unwrap());
        let Some(payload) = bytes.get(begin + 24..begin + 24 + len) else {
            break;
        };
        if head[16] == 0 {
            let (prefix, _) = Prefix::split(payload).unwrap();
            ended |= prefix.kind == PrefixKind::EndOfStream;
        }
        begin += 24 + len;
    }
    bytes.drain(..begin);
    ended
}

/// Bytes of memory behind the descriptors, each file once.
fn held(descriptors: &[OwnedFd]) -> u64 {
    let files: HashMap<_, _> = descriptors
        .iter()
        .map(|fd| rustix::fs::fstat(fd).unwrap())
        .map(|stat| (stat.st_ino, stat.st_blocks as u64 * 512))
        .collect();
    files.values().sum()
}

/// `--max-memory` counts memory that clients keep after a disconnect, and released memory is lent
/// again.
#[test]
fn memory_that_clients_keep_counts() {
    // Twice the limit.
    let server = serve("0.02");
    let mut kept = Vec::new();
    for _ in 0..20 {
        let (connection, descriptors) = take(&server.uri);
        kept.extend(descriptors);
        drop(connection);
        assert!(
            (LIMIT / 2..=LIMIT).contains(&held(&kept)),
            "{}",
            held(&kept)
        );
    }
    drop(kept);
    let (_, descriptors) = take(&server.uri);
    assert!(!descriptors.is_empty(), "all of it is free again");
}

/// A client that releases lent memory before each disconnect is lent memory every time.
#[test]
fn a_client_may_come_again_and_again() {
    // Half of it.
    let server = serve("0.005");
    for round in 0..rounds(100) {
        let start = Instant::now();
        // The server may not have noticed the end of the last connection.
        while take(&server.uri).1.is_empty() {
            assert!(start.elapsed() < PATIENCE, "round {round}");
        }
    }
}

/// `--max-memory` limits all tables of `--arena` together.
#[test]
fn tables_in_arenas_share_the_bound() {
    let tables = ["--tpch", "part", "--tpch", "partsupp", "--scale", "0.1"];
    let address = address();
    let args = [&["serve", "--listen", &address, "--arena"][..], &tables].concat();
    for bound in ["48M", "8M"] {
        let output = run(&[&args[..], &["--max-memory", bound]].concat());
        assert_eq!(output.status.code(), Some(1));
        let text = text(&output.stderr);
        assert!(text.contains("--max-memory"), "{text}");
    }
}
