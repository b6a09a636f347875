//! What the encoder makes for an array on a GPU: moved bitmaps, and what it wrote on the host and
//! goes to the device, in one copy.

use std::sync::Arc;

use super::plan::{Plan, ZERO_OFFSET};
use crate::device::BufferRef;
use crate::device::gpu::{
    Gpu, GpuEvent, GpuMemory, GpuStream, PinnedMemory, Purpose, Shifted, later,
};
use crate::error::{Error, Result};

/// Alignment of buffers (rule A2).
const ALIGNMENT: usize = 64;

/// Memory of ours on the device, behind buffers of a message, and the event after which all of the
/// message's buffers may be read.
#[derive(Debug)]
pub(super) struct PlacedBuffers {
    stream: Arc<GpuStream>,
    ready: Arc<GpuEvent>,
    /// `ready` is behind all work.
    recorded: bool,
    _shifted: Option<Shifted>,
    uploaded: Option<(GpuMemory, PinnedMemory)>,
}

impl PlacedBuffers {
    /// Makes what `plan` asks for and puts it in the place of its buffers.
    ///
    /// # Safety
    ///
    /// The array that the plan describes lives on the stream's device and stays as it is until the
    /// stream has done what it is given; the plan's buffers were checked to lie there.
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
                // SAFETY: nothing was given to the device yet.
                let target = unsafe { staged.as_mut_slice() };
                // SAFETY: the buffer lies in the plan's scratch or is the static, on the host.
                let source = unsafe { buffer.as_slice() };
                target[at..at + source.len()].copy_from_slice(source);
                buffer.data = address(memory.address() + at as u64);
                at += source.len().next_multiple_of(ALIGNMENT);
            }
            let (target, source) = (memory.address(), staged.address());
            placed.uploaded = Some((memory, staged));
            // SAFETY: `placed` has both, and they go only when the stream is done with them.
            unsafe { stream.copy(target, source, len) }?;
        }
        if !plan.shifts.is_empty() {
            // SAFETY: the caller promises that the bitmaps live and stay as they are.
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

    /// The stream on which that is.
    pub(super) fn stream(&self) -> &Arc<GpuStream> {
        &self.stream
    }

    /// What happens when all buffers of the message may be read.
    pub(super) fn ready(&self) -> &Arc<GpuEvent> {
        &self.ready
    }

    /// The GPU.
    pub(super) fn device(&self) -> &Arc<Gpu> {
        self.stream.device()
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
        // The memory goes to others next. What was given to the stream may be behind the producer's
        // work, for which nobody waits here.
        if self.recorded {
            later::keep_until(Arc::clone(&self.ready), Box::new(uploaded));
        } else {
            // An error means that the device does nothing more.
            let _: Result<(), Error> = self.stream.synchronize();
        }
    }
}
