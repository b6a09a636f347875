//! Where bytes live, and what can be done with them there.
//!
//! Everything above names memory by [`BufferRef`] and [`DeviceKind`] and leaves copying,
//! allocating and lending to this module, so that a table on another device takes the same way
//! through the crate as one on the host.

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

/// A kind of memory, numbered as `ArrowDeviceType` of Arrow's C Device Data Interface numbers it.
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

    /// Whether this build can read memory of this kind.
    ///
    /// # Errors
    ///
    /// `Unsupported`, with the number of the kind, where it cannot.
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

/// A run of bytes that something else keeps alive.
///
/// It is a description, not a borrow: whoever holds one also holds the owner of the memory
/// (the producer's array, a mapped region, an allocation).
#[derive(Debug, Clone, Copy)]
pub struct BufferRef {
    /// First byte; never read through when `len` is 0.
    pub data: *const u8,
    /// Length in bytes.
    pub len: usize,
}

// SAFETY: the pointer is only a number here. Reading through it is unsafe and its condition, that
// the owner is held, does not depend on the thread.
unsafe impl Send for BufferRef {}
// SAFETY: as above; there is no interior mutability.
unsafe impl Sync for BufferRef {}

impl BufferRef {
    /// The empty run.
    pub const EMPTY: Self = Self {
        data: std::ptr::null(),
        len: 0,
    };

    /// Describes a slice; the caller keeps it alive.
    pub fn of(bytes: &[u8]) -> Self {
        Self {
            data: bytes.as_ptr(),
            len: bytes.len(),
        }
    }

    /// The bytes themselves.
    ///
    /// # Safety
    ///
    /// The memory lies on the host, its owner is alive for `'a`, and nobody writes to it.
    pub unsafe fn as_slice<'a>(self) -> &'a [u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: the caller promises that the owner lives for 'a and that nobody writes; `data`
        // and `len` describe one allocation by this type's definition.
        unsafe { std::slice::from_raw_parts(self.data, self.len) }
    }
}
