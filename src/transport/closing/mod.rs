//! Descriptors whose close may wait, for as long as a stranger wants it to.
//!
//! | what is closed | what the system may wait for |
//! |---|---|
//! | a TCP socket of the peer's with `SO_LINGER` | that the other end reads what was sent to it |
//! | a file of a file system in user space (FUSE) | its server's answer, whatever the signals |
//! | a Unix socket with descriptors of the peer's in its queue | each of these |
//! | a listening one with connections that nobody has accepted | the same of each |
//! | any Unix socket, before Linux 6.9 | what others left in flight, which that call may collect |
//!
//! So an I/O thread, or a thread of the host's, closes a [`Socket`] only if the system has barred
//! descriptors from it ([`rights`]), or if none is left in its queue. All other sockets are closed
//! by threads of ours ([`closer`]), which exist only while something is left to close.
//!
//! A descriptor that is not expected is left in its socket. If this process opened a file in user
//! space, the process could not end before that file system allows it.

pub mod closer;

use std::io::IoSliceMut;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use rustix::net::{Shutdown, sockopt};

use crate::fork::Generation;
use crate::transport::rights::{self, SocketContents};

/// The most reads of a queue before its socket is closed. After these the queue counts as not
/// empty.
const MOST_LOOKS: u32 = 64;
/// Stands for a user that is not known.
const UNKNOWN_USER: u32 = u32::MAX;

/// A Unix socket that admits no descriptor until [`pass`](Self::pass) lets it.
#[derive(Debug)]
pub struct Socket {
    /// Taken out when it is dropped.
    fd: ManuallyDrop<OwnedFd>,
    generation: Generation,
    /// The system can bar descriptors.
    bars: bool,
    /// Descriptors were barred all the time since the socket was made.
    barred: AtomicBool,
    listens: bool,
    /// Other processes have the socket too.
    pub is_given: bool,
    /// The user at the other end.
    user: OnceLock<u32>,
}

impl Socket {
    /// Takes over a socket that is not connected yet, or has just been accepted.
    pub fn new(fd: OwnedFd) -> Self {
        let bars = rights::pass(&fd, false);
        if !bars {
            keep_in_line(&fd);
        }
        Self {
            fd: ManuallyDrop::new(fd),
            generation: Generation::now(),
            bars,
            barred: AtomicBool::new(bars),
            listens: false,
            is_given: false,
            user: OnceLock::new(),
        }
    }

    /// Marks the socket as one that will listen: its drop frees the name before it returns.
    pub fn listening(self) -> Self {
        let mut socket = self;
        socket.listens = true;
        socket
    }

    /// Marks a socket that other processes have too and will go on using: the drop does not shut it
    /// down.
    pub fn given(self) -> Self {
        let mut socket = self;
        socket.is_given = true;
        socket
    }

    /// Charges what the peer sends to this user.
    pub fn belongs_to(&self, user: u32) {
        let _ = self.user.set(user);
    }

    /// Whether descriptors were barred all the time since the socket was made.
    pub fn is_barred(&self) -> bool {
        self.barred.load(Ordering::Relaxed)
    }

    /// Admits descriptors, or bars them again.
    pub fn pass(&self, may: bool) {
        if !self.bars {
            return;
        }
        if may && self.barred.swap(false, Ordering::Relaxed) {
            keep_in_line(&self.fd);
        }
        rights::pass(&*self.fd, may);
    }
}

/// Makes out-of-band bytes stay in the queue. Otherwise a read skips such a byte and closes the
/// descriptor that came with it.
fn keep_in_line(fd: &OwnedFd) {
    let _ = sockopt::set_socket_oobinline(fd, true);
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // SAFETY: `self` is being dropped: nothing uses the field afterwards.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        // A forked child has no such threads, and its parent has the socket too.
        if self.is_barred() || self.is_given || !self.generation.is_same_process() {
            return;
        }
        // After this, nothing more enters the queue, and the peer learns of the end now.
        let _ = rustix::net::shutdown(&fd, Shutdown::Both);
        if self.listens {
            closer::close_and_wait(fd);
        } else if !holds_nothing(&fd) {
            let user = self.user.get().copied();
            closer::close(fd, Some(user.unwrap_or(UNKNOWN_USER)));
        } else if !self.bars {
            closer::close(fd, None);
        }
    }
}

/// Whether nothing is left in the queue of a socket that receives nothing more. Reads the bytes out
/// of it.
fn holds_nothing(fd: &OwnedFd) -> bool {
    let mut bytes = [0; 4096];
    for _ in 0..MOST_LOOKS {
        match rights::read_without(fd, &mut [IoSliceMut::new(&mut bytes)]) {
            Ok(SocketContents::Descriptor) => return false,
            // The socket was not connected.
            Ok(SocketContents::Bytes(0)) | Err(Errno::INVAL | Errno::NOTCONN | Errno::AGAIN) => {
                return true;
            }
            // An error may also be the reset of the peer, which is reported only once.
            Ok(SocketContents::Bytes(_)) | Err(_) => {}
        }
    }
    false
}

/// A descriptor that a peer has sent.
///
/// At the drop, memory (a memfd) is closed at once, and everything else by the closer. For a
/// socket, lingering is turned off first.
#[derive(Debug)]
pub struct Foreign {
    /// Taken out when it is dropped.
    fd: ManuallyDrop<OwnedFd>,
    user: u32,
}

impl Foreign {
    /// `user` has sent it.
    pub fn new(fd: OwnedFd, user: u32) -> Self {
        Self {
            fd: ManuallyDrop::new(fd),
            user,
        }
    }

    /// The descriptor, for the calls of a driver.
    pub fn get(&self) -> &OwnedFd {
        &self.fd
    }

    /// The descriptor; from now on the caller must close it.
    pub fn into_inner(self) -> OwnedFd {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped, so that nothing else uses the field afterwards.
        unsafe { ManuallyDrop::take(&mut this.fd) }
    }

    /// Whether it is a memfd. A memfd can be closed and queried without waiting.
    pub fn is_memory(&self) -> bool {
        // This must be the first query: any other may be answered by a file system in user space.
        rustix::fs::fcntl_get_seals(&*self.fd).is_ok()
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let is_memory = self.is_memory();
        // SAFETY: `self` is being dropped: nothing uses the field afterwards.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        if is_memory {
            return;
        }
        // Only sockets have this option.
        let _ = sockopt::set_socket_linger(&fd, None);
        closer::close(fd, Some(self.user));
    }
}

#[cfg(test)]
mod tests;
