//! The places where bodies lie, and the work of lending in each.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::device::BufferRef;
use crate::device::cuda::Device;
use crate::error::Result;
use crate::transport::lend::hold::LeaseHold;
use crate::transport::lend::memory::CopyRegion;
use crate::transport::{Charge, Lease, ReadyNotice};

/// Copies begin at multiples of this (rule A2).
const ALIGNMENT: u64 = 64;

/// A place: the host's memory, or a GPU's.
pub(super) trait LendingPlace {
    /// The GPU that has the copies; `None`: they are on the host.
    fn device(&self) -> Option<&Arc<Device>>;

    /// Looks up every buffer of a body, and adds memory that can be lent where it lies to `hold`.
    /// `None`: the body cannot be lent, or not now.
    fn find(&self, hold: &mut LeaseHold, buffers: &[BufferRef]) -> Result<Option<BodySources>>;

    /// Lengths of regions are multiples of this.
    fn unit(&self) -> Result<u64>;

    /// Makes a region for copies of the length of `charge`. Returns `charge` if only the peer can
    /// say when the memory is free. `None`: there is no memory or no descriptor left.
    fn create(&self, charge: Charge) -> Result<Option<(CopyRegion, Option<Charge>)>>;

    /// Copies a body to the block of `hold`. Returns the event that the peer must wait for.
    /// Errors: Those of the driver. No copy is under way then.
    fn copy(
        &self,
        hold: &mut LeaseHold,
        buffers: &[BufferRef],
        sources: &BodySources,
    ) -> Result<Option<ReadyNotice>>;

    /// Counts the bytes that were copied.
    fn count(&self, lease: &mut Lease, copied: u64);
}

/// The source of one buffer of a body.
pub(super) enum BufferSource {
    Empty,
    /// In memory that is lent: its index in [`LeaseHold::borrowed`], and the offset there.
    Lent {
        borrowed: usize,
        offset: u64,
    },
    /// Must be copied, to this offset in the block.
    Copy {
        at: u64,
    },
}

/// The sources of a body.
pub(super) struct BodySources {
    /// The source of each buffer.
    pub buffers: SmallVec<[BufferSource; 4]>,
    /// Bytes of the buffers to copy, each padded to 64.
    pub copied_bytes: u64,
}

impl BodySources {
    /// No sources yet, for a body with so many buffers.
    pub fn with_capacity(buffers: usize) -> Self {
        Self {
            buffers: SmallVec::with_capacity(buffers),
            copied_bytes: 0,
        }
    }

    /// Adds a buffer. `lent` says where it is lent (see [`BufferSource::Lent`]); `None`: it is
    /// copied. Returns `None` if there are too many bytes to count.
    pub fn add(&mut self, buffer: BufferRef, lent: Option<(usize, u64)>) -> Option<()> {
        let source = match lent {
            _ if buffer.len == 0 => BufferSource::Empty,
            Some((borrowed, offset)) => BufferSource::Lent { borrowed, offset },
            None => {
                let at = self.copied_bytes;
                let len = u64::try_from(buffer.len).ok()?;
                let padded = len.checked_next_multiple_of(ALIGNMENT)?;
                self.copied_bytes = at.checked_add(padded)?;
                BufferSource::Copy { at }
            }
        };
        self.buffers.push(source);
        Some(())
    }

    /// The buffers to copy, and their offsets in the block.
    pub fn copies<'a>(
        &'a self,
        buffers: &'a [BufferRef],
    ) -> impl Iterator<Item = (BufferRef, u64)> + 'a {
        (buffers.iter().zip(&self.buffers)).filter_map(|(buffer, source)| match source {
            BufferSource::Copy { at } => Some((*buffer, *at)),
            BufferSource::Empty | BufferSource::Lent { .. } => None,
        })
    }
}
