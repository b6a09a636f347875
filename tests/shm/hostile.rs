//! Peers that break the rules: each ends its own connection with a reason, and leaves nothing
//! behind.

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};

use dipc::device::region::Region;
use dipc::error::Status;
use dipc::proto::Span;
use dipc::transport::Incoming;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;

use crate::{
    bare_peer, bare_server, frame, next, open_copies, region_frame, send_with, try_send_with,
    until_error,
};

/// Asserts the error after `bytes` from a peer.
fn ends_in(bytes: &[u8], text: &str) {
    let (mut connection, mut peer) = bare_peer();
    peer.write_all(&frame(0, 0, b"before")).unwrap();
    peer.write_all(bytes).unwrap();
    let (messages, error) = until_error(connection.as_mut());
    assert!(matches!(&messages[..], [Incoming::Metadata(bytes)] if bytes[..] == *b"before"));
    assert_eq!(error.status(), Status::Protocol, "{error}");
    assert!(error.text().contains(text), "{error}");
    assert_eq!(
        connection.receive_any().unwrap_err(),
        error,
        "an error lasts"
    );
}

/// Garbage, a frame of 2^47 bytes, an unknown class: the error names each.
#[test]
fn garbage_is_refused() {
    ends_in(b"GET /lineitem HTTP/1.1\r\nHost: x\r\n\r\n", "GET /lin");
    let mut huge = frame(0, 0, b"");
    huge[5] = 0x80;
    ends_in(&huge, "140737488355328 bytes");
    ends_in(&frame(9, 0, b"x"), "class 9");
    ends_in(&frame(2, 0, &vec![0; (64 << 10) + 1]), "control");
}

/// A peer that ends in the middle of a message is disconnected; its whole messages arrive.
#[test]
fn an_end_in_the_middle_of_a_message_is_said() {
    let (mut connection, mut peer) = bare_peer();
    peer.write_all(&frame(0, 0, b"whole")).unwrap();
    peer.write_all(&frame(0, 0, b"cut off")[..28]).unwrap();
    drop(peer);
    let (messages, error) = until_error(connection.as_mut());
    assert_eq!(messages.len(), 1);
    assert_eq!(error.status(), Status::Disconnected);
    assert!(error.text().contains("middle of a message"), "{error}");
    assert!(
        error
            .text()
            .contains(&format!("pid {}", std::process::id())),
        "{error}"
    );
}

/// "Our transports": descriptors without a REGION message are closed, and end the connection, with
/// any message and any split of it.
#[test]
fn stray_descriptors_are_closed() {
    let region = Region::create(4096, "dipc-test").unwrap();
    let fd = region.fd();
    let metadata = frame(0, 0, b"hello");
    let two = [fd.as_fd(), fd.as_fd()];
    let many = [fd.as_fd(); 253];
    for (bytes, fds) in [
        (metadata.clone(), &two[..1]),
        (frame(2, 0, &[3]), &two[..1]),
        (region_frame(1, 4096), &two[..]),
        (region_frame(1, 4096), &many[..]),
    ] {
        let (mut connection, peer) = bare_server();
        send_with(&peer, &bytes, fds);
        let (_, error) = until_error(connection.as_mut());
        assert_eq!(error.status(), Status::Protocol, "{error}");
        assert!(error.text().contains("descriptor"), "{error}");
    }
    // One at a time, in the middle of a message: few of the peer's descriptors are ever in this
    // process.
    let (mut connection, mut peer) = bare_server();
    peer.write_all(&frame(0, 0, &[0; 5000])[..100]).unwrap();
    for _ in 0..20 {
        send_with(&peer, &[0], &two[..1]);
    }
    let (_, error) = until_error(connection.as_mut());
    assert!(error.text().contains("descriptor"), "{error}");
    drop((connection, peer));
    assert_eq!(open_copies(fd), 1);
}

/// Each REGION message keeps its own descriptor, with several messages and any split.
#[test]
fn each_region_keeps_its_descriptor() {
    let regions: Vec<_> = (1..=5u64)
        .map(|n| Region::create(n * 4096, "dipc-test").unwrap())
        .collect();
    for split in [1, 10, 24, 30] {
        let (mut connection, mut peer) = bare_server();
        for (id, region) in (1..).zip(&regions) {
            let bytes = region_frame(id, region.len() as u64);
            send_with(&peer, &bytes[..split], &[region.fd().as_fd()]);
            peer.write_all(&bytes[split..]).unwrap();
            peer.write_all(&frame(0, 0, b"between")).unwrap();
        }
        for (id, region) in (1..).zip(&regions) {
            let message = next(connection.as_mut()).unwrap();
            let Incoming::Control { fd, .. } = message else {
                panic!("{message:?}")
            };
            // A wrong descriptor would have another length.
            let handle = (region.len() as u64).to_le_bytes();
            connection.regions().unwrap().map(id, &handle, fd).unwrap();
            assert!(matches!(
                next(connection.as_mut()).unwrap(),
                Incoming::Metadata(_)
            ));
        }
    }
}

/// "Our transports" and rule A8: the connection refuses a region that could shrink, be written, or
/// lack memory under its reader.
#[test]
fn a_region_that_is_not_sealed_or_sparse_is_refused() {
    let make = |seals: SealFlags| -> OwnedFd {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("dipc-test", flags).unwrap();
        rustix::fs::ftruncate(&fd, 1 << 20).unwrap();
        rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
        fd
    };
    let all = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE;
    // Enough blocks for its length, but all past its end.
    let past = make(SealFlags::empty());
    rustix::fs::fallocate(&past, FallocateFlags::KEEP_SIZE, 1 << 20, 1 << 20).unwrap();
    rustix::fs::fcntl_add_seals(&past, all).unwrap();
    for (fd, text) in [
        (make(SealFlags::empty()), "seals"),
        (make(all), "sparse"),
        (past, "sparse"),
    ] {
        let (mut connection, peer) = bare_server();
        send_with(&peer, &region_frame(3, 1 << 20), &[fd.as_fd()]);
        let message = next(connection.as_mut()).unwrap();
        let Incoming::Control { fd: received, .. } = message else {
            panic!("{message:?}")
        };
        let error = connection
            .regions()
            .unwrap()
            .map(3, &(1u64 << 20).to_le_bytes(), received)
            .unwrap_err();
        assert_eq!(error.status(), Status::Protocol);
        assert!(
            error.text().contains(text) && error.text().contains("region 3"),
            "{error}"
        );
        assert_eq!(open_copies(&fd), 1);
    }
}

/// Rule E3: a missing descriptor, an id in use, or an unknown id changes nothing.
#[test]
fn region_ids_are_checked() {
    let region = Region::create(4096, "dipc-test").unwrap();
    let (mut connection, peer) = bare_server();
    let handle = 4096u64.to_le_bytes();
    send_with(&peer, &region_frame(1, 4096), &[region.fd().as_fd()]);
    let message = next(connection.as_mut()).unwrap();
    let Incoming::Control { fd, .. } = message else {
        panic!("{message:?}")
    };
    connection.regions().unwrap().map(1, &handle, fd).unwrap();
    for result in [
        connection
            .regions()
            .unwrap()
            .map(1, &handle, Some(region.fd().try_clone().unwrap())),
        connection.regions().unwrap().map(2, &handle, None),
        connection.regions().unwrap().unmap(2).map(drop),
    ] {
        assert_eq!(result.unwrap_err().status(), Status::Protocol);
    }
    let span = |address, length| vec![Span { address, length }];
    for outside in [
        span(1 << 48 | 4000, 97),
        span(2 << 48, 1),
        span(4000, 1),
        span(u64::MAX, 1),
    ] {
        let error = connection
            .regions()
            .unwrap()
            .resolve(0, 1, outside)
            .err()
            .unwrap();
        assert_eq!(error.status(), Status::Protocol, "{error}");
    }
    assert_eq!(
        connection
            .regions()
            .unwrap()
            .resolve(0, 1, span(1 << 48 | 4000, 96))
            .unwrap()
            .buffers[0]
            .len,
        96
    );
}

/// security.md, "Descriptors": a server accepts none, nor does a client outside a stream.
#[test]
fn descriptors_are_taken_within_a_stream_alone() {
    let region = Region::create(4096, "dipc-test").unwrap();
    let (server, client_of_it) = bare_peer();
    let (mut ended, server_of_it) = bare_server();
    ended.end_stream();
    for (mut connection, peer) in [(server, client_of_it), (ended, server_of_it)] {
        let sent = try_send_with(&peer, &region_frame(1, 4096), &[region.fd().as_fd()]);
        if sent == Err(Errno::PERM) {
            continue;
        }
        let (_, error) = until_error(connection.as_mut());
        assert_eq!(error.status(), Status::Protocol, "{error}");
        assert!(error.text().contains("descriptor"), "{error}");
    }
    // The next stream accepts them again.
    let (mut connection, peer) = bare_server();
    connection.end_stream();
    connection.begin_stream(0, 0);
    send_with(&peer, &region_frame(1, 4096), &[region.fd().as_fd()]);
    assert!(next(connection.as_mut()).is_ok());
}
