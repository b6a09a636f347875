//! The certificate of a measurement over tls. It signs itself, so that it is its own authority.

use std::path::Path;

use anyhow::{Context as _, Result};
use dipc::{ClientBuilder, ServerBuilder};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tempfile::TempDir;
use tonic::transport::{ClientTlsConfig, Identity, Server, ServerTlsConfig};

use crate::trust::ClientTrust;

pub const NAME: &str = "dipc-bench";
pub const CERTIFICATE: &str = "certificate.pem";
pub const KEY: &str = "key.pem";

/// A certificate and its key, in a folder that is removed with this value.
pub struct Certificate(TempDir);

impl Certificate {
    pub fn new() -> Result<Self> {
        let doing = "cannot make a certificate";
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed([NAME.to_owned()]).context(doing)?;
        let folder = tempfile::tempdir().context(doing)?;
        let write = |name, text| std::fs::write(folder.path().join(name), text).context(doing);
        write(CERTIFICATE, cert.pem())?;
        write(KEY, signing_key.serialize_pem())?;
        Ok(Self(folder))
    }

    pub fn folder(&self) -> &Path {
        self.0.path()
    }
}

/// A server with the certificate in `folder`, if there is one.
pub fn of_server(server: ServerBuilder, folder: Option<&Path>) -> ServerBuilder {
    match folder {
        Some(folder) => server.tls(folder.join(CERTIFICATE), folder.join(KEY)),
        None => server,
    }
}

/// A client that trusts it.
pub fn of_client(client: ClientBuilder, folder: Option<&Path>) -> ClientBuilder {
    match folder {
        Some(folder) => (client.tls_ca(folder.join(CERTIFICATE))).tls_server_name(NAME),
        None => client,
    }
}

/// A Flight server with the certificate in `folder`.
pub fn of_flight_server(folder: &Path) -> Result<Server> {
    let read = |name| std::fs::read(folder.join(name)).context("cannot read the certificate");
    let identity = Identity::from_pem(read(CERTIFICATE)?, read(KEY)?);
    Ok(Server::builder().tls_config(ServerTlsConfig::new().identity(identity))?)
}

/// The TLS settings of a Flight client that trusts the certificate.
pub fn of_flight_client(folder: &Path) -> Result<ClientTlsConfig> {
    let trust = ClientTrust {
        tls_ca: Some(folder.join(CERTIFICATE)),
        ..ClientTrust::default()
    };
    Ok(trust.flight(NAME)?)
}
