//! Listening and connecting: each failure has its own status and text.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use dipc::cancel::Cancel;
use dipc::client::{Client, ClientOptions, GetOptions};
use dipc::error::Status;
use dipc::transport::{AccessOptions, ConnectOptions, LinkOptions, Settings};

use crate::common::asleep::{this_thread, until_asleep};
use crate::{connect, listen, next, readable, target, tcp};

fn short() -> LinkOptions {
    LinkOptions {
        connect: ConnectOptions {
            timeout: Duration::from_millis(100),
            ..ConnectOptions::default()
        },
        ..LinkOptions::default()
    }
}

fn failure(uri: &str, options: &LinkOptions) -> dipc::error::Error {
    connect(uri, options).map(drop).unwrap_err()
}

/// IPv4, IPv6 and names work for listening and connecting; port 0 is replaced.
#[test]
fn every_way_to_write_an_address_works() {
    let options = LinkOptions::default();
    let mut uris = vec!["tcp://127.0.0.1:0", "tcp://localhost:0"];
    if TcpListener::bind("[::1]:0").is_ok() {
        uris.push("tcp://[::1]:0");
    } else {
        println!("skipped: this machine has no IPv6");
    }
    for uri in uris {
        let mut listener = listen(uri, &options).unwrap();
        let address = listener.address();
        assert!(!address.ends_with(":0"), "{address}");
        assert!(address.starts_with(uri.trim_end_matches('0')), "{address}");
        let client = connect(&address, &options).unwrap();
        assert!(readable(&listener.fd()));
        let server = listener.accept().unwrap().unwrap();
        let ip = server.identity().peer.parse::<SocketAddr>().unwrap().ip();
        assert!(ip.is_loopback(), "{ip}");
        assert!(target(listener.as_ref()).ends_with(&format!(
            ":{}",
            client.identity().peer.parse::<SocketAddr>().unwrap().port()
        )));
        assert!(
            !server.identity().same_user && !client.identity().same_user,
            "rule A8"
        );
    }
}

/// `AccessOptions::allow_remote`: a listener that other machines can reach needs the option.
#[test]
fn listening_beyond_loopback_must_be_allowed() {
    for uri in ["tcp://0.0.0.0:0", "tcp://[::]:0", "tcp://192.0.2.1:0"] {
        let error = listen(uri, &LinkOptions::default()).map(drop).unwrap_err();
        assert_eq!(error.status(), Status::Permission, "{error}");
        for part in ["allow_remote", "--allow-remote", "encrypts"] {
            assert!(error.text().contains(part), "{error}");
        }
    }
    let allowed = LinkOptions {
        access: AccessOptions {
            allow_remote: true,
            ..AccessOptions::default()
        },
        ..LinkOptions::default()
    };
    let listener = listen("tcp://0.0.0.0:0", &allowed).unwrap();
    let port = target(listener.as_ref())
        .rsplit_once(':')
        .unwrap()
        .1
        .to_owned();
    connect(&format!("tcp://127.0.0.1:{port}"), &allowed).unwrap();
    // 192.0.2.0/24 is reserved for examples.
    let error = listen("tcp://192.0.2.1:0", &allowed).map(drop).unwrap_err();
    assert_eq!(error.status(), Status::Unreachable, "{error}");
    assert!(
        error.text().contains("no address of this machine"),
        "{error}"
    );
}

/// A port belongs to one listener, and is free at once after its end, even with open connections.
#[test]
fn a_port_is_taken_and_free_again() {
    let options = LinkOptions::default();
    let mut listener = listen("tcp://127.0.0.1:0", &options).unwrap();
    let address = listener.address();
    let error = listen(&address, &options).map(drop).unwrap_err();
    assert_eq!(error.status(), Status::AddressInUse, "{error}");
    assert!(error.text().contains("port 0"), "{error}");
    assert!(!error.text().contains("another process"), "{error}");
    // The server closes first, which leaves its side of the connection behind for a minute.
    let mut client = connect(&address, &options).unwrap();
    assert!(readable(&listener.fd()));
    drop(listener.accept().unwrap().unwrap());
    drop(listener);
    assert_eq!(
        next(client.as_mut()).unwrap_err().status(),
        Status::Disconnected
    );
    drop(listen(&address, &options).unwrap());
}

/// Without a listener: `Unreachable`, after all addresses of a name.
#[test]
fn a_refused_connection_says_that_nobody_listens() {
    for uri in ["tcp://127.0.0.1:1", "tcp://localhost:1"] {
        let error = failure(uri, &LinkOptions::default());
        assert_eq!(error.status(), Status::Unreachable, "{error}");
        assert!(error.text().contains("no server listens at"), "{error}");
        assert!(error.text().contains(uri), "{error}");
    }
}

/// An unknown name: `Unreachable`, with the name in the text.
#[test]
fn an_unknown_name_is_said_to_be_one() {
    let error = failure("tcp://no-such-host.invalid:4000", &LinkOptions::default());
    assert!(
        matches!(error.status(), Status::Unreachable | Status::Timeout),
        "{error}"
    );
    assert!(error.text().contains("no-such-host.invalid"), "{error}");
    assert!(error.text().contains("name"), "{error}");
}

/// An address without a route: `Unreachable`, with its own text.
#[test]
fn an_address_without_a_way_to_it_is_unreachable() {
    // 240.0.0.0/4 is reserved: the kernel sends nothing there.
    let error = failure("tcp://255.255.255.255:4000", &short());
    assert_eq!(error.status(), Status::Unreachable, "{error}");
    assert!(error.text().contains("no network"), "{error}");
}

/// The URI of a listener with a full queue, which does not answer, and the guard that keeps it
/// full.
fn full_listener() -> (String, impl Sized) {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let full = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::STREAM,
        None,
    )
    .unwrap();
    rustix::net::bind(&full, &address).unwrap();
    rustix::net::listen(&full, 0).unwrap();
    let bound = SocketAddr::try_from(rustix::net::getsockname(&full).unwrap()).unwrap();
    let uri = format!("tcp://{bound}");
    // The system's queue holds one or two connections.
    let mut waiting = Vec::new();
    while let Ok(connection) = connect(&uri, &short()) {
        waiting.push(connection);
        assert!(waiting.len() < 16, "the queue is never full");
    }
    (uri, (full, waiting))
}

/// `ConnectOptions::timeout`: a client waits so long for a listener that does not accept.
#[test]
fn connecting_to_a_full_listener_times_out() {
    let (uri, _full) = full_listener();
    let error = failure(&uri, &short());
    assert_eq!(error.status(), Status::Timeout, "{error}");
    assert!(error.text().contains("answered within 100ms"), "{error}");
}

/// The token of `Client::get` ends a call during connecting, like during the wait for the schema.
#[test]
fn a_token_ends_connecting() {
    let (uri, _full) = full_listener();
    let client = Client::new(ClientOptions::default()).unwrap();
    let options = GetOptions {
        connect_timeout: Duration::from_secs(60),
        ..GetOptions::default()
    };
    let cancel = Cancel::new().unwrap();
    let connecting = this_thread();
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            until_asleep(connecting);
            cancel.cancel();
        });
        let stream = client.get(&[&uri], b"t", &options, Some(&cancel));
        stream.map(drop).unwrap_err()
    });
    assert_eq!(error.status(), Status::Cancelled, "{error}");
}

/// A baseline server gets one socket; and the number of sockets is limited.
#[test]
fn connections_are_bounded_and_for_our_servers_only() {
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let many = |connections| LinkOptions {
        connect: ConnectOptions {
            connections,
            ..ConnectOptions::default()
        },
        ..LinkOptions::default()
    };
    let uri = format!(
        "tcp://{}?want_data=4611686018427387909",
        plain.local_addr().unwrap()
    );
    let client = connect(&uri, &many(4)).unwrap();
    assert!(client.identity().profile.is_ordered);
    let (server, _) = plain.accept().unwrap();
    plain.set_nonblocking(true).unwrap();
    assert!(plain.accept().is_err(), "one socket, not four");
    server.set_nonblocking(true).unwrap();
    assert!(
        TcpStream::peek(&server, &mut [0]).is_err(),
        "nothing is sent unasked"
    );
    let error = failure("tcp://127.0.0.1:1", &many(65));
    assert_eq!(error.status(), Status::InvalidArgument, "{error}");
}

/// `tcp.keepalive`: how long a peer's machine may be silent, in seconds; passed to the kernel.
#[test]
fn the_time_for_silence_is_a_setting() {
    let with = |value: &str| {
        let mut settings = Settings::default();
        settings.set("tcp.keepalive", value).unwrap();
        LinkOptions {
            settings,
            ..LinkOptions::default()
        }
    };
    assert!(tcp().takes_setting("tcp.keepalive", "9").unwrap());
    assert!(!tcp().takes_setting("tcp.keepalives", "9").unwrap());
    for wrong in ["", "0", "-1", "1.5", "86401", "soon"] {
        let error = tcp().takes_setting("tcp.keepalive", wrong).unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument, "{error}");
        assert!(error.text().contains("seconds"), "{error}");
    }
    use rustix::net::sockopt;
    for (options, [idle, interval, count]) in [
        (LinkOptions::default(), [20, 10, 4]),
        (with("3"), [1, 1, 2]),
    ] {
        let mut listener = listen("tcp://127.0.0.1:0", &options).unwrap();
        let client = connect(&listener.address(), &options).unwrap();
        assert!(readable(&listener.fd()));
        let server = listener.accept().unwrap().unwrap();
        for end in [&client, &server] {
            let fd = end.identity().readiness.clone().fd;
            assert!(sockopt::socket_keepalive(&fd).unwrap());
            assert!(sockopt::tcp_nodelay(&fd).unwrap());
            assert_eq!(
                sockopt::tcp_keepidle(&fd).unwrap(),
                Duration::from_secs(idle)
            );
            assert_eq!(
                sockopt::tcp_keepintvl(&fd).unwrap(),
                Duration::from_secs(interval)
            );
            assert_eq!(u64::from(sockopt::tcp_keepcnt(&fd).unwrap()), count);
            let flags = rustix::io::fcntl_getfd(&fd).unwrap();
            assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        }
        // A slow consumer may leave the server's bytes unread for longer.
        assert_eq!(
            sockopt::tcp_user_timeout(&server.identity().readiness.clone().fd).unwrap(),
            0
        );
        assert!(sockopt::tcp_user_timeout(&client.identity().readiness.clone().fd).unwrap() > 0);
    }
}
