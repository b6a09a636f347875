//! The host's code: what provides and takes tables, and what decides about requests.

use std::fmt;
use std::sync::Arc;

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

/// Decides who may do what.
pub trait Authorizer: Send + Sync + 'static {
    /// Allows a request, or refuses it. [`ServerRequest::verb`], [`ServerRequest::ticket`],
    /// [`ServerRequest::headers`] and [`ServerRequest::origin`] show who wants what.
    /// [`ServerRequest::set_principal`] gives handlers a name for the client. Several threads may
    /// call it at once.
    ///
    /// For list and describe the host is also asked whether the client may get each ticket that the
    /// answer would show. The answer leaves out the tickets that the host refuses.
    ///
    /// # Errors
    ///
    /// Any error refuses the request. The client gets its status and text.
    fn authorize(&self, request: &ServerRequest) -> Result<()>;
}

/// An [`Authorizer`] that servers share.
#[derive(Clone)]
pub struct SharedAuthorizer(pub Arc<dyn Authorizer>);

impl fmt::Debug for SharedAuthorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedAuthorizer")
    }
}
