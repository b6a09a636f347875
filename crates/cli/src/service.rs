//! What a service manager such as systemd hands over, and what the server reports to it: sockets
//! (LISTEN_FDS), and how the server is (NOTIFY_SOCKET). The manuals sd_listen_fds(3) and
//! sd_notify(3) have the protocols.

use std::env;
use std::ffi::OsStr;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, bail};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{AddressFamily, sockopt};
use rustix::time::{ClockId, clock_gettime};
use tracing::warn;

/// The first descriptor that is handed over.
const FIRST: RawFd = 3;
/// Most sockets that are taken.
const MOST: RawFd = 64;

const VARIABLES: [&str; 4] = [
    "LISTEN_PID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
    "NOTIFY_SOCKET",
];

/// The service manager of this process, if it has one.
#[derive(Default)]
pub struct Manager {
    told: Option<(UnixDatagram, SocketAddr)>,
    /// The manager has been told that the server is ready, and not yet that it stops.
    is_ready: AtomicBool,
}

/// A socket that the manager has made.
pub struct GivenSocket {
    pub socket: OwnedFd,
    /// The descriptor's number, before it was taken over.
    number: RawFd,
    /// The name from FileDescriptorName=; empty: no name.
    name: String,
}

/// Takes the manager's variables out of the environment, because they are not for children.
///
/// Called before the process has other threads.
pub fn take() -> Result<(Manager, Vec<GivenSocket>)> {
    let [pid, fds, names, notify] = VARIABLES.map(env::var_os);
    for name in VARIABLES {
        // SAFETY: no other thread reads the environment, since `serve::run` calls this before it
        // starts one.
        unsafe { env::remove_var(name) };
    }
    let told = notify.and_then(|address| match reach(&address) {
        Ok(told) => Some(told),
        Err(error) => {
            warn!("the service manager of NOTIFY_SOCKET is not told anything: {error:#}");
            None
        }
    });
    let manager = Manager {
        told,
        is_ready: AtomicBool::new(false),
    };
    let is_own = pid.is_some_and(|pid| pid.to_str() == Some(&std::process::id().to_string()));
    match fds {
        Some(count) if is_own => Ok((manager, given(&count, names.as_deref())?)),
        _ => Ok((manager, Vec::new())),
    }
}

fn reach(address: &OsStr) -> Result<(UnixDatagram, SocketAddr)> {
    let target = match address.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        [b'/', ..] => SocketAddr::from_pathname(address)?,
        _ => bail!("{address:?} is neither a path nor an abstract name"),
    };
    Ok((UnixDatagram::unbound()?, target))
}

/// Takes the sockets over.
fn given(count: &OsStr, names: Option<&OsStr>) -> Result<Vec<GivenSocket>> {
    let count = count.to_str().and_then(|count| count.parse().ok());
    let Some(count @ 0..=MOST) = count else {
        bail!("LISTEN_FDS is no number from 0 to {MOST}");
    };
    let names = names.map(|names| names.to_string_lossy().into_owned());
    let mut names = names.iter().flat_map(|names| names.split(':'));
    (FIRST..FIRST + count)
        .map(|number| {
            // SAFETY: the call takes any number, and no memory is involved.
            if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
                bail!("LISTEN_FDS is {count}, and descriptor {number} is not open");
            }
            // SAFETY: it is open, as was just seen, and the variables say that it is this
            // process's.
            let socket = unsafe { OwnedFd::from_raw_fd(number) };
            fcntl_setfd(&socket, FdFlags::CLOEXEC)
                .with_context(|| format!("cannot keep descriptor {number} from children"))?;
            let name = names.next().unwrap_or_default().to_owned();
            Ok(GivenSocket {
                socket,
                number,
                name,
            })
        })
        .collect()
}

impl GivenSocket {
    /// What it is, for errors.
    pub fn shown(&self) -> String {
        format!("descriptor {} of LISTEN_FDS", self.number)
    }

    /// The scheme to serve it by: as its name says (`shm`, `tcp`, `tls`), or by its family, tls if
    /// the server has a certificate.
    pub fn scheme(&self, has_certificate: bool) -> Result<&'static str> {
        let family = sockopt::socket_domain(&self.socket)
            .with_context(|| format!("{} is no socket", self.shown()))?;
        Ok(match self.name.as_str() {
            "shm" => "shm",
            "tcp" => "tcp",
            "tls" => "tls",
            _ if family == AddressFamily::UNIX => "shm",
            _ if has_certificate => "tls",
            _ => "tcp",
        })
    }
}

impl Manager {
    /// Whether there is one.
    pub fn is_there(&self) -> bool {
        self.told.is_some()
    }

    /// The server takes requests. `status` is a line for people.
    pub fn ready(&self, status: &str) {
        self.is_ready.store(true, Ordering::Release);
        self.tell(&format!("READY=1\nSTATUS={status}"));
    }

    /// The server reads its files again by `reload`, if it is ready. `reload` gives the reason why
    /// a file cannot be used.
    pub fn reloading(&self, reload: impl FnOnce() -> Option<String>) {
        let is_ready = self.is_ready.load(Ordering::Acquire);
        if is_ready {
            let now = clock_gettime(ClockId::Monotonic);
            let micros = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1000;
            self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
        }
        let failed = reload();
        if is_ready && self.is_ready.load(Ordering::Acquire) {
            let status = failed.as_deref().unwrap_or("read its files again");
            self.tell(&format!("READY=1\nSTATUS={status}"));
        }
    }

    /// The server drains, and ends.
    pub fn stopping(&self, status: &str) {
        self.is_ready.store(false, Ordering::Release);
        self.tell(&format!("STOPPING=1\nSTATUS={status}"));
    }

    fn tell(&self, state: &str) {
        if let Some((socket, target)) = &self.told
            && let Err(error) = socket.send_to_addr(state.as_bytes(), target)
        {
            warn!("the service manager is not told: {error}");
        }
    }
}
