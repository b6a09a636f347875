//! The certificates that TLS uses.

use std::path::PathBuf;
use std::sync::Arc;

#[cfg(feature = "tls")]
use parking_lot::Mutex;

use crate::error::Result;
#[cfg(feature = "tls")]
use crate::transport::tcp::tls::config;

/// PEM files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// This side's certificates, its own first, and its private key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The authorities that may have signed a peer's certificate. At a client, the default is the
    /// system's. A server asks clients for a certificate only if this is set.
    pub ca: Option<PathBuf>,
    /// The name that must be in a server's certificate. Default: the host of the URI.
    pub server_name: Option<String>,
}

/// The files, and what was read from them. All connections of one client share this value, which
/// keeps the TLS sessions that can be resumed.
#[derive(Debug, Default)]
pub struct TlsOptions {
    files: TlsFiles,
    /// The configuration made from the files at their first use.
    #[cfg(feature = "tls")]
    server: Mutex<Option<Arc<rustls::ServerConfig>>>,
    #[cfg(feature = "tls")]
    client: Mutex<Option<Arc<rustls::ClientConfig>>>,
}

impl TlsOptions {
    /// The options with other files. Nothing is read yet.
    pub fn with(&self, change: impl FnOnce(&mut TlsFiles)) -> Arc<Self> {
        let mut files = self.files.clone();
        change(&mut files);
        Arc::new(Self {
            files,
            ..Self::default()
        })
    }

    /// The files.
    pub fn files(&self) -> &TlsFiles {
        &self.files
    }

    /// Reads a server's files again; new connections use the new content. TLS sessions from before
    /// the call cannot be resumed.
    ///
    /// # Errors
    ///
    /// A file cannot be used: then everything stays as it was.
    pub fn reload(&self) -> Result<()> {
        #[cfg(feature = "tls")]
        if self.files.identity.is_some() {
            let config = Arc::new(config::server(&self.files)?);
            *self.server.lock() = Some(config);
        }
        Ok(())
    }
}

#[cfg(feature = "tls")]
impl TlsOptions {
    /// The current configuration for the handshakes of a listener.
    ///
    /// # Errors
    ///
    /// Errors of the files.
    pub(super) fn server(&self) -> Result<Arc<rustls::ServerConfig>> {
        read(&self.server, || config::server(&self.files))
    }

    /// The current configuration for handshakes of a server of another protocol, with the same
    /// files.
    ///
    /// # Errors
    ///
    /// Errors of the files.
    pub fn server_for(&self, alpn: &[u8]) -> Result<rustls::ServerConfig> {
        let mut config = rustls::ServerConfig::clone(&*self.server()?);
        config.alpn_protocols = vec![alpn.to_vec()];
        Ok(config)
    }

    /// Reads a client's files, unless they were read. Otherwise the first connection reads them.
    ///
    /// # Errors
    ///
    /// Errors of the files.
    pub fn read_client(&self) -> Result<()> {
        self.client().map(drop)
    }

    /// The configuration for the handshakes of a client.
    ///
    /// # Errors
    ///
    /// Errors of the files.
    pub(super) fn client(&self) -> Result<Arc<rustls::ClientConfig>> {
        read(&self.client, || config::client(&self.files))
    }
}

/// What was made from the files at their first use.
#[cfg(feature = "tls")]
fn read<T>(slot: &Mutex<Option<Arc<T>>>, read: impl FnOnce() -> Result<T>) -> Result<Arc<T>> {
    let mut slot = slot.lock();
    if let Some(config) = &*slot {
        return Ok(Arc::clone(config));
    }
    Ok(Arc::clone(slot.insert(Arc::new(read()?))))
}
