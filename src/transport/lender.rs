//! Lending memory to the peer of one connection.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::device::BufferRef;
use crate::device::cuda;
use crate::error::Result;
use crate::proto::Spans;
use crate::transport::BodyPolicy;

/// Where a body goes.
pub enum Placement {
    /// Send the bytes (kind 0): lending is not worth it, or not possible now.
    Packed,
    /// Send an address list (kind 1).
    Lent(Lease),
}

/// Memory lent to the peer.
pub struct Lease {
    /// One span for each buffer, in order; (0, 0) for empty ones (rule A1).
    pub spans: Spans,
    /// Bytes copied into regions of the connection.
    pub copied: u64,
    /// Bytes lent where they lie: the producer's array must live until the peer returns them.
    pub borrowed: u64,
    /// Neither end copies the body, so the lease takes no memory.
    pub in_place: bool,
    /// Bytes copied from one place of a GPU's memory to another and lent from the copy.
    pub copied_on_device: u64,
    /// Bytes copied from a GPU's memory to the host's and lent from the copy.
    pub staged: u64,
    /// For memory of a GPU: the place for the owner of the producer's array. The caller puts the
    /// owner there before it sends the list.
    pub keep: Option<Keep>,
    /// The event that the peer waits for before it reads.
    pub ready: Option<ReadyNotice>,
    /// Dropped when the peer has returned every span, or after
    /// [`RegionPool::abandon`](super::RegionPool::abandon).
    pub hold: MemoryOwner,
}

impl Lease {
    /// A lease of the host's memory.
    pub fn new(spans: Spans, hold: MemoryOwner) -> Self {
        Self {
            spans,
            copied: 0,
            borrowed: 0,
            in_place: false,
            copied_on_device: 0,
            staged: 0,
            keep: None,
            ready: None,
            hold,
        }
    }
}

/// A value that keeps memory alive until it is dropped.
pub enum MemoryOwner {
    /// For this lease or body alone.
    One(Box<dyn Send>),
    /// For several leases or bodies.
    Shared(Arc<dyn Send + Sync>),
}

/// A place for the owner of lent memory. The owner is dropped with the last copy of this.
#[derive(Clone, Default)]
pub struct Keep(Arc<Mutex<Option<Box<dyn Send>>>>);

impl std::fmt::Debug for Keep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keep")
    }
}

impl Keep {
    /// Puts the owner there.
    pub fn put(&self, owner: Box<dyn Send>) {
        *self.0.lock() = Some(owner);
    }
}

/// An event, as the peer is told about it (READY).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadyNotice {
    /// Its number on this connection.
    pub event: u16,
    /// The handle that opens it; empty once the peer has the handle.
    pub handle: Vec<u8>,
}

/// What must be known about buffers on a GPU. Their addresses are those of the GPU.
#[derive(Debug, Clone, Copy)]
pub struct OnGpu<'a> {
    /// The stream on which work with them is done.
    pub stream: &'a Arc<cuda::Stream>,
    /// An event on that stream: once it has happened, the buffers may be read.
    pub ready: &'a cuda::Event,
}

/// A region, as the peer is told about it.
#[derive(Debug, Clone)]
pub struct RegionNotice {
    /// Its number on this connection, from 1.
    pub id: u16,
    /// The handle in the REGION message. For shm and memory of the host: its length, u64 LE.
    pub handle: Vec<u8>,
    /// Its descriptor, if the transport passes descriptors.
    pub fd: Option<Arc<OwnedFd>>,
}

/// Lends memory to the peer of one connection, on the caller's thread, outside the connection's
/// lock.
pub trait Lender: Send + Sync {
    /// Decides how a body travels. If the body is lent, copies the buffers that do not lie in an
    /// arena. With `gpu` the buffers lie on a GPU: they are lent there to a client that asked for
    /// the GPU and reaches it, and copied to the host for other clients. The caller keeps the owner
    /// of the buffers until it has put the owner in the lease's [`keep`](Lease::keep). Small bodies
    /// are lent if the stream's `policy` or the connection's policy says so.
    ///
    /// # Errors
    ///
    /// Those of the system or of a GPU's driver, if sending the bytes would not help either.
    fn place(
        self: Arc<Self>,
        buffers: &[BufferRef],
        gpu: Option<OnGpu<'_>>,
        policy: BodyPolicy,
    ) -> Result<Placement>;
}
