//! Memory of the peer's that is mapped here.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use crate::device::BufferRef;
use crate::device::cuda::Device;

/// Memory of the peer's, of the host or of a GPU, that is mapped here.
pub(super) trait OpenRegion: Any + Debug + Send + Sync {
    /// Its bytes, as the peer said.
    fn len(&self) -> usize;

    /// `len` bytes at `offset`, if they lie in it whole.
    fn slice(&self, offset: u64, len: u64) -> Option<BufferRef>;

    /// The GPU; `None` of the host's memory.
    fn device(&self) -> Option<&Arc<Device>>;

    /// `gpu` is going to copy from the host's memory.
    fn receive_on(&self, _gpu: &Arc<Device>) {}
}
