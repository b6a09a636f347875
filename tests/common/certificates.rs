//! An authority of tests, and what it signs.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

/// An authority, and the PEM files of what it has signed, which go with it.
pub struct Authority {
    folder: TempDir,
    issued: AtomicU32,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// One that nobody else has.
    pub fn new() -> Self {
        Self::with_key(KeyPair::generate().unwrap())
    }

    /// One of the same name, with this key.
    pub fn with_key(key: KeyPair) -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let folder = tempfile::tempdir().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        std::fs::write(folder.path().join("ca.pem"), pem).unwrap();
        Self {
            folder,
            issued: AtomicU32::new(0),
            issuer: Issuer::new(params, key),
        }
    }

    /// The file of its own certificate.
    pub fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// A certificate for `name`, and its key.
    pub fn issue(&self, name: &str) -> (PathBuf, PathBuf) {
        self.issue_with(name, |_| {})
    }

    /// As [`issue`](Self::issue), with other parameters.
    pub fn issue_with(
        &self,
        name: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let number = self.issued.fetch_add(1, Relaxed);
        let path = |end: &str| self.folder.path().join(format!("{name}-{number}.{end}"));
        std::fs::write(path("pem"), certificate.pem()).unwrap();
        std::fs::write(path("key"), key.serialize_pem()).unwrap();
        (path("pem"), path("key"))
    }
}
