//! What passes a socket: the frames as they are, or records of TLS with the frames in them.

use std::io::IoSliceMut;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use crate::error::Error;
use crate::transport::stream::{Outbox, Wire};
use crate::transport::tcp::Tcp;
#[cfg(feature = "tls")]
use crate::transport::tcp::tls::records::Records;

/// [`Wire`] of tcp and tls.
pub enum TcpWire {
    /// The bytes as they are.
    Plain(PlainWire),
    /// Encrypted.
    #[cfg(feature = "tls")]
    Tls(Box<Records>),
}

/// Bytes as they are: nothing comes beside them.
pub struct PlainWire;

impl Wire for PlainWire {
    fn read(
        &mut self,
        socket: BorrowedFd<'_>,
        runs: &mut [IoSliceMut<'_>],
    ) -> Result<usize, Errno> {
        rustix::io::readv(socket, runs)
    }
}

impl TcpWire {
    /// The transport that it is of.
    pub fn transport(&self) -> Tcp {
        match self {
            Self::Plain(_) => Tcp::PLAIN,
            #[cfg(feature = "tls")]
            Self::Tls(_) => Tcp::TLS,
        }
    }

    fn get(&self) -> &dyn Wire {
        match self {
            Self::Plain(plain) => plain,
            #[cfg(feature = "tls")]
            Self::Tls(records) => &**records,
        }
    }

    fn get_mut(&mut self) -> &mut dyn Wire {
        match self {
            Self::Plain(plain) => plain,
            #[cfg(feature = "tls")]
            Self::Tls(records) => &mut **records,
        }
    }
}

impl Wire for TcpWire {
    fn read(
        &mut self,
        socket: BorrowedFd<'_>,
        runs: &mut [IoSliceMut<'_>],
    ) -> Result<usize, Errno> {
        self.get_mut().read(socket, runs)
    }

    fn was_cut_short(&self) -> bool {
        self.get().was_cut_short()
    }

    fn write(&mut self, socket: BorrowedFd<'_>, outbox: &mut Outbox) -> Result<bool, Errno> {
        self.get_mut().write(socket, outbox)
    }

    fn unsent(&self) -> u64 {
        self.get().unsent()
    }

    fn end(&mut self, socket: BorrowedFd<'_>) {
        self.get_mut().end(socket);
    }

    fn explain(&self, errno: Errno) -> Option<Error> {
        self.get().explain(errno)
    }

    fn clear(&mut self) {
        self.get_mut().clear();
    }
}
