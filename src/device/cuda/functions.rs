//! The functions of the driver that this crate calls, each found once by name.
//!
//! cudarc's own functions panic if the driver lacks them. They return a Rust enum, and a code of a
//! newer driver in the enum would be undefined behaviour. So this module uses cudarc's structs and
//! loaded library, with functions that return an integer.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use cudarc::driver::sys::{
    self, CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUmemAccessDesc,
    CUmemAllocationProp, CUmemGenericAllocationHandle, CUmodule, CUstream,
};

use crate::device::cuda::failure::Failure;
use crate::error::{Error, Result};

/// Bytes of the handle of an event or of memory that goes to another process.
pub const HANDLE_BYTES: usize = 64;

/// A handle of memory or of an event, for another process (`CUipcMemHandle`, `CUipcEventHandle`).
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct IpcHandle(pub [u8; HANDLE_BYTES]);

/// Finds a function of the loaded driver.
///
/// # Safety
///
/// `F` is the type of a pointer to the driver's function with this name. `is_culib_present` found
/// the driver's library; without the library cudarc panics.
pub(super) unsafe fn find<F: Copy>(name: &str) -> Result<F> {
    // SAFETY: the call loads the library or returns the loaded library. Its initialisers run in
    // every CUDA program.
    let library = unsafe { sys::culib() };
    // SAFETY: the caller promises that F is the type of the function.
    let found = unsafe { library.get::<F>(name.as_bytes()) };
    found.map(|function| *function).map_err(|_| {
        Error::unsupported(format!(
            "the CUDA driver has no function {name}: install a driver for CUDA 12.0 or newer"
        ))
    })
}

macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {
        /// Pointers to the functions. A call is as unsafe as in C.
        #[derive(Debug, Clone, Copy)]
        #[allow(non_snake_case, reason = "they have the driver's own names")]
        pub struct Functions {
            $($name: unsafe extern "C" fn($($type),*) -> c_int,)*
        }

        impl Functions {
            /// Finds all functions.
            ///
            /// # Safety
            ///
            /// `is_culib_present` found the driver's library.
            pub(super) unsafe fn find_all() -> Result<Self> {
                Ok(Self {
                    // SAFETY: the types are those of CUDA's header, with an integer of the same
                    // size for the returned enum. The caller found the library.
                    $($name: unsafe { find(stringify!($name)) }?,)*
                })
            }

            $(
                /// The driver's function of this name.
                ///
                /// # Safety
                ///
                /// The conditions of the driver's documentation: handles are live and from this
                /// driver, and pointers are valid for the driver's reads and writes.
                #[allow(non_snake_case, reason = "they have the driver's own names")]
                #[allow(clippy::too_many_arguments, reason = "they have the driver's arguments")]
                pub unsafe fn $name(&self, $($argument: $type),*) -> Result<(), Failure> {
                    // SAFETY: the caller promises the driver's conditions.
                    let code = unsafe { (self.$name)($($argument),*) };
                    Failure::check(stringify!($name), code)
                }
            )*
        }
    };
}

functions! {
    cuInit(flags: c_uint);
    cuGetErrorName(code: c_int, text: *mut *const c_char);
    cuGetErrorString(code: c_int, text: *mut *const c_char);

    cuDeviceGetCount(count: *mut c_int);
    cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
    cuDeviceGetName(name: *mut c_char, len: c_int, device: CUdevice);
    cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: CUdevice);
    cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
    cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: CUdevice);
    cuDeviceCanAccessPeer(can: *mut c_int, device: CUdevice, peer: CUdevice);

    cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    cuDevicePrimaryCtxRelease_v2(device: CUdevice);
    cuDevicePrimaryCtxGetState(device: CUdevice, flags: *mut c_uint, active: *mut c_int);
    cuCtxGetId(context: CUcontext, id: *mut c_ulonglong);
    cuCtxPushCurrent_v2(context: CUcontext);
    cuCtxPopCurrent_v2(context: *mut CUcontext);

    cuStreamCreate(stream: *mut CUstream, flags: c_uint);
    cuStreamDestroy_v2(stream: CUstream);
    cuStreamSynchronize(stream: CUstream);
    cuStreamQuery(stream: CUstream);
    cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);

    cuEventCreate(event: *mut CUevent, flags: c_uint);
    cuEventDestroy_v2(event: CUevent);
    cuEventRecord(event: CUevent, stream: CUstream);
    cuEventQuery(event: CUevent);
    cuEventSynchronize(event: CUevent);

    cuMemAlloc_v2(address: *mut CUdeviceptr, len: usize);
    cuMemFree_v2(address: CUdeviceptr);
    cuMemHostAlloc(address: *mut *mut c_void, len: usize, flags: c_uint);
    cuMemFreeHost(address: *mut c_void);
    cuMemHostRegister_v2(address: *mut c_void, len: usize, flags: c_uint);
    cuMemHostUnregister(address: *mut c_void);
    cuMemGetAddressRange_v2(base: *mut CUdeviceptr, len: *mut usize, address: CUdeviceptr);
    cuMemGetInfo_v2(available: *mut usize, total: *mut usize);
    cuPointerGetAttributes(
        count: c_uint, attributes: *const c_int, values: *mut *mut c_void, address: CUdeviceptr
    );

    cuMemcpyAsync(target: CUdeviceptr, source: CUdeviceptr, len: usize, stream: CUstream);
    cuMemcpyPeerAsync(
        target: CUdeviceptr, to: CUcontext, source: CUdeviceptr, from: CUcontext, len: usize,
        stream: CUstream
    );
    cuMemsetD8Async(target: CUdeviceptr, byte: u8, len: usize, stream: CUstream);

    cuMemGetAllocationGranularity(
        granularity: *mut usize, properties: *const CUmemAllocationProp, option: c_uint
    );
    cuMemCreate(
        handle: *mut CUmemGenericAllocationHandle, len: usize,
        properties: *const CUmemAllocationProp, flags: c_ulonglong
    );
    cuMemRelease(handle: CUmemGenericAllocationHandle);
    cuMemAddressReserve(
        address: *mut CUdeviceptr, len: usize, alignment: usize, wished: CUdeviceptr,
        flags: c_ulonglong
    );
    cuMemAddressFree(address: CUdeviceptr, len: usize);
    cuMemMap(
        address: CUdeviceptr, len: usize, offset: usize, handle: CUmemGenericAllocationHandle,
        flags: c_ulonglong
    );
    cuMemUnmap(address: CUdeviceptr, len: usize);
    cuMemSetAccess(
        address: CUdeviceptr, len: usize, access: *const CUmemAccessDesc, count: usize
    );
    cuMemRetainAllocationHandle(
        handle: *mut CUmemGenericAllocationHandle, address: *mut c_void
    );
    cuMemExportToShareableHandle(
        shareable: *mut c_void, handle: CUmemGenericAllocationHandle, kind: c_uint,
        flags: c_ulonglong
    );
    cuMemImportFromShareableHandle(
        handle: *mut CUmemGenericAllocationHandle, shareable: *mut c_void, kind: c_uint
    );

    cuIpcGetMemHandle(handle: *mut IpcHandle, address: CUdeviceptr);
    cuIpcOpenMemHandle_v2(address: *mut CUdeviceptr, handle: IpcHandle, flags: c_uint);
    cuIpcCloseMemHandle(address: CUdeviceptr);
    cuIpcGetEventHandle(handle: *mut IpcHandle, event: CUevent);
    cuIpcOpenEventHandle(event: *mut CUevent, handle: IpcHandle);

    cuModuleLoadData(module: *mut CUmodule, image: *const c_void);
    cuModuleUnload(module: CUmodule);
    cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
    cuLaunchKernel(
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint,
        block_y: c_uint, block_z: c_uint, shared_bytes: c_uint, stream: CUstream,
        parameters: *mut *mut c_void, extra: *mut *mut c_void
    );
}
