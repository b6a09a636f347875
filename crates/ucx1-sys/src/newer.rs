//! What came to `ucp.h` after 1.13, and is absent from older libraries: declared by hand.

use std::ffi::c_void;

use crate::Api;
use crate::bindings::{ucp_mem_h, ucs_status_t};
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
    /// `ucp_memh_pack` and `ucp_memh_buffer_release`, which belong together; `None` before UCX
    /// 1.14.
    pub fn ucp_memh_pack(&self) -> Option<(MemhPack, MemhBufferRelease)> {
        self.newer.memh_pack
    }
}
