//! The certificates of a Flight server, from PEM files.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use parking_lot::RwLock;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, version};

use crate::trust::ServerTls;

/// The protocol of Flight.
const ALPN: &[u8] = b"h2";

/// What handshakes go by.
pub struct Certificates {
    files: ServerTls,
    config: RwLock<Arc<ServerConfig>>,
}

impl Certificates {
    /// Reads the files; `None`: there are none, and nothing is encrypted.
    ///
    /// # Errors
    ///
    /// Names the file that cannot be used.
    pub fn new(files: &ServerTls) -> Result<Option<Arc<Self>>> {
        let config = config(files).context("cannot use TLS for Flight")?;
        Ok(config.map(|config| {
            Arc::new(Self {
                files: files.clone(),
                config: RwLock::new(config),
            })
        }))
    }

    /// Reads the files again, for all later handshakes.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new): everything stays as it was.
    pub fn reload(&self) -> Result<()> {
        if let Some(config) = config(&self.files)? {
            *self.config.write() = config;
        }
        Ok(())
    }

    /// For the next handshake.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config.read())
    }
}

fn config(files: &ServerTls) -> Result<Option<Arc<ServerConfig>>> {
    let (Some(chain), Some(key)) = (&files.tls_cert, &files.tls_key) else {
        return Ok(None);
    };
    let unread = || format!("cannot read a private key from {}", key.display());
    let private = PrivateKeyDer::from_pem_file(key).with_context(unread)?;
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&version::TLS13])?;
    let builder = match &files.tls_ca {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let mut roots = RootCertStore::empty();
            for authority in certificates(ca)? {
                let unusable = || format!("{} cannot be used for TLS", ca.display());
                roots.add(authority).with_context(unusable)?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build()?)
        }
    };
    let unfit = || {
        format!(
            "{} and {} do not go together",
            chain.display(),
            key.display()
        )
    };
    let mut config =
        (builder.with_single_cert(certificates(chain)?, private)).with_context(unfit)?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(Some(Arc::new(config)))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let unread = || format!("cannot read certificates from {}", path.display());
    let found = CertificateDer::pem_file_iter(path).with_context(unread)?;
    let found: Vec<_> = found.collect::<Result<_, _>>().with_context(unread)?;
    anyhow::ensure!(!found.is_empty(), "{}: there are none", unread());
    Ok(found)
}
