//! The pools of producers that the peer of one connection knows, under the pool's lock.

use std::sync::Arc;

use crate::device::cuda::Device;
use crate::device::cuda::pool::{ExportedPool, POOL_ID_BYTES};
use crate::transport::RegionNotice;
use crate::transport::lend::gpu::notice;
use crate::transport::lend::handle::Way;
use crate::transport::lend::state::{self, Retiring};

/// A pool of a producer's. It has a number of its own, and is retired with the last memory of it: then
/// the producer may destroy it.
#[derive(Debug)]
pub(super) struct Pool {
    id: [u8; POOL_ID_BYTES],
    pub(super) notice: RegionNotice,
    pub(super) announced: bool,
    /// Lent memory of it.
    lent: usize,
}

impl state::State {
    /// The number of a pool, with one more allocation of it lent; `None` when no id is left for it.
    pub(super) fn join_pool(&mut self, device: &Device, pool: &ExportedPool) -> Option<u16> {
        let mut known = self.gpu.pools.iter_mut();
        if let Some((id, known)) = known.find(|(_, known)| known.id == *pool.id()) {
            known.lent += 1;
            return Some(*id);
        }
        let id = self.ids.take()?;
        let fd = Some(Arc::clone(pool.fd()));
        let fresh = Pool {
            id: *pool.id(),
            notice: notice(id, device, 0, Way::Pool(*pool.id()), fd),
            announced: false,
            lent: 1,
        };
        self.gpu.pools.insert(id, fresh);
        Some(id)
    }

    /// One allocation of a pool less is lent.
    pub(super) fn leave_pool(&mut self, id: u16) {
        let Some(pool) = self.gpu.pools.get_mut(&id) else {
            return;
        };
        pool.lent -= 1;
        if pool.lent > 0 {
            return;
        }
        let announced = pool.announced;
        self.gpu.pools.remove(&id);
        self.retire_id(id, announced, Retiring::default());
    }
}
