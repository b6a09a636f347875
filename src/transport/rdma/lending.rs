//! A server's regions, registered for the peer to read (rules D4, U2).

use std::sync::Arc;

use crate::device::region::Region;
use crate::error::Result;
use crate::transport::lend::{Export, ExportedRegion, RegionPool};
use crate::transport::rdma::plain::{PlainLender, PlainRegion};
use crate::transport::rdma::remote::MemoryRegistry;
use crate::transport::{BodyPolicy, Lender, LendingOptions};

/// Whether these options make a server lend: lending over RDMA must be asked for.
pub(in crate::transport) fn lends(options: &LendingOptions) -> bool {
    options.body == BodyPolicy::Lent
}

/// The memory that a listener lends to each of its connections.
pub(in crate::transport) struct Lending {
    registry: Arc<dyn MemoryRegistry>,
    options: LendingOptions,
    /// Memory for baseline peers.
    plain: Arc<PlainRegion>,
}

impl Lending {
    /// Begins to lend.
    ///
    /// # Errors
    ///
    /// The region for baseline peers cannot be made: `OutOfMemory`, and errors of the registry.
    pub(in crate::transport) fn new(
        registry: Arc<dyn MemoryRegistry>,
        options: &LendingOptions,
    ) -> Result<Self> {
        Ok(Self {
            plain: PlainRegion::new(&*registry, options)?,
            registry,
            options: options.clone(),
        })
    }

    /// The key to the memory for baseline peers (rule U2).
    pub(in crate::transport) fn remote_handle(&self) -> Vec<u8> {
        self.plain.key().to_vec()
    }

    /// The lenders of one connection.
    pub(in crate::transport) fn lenders(&self) -> Lenders {
        let export = ByKey(Arc::clone(&self.registry));
        let plain = PlainLender::new(Arc::clone(&self.plain), self.options.lent_limit);
        Lenders {
            pool: RegionPool::new(&self.options, Box::new(export), None),
            plain,
        }
    }
}

/// The lenders of one connection.
pub(in crate::transport) struct Lenders {
    /// Lends regions to a peer with our extension.
    pub(in crate::transport) pool: Arc<RegionPool>,
    /// Lends plain memory to a peer without it.
    plain: Arc<PlainLender>,
}

impl Lenders {
    /// The lender for a peer with our `extension`, or without it (rule E1).
    pub(in crate::transport) fn of_peer(&self, extension: bool) -> Arc<dyn Lender> {
        match extension {
            true => Arc::clone(&self.pool) as _,
            false => Arc::clone(&self.plain) as _,
        }
    }

    /// See [`RegionPool::abandon`].
    pub(in crate::transport) fn abandon(&self) {
        self.pool.abandon();
        self.plain.abandon();
    }
}

/// Registers regions and passes on the keys to them (`docs/wire.md`, "Regions over UCX").
#[derive(Debug)]
struct ByKey(Arc<dyn MemoryRegistry>);

impl Export for ByKey {
    /// A key is useless without the registration and the connection. The connection is closed
    /// before the lent memory comes back.
    fn is_mapped(&self) -> bool {
        false
    }

    fn export(&self, region: &Region) -> Result<ExportedRegion> {
        let registered = self.0.register(region)?;
        let (base, length) = (region.base().as_ptr() as u64, region.len() as u64);
        let (base, length) = (base.to_le_bytes(), length.to_le_bytes());
        Ok(ExportedRegion {
            handle: [&base[..], &length, &registered.key].concat(),
            fd: None,
            access: Some(registered.access),
        })
    }
}
