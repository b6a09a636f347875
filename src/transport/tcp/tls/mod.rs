//! TLS 1.3 below the frames (rule Q9): `tls://host:port`.
//!
//! rustls shakes hands, seals and opens ([`records`]).
//!
//! | module | it has |
//! |---|---|
//! | [`certificate`] | who a certificate is for |
//! | [`config`] | certificates, authorities and keys, from files |
//! | [`handshake`] | one handshake, on either side |
//! | [`handshakes`] | those that are under way at a listener |
//! | [`records`] | what passes the socket then |
//! | [`refusal`] | why a handshake failed, in words |

mod certificate;
pub mod config;
mod handshake;
pub mod handshakes;
pub mod records;
mod refusal;

pub use handshake::{Handshake, HandshakeProgress, connect};

#[cfg(test)]
#[path = "../../../../tests/common/certificates.rs"]
mod certificates;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
