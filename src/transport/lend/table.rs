//! The regions that a peer has announced on one connection.

use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use foldhash::HashMap;
use smallvec::SmallVec;

use crate::device::BufferRef;
use crate::device::cuda::Device;
use crate::device::region::MappedRegion;
use crate::error::{Error, Result};
use crate::proto::{Span, UUID_BYTES};
use crate::transport::budget::MappingBudget;
use crate::transport::closing::Foreign;
use crate::transport::lend::address::{
    MOST_REGIONS, beyond, ensure_new, never_announced, split_address,
};
use crate::transport::lend::gpu::announced::AnnouncedRegion;
use crate::transport::lend::gpu::handle::GpuHandle;
use crate::transport::lend::gpu::orders::Orders;
use crate::transport::lend::mappings::{HostRegion, OpenRegion};
use crate::transport::{PeerRegions, Resolved, ResolvedGpu, Unmapped};

/// Most regions of GPUs that wait to be opened: each may hold a descriptor until then, and a
/// process has only few descriptors.
const MOST_UNOPENED: usize = 256;

/// Regions by id.
#[derive(Debug, Default)]
pub struct RegionTable {
    regions: HashMap<u16, PeerRegion>,
    /// Regions on GPUs that are not opened yet.
    announced: Vec<u16>,
    orders: Orders,
    /// The GPU that copies bodies from the host's regions.
    gpu: Option<Arc<Device>>,
    /// The GPUs that the request names. A peer must not make the driver create a context on any
    /// other GPU.
    accepted: Vec<[u8; UUID_BYTES]>,
    /// The peer's user.
    user: u32,
    mappings: Arc<MappingBudget>,
    /// Memory or an event on a GPU could not be opened when it was needed.
    missed: bool,
}

/// A region of the peer's.
#[derive(Debug)]
enum PeerRegion {
    /// Bodies can lie in it.
    Open(Arc<dyn OpenRegion>),
    /// On a GPU, and no body in it has come yet.
    Announced(AnnouncedRegion),
    /// On a GPU, with the reason why it cannot be opened here.
    Unopened(Error),
}

impl PeerRegion {
    /// The GPU that has the region mapped.
    fn device(&self) -> Option<&Arc<Device>> {
        match self {
            Self::Open(region) => region.device(),
            Self::Announced(_) | Self::Unopened(_) => None,
        }
    }

    /// When the region is no longer mapped here, after the last use of it.
    fn unmapped(&self) -> Unmapped {
        match self.device() {
            None => Unmapped::Now,
            Some(_) => Unmapped::Later,
        }
    }
}

impl RegionTable {
    /// The table of a connection to a process of `user`. Its mappings count in `mappings`.
    pub fn of_peer(user: u32, mappings: &Arc<MappingBudget>) -> Self {
        Self {
            user,
            mappings: Arc::clone(mappings),
            ..Self::default()
        }
    }

    /// Opens a region that a body lies in, unless that was tried before.
    fn open(&mut self, id: u16) {
        let Some(at) = self.announced.iter().position(|known| *known == id) else {
            return;
        };
        // The peer may have announced the region for an earlier request, which named other GPUs.
        let is_accepted = |region: &&PeerRegion| match region {
            PeerRegion::Announced(announced) => self.accepted.contains(&announced.handle.uuid),
            _ => false,
        };
        if self.regions.get(&id).filter(is_accepted).is_none() {
            return;
        }
        self.announced.swap_remove(at);
        let Some(PeerRegion::Announced(announced)) = self.regions.remove(&id) else {
            return;
        };
        let region = announced
            .open()
            .map_or_else(PeerRegion::Unopened, PeerRegion::Open);
        self.regions.insert(id, region);
    }

    /// Remembers that the body of message `seq`, whose address list comes later, may be read only
    /// once the peer's `event` has happened (READY). `handle` opens the event; it comes once.
    ///
    /// # Errors
    ///
    /// `Protocol`: no such event is known, or its handle came before.
    pub fn order(&mut self, seq: u32, event: u16, handle: &[u8]) -> Result<()> {
        self.orders.add(seq, event, handle)
    }

    /// The GPUs, by UUID, whose memory the peer may announce: those that the request names.
    pub fn accept_gpus(&mut self, gpus: &[[u8; UUID_BYTES]]) {
        self.accepted = gpus.to_vec();
        self.missed = false;
    }

    /// Whether, since the GPUs were accepted, a body was not [found](PeerRegions::resolve) because
    /// this process cannot open memory or an event on a GPU. The client should then ask for bodies
    /// elsewhere.
    pub fn misses_gpus(&self) -> bool {
        self.missed
    }

    /// Forgets the events of the peer that bodies wait for. The stream is over.
    pub fn clear_orders(&mut self) {
        self.orders.clear();
    }

    /// Forgets everything.
    pub fn clear(&mut self) -> Unmapped {
        let regions = std::mem::take(self).regions.into_values();
        regions.fold(Unmapped::Now, |all, region| match region.unmapped() {
            Unmapped::Now => all,
            Unmapped::Later => Unmapped::Later,
        })
    }
}

impl PeerRegions for RegionTable {
    fn map(&mut self, id: u16, handle: &[u8], fd: Option<OwnedFd>) -> Result<()> {
        // The close may wait, so another thread does it if needed.
        let fd = fd.map(|fd| Foreign::new(fd, self.user));
        ensure_new(id, self.regions.contains_key(&id))?;
        if self.regions.len() >= usize::from(MOST_REGIONS) {
            return Err(Error::protocol(format!(
                "the peer announced {MOST_REGIONS} regions on one connection and then another: \
                 each is a mapping, of which the system gives a process about 65,000"
            )));
        }
        let here = |error: Error| error.context(format_args!("region {id}"));
        if let Some(handle) = GpuHandle::decode(handle).map_err(here)? {
            let announced = AnnouncedRegion::new(handle, fd, &self.accepted).map_err(here)?;
            self.regions.insert(id, PeerRegion::Announced(announced));
            self.announced.push(id);
            if self.announced.len() > MOST_UNOPENED {
                self.open(id);
            }
            return Ok(());
        }
        let len = handle.try_into().map(u64::from_le_bytes).map_err(|_| {
            Error::protocol(format!(
                "the handle of region {id} has {} bytes, not the 8 of its length",
                handle.len()
            ))
        })?;
        let fd = fd.ok_or_else(|| {
            Error::protocol(format!(
                "no descriptor came with the REGION message of region {id}"
            ))
        })?;
        if !fd.is_memory() {
            return Err(here(Error::protocol(
                "the peer's region is not a file in memory that can be sealed",
            )));
        }
        let charge = self.mappings.charge().map_err(here)?;
        let region = MappedRegion::map(fd.into_inner(), len).map_err(here)?;
        let region = Arc::new(HostRegion::new(region, charge));
        self.regions.insert(id, PeerRegion::Open(region));
        Ok(())
    }

    fn unmap(&mut self, id: u16) -> Result<Unmapped> {
        let region = self.regions.remove(&id);
        let region = region.ok_or_else(|| never_announced(id))?;
        self.announced.retain(|announced| *announced != id);
        Ok(region.unmapped())
    }

    fn resolve(&mut self, _: u32, seq: u32, spans: Vec<Span>) -> Result<Resolved> {
        if !self.announced.is_empty() {
            let in_use = spans.iter().filter(|span| span.length > 0);
            in_use.for_each(|span| self.open(split_address(span.address).0));
        }
        // The regions that the list names, each once; mostly there is one.
        let mut used: SmallVec<[(u16, &Arc<dyn OpenRegion>); 1]> = SmallVec::new();
        let find = |span: Span| {
            if span.length == 0 {
                return Ok(BufferRef::EMPTY);
            }
            let (id, offset) = split_address(span.address);
            let region = if let Some((_, region)) = used.iter().find(|(known, _)| *known == id) {
                *region
            } else {
                let region = match self.regions.get(&id) {
                    Some(PeerRegion::Open(region)) => region,
                    Some(PeerRegion::Unopened(error)) => {
                        self.missed = true;
                        return Err(error.clone().context(format_args!("region {id}")));
                    }
                    Some(PeerRegion::Announced(_)) => {
                        return Err(Error::protocol(format!(
                            "region {id} is memory of a GPU, which the request did not name"
                        )));
                    }
                    None => {
                        return Err(Error::protocol(format!(
                            "address {:#x} is in region {id}, which the peer has not announced",
                            span.address
                        )));
                    }
                };
                if let Some(gpu) = &self.gpu {
                    region.receive_on(gpu);
                }
                used.push((id, region));
                region
            };
            let found = region.slice(offset, span.length);
            found.ok_or_else(|| beyond(span, region.len() as u64))
        };
        // A span and a buffer have the same size, so the buffers reuse the memory of the list.
        let buffers = spans.into_iter().map(find).collect::<Result<Vec<_>>>()?;
        let mut devices = used.iter().map(|(_, region)| region.device());
        let device = devices.next().flatten().cloned();
        if !devices.all(|other| device.as_ref().map(Arc::as_ptr) == other.map(Arc::as_ptr)) {
            return Err(Error::protocol(format!(
                "the body of message {seq} lies in several places, the host's memory or GPUs'; \
                 it must lie in one"
            )));
        }
        let mut owners = used.iter().map(|(_, region)| Arc::clone(region));
        let owner: Arc<dyn Any + Send + Sync> = match (owners.next(), owners.len()) {
            (None, _) => Arc::new(()),
            (Some(first), 0) => first,
            (Some(first), _) => Arc::new(std::iter::once(first).chain(owners).collect::<Vec<_>>()),
        };
        let gpu = match device {
            Some(device) => {
                let ready = self.orders.take(seq, &device);
                self.missed |= ready.is_err();
                let ready = ready?;
                Some(ResolvedGpu { device, ready })
            }
            None => {
                self.orders.forget(seq);
                None
            }
        };
        Ok(Resolved {
            buffers,
            owner,
            shared: true,
            pulled: false,
            gpu,
        })
    }

    fn receive_on(&mut self, gpu: Option<&Arc<Device>>) {
        self.gpu = gpu.cloned();
    }

    fn is_sound(&self) -> bool {
        let mut gpus = self.regions.values().filter_map(PeerRegion::device);
        gpus.all(|gpu| matches!(gpu.is_alive(), Ok(true)))
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
