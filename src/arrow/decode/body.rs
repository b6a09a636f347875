//! The bodies of messages, in the memory where they were received.

use std::any::Any;
use std::sync::Arc;

use crate::device::gpu::{Gpu, GpuEvent};
use crate::device::{BufferRef, HostBuffer};
use crate::error::{Error, Result};
use crate::proto::Header;

/// The body of a message, in the memory where it was received.
#[derive(Clone)]
pub struct ReceivedBody {
    pub(super) buffers: Vec<BufferRef>,
    pub(super) owner: Arc<dyn Any + Send + Sync>,
    pub(super) shared: bool,
    /// `None` for a body on the host.
    pub(super) gpu: Option<BodyOnGpu>,
}

/// The GPU of a body.
#[derive(Clone)]
pub(super) struct BodyOnGpu {
    pub(super) device: Arc<Gpu>,
    /// The event that readers must wait for.
    pub(super) ready: Option<Arc<GpuEvent>>,
}

impl ReceivedBody {
    /// The GPU of the body; `None` for a body on the host.
    pub(super) fn device(&self) -> Option<&Arc<Gpu>> {
        self.gpu.as_ref().map(|gpu| &gpu.device)
    }

    /// A body in `buffers`, one for each buffer of the header, in order. The last release of an
    /// array that uses the body drops `owner`, on any thread. `shared`: the body was lent, not
    /// sent, so the peer can still write to it.
    ///
    /// # Safety
    ///
    /// The buffers lie on the host and are readable until `owner` is dropped. Nobody writes to
    /// them, except the peer if `shared`.
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

    /// A body whose `buffers` are addresses on `device`. It is readable after the event `ready`, or
    /// at once for `None`. The rest is as for [`new`](Self::new).
    ///
    /// # Safety
    ///
    /// Kernels and copies of the device can read the buffers after `ready`, until `owner` is
    /// dropped. Nobody writes to them, except the peer if `shared`.
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

    /// A packed body (rule D3): finds the header's buffers in `memory`.
    ///
    /// # Errors
    ///
    /// `Protocol` if the length of the memory is not the header's body length.
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

/// Rule A1: the body has one buffer for each buffer of the header, of the same length.
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
