//! What `dipc.h` declares, as far as this library calls it. A test compares the declarations.

use std::ffi::{c_char, c_int, c_void};

use arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema};

/// The result of a call.
pub type dipc_status = i32;

pub const DIPC_OK: i32 = 0;
pub const DIPC_NOTHING: i32 = 1;
pub const DIPC_ERR_NULL_ARGUMENT: i32 = -1;
pub const DIPC_ERR_INVALID_ARGUMENT: i32 = -2;
pub const DIPC_ERR_UNSUPPORTED: i32 = -4;
pub const DIPC_ERR_NOT_FOUND: i32 = -5;
pub const DIPC_ERR_ALREADY_EXISTS: i32 = -6;
pub const DIPC_ERR_PERMISSION: i32 = -9;
pub const DIPC_ERR_CANCELLED: i32 = -12;
pub const DIPC_ERR_OUT_OF_RESOURCES: i32 = -16;
pub const DIPC_ERR_IO: i32 = -17;
pub const DIPC_ERR_INVALID_DATA: i32 = -18;
pub const DIPC_ERR_PROVIDER: i32 = -19;
pub const DIPC_ERR_PANIC: i32 = -22;
pub const DIPC_VERB_GET: i32 = 1;
pub const DIPC_VERB_PUT: i32 = 2;
pub const DIPC_VERB_EXCHANGE: i32 = 3;
pub const DIPC_FOREVER: u64 = u64::MAX;
pub const ARROW_DEVICE_CPU: i32 = 1;

/// Types that have no fields for this library.
macro_rules! opaque {
    ($($name:ident)*) => {$(
        #[repr(C)]
        pub struct $name {
            _fields: [u8; 0],
        }
    )*};
}

opaque! {
    dipc_cancel dipc_client dipc_client_options dipc_error dipc_get_options dipc_headers dipc_pending
    dipc_put dipc_put_options dipc_request dipc_server
}

/// Arrow's array on a device.
#[repr(C)]
pub struct ArrowDeviceArray {
    pub array: FFI_ArrowArray,
    pub device_id: i64,
    pub device_type: i32,
    pub sync_event: *mut c_void,
    pub reserved: [i64; 3],
}

/// Arrow's stream of such arrays.
#[repr(C)]
pub struct ArrowDeviceArrayStream {
    pub device_type: i32,
    pub get_schema: Option<unsafe extern "C" fn(*mut Self, *mut FFI_ArrowSchema) -> i32>,
    pub get_next: Option<unsafe extern "C" fn(*mut Self, *mut ArrowDeviceArray) -> i32>,
    pub get_last_error: Option<unsafe extern "C" fn(*mut Self) -> *const c_char>,
    pub release: Option<unsafe extern "C" fn(*mut Self)>,
    pub private_data: *mut c_void,
}

const _: () = assert!(size_of::<ArrowDeviceArray>() == 128);
const _: () = assert!(size_of::<ArrowDeviceArrayStream>() == 48);

pub type dipc_provider = Option<
    unsafe extern "C" fn(*mut c_void, *mut dipc_request, *mut ArrowDeviceArrayStream) -> i32,
>;
pub type dipc_finalizer = Option<unsafe extern "C" fn(*mut c_void)>;

unsafe extern "C" {
    pub fn dipc_status_errno(status: dipc_status) -> i32;
    pub fn dipc_error_code(error: *const dipc_error) -> dipc_status;
    pub fn dipc_error_text(error: *const dipc_error) -> *const c_char;
    pub fn dipc_error_new(
        code: i32,
        text: *const c_char,
        error: *mut *mut dipc_error,
    ) -> dipc_status;
    pub fn dipc_error_free(error: *mut dipc_error);
    pub fn dipc_arena_find_file(
        data: *const c_void,
        len_bytes: usize,
        out_fd: *mut i32,
        out_offset: *mut u64,
        error: *mut *mut dipc_error,
    ) -> dipc_status;
    pub fn dipc_headers_new(
        out: *mut *mut dipc_headers,
        error: *mut *mut dipc_error,
    ) -> dipc_status;
    pub fn dipc_headers_add(
        headers: *mut dipc_headers,
        key: *const c_char,
        value: *const u8,
        value_len_bytes: usize,
        error: *mut *mut dipc_error,
    ) -> dipc_status;
    pub fn dipc_headers_count(headers: *const dipc_headers) -> usize;
    pub fn dipc_headers_key(
        headers: *const dipc_headers,
        index: usize,
        buffer: *mut c_char,
        size_bytes: usize,
        out_len_bytes: *mut usize,
        error: *mut *mut dipc_error,
    ) -> dipc_status;
    pub fn dipc_headers_value(
        headers: *const dipc_headers,
        index: usize,
        buffer: *mut u8,
        size_bytes: usize,
        out_len_bytes: *mut usize,
        error: *mut *mut dipc_error,
    ) -> dipc_status;
    pub fn dipc_headers_get(
        headers: *const dipc_headers,
        key: *const c_char,
        buffer: *mut u8,
        size_bytes: usize,
        out_len_bytes: *mut usize,
        error: *mut *mut dipc_error,
    ) -> dipc_status;
    pub fn dipc_headers_free(headers: *mut dipc_headers);
    pub fn dipc_get_options_new(
        out: *mut *mut dipc_get_options,
        error: *mut *mut dipc_error,
    ) -> dipc_status;
    pub fn dipc_get_options_set_headers(
        options: *mut dipc_get_options,
        headers: *const dipc_headers,
        error: *mut *mut dipc_error,
    ) -> dipc_status;
    pub fn dipc_get_options_set_deadline_ns(
        options: *mut dipc_get_options,
        deadline_ns: u64,
        error: *mut *mut dipc_error,
    ) -> dipc_status;
    pub fn dipc_get_options_set_stall_timeout_ns(
        options: *mut dipc_get_options,
        stall_timeout_ns: u64,
        error: *mut *mut dipc_error,
    ) -> dipc_status;
    pub fn dipc_get_options_free(options: *mut dipc_get_options);
    pub fn dipc_put_options_new(
        out: *mut *mut dipc_put_options,
        error: *mut *mut dipc_error,
    ) -> dipc_status;
    pub fn dipc_put_options_set_headers(
        options: *mut dipc_put_options,
        headers: *const dipc_headers,
        error: *mut *mut dipc_error,
    ) -> dipc_status;
    pub fn dipc_put_options_set_deadline_ns(
        options: *mut dipc_put_options,
        deadline_ns: u64,
        error: *mut *mut dipc_error,
    ) -> dipc_status;
    pub fn dipc_put_options_set_stall_timeout_ns(
        options: *mut dipc_put_options,
        stall_timeout_ns: u64,
        error: *mut *mut dipc_error,
    ) -> dipc_status;
    pub fn dipc_put_options_free(options: *mut dipc_put_options);
    pub fn dipc_client_options_new(
        out: *mut *mut dipc_client_options,
        error: *mut *mut dipc_error,
    ) -> dipc_status;
    pub fn dipc_client_options_set_max_idle(
        options: *mut dipc_client_options,
        max_idle: usize,
        error: *mut *mut dipc_error,
    ) -> dipc_status;
    pub fn dipc_client_options_free(options: *mut dipc_client_options);
    pub fn dipc_client_new(
        options: *const dipc_client_options,
        out: *mut *mut dipc_client,
        error: *mut *mut dipc_error,
    ) -> dipc_status;
    pub fn dipc_client_free(client: *mut dipc_client);
    pub fn dipc_client_start(
        client: *const dipc_client,
        verb: i32,
        uris: *const *const c_char,
        n_uris: usize,
        descriptor: *const u8,
        descriptor_len_bytes: usize,
        options: *const dipc_get_options,
        cancel: *const dipc_cancel,
        out: *mut *mut dipc_pending,
        error: *mut *mut dipc_error,
    ) -> dipc_status;
    pub fn dipc_pending_fd(
        pending: *const dipc_pending,
        out: *mut c_int,
        error: *mut *mut dipc_error,
    ) -> dipc_status;
    pub fn dipc_pending_try_stream(
        pending: *const dipc_pending,
        out: *mut ArrowDeviceArrayStream,
        error: *mut *mut dipc_error,
    ) -> dipc_status;
    pub fn dipc_pending_free(pending: *mut dipc_pending);
    pub fn dipc_stream_fd(
        stream: *const ArrowDeviceArrayStream,
        out: *mut c_int,
        error: *mut *mut dipc_error,
    ) -> dipc_status;
    pub fn dipc_stream_try_next(
        stream: *const ArrowDeviceArrayStream,
        out: *mut ArrowDeviceArray,
        error: *mut *mut dipc_error,
    ) -> dipc_status;
    pub fn dipc_client_get(
        client: *const dipc_client,
        uris: *const *const c_char,
        n_uris: usize,
        ticket: *const u8,
        ticket_len_bytes: usize,
        options: *const dipc_get_options,
        cancel: *const dipc_cancel,
        out: *mut ArrowDeviceArrayStream,
        error: *mut *mut dipc_error,
    ) -> dipc_status;
    pub fn dipc_client_put(
        client: *const dipc_client,
        uris: *const *const c_char,
        n_uris: usize,
        descriptor: *const u8,
        descriptor_len_bytes: usize,
        options: *const dipc_put_options,
        cancel: *const dipc_cancel,
        source: *mut ArrowDeviceArrayStream,
        out: *mut *mut dipc_put,
        error: *mut *mut dipc_error,
    ) -> dipc_status;
    pub fn dipc_client_exchange(
        client: *const dipc_client,
        uris: *const *const c_char,
        n_uris: usize,
        descriptor: *const u8,
        descriptor_len_bytes: usize,
        options: *const dipc_put_options,
        answer_options: *const dipc_get_options,
        cancel: *const dipc_cancel,
        schema: *const FFI_ArrowSchema,
        device_type: i32,
        out: *mut *mut dipc_put,
        answers: *mut ArrowDeviceArrayStream,
        error: *mut *mut dipc_error,
    ) -> dipc_status;
    pub fn dipc_put_finish(
        put: *mut dipc_put,
        timeout_ns: u64,
        out_batches: *mut u64,
        error: *mut *mut dipc_error,
    ) -> dipc_status;
    pub fn dipc_put_free(put: *mut dipc_put);
    pub fn dipc_server_set_middleware(
        server: *const dipc_server,
        header: *const c_char,
        provider: dipc_provider,
        userdata: *mut c_void,
        finalizer: dipc_finalizer,
        error: *mut *mut dipc_error,
    ) -> dipc_status;
    pub fn dipc_request_is_cancelled(request: *const dipc_request) -> bool;
    pub fn dipc_request_cancel_fd(
        request: *const dipc_request,
        out_fd: *mut i32,
        error: *mut *mut dipc_error,
    ) -> dipc_status;
    pub fn dipc_request_time_left_ns(request: *const dipc_request) -> u64;
    pub fn dipc_request_verb(request: *const dipc_request) -> i32;
    pub fn dipc_request_headers(
        request: *const dipc_request,
        out: *mut *mut dipc_headers,
        error: *mut *mut dipc_error,
    ) -> dipc_status;
    pub fn dipc_request_principal(
        request: *const dipc_request,
        buffer: *mut c_char,
        size_bytes: usize,
        out_len_bytes: *mut usize,
        error: *mut *mut dipc_error,
    ) -> dipc_status;
    pub fn dipc_request_source(
        request: *const dipc_request,
        out: *mut ArrowDeviceArrayStream,
        error: *mut *mut dipc_error,
    ) -> dipc_status;
    pub fn dipc_request_forward(
        request: *const dipc_request,
        table: *mut ArrowDeviceArrayStream,
        out: *mut ArrowDeviceArrayStream,
        error: *mut *mut dipc_error,
    ) -> dipc_status;
    pub fn dipc_request_fail(
        request: *const dipc_request,
        code: i32,
        text: *const c_char,
        error: *mut *mut dipc_error,
    ) -> dipc_status;
    pub fn dipc_stream_status(
        stream: *const ArrowDeviceArrayStream,
        error: *mut *mut dipc_error,
    ) -> dipc_status;
}
