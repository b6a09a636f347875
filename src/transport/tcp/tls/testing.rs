//! Connections for tests.

use std::sync::Arc;

use crate::error::Result;
use crate::transport::tcp::tls::config;
use crate::transport::tcp::tls::handshake::{Handshake, HandshakeProgress};
use crate::transport::tcp::tls::records::Records;
use crate::transport::{PeerCertificate, TlsFiles};

/// One end of a connection.
pub type End = (Records, Option<Arc<PeerCertificate>>);

/// What became of a handshake at a client and at a server.
pub type Outcome = (Result<End>, Result<End>);

/// Turns both sides of a handshake until each has an end.
pub fn shake(mut client: Handshake, mut server: Handshake) -> Outcome {
    let (mut at_client, mut at_server) = (None, None);
    while at_client.is_none() || at_server.is_none() {
        turn(&mut client, &mut at_client);
        turn(&mut server, &mut at_server);
    }
    let finish = |failed: Option<Result<()>>| failed.unwrap();
    let client = finish(at_client).and_then(|()| client.finish("server"));
    let server = finish(at_server).and_then(|()| server.finish("client"));
    (client, server)
}

fn turn(handshake: &mut Handshake, end: &mut Option<Result<()>>) {
    if end.is_none() {
        *end = match handshake.turn() {
            Ok(HandshakeProgress::Done) => Some(Ok(())),
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        };
    }
}

/// The configurations of both sides.
pub fn configs(
    client: &TlsFiles,
    server: &TlsFiles,
) -> (Arc<rustls::ClientConfig>, Arc<rustls::ServerConfig>) {
    let client = Arc::new(config::client(client).unwrap());
    (client, Arc::new(config::server(server).unwrap()))
}
