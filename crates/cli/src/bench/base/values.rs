//! Reads the values of received batches, by the pointers of their C structs.

use std::{ptr, slice};

use anyhow::{Result, bail};
use arrow::datatypes::Schema;
use dipc::{ArrowArray, DeviceArray, DeviceKind};
use parking_lot::Mutex;

use super::case::Shape;
use super::gpu::GpuReader;

/// Reads the values of arrays of one stream.
pub struct Values {
    /// Rows in eight bytes.
    in_word: u64,
    /// The reader for arrays on a GPU, after the first array.
    reader: Mutex<Option<GpuReader>>,
}

impl Values {
    /// Checks that a stream of this schema has the columns of the server's table.
    pub fn of(schema: &Schema, shape: Shape) -> Result<Self> {
        if schema.fields() != shape.schema().fields() {
            bail!("the server's table has other columns than it was told to have");
        }
        Ok(Self {
            in_word: shape.values.in_word(),
            reader: Mutex::default(),
        })
    }

    /// Makes a stream on the GPU wait for the array. The caller does not wait.
    pub fn follow(&self, array: &DeviceArray) -> Result<()> {
        self.with_reader(array, |reader| {
            reader.map_or(Ok(()), |reader| reader.follow(array))
        })
    }

    /// Waits for all followed arrays.
    pub fn finish(&self) -> Result<()> {
        let reader = self.reader.lock();
        reader.as_ref().map_or(Ok(()), GpuReader::finish)
    }

    /// Calls `work` with the reader of the array's GPU; `None`: the array is on the host.
    fn with_reader<T>(
        &self,
        array: &DeviceArray,
        work: impl FnOnce(Option<&mut GpuReader>) -> Result<T>,
    ) -> Result<T> {
        if array.device() == DeviceKind::CPU {
            return work(None);
        }
        let mut reader = self.reader.lock();
        if reader.is_none() {
            *reader = GpuReader::of(array)?;
        }
        work(reader.as_mut())
    }

    /// The address of the values of each column, and their number of words of eight bytes.
    ///
    /// # Safety
    ///
    /// The array comes from the stream of [`Values::of`].
    unsafe fn columns<'a>(
        &self,
        array: &'a DeviceArray,
    ) -> impl Iterator<Item = (*const u64, usize)> + use<'a> {
        let in_word = self.in_word;
        columns_of(array).map(move |column| {
            // Batches are written in whole words, and are sent unchanged.
            let words = |rows: i64| {
                let rows = u64::try_from(rows).unwrap_or(0);
                usize::try_from(rows / in_word).unwrap_or(0)
            };
            let (rows, offset) = (words(column.length), words(column.offset));
            if rows == 0 {
                return (ptr::null(), 0);
            }
            // SAFETY: the caller promises an array of the stream that `Values::of` has checked,
            // whose columns are int64 or bool.
            let values = unsafe { values_of(column) };
            // They are `offset + rows` words of 8 bytes.
            (values.wrapping_add(offset), rows)
        })
    }

    /// Calls `work` with the values of each column, at most `most`.
    ///
    /// # Safety
    ///
    /// As [`Self::columns`].
    unsafe fn read<T>(
        &self,
        array: &DeviceArray,
        most: usize,
        mut work: impl FnMut(&[u64]) -> T,
    ) -> Result<Vec<T>> {
        // SAFETY: the caller promises an array of the stream that `Values::of` has checked.
        let columns = unsafe { self.columns(array) };
        let columns = columns.map(|(first, rows)| (first, rows.min(most)));
        self.with_reader(array, |reader| {
            let Some(reader) = reader else {
                let values = columns.map(|(first, rows)| match rows {
                    0 => work(&[]),
                    // SAFETY: a column on the host has these values; libdipc hands out buffers of
                    // batches that were written 64-aligned so, and each 8 bytes are a u64. Nobody
                    // writes to them: the server is this command's own.
                    _ => work(unsafe { slice::from_raw_parts(first, rows) }),
                });
                return Ok(values.collect());
            };
            reader.follow(array)?;
            let columns: Vec<_> = columns.collect();
            let run = |(first, rows): &(*const u64, usize)| (first.addr() as u64, rows * 8);
            let runs: Vec<_> = columns.iter().map(run).collect();
            // SAFETY: a column has these values on the array's GPU, for which the reader's stream
            // now waits. Nobody writes to them: the server is this command's own.
            let mut numbers = unsafe { reader.fetch(&runs) }?;
            let mut results = Vec::with_capacity(columns.len());
            for (_, rows) in columns {
                let (values, rest) = numbers.split_at(rows);
                results.push(work(values));
                numbers = rest;
            }
            Ok(results)
        })
    }

    /// The sum of all values of an array.
    ///
    /// # Safety
    ///
    /// As [`Self::columns`].
    pub unsafe fn sum(&self, array: &DeviceArray) -> Result<u64> {
        // SAFETY: the caller promises an array of the stream that `Values::of` has checked.
        let sums = unsafe { self.read(array, usize::MAX, sum) }?;
        Ok(sums.into_iter().fold(0, u64::wrapping_add))
    }

    /// The first value of the first column.
    ///
    /// # Safety
    ///
    /// As [`Self::columns`].
    pub unsafe fn first(&self, array: &DeviceArray) -> Result<Option<u64>> {
        // SAFETY: the caller promises an array of the stream that `Values::of` has checked.
        let firsts = unsafe { self.read(array, 1, |values| values.first().copied()) }?;
        Ok(firsts.into_iter().next().flatten())
    }
}

/// The columns of an array.
pub fn columns_of(array: &DeviceArray) -> impl Iterator<Item = &ArrowArray> {
    let table = &array.as_c().array;
    let children: &[*mut ArrowArray] = match usize::try_from(table.n_children) {
        // SAFETY: a table has as many pointers to children as it says, for as long as it is not
        // released (Arrow's C interface), and it is borrowed.
        Ok(count @ 1..) => unsafe { slice::from_raw_parts(table.children, count) },
        _ => &[],
    };
    // SAFETY: each pointer leads to an ArrowArray, for as long as the table is not released
    // (Arrow's C interface), and it is borrowed.
    children.iter().map(|column| unsafe { &**column })
}

/// The address of the values of a column, from its offset 0 on.
///
/// # Safety
///
/// The column is int64 or bool.
pub unsafe fn values_of(column: &ArrowArray) -> *const u64 {
    // SAFETY: the caller promises a type that has two buffers.
    let buffers = unsafe { slice::from_raw_parts(column.buffers.cast_const(), 2) };
    buffers[1].cast()
}

/// Adds numbers up at the speed of memory.
pub fn sum(numbers: &[u64]) -> u64 {
    numbers
        .iter()
        .fold(0, |sum: u64, number| sum.wrapping_add(*number))
}
