//! The files of regions, for hosts that map lendable memory a second time.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use crate::arena::find;
use crate::device::region::Region;

/// The file behind bytes of a host arena of this process. A mapping of the file shows the same
/// memory as the arena's own mapping. The file cannot shrink, and a new mapping cannot change it:
/// a shared mapping cannot be writable, and what is written to a private one stays there.
///
/// The file has the whole region, so map no more than the pages of your own bytes. When a block is
/// freed, its memory is used again, and all mappings show the new content.
///
/// ```
/// use dipc::{Arena, ArenaFile};
///
/// let buffer = Arena::host()?.buffer(4096)?.freeze();
/// let file = ArenaFile::of(&buffer).expect("bytes of an arena");
/// println!("{:?} has them from byte {} on", file, file.offset());
/// assert!(ArenaFile::of(&[0; 16]).is_none());
/// # Ok::<(), dipc::Error>(())
/// ```
pub struct ArenaFile {
    region: Arc<Region>,
    offset: u64,
}

impl ArenaFile {
    /// Finds the file. `None`: no arena has all of these bytes in one region.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let (region, offset) = find(bytes.as_ptr(), bytes.len())?;
        Some(Self { region, offset })
    }

    /// The offset of the first of the bytes in the file.
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

impl AsFd for ArenaFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.region.fd().as_fd()
    }
}

impl fmt::Debug for ArenaFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArenaFile")
            .field("fd", &self.as_fd())
            .field("offset", &self.offset)
            .finish()
    }
}
