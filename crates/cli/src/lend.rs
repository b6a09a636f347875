//! Tables in an arena: read once, then served without a copy.

use std::collections::HashMap;

use anyhow::{Result, anyhow};
use arrow::array::{Array as _, ArrayData, ArrayRef, AsArray as _, make_array};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow::datatypes::DataType;
use arrow::record_batch::RecordBatch;
use dipc::{Arena, Error, Status};

use crate::rebuild::rebuilt;
use crate::report::bytes_text;
use crate::source::{Metadata, Reader};

/// Reads a whole table into `arena`, whose limit is `room` bytes: its batches, each with its custom
/// metadata.
pub fn load(reader: Reader, arena: &Arena, room: u64) -> Result<Vec<(RecordBatch, Metadata)>> {
    let mut mover = Mover {
        arena,
        room,
        before: HashMap::new(),
        now: HashMap::new(),
    };
    let mut batches = Vec::new();
    for next in reader {
        let (batch, metadata) = next?;
        batches.push((mover.batch(&batch)?, metadata));
    }
    Ok(batches)
}

/// The error of an arena with a limit of `room` bytes. The arena's own advice, to release arrays,
/// does not help a server that keeps its tables.
pub fn explained(error: Error, room: u64) -> anyhow::Error {
    let is_full = error.status() == Status::OutOfMemory && error.text().contains("max_bytes");
    if is_full {
        return anyhow!(
            "the tables need more lendable memory than --max-memory allows ({} are left for this \
             one): raise it, or leave out --arena",
            bytes_text(room)
        );
    }
    anyhow::Error::from(error).context("cannot hold the table in lendable memory")
}

/// Address and length of a buffer.
type BufferPlace = (usize, usize);

/// Copies batches into an arena.
///
/// Batches sliced from one larger batch, and batches with one dictionary, share buffers. A buffer
/// that the previous batch has too is copied once. The originals live as long as the copies, so
/// that no other buffer gets the same address.
struct Mover<'a> {
    arena: &'a Arena,
    room: u64,
    before: HashMap<BufferPlace, (Buffer, Buffer)>,
    now: HashMap<BufferPlace, (Buffer, Buffer)>,
}

impl Mover<'_> {
    fn batch(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        self.before = std::mem::take(&mut self.now);
        let columns = batch
            .columns()
            .iter()
            .map(|column| Ok(make_array(self.data(&compact(column).to_data())?)))
            .collect::<Result<Vec<ArrayRef>>>()?;
        Ok(rebuilt(batch.schema(), columns, batch)?)
    }

    fn data(&mut self, data: &ArrayData) -> Result<ArrayData> {
        let buffers = data
            .buffers()
            .iter()
            .map(|buffer| self.buffer(buffer))
            .collect::<Result<Vec<_>>>()?;
        let nulls = match data.nulls() {
            Some(nulls) => {
                let bits = self.buffer(nulls.inner().inner())?;
                Some(NullBuffer::new(BooleanBuffer::new(
                    bits,
                    nulls.offset(),
                    nulls.len(),
                )))
            }
            None => None,
        };
        let children = data
            .child_data()
            .iter()
            .map(|child| self.data(child))
            .collect::<Result<Vec<_>>>()?;
        let builder = data.clone().into_builder();
        Ok(builder
            .buffers(buffers)
            .nulls(nulls)
            .child_data(children)
            .build()?)
    }

    fn buffer(&mut self, buffer: &Buffer) -> Result<Buffer> {
        let place = (buffer.as_ptr() as usize, buffer.len());
        if let Some((_, copy)) = self.now.get(&place) {
            return Ok(copy.clone());
        }
        let pair = match self.before.remove(&place) {
            Some(pair) => pair,
            None => {
                let copy = self.arena.buffer_from(buffer);
                let copy = copy.map_err(|error| explained(error, self.room))?;
                (buffer.clone(), copy)
            }
        };
        let copy = pair.1.clone();
        self.now.insert(place, pair);
        Ok(copy)
    }
}

/// Readers of Parquet let many batches of views share one large buffer, of which each batch uses a
/// part. A whole copy for each batch would multiply it.
pub fn compact(column: &ArrayRef) -> ArrayRef {
    macro_rules! compact {
        ($views:expr) => {{
            let views = $views;
            let held: usize = views.data_buffers().iter().map(Buffer::len).sum();
            if held > 2 * views.total_buffer_bytes_used() {
                return std::sync::Arc::new(views.gc());
            }
        }};
    }
    match column.data_type() {
        DataType::Utf8View => compact!(column.as_string_view()),
        DataType::BinaryView => compact!(column.as_binary_view()),
        _ => {}
    }
    std::sync::Arc::clone(column)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        DictionaryArray, Int32Array, ListArray, RecordBatchIterator, StringArray, StringViewArray,
    };
    use arrow::datatypes::{Int8Type, Int32Type};
    use dipc::ArenaOptions;
    use dipc::DeviceKind;

    use super::*;

    fn arena() -> Arena {
        let options = ArenaOptions {
            region_bytes: 1 << 20,
            ..ArenaOptions::default()
        };
        Arena::new(DeviceKind::CPU, options).unwrap()
    }

    fn batch() -> RecordBatch {
        let words = (0..1000).map(|row| (row % 7 > 0).then(|| format!("a rather long word {row}")));
        let words: Vec<_> = words.collect();
        let words = || words.iter().map(|word| word.as_deref());
        let lists = (0..1000).map(|row| (row % 5 > 0).then(|| vec![Some(row), None]));
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("number", Arc::new(Int32Array::from_iter_values(0..1000))),
            ("word", Arc::new(words().collect::<StringArray>())),
            ("view", Arc::new(words().collect::<StringViewArray>())),
            (
                "list",
                Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists)),
            ),
            (
                "dictionary",
                Arc::new(
                    ["x", "y"]
                        .into_iter()
                        .cycle()
                        .take(1000)
                        .collect::<DictionaryArray<Int8Type>>(),
                ),
            ),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    fn load_all(batches: Vec<RecordBatch>, arena: &Arena) -> Vec<RecordBatch> {
        let schema = batches[0].schema();
        let reader = RecordBatchIterator::new(batches.into_iter().map(Ok), schema);
        let loaded = load(Reader::plain(reader), arena, u64::MAX).unwrap();
        loaded.into_iter().map(|(batch, _)| batch).collect()
    }

    fn check_lendable(data: &ArrayData) {
        let nulls = data.nulls().map(|nulls| nulls.inner().inner());
        for buffer in data
            .buffers()
            .iter()
            .chain(nulls)
            .filter(|buffer| !buffer.is_empty())
        {
            assert!(dipc::ArenaFile::of(buffer).is_some());
        }
        data.child_data().iter().for_each(check_lendable);
    }

    /// Promise of `serve --arena`: every buffer of every column lies in the arena, with equal
    /// values, and the memory is freed with the last batch.
    #[test]
    fn every_buffer_lies_in_the_arena() {
        let arena = arena();
        let batches = load_all(vec![batch()], &arena);
        assert_eq!(batches, [batch()]);
        for column in batches[0].columns() {
            check_lendable(&column.to_data());
        }
        assert!(arena.used_bytes() > 0);
        drop(batches);
        assert_eq!(arena.used_bytes(), 0);
    }

    /// Slices of one batch share its buffers, which are copied once, not for each slice.
    #[test]
    fn slices_are_copied_once() {
        let whole = arena();
        let held = load_all(vec![batch()], &whole);
        let sliced = arena();
        let all = batch();
        let slices = (0..10)
            .map(|part| all.slice(part * 100, 100))
            .collect::<Vec<_>>();
        let parts = load_all(slices.clone(), &sliced);
        assert_eq!(parts, slices);
        // Views are compacted, so their size differs a little.
        assert!(sliced.used_bytes() < 2 * whole.used_bytes());
        drop(held);
    }

    /// A full arena gives an error that says so, and is empty afterwards.
    #[test]
    fn a_full_arena_is_an_error() {
        let options = ArenaOptions {
            region_bytes: 4096,
            max_bytes: 8192,
        };
        let arena = Arena::new(DeviceKind::CPU, options).unwrap();
        let reader = RecordBatchIterator::new([Ok(batch())], batch().schema());
        let error = load(Reader::plain(reader), &arena, 8192).unwrap_err();
        assert!(format!("{error:#}").contains("--max-memory"), "{error:#}");
        assert_eq!(arena.used_bytes(), 0);
    }
}
