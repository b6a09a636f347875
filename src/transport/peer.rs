//! Who is at the other end of a connection.

use std::net::SocketAddr;
use std::sync::Arc;

/// Who is at the other end of a connection, according to the system.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PeerOrigin {
    /// The transport's scheme.
    pub scheme: &'static str,
    /// The process, if the transport stays on one machine.
    pub process: Option<PeerIds>,
    /// The address, if the transport has addresses.
    pub address: Option<SocketAddr>,
    /// The certificate, if the peer has shown one.
    pub certificate: Option<Arc<PeerCertificate>>,
}

/// The owner of a certificate that an authority of ours has signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerCertificate {
    /// The subject, for example `CN=alice, O=Example`.
    pub subject: String,
    /// The alternative names, each after its kind: `DNS:`, `IP:`, `URI:` or `email:`.
    pub names: Vec<String>,
    /// The SHA-256 of the certificate, in lower-case hexadecimal digits.
    pub fingerprint: String,
}

/// The numbers of a process at the time when it connected or listened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerIds {
    /// 0 when it has no number in this process's namespace.
    pub pid: i32,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}
