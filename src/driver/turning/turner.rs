//! The token of a connection that the I/O thread does not own.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Bell, Budget, Link, Turn, Wants};
use crate::driver::clock;

/// The right to turn a connection. There is one at most for each connection; dropping it gives the
/// connection back to the I/O thread.
///
/// Its holder turns the connection, or sleeps on the connection's descriptors and on its own bell.
pub struct Turner<T: Turn> {
    link: Arc<Link<T>>,
    is_given_back: bool,
}

impl<T: Turn> Turner<T> {
    /// For [`Link::take`] alone.
    pub(super) fn new(link: Arc<Link<T>>) -> Self {
        link.io().holders().fetch_add(1, Ordering::Relaxed);
        Self {
            link,
            is_given_back: false,
        }
    }

    /// The connection.
    pub fn link(&self) -> &Arc<Link<T>> {
        &self.link
    }

    /// Rings `bell` from now on when another thread has changed the connection.
    pub fn set_bell(&mut self, bell: Option<Arc<Bell>>) {
        self.link.lock().bell = bell;
    }

    /// One turn. The caller settles the effects ([`Turn::settle`]).
    pub fn turn(&mut self, budget: Budget) -> (Wants, T::Effects) {
        let mut effects = T::Effects::default();
        let mut held = self.link.lock();
        held.owner.hold();
        let wants = held.end.turn(budget, &mut effects);
        (wants, effects)
    }

    /// Runs `step` under the lock, and does its effects.
    pub fn step<R>(&mut self, step: impl FnOnce(&mut T, &mut T::Effects) -> R) -> R {
        self.step_and(None, step)
    }

    /// The same, after which the caller enters the host's code: the I/O thread stands in once
    /// `patience` has passed, or at once where something could not be written.
    pub fn step_to_host<R>(
        &mut self,
        patience: Duration,
        step: impl FnOnce(&mut T, &mut T::Effects) -> R,
    ) -> R {
        self.step_and(Some(patience), step)
    }

    /// Gives the connection back to the I/O thread, which is the caller and turns it next.
    pub fn give_back_here(mut self) {
        self.is_given_back = true;
        self.link.give_back();
    }

    /// Gives the connection back. The I/O thread begins to watch it once `patience` has passed, or
    /// at once where something waits to be written: until then the caller may
    /// [take](Link::take) it again, and no system call is made.
    pub fn give_back_later(mut self, patience: Duration) -> Arc<Link<T>> {
        self.is_given_back = true;
        self.link.give_back_later(patience);
        Arc::clone(&self.link)
    }

    fn step_and<R>(
        &mut self,
        patience: Option<Duration>,
        step: impl FnOnce(&mut T, &mut T::Effects) -> R,
    ) -> R {
        let mut effects = T::Effects::default();
        let result = {
            let mut held = self.link.lock();
            held.owner.hold();
            let result = step(&mut held.end, &mut effects);
            if let Some(patience) = patience {
                let now = clock::now();
                let is_stuck = held.end.wants().write;
                let until = if is_stuck {
                    now
                } else {
                    now.saturating_add(patience)
                };
                held.owner.enter_host(until);
                self.link.watch_host(&mut held, now, &mut effects);
            }
            result
        };
        T::settle(&self.link, effects);
        result
    }
}

impl<T: Turn> Drop for Turner<T> {
    fn drop(&mut self) {
        (self.link.io().holders()).fetch_sub(1, Ordering::Relaxed);
        if !self.is_given_back && self.link.give_back() {
            self.link.io().call_soon(self.link.source());
        }
    }
}
