//! Bodies on a GPU for clients that want them on the host: copied straight into a region of the
//! connection.

use std::sync::Arc;

use crate::device::BufferRef;
use crate::device::cuda::Device;
use crate::error::Result;
use crate::transport::lend::gpu::enqueue;
use crate::transport::lend::hold::LeaseHold;
use crate::transport::lend::host;
use crate::transport::lend::place::{BodySources, LendingPlace, NewRegion};
use crate::transport::{Charge, Lease, OnGpu, ReadyNotice};

/// A GPU whose memory the peer does not reach.
pub(in crate::transport::lend) struct Staged<'a>(pub OnGpu<'a>);

impl LendingPlace for Staged<'_> {
    fn device(&self) -> Option<&Arc<Device>> {
        None
    }

    fn find(&self, hold: &mut LeaseHold, buffers: &[BufferRef]) -> Result<Option<BodySources>> {
        if !hold.core.lends_host_copies() {
            return Ok(None);
        }
        let mut sources = BodySources::with_capacity(buffers.len());
        let added = buffers
            .iter()
            .try_for_each(|buffer| sources.add(*buffer, None));
        Ok(added.map(|()| sources))
    }

    fn unit(&self) -> Result<u64> {
        Ok(host::page_bytes())
    }

    fn create(&self, charge: Charge) -> Result<Option<NewRegion>> {
        Ok(host::create(charge))
    }

    fn copy(
        &self,
        hold: &mut LeaseHold,
        buffers: &[BufferRef],
        sources: &BodySources,
    ) -> Result<Option<ReadyNotice>> {
        let Some(block) = &hold.block else {
            return Ok(None);
        };
        let stream = self.0.stream;
        block.region.pin(stream.device());
        let enqueued = enqueue(block, buffers, sources, stream);
        // Whatever came of that: nothing writes to the block any more once it is given back.
        let settled = stream.settle();
        enqueued.and(settled)?;
        Ok(None)
    }

    fn count(&self, lease: &mut Lease, copied: u64) {
        lease.staged = copied;
    }
}
