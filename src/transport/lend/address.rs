//! Addresses in regions, and the checks of what a peer says about them.

use crate::error::{Error, Result};
use crate::proto::Span;

/// An address has the region's id above this bit and the offset in the region below.
const ID_SHIFT: u32 = 48;

/// Most regions of one connection at once. Each is a mapping of the client's process, which may
/// have 65,530 mappings (`vm.max_map_count`): other connections need some too.
pub(super) const MOST_REGIONS: u16 = 16_384;

/// The bits of the offset.
pub(super) const OFFSET_BITS: u64 = (1 << ID_SHIFT) - 1;

/// The address of `offset` in region `id`. Ids start at 1, so nothing lies at address 0 (rule F3).
pub(super) fn address(id: u16, offset: u64) -> u64 {
    debug_assert!(id != 0 && offset <= OFFSET_BITS);
    (u64::from(id) << ID_SHIFT) | (offset & OFFSET_BITS)
}

/// The id and the offset of an address.
pub fn split_address(address: u64) -> (u16, u64) {
    let id = u16::try_from(address >> ID_SHIFT).unwrap_or_default();
    (id, address & OFFSET_BITS)
}

/// Refuses a region whose id the peer may not announce.
pub fn ensure_new(id: u16, is_known: bool) -> Result<()> {
    match (id, is_known) {
        (0, _) => Err(Error::protocol(
            // Rule E3.
            "the peer announced a region with the id 0",
        )),
        (_, true) => Err(Error::protocol(format!(
            "the peer announced region {id} twice (an id is free again only after REGION_GONE)"
        ))),
        (_, false) => Ok(()),
    }
}

/// The error for a peer that retires a region that it never announced.
pub fn never_announced(id: u16) -> Error {
    Error::protocol(format!(
        "the peer retired region {id}, which it never announced"
    ))
}

/// The error for a span that is not inside its region, which has `len` bytes.
pub fn beyond(span: Span, len: u64) -> Error {
    Error::protocol(format!(
        "{} bytes at address {:#x} reach past region {}, which has {len} bytes",
        span.length,
        span.address,
        split_address(span.address).0,
    ))
}
