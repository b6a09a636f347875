//! Which versions of UCX can talk to each other.

use std::sync::Once;

use ucx1_sys::Api;

use crate::error::{Error, Result};
use crate::transport::ucx::error::version_text;

/// The first minor version of UCX 1 whose connections by socket address do not work with older
/// ones.
const BORDER: u32 = 14;

/// The first minor version of UCX 1 that does not mix up events of a closed descriptor with those
/// of a later one of the same number (UCX's pull request 9942).
const KEEPS_EVENTS_APART: u32 = 18;

/// Warns a server, once, if its UCX can end the process when connections end and begin.
pub(super) fn warn_of_mixed_events(api: &Api) {
    static ONCE: Once = Once::new();
    if api.version().1 < KEEPS_EVENTS_APART {
        ONCE.call_once(|| {
            tracing::warn!(
                "UCX {} can, rarely, end this process by an assertion when connections end and \
                 begin; UCX 1.{KEEPS_EVENTS_APART} or later does not: name its library in \
                 DIPC_UCX_LIBRARY or the setting ucx.library",
                version_text(api)
            );
        });
    }
}

/// Compares a server's version with this side's (rule E1).
///
/// # Errors
///
/// `Unsupported`, with both versions and the remedy, when the two cannot talk.
pub(super) fn ensure_compatible(api: &Api, theirs: &str) -> Result<()> {
    let (_, minor, _) = api.version();
    let Some(other) = minor_of(theirs) else {
        // An unknown version is not refused. If the two do not fit, connecting fails.
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
