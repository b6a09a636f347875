//! Moves of bodies and arrays between the host and GPUs.
//!
//! A body on a GPU is copied to the host first if all its values are checked or its arrays belong
//! on the host. Any other body on a GPU is decoded on the target GPU ([`remote`](super::remote)). A
//! body on the host for arrays on a GPU is decoded and checked on the host, and then each buffer is
//! copied.
//!
//! Dictionaries stay at the place of their decoding. If batches need them at another place, they
//! get a copy there, a twin, once for each change.

mod twins;

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

use crate::arrow::decode::body::{BodyOnGpu, ReceivedBody};
use crate::arrow::decode::budget::DecodeBudget;
use crate::arrow::decode::build::Built;
use crate::arrow::decode::columns::{Buffer, Columns, Holds, NO_LENGTHS};
use crate::arrow::decode::relocate::twins::Twins;
use crate::device::BufferRef;
use crate::device::gpu::{ArrayMemory, CopyList, CopyStream, Gpu, GpuAllocator};
use crate::error::Result;

/// The place of the buffers of arrays.
#[derive(Debug, Clone)]
pub(super) enum ArrayPlace {
    Host,
    Gpu(Arc<Gpu>),
}

impl ArrayPlace {
    /// The place of memory on `device`; the host for `None`.
    pub(super) fn of(device: Option<&Arc<Gpu>>) -> Self {
        device.map_or(Self::Host, |device| Self::Gpu(Arc::clone(device)))
    }

    fn is_on(&self, device: Option<&Arc<Gpu>>) -> bool {
        match (self, device) {
            (Self::Host, None) => true,
            (Self::Gpu(here), Some(device)) => Arc::ptr_eq(here, device),
            _ => false,
        }
    }
}

/// The number of bytes that a message's moves copied.
#[derive(Debug, Default)]
pub(super) struct MoveFigures {
    /// Bytes copied within a GPU, or between GPUs.
    pub(super) on_device: u64,
    /// Bytes copied between the host and a GPU.
    pub(super) staged: u64,
}

/// A copy stream for each GPU in use.
#[derive(Debug, Default)]
struct CopyStreams {
    streams: Vec<CopyStream>,
    /// The allocator for arrays on its GPU.
    room: Option<Arc<dyn GpuAllocator>>,
}

impl CopyStreams {
    fn on(&mut self, device: &Arc<Gpu>) -> Result<&mut CopyStream> {
        let known = self
            .streams
            .iter()
            .position(|stream| Arc::ptr_eq(stream.device(), device));
        let index = match known {
            Some(index) => index,
            None => {
                let room = self.room.clone();
                let room = room.filter(|room| Arc::ptr_eq(room.device(), device));
                self.streams.push(CopyStream::new(device, room)?);
                self.streams.len() - 1
            }
        };
        Ok(&mut self.streams[index])
    }
}

/// Makes the moves of one stream.
#[derive(Debug, Default)]
pub(super) struct Relocator {
    /// For each GPU met.
    streams: CopyStreams,
    twins: Vec<Twins>,
    figures: MoveFigures,
}

impl Relocator {
    /// Drops memory that no work reads any more.
    pub(super) fn poll(&mut self) {
        self.streams.streams.iter_mut().for_each(CopyStream::poll);
    }

    /// The bytes of the moves since the last call.
    pub(super) fn take_figures(&mut self) -> MoveFigures {
        std::mem::take(&mut self.figures)
    }

    /// Sets the allocator for arrays on its GPU.
    pub(super) fn set_room(&mut self, room: Arc<dyn GpuAllocator>) {
        self.streams.room = Some(room);
    }

    /// Moves the body to a place where it can be decoded for arrays at `to`; for `None` it stays.
    /// If `to_host`, a body on a GPU moves to the host.
    pub(super) fn relocate<'b>(
        &mut self,
        body: &'b ReceivedBody,
        to: Option<&ArrayPlace>,
        to_host: bool,
        budget: &DecodeBudget<'_>,
    ) -> Result<Cow<'b, ReceivedBody>> {
        let Some(gpu) = &body.gpu else {
            return Ok(Cow::Borrowed(body));
        };
        Ok(match to {
            _ if to_host => Cow::Owned(self.body_to_host(body, gpu, budget)?),
            Some(ArrayPlace::Host) => Cow::Owned(self.body_to_host(body, gpu, budget)?),
            Some(ArrayPlace::Gpu(device)) if !Arc::ptr_eq(device, &gpu.device) => {
                Cow::Owned(self.body_between(body, gpu, device, budget)?)
            }
            _ => Cow::Borrowed(body),
        })
    }

    fn body_to_host(
        &mut self,
        body: &ReceivedBody,
        gpu: &BodyOnGpu,
        budget: &DecodeBudget<'_>,
    ) -> Result<ReceivedBody> {
        let stream = self.streams.on(&gpu.device)?;
        if let Some(ready) = &gpu.ready {
            stream.wait_for(ready)?;
        }
        let (list, places) = CopyList::of(&body.buffers)?;
        budget.take(list.bytes())?;
        // SAFETY: the buffers of a body on a GPU are readable there after `ready`, until its owner
        // is dropped. `body` holds the owner.
        let memory = unsafe { stream.download(&list) }?;
        self.figures.staged += list.bytes();
        let start = memory.as_ref().data;
        Ok(ReceivedBody {
            buffers: moved(&body.buffers, &places, |at| start.wrapping_add(at)),
            owner: Arc::new(memory),
            shared: false,
            gpu: None,
        })
    }

    fn body_between(
        &mut self,
        body: &ReceivedBody,
        gpu: &BodyOnGpu,
        to: &Arc<Gpu>,
        budget: &DecodeBudget<'_>,
    ) -> Result<ReceivedBody> {
        let stream = self.streams.on(to)?;
        if let Some(ready) = &gpu.ready {
            stream.wait_for(ready)?;
        }
        let (list, places) = CopyList::of(&body.buffers)?;
        budget.take(list.bytes())?;
        let mut array_memory = if list.is_empty() {
            ArrayMemory::new(stream.stream())
        } else {
            // SAFETY: the buffers of a body on a GPU are readable there after `ready`, until its
            // owner is dropped. The stream holds the owner until its work is done.
            let array_memory = unsafe { stream.copy(&list, &gpu.device) }?;
            stream.hold(Arc::clone(&body.owner))?;
            array_memory
        };
        stream.finish(&mut array_memory)?;
        self.figures.on_device += list.bytes();
        let start = array_memory.address();
        Ok(ReceivedBody {
            buffers: moved(&body.buffers, &places, |at| pointer(start + at as u64)),
            owner: Arc::new(array_memory),
            shared: false,
            // Readers use the same stream.
            gpu: Some(BodyOnGpu {
                device: Arc::clone(to),
                ready: None,
            }),
        })
    }

    /// Builds arrays of a body at its place. `build` gets empty columns to fill.
    pub(super) fn build(
        &mut self,
        body: &ReceivedBody,
        mut columns: Box<Columns>,
        build: impl Fn(Box<Columns>) -> Result<Built>,
    ) -> Result<Built> {
        let Some(gpu) = &body.gpu else {
            return build(columns);
        };
        let stream = self.streams.on(&gpu.device)?;
        if let Some(ready) = &gpu.ready {
            stream.wait_for(ready)?;
        }
        columns.remote = Some(Box::default());
        loop {
            let mut built = build(columns)?;
            let mut remote = built.columns.remote.take().unwrap_or_default();
            if !remote.is_waiting() {
                let bytes = complete(stream, &mut built.columns, &remote.misaligned)?;
                self.figures.on_device += bytes;
                return Ok(built);
            }
            // SAFETY: the build requests parts of the body's buffers, which are readable on the GPU
            // after `ready`. The columns hold the body's owner.
            unsafe { remote.fetch(stream.stream()) }?;
            stream.settled();
            remote.misaligned.clear();
            columns = built.columns;
            columns.clear();
            columns.remote = Some(remote);
        }
    }

    /// Moves a batch from the host to a GPU. Its dictionaries are already there.
    pub(super) fn upload(&mut self, columns: &mut Columns, device: &Arc<Gpu>) -> Result<()> {
        columns.settle()?;
        let skip = columns.of_dictionaries();
        self.replace(columns, &skip, None, &ArrayPlace::Gpu(Arc::clone(device)))
    }

    /// Copies the buffers to a place and puts the copies into the columns, except the buffers that
    /// `skip` marks. `source` owns the buffers if the columns do not hold them.
    fn replace(
        &mut self,
        columns: &mut Columns,
        skip: &[bool],
        source: Option<&Arc<Columns>>,
        place: &ArrayPlace,
    ) -> Result<()> {
        let mut list = CopyList::default();
        let mut places = Vec::new();
        for (index, buffer) in columns.buffers.iter().enumerate() {
            if buffer.at.len > 0 && !skip[index] {
                places.push((index, list.add(buffer.at)?));
            }
        }
        let from = source.and_then(|source| source.device());
        let (start, gpu) = match (ArrayPlace::of(from), place) {
            (ArrayPlace::Host, ArrayPlace::Host) => return Ok(()),
            (ArrayPlace::Gpu(from), ArrayPlace::Host) => {
                let stream = self.streams.on(&from)?;
                // SAFETY: the buffers lie on that GPU, and `source` keeps them. The stream already
                // waits for their event since they were decoded or moved there.
                let memory = unsafe { stream.download(&list) }?;
                self.figures.staged += list.bytes();
                for buffer in &mut columns.buffers {
                    if buffer.at.len == 0 && !buffer.at.data.is_null() {
                        *buffer = Buffer::empty();
                    }
                }
                (columns.keep(memory).at.data, None)
            }
            (from, ArrayPlace::Gpu(device)) => {
                let mut gpu = self.copy_to(columns, &list, source, &from, device)?;
                let stream = self.streams.on(device)?;
                let start = gpu.address();
                place_zeros(stream, columns, &mut gpu)?;
                stream.finish(&mut gpu)?;
                (pointer(start), Some(Box::new(gpu)))
            }
        };
        for (index, at) in places {
            let buffer = &mut columns.buffers[index];
            buffer.at.data = start.wrapping_add(at);
            buffer.private = true;
        }
        if gpu.is_some() {
            // The originals are not needed any more; dictionaries of a batch are at the target.
            columns.holds = Holds {
                gpu,
                dictionaries: columns.holds.dictionaries.take(),
                ..Holds::default()
            };
        }
        Ok(())
    }

    /// Copies the buffers of `list` from `from` to memory of `device`. `source` is as in
    /// [`replace`](Self::replace).
    fn copy_to(
        &mut self,
        columns: &Columns,
        list: &CopyList,
        source: Option<&Arc<Columns>>,
        from: &ArrayPlace,
        device: &Arc<Gpu>,
    ) -> Result<ArrayMemory> {
        let stream = self.streams.on(device)?;
        if list.is_empty() {
            return Ok(ArrayMemory::new(stream.stream()));
        }
        let ArrayPlace::Gpu(from) = from else {
            self.figures.staged += list.bytes();
            let body = columns.holds.body.as_ref().filter(|_| source.is_none());
            let Some(body) = body.filter(|_| list.is_registered()) else {
                // SAFETY: the buffers lie on the host; the columns or `source` keep them.
                return unsafe { stream.upload(list) };
            };
            // SAFETY: the registered memory belongs to the body. The stream holds the body from
            // here on, even after an error of the copies.
            let copied = unsafe { stream.upload_from_registered(list) };
            stream.hold(Arc::clone(body))?;
            return copied;
        };
        if let Some(event) = source
            .and_then(|source| source.holds.gpu.as_ref())
            .and_then(|gpu| gpu.event())
        {
            stream.wait_for(event)?;
        }
        self.figures.on_device += list.bytes();
        // SAFETY: the buffers lie on `from` and are readable after the event of `source`, for which
        // the stream waits. The stream holds `source` until the copies are done.
        let gpu = unsafe { stream.copy(list, from) }?;
        if let Some(source) = source {
            let source: Arc<dyn Any + Send + Sync> = Arc::clone(source) as _;
            stream.hold(source)?;
        }
        Ok(gpu)
    }
}

fn moved(
    buffers: &[BufferRef],
    places: &[usize],
    address: impl Fn(usize) -> *const u8,
) -> Vec<BufferRef> {
    buffers
        .iter()
        .zip(places)
        .map(|(buffer, at)| match buffer.len {
            0 => BufferRef::EMPTY,
            len => BufferRef {
                data: address(*at),
                len,
            },
        })
        .collect()
}

/// Makes the memory that arrays of a body on a GPU need beside the body: aligned copies of buffers,
/// the lengths of view buffers, and zeros. Returns the copied bytes.
fn complete(stream: &mut CopyStream, columns: &mut Columns, misaligned: &[usize]) -> Result<u64> {
    let mut gpu = ArrayMemory::new(stream.stream());
    let mut copies = CopyList::default();
    let mut places = Vec::new();
    for index in misaligned {
        let at = columns.buffers[*index].at;
        if at.len > 0 {
            places.push((*index, copies.add(at)?));
        }
    }
    if !copies.is_empty() {
        let device = Arc::clone(stream.device());
        // SAFETY: the buffers belong to the body, which the columns hold. Before they drop the body
        // they wait for the stream (`read_others`).
        let copied = unsafe { stream.copy(&copies, &device) }?;
        for (index, at) in places {
            let buffer = &mut columns.buffers[index];
            buffer.at.data = pointer(copied.address() + at as u64);
            buffer.private = true;
        }
        gpu.join(copied);
        gpu.read_others();
    }
    let lengths = std::mem::take(&mut columns.lengths);
    if !lengths.is_empty() {
        let mut list = CopyList::default();
        list.add(BufferRef {
            data: lengths.as_ptr().cast(),
            len: size_of_val(lengths.as_slice()),
        })?;
        // SAFETY: `lengths` lives to the end of the block.
        let uploaded = unsafe { stream.upload(&list) }?;
        let start = uploaded.address();
        for node in columns.nodes.iter_mut().filter(|n| n.lengths != NO_LENGTHS) {
            let at = BufferRef {
                data: pointer(start + (node.lengths * size_of::<i64>()) as u64),
                len: (node.n_buffers - 3) * size_of::<i64>(),
            };
            columns.buffers[node.first_buffer + node.n_buffers - 1] = Buffer { at, private: true };
            node.lengths = NO_LENGTHS;
        }
        gpu.join(uploaded);
    }
    place_zeros(stream, columns, &mut gpu)?;
    stream.finish(&mut gpu)?;
    columns.holds.gpu = Some(Box::new(gpu));
    Ok(copies.bytes())
}

/// Points empty non-NULL buffers to zeros on the GPU.
fn place_zeros(
    stream: &mut CopyStream,
    columns: &mut Columns,
    gpu: &mut ArrayMemory,
) -> Result<()> {
    let is_empty = |buffer: &Buffer| buffer.at.len == 0 && !buffer.at.data.is_null();
    if !columns.buffers.iter().any(is_empty) {
        return Ok(());
    }
    let zeros = pointer(stream.zeros(gpu)?);
    for buffer in columns.buffers.iter_mut().filter(|buffer| is_empty(buffer)) {
        buffer.at.data = zeros;
    }
    Ok(())
}

fn pointer(address: u64) -> *const u8 {
    std::ptr::without_provenance(usize::try_from(address).unwrap_or(0))
}
