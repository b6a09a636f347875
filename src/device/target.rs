//! The wanted place of a stream's arrays.

use std::fmt;
use std::str::FromStr;

use crate::device::DeviceKind;
use crate::device::cuda::{Device, Driver, uuids};
use crate::error::{Error, Result};

/// The wanted place of a stream's arrays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Target {
    /// In memory of the host.
    #[default]
    Host,
    /// On the GPU with this number.
    Cuda(i32),
    /// The memory that the sender uses, if this process reaches it without a copy; else the host.
    AsSent,
}

impl Target {
    /// The target for Arrow's device type and device number. Type 0, which Arrow does not use, is
    /// [`AsSent`](Self::AsSent).
    /// Only a CUDA device uses the number.
    ///
    /// # Errors
    ///
    /// `Unsupported` for a type that arrays cannot be copied to; `InvalidArgument` for an invalid
    /// GPU number.
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

    /// Arrow's device type for a client's request; 0 for [`AsSent`](Self::AsSent).
    pub fn device_type(self) -> i32 {
        match self {
            Self::AsSent => 0,
            Self::Host => DeviceKind::CPU.0,
            Self::Cuda(_) => DeviceKind::CUDA.0,
        }
    }

    /// The UUIDs of the GPUs whose memory this process can map, for a server that may lend it.
    /// Empty for the host. Makes no context.
    ///
    /// # Errors
    ///
    /// The driver's error. For `AsSent` there is none: without a driver arrays go to the host.
    pub(crate) fn reachable_gpus(self) -> Result<Vec<[u8; 16]>> {
        match self {
            Self::Host => Ok(Vec::new()),
            Self::Cuda(_) => uuids(),
            Self::AsSent => Ok(uuids().unwrap_or_default()),
        }
    }

    /// Fails if this process cannot have arrays at the target. Loads a driver, makes no context.
    ///
    /// # Errors
    ///
    /// As [`Driver::get`]; `InvalidArgument` if the GPU does not exist.
    pub fn ensure_available(self) -> Result<()> {
        let Self::Cuda(ordinal) = self else {
            return Ok(());
        };
        let context = || format!("arrays on {self} are wanted");
        let count = Driver::get()
            .and_then(Driver::device_count)
            .map_err(|error| error.context(context()))?;
        if ordinal < count {
            return Ok(());
        }
        Err(Device::unknown(i64::from(ordinal), count).context(context()))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => write!(f, "host"),
            Self::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
            Self::AsSent => write!(f, "as-sent"),
        }
    }
}

impl FromStr for Target {
    type Err = Error;

    /// Reads `host`, `cuda` (the first GPU), `cuda:N` or `as-sent`.
    fn from_str(text: &str) -> Result<Self> {
        let number = match text {
            "host" => return Ok(Self::Host),
            "as-sent" => return Ok(Self::AsSent),
            "cuda" => Some("0"),
            _ => text.strip_prefix("cuda:"),
        };
        // `parse` accepts "+1", which is not a device number.
        let ordinal = number
            .filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|number| number.parse().ok());
        ordinal.map(Self::Cuda).ok_or_else(|| {
            Error::invalid_argument(format!(
                "{text:?} is no place for arrays: write host, cuda:N or as-sent"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Status;

    /// Promise of `--device`: each valid text parses, and a target prints as its own text.
    #[test]
    fn targets_are_written_and_read() {
        for (text, target) in [
            ("host", Target::Host),
            ("cuda:0", Target::Cuda(0)),
            ("cuda:12", Target::Cuda(12)),
            ("as-sent", Target::AsSent),
        ] {
            assert_eq!(text.parse::<Target>().unwrap(), target);
            assert_eq!(target.to_string(), text);
        }
        assert_eq!("cuda".parse::<Target>().unwrap(), Target::Cuda(0));
        for wrong in [
            "",
            "Host",
            "cuda:",
            "cuda:-1",
            "cuda:+1",
            "cuda:99999999999",
            "gpu",
            "cuda 0",
        ] {
            let error = wrong.parse::<Target>().unwrap_err();
            assert_eq!(error.status(), Status::InvalidArgument, "{wrong}");
        }
    }

    /// Promise of `dipc_get_options_set_device()`: types and numbers without a target are refused.
    #[test]
    fn device_types_name_targets() {
        for target in [Target::Host, Target::Cuda(3), Target::AsSent] {
            let id = if target == Target::Cuda(3) { 3 } else { -1 };
            let device = DeviceKind(target.device_type());
            assert_eq!(Target::of(device, id).unwrap(), target);
        }
        for id in [-1, i64::MAX] {
            let error = Target::of(DeviceKind::CUDA, id).unwrap_err();
            assert_eq!(error.status(), Status::InvalidArgument);
        }
        let error = Target::of(DeviceKind::CUDA_HOST, 0).unwrap_err();
        assert_eq!(error.status(), Status::Unsupported);
    }
}
