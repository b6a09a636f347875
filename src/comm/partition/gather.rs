//! The values of one column, gathered for each receiver block by block.

use arrow::array::{ArrayData, ArrayRef, make_array};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow::datatypes::{ArrowNativeType, DataType};

use super::fixed;
use crate::error::{Error, Result};

/// The rows of a block for few receivers: its values of one column stay in the nearest cache.
pub const USUAL_BLOCK: usize = 1 << 12;

/// A column whose values go to receivers.
///
/// Call [`block`](Self::block) for each block, then [`append`](Self::append) for each receiver with
/// rows in it, and at last [`finish`](Self::finish) once for each receiver.
pub trait Gather {
    /// Goes on to the block of so many rows, from row `first` on.
    fn block(&mut self, first: usize, rows: usize);

    /// Appends these rows of the block to what a receiver gets.
    fn append(&mut self, receiver: usize, rows: &[u16]);

    /// What a receiver gets.
    ///
    /// # Errors
    ///
    /// `InvalidData`: Arrow refuses the array.
    fn finish(&mut self, receiver: usize) -> Result<ArrayRef>;
}

/// Gathers from a column of a type with values of one width; `None` for other types. `rows` has the
/// number of rows of each receiver.
pub fn column<'a>(data: &'a ArrayData, rows: &[usize]) -> Option<Box<dyn Gather + 'a>> {
    Some(match fixed::width(data.data_type())? {
        1 => Box::new(Fixed::<u8, 1>::new(data, rows)?),
        2 => Box::new(Fixed::<u16, 2>::new(data, rows)?),
        4 => Box::new(Fixed::<u32, 4>::new(data, rows)?),
        8 => Box::new(Fixed::<u64, 8>::new(data, rows)?),
        // Its alignment suffices for decimals and intervals.
        16 => Box::new(Fixed::<i128, 16>::new(data, rows)?),
        _ => return None,
    })
}

/// Appends what `of` makes of these rows of a block, and of `none` for a row that it lacks.
#[inline]
fn pick<V: Copy, T>(block: &[V], rows: &[u16], none: V, of: impl Fn(V) -> T, to: &mut Vec<T>) {
    match <&[V; USUAL_BLOCK]>::try_from(block) {
        // The compiler sees that each place is within the block: no check, and no panic.
        Ok(block) => to.extend(
            rows.iter()
                .map(|row| of(block[usize::from(*row) % USUAL_BLOCK])),
        ),
        Err(_) => {
            let value = |row: &u16| block.get(usize::from(*row)).copied().unwrap_or(none);
            to.extend(rows.iter().map(|row| of(value(row))));
        }
    }
}

/// A word that moves values of its width, whatever they mean.
trait Word<const WIDTH: usize>: ArrowNativeType {
    fn of(bytes: [u8; WIDTH]) -> Self;
}

macro_rules! words {
    ($($word:ty, $width:literal;)*) => {
        $(impl Word<$width> for $word {
            #[inline]
            fn of(bytes: [u8; $width]) -> Self {
                Self::from_ne_bytes(bytes)
            }
        })*
    };
}

words! { u8, 1; u16, 2; u32, 4; u64, 8; i128, 16; }

struct Fixed<'a, T, const WIDTH: usize> {
    of: &'a DataType,
    values: &'a [[u8; WIDTH]],
    /// The values of the block.
    block: &'a [[u8; WIDTH]],
    gathered: Vec<Vec<T>>,
    nulls: Option<Nulls<'a>>,
}

impl<'a, T: Word<WIDTH>, const WIDTH: usize> Fixed<'a, T, WIDTH> {
    fn new(data: &'a ArrayData, rows: &[usize]) -> Option<Self> {
        let (values, _) = fixed::bytes(data, WIDTH)?.as_chunks();
        let nulls = data.nulls().filter(|nulls| nulls.null_count() > 0);
        Some(Self {
            of: data.data_type(),
            values,
            block: &[],
            gathered: rows.iter().map(|rows| Vec::with_capacity(*rows)).collect(),
            nulls: nulls.map(|nulls| Nulls::new(nulls, rows)),
        })
    }
}

impl<T: Word<WIDTH>, const WIDTH: usize> Gather for Fixed<'_, T, WIDTH> {
    fn block(&mut self, first: usize, rows: usize) {
        self.block = self.values.get(first..first + rows).unwrap_or_default();
        if let Some(nulls) = &mut self.nulls {
            nulls.block(first, rows);
        }
    }

    fn append(&mut self, receiver: usize, rows: &[u16]) {
        if let Some(gathered) = self.gathered.get_mut(receiver) {
            pick(self.block, rows, [0; WIDTH], T::of, gathered);
        }
        if let Some(nulls) = &mut self.nulls {
            nulls.append(receiver, rows);
        }
    }

    fn finish(&mut self, receiver: usize) -> Result<ArrayRef> {
        let gathered = self.gathered.get_mut(receiver).map(std::mem::take);
        let gathered = gathered.unwrap_or_default();
        let nulls = self.nulls.as_mut().and_then(|nulls| nulls.finish(receiver));
        let data = ArrayData::builder(self.of.clone())
            .len(gathered.len())
            .nulls(nulls)
            .add_buffer(Buffer::from_vec(gathered))
            .build();
        let data = data.map_err(|cause| Error::invalid_data(cause.to_string()))?;
        Ok(make_array(data))
    }
}

/// The nulls of a column, gathered in the same way.
struct Nulls<'a> {
    of: &'a NullBuffer,
    /// Whether each row of the block has a value.
    block: Vec<bool>,
    /// A byte each until the end, because bits take longer to append.
    gathered: Vec<Vec<bool>>,
}

impl<'a> Nulls<'a> {
    fn new(of: &'a NullBuffer, rows: &[usize]) -> Self {
        Self {
            of,
            block: Vec::new(),
            gathered: rows.iter().map(|rows| Vec::with_capacity(*rows)).collect(),
        }
    }

    fn block(&mut self, first: usize, rows: usize) {
        self.block.clear();
        self.block.extend(&self.of.slice(first, rows));
    }

    fn append(&mut self, receiver: usize, rows: &[u16]) {
        if let Some(gathered) = self.gathered.get_mut(receiver) {
            pick(&self.block, rows, false, |is_valid| is_valid, gathered);
        }
    }

    fn finish(&mut self, receiver: usize) -> Option<NullBuffer> {
        let gathered = std::mem::take(self.gathered.get_mut(receiver)?);
        let is_valid = |row: usize| gathered.get(row).copied().unwrap_or(false);
        let nulls = NullBuffer::new(BooleanBuffer::collect_bool(gathered.len(), is_valid));
        (nulls.null_count() > 0).then_some(nulls)
    }
}
