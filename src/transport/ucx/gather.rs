//! The memory of a message on its way out, as UCX takes it.

use std::ffi::c_void;

use ucx1_sys::{
    UCP_DATATYPE_IOV, UCP_OP_ATTR_FIELD_DATATYPE, UCP_OP_ATTR_FIELD_MEMORY_TYPE,
    UCP_OP_ATTR_FLAG_NO_IMM_CMPL, UCS_MEMORY_TYPE_CUDA, UCS_MEMORY_TYPE_HOST, ucp_datatype_t,
    ucp_dt_make_contig, ucp_request_param_t,
};

use crate::device::BufferRef;
use crate::device::cuda::GpuBody;
use crate::transport::Payload;

/// Bodies up to this many bytes are put together here: that costs less than describing their runs.
pub(super) const TOGETHER_BYTES: usize = 4096;

/// One run of memory, as `ucp_dt_iov_t` of `ucp.h` describes it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Run {
    buffer: *const c_void,
    length: usize,
}

/// A message on its way out, and what keeps its memory alive.
pub(super) struct Sending {
    memory: Memory,
    /// Keeps the memory of others alive. Dropped with the message, also where that is a copy: letting
    /// go of it may wake a thread, and the message leaves first.
    _owner: Option<Box<dyn Send>>,
    /// Its length in bytes.
    length: usize,
}

enum Memory {
    Bytes(Vec<u8>),
    Runs(Vec<Run>),
    Gpu(GpuBody),
}

// SAFETY: the runs are described, not used; their owner, which may be sent, is beside them.
unsafe impl Send for Sending {}

impl Sending {
    /// Takes bytes of our own.
    pub(super) fn bytes(bytes: Vec<u8>) -> Self {
        Self {
            length: bytes.len(),
            memory: Memory::Bytes(bytes),
            _owner: None,
        }
    }

    /// Takes bytes of our own; `owner` is dropped with the message.
    pub(super) fn kept(bytes: Vec<u8>, owner: Box<dyn Send>) -> Self {
        Self {
            _owner: Some(owner),
            ..Self::bytes(bytes)
        }
    }

    /// Takes a tagged message.
    pub(super) fn payload(payload: Payload) -> Self {
        match payload {
            // In memory that does not move with the message.
            Payload::Bytes(bytes) => Self::bytes(bytes.into_vec()),
            Payload::Shared(bytes) => Self::bytes(bytes.to_vec()),
            Payload::Gather { parts, owner } => Self::gather(&parts, owner),
        }
    }

    /// Takes a body that lies in a GPU's memory.
    pub(super) fn gpu(body: GpuBody) -> Self {
        Self {
            length: body.len(),
            memory: Memory::Gpu(body),
            _owner: None,
        }
    }

    fn gather(parts: &[BufferRef], owner: Box<dyn Send>) -> Self {
        let length = parts.iter().map(|part| part.len).sum();
        if length <= TOGETHER_BYTES {
            let mut bytes = Vec::with_capacity(length);
            for part in parts {
                // SAFETY: `owner` keeps the runs alive, and a body handed over to be sent is not
                // written to, as Arrow's C data interface asks of a producer ("immutable").
                bytes.extend_from_slice(unsafe { part.as_slice() });
            }
            return Self::kept(bytes, owner);
        }
        let mut runs: Vec<Run> = Vec::with_capacity(parts.len());
        for part in parts.iter().filter(|part| part.len > 0) {
            match runs.last_mut() {
                // What lies together goes together: often the whole body, from an arena.
                Some(last) if last.buffer.cast::<u8>().wrapping_add(last.length) == part.data => {
                    last.length += part.len;
                }
                _ => runs.push(Run {
                    buffer: part.data.cast(),
                    length: part.len,
                }),
            }
        }
        Self {
            memory: Memory::Runs(runs),
            _owner: Some(owner),
            length,
        }
    }

    /// The memory of a message of bytes of our own, or none.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        match self.memory {
            Memory::Bytes(bytes) => bytes,
            Memory::Runs(_) | Memory::Gpu(_) => Vec::new(),
        }
    }

    /// Length in bytes.
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// What UCX is given: buffer, count, and parameters that say what they are. They point into
    /// memory that `self` owns on the heap, and stay valid when `self` is moved.
    pub(super) fn describe(&self) -> (*const c_void, usize, ucp_request_param_t) {
        let mut params = ucp_request_param_t {
            op_attr_mask: UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_MEMORY_TYPE,
            memory_type: UCS_MEMORY_TYPE_HOST,
            datatype: ucp_dt_make_contig(1),
            ..ucp_request_param_t::default()
        };
        match &self.memory {
            Memory::Bytes(bytes) => (bytes.as_ptr().cast(), bytes.len(), params),
            Memory::Gpu(body) => {
                // Said, not left to be found out: libraries number what is beyond the known kinds
                // differently, and looking would take a call of the driver's.
                params.memory_type = UCS_MEMORY_TYPE_CUDA;
                // UCX reads a short message with the processor as long as its cache of memory types
                // is there and empty, whatever type is said (1.22). This flag leaves that path out.
                params.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
                (address_of(body), body.len(), params)
            }
            Memory::Runs(runs) => match &runs[..] {
                [run] => (run.buffer, run.length, params),
                runs => {
                    params.datatype = ucp_datatype_t::from(UCP_DATATYPE_IOV);
                    (runs.as_ptr().cast(), runs.len(), params)
                }
            },
        }
    }
}

/// Where a body lies, as UCX takes it.
pub(super) fn address_of(body: &GpuBody) -> *mut c_void {
    std::ptr::without_provenance_mut(usize::try_from(body.address()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gathered(parts: &[BufferRef]) -> Sending {
        Sending::payload(Payload::Gather {
            parts: parts.to_vec(),
            owner: Box::new(()),
        })
    }

    /// Design, "Nothing is copied that need not be": runs that lie together are one buffer, sent
    /// from where it is; others are a list; empty ones are left out.
    #[test]
    fn runs_that_lie_together_are_one() {
        let bytes = vec![1_u8; 10_000];
        let other = vec![2_u8; 10];
        let (front, back) = bytes.split_at(6000);
        let whole = gathered(&[BufferRef::of(front), BufferRef::EMPTY, BufferRef::of(back)]);
        let (buffer, count, params) = whole.describe();
        assert_eq!((buffer, count), (bytes.as_ptr().cast(), 10_000));
        assert_eq!(params.datatype, ucp_dt_make_contig(1));
        let two = gathered(&[BufferRef::of(&bytes), BufferRef::of(&other)]);
        let (_, count, params) = two.describe();
        assert_eq!((count, two.len()), (2, 10_010));
        assert_eq!(params.datatype, ucp_datatype_t::from(UCP_DATATYPE_IOV));
    }

    /// A small body is put together, and its owner is let go with it.
    #[test]
    fn a_small_body_is_put_together() {
        let parts = [vec![1_u8; 3], vec![2; 2]];
        let owner = std::sync::Arc::new(());
        let sending = Sending::payload(Payload::Gather {
            parts: parts.iter().map(|part| BufferRef::of(part)).collect(),
            owner: Box::new(std::sync::Arc::clone(&owner)),
        });
        assert!(matches!(&sending.memory, Memory::Bytes(bytes) if bytes == &[1, 1, 1, 2, 2]));
        drop(sending);
        assert_eq!(std::sync::Arc::strong_count(&owner), 1);
    }

    /// An empty body is a message of no bytes (rule D1).
    #[test]
    fn an_empty_body_has_no_bytes() {
        let (_, count, _) = gathered(&[BufferRef::EMPTY]).describe();
        assert_eq!(count, 0);
    }
}
