//! How long a peer's machine may not answer, and the system's keep-alive, which asks it.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt;

use crate::error::{Error, Result};
use crate::transport::LinkOptions;

/// How long a peer's machine may not answer before its connections are over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience(Duration);

/// The name of its setting, without the scheme.
pub const PATIENCE_SETTING: &str = "keepalive";

impl Patience {
    /// The default.
    pub const DEFAULT: Self = Self(Duration::from_secs(60));

    /// What the setting `keepalive` of a scheme says, in seconds.
    /// Errors: `InvalidArgument` when it is not a whole number of seconds, up to a day.
    pub fn of(options: &LinkOptions, scheme: &str) -> Result<Self> {
        let mut settings = options.settings.of(scheme);
        let set = settings.find(|(name, _)| *name == PATIENCE_SETTING);
        set.map_or(Ok(Self::DEFAULT), |(_, value)| Self::parse(value, scheme))
    }

    /// What a value of the setting means.
    pub fn parse(value: &str, scheme: &str) -> Result<Self> {
        match value.parse() {
            Ok(seconds @ 1..=86_400) => Ok(Self(Duration::from_secs(seconds))),
            _ => Err(Error::invalid_argument(format!(
                "{scheme}.keepalive is `{value}`; it is a number of seconds, from 1 to 86400"
            ))),
        }
    }

    /// The whole time.
    pub fn duration(self) -> Duration {
        self.0
    }
}

/// Has the system ask the peer's while a socket is silent, and end the connection where no answer
/// comes for as long as `patience` has.
pub fn keep_alive(socket: impl AsFd, patience: Patience) -> Result<(), Errno> {
    let socket = socket.as_fd();
    let seconds = patience.0.as_secs().max(1);
    let idle = (seconds / 3).max(1);
    let interval = (seconds / 6).max(1);
    let probes = ((seconds - idle.min(seconds)) / interval).max(1);
    sockopt::set_tcp_keepidle(socket, Duration::from_secs(idle))?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs(interval))?;
    sockopt::set_tcp_keepcnt(socket, u32::try_from(probes).unwrap_or(u32::MAX))?;
    sockopt::set_socket_keepalive(socket, true)
}
