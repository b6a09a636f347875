//! Descriptors that cannot be closed, and ways to send them.

use std::io::{IoSlice, Write as _};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sockopt};

use super::fuse::StuckFile;
use crate::support::connect_as_another;

/// `SO_PASSRIGHTS`, by which the system bars descriptors.
const SO_PASSRIGHTS: libc::c_int = 83;

/// A descriptor whose close blocks.
pub enum Stray {
    /// A lingering TCP socket, and its other end, which does not read.
    Socket {
        near: Option<OwnedFd>,
        _far: TcpStream,
    },
    /// A file that this process cannot close either.
    File(StuckFile),
}

impl Stray {
    pub fn socket() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // The bytes exceed the other end's buffers.
        sockopt::set_socket_recv_buffer_size(&listener, 4096).unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        sockopt::set_socket_linger(&near, Some(Duration::from_secs(1000))).unwrap();
        near.set_nonblocking(true).unwrap();
        while near.write(&[0; 4096]).is_ok() {}
        Self::Socket {
            near: Some(near.into()),
            _far: far,
        }
    }

    /// `None` if this process cannot make one; prints the reason.
    pub fn file() -> Option<Self> {
        StuckFile::new()
            .inspect_err(|why| eprintln!("skipped: no file system in user space here: {why}"))
            .ok()
            .map(Self::File)
    }

    pub fn is_socket(&self) -> bool {
        matches!(self, Self::Socket { .. })
    }

    /// Sends it with `bytes` over `peer`. Afterwards only the receiver has the socket.
    pub fn send(&mut self, peer: &UnixStream, bytes: &[u8]) -> rustix::io::Result<usize> {
        match self {
            Self::Socket { near, .. } => {
                let near = near.take().unwrap();
                let sent = send_with(peer, bytes, near.as_fd());
                if sent.is_err() {
                    // Otherwise this process would wait.
                    sockopt::set_socket_linger(&near, None).unwrap();
                }
                sent
            }
            Self::File(file) => send_with(peer, bytes, file.fd.as_fd()),
        }
    }
}

/// A connection to an abstract address, as another user if `other` and if this process can be one.
pub fn connect(address: &str, other: bool) -> Option<UnixStream> {
    let name = address.strip_prefix("shm:@").unwrap();
    let address = SocketAddr::from_abstract_name(name).unwrap();
    match other {
        true => connect_as_another(&address),
        false => Some(UnixStream::connect_addr(&address).unwrap()),
    }
}

/// A frame without a tag ("Our transports", shm).
pub fn frame(class: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(&[class, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend_from_slice(payload);
    bytes
}

fn send_with(peer: &UnixStream, bytes: &[u8], fd: BorrowedFd<'_>) -> rustix::io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [fd];
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    let flags = SendFlags::NOSIGNAL;
    rustix::net::sendmsg(peer, &[IoSlice::new(bytes)], &mut control, flags)
}

/// Whether the system can bar descriptors (Linux 6.16).
pub fn system_bars() -> bool {
    let (socket, _other) = UnixStream::pair().unwrap();
    let off: libc::c_int = 0;
    // SAFETY: `off` is readable for the four bytes of an integer.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const off).cast(),
            4,
        )
    };
    result == 0
}

/// `command` without the system's option to bar descriptors, as before Linux 6.16.
pub fn without_barring(mut command: Command) -> Command {
    let step = |code: u32, jt, jf, k| libc::sock_filter {
        code: u16::try_from(code).unwrap(),
        jt,
        jf,
        k,
    };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let give = libc::BPF_RET | libc::BPF_K;
    let number = u32::try_from(libc::SYS_setsockopt).unwrap();
    let refusal = libc::SECCOMP_RET_ERRNO | libc::ENOPROTOOPT.cast_unsigned();
    // The third argument lies behind the number, the architecture and three words of eight bytes.
    let filter = [
        step(load, 0, 0, 0),
        step(equal, 0, 3, number),
        step(load, 0, 0, 32),
        step(equal, 0, 1, SO_PASSRIGHTS.cast_unsigned()),
        step(give, 0, 0, refusal),
        step(give, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let install = move || {
        let program = libc::sock_fprog {
            len: 6,
            filter: filter.as_ptr().cast_mut(),
        };
        // SAFETY: an option without pointers.
        let no_more = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
        // SAFETY: `program` names `filter`, which has as many steps and outlives the call; it is
        // copied.
        let filtered = unsafe {
            libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            )
        };
        match (no_more, filtered) {
            (0, 0) => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: `install` makes system calls and allocates nothing, as a forked child may.
    unsafe { command.pre_exec(install) };
    command
}
