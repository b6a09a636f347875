//! Copies of many buffers to, from and within a GPU, on one stream.

use std::any::Any;
use std::ptr;
use std::sync::Arc;

use crate::device::HostBuffer;
use crate::device::cuda::array_memory::{ArrayMemory, ArrayWork};
use crate::device::cuda::copy_list::{ALIGNMENT, CHUNK, CopyList};
use crate::device::cuda::room::{GpuAllocator, RoomMemory};
use crate::device::cuda::{Device, DeviceMemory, Event, PinnedMemory, Purpose, Stream, SyncEvent};
use crate::error::{Error, Result};

/// Pinned memory, and the event after the work that uses it.
type PinnedSlot = (Event, PinnedMemory);

/// Memory that enqueued work reads, held for its drop.
type WorkSource = Arc<dyn Any + Send + Sync>;

/// A stream of a GPU, and the memory that its work still uses.
#[derive(Debug)]
pub(crate) struct CopyStream {
    stream: Arc<Stream>,
    /// True if enqueued work may be under way.
    busy: bool,
    /// The allocator for arrays; `None` for the driver's memory.
    room: Option<Arc<dyn GpuAllocator>>,
    /// Zeros, the target of pointers of empty buffers.
    zeros: Option<Arc<dyn RoomMemory>>,
    /// Memory that work reads until the event.
    sources: Vec<(Event, WorkSource)>,
}

impl CopyStream {
    pub(crate) fn new(device: &Arc<Device>, room: Option<Arc<dyn GpuAllocator>>) -> Result<Self> {
        Ok(Self {
            stream: Arc::new(Stream::new(device)?),
            busy: false,
            room,
            zeros: None,
            sources: Vec::new(),
        })
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        self.stream.device()
    }

    pub(crate) fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Makes later work wait for an event.
    pub(crate) fn wait_for(&mut self, event: &Event) -> Result<()> {
        if !event.is_ready()? {
            self.stream.wait(event)?;
            self.busy = true;
        }
        Ok(())
    }

    /// Records that all enqueued work is done.
    pub(crate) fn settled(&mut self) {
        self.busy = false;
    }

    /// Drops memory that no work reads any more.
    pub(crate) fn poll(&mut self) {
        // After an error of the driver the work may still be under way.
        self.sources
            .retain(|(event, _)| !matches!(event.is_ready(), Ok(true)));
    }

    /// Keeps `source` until the work enqueued so far is done.
    pub(crate) fn hold(&mut self, source: WorkSource) -> Result<()> {
        let event = Event::new(self.device())
            .and_then(|event| event.record(&self.stream).map(|()| event))
            .inspect_err(|_| {
                // Before `source` is dropped. After an error the device does no more work.
                let _: Result<()> = self.stream.synchronize();
            })?;
        self.sources.push((event, source));
        Ok(())
    }

    /// Copies buffers of the host to one piece of GPU memory. Does not read the buffers after the
    /// call.
    ///
    /// # Safety
    ///
    /// The host can read the buffers during the call. Only a peer may write to them meanwhile.
    pub(crate) unsafe fn upload(&mut self, list: &CopyList) -> Result<ArrayMemory> {
        let array_memory = self.room(list.len)?;
        let mut slots = [None, None];
        // SAFETY: the caller promises the buffers; `array_memory` has the length of the list.
        match unsafe { self.send(list, array_memory.address(), &mut slots) } {
            Ok(()) => {
                let pinned = |(event, memory)| (event, Arc::new(memory) as _);
                self.sources.extend(slots.into_iter().flatten().map(pinned));
                Ok(array_memory)
            }
            Err(error) => {
                // Waits for started work, before the pinned memory is recycled.
                drop(array_memory);
                Err(error)
            }
        }
    }

    /// Copies registered buffers of the host to one piece of GPU memory, without pinned memory.
    ///
    /// # Safety
    ///
    /// As [`upload`](Self::upload), but until the work of this call is done. The caller keeps the
    /// buffers with [`hold`](Self::hold), even after an error.
    pub(crate) unsafe fn upload_from_registered(&mut self, list: &CopyList) -> Result<ArrayMemory> {
        let array_memory = self.room(list.len)?;
        self.busy = true;
        for piece in &list.pieces {
            let (source, len) = (piece.source.data as u64, piece.source.len);
            // SAFETY: the caller promises the source. The target is a part of memory of the list's
            // length, which lives until the stream's work is done.
            unsafe {
                self.stream
                    .copy(array_memory.address() + piece.at as u64, source, len)
            }?;
        }
        Ok(array_memory)
    }

    /// # Safety
    ///
    /// As [`upload`](Self::upload). `target` is GPU memory of the list's length. It and the slots
    /// live until the stream's work is done.
    unsafe fn send(
        &mut self,
        list: &CopyList,
        target: u64,
        slots: &mut [Option<PinnedSlot>; 2],
    ) -> Result<()> {
        for (index, (from, to)) in list.chunks().enumerate() {
            let (event, pinned) = self.slot(&mut slots[index % 2], list)?;
            // SAFETY: the work that reads the memory is done: `slot` has waited for `event`.
            let bytes = unsafe { pinned.as_mut_slice() };
            for (source, at) in list.parts(from, to) {
                let target = &mut bytes[at..at + source.len];
                // SAFETY: the caller promises that the source is readable. The target is a slice of
                // the same length, of memory that this stream alone uses. Nothing is read twice.
                unsafe { ptr::copy_nonoverlapping(source.data, target.as_mut_ptr(), source.len) };
            }
            let source = pinned.address();
            self.busy = true;
            // SAFETY: both memories have this many bytes and live until the stream's work is done,
            // as the caller promises.
            unsafe { self.stream.copy(target + from as u64, source, to - from) }?;
            event.record(&self.stream)?;
        }
        Ok(())
    }

    /// Copies buffers of the GPU to one piece of host memory, and waits for the copies.
    ///
    /// # Safety
    ///
    /// The GPU can read the buffers during the call, after the earlier work of the stream.
    pub(crate) unsafe fn download(&mut self, list: &CopyList) -> Result<HostBuffer> {
        let mut memory = HostBuffer::to_fill(list.len)?;
        let mut slots = [None, None];
        // SAFETY: the caller promises the buffers.
        let outcome = unsafe { self.receive(list, memory.as_mut_slice(), &mut slots) };
        if outcome.is_err() {
            // The pinned memory is recycled next. After an error the device does no more work.
            let _: Result<()> = self.stream.synchronize();
        }
        outcome?;
        if !list.is_empty() {
            self.settled();
        }
        Ok(memory)
    }

    /// # Safety
    ///
    /// As [`download`](Self::download); the slots live until the stream's work is done.
    unsafe fn receive(
        &mut self,
        list: &CopyList,
        target: &mut [u8],
        slots: &mut [Option<PinnedSlot>; 2],
    ) -> Result<()> {
        let mut before = None;
        for (index, (from, to)) in list.chunks().enumerate() {
            let (event, pinned) = self.slot(&mut slots[index % 2], list)?;
            self.busy = true;
            for (source, at) in list.parts(from, to) {
                let target = pinned.address() + at as u64;
                // SAFETY: the caller promises the source. The target is a part of a slot, which
                // lives until the stream's work is done.
                unsafe { self.stream.copy(target, source.data as u64, source.len) }?;
            }
            event.record(&self.stream)?;
            if let Some((index, from, to)) = before.replace((index, from, to)) {
                take(&slots[index % 2], &mut target[from..to])?;
            }
        }
        match before {
            Some((index, from, to)) => take(&slots[index % 2], &mut target[from..to]),
            None => Ok(()),
        }
    }

    /// Pinned memory for a chunk. Waits until its last work is done.
    fn slot<'s>(
        &self,
        slot: &'s mut Option<PinnedSlot>,
        list: &CopyList,
    ) -> Result<&'s mut PinnedSlot> {
        if let Some((event, _)) = slot {
            event.synchronize()?;
        }
        if slot.is_none() {
            let event = Event::new(self.device())?;
            *slot = Some((
                event,
                PinnedMemory::new(self.device(), list.len.min(CHUNK))?,
            ));
        }
        slot.as_mut()
            .ok_or_else(|| Error::out_of_memory("no pinned memory"))
    }

    /// Copies buffers of the GPU `from` to one piece of this GPU's memory.
    ///
    /// # Safety
    ///
    /// The buffers lie on `from`, and are readable after the earlier work of the stream, until the
    /// work of this call is done.
    pub(crate) unsafe fn copy(&mut self, list: &CopyList, from: &Device) -> Result<ArrayMemory> {
        let array_memory = self.room(list.len)?;
        self.busy = true;
        for piece in &list.pieces {
            let (source, len) = (piece.source.data as u64, piece.source.len);
            let target = array_memory.address() + piece.at as u64;
            // SAFETY: the caller promises the source. The target is a part of memory of the list's
            // length, which lives until the stream's work is done.
            unsafe {
                self.stream
                    .copy_between((self.device(), target), (from, source), len)
            }?;
        }
        Ok(array_memory)
    }

    /// Memory of the GPU for work that the caller is about to enqueue.
    fn room(&self, len: usize) -> Result<ArrayMemory> {
        let mut array_memory = ArrayMemory::new(&self.stream);
        array_memory.memory.push(self.take(len)?);
        Ok(array_memory)
    }

    fn take(&self, len: usize) -> Result<Arc<dyn RoomMemory>> {
        match &self.room {
            Some(room) => room.take(len),
            None => Ok(Arc::new(DeviceMemory::new(
                self.device(),
                len,
                Purpose::Own,
            )?)),
        }
    }

    /// The address of zeros on the GPU. `array_memory` keeps the zeros from now on.
    pub(crate) fn zeros(&mut self, array_memory: &mut ArrayMemory) -> Result<u64> {
        let zeros = match &self.zeros {
            Some(zeros) => Arc::clone(zeros),
            None => {
                let memory = self.take(ALIGNMENT)?;
                self.busy = true;
                // SAFETY: the memory has this length. It lives until the stream's work is done,
                // because every holder waits for that.
                unsafe { self.stream.fill(memory.address(), 0, ALIGNMENT) }?;
                Arc::clone(self.zeros.insert(memory))
            }
        };
        let address = zeros.address();
        array_memory.memory.push(zeros);
        Ok(address)
    }

    /// Sets the event after all work of `array_memory`, or marks the work as done.
    pub(crate) fn finish(&mut self, array_memory: &mut ArrayMemory) -> Result<()> {
        if self.busy && self.stream.is_idle()? {
            self.settled();
        }
        array_memory.work = if self.busy {
            ArrayWork::Until(SyncEvent::record(&self.stream)?)
        } else {
            ArrayWork::Done
        };
        Ok(())
    }
}

impl Drop for CopyStream {
    fn drop(&mut self) {
        if self.busy || !self.sources.is_empty() {
            // The memory that the work uses is recycled next. After an error the device does no
            // more work.
            let _: Result<()> = self.stream.synchronize();
        }
    }
}

/// Waits for a chunk, and copies it out of the pinned memory.
fn take(slot: &Option<PinnedSlot>, target: &mut [u8]) -> Result<()> {
    if let Some((event, pinned)) = slot {
        event.synchronize()?;
        // SAFETY: the work that writes the memory is done: `event` has happened.
        let bytes = unsafe { pinned.as_slice() };
        target.copy_from_slice(&bytes[..target.len()]);
    }
    Ok(())
}
