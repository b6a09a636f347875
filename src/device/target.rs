//! Where the arrays of a stream shall be.

use crate::device::DeviceKind;
use crate::error::{Error, Result};

/// Where the arrays of a stream shall be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Target {
    /// In memory of the host.
    #[default]
    Host,
    /// On the GPU with this number.
    Cuda(i32),
    /// Where the sender has them, if this process reaches that without a copy; else on the host.
    AsSent,
}

impl Target {
    /// The target that Arrow's device type and number name: 0 is [`AsSent`](Self::AsSent). The
    /// number says nothing but for CUDA devices.
    ///
    /// # Errors
    ///
    /// `Unsupported` for a type that nothing can be brought to; `InvalidArgument` for a number that
    /// no GPU has.
    pub fn of(device: DeviceKind, id: i64) -> Result<Self> {
        match device {
            DeviceKind(0) => Ok(Self::AsSent),
            DeviceKind::CPU => Ok(Self::Host),
            DeviceKind::CUDA => match i32::try_from(id) {
                Ok(ordinal @ 0..) => Ok(Self::Cuda(ordinal)),
                _ => Err(Error::invalid_argument(format!(
                    "no GPU has the number {id}: they are numbered from 0"
                ))),
            },
            other => Err(Error::unsupported(format!(
                "arrays cannot be brought to Arrow device type {}: 1 is the host, 2 a CUDA device, \
                 0 as they are sent",
                other.0
            ))),
        }
    }
}
