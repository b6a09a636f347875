//! What TLS costs without libdipc: the cipher, and a handshake.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{Ticketer, default_provider};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection,
};

use crate::bench::base::case::Case;
use crate::bench::base::certificate;
use crate::bench::base::message::Parent;
use crate::bench::base::timing::{measure, measure_times, nanoseconds};

const ALPN: &[u8] = b"dipc/1";
/// Data of one record, and the bytes before it.
const RECORD: usize = 16 << 10;
const HEADER: [u8; 5] = [23, 3, 3, 0x40, 0x11];

/// Seals records of TLS in one buffer, by the cipher that our peers agree on.
pub fn seal(case: &Case, size: usize, parent: &Parent) -> Result<()> {
    let unusable = |_| anyhow::anyhow!("the cipher cannot be used");
    let key = UnboundKey::new(&AES_128_GCM, &[7; 16]).map_err(unusable)?;
    let key = LessSafeKey::new(key);
    let mut memory = vec![1_u8; size];
    let mut number = 0_u64;
    measure(case, parent, || {
        for record in memory.chunks_mut(RECORD) {
            let mut nonce = [0; 12];
            nonce[4..].copy_from_slice(&number.to_be_bytes());
            number += 1;
            let nonce = Nonce::assume_unique_for_key(nonce);
            let tag = key.seal_in_place_separate_tag(nonce, Aad::from(HEADER), record);
            let _ = std::hint::black_box(tag.map_err(unusable)?);
        }
        Ok(())
    })
}

/// Does handshakes between two ends in this process, without a network and without an earlier
/// session.
pub fn handshake(case: &Case, parent: &Parent) -> Result<()> {
    let folder = case.certificate.as_deref();
    let server = server_config(folder)?;
    let client = ClientConfigs::new(folder)?;
    measure_times(case, parent, || {
        let client = client.next()?;
        let start = Instant::now();
        shake(client, Arc::clone(&server))?;
        Ok(nanoseconds(start.elapsed()))
    })
}

/// The settings of libdipc's server: rustls with the same provider, certificate and tickets.
pub(super) fn server_config(folder: Option<&Path>) -> Result<Arc<ServerConfig>> {
    let folder = folder.context("there is no certificate")?;
    let unread = "cannot read the certificate";
    let chain = CertificateDer::from_pem_file(folder.join(certificate::CERTIFICATE));
    let key = PrivateKeyDer::from_pem_file(folder.join(certificate::KEY));
    let mut server = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![chain.context(unread)?], key.context(unread)?)?;
    server.ticketer = Ticketer::new()?;
    server.alpn_protocols = vec![ALPN.to_vec()];
    Ok(Arc::new(server))
}

/// The ciphers of ring; peers agree on the first one.
fn provider() -> Arc<CryptoProvider> {
    let mut provider = default_provider();
    let first = CipherSuite::TLS13_AES_128_GCM_SHA256;
    provider.cipher_suites.sort_by_key(|it| it.suite() != first);
    Arc::new(provider)
}

/// Makes the settings of clients, in the same way as libdipc.
pub(super) struct ClientConfigs {
    provider: Arc<CryptoProvider>,
    roots: Arc<RootCertStore>,
}

impl ClientConfigs {
    pub(super) fn new(folder: Option<&Path>) -> Result<Self> {
        let provider = provider();
        let mut roots = RootCertStore::empty();
        let path = folder
            .context("there is no certificate")?
            .join(certificate::CERTIFICATE);
        roots.add(CertificateDer::from_pem_file(path).context("cannot read the certificate")?)?;
        let roots = Arc::new(roots);
        Ok(Self { provider, roots })
    }

    /// One that knows of no session.
    pub(super) fn next(&self) -> Result<Arc<ClientConfig>> {
        let mut client = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(Arc::clone(&self.roots))
            .with_no_client_auth();
        client.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Arc::new(client))
    }
}

fn shake(client: Arc<ClientConfig>, server: Arc<ServerConfig>) -> Result<()> {
    let name = ServerName::try_from(certificate::NAME)?;
    let mut client = ClientConnection::new(client, name)?;
    let mut server = ServerConnection::new(server)?;
    let mut passed = Vec::new();
    while client.is_handshaking() || server.is_handshaking() {
        passed.clear();
        client.write_tls(&mut passed)?;
        let mut bytes = &*passed;
        while !bytes.is_empty() {
            server.read_tls(&mut bytes)?;
            server.process_new_packets()?;
        }
        passed.clear();
        server.write_tls(&mut passed)?;
        let mut bytes = &*passed;
        while !bytes.is_empty() {
            client.read_tls(&mut bytes)?;
            client.process_new_packets()?;
        }
        if !client.wants_write() && !server.wants_write() && client.is_handshaking() {
            bail!("the handshake stands still");
        }
    }
    Ok(())
}
