//! Certificates, authorities and keys, from PEM files.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use once_cell::sync::Lazy;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    CipherSuite, ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion, version,
};

use crate::error::{Error, Result, Status};
use crate::transport::TlsFiles;

/// What a peer of ours offers and selects by ALPN.
pub const ALPN: &[u8] = b"dipc/1";

const VERSIONS: &[&SupportedProtocolVersion] = &[&version::TLS13];

/// The ciphers of ring, the one first that takes the least time where the processor has AES.
static PROVIDER: Lazy<Arc<CryptoProvider>> = Lazy::new(|| {
    let mut provider = ring::default_provider();
    let first = CipherSuite::TLS13_AES_128_GCM_SHA256;
    provider.cipher_suites.sort_by_key(|it| it.suite() != first);
    Arc::new(provider)
});

/// What a listener's handshakes go by.
/// Errors: `InvalidArgument` when a file is not given or is of no use; `NotFound`, `Permission` and
/// the like, as the system says of a file.
pub fn server(files: &TlsFiles) -> Result<ServerConfig> {
    let (chain, key) = identity(files)?.ok_or_else(|| {
        Error::invalid_argument(
            "a tls:// listener needs a certificate and its key: give both files \
             (tls, in the command --tls-cert FILE --tls-key FILE)",
        )
    })?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&PROVIDER))
        .with_protocol_versions(VERSIONS)
        .map_err(|error| of_no_use("this build's TLS", &error))?;
    let builder = match &files.ca {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let roots = Arc::new(roots(ca)?);
            let verifier =
                WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&PROVIDER)).build();
            builder
                .with_client_cert_verifier(verifier.map_err(|error| of_no_use(shown(ca), &error))?)
        }
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|error| mismatch(files, &error))?;
    // The ticket keys belong to the configuration, so a ticket of an earlier one is not accepted.
    config.ticketer =
        ring::Ticketer::new().map_err(|error| of_no_use("a key for tickets", &error))?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(config)
}

/// What a client's handshakes go by; it keeps the sessions that servers let it resume.
/// Errors: As [`server`]; `InvalidArgument` also where no authority is known at all.
pub fn client(files: &TlsFiles) -> Result<ClientConfig> {
    let roots = match &files.ca {
        Some(ca) => roots(ca)?,
        None => system_roots()?,
    };
    let builder = ClientConfig::builder_with_provider(Arc::clone(&PROVIDER))
        .with_protocol_versions(VERSIONS)
        .map_err(|error| of_no_use("this build's TLS", &error))?
        .with_root_certificates(roots);
    let mut config = match identity(files)? {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => builder
            .with_client_auth_cert(chain, key)
            .map_err(|error| mismatch(files, &error))?,
    };
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(config)
}

type CertificateAndKey = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn identity(files: &TlsFiles) -> Result<Option<CertificateAndKey>> {
    let Some((certificate, key)) = &files.identity else {
        return Ok(None);
    };
    let read = PrivateKeyDer::from_pem_file(key);
    let key = read.map_err(|error| {
        let what = "a private key (one with a passphrase is not read)";
        unreadable(key, what, &error)
    })?;
    Ok(Some((certificates(certificate)?, key)))
}

/// The certificates of a file; one at least.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let failed = |error: pem::Error| unreadable(path, "certificates", &error);
    let found: Vec<_> = CertificateDer::pem_file_iter(path)
        .map_err(failed)?
        .collect::<Result<_, _>>()
        .map_err(failed)?;
    if found.is_empty() {
        return Err(failed(pem::Error::NoItemsFound));
    }
    Ok(found)
}

/// The authorities of a file.
fn roots(path: &Path) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        let added = roots.add(certificate);
        added.map_err(|error| of_no_use(shown(path), &error))?;
    }
    Ok(roots)
}

/// The authorities that the system trusts.
fn system_roots() -> Result<RootCertStore> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Among the many of a system, some may be of a form that rustls does not take.
    roots.add_parsable_certificates(found.certs);
    if !roots.is_empty() {
        return Ok(roots);
    }
    let why: String = found
        .errors
        .iter()
        .map(|error| format!(" ({error})"))
        .collect();
    Err(Error::invalid_argument(format!(
        "this system has no certificate authorities{why}: install them (ca-certificates), or give \
         a file of them (tls_ca, in the command --tls-ca FILE)"
    )))
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn unreadable(path: &Path, what: &str, error: &pem::Error) -> Error {
    let path = path.display();
    match error {
        pem::Error::Io(error) => Error::new(
            match error.kind() {
                ErrorKind::NotFound => Status::NotFound,
                ErrorKind::PermissionDenied => Status::Permission,
                _ => Status::Io,
            },
            format!("cannot read {what} from {path}: {error}"),
        ),
        pem::Error::NoItemsFound => Error::invalid_argument(format!(
            "there is no PEM of {what} in {path}: is it the right file?"
        )),
        error => Error::invalid_argument(format!("cannot read {what} from {path}: {error:?}")),
    }
}

/// A certificate and a key that do not go together.
fn mismatch(files: &TlsFiles, error: &rustls::Error) -> Error {
    let named = files.identity.as_ref();
    let named = named.map(|(certificate, key)| (certificate.display(), key.display()));
    match (named, error) {
        (Some((certificate, key)), rustls::Error::InconsistentKeys(_)) => Error::invalid_argument(
            format!("the key of {key} is not that of the certificate of {certificate}"),
        ),
        (Some((certificate, key)), error) => of_no_use(
            format_args!("the certificate of {certificate} with the key of {key}"),
            error,
        ),
        (None, error) => of_no_use("the certificate with its key", error),
    }
}

fn of_no_use(what: impl std::fmt::Display, error: &dyn std::error::Error) -> Error {
    Error::new(
        Status::InvalidArgument,
        format!("{what} cannot be used for TLS: {error}"),
    )
}
