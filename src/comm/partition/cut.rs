//! A record batch cut into one batch for each rank.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt32Array, UInt64Array,
};
use arrow::compute::take;
use arrow::datatypes::DataType;

use super::gather::{self, Gather, USUAL_BLOCK};
use crate::error::{Error, Result};

/// Most rows of a block. The rows of a block have numbers of 16 bits.
const MOST_BLOCK: usize = 1 << 16;

/// Cuts `batch`: row `i` goes to rank `destinations[i]`. The result has each rank that gets rows,
/// in the order of the ranks, with its rows in the order of the batch.
///
/// If the rows of each rank already lie together, the batches are slices, and nothing is copied.
/// Otherwise values are copied once. Dictionaries are shared with `batch`, and so are the buffers
/// of view types within nested types.
///
/// # Errors
///
/// `InvalidArgument`: not one destination for each row, or a destination is not less than `ranks`.
/// `InvalidData`: Arrow cannot pick rows from a column.
pub fn cut(
    batch: &RecordBatch,
    destinations: &[u32],
    ranks: u32,
) -> Result<Vec<(u32, RecordBatch)>> {
    let rows = batch.num_rows();
    if destinations.len() != rows {
        return Err(Error::invalid_argument(format!(
            "there are {} destinations for {rows} rows: give one for each row",
            destinations.len()
        )));
    }
    let Counts { rows_of, runs } = Counts::new(destinations, ranks)?;
    let receivers = rows_of.iter().filter(|rows| **rows > 0).count();
    if runs == receivers {
        return Ok(slices(batch, destinations));
    }
    copies(batch, destinations, &rows_of, receivers)
}

/// What one pass over the destinations tells.
struct Counts {
    /// The number of rows of each rank.
    rows_of: Vec<usize>,
    /// The number of runs of one destination.
    runs: usize,
}

impl Counts {
    fn new(destinations: &[u32], ranks: u32) -> Result<Self> {
        let mut rows_of = vec![0; usize::try_from(ranks).unwrap_or(usize::MAX)];
        let mut last = None;
        let mut runs = 0;
        for (row, &rank) in destinations.iter().enumerate() {
            let Some(rows) = rows_of.get_mut(rank as usize) else {
                return Err(Error::invalid_argument(format!(
                    "row {row} goes to rank {rank}, and there are {ranks} ranks: they count from 0"
                )));
            };
            *rows += 1;
            runs += usize::from(last != Some(rank));
            last = Some(rank);
        }
        Ok(Self { rows_of, runs })
    }
}

fn slices(batch: &RecordBatch, destinations: &[u32]) -> Vec<(u32, RecordBatch)> {
    let mut first = 0;
    let mut slices = Vec::new();
    for run in destinations.chunk_by(|one, other| one == other) {
        if let Some(&rank) = run.first() {
            slices.push((rank, batch.slice(first, run.len())));
        }
        first += run.len();
    }
    slices.sort_unstable_by_key(|(rank, _)| *rank);
    slices
}

/// A rank that gets rows.
struct Receiver {
    rank: u32,
    rows: usize,
    /// The numbers of its rows, if a column asks for them.
    picked: Picked,
}

/// The numbers of rows, in the least width that all rows of the batch have.
enum Picked {
    None,
    Short(Vec<u32>),
    Long(Vec<u64>),
}

impl Picked {
    fn for_rows(picks: usize, of: usize) -> Self {
        match u32::try_from(of) {
            Ok(_) => Self::Short(Vec::with_capacity(picks)),
            Err(_) => Self::Long(Vec::with_capacity(picks)),
        }
    }

    fn extend(&mut self, first: usize, rows: &[u16]) {
        match self {
            Self::None => {}
            Self::Short(picked) => {
                let first = u32::try_from(first).unwrap_or(u32::MAX);
                picked.extend(rows.iter().map(|row| first + u32::from(*row)));
            }
            Self::Long(picked) => {
                picked.extend(rows.iter().map(|row| first as u64 + u64::from(*row)));
            }
        }
    }

    fn into_array(self) -> ArrayRef {
        match self {
            Self::None => Arc::new(UInt32Array::from(Vec::<u32>::new())),
            Self::Short(picked) => Arc::new(UInt32Array::from(picked)),
            Self::Long(picked) => Arc::new(UInt64Array::from(picked)),
        }
    }
}

/// Goes through the batch in blocks, so that the values of a block are read from memory once,
/// whatever the number of ranks.
fn copies(
    batch: &RecordBatch,
    destinations: &[u32],
    rows_of: &[usize],
    receivers: usize,
) -> Result<Vec<(u32, RecordBatch)>> {
    let counts: Vec<usize> = rows_of.iter().copied().filter(|rows| *rows > 0).collect();
    let datas: Vec<_> = batch.columns().iter().map(|c| c.to_data()).collect();
    let mut columns: Vec<Option<Box<dyn Gather + '_>>> = Vec::with_capacity(datas.len());
    columns.extend(datas.iter().map(|data| gather::column(data, &counts)));

    let is_any_taken = columns.iter().any(Option::is_none);
    let mut slot_of = vec![0; rows_of.len()];
    let mut of: Vec<Receiver> = Vec::with_capacity(receivers);
    for ((rank, &rows), slot) in (0..).zip(rows_of).zip(&mut slot_of) {
        if rows > 0 {
            *slot = of.len();
            let picked = match is_any_taken {
                true => Picked::for_rows(rows, destinations.len()),
                false => Picked::None,
            };
            of.push(Receiver { rank, rows, picked });
        }
    }

    // With many ranks, larger blocks: each rank has some rows in most.
    let most = USUAL_BLOCK
        .max(receivers.saturating_mul(64))
        .min(MOST_BLOCK);
    let mut sorter = Sorter::new(receivers);
    let mut first = 0;
    for block in destinations.chunks(most) {
        sorter.sort(block, &slot_of);
        for (receiver, rows) in of.iter_mut().zip(sorter.rows()) {
            receiver.picked.extend(first, rows);
        }
        for column in columns.iter_mut().flatten() {
            column.block(first, block.len());
            for (slot, rows) in sorter.rows().enumerate() {
                if !rows.is_empty() {
                    column.append(slot, rows);
                }
            }
        }
        first += block.len();
    }

    let mut batches = Vec::with_capacity(receivers);
    for (slot, receiver) in of.into_iter().enumerate() {
        let Receiver { rank, rows, picked } = receiver;
        let picked = picked.into_array();
        let arrays = columns.iter_mut().zip(batch.columns());
        let arrays = arrays.map(|(column, source)| match column {
            Some(column) => column.finish(slot),
            None => taken(source, &picked),
        });
        let arrays = arrays.collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let cut = RecordBatch::try_new_with_options(batch.schema(), arrays, &options);
        batches.push((
            rank,
            cut.map_err(|cause| Error::invalid_data(cause.to_string()))?,
        ));
    }
    Ok(batches)
}

/// The rows of one block, sorted by receiver.
struct Sorter {
    rows: Vec<u16>,
    /// Where the rows of each receiver end.
    ends: Vec<usize>,
}

impl Sorter {
    fn new(receivers: usize) -> Self {
        Self {
            rows: Vec::new(),
            ends: vec![0; receivers],
        }
    }

    /// Sorts a block of at most [`MOST_BLOCK`] rows by counting.
    fn sort(&mut self, block: &[u32], slot_of: &[usize]) {
        let slot = |rank: &u32| slot_of.get(*rank as usize).copied().unwrap_or(0);
        self.rows.resize(block.len(), 0);
        self.ends.fill(0);
        for rank in block {
            if let Some(count) = self.ends.get_mut(slot(rank)) {
                *count += 1;
            }
        }
        let mut first = 0;
        for end in &mut self.ends {
            let count = *end;
            *end = first;
            first += count;
        }
        // Each place moves from the first of its receiver's rows to their end.
        for (row, rank) in (0..=u16::MAX).zip(block) {
            if let Some(place) = self.ends.get_mut(slot(rank)) {
                if let Some(at) = self.rows.get_mut(*place) {
                    *at = row;
                }
                *place += 1;
            }
        }
    }

    /// The rows of each receiver, as numbers within the block.
    fn rows(&self) -> impl Iterator<Item = &[u16]> {
        let mut first = 0;
        self.ends.iter().map(move |&end| {
            let rows = self.rows.get(first..end).unwrap_or_default();
            first = end;
            rows
        })
    }
}

fn taken(column: &ArrayRef, rows: &ArrayRef) -> Result<ArrayRef> {
    let taken = take(column, rows, None);
    let taken = taken.map_err(|cause| Error::invalid_data(cause.to_string()))?;
    // Arrow's `take` keeps the buffers with the bytes of all views.
    Ok(match taken.data_type() {
        DataType::Utf8View => Arc::new(taken.as_string_view().gc()),
        DataType::BinaryView => Arc::new(taken.as_binary_view().gc()),
        _ => taken,
    })
}
