//! TLS 1.3 below the frames (rule Q9): `tls://host:port`.
//!
//! rustls shakes hands and derives the keys. Sealing and opening records is [`records`], the only
//! part that knows how bytes are encrypted: each byte is copied once beside the cipher. A record
//! layer in the kernel would take its place there. rustls' own allocates memory for each record that
//! it opens, and copies each byte three times: with it, large bodies come too slowly
//! (`docs/performance.md`).
//!
//! | module | it has |
//! |---|---|
//! | [`certificate`] | who a certificate is for |
//! | [`config`] | certificates, authorities and keys, from files |
//! | [`handshake`] | one handshake, on either side |
//! | [`handshakes`] | those that are under way at a listener |
//! | [`records`] | what passes the socket then |
//! | [`sealing`], [`opening`] | the two directions of it |
//! | [`refusal`] | why a handshake failed, in words |

mod certificate;
pub mod config;
mod handshake;
pub mod handshakes;
mod opening;
pub mod records;
mod refusal;
mod sealing;

pub use handshake::{Handshake, HandshakeProgress, TlsSide, connect};

#[cfg(test)]
#[path = "../../../../tests/common/certificates.rs"]
mod certificates;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
