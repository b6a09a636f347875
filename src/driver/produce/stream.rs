//! A stream on its way out, as its connections, its request and its thread share it.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::cancel::Cancel;
use crate::driver::served::ServedLink;
use crate::driver::signal::{Signal, Wake};
use crate::error::Result;
use crate::proto::{Role, Timestamp};

/// A stream as its connections, its request and its thread share it.
pub struct OutStream {
    /// The ticket asked for.
    pub ticket: Vec<u8>,
    /// Who asked first.
    pub peer: String,
    pub(super) signal: Arc<Told>,
    /// A second connection can find the stream by the id of its request (rule E6).
    pub(super) joinable: bool,
    pub(super) outlets: Mutex<Outlets>,
    /// Somebody is about to fail it, and waits for whoever drives it.
    given_up: AtomicBool,
}

/// What the connections of a stream tell it.
#[derive(Default)]
pub(super) struct Told {
    /// Changes, for whoever drives the stream.
    changes: Signal,
    loss: Mutex<Loss>,
    /// Cancelled with the stream; made when it is asked for.
    token: OnceLock<Cancel>,
}

/// Whether a stream has lost its client.
#[derive(Default)]
struct Loss {
    is_lost: bool,
    /// Called once that is so.
    then: Option<Box<dyn FnOnce() + Send>>,
}

impl Told {
    pub(super) fn changes(&self) -> u64 {
        self.changes.changes()
    }

    pub(super) fn wait(&self, seen: u64, deadline: Option<Timestamp>) -> bool {
        self.changes.wait(seen, deadline)
    }
}

impl Wake for Told {
    fn notify(&self) {
        self.changes.notify();
    }

    fn lost(&self) {
        let then = {
            let mut loss = self.loss.lock();
            loss.is_lost = true;
            // Under the lock, under which one that comes later looks first.
            if let Some(token) = self.token.get() {
                token.cancel();
            }
            loss.then.take()
        };
        if let Some(then) = then {
            then();
        }
    }

    fn wakes_a_thread(&self) -> bool {
        true
    }
}

/// The connections of a stream.
pub(super) struct Outlets {
    pub(super) present: Vec<Arc<ServedLink>>,
    pub(super) roles: Vec<Role>,
    /// The stream is over: nobody may join any more.
    pub(super) over: bool,
}

impl OutStream {
    /// A stream asked for by `link`. `joinable`: the part that `link` does not carry may be asked
    /// for by another connection.
    pub fn new(ticket: Vec<u8>, link: &Arc<ServedLink>, role: Role, joinable: bool) -> Arc<Self> {
        let signal = Arc::new(Told::default());
        listen(link, &signal);
        Arc::new(Self {
            ticket,
            peer: link.peer().to_owned(),
            signal,
            joinable,
            outlets: Mutex::new(Outlets {
                present: vec![Arc::clone(link)],
                roles: vec![role],
                over: false,
            }),
            given_up: AtomicBool::new(false),
        })
    }

    /// Adds the connection for the other part of the stream. Returns whether it was wanted.
    pub fn join(&self, link: &Arc<ServedLink>, role: Role) -> bool {
        let mut outlets = self.outlets.lock();
        let wanted = match outlets.roles.as_slice() {
            [Role::Metadata] => role == Role::Data,
            [Role::Data] => role == Role::Metadata,
            _ => false,
        };
        if !wanted || outlets.over {
            return false;
        }
        listen(link, &self.signal);
        outlets.present.push(Arc::clone(link));
        outlets.roles.push(role);
        drop(outlets);
        self.signal.notify();
        true
    }

    /// Ends each wait for the consumer, on whatever thread, now and later: the stream is to fail.
    pub fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
        self.signal.notify();
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Relaxed)
    }

    /// Calls `then` once the consumer has gone or has cancelled, which may be now. Not twice for a
    /// stream.
    pub fn when_lost(&self, then: Box<dyn FnOnce() + Send>) {
        let now = {
            let mut loss = self.signal.loss.lock();
            if loss.is_lost {
                Some(then)
            } else {
                loss.then = Some(then);
                None
            }
        };
        if let Some(then) = now {
            then();
        }
    }

    /// A descriptor that is readable once the consumer has gone or has cancelled.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the process has no file descriptor left.
    pub fn lost_fd(&self) -> Result<BorrowedFd<'_>> {
        let loss = self.signal.loss.lock();
        let token = match self.signal.token.get() {
            Some(token) => token,
            None => {
                let made = Cancel::new()?;
                self.signal.token.get_or_init(|| made)
            }
        };
        if loss.is_lost {
            token.cancel();
        }
        Ok(token.fd())
    }

    /// Whether the consumer has gone or has cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.links()
            .iter()
            .any(|link| link.ensure_streaming().is_err())
    }

    pub(super) fn links(&self) -> Vec<Arc<ServedLink>> {
        self.outlets.lock().present.clone()
    }
}

/// Has `link` tell `told` of changes from now on, and of an end that came before.
fn listen(link: &ServedLink, told: &Arc<Told>) {
    link.set_signal(Arc::clone(told) as Arc<dyn Wake>);
    if link.ensure_streaming().is_err() {
        told.lost();
    }
}
