//! Connecting, and why it fails.

use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use dipc::cancel::Cancel;
use dipc::client::GetOptions;
use dipc::error::Status;
use dipc::proto::Uri;
use dipc::server::{ServerHandle, ServerOptions};
use dipc::transport::{self, Attempt, ConnectOptions, LinkOptions, Settings};

use crate::common::asleep::{this_thread, until_asleep};
use crate::common::{batch, counting, read_all};
use crate::{client, link_options, options, pair, serve, serving, works};

fn failure(uri: &str, options: &LinkOptions) -> (Status, String) {
    let ucx = transport::by_scheme("ucx").unwrap();
    let error = ucx
        .connect(&Uri::parse(uri).unwrap(), options)
        .err()
        .unwrap();
    (error.status(), error.text().to_owned())
}

/// Versions before 1.15 cannot be told to, and overwrite memory where they meet such an address.
fn takes_ipv6() -> bool {
    let (_server, uri) = serving();
    let version = Uri::parse(&uri).unwrap().ucx_version.expect("a version");
    version.split('.').nth(1).unwrap().parse::<u32>().unwrap() >= 15
}

/// "Our transports": every ucx listener asks the caller to say that the network is trusted.
#[test]
fn a_listener_asks_for_a_trusted_network() {
    if !works() {
        return;
    }
    let server = ServerHandle::new(ServerOptions::default()).unwrap();
    let error = server.listen("ucx://127.0.0.1:0").unwrap_err();
    assert_eq!(error.status(), Status::Permission, "{error}");
    assert!(error.text().contains("trusted_network"), "{error}");
}

/// Nobody listens: said at once, with the address.
#[test]
fn a_refused_connection_is_unreachable() {
    if !works() {
        return;
    }
    for uri in ["ucx://127.0.0.1:1", "ucx://[::1]:1"] {
        if uri.contains("::") && !takes_ipv6() {
            let (status, text) = failure(uri, &link_options());
            assert_eq!(status, Status::Unsupported, "{text}");
            continue;
        }
        let (status, text) = failure(uri, &link_options());
        assert_eq!(status, Status::Unreachable, "{text}");
        assert!(
            text.contains(uri) && text.contains("is a server started"),
            "{text}"
        );
    }
}

/// `ConnectOptions::timeout`: who listens and never answers, be it UCX or not, makes a client
/// wait that long.
#[test]
fn a_server_that_does_not_answer_times_out() {
    if !works() {
        return;
    }
    let ucx = transport::by_scheme("ucx").unwrap();
    let options = LinkOptions {
        connect: ConnectOptions {
            timeout: Duration::from_millis(300),
            ..ConnectOptions::default()
        },
        ..link_options()
    };
    let listener = ucx
        .listen(&Uri::parse("ucx://127.0.0.1:0").unwrap(), &options)
        .unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let other = format!("ucx://{}", silent.local_addr().unwrap());
    for uri in [listener.address(), other] {
        let (status, text) = failure(&uri, &options);
        assert_eq!(status, Status::Timeout, "{text}");
        assert!(text.contains(&uri), "{text}");
    }
}

/// `Attempt`: a token ends a wait for a server that does not answer.
#[test]
fn a_token_ends_connecting() {
    if !works() {
        return;
    }
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let cancel = Cancel::new().unwrap();
    let options = LinkOptions {
        connect: ConnectOptions {
            timeout: Duration::from_secs(60),
            ..ConnectOptions::default()
        },
        ..link_options()
    };
    let uri = format!("ucx://{}", silent.local_addr().unwrap());
    let connecting = this_thread();
    let (status, text) = std::thread::scope(|scope| {
        scope.spawn(|| {
            until_asleep(connecting);
            cancel.cancel();
        });
        let (ucx, uri) = (
            transport::by_scheme("ucx").unwrap(),
            Uri::parse(&uri).unwrap(),
        );
        let attempt = Attempt::new(Some(cancel.clone()));
        let connecting = attempt.block_on(ucx.connecting(&uri, &options, &attempt));
        let error = connecting.err().unwrap();
        (error.status(), error.text().to_owned())
    });
    assert_eq!(status, Status::Cancelled, "{text}");
}

/// Rule E1: versions that cannot talk to each other are told before anything is tried.
#[test]
fn versions_that_cannot_talk_are_refused() {
    if !works() {
        return;
    }
    let (_server, uri) = serving();
    let ours = Uri::parse(&uri).unwrap().ucx_version.expect("a version");
    let old = ours.starts_with("1.12.") || ours.starts_with("1.13.");
    let theirs = if old { "1.99.0" } else { "1.12.1" };
    let other = uri.replace(&format!("dipc_ucx={ours}"), &format!("dipc_ucx={theirs}"));
    let (status, text) = failure(&other, &link_options());
    assert_eq!(status, Status::Unsupported, "{text}");
    assert!(text.contains(&ours) && text.contains(theirs), "{text}");
}

/// Issue 3: IPv4 and IPv6, by name and number, ports that the system chose.
#[test]
fn every_kind_of_address_is_listened_at() {
    if !works() {
        return;
    }
    for address in ["ucx://127.0.0.1:0", "ucx://[::1]:0", "ucx://localhost:0"] {
        let server = ServerHandle::new(options()).unwrap();
        if address.contains("::") && !takes_ipv6() {
            let error = server.listen(address).unwrap_err();
            assert_eq!(error.status(), Status::Unsupported, "{error}");
            continue;
        }
        let uri = server.listen(address).unwrap();
        assert!(!uri.contains(":0?"), "{uri}");
        serve(&server, "t", counting(3, 100));
        let mut stream = client()
            .get(&[&uri], b"t", &GetOptions::default(), None)
            .unwrap();
        assert_eq!(read_all(&mut stream).unwrap().len(), 3);
    }
}

/// Rule U5: an address typed by a person is enough.
#[test]
fn a_bare_address_is_enough() {
    if !works() {
        return;
    }
    let (server, uri) = serving();
    serve(&server, "t", counting(3, 100));
    let bare = Uri::parse(&uri).unwrap().bare();
    let mut stream = client()
        .get(&[&bare], b"t", &GetOptions::default(), None)
        .unwrap();
    assert_eq!(read_all(&mut stream).unwrap()[0], batch(0, 100));
}

/// Settings go to UCX; what it says that it does not take is refused, with its name.
#[test]
fn settings_reach_ucx() {
    if !works() {
        return;
    }
    let uri = Uri::parse("ucx://127.0.0.1:0").unwrap();
    let ucx = transport::by_scheme("ucx").unwrap();
    let listen = |name: &str, value: &str| {
        let mut settings = Settings::default();
        settings.set(name, value).unwrap();
        let options = LinkOptions {
            settings,
            ..link_options()
        };
        ucx.listen(&uri, &options).map(drop)
    };
    listen("ucx.TLS", "tcp").unwrap();
    listen("ucx.error_handling", "none").unwrap();
    for (setting, value) in [
        ("ucx.TLS", "nothing-of-this-name"),
        ("ucx.TLS", ""),
        ("ucx.RNDV_THRESH", "a lot"),
        ("ucx.LOG_LEVEL", "loud"),
    ] {
        let error = listen(setting, value).unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument, "{error}");
        let told = format!("{setting}={value}");
        assert!(error.text().contains(&told), "{error}");
    }
}

/// Many clients at once, each with several streams.
#[test]
fn many_clients_are_served_at_once() {
    if !works() {
        return;
    }
    let (server, uri) = serving();
    serve(&server, "t", counting(5, 20_000));
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let client = client();
                for _ in 0..3 {
                    let mut stream = client
                        .get(&[&uri], b"t", &GetOptions::default(), None)
                        .unwrap();
                    assert_eq!(read_all(&mut stream).unwrap().len(), 5);
                }
            });
        }
    });
}

/// `docs/transports.md`: the size of tcp's pieces is libdipc's only where the user has set neither;
/// newer ones of UCX do not open tcp where it receives smaller ones than it sends.
#[test]
fn the_users_size_of_pieces_stays() {
    if !works() {
        return;
    }
    for settings in [
        &[("ucx.TLS", "tcp"), ("ucx.TCP_RX_SEG_SIZE", "16k")][..],
        &[("ucx.TLS", "tcp"), ("ucx.TCP_TX_SEG_SIZE", "32k")],
    ] {
        let (server, client) = pair(settings, Duration::ZERO);
        let uri = server.listen("ucx://127.0.0.1:0").unwrap();
        serve(&server, "t", counting(3, 10_000));
        let mut stream = client
            .get(&[&uri], b"t", &GetOptions::default(), None)
            .unwrap();
        let batches = read_all(&mut stream).unwrap();
        let expected = [0, 1, 2].map(|index| batch(index * 10_000, 10_000));
        assert_eq!(batches, expected, "{settings:?}");
    }
}
