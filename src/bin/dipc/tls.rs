//! Certificates of the command: for `tls://` and `grpc+tls://`.

use std::path::PathBuf;
use std::sync::Arc;

use dipc::transport::{TlsFiles, TlsOptions};

/// Of a client.
#[derive(clap::Args, Debug, Clone, Default)]
pub struct ClientTls {
    /// PEM file of the authorities that a server's certificate may have, for tls:// and grpc+tls://
    /// [default: the system's]
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,

    /// PEM file of this client's certificate, for servers that ask for one
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,

    /// PEM file of the private key of --tls-cert
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,

    /// The name that the server's certificate must have [default: the host of the URI]
    #[arg(long, value_name = "NAME")]
    pub tls_server_name: Option<String>,
}

impl ClientTls {
    /// For a client of the library.
    pub fn options(&self) -> Arc<TlsOptions> {
        TlsOptions::default().with(|files| {
            *files = TlsFiles {
                identity: self.tls_cert.clone().zip(self.tls_key.clone()),
                ca: self.tls_ca.clone(),
                server_name: self.tls_server_name.clone(),
            }
        })
    }
}

/// Of a server.
#[derive(clap::Args, Debug, Clone, Default)]
pub struct ServerTls {
    /// PEM file of the server's certificate, for tls:// and for TLS on Flight; read again on SIGHUP
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,

    /// PEM file of the private key of --tls-cert
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,

    /// PEM file of authorities: clients must have a certificate of one of them
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_ca: Option<PathBuf>,
}

impl ServerTls {
    /// For a server of the library.
    pub fn options(&self) -> Arc<TlsOptions> {
        TlsOptions::default().with(|files| {
            *files = TlsFiles {
                identity: self.tls_cert.clone().zip(self.tls_key.clone()),
                ca: self.tls_ca.clone(),
                server_name: None,
            }
        })
    }
}
