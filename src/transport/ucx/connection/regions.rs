//! Memory that the server lends and this side reads.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::{UcxConnection, enter};
use crate::device::cuda::Device;
use crate::error::Result;
use crate::proto::Span;
use crate::transport::{BodyPlace, PeerRegions, RegionTable, Resolved, Unmapped};

impl PeerRegions for UcxConnection {
    fn map(&mut self, id: u16, handle: &[u8], fd: Option<OwnedFd>) -> Result<()> {
        self.generation.ensure_same_process()?;
        let (Some(link), Some(pulls)) = (&mut self.link, &mut self.pulls) else {
            return RegionTable::default().map(id, handle, fd);
        };
        if self.over.is_some() {
            // Nothing more can be read from it, but later messages of the server are still
            // received.
            return Ok(());
        }
        let gpu = self.gpu.clone();
        let _current = enter(gpu.as_ref())?;
        self.inbox.extend(pulls.map(link, id, handle)?);
        // Lists that waited for the region are read now, and some may be complete at once.
        self.settle();
        self.wake_for_inbox();
        Ok(())
    }

    fn unmap(&mut self, id: u16) -> Result<Unmapped> {
        match &mut self.pulls {
            Some(pulls) => pulls.unmap(id).map(|()| Unmapped::Now),
            None => RegionTable::default().unmap(id),
        }
    }

    fn resolve(&mut self, number: u32, seq: u32, spans: Vec<Span>) -> Result<Resolved> {
        match &mut self.pulls {
            Some(pulls) => pulls.resolve(BodyPlace { number, seq }, &spans),
            None => RegionTable::default().resolve(number, seq, spans),
        }
    }

    fn receive_on(&mut self, gpu: Option<&Arc<Device>>) {
        let gpu = gpu.filter(|_| self.knows_cuda).cloned();
        self.tagged.receive_on(gpu.clone());
        // Operations of an earlier stream may still need the earlier GPU.
        self.gpu = gpu.or(self.gpu.take());
    }

    fn is_sound(&self) -> bool {
        let gpu = self.gpu.as_ref();
        gpu.is_none_or(|gpu| matches!(gpu.is_alive(), Ok(true)))
    }
}
