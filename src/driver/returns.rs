//! What a receiver gives back to the sender of a connection.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::driver::clock;
use crate::proto::{Control, FreeMessage, FreeQueue, Return, Timestamp};
use crate::transport::{Outgoing, Payload};

/// What waits to be given back. The queue is outside the connection's lock, so that a release on
/// any thread never waits for a read.
pub struct ReturnQueue {
    /// `None` if the server named no `free_data` tag and so lends nothing (rule U2).
    bodies: Mutex<Option<FreeQueue>>,
    /// Many bodies wait, but another thread had the connection: its next turn gives them back.
    is_urgent: AtomicBool,
    forgotten: Mutex<Vec<u16>>,
    /// Lent bodies that the host holds.
    held: AtomicUsize,
}

impl ReturnQueue {
    /// An empty queue; `free_tag` is the peer's `free_data`.
    pub fn new(free_tag: Option<u64>) -> Self {
        Self {
            bodies: Mutex::new(free_tag.map(FreeQueue::new)),
            is_urgent: AtomicBool::new(false),
            forgotten: Mutex::default(),
            held: AtomicUsize::new(0),
        }
    }

    /// Counts a lent body that the host gets, until [`unhold`](Self::unhold).
    pub fn hold(&self) {
        self.held.fetch_add(1, Ordering::Relaxed);
    }

    /// The host has released a lent body.
    pub fn unhold(&self) {
        self.held.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether the host has lent bodies.
    pub fn is_holding(&self) -> bool {
        self.held.load(Ordering::Relaxed) > 0
    }

    /// Whether the bodies must be given back at once.
    pub fn is_urgent(&self) -> bool {
        self.is_urgent.load(Ordering::Relaxed)
    }

    /// When the bodies must be given back at the latest.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.bodies.lock().as_ref().and_then(FreeQueue::deadline)
    }

    /// The messages that give everything back, and the numbers of their streams.
    pub fn drain(&self) -> impl Iterator<Item = (u32, Outgoing)> + use<> {
        self.is_urgent.store(false, Ordering::Relaxed);
        let mut messages = Vec::new();
        if let Some(queue) = &mut *self.bodies.lock() {
            messages.extend(std::iter::from_fn(|| queue.flush()).map(outgoing));
        }
        let forgotten = std::mem::take(&mut *self.forgotten.lock());
        messages
            .into_iter()
            .chain(forgotten.into_iter().map(|id| (0, forget(id))))
    }

    /// Adds a region that is not mapped any more.
    pub fn forget(&self, id: u16) {
        self.forgotten.lock().push(id);
    }

    /// Adds bodies. Returns whether they must be given back at once. If not, returns the time when
    /// they must be, unless an earlier call returned it.
    pub fn push(&self, bodies: impl Iterator<Item = Return>) -> (bool, Option<Timestamp>) {
        let mut queue = self.bodies.lock();
        let Some(queue) = queue.as_mut() else {
            return (false, None);
        };
        let before = queue.deadline();
        let now = queue.needs_time().then(clock::now).unwrap_or_default();
        bodies.for_each(|body| queue.push(now, &body));
        let at = queue.deadline().filter(|_| before.is_none());
        let is_due = queue.is_due(now);
        if is_due {
            self.is_urgent.store(true, Ordering::Relaxed);
        }
        (is_due, at)
    }
}

fn outgoing(message: FreeMessage) -> (u32, Outgoing) {
    match message {
        FreeMessage::Tagged { tag, bytes } => {
            let payload = Payload::Bytes(bytes.into());
            (0, Outgoing::Tagged { tag, payload })
        }
        FreeMessage::Control { number, bytes } => (number, Outgoing::Control { bytes, fd: None }),
    }
}

/// The message that acknowledges the end of a region.
pub fn forget(id: u16) -> Outgoing {
    let bytes = Control::RegionForgotten { id }.encode();
    Outgoing::Control { bytes, fd: None }
}
