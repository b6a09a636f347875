//! Addresses, and who is at the other end of a socket.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::error::{Error, Result, Status};
use crate::proto::{Role, Uri};
use crate::transport::PeerIds;
use crate::transport::closing::Socket;
use crate::transport::rights::get_option;
use crate::transport::shm::users::is_anybody;

/// Most bytes of a path or name: `sun_path` has 108, one of which is a zero byte.
const MAX_ADDRESS_BYTES: usize = 107;

/// The address of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SocketAddress {
    /// A socket in the file system.
    Path(PathBuf),
    /// A name in the abstract namespace, which vanishes with the listener.
    Name(String),
}

impl SocketAddress {
    /// The address of a URI.
    pub fn of(uri: &Uri) -> Result<Self> {
        let text = uri.address.as_str();
        let invalid = |why: String| Error::new(Status::InvalidUri, format!("shm:{text}: {why}"));
        let len = text.strip_prefix('@').unwrap_or(text).len();
        if len > MAX_ADDRESS_BYTES {
            return Err(invalid(format!(
                "the address has {len} bytes; the system takes at most {MAX_ADDRESS_BYTES}"
            )));
        }
        if text.contains('\0') {
            return Err(invalid("the address has a zero byte".into()));
        }
        match text.strip_prefix('@') {
            Some("") => Err(invalid("the name after @ is empty".into())),
            Some(name) => Ok(Self::Name(name.into())),
            None if text.starts_with('/') => {
                Ok(Self::Path(OsStr::from_bytes(text.as_bytes()).into()))
            }
            None => Err(invalid("write shm:/path or shm:@name".into())),
        }
    }

    /// The address of a socket that listens.
    /// Errors: `InvalidArgument` if it has no address, or none that a URI can name.
    pub fn of_listener(socket: &OwnedFd) -> Result<Self> {
        let found = rustix::net::getsockname(socket)
            .and_then(SocketAddrUnix::try_from)
            .map_err(|errno| Error::os("cannot ask where a socket listens", errno))?;
        let path = found.path_bytes().map(OsStr::from_bytes);
        if let Some(path) = path.map(Path::new)
            && path.is_absolute()
            && path.to_str().is_some()
        {
            return Ok(Self::Path(path.to_owned()));
        }
        let name = found.abstract_name().and_then(|it| str::from_utf8(it).ok());
        match name {
            Some(name) if !name.is_empty() && !name.contains('\0') => Ok(Self::Name(name.into())),
            _ => Err(Error::invalid_argument(
                "shm cannot listen by the descriptor: its address is no absolute path in UTF-8, \
                 and no abstract name in UTF-8",
            )),
        }
    }

    /// The URI of the address.
    pub fn to_uri(&self) -> Uri {
        let address = match self {
            Self::Path(path) => path.to_string_lossy().into_owned(),
            Self::Name(name) => format!("@{name}"),
        };
        Uri::new("shm", &address, Role::Both)
    }

    /// The address in the system's form.
    pub fn to_socket_address(&self) -> Result<SocketAddrUnix> {
        match self {
            Self::Path(path) => SocketAddrUnix::new(path.as_path()),
            Self::Name(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
        }
        .map_err(|errno| Error::os(format_args!("{self} is no address"), errno))
    }

    /// The path of the address, if it has one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Path(path) => Some(path),
            Self::Name(_) => None,
        }
    }
}

impl std::fmt::Display for SocketAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Path(path) => write!(f, "shm:{}", path.display()),
            Self::Name(name) => write!(f, "shm:@{name}"),
        }
    }
}

/// A stream socket, closed on exec, that admits no descriptors.
pub fn new_socket(flags: SocketFlags) -> Result<Socket> {
    let flags = flags | SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map(Socket::new)
        .map_err(|errno| Error::os("cannot make a socket", errno))
}

impl PeerIds {
    /// In words, for logs.
    pub(super) fn shown(self) -> String {
        format!("pid {}, uid {}", self.pid, self.uid)
    }

    /// Asks the kernel about the peer (SO_PEERCRED).
    pub(super) fn of(socket: &Socket) -> Result<Self> {
        // A peer of another pid namespace has the pid 0, which rustix treats as impossible.
        let nobody = libc::ucred {
            pid: 0,
            uid: u32::MAX,
            gid: u32::MAX,
        };
        // SAFETY: for this option the system writes such a structure.
        let cred = unsafe { get_option(socket, (libc::SOL_SOCKET, libc::SO_PEERCRED), nobody) }
            .map_err(|error| Error::io("cannot ask who the peer is", &error))?;
        socket.belongs_to(cred.uid);
        Ok(Self {
            pid: cred.pid,
            uid: cred.uid,
            gid: cred.gid,
        })
    }

    /// Whether it certainly runs as this process's user.
    pub(super) fn is_same_user(self) -> bool {
        self.uid == rustix::process::geteuid().as_raw() && !is_anybody(self.uid)
    }

    /// Refuses other users, unless every user is admitted.
    pub(super) fn ensure_admitted(self, any_user: bool) -> Result<()> {
        if any_user || self.is_same_user() {
            return Ok(());
        }
        let (own, peer) = (rustix::process::geteuid().as_raw(), self.shown());
        let text = if self.uid == own {
            format!(
                "the peer ({peer}) may be any user: this process's user namespace has no number \
                 for it, nor perhaps for this process, and {own} stands for all such users; map \
                 the users into the namespace, or admit every user (any_user, --any-user)"
            )
        } else {
            format!(
                "the peer ({peer}) is another user than this process (uid {own}): admit every \
                 user at both ends (any_user, --any-user), if that is meant"
            )
        };
        Err(Error::new(Status::Permission, text))
    }

    /// The error for a client that is not admitted.
    pub(super) fn refusal(self) -> Error {
        let own = rustix::process::geteuid().as_raw();
        let cause = if self.uid == own {
            format!(
                "its user namespace has no number for this user, nor perhaps for its own, and \
                 {own} stands for all such users"
            )
        } else {
            format!("its uid is {own}, and this process has uid {}", self.uid)
        };
        let text = format!(
            "the server admits its own user alone: {cause}; to have it admit every user, start it \
             with any_user (dipc_server_options_set_any_user, --any-user)"
        );
        Error::new(Status::Permission, text)
    }
}

/// Who listens at an address. Connecting to the address shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenerProbe {
    /// A live listener; and its process, if the connection succeeded.
    Live(Option<PeerIds>),
    /// Nobody.
    Stale,
}

/// Finds out who listens at `address`.
pub fn probe(address: &SocketAddress) -> Result<ListenerProbe> {
    let socket = new_socket(SocketFlags::NONBLOCK)?;
    match rustix::net::connect(&socket, &address.to_socket_address()?) {
        Ok(()) => Ok(ListenerProbe::Live(PeerIds::of(&socket).ok())),
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(ListenerProbe::Stale),
        // It is busy, of another type, or another user's: a listener is there.
        Err(_) => Ok(ListenerProbe::Live(None)),
    }
}
