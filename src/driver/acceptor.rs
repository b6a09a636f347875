//! A listening address: hands accepted connections to the server.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use crate::driver::clock;
use crate::driver::io::{Interest, IoThread, Registration, Source};
use crate::driver::refusing::Refused;
use crate::driver::spare::SpareDescriptor;
use crate::error::{Error, Result, Status};
use crate::lines::Lines;
use crate::proto::RoleTags;
use crate::transport::{Connection, Listener};

/// What becomes of an accepted connection; called on the I/O thread. An error is taken for one of
/// the listener's.
pub type OnAccept = Box<dyn Fn(Box<dyn Connection>) -> Result<()> + Send + Sync>;

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
    /// `None` also while the listener is left alone.
    registration: Option<Registration>,
    /// Calls since the last connection that gave none.
    in_vain: u32,
    /// The acceptor is called soon; one timer, whatever it is for.
    has_timer: bool,
    /// Those whose requests are to be answered by a refusal.
    refused: Vec<Refused>,
    /// For the time when no descriptor is left.
    spare: SpareDescriptor,
    /// About connections that were not accepted.
    lines: Lines,
}

/// How long to leave a listener alone that gives nothing but errors, or is said to have something
/// and has not. What the process is short of may be there then; and an epoll that goes on reporting
/// the listener would spin. Connections that are refused are looked at as often.
const PAUSE: Duration = Duration::from_millis(100);
/// As many calls in vain, one after the other, are the listener's fault and not the peers'.
const MOST_IN_VAIN: u32 = 64;
/// Connections that are refused at a time and told so; others are closed without a word. They are
/// those of strangers, and hold descriptors.
const MOST_REFUSED: usize = 8;
/// Connections accepted before those that are there have their turn.
const CONNECTIONS_AT_ONCE: usize = 64;

impl Acceptor {
    /// Begins to accept.
    ///
    /// # Errors
    ///
    /// Of the system, when the listener cannot be watched.
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
                in_vain: 0,
                has_timer: false,
                refused: Vec::new(),
                spare: SpareDescriptor::new(),
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
        state.spare.close();
    }

    /// Has the I/O thread watch the listener. Under the lock, so that the thread waits until the
    /// registration is in its place.
    fn watch(&self, state: &mut Accepting) -> Result<()> {
        if let Some(listener) = &state.listener
            && state.registration.is_none()
        {
            let fds = [listener.fd()];
            let registration = self.io.register(self.source(), fds, Interest::Read)?;
            state.registration = Some(registration);
        }
        Ok(())
    }

    /// Leaves the listener alone for a while. It is not watched at all: epoll reports a descriptor
    /// that has failed whatever it is watched for.
    fn pause(&self, state: &mut Accepting) {
        state.registration = None;
        state.in_vain = 0;
        self.call_later(state);
    }

    fn call_later(&self, state: &mut Accepting) {
        if !std::mem::replace(&mut state.has_timer, true) {
            self.io.call_at(clock::after(PAUSE), self.source());
        }
    }

    /// Answers the peer that the listener has refused, now or later.
    fn refuse(&self, state: &mut Accepting) {
        let refused = state.listener.as_mut().and_then(|it| it.refused());
        if let Some((connection, why)) = refused
            && state.refused.len() < MOST_REFUSED
        {
            let mut refused = Refused::new(connection, why);
            if refused.answer(self.tags) {
                state.refused.push(refused);
                self.call_later(state);
            }
        }
    }

    /// Accepts one connection. Returns whether there may be another one.
    fn accept_one(&self) -> bool {
        let accepted = match &mut *self.state.lock() {
            Accepting {
                listener: Some(listener),
                registration: Some(_),
                spare,
                ..
            } => {
                let accepted = listener.accept();
                if let Ok(Some(_)) = accepted {
                    spare.keep();
                }
                accepted
            }
            _ => return false,
        };
        let taken = match accepted {
            Ok(Some(connection)) => (self.on_accept)(connection).map(|()| true),
            Ok(None) => Ok(false),
            Err(error) => Err(error),
        };
        let mut state = self.state.lock();
        // A peer that may not connect, or has gone already, is no fault of the listener.
        let turned_down =
            |error: &Error| matches!(error.status(), Status::Permission | Status::Disconnected);
        if taken.as_ref().map_or_else(turned_down, |taken| *taken) {
            state.in_vain = 0;
        } else {
            state.in_vain += 1;
        }
        if let Ok(true) = taken {
            state.spare.there_are_others();
            return true;
        }
        let mut pauses = state.in_vain >= MOST_IN_VAIN;
        if let Err(error) = &taken {
            say_not_accepted(&state.lines, error);
            self.refuse(&mut state);
            let status = error.status();
            pauses |= matches!(status, Status::OutOfResources | Status::OutOfMemory);
            let Accepting {
                listener, spare, ..
            } = &mut *state;
            if status == Status::OutOfResources
                && let Some(listener) = listener
            {
                spare.take_one(listener.as_mut(), self.tags);
            }
        }
        if pauses {
            self.pause(&mut state);
        }
        taken.is_err() && !pauses
    }

    fn source(&self) -> Weak<dyn Source> {
        Weak::clone(&self.me) as Weak<Self>
    }
}

fn say_not_accepted(lines: &Lines, error: &Error) {
    lines.say(|more| tracing::warn!("a connection was not accepted: {error}{more}"));
}

impl Source for Acceptor {
    fn ready(&self) {
        for _ in 0..CONNECTIONS_AT_ONCE {
            if !self.accept_one() {
                return;
            }
        }
        // The rest when the connections have had their turn.
        self.io.call_soon(self.source());
    }

    fn turn(&self) {
        self.ready();
    }

    fn timer(&self) {
        {
            let mut state = self.state.lock();
            state.has_timer = false;
            state.refused.retain_mut(|it| it.answer(self.tags));
            let is_open = state.listener.is_some();
            if is_open && (state.spare.answer(self.tags) || !state.refused.is_empty()) {
                self.call_later(&mut state);
            }
            if let Err(error) = self.watch(&mut state) {
                say_not_accepted(&state.lines, &error);
                return self.pause(&mut state);
            }
        }
        self.ready();
    }
}

#[cfg(test)]
#[path = "acceptor_tests.rs"]
mod tests;
