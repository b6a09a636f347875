//! The parts that a transport brings: registered memory, and reads of it.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use crate::device::region::Region;
use crate::device::{BufferRef, HostBuffer};
use crate::error::Result;

/// Buffers begin at multiples of this in memory that is lent or read (rule A2).
pub(super) const ALIGNMENT: usize = 64;

/// Registers memory of this process for peers to read.
pub(in crate::transport) trait MemoryRegistry: Debug + Send + Sync {
    /// Registers a region, whose pages stay where they are from then on. The region may end before
    /// the registration, because no list names memory that is no longer mapped.
    ///
    /// # Errors
    ///
    /// Those of the transport: `OutOfMemory` or `Io` if the memory cannot be pinned.
    fn register(&self, region: &Region) -> Result<RegisteredMemory>;
}

/// Memory that is registered.
#[derive(Debug)]
pub(in crate::transport) struct RegisteredMemory {
    /// The packed key to it, for a peer.
    pub key: Vec<u8>,
    /// Ends the registration when it is dropped.
    pub access: Box<dyn Any + Send + Sync>,
}

/// The reads of the peer's memory, on one connection.
pub(in crate::transport) trait RemoteReads {
    /// A key to memory of the peer. It is dropped before the connection.
    type Key;

    /// Unpacks a key that the server has packed.
    ///
    /// # Errors
    ///
    /// `Protocol` if it is not a key; `Unreachable` if the memory cannot be reached.
    fn unpack(&self, packed: &[u8]) -> Result<Self::Key>;

    /// Whether the peer is lost: nothing can be read then.
    fn has_failed(&self) -> bool;

    /// Begins a read. [`Pulls::finish`](crate::transport::rdma::Pulls::finish) is called at its
    /// end.
    ///
    /// # Safety
    ///
    /// The target lies in `memory`. Until the read is over, nobody has a reference to `memory`, no
    /// other read has the same part of it as its target, and the key is kept.
    unsafe fn read(&mut self, read: RemoteRead<'_, Self::Key>);
}

/// One of the reads of a list.
pub(in crate::transport) struct RemoteRead<'a, K> {
    /// Number of its list on the connection.
    pub list: u64,
    /// The address at the peer.
    pub address: u64,
    pub key: &'a K,
    /// The place for the bytes.
    pub target: BufferRef,
    /// The memory of the target, which must be held until the read is over.
    pub memory: &'a Arc<HostBuffer>,
}
