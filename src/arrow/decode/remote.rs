//! Bodies on a GPU: fetches of the few values that the checks of the structure need.
//!
//! The build reads first and last offsets and last run ends. A body on a GPU is built twice. In the
//! first build, unknown values are requested and read as 0, which passes the checks. Then all
//! requests are fetched at once, and the second build has the values.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::arrow::decode::plain::Plain;
use crate::device::gpu::{GpuStream, Reads};
use crate::error::Result;

/// The address and the length in bytes of a value.
type ValuePlace = (u64, usize);

/// The fetched values of a body on a GPU.
#[derive(Debug, Default)]
pub(super) struct RemoteParts {
    known: HashMap<ValuePlace, [u8; 8]>,
    requests: Mutex<Vec<ValuePlace>>,
    /// The indexes of buffers that are not aligned for their type.
    pub(super) misaligned: Vec<usize>,
}

impl RemoteParts {
    /// The fetched value at an address. If it is missing, requests it and returns 0.
    // Cold: this code stays outside of the code for host memory.
    #[cold]
    pub(super) fn read<T: Plain>(&self, address: usize) -> T {
        const { assert!(size_of::<T>() <= 8) };
        let place = (address as u64, size_of::<T>());
        let bytes = self.known.get(&place).copied().unwrap_or_else(|| {
            self.requests.lock().push(place);
            [0; 8]
        });
        // SAFETY: the type has at most 8 bytes, as asserted above, and any bytes are valid for a
        // `Plain` type.
        unsafe { bytes.as_ptr().cast::<T>().read_unaligned() }
    }

    /// True if there are requests.
    pub(super) fn is_waiting(&self) -> bool {
        !self.requests.lock().is_empty()
    }

    /// Fetches the requested values on `stream`, and waits for them.
    ///
    /// # Safety
    ///
    /// The requested values are readable on the stream's device after the stream's earlier work.
    pub(super) unsafe fn fetch(&mut self, stream: &Arc<GpuStream>) -> Result<()> {
        let requests = std::mem::take(self.requests.get_mut());
        let mut reads = Reads::default();
        let slots: Vec<_> = requests
            .iter()
            .map(|(address, len)| reads.bytes(*address, *len))
            .collect();
        // SAFETY: the caller promises the same.
        let results = unsafe { reads.fetch(stream) }?.wait()?;
        for (place, slot) in requests.into_iter().zip(slots) {
            let mut value = [0; 8];
            for (target, byte) in value.iter_mut().zip(results.bytes(slot)) {
                *target = *byte;
            }
            self.known.insert(place, value);
        }
        Ok(())
    }
}
