//! One address of a server.

use std::fmt;

use crate::error::Result;
use crate::proto::{self, Role};
use crate::transport;

/// The URI of a server of Dissociated IPC, read: what another program tells of where its tables
/// are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uri(proto::Uri);

impl Uri {
    /// Reads a URI.
    ///
    /// # Errors
    ///
    /// `InvalidUri`.
    pub fn parse(text: &str) -> Result<Self> {
        proto::Uri::parse(text).map(Self)
    }

    /// `shm`, `tcp`, `tls`, `ucx`, or a scheme that this library lacks.
    pub fn scheme(&self) -> &str {
        &self.0.scheme
    }

    /// The place of the server: `/path`, `@name` or `host:port`.
    pub fn address(&self) -> &str {
        &self.0.address
    }

    /// The same server at another place, as for a client that reaches it elsewhere.
    #[must_use]
    pub fn at(mut self, address: impl Into<String>) -> Self {
        self.0.address = address.into();
        self
    }

    /// Fails if this process cannot reach servers of this scheme. Loads UCX for `ucx`.
    ///
    /// # Errors
    ///
    /// `Unsupported`, with the reason.
    pub fn ensure_usable(&self) -> Result<()> {
        transport::by_scheme(&self.0.scheme)?.available()
    }

    /// The stream that the address is for, if the URI names one.
    pub fn role(&self) -> Option<Role> {
        self.0.role
    }

    /// Whether the URI says that the server is one of libdipc.
    pub fn is_libdipc(&self) -> bool {
        self.0.extension
    }
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
