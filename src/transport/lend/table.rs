//! The regions that a peer has announced on one connection.

use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

use foldhash::HashMap;

use crate::device::BufferRef;
use crate::device::cuda::import::Mapping;
use crate::device::cuda::pool::ImportedPool;
use crate::device::cuda::{Access, Device, Registered};
use crate::device::region::MappedRegion;
use crate::error::{Error, Result};
use crate::proto::{Span, UUID_BYTES};
use crate::transport::closing::Foreign;
use crate::transport::lend::announced::Announced;
use crate::transport::lend::handle::GpuHandle;
use crate::transport::lend::orders::Orders;
use crate::transport::lend::{MOST_REGIONS, split_address};
use crate::transport::{Resolved, ResolvedGpu, Unmapped};

/// Most regions of GPUs that wait to be opened: some hold a descriptor until then, of which a process has few.
const MOST_UNOPENED: usize = 256;

/// Regions by id.
#[derive(Debug, Default)]
pub struct RegionTable {
    regions: HashMap<u16, Mapped>,
    /// Those on GPUs that are not opened yet.
    announced: Vec<u16>,
    orders: Orders,
    /// The GPU to which bodies go from the host's regions.
    gpu: Option<Arc<Device>>,
    /// The GPUs that the request names: of others nothing is mapped, since the driver would make a
    /// context there for whatever a peer says.
    accepted: Vec<[u8; UUID_BYTES]>,
    /// Number of the peer's process, 0 where it is not known.
    peer: i32,
    /// The peer's user.
    user: u32,
    /// Something on a GPU could not be opened when it was needed.
    missed: bool,
}

/// A region of the peer's.
#[derive(Debug)]
pub(super) enum Mapped {
    Host(Arc<HostRegion>),
    /// On a GPU, and no body has come that lies in it.
    Announced(Announced),
    Gpu(Arc<GpuRegion>),
    /// No memory lies in it by itself: regions that come later name it.
    Pool(Arc<ImportedPool>),
    /// On a GPU, and why it is not open here: the handles of a container that shares too little with
    /// this one, say. Whoever needs it is told.
    Unopened(Error),
}

/// Memory of the host of the peer's.
#[derive(Debug)]
pub(super) struct HostRegion {
    /// Registered with the driver, so that a GPU copies from it without the processor; tried once.
    registered: OnceLock<Option<Registered>>,
    mapped: Arc<MappedRegion>,
}

impl HostRegion {
    /// Lets `device` copy from it at its full rate. Where the system does not pin so much, or the
    /// device cannot take memory that may only be read, bodies go by way of memory of our own.
    fn register(&self, device: &Arc<Device>) {
        self.registered.get_or_init(|| {
            let (base, len) = (self.mapped.base(), self.mapped.len());
            let memory: Arc<dyn Any + Send + Sync> = Arc::clone(&self.mapped) as _;
            // SAFETY: the region stays mapped while it is held; whoever lets work copy from it holds this
            // until it is done.
            let made = unsafe { Registered::new(device, base, len, Access::Read, memory) };
            made.inspect_err(|error| tracing::debug!("a region is not pinned: {error}"))
                .ok()
        });
    }
}

/// A GPU's memory of the peer's.
#[derive(Debug)]
pub(super) struct GpuRegion {
    device: Arc<Device>,
    mapping: Arc<Mapping>,
    /// What the peer said; the allocation may have more.
    len: usize,
}

impl GpuRegion {
    pub fn new(device: Arc<Device>, mapping: Arc<Mapping>, len: usize) -> Self {
        Self {
            device,
            mapping,
            len,
        }
    }
}

/// A region that a list has named before.
struct Known<'a> {
    id: u16,
    region: &'a Mapped,
}

impl Mapped {
    fn len(&self) -> usize {
        match self {
            Self::Host(region) => region.mapped.len(),
            Self::Announced(region) => region.len(),
            Self::Gpu(region) => region.len,
            Self::Pool(_) | Self::Unopened(_) => 0,
        }
    }

    fn slice(&self, offset: u64, len: u64) -> Option<BufferRef> {
        let region = match self {
            Self::Host(region) => return region.mapped.slice(offset, len),
            Self::Gpu(region) => region,
            Self::Announced(_) | Self::Pool(_) | Self::Unopened(_) => return None,
        };
        let len = usize::try_from(len).ok()?;
        let end = usize::try_from(offset).ok()?.checked_add(len)?;
        let address = region
            .mapping
            .slice(offset, len)
            .filter(|_| end <= region.len)?;
        // It is the device's: nothing here may read through it.
        let data = std::ptr::without_provenance(usize::try_from(address).ok()?);
        Some(BufferRef { data, len })
    }

    /// When it is not mapped here any more, once nothing points into it.
    fn unmapped(&self) -> Unmapped {
        match self {
            Self::Host(_) | Self::Announced(_) | Self::Unopened(_) => Unmapped::Now,
            Self::Gpu(_) | Self::Pool(_) => Unmapped::Later,
        }
    }

    fn device(&self) -> Option<&Arc<Device>> {
        match self {
            Self::Host(_) | Self::Announced(_) | Self::Unopened(_) => None,
            Self::Gpu(region) => Some(&region.device),
            Self::Pool(pool) => Some(pool.device()),
        }
    }

    fn owner(&self) -> Arc<dyn Any + Send + Sync> {
        match self {
            Self::Host(region) => Arc::clone(region) as _,
            Self::Gpu(region) => Arc::clone(region) as _,
            Self::Pool(pool) => Arc::clone(pool) as _,
            Self::Announced(_) | Self::Unopened(_) => Arc::new(()),
        }
    }
}

impl RegionTable {
    /// The table of the connection to the process with this number; 0 where it has none here.
    pub fn of_peer(peer: i32, user: u32) -> Self {
        Self {
            peer,
            user,
            ..Self::default()
        }
    }

    /// Maps a region of the host's, and remembers one of a GPU: see
    /// [`Connection::map_region`](crate::transport::Connection::map_region).
    pub fn map(&mut self, id: u16, handle: &[u8], fd: Option<OwnedFd>) -> Result<()> {
        // Whatever is found of it below, it is not closed by this thread where that may wait.
        let fd = fd.map(|fd| Foreign::new(fd, self.user));
        if id == 0 {
            return Err(Error::protocol(
                // Rule E3.
                "the peer announced a region with the id 0",
            ));
        }
        if self.regions.contains_key(&id) {
            return Err(Error::protocol(format!(
                "the peer announced region {id} twice (an id is free again only after \
                 REGION_GONE)"
            )));
        }
        if self.regions.len() >= usize::from(MOST_REGIONS) {
            return Err(Error::protocol(format!(
                "the peer announced {MOST_REGIONS} regions on one connection and then another: each is a \
                 mapping, of which the system gives a process about 65,000"
            )));
        }
        let here = |error: Error| error.context(format_args!("region {id}"));
        if let Some(handle) = GpuHandle::decode(handle).map_err(here)? {
            let announced = self.announce(&handle, fd).map_err(here)?;
            self.regions.insert(id, Mapped::Announced(announced));
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
        let region = MappedRegion::map(fd.into_inner(), len).map_err(here)?;
        let region = HostRegion {
            registered: OnceLock::new(),
            mapped: Arc::new(region),
        };
        self.regions.insert(id, Mapped::Host(Arc::new(region)));
        Ok(())
    }

    /// Checks what is said of memory of a GPU.
    fn announce(&self, handle: &GpuHandle, fd: Option<Foreign>) -> Result<Announced> {
        let announced = Announced::new(handle, fd, &self.accepted)?;
        let Some(pool) = announced.pool() else {
            return Ok(announced);
        };
        let is_known = match self.regions.get(&pool) {
            Some(Mapped::Announced(pool)) => pool.is_pool() && pool.uuid() == announced.uuid(),
            Some(Mapped::Pool(pool)) => pool.device().uuid() == announced.uuid(),
            Some(Mapped::Unopened(_)) => true,
            Some(Mapped::Host(_) | Mapped::Gpu(_)) | None => false,
        };
        is_known.then_some(announced).ok_or_else(|| {
            Error::protocol(format!(
                "memory of pool {pool}, which the peer has not announced on this GPU"
            ))
        })
    }

    /// Opens a region that a body lies in, unless that was tried before.
    fn open(&mut self, id: u16) {
        let Some(at) = self.announced.iter().position(|known| *known == id) else {
            return;
        };
        // The peer may have announced it to another request than this one.
        let is_accepted = |region: &&Mapped| match region {
            Mapped::Announced(announced) => self.accepted.contains(announced.uuid()),
            _ => false,
        };
        if self.regions.get(&id).filter(is_accepted).is_none() {
            return;
        }
        self.announced.swap_remove(at);
        let Some(Mapped::Announced(announced)) = self.regions.remove(&id) else {
            return;
        };
        let pool = announced.pool();
        // The peer may have retired the pool, and given its number to something else.
        if let Some(pool) = pool
            && let Some(Mapped::Announced(known)) = self.regions.get(&pool)
            && known.is_pool()
        {
            self.open(pool);
        }
        let pool = pool.and_then(|pool| self.regions.get(&pool));
        let opened = announced.open(self.peer, pool);
        let opened = opened.unwrap_or_else(Mapped::Unopened);
        self.regions.insert(id, opened);
    }

    /// Remembers what a body waits for: see
    /// [`Connection::order`](crate::transport::Connection::order).
    pub fn order(&mut self, seq: u32, event: u16, handle: &[u8]) -> Result<()> {
        self.orders.add(seq, event, handle)
    }

    /// Where bodies in the host's regions go next: to this GPU, or nowhere.
    pub fn receive_on(&mut self, gpu: Option<Arc<Device>>) {
        self.gpu = gpu;
    }

    /// See [`Connection::accept_gpus`](crate::transport::Connection::accept_gpus).
    pub fn accept_gpus(&mut self, gpus: &[[u8; UUID_BYTES]]) {
        self.accepted = gpus.to_vec();
        self.missed = false;
    }

    /// See [`Connection::misses_gpus`](crate::transport::Connection::misses_gpus).
    pub fn misses_gpus(&self) -> bool {
        self.missed
    }

    /// Forgets what bodies wait for: the stream is over.
    pub fn clear_orders(&mut self) {
        self.orders.clear();
    }

    /// Forgets a region; arrays that point into it keep it mapped.
    pub fn unmap(&mut self, id: u16) -> Result<Unmapped> {
        let region = self.regions.remove(&id).ok_or_else(|| {
            Error::protocol(format!(
                "the peer retired region {id}, which it never announced"
            ))
        })?;
        self.announced.retain(|announced| *announced != id);
        Ok(region.unmapped())
    }

    /// Forgets everything.
    pub fn clear(&mut self) -> Unmapped {
        let regions = std::mem::take(self).regions.into_values();
        regions.fold(Unmapped::Now, |all, region| match region.unmapped() {
            Unmapped::Now => all,
            Unmapped::Later => Unmapped::Later,
        })
    }

    /// Whether what is mapped can be read: no GPU was reset since.
    pub fn is_sound(&self) -> bool {
        let mut gpus = self.regions.values().filter_map(Mapped::device);
        gpus.all(|gpu| matches!(gpu.is_alive(), Ok(true)))
    }

    /// Finds the memory of the address list of message `seq`.
    pub fn resolve(&mut self, seq: u32, spans: Vec<Span>) -> Result<Resolved> {
        if !self.announced.is_empty() {
            let in_use = spans.iter().filter(|span| span.length > 0);
            in_use.for_each(|span| self.open(split_address(span.address).0));
        }
        // One region is the rule: no allocation for it.
        let mut first: Option<Known<'_>> = None;
        let mut others: Vec<Known<'_>> = Vec::new();
        let find = |span: Span| {
            if span.length == 0 {
                return Ok(BufferRef::EMPTY);
            }
            let (id, offset) = split_address(span.address);
            let mut known = first.iter().chain(&others);
            let region = if let Some(known) = known.find(|known| known.id == id) {
                known.region
            } else {
                let region = self.regions.get(&id).ok_or_else(|| {
                    Error::protocol(format!(
                        "address {:#x} is in region {id}, which the peer has not announced",
                        span.address
                    ))
                })?;
                match (region, &self.gpu) {
                    (Mapped::Host(region), Some(gpu)) => region.register(gpu),
                    (Mapped::Announced(_), _) => {
                        return Err(Error::protocol(format!(
                            "region {id} is memory of a GPU, which the request did not name"
                        )));
                    }
                    (Mapped::Unopened(error), _) => {
                        self.missed = true;
                        return Err(error.clone().context(format_args!("region {id}")));
                    }
                    _ => {}
                }
                let known = Known { id, region };
                if first.is_none() {
                    first = Some(known);
                } else {
                    others.push(known);
                }
                region
            };
            region.slice(offset, span.length).ok_or_else(|| {
                Error::protocol(format!(
                    "{} bytes at address {:#x} reach past region {id}, which has {} bytes",
                    span.length,
                    span.address,
                    region.len()
                ))
            })
        };
        // A span and the buffer that it becomes are as large: the list's own memory takes them.
        let buffers = spans.into_iter().map(find).collect::<Result<Vec<_>>>()?;
        let device = first
            .as_ref()
            .and_then(|first| first.region.device())
            .cloned();
        for other in &others {
            let same = match (&device, other.region.device()) {
                (None, None) => true,
                (Some(one), Some(other)) => Arc::ptr_eq(one, other),
                _ => false,
            };
            if !same {
                return Err(Error::protocol(format!(
                    "the body of message {seq} lies in several places, the host's memory or GPUs'; \
                     it must lie in one"
                )));
            }
        }
        let owner: Arc<dyn Any + Send + Sync> = match first {
            Some(first) if others.is_empty() => first.region.owner(),
            Some(first) => {
                let known = std::iter::once(&first).chain(&others);
                Arc::new(known.map(|known| known.region.owner()).collect::<Vec<_>>())
            }
            None => Arc::new(()),
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::region::Region;
    use crate::error::Status;
    use crate::transport::lend::address;

    fn announce(table: &mut RegionTable, id: u16, region: &Region) -> Result<()> {
        let handle = (region.len() as u64).to_le_bytes();
        table.map(id, &handle, Some(region.fd().try_clone().unwrap()))
    }

    fn refused<T>(result: Result<T>, text: &str) {
        let error = result.err().expect("must be refused");
        assert_eq!(error.status(), Status::Protocol, "{error}");
        assert!(error.text().contains(text), "{error}");
    }

    /// Rule E3: an id names one region until REGION_GONE, and is not 0.
    #[test]
    fn an_id_names_one_region() {
        let region = Region::create(8192, "dipc-test").unwrap();
        let mut table = RegionTable::default();
        announce(&mut table, 7, &region).unwrap();
        refused(announce(&mut table, 7, &region), "twice");
        refused(announce(&mut table, 0, &region), "id 0");
        assert_eq!(table.unmap(7).unwrap(), Unmapped::Now);
        refused(table.unmap(7), "never announced");
        announce(&mut table, 7, &region).unwrap();
    }

    /// "Our transports", shm: the handle is 8 bytes, and a descriptor comes with it.
    #[test]
    fn a_region_comes_with_its_length_and_a_descriptor() {
        let region = Region::create(8192, "dipc-test").unwrap();
        let mut table = RegionTable::default();
        refused(table.map(1, &8192u64.to_le_bytes(), None), "no descriptor");
        refused(
            table.map(1, &[1, 2, 3], Some(region.fd().try_clone().unwrap())),
            "3 bytes",
        );
        refused(
            table.resolve(
                0,
                vec![Span {
                    address: address(1, 0),
                    length: 1,
                }],
            ),
            "not announced",
        );
    }

    /// Rules F3 and A8: spans are inside an announced region, whatever numbers a peer sends.
    #[test]
    fn addresses_outside_a_region_are_refused() {
        let region = Region::create(8192, "dipc-test").unwrap();
        let mut table = RegionTable::default();
        announce(&mut table, 1, &region).unwrap();
        let span = |id, offset, length| Span {
            address: address(id, offset),
            length,
        };
        refused(table.resolve(0, vec![span(1, 8000, 200)]), "reach past");
        refused(table.resolve(0, vec![span(1, 8192, 1)]), "reach past");
        refused(
            table.resolve(0, vec![span(1, OFFSET, u64::MAX)]),
            "reach past",
        );
        refused(table.resolve(0, vec![span(2, 0, 1)]), "region 2");
        refused(
            table.resolve(
                0,
                vec![Span {
                    address: 0,
                    length: 1,
                }],
            ),
            "region 0",
        );
        let found = table
            .resolve(
                0,
                vec![
                    span(1, 0, 8192),
                    Span {
                        address: 0,
                        length: 0,
                    },
                ],
            )
            .unwrap();
        assert_eq!(found.buffers[0].len, 8192);
        assert!(found.buffers[1].data.is_null());
    }
    const OFFSET: u64 = super::super::OFFSET_BITS;

    /// REGION_GONE leaves arrays alone: what was resolved stays mapped until its owner is dropped.
    #[test]
    fn what_was_resolved_stays_mapped() {
        let regions: Vec<_> = (0..2)
            .map(|_| Region::create(4096, "dipc-test").unwrap())
            .collect();
        let mut table = RegionTable::default();
        for (region, id) in regions.iter().zip(1..) {
            // SAFETY: the region is this test's own and nobody else reads it yet.
            unsafe {
                region
                    .base()
                    .as_ptr()
                    .write_bytes(u8::try_from(id).unwrap(), 4096)
            };
            announce(&mut table, id, region).unwrap();
        }
        let spans: Vec<_> = (1..3)
            .map(|id| Span {
                address: address(id, 0),
                length: 4096,
            })
            .collect();
        let found = table.resolve(0, spans).unwrap();
        assert_eq!(table.unmap(1).unwrap(), Unmapped::Now);
        drop(table);
        drop(regions);
        for (buffer, expected) in found.buffers.iter().zip(1u8..) {
            // SAFETY: `found.owner` is alive and nobody writes any more.
            let bytes = unsafe { buffer.as_slice() };
            assert!(bytes.iter().all(|byte| *byte == expected));
        }
    }
}
