//! The handle of a region of a GPU's memory: what REGION carries on shm (docs/wire.md).

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::device::cuda::export::{Allocation, ExportHandle};
use crate::device::cuda::{CudaRegion, Device};
use crate::error::{Error, Result};
use crate::proto::{Fields, IPC_HANDLE_BYTES, UUID_BYTES};
use crate::transport::lend::export::ExportedRegion;

const RESERVED: [u8; 8] = [0; 8];
const FD: u8 = 1;
const LEGACY: u8 = 2;

/// A handle as it was sent, without the descriptor that comes with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuHandle {
    /// Bytes of the allocation.
    pub length: u64,
    /// The GPU.
    pub uuid: [u8; UUID_BYTES],
    /// How the memory is reached.
    pub kind: HandleKind,
}

/// How memory of another process is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HandleKind {
    /// By the descriptor that comes with the handle.
    Descriptor,
    /// A legacy handle of the driver's.
    Legacy([u8; IPC_HANDLE_BYTES]),
}

/// The handle of a region of a GPU, for the peer.
pub fn of_region(region: &CudaRegion) -> Result<ExportedRegion> {
    let fd = region.memory().export()?;
    let (device, len) = (region.device(), region.len());
    Ok(exported(device, len, HandleKind::Descriptor, Some(fd)))
}

/// The handle of a producer's allocation, for the peer; `None` if the allocation cannot be
/// exported.
pub fn of_allocation(allocation: &Allocation) -> Result<Option<ExportedRegion>> {
    let handle = allocation.export()?.map(|handle| match handle {
        ExportHandle::Fd(fd) => (HandleKind::Descriptor, Some(fd)),
        ExportHandle::Legacy(handle) => (HandleKind::Legacy(handle), None),
    });
    Ok(handle.map(|(kind, fd)| exported(&allocation.device, allocation.size, kind, fd)))
}

/// Makes an exported region. Its drop does not take the peer's access away.
fn exported(device: &Device, len: usize, kind: HandleKind, fd: Option<OwnedFd>) -> ExportedRegion {
    let handle = GpuHandle {
        length: u64::try_from(len).unwrap_or(u64::MAX),
        uuid: *device.uuid(),
        kind,
    };
    ExportedRegion {
        handle: handle.encode(),
        fd: fd.map(Arc::new),
        access: None,
    }
}

impl GpuHandle {
    /// The bytes.
    pub fn encode(&self) -> Vec<u8> {
        let (kind, rest) = match &self.kind {
            HandleKind::Descriptor => (FD, &[][..]),
            HandleKind::Legacy(handle) => (LEGACY, &handle[..]),
        };
        let length = self.length.to_le_bytes();
        [&length[..], &[kind], &self.uuid, &RESERVED, rest].concat()
    }

    /// Reads a handle; `None` if it is one of the host's memory, which has another length.
    /// Errors: `Protocol` if it is neither.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>> {
        let mut fields = Fields::new(bytes);
        let (Some(length), Some(kind)) = (fields.take(), fields.take::<u8>()) else {
            return Ok(None);
        };
        let (Some(uuid), Some(reserved)) = (fields.chunk(), fields.chunk()) else {
            return Ok(None);
        };
        let rest = fields.rest();
        if reserved != RESERVED {
            return Err(wrong("has something in its reserved bytes".to_owned()));
        }
        let kind = match kind {
            FD => exact(rest, "a descriptor").map(|_: [u8; 0]| HandleKind::Descriptor)?,
            LEGACY => HandleKind::Legacy(exact(rest, "a legacy handle")?),
            other => {
                return Err(wrong(format!(
                    "is of kind {other}: 1 is a descriptor, 2 a legacy handle"
                )));
            }
        };
        Ok(Some(Self { length, uuid, kind }))
    }

    /// Whether a descriptor belongs to the REGION message with this handle.
    pub fn brings_descriptor(handle: &[u8]) -> bool {
        handle.get(8) != Some(&LEGACY)
    }
}

fn wrong(what: String) -> Error {
    Error::protocol(format!("the handle of a GPU's memory {what}"))
}

/// The bytes after the fixed part, if their number is right.
fn exact<const N: usize>(bytes: &[u8], what: &str) -> Result<[u8; N]> {
    bytes.try_into().map_err(|_| {
        wrong(format!(
            "has {} bytes behind its fields, not the {N} of {what}",
            bytes.len()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// docs/wire.md, REGION on shm: the bytes of every kind, and which brings a descriptor.
    #[test]
    fn handles_have_the_documented_bytes() {
        for (kind, number, rest, descriptor) in [
            (HandleKind::Descriptor, 1, vec![], true),
            (HandleKind::Legacy([9; 64]), 2, vec![9; 64], false),
        ] {
            let handle = GpuHandle {
                length: 0x0201,
                uuid: [7; 16],
                kind,
            };
            let bytes = handle.encode();
            let fixed = [1, 2, 0, 0, 0, 0, 0, 0, number];
            assert_eq!(bytes, [&fixed[..], &[7; 16], &[0; 8], &rest].concat());
            assert_eq!(GpuHandle::decode(&bytes).unwrap(), Some(handle));
            assert_eq!(GpuHandle::brings_descriptor(&bytes), descriptor);
        }
        // A handle of the host's memory is only its length.
        assert_eq!(GpuHandle::decode(&[0; 8]).unwrap(), None);
        assert!(GpuHandle::brings_descriptor(&[0; 8]));
    }

    /// docs/wire.md, REGION on shm: what does not fit is refused, and the text says why.
    #[test]
    fn malformed_handles_are_refused() {
        let good = GpuHandle {
            length: 1,
            uuid: [7; 16],
            kind: HandleKind::Legacy([9; 64]),
        }
        .encode();
        for (at, value, text) in [
            (8, 0, "kind 0"),
            (8, 3, "kind 3"),
            (
                8,
                1,
                "64 bytes behind its fields, not the 0 of a descriptor",
            ),
            (32, 1, "reserved"),
        ] {
            let mut bad = good.clone();
            bad[at] = value;
            let error = GpuHandle::decode(&bad).unwrap_err();
            assert!(error.text().contains(text), "{error}");
        }
        for len in 33..good.len() {
            let error = GpuHandle::decode(&good[..len]).unwrap_err();
            assert!(error.text().contains("legacy"), "{error}");
        }
    }
}
