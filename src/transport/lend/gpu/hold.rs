//! What one lease of a GPU's memory holds until the peer returns it.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use crate::device::afterlife;
use crate::device::cuda::Event;
use crate::transport::Keep;
use crate::transport::lend::gpu::known::Block;
use crate::transport::lend::pool::Shared;

/// The block and the memory of one lease. Dropping it, on any thread and also after the pool is
/// abandoned or gone, gives them back.
#[derive(Debug)]
pub(super) struct Hold {
    shared: Arc<Shared>,
    block: Option<Block>,
    /// Ids of memory that is lent where it lies.
    lent: Vec<u16>,
    keep: Keep,
    /// Behind our copies to the block.
    busy: Option<Event>,
    /// The peer gave it back while the connection stood; it waits for `busy` alone.
    returned: bool,
}

impl Hold {
    pub(super) fn new(shared: &Arc<Shared>, block: Option<Block>, keep: Keep) -> Self {
        Self {
            shared: Arc::clone(shared),
            block,
            lent: Vec::new(),
            keep,
            busy: None,
            returned: false,
        }
    }

    pub(super) fn add(&mut self, id: u16) {
        self.lent.push(id);
    }

    pub(super) fn lent(&self) -> &[u16] {
        &self.lent
    }

    pub(super) fn block(&self) -> Option<&Block> {
        self.block.as_ref()
    }

    pub(super) fn keep(&self) -> Keep {
        self.keep.clone()
    }

    /// Neither the block nor the producer's array is let go before `event` has happened.
    pub(super) fn set_busy(&mut self, event: Event) {
        self.busy = Some(event);
    }

    pub(super) fn is_busy(&self) -> bool {
        self.busy.is_some()
    }

    /// Everything in it, which leaves nothing to give back here.
    fn take(&mut self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            block: self.block.take(),
            lent: std::mem::take(&mut self.lent),
            keep: std::mem::take(&mut self.keep),
            busy: None,
            returned: self.returned,
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // A forked child has no thread to ever release a lock that was held at the fork, and no
        // driver.
        if !self.shared.generation.is_same_process() {
            let _left = ManuallyDrop::new((self.take(), self.busy.take()));
            return;
        }
        // A client that does not want the body returns it without having waited for our copies.
        if let Some(busy) = self.busy.take()
            && !matches!(busy.is_ready(), Ok(true))
        {
            self.returned = !self.shared.state.lock().abandoned;
            afterlife::keep_until_happened(busy, Box::new(self.take()));
            return;
        }
        if self.block.is_none() && self.lent.is_empty() {
            return;
        }
        let mut state = self.shared.state.lock();
        if state.abandoned {
            drop(state);
            // Of a block that is back nothing more is read, and its region is not used again.
            if !(self.returned && self.lent.is_empty()) {
                self.outlive();
            }
            return;
        }
        if let Some(block) = &self.block {
            state.return_gpu_block(block);
        }
        let mut given_up = Vec::new();
        for id in &self.lent {
            given_up.extend(state.return_gpu(*id, &self.keep));
        }
        self.shared.note_due(&state);
        drop(state);
        // And what is given up, without the lock.
    }
}

impl Hold {
    /// The connection is over, and this was out: the peer may read it for as long as it lives.
    fn outlive(&mut self) {
        let Some(peer) = self.shared.peer.as_ref().filter(|peer| !peer.is_this) else {
            // Rule F4: a region that was out is not used again, and arenas are tainted.
            return;
        };
        let kept = (self.block.take(), std::mem::take(&mut self.keep));
        afterlife::keep_until_end(&peer.death, Box::new(kept));
    }
}
