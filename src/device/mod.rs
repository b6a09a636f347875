//! Memory by kind of device: allocation, copies and lending.
//!
//! The modules above name memory by [`BufferRef`] and [`DeviceKind`] only. So a table on a GPU
//! takes the same path through the crate as a table on the host.

mod blocks;
pub mod copy;
pub mod cuda;
pub mod gpu;
mod host;
pub(crate) mod lendable;
pub(crate) mod memfd;
pub(crate) mod outlive;
mod recycle;
pub mod region;
pub mod target;

pub use host::HostBuffer;
pub use target::Target;

use crate::error::{Error, Result};

/// A kind of memory, with the numbers of `ArrowDeviceType` of Arrow's C Device Data Interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeviceKind(pub i32);

impl DeviceKind {
    /// `ARROW_DEVICE_CPU`: memory that the processor reads.
    pub const CPU: Self = Self(1);
    /// `ARROW_DEVICE_CUDA`: memory of an NVIDIA GPU.
    pub const CUDA: Self = Self(2);
    /// `ARROW_DEVICE_CUDA_HOST`: pinned host memory, which the processor and GPUs read.
    pub const CUDA_HOST: Self = Self(3);
    /// `ARROW_DEVICE_CUDA_MANAGED`: memory that the driver moves between the processor and GPUs.
    pub const CUDA_MANAGED: Self = Self(13);

    /// Fails if this build cannot read memory of this kind on the processor.
    ///
    /// # Errors
    ///
    /// `Unsupported`, with the number of the kind.
    #[doc(hidden)]
    pub fn ensure_readable(self) -> Result<()> {
        if self == Self::CPU {
            return Ok(());
        }
        Err(Error::unsupported(format!(
            "memory of Arrow device type {} cannot be read here: this build reads host memory \
             (type 1) only; copy the array to the host first",
            self.0
        )))
    }
}

/// The offset of `len` bytes at `address`, if all of them lie in the `size` bytes at `base`.
pub(crate) fn offset_within((base, size): (u64, usize), address: u64, len: usize) -> Option<u64> {
    let offset = address.checked_sub(base)?;
    let end = usize::try_from(offset).ok()?.checked_add(len)?;
    (end <= size).then_some(offset)
}

/// A description of a run of bytes.
///
/// It does not borrow the memory: its holder must also hold the memory's owner (the producer's
/// array, a mapped region, an allocation).
#[derive(Debug, Clone, Copy)]
pub struct BufferRef {
    /// The first byte; not dereferenced if `len` is 0.
    pub data: *const u8,
    /// Length in bytes.
    pub len: usize,
}

// SAFETY: the pointer is only a number here. A read through it is unsafe, and requires that the
// owner is held, on any thread.
unsafe impl Send for BufferRef {}
// SAFETY: the pointer is only a number here, and there is no interior mutability.
unsafe impl Sync for BufferRef {}

impl BufferRef {
    /// The empty run.
    pub const EMPTY: Self = Self {
        data: std::ptr::null(),
        len: 0,
    };

    /// Describes a slice; the caller keeps the slice alive.
    pub fn of(bytes: &[u8]) -> Self {
        Self {
            data: bytes.as_ptr(),
            len: bytes.len(),
        }
    }

    /// The bytes.
    ///
    /// # Safety
    ///
    /// The memory lies on the host, its owner is alive for `'a`, and nobody writes to it.
    pub unsafe fn as_slice<'a>(self) -> &'a [u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: the caller promises that the owner lives for 'a and that nobody writes. `data`
        // and `len` describe one allocation, by this type's definition.
        unsafe { std::slice::from_raw_parts(self.data, self.len) }
    }
}
