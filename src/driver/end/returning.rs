//! What goes back to the peer: lent bodies, and regions that are not mapped any more.

use std::sync::Arc;

use super::EndLink;
use crate::device::cuda::later;
use crate::driver::clock;
use crate::proto::Return;

impl EndLink {
    /// Tells the peer, once a thread of ours has unmapped these regions, that it may free them.
    pub fn forget_when_unmapped(self: &Arc<Self>, ids: Vec<u16>) {
        for id in ids {
            let weak = Arc::downgrade(self);
            later::run(move || {
                if let Some(link) = weak.upgrade() {
                    link.forget(id);
                }
            });
        }
    }

    /// Makes the I/O thread tell the peer that a region is not mapped any more.
    fn forget(&self, id: u16) {
        self.context.returns.forget(id);
        self.schedule(clock::now());
    }

    /// Gives bodies back to the server: at once if there are many, otherwise when the time of rule
    /// F5 is over. Safe from any thread; does nothing in a forked child.
    pub fn free(&self, bodies: impl IntoIterator<Item = Return>) {
        let mut bodies = bodies.into_iter().peekable();
        if bodies.peek().is_none() || !self.generation().is_same_process() {
            return;
        }
        let (is_due, at) = self.context.returns.push(bodies);
        if let Some(at) = at {
            self.schedule(at);
        }
        if is_due {
            // Another thread that has the connection sends them with its next turn.
            let _ = self.try_interfere(|end, effects| end.write_on(effects));
        }
    }
}
