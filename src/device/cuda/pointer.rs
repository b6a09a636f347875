//! The driver's description of a pointer, which counts more than any claim of a producer.

use std::ffi::c_void;

use crate::device::cuda::context::Device;
use crate::device::cuda::memory::POSIX_FD;
use crate::device::{DeviceKind, offset_within};
use crate::error::{Error, Result};

/// `CU_MEMORYTYPE_HOST` and `CU_MEMORYTYPE_DEVICE`; 0 is memory that the driver does not know.
const HOST: u32 = 1;
const DEVICE: u32 = 2;

/// The attributes of one query, by their numbers in `CUpointer_attribute`: `CONTEXT`,
/// `MEMORY_TYPE`, `IS_MANAGED`, `DEVICE_ORDINAL`, `IS_LEGACY_GPU_IPC_CAPABLE`, `RANGE_START_ADDR`,
/// `RANGE_SIZE`, `ALLOWED_HANDLE_TYPES`, `MEMPOOL_HANDLE`.
const ATTRIBUTES: [i32; COUNT as usize] = [1, 2, 8, 9, 10, 11, 12, 14, 17];
const COUNT: u32 = 9;

/// A description of memory that the driver knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pointer {
    /// [`CUDA`](DeviceKind::CUDA), [`CUDA_HOST`](DeviceKind::CUDA_HOST) or
    /// [`CUDA_MANAGED`](DeviceKind::CUDA_MANAGED).
    pub kind: DeviceKind,
    /// The device of the memory, or the device that it was allocated for.
    pub ordinal: i32,
    /// First byte of the allocation. For virtual memory management: of the reserved address range.
    pub base: u64,
    /// Length of the allocation or range in bytes.
    pub size: usize,
    /// True if other processes can open it by a legacy handle of `base`.
    pub legacy_ipc: bool,
    /// True if other processes can map it by a file descriptor.
    pub posix_fd: bool,
    /// The pool of the allocation (`CUmemoryPool`), or 0.
    pub pool: u64,
    /// True if it was allocated in another context than the device's primary context. Then copies
    /// reach it, but kernels of this crate do not. Memory of pools and of virtual memory management
    /// has no context.
    pub foreign_context: bool,
}

impl Pointer {
    /// Describes the memory at `address`; `None` for memory that the driver does not know.
    ///
    /// # Errors
    ///
    /// The driver's error; as [`Device::enter`].
    pub fn at(device: &Device, address: u64) -> Result<Option<Self>> {
        // The longest attribute has 8 bytes. Shorter values fill the lowest bytes first.
        let mut answers = [0_u64; COUNT as usize];
        let mut values = [std::ptr::null_mut::<c_void>(); COUNT as usize];
        for (value, answer) in values.iter_mut().zip(&mut answers) {
            *value = std::ptr::from_mut(answer).cast();
        }
        let _current = device.enter()?;
        // SAFETY: both lists have this many entries. Each value has 8 bytes that live during the
        // call, and no attribute is longer. The driver looks `address` up and does not access it.
        unsafe {
            device.driver.cuPointerGetAttributes(
                COUNT,
                ATTRIBUTES.as_ptr(),
                values.as_mut_ptr(),
                address,
            )
        }?;
        let [
            context,
            memory_type,
            managed,
            ordinal,
            legacy,
            base,
            size,
            handle_types,
            pool,
        ] = answers;
        let word = |answer: u64| u32::try_from(answer & u64::from(u32::MAX)).unwrap_or(0);
        let ordinal = word(ordinal).cast_signed();
        let size = usize::try_from(size).unwrap_or(0);
        let kind = match word(memory_type) {
            _ if managed != 0 => DeviceKind::CUDA_MANAGED,
            HOST => DeviceKind::CUDA_HOST,
            DEVICE => DeviceKind::CUDA,
            _ => return Ok(None),
        };
        Ok(Some(Self {
            kind,
            ordinal,
            base,
            size,
            legacy_ipc: legacy != 0,
            posix_fd: handle_types & u64::from(POSIX_FD) != 0,
            pool,
            foreign_context: kind == DeviceKind::CUDA
                && ordinal == device.ordinal()
                && context != 0
                && context != device.context as u64,
        }))
    }

    /// As [`at`](Self::at), for `len` bytes that a producer declared as memory of `device`.
    ///
    /// # Errors
    ///
    /// `InvalidData` if the declaration is wrong; as [`at`](Self::at).
    pub fn on_device(device: &Device, address: u64, len: usize) -> Result<Self> {
        let wrong = |what: String| {
            Error::invalid_data(format!(
                "the buffer of {len} bytes at {address:#x} is said to be memory of GPU {}, and \
                 {what}",
                device.ordinal()
            ))
        };
        let Some(pointer) = Self::at(device, address)? else {
            return Err(wrong(
                "is memory that the CUDA driver does not know".to_owned(),
            ));
        };
        match pointer.kind {
            DeviceKind::CUDA if pointer.ordinal != device.ordinal() => {
                Err(wrong(format!("is GPU {}'s", pointer.ordinal)))
            }
            DeviceKind::CUDA_HOST => Err(wrong("is pinned memory of the host".to_owned())),
            _ if !pointer.contains(address, len) => Err(wrong(format!(
                "its allocation has {} bytes from {:#x} on",
                pointer.size, pointer.base
            ))),
            _ => Ok(pointer),
        }
    }

    /// As [`on_device`](Self::on_device), for memory that a kernel of this crate reads. An invalid
    /// access of a kernel would end all work of this process on the device.
    ///
    /// # Errors
    ///
    /// As [`on_device`](Self::on_device); `InvalidData` also for memory of another context.
    pub fn for_kernels(device: &Device, address: u64, len: usize) -> Result<Self> {
        let pointer = Self::on_device(device, address, len)?;
        if pointer.foreign_context {
            return Err(Error::invalid_data(format!(
                "the buffer of {len} bytes at {address:#x} was allocated in another context than \
                 the primary one of GPU {}: allocate what has lengths or bits to be read in the \
                 primary one, which the CUDA runtime uses, too",
                device.ordinal()
            )));
        }
        Ok(pointer)
    }

    /// True if all `len` bytes at `address` lie in the allocation.
    pub fn contains(&self, address: u64, len: usize) -> bool {
        offset_within((self.base, self.size), address, len).is_some()
    }
}
