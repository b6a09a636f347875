//! The encoder's memory for an array on a GPU: aligned bitmaps, and one upload of buffers that the
//! encoder wrote on the host.

use std::sync::Arc;

use super::plan::{Plan, ZERO_OFFSET};
use crate::device::BufferRef;
use crate::device::gpu::{GpuEvent, GpuMemory, GpuStream, PinnedMemory, Purpose, Shifted, later};
use crate::error::{Error, Result};

/// Alignment of buffers (rule A2).
const ALIGNMENT: usize = 64;

/// The encoder's device memory for buffers of a message, and the event after which all of the
/// message's buffers can be read.
#[derive(Debug)]
pub(super) struct PlacedBuffers {
    stream: Arc<GpuStream>,
    ready: Arc<GpuEvent>,
    /// `ready` was recorded after all work.
    recorded: bool,
    _shifted: Option<Shifted>,
    uploaded: Option<(GpuMemory, PinnedMemory)>,
}

impl PlacedBuffers {
    /// Makes the device memory that `plan` needs, and replaces the plan's buffers.
    ///
    /// # Safety
    ///
    /// The plan's array lives on the stream's device and does not change until the stream's work is
    /// done. The plan's buffers were checked to lie on the device.
    pub(super) unsafe fn of(plan: &mut Plan, stream: &Arc<GpuStream>) -> Result<Self> {
        let device = stream.device();
        let ready = Arc::new(GpuEvent::new(device)?);
        let ours = |buffer: &BufferRef| {
            buffer.len > 0
                && (buffer.data == (&raw const ZERO_OFFSET).cast() || plan.scratch.holds(*buffer))
        };
        let indices: Vec<usize> = (0..plan.buffers.len())
            .filter(|index| ours(&plan.buffers[*index]))
            .collect();
        let mut len: usize = 0;
        for index in &indices {
            len += plan.buffers[*index].len.next_multiple_of(ALIGNMENT);
        }
        let mut placed = Self {
            stream: Arc::clone(stream),
            ready,
            recorded: false,
            _shifted: None,
            uploaded: None,
        };
        if len > 0 {
            let memory = GpuMemory::new(device, len, Purpose::Own)?;
            let mut staged = PinnedMemory::new(device, len)?;
            let mut at = 0;
            for index in indices {
                let buffer = &mut plan.buffers[index];
                // SAFETY: no work was enqueued yet.
                let target = unsafe { staged.as_mut_slice() };
                // SAFETY: the buffer lies on the host: in the plan's scratch, or it is the static.
                let source = unsafe { buffer.as_slice() };
                target[at..at + source.len()].copy_from_slice(source);
                buffer.data = address(memory.address() + at as u64);
                at += source.len().next_multiple_of(ALIGNMENT);
            }
            let (target, source) = (memory.address(), staged.address());
            placed.uploaded = Some((memory, staged));
            // SAFETY: `placed` owns both, and its drop waits for the copy.
            unsafe { stream.copy(target, source, len) }?;
        }
        if !plan.shifts.is_empty() {
            // SAFETY: the caller promises that the bitmaps live and do not change.
            let shifted = unsafe { plan.shifts.run(stream) }?;
            for (index, at) in plan.shifted.drain(..) {
                plan.buffers[index].data = address(shifted.address() + at as u64);
            }
            placed._shifted = Some(shifted);
        }
        placed.ready.record(stream)?;
        placed.recorded = true;
        Ok(placed)
    }

    /// The stream of the work.
    pub(super) fn stream(&self) -> &Arc<GpuStream> {
        &self.stream
    }

    /// The event after which all buffers of the message can be read.
    pub(super) fn ready(&self) -> &Arc<GpuEvent> {
        &self.ready
    }
}

fn address(address: u64) -> *const u8 {
    std::ptr::without_provenance(usize::try_from(address).unwrap_or(0))
}

impl Drop for PlacedBuffers {
    fn drop(&mut self) {
        let Some(uploaded) = self.uploaded.take() else {
            return;
        };
        // The memory is recycled next. The stream's work may be behind the producer's work, for
        // which this drop does not wait.
        if self.recorded {
            later::keep_until(Arc::clone(&self.ready), Box::new(uploaded));
        } else {
            // After an error the device does no more work.
            let _: Result<(), Error> = self.stream.synchronize();
        }
    }
}
