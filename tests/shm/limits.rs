//! A process without free descriptors or memory. Each case runs in its own process, because the
//! limit is for the whole process.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dipc::arena::{Arena, ArenaOptions};
use dipc::client::GetOptions;
use dipc::device::region::Region;
use dipc::device::{BufferRef, DeviceKind};
use dipc::error::Status;
use dipc::proto::Uri;
use dipc::server::{ServerHandle, ServerOptions};
use dipc::transport::{BodyPolicy, Incoming, Lender, LinkOptions, Outgoing, Placement, by_scheme};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::child::{assert_in_child, in_child};
use crate::ring::{Bare, asking, ring_frame};
use crate::{
    bare_peer, bare_server, connect, eventually, frame, listen, name, next, region_frame, send_with,
};

/// Uses up all descriptors except `left`, until the drop of the result.
fn use_up(left: usize) -> Vec<OwnedFd> {
    assert_in_child();
    let hard = getrlimit(Resource::Nofile).maximum;
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(128),
            maximum: hard,
        },
    )
    .unwrap();
    let mut taken: Vec<OwnedFd> = Vec::new();
    while let Ok(fd) = std::io::stdout().as_fd().try_clone_to_owned() {
        taken.push(fd);
    }
    taken.truncate(taken.len() - left);
    taken
}

/// Without descriptors bodies travel as bytes, and are lent again afterwards.
#[test]
fn lending_without_descriptors_falls_back_to_bytes() {
    in_child("limits::child_lends");
}

#[test]
#[ignore = "run by lending_without_descriptors_falls_back_to_bytes"]
fn child_lends() {
    let (connection, _peer) = bare_peer();
    let lender = connection.pool().unwrap();
    let arena = Arena::new(DeviceKind::CPU, ArenaOptions::default()).unwrap();
    let bytes = vec![1; 100_000];
    let buffers = [BufferRef::of(&bytes)];
    let taken = use_up(0);
    assert!(matches!(
        Arc::clone(&lender)
            .place(&buffers, None, BodyPolicy::Auto)
            .unwrap(),
        Placement::Packed
    ));
    let error = arena.alloc(1).unwrap_err();
    assert_eq!(error.status(), Status::OutOfResources, "{error}");
    assert_eq!(arena.mapped_bytes(), 0);
    drop(taken);
    assert!(matches!(
        Arc::clone(&lender)
            .place(&buffers, None, BodyPolicy::Auto)
            .unwrap(),
        Placement::Lent(_)
    ));
    arena.alloc(1).unwrap();
}

/// A receiver without descriptors reports this, and does not call the peer hostile.
#[test]
fn receiving_without_descriptors_says_so() {
    in_child("limits::child_receives");
}

#[test]
#[ignore = "run by receiving_without_descriptors_says_so"]
fn child_receives() {
    let (mut connection, peer) = bare_server();
    let region = Region::create(4096, "dipc-test").unwrap();
    send_with(&peer, &region_frame(1, 4096), &[region.fd().as_fd()]);
    let taken = use_up(0);
    let error = next(connection.as_mut()).unwrap_err();
    drop(taken);
    assert_eq!(error.status(), Status::OutOfResources, "{error}");
    assert!(error.text().contains("ulimit -n"), "{error}");
}

/// A client without a free descriptor asks for no ring, which would end the connection: the socket
/// carries everything.
#[test]
fn a_client_without_descriptors_does_without_a_ring() {
    in_child("limits::child_has_no_ring");
}

#[test]
#[ignore = "run by a_client_without_descriptors_does_without_a_ring"]
fn child_has_no_ring() {
    let name = name();
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let listener = UnixListener::bind_addr(&address).unwrap();
    let mut client = connect(&format!("@{name}")).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let taken = use_up(0);
    for _ in 0..200 {
        server.write_all(&frame(2, 0, &[200])).unwrap();
        next(client.as_mut()).unwrap();
    }
    drop(taken);
    let bytes = vec![201];
    client.send(Outgoing::Control { bytes, fd: None }).unwrap();
    let mut first = [0; 25];
    server.read_exact(&mut first).unwrap();
    assert_eq!(first[..], frame(2, 0, &[201]), "it has asked for a ring");
}

/// A client whose last descriptor is used while its ring arrives goes on without a ring too.
#[test]
fn a_client_whose_ring_finds_no_descriptor_does_without() {
    in_child("limits::child_loses_its_ring");
}

#[test]
#[ignore = "run by a_client_whose_ring_finds_no_descriptor_does_without"]
fn child_loses_its_ring() {
    let (mut client, mut server) = asking();
    let ring = Bare::make();
    let taken = use_up(0);
    send_with(&server, &ring_frame(), &[ring.fd.as_fd()]);
    server.write_all(&frame(2, 0, &[202])).unwrap();
    let message = next(client.as_mut());
    drop(taken);
    assert!(matches!(message, Ok(Incoming::Control { bytes, .. }) if bytes[..] == [202]));
    client.wake();
    assert_eq!(ring.awake().load(Ordering::SeqCst), 0);
}

/// A client without memory to map its ring does not use it: the socket carries everything.
#[test]
fn a_client_that_cannot_map_its_ring_does_without() {
    if std::env::var_os("TSAN_OPTIONS").is_some() {
        println!("skipped: ThreadSanitizer ends a process that has no memory left");
        return;
    }
    in_child("limits::child_cannot_map_its_ring");
}

#[test]
#[ignore = "run by a_client_that_cannot_map_its_ring_does_without"]
fn child_cannot_map_its_ring() {
    assert_in_child();
    let (mut client, mut server) = asking();
    let ring = Bare::make();
    send_with(&server, &ring_frame(), &[ring.fd.as_fd()]);
    server.write_all(&frame(2, 0, &[202])).unwrap();
    let before = getrlimit(Resource::As);
    let none = Rlimit {
        current: Some(1),
        ..before
    };
    setrlimit(Resource::As, none).unwrap();
    let message = next(client.as_mut());
    setrlimit(Resource::As, before).unwrap();
    assert!(matches!(message, Ok(Incoming::Control { bytes, .. }) if bytes[..] == [202]));
    client.wake();
    assert_eq!(ring.awake().load(Ordering::SeqCst), 0);
    server.write_all(&frame(2, 0, &[203])).unwrap();
    assert!(next(client.as_mut()).is_ok());
}

/// A listener without descriptors reports this and accepts again later; nothing is lost.
#[test]
fn accepting_without_descriptors_can_be_tried_again() {
    in_child("limits::child_accepts");
}

#[test]
#[ignore = "run by accepting_without_descriptors_can_be_tried_again"]
fn child_accepts() {
    let address = format!("@{}", name());
    let mut listener = listen(&address).unwrap();
    let tcp = by_scheme("tcp").unwrap();
    let anywhere = Uri::parse("tcp://127.0.0.1:0").unwrap();
    let mut other = tcp.listen(&anywhere, &LinkOptions::default()).unwrap();
    // Without a waiting client no client is refused.
    let all = use_up(0);
    assert!(listener.accept().unwrap().is_none());
    assert!(other.accept().unwrap().is_none());
    drop(all);
    let taken = use_up(2);
    // A connection takes two descriptors: the socket and the pidfd.
    let client = connect(&address).unwrap();
    for _ in 0..3 {
        let error = listener.accept().err().unwrap();
        assert_eq!(error.status(), Status::OutOfResources, "{error}");
    }
    // A client takes two descriptors, over tcp too.
    let elsewhere = Uri::parse("tcp://127.0.0.1:1").unwrap();
    let errors = [
        connect(&address).err().unwrap(),
        tcp.connect(&elsewhere, &LinkOptions::default())
            .err()
            .unwrap(),
    ];
    for error in errors {
        assert_eq!(error.status(), Status::OutOfResources, "{error}");
        assert!(error.text().contains("ulimit -n"), "{error}");
    }
    drop(taken);
    assert!(listener.accept().unwrap().is_some());
    drop(client);
}

/// Rule Q8: idle connections over shm do not take all descriptors, of which each has two. A further
/// client hears at once that the server is busy, and why.
#[test]
fn idle_connections_leave_descriptors() {
    in_child("limits::child_has_idle_connections");
}

#[test]
#[ignore = "run by idle_connections_leave_descriptors"]
fn child_has_idle_connections() {
    const FILES: usize = 256;
    drop(use_up(0));
    let limit = getrlimit(Resource::Nofile);
    let files = Rlimit {
        current: Some(FILES as u64),
        ..limit
    };
    setrlimit(Resource::Nofile, files).unwrap();
    let server = ServerHandle::new(ServerOptions::default()).unwrap();
    let name = name();
    let uri = server.listen(&format!("shm:@{name}")).unwrap();
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let connect = || UnixStream::connect_addr(&address).unwrap();
    let idle: Vec<_> = (0..FILES / 4).map(|_| connect()).collect();
    eventually("all are connected", || {
        server.stats().connections == idle.len() as u64
    });
    let get = || crate::idle::client().get(&[&uri], b"t", &GetOptions::default(), None);
    let error = get().map(drop).unwrap_err();
    assert_eq!(error.status(), Status::Busy, "{error}");
    assert!(error.text().contains("ulimit -n"), "{error}");
    drop(idle);
    eventually("there is a place again", || {
        let error = get().map(drop).unwrap_err();
        error.status() == Status::NotFound
    });
}

/// Beyond the file size limit bodies travel as bytes, no ring is made, and an arena reports an
/// error; no signal comes.
#[test]
fn a_limit_on_files_is_an_error() {
    in_child("limits::child_has_small_files");
}

#[test]
#[ignore = "run by a_limit_on_files_is_an_error"]
fn child_has_small_files() {
    assert_in_child();
    let limit = |bytes: u64| {
        let before = getrlimit(Resource::Fsize);
        let limit = Rlimit {
            current: Some(bytes),
            ..before
        };
        setrlimit(Resource::Fsize, limit).unwrap();
    };
    let bytes = vec![1; 100_000];
    let buffers = [BufferRef::of(&bytes)];
    let lends = |lender: Arc<dyn Lender>| {
        matches!(
            lender.place(&buffers, None, BodyPolicy::Auto).unwrap(),
            Placement::Lent(_)
        )
    };
    let (mut connection, mut peer) = bare_peer();
    let lender = connection.pool().unwrap();
    limit(50_000);
    assert!(!lends(Arc::clone(&lender) as _));
    let arena = Arena::new(DeviceKind::CPU, ArenaOptions::default()).unwrap();
    let error = arena.alloc(100_000).unwrap_err();
    assert_eq!(error.status(), Status::OutOfResources, "{error}");
    assert!(error.text().contains("ulimit -f"), "{error}");
    assert_eq!(arena.mapped_bytes(), 0);
    arena.alloc(1).unwrap();
    assert!((1..=50_000).contains(&arena.mapped_bytes()));
    // The client asks for a ring, and then sends something else.
    peer.write_all(&frame(2, 0, &[10])).unwrap();
    peer.write_all(&frame(2, 0, &[200])).unwrap();
    assert!(
        matches!(next(connection.as_mut()), Ok(Incoming::Control { bytes, .. }) if bytes[..] == [200])
    );
    assert_eq!(connection.traffic().queued, 0);
    peer.set_nonblocking(true).unwrap();
    assert!(peer.read(&mut [0]).is_err(), "there is no ring");
    // Regions have the largest possible size.
    limit(200_000);
    assert!(lends(Arc::clone(&lender) as _));
    limit(0);
    let folder = tempfile::tempdir().unwrap();
    listen(folder.path().join("s").to_str().unwrap()).unwrap();
}
