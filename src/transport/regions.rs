//! Memory that the peer lends.

use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::device::BufferRef;
use crate::device::cuda;
use crate::error::Result;
use crate::proto::Span;

/// Memory that an address list names, as the receiver has found it.
pub struct Resolved {
    /// One entry for each span, in order; [`BufferRef::EMPTY`] for empty spans.
    pub buffers: Vec<BufferRef>,
    /// Keeps the memory mapped.
    pub owner: Arc<dyn Any + Send + Sync>,
    /// Whether the peer could still write to the memory.
    pub shared: bool,
    /// Whether this is a copy of our own, so the peer can have its memory back at once.
    pub pulled: bool,
    /// `Some` if the memory is a GPU's. Then the buffers are addresses there, which no processor
    /// reads.
    pub gpu: Option<ResolvedGpu>,
}

/// The place of a body on a GPU.
pub struct ResolvedGpu {
    /// The GPU, as this process knows it.
    pub device: Arc<cuda::Device>,
    /// The event that work that reads the body must wait for; `None`: it may be read.
    pub ready: Option<Arc<cuda::Event>>,
}

/// When a forgotten region of the peer is no longer mapped here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Unmapped {
    /// It is not mapped any more.
    Now,
    /// Once the work given to [`cuda::later`] so far is done: the driver may wait for the device.
    Later,
}

/// The memory that the peer of a connection lends.
pub trait PeerRegions {
    /// Maps a region that the peer announced (rule E3, REGION). A region on a GPU is opened when
    /// the first body in it is [resolved](Self::resolve); if that fails, only the bodies in it
    /// fail.
    ///
    /// # Errors
    ///
    /// `Protocol`: it is not sealed, has holes, is on a GPU that was not
    /// [accepted](crate::transport::RegionTable::accept_gpus), or its id is in use.
    fn map(&mut self, id: u16, handle: &[u8], fd: Option<OwnedFd>) -> Result<()>;

    /// Forgets a region that the peer retired (REGION_GONE). Arrays keep it mapped. Returns when
    /// the peer may be told.
    ///
    /// # Errors
    ///
    /// `Protocol` if no region has that id.
    fn unmap(&mut self, id: u16) -> Result<Unmapped>;

    /// Finds the memory of the address list that came for message `seq` of the stream `number`.
    /// Spans of length 0 are empty, whatever their address.
    ///
    /// # Errors
    ///
    /// `Protocol` if a span is not inside a region that the peer announced; errors of the driver
    /// for a region on a GPU.
    fn resolve(&mut self, number: u32, seq: u32, spans: Vec<Span>) -> Result<Resolved>;

    /// The GPU whose memory shall receive bodies; `None` for the host's memory, as at the
    /// beginning. If that is not possible or not worth while, bodies come on the host. Lent memory
    /// of the host is prepared for copies by the GPU.
    fn receive_on(&mut self, gpu: Option<&Arc<cuda::Device>>) {
        let _ = gpu;
    }

    /// Whether the regions can be read, because no GPU was reset. Otherwise the connection must not
    /// serve more streams.
    fn is_sound(&self) -> bool {
        true
    }
}
