//! Lending memory to a peer that can reach it: a process on this host by a descriptor, one elsewhere by a
//! key ([`Export`] is what differs).
//!
//! [`Pool`] is the sender's side: it finds buffers in arenas, copies the others into regions of the
//! connection, and knows what is out. [`RegionTable`] is the receiver's: the regions mapped, and
//! the addresses in them.

mod announced;
mod export;
mod gpu;
mod handle;
mod hold;
mod orders;
mod pool;
mod state;
mod table;

pub(super) use export::{ByDescriptor, Export, Exported};
pub(super) use gpu::PeerProcess;
pub(super) use handle::GpuHandle;
pub(super) use pool::Pool;
pub(super) use table::RegionTable;

/// An address is the region's id above this bit and the offset in it below.
const ID_SHIFT: u32 = 48;

/// Most regions of one connection at once: each is a mapping of the client's process, and what a server
/// announces is to leave room for others (`vm.max_map_count`).
const MOST_REGIONS: u16 = 16_384;

/// The bits of the offset.
const OFFSET_BITS: u64 = (1 << ID_SHIFT) - 1;

/// The address of `offset` in region `id`. Ids start at 1, so nothing lies at address 0 (rule F3).
fn address(id: u16, offset: u64) -> u64 {
    debug_assert!(id != 0 && offset <= OFFSET_BITS);
    (u64::from(id) << ID_SHIFT) | (offset & OFFSET_BITS)
}

/// The id and the offset of an address.
pub(super) fn split_address(address: u64) -> (u16, u64) {
    let id = u16::try_from(address >> ID_SHIFT).unwrap_or_default();
    (id, address & OFFSET_BITS)
}
