//! How many regions of peers are mapped in this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::device::BufferRef;
use crate::device::cuda::Device;
use crate::device::region::MappedRegion;
use crate::error::{Error, Result, Status};
use crate::transport::lend::pinned::PinnedRegion;
use crate::transport::lend::table::OpenRegion;

/// Most mappings by default: half of what the system gives a process (`vm.max_map_count`). The
/// other half is for the host's own memory.
const MOST_MAPPINGS: usize = 32_768;

/// A bound on mappings of the host's memory, shared by the connections of one server. A mapping
/// counts until no array points into it.
#[derive(Debug)]
pub struct MappingBudget {
    most: usize,
    used: AtomicUsize,
}

impl Default for MappingBudget {
    fn default() -> Self {
        Self::new(MOST_MAPPINGS)
    }
}

impl MappingBudget {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            used: AtomicUsize::new(0),
        }
    }

    /// Counts a mapping that is about to be made.
    ///
    /// # Errors
    ///
    /// `OutOfResources`: there are too many.
    pub(super) fn charge(self: &Arc<Self>) -> Result<MappingCharge> {
        let more = |used: usize| (used < self.most).then_some(used + 1);
        let charged = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        match charged {
            Ok(_) => Ok(MappingCharge(Arc::clone(self))),
            Err(used) => Err(Error::new(
                Status::OutOfResources,
                format!(
                    "{used} regions of peers are mapped here, and the system gives a process \
                     about 65,000 mappings: release arrays, or have peers use fewer arenas"
                ),
            )),
        }
    }
}

/// One mapping of a budget.
#[derive(Debug)]
pub(super) struct MappingCharge(Arc<MappingBudget>);

impl Drop for MappingCharge {
    fn drop(&mut self) {
        self.0.used.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A peer's region of the host's memory. The region is unmapped before its charge is given back.
#[derive(Debug)]
pub(super) struct HostRegion {
    region: PinnedRegion<MappedRegion>,
    _charge: MappingCharge,
}

impl HostRegion {
    pub(super) fn new(region: MappedRegion, charge: MappingCharge) -> Self {
        Self {
            region: PinnedRegion::new(region),
            _charge: charge,
        }
    }
}

impl OpenRegion for HostRegion {
    fn len(&self) -> usize {
        self.region.region().len()
    }

    fn slice(&self, offset: u64, len: u64) -> Option<BufferRef> {
        self.region.region().slice(offset, len)
    }

    fn device(&self) -> Option<&Arc<Device>> {
        None
    }

    fn receive_on(&self, gpu: &Arc<Device>) {
        self.region.pin(gpu);
    }
}
