//! A listening address: hands accepted connections to the server.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use crate::driver::clock;
use crate::driver::io::{CALLS_AT_ONCE, EventFlags, IoThread, Registration, Source};
use crate::driver::refusing::Refused;
use crate::error::{Error, Result, Status};
use crate::lines::Lines;
use crate::proto::RoleTags;
use crate::transport::{Connection, Listener, checked};

/// Gets an accepted connection, on the I/O thread.
pub type OnAccept = Box<dyn Fn(Box<dyn Connection>) -> Result<(), NotServed> + Send + Sync>;

/// A connection that was accepted but is not served.
pub struct NotServed {
    /// For the log. Counts as a failure of the listener, except `Permission`, `Disconnected` and
    /// `Busy`.
    pub error: Error,
    /// The connection, and the answer to its request.
    pub refused: Option<(Box<dyn Connection>, Error)>,
}

impl From<Error> for NotServed {
    fn from(error: Error) -> Self {
        Self {
            error,
            refused: None,
        }
    }
}

/// A listener that an I/O thread watches. Dropping it stops listening.
pub struct Acceptor {
    io: IoThread,
    me: Weak<Self>,
    tags: RoleTags,
    on_accept: OnAccept,
    state: Mutex<Accepting>,
}

struct Accepting {
    /// `None` once closed.
    listener: Option<Box<dyn Listener>>,
    /// `None` once closed, and while the listener is not watched for a [`PAUSE`].
    registration: Option<Registration>,
    has_timer: bool,
    refused: Vec<Refused>,
    /// Connections that were not accepted.
    not_accepted: u64,
    lines: Lines,
}

/// How long a failing listener is not watched, because epoll would report it again and again. Also
/// the time between two looks at refused connections.
const PAUSE: Duration = Duration::from_millis(100);
/// Most refused connections that wait for their answer. Beyond this number the oldest are closed
/// without an answer, because each holds a file descriptor of this process.
const MOST_REFUSED: usize = 8;

impl Acceptor {
    /// Begins to accept. Fails if the system cannot watch the listener.
    pub fn start(
        listener: Box<dyn Listener>,
        io: &IoThread,
        tags: RoleTags,
        on_accept: OnAccept,
    ) -> Result<Arc<Self>> {
        let acceptor = Arc::new_cyclic(|me| Self {
            io: io.clone(),
            me: Weak::clone(me),
            tags,
            on_accept,
            state: Mutex::new(Accepting {
                listener: Some(listener),
                registration: None,
                has_timer: false,
                refused: Vec::new(),
                not_accepted: 0,
                lines: Lines::default(),
            }),
        });
        acceptor.watch(&mut acceptor.state.lock())?;
        acceptor.ready();
        Ok(acceptor)
    }

    /// Stops listening, and frees the address, at once.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.registration = None;
        state.listener = None;
        state.refused.clear();
    }

    /// How many connections were not accepted.
    pub fn not_accepted(&self) -> u64 {
        self.state.lock().not_accepted
    }

    /// Makes the I/O thread watch the listener. The lock keeps that thread from calling before the
    /// registration is stored.
    fn watch(&self, state: &mut Accepting) -> Result<()> {
        if let Some(listener) = &state.listener
            && state.registration.is_none()
        {
            let fds = [listener.fd()];
            let registration = self.io.register(self.source(), fds, EventFlags::IN)?;
            state.registration = Some(registration);
        }
        Ok(())
    }

    fn pause(&self, state: &mut Accepting) {
        state.registration = None;
        self.call_later(state);
    }

    fn call_later(&self, state: &mut Accepting) {
        if !std::mem::replace(&mut state.has_timer, true) {
            self.io.call_at(clock::after(PAUSE), self.source());
        }
    }

    fn refuse(&self, state: &mut Accepting, refused: Option<(Box<dyn Connection>, Error)>) {
        let refused = refused.or_else(|| state.listener.as_mut().and_then(|it| it.refused()));
        let Some((connection, why)) = refused else {
            return;
        };
        let mut refused = Refused::new(connection, why);
        if !refused.answer(self.tags) {
            return;
        }
        // A client sends its request soon. If there are too many, the oldest connections are
        // closed.
        state.refused.retain_mut(|it| it.answer(self.tags));
        if state.refused.len() >= MOST_REFUSED {
            state.refused.remove(0);
        }
        state.refused.push(refused);
        self.call_later(state);
    }

    /// Accepts one connection. Returns whether the listener works, or `None` if no other connection
    /// waits.
    fn accept_one(&self) -> Option<bool> {
        let accepted = match &mut *self.state.lock() {
            Accepting {
                listener: Some(listener),
                registration: Some(_),
                ..
            } => listener.accept(),
            _ => return None,
        };
        let served = match accepted {
            Ok(None) => return None,
            Ok(Some(connection)) => (self.on_accept)(checked::offer(connection)),
            Err(error) => Err(error.into()),
        };
        let NotServed { error, refused } = match served {
            Ok(()) => return Some(true),
            Err(not_served) => not_served,
        };
        let mut state = self.state.lock();
        state.not_accepted += 1;
        warn_not_accepted(&state.lines, &error);
        self.refuse(&mut state, refused);
        match error.status() {
            Status::OutOfResources | Status::OutOfMemory => {
                self.pause(&mut state);
                None
            }
            // A peer that may not connect, or has gone already, is no fault of the listener.
            status => Some(matches!(
                status,
                Status::Permission | Status::Disconnected | Status::Busy
            )),
        }
    }

    fn source(&self) -> Weak<dyn Source> {
        Weak::clone(&self.me) as Weak<Self>
    }
}

fn warn_not_accepted(lines: &Lines, error: &Error) {
    lines.say(|more| tracing::warn!("a connection was not accepted: {error}{more}"));
}

impl Source for Acceptor {
    fn ready(&self) {
        let mut works = false;
        for _ in 0..CALLS_AT_ONCE {
            match self.accept_one() {
                Some(one) => works |= one,
                None => return,
            }
        }
        if works {
            self.io.call_soon(self.source());
        } else {
            self.pause(&mut self.state.lock());
        }
    }

    fn timer(&self) {
        {
            let mut state = self.state.lock();
            state.has_timer = false;
            state.refused.retain_mut(|it| it.answer(self.tags));
            if !state.refused.is_empty() {
                self.call_later(&mut state);
            }
            if let Err(error) = self.watch(&mut state) {
                warn_not_accepted(&state.lines, &error);
                return self.pause(&mut state);
            }
        }
        self.ready();
    }
}

#[cfg(test)]
#[path = "acceptor_tests.rs"]
mod tests;
