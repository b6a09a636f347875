//! Lending memory to a peer that can reach it: a process on this host reaches it by a descriptor, a
//! process elsewhere by a key ([`Export`] is the difference).
//!
//! [`RegionPool`] is the sender's side: it finds buffers in memory that can be lent, copies the
//! others into regions of the connection, and knows what is lent. [`RegionTable`] is the receiver's
//! side: the mapped regions, and the addresses in them.
//!
//! The sender's files, from the leaves up: [`memory`] (memory to lend), [`regions`] (of a
//! connection, under a lock), [`hold`] (by one lease),
//! [`place`] (where bodies lie: [`host`] or [`gpu`]), [`pool`].

mod address;
mod export;
mod gpu;
mod hold;
mod host;
mod lending;
mod mappings;
mod memory;
mod pinned;
mod place;
mod pool;
mod regions;
mod table;

#[cfg(test)]
use address::MOST_REGIONS;
pub(super) use address::{beyond, ensure_new, never_announced, split_address};
pub(super) use export::{ByDescriptor, Export, ExportedRegion, PeerProcess};
pub(super) use gpu::handle::GpuHandle;
pub use pool::RegionPool;
pub use table::RegionTable;
