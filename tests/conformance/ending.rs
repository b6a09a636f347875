//! How listeners and connections begin and end.

use dipc::error::Status;
use dipc::transport::{Incoming, LinkOptions, Outgoing};
use rustix::event::PollFlags;

use crate::{SUBJECTS, next, wait};

fn control(byte: u8) -> Outgoing {
    Outgoing::Control {
        bytes: vec![byte],
        fd: None,
    }
}

/// An address belongs to one listener, and is free after the listener's drop.
#[test]
fn an_address_has_one_listener() {
    for subject in SUBJECTS {
        let (uri, options) = (subject.uri(), LinkOptions::default());
        let error = subject.connect(&uri, &options).err().unwrap();
        assert_eq!(error.status(), Status::Unreachable, "{error}");
        assert!(error.text().contains(&uri.address), "{error}");
        let mut listener = subject.listen(&uri, &options).unwrap();
        assert_eq!(listener.address(), uri.bare());
        assert!(listener.accept().unwrap().is_none());
        let error = subject.listen(&uri, &options).err().unwrap();
        assert_eq!(error.status(), Status::AddressInUse, "{error}");
        drop(listener);
        let error = subject.connect(&uri, &options).err().unwrap();
        assert_eq!(error.status(), Status::Unreachable, "{error}");
        drop(subject.listen(&uri, &options).unwrap());
    }
}

/// Connections outlive the listener, and many can wait to be accepted.
#[test]
fn connections_wait_to_be_accepted_and_outlive_the_listener() {
    for subject in SUBJECTS {
        let (uri, options) = (subject.uri(), LinkOptions::default());
        let mut listener = subject.listen(&uri, &options).unwrap();
        let (mut clients, mut servers) = subject.join(listener.as_mut(), &uri, &options, 20);
        // A client's control message may have to wait for the server's first.
        for server in &mut servers {
            server.send(control(0xFF)).unwrap();
        }
        for client in &mut clients {
            assert!(matches!(
                next(client.as_mut()),
                Ok(Incoming::Control { .. })
            ));
        }
        // Kinds from a number that libdipc does not use.
        for (client, n) in clients.iter_mut().zip(100..) {
            client.send(control(n)).unwrap();
        }
        assert_eq!(servers.len(), 20);
        drop(listener);
        for (server, n) in servers.iter_mut().zip(100u8..) {
            let message = next(server.as_mut()).unwrap();
            assert!(matches!(message, Incoming::Control { bytes, .. } if bytes[..] == [n]));
            assert_eq!(server.identity().same_user, subject.knows_users);
            assert!(!server.identity().peer.is_empty());
        }
    }
}

/// `Connection::receive`: messages before the end are returned first; then every call reports the
/// end.
#[test]
fn what_was_sent_before_the_end_arrives() {
    for subject in SUBJECTS {
        let mut pair = subject.pair();
        for n in 0..10 {
            pair.server.send(control(n)).unwrap();
        }
        pair.server.close(None);
        drop(pair.server);
        assert!(wait(
            &pair.client.identity().readiness.clone().fd,
            PollFlags::IN
        ));
        for n in 0..10u8 {
            let message = next(pair.client.as_mut()).unwrap();
            assert!(matches!(message, Incoming::Control { bytes, .. } if bytes[..] == [n]));
        }
        let error = next(pair.client.as_mut()).unwrap_err();
        assert_eq!(error.status(), Status::Disconnected, "{error}");
        for _ in 0..3 {
            let error = pair.client.receive_any().unwrap_err();
            assert_eq!(error.status(), Status::Disconnected, "{error}");
        }
        let error = pair.client.send(control(1)).unwrap_err();
        assert_eq!(error.status(), Status::Disconnected, "{error}");
    }
}

/// `Connection::close`: later calls on this end fail too, and a thread that sleeps on it wakes.
#[test]
fn a_closed_end_stays_closed() {
    for subject in SUBJECTS {
        let mut pair = subject.pair();
        let ready = pair.client.identity().readiness.clone();
        pair.server.send(control(1)).unwrap();
        pair.client.close(None);
        pair.client.close(None);
        assert!(wait(&ready.fd, PollFlags::IN));
        for _ in 0..2 {
            assert_eq!(
                pair.client.receive_any().unwrap_err().status(),
                Status::Disconnected
            );
            let error = pair.client.send(control(1)).unwrap_err();
            assert_eq!(error.status(), Status::Disconnected, "{error}");
        }
        let error = next(pair.server.as_mut()).unwrap_err();
        assert_eq!(error.status(), Status::Disconnected, "{error}");
    }
}
