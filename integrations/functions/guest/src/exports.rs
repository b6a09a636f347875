//! The module's side of the ABI: what `functions!` exports, and what the server gives.

use std::alloc::{self, Layout};
use std::cell::Cell;
use std::panic::{self, PanicHookInfo};
use std::{ptr, slice};

use arrow_array::ffi::FFI_ArrowArray;
use arrow_schema::ffi::FFI_ArrowSchema;

use crate::call::{self, Call};
use crate::entry::Entry;
use crate::out::Sink;
use crate::{NoHop, Result};

/// Imports of the ABI.
mod host {
    use super::FFI_ArrowArray;

    #[link(wasm_import_module = "dipc")]
    unsafe extern "C" {
        pub(super) fn emit(array: *const FFI_ArrowArray) -> i32;
        pub(super) fn emit_bytes(bytes: *const u8, length: usize) -> i32;
        pub(super) fn fail(text: *const u8, length: usize);
        pub(super) fn forward(
            uri: *const u8,
            uri_length: usize,
            descriptor: *const u8,
            descriptor_length: usize,
            state: *const u8,
            state_length: usize,
        ) -> i32;
    }
}

/// The version of the ABI that this crate follows.
pub const VERSION: i32 = 1;

thread_local! {
    /// The call in progress. A call that fails leaves none, so no code of its function runs again.
    static CALL: Cell<Option<Call>> = const { Cell::new(None) };
}

struct Host;

impl Sink for Host {
    fn emit(&mut self, array: &FFI_ArrowArray) -> bool {
        // SAFETY: the server copies the array before it returns.
        unsafe { host::emit(array) == 0 }
    }

    fn emit_bytes(&mut self, bytes: &[u8]) -> bool {
        // SAFETY: the server copies the bytes before it returns.
        unsafe { host::emit_bytes(bytes.as_ptr(), bytes.len()) == 0 }
    }

    fn forward(&mut self, uri: &str, descriptor: &[u8], state: &[u8]) -> bool {
        let (uri, uri_length) = (uri.as_ptr(), uri.len());
        let (descriptor, descriptor_length) = (descriptor.as_ptr(), descriptor.len());
        let (state, length) = (state.as_ptr(), state.len());
        // SAFETY: the server copies all three before it returns.
        let over = unsafe {
            host::forward(
                uri,
                uri_length,
                descriptor,
                descriptor_length,
                state,
                length,
            )
        };
        over == 0
    }
}

fn fail(text: &str) {
    // SAFETY: the server copies the text before it returns.
    unsafe { host::fail(text.as_ptr(), text.len()) }
}

fn panic_text(panic: &PanicHookInfo<'_>) -> String {
    let text = panic.payload_as_str().unwrap_or("no text");
    match panic.location() {
        Some(location) => format!("panic at {location}: {text}"),
        None => format!("panic: {text}"),
    }
}

fn answer(result: Result<()>) -> i32 {
    match result {
        Ok(()) => 0,
        // The server has a text for it, with its bound.
        Err(error) if error.is::<NoHop>() => 1,
        Err(error) => {
            fail(&call::text(error.as_ref()));
            1
        }
    }
}

fn current() -> Result<Call> {
    CALL.take().ok_or_else(|| "no call is in progress".into())
}

/// `dipc_alloc`.
pub fn allocate(length: usize, alignment: usize) -> *mut u8 {
    match Layout::from_size_align(length, alignment) {
        // No byte is there, and the address is not that of a failure.
        Ok(_) if length == 0 => ptr::without_provenance_mut(alignment),
        // SAFETY: the length is not 0.
        Ok(layout) => unsafe { alloc::alloc(layout) },
        Err(_) => ptr::null_mut(),
    }
}

/// `dipc_free`.
///
/// # Safety
///
/// The memory came from `allocate`, with these numbers, and was not freed.
pub unsafe fn free(pointer: *mut u8, length: usize, alignment: usize) {
    if let Ok(layout) = Layout::from_size_align(length, alignment)
        && length != 0
    {
        // SAFETY: the caller promises memory of `allocate`, with these numbers, that was not freed.
        unsafe { alloc::dealloc(pointer, layout) }
    }
}

/// `dipc_init`.
///
/// # Safety
///
/// As the ABI has it: name and arguments are readable for their lengths, the input is null or a
/// schema, and the output is writable.
pub unsafe fn init(
    functions: &[Entry],
    name: (*const u8, usize),
    arguments: (*const u8, usize),
    input: *const FFI_ArrowSchema,
    output: *mut FFI_ArrowSchema,
) -> i32 {
    panic::set_hook(Box::new(|panic| fail(&panic_text(panic))));
    // SAFETY: the caller promises a name that is readable for its length.
    let name = unsafe { bytes(name) };
    // SAFETY: the caller promises arguments that are readable for their length.
    let arguments = unsafe { bytes(arguments) };
    // SAFETY: the caller promises that the input is null or a schema.
    let input = unsafe { input.as_ref() };
    answer(
        Call::begin(functions, name, arguments, input, Box::new(Host)).map(|call| {
            if let Some(schema) = call.schema() {
                // SAFETY: the caller promises a writable output. The server reads it, and does not
                // release it; what it points to lives as long as the call.
                unsafe { ptr::copy_nonoverlapping(schema, output, 1) }
            }
            CALL.set(Some(call));
        }),
    )
}

/// `dipc_process`.
///
/// # Safety
///
/// As the ABI has it: the array is one of the input's type, readable during the call.
pub unsafe fn process(array: *const FFI_ArrowArray) -> i32 {
    answer(current().and_then(|call| {
        // SAFETY: the caller promises an array of the input's type, readable during the call; the
        // ABI has no release in input.
        CALL.set(Some(unsafe { call.process(array) }?));
        Ok(())
    }))
}

/// `dipc_finish`.
pub fn finish() -> i32 {
    answer(current().and_then(Call::finish))
}

/// # Safety
///
/// The pointer is readable for the length, which may be 0 for any pointer.
unsafe fn bytes<'a>((pointer, length): (*const u8, usize)) -> &'a [u8] {
    if length == 0 {
        return &[];
    }
    // SAFETY: the caller promises that the pointer is readable for the length, which is not 0.
    unsafe { slice::from_raw_parts(pointer, length) }
}

/// What `functions!` exports.
#[doc(hidden)]
#[macro_export]
macro_rules! __exports {
    ($functions:ident) => {
        use $crate::arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema};
        use $crate::exports;

        #[unsafe(no_mangle)]
        extern "C" fn dipc_abi_version() -> i32 {
            exports::VERSION
        }

        #[unsafe(no_mangle)]
        extern "C" fn dipc_alloc(length: usize, alignment: usize) -> *mut u8 {
            exports::allocate(length, alignment)
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn dipc_free(pointer: *mut u8, length: usize, alignment: usize) {
            // SAFETY: the server frees what it got from `dipc_alloc`.
            unsafe { exports::free(pointer, length, alignment) }
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn dipc_init(
            name: *const u8,
            name_length: usize,
            arguments: *const u8,
            arguments_length: usize,
            input: *const FFI_ArrowSchema,
            output: *mut FFI_ArrowSchema,
        ) -> i32 {
            let (name, arguments) = ((name, name_length), (arguments, arguments_length));
            // SAFETY: the server, by the ABI, passes bytes that are readable for their lengths, an
            // input that is null or a schema, and a writable output.
            unsafe { exports::init($functions, name, arguments, input, output) }
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn dipc_process(array: *const FFI_ArrowArray) -> i32 {
            // SAFETY: the server, by the ABI, passes an array of the input's type that is readable
            // during the call.
            unsafe { exports::process(array) }
        }

        #[unsafe(no_mangle)]
        extern "C" fn dipc_finish() -> i32 {
            exports::finish()
        }
    };
}
