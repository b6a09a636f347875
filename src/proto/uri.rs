//! URIs (rules U1 to U5).

use crate::proto::Tags;

/// Which streams a URI serves (rule U3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Metadata and bodies.
    Both,
    /// Metadata only.
    Metadata,
    /// Bodies only.
    Data,
}

/// A parsed URI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uri {
    /// Scheme without the colon.
    pub scheme: String,
    /// `/path`, `@name` or `host:port`.
    pub address: String,
    /// The tags it names, or the defaults.
    pub tags: Tags,
    /// Whether the server speaks our extension.
    pub extension: bool,
    /// The role it names, if it does.
    pub role: Option<Role>,
    /// What the transport needs to reach lent memory.
    pub remote_handle: Option<Vec<u8>>,
    /// UCX version of the server.
    pub ucx_version: Option<String>,
}
