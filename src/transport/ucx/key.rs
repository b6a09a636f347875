//! Keys to a server's memory: how UCX makes and uses them.

use std::sync::Arc;

use ucx1_sys::{
    Api, UCP_MEM_MAP_PARAM_FIELD_ADDRESS, UCP_MEM_MAP_PARAM_FIELD_LENGTH, UCS_OK, ucp_mem_h,
    ucp_mem_map_params_t, ucp_rkey_h,
};

use crate::device::region::Region;
use crate::error::{Error, Result};
use crate::fork::Generation;
use crate::transport::rdma::{MemoryRegistry, RegisteredMemory, RemoteRead, RemoteReads};
use crate::transport::ucx::context::Context;
use crate::transport::ucx::error::ensure;
use crate::transport::ucx::gather::bytes_on_the_host;
use crate::transport::ucx::link::UcxLink;
use crate::transport::ucx::operations::Work;

/// Zeros after a packed key. UCX does not take the length of a key, so it reads as far as an
/// invalid key says: at most 64 parts, one for each device, each with a length of one byte.
const PADDING: usize = 64 * 256;

/// A key, opened at one endpoint. It is dropped before its worker, and after every operation that
/// uses it.
#[derive(Debug)]
pub(super) struct RemoteKey {
    api: &'static Api,
    handle: ucp_rkey_h,
}

// SAFETY: the key belongs to its worker and not to a thread. The owner of the worker uses and drops
// the key, one thread at a time.
unsafe impl Send for RemoteKey {}
// SAFETY: shared access reads the handle alone, which does not change.
unsafe impl Sync for RemoteKey {}

impl Drop for RemoteKey {
    fn drop(&mut self) {
        // SAFETY: unpacked by a link and destroyed only here; the type's contract says that its
        // worker is still there and that nothing uses it.
        unsafe { self.api.ucp_rkey_destroy(self.handle) };
    }
}

impl RemoteReads for UcxLink {
    type Key = RemoteKey;

    fn unpack(&self, packed: &[u8]) -> Result<RemoteKey> {
        if packed.is_empty() {
            return Err(Error::protocol("the key to the server's memory is empty"));
        }
        let mut padded = Vec::with_capacity(packed.len() + PADDING);
        padded.extend_from_slice(packed);
        padded.resize(packed.len() + PADDING, 0);
        let api = self.worker.api();
        let mut handle = std::ptr::null_mut();
        // SAFETY: the endpoint lives; the key is readable, with room behind it; `handle` is
        // writable.
        let status = unsafe {
            api.ucp_ep_rkey_unpack(self.endpoint.0, padded.as_ptr().cast(), &raw mut handle)
        };
        ensure(api, "the key to the server's memory cannot be used", status)?;
        Ok(RemoteKey { api, handle })
    }

    fn has_failed(&self) -> bool {
        self.shared.with(|reports| reports.failed.is_some())
    }

    unsafe fn read(&mut self, read: RemoteRead<'_, RemoteKey>) {
        let params = bytes_on_the_host();
        let buffer = read.target.data.cast_mut().cast();
        // SAFETY: the endpoint lives, and the key was unpacked at it. The operation added below
        // holds the memory of the target and the caller keeps the key until the read is over, by
        // the contract of `RemoteReads::read`, which also keeps other references and reads out of
        // the target.
        let returned = unsafe {
            self.worker.api().ucp_get_nbx(
                self.endpoint.0,
                buffer,
                read.target.len,
                read.address,
                read.key.handle,
                &raw const params,
            )
        };
        let work = Work::Read {
            list: read.list,
            memory: Arc::clone(read.memory),
        };
        if self.operations.add(work, returned) {
            // A sleeping thread has armed the worker before this.
            self.worker.signal();
        }
    }
}

impl MemoryRegistry for Arc<Context> {
    fn register(&self, region: &Region) -> Result<RegisteredMemory> {
        let api = self.api;
        let params = ucp_mem_map_params_t {
            field_mask: u64::from(UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH),
            address: region.base().as_ptr().cast(),
            length: region.len(),
            ..ucp_mem_map_params_t::default()
        };
        let mut handle = std::ptr::null_mut();
        // SAFETY: the context lives; the masked fields are set and name mapped memory; `handle` is
        // writable.
        let status = unsafe { api.ucp_mem_map(self.handle, &raw const params, &raw mut handle) };
        let doing = format_args!("cannot register {} bytes for reading", region.len());
        ensure(api, doing, status)?;
        let registration = UcxRegistration {
            context: Arc::clone(self),
            handle,
            generation: Generation::now(),
        };
        Ok(RegisteredMemory {
            key: registration.pack()?,
            access: Box::new(registration),
        })
    }
}

/// Memory that is registered with UCX. The drop ends the registration.
struct UcxRegistration {
    context: Arc<Context>,
    handle: ucp_mem_h,
    generation: Generation,
}

// SAFETY: the registration belongs to the context and to no thread. The context was made for
// several threads.
unsafe impl Send for UcxRegistration {}
// SAFETY: shared access does nothing.
unsafe impl Sync for UcxRegistration {}

impl UcxRegistration {
    /// The packed key to the memory, for a peer.
    fn pack(&self) -> Result<Vec<u8>> {
        let api = self.context.api;
        let (mut buffer, mut size) = (std::ptr::null_mut(), 0);
        // SAFETY: the registration was made with this context; `buffer` and `size` are writable.
        let status = unsafe {
            api.ucp_rkey_pack(
                self.context.handle,
                self.handle,
                &raw mut buffer,
                &raw mut size,
            )
        };
        ensure(api, "cannot pack the key to a region", status)?;
        // SAFETY: UCX wrote `size` bytes to `buffer`, and nothing changes them.
        let key = unsafe { std::slice::from_raw_parts(buffer.cast::<u8>(), size) }.to_vec();
        // SAFETY: `buffer` was packed above, and is not used after this call.
        unsafe { api.ucp_rkey_buffer_release(buffer) };
        Ok(key)
    }
}

impl Drop for UcxRegistration {
    fn drop(&mut self) {
        // A forked child has none of UCX's state.
        if !self.generation.is_same_process() {
            return;
        }
        let api = self.context.api;
        // SAFETY: `handle` was made in `register` with this context, and is given back only here.
        let status = unsafe { api.ucp_mem_unmap(self.context.handle, self.handle) };
        if status != UCS_OK {
            tracing::error!(
                "a registration cannot be given back: {}",
                api.status_text(status)
            );
        }
    }
}
