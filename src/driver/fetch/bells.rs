//! What wakes a consumer, besides the descriptors of its connections.

use std::sync::Arc;
use std::task::Waker;

use super::Fetch;
use crate::driver::bell::Bell;
use crate::driver::polling::Poller;
use crate::transport::Watched;

impl Fetch {
    /// Makes `bell` ring when the other stream of the connection has read something for this one.
    pub fn share(&mut self, bell: Arc<Bell>) {
        let connection = &mut self.connections.metadata;
        connection.set_bell(Some(Arc::clone(&bell)));
        self.bell = Some(bell);
    }

    /// In an exchange: the bell, which wakes the consumer as the connections do.
    pub(super) fn bell(&self) -> Option<Arc<dyn Watched>> {
        let bell = self.bell.as_ref().filter(|_| !self.is_guest())?;
        bell.counter().map(|counter| counter as _)
    }

    /// Wakes the consumer by this bell, which already rings.
    pub fn is_rung_by(&mut self, bell: &Arc<Bell>) {
        self.bell = Some(Arc::clone(bell));
    }

    /// Forgets the bell, which rings for others from now on.
    pub(super) fn forget_bell(&mut self) {
        if self.bell.take().is_some() {
            self.connections.metadata.set_bell(None);
        }
    }

    /// Makes new messages wake a task instead of a descriptor. `None` if the stream has its
    /// connection to itself: then the connection's descriptor announces messages.
    pub(super) fn wake(&mut self, waker: &Waker) -> Option<&Arc<Bell>> {
        if !self.is_guest() {
            return None;
        }
        if self.bell.is_none() {
            self.share(Arc::default());
        }
        let bell = self.bell.as_ref()?;
        bell.wake(waker);
        Some(bell)
    }

    /// Whether the stream shares its connection, which the I/O thread reads.
    pub(super) fn is_guest(&self) -> bool {
        self.connections.metadata.is_guest()
    }

    /// Makes `poller` announce what comes for a guest.
    pub(super) fn ring_by(&mut self, poller: &Poller) {
        if self.is_guest() {
            self.share(Arc::new(poller.bell()));
        }
    }
}
