//! What came to `ucp.h` after 1.13, and is absent from older libraries: declared by hand.

use std::ffi::{c_char, c_uint, c_void};

use crate::Api;
use crate::bindings::{ucp_ep_attr_t, ucp_mem_h, ucs_status_t};
use crate::library::Library;

/// `ucp_memh_pack_params_t`, guarded by its mask as all of `ucp.h`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
#[allow(non_camel_case_types, reason = "the name in ucp.h")]
pub struct ucp_memh_pack_params_t {
    /// Which of the fields below count: [`UCP_MEMH_PACK_PARAM_FIELD_FLAGS`].
    pub field_mask: u64,
    /// [`UCP_MEMH_PACK_FLAG_EXPORT`], or 0 for what `ucp_rkey_pack` makes.
    pub flags: u64,
}

/// `ucp_memh_buffer_release_params_t`; there are no fields to choose yet.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
#[allow(non_camel_case_types, reason = "the name in ucp.h")]
pub struct ucp_memh_buffer_release_params_t {
    /// 0.
    pub field_mask: u64,
}

/// `ucp_transport_entry_t`: one lane of an endpoint. The strings are UCX's, and end with a zero.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(non_camel_case_types, reason = "the name in ucp.h")]
pub struct ucp_transport_entry_t {
    /// The transport.
    pub transport_name: *const c_char,
    /// The device; empty for the lane by which the endpoint was connected.
    pub device_name: *const c_char,
}

/// `ucp_transports_t`: room for entries, which the caller gives.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(non_camel_case_types, reason = "the name in ucp.h")]
pub struct ucp_transports_t {
    /// The first one.
    pub entries: *mut ucp_transport_entry_t,
    /// How many there is room for; then, how many there are.
    pub num_entries: c_uint,
    /// The size of one, in bytes.
    pub entry_size: usize,
}

/// The front of `ucp_ep_attr_t` as it is since [`TELLS_TRANSPORTS`]. What is behind it is guarded
/// by the mask.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct EndpointTransports {
    /// The fields that older libraries know, and the mask.
    pub known: ucp_ep_attr_t,
    /// The lanes.
    pub transports: ucp_transports_t,
}

/// `transports` of [`EndpointTransports`] counts. A library older than [`TELLS_TRANSPORTS`] does
/// not know it, and leaves the field as it is.
pub const UCP_EP_ATTR_FIELD_TRANSPORTS: u64 = 8;
/// The oldest UCX that tells the transports of an endpoint.
pub const TELLS_TRANSPORTS: (u32, u32, u32) = (1, 14, 0);

/// `flags` of [`ucp_memh_pack_params_t`] counts.
pub const UCP_MEMH_PACK_PARAM_FIELD_FLAGS: u64 = 1;
/// The handle is for other processes that use the same network device.
pub const UCP_MEMH_PACK_FLAG_EXPORT: u64 = 1;

/// `ucp_memh_pack`: handle, what to pack, and where the buffer and its length go.
pub type MemhPack = unsafe extern "C" fn(
    ucp_mem_h,
    *const ucp_memh_pack_params_t,
    *mut *mut c_void,
    *mut usize,
) -> ucs_status_t;
/// `ucp_memh_buffer_release`: a buffer of [`MemhPack`] and how to release it.
pub type MemhBufferRelease =
    unsafe extern "C" fn(*mut c_void, *const ucp_memh_buffer_release_params_t);

/// The functions of this module, where the library has them.
pub(crate) struct Newer {
    memh_pack: Option<(MemhPack, MemhBufferRelease)>,
}

impl Newer {
    pub(crate) fn find(library: &Library) -> Self {
        let symbols = (
            library.symbol("ucp_memh_pack"),
            library.symbol("ucp_memh_buffer_release"),
        );
        let (Ok(pack), Ok(release)) = symbols else {
            return Self { memh_pack: None };
        };
        // SAFETY: every library that has this name has it with this signature.
        let pack = unsafe { std::mem::transmute::<*mut c_void, MemhPack>(pack) };
        // SAFETY: as above.
        let release = unsafe { std::mem::transmute::<*mut c_void, MemhBufferRelease>(release) };
        Self {
            memh_pack: Some((pack, release)),
        }
    }
}

impl Api {
    /// `ucp_memh_pack` and `ucp_memh_buffer_release`, which belong together; `None` before UCX 1.14.
    pub fn ucp_memh_pack(&self) -> Option<(MemhPack, MemhBufferRelease)> {
        self.newer.memh_pack
    }
}
