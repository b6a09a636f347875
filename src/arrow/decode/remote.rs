//! Bodies on a GPU: the few values that checking their structure needs.
//!
//! Building reads first and last offsets and last run ends. A body on a GPU is built twice: the
//! first time, what is not known is noted and taken for 0, which no check minds; then all of it is
//! fetched at once; and the second time has the values.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::arrow::decode::plain::Plain;
use crate::device::gpu::{GpuStream, Reads};
use crate::error::Result;

/// Where a value lies: its address and its bytes.
type ValuePlace = (u64, usize);

/// What is known of a body on a GPU.
#[derive(Debug, Default)]
pub(super) struct RemoteParts {
    known: HashMap<ValuePlace, [u8; 8]>,
    asked: Mutex<Vec<ValuePlace>>,
    /// The buffers that do not begin where their type must.
    pub(super) misaligned: Vec<usize>,
}

impl RemoteParts {
    /// The value at an address, if it was fetched; else 0, and it is asked for.
    // Cold: it stays out of the code that reads memory on the host.
    #[cold]
    pub(super) fn read<T: Plain>(&self, address: usize) -> T {
        const { assert!(size_of::<T>() <= 8) };
        let place = (address as u64, size_of::<T>());
        let bytes = self.known.get(&place).copied().unwrap_or_else(|| {
            self.asked.lock().push(place);
            [0; 8]
        });
        // SAFETY: the type has no more than the 8 bytes (asserted above), and any bytes are a value
        // of it, being `Plain`.
        unsafe { bytes.as_ptr().cast::<T>().read_unaligned() }
    }

    /// Whether something was asked for.
    pub(super) fn is_waiting(&self) -> bool {
        !self.asked.lock().is_empty()
    }

    /// Fetches what was asked for, on `stream`, and waits for it.
    ///
    /// # Safety
    ///
    /// What was asked for is readable on the stream's device, behind what the stream was given.
    pub(super) unsafe fn fetch(&mut self, stream: &Arc<GpuStream>) -> Result<()> {
        let asked = std::mem::take(self.asked.get_mut());
        let mut reads = Reads::default();
        let slots: Vec<_> = asked
            .iter()
            .map(|(address, len)| reads.bytes(*address, *len))
            .collect();
        // SAFETY: the caller promises it.
        let results = unsafe { reads.fetch(stream) }?.wait()?;
        for (place, slot) in asked.into_iter().zip(slots) {
            let mut value = [0; 8];
            for (target, byte) in value.iter_mut().zip(results.bytes(slot)) {
                *target = *byte;
            }
            self.known.insert(place, value);
        }
        Ok(())
    }
}
