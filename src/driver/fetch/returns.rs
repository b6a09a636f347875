//! What a client gives back to its server: lent bodies, and regions that are not mapped any more.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::device::cuda::later;
use crate::driver::clock;
use crate::driver::end::EndLink;
use crate::proto::{Control, FreeMessage, FreeQueue, Return, Timestamp};
use crate::transport::{Outgoing, Payload};

/// What waits to be given back. Beside the connection's lock, so that a release on any thread waits
/// for no read.
pub struct ReturnQueue {
    /// `None` where the server named no `free_data` tag and so lends nothing (rule U2).
    bodies: Mutex<Option<FreeQueue>>,
    /// Many bodies wait, and another thread had the connection: it says them with its next turn.
    is_urgent: AtomicBool,
    forgotten: Mutex<Vec<u16>>,
}

impl ReturnQueue {
    /// An empty queue; `free_tag` is the peer's `free_data`.
    pub fn new(free_tag: Option<u64>) -> Self {
        Self {
            bodies: Mutex::new(free_tag.map(FreeQueue::new)),
            is_urgent: AtomicBool::new(false),
            forgotten: Mutex::default(),
        }
    }

    /// Whether bodies are to be said at once.
    pub fn is_urgent(&self) -> bool {
        self.is_urgent.load(Ordering::Relaxed)
    }

    /// When bodies are to be said at the latest.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.bodies.lock().as_ref().and_then(FreeQueue::deadline)
    }

    /// The messages that give everything back.
    pub fn take(&self) -> impl Iterator<Item = Outgoing> + use<> {
        self.is_urgent.store(false, Ordering::Relaxed);
        let mut messages = Vec::new();
        if let Some(queue) = &mut *self.bodies.lock() {
            messages.extend(std::iter::from_fn(|| queue.flush()).map(outgoing));
        }
        let forgotten = std::mem::take(&mut *self.forgotten.lock());
        messages
            .into_iter()
            .chain(forgotten.into_iter().map(forget))
    }

    /// Returns whether bodies are to be said at once; if not, the time when they are, unless it was
    /// given before.
    fn push(&self, bodies: impl Iterator<Item = Return>) -> (bool, Option<Timestamp>) {
        let mut queue = self.bodies.lock();
        let Some(queue) = queue.as_mut() else {
            return (false, None);
        };
        let before = queue.deadline();
        let now = queue.needs_time().then(clock::now).unwrap_or_default();
        bodies.for_each(|body| queue.push(now, &body));
        let at = queue.deadline().filter(|_| before.is_none());
        (queue.is_due(now), at)
    }
}

impl EndLink {
    /// Tells the peer of regions, which it may then free, once a thread of ours has unmapped them.
    pub fn forget_when_unmapped(self: &Arc<Self>, ids: Vec<u16>) {
        for id in ids {
            let weak = Arc::downgrade(self);
            let tell = move || {
                if let Some(link) = weak.upgrade() {
                    link.forget(id);
                }
            };
            if later::after(tell).is_err() {
                self.forget(id);
            }
        }
    }

    /// Has the I/O thread tell the peer that a region is not mapped any more.
    fn forget(&self, id: u16) {
        self.beside.returns.forgotten.lock().push(id);
        self.look_after(clock::now());
    }

    /// Gives bodies back to the server: many at once, few when the time of rule F5 is over. Safe
    /// from any thread; does nothing in a forked child.
    pub fn free(&self, bodies: impl IntoIterator<Item = Return>) {
        if self.free_later(bodies) {
            // Another thread that has the connection says them.
            let _ = self.try_interfere(|end, effects| end.write_on(effects));
        }
    }

    /// The same by a thread that has the connection's lock: it says them with its next turn.
    /// Returns whether they are to be said at once.
    pub(super) fn free_later(&self, bodies: impl IntoIterator<Item = Return>) -> bool {
        let mut bodies = bodies.into_iter().peekable();
        if bodies.peek().is_none() || !self.generation().is_same_process() {
            return false;
        }
        let (is_due, at) = self.beside.returns.push(bodies);
        if let Some(at) = at {
            self.look_after(at);
        }
        if is_due {
            self.beside.returns.is_urgent.store(true, Ordering::Relaxed);
        }
        is_due
    }
}

/// A lent body of one message: gives it back when the last array that points into it is released
/// (rule F1), and keeps the connection alive until then (rule F6).
pub(super) struct LentBody {
    link: Arc<EndLink>,
    /// How; `None` where all its buffers are empty.
    back: Option<Return>,
    memory: Option<Arc<dyn Any + Send + Sync>>,
}

impl LentBody {
    pub(super) fn new(link: &Arc<EndLink>, back: Option<Return>) -> Self {
        Self {
            link: Arc::clone(link),
            back,
            memory: None,
        }
    }

    /// The owner of the body's buffers, which lie in `memory`.
    pub(super) fn into_owner(
        mut self,
        memory: Arc<dyn Any + Send + Sync>,
    ) -> Arc<dyn Any + Send + Sync> {
        self.memory = Some(memory);
        Arc::new(self)
    }
}

impl Drop for LentBody {
    fn drop(&mut self) {
        // First: a server may free memory of a GPU that is back, which must not be open here then.
        self.memory = None;
        self.link.free(self.back.take());
    }
}

fn outgoing(message: FreeMessage) -> Outgoing {
    match message {
        FreeMessage::Tagged { tag, bytes } => {
            let payload = Payload::Bytes(bytes.into());
            Outgoing::Tagged { tag, payload }
        }
        FreeMessage::Control(bytes) => Outgoing::Control { bytes, fd: None },
    }
}

pub fn forget(id: u16) -> Outgoing {
    let bytes = Control::RegionForgotten { id }.encode();
    Outgoing::Control { bytes, fd: None }
}
