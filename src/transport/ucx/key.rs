//! Keys to a server's memory.

use ucx1_sys::{Api, UCS_OK, ucp_rkey_h};

use crate::error::{Error, Result};
use crate::transport::ucx::endpoint::Endpoint;
use crate::transport::ucx::error::error;
use crate::transport::ucx::worker::Worker;

/// UCX is not told how long a packed key is. Zeros behind it end what a broken one might claim:
/// each of 64 devices has one byte for the length of its part.
const PADDING: usize = 64 * 256;

/// A key, as one endpoint uses it. It goes before its worker does, and after every operation that
/// uses it.
#[derive(Debug)]
pub(super) struct Key {
    api: &'static Api,
    handle: ucp_rkey_h,
}

// SAFETY: the key belongs to its worker and not to a thread; it is used, and dropped, by the owner
// of that, one thread at a time.
unsafe impl Send for Key {}
// SAFETY: as above; shared access reads the handle alone.
unsafe impl Sync for Key {}

impl Key {
    /// Unpacks what a server has packed.
    ///
    /// # Errors
    ///
    /// `Protocol` for an empty one; `Unreachable`, as UCX says, where no transport reaches the
    /// memory.
    pub(super) fn unpack(worker: &Worker, endpoint: Endpoint, packed: &[u8]) -> Result<Self> {
        if packed.is_empty() {
            return Err(Error::protocol("the key to the server's memory is empty"));
        }
        let mut padded = Vec::with_capacity(packed.len() + PADDING);
        padded.extend_from_slice(packed);
        padded.resize(packed.len() + PADDING, 0);
        let api = worker.api();
        let mut handle = std::ptr::null_mut();
        // SAFETY: the endpoint lives; the key is readable, with room behind it; `handle` is
        // writable.
        let status = unsafe {
            api.ucp_ep_rkey_unpack(endpoint.handle(), padded.as_ptr().cast(), &raw mut handle)
        };
        if status != UCS_OK {
            let doing = "the key to the server's memory cannot be used";
            return Err(error(api, doing, status));
        }
        Ok(Self { api, handle })
    }

    /// UCX's handle, valid while `self` lives.
    pub(super) fn handle(&self) -> ucp_rkey_h {
        self.handle
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        // SAFETY: unpacked in `unpack` and destroyed only here; the type's contract says that its
        // worker is still there and that nothing uses it.
        unsafe { self.api.ucp_rkey_destroy(self.handle) };
    }
}
