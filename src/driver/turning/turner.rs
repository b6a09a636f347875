//! The token of a connection that the I/O thread does not own, and the tokens of streams that share
//! a connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::ownership::GiveBack;
use super::{Link, Turn};
use crate::driver::bell::Bell;
use crate::driver::waiting::Wants;

/// The right to turn a connection, or a stream's right to act on a connection that it shares.
///
/// A holder turns the connection, or sleeps on the connection's descriptors and its own bell.
/// Dropping the token gives the connection back to the I/O thread. There is at most one holder,
/// except for a connection with a stream in each direction: its two streams [share](Self::share)
/// the right. After each step of one, the bell of the other rings, because the step may have read
/// what the other waits for.
/// for.
/// A guest is one of the streams of a connection that carries many. The I/O thread turns that
/// connection, and the guest sleeps only on its bell.
/// connection, and the guest sleeps on its bell alone.
pub struct Turner<T: Turn> {
    link: Arc<Link<T>>,
    /// The number of the stream; 0 if the stream has the connection to itself.
    number: u32,
    /// 0, or 1 for the second token.
    slot: usize,
    right: Right,
}

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Right {
    Holder(GiveBack),
    Guest,
}

impl<T: Turn> Turner<T> {
    pub(super) fn new(link: Arc<Link<T>>) -> Self {
        link.io().holders().fetch_add(1, Ordering::Relaxed);
        Self {
            link,
            number: 0,
            slot: 0,
            right: Right::Holder(GiveBack::Now),
        }
    }

    pub(super) fn guest(link: Arc<Link<T>>, number: u32, slot: usize) -> Self {
        Self {
            link,
            number,
            slot,
            right: Right::Guest,
        }
    }

    /// A second token of the same stream. A connection is given back with the last one.
    pub fn share(&mut self) -> Self {
        let mut held = self.link.lock();
        if self.is_guest() {
            let slot = held.guests.add(self.number);
            return Self::guest(Arc::clone(&self.link), self.number, slot);
        }
        held.is_shared = true;
        drop(held);
        let mut other = Self::new(Arc::clone(&self.link));
        other.slot = 1 - self.slot;
        other
    }

    /// Leaves the connection to the I/O thread for good, because it carries many streams from now
    /// on.
    pub fn become_guest(&mut self) {
        if self.is_guest() {
            return;
        }
        self.slot = self.link.share(self.number);
        self.right = Right::Guest;
        (self.link.io().holders()).fetch_sub(1, Ordering::Relaxed);
        // Messages that were read before may wait.
        self.link.call_soon();
    }

    /// What to sleep for on the descriptors of the connection. A guest sleeps only on its bell.
    pub fn wants(&self) -> Wants {
        match self.right {
            Right::Holder(_) => self.link.inspect(T::wants),
            Right::Guest => Wants::default(),
        }
    }

    /// The connection.
    pub fn link(&self) -> &Arc<Link<T>> {
        &self.link
    }

    /// Number of the stream on the connection (rule S2).
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Whether the stream shares the connection, which the I/O thread turns.
    pub fn is_guest(&self) -> bool {
        self.right == Right::Guest
    }

    /// Rings `bell` from now on when another thread has changed the connection.
    pub fn set_bell(&mut self, bell: Option<Arc<Bell>>) {
        let mut held = self.link.lock();
        match self.right {
            Right::Holder(_) => held.bells[self.slot] = bell,
            Right::Guest => held.guests.set_bell(self.number, self.slot, bell),
        }
    }

    /// Runs `step` under the lock, then carries out its effects.
    pub fn step<R>(&mut self, step: impl FnOnce(&mut T, &mut T::Effects) -> R) -> R {
        self.step_and(false, step)
    }

    /// The same as [`step`](Self::step), if the caller enters the host's code afterwards.
    pub fn step_to_host<R>(&mut self, step: impl FnOnce(&mut T, &mut T::Effects) -> R) -> R {
        self.step_and(true, step)
    }

    /// Gives the connection back to the I/O thread, if that is the calling thread and turns it
    /// next.
    pub fn give_back_here(mut self) {
        self.set_way(GiveBack::Here);
    }

    /// Gives the connection back. The I/O thread begins to watch it a little later: until then the
    /// caller may [acquire](Link::acquire) it again without a system call.
    pub fn give_back_later(mut self) -> Arc<Link<T>> {
        self.set_way(GiveBack::Later);
        Arc::clone(&self.link)
    }

    fn set_way(&mut self, way: GiveBack) {
        if let Right::Holder(own) = &mut self.right {
            *own = way;
        }
    }

    fn step_and<R>(
        &mut self,
        enters_host: bool,
        step: impl FnOnce(&mut T, &mut T::Effects) -> R,
    ) -> R {
        if self.is_guest() {
            return self.link.interfere(step);
        }
        let mut effects = T::Effects::default();
        let mut held = self.link.lock();
        held.owner.hold();
        let result = step(&mut held.end, &mut effects);
        if enters_host {
            self.link.enter_host(&mut held, &mut effects);
        }
        if held.is_shared {
            held.ring(Some(self.slot));
        }
        drop(held);
        T::settle(&self.link, effects);
        result
    }
}

impl<T: Turn> Drop for Turner<T> {
    fn drop(&mut self) {
        let Right::Holder(way) = self.right else {
            return self.link.leave(self.number, self.slot);
        };
        (self.link.io().holders()).fetch_sub(1, Ordering::Relaxed);
        if self.link.give_back(self.slot, way) && way == GiveBack::Now {
            self.link.call_soon();
        }
    }
}
