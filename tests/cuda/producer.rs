//! A producer of record batches on a GPU, and its streams.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{
    Array, ArrayData, Int32Array, Int64Array, RecordBatch, StringArray, StructArray,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use dipc::arena::{Arena, ArenaOptions};
use dipc::arrow::abi::{ArrowArray, ArrowDeviceArray};
use dipc::arrow::stream::{ArrayReader, export_device_stream};
use dipc::arrow::{OwnedDeviceArray, OwnedDeviceStream, OwnedSchema, batch_to_c, schema_to_c};
use dipc::device::DeviceKind;
use dipc::device::cuda::{Device, DeviceMemory, PinnedMemory, Purpose, Stream, SyncEvent};
use dipc::error::Result;
use dipc::server::{HostProvider, ServerRequest};

use crate::fake;

/// The kind of a producer's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lies {
    /// `cuMemAlloc`: lent by a legacy handle.
    Legacy,
    /// Memory that can be exported as a descriptor.
    Fd,
    /// Managed memory, which cannot be exported.
    Managed,
    /// Memory of a pool (`cuMemAllocAsync`), which is not lent where it lies.
    Pool,
    /// A block of an arena.
    Arena,
    /// `cuMemAlloc` in the producer's own context.
    OtherContext,
}

/// Memory of a batch, freed with its array.
enum Memory {
    Ours(DeviceMemory),
    /// Freed by its owner here.
    Plain(u64),
    Arena(Arena, NonNull<u8>),
    OtherContext(*mut c_void, u64),
}

// SAFETY: the pointers are an address and a handle, which nothing reads here.
unsafe impl Send for Memory {}

impl Memory {
    fn new(lies: Lies, len: usize) -> Self {
        let device = Device::get(0).unwrap();
        match lies {
            Lies::Legacy => Self::Ours(DeviceMemory::new(&device, len, Purpose::Own).unwrap()),
            Lies::Fd => Self::Ours(DeviceMemory::new(&device, len, Purpose::Lend).unwrap()),
            Lies::Managed => {
                let mut address = 0;
                let _current = device.enter().unwrap();
                assert_eq!(fake::memory_managed(&raw mut address, len, 1), 0);
                Self::Plain(address)
            }
            Lies::Pool => Self::Plain(fake::alloc_async(len)),
            Lies::OtherContext => {
                let (mut context, mut address) = (std::ptr::null_mut(), 0);
                assert_eq!(fake::context_create(&raw mut context, 0, 0), 0);
                assert_eq!(fake::memory_alloc(&raw mut address, len), 0);
                assert_eq!(fake::context_pop(&raw mut context), 0);
                Self::OtherContext(context, address)
            }
            Lies::Arena => {
                // The region lives as long as the block, and the arena has no other.
                let options = ArenaOptions {
                    region_bytes: 1,
                    ..ArenaOptions::default()
                };
                let arena = Arena::on(DeviceKind::CUDA, 0, options).unwrap();
                let block = arena.alloc(len).unwrap();
                Self::Arena(arena, block)
            }
        }
    }

    fn address(&self) -> u64 {
        match self {
            Self::Ours(memory) => memory.address(),
            Self::Plain(address) | Self::OtherContext(_, address) => *address,
            Self::Arena(_, block) => block.as_ptr() as u64,
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Self::Arena(arena, block) = self {
            // SAFETY: only a peer with lent memory may still use the block.
            unsafe { arena.dealloc(*block) }.unwrap();
        }
        if let Self::OtherContext(context, _) = self {
            // And its memory.
            assert_eq!(fake::context_destroy(*context), 0);
        }
        if let Self::Plain(address) = self {
            fake::free(*address);
        }
    }
}

/// The resources that an array's release frees.
struct Held {
    _host: OwnedDeviceArray,
    memory: Option<Memory>,
    _late: Option<Late>,
    released: Arc<AtomicUsize>,
}

/// The producer's work that writes the data, and the event after it.
struct Late {
    event: SyncEvent,
    stream: Arc<Stream>,
    _staged: PinnedMemory,
}

/// Lays out the buffers of an array and its children in sequence; gives the target offset and the
/// bytes of each.
fn collect(
    array: &mut ArrowArray,
    data: &ArrayData,
    places: &mut Vec<(*mut *const c_void, Vec<u8>)>,
) {
    let count = usize::try_from(array.n_buffers).unwrap();
    let validity = !matches!(data.data_type(), DataType::Null);
    for index in 0..count {
        let len = match index {
            0 if validity => (data.len() + data.offset()).div_ceil(8),
            _ => data.buffers()[index - 1].len(),
        };
        // SAFETY: the array has so many buffers, of these lengths, on the host.
        unsafe {
            let slot = array.buffers.add(index);
            if !(*slot).is_null() && len > 0 {
                let bytes = std::slice::from_raw_parts((*slot).cast::<u8>(), len);
                places.push((slot, bytes.to_vec()));
            }
        }
    }
    for (index, data) in data.child_data().iter().enumerate() {
        // SAFETY: the array has so many children, each an array of its own.
        collect(unsafe { &mut **array.children.add(index) }, data, places);
    }
}

/// The kind of memory, and the number of released batches.
#[derive(Clone)]
pub struct Producer {
    pub lies: Lies,
    /// The producer's stream that writes the data before the arrays' events.
    pub late: Option<Arc<Stream>>,
    pub released: Arc<AtomicUsize>,
}

impl Producer {
    pub fn new(lies: Lies) -> Self {
        Self {
            lies,
            late: None,
            released: Arc::default(),
        }
    }

    pub fn released(&self) -> usize {
        self.released.load(Ordering::SeqCst)
    }

    /// The batch on the GPU, in one allocation.
    pub fn array(&self, batch: &RecordBatch) -> OwnedDeviceArray {
        let mut host = batch_to_c(batch.clone());
        let data = StructArray::from(batch.clone()).to_data();
        let mut places = Vec::new();
        // SAFETY: what is changed is where the buffers lie.
        let raw = unsafe { host.raw_mut() };
        collect(&mut raw.array, &data, &mut places);
        let mut whole = Vec::new();
        let mut offsets = Vec::new();
        for (_, bytes) in &places {
            offsets.push(whole.len());
            whole.extend_from_slice(bytes);
            whole.resize(whole.len().next_multiple_of(64), 0);
        }
        let memory = Memory::new(self.lies, whole.len().max(1));
        let late = self.late.as_ref().map(|stream| {
            let device = stream.device();
            let mut staged = PinnedMemory::new(device, whole.len()).unwrap();
            // SAFETY: nothing was given to the device yet.
            let target = unsafe { staged.as_mut_slice() };
            target[..whole.len()].copy_from_slice(&whole);
            fake::write(memory.address(), &vec![0x5A; whole.len()]);
            // SAFETY: both live until the array is released; the stream is done by then.
            unsafe { stream.copy(memory.address(), staged.address(), whole.len()) }.unwrap();
            Late {
                event: SyncEvent::record(stream).unwrap(),
                stream: Arc::clone(stream),
                _staged: staged,
            }
        });
        if late.is_none() {
            fake::write(memory.address(), &whole);
        }
        for ((slot, _), offset) in places.into_iter().zip(offsets) {
            let address = usize::try_from(memory.address()).unwrap() + offset;
            // SAFETY: the slots are the array's, which nobody else has.
            unsafe { *slot = std::ptr::without_provenance(address) };
        }
        let raw = host.raw();
        let sync_event = late
            .as_ref()
            .map_or(std::ptr::null_mut(), |late| late.event.pointer());
        let mut outer = ArrowDeviceArray {
            device_type: if self.lies == Lies::Managed { 13 } else { 2 },
            device_id: 0,
            sync_event,
            ..ArrowDeviceArray::empty()
        };
        outer.array = ArrowArray {
            length: raw.array.length,
            null_count: raw.array.null_count,
            offset: raw.array.offset,
            n_buffers: raw.array.n_buffers,
            n_children: raw.array.n_children,
            buffers: raw.array.buffers,
            children: raw.array.children,
            dictionary: raw.array.dictionary,
            release: Some(release),
            private_data: std::ptr::null_mut(),
        };
        let held = Held {
            _host: host,
            memory: Some(memory),
            _late: late,
            released: Arc::clone(&self.released),
        };
        outer.array.private_data = Box::into_raw(Box::new(held)).cast();
        // SAFETY: it has the parts of `host`, which it keeps until its release.
        unsafe { OwnedDeviceArray::from_raw(outer) }
    }
}

unsafe extern "C" fn release(array: *mut ArrowArray) {
    // SAFETY: called once, with the live structure made above.
    let array = unsafe { &mut *array };
    array.release = None;
    // SAFETY: made from a box of this type above.
    let mut held = unsafe { Box::from_raw(array.private_data.cast::<Held>()) };
    if let Some(late) = &held._late {
        late.stream.synchronize().unwrap();
    }
    drop(held.memory.take());
    held.released.fetch_add(1, Ordering::SeqCst);
}

/// Batches with every kind of buffer of common columns, larger than inline bodies.
pub fn batches(count: i32, rows: i32) -> Vec<RecordBatch> {
    let schema: SchemaRef = Arc::new(Schema::new(vec![
        Field::new("n", DataType::Int64, false),
        Field::new("maybe", DataType::Int32, true),
        Field::new("text", DataType::Utf8, true),
    ]));
    (0..count)
        .map(|number| {
            let n: Int64Array = (0..rows)
                .map(|row| i64::from(row) * 1000 + i64::from(number))
                .collect();
            let maybe: Int32Array = (0..rows)
                .map(|row| (row % 3 != 0).then_some(row ^ number))
                .collect();
            let text: StringArray = (0..rows)
                .map(|row| (row % 7 != 0).then(|| format!("{number}: {row}")))
                .collect();
            let columns: Vec<Arc<dyn Array>> = vec![Arc::new(n), Arc::new(maybe), Arc::new(text)];
            RecordBatch::try_new(Arc::clone(&schema), columns).unwrap()
        })
        .collect()
}

/// Serves batches, each made when it is pulled.
pub struct Served {
    pub producer: Producer,
    pub batches: Vec<RecordBatch>,
}

struct Reader {
    producer: Producer,
    batches: std::vec::IntoIter<RecordBatch>,
    schema: SchemaRef,
}

impl ArrayReader for Reader {
    fn schema(&mut self) -> Result<OwnedSchema> {
        schema_to_c(&self.schema)
    }

    fn next(&mut self) -> Result<Option<OwnedDeviceArray>> {
        Ok(self.batches.next().map(|batch| self.producer.array(&batch)))
    }

    fn device_type(&self) -> i32 {
        if self.producer.lies == Lies::Managed {
            13
        } else {
            2
        }
    }
}

impl HostProvider for Served {
    fn open(&self, _request: &ServerRequest) -> Result<OwnedDeviceStream> {
        Ok(export_device_stream(Box::new(Reader {
            producer: self.producer.clone(),
            schema: self.batches[0].schema(),
            batches: self.batches.clone().into_iter(),
        })))
    }
}
