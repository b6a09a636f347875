//! Memory that a peer can be lent, of the host or of a GPU.

use std::fmt::Debug;
use std::sync::Arc;

use crate::device::cuda::Device;
use crate::device::cuda::export::AllocationId;
use crate::device::cuda::pool::POOL_ID_BYTES;
use crate::device::lendable::Lendable;
use crate::error::Result;
use crate::transport::lend::export::{Borrower, ExportedRegion};

/// Memory of this process that the peer of a connection can be given to read.
pub(super) trait LentMemory: Debug + Send + Sync + 'static {
    /// The memory's name: no other memory of this process has it while this value lives.
    fn key(&self) -> MemoryKey;

    /// Makes the memory reachable; `None` where nothing leads the peer to it. `pool` is the peer's
    /// number of the [`pool`](Self::pool). The caller holds no lock.
    ///
    /// # Errors
    ///
    /// What the system or the driver says.
    fn export(&self, peer: &Borrower, pool: Option<u16>) -> Result<Option<ExportedRegion>>;

    /// The pool that the peer must know first.
    fn pool(&self) -> Option<Arc<dyn LentMemory>> {
        None
    }

    /// What becomes of the memory when no lease of it is out any more.
    fn after_return(&self) -> AfterReturn;

    /// The connection ended while the peer had a lease of this memory.
    fn abandon(&self, _peer: &Borrower) {}
}

/// The name of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum MemoryKey {
    /// A region, by its identity.
    Region(u64),
    /// An allocation of a producer's on a GPU.
    Allocation(AllocationId),
    /// A pool of a producer's on a GPU.
    Pool([u8; POOL_ID_BYTES]),
}

/// When the peer is told to forget memory of which no lease is out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterReturn {
    /// When its owner has given it up.
    WhenGone,
    /// The same, and when it has been idle for the time that the options say.
    WhenIdle,
    /// When it has been idle, for a second at most: the pool keeps it alive meanwhile.
    Soon,
    /// At once. Its owner must not free it before the peer has closed it.
    AtOnce,
}

/// A region of the connection, for copies.
pub(super) trait CopyRegion: LentMemory {
    /// Which of its bytes are in use.
    fn blocks(&self) -> &Lendable;

    /// Its first byte. Of a GPU's region the address is the device's: the processor does not reach
    /// it.
    fn base(&self) -> *mut u8;

    /// Its bytes.
    fn len(&self) -> usize;

    /// The GPU that it is on; `None`: it is the host's.
    fn device(&self) -> Option<&Arc<Device>>;

    /// Lets `device` copy to the host's memory at its full rate, where it can.
    fn pin(&self, _device: &Arc<Device>) {}
}

/// Memory of a producer's that the peer may read. All leases of it that are out at once share one.
#[derive(Debug)]
pub(super) struct Borrow {
    /// The region's number on the connection.
    pub id: u16,
    pub memory: Arc<dyn LentMemory>,
    /// The pool that the memory is of.
    pub pool: Option<Arc<Borrow>>,
}

/// A block of a region for the copies of one body.
#[derive(Debug)]
pub(super) struct LentBlock {
    /// The region's number on the connection.
    pub id: u16,
    pub region: Arc<dyn CopyRegion>,
    pub offset: u64,
    pub len: u64,
}

impl LentBlock {
    /// The byte at offset `at` in the block.
    pub fn target(&self, at: u64) -> *mut u8 {
        // An offset in memory that is mapped fits.
        let offset = usize::try_from(self.offset + at).unwrap_or(usize::MAX);
        self.region.base().wrapping_add(offset)
    }
}
