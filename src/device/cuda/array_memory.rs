//! Memory of arrays on a GPU.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use crate::device::cuda::room::RoomMemory;
use crate::device::cuda::{Device, Event, Stream, SyncEvent, later};
use crate::error::Result;

/// Memory of this process on a GPU, for arrays. A consumer may release an array without a wait for
/// its work. If work still uses the memory at the drop, the memory is freed later and the drop does
/// not wait.
#[derive(Debug)]
pub(crate) struct ArrayMemory {
    stream: Arc<Stream>,
    pub(super) work: ArrayWork,
    pub(super) memory: Vec<Arc<dyn RoomMemory>>,
    /// The work reads memory whose owner frees it after the drop of this value.
    reads_others: bool,
}

#[derive(Debug)]
pub(super) enum ArrayWork {
    /// The caller is still enqueueing work.
    Enqueuing,
    /// The work is done when this event has happened.
    Until(SyncEvent),
    /// The work is done.
    Done,
}

impl ArrayMemory {
    /// No memory yet; the caller is about to enqueue work.
    pub(crate) fn new(stream: &Arc<Stream>) -> Self {
        Self {
            stream: Arc::clone(stream),
            work: ArrayWork::Enqueuing,
            memory: Vec::new(),
            reads_others: false,
        }
    }

    /// Declares that the work reads memory whose owner frees it after the drop of this value. The
    /// drop then waits for the work.
    pub(crate) fn read_others(&mut self) {
        self.reads_others = true;
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        self.stream.device()
    }

    /// The address of the first piece of memory.
    pub(crate) fn address(&self) -> u64 {
        self.memory.first().map_or(0, |memory| memory.address())
    }

    /// Takes over the memory of another value of the same stream.
    pub(crate) fn join(&mut self, mut other: Self) {
        self.memory.append(&mut other.memory);
        self.reads_others |= other.reads_others;
        other.work = ArrayWork::Done;
    }

    /// The event for consumers; NULL if no work is under way.
    pub(crate) fn sync_event(&self) -> *mut c_void {
        match &self.work {
            ArrayWork::Until(event) => event.pointer(),
            ArrayWork::Enqueuing | ArrayWork::Done => ptr::null_mut(),
        }
    }

    /// The event for streams of this process.
    pub(crate) fn event(&self) -> Option<&Event> {
        match &self.work {
            ArrayWork::Until(event) => Some(event.event()),
            ArrayWork::Enqueuing | ArrayWork::Done => None,
        }
    }
}

impl Drop for ArrayMemory {
    fn drop(&mut self) {
        // The memory gets other users next. After an error the device does no more work.
        let _: Result<()> = match std::mem::replace(&mut self.work, ArrayWork::Done) {
            ArrayWork::Enqueuing => self.stream.synchronize(),
            ArrayWork::Until(event) if self.reads_others => event.event().synchronize(),
            ArrayWork::Until(event) => {
                let memory = std::mem::take(&mut self.memory);
                later::keep_until(Arc::clone(event.event()), Box::new(memory));
                Ok(())
            }
            ArrayWork::Done => Ok(()),
        };
    }
}
