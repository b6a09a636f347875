//! Rows that go to ranks by ranges of their keys: all keys of a rank come before those of the next.
//!
//! Each rank takes a [`sample`] of its rows. All ranks choose the same [`Splitters`] from the
//! samples of all.
//!
//! The order is that of Arrow's row format (`arrow::row`), with two differences that let equal keys
//! go to one rank: -0.0 is equal to 0.0, and every NaN is the same value, greater than all numbers.
//! Neither holds for floats within lists, structs and runs, which keep the order of their bits.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, RecordBatch, UInt64Array};
use arrow::compute::{SortOptions, take};
use arrow::datatypes::{DataType, Float16Type, Float32Type, Float64Type, Schema};
use arrow::error::ArrowError;
use arrow::row::{OwnedRow, RowConverter, Rows, SortField};

use super::columns;
use crate::error::{Error, Result};

/// Rows that are converted at once: their keys stay in a near cache.
const BLOCK: usize = 1 << 12;

/// A key column of an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortKey {
    /// The name of the column.
    pub column: String,
    /// True if greater values come first.
    pub descending: bool,
    /// True if nulls come before all values, in either direction.
    pub nulls_first: bool,
}

/// At most `most` rows of `batch`, and of these the key columns alone. Equal arguments give equal
/// samples. The rows are spread evenly over the batch, at places that depend on `seed`.
///
/// # Errors
///
/// `InvalidArgument`, with a list of the columns: a key names no column, or more than one.
/// `InvalidData`: Arrow cannot pick rows from a column.
pub fn sample(
    batch: &RecordBatch,
    keys: &[SortKey],
    most: usize,
    seed: u64,
) -> Result<RecordBatch> {
    let found = find(keys, batch.schema_ref())?;
    let keys = batch.project(&found).map_err(refused)?;
    let rows = keys.num_rows();
    if rows <= most {
        return Ok(keys);
    }
    let mut random = SplitMix64(seed);
    let picked = (0..most).map(|part| {
        // One row of each of `most` parts of the batch.
        let start = |part: usize| part as u128 * rows as u128 / most as u128;
        let (first, end) = (start(part), start(part + 1));
        let within = (u128::from(random.draw()) * (end - first)) >> 64;
        u64::try_from(first + within).unwrap_or(u64::MAX)
    });
    let picked = UInt64Array::from_iter_values(picked);
    let columns = keys.columns().iter();
    let columns = columns.map(|column| take(column, &picked, None));
    let columns = columns.collect::<Result<_, _>>().map_err(refused)?;
    RecordBatch::try_new(keys.schema(), columns).map_err(refused)
}

/// The generator of pseudo-random numbers of that name. Samples are equal on all machines.
struct SplitMix64(u64);

impl SplitMix64 {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// The keys at which one rank's range ends and the next begins.
#[derive(Debug, Clone)]
pub struct Splitters {
    keys: Vec<SortKey>,
    ranks: u32,
    /// `None`: there was no sample, and all rows go to rank 0.
    order: Option<Arc<Order>>,
    /// Ascending, one fewer than ranks. Rank `i` begins at the one before number `i`.
    starts: Vec<OwnedRow>,
}

impl Splitters {
    /// Chooses splitters that divide the rows of all samples evenly among `ranks`. The result does
    /// not depend on the order of the samples. A key that many rows have goes to one rank all the
    /// same, and ranks beside that one may get fewer rows or none.
    ///
    /// Without a row in the samples, all rows go to rank 0.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: there are no keys or no ranks; a key names no column of a sample; the
    /// samples differ in the type of a key. `Unsupported`: the type of a key has no order.
    pub fn choose(samples: &[RecordBatch], keys: &[SortKey], ranks: u32) -> Result<Self> {
        if keys.is_empty() {
            return Err(Error::invalid_argument(
                "a partition by range has no keys: name at least one column",
            ));
        }
        if ranks == 0 {
            return Err(Error::invalid_argument(
                "there are no ranks: at least 1 is needed",
            ));
        }
        let mut splitters = Self {
            keys: keys.to_vec(),
            ranks,
            order: None,
            starts: Vec::new(),
        };
        let Some(first) = samples.first() else {
            return Ok(splitters);
        };
        let order = Order::new(keys, first.schema_ref())?;
        let parts = samples.iter().map(|sample| order.rows(keys, sample));
        let parts = parts.collect::<Result<Vec<_>>>()?;
        let mut rows: Vec<_> = parts.iter().flatten().collect();
        if rows.is_empty() {
            return Ok(splitters);
        }
        rows.sort_unstable();
        let starts = (1..u64::from(ranks)).filter_map(|rank| {
            let at = u128::from(rank) * rows.len() as u128 / u128::from(ranks);
            let row = usize::try_from(at).ok().and_then(|at| rows.get(at));
            row.map(|row| row.owned())
        });
        splitters.starts = starts.collect();
        splitters.order = Some(Arc::new(order));
        Ok(splitters)
    }

    /// The keys that the splitters are chosen for.
    pub fn keys(&self) -> &[SortKey] {
        &self.keys
    }

    /// The number of ranks that the splitters are chosen for.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// The rank of each row of a batch.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: a key names no column of the batch, or one of another type than in the
    /// samples.
    pub fn destinations(&self, batch: &RecordBatch) -> Result<Vec<u32>> {
        let rows = batch.num_rows();
        let Some(order) = &self.order else {
            find(&self.keys, batch.schema_ref())?;
            return Ok(vec![0; rows]);
        };
        let columns = order.columns(&self.keys, batch)?;
        let mut destinations = Vec::with_capacity(rows);
        let mut block = order.converter.empty_rows(rows.min(BLOCK), 0);
        for first in (0..rows).step_by(BLOCK) {
            let some = |column: &ArrayRef| column.slice(first, BLOCK.min(rows - first));
            let some: Vec<_> = columns.iter().map(some).collect();
            block.clear();
            order.converter.append(&mut block, &some).map_err(refused)?;
            destinations.extend(block.iter().map(|row| {
                let before = self.starts.partition_point(|start| start.row() <= row);
                u32::try_from(before).unwrap_or(u32::MAX)
            }));
        }
        Ok(destinations)
    }
}

/// How the rows of the key columns compare.
#[derive(Debug)]
struct Order {
    converter: RowConverter,
    /// The types of the keys, plain.
    types: Vec<DataType>,
}

impl Order {
    fn new(keys: &[SortKey], schema: &Schema) -> Result<Self> {
        let mut types = Vec::with_capacity(keys.len());
        let mut fields = Vec::with_capacity(keys.len());
        for (key, at) in keys.iter().zip(find(keys, schema)?) {
            let of = plain_type(schema.field(at).data_type()).clone();
            let options = SortOptions::new(key.descending, key.nulls_first);
            let field = SortField::new_with_options(of.clone(), options);
            if !RowConverter::supports_fields(std::slice::from_ref(&field)) {
                return Err(Error::unsupported(format!(
                    "the key column \"{}\" has type {of}, which has no order: choose another key, \
                     or partition by hash",
                    key.column
                )));
            }
            types.push(of);
            fields.push(field);
        }
        let converter = RowConverter::new(fields).map_err(refused)?;
        Ok(Self { converter, types })
    }

    /// The key columns of a batch, in the form that is compared.
    fn columns(&self, keys: &[SortKey], batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
        let found = find(keys, batch.schema_ref())?;
        let mut columns = Vec::with_capacity(keys.len());
        for ((key, at), of) in keys.iter().zip(found).zip(&self.types) {
            let column = canonical(batch.column(at))?;
            if column.data_type() != of {
                return Err(Error::invalid_argument(format!(
                    "the key column \"{}\" has type {}, and type {of} in the first sample: all \
                     ranks need one schema",
                    key.column,
                    column.data_type()
                )));
            }
            columns.push(column);
        }
        Ok(columns)
    }

    fn rows(&self, keys: &[SortKey], batch: &RecordBatch) -> Result<Rows> {
        let columns = self.columns(keys, batch)?;
        self.converter.convert_columns(&columns).map_err(refused)
    }
}

/// The columns of the keys in a schema.
fn find(keys: &[SortKey], schema: &Schema) -> Result<Vec<usize>> {
    let names = keys.iter().map(|key| key.column.as_str());
    columns::find(names, schema)
}

/// Without dictionaries, which need not be the same on all ranks.
fn plain_type(of: &DataType) -> &DataType {
    match of {
        DataType::Dictionary(_, values) => plain_type(values),
        of => of,
    }
}

/// A column whose equal values have equal bits.
fn canonical(column: &ArrayRef) -> Result<ArrayRef> {
    macro_rules! floats {
        ($of:ty, $nan:literal) => {{
            type Native = <$of as ArrowPrimitiveType>::Native;
            let zero = Native::from_bits(0);
            let equal = |value: Native| match (value.is_nan(), value == zero) {
                (true, _) => Native::from_bits($nan),
                (false, true) => zero,
                (false, false) => value,
            };
            Arc::new(column.as_primitive::<$of>().unary::<_, $of>(equal))
        }};
    }
    Ok(match column.data_type() {
        DataType::Float16 => floats!(Float16Type, 0x7e00),
        DataType::Float32 => floats!(Float32Type, 0x7fc0_0000),
        DataType::Float64 => floats!(Float64Type, 0x7ff8_0000_0000_0000),
        DataType::Dictionary(_, _) => {
            let dictionary = column.as_any_dictionary();
            let values = take(dictionary.values(), dictionary.keys(), None);
            canonical(&values.map_err(refused)?)?
        }
        _ => column.clone(),
    })
}

fn refused(cause: ArrowError) -> Error {
    Error::invalid_data(cause.to_string())
}
