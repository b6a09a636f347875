//! The owner of an encoded message's buffers.

use std::any::Any;
use std::sync::Arc;

use super::placed::PlacedBuffers;
use super::scratch::Scratch;
use crate::arrow::OwnedDeviceArray;
use crate::device::gpu::{GpuEvent, GpuStream};

/// The owner of a message's buffers: the producer's array, and new memory of the encoder. The array
/// is released when the last message of its batch is dropped. In a stream with dictionaries the
/// encoder also holds it until its next batch or its drop. Clones share the owner.
#[derive(Debug, Clone)]
pub struct EncodedOwner(MessageOwner);

#[derive(Debug, Clone)]
enum MessageOwner {
    /// All buffers belong to the producer. This is the usual case, and needs no allocation.
    Array(Arc<OwnedDeviceArray>),
    /// Some buffers belong to the encoder, or are on a GPU.
    Composite(Arc<CompositeOwner>),
}

#[derive(Debug)]
struct CompositeOwner {
    /// For an array on a GPU. Dropped before the array, because its work reads the array.
    placed: Option<PlacedBuffers>,
    _array: Arc<OwnedDeviceArray>,
    /// Held, because buffers point into it.
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
            MessageOwner::Array(array)
        } else {
            MessageOwner::Composite(Arc::new(CompositeOwner {
                placed,
                _array: array,
                _scratch: scratch,
            }))
        })
    }

    fn placed(&self) -> Option<&PlacedBuffers> {
        match &self.0 {
            MessageOwner::Array(_) => None,
            MessageOwner::Composite(composite) => composite.placed.as_ref(),
        }
    }

    /// The same owner without its type, to be dropped when nobody reads the buffers any more.
    pub fn shared(self) -> Arc<dyn Any + Send + Sync> {
        match self.0 {
            MessageOwner::Array(array) => array,
            MessageOwner::Composite(composite) => composite,
        }
    }

    /// For buffers on a GPU: the stream for work that reads them, and the event on it that readers
    /// must wait for. It is after the producer's event and the encoder's work. `None` if the
    /// processor reads the buffers.
    pub fn gpu(&self) -> Option<(&Arc<GpuStream>, &Arc<GpuEvent>)> {
        let placed = self.placed()?;
        Some((placed.stream(), placed.ready()))
    }

    /// True if the encoder wrote `buffer`.
    #[cfg(test)]
    pub(super) fn wrote(&self, buffer: crate::device::BufferRef) -> bool {
        match &self.0 {
            MessageOwner::Array(_) => false,
            MessageOwner::Composite(composite) => composite._scratch.holds(buffer),
        }
    }
}
