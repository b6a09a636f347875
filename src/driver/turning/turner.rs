//! The token of a connection that the I/O thread does not own.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::ownership::GiveBack;
use super::{Link, Turn};
use crate::driver::bell::Bell;

/// The right to turn a connection. Its holder turns the connection, or sleeps on the connection's
/// descriptors and its own bell. Dropping it gives the connection back to the I/O thread.
///
/// There is one at most, but for a connection with a stream in each direction: its two streams
/// [share](Self::share) the right. The bell of either rings after each step of the other, which may
/// have read what the first waits for.
pub struct Turner<T: Turn> {
    link: Arc<Link<T>>,
    /// 0, or 1 for the second one.
    number: usize,
    way: GiveBack,
}

impl<T: Turn> Turner<T> {
    pub(super) fn new(link: Arc<Link<T>>) -> Self {
        link.io().holders().fetch_add(1, Ordering::Relaxed);
        Self {
            link,
            number: 0,
            way: GiveBack::Now,
        }
    }

    /// A second token for the same connection, which is given back with the last one.
    pub fn share(&mut self) -> Self {
        self.link.lock().is_shared = true;
        let mut other = Self::new(Arc::clone(&self.link));
        other.number = 1 - self.number;
        other
    }

    /// The connection.
    pub fn link(&self) -> &Arc<Link<T>> {
        &self.link
    }

    /// Rings `bell` from now on when another thread has changed the connection.
    pub fn set_bell(&mut self, bell: Option<Arc<Bell>>) {
        self.link.lock().bells[self.number] = bell;
    }

    /// Runs `step` under the lock, and does its effects.
    pub fn step<R>(&mut self, step: impl FnOnce(&mut T, &mut T::Effects) -> R) -> R {
        self.step_and(false, step)
    }

    /// The same, after which the caller enters the host's code.
    pub fn step_to_host<R>(&mut self, step: impl FnOnce(&mut T, &mut T::Effects) -> R) -> R {
        self.step_and(true, step)
    }

    /// Gives the connection back to the I/O thread, which is the caller and turns it next.
    pub fn give_back_here(mut self) {
        self.way = GiveBack::Here;
    }

    /// Gives the connection back. The I/O thread begins to watch it a little later: until then the
    /// caller may [acquire](Link::acquire) it again without a system call.
    pub fn give_back_later(mut self) -> Arc<Link<T>> {
        self.way = GiveBack::Later;
        Arc::clone(&self.link)
    }

    fn step_and<R>(
        &mut self,
        enters_host: bool,
        step: impl FnOnce(&mut T, &mut T::Effects) -> R,
    ) -> R {
        let mut effects = T::Effects::default();
        let mut held = self.link.lock();
        held.owner.hold();
        let result = step(&mut held.end, &mut effects);
        if enters_host {
            self.link.enter_host(&mut held, &mut effects);
        }
        if held.is_shared {
            held.ring(Some(self.number));
        }
        drop(held);
        T::settle(&self.link, effects);
        result
    }
}

impl<T: Turn> Drop for Turner<T> {
    fn drop(&mut self) {
        (self.link.io().holders()).fetch_sub(1, Ordering::Relaxed);
        if self.link.give_back(self.number, self.way) && self.way == GiveBack::Now {
            self.link.io().call_soon(self.link.source());
        }
    }
}
