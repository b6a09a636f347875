//! Whom the command trusts: certificates for `tls://` and `grpc+tls://`, tokens, other users.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use dipc::{Client, Error, Headers, Server, ServerBuilder, Status};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

/// The header of a token.
pub const AUTHORIZATION: &str = "authorization";
/// What stands before a token in its header.
pub const BEARER: &str = "Bearer ";

/// Of a client, with settings of its transports.
#[derive(clap::Args, Debug, Clone, Default)]
pub struct ClientTrust {
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

    /// File of a token, which goes with each request (header `authorization: Bearer TOKEN`). It is
    /// not sent where others could read it, as over tcp to another machine
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// Send the token of --token-file also where others could read it, and to other servers where a
    /// server leads that drains
    #[arg(long, requires = "token_file")]
    pub send_secrets: bool,

    /// Accept servers of every user, not only of your own
    #[arg(long)]
    pub any_user: bool,

    /// Set an option of one transport, such as ucx.TLS=tcp; may be given several times
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = crate::parse::setting)]
    pub settings: Vec<(String, String)>,
}

impl ClientTrust {
    /// Headers of each request.
    pub fn headers(&self) -> Result<Headers> {
        let mut headers = Headers::new();
        if let Some(value) = self.authorization()? {
            headers.add(AUTHORIZATION, value)?;
        }
        Ok(headers)
    }

    /// The value of the header with the token.
    pub fn authorization(&self) -> Result<Option<String>> {
        let Some(path) = &self.token_file else {
            return Ok(None);
        };
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the token of {}", path.display()))?;
        match text.trim() {
            "" => bail!("there is no token in {}", path.display()),
            token if token.contains(char::is_whitespace) => {
                bail!("there is more than a token in {}", path.display())
            }
            token => Ok(Some(format!("{BEARER}{token}"))),
        }
    }

    /// For a client of Flight, of a server at `host`.
    pub fn flight(&self, host: &str) -> dipc::Result<ClientTlsConfig> {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let name = self.tls_server_name.as_deref().unwrap_or(bare);
        let mut config = ClientTlsConfig::new().domain_name(name);
        config = match &self.tls_ca {
            Some(ca) => config.ca_certificate(Certificate::from_pem(read(ca)?)),
            None => config.with_native_roots(),
        };
        if let (Some(certificate), Some(key)) = (&self.tls_cert, &self.tls_key) {
            config = config.identity(Identity::from_pem(read(certificate)?, read(key)?));
        }
        Ok(config)
    }

    /// A client with these.
    pub fn client(&self) -> dipc::Result<Client> {
        let mut client = Client::builder().any_user(self.any_user);
        for (name, value) in &self.settings {
            client = client.setting(name, value)?;
        }
        if let Some(ca) = &self.tls_ca {
            client = client.tls_ca(ca);
        }
        if let (Some(certificate), Some(key)) = (&self.tls_cert, &self.tls_key) {
            client = client.tls_identity(certificate, key);
        }
        if let Some(name) = &self.tls_server_name {
            client = client.tls_server_name(name);
        }
        client.build()
    }
}

/// Of a server.
#[derive(clap::Args, Debug, Clone, Default)]
pub struct ServerTls {
    /// PEM file of the server's certificate, for tls:// and for TLS on Flight. SIGHUP has it and
    /// its like read again
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
    /// A server with these.
    pub fn server(&self) -> ServerBuilder {
        let mut server = Server::builder();
        if let (Some(certificate), Some(key)) = (&self.tls_cert, &self.tls_key) {
            server = server.tls(certificate, key);
        }
        match &self.tls_ca {
            Some(ca) => server.tls_client_ca(ca),
            None => server,
        }
    }
}

/// A PEM file.
fn read(path: &Path) -> dipc::Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| {
        let status = match error.kind() {
            std::io::ErrorKind::NotFound => Status::NotFound,
            _ => Status::Io,
        };
        Error::new(status, format!("cannot read {}: {error}", path.display()))
    })
}
