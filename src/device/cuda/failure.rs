//! Failed calls of the CUDA driver, and their meanings.

use crate::error::{Error, Status};

/// Codes of the driver that this crate depends on. [`Failure`] holds a number, since a newer driver
/// may have other codes.
pub mod code {
    /// `CUDA_ERROR_INVALID_VALUE`
    pub const INVALID_VALUE: i32 = 1;
    /// `CUDA_ERROR_OUT_OF_MEMORY`
    pub const OUT_OF_MEMORY: i32 = 2;
    /// `CUDA_ERROR_INVALID_CONTEXT`
    pub const INVALID_CONTEXT: i32 = 201;
    /// `CUDA_ERROR_MAP_FAILED`
    pub const MAP_FAILED: i32 = 205;
    /// `CUDA_ERROR_OPERATING_SYSTEM`
    pub const OPERATING_SYSTEM: i32 = 304;
    /// `CUDA_ERROR_INVALID_HANDLE`
    pub const INVALID_HANDLE: i32 = 400;
    /// `CUDA_ERROR_NOT_READY`
    pub const NOT_READY: i32 = 600;
    /// `CUDA_ERROR_CONTEXT_IS_DESTROYED`
    pub const CONTEXT_IS_DESTROYED: i32 = 709;
    /// `CUDA_ERROR_NOT_SUPPORTED`
    pub const NOT_SUPPORTED: i32 = 801;
    /// `CUDA_ERROR_UNKNOWN`
    pub const UNKNOWN: i32 = 999;
}

/// A failed call of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// The name of the function.
    pub call: &'static str,
    /// The result, which is not 0.
    pub code: i32,
}

impl Failure {
    pub(super) fn check(call: &'static str, code: i32) -> Result<(), Self> {
        if code == 0 {
            Ok(())
        } else {
            Err(Self { call, code })
        }
    }

    /// True if the call failed because of its handle or descriptor. Drivers disagree on the code
    /// for a handle of another driver.
    pub(super) fn is_of_a_handle(self) -> bool {
        matches!(
            self.code,
            code::INVALID_VALUE
                | code::INVALID_CONTEXT
                | code::MAP_FAILED
                | code::OPERATING_SYSTEM
                | code::INVALID_HANDLE
                | code::UNKNOWN
        )
    }

    /// The error for a handle of `what` on GPU `ordinal` that a peer sent and that does not open.
    pub(super) fn to_open(self, what: &str, ordinal: i32) -> Error {
        let refused = self.is_of_a_handle();
        let error = Error::from(self);
        if !refused {
            return error;
        }
        let text = format!("the peer's handle does not open as {what} of GPU {ordinal}: {error}");
        Error::new(Status::InvalidData, text)
    }

    /// The status of the failure, and the remedy.
    pub(super) fn meaning(self) -> (Status, &'static str) {
        let unusable = "the GPU can no longer be used by this process: restart it";
        match self.code {
            code::OUT_OF_MEMORY => (
                Status::OutOfMemory,
                "free memory of the GPU, or ask for less at a time",
            ),
            3 => (
                Status::Unsupported,
                "CUDA does not survive a fork: use it in the process that first used it, or call \
                 exec",
            ),
            4 => (Status::Stopped, "the process is ending"),
            34 => (
                Status::Unsupported,
                "the libcuda.so.1 that was found is the CUDA toolkit's stub: let the driver's be \
                 found first",
            ),
            46 => (
                Status::Busy,
                "another process uses the GPU alone (its compute mode is exclusive)",
            ),
            100 => (
                Status::Unsupported,
                "the driver sees no GPU: look at nvidia-smi and CUDA_VISIBLE_DEVICES, and in a \
                 container give it the GPU (--gpus all)",
            ),
            101 => (
                Status::InvalidArgument,
                "`dipc info` lists the GPUs that there are",
            ),
            code::INVALID_CONTEXT | code::CONTEXT_IS_DESTROYED | code::INVALID_HANDLE => (
                Status::InvalidData,
                "the context that the memory, the stream or the event belonged to is gone: it must \
                 live until every array made in it is released",
            ),
            code::INVALID_VALUE => (
                Status::InvalidData,
                "the driver does not know the address or the length",
            ),
            // Faults of kernels and copies, and hardware errors.
            214 | 220 | 226 | 700 | 702 | 710 | 714..=719 => (Status::Io, unusable),
            200 | 209 | 218 | 221..=223 => (
                Status::Unsupported,
                "the driver cannot compile the kernels of libdipc for this GPU: install a newer \
                 one",
            ),
            217 | 705 | code::NOT_SUPPORTED => (
                Status::Unsupported,
                "this GPU or machine does not support the operation",
            ),
            800 => (
                Status::Permission,
                "the system denies this user the operation on the GPU",
            ),
            802..=804 => (
                Status::Unsupported,
                "the driver's library does not fit its kernel module or the GPU: restart the \
                 machine after an update, or install matching versions",
            ),
            _ => (Status::Io, "the system's log may say more (dmesg)"),
        }
    }
}
