//! Which versions of UCX can talk to each other.

use ucx1_sys::Api;

use crate::error::{Error, Result};
use crate::transport::ucx::error::version_text;

/// The first minor version of UCX 1 whose connections by socket address older ones do not know.
const BORDER: u32 = 14;

/// Compares a server's version with this side's (rule E1).
///
/// # Errors
///
/// `Unsupported`, with both versions and the remedy, when the two cannot talk.
pub(super) fn ensure_compatible(api: &Api, theirs: &str) -> Result<()> {
    let (_, minor, _) = api.version();
    let Some(other) = minor_of(theirs) else {
        // It is for the connection to fail where it does.
        tracing::debug!("the server's UCX version `{theirs}` is none that is known");
        return Ok(());
    };
    if (minor < BORDER) == (other < BORDER) {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "the server uses UCX {theirs} and this side {}, and these two cannot talk to each other: \
         versions before and from 1.{BORDER} differ; install the same version on both sides, or \
         name another library in DIPC_UCX_LIBRARY or the setting ucx.library",
        version_text(api)
    )))
}

/// The minor number of a version `1.x.y`.
fn minor_of(version: &str) -> Option<u32> {
    let mut numbers = version.split('.');
    (numbers.next()? == "1").then_some(())?;
    numbers.next()?.parse().ok()
}
