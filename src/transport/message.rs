//! Messages on their way out and in.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::device::cuda::GpuBody;
use crate::device::{BufferRef, HostBuffer};
use crate::error::Error;
use crate::proto::Bytes;

/// A message on its way out.
pub enum Outgoing {
    /// Untagged: the 5-byte prefix, and the header that follows it (rule M2).
    Metadata {
        /// Kind and sequence number.
        prefix: [u8; 5],
        /// Flatbuffer bytes, which others may share; `None` if nothing follows the prefix.
        header: Option<Arc<[u8]>>,
    },
    /// Tagged: a body, a request or a list of addresses to free.
    Tagged {
        /// The whole 64-bit tag.
        tag: u64,
        /// What the message holds.
        payload: Payload,
    },
    /// Tagged: a packed body that lies whole in a GPU's memory, including its padding, and can be
    /// read. Only if the connection's [ways](super::BodyWays::gpu) include it.
    GpuBody {
        /// The whole 64-bit tag.
        tag: u64,
        /// The body; dropped when the message has left, on any thread.
        body: GpuBody,
    },
    /// Control (rule E3); `fd` goes with a REGION message on transports that pass descriptors.
    Control {
        /// The encoded message.
        bytes: Vec<u8>,
        /// Descriptor of the region that the message announces.
        fd: Option<Arc<OwnedFd>>,
    },
}

/// The error for [`Outgoing::GpuBody`] on a transport that sends host memory only.
pub(super) fn sends_host_memory_only() -> Error {
    Error::unsupported("this transport sends bodies from host memory only")
}

/// Messages of up to this size are copied to the end of earlier ones, and leave with them. A copy
/// costs less than a separate run of memory.
pub const COPIED_BYTES: usize = 1024;

/// The bytes of a tagged message.
pub enum Payload {
    /// Bytes of our own.
    Bytes(Bytes),
    /// Bytes that others may share.
    Shared(Arc<[u8]>),
    /// Runs of memory sent one after the other, straight from where they lie.
    Gather {
        /// The runs, padding included.
        parts: Vec<BufferRef>,
        /// Keeps the memory of the runs alive; dropped when the message has left, on any thread.
        owner: Box<dyn Send>,
    },
}

impl Payload {
    /// Length in bytes; `None` if it is more than any memory has.
    pub fn checked_len(&self) -> Option<usize> {
        match self {
            Self::Bytes(bytes) => Some(bytes.len()),
            Self::Shared(bytes) => Some(bytes.len()),
            Self::Gather { parts, .. } => parts
                .iter()
                .try_fold(0_usize, |sum, part| sum.checked_add(part.len)),
        }
    }

    /// Appends a copy of the bytes to `bytes`.
    pub fn append_to(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Bytes(own) => bytes.extend_from_slice(own),
            Self::Shared(shared) => bytes.extend_from_slice(shared),
            Self::Gather { parts, .. } => parts.iter().for_each(|part| {
                // SAFETY: the owner beside the runs keeps them alive, and nobody writes to a body
                // that was handed over to be sent, as Arrow's C data interface asks of a producer
                // ("immutable").
                bytes.extend_from_slice(unsafe { part.as_slice() });
            }),
        }
    }
}

/// The place of a body on its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct BodyPlace {
    /// The number of its stream.
    pub(super) number: u32,
    /// The sequence number of its message.
    pub(super) seq: u32,
}

/// A message that arrived.
#[derive(Debug)]
pub enum Incoming {
    /// Untagged: prefix and header, as they came.
    Metadata(Bytes),
    /// A tagged message other than a packed body (a request, a free list, an address list).
    Tagged {
        /// The whole 64-bit tag.
        tag: u64,
        /// What the message holds.
        bytes: Bytes,
    },
    /// A packed body (rule D3), in memory that can be handed out.
    Body {
        /// Sequence number, the low 32 bits of the tag.
        seq: u32,
        /// The bytes.
        memory: HostBuffer,
    },
    /// A packed body in the memory of the GPU that
    /// [`PeerRegions::receive_on`](super::PeerRegions::receive_on) named.
    GpuBody {
        /// Sequence number, the low 32 bits of the tag.
        seq: u32,
        /// The bytes; no work that the transport started is still using this memory.
        body: GpuBody,
    },
    /// Control message, and the descriptor of the region if it is a REGION and a descriptor came.
    Control {
        /// The encoded message.
        bytes: Bytes,
        /// Descriptor that came with it.
        fd: Option<OwnedFd>,
    },
}

impl Incoming {
    /// How many bytes of this side's memory the message holds.
    pub fn held_bytes(&self) -> u64 {
        let len = match self {
            Self::Metadata(bytes) | Self::Tagged { bytes, .. } | Self::Control { bytes, .. } => {
                bytes.len()
            }
            Self::Body { .. } | Self::GpuBody { .. } => self.body_len(),
        };
        len as u64
    }

    /// The length in bytes if it is a packed body; otherwise 0.
    pub fn body_len(&self) -> usize {
        match self {
            Self::Body { memory, .. } => memory.len(),
            Self::GpuBody { body, .. } => body.len(),
            Self::Metadata(_) | Self::Tagged { .. } | Self::Control { .. } => 0,
        }
    }
}
