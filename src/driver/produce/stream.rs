//! A stream on its way out, as its connections, its request and its thread share it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::driver::served::ServedLink;
use crate::driver::signal::{Signal, Wake};
use crate::proto::Role;

/// A stream as its connections, its request and its thread share it.
pub struct OutStream {
    /// The ticket asked for.
    pub ticket: Vec<u8>,
    /// Who asked first.
    pub peer: String,
    pub(super) signal: Arc<Signal>,
    /// A second connection can find the stream by the id of its request (rule E6).
    pub(super) joinable: bool,
    pub(super) outlets: Mutex<Outlets>,
    /// Somebody is about to fail it, and waits for whoever drives it.
    given_up: AtomicBool,
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
        let signal = Arc::new(Signal::default());
        link.set_signal(Arc::clone(&signal) as Arc<dyn Wake>);
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
        link.set_signal(Arc::clone(&self.signal) as Arc<dyn Wake>);
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
