//! The host's code that decides about requests.

use std::fmt;
use std::sync::Arc;

use super::request::ServerRequest;
use crate::error::Result;

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
