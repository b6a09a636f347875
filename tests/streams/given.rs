//! Servers that listen by sockets which the host made.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use dipc::error::Status;
use dipc::server::{ServerHandle, ServerOptions};

use crate::common::{counting, read_all};
use crate::{SHM, client, serve};

fn server() -> ServerHandle {
    let server = ServerHandle::new(ServerOptions::default()).unwrap();
    serve(&server, "t", counting(2, 5));
    server
}

fn works(uri: &str) {
    let mut stream = client().get(&[uri], b"t", &SHM.options(), None).unwrap();
    assert_eq!(read_all(&mut stream).unwrap().len(), 2);
}

/// Promise of `listen_fd`: clients come by sockets of each kind, at the address that the URI names,
/// and over shared memory the kernel names this process to them.
#[test]
fn clients_come_by_given_sockets() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let name = format!("dipc-given-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let unix = UnixListener::bind(&path).unwrap();
    let named = UnixListener::bind_addr(&address).unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = tcp.local_addr().unwrap().port();
    let given: [(&str, OwnedFd, String); 3] = [
        ("shm", unix.into(), format!("shm:{}?", path.display())),
        ("shm", named.into(), format!("shm:@{name}?")),
        ("tcp", tcp.into(), format!("tcp://127.0.0.1:{port}?")),
    ];
    for (scheme, socket, start) in given {
        let server = server();
        let uri = server.listen_fd(scheme, socket.as_fd()).unwrap();
        assert!(uri.starts_with(&start), "{uri}");
        assert!(server.is_ready());
        drop(socket);
        works(&uri);
        works(&uri);
    }
}

/// A server that ends leaves the socket to the others that have it: what waits there is the next
/// server's, and a file stays.
#[test]
fn the_next_server_takes_the_socket_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let unix = UnixListener::bind(&path).unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let identity = path.metadata().unwrap().ino();
    for _ in 0..2 {
        let server = server();
        let shm_uri = server.listen_fd("shm", unix.as_fd()).unwrap();
        let tcp_uri = server.listen_fd("tcp", tcp.as_fd()).unwrap();
        works(&shm_uri);
        works(&tcp_uri);
        server.stop(Duration::from_secs(10)).unwrap();
        drop(server);
        assert_eq!(path.metadata().unwrap().ino(), identity);
        let mut peers: [Box<dyn ReadWrite>; 2] = [
            Box::new(UnixStream::connect(&path).unwrap()),
            Box::new(TcpStream::connect(tcp.local_addr().unwrap()).unwrap()),
        ];
        for peer in &mut peers {
            peer.write_all(&[0]).unwrap();
        }
        let accepted: [Box<dyn ReadWrite>; 2] = [
            Box::new(unix.accept().unwrap().0),
            Box::new(tcp.accept().unwrap().0),
        ];
        for mut peer in accepted {
            peer.read_exact(&mut [0]).unwrap();
        }
    }
}

trait ReadWrite: std::io::Read + std::io::Write {}
impl<T: std::io::Read + std::io::Write> ReadWrite for T {}

/// Promise of `listen_fd`: what is no listening stream socket of the scheme's family is refused,
/// and stays the caller's; other machines come only where the options allow it.
#[test]
fn other_descriptors_are_refused() {
    let file = tempfile::tempfile().unwrap();
    let (pair, _other) = UnixStream::pair().unwrap();
    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let wide = TcpListener::bind("0.0.0.0:0").unwrap();
    let server = server();
    let refused: [(&str, BorrowedFd<'_>, Status, &str); 7] = [
        ("shm", file.as_fd(), Status::InvalidArgument, "no socket"),
        ("shm", pair.as_fd(), Status::InvalidArgument, "not listen"),
        (
            "tcp",
            datagrams.as_fd(),
            Status::InvalidArgument,
            "no stream",
        ),
        ("shm", tcp.as_fd(), Status::InvalidArgument, "family"),
        ("tcp", wide.as_fd(), Status::Permission, "other machines"),
        ("ucx", tcp.as_fd(), Status::Unsupported, "shm, tcp and tls"),
        ("udp", tcp.as_fd(), Status::Unsupported, "no transport"),
    ];
    for (scheme, socket, status, text) in refused {
        let error = server.listen_fd(scheme, socket).unwrap_err();
        assert_eq!(error.status(), status, "{error}");
        assert!(error.text().contains(text), "{error}");
        assert!(rustix::io::fcntl_getfd(socket).is_ok());
    }
    assert!(!server.is_ready());
}
