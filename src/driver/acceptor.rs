//! A listening address: hands accepted connections to the server.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use crate::driver::clock;
use crate::driver::io::{Interest, IoThread, Registration, Source};
use crate::error::{Result, Status};
use crate::transport::{Connection, Listener};

/// What becomes of an accepted connection; called on the I/O thread.
pub type OnAccept = Box<dyn Fn(Box<dyn Connection>) + Send + Sync>;

/// A listener that an I/O thread watches. Dropping it stops listening.
pub struct Acceptor {
    io: IoThread,
    me: Weak<Self>,
    on_accept: OnAccept,
    state: Mutex<State>,
}

struct State {
    /// `None` once closed.
    listener: Option<Box<dyn Listener>>,
    registration: Option<Registration>,
}

/// How long to leave a listener alone when the process is out of descriptors: the connection waits
/// in the backlog, and an epoll that goes on reporting it would spin.
const PAUSE: Duration = Duration::from_millis(100);

impl Acceptor {
    /// Begins to accept.
    ///
    /// # Errors
    ///
    /// Of the system, when the listener cannot be watched.
    pub fn start(
        listener: Box<dyn Listener>,
        io: &IoThread,
        on_accept: OnAccept,
    ) -> Result<Arc<Self>> {
        let fd = listener.fd();
        let acceptor = Arc::new_cyclic(|me| Self {
            io: io.clone(),
            me: Weak::clone(me),
            on_accept,
            state: Mutex::new(State {
                listener: Some(listener),
                registration: None,
            }),
        });
        let source: Weak<dyn Source> = Weak::clone(&acceptor.me) as Weak<Self>;
        {
            // Under the lock, so that the I/O thread waits until the registration is in its place.
            let mut state = acceptor.state.lock();
            state.registration = Some(io.register(source, [fd], Interest::Read)?);
        }
        acceptor.ready();
        Ok(acceptor)
    }

    /// Stops listening, and frees the address, at once.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.registration = None;
        state.listener = None;
    }

    fn watch(&self, interest: Interest) {
        if let Some(registration) = &mut self.state.lock().registration {
            registration.set_interest(interest);
        }
    }
}

impl Source for Acceptor {
    fn ready(&self) {
        loop {
            let accepted = match &mut self.state.lock().listener {
                Some(listener) => listener.accept(),
                None => return,
            };
            match accepted {
                Ok(Some(connection)) => (self.on_accept)(connection),
                Ok(None) => return,
                Err(error) if error.status() == Status::OutOfResources => {
                    tracing::error!("no connection can be accepted for now: {error}");
                    self.watch(Interest::Nothing);
                    let source: Weak<dyn Source> = Weak::clone(&self.me) as Weak<Self>;
                    self.io.call_at(clock::after(PAUSE), source);
                    return;
                }
                Err(error) => tracing::warn!("a connection was not accepted: {error}"),
            }
        }
    }

    fn timer(&self) {
        self.watch(Interest::Read);
        self.ready();
    }
}
