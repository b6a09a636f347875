//! Bars descriptors (SCM_RIGHTS) from Unix sockets.
//!
//! A peer can send a descriptor beside any byte. Reading the byte takes the descriptor out of the
//! socket, and closing the descriptor may wait for as long as the peer likes. So a socket admits
//! descriptors only while the protocol expects one.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, ReturnFlags};

/// `SO_PASSRIGHTS` of Linux 6.16 (asm-generic/socket.h), which the crates do not name yet.
const SO_PASSRIGHTS: libc::c_int = 83;

#[cfg(test)]
thread_local! {
    /// Set by a test: on this thread the system counts as one that cannot bar descriptors.
    pub static CANNOT_BAR: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Admits or bars descriptors at `socket` and at the sockets that it accepts. A sender of a barred
/// descriptor gets EPERM. Returns false if the system cannot bar descriptors.
pub fn pass(socket: &impl AsFd, may: bool) -> bool {
    #[cfg(test)]
    if CANNOT_BAR.get() {
        return false;
    }
    // On SPARC the number means another option.
    if cfg!(any(target_arch = "sparc", target_arch = "sparc64")) {
        return false;
    }
    let value = libc::c_int::from(may);
    let len = libc::socklen_t::try_from(size_of_val(&value)).unwrap_or(0);
    // SAFETY: the descriptor is open while it is borrowed, and `value` is readable for `len` bytes.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const value).cast(),
            len,
        )
    };
    result == 0
}

/// Gets an option of `socket`, by its level and name. The system may write only a part of `value`.
///
/// # Safety
///
/// For this option the system writes only a `T`, or the beginning of one.
pub unsafe fn get_option<T>(
    socket: &impl AsFd,
    (level, name): (libc::c_int, libc::c_int),
    mut value: T,
) -> std::io::Result<T> {
    let mut len = libc::socklen_t::try_from(size_of::<T>()).unwrap_or(0);
    // SAFETY: `value` is writable for `len` bytes, its size, and `len` is writable. The caller
    // promises that the bytes that the system writes make a `T`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            (&raw mut value).cast(),
            &raw mut len,
        )
    };
    match result {
        0 => Ok(value),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// What a look into a socket shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketContents {
    /// The number of bytes; no descriptor comes with them. 0 means the end.
    Bytes(usize),
    /// A descriptor, which belongs to these bytes or comes directly after them.
    Descriptor,
}

/// Looks at what `socket` has, as far as `runs` has room, and takes nothing out.
pub fn look(socket: &impl AsFd, runs: &mut [IoSliceMut<'_>]) -> Result<SocketContents, Errno> {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    // Without room for a descriptor, the system sets CTRUNC and drops its own copy. The file stays
    // open, because the descriptor is still in the socket.
    let mut no_room = RecvAncillaryBuffer::default();
    let message = rustix::net::recvmsg(socket, runs, &mut no_room, flags)?;
    Ok(if message.flags.contains(ReturnFlags::CTRUNC) {
        SocketContents::Descriptor
    } else {
        SocketContents::Bytes(message.bytes)
    })
}

/// Reads what `socket` has. If there is a descriptor, takes nothing out.
pub fn read_without(
    socket: &impl AsFd,
    runs: &mut [IoSliceMut<'_>],
) -> Result<SocketContents, Errno> {
    let seen = look(socket, runs)?;
    let SocketContents::Bytes(len) = seen else {
        return Ok(seen);
    };
    // Reads no more than was looked at.
    let mut left = len;
    let mut looked_at: smallvec::SmallVec<[IoSliceMut<'_>; 2]> = runs
        .iter_mut()
        .map(|run| {
            let part = run.len().min(left);
            left -= part;
            IoSliceMut::new(&mut run[..part])
        })
        .collect();
    read_plainly(socket, &mut looked_at).map(SocketContents::Bytes)
}

/// Reads what `socket` has. Only for a socket that can have no descriptor.
pub fn read_plainly(socket: &impl AsFd, runs: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
    let mut no_room = RecvAncillaryBuffer::default();
    let message = rustix::net::recvmsg(socket, runs, &mut no_room, RecvFlags::DONTWAIT)?;
    Ok(message.bytes)
}
