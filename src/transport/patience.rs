//! How long a peer's machine may leave probes unanswered, and the system's keep-alive, which probes
//! it.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt;

use crate::error::{Error, Result, Status};
use crate::transport::rights::get_option;
use crate::transport::{Settings, Watched};

/// How long a peer's machine may not answer before its connections end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience(Duration);

/// The name of its setting, without the scheme.
pub const PATIENCE_SETTING: &str = "keepalive";

impl Patience {
    /// The default.
    pub const DEFAULT: Self = Self(Duration::from_secs(60));

    /// The value of the setting `keepalive` of a scheme, in seconds.
    /// Errors: `InvalidArgument` if it is not a whole number of seconds, up to a day.
    pub fn of(settings: &Settings, scheme: &str) -> Result<Self> {
        let mut settings = settings.of(scheme);
        let set = settings.find(|(name, _)| *name == PATIENCE_SETTING);
        set.map_or(Ok(Self::DEFAULT), |(_, value)| Self::parse(value, scheme))
    }

    /// Parses a value of the setting.
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

/// The machine of a peer. While the connection serves a stream, the connection itself may not
/// notice that the machine is gone.
#[derive(Debug, Clone)]
pub struct PeerMachine {
    sockets: Arc<[Arc<dyn Watched>]>,
    patience: Patience,
}

impl PeerMachine {
    /// The machine at the other end of these TCP sockets.
    pub(super) fn new(sockets: Arc<[Arc<dyn Watched>]>, patience: Patience) -> Self {
        Self { sockets, patience }
    }

    /// Asks the system whether the machine still answers; `peer` is its name.
    ///
    /// # Errors
    ///
    /// `Disconnected` if it does not.
    pub fn ensure_answers(&self, peer: &str) -> Result<()> {
        let is_silent = |socket| has_fallen_silent(socket, self.patience);
        match self.sockets.iter().any(is_silent) {
            true => Err(silence_error(peer, Errno::TIMEDOUT)),
            false => Ok(()),
        }
    }

    /// The time after which to ask again, such that a dead machine is noticed at most a quarter
    /// later than the time allowed.
    pub fn pause(&self) -> Duration {
        self.patience.0 / 4
    }
}

/// The error for a machine of `peer` that does not answer, with the system's `errno`.
pub fn silence_error(peer: &str, errno: Errno) -> Error {
    let doing = format!(
        "the peer ({peer}) does not answer any more: its machine is down, or the network to it"
    );
    Error::os_as(Status::Disconnected, doing, errno)
}

/// Whether data that was sent repeatedly has not been acknowledged for the time of `patience`. A
/// client that exists but does not read still acknowledges data.
fn has_fallen_silent(socket: impl AsFd, patience: Patience) -> bool {
    // SAFETY: the structure holds only integers, for which zeros are valid.
    let info: libc::tcp_info = unsafe { std::mem::zeroed() };
    // SAFETY: for this option the system writes such a structure, which has only integers.
    let info = unsafe { get_option(&socket, (libc::IPPROTO_TCP, libc::TCP_INFO), info) };
    let Ok(info) = info else {
        return false;
    };
    // One probe of a closed window may be on its way to a peer that still exists.
    let unanswered = info.tcpi_retransmits > 0 || info.tcpi_probes > 1;
    let since = Duration::from_millis(info.tcpi_last_ack_recv.into());
    unanswered && since >= patience.duration()
}

/// Turns on keep-alive: the system asks the peer's system while a socket is silent, and ends the
/// connection if no answer comes within `patience`.
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
