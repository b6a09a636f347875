//! Streams that go on without a consumer, for the sake of their connections.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::{Inner, Key, watch_all};
use crate::driver::fetch::{Discarded, Fetch};
use crate::driver::io::{Interest, Registration, Source};

/// A stream that its consumer has left: the I/O thread reads it to its end.
///
/// It owns itself until then: the client may be gone, and the connection must still be read, since
/// arrays of the stream may keep it.
pub(super) struct Draining {
    client: Weak<Inner>,
    state: Mutex<Option<(Fetch, Option<Key>)>>,
    registration: Mutex<Option<Registration>>,
    own: Mutex<Option<Arc<Self>>>,
}

impl Draining {
    pub(super) fn start(client: &Weak<Inner>, mut fetch: Fetch, key: Option<Key>) {
        let links = fetch.links();
        let Some(io) = links.first().map(|link| link.io().clone()) else {
            return;
        };
        let fds = fetch.descriptors();
        let draining = Arc::new(Self {
            client: Weak::clone(client),
            state: Mutex::new(Some((fetch, key))),
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
        if registered {
            draining.ready();
        } else {
            draining.end();
        }
    }

    /// Forgets the stream, and gives its connection back where it can be used again.
    fn end(&self) {
        self.registration.lock().take();
        let state = self.state.lock().take();
        if let Some((fetch, key)) = state {
            match self.client.upgrade() {
                Some(client) if fetch.is_settled() => client.keep(&fetch, key),
                None if fetch.is_settled() => watch_all(&fetch),
                _ => fetch.close(),
            }
        }
        let own = self.own.lock().take();
        drop(own);
    }
}

impl Source for Draining {
    fn ready(&self) {
        let (discarded, io) = match &mut *self.state.lock() {
            Some((fetch, _)) => (
                fetch.discard(),
                fetch.links().first().map(|link| link.io().clone()),
            ),
            None => return,
        };
        match (discarded, io) {
            (Discarded::Over, _) => self.end(),
            (Discarded::More, Some(io)) => {
                let own = self.own.lock();
                let source = own.as_ref().map(Arc::downgrade);
                if let Some(source) = source {
                    io.call_soon(source);
                }
            }
            (Discarded::More | Discarded::All, _) => {}
        }
    }

    fn turn(&self) {
        self.ready();
    }
}
