//! Lending over UCX: a server's regions, registered for the peer to read (rules D4, U2).

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use ucx1_sys::{
    UCP_FEATURE_RMA, UCP_MEM_MAP_PARAM_FIELD_ADDRESS, UCP_MEM_MAP_PARAM_FIELD_LENGTH, UCS_OK,
    ucp_mem_h, ucp_mem_map_params_t,
};

use crate::device::region::Region;
use crate::error::Result;
use crate::fork::Generation;
use crate::transport::lend::{Export, ExportedRegion, RegionPool};
use crate::transport::ucx::context::Context;
use crate::transport::ucx::error::error;
use crate::transport::ucx::plain::{PlainLender, PlainRegion};
use crate::transport::{BodyPolicy, Lender, LendingOptions};

/// The memory that a listener lends to each of its connections.
pub(super) struct Lending {
    context: Arc<Context>,
    options: LendingOptions,
    /// Memory for baseline peers.
    plain: Arc<PlainRegion>,
}

/// The UCX feature for lending, if these options make a server lend.
pub(super) fn features(options: &LendingOptions) -> u64 {
    match options.body {
        BodyPolicy::Packed | BodyPolicy::Auto => 0,
        BodyPolicy::Lent => u64::from(UCP_FEATURE_RMA),
    }
}

impl Lending {
    /// `None` if the options forbid lending. The context must have [`features`].
    ///
    /// # Errors
    ///
    /// The region for baseline peers cannot be made: `OutOfMemory`, and errors of UCX.
    pub(super) fn new(context: &Arc<Context>, options: &LendingOptions) -> Result<Option<Self>> {
        if features(options) == 0 {
            return Ok(None);
        }
        // Without a device that reads memory, UCX answers each read with messages of its own. If
        // the client dies before these messages leave, UCX mistakes their type and crashes this
        // process.
        if context.goes_over_tcp() {
            tracing::warn!(
                "memory is lent over UCX without a device that reads it: a client that is killed \
                 while it reads may end this process; let bodies be sent (auto, packed) instead"
            );
        }
        Ok(Some(Self {
            context: Arc::clone(context),
            options: options.clone(),
            plain: PlainRegion::new(context, options)?,
        }))
    }

    /// The key to the memory for baseline peers (rule U2).
    pub(super) fn remote_handle(&self) -> Vec<u8> {
        self.plain.key().to_vec()
    }

    /// The lenders of one connection.
    pub(super) fn lenders(&self) -> Lenders {
        let export = ByKey {
            context: Arc::clone(&self.context),
        };
        let plain = PlainLender::new(Arc::clone(&self.plain), self.options.lent_limit);
        Lenders {
            pool: Arc::new(RegionPool::new(&self.options, Box::new(export), None)),
            plain: Arc::new(plain),
        }
    }
}

/// What lends to one connection.
pub struct Lenders {
    /// Regions, to a peer with our extension.
    pub(super) pool: Arc<RegionPool>,
    /// Plain memory, to another.
    plain: Arc<PlainLender>,
}

impl Lenders {
    /// The one for a peer with our `extension`, or without it (rule E1).
    pub(super) fn of_peer(&self, extension: bool) -> Arc<dyn Lender> {
        match extension {
            true => Arc::clone(&self.pool) as _,
            false => Arc::clone(&self.plain) as _,
        }
    }

    /// See [`RegionPool::abandon`].
    pub(super) fn abandon(&self) {
        self.pool.abandon();
        self.plain.abandon();
    }
}

/// Registers regions with UCX and passes the keys to them (`docs/wire.md`, "Regions over UCX").
struct ByKey {
    context: Arc<Context>,
}

impl fmt::Debug for ByKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ByKey")
    }
}

impl Export for ByKey {
    /// A key is of no use without the registration and the endpoint. The endpoint is closed before
    /// the lent memory comes back.
    fn is_mapped(&self) -> bool {
        false
    }

    fn export(&self, region: &Region) -> Result<ExportedRegion> {
        let registered = Registered::new(&self.context, region)?;
        let (base, length) = (region.base().as_ptr() as u64, region.len() as u64);
        let mut handle = Vec::with_capacity(16 + registered.key.len());
        handle.extend_from_slice(&base.to_le_bytes());
        handle.extend_from_slice(&length.to_le_bytes());
        handle.extend_from_slice(&registered.key);
        let access: Box<dyn Any + Send + Sync> = Box::new(registered);
        Ok(ExportedRegion {
            handle,
            fd: None,
            access: Some(access),
        })
    }
}

/// Memory that is registered with UCX. The drop ends the registration.
pub(super) struct Registered {
    context: Arc<Context>,
    handle: ucp_mem_h,
    key: Vec<u8>,
    generation: Generation,
}

// SAFETY: the registration belongs to the context and to no thread. The context was made for
// several threads.
unsafe impl Send for Registered {}
// SAFETY: shared access only reads the key.
unsafe impl Sync for Registered {}

impl Registered {
    /// Registers a region. The region may end before the registration, because no list names memory
    /// that is no longer mapped.
    ///
    /// # Errors
    ///
    /// Errors of UCX: `OutOfMemory` or `Io` if the memory cannot be pinned.
    pub(super) fn new(context: &Arc<Context>, region: &Region) -> Result<Self> {
        let api = context.api();
        let params = ucp_mem_map_params_t {
            field_mask: u64::from(UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH),
            address: region.base().as_ptr().cast(),
            length: region.len(),
            ..ucp_mem_map_params_t::default()
        };
        let mut handle = std::ptr::null_mut();
        // SAFETY: the context lives; the masked fields are set and name mapped memory; `handle` is
        // writable.
        let status =
            unsafe { api.ucp_mem_map(context.handle(), &raw const params, &raw mut handle) };
        if status != UCS_OK {
            let doing = format_args!("cannot register {} bytes for reading", region.len());
            return Err(error(api, doing, status));
        }
        // From here on, the drop of `registered` ends the registration.
        let mut registered = Self {
            context: Arc::clone(context),
            handle,
            key: Vec::new(),
            generation: Generation::now(),
        };
        registered.key = registered.pack()?;
        Ok(registered)
    }

    /// The key to the memory for a peer, as UCX packs it.
    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    fn pack(&self) -> Result<Vec<u8>> {
        let api = self.context.api();
        let (mut buffer, mut size) = (std::ptr::null_mut(), 0);
        // SAFETY: the registration was made with this context; `buffer` and `size` are writable.
        let status = unsafe {
            api.ucp_rkey_pack(
                self.context.handle(),
                self.handle,
                &raw mut buffer,
                &raw mut size,
            )
        };
        if status != UCS_OK {
            return Err(error(api, "cannot pack the key to a region", status));
        }
        // SAFETY: UCX wrote `size` bytes to `buffer`, and nothing changes them.
        let key = unsafe { std::slice::from_raw_parts(buffer.cast::<u8>(), size) }.to_vec();
        // SAFETY: `buffer` was packed above, and is not used after this call.
        unsafe { api.ucp_rkey_buffer_release(buffer) };
        Ok(key)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // A forked child has none of UCX's state.
        if !self.generation.is_same_process() {
            return;
        }
        let api = self.context.api();
        // SAFETY: `handle` was made in `new` with this context, and is given back only here.
        let status = unsafe { api.ucp_mem_unmap(self.context.handle(), self.handle) };
        if status != UCS_OK {
            tracing::error!(
                "a registration cannot be given back: {}",
                api.status_text(status)
            );
        }
    }
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registered").finish_non_exhaustive()
    }
}
