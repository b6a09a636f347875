//! The certificates that TLS goes by.

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
    /// The authorities whose certificates a peer may have. At a client, the system's by default. At
    /// a server clients are asked for a certificate where this is given.
    pub ca: Option<PathBuf>,
    /// The name that a server's certificate must have. Default: the host of the URI.
    pub server_name: Option<String>,
}

/// The files, and what was read from them. All connections of one client share one: it keeps the
/// sessions that can be resumed.
#[derive(Debug, Default)]
pub struct TlsOptions {
    files: TlsFiles,
    /// What the files were made into at their first use.
    #[cfg(feature = "tls")]
    server: Mutex<Option<Arc<rustls::ServerConfig>>>,
    #[cfg(feature = "tls")]
    client: Mutex<Option<Arc<rustls::ClientConfig>>>,
}

impl TlsOptions {
    /// Other files. Nothing is read yet.
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

    /// Reads a server's files again; new connections go by what is in them now. Sessions of before
    /// cannot be resumed.
    ///
    /// # Errors
    ///
    /// A file cannot be used: everything stays as it was.
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
    /// What a listener's handshakes go by now.
    ///
    /// # Errors
    ///
    /// As the files have them.
    pub(super) fn server(&self) -> Result<Arc<rustls::ServerConfig>> {
        read(&self.server, || config::server(&self.files))
    }

    /// What the handshakes of a server of another protocol, with the same files, go by now.
    ///
    /// # Errors
    ///
    /// As the files have them.
    pub fn server_for(&self, alpn: &[u8]) -> Result<rustls::ServerConfig> {
        let mut config = rustls::ServerConfig::clone(&*self.server()?);
        config.alpn_protocols = vec![alpn.to_vec()];
        Ok(config)
    }

    /// Reads a client's files, unless that was done. Without this the first connection does.
    ///
    /// # Errors
    ///
    /// As the files have them.
    pub fn read_client(&self) -> Result<()> {
        self.client().map(drop)
    }

    /// What a client's handshakes go by.
    ///
    /// # Errors
    ///
    /// As the files have them.
    pub(super) fn client(&self) -> Result<Arc<rustls::ClientConfig>> {
        read(&self.client, || config::client(&self.files))
    }
}

/// What was read at the first use.
#[cfg(feature = "tls")]
fn read<T>(slot: &Mutex<Option<Arc<T>>>, read: impl FnOnce() -> Result<T>) -> Result<Arc<T>> {
    let mut slot = slot.lock();
    if let Some(config) = &*slot {
        return Ok(Arc::clone(config));
    }
    Ok(Arc::clone(slot.insert(Arc::new(read()?))))
}
