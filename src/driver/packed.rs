//! Packed bodies that have arrived, on the host or on a GPU.

use std::sync::Arc;

use crate::arrow::decode::ReceivedBody;
use crate::device::HostBuffer;
use crate::device::cuda::GpuBody;
use crate::error::{Error, Result};
use crate::proto::Header;

#[derive(Debug)]
pub enum PackedBody {
    Host(HostBuffer),
    Gpu(GpuBody),
}

impl PackedBody {
    pub fn len(&self) -> usize {
        match self {
            Self::Host(memory) => memory.len(),
            Self::Gpu(body) => body.len(),
        }
    }

    /// The GPU on which the body lies, if it lies on one.
    pub fn gpu(&self) -> Option<i32> {
        match self {
            Self::Host(_) => None,
            Self::Gpu(body) => Some(body.device().ordinal()),
        }
    }

    /// Finds the header's buffers in the body. Fails if the body does not have the length that the
    /// header says.
    pub fn find(self, header: &Header) -> Result<ReceivedBody> {
        match self {
            Self::Host(memory) => ReceivedBody::packed(header, memory),
            Self::Gpu(body) => packed_on_gpu(header, body),
        }
    }
}

/// The header's buffers in a packed body (rule D3) that was received into a GPU's memory.
fn packed_on_gpu(header: &Header, body: GpuBody) -> Result<ReceivedBody> {
    let outside = || {
        Error::protocol(format!(
            "a body of {} bytes came where its header says {}",
            body.len(),
            header.body_len()
        ))
    };
    if body.len() as u64 != header.body_len() {
        return Err(outside());
    }
    let spans = header.buffers();
    let buffers = spans.map(|span| body.slice(span.offset, span.length));
    let buffers = buffers.collect::<Option<Vec<_>>>().ok_or_else(outside)?;
    let device = Arc::clone(body.device());
    // SAFETY: the buffers lie in `body`, which is their owner, on its device. The transport has
    // received all of `body` and is done with it, so that the buffers are written and nobody else
    // has them.
    Ok(unsafe { ReceivedBody::on_gpu(buffers, Arc::new(body), false, device, None) })
}
