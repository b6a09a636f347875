//! The host's code that gives and takes tables.

use super::request::ServerRequest;
use crate::arrow::OwnedDeviceStream;
use crate::error::{Error, Result};

/// Gives the streams of a ticket.
///
/// Each call runs on a thread for this stream only, which then pulls the stream. So a provider may
/// block, and may fetch from its own server. Dropping the provider calls the host too.
pub trait HostProvider: Send + Sync + 'static {
    /// Opens the stream for `request`, which lives until that stream is released.
    ///
    /// # Errors
    ///
    /// Any error. The client gets its status and text.
    fn open(&self, request: &ServerRequest) -> Result<OwnedDeviceStream>;

    /// Takes the stream that the client of `request` sends ([`ServerRequest::source`]).
    ///
    /// # Errors
    ///
    /// Any error. The client gets its status and text.
    fn take(&self, request: &ServerRequest) -> Result<()> {
        let _ = request;
        Err(Error::unsupported("this server takes no tables"))
    }

    /// Whether all calls give the same batches. Then two calls can serve a baseline peer on two
    /// connections (rule E6).
    fn is_deterministic(&self) -> bool {
        false
    }
}
