//! Tables on a GPU or on the host for tests, and checks of received tables.

use std::ffi::c_void;
use std::panic::AssertUnwindSafe;
use std::ptr::NonNull;
use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch};
use arrow::buffer::{Buffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, Schema};
use dipc::arena::{Arena, ArenaOptions};
use dipc::arrow::stream::{ArrayReader, export_device_stream};
use dipc::arrow::{OwnedDeviceArray, OwnedDeviceStream, OwnedSchema, batch_to_c, schema_to_c};
use dipc::device::DeviceKind;
use dipc::device::cuda::{Device, DeviceMemory, Purpose, Stream};
use dipc::server::{HostProvider, ServerRequest};

use crate::fake;

/// The memory of a table's batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// On the host's heap.
    Host,
    /// In an arena of a GPU.
    Arena,
    /// In GPU memory of `cuMemAlloc`.
    Own,
}

/// One column of numbers, with the same pattern in each batch.
#[derive(Debug, Clone)]
pub struct Table {
    batches: Vec<RecordBatch>,
    place: Place,
    gpu: i32,
    /// Its reader starts again at the end.
    endless: bool,
}

/// A block of an arena, given back with its last array.
struct Block(NonNull<u8>);

// SAFETY: a block belongs to no thread.
unsafe impl Send for Block {}
// SAFETY: as above; shared access does nothing.
unsafe impl Sync for Block {}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: the block came from `alloc`, and this is its only owner.
        unsafe { dipc::arena::dealloc(self.0) }.unwrap();
    }
}

/// The numbers of batch `index`.
pub fn numbers(index: usize, rows: usize) -> impl Iterator<Item = i64> {
    let first = i64::try_from(index * 1_000_003).unwrap();
    (0..rows).map(move |row| first + i64::try_from(row).unwrap())
}

fn schema() -> Arc<Schema> {
    Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]))
}

impl Table {
    /// A table of `count` batches of `rows` numbers, on GPU 0 or on the host.
    pub fn new(place: Place, count: usize, rows: usize) -> Self {
        Self::on(0, place, count, rows)
    }

    /// The same on any GPU.
    pub fn on(gpu: i32, place: Place, count: usize, rows: usize) -> Self {
        let id = i64::from(gpu);
        let arena = (place == Place::Arena)
            .then(|| Arena::on(DeviceKind::CUDA, id, ArenaOptions::default()).unwrap());
        let batch = |index| {
            let host: Vec<i64> = numbers(index, rows).collect();
            let values = match place {
                Place::Host => Buffer::from_vec(host),
                Place::Arena => {
                    let data = arena.as_ref().unwrap().alloc(rows * 8).unwrap();
                    on_gpu(gpu, data, &host, Arc::new(Block(data)))
                }
                Place::Own => {
                    let device = Device::get(id).unwrap();
                    let memory = DeviceMemory::new(&device, rows * 8, Purpose::Own).unwrap();
                    let address = usize::try_from(memory.address()).unwrap();
                    let data = NonNull::without_provenance(address.try_into().unwrap());
                    on_gpu(gpu, data, &host, Arc::new(AssertUnwindSafe(memory)))
                }
            };
            let column = Int64Array::new(ScalarBuffer::new(values, 0, rows), None);
            RecordBatch::try_new(schema(), vec![Arc::new(column)]).unwrap()
        };
        Self {
            batches: (0..count).map(batch).collect(),
            place,
            gpu,
            endless: false,
        }
    }

    /// The same, which never ends.
    pub fn endless(self) -> Self {
        Self {
            endless: true,
            ..self
        }
    }

    /// The array of one batch, which shares its memory.
    fn export(&self, index: usize) -> OwnedDeviceArray {
        let mut array = batch_to_c(self.batches[index].clone());
        if self.place != Place::Host {
            // SAFETY: the buffers lie on this GPU, and were written.
            let raw = unsafe { array.raw_mut() };
            raw.device_type = DeviceKind::CUDA.0;
            raw.device_id = i64::from(self.gpu);
        }
        array
    }
}

/// Copies `host` to `data`, which `owner` keeps.
fn on_gpu(
    gpu: i32,
    data: NonNull<u8>,
    host: &[i64],
    owner: Arc<dyn arrow::alloc::Allocation>,
) -> Buffer {
    let bytes: Vec<u8> = host
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect();
    fake::write_on(gpu, data.addr().get() as u64, &bytes);
    // SAFETY: the memory has the length and lives as long as its owner. It is GPU memory: the array
    // is built and exported without reading it.
    unsafe { Buffer::from_custom_allocation(data, bytes.len(), owner) }
}

impl HostProvider for Table {
    fn open(&self, _: &ServerRequest) -> dipc::error::Result<OwnedDeviceStream> {
        Ok(export_device_stream(Box::new(Reader {
            table: self.clone(),
            next: 0,
        })))
    }
}

struct Reader {
    table: Table,
    next: usize,
}

impl ArrayReader for Reader {
    fn schema(&mut self) -> dipc::error::Result<OwnedSchema> {
        schema_to_c(&schema())
    }

    fn next(&mut self) -> dipc::error::Result<Option<OwnedDeviceArray>> {
        let count = self.table.batches.len();
        if self.next >= count && !self.table.endless {
            return Ok(None);
        }
        let array = self.table.export(self.next % count);
        self.next += 1;
        Ok(Some(array))
    }

    fn device_type(&self) -> i32 {
        match self.table.place {
            Place::Host => DeviceKind::CPU.0,
            Place::Arena | Place::Own => DeviceKind::CUDA.0,
        }
    }
}

/// The numbers of a received array, on its device.
pub fn read(array: &OwnedDeviceArray) -> Vec<i64> {
    let device = array.raw();
    // SAFETY: it has one column, an array of its own with two buffers.
    let (column, values) = unsafe {
        let column = &**device.array.children;
        (column, *column.buffers.add(1))
    };
    let rows = usize::try_from(column.length).unwrap();
    let start = usize::try_from(column.offset).unwrap() * 8;
    let bytes = match DeviceKind(device.device_type) {
        DeviceKind::CUDA => {
            let stream = Stream::new(&Device::get(device.device_id).unwrap()).unwrap();
            // SAFETY: the array is not released, and its event lives as long.
            unsafe { stream.wait_for_producer(device.sync_event) }.unwrap();
            stream.synchronize().unwrap();
            fake::read_on(
                i32::try_from(device.device_id).unwrap(),
                values.cast::<u8>().wrapping_add(start).addr() as u64,
                rows * 8,
            )
        }
        DeviceKind::CPU => {
            let values: *const c_void = values;
            // SAFETY: the buffer has these values after the offset, on the host.
            unsafe { std::slice::from_raw_parts(values.cast::<u8>().add(start), rows * 8) }.to_vec()
        }
        other => panic!("memory of kind {other:?}"),
    };
    let numbers = bytes.chunks_exact(8);
    numbers
        .map(|bytes| i64::from_le_bytes(bytes.try_into().unwrap()))
        .collect()
}
