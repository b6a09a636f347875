//! The host's code that decides about requests.

use std::fmt;
use std::sync::Arc;

use super::request::Request;
use crate::error::Result;

/// Decides who may do what.
pub trait Authorizer: Send + Sync + 'static {
    /// Allows a request, or refuses it. [`Request::verb`], [`Request::ticket`],
    /// [`Request::headers`] and [`Request::origin`] say who wants what.
    /// [`Request::set_principal`] gives handlers a name for the client. Several threads may call it
    /// at once.
    ///
    /// For list and describe the host is also asked whether the client may get each ticket that the
    /// answer would show. The answer leaves out the tickets that the host refuses.
    ///
    /// # Errors
    ///
    /// Any error refuses the request. The client gets its status and text.
    fn authorize(&self, request: &Request) -> Result<()>;
}

/// An [`Authorizer`] that servers share.
#[derive(Clone)]
pub struct SharedAuthorizer(pub Arc<dyn Authorizer>);

impl fmt::Debug for SharedAuthorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedAuthorizer")
    }
}
