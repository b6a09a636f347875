//! Regions of the host's memory that GPUs copy from and to.

use std::any::Any;
use std::fmt::Debug;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use crate::device::cuda::{Access, Device, Registered};
use crate::device::region::{MappedRegion, Region};

/// A mapping of the host's memory.
pub(super) trait HostMapping: Any + Debug + Send + Sync {
    /// What GPUs may do with the memory.
    const ACCESS: Access;

    /// The first byte and the length: whole pages, mapped while this lives.
    fn range(&self) -> (NonNull<u8>, usize);
}

impl HostMapping for Region {
    const ACCESS: Access = Access::ReadWrite;

    fn range(&self) -> (NonNull<u8>, usize) {
        (self.base(), self.len())
    }
}

impl HostMapping for MappedRegion {
    const ACCESS: Access = Access::Read;

    fn range(&self) -> (NonNull<u8>, usize) {
        (self.base(), self.len())
    }
}

/// A region that is registered with the driver when a GPU first copies from or to it.
#[derive(Debug)]
pub(super) struct PinnedRegion<R> {
    /// Declared first: the driver must let go of the memory before it is unmapped.
    registered: OnceLock<Option<Registered>>,
    pub region: Arc<R>,
}

impl<R: HostMapping> PinnedRegion<R> {
    pub fn new(region: R) -> Self {
        Self {
            registered: OnceLock::new(),
            region: Arc::new(region),
        }
    }

    /// Lets `device` copy at its full rate. The system may refuse to pin so much memory, or the
    /// device may refuse memory that it may only read. Then the driver copies through its own
    /// memory.
    pub fn pin(&self, device: &Arc<Device>) {
        self.registered.get_or_init(|| {
            let (base, len) = self.region.range();
            let memory: Arc<dyn Any + Send + Sync> = Arc::clone(&self.region) as _;
            // SAFETY: `range` names pages that stay mapped while the region is held, as both
            // implementations do. Whoever lets work copy here holds this value until it is done.
            let made = unsafe { Registered::new(device, base, len, R::ACCESS, memory) };
            made.inspect_err(|error| tracing::debug!("a region is not pinned: {error}"))
                .ok()
        });
    }
}
