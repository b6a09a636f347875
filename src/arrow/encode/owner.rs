//! What keeps the buffers of an encoded message alive.

use std::any::Any;
use std::sync::Arc;

use super::placed::PlacedBuffers;
use super::scratch::Scratch;
use crate::arrow::OwnedDeviceArray;
use crate::device::DeviceKind;
use crate::device::gpu::{Gpu, GpuEvent, GpuStream};

/// The memory behind the buffers of a message: the producer's array, released when the last message
/// of its batch is dropped (and, where the stream has dictionaries, the encoder has seen another
/// batch or is gone), and scratch of ours. Clones share it.
#[derive(Debug, Clone)]
pub struct EncodedOwner(KeptOwner);

#[derive(Debug, Clone)]
enum KeptOwner {
    /// All buffers are the producer's: as in most batches, which so take no memory of their own
    /// here.
    Array(Arc<OwnedDeviceArray>),
    /// Some are ours, or lie on a GPU.
    More(Arc<More>),
}

#[derive(Debug)]
struct More {
    /// Of an array on a GPU. Before the array: work of ours that reads it ends before it is
    /// released.
    placed: Option<PlacedBuffers>,
    array: Arc<OwnedDeviceArray>,
    /// Held, not used: buffers point into it.
    _scratch: Scratch,
}

impl EncodedOwner {
    pub(super) fn new(
        array: &Arc<OwnedDeviceArray>,
        scratch: Scratch,
        placed: Option<PlacedBuffers>,
    ) -> Self {
        let array = Arc::clone(array);
        Self(if placed.is_none() && scratch.is_empty() {
            KeptOwner::Array(array)
        } else {
            KeptOwner::More(Arc::new(More {
                placed,
                array,
                _scratch: scratch,
            }))
        })
    }

    fn placed(&self) -> Option<&PlacedBuffers> {
        match &self.0 {
            KeptOwner::Array(_) => None,
            KeptOwner::More(more) => more.placed.as_ref(),
        }
    }

    /// The same without its type, to be dropped when nobody reads the buffers any more.
    pub fn shared(self) -> Arc<dyn Any + Send + Sync> {
        match self.0 {
            KeptOwner::Array(array) => array,
            KeptOwner::More(more) => more,
        }
    }

    /// The kind of memory that the buffers lie in, and the device's number.
    pub fn device(&self) -> (DeviceKind, i64) {
        let array = match &self.0 {
            KeptOwner::Array(array) => array,
            KeptOwner::More(more) => &more.array,
        };
        let array = array.raw();
        (DeviceKind(array.device_type), array.device_id)
    }

    /// What work that reads the buffers waits for, where they lie on a GPU: it is behind the
    /// producer's event and whatever the encoder does there. `None`: they may be read.
    pub fn ready(&self) -> Option<&GpuEvent> {
        Some(self.placed()?.ready())
    }

    /// The GPU that the buffers lie on, and that event. `None`: the processor reads them.
    pub(crate) fn on_gpu(&self) -> Option<(Arc<Gpu>, Arc<GpuEvent>)> {
        let placed = self.placed()?;
        Some((Arc::clone(placed.device()), Arc::clone(placed.ready())))
    }

    /// Where the buffers lie on a GPU: the stream for work that reads them, and
    /// [`ready`](Self::ready), which was recorded on it.
    pub fn gpu(&self) -> Option<(&Arc<GpuStream>, &GpuEvent)> {
        let placed = self.placed()?;
        Some((placed.stream(), placed.ready()))
    }

    /// Whether `buffer` was written by the encoder.
    #[cfg(test)]
    pub(super) fn wrote(&self, buffer: crate::device::BufferRef) -> bool {
        match &self.0 {
            KeptOwner::Array(_) => false,
            KeptOwner::More(more) => more._scratch.holds(buffer),
        }
    }
}
