//! Lending memory to a peer that can reach it: a process on this host by a descriptor, a process
//! elsewhere by a key ([`Export`] is the difference).
//!
//! [`RegionPool`] is the sender's side: it finds buffers in memory that can be lent, copies the
//! others into regions of the connection, and knows what is out. [`RegionTable`] is the receiver's:
//! the regions mapped, and the addresses in them.
//!
//! The sender's files, from the leaves up: [`memory`] (memory to lend), [`regions`] (of a
//! connection, under a lock), [`hold`] (by one lease), [`place`] (where bodies lie: [`host`] or
//! [`gpu`]), [`pool`].

mod export;
mod gpu;
mod hold;
mod host;
mod mappings;
mod memory;
mod pinned;
mod place;
mod pool;
mod regions;
mod table;

pub(super) use export::{ByDescriptor, Export, ExportedRegion, PeerProcess};
pub(super) use gpu::handle::GpuHandle;
pub use mappings::MappingBudget;
pub use pool::RegionPool;
pub(super) use table::RegionTable;

/// An address is the region's id above this bit and the offset in it below.
const ID_SHIFT: u32 = 48;

/// Most regions of one connection at once. Each is a mapping of the client's process, which may
/// have 65,530 of them (`vm.max_map_count`): other connections need some too.
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
