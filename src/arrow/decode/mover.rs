//! Moving bodies and arrays between the host and GPUs.
//!
//! A body that is to be read on the host, since all its values are checked or it is to stay there, is
//! copied there first and decoded as one that was received. Any other body on a GPU is decoded where it
//! is to be ([`remote`](super::remote)). A body on the host whose arrays are to be on a GPU is decoded
//! and checked, and then each buffer is copied.
//!
//! Dictionaries stay where they were decoded. Where batches need them elsewhere there are twins of
//! them, made once for each change.

use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::arrow::decode::body::BodyOnGpu;
use crate::arrow::decode::budget::Budget;
use crate::arrow::decode::build::Built;
use crate::arrow::decode::columns::{Buffer, Columns, Holds, NO_LENGTHS};
use crate::arrow::decode::lane::{Lane, Load, OnGpu};
use crate::arrow::decode::{Dictionaries, Dictionary, ReceivedBody};
use crate::device::BufferRef;
use crate::device::cuda::Device;
use crate::device::cuda::room::Room;
use crate::error::Result;

/// Where the buffers of arrays lie.
#[derive(Debug, Clone)]
pub(super) enum Place {
    Host,
    Gpu(Arc<Device>),
}

impl Place {
    /// That of memory on `device`, or on the host.
    pub(super) fn of(device: Option<&Arc<Device>>) -> Self {
        device.map_or(Self::Host, |device| Self::Gpu(Arc::clone(device)))
    }

    fn is(&self, device: Option<&Arc<Device>>) -> bool {
        match (self, device) {
            (Self::Host, None) => true,
            (Self::Gpu(here), Some(device)) => Arc::ptr_eq(here, device),
            _ => false,
        }
    }
}

/// Dictionaries at one place.
#[derive(Debug)]
struct Twins {
    place: Place,
    /// What they are twins of.
    latest: Arc<Dictionaries>,
    here: Arc<Dictionaries>,
}

/// What the moves of a message took.
#[derive(Debug, Default)]
pub(super) struct Figures {
    /// Bytes copied within a GPU, or from one to another.
    pub(super) on_device: u64,
    /// Bytes copied between the host and a GPU.
    pub(super) staged: u64,
}

/// What moves to and from each GPU met.
#[derive(Debug, Default)]
struct Lanes {
    lanes: Vec<Lane>,
    /// Where memory for arrays is taken from, on its GPU.
    room: Option<Arc<dyn Room>>,
}

impl Lanes {
    fn on(&mut self, device: &Arc<Device>) -> Result<&mut Lane> {
        let known = self
            .lanes
            .iter()
            .position(|lane| Arc::ptr_eq(lane.device(), device));
        let index = match known {
            Some(index) => index,
            None => {
                let room = self.room.clone();
                let room = room.filter(|room| Arc::ptr_eq(room.device(), device));
                self.lanes.push(Lane::new(device, room)?);
                self.lanes.len() - 1
            }
        };
        Ok(&mut self.lanes[index])
    }
}

/// Moves what belongs to one stream.
#[derive(Debug, Default)]
pub(super) struct Mover {
    /// For each GPU met.
    lanes: Lanes,
    twins: Vec<Twins>,
    figures: Figures,
}

impl Mover {
    /// Lets go of memory that no work reads any more.
    pub(super) fn poll(&mut self) {
        self.lanes.lanes.iter_mut().for_each(Lane::poll);
    }

    /// What was moved since this was asked last.
    pub(super) fn take_figures(&mut self) -> Figures {
        std::mem::take(&mut self.figures)
    }

    /// Takes memory for arrays on the room's GPU from there.
    pub(super) fn set_room(&mut self, room: Arc<dyn Room>) {
        self.lanes.room = Some(room);
    }

    /// The body where it can be decoded for arrays at `to`, or where it is. One on a GPU goes to the
    /// host if `to_host`.
    pub(super) fn bring<'b>(
        &mut self,
        body: &'b ReceivedBody,
        to: Option<&Place>,
        to_host: bool,
        budget: &Budget<'_>,
    ) -> Result<Cow<'b, ReceivedBody>> {
        let Some(gpu) = &body.gpu else {
            return Ok(Cow::Borrowed(body));
        };
        Ok(match to {
            _ if to_host => Cow::Owned(self.body_to_host(body, gpu, budget)?),
            Some(Place::Host) => Cow::Owned(self.body_to_host(body, gpu, budget)?),
            Some(Place::Gpu(device)) if !Arc::ptr_eq(device, &gpu.device) => {
                Cow::Owned(self.body_between(body, gpu, device, budget)?)
            }
            _ => Cow::Borrowed(body),
        })
    }

    fn body_to_host(
        &mut self,
        body: &ReceivedBody,
        gpu: &BodyOnGpu,
        budget: &Budget<'_>,
    ) -> Result<ReceivedBody> {
        let lane = self.lanes.on(&gpu.device)?;
        if let Some(ready) = &gpu.ready {
            lane.wait_for(ready)?;
        }
        let (load, places) = Load::of(&body.buffers)?;
        budget.take(load.bytes())?;
        // SAFETY: the buffers of a body on a GPU can be read there behind `ready`, until its owner
        // is dropped, which `body` holds.
        let memory = unsafe { lane.download(&load) }?;
        self.figures.staged += load.bytes();
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
        to: &Arc<Device>,
        budget: &Budget<'_>,
    ) -> Result<ReceivedBody> {
        let lane = self.lanes.on(to)?;
        if let Some(ready) = &gpu.ready {
            lane.wait_for(ready)?;
        }
        let (load, places) = Load::of(&body.buffers)?;
        budget.take(load.bytes())?;
        let mut there = if load.is_empty() {
            OnGpu::new(lane.stream())
        } else {
            // SAFETY: as in `body_to_host`; the lane holds the owner until it is done.
            let there = unsafe { lane.copy(&load, &gpu.device) }?;
            lane.hold(Arc::clone(&body.owner))?;
            there
        };
        lane.finish(&mut there)?;
        self.figures.on_device += load.bytes();
        let start = there.address();
        Ok(ReceivedBody {
            buffers: moved(&body.buffers, &places, |at| pointer(start + at as u64)),
            owner: Arc::new(there),
            shared: false,
            // What reads it is given to the same stream.
            gpu: Some(BodyOnGpu {
                device: Arc::clone(to),
                ready: None,
            }),
        })
    }

    /// Builds arrays of a body where it is. `build` gets empty columns to fill.
    pub(super) fn build(
        &mut self,
        body: &ReceivedBody,
        mut columns: Box<Columns>,
        build: impl Fn(Box<Columns>) -> Result<Built>,
    ) -> Result<Built> {
        let Some(gpu) = &body.gpu else {
            return build(columns);
        };
        let lane = self.lanes.on(&gpu.device)?;
        if let Some(ready) = &gpu.ready {
            lane.wait_for(ready)?;
        }
        columns.remote = Some(Box::default());
        loop {
            let mut built = build(columns)?;
            let mut remote = built.columns.remote.take().unwrap_or_default();
            if !remote.is_waiting() {
                let bytes = complete(lane, &mut built.columns, &remote.misaligned)?;
                self.figures.on_device += bytes;
                return Ok(built);
            }
            // SAFETY: building asks for parts of the body's buffers, which can be read on the GPU
            // behind `ready`; the columns hold its owner.
            unsafe { remote.fetch(lane.stream()) }?;
            lane.settled();
            remote.misaligned.clear();
            columns = built.columns;
            columns.clear();
            columns.remote = Some(remote);
        }
    }

    /// Moves a batch from the host to a GPU, where its dictionaries are.
    pub(super) fn upload(&mut self, columns: &mut Columns, device: &Arc<Device>) -> Result<()> {
        columns.settle()?;
        let there = columns.of_dictionaries();
        self.replace(columns, &there, None, &Place::Gpu(Arc::clone(device)))
    }

    /// The latest dictionaries at a place.
    pub(super) fn dictionaries(
        &mut self,
        latest: &Arc<Dictionaries>,
        place: &Place,
    ) -> Result<Arc<Dictionaries>> {
        if latest
            .values()
            .all(|dictionary| place.is(dictionary.columns.device()))
        {
            return Ok(Arc::clone(latest));
        }
        let index = self.twins.iter().position(|twins| match &twins.place {
            Place::Host => place.is(None),
            Place::Gpu(device) => place.is(Some(device)),
        });
        let known = index.map(|index| &self.twins[index]);
        if let Some(twins) = known
            && Arc::ptr_eq(&twins.latest, latest)
        {
            return Ok(Arc::clone(&twins.here));
        }
        let known = known.map(|twins| (Arc::clone(&twins.latest), Arc::clone(&twins.here)));
        let mut here = BTreeMap::new();
        for (id, dictionary) in latest.iter() {
            let twin = known.as_ref().and_then(|(was, here)| {
                let was = was.get(id)?;
                Arc::ptr_eq(&was.columns, &dictionary.columns).then(|| here.get(id))?
            });
            let columns = match twin {
                Some(twin) => Arc::clone(&twin.columns),
                None if place.is(dictionary.columns.device()) => Arc::clone(&dictionary.columns),
                None => Arc::new(self.twin(&dictionary.columns, place)?),
            };
            let dictionary = dictionary.clone();
            here.insert(
                *id,
                Dictionary {
                    columns,
                    ..dictionary
                },
            );
        }
        let twins = Twins {
            place: place.clone(),
            latest: Arc::clone(latest),
            here: Arc::new(here),
        };
        let here = Arc::clone(&twins.here);
        match index {
            Some(index) => self.twins[index] = twins,
            None => self.twins.push(twins),
        }
        Ok(here)
    }

    /// A copy of a dictionary at another place.
    fn twin(&mut self, dictionary: &Arc<Columns>, place: &Place) -> Result<Columns> {
        let mut columns = Columns {
            nodes: dictionary.nodes.clone(),
            buffers: dictionary.buffers.clone(),
            children: dictionary.children.clone(),
            ..Columns::default()
        };
        // Its own dictionaries go along.
        let none = vec![false; columns.buffers.len()];
        self.replace(&mut columns, &none, Some(dictionary), place)?;
        Ok(columns)
    }

    /// Copies the buffers to a place, but for those that are `there`, and puts the copies into the
    /// columns. `source` is what has the buffers, where the columns do not hold them.
    fn replace(
        &mut self,
        columns: &mut Columns,
        there: &[bool],
        source: Option<&Arc<Columns>>,
        place: &Place,
    ) -> Result<()> {
        let mut load = Load::default();
        let mut places = Vec::new();
        for (index, buffer) in columns.buffers.iter().enumerate() {
            if buffer.at.len > 0 && !there[index] {
                places.push((index, load.add(buffer.at)?));
            }
        }
        let from = source.and_then(|source| source.device());
        // Where it comes from a GPU, what it waits for there.
        let event = source
            .and_then(|source| source.holds.gpu.as_ref())
            .and_then(|gpu| gpu.event());
        let (start, gpu) = match (Place::of(from), place) {
            (Place::Host, Place::Host) => return Ok(()),
            (Place::Gpu(from), Place::Host) => {
                let lane = self.lanes.on(&from)?;
                // SAFETY: the buffers lie on that GPU, kept by `source`; the lane was given what they
                // wait for when they were decoded or brought there.
                let memory = unsafe { lane.download(&load) }?;
                self.figures.staged += load.bytes();
                for buffer in &mut columns.buffers {
                    if buffer.at.len == 0 && !buffer.at.data.is_null() {
                        *buffer = Buffer::empty();
                    }
                }
                (columns.keep(memory).at.data, None)
            }
            (from, Place::Gpu(device)) => {
                let lane = self.lanes.on(device)?;
                let mut gpu = match &from {
                    _ if load.is_empty() => OnGpu::new(lane.stream()),
                    Place::Host => {
                        self.figures.staged += load.bytes();
                        let body = columns.holds.body.as_ref().filter(|_| source.is_none());
                        match body.filter(|_| load.is_registered()) {
                            Some(body) => {
                                // SAFETY: what is registered is the body's, which the lane holds from
                                // here on, whatever comes of the copies.
                                let copied = unsafe { lane.upload_from_registered(&load) };
                                lane.hold(Arc::clone(body))?;
                                copied?
                            }
                            // SAFETY: the buffers lie on the host, kept by the columns or by `source`.
                            None => unsafe { lane.upload(&load) }?,
                        }
                    }
                    Place::Gpu(from) => {
                        if let Some(event) = event {
                            lane.wait_for(event)?;
                        }
                        self.figures.on_device += load.bytes();
                        // SAFETY: as for those that go to the host; the lane holds `source` until
                        // it is done.
                        let gpu = unsafe { lane.copy(&load, from) }?;
                        if let Some(source) = source {
                            let source: Arc<dyn Any + Send + Sync> = Arc::clone(source) as _;
                            lane.hold(source)?;
                        }
                        gpu
                    }
                };
                let start = gpu.address();
                place_zeros(lane, columns, &mut gpu)?;
                lane.finish(&mut gpu)?;
                (pointer(start), Some(Box::new(gpu)))
            }
        };
        for (index, at) in places {
            let buffer = &mut columns.buffers[index];
            buffer.at.data = start.wrapping_add(at);
            buffer.private = true;
        }
        if gpu.is_some() {
            // The rest was read, and is used no more; dictionaries of a batch are there.
            columns.holds = Holds {
                gpu,
                dictionaries: columns.holds.dictionaries.take(),
                ..Holds::default()
            };
        }
        Ok(())
    }
}

impl Load {
    /// All that are not empty, and where each will be.
    fn of(buffers: &[BufferRef]) -> Result<(Self, Vec<usize>)> {
        let mut load = Self::default();
        let places = buffers
            .iter()
            .map(|buffer| match buffer.len {
                0 => Ok(0),
                _ => load.add(*buffer),
            })
            .collect::<Result<_>>()?;
        Ok((load, places))
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

/// Makes what arrays of a body on a GPU need there beside it: buffers that begin where their type
/// must, the lengths of view buffers, and zeros. Returns the bytes copied there.
fn complete(lane: &mut Lane, columns: &mut Columns, misaligned: &[usize]) -> Result<u64> {
    let mut gpu = OnGpu::new(lane.stream());
    let mut copies = Load::default();
    let mut places = Vec::new();
    for index in misaligned {
        let at = columns.buffers[*index].at;
        if at.len > 0 {
            places.push((*index, copies.add(at)?));
        }
    }
    if !copies.is_empty() {
        let device = Arc::clone(lane.device());
        // SAFETY: the buffers are the body's, which the columns hold; they wait for the stream
        // before they let go of it (`read_others`).
        let copied = unsafe { lane.copy(&copies, &device) }?;
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
        let mut load = Load::default();
        load.add(BufferRef {
            data: lengths.as_ptr().cast(),
            len: size_of_val(lengths.as_slice()),
        })?;
        // SAFETY: `lengths` lives to the end of the block.
        let uploaded = unsafe { lane.upload(&load) }?;
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
    place_zeros(lane, columns, &mut gpu)?;
    lane.finish(&mut gpu)?;
    columns.holds.gpu = Some(Box::new(gpu));
    Ok(copies.bytes())
}

/// Points buffers that are empty, and not NULL, to zeros of the GPU.
fn place_zeros(lane: &mut Lane, columns: &mut Columns, gpu: &mut OnGpu) -> Result<()> {
    let is_empty = |buffer: &Buffer| buffer.at.len == 0 && !buffer.at.data.is_null();
    if !columns.buffers.iter().any(is_empty) {
        return Ok(());
    }
    let zeros = pointer(lane.zeros(gpu)?);
    for buffer in columns.buffers.iter_mut().filter(|buffer| is_empty(buffer)) {
        buffer.at.data = zeros;
    }
    Ok(())
}

fn pointer(address: u64) -> *const u8 {
    std::ptr::without_provenance(usize::try_from(address).unwrap_or(0))
}
