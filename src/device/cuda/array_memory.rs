//! Memory behind arrays on a GPU.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use crate::device::cuda::room::RoomMemory;
use crate::device::cuda::{Device, Event, Stream, SyncEvent, later};
use crate::error::Result;

/// Memory of ours on a GPU, behind arrays there. A consumer may release an array without ever
/// having waited for it: where work of ours uses the memory when this is dropped, it goes later,
/// and nobody waits.
#[derive(Debug)]
pub(crate) struct ArrayMemory {
    stream: Arc<Stream>,
    pub(super) work: ArrayWork,
    pub(super) memory: Vec<Arc<dyn RoomMemory>>,
    /// The work reads memory that others hold and let go of next.
    reads_others: bool,
}

#[derive(Debug)]
pub(super) enum ArrayWork {
    /// It is being given to the stream.
    Given,
    /// Done when this has happened.
    Until(SyncEvent),
    /// Done.
    Done,
}

impl ArrayMemory {
    /// No memory yet, and work that is about to be given.
    pub(crate) fn new(stream: &Arc<Stream>) -> Self {
        Self {
            stream: Arc::clone(stream),
            work: ArrayWork::Given,
            memory: Vec::new(),
            reads_others: false,
        }
    }

    /// The work given for it reads memory that is let go of after this is dropped, which then
    /// waits.
    pub(crate) fn read_others(&mut self) {
        self.reads_others = true;
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        self.stream.device()
    }

    /// Of the first piece of memory.
    pub(crate) fn address(&self) -> u64 {
        self.memory.first().map_or(0, |memory| memory.address())
    }

    /// Takes over what another one, of the same stream, has.
    pub(crate) fn join(&mut self, mut other: Self) {
        self.memory.append(&mut other.memory);
        self.reads_others |= other.reads_others;
        other.work = ArrayWork::Done;
    }

    /// What consumers wait for; NULL where nothing is under way.
    pub(crate) fn sync_event(&self) -> *mut c_void {
        match &self.work {
            ArrayWork::Until(event) => event.pointer(),
            ArrayWork::Given | ArrayWork::Done => ptr::null_mut(),
        }
    }

    /// The same, for streams of ours.
    pub(crate) fn event(&self) -> Option<&Event> {
        match &self.work {
            ArrayWork::Until(event) => Some(event.event()),
            ArrayWork::Given | ArrayWork::Done => None,
        }
    }
}

impl Drop for ArrayMemory {
    fn drop(&mut self) {
        // The memory goes to others next. An error means that the device does nothing more.
        let _: Result<()> = match std::mem::replace(&mut self.work, ArrayWork::Done) {
            ArrayWork::Given => self.stream.synchronize(),
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
