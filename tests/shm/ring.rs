//! The ring beside the socket (`docs/wire.md`, "A ring"): one order of frames, no lost wake-up, and
//! peers that break its rules.

use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use dipc::arrow::stream::ArrayReader;
use dipc::client::GetOptions;
use dipc::device::region::Region;
use dipc::driver::end::End;
use dipc::driver::io::IoThread;
use dipc::driver::waiting::Cause;
use dipc::error::Status;
use dipc::proto::{Control, Tags, Uri};
use dipc::transport::{
    Connection, Incoming, LendingOptions, LinkOptions, Listener, MemoryBudget, Outgoing, Payload,
};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

use crate::asleep::{this_thread, until_asleep};
use crate::idle::{Scripted, client, with_server};
use crate::{
    bare_peer, frame, listen, name, next, open_copies, ready, send_with, shm, try_send_with,
    until_error,
};

/// RING and CLIENT_RING, and the length of a ring.
const RING: u8 = 10;
const CLIENT_RING: u8 = 24;
const FILE_BYTES: u64 = 69_632;
/// A frame that moves the next frame to the other place.
const SWITCH: u8 = 3;

/// Messages after which a client asks for a ring.
const BEFORE_RING: u32 = 64;

/// A server's RING, as its frame.
pub fn ring_frame() -> Vec<u8> {
    frame(2, 0, &[&[RING][..], &FILE_BYTES.to_le_bytes()].concat())
}

/// Whose frames a ring is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writer {
    Server,
    Client,
}

const WRITERS: [Writer; 2] = [Writer::Server, Writer::Client];

/// A connection that has a ring: the writer's end, and the reader's.
struct WithRing {
    _listener: Box<dyn Listener>,
    writer: Box<dyn Connection>,
    reader: Box<dyn Connection>,
}

fn with_ring(writer: Writer) -> WithRing {
    let name = name();
    let mut listener = listen(&format!("@{name}")).unwrap();
    let mut client = connect(&name);
    let mut server = listener.accept().unwrap().expect("a connection");
    for number in 0..BEFORE_RING {
        if writer == Writer::Server {
            server.send(control(number)).unwrap();
            assert!(next(client.as_mut()).is_ok());
        } else {
            server.begin_stream(0, 0);
            client.send(metadata()).unwrap();
            assert!(next(server.as_mut()).is_ok());
        }
    }
    // The request for the ring is sent with the next message.
    client.send(control(0)).unwrap();
    assert!(next(server.as_mut()).is_ok());
    server.send(control(0)).unwrap();
    assert!(next(client.as_mut()).is_ok());
    let (writer, reader) = match writer {
        Writer::Server => (server, client),
        Writer::Client => (client, server),
    };
    WithRing {
        _listener: listener,
        writer,
        reader,
    }
}

/// A message that counts towards the client's ring.
fn metadata() -> Outgoing {
    Outgoing::Metadata {
        prefix: [0; 5],
        header: None,
    }
}

fn connect(name: &str) -> Box<dyn Connection> {
    let uri = Uri::parse(&format!("shm:@{name}")).unwrap();
    shm().connect(&uri, &LinkOptions::default()).unwrap()
}

/// A client that has asked a bare server for a ring.
pub fn asking() -> (Box<dyn Connection>, UnixStream) {
    let name = name();
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let listener = UnixListener::bind_addr(&address).unwrap();
    let mut client = connect(&name);
    let (mut server, _) = listener.accept().unwrap();
    for number in 0..BEFORE_RING {
        let bytes = [&[200][..], &number.to_le_bytes()].concat();
        server.write_all(&frame(2, 0, &bytes)).unwrap();
        assert!(next(client.as_mut()).is_ok());
    }
    client.send(control(1)).unwrap();
    let mut asked = [0; 25 + 29];
    server.read_exact(&mut asked).unwrap();
    assert_eq!(asked[..25], frame(2, 0, &[RING]));
    (client, server)
}

/// A message of an unknown kind, with a number in it.
fn control(number: u32) -> Outgoing {
    let bytes = [&[200][..], &number.to_le_bytes()].concat();
    Outgoing::Control { bytes, fd: None }
}

fn number(message: &Incoming) -> u32 {
    let bytes = match message {
        Incoming::Control { bytes, .. } if bytes[0] == 5 => {
            return u32::from(u16::from_le_bytes([bytes[1], bytes[2]]));
        }
        Incoming::Control { bytes, .. } => &bytes[1..5],
        Incoming::Tagged { bytes, .. } => {
            assert!(bytes[4..].iter().all(|byte| *byte == bytes[0]));
            &bytes[..4]
        }
        other => panic!("{other:?}"),
    };
    u32::from_le_bytes(bytes.try_into().unwrap())
}

/// Small frames, frames larger than the ring, and frames with a descriptor, to a reader that looks
/// and sleeps in turn: all arrive in order, and none is left in the ring of a sleeping reader.
#[test]
fn one_order_whichever_way_the_frames_go() {
    let region = Region::create(4096, "dipc-test").unwrap();
    for (seed, which) in (0..20).flat_map(|seed| WRITERS.map(|which| (seed, which))) {
        let mut random = fastrand::Rng::with_seed(seed);
        let WithRing {
            writer: mut server,
            reader: mut client,
            ..
        } = with_ring(which);
        let (mut sent, mut came) = (0_u32, 0);
        while came < 2000 {
            match random.u32(0..10) {
                0 => client.wake(),
                1..=5 if sent < 2000 && sent - came < 400 => {
                    for _ in 0..random.u32(1..6) {
                        let message = match random.u32(0..40) {
                            0 => Outgoing::Control {
                                bytes: Control::Region {
                                    id: u16::try_from(sent).unwrap(),
                                    handle: 4096_u64.to_le_bytes().to_vec(),
                                }
                                .encode(),
                                fd: Some(Arc::clone(region.fd())),
                            },
                            1 | 2 => tagged(sent, random.usize(4..100_000)),
                            3..=9 => tagged(sent, random.usize(4..5000)),
                            _ => control(sent),
                        };
                        server.queue(0, message).unwrap();
                        sent += 1;
                    }
                    server.flush().unwrap();
                }
                _ => {
                    // The frames that did not fit into the socket.
                    server.flush().unwrap();
                    let mut nothing = false;
                    for _ in 0..random.u32(1..30) {
                        let Some(message) = client.receive_any().unwrap() else {
                            nothing = true;
                            break;
                        };
                        assert_eq!(number(&message), came, "seed {seed}");
                        came += 1;
                    }
                    // Like a driver: no message, a last look, then sleep.
                    if nothing && random.bool() && !client.doze() {
                        let left = came < sent && server.traffic().queued == 0;
                        let fd = client.identity().readiness.clone().fd;
                        assert!(!left || ready(&fd), "seed {seed}: a wake-up was lost");
                    }
                }
            }
        }
    }
}

fn tagged(number: u32, len: usize) -> Outgoing {
    let low = number.to_le_bytes();
    let mut bytes = vec![low[0]; len];
    bytes[..4].copy_from_slice(&low);
    Outgoing::Tagged {
        tag: u64::MAX,
        payload: Payload::Bytes(bytes.into()),
    }
}

/// `docs/performance.md`: an awake reader gets small messages without a system call.
#[test]
fn nothing_goes_through_the_socket_while_the_reader_looks() {
    for which in WRITERS {
        let WithRing {
            _listener,
            mut writer,
            mut reader,
        } = with_ring(which);
        reader.wake();
        // The first message on the socket switches to the ring.
        writer.send(control(7)).unwrap();
        assert_eq!(number(&next(reader.as_mut()).unwrap()), 7);
        for round in 0..5000 {
            writer.send(control(round)).unwrap();
            assert!(!ready(&reader.identity().readiness.clone().fd));
            assert_eq!(number(&reader.receive_any().unwrap().unwrap()), round);
        }
        // Each message wakes the sleeping reader.
        assert!(!reader.doze());
        writer.send(control(1)).unwrap();
        assert!(ready(&reader.identity().readiness.clone().fd));
        assert_eq!(number(&reader.receive_any().unwrap().unwrap()), 1);
        // The end wakes it too.
        drop(writer);
        let (_, error) = until_error(reader.as_mut());
        assert_eq!(error.status(), Status::Disconnected);
    }
}

/// `docs/wire.md`, "A ring": each direction has its own, and both can be in use.
#[test]
fn both_directions_have_a_ring() {
    let WithRing {
        _listener,
        writer: mut client,
        reader: mut server,
    } = with_ring(Writer::Client);
    for number in 0..BEFORE_RING {
        server.send(control(number)).unwrap();
        assert!(next(client.as_mut()).is_ok());
    }
    client.send(control(0)).unwrap();
    assert!(next(server.as_mut()).is_ok());
    server.send(control(0)).unwrap();
    assert!(next(client.as_mut()).is_ok());
    server.wake();
    client.wake();
    for round in 0..1000 {
        client.send(control(round)).unwrap();
        assert_eq!(number(&next(server.as_mut()).unwrap()), round);
        server.send(control(round + 1)).unwrap();
        assert_eq!(number(&next(client.as_mut()).unwrap()), round + 1);
        if round > 0 {
            assert!(!ready(&client.identity().readiness.clone().fd));
            assert!(!ready(&server.identity().readiness.clone().fd));
        }
    }
}

/// Rule E1, and "A ring" in `docs/wire.md`: only a client that asked gets a RING. A client with few
/// messages does not ask, and never asks a baseline server.
#[test]
fn rings_are_for_those_who_ask() {
    let (mut connection, mut peer) = bare_peer();
    let mut bytes = [0; 29];
    for number in 0..2 * BEFORE_RING {
        peer.write_all(&frame(2, 0, &[200, 1, 0, 0, 0])).unwrap();
        assert!(next(connection.as_mut()).is_ok());
        connection.send(control(number)).unwrap();
        peer.read_exact(&mut bytes).unwrap();
        assert_eq!((bytes[16], bytes[24]), (2, 200), "a server does not ask");
    }
    for (query, messages) in [
        ("", BEFORE_RING - 1),
        ("?want_data=281474976710656", 2 * BEFORE_RING),
    ] {
        let name = name();
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        let uri = Uri::parse(&format!("shm:@{name}{query}")).unwrap();
        let mut client = shm().connect(&uri, &LinkOptions::default()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        for number in 0..messages {
            server.write_all(&frame(2, 0, &[200, 1, 0, 0, 0])).unwrap();
            assert!(next(client.as_mut()).is_ok());
            client.send(control(number)).unwrap();
            server.read_exact(&mut bytes).unwrap();
            assert_eq!((bytes[16], bytes[24]), (2, 200), "it asks for a ring");
        }
    }
}

/// A ring, mapped like by another program.
pub struct Bare {
    pub fd: OwnedFd,
    base: *mut u8,
}

impl Bare {
    fn map(fd: OwnedFd) -> Self {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let len = usize::try_from(FILE_BYTES).unwrap();
        // The touched pages are known as such to kernels without cachestat, too.
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address that the system chooses; it stays for the process's
        // life.
        let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, access, flags, &fd, 0) };
        let base = base.unwrap().cast();
        Self { fd, base }
    }

    pub fn make() -> Self {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("dipc-test", flags).unwrap();
        rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, FILE_BYTES).unwrap();
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW).unwrap();
        Self::map(fd)
    }

    fn position(&self, at: usize) -> &AtomicU64 {
        // SAFETY: within the mapping, aligned, and touched by atomics alone.
        unsafe { &*self.base.wrapping_add(at).cast::<AtomicU64>() }
    }

    pub fn awake(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { &*self.base.wrapping_add(128).cast::<AtomicU32>() }
    }

    fn put(&self, bytes: &[u8]) {
        let target = self.base.wrapping_add(4096);
        // SAFETY: the tests write less than the ring's size.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
        self.position(0)
            .store(bytes.len() as u64, Ordering::Release);
    }
}

/// Reads one RING or CLIENT_RING with its descriptor.
fn take_ring(peer: &UnixStream, kind: u8) -> Bare {
    let mut bytes = [0; 33];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut runs = [IoSliceMut::new(&mut bytes)];
    let read = rustix::net::recvmsg(peer, &mut runs, &mut control, RecvFlags::empty()).unwrap();
    assert_eq!(read.bytes, 33);
    let mut fds = control.drain().filter_map(|item| match item {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    let fd = fds.next().expect("a descriptor");
    assert_eq!(bytes[24], kind);
    assert_eq!(bytes[25..], FILE_BYTES.to_le_bytes());
    Bare::map(fd)
}

/// A client that moves its position past the written bytes loses its connection; the server goes
/// on.
#[test]
fn a_client_that_writes_nonsense_is_cut() {
    for read in [1 << 20, u64::MAX] {
        let (mut connection, mut peer) = bare_peer();
        peer.write_all(&frame(2, 0, &[RING])).unwrap();
        peer.write_all(&frame(2, 0, &[200, 1, 0, 0, 0])).unwrap();
        assert_eq!(number(&next(connection.as_mut()).unwrap()), 1);
        connection.flush().unwrap();
        let ring = take_ring(&peer, RING);
        ring.awake().store(u32::MAX, Ordering::SeqCst);
        ring.position(64).store(read, Ordering::SeqCst);
        let failed = (0..10_000).find_map(|at| connection.send(control(at)).err());
        let error = failed.expect("no room without a look at the position");
        assert_eq!(error.status(), Status::Protocol, "{error}");
        assert!(error.text().contains("position"), "{error}");
    }
    // So does a client that puts nonsense into the ring of its own frames.
    for (written, text) in [
        (65_537, "a ring that holds 65536"),
        (u64::MAX, "a ring that holds 65536"),
        (30, "does not speak this protocol"),
    ] {
        let (mut connection, mut peer) = bare_peer();
        peer.write_all(&frame(2, 0, &[CLIENT_RING])).unwrap();
        peer.write_all(&frame(2, 0, &[200, 1, 0, 0, 0])).unwrap();
        assert_eq!(number(&next(connection.as_mut()).unwrap()), 1);
        connection.flush().unwrap();
        let ring = take_ring(&peer, CLIENT_RING);
        ring.put(b"GET /lineitem HTTP/1.1\r\nHost: x\r\n\r\n");
        ring.position(0).store(written, Ordering::SeqCst);
        peer.write_all(&frame(SWITCH, 0, &[])).unwrap();
        let (_, error) = until_error(connection.as_mut());
        assert_eq!(error.status(), Status::Protocol, "{error}");
        assert!(error.text().contains(text), "{error}");
    }
    // And one that asks twice, or sends a ring.
    let region = Region::create(4096, "dipc-test").unwrap();
    let own = [&[RING][..], &FILE_BYTES.to_le_bytes()].concat();
    for (kind, second) in [
        (RING, &[RING][..]),
        (RING, &own),
        (CLIENT_RING, &[CLIENT_RING]),
    ] {
        let (mut connection, mut peer) = bare_peer();
        peer.write_all(&frame(2, 0, &[kind])).unwrap();
        if second.len() > 1 {
            // If the system bars descriptors, the server does not see it.
            let sent = try_send_with(&peer, &frame(2, 0, second), &[region.fd().as_fd()]);
            if sent == Err(Errno::PERM) {
                continue;
            }
        } else {
            peer.write_all(&frame(2, 0, second)).unwrap();
        }
        let (_, error) = until_error(connection.as_mut());
        assert_eq!(error.status(), Status::Protocol, "{error}");
        assert!(error.text().contains("RING"), "{error}");
    }
    assert_eq!(open_copies(region.fd()), 1);
    // A client must not send the ring's frames.
    let (mut connection, mut peer) = bare_peer();
    peer.write_all(&frame(2, 0, &[RING])).unwrap();
    peer.write_all(&frame(SWITCH, 0, &[])).unwrap();
    let (_, error) = until_error(connection.as_mut());
    assert!(error.text().contains("class 3"), "{error}");
}

/// Asserts the error of a client after a server's `act` on its ring.
fn server_ends_in(text: &str, act: impl FnOnce(&Bare, &mut UnixStream)) {
    let (mut client, mut server) = asking();
    let ring = Bare::make();
    send_with(&server, &ring_frame(), &[ring.fd.as_fd()]);
    act(&ring, &mut server);
    let (_, error) = until_error(client.as_mut());
    assert_eq!(error.status(), Status::Protocol, "{error}");
    assert!(error.text().contains(text), "{error}");
    assert_eq!(client.receive_any().unwrap_err(), error, "an error lasts");
}

/// A server that breaks the ring's rules is disconnected: wrong positions, wrong frames, and bytes
/// on the socket without a SWITCH in the ring.
#[test]
fn a_server_that_writes_nonsense_is_cut() {
    let switch = frame(SWITCH, 0, &[]);
    for written in [65_537, u64::MAX] {
        server_ends_in("a ring that holds 65536", |ring, socket| {
            ring.position(0).store(written, Ordering::SeqCst);
            socket.write_all(&switch).unwrap();
        });
    }
    server_ends_in("does not speak this protocol", |ring, socket| {
        ring.put(b"GET /lineitem HTTP/1.1\r\nHost: x\r\n\r\n");
        socket.write_all(&switch).unwrap();
    });
    server_ends_in("not announced", |_, socket| {
        socket.write_all(&switch).unwrap();
        socket.write_all(&frame(0, 0, b"x")).unwrap();
    });
    server_ends_in("switch message of 1 bytes", |_, socket| {
        socket.write_all(&frame(SWITCH, 0, b"x")).unwrap();
    });
    let ring = Bare::make();
    server_ends_in("makes no sense", |_, socket| {
        send_with(socket, &ring_frame(), &[ring.fd.as_fd()]);
    });
    assert_eq!(open_copies(&ring.fd), 1);
}

/// Each RING after the first is refused, even if the first had no memory. Many SWITCHes without a
/// message between them are refused too: they could occupy a reader for ever.
#[test]
fn what_brings_no_message_does_not_go_on_for_ever() {
    let name = name();
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let options = LinkOptions {
        lending: LendingOptions {
            budget: Arc::new(MemoryBudget::new(100)),
            ..LendingOptions::default()
        },
        ..LinkOptions::default()
    };
    let uri = Uri::parse(&format!("shm:@{name}")).unwrap();
    let mut listener = shm().listen(&uri, &options).unwrap();
    let mut peer = UnixStream::connect_addr(&address).unwrap();
    let mut connection = listener.accept().unwrap().expect("a connection");
    peer.write_all(&frame(2, 0, &[RING]).repeat(2)).unwrap();
    let (_, error) = until_error(connection.as_mut());
    assert_eq!(error.status(), Status::Protocol, "{error}");
    assert!(error.text().contains("makes no sense"), "{error}");

    let switch = frame(SWITCH, 0, &[]);
    server_ends_in("17 SWITCHes", |ring, socket| {
        ring.put(&switch.repeat(50));
        socket.write_all(&switch.repeat(50)).unwrap();
    });
}

/// Bytes in the ring without a SWITCH do not keep a client awake: the SWITCH wakes it.
#[test]
fn a_client_sleeps_until_the_ring_is_announced() {
    let (mut client, mut server) = asking();
    let ring = Bare::make();
    send_with(&server, &ring_frame(), &[ring.fd.as_fd()]);
    client.wake();
    while ring.awake().load(Ordering::SeqCst) == 0 {
        assert!(client.receive_any().unwrap().is_none());
    }
    ring.put(&frame(2, 0, &[200, 1, 0, 0, 0]));
    assert!(client.receive_any().unwrap().is_none());
    assert!(!client.doze(), "it has nothing to read");
    server.write_all(&frame(SWITCH, 0, &[])).unwrap();
    assert_eq!(number(&next(client.as_mut()).unwrap()), 1);
    // From here on frames use the ring.
    client.wake();
    ring.put(&frame(2, 0, &[200, 2, 0, 0, 0]).repeat(2));
    assert!(client.doze());
    assert_eq!(number(&next(client.as_mut()).unwrap()), 2);
}

/// A RING with another kind of descriptor ends the connection.
#[test]
fn what_is_no_ring_is_refused() {
    let region = Region::create(FILE_BYTES, "dipc-test").unwrap();
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let unsealed = rustix::fs::memfd_create("dipc-test", flags).unwrap();
    rustix::fs::fallocate(&unsealed, FallocateFlags::empty(), 0, FILE_BYTES).unwrap();
    let short = 4096_u64.to_le_bytes();
    for (len, fd, text) in [
        (
            FILE_BYTES.to_le_bytes(),
            unsealed.as_fd(),
            "lacks the seals",
        ),
        (short, region.fd().as_fd(), "makes no sense"),
    ] {
        let (mut client, server) = asking();
        let message = frame(2, 0, &[&[RING][..], &len].concat());
        send_with(&server, &message, &[fd]);
        let (_, error) = until_error(client.as_mut());
        assert_eq!(error.status(), Status::Protocol, "{error}");
        assert!(error.text().contains(text), "{error}");
        assert_eq!(open_copies(&unsealed), 1);
    }
}

/// The last messages of a server are read, even if the client's request for a ring can no longer be
/// written.
#[test]
fn a_request_for_a_ring_that_fails_hides_nothing() {
    let name = name();
    let listener =
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let io = IoThread::start("dipc-test-io", Duration::ZERO).unwrap();
    let mut link = End::open(connect(&name), Tags::DEFAULT, &io, None);
    let (mut server, _) = listener.accept().unwrap();
    let message = frame(2, 0, &[200, 1, 0, 0, 0]);
    let before = usize::try_from(BEFORE_RING).unwrap();
    server.write_all(&message.repeat(before)).unwrap();
    let mut receive = || link.step(|end, _| end.receive(Cause::Woken));
    for _ in 0..before {
        assert!(receive().unwrap().is_some());
    }
    // Arrives after the look that found the others, and before the request is sent.
    server.write_all(&message).unwrap();
    drop(server);
    assert!(receive().unwrap().is_some());
    let error = receive().unwrap_err();
    assert_eq!(error.status(), Status::Disconnected, "{error}");
}

/// Begins a stream, and goes on until the client asks for a ring.
fn begin_and_be_asked(server: &mut Scripted) {
    let mut start = server.begin();
    for _ in 0..BEFORE_RING {
        start.extend(frame(2, 0, &[200, 1, 0, 0, 0]));
    }
    server.socket.write_all(&start).unwrap();
    while server.read().unwrap().2 != [RING] {}
}

/// Rule E4, and "A ring": a client of a ring notices the close of the socket, whether it spins or
/// sleeps, even if the server's process goes on.
#[test]
fn the_end_of_the_socket_is_noticed_beside_a_ring() {
    let hour = Duration::from_secs(3600);
    for spin in [Duration::ZERO, Duration::from_millis(1), hour] {
        let (reads, reading) = channel();
        let (uri, server) = with_server(move |mut server| {
            begin_and_be_asked(&mut server);
            let ring = Bare::make();
            send_with(&server.socket, &ring_frame(), &[ring.fd.as_fd()]);
            server.socket.write_all(&frame(SWITCH, 0, &[])).unwrap();
            let client = reading.recv().unwrap();
            if spin < hour {
                until_asleep(client);
            }
        });
        let options = GetOptions {
            spin,
            ..GetOptions::default()
        };
        let (said, heard) = channel();
        std::thread::spawn(move || {
            let mut stream = client().get(&[&uri], b"t", &options, None).unwrap();
            reads.send(this_thread()).unwrap();
            said.send(stream.next().unwrap_err()).unwrap();
        });
        let error = heard.recv_timeout(Duration::from_secs(10));
        let error = error.expect("the client has noticed nothing");
        assert_eq!(error.status(), Status::Disconnected, "{error}");
        server.join().unwrap();
    }
}

/// A client that only asks for the arrived batches may do other work next, and only the socket
/// wakes it: so it does not claim to look at the ring.
#[test]
fn who_asks_what_is_here_does_not_look_at_the_ring() {
    let (uri, server) = with_server(move |mut server| {
        begin_and_be_asked(&mut server);
        let ring = Bare::make();
        // The server ends after the client's next message.
        ring.awake().store(7, Ordering::SeqCst);
        send_with(&server.socket, &ring_frame(), &[ring.fd.as_fd()]);
        let says = || ring.awake().load(Ordering::SeqCst);
        let start = Instant::now();
        while says() == 7 {
            assert!(
                start.elapsed() < Duration::from_secs(30),
                "the ring is not used"
            );
            thread::yield_now();
        }
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(20) {
            assert_eq!(says(), 0);
        }
    });
    let mut stream = client().get(&[&uri], b"t", &GetOptions::default(), None);
    let stream = stream.as_mut().unwrap();
    while !server.is_finished() {
        assert_eq!(stream.batches_here(), 0);
    }
    server.join().unwrap();
}
