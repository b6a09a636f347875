//! Listening: who owns a socket path, and what happens to the files of a listener that has ended.
//!
//! A path belongs to whoever holds a lock on `PATH.lock`, an empty file beside it. The system
//! releases the lock when its holder ends in any way. So a socket is stale if its lock is free and
//! it refuses connections; then it is taken over. Both files are removed when the listener is
//! dropped, and stay behind only after a kill.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketFlags};

use crate::error::{Error, Result, Status};
use crate::fork::Generation;
use crate::proto::Uri;
use crate::transport::closing::{Socket, closer};
use crate::transport::connection::ConnectionEnd;
use crate::transport::listening::{BACKLOG, accept, given};
use crate::transport::shm::connection::ShmConnection;
use crate::transport::shm::host::host_of;
use crate::transport::shm::socket::{ListenerProbe, SocketAddress, new_socket, probe};
use crate::transport::{Connection, LinkOptions, Listener, PeerIds, Watched};

/// [`Listener`] over shared memory.
pub struct ShmListener {
    socket: Arc<Socket>,
    /// The URI without its query.
    address: String,
    /// The name of the host, for the URI.
    host: Option<String>,
    options: LinkOptions,
    generation: Generation,
    /// A connection of another user, until the acceptor takes it.
    refused: Option<(Box<dyn Connection>, Error)>,
    /// Dropped before the socket is closed; this removes the path.
    _owned: Option<OwnedPath>,
}

/// A path in the file system that this process owns.
struct OwnedPath {
    /// The drop of this field removes and unlocks the file, after the socket was removed.
    lock: Lock,
    socket: PathBuf,
    /// Device and inode of our socket. A path that names another socket is left alone.
    identity: (u64, u64),
}

/// A locked lock file, removed when it is dropped.
struct Lock {
    generation: Generation,
    file: File,
    path: PathBuf,
}

impl ShmListener {
    /// Starts to listen.
    /// Errors: `AddressInUse` if another process listens at the address, or if something other than
    /// a socket is there; `Io`.
    pub fn new(address: SocketAddress, bare: String, options: &LinkOptions) -> Result<Self> {
        let socket = new_socket(SocketFlags::NONBLOCK)?.listening();
        let owned = match &address {
            SocketAddress::Path(path) => Some(bind_path(&socket, &address, path, options)?),
            SocketAddress::Name(_) => {
                bind_name(&socket, &address)?;
                None
            }
        };
        Self::over(socket, &address, bare, options, owned)
    }

    /// Takes over a socket that listens already.
    /// Errors: `InvalidArgument` if it does not listen, or has no address that a URI can name;
    /// `Io`.
    pub fn by(socket: OwnedFd, options: &LinkOptions) -> Result<Self> {
        let socket = given(socket, &[AddressFamily::UNIX], "shm")?;
        let address = SocketAddress::of_listener(&socket)?;
        let socket = Socket::new(socket).listening().given();
        Self::over(socket, &address, address.to_uri().bare(), options, None)
    }

    fn over(
        socket: Socket,
        address: &SocketAddress,
        bare: String,
        options: &LinkOptions,
        owned: Option<OwnedPath>,
    ) -> Result<Self> {
        // The system tells clients which process listens: from now on this one, even if the socket
        // listened before.
        rustix::net::listen(&socket, BACKLOG)
            .map_err(|errno| Error::os(format_args!("cannot listen at {address}"), errno))?;
        Ok(Self {
            socket: Arc::new(socket),
            host: host_of(address),
            address: bare,
            options: options.clone(),
            generation: Generation::now(),
            refused: None,
            _owned: owned,
        })
    }

    fn accept_socket(&self) -> Result<Option<Socket>> {
        Ok(accept(&*self.socket, &self.address)?.map(Socket::new))
    }

    /// Takes over an accepted socket.
    fn take(&mut self, socket: Socket) -> Result<Box<dyn Connection>> {
        let peer = PeerIds::of(&socket)?;
        if let Err(error) = peer.ensure_admitted(self.options.access.any_user) {
            let connection = ShmConnection::to_refuse(socket, &self.options).ok();
            self.refused = connection.map(|refused| (Box::new(refused) as _, peer.refusal()));
            return Err(error);
        }
        let connection = ShmConnection::new(socket, &self.options, ConnectionEnd::Server)?;
        Ok(Box::new(connection))
    }
}

impl Drop for ShmListener {
    fn drop(&mut self) {
        // A forked child must not do this to the socket, which is its parent's too.
        if !self.generation.is_same_process() || self.socket.is_barred() {
            return;
        }
        // The other owners of the socket accept the connections that wait.
        if self.socket.is_given {
            return;
        }
        // Each connection that waits is closed on account of its user. The shutdown keeps new ones
        // away.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
        while let Ok(Some(socket)) = self.accept_socket() {
            // This call tells the socket which user it belongs to.
            drop(PeerIds::of(&socket));
        }
    }
}

impl Listener for ShmListener {
    fn fd(&self) -> Arc<dyn Watched> {
        Arc::clone(&self.socket) as _
    }

    fn address(&self) -> String {
        self.address.clone()
    }

    fn complete(&self, uri: &mut Uri) {
        uri.host = self.host.clone();
    }

    fn refused(&mut self) -> Option<(Box<dyn Connection>, Error)> {
        self.refused.take()
    }

    fn accept(&mut self) -> Result<Option<Box<dyn Connection>>> {
        self.generation.ensure_same_process()?;
        self.refused = None;
        closer::ensure_any_room()?;
        let socket = self.accept_socket()?;
        socket.map(|socket| self.take(socket)).transpose()
    }
}

fn in_use(address: &SocketAddress, who: impl std::fmt::Display) -> Error {
    Error::new(Status::AddressInUse, format!("{address} is in use{who}"))
}

/// The error if another process has the address.
fn taken(address: &SocketAddress) -> Error {
    match probe(address) {
        Ok(ListenerProbe::Live(Some(peer))) if peer.pid.cast_unsigned() == std::process::id() => {
            in_use(
                address,
                format_args!(" by this process itself ({})", peer.shown()),
            )
        }
        Ok(ListenerProbe::Live(Some(peer))) => {
            let who = peer.shown();
            in_use(
                address,
                format_args!(" by a process ({who}): end it, or listen at another address"),
            )
        }
        _ => in_use(
            address,
            " by another process; if that was a server which has ended, a child that it forked \
             holds on to the address",
        ),
    }
}

fn bind_name(socket: &Socket, address: &SocketAddress) -> Result<()> {
    match rustix::net::bind(socket, &address.to_socket_address()?) {
        Ok(()) => Ok(()),
        Err(Errno::ADDRINUSE) => Err(taken(address)),
        Err(errno) => Err(Error::os(format_args!("cannot listen at {address}"), errno)),
    }
}

fn bind_path(
    socket: &Socket,
    address: &SocketAddress,
    path: &Path,
    options: &LinkOptions,
) -> Result<OwnedPath> {
    let lock = Lock::take(address, path)?;
    remove_stale(address, path)?;
    let doing = || format!("cannot listen at {address}");
    // The file gets the mode of the socket, so other users cannot connect at any moment.
    rustix::fs::fchmod(socket, Mode::RUSR | Mode::WUSR).map_err(|e| Error::os(doing(), e))?;
    rustix::net::bind(socket, &address.to_socket_address()?)
        .map_err(|errno| Error::os(doing(), errno))?;
    let identity = socket_identity(path)
        .ok_or_else(|| Error::new(Status::Io, format!("{address} vanished while it was made")))?;
    let owned = OwnedPath {
        lock,
        socket: path.to_owned(),
        identity,
    };
    if options.access.any_user {
        let everyone = Mode::from_raw_mode(0o666);
        rustix::fs::chmodat(CWD, path, everyone, AtFlags::empty())
            .map_err(|errno| Error::os(doing(), errno))?;
    }
    Ok(owned)
}

/// Removes a socket at which no process listens. The caller holds the lock, so no process of
/// libdipc makes a new one at this moment.
fn remove_stale(address: &SocketAddress, path: &Path) -> Result<()> {
    let Ok(metadata) = path.symlink_metadata() else {
        return Ok(());
    };
    if FileType::from_raw_mode(metadata.mode()) != FileType::Socket {
        return Err(in_use(
            address,
            ": the file there is not a socket, and is left alone",
        ));
    }
    match probe(address)? {
        ListenerProbe::Live(_) => Err(taken(address)),
        ListenerProbe::Stale => match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io(
                format_args!("cannot remove the stale socket at {address}"),
                &error,
            )),
            _ => Ok(()),
        },
    }
}

/// Whether `path` is a socket.
pub fn is_socket(path: &Path) -> bool {
    socket_identity(path).is_some()
}

/// Device and inode of the socket at `path`.
fn socket_identity(path: &Path) -> Option<(u64, u64)> {
    let metadata = path.symlink_metadata().ok()?;
    let is_socket = FileType::from_raw_mode(metadata.mode()) == FileType::Socket;
    is_socket.then(|| (metadata.dev(), metadata.ino()))
}

impl Lock {
    fn take(address: &SocketAddress, socket: &Path) -> Result<Self> {
        let mut path = socket.as_os_str().to_owned();
        path.push(".lock");
        let path = PathBuf::from(path);
        let doing = || format!("cannot lock {} for {address}", path.display());
        loop {
            let file = File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags((OFlags::CLOEXEC | OFlags::NOFOLLOW).bits().cast_signed())
                .open(&path)
                .map_err(|error| match error.kind() {
                    std::io::ErrorKind::NotFound => Error::io(
                        format!("cannot listen at {address}: make its folder first"),
                        &error,
                    ),
                    _ => Error::io(doing(), &error),
                })?;
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Err(taken(address)),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(Error::os(doing(), errno)),
            }
            // If the last owner removed the file meanwhile, other processes cannot find it.
            let ours = file
                .metadata()
                .map_err(|error| Error::io(doing(), &error))?;
            match path.symlink_metadata() {
                Ok(found) if (found.dev(), found.ino()) == (ours.dev(), ours.ino()) => {}
                _ => continue,
            }
            if ours.len() > 0 {
                let which = format_args!(": {} is not a lock file of libdipc's", path.display());
                return Err(in_use(address, which));
            }
            return Ok(Self {
                generation: Generation::now(),
                file,
                path,
            });
        }
    }
}

impl Drop for OwnedPath {
    fn drop(&mut self) {
        // A forked child shares the paths with its parent, which still listens.
        if self.lock.generation.is_same_process()
            && socket_identity(&self.socket) == Some(self.identity)
        {
            let _ = std::fs::remove_file(&self.socket);
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if !self.generation.is_same_process() {
            return;
        }
        // Removed while it is locked. Otherwise another process could lock a file that is about to
        // vanish.
        let ours = self.file.metadata().ok().map(|m| (m.dev(), m.ino()));
        let found = self
            .path
            .symlink_metadata()
            .ok()
            .map(|m| (m.dev(), m.ino()));
        if ours.is_some() && ours == found {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
