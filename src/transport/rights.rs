//! Which descriptors come through a Unix socket (SCM_RIGHTS).
//!
//! A peer can send one beside any byte. Reading the byte takes the descriptor out of the socket,
//! and closing it may wait for as long as the peer likes. So none is let in but where one may come.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, ReturnFlags};

/// `SO_PASSRIGHTS` of Linux 6.16 (asm-generic/socket.h), which the crates do not name yet.
const SO_PASSRIGHTS: libc::c_int = 83;

#[cfg(test)]
thread_local! {
    /// On this thread the system is one that cannot bar descriptors.
    pub static CANNOT_BAR: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Lets descriptors be sent to `socket`, and to those that it accepts, or has senders told EPERM.
/// Returns false where the system cannot bar descriptors.
pub fn pass(socket: &impl AsFd, may: bool) -> bool {
    #[cfg(test)]
    if CANNOT_BAR.get() {
        return false;
    }
    // There the number means something else.
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

/// What a look into a socket shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketContents {
    /// As many bytes, none of which brings a descriptor; 0 is the end.
    Bytes(usize),
    /// A descriptor, beside these bytes or right behind them.
    Descriptor,
}

/// Looks at what `socket` has, up to the room in `runs`, and takes nothing out.
pub fn look(socket: &impl AsFd, runs: &mut [IoSliceMut<'_>]) -> Result<SocketContents, Errno> {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    // Without room for a descriptor the system says that there was one. What it lets go of then is
    // not the last that refers to the file: the socket still has it.
    let mut no_room = RecvAncillaryBuffer::default();
    let message = rustix::net::recvmsg(socket, runs, &mut no_room, flags)?;
    Ok(if message.flags.contains(ReturnFlags::CTRUNC) {
        SocketContents::Descriptor
    } else {
        SocketContents::Bytes(message.bytes)
    })
}

/// Reads what `socket` has, unless a descriptor is there: then nothing is taken out.
pub fn read_without(
    socket: &impl AsFd,
    runs: &mut [IoSliceMut<'_>],
) -> Result<SocketContents, Errno> {
    let seen = look(socket, runs)?;
    let SocketContents::Bytes(len) = seen else {
        return Ok(seen);
    };
    // No more than was looked at.
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

/// Reads what `socket` has, where no descriptor can be there.
pub fn read_plainly(socket: &impl AsFd, runs: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
    let mut no_room = RecvAncillaryBuffer::default();
    let message = rustix::net::recvmsg(socket, runs, &mut no_room, RecvFlags::DONTWAIT)?;
    Ok(message.bytes)
}
