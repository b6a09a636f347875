//! The memory of an outgoing message, in the form for UCX.

use std::ffi::c_void;

use ucx1_sys::{
    UCP_OP_ATTR_FIELD_DATATYPE, UCP_OP_ATTR_FIELD_MEMORY_TYPE, UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
    UCS_MEMORY_TYPE_CUDA, UCS_MEMORY_TYPE_HOST, ucp_dt_make_contig, ucp_request_param_t,
};

use crate::device::cuda::GpuBody;
use crate::device::{BufferRef, HostBuffer};
use crate::error::{Error, Result};
use crate::transport::Payload;

/// Length of the header with the number of the message's stream.
pub(super) const NUMBER_BYTES: usize = size_of::<u32>();

/// An outgoing message, and everything that keeps its memory alive.
pub(super) enum Sending {
    /// Bytes of our own.
    Bytes(Vec<u8>),
    /// Bytes of our own, after the header of an active message.
    Numbered(Vec<u8>),
    /// A copy of several runs of memory.
    Copied(HostBuffer),
    /// One run of memory, which the owner keeps alive.
    Run {
        run: BufferRef,
        _owner: Box<dyn Send>,
    },
    /// The memory of a GPU.
    Gpu(GpuBody),
}

impl Sending {
    /// Takes a tagged message. UCX packs several runs into short pieces, so they are copied into
    /// one.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`: there is no memory for the copy.
    pub(super) fn payload(payload: Payload) -> Result<Self> {
        Ok(match payload {
            // In memory that does not move when the message moves.
            Payload::Bytes(bytes) => Self::Bytes(bytes.into_vec()),
            Payload::Shared(bytes) => Self::Bytes(bytes.to_vec()),
            Payload::Gather { parts, owner } => match one_run(&parts) {
                Some(run) => Self::Run { run, _owner: owner },
                None => Self::Copied(put_together(&parts)?),
            },
        })
    }

    /// Takes an active message of the stream `number` (rule S2).
    pub(super) fn active(number: u32, bytes: Vec<u8>) -> Self {
        match number {
            0 => Self::Bytes(bytes),
            _ => Self::Numbered([&number.to_le_bytes()[..], &bytes].concat()),
        }
    }

    /// The header of an active message, and its length. It keeps its address when `self` is moved.
    pub(super) fn header(&self) -> (*const c_void, usize) {
        match self {
            Self::Numbered(bytes) => (bytes.as_ptr().cast(), NUMBER_BYTES),
            _ => (std::ptr::null(), 0),
        }
    }

    /// Length in bytes.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Numbered(bytes) => bytes.len() - NUMBER_BYTES,
            Self::Copied(copy) => copy.len(),
            Self::Run { run, .. } => run.len,
            Self::Gpu(body) => body.len(),
        }
    }

    /// The arguments for UCX: buffer, length, and parameters that describe them. The buffer keeps
    /// its address when `self` is moved.
    pub(super) fn describe(&self) -> (*const c_void, usize, ucp_request_param_t) {
        let mut params = bytes_on_the_host();
        let buffer = match self {
            Self::Bytes(bytes) => bytes.as_ptr().cast(),
            Self::Numbered(bytes) => bytes[NUMBER_BYTES..].as_ptr().cast(),
            Self::Copied(copy) => copy.as_slice().as_ptr().cast(),
            Self::Run { run, .. } => run.data.cast(),
            Self::Gpu(body) => {
                // Given explicitly: libraries use different numbers for additional kinds of memory,
                // and a query would take a call of the driver's.
                params.memory_type = UCS_MEMORY_TYPE_CUDA;
                // UCX reads a short message with the processor while its cache of memory types
                // exists and is empty, whatever type is given. This flag avoids that.
                params.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
                address_of(body).cast_const()
            }
        };
        (buffer, self.len(), params)
    }
}

/// Parameters that say that a buffer lies on the host, so that UCX need not find out.
pub(super) fn bytes_on_the_host() -> ucp_request_param_t {
    ucp_request_param_t {
        op_attr_mask: UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_MEMORY_TYPE,
        datatype: ucp_dt_make_contig(1),
        memory_type: UCS_MEMORY_TYPE_HOST,
        ..ucp_request_param_t::default()
    }
}

/// The single run that all parts make up together, if they do: often the whole body, from an arena.
fn one_run(parts: &[BufferRef]) -> Option<BufferRef> {
    let mut parts = parts.iter().filter(|part| part.len > 0);
    let mut run = parts.next().copied().unwrap_or(BufferRef::EMPTY);
    for part in parts {
        if run.data.wrapping_add(run.len) != part.data {
            return None;
        }
        run.len = run.len.checked_add(part.len)?;
    }
    Some(run)
}

/// Copies all runs into one buffer.
fn put_together(parts: &[BufferRef]) -> Result<HostBuffer> {
    let length = parts
        .iter()
        .try_fold(0_usize, |sum, part| sum.checked_add(part.len))
        .ok_or_else(|| Error::out_of_memory("a body is longer than any memory"))?;
    let mut whole = HostBuffer::to_fill(length)?;
    let mut rest = whole.as_mut_slice();
    for part in parts {
        let (run, behind) = rest.split_at_mut(part.len);
        // SAFETY: the caller has the owner of the runs, and a body handed over to be sent is not
        // written to, as Arrow's C data interface asks of a producer ("immutable").
        run.copy_from_slice(unsafe { part.as_slice() });
        rest = behind;
    }
    Ok(whole)
}

/// The address of a body, in the form for UCX.
pub(super) fn address_of(body: &GpuBody) -> *mut c_void {
    std::ptr::without_provenance_mut(usize::try_from(body.address()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn gathered(parts: &[&[u8]], owner: &Arc<()>) -> Sending {
        Sending::payload(Payload::Gather {
            parts: parts.iter().map(|part| BufferRef::of(part)).collect(),
            owner: Box::new(Arc::clone(owner)),
        })
        .unwrap()
    }

    /// Design, "Nothing is copied that need not be": runs that lie together are sent from where
    /// they are, and their owner lives as long; empty ones are left out.
    #[test]
    fn runs_that_lie_together_are_one() {
        let (bytes, owner) = (vec![1_u8; 10_000], Arc::new(()));
        let (front, back) = bytes.split_at(6000);
        let sending = gathered(&[front, &[], back], &owner);
        let (buffer, count, _) = sending.describe();
        assert_eq!((buffer, count), (bytes.as_ptr().cast(), 10_000));
        assert_eq!(Arc::strong_count(&owner), 2);
        drop(sending);
        assert_eq!(Arc::strong_count(&owner), 1);
    }

    /// A body in several runs becomes one, byte for byte, and its owner is let go.
    #[test]
    fn runs_that_lie_apart_are_put_together() {
        let bytes = [vec![1_u8; 40_000], vec![2; 30_001]].concat();
        let owner = Arc::new(());
        let apart = gathered(&[&bytes[..20_000], &bytes[30_000..]], &owner);
        let Sending::Copied(whole) = &apart else {
            panic!("it is not copied");
        };
        let expected = [&bytes[..20_000], &bytes[30_000..]].concat();
        assert_eq!(whole.as_slice(), expected);
        let (buffer, count, _) = apart.describe();
        assert_eq!((buffer, count), (whole.as_slice().as_ptr().cast(), 60_001));
        assert_eq!(Arc::strong_count(&owner), 1);
    }

    /// An empty body is a message of no bytes (rule D1).
    #[test]
    fn an_empty_body_has_no_bytes() {
        assert_eq!(gathered(&[&[]], &Arc::new(())).describe().1, 0);
    }
}
