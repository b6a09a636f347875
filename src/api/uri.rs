//! One address of a server.

use std::fmt;

use crate::error::Result;
use crate::proto::{self, Role};
use crate::transport;

/// A parsed URI of a server of Dissociated IPC, for example one by which another program says where
/// its tables are.
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

    /// The same URI with another address, for a client that reaches the server by that address.
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

    /// Whether the address is for metadata, for bodies, or for both, if the URI says so.
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
