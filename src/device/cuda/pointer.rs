//! What a pointer is: the driver's answer, which is believed before anybody's claim.

use std::ffi::c_void;

use crate::device::DeviceKind;
use crate::device::cuda::context::Device;
use crate::device::cuda::memory::POSIX_FD;
use crate::error::{Error, Result};

/// `CU_MEMORYTYPE_HOST` and `CU_MEMORYTYPE_DEVICE`; 0 is memory that the driver does not know.
const HOST: u32 = 1;
const DEVICE: u32 = 2;

/// Attributes of a pointer, by their numbers in `CUpointer_attribute`.
mod attribute {
    pub(super) const MEMORY_TYPE: i32 = 2;
    pub(super) const IS_MANAGED: i32 = 8;
    pub(super) const DEVICE_ORDINAL: i32 = 9;
    pub(super) const IS_LEGACY_IPC_CAPABLE: i32 = 10;
    pub(super) const RANGE_START: i32 = 11;
    pub(super) const RANGE_SIZE: i32 = 12;
    pub(super) const ALLOWED_HANDLE_TYPES: i32 = 14;
}

/// Memory that the driver knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pointer {
    /// [`CUDA`](DeviceKind::CUDA), [`CUDA_HOST`](DeviceKind::CUDA_HOST) or
    /// [`CUDA_MANAGED`](DeviceKind::CUDA_MANAGED).
    pub kind: DeviceKind,
    /// The device that it lies on, or was allocated for.
    pub ordinal: i32,
    /// First byte of the allocation.
    pub base: u64,
    /// Bytes of the allocation.
    pub size: usize,
    /// Whether other processes can open it by a legacy handle of its base.
    pub legacy_ipc: bool,
    /// Whether other processes can map it by a file descriptor.
    pub posix_fd: bool,
}

impl Pointer {
    /// What lies at `address`: `None` for memory that the driver does not know, such as the heap's.
    ///
    /// # Errors
    ///
    /// What the driver says; as [`Device::enter`].
    pub fn at(device: &Device, address: u64) -> Result<Option<Self>> {
        let mut memory_type = 0_u32;
        let mut managed = 0_u32;
        let mut ordinal = -1_i32;
        let mut legacy = 0_u8;
        let mut base = 0_u64;
        let mut size = 0_usize;
        let mut handle_types = 0_u64;
        let asked = [
            (attribute::MEMORY_TYPE, pointer(&mut memory_type)),
            (attribute::IS_MANAGED, pointer(&mut managed)),
            (attribute::DEVICE_ORDINAL, pointer(&mut ordinal)),
            (attribute::IS_LEGACY_IPC_CAPABLE, pointer(&mut legacy)),
            (attribute::RANGE_START, pointer(&mut base)),
            (attribute::RANGE_SIZE, pointer(&mut size)),
            (attribute::ALLOWED_HANDLE_TYPES, pointer(&mut handle_types)),
        ];
        let attributes = asked.map(|(attribute, _)| attribute);
        let mut values = asked.map(|(_, value)| value);
        let _current = device.enter()?;
        // SAFETY: both lists have 7 entries; each value has the type that CUDA documents for its
        // attribute (none is longer), and lives during the call. `address` is not looked at, only
        // looked up.
        unsafe {
            device.driver().cuPointerGetAttributes(
                7,
                attributes.as_ptr(),
                values.as_mut_ptr(),
                address,
            )
        }?;
        let kind = match memory_type {
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
        }))
    }

    /// [`at`](Self::at), where a producer said that `len` bytes there are memory of `device`.
    ///
    /// # Errors
    ///
    /// `InvalidData` where they are not; as [`at`](Self::at).
    pub fn on_device(device: &Device, address: u64, len: usize) -> Result<Self> {
        let wrong = |what: String| {
            Error::invalid_data(format!(
                "the buffer of {len} bytes at {address:#x} is said to be memory of GPU {}, and {what}",
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

    /// Whether `len` bytes at `address` lie in the allocation whole.
    pub fn contains(&self, address: u64, len: usize) -> bool {
        address
            .checked_sub(self.base)
            .and_then(|offset| usize::try_from(offset).ok())
            .and_then(|offset| offset.checked_add(len))
            .is_some_and(|end| end <= self.size)
    }
}

fn pointer<T>(value: &mut T) -> *mut c_void {
    std::ptr::from_mut(value).cast()
}
