//! What `ucp.h` and `status.h` say in macros: statuses inside pointers, and data types.

#![allow(non_snake_case, reason = "the names of the macros")]

use std::ffi::c_void;

use crate::bindings::{
    UCP_DATATYPE_CONTIG, UCP_DATATYPE_SHIFT, UCS_ERR_LAST, UCS_INPROGRESS, ucp_datatype_t,
    ucs_status_ptr_t, ucs_status_t,
};

/// The smallest address that is an error: statuses are negative, so they are the highest addresses.
const FIRST_ERROR: usize = UCS_ERR_LAST as isize as usize;

/// Whether what a `*_nbx` call returned is an error, and not a request.
pub fn UCS_PTR_IS_ERR(pointer: ucs_status_ptr_t) -> bool {
    pointer.addr() >= FIRST_ERROR
}

/// Whether what a `*_nbx` call returned is a request under way, which must be freed once it is
/// over.
pub fn UCS_PTR_IS_PTR(pointer: ucs_status_ptr_t) -> bool {
    !pointer.is_null() && !UCS_PTR_IS_ERR(pointer)
}

/// The status that a `*_nbx` call returned: `UCS_INPROGRESS` for a request.
pub fn UCS_PTR_STATUS(pointer: ucs_status_ptr_t) -> ucs_status_t {
    if UCS_PTR_IS_PTR(pointer) {
        UCS_INPROGRESS
    } else {
        raw_status(pointer)
    }
}

/// A status as a pointer, as callbacks of UCX's own make them.
pub fn UCS_STATUS_PTR(status: ucs_status_t) -> ucs_status_ptr_t {
    std::ptr::without_provenance_mut::<c_void>(status as isize as usize)
}

/// Whether a status is a failure; `UCS_INPROGRESS` is not.
pub const fn UCS_STATUS_IS_ERR(status: ucs_status_t) -> bool {
    status < 0
}

/// The data type of `elem_size` contiguous bytes; `ucp_dt_make_contig(1)` counts in bytes. The size
/// must fit into 61 bits.
pub const fn ucp_dt_make_contig(elem_size: usize) -> ucp_datatype_t {
    ((elem_size as ucp_datatype_t) << UCP_DATATYPE_SHIFT) | UCP_DATATYPE_CONTIG as ucp_datatype_t
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "a status is the low byte, by definition"
)]
fn raw_status(pointer: ucs_status_ptr_t) -> ucs_status_t {
    pointer.addr() as ucs_status_t
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bindings::{UCP_DATATYPE_IOV, UCS_ERR_CANCELED, UCS_ERR_NO_MESSAGE, UCS_OK};

    /// A pointer returned by UCX is nothing, an error or a request, and never two of them.
    #[test]
    fn a_pointer_is_one_of_three() {
        let request = std::ptr::without_provenance_mut::<c_void>(0x7f00_0000_1000);
        for (pointer, is_error, is_request, status) in [
            (std::ptr::null_mut(), false, false, UCS_OK),
            (request, false, true, UCS_INPROGRESS),
            (
                UCS_STATUS_PTR(UCS_ERR_NO_MESSAGE),
                true,
                false,
                UCS_ERR_NO_MESSAGE,
            ),
            (
                UCS_STATUS_PTR(UCS_ERR_CANCELED),
                true,
                false,
                UCS_ERR_CANCELED,
            ),
            (UCS_STATUS_PTR(UCS_ERR_LAST), true, false, UCS_ERR_LAST),
        ] {
            assert_eq!(UCS_PTR_IS_ERR(pointer), is_error, "{pointer:?}");
            assert_eq!(UCS_PTR_IS_PTR(pointer), is_request, "{pointer:?}");
            assert_eq!(UCS_PTR_STATUS(pointer), status, "{pointer:?}");
            assert_eq!(UCS_STATUS_IS_ERR(status), is_error);
        }
    }

    /// The low three bits tell the class, the others the size.
    #[test]
    fn data_types_carry_their_class() {
        assert_eq!(ucp_dt_make_contig(1), 8);
        assert_eq!(ucp_dt_make_contig(12), 96);
        assert_ne!(
            ucp_dt_make_contig(1) & 7,
            UCP_DATATYPE_IOV as ucp_datatype_t
        );
    }
}
