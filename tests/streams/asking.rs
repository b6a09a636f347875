//! Messages of a client, seen by its peer, and the client's behaviour if it cannot send them.

use std::io::Write;
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::thread;
use std::time::Duration;

use dipc::client::GetOptions;
use dipc::driver::end::End;
use dipc::driver::io::IoThread;
use dipc::driver::waiting::Cause;
use dipc::error::{Error, Status};
use dipc::proto::{Control, FEATURE_REPEAT, Request, Role, Tags, Uri};
use dipc::server::ServerOptions;
use dipc::transport::{self, AccessOptions, Connection, Incoming, LinkOptions, Outgoing};

use crate::common::{FnProvider, batch, counting, read_all, schema, stream_of};
use crate::{SHM, SUBJECTS, Subject, client, eventually, serve, server, server_of};

/// The request of a client to a bare listener, which then cuts the connection.
fn request_of(subject: Subject) -> Request {
    let transport = transport::by_scheme(subject.scheme).unwrap();
    let options = LinkOptions {
        access: AccessOptions {
            trusted_network: true,
            ..AccessOptions::default()
        },
        ..LinkOptions::default()
    };
    let uri = Uri::parse(&subject.address()).unwrap();
    let mut listener = transport.listen(&uri, &options).unwrap();
    let address = listener.address();
    thread::scope(|scope| {
        let asking = scope.spawn(|| client().get(&[&address], b"t", &subject.options(), None));
        let mut connections: Vec<Box<dyn Connection>> = Vec::new();
        let mut request = None;
        eventually("the request comes", || {
            connections.extend(listener.accept().unwrap());
            // A socket of a group ends here, and comes again as a part of the group.
            connections.retain_mut(|connection| match connection.receive_any() {
                Ok(Some(Incoming::Tagged { tag, bytes })) if tag == Tags::DEFAULT.dipc_want => {
                    request = Some(Request::decode(&bytes).unwrap());
                    true
                }
                Ok(_) => true,
                Err(_) => false,
            });
            request.is_some()
        });
        drop(connections);
        let error = asking.join().unwrap().err().expect("nobody answered");
        assert_eq!(error.status(), Status::Disconnected, "{error}");
        request.unwrap()
    })
}

/// `docs/wire.md`: a client asks for repeated headers only if its connection keeps the order;
/// otherwise the repeat could overtake its header.
#[test]
fn headers_are_repeated_where_messages_keep_their_order() {
    for subject in SUBJECTS {
        let keeps_order = subject.scheme != "ucx" && subject.connections == 1;
        let asks = request_of(subject).features & FEATURE_REPEAT != 0;
        assert_eq!(asks, keeps_order, "{subject:?}");
    }
}

/// A server that neither reads nor sends any more: the client gets all earlier messages, and then
/// an error that its own messages could not be written.
#[test]
fn what_cannot_be_written_is_told_behind_what_came() {
    let address = SHM.address();
    let name = address.strip_prefix("shm:@").unwrap();
    let listener = SocketAddr::from_abstract_name(name).unwrap();
    let listener = UnixListener::bind_addr(&listener).unwrap();
    let uri = Uri::parse(&address).unwrap();
    let connection = transport::by_scheme("shm")
        .unwrap()
        .connect(&uri, &LinkOptions::default())
        .unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let io = IoThread::start("dipc-test-io", Duration::ZERO).unwrap();
    let mut link = End::open(connection, Tags::DEFAULT, &io, None);

    // A control message of an unknown kind.
    let unknown = vec![200];
    let mut frame = [0; 25];
    (frame[0], frame[16], frame[24]) = (1, 2, unknown[0]);
    server.write_all(&frame).unwrap();
    server.shutdown(Shutdown::Read).unwrap();
    let bytes = Control::GoAway.encode();
    link.step(|end, effects| end.flush_with([Outgoing::Control { bytes, fd: None }], effects));

    let mut receive = || link.step(|end, _| end.receive(Cause::Woken));
    let came = receive().unwrap();
    assert!(
        matches!(&came, Some((0, Incoming::Control { bytes, .. })) if bytes[..] == unknown),
        "something else came than what the server sent"
    );
    let error = receive().expect_err("nothing more can come of it");
    assert_eq!(error.status(), Status::Disconnected, "{error}");
}

/// The client's error at a bare listener that never reads.
fn ask_a_server_that_hangs(
    subject: Subject,
    options: &GetOptions,
    metadata: Option<&str>,
) -> Error {
    let transport = transport::by_scheme(subject.scheme).unwrap();
    let link = LinkOptions {
        access: AccessOptions {
            trusted_network: true,
            ..AccessOptions::default()
        },
        ..LinkOptions::default()
    };
    let uri = Uri::parse(&subject.address()).unwrap();
    let mut listener = transport.listen(&uri, &link).unwrap();
    let address = listener.address();
    let uris: Vec<_> = metadata.into_iter().chain([&*address]).collect();
    thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let stream = client().get(&uris, b"t", options, None);
            stream
                .and_then(|mut stream| read_all(&mut stream))
                .map(drop)
        });
        let mut connections: Vec<Box<dyn Connection>> = Vec::new();
        eventually("the client gives up", || {
            connections.extend(listener.accept().unwrap());
            asking.is_finished()
        });
        asking.join().unwrap().expect_err("nobody answered")
    })
}

/// `GetOptions::connect_timeout`: it covers the first answer: the error blames a hanging server
/// whose machine accepted the connection, not the data.
#[test]
fn a_server_that_hangs_is_told_of() {
    for subject in SUBJECTS {
        let options = GetOptions {
            connect_timeout: Duration::from_millis(300),
            ..subject.options()
        };
        let error = ask_a_server_that_hangs(subject, &options, None);
        assert_eq!(error.status(), Status::Timeout, "{subject:?}: {error}");
        let text = error.text();
        // UCX has no connection before the server answers.
        let told = text.contains("has not answered within") || subject.scheme == "ucx";
        assert!(told, "{subject:?}: {text}");
    }
}

/// The same for the second of two servers, after the first has answered.
#[test]
fn a_data_server_that_hangs_is_told_of() {
    for subject in [
        SHM,
        Subject {
            scheme: "tcp",
            ..SHM
        },
    ] {
        let (_server, metadata) = server_of(subject, Role::Metadata, counting(10, 100));
        let options = GetOptions {
            connect_timeout: Duration::from_millis(300),
            ..subject.options()
        };
        let error = ask_a_server_that_hangs(subject, &options, Some(&metadata));
        assert_eq!(error.status(), Status::Timeout, "{subject:?}: {error}");
        let text = error.text();
        assert!(
            text.contains("has not answered within"),
            "{subject:?}: {text}"
        );
    }
}

/// `GetOptions::connect_timeout`: a provider may take longer for its schema, and a host for taking
/// the request: the server sends PENDING meanwhile.
#[test]
fn a_slow_provider_is_waited_for() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let options = GetOptions {
            connect_timeout: Duration::from_secs(1),
            ..subject.options()
        };
        let longer = options.connect_timeout + Duration::from_millis(200);
        let slow = FnProvider(move |_: &_| {
            thread::sleep(longer);
            let only = std::iter::once(Ok(batch(0, 10)));
            Ok(stream_of(schema(), only))
        });
        serve(&server, "t", Box::new(slow));
        let client = client();
        let mut stream = client.get(&[&uri], b"t", &options, None).unwrap();
        assert_eq!(read_all(&mut stream).unwrap().len(), 1, "{subject:?}");
    }
}
