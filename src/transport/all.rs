//! The transports of this build, found by the scheme of a URI or of a setting.

use crate::error::{Error, Result};
#[cfg(any(test, feature = "mem"))]
use crate::transport::mem;
use crate::transport::{Settings, Transport, Trust, shm, tcp, ucx};

/// Every transport of this build.
pub const ALL: &[&dyn Transport] = &[
    &shm::Shm,
    &ucx::Ucx,
    &tcp::Tcp::PLAIN,
    #[cfg(feature = "tls")]
    &tcp::Tcp::TLS,
    #[cfg(any(test, feature = "mem"))]
    &mem::Mem,
];

/// The transport for the scheme of a URI.
///
/// # Errors
///
/// `Unsupported` if this build has no such transport.
pub fn by_scheme(scheme: &str) -> Result<&'static dyn Transport> {
    ALL.iter()
        .copied()
        .find(|transport| transport.scheme() == scheme)
        .ok_or_else(|| {
            let known: Vec<_> = ALL.iter().map(|transport| transport.scheme()).collect();
            Error::unsupported(format!(
                "this build has no transport for `{scheme}:`; it has {}",
                known.join(", ")
            ))
        })
}

/// How far the way to servers of a scheme is trusted. An unknown scheme is trusted as little as a
/// network.
pub fn trust_of(scheme: &str) -> Trust {
    by_scheme(scheme).map_or(Trust::NETWORK, |transport| transport.trust())
}

impl Settings {
    /// Sets one setting, and replaces an earlier value.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: no transport of this build has such a setting, or it does not take the
    /// value.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        if value.contains('\0') {
            return Err(Error::invalid_argument(format!(
                "the value of the setting `{name}` has a zero byte in it"
            )));
        }
        let mut known = false;
        for transport in ALL {
            known |= transport.takes_setting(name, value)?;
        }
        if !known {
            return Err(Error::invalid_argument(format!(
                "no transport has a setting `{name}`; there are `ucx.KEY` for each key of UCX's \
                 configuration (as ucx.TLS), ucx.library, ucx.error_handling, ucx.keepalive and \
                 tcp.keepalive"
            )));
        }
        self.0.insert(name.to_owned(), value.to_owned());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Status;

    /// A setting is checked when it is set, as far as possible before its transport is used,
    /// whatever transport is used in the end.
    #[test]
    fn settings_are_checked_where_they_are_set() {
        let mut settings = Settings::default();
        for (name, value) in [
            ("tcp.keepalive", "5"),
            ("ucx.keepalive", "5"),
            ("ucx.error_handling", "none"),
            ("ucx.library", "libucp.so.0"),
            ("ucx.TLS", "tcp"),
            ("ucx.LOG_FILE_FILTER", "*"),
        ] {
            settings.set(name, value).unwrap();
        }
        let sound = settings.clone();
        for (name, value, told) in [
            ("tcp.keepalive", "soon", "tcp.keepalive is `soon`"),
            ("ucx.keepalive", "0", "ucx.keepalive is `0`"),
            (
                "ucx.error_handling",
                "maybe",
                "ucx.error_handling is `maybe`",
            ),
            ("ucx.TLS", "a\0b", "zero byte"),
            ("tcp.KEEPALIVE", "5", "no transport has"),
            ("tcp.", "5", "no transport has"),
            ("shm.keepalive", "5", "no transport has"),
            ("ucx.tls", "tcp", "no transport has"),
            ("ucx.", "tcp", "no transport has"),
            ("UCX_TLS", "tcp", "no transport has"),
            ("TLS", "tcp", "no transport has"),
            ("", "", "no transport has"),
        ] {
            let error = settings.set(name, value).unwrap_err();
            assert_eq!(error.status(), Status::InvalidArgument, "{name}: {error}");
            assert!(error.text().contains(told), "{name}: {error}");
        }
        assert_eq!(settings, sound);
    }
}
