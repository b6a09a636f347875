//! Copies of many buffers at once: to a GPU, from it and within it, on a stream of their own.

use std::any::Any;
use std::ptr;
use std::sync::Arc;

use crate::device::HostBuffer;
use crate::device::cuda::array_memory::{ArrayMemory, ArrayWork};
use crate::device::cuda::copy_list::{ALIGNMENT, CHUNK, CopyList};
use crate::device::cuda::room::{GpuAllocator, RoomMemory};
use crate::device::cuda::{Device, DeviceMemory, Event, PinnedMemory, Purpose, Stream, SyncEvent};
use crate::error::{Error, Result};

/// Pinned memory, and the event behind the work that uses it.
type PinnedSlot = (Event, PinnedMemory);

/// Memory that work which was enqueued reads.
#[derive(Debug)]
enum WorkSource {
    Pinned(#[expect(dead_code, reason = "held for its drop")] PinnedMemory),
    Other(#[expect(dead_code, reason = "held for its drop")] Arc<dyn Any + Send + Sync>),
}

/// A GPU's stream, and what its work still uses.
#[derive(Debug)]
pub(crate) struct CopyStream {
    stream: Arc<Stream>,
    /// It was given work that may be under way.
    busy: bool,
    /// Where memory for arrays is taken from; `None`: from the driver.
    room: Option<Arc<dyn GpuAllocator>>,
    /// What empty buffers point to.
    zeros: Option<Arc<dyn RoomMemory>>,
    /// What is read until an event has happened.
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

    /// Lets what comes wait for an event.
    pub(crate) fn wait_for(&mut self, event: &Event) -> Result<()> {
        if !event.is_ready()? {
            self.stream.wait(event)?;
            self.busy = true;
        }
        Ok(())
    }

    /// Everything given to the stream is known to be done.
    pub(crate) fn settled(&mut self) {
        self.busy = false;
    }

    /// Lets go of what is not used any more.
    pub(crate) fn poll(&mut self) {
        // Where the driver fails, it is not known that the work is done.
        self.sources
            .retain(|(event, _)| !matches!(event.is_ready(), Ok(true)));
    }

    /// Holds `source` until the work given so far is done.
    pub(crate) fn hold(&mut self, source: Arc<dyn Any + Send + Sync>) -> Result<()> {
        let event = Event::new(self.device())
            .and_then(|event| event.record(&self.stream).map(|()| event))
            .inspect_err(|_| {
                // Before `source` goes. An error means that the device does nothing more.
                let _: Result<()> = self.stream.synchronize();
            })?;
        self.sources.push((event, WorkSource::Other(source)));
        Ok(())
    }

    /// Copies buffers from the host to one piece of memory of the GPU. They are not read any more
    /// afterwards.
    ///
    /// # Safety
    ///
    /// The buffers can be read on the host during the call; who else may write to them is a peer.
    pub(crate) unsafe fn upload(&mut self, load: &CopyList) -> Result<ArrayMemory> {
        let there = self.room(load.len)?;
        let mut slots = [None, None];
        // SAFETY: the caller promises the buffers; `there` has the length of the load.
        match unsafe { self.send(load, there.address(), &mut slots) } {
            Ok(()) => {
                let pinned = |(event, memory)| (event, WorkSource::Pinned(memory));
                self.sources.extend(slots.into_iter().flatten().map(pinned));
                Ok(there)
            }
            Err(error) => {
                // Waits for what was started, before the pinned memory goes to others.
                drop(there);
                Err(error)
            }
        }
    }

    /// Copies buffers from the host to one piece of memory of the GPU, which takes them from where
    /// they are.
    ///
    /// # Safety
    ///
    /// As [`upload`](Self::upload), but until the stream is done with what it is given here: the
    /// caller holds what keeps them ([`hold`](Self::hold)), also where this fails.
    pub(crate) unsafe fn upload_from_registered(&mut self, load: &CopyList) -> Result<ArrayMemory> {
        let there = self.room(load.len)?;
        self.busy = true;
        for piece in &load.pieces {
            let (source, len) = (piece.source.data as u64, piece.source.len);
            // SAFETY: the caller promises the source; the target is a part of memory of the load's
            // length, which goes only when the stream is done.
            unsafe {
                self.stream
                    .copy(there.address() + piece.at as u64, source, len)
            }?;
        }
        Ok(there)
    }

    /// # Safety
    ///
    /// As [`upload`](Self::upload); `target` is memory of the GPU as long as the load, which lives
    /// until the stream is done, as the slots do.
    unsafe fn send(
        &mut self,
        load: &CopyList,
        target: u64,
        slots: &mut [Option<PinnedSlot>; 2],
    ) -> Result<()> {
        for (index, (from, to)) in load.chunks().enumerate() {
            let (event, pinned) = self.slot(&mut slots[index % 2], load)?;
            // SAFETY: the work that reads it is behind `event`, for which `slot` has waited.
            let bytes = unsafe { pinned.as_mut_slice() };
            for (source, at) in load.parts(from, to) {
                let target = &mut bytes[at..at + source.len];
                // SAFETY: the caller promises that the source is readable; the target is a slice of
                // the same length, of memory that is ours alone. Nothing is read twice.
                unsafe { ptr::copy_nonoverlapping(source.data, target.as_mut_ptr(), source.len) };
            }
            let source = pinned.address();
            self.busy = true;
            // SAFETY: both lie where there are so many bytes, and live until the stream is done, as
            // the caller promises.
            unsafe { self.stream.copy(target + from as u64, source, to - from) }?;
            event.record(&self.stream)?;
        }
        Ok(())
    }

    /// Copies buffers of the GPU to one piece of host memory, and waits for that.
    ///
    /// # Safety
    ///
    /// The buffers can be read on the GPU during the call, behind what the stream was given.
    pub(crate) unsafe fn download(&mut self, load: &CopyList) -> Result<HostBuffer> {
        let mut memory = HostBuffer::to_fill(load.len)?;
        let mut slots = [None, None];
        // SAFETY: the caller promises the buffers.
        let outcome = unsafe { self.receive(load, memory.as_mut_slice(), &mut slots) };
        if outcome.is_err() {
            // The pinned memory goes to others next. An error means that the device does nothing
            // more.
            let _: Result<()> = self.stream.synchronize();
        }
        outcome?;
        if !load.is_empty() {
            self.settled();
        }
        Ok(memory)
    }

    /// # Safety
    ///
    /// As [`download`](Self::download); the slots live until the stream is done.
    unsafe fn receive(
        &mut self,
        load: &CopyList,
        target: &mut [u8],
        slots: &mut [Option<PinnedSlot>; 2],
    ) -> Result<()> {
        let mut before = None;
        for (index, (from, to)) in load.chunks().enumerate() {
            let (event, pinned) = self.slot(&mut slots[index % 2], load)?;
            self.busy = true;
            for (source, at) in load.parts(from, to) {
                let target = pinned.address() + at as u64;
                // SAFETY: the caller promises the source; the target is a part of a chunk, which
                // lives until the stream is done.
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

    /// Pinned memory for a chunk, whose last user is done with it.
    fn slot<'s>(
        &self,
        slot: &'s mut Option<PinnedSlot>,
        load: &CopyList,
    ) -> Result<&'s mut PinnedSlot> {
        if let Some((event, _)) = slot {
            event.synchronize()?;
        }
        if slot.is_none() {
            let event = Event::new(self.device())?;
            *slot = Some((
                event,
                PinnedMemory::new(self.device(), load.len.min(CHUNK))?,
            ));
        }
        slot.as_mut()
            .ok_or_else(|| Error::out_of_memory("no pinned memory"))
    }

    /// Copies buffers of the GPU `from` to one piece of this GPU's memory.
    ///
    /// # Safety
    ///
    /// The buffers lie on `from` and can be read, behind what the stream was given, until it is
    /// done with what it is given here.
    pub(crate) unsafe fn copy(&mut self, load: &CopyList, from: &Device) -> Result<ArrayMemory> {
        let there = self.room(load.len)?;
        self.busy = true;
        for piece in &load.pieces {
            let (source, len) = (piece.source.data as u64, piece.source.len);
            let target = there.address() + piece.at as u64;
            // SAFETY: the caller promises the source; the target is a part of memory of the load's
            // length, which goes only when the stream is done.
            unsafe {
                self.stream
                    .copy_between((self.device(), target), (from, source), len)
            }?;
        }
        Ok(there)
    }

    /// Memory of the GPU that work will be given for.
    fn room(&self, len: usize) -> Result<ArrayMemory> {
        let mut there = ArrayMemory::new(&self.stream);
        there.memory.push(self.take(len)?);
        Ok(there)
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

    /// Zeros on the GPU, which `there` holds from now on.
    pub(crate) fn zeros(&mut self, there: &mut ArrayMemory) -> Result<u64> {
        let zeros = match &self.zeros {
            Some(zeros) => Arc::clone(zeros),
            None => {
                let memory = self.take(ALIGNMENT)?;
                self.busy = true;
                // SAFETY: the memory has that length, and lives until the stream is done: the lane
                // and whoever else holds it wait for that.
                unsafe { self.stream.fill(memory.address(), 0, ALIGNMENT) }?;
                Arc::clone(self.zeros.insert(memory))
            }
        };
        let address = zeros.address();
        there.memory.push(zeros);
        Ok(address)
    }

    /// Says what is behind all work that was given for `there`.
    pub(crate) fn finish(&mut self, there: &mut ArrayMemory) -> Result<()> {
        if self.busy && self.stream.is_idle()? {
            self.settled();
        }
        there.work = if self.busy {
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
            // Memory that the work uses goes to others next. An error means that the device does
            // nothing more.
            let _: Result<()> = self.stream.synchronize();
        }
    }
}

/// Waits for a chunk, and copies it out of the pinned memory.
fn take(slot: &Option<PinnedSlot>, target: &mut [u8]) -> Result<()> {
    if let Some((event, pinned)) = slot {
        event.synchronize()?;
        // SAFETY: the work that writes there is behind `event`, which has happened.
        let bytes = unsafe { pinned.as_slice() };
        target.copy_from_slice(&bytes[..target.len()]);
    }
    Ok(())
}
