//! Tells the host of a stream that its client has gone.

use std::os::fd::{AsFd as _, BorrowedFd};

use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::cancel::Cancel;
use crate::driver::host_fd::HostFd;
use crate::error::{Error, Result};

/// Learns that a stream has lost its client.
#[derive(Default)]
pub struct ClientWatch {
    loss: Mutex<Loss>,
    /// A token that is cancelled when the client is lost; made when it is first asked for.
    token: OnceCell<(Cancel, HostFd)>,
}

/// Whether the client is there.
enum Loss {
    /// The client is there, and these calls wait for its loss.
    Ahead(SmallVec<[Box<dyn FnOnce() + Send>; 1]>),
    /// It has gone or has cancelled.
    Lost,
}

impl Default for Loss {
    fn default() -> Self {
        Self::Ahead(SmallVec::new())
    }
}

impl ClientWatch {
    /// The client has gone or has cancelled. No lock of a connection is held.
    pub fn lost(&self) {
        let before = {
            let mut loss = self.loss.lock();
            // Under the same lock, a token that is made later looks first whether the client is
            // lost.
            if let Some((token, _)) = self.token.get() {
                token.cancel();
            }
            std::mem::replace(&mut *loss, Loss::Lost)
        };
        if let Loss::Ahead(calls) = before {
            calls.into_iter().for_each(|call| call());
        }
    }

    /// Calls `then` once the client has gone or has cancelled, which may be now.
    pub fn when_lost(&self, then: Box<dyn FnOnce() + Send>) {
        match &mut *self.loss.lock() {
            Loss::Ahead(calls) => return calls.push(then),
            Loss::Lost => {}
        }
        then();
    }

    /// Whether the client has gone or has cancelled.
    pub fn is_lost(&self) -> bool {
        matches!(*self.loss.lock(), Loss::Lost)
    }

    /// A descriptor that is readable once the client has gone or has cancelled.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the process has no file descriptor left.
    pub fn fd(&self) -> Result<BorrowedFd<'_>> {
        let loss = self.loss.lock();
        let (token, fd) = self.token.get_or_try_init(|| {
            let token = Cancel::new()?;
            let fd = HostFd::twin(token.fd()?)?;
            Ok::<_, Error>((token, fd))
        })?;
        if let Loss::Lost = *loss {
            token.cancel();
        }
        Ok(fd.as_fd())
    }
}
