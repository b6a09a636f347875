//! The batches of a measurement: int64 columns, written once and sent many times.
//!
//! They are exported as C structs, like those of an engine, and read by their pointers. Arrays of
//! the `arrow` crate would take longer to build than a batch takes to move.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::num::NonZeroUsize;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use dipc::arena;
use dipc::arrow::abi::{ArrowArray, ArrowDeviceArray};
use dipc::arrow::stream::ArrayReader;
use dipc::arrow::{OwnedDeviceArray, OwnedSchema, schema_to_c};
use dipc::device::cuda::{Device, DeviceMemory, Purpose};
use dipc::{Arena, ArenaOptions, DeviceKind};

use super::case::{Case, Memory, Shape};
use super::gpu::Gpu;

/// Arrow's recommended alignment.
const ALIGNMENT: usize = 64;

/// The memory for batches.
pub struct Store {
    /// `None`: memory outside an arena.
    arena: Option<Arena>,
    /// `None`: memory of the host.
    gpu: Option<Gpu>,
}

impl Store {
    /// The memory for the server's batches of a case.
    pub fn new(case: &Case) -> Result<Self> {
        let gpu = Gpu::of(case.device)?;
        let (kind, id) = match &gpu {
            Some(gpu) => (DeviceKind::CUDA, i64::from(gpu.ordinal())),
            None => (DeviceKind::CPU, -1),
        };
        let arena = match case.memory {
            Memory::Arena => Some(Arena::on(kind, id, ArenaOptions::default())?),
            Memory::Heap => None,
        };
        Ok(Self { arena, gpu })
    }

    /// Arrow's number for the kind of memory.
    pub fn device_type(&self) -> i32 {
        match self.gpu {
            Some(_) => DeviceKind::CUDA.0,
            None => DeviceKind::CPU.0,
        }
    }

    /// Allocates memory for `rows` values, not yet written.
    fn column(&self, rows: usize) -> Result<Column> {
        let layout = Layout::array::<u64>(rows)
            .and_then(|layout| layout.align_to(ALIGNMENT))
            .context("a column is too large")?;
        // A column without rows has a pointer too.
        let layout = Layout::from_size_align(layout.size().max(8), ALIGNMENT)?;
        let (data, owner) = match (&self.arena, &self.gpu) {
            (Some(arena), _) => (arena.alloc(layout.size())?, Owner::Arena),
            (None, Some(gpu)) => {
                let device = Device::get(gpu.ordinal().into())?;
                let memory = DeviceMemory::new(&device, layout.size(), Purpose::Own)?;
                let address = NonZeroUsize::new(usize::try_from(memory.address())?);
                let address = address.context("memory of a GPU at address 0")?;
                (NonNull::without_provenance(address), Owner::Gpu(memory))
            }
            (None, None) => {
                // SAFETY: the size is not 0.
                let data = unsafe { alloc(layout) };
                let Some(data) = NonNull::new(data) else {
                    bail!("out of memory: {} bytes for a column", layout.size());
                };
                (data, Owner::Heap(layout))
            }
        };
        Ok(Column {
            data,
            rows,
            gpu: self.gpu.clone(),
            owner,
        })
    }
}

/// The values of one column.
struct Column {
    data: NonNull<u8>,
    rows: usize,
    /// The GPU of the memory; `None`: the host.
    gpu: Option<Gpu>,
    owner: Owner,
}

/// The owner of a column's memory.
enum Owner {
    /// An arena; the memory is one of its blocks.
    Arena,
    /// The heap, with the layout of the allocation.
    Heap(Layout),
    /// The GPU's driver, which frees the memory when this is dropped.
    Gpu(#[expect(dead_code, reason = "held for its drop")] DeviceMemory),
}

// SAFETY: a column is plain memory, written only through `&mut`; it can be given back on any
// thread.
unsafe impl Send for Column {}
// SAFETY: a column is plain memory, written only through `&mut`.
unsafe impl Sync for Column {}

impl Column {
    /// Writes the first values.
    fn write(&mut self, values: impl ExactSizeIterator<Item = u64>) -> Result<()> {
        if let Some(gpu) = &self.gpu {
            let values: Vec<u64> = values.take(self.rows).collect();
            // SAFETY: the memory was allocated for `rows` values (`Store::column`), and `&mut self`
            // is the only way to it.
            return unsafe { gpu.write(self.data.addr().get() as u64, &values) };
        }
        // SAFETY: the memory, on the host, has room for `rows` values and their alignment
        // (`Store::column`). `&mut self` is the only way to it. The values need not be there yet.
        let slots: &mut [MaybeUninit<u64>] =
            unsafe { slice::from_raw_parts_mut(self.data.as_ptr().cast(), self.rows) };
        for (slot, value) in slots.iter_mut().zip(values) {
            slot.write(value);
        }
        Ok(())
    }
}

impl Drop for Column {
    fn drop(&mut self) {
        match &self.owner {
            // SAFETY: it was allocated with this layout, and the arrays that read it kept the
            // batch.
            Owner::Heap(layout) => unsafe { dealloc(self.data.as_ptr(), *layout) },
            // SAFETY: it is a block of an arena that nobody reads any more. It cannot fail but in
            // a forked child, and this process does not fork.
            Owner::Arena => drop(unsafe { arena::dealloc(self.data) }),
            Owner::Gpu(_) => {}
        }
    }
}

/// One batch. Its memory is freed with its last array.
pub struct Batch {
    columns: Vec<Column>,
    /// The `buffers` of each column's C struct: no validity, the values.
    buffers: Vec<[*const c_void; 2]>,
    /// The `buffers` of the table: no validity.
    table_buffers: [*const c_void; 1],
    rows: usize,
    /// The sum of all values.
    sum: u64,
    /// The GPU of the batch; `None`: the host.
    gpu: Option<i32>,
}

// SAFETY: the pointers lead into `columns`, which are `Send` and `Sync`.
unsafe impl Send for Batch {}
// SAFETY: the pointers lead into `columns`, which are `Send` and `Sync`.
unsafe impl Sync for Batch {}

impl Batch {
    /// Makes a batch of numbers that depend on `seed`.
    ///
    /// Each column has `words` words of eight bytes.
    pub fn new(store: &Store, shape: Shape, words: u64, seed: u64) -> Result<Self> {
        let rows = usize::try_from(words * shape.values.in_word())?;
        let words = usize::try_from(words)?;
        let mut all = (0..shape.columns)
            .map(|_| store.column(words))
            .collect::<Result<Vec<_>>>()?;
        let mut sum = 0_u64;
        let mut number = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        for column in &mut all {
            let values = (0..words).map(|_| {
                let value = number;
                sum = sum.wrapping_add(value);
                number = number.wrapping_add(1);
                value
            });
            column.write(values)?;
        }
        let values = |column: &Column| [ptr::null(), column.data.as_ptr().cast_const().cast()];
        Ok(Self {
            buffers: all.iter().map(values).collect(),
            table_buffers: [ptr::null()],
            columns: all,
            rows,
            sum,
            gpu: (store.gpu.as_ref()).map(Gpu::ordinal),
        })
    }

    /// Writes the first value of the first column, before the batch is sent. The sum is wrong
    /// afterwards.
    pub fn stamp(&mut self, number: u64) -> Result<()> {
        match self.columns.first_mut() {
            Some(column) => column.write(std::iter::once(number)),
            None => Ok(()),
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
    pub fn export(self: &Arc<Self>) -> OwnedDeviceArray {
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
        if let Some(ordinal) = self.gpu {
            device.device_type = DeviceKind::CUDA.0;
            device.device_id = ordinal.into();
        }
        // SAFETY: the array follows Arrow's C interface and has this one owner: its structs lie in
        // `exported`, and its buffers in the batch, both of which live until they are released;
        // consumers only read through `buffers`. Each column holds the batch itself, so it can be
        // moved away. The memory is the host's, as `empty` says, or the GPU's, and was written
        // before: there is no event to wait for.
        unsafe { OwnedDeviceArray::from_raw(device) }
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
    shape: Shape,
    device_type: i32,
}

impl Ring {
    /// Writes the batches.
    pub fn new(case: &Case) -> Result<Self> {
        let store = Store::new(case)?;
        let batch = |seed| Batch::new(&store, case.shape(), case.words(), seed).map(Arc::new);
        let batches = (1..=case.distinct())
            .map(batch)
            .collect::<Result<_>>()
            .context("cannot hold the batches in memory; --ring-bytes says how much they take")?;
        Ok(Self {
            batches,
            shape: case.shape(),
            device_type: store.device_type(),
        })
    }

    /// Exports `count` batches as C arrays.
    pub fn export(&self, count: u64) -> impl Iterator<Item = OwnedDeviceArray> {
        let round = self.batches.iter().cycle();
        round.zip(0..count).map(|(batch, _)| batch.export())
    }

    pub fn sums(&self) -> Vec<u64> {
        self.batches.iter().map(|batch| batch.sum()).collect()
    }

    pub fn schema(&self) -> Result<OwnedSchema> {
        Ok(schema_to_c(&self.shape.schema())?)
    }

    /// A reader of `count` batches, or of any number.
    pub fn reader(self: &Arc<Self>, count: Option<u64>) -> RingReader {
        RingReader {
            ring: Arc::clone(self),
            next: 0,
            left: count,
        }
    }
}

/// The reader of a provider.
pub struct RingReader {
    ring: Arc<Ring>,
    next: usize,
    left: Option<u64>,
}

impl ArrayReader for RingReader {
    fn schema(&mut self) -> dipc::Result<OwnedSchema> {
        schema_to_c(&self.ring.shape.schema())
    }

    fn next(&mut self) -> dipc::Result<Option<OwnedDeviceArray>> {
        if let Some(left) = &mut self.left {
            if *left == 0 {
                return Ok(None);
            }
            *left -= 1;
        }
        let batch = self.ring.batches.get(self.next).map(Batch::export);
        self.next = (self.next + 1) % self.ring.batches.len();
        Ok(batch)
    }

    fn device_type(&self) -> i32 {
        self.ring.device_type
    }
}

#[cfg(test)]
mod tests {
    use super::super::case::{Values as Kind, test_case};
    use super::super::values::Values;
    use super::*;

    /// A shape of int64 columns.
    fn int64(columns: u32) -> Shape {
        Shape {
            columns,
            values: Kind::Int64,
        }
    }

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
            let mut reader = ring.reader(Some(3));
            let values = Values::of(&mut reader, case.shape()).unwrap();
            for sum in sums.iter().cycle().take(3) {
                let array = reader.next().unwrap().unwrap();
                // SAFETY: the array is one of `reader`'s, of which `values` was made.
                assert_eq!(unsafe { values.sum(&array) }.unwrap(), *sum);
            }
            assert!(reader.next().unwrap().is_none());
            let kept = Arc::downgrade(&ring.batches[0]);
            let array = ring.batches[0].export();
            drop((reader, ring));
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
        let batch = Arc::new(Batch::new(&store, int64(2), 10, 1).unwrap());
        let kept = Arc::downgrade(&batch);
        let table = batch.export();
        drop(batch);
        // SAFETY: the table has two columns.
        let columns = unsafe { slice::from_raw_parts(table.raw().array.children, 2) };
        let column = columns[1];
        // SAFETY: nobody else uses the column, and this is the column's only owner from now on.
        let column = unsafe { dipc::arrow::OwnedArray::take(column) };
        drop(table);
        assert!(kept.upgrade().is_some());
        drop(column);
        assert!(kept.upgrade().is_none());
    }

    /// A table with other columns is refused, not read past its end.
    #[test]
    fn other_columns_are_refused() {
        let ring = Arc::new(Ring::new(&test_case("other")).unwrap());
        assert!(Values::of(&mut ring.reader(None), int64(4)).is_err());
    }

    /// The time in a batch is its last stamp.
    #[test]
    fn stamps_are_read() {
        let store = Store::new(&test_case("stamps")).unwrap();
        let mut batch = Batch::new(&store, int64(1), 4, 1).unwrap();
        batch.stamp(77).unwrap();
        let case = Case {
            columns: 1,
            ..test_case("stamps")
        };
        let mut reader = Arc::new(Ring::new(&case).unwrap()).reader(None);
        let values = Values::of(&mut reader, int64(1)).unwrap();
        // SAFETY: a batch of `store` is of the same schema as those of `reader`.
        let first = unsafe { values.first(&Arc::new(batch).export()) };
        assert_eq!(first.unwrap(), Some(77));
    }
}
