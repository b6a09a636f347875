//! The C structs of Arrow's C Data, C Stream, C Device Data and C Async Stream interfaces. They are
//! here, because no crate of Arrow has the device structs.

#![allow(
    missing_docs,
    reason = "field names and meanings are those of Arrow's C interfaces"
)]

use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;

/// `ArrowSchema`: type, name and metadata of a field.
#[repr(C)]
#[derive(Debug)]
pub struct ArrowSchema {
    pub format: *const c_char,
    pub name: *const c_char,
    pub metadata: *const c_char,
    pub flags: i64,
    pub n_children: i64,
    pub children: *mut *mut ArrowSchema,
    pub dictionary: *mut ArrowSchema,
    pub release: Option<unsafe extern "C" fn(*mut ArrowSchema)>,
    pub private_data: *mut c_void,
}

/// `ArrowArray`: the buffers of one array. The holder knows their device.
#[repr(C)]
#[derive(Debug)]
pub struct ArrowArray {
    pub length: i64,
    pub null_count: i64,
    pub offset: i64,
    pub n_buffers: i64,
    pub n_children: i64,
    pub buffers: *mut *const c_void,
    pub children: *mut *mut ArrowArray,
    pub dictionary: *mut ArrowArray,
    pub release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    pub private_data: *mut c_void,
}

/// `ArrowDeviceArray`: an array and the device of its buffers.
#[repr(C)]
#[derive(Debug)]
pub struct ArrowDeviceArray {
    pub array: ArrowArray,
    pub device_id: i64,
    pub device_type: i32,
    pub sync_event: *mut c_void,
    pub reserved: [i64; 3],
}

/// `ArrowArrayStream`: a source of host arrays.
#[repr(C)]
#[derive(Debug)]
pub struct ArrowArrayStream {
    pub get_schema: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowSchema) -> c_int>,
    pub get_next: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowArray) -> c_int>,
    pub get_last_error: Option<unsafe extern "C" fn(*mut ArrowArrayStream) -> *const c_char>,
    pub release: Option<unsafe extern "C" fn(*mut ArrowArrayStream)>,
    pub private_data: *mut c_void,
}

/// `ArrowDeviceArrayStream`: a source of device arrays.
#[repr(C)]
#[derive(Debug)]
pub struct ArrowDeviceArrayStream {
    pub device_type: i32,
    pub get_schema:
        Option<unsafe extern "C" fn(*mut ArrowDeviceArrayStream, *mut ArrowSchema) -> c_int>,
    pub get_next:
        Option<unsafe extern "C" fn(*mut ArrowDeviceArrayStream, *mut ArrowDeviceArray) -> c_int>,
    pub get_last_error: Option<unsafe extern "C" fn(*mut ArrowDeviceArrayStream) -> *const c_char>,
    pub release: Option<unsafe extern "C" fn(*mut ArrowDeviceArrayStream)>,
    pub private_data: *mut c_void,
}

/// `ArrowAsyncTask`: an array that a producer has for a consumer.
#[repr(C)]
#[derive(Debug)]
pub struct ArrowAsyncTask {
    pub extract_data:
        Option<unsafe extern "C" fn(*mut ArrowAsyncTask, *mut ArrowDeviceArray) -> c_int>,
    pub private_data: *mut c_void,
}

/// `ArrowAsyncProducer`: how a consumer asks for arrays.
///
/// The layout is that of the header `arrow/c/abi.h`, which Arrow C++ and Arrow Go ship. The struct
/// on the specification's page has one member more, which would shift the members after it.
#[repr(C)]
#[derive(Debug)]
pub struct ArrowAsyncProducer {
    pub device_type: i32,
    pub request: Option<unsafe extern "C" fn(*mut ArrowAsyncProducer, i64)>,
    pub cancel: Option<unsafe extern "C" fn(*mut ArrowAsyncProducer)>,
    pub additional_metadata: *const c_char,
    pub private_data: *mut c_void,
}

/// `ArrowAsyncDeviceStreamHandler`: a consumer of arrays, which a producer calls.
#[repr(C)]
#[derive(Debug)]
pub struct ArrowAsyncDeviceStreamHandler {
    pub on_schema:
        Option<unsafe extern "C" fn(*mut ArrowAsyncDeviceStreamHandler, *mut ArrowSchema) -> c_int>,
    pub on_next_task: Option<
        unsafe extern "C" fn(
            *mut ArrowAsyncDeviceStreamHandler,
            *mut ArrowAsyncTask,
            *const c_char,
        ) -> c_int,
    >,
    pub on_error: Option<
        unsafe extern "C" fn(
            *mut ArrowAsyncDeviceStreamHandler,
            c_int,
            *const c_char,
            *const c_char,
        ),
    >,
    pub release: Option<unsafe extern "C" fn(*mut ArrowAsyncDeviceStreamHandler)>,
    pub producer: *mut ArrowAsyncProducer,
    pub private_data: *mut c_void,
}

/// `ARROW_FLAG_DICTIONARY_ORDERED`.
pub const FLAG_DICTIONARY_ORDERED: i64 = 1;
/// `ARROW_FLAG_NULLABLE`.
pub const FLAG_NULLABLE: i64 = 2;
/// `ARROW_FLAG_MAP_KEYS_SORTED`.
pub const FLAG_MAP_KEYS_SORTED: i64 = 4;

/// Gives each struct its `empty`: fields that are not named are NULL, `None` or 0.
macro_rules! empty {
    ($($struct:ident { $($field:ident: $value:expr),* })*) => {$(
        impl $struct {
            /// A released struct, ready to be filled.
            pub const fn empty() -> Self {
                // SAFETY: the fields are integers, raw pointers, optional functions and structs of
                // them; all of them may be zero bytes.
                let zero = unsafe { std::mem::zeroed::<Self>() };
                Self { $($field: $value,)* ..zero }
            }
        }
    )*};
}

empty! {
    ArrowSchema {}
    ArrowArray {}
    ArrowDeviceArray { device_id: -1, device_type: crate::device::DeviceKind::CPU.0 }
    ArrowArrayStream {}
    ArrowDeviceArrayStream { device_type: crate::device::DeviceKind::CPU.0 }
}

// The layouts of the documents, on the 64-bit machines that this crate supports.
const _: () = assert!(size_of::<ArrowSchema>() == 72);
const _: () = assert!(size_of::<ArrowArray>() == 80);
const _: () = assert!(size_of::<ArrowDeviceArray>() == 128);
const _: () = assert!(size_of::<ArrowArrayStream>() == 40);
const _: () = assert!(size_of::<ArrowDeviceArrayStream>() == 48);
const _: () = assert!(size_of::<ArrowAsyncTask>() == 16);
const _: () = assert!(size_of::<ArrowAsyncProducer>() == 40);
const _: () = assert!(offset_of!(ArrowAsyncProducer, request) == 8);
const _: () = assert!(offset_of!(ArrowAsyncProducer, cancel) == 16);
const _: () = assert!(offset_of!(ArrowAsyncProducer, additional_metadata) == 24);
const _: () = assert!(offset_of!(ArrowAsyncProducer, private_data) == 32);
const _: () = assert!(size_of::<ArrowAsyncDeviceStreamHandler>() == 48);
const _: () = assert!(offset_of!(ArrowAsyncDeviceStreamHandler, producer) == 32);
