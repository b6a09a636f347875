//! Names the host of a listener, so that a client on another host does not take a stranger at the
//! same address for the listener.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use crate::error::{Error, Result, Status};
use crate::proto::Uri;
use crate::transport::shm::socket::SocketAddress;

/// The host, as the URI of a listener at `address` names it: the boot id of its system and, for an
/// abstract name, the network namespace, because each namespace has its own abstract names. `None`:
/// the system does not tell.
pub fn host_of(address: &SocketAddress) -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let boot: String = boot.chars().filter(char::is_ascii_hexdigit).collect();
    if boot.is_empty() {
        return None;
    }
    match address {
        SocketAddress::Path(_) => Some(boot),
        SocketAddress::Name(_) => {
            let namespace = fs::metadata("/proc/thread-self/ns/net").ok()?;
            Some(format!("{boot}.{}", namespace.ino()))
        }
    }
}

/// Fails for the URI of another host (rule Q6).
///
/// # Errors
///
/// `Unreachable`.
pub fn ensure_here(uri: &Uri, address: &SocketAddress) -> Result<()> {
    let Some(theirs) = &uri.host else {
        return Ok(());
    };
    match host_of(address) {
        Some(own) if own != *theirs => {
            let text = format!(
                "the server at {address} is on another host, or in another network namespace: use \
                 its tcp or ucx address"
            );
            Err(Error::new(Status::Unreachable, text))
        }
        _ => Ok(()),
    }
}
