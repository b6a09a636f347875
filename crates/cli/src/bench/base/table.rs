//! The batches of a measurement: int64 columns, written once and sent many times.
//!
//! They are exported as C structs, like those of an engine, and read by their pointers. The
//! conversion of record batches of the `arrow` crate would take longer than a batch takes to move.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use arrow::array::{ArrayRef, BooleanArray, Int64Array, RecordBatch};
use arrow::buffer::{BooleanBuffer, Buffer, MutableBuffer, ScalarBuffer};
use arrow::datatypes::SchemaRef;
use dipc::{
    Arena, ArenaOptions, ArrowArray, ArrowDeviceArray, Batches, DeviceArray, DeviceKind, Target,
};

use super::case::{Case, Memory, Shape, Values};
use super::gpu::Gpu;
use super::values::{columns_of, values_of};

/// The memory for batches, and their columns.
pub struct Store {
    shape: Shape,
    schema: SchemaRef,
    /// `None`: memory outside an arena.
    arena: Option<Arena>,
    place: Target,
    /// The GPU of `place`; `None`: the host.
    gpu: Option<Gpu>,
}

impl Store {
    /// The memory for the server's batches of a case.
    pub fn new(case: &Case) -> Result<Self> {
        let gpu = Gpu::of(case.device)?;
        let (kind, id) = match case.device {
            Target::Cuda(ordinal) => (DeviceKind::CUDA, i64::from(ordinal)),
            Target::Host | Target::AsSent => (DeviceKind::CPU, -1),
        };
        let arena = match case.memory {
            Memory::Arena => Some(Arena::on(kind, id, ArenaOptions::default())?),
            Memory::Heap => None,
        };
        Ok(Self {
            shape: case.shape(),
            schema: Arc::new(case.shape().schema()),
            arena,
            place: case.device,
            gpu,
        })
    }

    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The kind of memory.
    pub fn device(&self) -> DeviceKind {
        match self.gpu {
            Some(_) => DeviceKind::CUDA,
            None => DeviceKind::CPU,
        }
    }

    /// The words of a column, in memory of the host.
    fn column(&self, words: impl ExactSizeIterator<Item = u64>) -> Result<Buffer> {
        let size = words.len() * 8;
        if let (Some(arena), None) = (&self.arena, &self.gpu) {
            let mut buffer = arena.buffer(size)?;
            write(&mut buffer, words);
            return Ok(buffer.freeze());
        }
        // An allocation by the buffer itself would end the process on failure.
        let room = Vec::<u8>::new().try_reserve_exact(size).ok();
        room.with_context(|| format!("out of memory: {size} bytes for a column"))?;
        let mut buffer = MutableBuffer::from_len_zeroed(size);
        write(&mut buffer, words);
        Ok(buffer.into())
    }

    /// Copies columns to the GPU.
    fn upload(&self, columns: Vec<Buffer>) -> Result<DeviceArray> {
        let column = |buffer: Buffer| -> ArrayRef {
            let words = buffer.len() / 8;
            match self.shape.values {
                Values::Int64 => {
                    Arc::new(Int64Array::new(ScalarBuffer::new(buffer, 0, words), None))
                }
                Values::Bool => {
                    let bits = BooleanBuffer::new(buffer, 0, words * 64);
                    Arc::new(BooleanArray::new(bits, None))
                }
            }
        };
        let columns = columns.into_iter().map(column).collect();
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
        let table = Batches::of(batch.schema(), [batch]);
        let moved = match &self.arena {
            Some(arena) => table.moved_into(arena)?,
            None => table.moved_to(self.place)?,
        };
        let array = moved.into_reader()?.next_array()?;
        let array = array.context("a batch was lost on its way to the GPU")?;
        array.wait()?;
        Ok(array)
    }
}

fn write(memory: &mut [u8], words: impl Iterator<Item = u64>) {
    for (slot, word) in memory.chunks_exact_mut(8).zip(words) {
        slot.copy_from_slice(&word.to_ne_bytes());
    }
}

/// The owner of a batch's memory.
enum Owner {
    Host(#[expect(dead_code, reason = "held for its drop")] Vec<Buffer>),
    Gpu(DeviceArray, Gpu),
}

/// One batch. Its memory is freed with its last array.
pub struct Batch {
    owner: Owner,
    schema: SchemaRef,
    /// The `buffers` of each column's C struct: no validity, the values.
    buffers: Vec<[*const c_void; 2]>,
    /// The `buffers` of the table: no validity.
    table_buffers: [*const c_void; 1],
    rows: usize,
    /// The sum of all values.
    sum: u64,
}

// SAFETY: the pointers lead into the memory of `owner`, which is `Send`.
unsafe impl Send for Batch {}
// SAFETY: the memory is written through `&mut` alone, and read otherwise.
unsafe impl Sync for Batch {}

impl Batch {
    /// Makes a batch of numbers that depend on `seed`.
    ///
    /// Each column has `words` words of eight bytes.
    pub fn new(store: &Store, words: u64, seed: u64) -> Result<Self> {
        let rows = usize::try_from(words * store.shape.values.in_word())?;
        let words = usize::try_from(words)?;
        let mut sum = 0_u64;
        let mut number = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut columns = Vec::new();
        for _ in 0..store.shape.columns {
            let values = (0..words).map(|_| {
                let value = number;
                sum = sum.wrapping_add(value);
                number = number.wrapping_add(1);
                value
            });
            columns.push(store.column(values)?);
        }
        let (owner, values): (_, Vec<*const u64>) = match &store.gpu {
            None => {
                let values = columns.iter().map(|column| column.as_ptr().cast());
                let values = values.collect();
                (Owner::Host(columns), values)
            }
            Some(gpu) => {
                let array = store.upload(columns)?;
                // SAFETY: the columns are int64 or bool (`Store::upload`).
                let values = columns_of(&array).map(|column| unsafe { values_of(column) });
                let values = values.collect();
                (Owner::Gpu(array, gpu.clone()), values)
            }
        };
        Ok(Self {
            owner,
            schema: Arc::clone(&store.schema),
            buffers: (values.into_iter())
                .map(|values| [ptr::null(), values.cast()])
                .collect(),
            table_buffers: [ptr::null()],
            rows,
            sum,
        })
    }

    /// Writes the first value of the first column, before the batch is sent. The sum is wrong
    /// afterwards.
    pub fn stamp(&mut self, number: u64) -> Result<()> {
        let Some([_, first]) = self.buffers.first() else {
            return Ok(());
        };
        match &self.owner {
            // SAFETY: the batch owns the memory, which has a number. The arrays that read it hold
            // the batch, so `&mut self` shows that there is none.
            Owner::Gpu(_, gpu) => unsafe { gpu.write(first.addr() as u64, &[number]) },
            Owner::Host(_) => {
                // SAFETY: as above. An arena and the heap are writable, and their buffers aligned.
                unsafe { first.cast_mut().cast::<u64>().write(number) };
                Ok(())
            }
        }
    }

    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The batch as a C array, which shares its memory.
    #[expect(
        clippy::cast_possible_wrap,
        reason = "no batch has 2^63 rows or columns"
    )]
    pub fn export(self: &Arc<Self>) -> DeviceArray {
        let column = |buffers: &[*const c_void; 2]| ArrowArray {
            length: self.rows as i64,
            n_buffers: 2,
            buffers: buffers.as_ptr().cast_mut(),
            release: Some(release_column),
            private_data: Arc::into_raw(Arc::clone(self)).cast_mut().cast(),
            ..ArrowArray::empty()
        };
        let mut exported = Box::new(Exported {
            columns: self.buffers.iter().map(column).collect(),
            children: Vec::new(),
            _batch: Arc::clone(self),
        });
        exported.children = exported.columns.iter_mut().map(ptr::from_mut).collect();
        let array = ArrowArray {
            length: self.rows as i64,
            n_buffers: 1,
            n_children: exported.children.len() as i64,
            buffers: self.table_buffers.as_ptr().cast_mut(),
            children: exported.children.as_mut_ptr(),
            release: Some(release_table),
            private_data: Box::into_raw(exported).cast(),
            ..ArrowArray::empty()
        };
        let mut device = ArrowDeviceArray {
            array,
            ..ArrowDeviceArray::empty()
        };
        if let Owner::Gpu(memory, _) = &self.owner {
            device.device_type = memory.device().0;
            device.device_id = memory.device_id();
        }
        // SAFETY: the array follows Arrow's C interface and has this one owner: its structs lie in
        // `exported`, and its buffers in the batch, both of which live until they are released;
        // consumers only read through `buffers`. Each column holds the batch itself, so it can be
        // moved away. The columns are those of the schema, of which any word is a value. The memory
        // is the host's, as `empty` says, or the GPU's, and was written before: there is no event
        // to wait for.
        unsafe { DeviceArray::from_c(device, Arc::clone(&self.schema)) }
    }
}

/// The memory that an exported table owns.
struct Exported {
    columns: Vec<ArrowArray>,
    children: Vec<*mut ArrowArray>,
    _batch: Arc<Batch>,
}

/// # Safety
///
/// `array` is a column of [`Batch::export`], not released, as Arrow's C interface demands.
unsafe extern "C" fn release_column(array: *mut ArrowArray) {
    // SAFETY: the caller promises that it is valid and that nobody else uses it.
    let array = unsafe { &mut *array };
    array.release = None;
    // SAFETY: `export` put it there by `into_raw`, and this runs once, since `release` is gone now.
    drop(unsafe { Arc::from_raw(array.private_data.cast::<Batch>().cast_const()) });
}

/// # Safety
///
/// `array` is a table of [`Batch::export`], not released, as Arrow's C interface demands.
unsafe extern "C" fn release_table(array: *mut ArrowArray) {
    // SAFETY: the caller promises that it is valid and that nobody else uses it.
    let array = unsafe { &mut *array };
    array.release = None;
    // SAFETY: `export` put it there by `into_raw`, and this runs once, since `release` is gone now.
    let mut exported = unsafe { Box::from_raw(array.private_data.cast::<Exported>()) };
    // A column that was moved away has no release function here.
    for column in &mut exported.columns {
        if let Some(release) = column.release {
            // SAFETY: it is a column of `export` that was not released.
            unsafe { release(column) };
        }
    }
}

/// The distinct batches of a case, which are sent in turn.
pub struct Ring {
    batches: Vec<Arc<Batch>>,
    schema: SchemaRef,
    device: DeviceKind,
}

impl Ring {
    /// Writes the batches.
    pub fn new(case: &Case) -> Result<Self> {
        let store = Store::new(case)?;
        let batch = |seed| Batch::new(&store, case.words(), seed).map(Arc::new);
        let batches = (1..=case.distinct())
            .map(batch)
            .collect::<Result<_>>()
            .context("cannot hold the batches in memory; --ring-bytes says how much they take")?;
        Ok(Self {
            batches,
            schema: Arc::clone(store.schema()),
            device: store.device(),
        })
    }

    pub fn sums(&self) -> Vec<u64> {
        self.batches.iter().map(|batch| batch.sum()).collect()
    }

    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    pub fn device(&self) -> DeviceKind {
        self.device
    }

    /// A table of these arrays.
    pub fn table(&self, arrays: impl Iterator<Item = DeviceArray> + Send + 'static) -> Batches {
        let arrays = arrays.map(Ok::<_, dipc::Error>);
        Batches::of_arrays(Arc::clone(&self.schema), self.device, arrays)
    }

    /// Exports `count` batches in turn, or any number.
    pub fn arrays(self: &Arc<Self>, count: Option<u64>) -> RingArrays {
        RingArrays {
            ring: Arc::clone(self),
            next: 0,
            left: count,
        }
    }
}

/// The batches of a ring as C arrays, each made when it is wanted.
pub struct RingArrays {
    ring: Arc<Ring>,
    next: usize,
    left: Option<u64>,
}

impl Iterator for RingArrays {
    type Item = DeviceArray;

    fn next(&mut self) -> Option<DeviceArray> {
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(1)?;
        }
        let batch = self.ring.batches.get(self.next).map(Batch::export);
        self.next = (self.next + 1) % self.ring.batches.len();
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::super::case::{Values as Kind, test_case};
    use super::super::values::Values;
    use super::*;

    /// An exported batch has the written values, in each kind of memory, and is freed with the last
    /// array.
    #[test]
    fn batches_are_read_as_they_were_written() {
        for (memory, values) in [
            (Memory::Arena, Kind::Int64),
            (Memory::Heap, Kind::Int64),
            (Memory::Arena, Kind::Bool),
        ] {
            let case = Case {
                memory,
                values,
                ..test_case("table")
            };
            let ring = Arc::new(Ring::new(&case).unwrap());
            let sums = ring.sums();
            assert_ne!(sums[0], sums[1]);
            let mut arrays = ring.arrays(Some(3));
            let values = Values::of(ring.schema(), case.shape()).unwrap();
            for sum in sums.iter().cycle().take(3) {
                let array = arrays.next().unwrap();
                // SAFETY: the array has the ring's schema, of which `values` was made.
                assert_eq!(unsafe { values.sum(&array) }.unwrap(), *sum);
            }
            assert!(arrays.next().is_none());
            let kept = Arc::downgrade(&ring.batches[0]);
            let array = ring.batches[0].export();
            drop((arrays, ring));
            assert!(kept.upgrade().is_some());
            drop(array);
            assert!(kept.upgrade().is_none());
        }
    }

    /// A column that a consumer moves out of its table keeps the memory, and both are released
    /// once.
    #[test]
    fn columns_can_be_moved_away() {
        let store = Store::new(&Case {
            memory: Memory::Heap,
            ..test_case("moved")
        })
        .unwrap();
        let batch = Arc::new(Batch::new(&store, 10, 1).unwrap());
        let kept = Arc::downgrade(&batch);
        let table = batch.export();
        drop(batch);
        let children = table.as_c().array.children;
        // SAFETY: the table has three columns.
        let column = unsafe { std::slice::from_raw_parts(children, 3) }[1];
        // SAFETY: nobody else uses the column, which is moved out.
        let mut moved = unsafe { column.replace(ArrowArray::empty()) };
        drop(table);
        assert!(kept.upgrade().is_some());
        // SAFETY: this is the column's only owner, and it is released once.
        unsafe { moved.release.unwrap()(&raw mut moved) };
        assert!(kept.upgrade().is_none());
    }

    /// A table with other columns is refused, not read past its end.
    #[test]
    fn other_columns_are_refused() {
        let case = test_case("other");
        let shape = Shape {
            columns: case.columns + 1,
            ..case.shape()
        };
        assert!(Values::of(Store::new(&case).unwrap().schema(), shape).is_err());
    }

    /// The time in a batch is its last stamp.
    #[test]
    fn stamps_are_read() {
        let case = test_case("stamps");
        let store = Store::new(&case).unwrap();
        let mut batch = Batch::new(&store, 4, 1).unwrap();
        batch.stamp(77).unwrap();
        let values = Values::of(store.schema(), case.shape()).unwrap();
        // SAFETY: the batch has the schema of which `values` was made.
        let first = unsafe { values.first(&Arc::new(batch).export()) };
        assert_eq!(first.unwrap(), Some(77));
    }
}
