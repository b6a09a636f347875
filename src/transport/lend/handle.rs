//! The handle of a region of a GPU's memory: what REGION carries on shm (docs/wire.md).

use std::os::fd::OwnedFd;

use crate::device::cuda::export::Handle;
use crate::error::{Error, Result};
use crate::proto::{IPC_HANDLE_BYTES, UUID_BYTES};

/// Bytes before the legacy handle.
const FIXED_BYTES: usize = 33;
const FD: u8 = 1;
const LEGACY: u8 = 2;

/// A handle as it was sent, without the descriptor beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuHandle {
    /// Bytes of the allocation.
    pub length: u64,
    /// The GPU.
    pub uuid: [u8; UUID_BYTES],
    /// `None`: a descriptor comes beside it.
    pub legacy: Option<[u8; IPC_HANDLE_BYTES]>,
}

impl GpuHandle {
    /// The bytes, and the descriptor that goes with them.
    pub fn encode(
        length: u64,
        uuid: &[u8; UUID_BYTES],
        handle: Handle,
    ) -> (Vec<u8>, Option<OwnedFd>) {
        let mut bytes = Vec::with_capacity(FIXED_BYTES + IPC_HANDLE_BYTES);
        bytes.extend_from_slice(&length.to_le_bytes());
        let (kind, legacy, fd) = match handle {
            Handle::Fd(fd) => (FD, None, Some(fd)),
            Handle::Legacy(legacy) => (LEGACY, Some(legacy), None),
        };
        bytes.push(kind);
        bytes.extend_from_slice(uuid);
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend(legacy.into_iter().flatten());
        (bytes, fd)
    }

    /// Reads a handle; `None` for one of the host's memory, which has another length.
    ///
    /// # Errors
    ///
    /// `Protocol`: it is neither.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>> {
        let Some((fixed, rest)) = bytes.split_first_chunk::<FIXED_BYTES>() else {
            return Ok(None);
        };
        let wrong = |what: String| Error::protocol(format!("the handle of a GPU's memory {what}"));
        let (length, fixed) = fixed.split_first_chunk::<8>().unwrap_or((&[0; 8], &[]));
        let (kind, fixed) = fixed.split_first().unwrap_or((&0, &[]));
        let (uuid, reserved) = fixed
            .split_first_chunk::<UUID_BYTES>()
            .unwrap_or((&[0; UUID_BYTES], &[]));
        if reserved.iter().any(|byte| *byte != 0) {
            return Err(wrong("has something in its reserved bytes".to_owned()));
        }
        let legacy = match *kind {
            FD if rest.is_empty() => None,
            LEGACY => Some(rest.try_into().map_err(|_| {
                wrong(format!(
                    "has {} bytes behind its fields, not the {IPC_HANDLE_BYTES} of a legacy handle",
                    rest.len()
                ))
            })?),
            FD => return Err(wrong(format!("has {} bytes too many", rest.len()))),
            other => {
                return Err(wrong(format!(
                    "is of kind {other}: 1 is a descriptor, 2 a legacy handle"
                )));
            }
        };
        Ok(Some(Self {
            length: u64::from_le_bytes(*length),
            uuid: *uuid,
            legacy,
        }))
    }

    /// Whether a descriptor belongs to the REGION message with this handle.
    pub fn brings_descriptor(handle: &[u8]) -> bool {
        handle.get(8) != Some(&LEGACY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// docs/wire.md, REGION on shm: the bytes of both kinds.
    #[test]
    fn handles_have_the_documented_bytes() {
        let (bytes, fd) = GpuHandle::encode(0x0201, &[7; 16], Handle::Legacy([9; 64]));
        assert!(fd.is_none());
        let expected = [
            &[1, 2, 0, 0, 0, 0, 0, 0, 2][..],
            &[7; 16],
            &[0; 8],
            &[9; 64],
        ]
        .concat();
        assert_eq!(bytes, expected);
        let read = GpuHandle::decode(&bytes).unwrap().unwrap();
        assert_eq!(
            read,
            GpuHandle {
                length: 0x0201,
                uuid: [7; 16],
                legacy: Some([9; 64]),
            }
        );
        assert!(!GpuHandle::brings_descriptor(&bytes));

        let file = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let (bytes, fd) = GpuHandle::encode(1 << 40, &[8; 16], Handle::Fd(file));
        assert!(fd.is_some());
        let expected = [&[0, 0, 0, 0, 0, 1, 0, 0, 1][..], &[8; 16], &[0; 8]].concat();
        assert_eq!(bytes, expected);
        let read = GpuHandle::decode(&bytes).unwrap().unwrap();
        assert_eq!(
            (read.length, read.uuid, read.legacy),
            (1 << 40, [8; 16], None)
        );
        assert!(GpuHandle::brings_descriptor(&bytes));
        // One of the host's memory is its length.
        assert_eq!(GpuHandle::decode(&[0; 8]).unwrap(), None);
        assert!(GpuHandle::brings_descriptor(&[0; 8]));
    }

    /// docs/wire.md, REGION on shm: what does not fit is refused, and the text says why.
    #[test]
    fn malformed_handles_are_refused() {
        let (good, _) = GpuHandle::encode(1, &[7; 16], Handle::Legacy([9; 64]));
        for (at, value, text) in [
            (8, 0, "kind 0"),
            (8, 3, "kind 3"),
            (8, 1, "64 bytes too many"),
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
