//! The batches that are measured with: int64 columns, written once and handed out many times.
//!
//! They are handed out as the C structs that an engine would make, and read by their pointers:
//! building arrays of the `arrow` crate takes longer than moving a batch does.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use arrow::datatypes::{DataType, Field, Schema};
use dipc::arena::{self, Arena, ArenaOptions};
use dipc::arrow::abi::{ArrowArray, ArrowDeviceArray};
use dipc::arrow::stream::ArrayReader;
use dipc::arrow::{OwnedDeviceArray, OwnedSchema, schema_from_c, schema_to_c};
use dipc::device::DeviceKind;

use super::case::{Case, Memory};

/// What Arrow recommends.
const ALIGNMENT: usize = 64;

/// Where batches take their memory from.
pub enum Store {
    Arena(Arena),
    Heap,
}

impl Store {
    pub fn new(memory: Memory) -> Result<Self> {
        Ok(match memory {
            Memory::Arena => Self::Arena(Arena::new(DeviceKind::CPU, ArenaOptions::default())?),
            Memory::Heap => Self::Heap,
        })
    }

    /// Memory for `rows` values, which are still to be written.
    fn column(&self, rows: usize) -> Result<Column> {
        let layout = Layout::array::<u64>(rows)
            .and_then(|layout| layout.align_to(ALIGNMENT))
            .context("a column is too large")?;
        // A column of no rows has a pointer, too.
        let layout = Layout::from_size_align(layout.size().max(8), ALIGNMENT)?;
        let (data, heap) = match self {
            Self::Arena(arena) => (arena.alloc(layout.size())?, None),
            Self::Heap => {
                // SAFETY: the size is not 0.
                let data = unsafe { alloc(layout) };
                let Some(data) = NonNull::new(data) else {
                    bail!("out of memory: {} bytes for a column", layout.size());
                };
                (data, Some(layout))
            }
        };
        Ok(Column { data, rows, heap })
    }
}

/// The values of one column.
struct Column {
    data: NonNull<u8>,
    rows: usize,
    /// What it was allocated with; `None`: it is a block of an arena.
    heap: Option<Layout>,
}

// SAFETY: a column is plain memory, written only through `&mut`; it can be given back on any thread.
unsafe impl Send for Column {}
// SAFETY: as above.
unsafe impl Sync for Column {}

impl Column {
    fn values(&mut self) -> &mut [MaybeUninit<u64>] {
        // SAFETY: the memory was allocated for `rows` values and aligned for them
        // (`Store::column`), which need not be there yet, and `&mut self` is the only way to it.
        unsafe { slice::from_raw_parts_mut(self.data.as_ptr().cast(), self.rows) }
    }
}

impl Drop for Column {
    fn drop(&mut self) {
        match self.heap {
            // SAFETY: it was allocated with this layout, and the arrays that read it kept the batch.
            Some(layout) => unsafe { dealloc(self.data.as_ptr(), layout) },
            // SAFETY: it is a block of an arena that nobody reads any more. It cannot fail but in
            // a forked child, and this process does not fork.
            None => drop(unsafe { arena::dealloc(self.data) }),
        }
    }
}

/// One batch, whose memory goes with its last array.
pub struct Batch {
    columns: Vec<Column>,
    /// Of each column, what the C struct's `buffers` leads to: no validity, the values.
    buffers: Vec<[*const c_void; 2]>,
    /// The same of the table itself: no validity.
    table_buffers: [*const c_void; 1],
    rows: usize,
    /// What all values add up to.
    sum: u64,
}

// SAFETY: the pointers lead into `columns`, which are `Send` and `Sync`.
unsafe impl Send for Batch {}
// SAFETY: as above.
unsafe impl Sync for Batch {}

impl Batch {
    /// A batch filled with numbers that depend on `seed`.
    pub fn new(store: &Store, columns: u32, rows: u64, seed: u64) -> Result<Self> {
        let rows = usize::try_from(rows)?;
        let mut all = (0..columns)
            .map(|_| store.column(rows))
            .collect::<Result<Vec<_>>>()?;
        let mut sum = 0_u64;
        let mut number = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        for slot in all.iter_mut().flat_map(Column::values) {
            slot.write(number);
            sum = sum.wrapping_add(number);
            number = number.wrapping_add(1);
        }
        let values = |column: &Column| [ptr::null(), column.data.as_ptr().cast_const().cast()];
        Ok(Self {
            buffers: all.iter().map(values).collect(),
            table_buffers: [ptr::null()],
            columns: all,
            rows,
            sum,
        })
    }

    /// Writes the first value of the first column, before the batch is handed out; its sum is not
    /// right any more.
    pub fn stamp(&mut self, number: u64) {
        let column = self.columns.first_mut();
        if let Some(slot) = column.and_then(|column| column.values().first_mut()) {
            slot.write(number);
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
        let device = ArrowDeviceArray {
            array,
            ..ArrowDeviceArray::empty()
        };
        // SAFETY: the array follows Arrow's C interface and has this one owner: its structs lie in
        // `exported`, and its buffers in the batch, both of which live until they are released;
        // consumers only read through `buffers`. Each column holds the batch itself, so it can be
        // moved away. The memory is the host's, as `empty` says.
        unsafe { OwnedDeviceArray::from_raw(device) }
    }
}

/// What an exported table owns.
struct Exported {
    columns: Vec<ArrowArray>,
    children: Vec<*mut ArrowArray>,
    _batch: Arc<Batch>,
}

/// # Safety
///
/// As Arrow's C interface says: `array` is one of [`Batch::export`]'s columns, not released.
unsafe extern "C" fn release_column(array: *mut ArrowArray) {
    // SAFETY: the caller promises that it is valid and that nobody else uses it.
    let array = unsafe { &mut *array };
    array.release = None;
    // SAFETY: `export` put it there by `into_raw`, and this runs once, since `release` is gone now.
    drop(unsafe { Arc::from_raw(array.private_data.cast::<Batch>().cast_const()) });
}

/// # Safety
///
/// As Arrow's C interface says: `array` is a table of [`Batch::export`], not released.
unsafe extern "C" fn release_table(array: *mut ArrowArray) {
    // SAFETY: the caller promises that it is valid and that nobody else uses it.
    let array = unsafe { &mut *array };
    array.release = None;
    // SAFETY: `export` put it there by `into_raw`, and this runs once, since `release` is gone now.
    let mut exported = unsafe { Box::from_raw(array.private_data.cast::<Exported>()) };
    // A column that was moved away has no release function here any more.
    for column in &mut exported.columns {
        if let Some(release) = column.release {
            // SAFETY: it is a column of `export` that was not released.
            unsafe { release(column) };
        }
    }
}

/// The distinct batches of a case, which come round in turn.
pub struct Ring {
    batches: Vec<Arc<Batch>>,
    columns: u32,
}

impl Ring {
    /// Writes them.
    pub fn new(case: &Case) -> Result<Self> {
        let store = Store::new(case.memory)?;
        let batch = |seed| Batch::new(&store, case.columns, case.rows, seed).map(Arc::new);
        let batches = (1..=case.distinct())
            .map(batch)
            .collect::<Result<_>>()
            .context("cannot hold the batches in memory; --ring-bytes says how much they take")?;
        Ok(Self {
            batches,
            columns: case.columns,
        })
    }

    /// `count` of them as C arrays.
    pub fn export(&self, count: u64) -> impl Iterator<Item = OwnedDeviceArray> {
        let round = self.batches.iter().cycle();
        round.zip(0..count).map(|(batch, _)| batch.export())
    }

    pub fn sums(&self) -> Vec<u64> {
        self.batches.iter().map(|batch| batch.sum()).collect()
    }

    pub fn schema(&self) -> Result<OwnedSchema> {
        Ok(schema_to_c(&schema(self.columns))?)
    }

    /// A reader of `count` of them, or of as many as are asked for.
    pub fn reader(self: &Arc<Self>, count: Option<u64>) -> RingReader {
        RingReader {
            ring: Arc::clone(self),
            next: 0,
            left: count,
        }
    }
}

/// The schema of `columns` int64 columns without nulls.
pub fn schema(columns: u32) -> Schema {
    let field = |number| Field::new(format!("c{number}"), DataType::Int64, false);
    Schema::new((0..columns).map(field).collect::<Vec<_>>())
}

/// What a provider hands out.
pub struct RingReader {
    ring: Arc<Ring>,
    next: usize,
    left: Option<u64>,
}

impl ArrayReader for RingReader {
    fn schema(&mut self) -> dipc::error::Result<OwnedSchema> {
        schema_to_c(&schema(self.ring.columns))
    }

    fn next(&mut self) -> dipc::error::Result<Option<OwnedDeviceArray>> {
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
        DeviceKind::CPU.0
    }
}

/// Reads the values of arrays of one stream.
pub struct Values(());

impl Values {
    /// Checks that the stream has int64 columns without nulls, as the server's table.
    pub fn of(stream: &mut dyn ArrayReader, columns: u32) -> Result<Self> {
        if schema_from_c(&stream.schema()?)?.fields() != schema(columns).fields() {
            bail!("the server's table has other columns than it was told to have");
        }
        Ok(Self(()))
    }

    /// The columns of an array.
    ///
    /// # Safety
    ///
    /// The array came from the stream that this was made of.
    unsafe fn columns<'a>(&self, array: &'a OwnedDeviceArray) -> impl Iterator<Item = &'a [u64]> {
        let table = &array.raw().array;
        let children: &'a [*mut ArrowArray] = match usize::try_from(table.n_children) {
            // SAFETY: a table has as many pointers to children as it says, for as long as it is not
            // released ("What it promises" of `Owned`), and it is borrowed for 'a.
            Ok(count @ 1..) => unsafe { slice::from_raw_parts(table.children, count) },
            _ => &[],
        };
        children.iter().map(|column| {
            // SAFETY: as above; each leads to an ArrowArray.
            let column = unsafe { &**column };
            let rows = usize::try_from(column.length).unwrap_or(0);
            let offset = usize::try_from(column.offset).unwrap_or(0);
            if rows == 0 {
                return &[][..];
            }
            // SAFETY: an int64 array has two buffers.
            let buffers = unsafe { slice::from_raw_parts(column.buffers.cast_const(), 2) };
            // SAFETY: the second buffer has `offset + rows` values of 8 bytes.
            let first = unsafe { buffers[1].cast::<u64>().add(offset) };
            // SAFETY: as above; libdipc hands out buffers aligned for their type, and each 8 bytes
            // are a u64. Nobody writes to them: the server is this command's own.
            unsafe { slice::from_raw_parts(first, rows) }
        })
    }

    /// What all values of an array add up to.
    ///
    /// # Safety
    ///
    /// As [`Self::columns`].
    pub unsafe fn sum(&self, array: &OwnedDeviceArray) -> u64 {
        // SAFETY: the caller's promise.
        let columns = unsafe { self.columns(array) };
        columns.map(sum).fold(0, u64::wrapping_add)
    }

    /// The first value of the first column.
    ///
    /// # Safety
    ///
    /// As [`Self::columns`].
    pub unsafe fn first(&self, array: &OwnedDeviceArray) -> Option<u64> {
        // SAFETY: the caller's promise.
        let mut columns = unsafe { self.columns(array) };
        columns.next()?.first().copied()
    }
}

/// Adds numbers up as fast as memory gives them.
pub fn sum(numbers: &[u64]) -> u64 {
    numbers
        .iter()
        .fold(0, |sum: u64, number| sum.wrapping_add(*number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::test_case;

    /// What is read of an exported batch is what was written, for either memory, and its memory goes
    /// with the last array.
    #[test]
    fn batches_are_read_as_they_were_written() {
        for memory in [Memory::Arena, Memory::Heap] {
            let case = Case {
                memory,
                ..test_case("table")
            };
            let ring = Arc::new(Ring::new(&case).unwrap());
            let sums = ring.sums();
            assert_ne!(sums[0], sums[1]);
            let mut reader = ring.reader(Some(3));
            let values = Values::of(&mut reader, case.columns).unwrap();
            for sum in sums.iter().cycle().take(3) {
                let array = reader.next().unwrap().unwrap();
                // SAFETY: the array is one of `reader`'s, of which `values` was made.
                assert_eq!(unsafe { values.sum(&array) }, *sum);
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

    /// A column that a consumer moves out of its table, as Arrow's C interface allows, keeps the
    /// memory, and both are released once.
    #[test]
    fn columns_can_be_moved_away() {
        let store = Store::new(Memory::Heap).unwrap();
        let batch = Arc::new(Batch::new(&store, 2, 10, 1).unwrap());
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

    /// A table of other columns is refused, rather than read past its end.
    #[test]
    fn other_columns_are_refused() {
        let ring = Arc::new(Ring::new(&test_case("other")).unwrap());
        assert!(Values::of(&mut ring.reader(None), 4).is_err());
    }

    /// The time in a batch is what was stamped on it last.
    #[test]
    fn stamps_are_read() {
        let store = Store::new(Memory::Arena).unwrap();
        let mut batch = Batch::new(&store, 1, 4, 1).unwrap();
        batch.stamp(77);
        let case = Case {
            columns: 1,
            ..test_case("stamps")
        };
        let mut reader = Arc::new(Ring::new(&case).unwrap()).reader(None);
        let values = Values::of(&mut reader, 1).unwrap();
        // SAFETY: a batch of `store` is of the same schema as those of `reader`.
        let first = unsafe { values.first(&Arc::new(batch).export()) };
        assert_eq!(first, Some(77));
    }
}
