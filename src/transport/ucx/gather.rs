//! The memory of a message on its way out, as UCX takes it.

use std::ffi::c_void;

use ucx1_sys::{
    UCP_DATATYPE_IOV, UCP_OP_ATTR_FIELD_DATATYPE, UCP_OP_ATTR_FIELD_MEMORY_TYPE,
    UCP_OP_ATTR_FLAG_NO_IMM_CMPL, UCS_MEMORY_TYPE_CUDA, UCS_MEMORY_TYPE_HOST, ucp_datatype_t,
    ucp_dt_make_contig, ucp_request_param_t,
};

use crate::device::cuda::GpuBody;
use crate::device::{BufferRef, HostBuffer};
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
    /// Keeps the memory of others alive. Dropped with the message, also where that is a copy:
    /// letting go of it may wake a thread, and the message leaves first.
    _owner: Option<Box<dyn Send>>,
    /// Its length in bytes.
    length: usize,
}

enum Memory {
    Bytes(Vec<u8>),
    Whole(HostBuffer),
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

    /// Takes a tagged message. Over tcp, one that lies in several runs of memory is put together.
    pub(super) fn payload(payload: Payload, over_tcp: bool) -> Self {
        match payload {
            // In memory that does not move with the message.
            Payload::Bytes(bytes) => Self::bytes(bytes.into_vec()),
            Payload::Shared(bytes) => Self::bytes(bytes.to_vec()),
            Payload::Gather { parts, owner } => Self::gather(&parts, owner, over_tcp),
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

    fn gather(parts: &[BufferRef], owner: Box<dyn Send>, over_tcp: bool) -> Self {
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
        // UCX packs runs into short pieces, each of which is a system call over tcp.
        if over_tcp
            && runs.len() > 1
            && let Some(whole) = put_together(parts, length)
        {
            return Self {
                memory: Memory::Whole(whole),
                _owner: None,
                length,
            };
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
            Memory::Whole(_) | Memory::Runs(_) | Memory::Gpu(_) => Vec::new(),
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
            Memory::Whole(whole) => {
                let bytes = whole.as_slice();
                (bytes.as_ptr().cast(), bytes.len(), params)
            }
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

/// Copies runs, which have `length` bytes in all, one behind the other. `None`: there is no memory
/// for that.
fn put_together(parts: &[BufferRef], length: usize) -> Option<HostBuffer> {
    let mut whole = HostBuffer::to_fill(length).ok()?;
    let mut rest = whole.as_mut_slice();
    for part in parts {
        let (run, behind) = rest.split_at_mut_checked(part.len)?;
        // SAFETY: as in `gather`: the caller has the owner.
        run.copy_from_slice(unsafe { part.as_slice() });
        rest = behind;
    }
    rest.is_empty().then_some(whole)
}

/// Where a body lies, as UCX takes it.
pub(super) fn address_of(body: &GpuBody) -> *mut c_void {
    std::ptr::without_provenance_mut(usize::try_from(body.address()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gathered(parts: &[BufferRef]) -> Sending {
        let payload = Payload::Gather {
            parts: parts.to_vec(),
            owner: Box::new(()),
        };
        Sending::payload(payload, false)
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
        let payload = Payload::Gather {
            parts: parts.iter().map(|part| BufferRef::of(part)).collect(),
            owner: Box::new(std::sync::Arc::clone(&owner)),
        };
        let sending = Sending::payload(payload, false);
        assert!(matches!(&sending.memory, Memory::Bytes(bytes) if bytes == &[1, 1, 1, 2, 2]));
        drop(sending);
        assert_eq!(std::sync::Arc::strong_count(&owner), 1);
    }

    /// Over tcp a body in several runs becomes one, byte for byte, and its owner is let go; what is
    /// one run already is sent from where it is.
    #[test]
    fn over_tcp_a_body_is_one_run() {
        let bytes = [vec![1_u8; 40_000], vec![2; 30_001]].concat();
        let owner = std::sync::Arc::new(());
        let sending = |at: usize, next: usize| {
            let parts = [&bytes[..at], &bytes[next..]].map(BufferRef::of).to_vec();
            let owner = Box::new(std::sync::Arc::clone(&owner));
            Sending::payload(Payload::Gather { parts, owner }, true)
        };
        let apart = sending(20_000, 30_000);
        let Memory::Whole(whole) = &apart.memory else {
            panic!("it is in runs");
        };
        let expected = [&bytes[..20_000], &bytes[30_000..]].concat();
        assert_eq!(whole.as_slice(), expected);
        let (buffer, count, params) = apart.describe();
        assert_eq!((buffer, count), (whole.as_slice().as_ptr().cast(), 60_001));
        assert_eq!(params.datatype, ucp_dt_make_contig(1));
        assert_eq!(std::sync::Arc::strong_count(&owner), 1);
        let (buffer, count, _) = sending(20_000, 20_000).describe();
        assert_eq!((buffer, count), (bytes.as_ptr().cast(), bytes.len()));
    }

    /// An empty body is a message of no bytes (rule D1).
    #[test]
    fn an_empty_body_has_no_bytes() {
        let (_, count, _) = gathered(&[BufferRef::EMPTY]).describe();
        assert_eq!(count, 0);
    }
}
