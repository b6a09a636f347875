//! What a transport brings: registered memory, and reads of it.

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
    /// The key to it for a peer, packed.
    pub key: Vec<u8>,
    /// Ends the registration when it is dropped.
    pub access: Box<dyn Any + Send + Sync>,
}

/// Reads of the peer's memory, at one connection.
pub(in crate::transport) trait RemoteReads {
    /// Opens memory of the peer. It is dropped before the connection.
    type Key;

    /// Makes a key usable that the server has packed.
    ///
    /// # Errors
    ///
    /// `Protocol` for one that is none; `Unreachable` where nothing reaches the memory.
    fn unpack(&self, packed: &[u8]) -> Result<Self::Key>;

    /// Whether the peer is lost: nothing can be read then.
    fn has_failed(&self) -> bool;

    /// Begins to read. Its end is told by [`Pulls::finish`](crate::transport::rdma::Pulls::finish).
    ///
    /// # Safety
    ///
    /// The target lies in `memory`. Until the read is over, nobody has a reference to `memory`, no
    /// other read has the same part of it as its target, and the key is kept.
    unsafe fn read(&mut self, read: RemoteRead<'_, Self::Key>);
}

/// One read of a list.
pub(in crate::transport) struct RemoteRead<'a, K> {
    /// Number of its list on its connection.
    pub list: u64,
    /// Where it is at the peer.
    pub address: u64,
    pub key: &'a K,
    /// Where it goes.
    pub target: BufferRef,
    /// The memory of the target, to be held until the read is over.
    pub memory: &'a Arc<HostBuffer>,
}
