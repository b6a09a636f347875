//! How a region is made reachable for the peer.

use std::any::Any;
use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::device::memfd::Process;
use crate::device::region::Region;
use crate::error::Result;
use crate::transport::RegionNotice;

/// Makes regions reachable for one peer.
pub trait Export: Send + Sync + Debug {
    /// Makes `region` reachable. It may take milliseconds (pages are pinned), so no lock is held.
    ///
    /// # Errors
    ///
    /// Of the system or the transport: the bodies then travel as bytes.
    fn export(&self, region: &Arc<Region>) -> Result<Exported>;

    /// Whether the peer loses its access when the [`Exported`] is dropped. Where it does not, memory
    /// that was out at a cut is never used again (rule F4).
    fn is_revocable(&self) -> bool;

    /// Whether the peer reads the region where it is, and not a copy that it makes.
    fn is_mapped(&self) -> bool;

    /// Whether copying into a region, to lend from there, is worth it: not where the bytes would be
    /// received in place all the same.
    fn lends_copies(&self) -> bool;
}

/// A region that the peer can reach, until this is dropped.
#[derive(Debug)]
pub struct Exported {
    /// What the REGION message carries.
    pub handle: Vec<u8>,
    /// The descriptor that goes with it.
    pub fd: Option<Arc<OwnedFd>>,
    /// Dropping it ends the peer's access.
    pub _access: Option<Box<dyn Any + Send + Sync>>,
}

impl Exported {
    pub(super) fn notice(&self, id: u16) -> RegionNotice {
        RegionNotice {
            id,
            handle: self.handle.clone(),
            fd: self.fd.clone(),
        }
    }
}

/// Passes the descriptor of the region, for processes of one host.
#[derive(Debug, Clone, Default)]
pub struct ByDescriptor {
    /// The peer's process, where the system tells of its end.
    pub process: Option<Process>,
}

impl Export for ByDescriptor {
    fn export(&self, region: &Arc<Region>) -> Result<Exported> {
        let len = u64::try_from(region.len()).unwrap_or(u64::MAX);
        Ok(Exported {
            handle: len.to_le_bytes().to_vec(),
            fd: Some(region.give(self.process.as_ref())),
            _access: None,
        })
    }

    /// A mapping cannot be taken back.
    fn is_revocable(&self) -> bool {
        false
    }

    fn is_mapped(&self) -> bool {
        true
    }

    fn lends_copies(&self) -> bool {
        true
    }
}
