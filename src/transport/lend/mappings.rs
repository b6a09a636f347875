//! Regions of peers that are mapped in this process.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use crate::device::BufferRef;
use crate::device::cuda::Device;
use crate::device::region::MappedRegion;
use crate::transport::budget::MappingCharge;
use crate::transport::lend::pinned::PinnedRegion;

/// Memory of the peer's, on the host or on a GPU, that is mapped here.
pub(super) trait OpenRegion: Any + Debug + Send + Sync {
    /// Its length in bytes, as the peer has said.
    fn len(&self) -> usize;

    /// `len` bytes at `offset`, if all of them lie in it.
    fn slice(&self, offset: u64, len: u64) -> Option<BufferRef>;

    /// The GPU; `None` for the host's memory.
    fn device(&self) -> Option<&Arc<Device>>;

    /// `gpu` is going to copy from the host's memory.
    fn receive_on(&self, _gpu: &Arc<Device>) {}
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
        self.region.region.len()
    }

    fn slice(&self, offset: u64, len: u64) -> Option<BufferRef> {
        self.region.region.slice(offset, len)
    }

    fn device(&self) -> Option<&Arc<Device>> {
        None
    }

    fn receive_on(&self, gpu: &Arc<Device>) {
        self.region.pin(gpu);
    }
}
