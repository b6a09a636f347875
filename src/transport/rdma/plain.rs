//! Lending to peers without regions. Each listener has one piece of memory. The URI has its key,
//! and address lists name addresses of this process (rule U2).
//!
//! All baseline peers of a listener share this memory, because they have the same URI: such a
//! listener trusts each peer that can reach it.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::device::BufferRef;
use crate::device::region::Region;
use crate::error::Result;
use crate::fork::Generation;
use crate::proto::{Span, Spans};
use crate::transport::rdma::remote::{ALIGNMENT, MemoryRegistry, RegisteredMemory};
use crate::transport::{
    BodyPolicy, Charge, Lease, Lender, LendingOptions, MemoryOwner, OnGpu, Placement,
};

/// Largest memory of one listener, in bytes.
const MAX_BYTES: u64 = 64 << 20;

/// Memory of one listener that every baseline peer may read.
pub(super) struct PlainRegion {
    /// The first field: the peers' access ends before the memory does.
    registered: RegisteredMemory,
    region: Region,
    _charge: Charge,
}

impl PlainRegion {
    /// Makes and registers the memory.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` past the server's or the system's limit, `OutOfResources`, and the registry's
    /// errors.
    pub(super) fn new(
        registry: &dyn MemoryRegistry,
        options: &LendingOptions,
    ) -> Result<Arc<Self>> {
        let bytes = options.region_bytes.min(MAX_BYTES);
        let charge = options.budget.charge(bytes)?;
        let region = Region::create(bytes, "dipc-copies")?;
        Ok(Arc::new(Self {
            registered: registry.register(&region)?,
            region,
            _charge: charge,
        }))
    }

    /// The packed key.
    pub(super) fn key(&self) -> &[u8] {
        &self.registered.key
    }
}

/// Lends to one baseline peer. The blocks that are out hold it.
pub(super) struct PlainLender {
    memory: Arc<PlainRegion>,
    /// Most bytes lent at a time.
    limit: u64,
    generation: Generation,
    state: Mutex<LoanState>,
}

#[derive(Default)]
struct LoanState {
    /// Whether the connection is over.
    abandoned: bool,
    /// Bytes that are lent.
    lent: u64,
}

impl PlainLender {
    /// Lends up to `limit` bytes of `memory` at a time.
    pub(super) fn new(memory: Arc<PlainRegion>, limit: u64) -> Arc<Self> {
        Arc::new(Self {
            memory,
            limit,
            generation: Generation::now(),
            state: Mutex::default(),
        })
    }

    /// The connection is over: nothing more is lent.
    pub(super) fn abandon(&self) {
        if self.generation.is_same_process() {
            self.state.lock().abandoned = true;
        }
    }
}

/// The offsets of copies of `buffers` in a block, and the length of the block. `None`: the length
/// does not fit in 64 bits.
fn lay_out(buffers: &[BufferRef]) -> Option<(Vec<u64>, u64)> {
    let mut end = 0u64;
    let mut offsets = Vec::with_capacity(buffers.len());
    for buffer in buffers {
        offsets.push(end);
        let length = u64::try_from(buffer.len).ok()?;
        end = end.checked_add(length.checked_next_multiple_of(ALIGNMENT as u64)?)?;
    }
    Some((offsets, end))
}

impl Lender for PlainLender {
    fn place(
        self: Arc<Self>,
        buffers: &[BufferRef],
        gpu: Option<OnGpu<'_>>,
        _: BodyPolicy,
    ) -> Result<Placement> {
        self.generation.ensure_same_process()?;
        if gpu.is_some() {
            return Ok(Placement::Packed);
        }
        let Some((offsets, length)) = lay_out(buffers) else {
            return Ok(Placement::Packed);
        };
        // An empty body lends nothing, and its list would be longer than the body.
        if length == 0 {
            return Ok(Placement::Packed);
        }
        let Some(block) = PlainBlock::take(&self, length) else {
            return Ok(Placement::Packed);
        };
        let (mut spans, mut copied) = (Spans::with_capacity(buffers.len()), 0);
        for (buffer, at) in buffers.iter().zip(offsets) {
            spans.push(block.fill(at, *buffer));
            copied += buffer.len as u64;
        }
        Ok(Placement::Lent(Lease {
            copied,
            ..Lease::new(spans, MemoryOwner::One(Box::new(block)))
        }))
    }
}

/// A lent block. The drop gives the block back. If the connection ended before, the drop comes
/// after the close of the endpoint, and the peer reads no more (rule F4).
struct PlainBlock {
    lender: Arc<PlainLender>,
    offset: u64,
    length: u64,
}

impl PlainBlock {
    fn take(lender: &Arc<PlainLender>, length: u64) -> Option<Self> {
        let mut state = lender.state.lock();
        let lent = state.lent.checked_add(length)?;
        if state.abandoned || lent > lender.limit {
            return None;
        }
        let offset = lender.memory.region.alloc(length)?;
        state.lent = lent;
        Some(Self {
            lender: Arc::clone(lender),
            offset,
            length,
        })
    }

    /// Copies `buffer` to offset `at` in the block. Returns the span of the copy.
    fn fill(&self, at: u64, buffer: BufferRef) -> Span {
        if buffer.len == 0 {
            return Span {
                address: 0,
                length: 0,
            };
        }
        let region = &self.lender.memory.region;
        // An offset in a mapping fits in `usize`.
        let offset = usize::try_from(self.offset + at).unwrap_or(usize::MAX);
        let target = region.base().as_ptr().wrapping_add(offset);
        debug_assert!(region.offset_of(target, buffer.len).is_some());
        // SAFETY: `buffer` is readable, because its holder keeps the owner alive (see `BufferRef`).
        // The block has room for every buffer at the offset of `lay_out`, and has no other user.
        // The region is mapped while `self.lender` lives. The two do not overlap, because no
        // producer has memory in this region.
        unsafe { std::ptr::copy_nonoverlapping(buffer.data, target, buffer.len) };
        Span {
            address: target as u64,
            length: buffer.len as u64,
        }
    }
}

impl Drop for PlainBlock {
    fn drop(&mut self) {
        // In a forked child, no thread can release a lock that was held at the fork.
        if !self.lender.generation.is_same_process() {
            return;
        }
        let mut state = self.lender.state.lock();
        state.lent = state.lent.saturating_sub(self.length);
        self.lender.memory.region.free(self.offset);
    }
}
