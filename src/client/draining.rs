//! Streams that go on without a consumer, for the sake of their connections.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use super::{Inner, Key, SILENCE_TIMEOUT, retire_all};
use crate::driver::clock;
use crate::driver::fetch::{Discarded, Fetch};
use crate::driver::io::{Interest, IoThread, Registration, Source};
use crate::lines::Lines;
use crate::proto::Timestamp;

/// A stream that its consumer has left: the I/O thread reads it to its end.
///
/// It owns itself until then: the client may be gone, and the connection must still be read, since
/// arrays of the stream may keep it.
pub(super) struct Draining {
    client: Weak<Inner>,
    /// Boxed: a timer keeps the memory of this for up to [`LOOK_AGAIN`] after the stream is over.
    state: Mutex<Option<Box<Left>>>,
    registration: Mutex<Option<Registration>>,
    own: Mutex<Option<Arc<Self>>>,
}

/// How often the time is looked at: a timer cannot be taken back.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What its consumer left.
struct Left {
    fetch: Box<Fetch>,
    key: Option<Key>,
    io: IoThread,
    /// When the server last sent something, and how long it may be silent: a stream whose end it never
    /// says would keep its connection for ever.
    heard: Timestamp,
    patience: Duration,
}

impl Draining {
    pub(super) fn start(client: &Weak<Inner>, mut fetch: Box<Fetch>, key: Option<Key>) {
        let links = fetch.links();
        let Some(io) = links.first().map(|link| link.io().clone()) else {
            return;
        };
        let fds = fetch.descriptors();
        let patience = fetch.stall_timeout().unwrap_or(SILENCE_TIMEOUT);
        let left = Left {
            fetch,
            key,
            io: io.clone(),
            heard: clock::now(),
            patience,
        };
        let draining = Arc::new(Self {
            client: Weak::clone(client),
            state: Mutex::new(Some(Box::new(left))),
            registration: Mutex::new(None),
            own: Mutex::new(None),
        });
        *draining.own.lock() = Some(Arc::clone(&draining));
        let source = Arc::downgrade(&draining);
        let registered = {
            // Under the lock, so that an end waits until the registration is in its place.
            let mut registration = draining.registration.lock();
            match io.register(source, fds, Interest::Read) {
                Ok(registered) => *registration = Some(registered),
                Err(error) => tracing::warn!("a cancelled stream is cut: {error}"),
            }
            registration.is_some()
        };
        if !registered {
            draining.end();
            return;
        }
        // What could not be written at once, the cancel itself perhaps, waits for room and not for words.
        for link in links.iter().filter(|link| link.is_writing()) {
            link.retry_writing();
        }
        draining.ready();
        draining.look_again_later();
    }

    /// Forgets the stream, and gives its connection back where it can be used again.
    fn end(&self) {
        self.registration.lock().take();
        let state = self.state.lock().take();
        if let Some(left) = state {
            let Left { mut fetch, key, .. } = *left;
            match self.client.upgrade() {
                Some(client) if fetch.is_settled() => client.keep(&mut fetch, key),
                None if fetch.is_settled() => retire_all(&fetch),
                _ => fetch.close(),
            }
        }
        let own = self.own.lock().take();
        drop(own);
    }

    /// Looks when the server may have been silent for too long, or before.
    fn look_again_later(&self) {
        let due = self.state.lock().as_ref().map(|left| {
            let due = left.patience.saturating_sub(clock::since(left.heard));
            (clock::after(due.min(LOOK_AGAIN)), left.io.clone())
        });
        let own = self.own.lock();
        if let (Some((due, io)), Some(own)) = (due, own.as_ref()) {
            let own: Weak<Self> = Arc::downgrade(own);
            io.call_at(due, own);
        }
    }
}

impl Source for Draining {
    fn ready(&self) {
        let (discarded, io) = match self.state.lock().as_deref_mut() {
            Some(left) => {
                let discarded = left.fetch.discard();
                if discarded != Discarded::Nothing {
                    left.heard = clock::now();
                }
                (discarded, left.io.clone())
            }
            None => return,
        };
        match discarded {
            Discarded::Over => self.end(),
            Discarded::More => {
                let own = self.own.lock();
                let source = own.as_ref().map(Arc::downgrade);
                if let Some(source) = source {
                    io.call_soon(source);
                }
            }
            Discarded::Some | Discarded::Nothing => {}
        }
    }

    fn timer(&self) {
        let silent = self.state.lock().as_ref().map(|left| {
            let silent = clock::since(left.heard);
            (silent >= left.patience).then_some(silent)
        });
        match silent {
            Some(Some(silent)) => {
                static SAID: Lines = Lines::new();
                SAID.say(|more| {
                    tracing::warn!(
                        "a cancelled stream is cut: its server has not said its end for \
                         {silent:?}{more}"
                    );
                });
                self.end();
            }
            Some(None) => self.look_again_later(),
            None => {}
        }
    }

    fn turn(&self) {
        self.ready();
    }
}
