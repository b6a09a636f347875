//! Tells the host of a stream that its client has gone.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::OnceLock;

use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::cancel::Cancel;
use crate::driver::host_fd::HostFd;
use crate::error::Result;

/// Hears that a stream has lost its client.
#[derive(Default)]
pub struct ClientWatch {
    loss: Mutex<Loss>,
    /// Cancelled with the stream; made when it is asked for.
    token: OnceLock<(Cancel, HostFd)>,
}

#[derive(Default)]
struct Loss {
    is_lost: bool,
    then: SmallVec<[Box<dyn FnOnce() + Send>; 1]>,
}

impl ClientWatch {
    /// The client has gone or has cancelled. No lock of a connection is held.
    pub fn lost(&self) {
        let then = {
            let mut loss = self.loss.lock();
            loss.is_lost = true;
            // Under the lock, under which a token that is made later looks first.
            if let Some((token, _)) = self.token.get() {
                token.cancel();
            }
            std::mem::take(&mut loss.then)
        };
        then.into_iter().for_each(|then| then());
    }

    /// Calls `then` once the client has gone or has cancelled, which may be now.
    pub fn when_lost(&self, then: Box<dyn FnOnce() + Send>) {
        let mut loss = self.loss.lock();
        if loss.is_lost {
            drop(loss);
            then();
        } else {
            loss.then.push(then);
        }
    }

    /// Whether the client has gone or has cancelled.
    pub fn is_lost(&self) -> bool {
        self.loss.lock().is_lost
    }

    /// A descriptor that is readable once the client has gone or has cancelled.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the process has no file descriptor left.
    pub fn fd(&self) -> Result<BorrowedFd<'_>> {
        let loss = self.loss.lock();
        let (token, fd) = match self.token.get() {
            Some(token) => token,
            None => {
                let token = Cancel::new()?;
                let fd = HostFd::twin(&token)?;
                self.token.get_or_init(|| (token, fd))
            }
        };
        if loss.is_lost {
            token.cancel();
        }
        Ok(fd.as_fd())
    }
}
