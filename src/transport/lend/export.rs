//! The peer of one connection, and how the peer's process reaches a region.

use std::any::Any;
use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::device::memfd::Process;
use crate::device::region::Region;
use crate::error::Result;

/// Makes regions of the host's memory reachable for one peer.
pub trait Export: Send + Sync + Debug {
    /// Makes `region` reachable. The call may pin pages, which takes milliseconds, so the caller
    /// holds no lock.
    /// Errors: Those of the system or the transport: the bodies then travel as bytes.
    fn export(&self, region: &Region) -> Result<ExportedRegion>;

    /// Whether the peer maps the region. It then reads in place, and its access cannot be taken
    /// away: memory that was lent at a cut is never used again (rule F4). Otherwise the peer
    /// copies, and loses its access when the [`ExportedRegion`] is dropped.
    fn is_mapped(&self) -> bool;
}

/// A region that the peer can reach, until this is dropped.
#[derive(Debug)]
pub struct ExportedRegion {
    /// The contents of the REGION message.
    pub handle: Vec<u8>,
    /// The descriptor that goes with the message.
    pub fd: Option<Arc<OwnedFd>>,
    /// Ends the peer's access when it is dropped.
    pub access: Option<Box<dyn Any + Send + Sync>>,
}

/// Passes the descriptor of the region, for processes on one host.
#[derive(Debug, Clone, Default)]
pub struct ByDescriptor {
    /// The peer's process, if the system can report its end.
    pub process: Option<Process>,
}

impl Export for ByDescriptor {
    fn export(&self, region: &Region) -> Result<ExportedRegion> {
        let len = u64::try_from(region.len()).unwrap_or(u64::MAX);
        Ok(ExportedRegion {
            handle: len.to_le_bytes().to_vec(),
            fd: Some(region.give(self.process.as_ref())),
            access: None,
        })
    }

    fn is_mapped(&self) -> bool {
        true
    }
}

/// The process at the other end, if the system can report its end.
#[derive(Debug)]
pub struct PeerProcess {
    /// Becomes readable when the process has ended.
    pub death: Arc<OwnedFd>,
    /// The peer is this process. Nothing reports when it is done with memory, and it cannot open
    /// handles of its own.
    pub is_this: bool,
    /// The process runs as this process's user.
    pub same_user: bool,
}

/// The peer to which memory is lent.
#[derive(Debug)]
pub(super) struct Borrower {
    /// How the peer reaches the host's memory.
    pub export: Box<dyn Export>,
    /// `None`: no memory of GPUs is lent.
    pub process: Option<PeerProcess>,
}

impl Borrower {
    /// Whether the peer is this very process.
    pub fn is_this_process(&self) -> bool {
        self.process.as_ref().is_some_and(|peer| peer.is_this)
    }
}
