//! The bodies of messages, where they were received.

use std::any::Any;
use std::sync::Arc;

use crate::device::gpu::{Gpu, GpuEvent};
use crate::device::{BufferRef, HostBuffer};
use crate::error::{Error, Result};
use crate::proto::Header;

/// The body of a message where it was received.
#[derive(Clone)]
pub struct ReceivedBody {
    pub(super) buffers: Vec<BufferRef>,
    pub(super) owner: Arc<dyn Any + Send + Sync>,
    pub(super) shared: bool,
    /// `None`: on the host.
    pub(super) gpu: Option<BodyOnGpu>,
}

/// The GPU that a body lies on.
#[derive(Clone)]
pub(super) struct BodyOnGpu {
    pub(super) device: Arc<Gpu>,
    /// What reading it waits for.
    pub(super) ready: Option<Arc<GpuEvent>>,
}

impl ReceivedBody {
    /// The GPU that it lies on.
    pub(super) fn device(&self) -> Option<&Arc<Gpu>> {
        self.gpu.as_ref().map(|gpu| &gpu.device)
    }

    /// A body that lies in `buffers`, one for each buffer of the header, in order. `owner` is
    /// dropped, on any thread, when the last array that uses it is released. `shared`: the peer
    /// could still write to the memory, for it was lent, not sent.
    ///
    /// # Safety
    ///
    /// The buffers lie on the host and can be read until `owner` is dropped; nobody writes to them
    /// but, where `shared`, the peer.
    pub unsafe fn new(
        buffers: Vec<BufferRef>,
        owner: Arc<dyn Any + Send + Sync>,
        shared: bool,
    ) -> Self {
        Self {
            buffers,
            owner,
            shared,
            gpu: None,
        }
    }

    /// A body whose `buffers` lie on a GPU, at addresses of `device`. It may be read once `ready`
    /// has happened; `None`: at once. The rest is as for [`new`](Self::new).
    ///
    /// # Safety
    ///
    /// Kernels and copies of the device can read the buffers, behind `ready`, until `owner` is
    /// dropped; nobody writes to them but, where `shared`, the peer.
    pub unsafe fn on_gpu(
        buffers: Vec<BufferRef>,
        owner: Arc<dyn Any + Send + Sync>,
        shared: bool,
        device: Arc<Gpu>,
        ready: Option<Arc<GpuEvent>>,
    ) -> Self {
        Self {
            buffers,
            owner,
            shared,
            gpu: Some(BodyOnGpu { device, ready }),
        }
    }

    /// A packed body (rule D3): the header's buffer ranges found in `memory`.
    ///
    /// # Errors
    ///
    /// `Protocol` when the memory does not have the length that the header says.
    pub fn packed(header: &Header, memory: HostBuffer) -> Result<Self> {
        let outside = || {
            Error::protocol(format!(
                // Rule D3.
                "a body of {} bytes came where its header says {}",
                memory.len(),
                header.body_len()
            ))
        };
        if memory.len() as u64 != header.body_len() {
            return Err(outside());
        }
        let bytes = memory.as_slice();
        let mut buffers = Vec::with_capacity(header.buffers().len());
        for span in header.buffers() {
            let range = usize::try_from(span.offset)
                .ok()
                .zip(usize::try_from(span.length).ok());
            let buffer = range
                .and_then(|(start, len)| bytes.get(start..)?.get(..len))
                .ok_or_else(outside)?;
            buffers.push(BufferRef::of(buffer));
        }
        Ok(Self {
            buffers,
            owner: Arc::new(memory),
            shared: false,
            gpu: None,
        })
    }
}

/// Rule A1: one buffer for each of the header's, of the same length.
pub(super) fn ensure_matches(header: &Header, body: &ReceivedBody) -> Result<()> {
    let same = header.buffers().len() == body.buffers.len()
        && header
            .buffers()
            .zip(&body.buffers)
            .all(|(span, buffer)| span.length == buffer.len as u64);
    if same {
        return Ok(());
    }
    Err(Error::protocol(
        // Rule A1.
        "the buffers of the body are not those of its header",
    ))
}
